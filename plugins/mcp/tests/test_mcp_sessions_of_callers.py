"""Each call of an MCP server uses the credential and the session of its own caller."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from operad import CallError, ConfigError, Identity, OperationContext, OperationRegistry, load_plugins, operation
from operad_auth import CredentialProvider, Credentials
from operad_mcp import MCPClientConfig, client_of, from_mcp, to_mcp
from operad_mcp.client.sessions import CallerSessions, without_credentials
from operad_mcp.config import MCPAuth
from plugins.mcp.tests.peers import fails, listening

TABLE = """
[[credentials]]
name = "users"
type = "table"
entries = {ann = "a-token-of-ann", bob = "a-token-of-bob"}
"""
LIST = 'list_auth = {token = "list-token"}\n'


class Upstream:
    """An MCP server that knows its callers by their tokens, and keeps what each request brought along."""

    def __init__(self) -> None:
        self.seen: list[tuple[str | None, str | None]] = []
        self.url = ""
        self.is_asked, self.gate = asyncio.Event(), asyncio.Event()

    @property
    def tokens(self) -> set[str | None]:
        return {token for token, _ in self.seen}

    def sessions_of(self, token: str) -> set[str]:
        return {session for found, session in self.seen if found == token and session is not None}

    async def authenticate(self, credentials: Credentials) -> Identity | None:
        self.seen.append((credentials.bearer, credentials.headers.get("mcp-session-id")))
        return Identity(credentials.bearer) if credentials.bearer else None

    def registry(self) -> OperationRegistry:
        def of(context: OperationContext) -> str:
            assert context.identity is not None
            return context.identity.id

        @operation(namespace="up")
        async def who(context: OperationContext, n: int = 0) -> str:
            return f"{of(context)} {n}"

        @operation(namespace="up")
        async def wait(context: OperationContext) -> str:
            self.is_asked.set()
            await self.gate.wait()
            return of(context)

        @operation(namespace="up")
        async def ask(context: OperationContext) -> str:
            schema = {"type": "object", "properties": {"answer": {"type": "string"}}}
            found = await client_of(context).elicit(f"for {of(context)}", schema)
            return f"{of(context)} {found['content']['answer']}"

        @operation(namespace="up")
        async def fail(context: OperationContext) -> str:
            raise CallError("EXECUTION_ERROR", f"broken for {of(context)}")

        registry = OperationRegistry(load_plugins())
        for each in (who, wait, ask, fail):
            registry.register(each)
        return registry


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    upstream = Upstream()
    async with (
        upstream.registry() as registry,
        listening(to_mcp(registry, authenticate=upstream.authenticate).asgi()) as url,
    ):
        upstream.url = f"{url}/mcp"
        yield upstream


@asynccontextmanager
async def gateway(
    upstream: Upstream, folder: Path, more: str = "", table: str = TABLE, listing: str = LIST
) -> AsyncIterator[OperationRegistry]:
    (folder / "operad.toml").write_text(
        f'{table}\n[sources.up]\ntype = "mcp"\nurl = "{upstream.url}"\n{listing}'
        f'auth = {{type = "caller", provider = "users"}}\n{more}\n'
    )
    async with OperationRegistry.from_config(folder, load_plugins(), strict=True) as registry:
        yield registry


async def refusal(upstream: Upstream, folder: Path, **options: str) -> str:
    """Return the error that a configuration ends with."""
    with pytest.raises(ExceptionGroup) as caught:
        async with gateway(upstream, folder, **options):
            pass
    return str(caught.value.exceptions[0])


def caller(name: str, **more: Any) -> OperationContext:
    return OperationContext(identity=Identity(name), **more)


MODES = pytest.mark.parametrize("mode", ["auto", "legacy"])


@MODES
async def test_each_call_has_the_credential_and_the_session_of_its_caller(
    upstream: Upstream, tmp_path: Path, mode: str
) -> None:
    async with gateway(upstream, tmp_path, f'mode = "{mode}"') as registry:
        assert upstream.tokens == {"list-token"}

        async def check(name: str, n: int) -> None:
            envelope = await registry.execute("up.up.who", {"n": n}, caller(name))
            assert envelope.data == f"a-token-of-{name} {n}"

        await asyncio.gather(*(check("ann" if n % 3 else "bob", n) for n in range(90)))
        sessions = [upstream.sessions_of(token) for token in ("list-token", "a-token-of-ann", "a-token-of-bob")]
        assert [len(each) for each in sessions] == ([1, 1, 1] if mode == "legacy" else [0, 0, 0])
        assert len(set().union(*sessions)) == sum(map(len, sessions))


async def test_a_caller_without_a_credential_is_denied_before_any_request(
    upstream: Upstream, tmp_path: Path
) -> None:
    async with gateway(upstream, tmp_path) as registry:
        before = list(upstream.seen)
        for context in (caller("eve"), OperationContext(), OperationContext(trusted=True)):
            with pytest.raises(CallError, match="ACCESS_DENIED"):
                await registry.execute("up.up.who", {}, context)
        assert upstream.seen == before


async def test_a_listing_without_its_credential_says_what_to_add(upstream: Upstream, tmp_path: Path) -> None:
    error = await refusal(upstream, tmp_path, listing="")
    assert "set list_auth, the credential with which the listing is requested" in error
    assert upstream.tokens == {None}


async def test_the_question_of_a_server_reaches_the_caller_of_its_session_alone(
    upstream: Upstream, tmp_path: Path
) -> None:
    class Host:
        def __init__(self, name: str) -> None:
            self.name, self.questions = name, list[str]()
            self.capabilities = {"elicitation": {}}

        async def progress(self, *_: Any) -> None: ...

        async def log(self, *_: Any) -> None: ...

        async def elicit(self, message: str, *_: Any) -> Any:
            self.questions.append(message)
            return {"action": "accept", "content": {"answer": self.name}}

    async with gateway(upstream, tmp_path, 'mode = "legacy"\nelicitation = "caller"') as registry:
        hosts = {name: Host(name) for name in ("ann", "bob")}

        async def check(name: str) -> None:
            envelope = await registry.execute("up.up.ask", {}, caller(name, client=hosts[name]))
            assert envelope.data == f"a-token-of-{name} {name}"

        await asyncio.gather(*(check(name) for name in ("ann", "bob") * 10))
        for name, host in hosts.items():
            assert host.questions == [f"up.up.ask asks: for a-token-of-{name}"] * 10


async def test_an_error_names_its_own_caller_alone(upstream: Upstream, tmp_path: Path) -> None:
    async with gateway(upstream, tmp_path) as registry:

        async def check(name: str, other: str) -> None:
            envelope = await registry.execute("up.up.fail", {}, caller(name))
            assert f"a-token-of-{name}" in str(envelope)
            assert other not in str(envelope)

        await asyncio.gather(*(check(*pair) for pair in (("ann", "bob"), ("bob", "ann")) * 10))


async def test_headers_of_a_call_replace_no_credential(upstream: Upstream, tmp_path: Path) -> None:
    async with gateway(upstream, tmp_path) as registry:
        forged = {"mcp": {"headers": {"Authorization": "Bearer a-token-of-bob", "x-more": "1"}}}
        envelope = await registry.execute("up.up.who", {}, caller("ann", metadata=forged))
        assert envelope.data == "a-token-of-ann 0"
        assert "a-token-of-bob" not in upstream.tokens


async def test_a_session_is_closed_when_no_call_has_used_it_for_a_while(
    upstream: Upstream, tmp_path: Path
) -> None:
    async with gateway(upstream, tmp_path, 'mode = "legacy"\nsession_idle = 0.05') as registry:
        running = asyncio.create_task(registry.execute("up.up.wait", {}, caller("bob")))
        async with asyncio.timeout(20):
            await upstream.is_asked.wait()
            while len(upstream.sessions_of("a-token-of-ann")) < 3:
                await registry.execute("up.up.who", {}, caller("ann"))
                await asyncio.sleep(0.1)
        upstream.gate.set()
        assert (await running).data == "a-token-of-bob"
        assert len(upstream.sessions_of("a-token-of-bob")) == 1


async def test_there_are_no_more_sessions_than_configured(upstream: Upstream, tmp_path: Path) -> None:
    async with gateway(upstream, tmp_path, 'mode = "legacy"\nmax_sessions = 1') as registry:
        running = asyncio.create_task(registry.execute("up.up.wait", {}, caller("bob")))
        async with asyncio.timeout(20):
            await upstream.is_asked.wait()
        with pytest.raises(CallError, match="OVERLOADED: MCP server .*all 1 sessions are in use"):
            await registry.execute("up.up.who", {}, caller("ann"))
        assert "a-token-of-ann" not in upstream.tokens
        upstream.gate.set()
        await running
        assert (await registry.execute("up.up.who", {}, caller("ann"))).data == "a-token-of-ann 0"
        assert len(upstream.sessions_of("a-token-of-bob")) == 1


CALLER = {"type": "caller", "provider": object()}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"command": "x", "auth": CALLER}, "needs a url; a program has one credential for all"),
        ({"url": "http://h/", "auth": CALLER, "headers": {"authorization": "x"}}, "every caller"),
        ({"url": "http://h/", "list_auth": {"token": "x"}}, 'list_auth requires auth with type "caller"'),
        ({"url": "http://h/", "auth": {**CALLER, "provider": "users"}}, "got the name .users., which only"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_configured(options: dict[str, Any], message: str) -> None:
    auths = {name: MCPAuth(**options[name]) for name in ("auth", "list_auth") if name in options}
    with pytest.raises(ConfigError, match=message):
        MCPClientConfig(**{**options, **auths})


# --- forward --------------------------------------------------------------------------------------------


FORWARD = '[[credentials]]\nname = "users"\ntype = "forward"\norigins = ["{}"]\n'


def forwarded(name: str) -> OperationContext:
    return caller(name, credentials=Credentials("bearer", f"own-token-of-{name}"))


async def test_a_forwarded_token_goes_to_a_named_server_alone(upstream: Upstream, tmp_path: Path) -> None:
    origin = upstream.url.removesuffix("/mcp")
    async with gateway(upstream, tmp_path, table=FORWARD.format(origin)) as registry:
        for name in ("ann", "bob"):
            assert (await registry.execute("up.up.who", {}, forwarded(name))).data == f"own-token-of-{name} 0"
    error = await refusal(upstream, tmp_path, table=FORWARD.format("https://mcp.example.com"))
    assert f"may not be sent to {upstream.url}" in error


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_of_an_mcp_server_takes_no_token_to_another_origin(
    upstream: Upstream, tmp_path: Path, status: int
) -> None:
    moved, stolen = asyncio.Event(), list[str | None]()
    theirs = to_mcp(upstream.registry(), authenticate=upstream.authenticate).asgi()

    async def thief(scope: Any, receive: Any, send: Any) -> None:
        stolen.append(dict(scope["headers"]).get(b"authorization"))
        await send({"type": "http.response.start", "status": 500, "headers": []})
        await send({"type": "http.response.body"})

    async with listening(thief) as elsewhere:

        async def app(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] != "http" or not moved.is_set():
                await theirs(scope, receive, send)
                return
            headers = [(b"location", f"{elsewhere}/mcp".encode())]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body"})

        async with listening(app) as url:
            upstream.url = f"{url}/mcp"
            async with gateway(upstream, tmp_path, table=FORWARD.format(url)) as registry:
                moved.set()
                with pytest.raises(CallError) as caught:
                    await registry.execute("up.up.who", {}, forwarded("ann"))
                assert "own-token-of-ann" not in str(caught.value) + repr(caught.value.details)
        assert stolen == []


# --- the pool -------------------------------------------------------------------------------------------


def pool(
    url: str = "http://127.0.0.1:9/mcp", *, get: Any = None, refused: Any = None, **options: Any
) -> CallerSessions:
    """Sessions whose callers have a token each; no request is sent unless a test sends one."""

    async def token(context: OperationContext, _origin: str) -> Any:
        assert context.identity is not None
        return {"token": f"token-of-{context.identity.id}"}

    provider = CredentialProvider("users", get or token, refused=refused or (lambda *_: False))
    auth = MCPAuth(type="caller", provider=provider)
    return CallerSessions("up", MCPClientConfig(url=url, auth=auth, **options))


async def test_a_caller_has_one_session_for_each_of_its_credentials() -> None:
    tables: list[Any] = [{"type": "bearer", "token": "x"}, {"token": "x", "type": "bearer"}, {"token": "y"}]
    asked: list[str] = []

    async def get(context: OperationContext, origin: str) -> Any:
        asked.append(origin)
        return tables[context.metadata.get("table", 0)]

    sessions = pool("https://mcp.example.com/some/path", get=get)
    first = await sessions.of(caller("ann"))
    assert await sessions.of(caller("ann", metadata={"table": 1})) is first
    others = [caller("ann", metadata={"table": 2}), caller("bob"), OperationContext()]
    assert len({first, *[await sessions.of(each) for each in others]}) == len(sessions) == 4
    assert set(asked) == {"https://mcp.example.com"}
    assert first.config.auth == MCPAuth(token="x")
    assert first.config.list_auth is None
    await sessions.aclose()


@pytest.mark.parametrize(
    "table",
    [
        {"type": "oauth"}, {"type": "bearer"}, {"type": "bearer", "token": 5}, {"unknown": "hush"},
        {"type": "caller", "provider": CredentialProvider("x", pool)}, {"token": "hush\n"},
    ],
)  # fmt: skip
async def test_a_credential_of_a_caller_that_cannot_be_used_is_refused_without_its_value(table: Any) -> None:
    async def get(_context: OperationContext, _origin: str) -> Any:
        return table

    sessions = pool(get=get)
    error = await fails(sessions.of(caller("ann")))
    assert error.code == "EXECUTION_ERROR"
    assert '"bearer", "client_credentials", "jwt_bearer"' in error.message
    assert "hush" not in error.message
    assert len(sessions) == 0


async def test_the_session_that_was_used_least_recently_makes_room() -> None:
    sessions = pool(max_sessions=2)
    ann, bob = await sessions.of(caller("ann")), await sessions.of(caller("bob"))
    assert await sessions.of(caller("ann")) is ann
    await sessions.of(caller("cid"))
    assert len(sessions) == 2
    assert await sessions.of(caller("ann")) is ann
    assert await sessions.of(caller("bob")) is not bob
    await sessions.aclose()


async def test_closed_sessions_are_not_opened_again() -> None:
    sessions = pool()
    connections = [await sessions.of(caller(name)) for name in ("ann", "bob")]
    for _ in range(2):
        await sessions.aclose()
    assert len(sessions) == 0
    for asking in (sessions.of(caller("ann")), *(connection.open() for connection in connections)):
        error = await fails(asking)
        assert error.code == "UNAVAILABLE"
        assert "closed" in error.message


async def test_a_session_is_idle_from_the_end_of_its_last_call(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now)

    async def after(seconds: float) -> int:
        nonlocal now
        now += seconds
        for _ in range(20):
            await asyncio.sleep(0)
        return len(sessions)

    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts connections and never responds
        sessions = pool(f"http://127.0.0.1:{silent.getsockname()[1]}/mcp", session_idle=10, connect_timeout=10_000)
        await sessions.of(caller("ann"))
        bob = await sessions.of(caller("bob"))
        watching = asyncio.create_task(anext(bob.watch_resource("a:b")))
        assert await after(6) == 2
        await sessions.of(caller("ann"))
        assert await after(6) == 2  # ann's was used 6 seconds ago, and bob's is in use
        assert await after(4) == 1
        watching.cancel()
        assert await after(5) == 1
        assert await sessions.of(caller("bob")) is bob
        assert await after(9) == 1
        assert await after(1) == 0
        await sessions.of(caller("ann"))
        assert await after(10) == 0  # the timer starts again with a new session
        await sessions.aclose()
        await asyncio.gather(watching, return_exceptions=True)


async def test_a_refused_credential_is_reported_and_the_call_is_sent_again_with_a_newer_one(
    upstream: Upstream,
) -> None:
    reported: list[Any] = []
    tokens = ["old", "new"]

    async def authenticate(credentials: Credentials) -> Identity | None:
        return None if credentials.bearer in ("old", "older") else Identity("somebody")

    async def get(context: OperationContext, _origin: str) -> Any:
        return {"token": tokens[0]}

    def refused(_context: OperationContext, table: Any) -> bool:
        reported.append(dict(table))
        return tokens.pop(0) == "old"

    auth = MCPAuth(type="caller", provider=CredentialProvider("users", get, refused=refused))
    app: Any = to_mcp(upstream.registry(), authenticate=authenticate).asgi()
    async with (
        listening(app) as url,
        OperationRegistry() as registry,
        await from_mcp("up", url=f"{url}/mcp", auth=auth, list_auth=MCPAuth(token="x")) as up,
    ):
        for each in up.operations:
            registry.register(each)
        assert (await registry.execute("up.up.who", {}, caller("ann"))).data == "somebody 0"
        assert reported == [{"token": "old"}]
        tokens[:] = ["older", "new"]
        error = await fails(registry.execute("up.up.who", {}, caller("ann")))
        assert isinstance(error.details, dict)
        assert error.details["statusCode"] == 401
        assert reported == [{"token": "old"}, {"token": "older"}]


@pytest.mark.parametrize(
    ("metadata", "sent"),
    [
        ({}, {}),
        ({"mcp": 5}, {"mcp": 5}),
        ({"mcp": {"headers": 5}}, {"mcp": {"headers": 5}}),
        (
            {"a": 1, "mcp": {"b": 2, "headers": {"Cookie": "c", "PROXY-authorization": "d", "x": "e"}}},
            {"a": 1, "mcp": {"b": 2, "headers": {"x": "e"}}},
        ),
    ],
)
def test_metadata_of_a_call_lose_their_credentials_alone(metadata: Any, sent: Any) -> None:
    assert without_credentials(metadata) == sent
