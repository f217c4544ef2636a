"""Access control fails closed: only what an identity was granted, in exactly the required form, opens anything."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.tests.kit import op, registry_of
from operad import AccessControl, CallError, ErrorCode, Identity, OperationContext, check_access
from operad.access import may_list, missing_access

TABLES = json.loads(Path(__file__).with_name("access_control.json").read_text("utf-8"))

SCOPES = st.sampled_from(["read", "write", "admin", ""])
TYPES = st.sampled_from(["doc", "user"])
ACTIONS = st.sampled_from(["read", "write"])
IDS = st.sampled_from(["1", "2", "*", "a:b", ""])
inputs = st.one_of(
    st.none(),
    st.text(max_size=3),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.sampled_from(["id", "other"]), st.one_of(IDS, st.integers(1, 2), st.none(), st.booleans())),
)
identities = st.builds(
    Identity,
    st.just("ann"),
    st.sets(SCOPES),
    st.dictionaries(st.builds("{}:{}".format, TYPES, IDS), st.sets(ACTIONS), max_size=4),
)


@st.composite
def controls(draw: st.DrawFn) -> AccessControl:
    scopes = draw(st.lists(SCOPES, max_size=3)), draw(st.lists(SCOPES, max_size=3))
    if not draw(st.booleans()):
        return AccessControl(*scopes)
    return AccessControl(*scopes, draw(TYPES), draw(ACTIONS), draw(st.sampled_from(["id", None])))


def allowed(control: AccessControl, identity: Identity | None, input: Any = None) -> bool:
    try:
        check_access(control, identity, input)
    except CallError as error:
        assert error.code == ErrorCode.ACCESS_DENIED  # noqa: PT017  # both outcomes are right, others are not
        return False
    return True


@given(controls(), inputs)
def test_nobody_meets_no_requirement(control: AccessControl, input: Any) -> None:
    assert allowed(control, None, input) == control.is_open


@given(controls(), identities, inputs)
def test_what_passes_has_everything_that_is_required(
    control: AccessControl, identity: Identity, input: Any
) -> None:
    """The specification once more, in other words."""
    passes = set(control.required_scopes) <= identity.scopes
    if control.required_scopes_any:
        passes = passes and bool(set(control.required_scopes_any) & identity.scopes)
    if control.resource_type is not None:
        grants = [f"{control.resource_type}:*"]
        given_id = input.get("id") if control.resource_id_from and isinstance(input, dict) else None
        if type(given_id) in (str, int) and given_id != "*":
            grants.append(f"{control.resource_type}:{given_id}")
        passes = passes and any(control.resource_action in identity.resources.get(grant, ()) for grant in grants)
    assert allowed(control, identity, input) == passes


@given(controls(), identities, inputs)
def test_taking_a_grant_away_never_opens_anything(control: AccessControl, identity: Identity, input: Any) -> None:
    if allowed(control, identity, input):
        return
    for scope in identity.scopes:
        assert not allowed(control, Identity("ann", identity.scopes - {scope}, identity.resources), input)
    for key in identity.resources:
        fewer = {other: actions for other, actions in identity.resources.items() if other != key}
        assert not allowed(control, Identity("ann", identity.scopes, fewer), input)


@given(controls(), identities, inputs)
def test_a_listing_hides_nothing_that_could_be_called(
    control: AccessControl, identity: Identity, input: Any
) -> None:
    if allowed(control, identity, input):
        assert may_list(control, identity)
    assert may_list(control, None) == control.is_open


@given(controls(), identities)
def test_details_name_what_is_required_and_never_what_the_caller_has(
    control: AccessControl, identity: Identity
) -> None:
    scopes = {*control.required_scopes, *control.required_scopes_any}
    for value in missing_access(control, identity).values():
        named = set(value if isinstance(value, list) else [value])
        assert named <= scopes | {control.resource_type, control.resource_action}


def test_an_id_from_the_input_counts_for_this_resource_only() -> None:
    control = AccessControl(resource_type="doc", resource_action="read", resource_id_from="id")
    ann = Identity(
        "ann", (), {key: ["read"] for key in ("doc:1", "user:2", "doc:True", "doc:None", "doc:['1']", "doc:1.0")}
    )
    assert allowed(control, ann, {"id": "1"})
    assert allowed(control, ann, {"id": 1})
    hostile: Any
    for hostile in ({"id": "2"}, {"id": "*"}, {"id": None}, {"id": ["1"]}, {"id": True}, {"id": 1.0}, {}, [], "1"):
        assert not allowed(control, ann, hostile)


def test_without_an_id_in_the_input_only_a_grant_on_all_will_do() -> None:
    control = AccessControl(resource_type="doc", resource_action="read")
    assert not allowed(control, Identity("ann", (), {"doc:1": ["read"]}), {"id": "1"})
    assert allowed(control, Identity("ann", (), {"doc:*": ["read"]}), {"id": "1"})


@pytest.mark.parametrize("fields", TABLES["requirements_that_cannot_be_meant_are_refused"])
def test_requirements_that_cannot_be_meant_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="resource_"):
        AccessControl(**fields)


@pytest.mark.parametrize("value", ["read", {"read": False}, [1], [["read"]]])
def test_scopes_have_to_be_a_list_of_strings(value: Any) -> None:
    for make in (AccessControl, lambda it: Identity("ann", it), lambda it: Identity("ann", (), {"doc:1": it})):
        with pytest.raises(TypeError, match="expected a list of strings"):
            make(value)


@given(identities)
def test_an_identity_survives_its_json_form(identity: Identity) -> None:
    assert Identity.from_wire(identity.to_wire()) == identity


@pytest.mark.parametrize("wire", TABLES["what_is_no_identity_is_refused"])
def test_what_is_no_identity_is_refused(wire: Any) -> None:
    with pytest.raises(ValueError, match="not an identity"):
        Identity.from_wire(wire)


@pytest.mark.parametrize(("wire", "words"), TABLES["an_unusable_identity_is_an_error_that_names_the_field"])
def test_an_unusable_identity_is_an_error_that_names_the_field(wire: Any, words: str) -> None:
    with pytest.raises(ValueError, match=f"not an identity .*: {words}"):
        Identity.from_wire(wire)


@pytest.mark.parametrize("trusted", ["false", "no", 1, object()])
async def test_only_true_itself_is_trusted(trusted: Any) -> None:
    async def see(input: Any, context: OperationContext) -> Any:
        return context.trusted

    context = OperationContext(trusted=trusted)
    registry = registry_of(op("guarded", see, access_control=AccessControl(["admin"])), op("open", see))
    with pytest.raises(CallError, match="^ACCESS_DENIED"):
        await registry.execute("t.guarded", context=context)
    assert (await registry.execute("t.open", context=context)).data is False


def test_nobody_widens_what_an_identity_was_granted() -> None:
    identity = Identity("ann", ["read"], {"doc:1": ["read"]})
    with pytest.raises(TypeError):
        identity.resources["doc:*"] = frozenset({"write"})  # type: ignore[index]  # what is tested
    assert pickle.loads(pickle.dumps(identity)) == identity


@pytest.mark.parametrize(("control", "identity", "message", "details"), TABLES["denials"], ids=range(3))
def test_a_denial_states_all_that_is_missing(
    control: dict[str, Any], identity: list[Any] | None, message: str, details: dict[str, Any]
) -> None:
    with pytest.raises(CallError) as caught:
        check_access(AccessControl(**control), identity and Identity("ann", *identity))
    assert (caught.value.message, caught.value.details) == (message, details)


@pytest.mark.parametrize(("more", "scopes", "resources", "listed"), TABLES["listed"])
def test_an_operation_is_listed_if_some_input_can_be_called(
    more: dict[str, Any], scopes: list[str], resources: dict[str, list[str]], listed: bool
) -> None:
    doc = AccessControl(resource_type="doc", resource_action="read", **more)
    assert may_list(doc, Identity("ann", scopes, resources)) is listed
