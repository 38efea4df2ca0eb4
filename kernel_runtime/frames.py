"""Frames on the socket of a process's holder: four bytes of length, one of kind, then the content.

`JSON` frames ask and tell; `RAW` frames are what goes into a terminal and what comes out of it, byte for
byte. Standard library only: the holder lives as long as its process and is to stay small.
"""

from __future__ import annotations

import struct

JSON = 0
RAW = 1

LARGEST = 4 << 20
"""bytes in one frame; nobody sends more, so a longer one is no frame of ours"""

_HEAD = struct.Struct("!IB")


class BadFrame(ValueError):
    """Not a frame: the other end is not one of ours, or is out of step."""


def pack(kind: int, content: bytes) -> bytes:
    """One frame."""
    return _HEAD.pack(len(content), kind) + content


class Unpacker:
    """Puts frames together again from whatever pieces arrive."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """The frames that are complete now, `(kind, content)`.

        Raises:
            BadFrame: a length or kind that no frame of ours has.
        """
        self._data += data
        found: list[tuple[int, bytes]] = []
        while len(self._data) >= _HEAD.size:
            length, kind = _HEAD.unpack_from(self._data)
            if length > LARGEST or kind not in (JSON, RAW):
                raise BadFrame(f"no frame: length {length}, kind {kind}")
            end = _HEAD.size + length
            if len(self._data) < end:
                break
            found.append((kind, bytes(self._data[_HEAD.size : end])))
            del self._data[:end]
        return found
