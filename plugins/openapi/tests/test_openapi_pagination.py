"""Pages, one after the other."""

from functools import partial

import pytest
from aiohttp import web

from operad import CallError, ConfigError
from operad_openapi import HTTPServiceConfig, Pagination, http_envelope, paginate
from operad_openapi.pagination import next_link
from plugins.openapi.tests.data import TABLES
from plugins.openapi.tests.handlers import replying
from plugins.openapi.tests.making import answers, body, parameter, path_parameter


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


def following(link, data=(1,)):
    """A response that leads to another page."""
    return web.json_response(list(data), headers={"Link": f'<{link}>; rel="next"'} if link else {})


async def test_links_are_followed_by_their_query(load, registry):
    def handler(request):
        page = int(request.query.get("page", "1"))
        link = f"https://elsewhere.test/x?page={page + 1}&sort=a%20b"
        return following(link if page < 3 else None, [page, request.query.get("sort")])

    parameters = [parameter("page", schema={"type": "integer"}), parameter("sort")]
    await load(handler, {"get /x": {"operationId": "x", "parameters": parameters}})
    pages = [page.data async for page in paginate(partial(registry.execute, "api.x"))]
    assert pages == [[1, None], [2, "a b"], [3, "a b"]]


async def test_cursors_of_the_body_and_the_cap():
    async def call(input):
        return http_envelope({"cursor": input.get("cursor", 0) + 1})

    def next_input(envelope):
        return {"cursor": envelope.data["cursor"]} if envelope.data["cursor"] < 4 else None

    assert len([page async for page in paginate(call, next_input=next_input)]) == 4
    assert len([page async for page in paginate(call, next_input=next_input, max_pages=2)]) == 2


async def test_a_page_that_follows_itself_ends_the_listing():
    async def call(input):
        return http_envelope([], headers={"Link": '<x?page=2>; rel="next"'})

    assert len([page async for page in paginate(call, {"page": 2})]) == 1


async def test_a_rule_or_a_function_goes_before_the_header(load, registry):
    await load(listing, {"get /x": LISTING}, pagination={"x": {"offset": "offset", "items": "items"}})
    execute = partial(registry.execute, "api.x")
    assert len([page async for page in paginate(execute)]) == 4
    assert len([page async for page in paginate(execute, max_pages=2)]) == 2
    offsets = iter([{"offset": 2}, {"offset": 4}, {"offset": 4}])
    pages = [page.data["items"] async for page in paginate(execute, next_input=lambda _: next(offsets))]
    assert pages == [[0, 1], [2, 3], [4]]


# --- through the registry ----------------------------------------------------------------------------


async def test_a_link_keeps_what_it_repeats_and_reads_what_it_changes_by_its_schema(load, registry, requests):
    """Booleans, numbers as text, arrays of either form, nested names, renamed and unknown parameters."""
    links = [
        "page=2&archived=true&q=2024&milestone=1&ids=1&ids=2&tags=a%2Cb&filter%5Bx%5D=5&ratio=1.5&id=7",
        "page=3&archived=false&q=2025&milestone=%2A&ids=3&tags=c&filter%5Bx%5D=6&ratio=2.5&id=8&unheard=of",
    ]

    async def handler(request):
        page = int(request.query.get("page", "1"))
        return following(None if page == 3 else f"https://elsewhere.test/y?{links[page - 1]}", [page])

    parameters, first = TABLES["a listing of many parameters"]
    await load(handler, {"get /x/{id}": {"operationId": "x", "parameters": parameters}})
    assert [page.data async for page in registry.paginate("api.x", first)] == [[1], [2], [3]]
    second, third = (sorted(request.rel_url.raw_query_string.split("&")) for request in requests[1:])
    assert second == sorted(links[0].replace("%2C", ",").split("&"))
    assert third == sorted(links[1].removesuffix("&unheard=of").split("&"))


async def test_a_link_that_asks_for_what_the_operation_does_not_take_is_an_error(load, registry):
    await load(lambda request: following("?page=2"))
    pages = registry.paginate("api.x")
    await anext(pages)
    with pytest.raises(CallError, match="'page'"):
        await anext(pages)


async def test_a_link_that_is_no_url_is_an_error_and_not_the_end(load, registry):
    await load(lambda request: following("http://[?page=2"))
    own = paginate(lambda given: registry.execute("api.x", given))
    for pages in (registry.paginate("api.x"), paginate(partial(registry.execute, "api.x")), own):
        await anext(pages)
        with pytest.raises(CallError, match=r"/.*: expected a URL as the link to the next page"):
            await anext(pages)


NUMBERS = [parameter(name, schema={"type": "integer"}) for name in ("offset", "limit", "page")]
LISTING = {"operationId": "x", "parameters": [*NUMBERS, parameter("cursor")]}
PER_PAGE = 2
ALL = list(range(5))


async def listing(request):
    """Answers five items in every dialect at once."""
    start = int(request.query.get("offset", 0)) or (int(request.query.get("page", 1)) - 1) * PER_PAGE
    start = int(request.query.get("cursor", start))
    items, following = ALL[start : start + PER_PAGE], start + PER_PAGE
    is_last = following >= len(ALL)
    body = {
        "items": items,
        "meta": {"next": None if is_last else following, "pages": 3},
        "links": {"next": None if is_last else f"/x?cursor={following}"},
        "has_more": not is_last,
        "rows": [{"id": item + 1} for item in items],
    }
    return web.json_response(body, headers={} if is_last else {"X-Next": str(following)})


@pytest.mark.parametrize("rule", TABLES["rules of pages"], ids=lambda rule: "-".join(rule))
async def test_the_configuration_says_how_to_go_on(load, registry, rule):
    await load(listing, {"get /x": LISTING}, pagination={"x": rule})
    assert [item async for item in registry.paginate("api.x", items=True)] == ALL


async def test_a_page_with_fewer_items_than_asked_for_is_the_last_one(load, registry, requests):
    rule = {"offset": "offset", "limit": "limit", "items": "items"}
    await load(listing, {"get /x": LISTING}, pagination={"*": rule})
    assert [item async for item in registry.paginate("api.x", {"limit": 2}, items=True)] == ALL
    assert len(requests) == 3


async def test_a_cursor_can_be_a_member_of_the_body(load, registry):
    async def handler(request):
        sent = await request.json()
        at = sent.get("start", 0)
        return web.json_response({"results": [at], "next": at + 1 if at < 2 else None, "kept": sent["filter"]})

    rule = {"cursor": "next", "parameter": "body.start"}
    await load(handler, {"post /x": {"operationId": "x", **body({})}}, pagination={"x": rule})
    pages = [page.data async for page in registry.paginate("api.x", {"body": {"filter": "f"}})]
    assert [page["results"] for page in pages] == [[0], [1], [2]]
    assert {page["kept"] for page in pages} == {"f"}
    assert [item async for item in registry.paginate("api.x", {"body": {"filter": "f"}}, items=True)] == [0, 1, 2]


async def test_items_that_could_be_several_lists_are_asked_for(load, registry):
    await load(listing, {"get /x": LISTING})
    with pytest.raises(CallError, match="items"):
        await anext(registry.paginate("api.x", items=True))


@pytest.mark.parametrize(
    ("rule", "got"),
    [
        ({"cursor": "a"}, "only cursor"),
        ({"parameter": "b"}, "only parameter"),
        ({"next": "a", "page": "b"}, "next, page"),
    ],
)
def test_a_rule_that_contradicts_itself_is_refused(rule, got):
    with pytest.raises(ConfigError, match=f"pagination: expected .*got {got}$"):
        HTTPServiceConfig(namespace="a", pagination={"x": rule})
    assert Pagination(cursor="a", parameter="b").first_page == 1


async def test_a_download_comes_through_the_registry_with_input_checked(load, registry):
    octets, parameters = "application/octet-stream", [path_parameter("id", {"type": "integer"})]
    operation = {"operationId": "f", "responses": answers({}, octets), "parameters": parameters}
    await load(replying(b"x" * 300_000, octets), {"get /f/{id}": operation})
    pieces = [piece async for piece in registry.download("api.f", {"id": 1})]
    assert sum(map(len, pieces)) == 300_000
    assert len(pieces) > 1
    with pytest.raises(CallError, match="VALIDATION_ERROR"):
        await anext(registry.download("api.f", {"id": "x"}))
