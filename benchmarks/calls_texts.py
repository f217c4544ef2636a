"""What a megabyte costs to be made JSON of and to be read again, by what is in it: the least of some rounds.

    python benchmarks/calls_texts.py [--rounds 40]

The codec is the one of the wire, with the checks of its strict profile. ``bytes`` are an answer whose data are
binary: base64 on the wire, made and undone with the envelope.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from operad import load_plugins
from operad_calls import protocol
from operad_openapi import http_envelope

SIZE = 1_000_000
TEXTS = {
    "ASCII": "x" * SIZE,
    "German": "Grüße aus Köln! " * (SIZE // 19),
    "Chinese": "漢字" * (SIZE // 6),
    "emoji": "😀ab" * (SIZE // 6),
    "quotes, line ends": 'a"b\\c\n' * (SIZE // 9),
}


def least(work: Callable[[], Any], rounds: int) -> float:
    """Processor time in ms."""
    took = []
    for _ in range(rounds):
        started = time.process_time()
        work()
        took.append(time.process_time() - started)
    return min(took) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    rounds = parser.parse_args().rounds
    kinds = load_plugins(only=["openapi"]).envelope_kinds
    binary = http_envelope(bytes(SIZE), status_code=200, headers={}, content_type="application/octet-stream")
    outputs: dict[str, Any] = {**TEXTS, "bytes": binary}
    print(f"| 1 MB of | on the wire | to write | to read |\n|{'---|' * 4}")
    for name, output in outputs.items():

        def write(output: Any = output) -> bytes:
            return protocol.encode(
                {"type": "call.responded", "id": "", "payload": {"requestId": "1", "output": output}}
            )

        data = write()

        def read(data: bytes = data, is_envelope: bool = name == "bytes") -> Any:
            value = protocol.decode(data)["payload"]["output"]
            return kinds.from_wire(value) if is_envelope else value

        print(
            f"| {name} | {len(data) / 1e6:.2f} MB | {least(write, rounds):.2f} ms | {least(read, rounds):.2f} ms |"
        )


if __name__ == "__main__":
    main()
