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
from operad_openapi._request.text import SerializationError, text_of

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


ARRAY, OBJECT = ["blue", "black", "brown"], {"R": 100, "G": 200, "B": 150}


@pytest.mark.parametrize(
    ("style", "explode", "value", "expected"),
    [
        ("matrix", False, "", ";color"),
        ("matrix", False, "blue", ";color=blue"),
        ("matrix", False, ARRAY, ";color=blue,black,brown"),
        ("matrix", False, OBJECT, ";color=R,100,G,200,B,150"),
        ("matrix", True, "blue", ";color=blue"),
        ("matrix", True, ARRAY, ";color=blue;color=black;color=brown"),
        ("matrix", True, OBJECT, ";R=100;G=200;B=150"),
        ("matrix", True, ["", "a"], ";color;color=a"),
        ("label", False, "", "."),
        ("label", False, "blue", ".blue"),
        ("label", False, ARRAY, ".blue,black,brown"),
        ("label", False, OBJECT, ".R,100,G,200,B,150"),
        ("label", True, ARRAY, ".blue.black.brown"),
        ("label", True, OBJECT, ".R=100.G=200.B=150"),
        ("simple", False, "", ""),
        ("simple", False, "blue", "blue"),
        ("simple", False, ARRAY, "blue,black,brown"),
        ("simple", False, OBJECT, "R,100,G,200,B,150"),
        ("simple", True, ARRAY, "blue,black,brown"),
        ("simple", True, OBJECT, "R=100,G=200,B=150"),
    ],
)
def test_path_styles(style, explode, value, expected):
    assert encode("path", "color", value, style=style, explode=explode) == expected


@pytest.mark.parametrize(
    ("style", "explode", "value", "expected"),
    [
        ("form", None, "", "color="),
        ("form", None, "blue", "color=blue"),
        ("form", None, ARRAY, "color=blue&color=black&color=brown"),
        ("form", None, OBJECT, "R=100&G=200&B=150"),
        ("form", False, ARRAY, "color=blue,black,brown"),
        ("form", False, OBJECT, "color=R,100,G,200,B,150"),
        ("spaceDelimited", None, ARRAY, "color=blue%20black%20brown"),
        ("spaceDelimited", False, OBJECT, "color=R%20100%20G%20200%20B%20150"),
        ("spaceDelimited", True, ARRAY, "color=blue&color=black&color=brown"),
        ("pipeDelimited", False, ARRAY, "color=blue%7Cblack%7Cbrown"),
        ("pipeDelimited", False, OBJECT, "color=R%7C100%7CG%7C200%7CB%7C150"),
        ("deepObject", None, OBJECT, "color%5BR%5D=100&color%5BG%5D=200&color%5BB%5D=150"),
        ("deepObject", True, ["a", "b"], "color%5B%5D=a&color%5B%5D=b"),
        ("deepObject", True, [{"a": 1}, {"a": 2}], "color%5B0%5D%5Ba%5D=1&color%5B1%5D%5Ba%5D=2"),
        ("deepObject", True, {"a": {"b": ["x", "y"]}}, "color%5Ba%5D%5Bb%5D%5B%5D=x&color%5Ba%5D%5Bb%5D%5B%5D=y"),
        ("deepObject", True, 5, "color=5"),
        ("nonsense", None, "blue", "color=blue"),
    ],
)  # fmt: skip
def test_query_styles(style, explode, value, expected):
    assert encode("query", "color", value, style=style, explode=explode) == expected


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
    [
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (2**70, "1180591620717411303424"),
        (-122.427, "-122.427"),
        (1e-7, "1e-07"),
        ({"a": [1]}, '{"a":[1]}'),
    ],
)
def test_text_of_values(value, text):
    assert text_of(value) == text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), pytest.param(10**5000, id="long")])
def test_values_without_a_text_are_refused(value):
    with pytest.raises(SerializationError):
        text_of(value)


def test_everything_but_unreserved_is_encoded_in_names_and_values():
    assert encode("query", "a b&c", ":/?#[]@!$&'()*+,;=%é", style="form") == (
        "a%20b%26c=%3A%2F%3F%23%5B%5D%40%21%24%26%27%28%29%2A%2B%2C%3B%3D%25%C3%A9"
    )
    assert encode("query", "a", "AZaz09-._~") == "a=AZaz09-._~"


def test_allow_reserved_lets_reserved_characters_and_triples_pass():
    assert encode("query", "q", ":/?[]@!$&'()*+,;=%41 %é", allow_reserved=True) == (
        "q=:/?[]@!$&'()*+,;=%41%20%25%C3%A9"
    )


def test_allow_reserved_does_not_let_a_value_leave_its_component():
    assert encode("query", "q", "a#b", allow_reserved=True) == "q=a%23b"
    assert encode("path", "q", "a/b?c#d:e", allow_reserved=True) == "a%2Fb%3Fc%23d:e"


def test_half_a_surrogate_pair_is_refused():
    with pytest.raises(SerializationError, match="surrogate"):
        encode("query", "a", "\ud800")


def test_content_parameters_are_json_even_for_strings():
    assert encode("query", "c", "a b", content_type="application/json") == "c=%22a%20b%22"
    assert encode("path", "c", {"a": 1}, content_type="application/json; x=y") == "%7B%22a%22%3A1%7D"
    assert encode("header", "C", {"a": "é"}, content_type="application/json") == '{"a":"\\u00e9"}'
    assert encode("query", "c", "a b", content_type="text/plain") == "c=a%20b"


def test_a_querystring_parameter_is_the_whole_query():
    form = "application/x-www-form-urlencoded"
    assert encode("querystring", "q", {"a": "x y", "b": [1, 2]}, content_type=form) == "a=x%20y&b=1&b=2"
    assert encode("querystring", "q", {"a": 1}, content_type="application/json") == "%7B%22a%22%3A1%7D"


def test_headers_are_not_percent_encoded():
    assert encode("header", "X", ["a b", "c%"], style="simple") == "a b,c%"
    assert encode("header", "X", OBJECT, explode=True) == "R=100,G=200,B=150"


@pytest.mark.parametrize("value", ["a\r\nX: 1", "a\n", "\0", "a\rb", ["a", "\n"], {"\n": 1}])
def test_a_header_value_cannot_end_its_header(value):
    with pytest.raises(SerializationError, match="header value"):
        encode("header", "X", value)


@pytest.mark.parametrize("name", ["X Y", "", "X\r\n", "X:"])
def test_a_header_parameter_needs_a_header_name(name):
    with pytest.raises(SerializationError, match="header name"):
        compile_parameter(Parameter(name, "header"))


def test_cookies_of_style_form_are_encoded_and_those_of_style_cookie_are_not():
    assert encode("cookie", "a", "x; y=1") == "a=x%3B%20y%3D1"
    assert encode("cookie", "a", "x y", style="cookie") == "a=x y"
    assert encode("cookie", "a", {"b": "x y", "c": 1}, style="cookie") == "b=x y; c=1"
    assert encode("cookie", "a", ["x", "y"], explode=False) == "a=x,y"


@pytest.mark.parametrize("value", ["a;b", "a\r\nb", {"a;b": 1}, ["x", ";"]])
def test_a_cookie_of_style_cookie_cannot_end_itself(value):
    with pytest.raises(SerializationError, match="cookie"):
        encode("cookie", "a", value, style="cookie")


@pytest.mark.parametrize(
    ("collection", "location", "expected"),
    [
        (None, "query", "a=x%2Cy,z"),
        ("csv", "query", "a=x%2Cy,z"),
        ("ssv", "query", "a=x%2Cy%20z"),
        ("tsv", "query", "a=x%2Cy%09z"),
        ("pipes", "query", "a=x%2Cy%7Cz"),
        ("multi", "query", "a=x%2Cy&a=z"),
        (None, "path", "x%2Cy,z"),
        ("pipes", "path", "x%2Cy%7Cz"),
        ("pipes", "header", "x,y|z"),
        ("csv", "header", "x,y,z"),
    ],
)
def test_collection_formats_of_swagger_2(collection, location, expected):
    raw = {"name": "a", "in": location, "type": "array", "items": {"type": "string"}}
    if collection:
        raw["collectionFormat"] = collection
    assert compile_parameter(normal_parameter(raw, "2.0"))(["x,y", "z"]) == expected


def test_arrays_within_arrays_of_swagger_2():
    items = {"type": "array", "items": {"type": "string"}, "collectionFormat": "pipes"}
    raw = {"name": "a", "in": "query", "type": "array", "items": items}
    assert compile_parameter(normal_parameter(raw, "2.0"))([["x", "y"], ["z"]]) == "a=x%7Cy,z"


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
