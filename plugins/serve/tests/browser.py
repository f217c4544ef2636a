"""A browser for the pages of a server: it keeps cookies, follows redirects and sends forms."""

from __future__ import annotations

import re
from contextlib import AsyncExitStack
from html import unescape
from typing import Any, Self
from urllib.parse import urlsplit

import aiohttp
from yarl import URL


class Browser(AsyncExitStack):
    """Keeps cookies, sends forms with their origin, and shows where it was sent."""

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        jar = aiohttp.CookieJar(unsafe=True)
        self.session = await self.enter_async_context(aiohttp.ClientSession(cookie_jar=jar))
        self.page, self.at, self.status = "", "", 0
        self.headers: Any = {}
        return self

    async def open(self, url: str) -> str:
        """Follow a link with all redirects; return the text of the page."""
        async with self.session.get(URL(url, encoded=True)) as response:
            self.page, self.at, self.status = await response.text(), str(response.url), response.status
            self.headers = response.headers
        return self.page

    async def send(self, token: str | None, login: str = "", **headers: str) -> Any:
        """Send the form of the page."""
        fields = re.findall(r'name="(ticket|proof)" value="([^"]*)"', self.page)
        form = {name: unescape(value) for name, value in fields} | ({"login": login} if login else {})
        parts = urlsplit(self.at)
        sent = {"origin": f"{parts.scheme}://{parts.netloc}", **headers}
        async with self.session.post(
            URL(self.at, encoded=True),
            data=form if token is None else {**form, "token": token},
            headers={name: value for name, value in sent.items() if value},
            allow_redirects=False,
        ) as response:
            self.status, text = response.status, await response.text()
            return response.headers.get("location"), text

    async def agree(self, token: str | None) -> str:
        """Send the form; return the URL of the authorization server."""
        url, text = await self.send(token)
        assert url is not None, text
        return str(url)
