"""Decompress bodies in pieces of bounded size; a body that was cut off is an error (RFC 9110, 8.4).

aiohttp could decompress them itself, but it accepts a truncated gzip body as complete.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Protocol

PIECE = 256 * 1024
"""The maximum number of bytes in one piece."""
_MAX_CODINGS = 3
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP = 31  # wbits: a gzip member of any window


class TruncatedError(ValueError):
    """The error for a compressed body that is incomplete."""


class Decoder(Protocol):
    """A decoder that decompresses one body, chunk by chunk."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the decompressed bytes of ``data`` in pieces. Raises an error of the codec if they are invalid."""
        ...

    def finish(self) -> None:
        """Check, after the last chunk, that the body is complete. Raises `TruncatedError` if it is not."""
        ...


def decoder_of(encoding: str) -> Decoder | None:
    """Return the decoder for a ``Content-Encoding``; ``None`` if the body is not compressed.

    Raises:
        ValueError: the encoding is unknown, lists more than three codings, or its package is not installed.
    """
    names = [name.strip().lower().removeprefix("x-") for name in encoding.split(",")]
    names = [name for name in names if name not in ("", "identity")]
    if len(names) > _MAX_CODINGS or not _DECODERS.keys() >= set(names):
        raise ValueError(f'expected the content encoding gzip, deflate, br or zstd, got "{encoding[:100]}"')
    try:
        decoders = [_DECODERS[name]() for name in reversed(names)]
    except ImportError as error:
        raise ValueError(
            f'the content encoding "{encoding[:100]}" needs a package that is not installed: {error}'
        ) from error
    return decoders[0] if len(decoders) == 1 else _Chain(decoders) if decoders else None


class _Chain:
    """A decoder for several codings; the one that was applied last is undone first."""

    def __init__(self, decoders: list[Decoder]) -> None:
        self._decoders = decoders

    def feed(self, data: bytes, at: int = 0) -> Iterator[bytes]:
        if at == len(self._decoders):
            yield data
            return
        for piece in self._decoders[at].feed(data):
            yield from self.feed(piece, at + 1)

    def finish(self) -> None:
        for decoder in self._decoders:
            decoder.finish()


class _Zlib:
    """The decoder for gzip (RFC 1952, any number of members) and deflate (with or without the header of zlib)."""

    def __init__(self, wbits: int | None) -> None:
        self._wbits = wbits
        self._decoder: Any = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            decoder = self._decoder
            if decoder is None:
                # The low half of zlib's first byte is 8; what begins otherwise is bare, against the standard.
                wbits = self._wbits or (zlib.MAX_WBITS if data[0] & 0xF == 8 else -zlib.MAX_WBITS)
                decoder = self._decoder = zlib.decompressobj(wbits)
            elif decoder.eof:
                if self._wbits is None:
                    return  # deflate has one member; bytes after it are ignored
                if not _GZIP_MAGIC.startswith(data[:2]):
                    return  # padding, or bytes of no member: other clients ignore them too
                decoder = self._decoder = zlib.decompressobj(self._wbits)
            yield from _inflate(decoder, data)
            data = decoder.unused_data

    def finish(self) -> None:
        if self._decoder is not None and not self._decoder.eof:
            raise TruncatedError("the compressed body is incomplete")


def _inflate(decoder: Any, data: bytes) -> Iterator[bytes]:
    while True:
        piece = decoder.decompress(data, PIECE)
        if piece:
            yield piece
        data = decoder.unconsumed_tail
        # Without input left there may still be output that did not fit into the piece.
        if decoder.eof or (not data and len(piece) < PIECE):
            return


class _Brotli:
    """The decoder for br (RFC 7932)."""

    def __init__(self) -> None:
        try:
            module = import_module("brotlicffi")
        except ImportError:
            module = import_module("brotli")
        self._decoder: Any = module.Decompressor()
        self._fed = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._fed = self._fed or bool(data)
        while True:
            piece = self._decoder.process(data, output_buffer_limit=PIECE)
            if piece:
                yield piece
            data = b""
            if self._decoder.is_finished() or self._decoder.can_accept_more_data():
                return

    def finish(self) -> None:
        if self._fed and not self._decoder.is_finished():
            raise TruncatedError("the compressed body is incomplete")


class _Zstandard:
    """The decoder for zstd (RFC 8878), any number of frames."""

    def __init__(self) -> None:
        try:
            self._module: Any = import_module("compression.zstd")  # Python 3.14
        except ImportError:
            self._module = import_module("backports.zstd")
        self._decoder: Any = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._decoder is None or self._decoder.eof:
                self._decoder = self._module.ZstdDecompressor()
            decoder = self._decoder
            while True:
                piece = decoder.decompress(data, PIECE)
                if piece:
                    yield piece
                data = b""
                if decoder.eof or decoder.needs_input:
                    break
            data = decoder.unused_data if decoder.eof else b""

    def finish(self) -> None:
        if self._decoder is not None and not self._decoder.eof:
            raise TruncatedError("the compressed body is incomplete")


_DECODERS: dict[str, Callable[[], Decoder]] = {
    "gzip": lambda: _Zlib(_GZIP),
    "deflate": lambda: _Zlib(None),
    "br": _Brotli,
    "zstd": _Zstandard,
}
