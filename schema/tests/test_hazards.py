"""Hostile schemas and values: each ends in a result, after bounded work, with nothing fetched and nothing run.

Every case runs in a process of its own with a limit on processor time and memory, and an audit hook that
ends it when something is connected to, fetched, started or opened for writing.
"""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PREAMBLE = """
import logging, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
import msgspec
from operad_schema import from_schema
logging.disable(logging.CRITICAL)

FORBIDDEN = ("urllib.Request", "socket.connect", "socket.getaddrinfo", "os.system", "subprocess.Popen", "os.exec")

def audit(event, arguments):
    if event in FORBIDDEN or (event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")):
        sys.stderr.write(f"forbidden: {event} {arguments}")
        sys.stderr.flush()
        import os
        os._exit(66)

sys.addaudithook(audit)

def everything(schema, value, **options):
    compiled = from_schema(schema, **options)
    result = compiled.cast(value)
    valid = compiled.is_valid(value)
    assert valid == (not compiled.errors(value))
    compiled.mismatches(value)
    compiled.bundled(), repr(compiled)
    return compiled, result, valid

def warned(compiled, word):
    assert any(word in warning for warning in compiled.warnings), (word, compiled.warnings)
"""

CASES = {
    "remote_references_are_unknown_and_named": """
        for uri in ("http://127.0.0.1:9/x.json", "https://example.com/a#/b", "file:///etc/passwd", "data:,{}", "x.json", "//h/p"):
            compiled, result, valid = everything({"properties": {"a": {"$ref": uri}}}, {"a": 1})
            assert valid and result == {"a": 1}
            warned(compiled, "has no target in this document")
        compiled, _, valid = everything({"$schema": "http://127.0.0.1:9/meta", "$id": "http://127.0.0.1:9/s", "type": "integer"}, 1)
        assert valid
    """,
    "a_reference_inside_a_value_is_a_value": """
        inner = {"$ref": "http://127.0.0.1:9/x", "$id": "http://127.0.0.1:9/y", "id": "file:///etc/passwd"}
        for schema in ({"const": inner}, {"enum": [inner]}, {"default": inner, "type": "object"}, {"examples": [inner]},
                       {"if": {"const": inner}, "then": {"type": "object"}}, {"properties": {"$ref": {"type": "string"}}}):
            _, _, valid = everything(schema, inner)
            assert valid
    """,
    "names_that_are_alike_stay_apart": """
        schema = {"properties": {"p": {"$ref": "#/$defs/Foo"}, "q": {"$ref": "#/$defs/foo"}, "a-b": {"$ref": "#/$defs/a-b"},
                                 "a_b": {"$ref": "#/$defs/a_b"}},
                  "$defs": {"Foo": {"type": "integer"}, "foo": {"type": "string"}, "a-b": {"type": "null"}, "a_b": {"type": "array"}}}
        value = {"p": 1, "q": "x", "a-b": None, "a_b": []}
        for extra in ({}, {"if": True, "then": True}):
            compiled, _, valid = everything({**schema, **extra}, value)
            assert valid
            for name in value:
                assert not compiled.is_valid({**value, name: 1.5})
    """,
    "code_in_a_schema_is_not_run": '''
        for text in ("\\"); __import__('os').system('id') #", "'''
    "'''"
    """+__import__('os').system('id')+"""
    "'''"
    """", "{__import__('os').system('id')}",
                     "{variable}", "\\n    __import__('os').system('id')\\n", "\\\\", "a\\"b", "%s{0}", "\\x00", "\\ud800", "]]{{}}"):
            schema = {"type": "object", "properties": {text: {"enum": [text, [text]]}}, "required": [text, "{x}"],
                      "patternProperties": {text: {"const": text}}, "dependentRequired": {text: [text]},
                      "dependentSchemas": {text: {"properties": {text: {"pattern": text}}}}, "title": text,
                      "if": {"const": text}, "then": {"propertyNames": {"enum": [text]}}, "default": text,
                      "$defs": {text: {"contains": {"const": text}, "minItems": 1}}}
            everything(schema, {text: text})
            everything({"$ref": "#/$defs/x", "$defs": {"x": schema}}, {text: [text]})
    """,
    "a_check_changes_neither_schema_nor_value": """
        import copy
        schema = {"properties": {"a": {"default": [1]}, "b": {"if": True, "then": {"default": 3}}}, "dependentSchemas": {"a": {"default": 1}}}
        value = {"b": {}}
        before = copy.deepcopy((schema, value))
        everything(schema, value)
        assert before == (schema, value)
    """,
    "const_and_uniform_errors_leak_no_key_error": """
        _, _, valid = everything({"const": {"a": 1}, "if": True, "then": {"const": {"a": 1}}}, {"a": 2})
        assert not valid
    """,
    "nonsense_for_a_keyword_ignores_that_keyword": """
        keywords = ("type enum const properties required items prefixItems allOf anyOf oneOf not if then else minimum multipleOf "
                    "minLength pattern uniqueItems patternProperties additionalProperties propertyNames contains dependentSchemas "
                    "dependentRequired dependencies $ref $dynamicRef $recursiveRef $id $anchor $schema $defs unevaluatedItems "
                    "maxContains discriminator nullable default format minItems exclusiveMaximum").split()
        for keyword in keywords:
            for junk in (None, 5, -1, 1.5, "x", [], {}, [5], {"a": 5}, {"a": [5]}, float("nan"), float("inf"), b"x", object(), "(", [None], ["x", "x"]):
                for dialect in ("draft4", "draft7", "2019-09", "2020-12", "openapi-3.0"):
                    compiled = from_schema({keyword: junk, "type": "object"} if keyword != "type" else {"type": junk}, dialect=dialect)
                    for value in ({"a": 1}, [1], "x", None, 5):
                        compiled.cast(value), compiled.is_valid(value), compiled.errors(value)
    """,
    "a_pattern_that_could_backtrack_does_not": """
        for pattern in ("^(a+)+$", "(a|a)*b", "(a|aa)+$", "^(([a-z])+.)+[A-Z]([a-z])+$", "(.*)*x", "a*a*a*a*b", "(?=a)b", "(a)\\\\1",
                        "(a?){40}a{40}", "^(a{1,100}){1,100}$", "(x+x+)+y", "a?" * 40 + "a" * 40, "(" * 500 + ")" * 500, "[", "(", "*", "a{99999}"):
            compiled, _, valid = everything({"pattern": pattern}, "a" * 5000)
            assert bool(compiled.unchecked) == bool(compiled.warnings)
            assert valid or not compiled.unchecked
            everything({"patternProperties": {pattern: {"type": "integer"}}, "additionalProperties": False}, {"a" * 50 + "!": 1})
        compiled, _, valid = everything({"pattern": "^[a-z]+$"}, "a" * 4000 + "!")
        assert not valid
    """,
    "a_pattern_costs_no_more_for_longer_strings_or_for_more_of_them": """
        hard = "^a{0,4096}[ab]{0,4096}[cd]$"
        for schema, value in (
            ({"pattern": "^a{0,4096}a*[bc]$"}, "a" * 4_000_000),
            ({"patternProperties": {"^a{0,4096}a*[bc]$": {}}}, {"a" * 4_000_000: 1}),
            ({"items": {"not": {"pattern": hard}}}, ["a" * 4096] * 500),
            ({"anyOf": [{"pattern": f"{hard[:-1]}{'x' * i}$"} for i in range(10)]}, "a" * 4096),
            ({"items": {"pattern": "[a-z]*[0-9]"}}, ["a" * 2000] * 500),
            ({"items": {"pattern": "[a-z]*[0-9]", "if": True, "then": True}}, ["a" * 2000] * 500),
            ({"items": {"patternProperties": {"^a{0,4096}a{0,4096}$": {}}}}, [{"a" * 4000 + "b": 1}] * 100),
        ):
            compiled = from_schema(schema)
            compiled.normalizer(value), compiled.mismatches(value), compiled.errors(value)
    """,
    "an_answer_of_half_a_kilobyte_costs_no_million_of_zero_values": """
        defs = {"d12": {"type": "integer"}}
        for level in range(12):
            below = {"$ref": f"#/$defs/d{level + 1}"}
            defs[f"d{level}"] = {"type": "object", "properties": {"a": below, "b": below}, "required": ["a", "b"]}
        compiled = from_schema({"items": {"$ref": "#/$defs/d0"}, "$defs": defs})
        for _ in range(10):
            compiled.normalizer([{}] * 130), compiled.mismatches([{}] * 130)
    """,
    "names_in_a_bundle_are_found_in_linear_time": """
        links = {f"n{i}": {"a": {"properties": {"x": {"$ref": f"#/$defs/n{i + 1}/a"}}}} for i in range(15_000)}
        from_schema({"$ref": "#/$defs/n0/a", "$defs": links | {"n15000": {"a": {}}}}).bundled()
    """,
    "nested_schemas_compile": """
        for depth in (21, 60):
            for key, wrap in (("items", lambda v: [v]), ("properties", lambda v: {"a": v})):
                schema, value, bad = {"type": "integer"}, 1, "x"
                for _ in range(depth):
                    schema = {key: schema if key == "items" else {"a": schema}, "if": True, "then": True}
                    value, bad = wrap(value), wrap(bad)
                compiled, _, valid = everything(schema, value)
                assert valid and not compiled.is_valid(bad), depth
    """,
    "a_schema_nested_too_deeply_is_unknown_from_there_and_says_so": """
        schema = {}
        for _ in range(5000):
            schema = {"items": schema}
        value = []
        for _ in range(300):
            value = [value]
        compiled, _, valid = everything({"properties": {"a": schema, "b": {"type": "integer"}}}, {"a": value, "b": 1})
        assert valid and not compiled.is_valid({"b": "x"})
        warned(compiled, "max_schema_depth")
    """,
    "a_schema_that_refers_to_itself_in_place_is_unknown_there": """
        for schema in ({"anyOf": [{"$ref": "#"}]}, {"$ref": "#"}, {"allOf": [{"$ref": "#"}], "type": "object"}, {"not": {"$ref": "#"}},
                       {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"oneOf": [{"$ref": "#/$defs/a"}]}}},
                       {"if": {"$ref": "#"}, "then": True}, {"dependentSchemas": {"a": {"$ref": "#"}}}, {"$dynamicRef": "#"}, {"$recursiveRef": "#"}):
            compiled, result, valid = everything(schema, {"a": 1})
            assert result == {"a": 1}
    """,
    "a_reference_graph_that_doubles_is_bounded": """
        defs = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}]} for i in range(40)}
        defs["d40"] = {"type": "integer"}
        compiled, _, valid = everything({"$ref": "#/$defs/d0", "$defs": defs}, 1)
        assert valid
        warned(compiled, "max_schema_in_place")
        defs = {f"d{i}": {"properties": {"a": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}]}}} for i in range(40)}
        defs["d40"] = {"type": "integer"}
        value = 1
        for _ in range(40):
            value = {"a": value}
        compiled, result, valid = everything({"$ref": "#/$defs/d0", "$defs": defs}, value)
        assert valid and result == value
    """,
    "schemas_that_branch_as_they_recurse_are_remembered": """
        for key in ("allOf", "anyOf", "oneOf"):
            node = {"type": "object", "properties": {"a": {key: [{"$ref": "#"}, {"$ref": "#/$defs/other"}]}}, "required": ["z"]}
            schema = {**node, "$defs": {"other": {**node, "required": ["y"]}}}
            for extra in ({}, {"if": True, "then": True}, {"unevaluatedProperties": True, "minContains": 2, "contains": True}):
                value = {"z": 1, "y": 1}
                for _ in range(60):
                    value = {"a": value, "z": 1}
                everything({**schema, **extra, "$defs": {"other": {**schema["$defs"]["other"], **extra}}}, value)
    """,
    "a_union_of_branches_that_recurse_casts_in_bounded_time": """
        tree = {"anyOf": [{"properties": {"n": {"$ref": "#"}, "k": {"const": 1}, "x": {"default": {}}}},
                          {"properties": {"n": {"$ref": "#"}, "k": {"const": 2}, "y": {"type": "integer"}}}]}
        value = {"k": "1"}
        for level in range(100):
            value = {"n": value, "k": str(level % 3), "y": "5"}
        everything(tree, value)
    """,
    "a_value_that_is_too_deep_is_refused_by_name_and_left_as_it_is": """
        value = 1
        for _ in range(100_000):
            value = [value]
        compiled = from_schema({"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}})
        assert compiled.cast(value) is value
        assert not compiled.is_valid(value)
        assert "max_data_depth" in compiled.errors(value)[0].message
        assert compiled.normalizer(value) == (value, False) or True
        from_schema({"const": value})
        everything({"type": "array"}, value)
        del compiled
        import os; os._exit(0)  # freeing such a list is Python's own business
    """,
    "fillings_that_multiply_are_bounded": """
        for kind in ("default", "required"):
            defs = {}
            for i in range(40):
                below = {"$ref": f"#/$defs/d{i + 1}"}
                if kind == "default":
                    below = {**below, "default": {}}
                defs[f"d{i}"] = {"type": "object", "properties": {"a": below, "b": below}, "required": ["a", "b"]}
            defs["d40"] = {"type": "integer"}
            schema = {"items": {"$ref": "#/$defs/d0"}, "$defs": defs}
            compiled = from_schema(schema)
            assert len(repr(compiled.cast([{}]))) < 1_000_000
            assert len(repr(compiled.cast([{}] * 1_000))) < 20_000_000
    """,
    "a_default_that_contains_itself_is_absent": """
        _, result, _ = everything({"properties": {"n": {"$ref": "#", "default": {}}}}, {})
        assert result == {}
        schema = {"$ref": "#/$defs/A", "$defs": {"A": {"properties": {"b": {"$ref": "#/$defs/B", "default": {}}}},
                                                 "B": {"properties": {"a": {"$ref": "#/$defs/A", "default": {}}}}}}
        compiled, result, _ = everything(schema, {})
        assert compiled.cast(result) == result
    """,
    "sizes_beyond_a_bound_are_named": """
        compiled, _, valid = everything({"properties": {f"p{i}": {"type": "integer"} for i in range(21_000)}}, {"p1": "x"})
        assert valid and compiled.is_unknown
        warned(compiled, "max_schema_nodes")
        trusted = from_schema({"properties": {f"p{i}": {"type": "integer"} for i in range(21_000)}}, trusted=True)
        assert not trusted.is_valid({"p1": "x"})
        compiled, _, valid = everything({"properties": {"a": {"enum": ["x" * 1000 + str(i) for i in range(2000)]}}}, {"a": 1})
        assert valid
        warned(compiled, "max_schema_bytes")
        compiled, _, valid = everything({"enum": list(range(6000))}, 7000)
        assert valid
        warned(compiled, "max_schema_enum")
    """,
    "many_unique_items_are_compared_once": """
        value = [{"id": i, "tags": [i, str(i)]} for i in range(4_000)]
        for extra in ({}, {"unevaluatedItems": False, "contains": True, "minContains": 2}):
            _, _, valid = everything({"type": "array", "uniqueItems": True, **extra}, value)
            assert valid
            assert not from_schema({"type": "array", "uniqueItems": True, **extra}).is_valid([*value, value[0]])
    """,
    "numbers_in_text_are_read_in_bounded_time": """
        for text in ("1e999999999", "1e-999999999", "9" * 100_000, "-" + "0" * 1000, "1e400", "0." + "1" * 400):
            _, result, _ = everything({"type": ["integer", "number"]}, text)
            assert result == text
        _, result, _ = everything({"type": "string"}, 10 ** 10_000)
        assert result == 10 ** 10_000
    """,
    "python_objects_pass_through": """
        class Odd(dict):
            def __contains__(self, key): raise RuntimeError("odd")
            def items(self): raise RuntimeError("odd")
        for value in (object(), {1: 2}, {None: 1, "a": "1"}, Odd(a=1), {1, 2}, b"x", 1j, float("nan"), [float("inf")]):
            for schema in ({"type": "object", "properties": {"a": {"type": "integer"}}, "patternProperties": {"^x": {}}}, {"type": "integer"},
                           {"type": "string"}, {"enum": [1, "x"]}, {"items": {"type": "boolean"}}, {"uniqueItems": True, "minimum": 3, "multipleOf": 2}):
                compiled = from_schema(schema)
                compiled.cast(value), compiled.is_valid(value), compiled.errors(value), compiled.normalizer(value), compiled.mismatches(value)
    """,
    "a_long_chain_of_references_is_followed": """
        links = {f"n{i}": {"properties": {"a": {"$ref": f"#/$defs/n{i + 1}"}}, "minProperties": 1} for i in range(480)}
        schema = {"$ref": "#/$defs/n0", "minProperties": 1, "$defs": links | {"n480": {}}}
        compiled = from_schema(schema)
        assert compiled.is_valid({"a": {"a": 1}}) and not compiled.is_valid({"a": {}})
        everything(schema, {"a": {}})
    """,
}


@pytest.mark.parametrize("name", CASES)
def test_hostile(name: str, tmp_path: Path) -> None:
    script = tmp_path / "case.py"
    script.write_text(PREAMBLE + textwrap.dedent(CASES[name]), "utf-8")
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
