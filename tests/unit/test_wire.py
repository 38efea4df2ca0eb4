"""Frames: signed, verified, forwarded untouched; compatible with jupyter_client's own session."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from jupyter_client.session import Session

from kernel_runtime import wire

KEY = b"0123456789abcdef"


def test_what_we_build_jupyter_client_reads() -> None:
    signer = wire.Signer(KEY)
    frames = signer.build("execute_request", {"code": "é\n"}, session="s", metadata={"cellId": "c"})
    session = Session(key=KEY)
    message = session.deserialize(frames)
    assert message["header"]["msg_type"] == "execute_request"
    assert message["content"] == {"code": "é\n"}
    assert message["metadata"] == {"cellId": "c"}


def test_what_jupyter_client_builds_we_read_and_forward_as_it_came() -> None:
    session = Session(key=KEY)
    parts = [b"identity", *session.serialize(session.msg("status", {"execution_state": "busy"}))]
    message = wire.Signer(KEY).split(parts)
    assert message.identities == [b"identity"]
    assert message.header.msg_type == "status"
    assert message.content_dict() == {"execution_state": "busy"}
    assert [wire.DELIMITER, *message.frames] == parts[1:]


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [b""],
        [wire.DELIMITER],
        [wire.DELIMITER, b"", b"{}", b"{}", b"{}"],
        [b"x", wire.DELIMITER, b"0" * 64, b"{}", b"{}", b"{}", b"{}"],
    ],
)
def test_what_is_not_a_message_of_this_key_is_refused(parts: list[bytes]) -> None:
    with pytest.raises(wire.BadMessage):
        wire.Signer(KEY).split(parts)


def test_a_header_that_is_not_one_is_refused() -> None:
    signer = wire.Signer(KEY)
    for header in (b"[]", b"nonsense", b'{"msg_id": 3}', b"\xff"):
        body = [header, b"{}", b"{}", b"{}"]
        with pytest.raises(wire.BadMessage):
            signer.split([wire.DELIMITER, signer.sign(body), *body])


def test_what_python_writes_and_json_forbids_is_read() -> None:
    """C26, C27: NaN and lone surrogates come from real kernels."""
    read = wire.decode_json(b'{"a": NaN, "b": "\\ud800"}')
    assert read["a"] != read["a"]
    assert read["b"] == "\ud800"
    with pytest.raises(wire.BadMessage):
        wire.decode_json(b"[1]")


def test_a_surrogate_can_be_sent() -> None:
    frames = wire.Signer(KEY).build("stream", {"text": "a\ud800"}, session="s")
    assert json.loads(frames[4]) == {"text": "a\ud800"}


def test_connection_files_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "front.json"
    connection = wire.ipc_connection(tmp_path / "front", "key", "python3")
    path.write_bytes(connection.dump())
    assert wire.read_connection(path) == connection
    assert connection.endpoint("shell") == f"ipc://{tmp_path}/front-1"
    os.chown(path, 12345, 12345)
    with pytest.raises(wire.BadMessage, match="another user"):
        wire.read_connection(path)
    os.chown(path, os.getuid(), os.getgid())
    path.write_text("{")
    with pytest.raises(wire.BadMessage, match="not a Jupyter connection file"):
        wire.read_connection(path)
