"""The stdio transport: a program that speaks MCP on its standard streams, one JSON object per line.

Ours and not the SDK's, because a server is untrusted here: lines that are no JSON are passed over, a message
above the limit fails its own call and no other (the SDK joins what it read so far with every new piece, which for
a result of 200 MB takes hours), and when the connection ends the whole process group ends with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self

import msgspec

from operad_mcp._live import ServerLogger
from operad_mcp.config import MCPClientConfig

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage

TOO_LARGE = -32_801
"""JSON-RPC code that stands, within this process, for an answer above the limit."""

_STDERR_KEPT = 4096
_EDGE = 512
_PAUSE_AT = 256
_POLL = 0.01
_END_GRACE = 0.2
"""Seconds between the end of the output and that of the program, or the other way round."""
_decode = msgspec.json.Decoder().decode


@asynccontextmanager
async def stdio_streams(
    config: MCPClientConfig, logger: ServerLogger
) -> AsyncIterator[tuple[ServerProcess, ServerProcess]]:
    """Start the program and talk to it; both streams are the same object.

    Raises:
        OSError: the program cannot be started.
    """
    from mcp.client.stdio import get_default_environment

    assert config.command is not None
    loop = asyncio.get_running_loop()
    _, process = await loop.subprocess_exec(
        lambda: ServerProcess(config, logger),
        config.command,
        *config.args,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=get_default_environment() | config.env,
        cwd=config.cwd,
        start_new_session=sys.platform != "win32",
    )
    try:
        yield process, process
    finally:
        await process.stop(config.shutdown_timeout)


class ServerProcess(asyncio.SubprocessProtocol):
    """A running server: the SDK's read stream and its write stream.

    What arrives is parsed as it arrives and queued; writing hands a whole line to the pipe in one step, so that
    a cancelled caller never leaves half a message there.
    """

    def __init__(self, config: MCPClientConfig, logger: ServerLogger) -> None:
        self._limit = config.max_message_bytes
        self._logger = logger
        self._pieces: list[bytes] = []
        self._size = 0
        self._skipping = False
        self._head = b""
        self._items: deque[SessionMessage] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._ended = False
        self._ending: asyncio.TimerHandle | None = None
        self._paused = False
        self._writable: asyncio.Future[None] | None = None
        self._stderr = b""
        self._passed_over = 0

    # --- asyncio.SubprocessProtocol ------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the process."""
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._process = transport
        stdin, stdout = transport.get_pipe_transport(0), transport.get_pipe_transport(1)
        assert isinstance(stdin, asyncio.WriteTransport)
        assert isinstance(stdout, asyncio.ReadTransport)
        self._stdin, self._stdout = stdin, stdout

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Take lines of standard output; keep the end of standard error for messages."""
        if fd == 2:
            self._stderr = (self._stderr + data)[-_STDERR_KEPT:]
            if self._logger.isEnabledFor(logging.DEBUG):
                self._logger.debug("stderr: %s", data.decode("utf-8", "replace").rstrip())
            return
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._collect(data[start:end])
            self._line()
            start = end + 1
        if start < len(data):
            self._collect(data[start:] if start else data)
        if len(self._items) >= _PAUSE_AT and not self._paused:
            self._paused = True
            self._stdout.pause_reading()
        self._wake()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Standard output is the connection: its end is the end, once the reason is known."""
        if fd == 1:
            if self._size and not self._skipping:
                self._line()
            self._end_soon()

    def process_exited(self) -> None:
        """The end, once what is still in the pipe is read; children may hold it open for ever."""
        self._end_soon()

    def _end_soon(self) -> None:
        """End at once when output and process have both ended, else when the other had time to."""
        if self._ending is None:
            self._ending = asyncio.get_running_loop().call_later(_END_GRACE, self._end)
        else:
            self._end()

    def pause_writing(self) -> None:
        """The program does not read."""
        self._writable = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """It reads again."""
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    def _end(self) -> None:
        self._ended = True
        if self._ending is not None:
            self._ending.cancel()
        self.resume_writing()
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    # --- lines -> messages ---------------------------------------------------------------------

    def _collect(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._skipping:
            self._pieces[-1] = (self._pieces[-1] + piece)[-_EDGE:]
        elif self._size > self._limit:
            whole = b"".join([*self._pieces, piece])
            self._head, self._pieces, self._skipping = whole[:_EDGE], [whole[-_EDGE:]], True
        else:
            self._pieces.append(piece)

    def _line(self) -> None:
        line, size, skipped = b"".join(self._pieces), self._size, self._skipping
        self._pieces, self._size, self._skipping = [], 0, False
        if skipped:
            self._too_large(size, self._head, line)
            self._head = b""
        elif line.strip():
            message = parse_message(line)
            if message is not None:
                self._items.append(message)
            else:
                self._pass_over(line)

    def _pass_over(self, line: bytes) -> None:
        self._passed_over += 1
        if self._passed_over <= 3:  # a server that prints its log there would fill ours
            text = line[:200].decode("utf-8", "replace")
            self._logger.warning("the server printed what is no message: %r", text)

    def _too_large(self, size: int, head: bytes, tail: bytes) -> None:
        from mcp.shared.message import SessionMessage
        from mcp_types import ErrorData, JSONRPCError

        self._logger.warning("the server sent a message of %d bytes; max_message_bytes is %d", size, self._limit)
        found = _ID_FIRST.match(head) or _ID_LAST.search(tail)
        if found is None:  # a notification, or an answer whose id cannot be found without reading it all
            return
        error = ErrorData(
            code=TOO_LARGE, message=f"the answer has {size} bytes, max_message_bytes is {self._limit}"
        )
        self._items.append(SessionMessage(JSONRPCError(jsonrpc="2.0", id=json.loads(found[1]), error=error)))

    # --- the SDK's streams ---------------------------------------------------------------------

    async def receive(self) -> SessionMessage | Exception:
        """The next message. Raises `anyio.EndOfStream` at the end."""
        import anyio

        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise anyio.EndOfStream from None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        while not self._items:
            if self._ended:
                raise StopAsyncIteration
            if self._paused:
                self._paused = False
                self._stdout.resume_reading()
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        return self._items.popleft()

    async def send(self, item: SessionMessage, /) -> None:
        """Write a message. Raises `anyio.ClosedResourceError` if the program is gone."""
        import anyio

        if self._ended or self._stdin.is_closing():
            raise anyio.ClosedResourceError
        self._stdin.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
        # Only requests wait for a program that does not read: a cancellation has to come through at once.
        if self._writable is not None and hasattr(item.message, "method") and hasattr(item.message, "id"):
            await asyncio.shield(self._writable)

    async def aclose(self) -> None:
        """Nothing: the process ends when its context does."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    # --- the end -------------------------------------------------------------------------------

    @property
    def last_words(self) -> str:
        """How the program ended, and the end of its standard error; for messages."""
        code = self._process.get_returncode()
        lines = self._stderr.decode("utf-8", "replace").strip().splitlines()
        ended = "" if code is None else f"it ended with code {code}"
        return "; ".join(part for part in (ended, " | ".join(lines[-3:])[-500:]) if part)

    async def stop(self, patience: float) -> None:
        """End the program and everything it started: end of input, then SIGTERM, then SIGKILL to the group."""
        self._end()
        self._stdin.close()
        if self._paused:  # a program that waits for its output to be read never sees the end of its input
            self._paused = False
            self._stdout.resume_reading()
        try:
            await self._wait(patience)
        finally:
            self._kill_group(signal.SIGTERM)
            try:
                await self._wait(patience, group=True)
            finally:
                if sys.platform != "win32":
                    self._kill_group(signal.SIGKILL)
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    self._process.kill()
                await self._wait(patience)
                self._process.close()

    async def _wait(self, patience: float, *, group: bool = False) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience
        while self._process.get_returncode() is None or (group and self._group_lives()):
            if loop.time() >= deadline:
                return
            await asyncio.sleep(_POLL)

    def _group_lives(self) -> bool:
        return self._kill_group(0)

    def _kill_group(self, sign: int) -> bool:
        """Send a signal to the group (its id is the program's pid); whether there was anybody."""
        if sys.platform == "win32":
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            return False
        try:
            os.killpg(self._process.get_pid(), sign)
        except ProcessLookupError:
            return False
        except PermissionError:  # some of it are zombies, or not ours to signal
            return False
        return True


_ID = rb'"id"\s*:\s*(-?\d{1,18}|"(?:[^"\\]|\\.){0,200}")'
_ID_FIRST = re.compile(rb'\s*\{(?:\s*"jsonrpc"\s*:\s*"2\.0"\s*,)?\s*' + _ID + rb"\s*,")
_ID_LAST = re.compile(_ID + rb"\s*\}\s*$")


def parse_message(line: bytes) -> SessionMessage | None:
    """The message of a line, or ``None`` if it is none.

    An answer's result is not checked here: that is the work of who asked.
    """
    from mcp.shared.message import SessionMessage
    from mcp_types import JSONRPCResponse, jsonrpc_message_adapter

    try:
        value: Any = _decode(line)
    except (msgspec.DecodeError, RecursionError):
        try:
            value = json.loads(line)  # takes what is no strict JSON: NaN, lone surrogates, 1e400
        except (ValueError, RecursionError):
            return None
    if not isinstance(value, dict):
        return None
    if "result" in value and "method" not in value and type(value.get("id")) in (int, str):
        # The SDK's model would check, and copy, every part of the result.
        return SessionMessage(
            JSONRPCResponse.model_construct(jsonrpc="2.0", id=value["id"], result=value["result"])
        )
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_python(value, by_name=False))
    except ValueError:
        return None
