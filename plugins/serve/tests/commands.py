"""What the processes of a supervisor run in tests. It imports little: each process is started anew."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from operad_serve.door import processes


def serve_until_stopped() -> None:
    """Be ready, and have the supervisor stop once both processes are."""
    given = processes.share()
    assert given is not None
    given.ready.set()
    names = ",".join(sorted(given.sockets))
    Path(f"started-{os.getpid()}").write_text(f"{given.is_first} {names}")
    if len(list(Path().glob("started-*"))) >= 2:
        os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(60)


def end_before_ready() -> None:
    """End at once, as a program with a mistake does."""
    sys.exit(3)


def end_once() -> None:
    """Be ready, and end; the process that replaces this one has the supervisor stop."""
    given = processes.share()
    assert given is not None
    given.ready.set()
    if not given.is_first:
        os.kill(os.getppid(), signal.SIGINT)
        time.sleep(60)


def change_a_file() -> None:
    """Change files that are not watched, and one that is; the next process has the supervisor stop."""
    if Path("changed.py").exists():
        os.kill(os.getppid(), signal.SIGTERM)
        time.sleep(60)
    names = ("__pycache__/a.py", ".hidden/a.py", "a_venv/pyvenv.cfg", "a_venv/a.py", "a_venv/lib/a.py", "a.txt")
    for name in names:
        Path(name).parent.mkdir(exist_ok=True, parents=True)
        Path(name).write_text("")
    Path("changed.py").write_text("")
