"""`EnvelopeKindConformance`: requirements for every envelope kind."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar

import attrs

from operad import Plugins, load_plugins
from operad.envelopes import EnvelopeKind, EnvelopeKinds, ResponseEnvelope, is_response_envelope
from operad.errors import CallError
from operad_schema import from_schema
from operad_testing._envelope_schema import envelope_schema
from operad_testing._examples import equal, skip

_WIRE_NAME = re.compile(r"_?[a-z][A-Za-z0-9]*")


@attrs.frozen(kw_only=True)
class EnvelopeKindCapabilities:
    """The capabilities of an envelope kind.

    The suite tests the declared ones, and the support table lists them.
    """

    errors: bool = False
    """Whether envelopes of the kind can represent failed calls (``error_examples``)."""
    binary: bool = False
    """Whether the data may be ``bytes``."""


class EnvelopeKindConformance:
    """Requirements for every envelope kind.

    ::

        class TestPigeonEnvelope(EnvelopeKindConformance):
            kind_source = "pigeon"
            examples = [PigeonMeta(ring=1), PigeonMeta(ring=2, colour="grey")]
    """

    kind_source: ClassVar[str]
    """The ``source`` of the kind."""
    capabilities: ClassVar[EnvelopeKindCapabilities] = EnvelopeKindCapabilities()
    """The declared capabilities."""
    examples: ClassVar[Sequence[Any]]
    """Metadata of calls that succeeded: some with as few fields as possible, some with all."""
    error_examples: ClassVar[Sequence[Any]] = ()
    """Metadata of calls that failed."""

    def plugins(self) -> Plugins:
        """Return the plugins to test with: by default, all installed plugins."""
        return load_plugins()

    def test_a_plugin_declares_the_kind(self) -> None:
        """`Plugins.envelope_kinds` has the kind, and the examples have its metadata type and its source."""
        kind = self._kind()
        for meta in self._metas():
            equal(type(meta), kind.meta_type, "the type of the example")
            equal(meta.source, kind.source, "its source")

    def test_metas_are_immutable_values(self) -> None:
        """Metadata with equal fields are equal, and no field can be set, because envelopes are shared."""
        for meta in self._metas():
            equal(attrs.evolve(meta), meta, "a copy of the meta")
            name = next((field.name for field in attrs.fields(type(meta))), "anything")
            try:
                setattr(meta, name, getattr(meta, name, None))
            except (attrs.exceptions.FrozenInstanceError, AttributeError):
                continue
            raise AssertionError(f"{type(meta).__name__}.{name} can be set: make it @attrs.frozen")

    def test_metas_survive_the_wire(self) -> None:
        """An envelope equals its copy after a round trip through JSON text."""
        for meta in self._metas():
            envelope = ResponseEnvelope({"a": [1, None, "ü"]}, meta)
            equal(self._crossed(envelope), envelope, "the envelope after the wire")

    def test_bytes_survive_the_wire(self) -> None:
        """Binary data are base64 on the wire and bytes again after it."""
        if not self.capabilities.binary:
            skip(f"{type(self).__name__} does not declare binary")
        for meta in self._metas():
            envelope = ResponseEnvelope(b"\x00\xff\n", meta)
            equal(self._crossed(envelope), envelope, "the envelope after the wire")

    def test_wire_names_are_camel_case(self) -> None:
        """In the JSON form of metadata, ``source`` is first and all names are in camelCase."""
        for meta in self._metas():
            names = list(ResponseEnvelope(None, meta).to_wire()["meta"])
            equal(names[0], "source", "the first name of the JSON form")
            for name in names:
                assert _WIRE_NAME.fullmatch(name), f"{name} is not camelCase"

    def test_the_schema_accepts_every_wire_form(self) -> None:
        """The JSON Schema that is derived from the meta type accepts the JSON form of every example."""
        schema = from_schema(envelope_schema(self._kinds()))
        for meta in self._metas():
            wire = json.loads(json.dumps(ResponseEnvelope(None, meta).to_wire()))
            assert not schema.errors(wire), [error.message for error in schema.errors(wire)]

    def test_unknown_fields_are_ignored(self) -> None:
        """Fields that this version does not know, from a newer peer, are ignored."""
        for meta in self._metas():
            wire = ResponseEnvelope(1, meta).to_wire()
            wire["meta"]["fieldOfTheFuture"] = {"a": 1}
            equal(self._kinds().from_wire(wire), ResponseEnvelope(1, meta), "the envelope of a newer peer")

    def test_wire_forms_are_recognised(self) -> None:
        """`is_response_envelope` returns True for the JSON form of every example."""
        for meta in self._metas():
            wire = ResponseEnvelope(1, meta).to_wire()
            assert is_response_envelope(wire, self._kinds()), f"not taken for an envelope: {wire}"

    def test_a_malformed_meta_is_a_call_error(self) -> None:
        """Reading malformed metadata from a peer raises no other exception than `CallError`."""
        values: tuple[Any, ...] = (None, [], {}, "x", -1, {"a": {"b": []}})
        for value in values:
            for field in attrs.fields(self._kind().meta_type):
                wire = ResponseEnvelope(1, self.examples[0]).to_wire()
                for name in list(wire["meta"]):
                    if name.strip("_").lower() == field.name.replace("_", "").lower():
                        wire["meta"][name] = value
                with suppress(CallError):  # and no other error; some values fit
                    self._kinds().from_wire(wire)

    def test_failures_are_told_from_successes(self) -> None:
        """``is_error`` is True for `error_examples` and False for `examples`."""
        kinds = self._kinds()
        for meta in self.examples:
            assert not kinds.is_error(ResponseEnvelope(None, meta)), f"{meta} must not be an error"
        assert bool(self.error_examples) is self.capabilities.errors, (
            "declare the capability errors and give error_examples, or neither"
        )
        for meta in self.error_examples:
            assert kinds.is_error(ResponseEnvelope(None, meta)), f"{meta} must be an error"

    def _kinds(self) -> EnvelopeKinds:
        return self.plugins().envelope_kinds

    def _kind(self) -> EnvelopeKind:
        kind = self._kinds().get(self.kind_source)
        assert kind is not None, f'no plugin declares the envelope kind "{self.kind_source}"'
        return kind

    def _metas(self) -> list[Any]:
        metas = [*self.examples, *self.error_examples]
        assert metas, f"{type(self).__name__}.examples is empty"
        return metas

    def _crossed(self, envelope: ResponseEnvelope[Any]) -> ResponseEnvelope[Any]:
        return self._kinds().from_wire(json.loads(json.dumps(envelope.to_wire(), allow_nan=False)))
