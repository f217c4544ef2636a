"""The pages ``/connect/NAME`` and ``/disconnect/NAME``, on which users connect an account or disconnect it.

A link is for one identity. The browser that opens it must be authenticated as this identity: by the request itself
(a proxy, or an authenticator that reads cookies), by a login of ``[serve.oauth]``, or by the user's token for this
server in the form. The state between the two redirects is in an encrypted cookie, so that only the browser that
began can finish.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlsplit

from operad import CallError, OperadError
from operad_auth import Authenticator, Credentials
from operad_auth.connecting import FOREIGN, LIFETIME, ConnectRefused, UserTokens
from operad_serve.asgi import ADMISSION, Admission, ClientGoneError, Exchange, Receive, Scope, Send
from operad_serve.pages import HEADERS, show
from operad_serve.problems import Problem

if TYPE_CHECKING:
    from operad_serve.oauth.application import OAuthApplication

logger = logging.getLogger("operad.serve")

_MAX_FORM = 64 * 1024
_FORM_SECONDS = 10.0
_BY_HAND = (
    '<p><label>Your token for this server<input type="password" name="token" autocomplete="off" required>'
    "</label></p>"
)


class _Shown(Exception):
    """An exception that ends the request with a page."""

    def __init__(self, status: int, title: str, text: str) -> None:
        super().__init__(title)
        self.status, self.title, self.text = status, title, text


class ConnectPages:
    """The ASGI application of ``/connect/NAME`` and ``/disconnect/NAME``.

    The front door puts the `Admission` of a request into its scope.

    Args:
        users: the tokens of users, by the name of their ``[[credentials]]`` table.
        authenticate: returns the identity of a token that a user enters; if None, no entered token is valid.
        login: logs browsers in; None if ``[serve.oauth]`` is missing.
    """

    def __init__(
        self,
        users: Mapping[str, UserTokens],
        authenticate: Authenticator | None,
        login: OAuthApplication | None = None,
    ) -> None:
        self._users = users
        self._authenticate = authenticate
        self._login = login

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request. Raises `NotImplementedError` for a lifespan, which the pages do not need."""
        if scope["type"] != "http":
            raise NotImplementedError  # it has no lifespan
        root = scope.get("root_path", "").rstrip("/")
        exchange = Exchange(scope, receive, send, scope["path"].removeprefix(root))
        try:
            await self._serve(exchange)
        except ClientGoneError:
            return
        except ConnectRefused as refused:
            await show(exchange, 400, "Cannot continue", escape(str(refused)))
        except _Shown as shown:
            await show(exchange, shown.status, shown.title, shown.text)
        except Problem as problem:
            await exchange.respond_problem(problem)
        except OperadError as error:
            reason = error.message if isinstance(error, CallError) else str(error)
            logger.warning("%s failed: %s", exchange.path, reason)
            await show(exchange, 502, "The account is not connected", escape(reason))

    async def _serve(self, exchange: Exchange) -> None:
        _, action, name, *rest = [*exchange.path.split("/"), ""]
        users = self._users.get(name)
        if users is None or rest not in ([""], ["", ""], ["callback", ""]) or (rest[0] and action != "connect"):
            raise _Shown(404, "Not found", "There is no such page.")
        if exchange.method not in (("GET",) if rest[0] else ("GET", "POST")):
            raise _Shown(405, "Not allowed", "This page does not accept this method.")
        if rest[0]:
            await self._finish(exchange, users)
        elif action == "disconnect":
            await self._disconnect(exchange, users)
        elif exchange.method == "GET":
            await self._ask(exchange, users)
        else:
            await self._begin(exchange, users)

    # --- connecting ------------------------------------------------------------------------------------

    async def _ask(self, exchange: Exchange, users: UserTokens) -> None:
        """Show the page that asks to connect. The ticket stays valid, because link previews open the page too."""
        opener = _opener(exchange)
        ticket = _query(exchange).get("ticket", "")
        if not ticket and opener is not None:
            await _redirect(exchange, users.link(opener))
            return
        asker = users.identity_of(ticket)
        if opener is not None and opener != asker:
            raise ConnectRefused(FOREIGN)
        known = "" if opener is None else f" You are <b>{escape(opener)}</b> here."
        await show(
            exchange,
            200,
            f"Connect {escape(users.name)}",
            f"An operation that you called needs your account at <b>{escape(users.authorization_host)}</b>.{known}"
            " Go on only if you have just called it yourself."
            f"{self._forms(exchange, 'Go on', ticket)}",
        )

    def _forms(self, exchange: Exchange, what: str, ticket: str = "") -> str:
        """Return the form of a page, with a login before it if the browser is not authenticated."""
        hidden = f'<input type="hidden" name="ticket" value="{escape(ticket)}">'
        proof = _query(exchange).get("proof", "")

        def made(proven: str) -> str:
            return f'<form method="post">{hidden}{proven}<button>{what}</button></form>'

        if _opener(exchange) is not None:
            return made("")
        if proof:
            return made(f'<input type="hidden" name="proof" value="{escape(proof)}">')
        login = f'<form method="post">{hidden}<button name="login" value="1">Log in</button></form><p>Or:</p>'
        return (login if self._login is not None else "") + made(_BY_HAND)

    async def _log_in(self, exchange: Exchange, form: Mapping[str, str]) -> bool:
        """Send the browser to the login of this server if the user chose it. Return whether it was sent."""
        if self._login is None or not form.get("login"):
            return False
        ticket = form.get("ticket")
        page = exchange.path + (f"?ticket={quote(ticket)}" if ticket else "")
        await _redirect(exchange, await self._login.begin(exchange, page))
        return True

    async def _begin(self, exchange: Exchange, users: UserTokens) -> None:
        form = await _form(exchange, users)
        if await self._log_in(exchange, form):
            return
        identity = await self._proven(exchange, form)
        url, kept = await users.begin(form.get("ticket", ""), identity)
        await _redirect(exchange, url, _cookie(users, kept, LIFETIME))

    async def _finish(self, exchange: Exchange, users: UserTokens) -> None:
        kept = _cookies(exchange).get(_cookie_name(users), "")
        opener, expected = _opener(exchange), users.identity_of_login(kept)
        if opener is not None and opener != expected:
            raise ConnectRefused("Another user opened this link. Call the operation yourself to get a link.")
        exchange.add_header(b"set-cookie", _cookie(users, "", 0))
        await users.finish(_query(exchange), kept)
        text = "Close this page, and call the operation again."
        await show(exchange, 200, f"{escape(users.name)} is connected", text)

    # --- the end ---------------------------------------------------------------------------------------

    async def _disconnect(self, exchange: Exchange, users: UserTokens) -> None:
        if exchange.method == "GET":
            text = f"This server forgets your account.{self._forms(exchange, 'Disconnect')}"
            await show(exchange, 200, f"Disconnect {escape(users.name)}", text)
            return
        form = await _form(exchange, users)
        if await self._log_in(exchange, form):
            return
        identity = await self._proven(exchange, form)
        done = await users.disconnect(identity)
        await show(exchange, 200, f"{escape(users.name)} is disconnected", escape(done))

    # --- who opened it ---------------------------------------------------------------------------------

    async def _proven(self, exchange: Exchange, form: Mapping[str, str]) -> str:
        """Return the authenticated identity of the browser. Raises `_Shown` if it is not authenticated."""
        opener = _opener(exchange)
        if opener is None and self._login is not None and form.get("proof"):
            opener = await self._login.proven(exchange, form["proof"])
        if opener is None and self._authenticate is not None and form.get("token"):
            client = exchange.scope.get("client")
            shown = Credentials("bearer", form["token"].strip(), peer=client[0] if client else None)
            identity = await self._authenticate(shown)
            opener = None if identity is None else identity.id
        if opener is None:
            text = "The token is missing or not valid. Go back and try again."
            if form.get("proof"):
                text = "Your login has expired, or was used before. Open the link again and log in."
            raise _Shown(401, "Not authenticated", text)
        return opener


def _opener(exchange: Exchange) -> str | None:
    """Return the identity of the request's own credentials, or None. Raises `_Shown` if they are not valid."""
    admission = exchange.scope.get(ADMISSION)
    if not isinstance(admission, Admission):
        return None
    if admission.is_refused:
        raise _Shown(401, "Not authenticated", "The credentials of this request are not valid.")
    return None if admission.identity is None else admission.identity.id


def _query(exchange: Exchange) -> dict[str, str]:
    return _fields(exchange.scope.get("query_string", b"").decode("latin-1"))


def _fields(text: str) -> dict[str, str]:
    """Return the fields of a query or a form. Raises `ConnectRefused` if a field occurs twice."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=50)
    except ValueError:
        pairs = []
    if len({name for name, _ in pairs}) != len(pairs):
        raise ConnectRefused("The address of this page is damaged. Open the link again.")
    return dict(pairs)


async def _form(exchange: Exchange, users: UserTokens) -> dict[str, str]:
    """Return the fields of a form. Raises `_Shown` unless an own page, or a program with a token, sent it."""
    origin, own = exchange.header("origin"), urlsplit(users.public_url)
    if origin is None:
        # Browsers name the origin with every form. A program authenticates by a header that they never add.
        is_allowed = (exchange.header("authorization") or "").lower().startswith("bearer ")
    else:
        is_allowed = origin == f"{own.scheme}://{own.netloc}".lower()
    if not is_allowed:
        raise _Shown(403, "Not allowed", "The form was not sent from a page of this server. Open the page again.")
    return _fields((await exchange.body(_MAX_FORM, _FORM_SECONDS, has_options=False)).decode("latin-1"))


def _cookies(exchange: Exchange) -> dict[str, str]:
    pairs = (part.strip().partition("=") for part in (exchange.header("cookie") or "").split(";"))
    return {name: value for name, _, value in pairs}


def _cookie_name(users: UserTokens) -> str:
    prefix = "__Host-" if users.public_url.startswith("https:") else ""
    return f"{prefix}operad-connect-{users.name}"


def _cookie(users: UserTokens, value: str, seconds: int) -> str:
    secure = "; Secure" if users.public_url.startswith("https:") else ""
    # Lax: the browser must send it when the authorization server sends the user back.
    return f"{_cookie_name(users)}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}"


async def _redirect(exchange: Exchange, url: str, cookie: str | None = None) -> None:
    headers = [*HEADERS, (b"location", url.encode("latin-1", "replace")), (b"content-length", b"0")]
    if cookie is not None:
        exchange.add_header(b"set-cookie", cookie)
    await exchange.start(303, headers)
    await exchange.write(b"", more=False)
