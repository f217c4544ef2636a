"""Reading documents: YAML as OpenAPI needs it, pointers, and schemas by direction."""

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import operad_openapi
from operad.errors import SourceError
from operad_openapi._document.document import Document, PointerError
from operad_openapi._document.grafting import has_external
from operad_openapi._document.origins import is_private_host, origin_of
from operad_openapi._document.parsing import parse
from operad_openapi._document.schemas import SchemaView
from operad_openapi._document.yamltext import YAMLError, load_yaml
from plugins.openapi.tests.data import TABLES


@pytest.mark.parametrize(("text", "value"), TABLES["yaml"])
def test_yaml_values(text, value):
    assert load_yaml(text)["a"] == value


def test_a_key_that_stands_twice_is_told(caplog):
    text = b"openapi: 3.0.0\npaths:\n  /a: {x: 1}\n  /b: 2\n  /a: {y: 1, y: 2}\n"
    assert parse(text, "shop.yaml")["paths"] == {"/a": {"y": 2}, "/b": 2}
    assert caplog.messages == [
        'shop.yaml: a key occurs twice, and its last value is used: "y" before line 5, column 17, and 1 more'
    ]
    assert parse(b"{a: &x {b: 1}, c: {<<: *x, b: 2}}", "")["c"] == {"b": 2}
    assert len(caplog.messages) == 1


def test_yaml_keys_are_text():
    assert load_yaml("{200: a, 4XX: b, no: c, 1.0: d, null: e}") == {
        "200": "a", "4XX": "b", "no": "c", "1.0": "d", "null": "e",
    }  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "a: [",
        "a: *missing",
        "a: &x [*x]",
        "{[1]: 2}",
        "\0",
        "a: " + "[" * 500 + "]" * 500,
        "a: &a [x]\n" + "".join(f"b{n}: &b{n} [{', '.join(['*' + (f'b{n - 1}' if n else 'a')] * 10)}]\n" for n in range(9)),
    ],
    ids=["unfinished", "alias", "recursive", "key", "nul", "deep", "laughs"],
)  # fmt: skip
def test_yaml_that_is_refused(text):
    with pytest.raises(YAMLError):
        load_yaml(text)


class _Quoting(yaml.SafeDumper):
    """Quotes strings, and nothing else."""


_Quoting.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(st.characters(exclude_categories=["C"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab1 :-#", max_size=4), inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_what_yaml_writes_comes_back(value):
    # Double quotes around each string: PyYAML, of YAML 1.1, leaves plain what is a number in YAML 1.2 (0E0).
    assert load_yaml(yaml.dump(value, Dumper=_Quoting)) == value


@given(JSON.filter(lambda value: isinstance(value, (dict, list))))
def test_json_is_read_as_json(value):
    assert parse(json.dumps(value).encode(), "x") == value


def test_json_that_yaml_refuses_is_read():
    assert parse('{"a": "\x80\x85\u2028"}'.encode(), "x") == {"a": "\x80\x85\u2028"}
    assert parse(b"\xef\xbb\xbf {}", "x") == {}


def test_a_flow_mapping_is_yaml():
    assert parse(b"{a: 1}", "x") == {"a": 1}


def test_neither_json_nor_yaml_is_an_error_with_both_reasons():
    with pytest.raises(SourceError, match=r"x: the text is not JSON .*not YAML"):
        parse(b'{"a": }: [', "x")


def document(**more):
    return Document({"openapi": "3.1.0", "info": {}, "paths": {}, **more})


def test_pointers_are_unescaped():
    found = document(components={"schemas": {"a/b c~d": 1}, "list": [{"x": 2}]})
    assert found.lookup("#/components/schemas/a~1b%20c~0d") == 1
    assert found.lookup("#/components/list/0/x") == 2
    assert found.lookup("#")["openapi"] == "3.1.0"


@pytest.mark.parametrize(
    "reference", ["#/nope", "#/paths/0", "#nope", "other.json", "#/components/list/1", "#/components/list/-1"]
)
def test_a_pointer_to_nowhere_names_itself(reference):
    with pytest.raises(PointerError, match=reference.strip("#").split("/")[-1]):
        document(components={"list": [1]}).lookup(reference)


@pytest.mark.parametrize("last", [{"$ref": "#/components/0"}, {}], ids=["a circle", "a chain of 64"])
def test_a_circle_of_references_is_an_error_as_is_a_long_chain(last):
    chain = [{"$ref": f"#/components/{n}"} for n in range(1, 64)]
    with pytest.raises(PointerError, match="circle"):
        document(components=[*chain, last]).resolve({"$ref": "#/components/0"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [(b'{"$ref": "#/a"}', False), (b'{"$ref" : "a.json"}', True), (b"$ref: a.yaml", True), (b"$ref: '#/a'", False)],
)  # fmt: skip
def test_external_references_are_noticed_in_the_text(text, expected):
    assert has_external(text, {}) is expected


def test_a_view_without_the_words_is_the_document_itself():
    root = {"openapi": "3.1.0", "components": {"schemas": {"A": {"type": "object"}}}}
    view = SchemaView(Document(root, None, json.dumps(root).encode()), is_input=False)
    assert view.root is root
    schema = {"$ref": "#/components/schemas/A"}
    assert view.schema(schema) is schema


def test_a_view_shares_what_does_not_change():
    plain = {"type": "object", "properties": {"x": {"$ref": "#/components/schemas/B"}}}
    changed = {"type": "object", "properties": {"id": {"readOnly": True}, "a": {"$ref": "#/components/schemas/A"}}}
    found = document(components={"schemas": {"A": plain, "B": changed, "C": {}}})
    view = SchemaView(found, is_input=True)
    view.schema({"$ref": "#/components/schemas/A"})
    schemas = view.root["components"]["schemas"]
    assert schemas["A"] is plain
    assert schemas["B"] == {"type": "object", "properties": {"a": {"$ref": "#/components/schemas/A"}}}
    assert "C" not in schemas


def test_a_view_takes_pointers_into_schemas():
    a = {"properties": {"x": {"type": "object", "required": ["id"], "properties": {"id": {"readOnly": True}}}}}
    found = document(components={"schemas": {"A": a}}, paths={"/a": {"x": [{"schema": a}]}})
    view = SchemaView(found, is_input=True)
    for reference in ("#/components/schemas/A/properties/x", "#/paths/~1a/x/0/schema/properties/x"):
        view.schema({"$ref": reference})
        assert view.resolve({"$ref": reference}) == {"type": "object", "properties": {}}
    assert view.root["components"]["schemas"]["A"]["properties"]["x"] == {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST.", "a.localhost", "127.0.0.1", "127.1", "0x7f.1", "2130706433", "::1", "[::1]",
     "10.0.0.1", "192.168.1.1", "169.254.169.254", "fe80::1%eth0", "0.0.0.0", "::ffff:127.0.0.1", "fd00::1"],
)  # fmt: skip
def test_private_hosts(host):
    assert is_private_host(host)


@pytest.mark.parametrize("host", ["example.com", "8.8.8.8", "2606:4700::1111", "", None, "10.example.com"])
def test_public_hosts(host):
    assert not is_private_host(host)


def test_origins():
    assert origin_of("HTTPS://A.test/x") == origin_of("https://a.test:443") != origin_of("https://a.test:444")
    assert origin_of("nonsense") == origin_of("http://[") == ""


def test_every_public_name_is_there():
    assert operad_openapi.__all__ == sorted(operad_openapi.__all__)
    for name in operad_openapi.__all__:
        assert getattr(operad_openapi, name) is not None
    with pytest.raises(AttributeError, match="nope"):
        _ = operad_openapi.nope


@pytest.mark.parametrize(
    ("text", "flags"),
    [(b"readOnly!", (False, False)), (b"'readOnly': 1", (True, False)), (b"OwriteOnly:", (False, True)), (None, (True, True))],
)  # fmt: skip
def test_only_a_word_in_the_text_of_a_document_may_occur_in_it(text, flags):
    document = Document({"openapi": "3.1.0"}, text=text)
    assert (document.may_use("readOnly"), document.may_use("writeOnly")) == flags
