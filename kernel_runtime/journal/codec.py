"""Bytes of entries: the hash of an entry, and how a payload is kept.

The canonical encoding and a worked example are in docs/journal-format.md.
"""

from __future__ import annotations

import hashlib
import zlib
from functools import cache
from typing import Any, NamedTuple

import msgspec

GENESIS = "0" * 64
"""`prev_hash` of seq 1"""

INLINE_MAX = 4096
"""bytes of JSON up to which a payload stands in its entry's row"""

_TRIAL = 16 * 1024
_WORTH = 0.7
"""compressed/plain of the trial above which compressing is not worth its time: an image in base64
has a quarter to give and no more"""

_encode = msgspec.json.Encoder().encode


def digest_of(payload: bytes) -> str:
    return hashlib.sha256(payload).hexdigest()


def entry_hash(  # noqa: PLR0917 - what is hashed, in its order
    seq: int,
    at: int,
    mono: int,
    incarnation: int,
    principal: str,
    kind: str,
    execution_id: str | None,
    digest: str,
    prev_hash: str,
) -> str:
    """sha256 over the canonical JSON of exactly these, in this order."""
    line = _encode((seq, at, mono, incarnation, principal, kind, execution_id, digest, prev_hash))
    return hashlib.sha256(line).hexdigest()


class BadPayload(ValueError):
    """Stored bytes that are not what `pack` made."""


class Stored(NamedTuple):
    """A payload as the payloads table keeps it. `checksum` is CRC-32 of `data`."""

    size: int
    codec: str
    data: bytes
    checksum: int


def pack(payload: bytes) -> Stored:
    """Compress, unless a trial on the beginning says that it is compressed already."""
    data, codec = payload, "raw"
    compressor = _compressor()
    trial = payload[:_TRIAL]
    if len(compressor.compress(trial)) < _WORTH * len(trial):
        data, codec = compressor.compress(payload), "zstd"
    return Stored(len(payload), codec, data, zlib.crc32(data))


def unpack(size: int, codec: str, data: bytes) -> bytes:
    """The payload that `pack` kept.

    Raises:
        BadPayload: the bytes are not what was written.
    """
    if codec == "raw":
        payload = data
    elif codec == "zstd":
        import zstandard

        try:
            payload = zstandard.ZstdDecompressor().decompress(data, max_output_size=size)
        except zstandard.ZstdError as error:
            raise BadPayload(str(error)) from error
    else:
        raise BadPayload(f"kept in an unknown way, {codec!r}")
    if len(payload) != size:
        raise BadPayload(f"{len(payload)} bytes, {size} were written")
    return payload


@cache
def _compressor() -> Any:
    # one per process: only the writer packs, in one thread
    import zstandard

    return zstandard.ZstdCompressor(level=1)
