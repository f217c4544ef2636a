"""The stdio transport: a program that speaks MCP on its standard streams, one JSON object per line.

This replaces the SDK's transport, because servers are untrusted. Lines that are not JSON are skipped. A message
above the limit fails only its own call; the SDK joins all data so far with every new piece, which takes hours for
a result of 200 MB. When the connection ends, all processes of the program end with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import IO, cast

from operad import ConfigError
from operad_mcp.config import MCPClientConfig
from operad_mcp.errors import ConnectionLost, Fault
from operad_mcp.foreign import one_line, visible
from operad_mcp.wire.ending import MARK, end_process, new_mark
from operad_mcp.wire.link import Link, Sink
from operad_mcp.wire.messages import EDGE, Json, answered_id, encode, failure, is_json, parse, too_large
from operad_mcp.wire.protocol import ServerLogger

_INHERITED = (
    ("APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PATHEXT", "PROCESSOR_ARCHITECTURE",
     "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "USERNAME", "USERPROFILE")
    if sys.platform == "win32" else ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
)  # fmt: skip
"""The environment variables that every MCP host passes on."""
_STDERR_KEPT = 16_384
_WORDS = 200
"""The maximum number of characters of a line of standard error that an error quotes."""
_PRINTED_KEPT = 3
_END_GRACE = 0.2
"""Seconds between the end of the output and the end of the program, or the reverse."""
_PRETTY = (b"{", b"[")
_CAUSE = re.compile(r"(?:error|exception): ", re.IGNORECASE)


@asynccontextmanager
async def stdio_link(config: MCPClientConfig, logger: ServerLogger, sink: Sink) -> AsyncIterator[ServerProcess]:
    """Start the program, and yield its transport. On exit, end all processes of the program.

    Raises:
        OSError: the program cannot be started.
        ConfigError: the file for standard error cannot be opened.
    """
    assert config.command is not None
    mark = new_mark()
    loop = asyncio.get_running_loop()
    named = (*_INHERITED, *config.inherit_env)
    # A value that begins with () is a shell function, which is code.
    inherited = {name: os.environ[name] for name in named if not os.environ.get(name, "()").startswith("()")}
    with _log_file(config.stderr) as log:
        starting = asyncio.ensure_future(
            loop.subprocess_exec(
                lambda: ServerProcess(config, logger, sink, log),
                _found(config.command),
                *config.args,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=inherited | config.env | {MARK: mark},
                cwd=config.cwd,
                start_new_session=sys.platform != "win32",
            )
        )
        try:
            # If a start is cancelled while a pipe is being connected, asyncio loses the pipe and waits for it
            # forever. So a start is never cancelled; the started program is ended instead.
            _, process = await asyncio.shield(starting)
            yield process
        finally:
            while not starting.done():
                # A second one; the first one is being raised already.
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([starting])
            if not starting.cancelled() and starting.exception() is None:
                process = starting.result()[1]
                process.leave()
                await end_process(process.transport, mark, config.shutdown_timeout)


def _found(command: str) -> str:
    """Return the path of a command on Windows, which does not find ``npx.cmd`` for ``npx`` by itself."""
    return (shutil.which(command) or command) if sys.platform == "win32" else command


def _log_file(path: str | None) -> AbstractContextManager[IO[bytes] | None]:
    """Open the file for standard error, if it is configured. Raises `ConfigError` if it cannot be opened."""
    if path is None:
        return contextlib.nullcontext()
    try:
        return open(path, "ab", buffering=0)  # closed by the caller
    except OSError as error:
        raise ConfigError(f"stderr: {path} cannot be written: {error.strerror}; choose another file") from None


class ServerProcess(Link, asyncio.SubprocessProtocol):
    """A running program, as the transport to its server.

    Messages are parsed as they arrive. A whole line is written to the pipe in one step, so that a cancelled caller
    never leaves half a message in the pipe.
    """

    def __init__(
        self, config: MCPClientConfig, logger: ServerLogger, sink: Sink, stderr_file: IO[bytes] | None
    ) -> None:
        super().__init__(sink)
        self._stderr_file = stderr_file
        self._limit = config.max_message_bytes
        self._logger = logger
        self._lines = Lines(self._limit, self._line, self._long_line)
        self._ending: asyncio.TimerHandle | None = None
        self._resuming: asyncio.Task[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._stderr = b""
        self._printed: list[str] = []
        self._pretty: list[bytes] = []
        self._pretty_size = 0
        self._cut_off = False

    # --- asyncio.SubprocessProtocol ------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transports of the process."""
        # uvloop's transports do not have these types.
        self.transport = cast(asyncio.SubprocessTransport, transport)
        self._stdin = cast(asyncio.WriteTransport, self.transport.get_pipe_transport(0))
        self._stdout = cast(asyncio.ReadTransport, self.transport.get_pipe_transport(1))

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Parse lines of standard output. Log standard error, write it to its file, and keep its last lines."""
        if fd == 2:
            self._stderr = (self._stderr + data)[-_STDERR_KEPT:]
            if self._stderr_file is not None and not self._stderr_file.closed:
                with contextlib.suppress(OSError):  # a full disk must not end the server
                    self._stderr_file.write(data)
            self._logger.debug("stderr: %s", visible(data.decode("utf-8", "replace").rstrip()))
            return
        self._lines.feed(data)
        if self.sink.crowded and (self._resuming is None or self._resuming.done()):
            self._stdout.pause_reading()
            self._resuming = asyncio.get_running_loop().create_task(self._resume())

    async def _resume(self) -> None:
        await self.sink.room()
        self._stdout.resume_reading()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """End the connection when standard output ends, after a short wait for the end of the program."""
        if fd == 1:
            self._cut_off = True
            self._lines.end()
            self._end_soon()

    def process_exited(self) -> None:
        """End the connection after a short wait for the end of the output.

        Child processes may keep the pipe open forever.
        """
        self._end_soon()

    def _end_soon(self) -> None:
        """End immediately if output and process have both ended, otherwise after a short wait for the other."""
        if self._ending is None:
            self._ending = asyncio.get_running_loop().call_later(_END_GRACE, self.end)
        else:
            self.end()

    def pause_writing(self) -> None:
        """Pause sending, because the program does not read."""
        self._writable = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """Resume sending, because the program reads again."""
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    def end(self, fault: Fault | None = None) -> None:
        """End the connection. Requests in flight fail with ``fault``, by default `ConnectionLost`."""
        if self._ending is not None:
            self._ending.cancel()
        self.resume_writing()
        super().end(fault)

    def leave(self) -> None:
        """End the connection, and close the program's input."""
        self.end()  # a program that waits for its output to be read never sees the end of its input
        self._stdin.close()

    # --- lines -> messages ---------------------------------------------------------------------

    def _line(self, line: bytes) -> None:
        text = line.strip()
        if not text:
            return
        if self._pretty or text in _PRETTY:
            self._pretty_line(line, text)
        elif self._cut_off and not is_json(text):
            self._pass_over(line)  # incomplete: the program ended while writing it
        else:
            self._whole(line)

    def _whole(self, text: bytes) -> None:
        messages = parse(text)
        for message in messages:
            self.sink.receive(message)
        if not messages:
            self._pass_over(text)

    def _pretty_line(self, line: bytes, text: bytes) -> None:
        """Collect a message on several lines, which the protocol forbids.

        It begins and ends with a lone bracket.
        """
        closing = {b"{": b"}", b"[": b"]"}
        ends = bool(self._pretty) and line.rstrip() == closing[self._pretty[0].strip()]
        is_first = line.rstrip() in _PRETTY
        if self._pretty and not ends and (is_first or (text.startswith(_PRETTY) and parse(text))):
            passed, self._pretty = self._pretty, []  # the lines were not a message, but this one is, or begins one
            self._pass_over(b"\n".join(passed))
            self._line(line)
            return
        self._pretty_size = len(line) + (self._pretty_size if self._pretty else 0)
        self._pretty.append(line)
        if ends or self._pretty_size > self._limit:
            whole, self._pretty = b"\n".join(self._pretty), []
            self._whole(whole)

    def _long_line(self, size: int, head: bytes, tail: bytes) -> None:
        self._logger.warning("a message of %d bytes is dropped; max_message_bytes is %d", size, self._limit)
        found = answered_id(head, tail)
        # Otherwise a notification, or a response whose id cannot be found without reading all of it.
        if found is not None:
            self.sink.receive(failure(found, too_large(self._limit)))

    def _pass_over(self, line: bytes) -> None:
        # A server that prints its log there would fill the log of this process.
        if len(self._printed) < _PRINTED_KEPT:
            text = line[:200].decode("utf-8", "replace").strip()
            self._printed.append(text)
            self._logger.warning("expected JSON-RPC messages on standard output, got %r", text)

    # --- sending -----------------------------------------------------------------------------------

    async def send(self, message: Json, headers: dict[str, str]) -> None:
        """Write a message. For a request or a response, wait while the program does not read.

        Raises `ConnectionLost` if the message certainly did not reach the program.
        """
        line = encode(message) + b"\n"
        if not self.ended and not self._stdin.is_closing():
            at_once = self._stdin.get_write_buffer_size() == 0
            self._stdin.write(line)
            # A pipe without a reader is closed by the write: a program that has ended received nothing.
            if not (at_once and self._stdin.is_closing()):
                # A cancellation must be sent immediately; others wait for a program that does not read.
                if self._writable is not None and "id" in message:
                    await asyncio.shield(self._writable)
                return
        raise ConnectionLost("the message was not sent, because the program has ended", sent=False)

    # --- the end -------------------------------------------------------------------------------

    @property
    def last_words(self) -> str:
        """The exit code of the program, and the last lines of its standard error; empty if neither exists.

        If standard error is empty, lines of standard output that are not messages are quoted.
        """
        code = self.transport.get_returncode()
        lines = [line for line in self._stderr.decode("utf-8", "replace").splitlines() if line.strip()]
        causes = [line for line in lines[:-3] if _CAUSE.search(line)][-1:]  # a stack trace may follow it
        lines = [*causes, *lines[-3:]] or self._printed
        ended = "" if code is None else f"it ended with code {code}"
        words = one_line(" | ".join(line[:_WORDS] for line in lines))
        return "; ".join(part for part in (ended, words) if part)


class Lines:
    """A splitter of received bytes into lines of limited size.

    Args:
        limit: the maximum size of a line in bytes.
        on_line: called with each line.
        on_long: called with the size of each line above the limit, its first and its last 512 bytes (`EDGE`).
    """

    def __init__(
        self, limit: int, on_line: Callable[[bytes], None], on_long: Callable[[int, bytes, bytes], None]
    ) -> None:
        self._limit = limit
        self._on_line = on_line
        self._on_long = on_long
        self._pieces: list[bytes] = []
        self._size = 0
        self._head: bytes | None = None

    def feed(self, data: bytes) -> None:
        """Add received bytes, and pass on the lines that they complete."""
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._collect(data[start:end])
            self.end()
            start = end + 1
        if start < len(data):
            self._collect(data[start:] if start else data)

    def end(self) -> None:
        """Pass on the current line, which may be incomplete; do nothing if it is empty."""
        if not self._pieces:
            return
        line, size, head = b"".join(self._pieces), self._size, self._head
        self._pieces, self._size, self._head = [], 0, None
        if head is None:
            self._on_line(line)
        else:
            self._on_long(size, head, line)

    def _collect(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._head is not None:
            self._pieces[-1] = (self._pieces[-1] + piece)[-EDGE:]
        elif self._size > self._limit:
            whole = b"".join([*self._pieces, piece])
            self._head, self._pieces = whole[:EDGE], [whole[-EDGE:]]
        else:
            self._pieces.append(piece)


def not_started(config: MCPClientConfig, error: OSError) -> str:
    """Return a message that states why a program could not be started, with a hint if the cause is known."""
    command = config.command or ""
    reason = error.strerror or str(error)
    if config.cwd is not None and not Path(config.cwd).is_dir():
        return f"{command} cannot be started: its folder {config.cwd} (cwd) does not exist"
    hint = ""
    if command.startswith("~"):
        hint = f"; ~ is not expanded, write {os.path.expanduser(command)}"
    elif " " in command.strip():
        hint = "; arguments belong in args, not in command"
    return f"{command} cannot be started: {reason}{hint}"
