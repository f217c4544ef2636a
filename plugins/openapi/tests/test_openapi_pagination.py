"""Pages, one after the other."""

from functools import partial

import pytest
from aiohttp import web

from operad import OperationRegistry, load_plugins
from operad_openapi import http_envelope, paginate
from operad_openapi.pagination import next_link


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ('<https://a.test/x?page=2>; rel="next"', "https://a.test/x?page=2"),
        ('<a?page=1>; rel=prev, <a?q=,;&page=3>; title="x, y"; rel="last next"', "https://b.test/a?q=,;&page=3"),
        ('<a>; rel="nextish"', None),
        ("<a>", None),
        ("", None),
    ],
)
def test_next_link(header, expected):
    assert next_link({"link": header}, "https://b.test/x") == expected


async def test_links_are_followed_by_their_query(serve, api):
    async def handler(request):
        page = int(request.query.get("page", "1"))
        headers = (
            {} if page == 3 else {"Link": f'<https://elsewhere.test/x?page={page + 1}&sort=a%20b>; rel="next"'}
        )
        return web.json_response([page, request.query.get("sort")], headers=headers)

    parameters = [
        {"name": "page", "in": "query", "schema": {"type": "integer"}},
        {"name": "sort", "in": "query", "schema": {"type": "string"}},
    ]
    document = api({"get /x": {"operationId": "x", "parameters": parameters}})
    async with OperationRegistry(load_plugins(only=["openapi"])) as registry:
        await registry.load("openapi", namespace="api", spec=document, base_url=await serve(handler))
        pages = [page.data async for page in paginate(partial(registry.execute, "api.x"))]
    assert pages == [[1, None], [2, "a b"], [3, "a b"]]


async def test_cursors_of_the_body_and_the_cap():
    async def call(input):
        return http_envelope({"cursor": input.get("cursor", 0) + 1})

    def following(envelope):
        return {"cursor": envelope.data["cursor"]} if envelope.data["cursor"] < 4 else None

    assert len([page async for page in paginate(call, next_input=following)]) == 4
    assert len([page async for page in paginate(call, next_input=following, max_pages=2)]) == 2


async def test_a_page_that_follows_itself_ends_the_listing():
    async def call(input):
        return http_envelope([], headers={"Link": '<x?page=2>; rel="next"'})

    assert len([page async for page in paginate(call, {"page": 2})]) == 1
