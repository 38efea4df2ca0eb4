"""Frames between a terminal's holder and whoever speaks with it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_runtime.frames import JSON, LARGEST, RAW, BadFrame, Unpacker, pack

FRAMES = st.lists(st.tuples(st.sampled_from([JSON, RAW]), st.binary(max_size=300)), max_size=8)


@given(frames=FRAMES, cuts=st.lists(st.integers(1, 40), max_size=60))
def test_frames_come_out_as_they_went_in_however_they_were_cut(
    frames: list[tuple[int, bytes]], cuts: list[int]
) -> None:
    data = b"".join(pack(kind, content) for kind, content in frames)
    unpack = Unpacker()
    found: list[tuple[int, bytes]] = []
    for cut in cuts:
        found += unpack.feed(data[:cut])
        data = data[cut:]
    found += unpack.feed(data)
    assert found == frames


@pytest.mark.parametrize(
    "data",
    [
        (LARGEST + 1).to_bytes(4, "big") + b"\0",
        b"\0\0\0\1\7x",
        b"GET / HTTP/1.1\r\n",
    ],
)
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(BadFrame):
        Unpacker().feed(data)
