"""Parameters on the wire: the tables of OpenAPI and RFC 6570, byte for byte."""

import json
import os
import re
from pathlib import Path
from urllib.parse import parse_qsl, unquote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from operad_openapi._document.parameters import Parameter, normal_parameter
from operad_openapi._request.paths import PathTemplate
from operad_openapi._request.styles import compile_parameter
from operad_openapi._request.text import SerializationError, encode_ascii_json, encode_json, text_of

CASES = Path(os.environ.get("OPERAD_DOCUMENTS", "documents")) / "param_cases.jsonl"


def encode(location, name, value, **options):
    return compile_parameter(Parameter(name, location, **options))(value)


def _shared_cases():
    return [json.loads(line) for line in CASES.read_text().splitlines()] if CASES.exists() else []


def _request(case):
    template = PathTemplate(case["path_template"])
    path, query, headers, cookies = {}, [], {}, []
    for raw in case["parameters"]:
        parameter = normal_parameter(raw, case["oas"])
        value = case["located"].get(parameter.location, {}).get(parameter.name)
        text = compile_parameter(parameter)(value)
        if text is None:
            continue
        if parameter.location == "path":
            path[parameter.name] = text
        elif parameter.location in ("query", "querystring"):
            query.append(text)
        elif parameter.location == "header":
            headers[parameter.name] = text
        else:
            cookies.append(text)
    return {
        "path": template.fill(path),
        "query": "&".join(query),
        "headers": headers,
        "cookie": "; ".join(cookies),
    }


@pytest.mark.skipif(not CASES.exists(), reason="OPERAD_DOCUMENTS names no folder of worked cases")
@pytest.mark.parametrize("case", _shared_cases(), ids=lambda case: case["id"])
def test_shared_case(case):
    if case["expect"].get("error"):
        with pytest.raises(SerializationError):
            _request(case)
        return
    request = _request(case)
    for place, expected in case["expect"].items():
        if case["tier"] in ("spec", "security"):
            assert request[place] == expected or request[place] in case["accept"].get(place, [])
        assert request[place] in [expected, *case["accept"].get(place, [])]


TABLE = json.loads(Path(__file__).with_name("parameters.json").read_text("utf-8"))


@pytest.mark.parametrize(("location", "name", "options", "value", "expected"), TABLE["sent"])
def test_parameters_are_sent_as_the_table_says(location, name, options, value, expected):
    """Styles, reserved characters, content, cookies: what the worked examples of OpenAPI and RFC 6570 say."""
    assert encode(location, name, value, **options) == expected


@pytest.mark.parametrize(("location", "name", "options", "value", "message"), TABLE["refused"])
def test_a_parameter_cannot_end_its_header_or_cookie(location, name, options, value, message):
    with pytest.raises(SerializationError, match=message):
        encode(location, name, value, **options)


@pytest.mark.parametrize(("parameter", "value", "expected"), TABLE["swagger 2"])
def test_collection_formats_of_swagger_2(parameter, value, expected):
    assert compile_parameter(normal_parameter(parameter, "2.0"))(value) == expected


@pytest.mark.parametrize("value", [None, [], {}, [None], {"a": None}])
@pytest.mark.parametrize(
    ("location", "style"),
    [("path", "simple"), ("path", "label"), ("path", "matrix"), ("query", "form"), ("query", "deepObject"),
     ("query", "pipeDelimited"), ("header", "simple"), ("cookie", "form"), ("cookie", "cookie")],
)  # fmt: skip
def test_null_and_what_is_empty_are_undefined(location, style, value):
    assert encode(location, "a", value, style=style) is None
    assert encode(location, "a", value, style=style, explode=True) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "true"), (False, "false"), (0, "0"), (2**70, "1180591620717411303424"), (-122.427, "-122.427"),
     (1e-7, "1e-07"), (None, "null"), ({"a": [1]}, '{"a":[1]}')],
)  # fmt: skip
def test_text_of_values(value, text):
    assert text_of(value) == text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), pytest.param(10**5000, id="long")])
def test_values_without_a_text_are_refused(value):
    with pytest.raises(SerializationError):
        text_of(value)


def test_template_splits_fixed_query_and_drops_fragment():
    template = PathTemplate("/a/{x}?beta=true#frag/{y}")
    assert (template.names, template.query) == (("x",), "beta=true")
    assert template.fill({"x": "1"}) == "/a/1"


def test_template_with_several_placeholders_in_a_segment():
    template = PathTemplate("/c/{base}...{head}/{Sid}.json/{name}:cancel")
    assert template.fill({"base": "a", "head": "b", "Sid": "s", "name": "n"}) == "/c/a...b/s.json/n:cancel"


def test_substitution_is_a_single_pass():
    assert PathTemplate("/{a}/{b}").fill({"a": "{b}", "b": "x"}) == "/{b}/x"


@pytest.mark.parametrize("value", ["", ".", "..", "%2e", "%2E%2e", ".%2e"])
def test_a_segment_cannot_become_empty_or_dots(value):
    with pytest.raises(SerializationError, match="segment"):
        PathTemplate("/users/{id}/keys").fill({"id": value})


def test_dots_cannot_come_together_from_two_values():
    with pytest.raises(SerializationError):
        PathTemplate("/{a}{b}").fill({"a": ".", "b": "."})


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(TEXT, TEXT)
def test_query_values_come_back(name, value):
    assume(name)
    assert parse_qsl(encode("query", name, value), keep_blank_values=True, separator="&") == [(name, value)]


@given(st.lists(TEXT, min_size=1, max_size=6), st.sampled_from(["form", "pipeDelimited", "spaceDelimited"]))
def test_delimited_arrays_come_back(values, style):
    assume(values != [""])
    delimiter = {"form": ",", "pipeDelimited": "%7C", "spaceDelimited": "%20"}[style]
    if style != "form":  # OpenAPI's own limit: such a value cannot be told from the delimiter
        assume(not any(c in value for value in values for c in "| "))
    text = encode("query", "a", values, style=style, explode=False)
    assert [unquote(item) for item in text.removeprefix("a=").split(delimiter)] == values


@given(TEXT)
def test_a_path_value_stays_one_segment(value):
    try:
        path = PathTemplate("/a/{x}/b").fill({"x": encode("path", "x", value)})
    except SerializationError:
        assert value in ("", ".", "..")
    else:
        assert re.fullmatch(r"/a/[A-Za-z0-9._~%-]+/b", path)
        assert unquote(path) == f"/a/{value}/b"


def test_json_is_compact_strict_and_in_utf8_or_ascii():
    value = {"a": ["é", 1]}
    assert encode_json(value) == '{"a":["é",1]}'
    assert encode_ascii_json(value) == '{"a":["\\u00e9",1]}'
    for encode_strictly in (encode_json, encode_ascii_json):
        with pytest.raises(ValueError, match="Out of range"):
            encode_strictly(float("nan"))
