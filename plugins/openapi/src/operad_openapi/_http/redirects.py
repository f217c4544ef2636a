"""Decide which redirects are followed, and with which method and body (RFC 9110, 15.4)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import attrs

from operad import CallError, ErrorCode
from operad_openapi._document.origins import origin_of
from operad_openapi._http.failures import host_of
from operad_openapi._request.request import Request

if TYPE_CHECKING:
    from aiohttp import ClientResponse

STATUSES = frozenset({301, 302, 303, 307, 308})
# What may follow to another origin: anything else could be a secret.
_PUBLIC_HEADERS = ("Accept", "Content-Type")


def redirected(request: Request, status: int, target: str, origins: Collection[str]) -> Request | None:
    """Return the request that a redirect asks for; ``None`` if the redirect is not followed.

    303 turns every method except HEAD into GET. 301 and 302 turn POST into GET, as other clients do, and are not
    followed for methods such as PUT. 307 and 308 repeat the request, if its body can be sent again. A body is sent
    only to the origin of the request and to ``origins``, because it may contain secrets. Credentials are sent only
    to the origin of the request.

    Args:
        request: the redirected request.
        status: the status of the redirect.
        target: the URL that the redirect leads to.
        origins: further origins that bodies may be sent to.
    """
    method, body = request.method, request.body
    if status == 303 or (status in (301, 302) and method == "POST"):
        method, body = ("HEAD" if method == "HEAD" else "GET"), None
    elif method not in ("GET", "HEAD") and status in (301, 302):
        return None
    is_home = origin_of(target) == origin_of(request.url)
    if body is not None and not (body.replayable and (is_home or origin_of(target) in origins)):
        return None
    if is_home:
        return attrs.evolve(request, url=target, method=method, body=body, is_redirected=True)
    kept = {name: request.headers[name] for name in _PUBLIC_HEADERS if name in request.headers}
    headers = type(request.headers)(kept)
    return attrs.evolve(
        request,
        url=target,
        method=method,
        body=body,
        headers=headers,
        cookies=[],
        authorize=None,
        prepare=None,
        is_redirected=True,
    )


@attrs.frozen(eq=False, repr=False)
class Gate:
    """The rules for the targets of redirects."""

    redirects: int
    """The maximum number of redirects for one request (limit ``redirects``)."""
    trusted: bool
    guard: Callable[[str, str], None]
    """Called with a host and the host that refers to it; see `GuardedResolver`."""

    async def target(self, response: ClientResponse, location: str, left: int) -> str:
        """Return the target URL of a redirect, without its fragment; ``left`` redirects may still be followed.

        Raises:
            CallError: the redirect must not be followed; the message states why.
        """
        from yarl import URL

        from operad_openapi._http.resolving import is_link_local, is_private

        def refuse(reason: str) -> CallError:
            response.close()
            message = f"{response.method} {host_of(str(response.url))} responded with {response.status}: {reason}"
            return CallError(
                ErrorCode.EXECUTION_ERROR, message, {"statusCode": response.status, "message": message}
            )

        if left <= 0:
            raise refuse(f"expected at most {self.redirects} redirects, got more (limit redirects)")
        try:
            target = response.url.join(URL(location))
        except ValueError as error:
            raise refuse("expected a URL in the header Location, got an invalid one") from error
        if target.scheme not in ("http", "https") or not target.host:
            raise refuse(f'expected a redirect to an http or https URL, got scheme "{target.scheme}"')
        if response.url.scheme == "https" and target.scheme == "http":
            raise refuse("expected a redirect from https to https, got one to http, which is not followed")
        source = response.url.host or ""
        if target.host != source:
            if await is_link_local(target.host) and not await is_link_local(source):
                # Of private addresses the one that hands out the credentials of a cloud's machine.
                raise refuse(f"a redirect to the link-local address {target.host} is not followed")
            if not self.trusted:
                if await is_private(target.host) and not await is_private(source):
                    raise refuse(f"a redirect to the private address {target.host} needs trusted = true")
                self.guard(target.host, source)
        return str(target.with_fragment(None))
