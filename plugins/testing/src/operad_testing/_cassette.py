"""Cassettes, which record the results of calls and replay them in tests."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from difflib import SequenceMatcher, unified_diff
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

from operad import CallError, ConfigError, OperationRegistry, OperationSpec, ResponseEnvelope
from operad.plugin import InterceptedCall
from operad.words import in_words

Mode = Literal["once", "record", "replay", "new"]

REDACTED = "[redacted]"
SECRETS = (
    *("*token*", "*secret*", "*password*", "*passwd*", "*passphrase*", "*credential*", "*signature*"),
    *("*api_key*", "*apikey*", "*api-key*", "*access_key*", "*accesskey*", "*access-key*"),
    *("*private_key*", "*privatekey*", "*private-key*", "*session_id*", "*sessionid*", "*session-id*"),
    *("*authorization*", "x-auth*", "*cookie*"),
)
"""Patterns of field names, in lower case and with shell wildcards, whose values are never written."""
_NUMBER_OF_LINES = 20
_SHORTEST = 6
"""The minimum length of a secret value that is searched for in other strings."""
_QUERY = re.compile(r"(?<=[?&])([^=&#\s]+)=([^&#\s<>\"']+)")


def cassette(
    path: str | Path,
    registry: OperationRegistry,
    *,
    mode: Mode = "once",
    match: str | Iterable[str] = "*",
    redact: Iterable[str] = SECRETS,
    secrets: Iterable[str] = (),
) -> Cassette:
    """Record the calls of a registry, or replay them: ``with cassette("pets.json", registry): …``.

    A recording is found by operation and input. If there are several, they are replayed in their order, and the
    last one is repeated. Errors and streams are recorded as well. A replayed operation need not be loaded, because
    the cassette has its spec, so a test needs neither network nor server. If ``mode`` does not allow a new
    recording, a call without a recording fails with ``NOT_RECORDED``, and the message shows the nearest recording.
    Leaving the context writes the file if a call was recorded.

    Args:
        path: a JSON file, to be kept in version control.
        registry: the registry whose calls are recorded.
        mode: ``"once"`` replays the file if it exists, and records it otherwise; ``"record"`` records and replaces
            the file; ``"replay"`` always replays; ``"new"`` replays the calls in the file and records others. Only
            one cassette at a time may record to a file.
        match: shell patterns of operation ids. Calls of other operations are neither recorded nor replayed.
        redact: patterns of field names, in lower case and with shell wildcards. Values of such fields are not
            written, in inputs and in results.
        secrets: values that are never written, not even as part of a string.

    Raises:
        ConfigError: the file is not a cassette or cannot be read; with ``mode="replay"``, it does not exist.
    """
    patterns = (match,) if isinstance(match, str) else tuple(match)
    return Cassette(Path(path), registry, mode, patterns, _Filter(tuple(redact), tuple(filter(None, secrets))))


class Cassette:
    """A context that records or replays calls, made by `cassette`.

    ``played`` and ``recorded`` are the numbers of calls that were replayed and recorded so far.
    """

    def __init__(
        self, path: Path, registry: OperationRegistry, mode: Mode, match: tuple[str, ...], clean: _Filter
    ) -> None:
        self.path = path
        self.played = self.recorded = 0
        self._registry, self._match, self._clean = registry, match, clean
        there = path.exists() and mode != "record"
        if mode == "replay" and not there:
            raise ConfigError(f'{path}: the cassette does not exist; record it with mode="once"')
        self._plays = there
        self._records = mode in ("record", "new") or not there
        self._tape: dict[str, Any] = _read(path) if there else {"version": 1, "specs": {}, "calls": []}
        self._positions: Counter[str] = Counter()
        self._old = len(self._tape["calls"])
        self._undo: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        if self._undo:  # entered already: the fixture's cassette, in a `with` of the test
            return self
        self._undo.append(
            self._registry.use(self._call, subscribe=self._stream, match=self._match, order=1_000_000)
        )
        if self._plays:
            for id, wire in self._tape["specs"].items():
                if id not in self._registry and any(fnmatchcase(id, pattern) for pattern in self._match):
                    # It may come from a remote source.
                    spec = OperationSpec.from_wire(wire, unchecked_patterns=True)
                    self._registry.register(spec, _absent)
                    self._undo.append(partial(self._registry.unregister, id))
        return self

    def __exit__(self, *_: object) -> None:
        while self._undo:
            self._undo.pop()()
        if self.recorded:
            _write(self.path, self._tape)

    # --- around the calls ------------------------------------------------------------------------

    async def _call(self, call: InterceptedCall, proceed: Any) -> ResponseEnvelope[Any]:
        played = self._next(call, "call")
        if played is not None:
            if "error" in played:
                raise _error(played["error"])
            replayed: ResponseEnvelope[Any] = self._registry.plugins.envelope_kinds.from_wire(played["envelope"])
            return replayed
        try:
            envelope: ResponseEnvelope[Any] = await proceed(call)
        except CallError as error:
            self._record(call, "call", error=error.to_wire())
            raise
        self._record(call, "call", envelope=envelope.to_wire())
        return envelope

    async def _stream(self, call: InterceptedCall, proceed: Any) -> AsyncGenerator[ResponseEnvelope[Any], None]:
        played = self._next(call, "stream")
        if played is not None:
            for item in played["items"]:
                yield self._registry.plugins.envelope_kinds.from_wire(item)
            if "error" in played:
                raise _error(played["error"])
            if played.get("left"):
                message = (
                    f'{self.path}: the recording of the stream "{call.spec.id}" ends after {len(played["items"])} '
                    'items, where its reader left it; read no more items, or record it again with mode="record"'
                )
                raise CallError("NOT_RECORDED", message, {"operationId": call.spec.id, "nearest": None})
            return
        items: list[Any] = []
        ending: dict[str, Any] = {}
        try:
            async for envelope in proceed(call):
                items.append(envelope.to_wire())
                yield envelope
        except CallError as error:
            ending = {"error": error.to_wire()}
            raise
        except BaseException:  # closed, or cancelled
            ending = {"left": True}
            raise
        finally:
            self._record(call, "stream", items=items, **ending)

    def _next(self, call: InterceptedCall, kind: str) -> dict[str, Any] | None:
        """Return the recording to replay; None if the call must be made.

        Raises `CallError` ``NOT_RECORDED`` if the recording is missing and the mode allows no call.
        """
        if not self._plays:
            return None
        key = _key(call.spec.id, kind, self._input(call))
        # Recordings of this run are not replayed: the file would then depend on the order of tests.
        takes = [one for one in self._tape["calls"][: self._old] if _key_of(one) == key]
        if not takes:
            if self._records:
                return None
            raise self._missing(call, kind)
        position = self._positions[key]
        self._positions[key] += 1
        self.played += 1
        take: dict[str, Any] = takes[min(position, len(takes) - 1)]
        return take

    def _record(self, call: InterceptedCall, kind: str, **answer: Any) -> None:
        clean = self._clean.knowing(call.input, answer)
        take = {"operationId": call.spec.id, "kind": kind, "input": self._input(call), **clean(answer)}
        self._tape["specs"].setdefault(call.spec.id, self._clean.values(call.spec.to_wire()))
        self._tape["calls"].append(json.loads(json.dumps(take)))
        self.recorded += 1

    def _input(self, call: InterceptedCall) -> Any:
        """Return the input as it is written and looked up.

        Only secrets in the input matter, not those in the result.
        """
        return self._clean.knowing(call.input)(call.input)

    def _missing(self, call: InterceptedCall, kind: str) -> CallError:
        wanted = _pretty(self._input(call))
        others = [one for one in self._tape["calls"] if one["operationId"] == call.spec.id and one["kind"] == kind]
        message = f'{self.path}: no {kind} of "{call.spec.id}" with this input is recorded'
        nearest: dict[str, Any] | None = None
        if others:
            nearest = max(others, key=lambda one: SequenceMatcher(None, _pretty(one["input"]), wanted).ratio())
            lines = unified_diff(
                _pretty(nearest["input"]).splitlines(),
                wanted.splitlines(),
                "recorded",
                "this call",
                lineterm="",
                n=1,
            )
            message += ". The nearest one differs:\n" + "\n".join(list(lines)[:_NUMBER_OF_LINES])
        else:
            known = sorted({one["operationId"] for one in self._tape["calls"]})
            message += f"; recorded operations: {', '.join(known[:10]) or 'none'}"
        details = {"operationId": call.spec.id, "nearest": None if nearest is None else nearest["input"]}
        return CallError("NOT_RECORDED", message, details)


class _Filter:
    """A function that copies JSON values without their secrets."""

    def __init__(self, names: tuple[str, ...], secrets: tuple[str, ...]) -> None:
        self._names, self._secrets = names, sorted(secrets, key=len, reverse=True)

    def __call__(self, value: Any) -> Any:
        """Return a copy of the same shape, which can be replayed, without the values of secret fields."""
        if isinstance(value, Mapping):
            return {key: _redacted(item) if self._is_secret(key) else self(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self(item) for item in value]
        return _QUERY.sub(self._parameter, self.values(value)) if isinstance(value, str) else value

    def values(self, value: Any) -> Any:
        """Return a copy without the secret values, whatever the names of their fields."""
        if isinstance(value, Mapping):
            return {key: self.values(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.values(item) for item in value]
        if isinstance(value, str):
            for secret in self._secrets:
                value = value.replace(secret, REDACTED)
        return value

    def knowing(self, *values: Any) -> _Filter:
        """Return a filter that also removes the values of secret fields in ``values`` everywhere, because servers
        repeat them.
        """
        return _Filter(self._names, (*self._secrets, *self._found(values)))

    def _found(self, value: Any, *, is_secret: bool = False) -> Iterator[str]:
        if isinstance(value, str):
            if is_secret and len(value) >= _SHORTEST:
                yield value
        elif isinstance(value, Mapping):
            for key, item in value.items():
                yield from self._found(item, is_secret=is_secret or self._is_secret(key))
        elif isinstance(value, (list, tuple)):
            for item in value:
                yield from self._found(item, is_secret=is_secret)

    def _parameter(self, match: re.Match[str]) -> str:
        return f"{match[1]}={REDACTED}" if self._is_secret(match[1]) else match[0]

    def _is_secret(self, key: Any) -> bool:
        return any(fnmatchcase(str(key).lower(), pattern) for pattern in self._names)


def _redacted(value: Any) -> Any:
    """Return the replacement of a value: of the same type, so that a replayed result still fits its schema."""
    if isinstance(value, Mapping):
        return {key: _redacted(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_redacted(item) for item in value]
    if isinstance(value, str):
        return REDACTED if value else value
    return type(value)(0) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


async def _absent(input: Any, context: Any) -> Any:
    raise AssertionError("the call is not in the cassette; to record it, load the source of the operation")


def _key(operation_id: str, kind: str, input: Any) -> str:
    return json.dumps([operation_id, kind, input], sort_keys=True)


def _key_of(take: Mapping[str, Any]) -> str:
    return _key(take["operationId"], take["kind"], take["input"])


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False)


def _error(wire: Mapping[str, Any]) -> CallError:
    return CallError(wire["code"], wire["message"], wire.get("details"))


def _read(path: Path) -> dict[str, Any]:
    try:
        tape: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if tape["version"] != 1 or not isinstance(tape["specs"], dict) or not isinstance(tape["calls"], list):
            raise TypeError("expected version 1 with specs and calls")
        for take in tape["calls"]:
            _key_of(take)
    except OSError as error:
        raise ConfigError(f"{path} is not a readable cassette: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        reason = in_words(error)
        raise ConfigError(f'{path} is not a readable cassette ({reason}); replace it with mode="record"') from None
    return tape


def _write(path: Path, tape: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(json.dumps(tape, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(fresh, path)
