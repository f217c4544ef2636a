"""Tokens and round trips of three tasks: a tool for each operation, search mode, code mode; FastMCP's CodeMode.

    npm install --prefix FOLDER gpt-tokenizer @octokit/openapi @modelcontextprotocol/server-memory \\
        @modelcontextprotocol/server-filesystem
    python benchmarks/code_tokens.py --npm FOLDER [--fastmcp PYTHON]

The tasks use GitHub's operations, which a server on this machine answers with the examples of GitHub's document,
two MCP servers and local functions. All ways go through the same MCP server, and their results are compared.
The model is a script without mistakes: it asks for what it needs in one round trip, and makes calls that do not
depend on each other in one round trip. Counted is what a model reads and writes once: definitions of tools,
arguments and results.

``--fastmcp`` names a Python with ``fastmcp`` and ``pydantic-monty``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from aiohttp import web
from mcp import Client

from operad import OperationRegistry, load_plugins, operation
from operad_mcp import to_mcp

REPOSITORIES = ["alpha", "beta", "gamma", "delta", "epsilon"]
Call = tuple[str, dict[str, Any]]
Turn = Callable[[list[Call]], Awaitable[list[Any]]]


@operation(namespace="people", type="query")
async def team(login: str) -> str:
    """Return the team of a person, by login."""
    return ["core", "docs", "infra"][int(login.removeprefix("user")) % 3]


@operation(namespace="people", type="query")
async def hours(login: str) -> int:
    """Return the hours that a person works each week, by login."""
    return 20 + int(login.removeprefix("user")) % 4 * 5


# --- the tasks, step by step and as programs ---------------------------------------------------------------

ISSUES = """\
import asyncio

async def last_comment(repo: str, number: int) -> str:
    comments = await github.issues_list_comments(owner="octo", repo=repo, issue_number=number)
    return comments[-1]["body"] if comments else ""

async def notes(repo: str) -> list:
    issues = await github.issues_list_for_repo(
        owner="octo", repo=repo, state="open", sort="created", direction="asc", per_page=10
    )
    comments = await asyncio.gather(*[last_comment(repo, issue["number"]) for issue in issues])
    return [
        {"name": f"{repo}#{issue['number']}", "entityType": "issue", "observations": [issue["title"], comment]}
        for issue, comment in zip(issues, comments)
    ]

found = []
for each in await asyncio.gather(*[notes(repo) for repo in ["alpha", "beta", "gamma", "delta", "epsilon"]]):
    found.extend(each)
await memory.create_entities(entities=found)
len(found)
"""


async def issues_step_by_step(turn: Turn) -> Any:
    """The ten oldest open issues of five repositories, each with its last comment, as notes."""
    fields = {"state": "open", "sort": "created", "direction": "asc", "per_page": 10}
    of = [("github.issues/list-for-repo", {"owner": "octo", "repo": repo, **fields}) for repo in REPOSITORIES]
    issues = [(repo, issue) for repo, found in zip(REPOSITORIES, await turn(of), strict=True) for issue in found]
    comments = await turn(
        [
            ("github.issues/list-comments", {"owner": "octo", "repo": repo, "issue_number": issue["number"]})
            for repo, issue in issues
        ]
    )
    entities = [
        {
            "name": f"{repo}#{issue['number']}",
            "entityType": "issue",
            "observations": [issue["title"], found[-1]["body"] if found else ""],
        }
        for (repo, issue), found in zip(issues, comments, strict=True)
    ]
    await turn([("memory.create_entities", {"entities": entities})])
    return len(entities)


PULLS = """\
import asyncio

pulls = await github.pulls_list(owner="octo", repo="alpha", state="open", per_page=10)
reviews = await asyncio.gather(
    *[github.pulls_list_reviews(owner="octo", repo="alpha", pull_number=pull["number"]) for pull in pulls]
)
waiting = [f"{pull['number']} {pull['title']}" for pull, found in zip(pulls, reviews) if not found]
await files.write_file(path="FOLDER/waiting.txt", content="\\n".join(waiting))
waiting
"""


async def pulls_step_by_step(turn: Turn) -> Any:
    """The open pull requests of a repository that nobody reviewed, written to a file."""
    of = {"owner": "octo", "repo": "alpha"}
    (pulls,) = await turn([("github.pulls/list", {**of, "state": "open", "per_page": 10})])
    reviews = await turn([("github.pulls/list-reviews", {**of, "pull_number": pull["number"]}) for pull in pulls])
    waiting = [
        f"{pull['number']} {pull['title']}" for pull, found in zip(pulls, reviews, strict=True) if not found
    ]
    await turn([("files.write_file", {"path": "FOLDER/waiting.txt", "content": "\n".join(waiting)})])
    return waiting


TEAMS = """\
import asyncio

contributors = await github.repos_list_contributors(owner="octo", repo="alpha", per_page=30)
names = [each["login"] for each in contributors or []]
teams = await asyncio.gather(*[people.team(login=name) for name in names])
hours = await asyncio.gather(*[people.hours(login=name) for name in names])
total = {}
for team, each in zip(teams, hours):
    total[team] = total.get(team, 0) + each
total
"""


async def teams_step_by_step(turn: Turn) -> Any:
    """The weekly hours of each team among the contributors of a repository."""
    (people,) = await turn(
        [("github.repos/list-contributors", {"owner": "octo", "repo": "alpha", "per_page": 30})]
    )
    names = [person["login"] for person in people]
    found = await turn([(f"people.{each}", {"login": name}) for each in ("team", "hours") for name in names])
    total: dict[str, int] = {}
    for group, each in zip(found[: len(names)], found[len(names) :], strict=True):
        total[group] = total.get(group, 0) + each
    return total


TASKS: list[tuple[str, Callable[[Turn], Awaitable[Any]], str, dict[str, str]]] = [
    ("50 issues as notes", issues_step_by_step, ISSUES, {
        "github.issues/list-for-repo": "list repository issues",
        "github.issues/list-comments": "list comments of an issue",
        "memory.create_entities": "create entities in memory",
    }),
    ("pull requests without review", pulls_step_by_step, PULLS, {
        "github.pulls/list": "list pull requests",
        "github.pulls/list-reviews": "list reviews of a pull request",
        "files.write_file": "write a file",
    }),
    ("hours of each team", teams_step_by_step, TEAMS, {
        "github.repos/list-contributors": "list repository contributors",
        "people.team": "team of a person",
        "people.hours": "hours that a person works each week",
    }),
]  # fmt: skip


# --- GitHub on this machine --------------------------------------------------------------------------------


async def github(document: dict[str, Any]) -> tuple[web.AppRunner, str]:
    """Answer what the tasks ask for, with the examples of the document."""
    examples = document["components"]["examples"]

    def items(name: str, count: int, change: Callable[[dict[str, Any], int], None]) -> list[Any]:
        (example,) = examples[name]["value"][:1]
        made = [json.loads(json.dumps(example)) for _ in range(count)]
        for number, each in enumerate(made, 1):
            change(each, number)
        return made

    def numbered(each: dict[str, Any], number: int) -> None:
        each.update(number=number, title=f"{each['title']} {number}")

    def answer(make: Callable[[web.Request], Any]) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            return web.json_response(make(request))

        return handle

    one = "/repos/{owner}/{repo}"
    app = web.Application()
    app.router.add_get(f"{one}/issues", answer(lambda _: items("issue-items", 10, numbered)))
    app.router.add_get(
        f"{one}/issues/{{number}}/comments",
        answer(
            lambda _: items("issue-comment-items", 3, lambda each, number: each.update(body=f"Comment {number}"))
        ),
    )
    app.router.add_get(f"{one}/pulls", answer(lambda _: items("pull-request-simple-items", 10, numbered)))
    app.router.add_get(
        f"{one}/pulls/{{number}}/reviews",
        answer(
            lambda request: items(
                "pull-request-review-items", int(request.match_info["number"]) % 2, lambda *_: None
            )
        ),
    )
    app.router.add_get(
        f"{one}/contributors",
        answer(
            lambda _: items(
                "contributor-items-response-if-repository-contains-content",
                20,
                lambda each, number: each.update(login=f"user{number}"),
            )
        ),
    )
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]  # a server of asyncio has sockets
    return runner, f"http://127.0.0.1:{port}"


# --- conversations -----------------------------------------------------------------------------------------


class Conversation:
    """What a model reads and writes, and how often."""

    def __init__(self, session: Client) -> None:
        self._session = session
        self.tools = ""
        self.texts: list[str] = []
        self.turns = 0

    async def open(self) -> None:
        tools: list[Any] = []
        cursor = None
        while True:
            page = await self._session.list_tools(cursor=cursor)
            tools += [
                {"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema}
                for tool in page.tools
            ]
            cursor = page.next_cursor
            if cursor is None:
                break
        self.tools = json.dumps(tools)

    async def turn(self, calls: list[tuple[str, dict[str, Any]]]) -> list[str]:
        """Make calls in one round trip; return the texts of their results."""
        self.turns += 1
        results = await asyncio.gather(*[self._session.call_tool(name, input) for name, input in calls])
        texts = []
        for (name, input), result in zip(calls, results, strict=True):
            text = result.content[0].text if result.content else "null"
            assert not result.is_error, f"{name}: {text[:2000]}"
            self.texts += [json.dumps({"name": name, "arguments": input}), text]
            texts.append(text)
        return texts


def data_of(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


async def one_tool_each(session: Client, steps: Any, queries: dict[str, str], names: dict[str, str]) -> Any:
    conversation = Conversation(session)
    await conversation.open()

    async def turn(calls: list[Call]) -> list[Any]:
        return [data_of(text) for text in await conversation.turn([(names[id], input) for id, input in calls])]

    return await steps(turn), conversation


async def searching(session: Client, steps: Any, queries: dict[str, str], names: dict[str, str]) -> Any:
    conversation = Conversation(session)
    await conversation.open()
    await conversation.turn([("search", {"query": query, "limit": 5}) for query in queries.values()])
    await conversation.turn([("describe", {"id": id}) for id in queries])

    async def turn(calls: list[Call]) -> list[Any]:
        made = await conversation.turn([("call", {"id": id, "input": input}) for id, input in calls])
        return [data_of(text) for text in made]

    return await steps(turn), conversation


async def in_code(session: Client, code: str, queries: dict[str, str]) -> Any:
    conversation = Conversation(session)
    await conversation.open()
    await conversation.turn([("code_search", {"query": query, "limit": 5}) for query in queries.values()])
    await conversation.turn([("code_describe", {"names": list(queries)})])
    (text,) = await conversation.turn([("code_run", {"code": code})])
    return data_of(text), conversation


def counted(npm: Path, texts: list[list[str]]) -> list[int]:
    """The tokens of each list of texts, in the vocabulary o200k_base."""
    script = """
    const { encode } = require("gpt-tokenizer/encoding/o200k_base");
    const lists = JSON.parse(require("fs").readFileSync(0, "utf8"));
    console.log(JSON.stringify(lists.map((texts) => texts.reduce((sum, text) => sum + encode(text).length, 0))));
    """
    done = subprocess.run(
        ["node", "-e", script], input=json.dumps(texts), capture_output=True, text=True, cwd=npm, check=True
    )
    counts: list[int] = json.loads(done.stdout)
    return counts


# --- FastMCP -----------------------------------------------------------------------------------------------

FASTMCP = '''
import asyncio, json, sys, time
began = time.perf_counter()
try:
    import httpx2 as httpx
except ImportError:
    import httpx
from fastmcp import Client, FastMCP
from fastmcp.experimental.transforms.code_mode import CodeMode
from mcp.types import TextContent

CODE = """
of = {"owner": "octo", "repo": "alpha"}
pulls = await call_tool("pullslist", {**of, "state": "open", "per_page": 10})
waiting = []
for pull in pulls["result"] if isinstance(pulls, dict) else pulls:
    found = await call_tool("pullslist_reviews", {**of, "pull_number": pull["number"]})
    if not (found["result"] if isinstance(found, dict) else found):
        waiting.append(str(pull["number"]) + " " + pull["title"])
return waiting
"""

async def main():
    document = json.load(open(sys.argv[1]))
    server = FastMCP.from_openapi(document, client=httpx.AsyncClient(base_url=sys.argv[2]))
    server.add_transform(CodeMode())
    async with Client(server) as client:
        tools = await client.list_tools()
        start = time.perf_counter() - began
        listing = json.dumps([{"name": t.name, "description": t.description,
            "inputSchema": getattr(t, "input_schema", None) or t.inputSchema} for t in tools])
        texts = []
        async def call(name, arguments):
            result = await client.call_tool(name, arguments)
            texts.extend([json.dumps({"name": name, "arguments": arguments}), result.content[0].text])
            return result
        await call("search", {"query": "list pull requests"})
        await call("search", {"query": "list reviews of a pull request"})
        await call("get_schema", {"tools": ["pullslist", "pullslist_reviews"]})
        first = time.perf_counter()
        await call("execute", {"code": CODE})
        once = time.perf_counter() - first
        again = []
        for _ in range(1):
            first = time.perf_counter()
            result = await client.call_tool("execute", {"code": CODE})
            again.append(time.perf_counter() - first)
    print(json.dumps({"start": start, "listing": listing, "texts": texts, "first": once,
        "again": again[0], "result": result.content[0].text}))

asyncio.run(main())
'''
OURS = '''
import asyncio, json, sys, time
began = time.perf_counter()
from mcp import Client
from operad import OperationRegistry, load_plugins
from operad_mcp import to_mcp

CODE = """
waiting = []
for pull in await github.pulls_list(owner="octo", repo="alpha", state="open", per_page=10):
    if not await github.pulls_list_reviews(owner="octo", repo="alpha", pull_number=pull["number"]):
        waiting.append(str(pull["number"]) + " " + pull["title"])
return waiting
"""

async def main():
    async with OperationRegistry(load_plugins()) as registry:
        await registry.load("openapi", namespace="github", spec=sys.argv[1], base_url=sys.argv[2])
        await registry.load("code")
        async with Client(to_mcp(registry, tools="code").server()) as client:
            tools = (await client.list_tools()).tools
            start = time.perf_counter() - began
            listing = json.dumps([{"name": t.name, "description": t.description, "inputSchema": t.input_schema}
                for t in tools])
            texts = []
            async def call(name, arguments):
                result = await client.call_tool(name, arguments)
                texts.extend([json.dumps({"name": name, "arguments": arguments}), result.content[0].text])
                return result
            await call("code_search", {"query": "list pull requests"})
            await call("code_search", {"query": "list reviews of a pull request"})
            await call("code_describe", {"names": ["github.pulls/list", "github.pulls/list-reviews"]})
            first = time.perf_counter()
            await call("code_run", {"code": CODE})
            once = time.perf_counter() - first
            again = []
            for _ in range(1):
                first = time.perf_counter()
                result = await client.call_tool("code_run", {"code": CODE})
                again.append(time.perf_counter() - first)
    print(json.dumps({"start": start, "listing": listing, "texts": texts, "first": once,
        "again": again[0], "result": result.content[0].text}))

asyncio.run(main())
'''


async def beside_fastmcp(npm: Path, document: Path, url: str, python: str | None) -> None:
    parties = [("operad", sys.executable, OURS)]
    if python is not None:
        parties.append(("FastMCP", python, FASTMCP))
    print(f"\n{'Code mode over GitHub alone':<32}{'start':>9}{'listing':>9}{'task':>9}{'first':>9}{'again':>9}")
    for name, executable, script in parties:
        process = await asyncio.create_subprocess_exec(
            executable, "-c", script, str(document), url, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await process.communicate()
        if process.returncode:
            print(f"{name}: failed")
            continue
        found = json.loads(out.splitlines()[-1])
        listing, task = counted(npm, [[found["listing"]], found["texts"]])
        print(
            f"{name:<32}{found['start']:>7.2f} s{listing:>9,}{task:>9,}{found['first'] * 1000:>6.0f} ms"
            f"{found['again'] * 1000:>6.0f} ms   {found['result'][:40]!r}"
        )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--npm", type=Path, required=True, help="the folder of `npm install --prefix FOLDER …`")
    parser.add_argument("--fastmcp", help="a Python with fastmcp and pydantic-monty")
    options = parser.parse_args()
    npm = options.npm.resolve()
    modules = npm / "node_modules"
    document = modules / "@octokit/openapi/generated/api.github.com.json"
    runner, url = await github(json.loads(document.read_bytes()))
    with tempfile.TemporaryDirectory() as folder:
        async with OperationRegistry(load_plugins()) as registry:
            registry.register(team)
            registry.register(hours)
            servers = modules / "@modelcontextprotocol"
            memory = {"MEMORY_FILE_PATH": f"{folder}/memory.jsonl"}
            await registry.load("openapi", namespace="github", spec=str(document), base_url=url)
            program = str(servers / "server-memory/dist/index.js")
            await registry.load("mcp", namespace="memory", command="node", args=[program], env=memory)
            program = str(servers / "server-filesystem/dist/index.js")
            await registry.load("mcp", namespace="files", command="node", args=[program, folder])
            view = registry.view(exclude="code.*")
            served = {"all": to_mcp(view, tools="all"), "search": to_mcp(view, tools="search")}
            began = time.perf_counter()
            await registry.load("code")
            served["code"] = to_mcp(registry, tools="code")
            names = {spec.id: tool for tool, spec in _tools(view).items()}
            print(f"{len(registry) - 3:,} operations; code mode was ready in {time.perf_counter() - began:.3f} s")
            print(f"{'':<32}{'':<8}{'tools':>9}{'the rest':>10}{'together':>10}{'round trips':>13}")
            for title, steps, code, queries in TASKS:
                answers = {}
                for way, server in served.items():
                    async with Client(server.server()) as session:
                        if way == "code":
                            made = await in_code(session, code.replace("FOLDER", folder), queries)
                        else:
                            run = one_tool_each if way == "all" else searching
                            made = await run(session, _in(folder, steps), queries, names)
                    answers[way], conversation = made
                    tools, rest = counted(npm, [[conversation.tools], conversation.texts])
                    print(f"{title:<32}{way:<8}{tools:>9,}{rest:>10,}{tools + rest:>10,}{conversation.turns:>13}")
                    title = ""
                    (Path(folder) / "memory.jsonl").unlink(missing_ok=True)
                assert answers["all"] == answers["search"] == answers["code"], answers
    await beside_fastmcp(npm, document, url, options.fastmcp)
    await runner.cleanup()


def _in(folder: str, steps: Any) -> Any:
    """The steps with paths below a folder."""

    async def run(turn: Turn) -> Any:
        async def placed(calls: list[Call]) -> list[Any]:
            return await turn(json.loads(json.dumps(calls).replace("FOLDER", folder)))

        return await steps(placed)

    return run


def _tools(registry: OperationRegistry) -> dict[str, Any]:
    from operad.names import safe_names

    return {tool: registry.get_spec(id) for tool, id in safe_names({s.id: s.id for s in registry.specs()}).items()}


if __name__ == "__main__":
    asyncio.run(main())
