"""The registration of addresses of a spoke: in batches, and again after a reconnection or a refusal."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from operad.plugin import Event, TransportError
from operad.words import printable
from operad_websocket._desk import REGISTER, REGISTERED, UNREGISTER

logger = logging.getLogger("operad.websocket")

RETRY = 3.0
"""Seconds, plus or minus half, between attempts to register refused addresses after a reconnection."""
_AT_ONCE = 5_000
"""The maximum number of addresses in one frame."""
_NAMED = 5
"""The maximum number of addresses that a log line names."""

Ask = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


class Registering:
    """The registration of the addresses of one spoke.

    Args:
        ask: sends a frame to the hub itself; returns the payload of the response, or raises `TransportError`.
        tell: passes an event to the owner of the link.
    """

    def __init__(self, ask: Ask, tell: Callable[[Event], None]) -> None:
        self._ask = ask
        self._tell = tell
        self._wanted: dict[str, str | None] = {}
        self._refused: dict[str, str] = {}
        """The addresses that the hub refused after a reconnection, with the reasons."""
        self._batch: _Batch | None = None
        self._task: asyncio.Task[None] | None = None

    async def register(self, topic: str, group: str | None) -> None:
        """Serve an address. Return when the hub has confirmed it. Raises `TransportError` if that fails."""
        batch = self._batch
        if batch is None or batch.group != group or len(batch.topics) >= _AT_ONCE:
            batch = self._batch = _Batch(group)
            batch.sending = asyncio.create_task(self._send(batch))
        batch.topics.append(topic)
        assert batch.sending is not None
        refused = await asyncio.shield(batch.sending)
        if topic in refused:
            raise TransportError(f"the hub refuses the registration of {topic}: {refused[topic]}")
        self._wanted[topic] = group

    async def _send(self, batch: _Batch) -> dict[str, str]:
        """Register all addresses of one turn of the event loop with one frame. Return the refused ones."""
        await asyncio.sleep(0)
        if self._batch is batch:
            self._batch = None
        return await self._register(batch.topics, batch.group)

    async def _register(self, topics: list[str], group: str | None) -> dict[str, str]:
        """Register addresses. Return the refused addresses with the reasons."""
        answer = await self._ask(REGISTER, {"topics": topics, "group": group})
        accepted = set(answer.get("topics") or ())
        reasons = {item["topic"]: item["reason"] for item in answer.get("refused") or ()}
        return {topic: reasons.get(topic, "the hub states no reason") for topic in topics if topic not in accepted}

    async def unregister(self, topic: str) -> None:
        """Stop serving an address, even if the connection is lost; idempotent."""
        if topic in self._wanted:
            del self._wanted[topic]
            self._refused.pop(topic, None)
            with contextlib.suppress(TransportError):  # a hub that is gone serves nothing
                await self._ask(UNREGISTER, {"topics": [topic]})

    async def drain(self) -> None:
        """Stop serving. Return when the hub has read all earlier frames. Raises `TransportError` if that fails."""
        topics = list(self._wanted)
        self._wanted.clear()
        self._refused.clear()
        await self.stop()
        await self._ask(UNREGISTER, {"topics": topics})

    # --- after a break ---------------------------------------------------------------------------

    def again(self) -> None:
        """Register all addresses again after a reconnection, and retry refused addresses."""
        self._refused.clear()
        if self._wanted:
            self._task = asyncio.create_task(self._until_served())

    async def stop(self) -> None:
        """Stop the registration that `again` started, because the connection is lost or the link drains."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def _until_served(self) -> None:
        try:
            await self._register_again(dict(self._wanted))
            while self._refused:
                await asyncio.sleep(RETRY * random.uniform(0.5, 1.5))  # noqa: S311  # no secret depends on it
                await self._register_again({topic: self._wanted[topic] for topic in self._refused})
        except TransportError as error:  # lost again: the next connection starts over
            logger.debug("registering again: %s", error)

    async def _register_again(self, topics: dict[str, str | None]) -> None:
        before = dict(self._refused)
        groups: dict[str | None, list[str]] = {}
        for topic, group in topics.items():
            groups.setdefault(group, []).append(topic)
        for group, members in groups.items():
            for start in range(0, len(members), _AT_ONCE):
                part = members[start : start + _AT_ONCE]
                refused = await self._register(part, group)
                for topic in part:
                    self._refused.pop(topic, None)
                self._refused.update((topic, why) for topic, why in refused.items() if topic in self._wanted)
        self._report(before)

    def _report(self, before: dict[str, str]) -> None:
        """Log and report refused addresses and those that are served again, if they have changed."""
        fresh = {topic: why for topic, why in self._refused.items() if topic not in before}
        back = [topic for topic in before if topic not in self._refused and topic in self._wanted]
        if fresh:
            logger.warning(
                "the hub refuses addresses that this process served before; trying again: %s",
                _listed(f"{topic} ({why})" for topic, why in fresh.items()),
            )
        if back:
            logger.warning("served again: %s", _listed(back))
        if fresh or back:
            refused = [{"topic": topic, "reason": why} for topic, why in self._refused.items()]
            served = [topic for topic in self._wanted if topic not in self._refused]
            self._tell({"type": REGISTERED, "id": "", "payload": {"topics": served, "refused": refused}})


class _Batch:
    """A batch of addresses that are registered with one frame."""

    __slots__ = ("group", "sending", "topics")

    def __init__(self, group: str | None) -> None:
        self.group = group
        self.topics: list[str] = []
        self.sending: asyncio.Task[dict[str, str]] | None = None


def _listed(names: Iterable[str]) -> str:
    every = [printable(name) for name in names]
    more = f" and {len(every) - _NAMED} more" if len(every) > _NAMED else ""
    return ", ".join(every[:_NAMED]) + more
