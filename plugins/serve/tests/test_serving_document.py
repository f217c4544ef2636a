"""What the document says of operations, and how their inputs are written as query strings."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from operad import (
    AccessControl,
    CallError,
    ErrorDefinition,
    Identity,
    OperationContext,
    OperationRegistry,
    OperationSpec,
)
from operad_auth import StaticTokens
from operad_serve import to_openapi
from operad_serve.api.forms import Forms
from operad_serve.api.queries import QueryForm, query_form
from operad_serve.problems import Problem, problem_of
from plugins.serve.tests import front_door
from plugins.serve.tests.front_door import TABLES

# --- query strings -------------------------------------------------------------------------------------

DEFINITIONS = {"N": {"type": "integer"}, "a/b~c": {"type": "boolean"}, "Loop": {"$ref": "#/$defs/Loop"}}


def form_of(schema: Any, type: str = "query") -> QueryForm | None:
    """The form of an input as a query string."""
    return query_form(OperationSpec(namespace="a", name="q", type=type), schema, DEFINITIONS)


def form_with(node: Any, **more: Any) -> QueryForm:
    """The form of an input with one field, ``x``."""
    form = form_of({"type": "object", "properties": {"x": node}, **more})
    assert form is not None
    return form


@pytest.mark.parametrize(("node", "query", "value"), TABLES["fields of queries"])
def test_a_field_of_a_query_string_has_the_value_that_its_schema_allows(node: Any, query: str, value: Any) -> None:
    found = form_with(node).read(query.encode())
    assert found == ({"x": value} if query.startswith("x") else {"y": "1"})
    assert type(found.get("x")) is type(value)


def test_fields_that_the_input_does_not_declare_stay_texts() -> None:
    assert form_with(True).read(b"&".join([b"y=1"] * 1_000)) == {"y": ["1"] * 1_000}
    assert form_with(True).read(b"y=1&z=1&z=2&%C3%A9=+") == {"y": "1", "z": ["1", "2"], "\u00e9": " "}


UTF8 = "expected percent-encoded UTF-8 with at most 1000 fields"


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        *TABLES["wrong queries"],
        ("x=" + "[" * 100_000, 'query parameter "x": expected JSON text'),
        ("&".join(["y=1"] * 1_001), f"query string: {UTF8}, got 1001 fields"),
        ("&".join(["y=%FF"] * 1_000), f"query string: {UTF8}, got text in another encoding"),
    ],
)
def test_a_query_string_that_cannot_be_decoded_is_400(query: str, complaint: str) -> None:
    with pytest.raises(Problem) as caught:
        form_with({"type": "object"}).read(query.encode("latin-1"))
    assert caught.value.status == 400
    assert caught.value.detail.startswith(complaint)
    assert len(caught.value.detail) < 200


@pytest.mark.parametrize(("node", "published"), TABLES["published parameters"])
def test_a_parameter_is_published_without_the_null_that_no_text_can_mean(node: Any, published: Any) -> None:
    (declared,) = (field.declaration() for field in form_with(node).fields.values())
    assert declared == {
        "name": "x", "in": "query", "required": False, "style": "form", "explode": True, "schema": published,
    }  # fmt: skip


def test_a_required_list_has_an_item_and_a_description_stands_at_the_parameter() -> None:
    for least, published in ((0, 1), (3, 3)):
        node = {"type": "array", "items": {"type": "string"}, "minItems": least, "description": "Names."}
        (declared,) = (field.declaration() for field in form_with(node, required=["x"]).fields.values())
        assert declared["schema"]["minItems"] == published
        assert (declared["required"], declared["description"]) == (True, "Names.")
    (declared,) = (field.declaration() for field in form_with({"type": "object"}).fields.values())
    assert declared == {
        "name": "x", "in": "query", "required": False, "content": {"application/json": {"schema": {"type": "object"}}},
    }  # fmt: skip


@pytest.mark.parametrize(("schema", "has_form"), TABLES["forms of inputs"])
def test_an_input_of_declared_fields_has_a_form_as_a_query_string(schema: Any, has_form: bool) -> None:
    assert (form_of(schema) is not None) is has_form
    assert form_of(schema, "mutation") is None


# --- the document --------------------------------------------------------------------------------------


async def same(input: Any, context: OperationContext) -> Any:
    return input


RICH = OperationSpec(
    namespace="a", name="rich", type="query", title="Rich", description="Long.", deprecated=True, idempotent=True,
    tags=("a", "b"), version="2.0.0", access_control=AccessControl(required_scopes=("x",)),
    error_schemas=[ErrorDefinition(*each) for each in TABLES["declared errors"]],
)  # fmt: skip


async def document(*specs: OperationSpec, **options: Any) -> Any:
    """The document of operations."""
    async with OperationRegistry(front_door.plugins()) as registry:
        for spec in specs:
            registry.register(spec, same)
        identity = Identity("root", ["x"])
        config = {"authenticate": StaticTokens({"root-token-123456": identity}), **options}
        headers = {"authorization": "Bearer root-token-123456"}
        return (await front_door.asked(to_openapi(registry, **config), "GET", "/openapi.json", **headers)).json()


async def test_a_document_is_written_with_all_of_its_parts() -> None:
    specs, written = TABLES["a whole document"]
    assert await document(RICH, *(OperationSpec(**spec) for spec in specs)) == written


async def test_a_path_item_says_nothing_that_its_operation_does_not_declare() -> None:
    plain = OperationSpec(namespace="a", name="plain", output_schema={"type": "string"})
    for anonymous, security in ((True, None), (False, [{"bearer": []}])):
        found = await document(plain, anonymous=anonymous, description="An API.", title="Shop", version="7")
        (method,) = found["paths"]["/operations/a.plain"].values()
        assert method.get("security") == security
        assert not {"summary", "description", "deprecated"} & method.keys()
        assert method["x-operad"] == {"id": "a.plain", "type": "mutation", "version": plain.version}
        assert method["responses"]["200"]["content"] == {"application/json": {"schema": {"type": "string"}}}
        assert found["info"] == {"title": "Shop", "version": "7", "description": "An API."}
    assert "description" not in (await document(plain))["info"]


@pytest.mark.parametrize(("schema", "required"), TABLES["required bodies"])
async def test_a_body_is_required_if_an_empty_object_is_no_input(schema: Any, required: bool) -> None:
    found = await document(OperationSpec(namespace="a", name="n", input_schema=schema))
    assert found["paths"]["/operations/a.n"]["post"]["requestBody"]["required"] is required


@pytest.mark.parametrize("name", ["x/../y", "x//y", "x/", "./x/.."])
async def test_an_id_that_no_path_can_contain_is_left_out_with_one_warning(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "operad.serve")
    async with OperationRegistry(front_door.plugins()) as registry:
        registry.register(OperationSpec(namespace="a", name=name), same)
        app = to_openapi(registry)
        for number in range(2):
            registry.register(OperationSpec(namespace="a", name=f"n{number}"), same)
            found = (await front_door.asked(app, "GET", "/openapi.json")).json()
            assert len(found["paths"]) == number + 1
    assert len([one for one in caplog.records if "is not served over HTTP" in one.getMessage()]) == 1


async def test_an_operation_that_cannot_be_described_is_in_the_document_without_its_schemas(
    registry: OperationRegistry, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def describe(operation_id: str) -> Any:
        raise CallError("UNAVAILABLE", "the peer is gone")

    monkeypatch.setattr(registry, "describe", describe)
    app = to_openapi(registry)
    paths = (await front_door.asked(app, "GET", "/openapi.json")).json()["paths"]
    assert "/operations/shop.add" in paths
    assert "shop.add cannot be described: " in caplog.text
    asked = await front_door.asked(app, "GET", "/operations/shop.add", query=b"a=1")
    assert (asked.status, asked.headers["allow"]) == (405, "POST")


async def test_a_document_has_the_schemas_that_the_peer_of_an_operation_describes(
    registry: OperationRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def describe(operation_id: str) -> Any:
        return RICH if operation_id == "shop.add" else None

    monkeypatch.setattr(registry, "describe", describe)
    paths = (await front_door.asked(to_openapi(registry), "GET", "/openapi.json")).json()["paths"]
    assert paths["/operations/a.rich"]["post"]["summary"] == "Rich"
    assert "/operations/shop.find" in paths
    for path, query, status in (("shop.add", b"a=1", 405), ("shop.find", b"names=a", 200)):
        answer = await front_door.asked(to_openapi(registry), "GET", f"/operations/{path}", query=query)
        assert answer.status == status  # the described input of the first one is no query string


async def test_a_document_is_written_once_for_callers_who_see_the_same(
    registry: OperationRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    described: list[str] = []
    describe = registry.describe

    async def counting(operation_id: str) -> Any:
        described.append(operation_id)
        return await describe(operation_id)

    monkeypatch.setattr(registry, "describe", counting)
    app = to_openapi(registry)

    async def count(*roots: str) -> int:
        described.clear()
        for root in roots:
            assert (await front_door.asked(app, "GET", f"{root}/openapi.json", root=root)).status == 200
        return described.count("shop.add")

    assert await count("", "") == 1
    assert await count("", *(f"/{number}" for number in range(15)), "") == 15
    assert await count("/15", "") == 1  # one more replaces the one that was used least recently
    assert await count("/0") == 1


async def test_forms_of_removed_operations_are_not_kept_forever(
    registry: OperationRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("operad_serve.api.forms._MAX_KEPT", 2)
    forms = Forms(registry, formats=True)
    one, two, three = registry.specs()[:3]
    for spec in (one, two):
        made = await forms.form(spec)
        assert forms.known(spec) is made
        assert await forms.form(spec) is made
    assert forms.known(one) is not None
    await forms.form(three)
    assert (forms.known(one), forms.known(two)) == (None, None)
    assert forms.known(three) is not None


# --- problems ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "details", "declared", "has_identity", "status", "headers"),
    TABLES["statuses of errors"],
)  # fmt: skip
def test_an_error_has_a_status_and_headers_that_fit(
    code: str, details: Any, declared: int | None, has_identity: bool, status: int, headers: dict[str, str]
) -> None:
    definitions = [ErrorDefinition("UNUSED", "", {}, 418), ErrorDefinition(code, "", {}, declared)]
    problem = problem_of(CallError(code, "no", details), definitions, has_identity=has_identity)
    found = {name.decode(): value.decode() for name, value in problem.headers}
    assert (problem.status, found, problem.code) == (status, headers, code)


def test_a_problem_that_json_cannot_hold_is_sent_without_what_it_cannot() -> None:
    assert b'"details"' in Problem(799, "no", details={"x": float("nan")}).to_json("id")
    assert b'"title":"Error"' in Problem(799, "no").to_json()
