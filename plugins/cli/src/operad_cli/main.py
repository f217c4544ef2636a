"""The entry of the ``operad`` command: parses, runs, and makes one paragraph of whatever went wrong.

Exit codes: 0 for success, 1 for an error, 2 for wrong usage, 130 for an interrupt, 128 + N for another signal that
ends it, as shells say.
"""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # as of `typing`, which is imported when garbage is looked for less often
    from collections.abc import Callable, Sequence
    from typing import Any


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    if argv is not None:
        sys.exit(_code(argv))
    _open_streams()
    # What a command imports is no garbage: it is not looked through for that, nor taken apart at the end.
    usual = gc.get_threshold()
    gc.set_threshold(200_000, *usual[1:])
    if "_OPERAD_COMPLETE" in os.environ:
        from operad_cli.completing import answer

        if (text := answer()) is not None:
            try:
                sys.stdout.buffer.write(text.encode("utf-8", "replace"))
                sys.stdout.buffer.flush()
            except OSError:  # a shell that does not listen any more
                pass
            os._exit(0)
    _leave(_code(sys.argv[1:], lambda: gc.set_threshold(*usual)))


def _open_streams() -> None:
    """Have standard streams, where whoever started the command closed them: what is written goes nowhere."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # for the whole process


def _leave(code: int) -> None:
    """End the process as the interpreter does, but for taking every module apart."""
    import atexit
    import threading
    from contextlib import suppress

    try:
        threading._shutdown()  # type: ignore[attr-defined]  # what Py_FinalizeEx begins with; threads are joined
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError as error:  # the reader of a pipe left, a disk is full
        code = code or 1
        if not isinstance(error, BrokenPipeError):
            with suppress(OSError):
                os.write(2, f"error: {error}\n".encode())
    except KeyboardInterrupt:
        code = 130
    os._exit(code)


def _code(argv: Sequence[str], imported: Callable[[], None] = lambda: None) -> int:
    """Run the command line; its exit code. ``imported`` is called when a command that may last begins."""
    from operad_cli.signals import ends_as_by_interrupt

    arguments = speak_json(list(argv))
    debug = "--debug" in arguments
    _set_up_logging(debug, serves=bool({"serve", "hub"} & set(arguments)), as_json=_logs_json(arguments))
    with ends_as_by_interrupt() as ended_by:
        try:
            code = _run(arguments, debug, imported)
        except KeyboardInterrupt:  # while the command's modules were still being imported
            code = 130
    return 128 + ended_by[0] if ended_by else code


def speak_json(arguments: list[str]) -> list[str]:
    """``--json '{…}'`` as ``--json --input '{…}'``: JSON in, JSON out. Without a value it is output alone."""
    rewritten: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if name != "--json":
            rewritten.append(argument)
            continue
        rewritten.append("--json")
        if not equals:
            following = next(rest, None)
            if following is None:
                break
            if following != "-" and not following.lstrip().startswith(("{", "[")):
                rewritten += speak_json([following, *rest])
                break
            value = following
        rewritten += ["--input", value]
    return rewritten


def _run(arguments: list[str], debug: bool, imported: Callable[[], None]) -> int:
    as_json = "--json" in arguments
    try:
        return _command(arguments, imported)()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of a pipe left, `operad list | head` say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:  # noqa: BLE001  # whatever a plugin or a bug raises is told as one paragraph
        return _told(error, debug, as_json=as_json)


def _command(arguments: list[str], imported: Callable[[], None]) -> Callable[[], int]:
    """What the command line asks for: a plain call by itself, everything else by click."""
    if "call" in arguments:
        from operad_cli.without_tls import import_asyncio

        import_asyncio()
    from operad_cli.one_call import from_words

    call = from_words(arguments)
    if call is not None:
        import asyncio

        return lambda: asyncio.run(call.run())

    def by_click() -> int:
        from operad_cli.app import application

        imported()
        result = application(arguments).main(arguments, prog_name="operad", standalone_mode=False)
        return result if isinstance(result, int) else 0

    return by_click


def _told(error: Exception, debug: bool, *, as_json: bool) -> int:
    """Tell what went wrong; the exit code."""
    from operad import CallError, OperadError
    from operad_cli.plain import print_error

    if (click := sys.modules.get("click")) is not None:
        if isinstance(error, click.exceptions.Exit):
            return int(error.exit_code)
        if isinstance(error, click.exceptions.Abort):
            return 130
        if isinstance(error, click.exceptions.NoArgsIsHelpError):
            error.show()
            return int(error.exit_code)
        if isinstance(error, click.ClickException):
            return _told_usage(error)
    if debug:
        if not isinstance(error, (OperadError, ExceptionGroup, OSError)):
            raise error
        import traceback

        traceback.print_exception(error)
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        error = OSError(f"{error.filename}: {error.strerror}")
    if not isinstance(error, (OperadError, ExceptionGroup, OSError)):  # a bug, ours or a plugin's
        error = CallError(
            "UNKNOWN_ERROR", f"{type(error).__name__}: {error} (run again with --debug for the traceback)"
        )
    print_error(error, as_json=as_json)
    return 1


def _told_usage(error: Any) -> int:
    """Tell what click found wrong, as every other error is told; the exit code."""
    from operad_cli.plain import tell_error

    context = getattr(error, "ctx", None)
    if context is not None:
        sys.stderr.write(f"{context.get_usage()}\nTry '{context.command_path} --help' for help.\n\n")
    tell_error(" ".join(error.format_message().split()))
    return int(error.exit_code)


def _logs_json(arguments: Sequence[str]) -> bool:
    """Whether the command line asks for logs as JSON; seen before it is parsed, as imports may log."""
    from itertools import pairwise

    words = [word for argument in arguments for word in argument.split("=", 1)]
    return any(pair == ("--log-format", "json") for pair in pairwise(words))


def _set_up_logging(debug: bool, *, serves: bool, as_json: bool) -> None:
    import logging

    if debug and not as_json:
        logging.basicConfig(level=logging.DEBUG, format="%(levelname)s %(name)s: %(message)s")
        return
    handler: logging.Handler
    if as_json:
        from operad_cli.logs import JSONLines

        handler = logging.StreamHandler()
        handler.setFormatter(JSONLines())
    else:
        handler = _for_people()
    # Failures of sources, plugins and one's own calls are printed as errors by the commands themselves.
    own = ("source %s is not loaded", "plugin ", *(() if serves else ("operation %r raised",)))
    if serves or as_json:
        from operad_cli.logs import Sparing

        handler.addFilter(Sparing())
    handler.addFilter(lambda record: not str(record.msg).startswith(own))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.DEBUG if debug else logging.WARNING)
    logging.getLogger("mcp").setLevel(logging.ERROR)
    logging.getLogger("asyncio").setLevel(logging.ERROR)


def _for_people() -> Any:
    """What writes each record as one paragraph, above the line of a terminal that shows what is waited for."""
    import logging

    from operad_cli.plain import in_colours, paragraph, printable

    class Paragraphs(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            try:
                more = getattr(record, "leftOut", 0)
                left_out = f" (and {more} more like it)" if more else ""
                level = record.levelname.lower()
                # The stream of now: while rich has a line there, what is written goes above it.
                told = paragraph(f"{level}: {printable(record.getMessage())}{left_out}", sys.stderr)
                is_line = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
                sys.stderr.write(f"{_CLEAR if is_line else ''}{in_colours(level, told)}\n")
                sys.stderr.flush()
            except Exception:  # noqa: BLE001  # as in logging's own handlers
                self.handleError(record)

    return Paragraphs()


_CLEAR = "\r\x1b[2K"
"""Takes away what the last line of a terminal shows, a call's progress say."""

if __name__ == "__main__":
    main()
