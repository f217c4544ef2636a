"""What can be made of a document: other names, overlays, patches; and what it tells beside its operations."""

import json

import pytest

from operad import CallError, ConfigError, OperationRegistry, SourceError, load_plugins
from operad_openapi import HTTPServiceConfig
from plugins.openapi.tests.data import DOCUMENTS, GET, NOWHERE, TABLES, configured
from plugins.openapi.tests.handlers import echo, replying, result_of
from plugins.openapi.tests.making import body, made, parameter, path_parameter, read


def names(found):
    return [operation.spec.name for operation in found]


# --- names -------------------------------------------------------------------------------------------


def test_a_table_renames_by_operation_id_or_route(api):
    paths = {"get /a": {"operationId": "listEverythingThereIs"}, "post /b": {}, "get /c": {"operationId": "c"}}
    document = api(paths)
    found = made(document, names={"listEverythingThereIs": "list", "POST /b": "make"})
    assert names(found) == ["list", "make", "c"]
    assert found[0].spec.metadata["operationId"] == "listEverythingThereIs"
    assert names(made(document, names={"c": "list2"}, include=["list2"])) == ["list2"]


def test_a_function_renames_what_it_answers_for(api):
    document = api({"get /a": {"operationId": "a", "tags": ["t"]}, "get /b": {"operationId": "b"}})
    found = made(document, names=lambda raw: f"{raw['tags'][0]}.{raw['operationId']}" if raw["tags"] else None)
    assert names(found) == ["t.a", "b"]


def test_operations_of_fastapi_get_the_names_of_their_functions(api):
    paths = {
        "post /notes/{note_id}/file": {"operationId": "upload_notes__note_id__file_post"},
        "get /": {"operationId": "root__get"},
        "get /x": {"operationId": "my_own_id"},
    }
    assert names(made(api(paths), names="fastapi")) == ["upload", "root", "my_own_id"]


@pytest.mark.parametrize(("given", "message"), TABLES["names that cannot be"])
def test_a_name_that_cannot_be_is_an_error(api, given, message):
    with pytest.raises(ConfigError, match=message):
        made(api({"get /pets": {"operationId": "listPets"}}), names=given)


# --- overlays and patches ----------------------------------------------------------------------------

OVERLAY = DOCUMENTS["overlay"]


def overlaid(api):
    parameters = [parameter(name) for name in ("old", "kept", "secret")]
    return api({"get /a": {"tags": ["old"], "parameters": parameters}, "get /b": {"deprecated": True}})


def test_an_overlay_renames_removes_and_adds(api):
    document = overlaid(api)
    before = json.dumps(document)
    found = made(document, overlays=[OVERLAY])
    assert names(found) == ["renamed"]
    assert found[0].spec.tags == ("old", "new")
    assert set(found[0].spec.input_schema.raw["properties"]) == {"kept", "added"}
    assert found.diagnostics == []
    assert json.dumps(document) == before


@pytest.mark.parametrize(("actions", "expected"), TABLES["changes of an overlay"])
def test_an_overlay_merges_objects_and_appends_to_lists(api, actions, expected):
    document = api({}, info={"title": "t", "version": "1", "x": {"a": 1}, "list": [1]})
    found = made(document, overlays=[{**OVERLAY, "actions": actions}])
    assert {name: found.info.get(name) for name in expected} == expected
    assert found.diagnostics == []


async def test_an_overlay_changes_a_copy_of_a_document_that_is_given(registry, api):
    document = overlaid(api)
    specs = await registry.load("openapi", namespace="api", spec=document, overlays=[OVERLAY])
    assert [spec.id for spec in specs] == ["api.renamed"]
    assert "operationId" not in document["paths"]["/a"]["get"]


async def test_overlays_are_read_from_files_and_apply_before_references_are_followed(api, tmp_path):
    configured(tmp_path, overlaid(api), 'overlays = ["mend.yaml"]', f'base_url = "{NOWHERE}"')
    (tmp_path / "schema.json").write_text(json.dumps({"type": "integer"}))
    reference = {"target": "$.paths['/a'].get.parameters[0].schema", "update": {"$ref": "schema.json"}}
    (tmp_path / "mend.yaml").write_text(json.dumps({**OVERLAY, "actions": [reference]}))
    async with OperationRegistry.from_config(tmp_path, load_plugins(only=["openapi"]), strict=True) as registry:
        assert not registry.get_spec("api.get_a").input_schema.is_valid({"old": "x"})


def test_an_action_without_a_target_in_the_document_is_told(api):
    overlay = {**OVERLAY, "actions": [{"target": "$.paths['/nope']", "remove": True}]}
    [warning] = made(overlaid(api), overlays=[overlay]).diagnostics
    assert "$.paths['/nope']" in warning.reason


@pytest.mark.parametrize(
    ("overlay", "message"),
    [
        ({"actions": []}, "expected an OpenAPI overlay"),
        ({"overlay": "1.0.0", "actions": [{"update": {}}]}, r'actions\[0\]: expected an object with a JSONPath "target", got target None'),
        ({"overlay": "1.0.0", "actions": [{"target": "$.["}]}, "expected a JSONPath, got"),
        ({"overlay": "1.0.0", "actions": [{"target": "info.title"}]}, "expected a JSONPath, got"),
    ],
)  # fmt: skip
def test_what_is_no_overlay_is_refused(api, overlay, message):
    with pytest.raises(SourceError, match=message):
        made(overlaid(api), overlays=[overlay])


async def test_a_patch_changes_the_parsed_document(api, tmp_path):
    def patch(document):
        document["paths"]["/a"]["get"]["operationId"] = "patched"

    document = overlaid(api)
    assert names(made(document, patch=patch)) == ["patched", "get_b"]
    (tmp_path / "x.json").write_text(json.dumps(document))
    assert await read(tmp_path / "x.json", patch=lambda document: {**document, "paths": {}}) == []
    with pytest.raises(SourceError, match="patch raised KeyError"):
        made(document, patch=lambda document: document["nope"])


# --- what it tells beside its operations -------------------------------------------------------------


def test_links_and_callbacks_are_in_the_metadata_and_webhooks_beside_the_operations():
    found = made(DOCUMENTS["links, callbacks and webhooks"])
    metadata = found[0].spec.metadata
    assert metadata["links"] == {"user": {"operationId": "getUser", "parameters": {"id": "$response.body#/id"}}}
    assert metadata["callbacks"] == {"onData": ["POST {$request.body#/url}"]}
    assert "links" not in found[1].spec.metadata
    assert found.webhooks == [
        {"name": "newPet", "method": "POST", "pointer": "#/webhooks/newPet/post", "operationId": "newPet",
         "summary": "A pet came"}
    ]  # fmt: skip


# --- requests beyond the usual -----------------------------------------------------------------------


async def test_a_path_parameter_may_have_several_segments_if_it_is_said(serve, operations, api):
    document = api({"get /files/{file}/raw": {"operationId": "x", "parameters": [path_parameter("file")]}})
    base = await serve(echo)
    found = operations(document, base, slashes=["file"])
    assert (await found["x"].handler({"file": "a b/c?d"}, None)).data["path"] == "/files/a%20b/c%3Fd/raw"
    for value in ("a/../b", "..", "a//b", "/a", "a/."):
        with pytest.raises(CallError, match="VALIDATION_ERROR"):
            await found["x"].handler({"file": value}, None)
    found = operations(document, base)
    assert (await found["x"].handler({"file": "a/b"}, None)).data["path"] == "/files/a%2Fb/raw"


async def test_a_list_is_sent_as_json_lines(serve, operations, api):
    document = api({"post /x": {"operationId": "x", **body({}, media="application/x-ndjson")}})
    found = operations(document, await serve(echo))
    lines = [{"index": {}}, {"é": 1}]
    assert [found["x"].spec.input_schema.is_valid({"body": value}) for value in (lines, 5, "x")] == [
        True,
        False,
        False,
    ]
    for value, sent in ((lines, '{"index":{}}\n{"é":1}\n'), (b"raw\n", "raw\n")):
        assert (await found["x"].handler({"body": value}, None)).data["body"].encode("latin-1").decode() == sent


async def test_a_kept_cookie_does_not_follow_to_another_port(serve, operations, api):
    target = await serve(result_of(lambda request: request.headers.get("Cookie")))
    moved = replying(status=302, Location=target, Set_Cookie="sid=s; Path=/")
    found = operations(api(GET), await serve(moved), keep_cookies=True)
    for _ in range(2):
        assert (await found["x"].handler({}, None)).data is None


async def test_cookies_are_kept_if_it_is_said(serve, operations, api, requests):
    base = await serve(replying(Set_Cookie="sid=s; Path=/"))
    for keep, expected in ((True, "sid=s"), (False, None)):
        found = operations(api(GET), base, keep_cookies=keep)
        for _ in range(2):
            await found["x"].handler({}, None)
        assert requests[-1].headers.get("Cookie") == expected
    with pytest.raises(ConfigError, match="keep_cookies"):
        HTTPServiceConfig(namespace="a", keep_cookies=True, credentials_for=lambda context: None)
