"""Whatever arrives at the front door, the supervisor stays and answers.

Thousands of frames of every shape on every channel, unsigned and signed: a stranger must not be heard,
and a client with the key may be wrong in every way there is without ending anybody's session.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

import kernel_runtime as kr
from kernel_runtime.journal import verify
from kernel_runtime.wire import DELIMITER, Signer, read_connection
from tests.contract.stock import directory, kernel_of, run, running_session, stock_client, supervisor_of

CHANNELS = ("shell", "control", "stdin", "iopub", "hb")
KINDS = [
    "execute_request",
    "complete_request",
    "inspect_request",
    "history_request",
    "is_complete_request",
    "comm_info_request",
    "kernel_info_request",
    "connect_request",
    "comm_open",
    "comm_msg",
    "comm_close",
    "input_reply",
    "interrupt_request",
    "debug_request",
    "usage_request",
    "create_subshell_request",
    "list_subshell_request",
    "apply_request",
    "krt_request",
    "status",
    "stream",
    "execute_reply",
    "input_request",
    "no_such_request",
    "nonsense",
]
OPS = {
    "ping": [],
    "attach": ["accept"],
    "submit": [
        "key",
        "cell_id",
        "accept",
        "expect_incarnation",
        "allow_stdin",
        "stop_on_error",
        "store_history",
        "silent",
    ],
    "changes": ["after", "timeout"],
    "status": ["limit", "how"],
    "state": [],
    "answer": ["text", "eof", "execution_id"],
    "interrupt": ["execution_id"],
    "start": ["reason"],
    "accept": [],
    "nonsense": ["nonsense"],
}
STRANGE: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    3,
    1e400,
    -(2**70),
    float("nan"),
    "",
    "x",
    "\0",
    "\ud800",
    "krt-exec-",
    "A" * 5000,
    [],
    {},
    [[[]]],
    {"a": {"b": None}},
)
RAW = (
    b"",
    b"{",
    b"[]",
    b"null",
    b"\xff\xfe",
    b'"x"',
    b"[" * 50_000,
    b'{"a":' * 50_000,
    b'{"a":' * 900 + b"1" + b"}" * 900,
    b"{}" * 3,
    b'{"a": 1e999}',
    b'{"a":"\xff"}',
)


@pytest.fixture
def session() -> Iterator[kr.Session]:
    with running_session() as opened:
        yield opened


def strange(rng: random.Random, depth: int = 0) -> Any:
    if depth < 2 and rng.random() < 0.2:
        return {str(strange_key(rng)): strange(rng, depth + 1) for _ in range(rng.randrange(3))}
    return rng.choice(STRANGE)


def strange_key(rng: random.Random) -> str:
    return rng.choice(
        [
            "code",
            "silent",
            "store_history",
            "user_expressions",
            "allow_stdin",
            "stop_on_error",
            "cell_id",
            "cursor_pos",
            "n",
            "unique",
            "hist_access_type",
            "session",
            "start",
            "stop",
            "pattern",
            "output",
            "raw",
            "value",
            "comm_id",
            "target_name",
            "data",
            "restart",
            "op",
            "principal",
            "source",
            "key",
            "expect_incarnation",
            "accept",
            "after",
            "timeout",
            "limit",
            "text",
            "eof",
            "execution_id",
            "reason",
            "how",
        ]
    )


def header(rng: random.Random, kind: str, number: int) -> bytes:
    document: dict[str, Any] = {
        "msg_id": f"fuzz-{number}",
        "msg_type": kind,
        "session": "fuzz",
        "username": "fuzz",
        "date": "",
        "version": "5.4",
    }
    if rng.random() < 0.3:
        document[rng.choice([*document, "subshell_id"])] = strange(rng)
    return json.dumps(document).encode()


def body(rng: random.Random, number: int) -> list[bytes]:
    """`[header, parent, metadata, content]`, mostly right in form and wrong in content."""
    kind = "krt_request" if rng.random() < 0.3 else rng.choice(KINDS)
    content = {strange_key(rng): strange(rng) for _ in range(rng.randrange(6))}
    if kind == "execute_request" and rng.random() < 0.5:
        content["code"] = "pass"
    if kind == "krt_request":
        content["op"] = rng.choice(list(OPS))
        for key in OPS[content["op"]]:
            if rng.random() < 0.7:
                content[key] = strange(rng)
        if content["op"] == "submit":
            content["source"] = rng.choice(["pass", "pass", strange(rng)])
    frames = [header(rng, kind, number), b"{}", b"{}", json.dumps(content).encode()]
    if kind == "history_request":
        content["hist_access_type"] = rng.choice(["tail", "search", "range", "none"])
        frames[3] = json.dumps(content).encode()
    if rng.random() < 0.2:
        frames[rng.randrange(4)] = rng.choice(RAW)
    if rng.random() < 0.1:
        frames[2] = json.dumps({"cellId": strange(rng)}).encode()
    return frames


@pytest.mark.parametrize("signed", [False, True])
def test_the_supervisor_survives_what_arrives(session, signed):
    before, kernel = supervisor_of(session), kernel_of(session)
    connection = read_connection(Path(session.connection_file()))
    signer = Signer(connection.key.encode())
    # SEED is fixed: a failure comes again
    rng = random.Random(20 + signed)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
    sockets: dict[str, zmq.Socket[bytes]] = {}
    for channel in CHANNELS:
        sockets[channel] = context.socket(zmq.XSUB if channel == "iopub" else zmq.DEALER)
        sockets[channel].linger = 0
        sockets[channel].connect(connection.endpoint(channel))
    for number in range(3000):
        frames = body(rng, number)
        channel = "control" if b"krt_request" in frames[0] else rng.choice(CHANNELS)
        if signed:
            parts = [DELIMITER, signer.sign(frames), *frames]
        else:
            parts = [DELIMITER, rng.choice([b"", b"0" * 64, signer.sign([b"other"])]), *frames]
        shape = rng.random()
        if shape < 0.05:
            parts = parts[: rng.randrange(len(parts))] or [b""]
        elif shape < 0.1:
            parts = [rng.randbytes(rng.randrange(300)) for _ in range(rng.randrange(1, 9))]
        elif shape < 0.15:
            parts = [b"id", b"id2", *parts, b"buffer", b""]
        sockets[channel].send_multipart(parts)
        if number % 100 == 0:
            assert supervisor_of(session) == before, number
    for sock in sockets.values():
        sock.close()
    with stock_client(session) as client:
        while True:  # what the fuzz queued comes first, and may interrupt
            reply = run(client, "6 * 7", timeout=60, stop_on_error=False)
            if reply["content"]["status"] == "ok":
                break
    assert supervisor_of(session) == before
    assert kernel_of(session) == kernel
    checked = verify(directory(session) / "journal.db")
    assert checked.ok, checked.problems
    if not signed:
        assert [row.principal for row in session_rows(session)] == ["human:ada"]


def session_rows(session: kr.Session) -> list[Any]:
    from tests.contract.stock import executions

    return executions(session)
