"""The entry of the ``operad`` command: parses, runs, and makes one paragraph of whatever went wrong.

Exit codes: 0 for success, 1 for an error, 2 for wrong usage, 130 for an interrupt, 128 + N for another signal that
ends it, as shells say.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence

from operad import CallError, OperadError


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    arguments = speak_json(list(sys.argv[1:] if argv is None else argv))
    debug = "--debug" in arguments
    _set_up_logging(debug, serves=bool({"serve", "hub"} & set(arguments)))
    ended_by = _end_as_by_interrupt()
    try:
        code = _run(arguments, debug)
    except KeyboardInterrupt:  # while the command's modules were still being imported
        code = 130
    sys.exit(128 + ended_by[0] if ended_by else code)


def _end_as_by_interrupt() -> list[int]:
    """Have SIGTERM and SIGHUP end a command as Ctrl-C does, which ends what its sources started.

    Commands that serve put their own handlers in their place. The answer gets the signal that came.
    """
    came: list[int] = []

    def interrupt(number: int, _frame: object) -> None:
        came.append(number)
        signal.raise_signal(signal.SIGINT)

    if threading.current_thread() is threading.main_thread():
        for name in ("SIGTERM", "SIGHUP"):
            if hasattr(signal, name) and signal.getsignal(getattr(signal, name)) == signal.SIG_DFL:
                signal.signal(getattr(signal, name), interrupt)
    return came


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


def _run(arguments: list[str], debug: bool) -> int:
    import click
    from rich.console import Console

    from operad_cli.app import application
    from operad_cli.render import print_error

    as_json = "--json" in arguments
    try:
        result = application(arguments).main(arguments, prog_name="operad", standalone_mode=False)
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.exceptions.Abort):
        return 130
    except BrokenPipeError:  # the reader of a pipe left, `operad list | head` say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (OperadError, ExceptionGroup, OSError) as error:
        if debug:
            Console(stderr=True).print_exception()
        print_error(error, as_json=as_json)
        return 1
    except Exception as error:  # a bug, ours or a plugin's: still one paragraph, and the way to more
        if debug:
            raise
        wrapped = CallError(
            "UNKNOWN_ERROR", f"{type(error).__name__}: {error} (run again with --debug for the traceback)"
        )
        print_error(wrapped, as_json=as_json)
        return 1
    return result if isinstance(result, int) else 0


class _Warnings(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"{record.levelname.lower()}: {record.getMessage()}"


def _set_up_logging(debug: bool, *, serves: bool) -> None:
    if debug:
        logging.basicConfig(level=logging.DEBUG, format="%(levelname)s %(name)s: %(message)s")
        return
    handler = logging.StreamHandler()
    handler.setFormatter(_Warnings())
    # Failures of sources, plugins and one's own calls are printed as errors by the commands themselves.
    own = ("source %s is not loaded", "plugin ", *(() if serves else ("operation %r raised",)))
    handler.addFilter(lambda record: not str(record.msg).startswith(own))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("mcp").setLevel(logging.ERROR)
    logging.getLogger("asyncio").setLevel(logging.ERROR)


if __name__ == "__main__":
    main()
