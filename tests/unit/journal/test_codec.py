"""How a payload is kept."""

from __future__ import annotations

import base64
import os

import pytest

from kernel_runtime.journal.codec import BadPayload, pack, unpack


@pytest.mark.parametrize(
    "payload, codec",
    [
        (b"a" * 100_000, "zstd"),
        (base64.b64encode(os.urandom(50_000)), "raw"),
        (b"", "raw"),
    ],
    ids=["text", "an image", "nothing"],
)
def test_what_is_packed_is_unpacked(payload: bytes, codec: str):
    stored = pack(payload)
    assert stored.codec == codec
    assert unpack(stored.size, stored.codec, stored.data) == payload


def test_what_is_not_what_was_packed_is_refused():
    stored = pack(b"text " * 5000)
    for size, codec, data in (
        (stored.size, "zstd", stored.data[:-3]),
        (stored.size, "zstd", b"text"),
        (stored.size - 1, "zstd", stored.data),
        (stored.size, "raw", stored.data),
        (stored.size, "brotli", stored.data),
    ):
        with pytest.raises(BadPayload):
            unpack(size, codec, data)
