"""The entry point of the ``operad`` command: runs the command line and prints errors.

Exit codes: 0 for success, 1 for an error, 2 for wrong usage, 130 for Ctrl-C, and 128 + N, as in shells, if signal
N (SIGTERM or SIGHUP) ends the command.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import click

_GRACE = 0.5
"""Seconds that plain functions get to notice that their calls ended (``context.cancelled``)."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command line, by default the arguments of this process, and raise `SystemExit` with the exit code."""
    if argv is None:
        _open_streams()
    code = _run_with_signals(_split_json(list(sys.argv[1:] if argv is None else argv)))
    try:
        sys.stdout.flush()
    except OSError:  # the command has reported it; the interpreter would report it again
        _discard_output()
    if argv is None:
        _end_with_threads(code)
    sys.exit(code)


def _end_with_threads(code: int) -> None:
    """End the process if a plain function still runs after the command, because its call ended early.

    A thread cannot be stopped, and the interpreter would wait for it: after Ctrl-C, a timeout or a drain.
    """
    if threading.active_count() == 1:
        return  # without the import, which most commands do not need
    from operad.context import worker_threads as threads

    until = time.monotonic() + _GRACE
    for thread in list(threads):
        thread.join(max(0.0, until - time.monotonic()))
    if not any(thread.is_alive() for thread in threads):
        return
    with suppress(OSError):
        sys.stderr.write("warning: a plain function was still running; it ended with this process\n")
        sys.stderr.flush()
    import logging

    logging.shutdown()
    os._exit(code)


def _open_streams() -> None:
    """Open standard streams that the parent process closed. Output to them is lost."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # for the whole process


def _discard_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _split_json(arguments: list[str]) -> list[str]:
    """Rewrite ``--json '{…}'`` as ``--json --input '{…}'``. Without a value ``--json`` only formats the output."""
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
                rewritten += _split_json([following, *rest])
                break
            value = following
        rewritten += ["--input", value]
    return rewritten


def _run_with_signals(arguments: list[str]) -> int:
    with _signals_as_interrupt() as received:
        try:
            code = _run(arguments)
        except KeyboardInterrupt:
            code = 130
    return 128 + received[0] if received else code


@contextmanager
def _signals_as_interrupt() -> Iterator[list[int]]:
    """Treat SIGTERM and SIGHUP as Ctrl-C, so that a command stops the processes of its sources. Yield the signals.

    Commands that serve install their own handlers.
    """
    received: list[int] = []

    def interrupt(number: int, _frame: object) -> None:
        received.append(number)
        if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # a shell's background job: Ctrl-C is not for it
            signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.raise_signal(signal.SIGINT)

    numbers: list[int] = []
    if threading.current_thread() is threading.main_thread():
        named = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
        numbers = [number for number in named if signal.getsignal(number) == signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, interrupt)
    try:
        yield received
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _run(arguments: list[str]) -> int:
    """Run the command line, report its errors, and return the exit code."""
    debug, as_json = "--debug" in arguments, "--json" in arguments
    try:
        from operad_cli.app import application

        if "_OPERAD_COMPLETE" not in os.environ:
            from operad_cli.output.logs import set_up_logging

            set_up_logging(arguments)
        result = application().main(arguments, prog_name="operad", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except (KeyboardInterrupt, click.Abort):
        return 130
    except BrokenPipeError:  # the reader of a pipe left, as in `operad list | head`
        _discard_output()
        return 1
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        return _report_usage(error)
    except Exception as error:  # noqa: BLE001  # a source or plugin may raise anything
        return _report(error, debug=debug, as_json=as_json)


def _report(error: Exception, *, debug: bool, as_json: bool) -> int:
    from operad import CallError, OperadError
    from operad_cli.output.errors import print_error

    is_expected = isinstance(error, (OperadError, ExceptionGroup, OSError))
    if debug:
        if not is_expected:
            raise error
        import traceback

        traceback.print_exception(error)
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        error = OSError(f"{error.filename}: {error.strerror}")
    if not is_expected:
        text = f"{type(error).__name__}: {error} (run again with --debug for the traceback)"
        error = CallError("UNKNOWN_ERROR", text)
    print_error(error, as_json=as_json)
    return 1


def _report_usage(error: click.ClickException) -> int:
    from operad_cli.output.errors import tell_error

    context = getattr(error, "ctx", None)
    if context is not None:
        sys.stderr.write(f"{context.get_usage()}\nTry '{context.command_path} --help' for help.\n\n")
    tell_error(" ".join(error.format_message().split()))
    return error.exit_code


if __name__ == "__main__":
    main()
