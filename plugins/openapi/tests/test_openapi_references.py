"""References of real documents: in every place, over many files, and data that only looks like one."""

import gc
import json
import threading

import pytest

from operad import ConfigError, SourceError
from operad_openapi import api as api_module
from operad_openapi._document import parsing
from operad_openapi._document.naming import Names
from operad_openapi._document.parsing import parse
from plugins.openapi.tests.data import DOCUMENTS, JSON
from plugins.openapi.tests.handlers import result_of
from plugins.openapi.tests.making import JSON_OK, answers, large, made, parameter, read


def one(found):
    [operation] = found
    return operation.spec


def test_a_reference_in_the_place_of_an_operation_is_that_operation(api):
    whole = {"operationId": "opA", "parameters": [parameter("q")]}
    paths = {f"/{name}": {"get": {"$ref": f"#/components/x/{name}"}} for name in ("a", "nope")}
    document = api({}, components={"x": {"a": whole}}) | {"paths": paths}
    found = made(document)
    spec = one(found)
    assert spec.name == "opA"
    assert set(spec.input_schema.raw["properties"]) == {"q"}
    [diagnostic] = found.diagnostics
    assert (diagnostic.pointer, '"#/components/x/nope"' in diagnostic.reason) == ("#/paths/~1nope/get", True)


async def test_references_work_in_every_place(serve):
    """Path item, operation, parameter, body, response, header of a response, security scheme."""
    sent = result_of(lambda request: {"key": request.headers.get("X-Key"), "q": request.query.get("q")})
    credentials, document = {"key": {"type": "apiKey", "token": "s"}}, DOCUMENTS["references in every place"]
    async with made(document, base_url=await serve(sent), credentials=credentials) as found:
        assert set(one(found).input_schema.raw["properties"]) == {"q", "b"}
        envelope = await found[0].handler({"q": "5", "b": 1}, None)
        assert envelope.data == {"key": "s", "q": "5"}


def write(folder, **files):
    for name, content in files.items():
        path = folder / f"{name.replace('__', '/')}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content))


def operation(name):
    return {"operationId": name, "responses": JSON_OK}


def one_path(responses):
    """A document of one operation with such responses."""
    return {"openapi": "3.1.0", "info": {}, "paths": {"/a": {"get": {"operationId": "a", "responses": responses}}}}


async def test_a_document_of_more_than_a_thousand_files_is_whole(tmp_path):
    write(tmp_path, **{f"paths__{n}": {"get": {"$ref": f"../operations/{n}.json"}} for n in range(600)})
    write(tmp_path, **{f"operations__{n}": operation(f"op{n}") for n in range(600)})
    paths = {f"/{n}": {"$ref": f"paths/{n}.json"} for n in range(600)}
    write(tmp_path, main={"openapi": "3.1.0", "info": {}, "paths": paths})
    found = await read(tmp_path / "main.json")
    assert [entry.spec.name for entry in found] == [f"op{n}" for n in range(600)]
    assert found.diagnostics == []


async def test_the_number_of_files_has_a_bound_that_says_so(tmp_path):
    write(tmp_path, **{f"p{n}": {"get": operation(f"op{n}")} for n in range(4)})
    paths = {f"/{n}": {"$ref": f"p{n}.json"} for n in range(4)}
    write(tmp_path, main={"openapi": "3.1.0", "info": {}, "paths": paths})
    found = await read(tmp_path / "main.json", limits={"documents": 3})
    assert len(found) == 3
    assert any("limit documents" in diagnostic.reason for diagnostic in found.diagnostics)


async def test_what_looks_like_a_reference_in_data_and_prose_is_none(tmp_path):
    schema = DOCUMENTS["references that are none"]
    media = {"schema": schema, "examples": {"one": schema["example"]}, "example": schema["example"]}
    answer = {"200": {"description": "", "content": {JSON: media}}}
    write(tmp_path, kept={"type": "integer"}, main=one_path(answer))
    found = await read(tmp_path / "main.json")
    assert found.diagnostics == []
    assert not one(found).output_schema.is_valid({"example": "text"})  # a property of that name is a schema
    assert one(found).output_schema.is_valid({"example": 5})


async def test_the_mapping_of_a_discriminator_leads_into_its_own_file(tmp_path):
    write(tmp_path, **DOCUMENTS["tagged pets"], main=one_path(answers({"$ref": "pets.json#/Pet"})))
    found = await read(tmp_path / "main.json")
    assert "Cat" in json.dumps(one(found).output_schema.bundled())
    document = found[0].handler.__self__.source.document
    mapping = document.lookup("#/x-operad-documents/0/Pet/discriminator/mapping")
    places = {"cat": "0/components/schemas/Cat", "dog": "0/components/schemas/Dog", "cow": "1"}
    assert mapping == {kind: f"#/x-operad-documents/{place}" for kind, place in places.items()}


def test_references_in_a_list_of_items_are_followed():
    schemas = {"A": {"type": "array", "items": [{"$ref": "#/definitions/B"}]}, "B": {"type": "string"}}
    answer = {"200": {"description": "", "schema": {"$ref": "#/definitions/A"}}}
    document = {"swagger": "2.0", "info": {}, "paths": {"/a": {"get": {"responses": answer}}}}
    schema = one(made({**document, "definitions": schemas})).output_schema
    assert [schema.is_valid(value) for value in (["x"], [5])] == [True, False]


def test_an_optional_parameter_that_cannot_be_sent_is_left_out_with_a_warning(api):
    parameters = [parameter("X Bad", "header"), parameter("b", "banana"), parameter("q")]
    found = made(api({"get /a": {"parameters": parameters}}))
    assert set(one(found).input_schema.raw["properties"]) == {"q"}
    assert [diagnostic.severity for diagnostic in found.diagnostics] == ["warning", "warning"]
    assert "banana" in found.diagnostics[1].reason


@pytest.mark.parametrize("place", [("X Bad", "header"), ("b", "banana")])
def test_an_operation_that_requires_what_cannot_be_sent_is_left_out(api, place):
    found = made(api({"get /a": {"parameters": [parameter(*place, required=True)]}, "get /b": {}}))
    assert one(found).name == "get_b"
    assert place[0] in found.diagnostics[0].reason


def test_a_path_that_is_no_text_is_a_diagnostic(api):
    document = api({"get /a": {}})
    document["paths"][5] = {"get": {}}
    found = made(document)
    assert one(found).name == "get_a"
    assert "5" in found.diagnostics[0].reason


def test_json_with_comments_says_so():
    with pytest.raises(SourceError, match="JSON has no comments"):
        parse(b'// mine\n{"openapi": "3.1.0"}', "x.json")
    with pytest.raises(SourceError, match="<!DOCTYPE html>"):
        parse(b"<!DOCTYPE html>\n<html></html>", "x.json")


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        ({}, ["x", "x_stream", "x_stream_2"]),
        ({"exclude": ["x"]}, ["x_stream_2"]),
        ({"include": ["path:/b"]}, ["x_stream_2"]),
    ],
)
def test_a_filter_does_not_change_ids(api, filter, expected):
    both = {"description": "", "content": {media: {"schema": {}} for media in (JSON, "text/event-stream")}}
    paths = {"post /a": {"operationId": "x", "responses": {"200": both}}, "get /b": {"operationId": "x_stream"}}
    assert [entry.spec.name for entry in made(api(paths), **filter)] == expected


def test_names_that_clash_by_the_thousand_cost_no_more_each():
    names = Names()
    claimed = [names.claim("Same") for _ in range(50_000)]
    assert claimed[:3] == ["Same", "Same_2", "Same_3"]
    assert len(set(claimed)) == 50_000
    assert names.claim("same_7") == "same_7_2"


async def test_a_large_document_is_parsed_and_listed_in_a_thread(tmp_path, monkeypatch):
    """The event loop has calls to answer meanwhile."""
    threads = []

    def watch(module, name):
        function = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda *args: threads.append(threading.current_thread()) or function(*args)
        )

    watch(parsing, "parse")
    watch(api_module, "build_operations")
    write(tmp_path, x=large(one_path(JSON_OK)))
    assert one(await read(tmp_path / "x.json")).name == "a"
    assert [thread is threading.main_thread() for thread in threads] == [False, False]


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("frozen", [True, False])
def test_the_collector_is_as_it_was_after_a_document(enabled, frozen):
    broken = b'{"openapi": "3.1.0", "x": "' + b"x" * parsing.ASIDE_BYTES
    try:
        if frozen:
            gc.freeze()
        if not enabled:
            gc.disable()
        count = gc.get_freeze_count()
        with pytest.raises(SourceError):
            parse(broken, "x")
        made({"openapi": "3.1.0", "info": {}, "paths": {"/a": {"get": operation("a")}}})
        assert gc.isenabled() is enabled
        assert (gc.get_freeze_count() > 0) is (count > 0) is frozen
    finally:
        gc.unfreeze()
        gc.enable()


@pytest.mark.parametrize(
    "reference",
    [
        "file:///etc/passwd", "FILE:///etc/hostname", "file://localhost/etc/passwd", "/etc/hostname",
        "../secret.json", "%2e%2e/secret.json", "..%2fsecret.json", "sub/../../secret.json", "linked.json",
        "http://169.254.169.254/latest", "http://[::ffff:169.254.169.254]/", "http://127.0.0.1:1/x.json",
        "//169.254.169.254/x", "ftp://example.com/x", "data:,x", "\0", "http://[",
    ],
)  # fmt: skip
async def test_a_reference_that_leaves_the_folder_is_told_and_not_read(tmp_path, reference):
    folder = tmp_path / "api"
    folder.mkdir()
    (tmp_path / "secret.json").write_text('{"const": "s3cret"}')
    (folder / "linked.json").symlink_to(tmp_path / "secret.json")
    write(folder, main=one_path(answers({"$ref": reference})))
    async with await read(folder / "main.json") as found:
        [diagnostic] = found.diagnostics
        assert reference in diagnostic.reason
        bundled = str(found[0].spec.output_schema.bundled())
        assert ("s3cret" in bundled, "root:" in bundled) == (False, False)


async def test_files_that_refer_to_each_other_in_a_circle_are_schemas_of_any_depth(tmp_path):
    write(tmp_path, **DOCUMENTS["files in a circle"])
    async with await read(tmp_path / "main.json") as found:
        schema = one(found).output_schema
        nested = ({"next": {"back": {"next": {"whole": {"next": inner}}}}} for inner in ({}, 5))
        assert [schema.is_valid(value) for value in nested] == [True, False]
        [diagnostic] = found.diagnostics
        assert "in a circle" in diagnostic.reason


async def test_urls_are_read_at_or_below_a_prefix_of_the_configuration(tmp_path, serve):
    base = await serve(result_of(lambda request: {"get": operation(f"{request.path.strip('/')}")}))
    places = {
        "ok": 1,
        "ok/a": 1,
        "ok/b/../c": 1,
        "okay": 0,
        "ok/../no": 0,
        "ok/%2e%2e/no": 0,
        "one.json": 1,
        "": 0,
    }
    paths = {f"/{n}": {"$ref": f"{base}/{place}"} for n, place in enumerate(places)}
    write(tmp_path, main={"openapi": "3.1.0", "info": {}, "paths": paths})
    found = await read(tmp_path / "main.json", external=[f"{base}/ok", f"{base}/one.json"])
    assert len(found) == sum(places.values())
    assert len(found.diagnostics) >= len(places) - len(found)
    assert len(await read(tmp_path / "main.json", external=[base])) == len(places)
    other = base.replace("127.0.0.1", "localhost")
    assert await read(tmp_path / "main.json", external=[other]) == []


async def test_what_a_document_calls_a_url_and_is_none_ends_no_load(tmp_path):
    write(tmp_path, main=DOCUMENTS["no URLs"], b=operation("b"))
    async with await read(tmp_path / "main.json", base_url=None) as found:
        assert [entry.spec.name for entry in found] == ["a", "b"]
        reasons = [diagnostic.reason[:16] for diagnostic in found.diagnostics]
        assert reasons == ['$self: "http://[', "no operation can"]
    auth = {"type": "oauth2", "client_id": "i", "client_secret": "s"}
    with pytest.raises(ConfigError, match="the document has no URL"):
        await read(tmp_path / "main.json", base_url=None, auth=auth)
