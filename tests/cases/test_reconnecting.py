"""Reconnecting and losing: R1 R2 R4 R5 R6 R8 R13."""

from __future__ import annotations

import json
import os
import signal
import threading
import time

import pytest
import zmq

import kernel_runtime as kr
from kernel_runtime import wire
from kernel_runtime.client import connection, session_files
from kernel_runtime.errors import HeapLost
from tests.cases.conftest import Attach
from tests.cases.proxy import proxied
from tests.cases.support import (
    cell_of,
    client_process,
    entries,
    kernel_pid,
    printed,
    running,
    stopped,
    streamed,
    text_in,
)
from tests.support import eventually

LINES = 60
SLOW_PRINT = f"import time\nfor i in range({LINES}):\n    print('line', i)\n    time.sleep(0.05)"
ALL = [f"line {i}" for i in range(LINES)]

READER = """
import json, kernel_runtime as kr
with kr.attach({name!r}) as s:
    x = s.submit({source!r}, key="printing")
    for entry in s.follow(after=x.cursor, until=x.execution_id, only=True):
        text = ""
        for message in getattr(entry.fact, "messages", ()):
            text += json.loads(bytes(message))["content"].get("text", "")
        print(json.dumps([entry.seq, text]), flush=True)
"""


def test_r1_client_killed_while_the_cell_prints(shared: kr.Session, attach: Attach) -> None:
    """A client is killed while its cell prints. Output is read from the journal by cursor, so one that
    comes later and goes on after the last seq seen has each line exactly once, one without a cursor has
    all of them, and so has the notebook.
    """
    seen, cursor = "", 0
    with client_process(READER.format(name=shared.name, source=SLOW_PRINT)) as child:
        assert child.stdout is not None
        while "line 9\n" not in seen:
            cursor, text = json.loads(child.stdout.readline())
            seen += text
        child.send_signal(signal.SIGKILL)
        child.wait()
    x = shared.execution(key="printing")
    eventually(lambda: printed(shared, x, "line 20"), what="it prints on without its client")

    by_cursor = attach(shared.name)
    rest = streamed(by_cursor.follow(after=cursor, until=x.execution_id, timeout=20))
    assert (seen + rest).splitlines() == ALL

    without = attach(shared.name)
    assert without.wait(key="printing").text.splitlines() == ALL
    assert streamed(without.follow(until=x.execution_id, timeout=20), "stdout").count("line 0\n") == 1
    assert text_in(cell_of(shared.name, x)).splitlines() == ALL


def test_r2_black_holed_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of a TCP connection arrives any more, and no FIN tells of it. Nothing is dropped at the
    front door meanwhile: when the network is back, a follower of ours and a subscriber to iopub each
    have every line; a client that comes by another way need not wait for that.
    """
    session_files.create("tcp", transport="tcp")
    with stopped("tcp") as near:
        near.execute("0")
        front = connection.read_front_door(session_files.load("tcp"))
        assert front is not None
        assert front.transport == "tcp"
        with proxied(front) as proxy:
            monkeypatch.setattr(connection, "read_front_door", lambda _: proxy.connection)
            subscriber = subscribe(proxy.connection)
            with kr.attach("tcp") as far:
                # the proxied client submits, follows, and then hears nothing for two seconds
                x = far.submit(SLOW_PRINT)
                follower = far.follow(after=x.cursor, until=x.execution_id)
                heard = [next(follower)]
                proxy.black_hole()
                eventually(lambda: printed(near, near.execution(x.execution_id), "line 40"), timeout=20)
                assert near.execute("1 + 1").text == "2"
                proxy.go_on()
                heard += list(follower)
                assert streamed(heard).splitlines() == ALL
            got = published(subscriber, wire.Signer(front.key.encode()), until="line 59")
            assert got.splitlines() == ALL


def subscribe(door: wire.Connection) -> zmq.Socket[bytes]:
    """A raw subscriber to a front door's iopub."""
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.SUB)
    socket.linger = 0
    socket.rcvhwm = 0
    if door.curve_publickey is not None:
        socket.curve_publickey, socket.curve_secretkey = zmq.curve_keypair()
        socket.curve_serverkey = door.curve_publickey.encode()
    socket.subscribe(b"")
    socket.connect(door.endpoint("iopub"))
    assert socket.poll(30_000), "no iopub_welcome"
    return socket


def published(socket: zmq.Socket[bytes], signer: wire.Signer, *, until: str, timeout: float = 20.0) -> str:
    """stdout text that arrives at a subscriber, up to `until`; closes it."""
    text = ""
    deadline = time.monotonic() + timeout
    while until not in text:
        assert socket.poll(max(0, int((deadline - time.monotonic()) * 1000))), f"nothing after {text[-80:]!r}"
        message = signer.split(socket.recv_multipart())
        if message.header.msg_type == "stream" and message.content_dict()["name"] == "stdout":
            text += message.content_dict()["text"]
    socket.close()
    return text


def test_r4_second_client_sees_what_runs(shared: kr.Session, attach: Attach) -> None:
    """The kernel is busy. Attaching asks the supervisor and reads the journal, neither of which waits for
    the kernel: before it is done the second client sees source, start and principal.
    """
    x = shared.submit("import time; time.sleep(600)")
    eventually(lambda: running(shared, x), what="running")
    other = attach(shared.name, principal="human:b")
    row = other.running()
    assert other.attached["state"] == "busy"
    assert row is not None
    seen = other.execution(row.execution_id)
    assert (seen.execution_id, seen.principal, seen.status) == (x.execution_id, "agent:a", "running")
    document = seen.json()
    assert document["source"] == "import time; time.sleep(600)"
    assert document["started_at"] is not None
    why = other.truth.why
    assert (why["execution_id"], why["principal"]) == (x.execution_id, "agent:a")
    assert why["source"] == document["source"]
    assert why["started_at"] == document["started_at"]
    assert other.interrupt().ended


def test_r5_stalled_follower_beside_a_healthy_one(shared: kr.Session) -> None:
    """20,000 flushed writes, one subscriber that reads nothing meanwhile. Nobody waits for a slow reader
    and nothing is dropped for it: the healthy one has all when the cell ends, the stalled one later.
    """
    door = wire.read_connection(session_files.load(shared.name).front)
    signer = wire.Signer(door.key.encode())
    stalled, healthy = subscribe(door), subscribe(door)
    slow = shared.follow(after=shared.coroutines.journal.head())
    source = "for i in range(20_000):\n    print('w', i, flush=True)\nprint('last')"
    x = shared.execute(source, timeout=60)
    expected = "".join(f"w {i}\n" for i in range(20_000)) + "last\n"
    assert published(healthy, signer, until="last") == expected
    assert x.text == expected
    assert published(stalled, signer, until="last") == expected
    late = []
    for entry in slow:
        late.append(entry)
        if entry.kind == "ExecutionFinished":
            break
    assert streamed(late) == expected


def test_r6_everything_before_the_last_line(shared: kr.Session) -> None:
    """10,000 flushed writes of 100 bytes and one line more: the last line proves nothing, so all count."""
    source = (
        "import sys\nfor i in range(10_000):\n    sys.stdout.write(f'{i:0100d}')\n    sys.stdout.flush()\n"
        "print('hi')"
    )
    text = shared.execute(source, timeout=60).text
    assert text == "".join(f"{i:0100d}" for i in range(10_000)) + "hi\n"


def test_r8_socket_cut_between_two_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is reset between two calls. It is made again with the same identity, and the second
    call works as if nothing had been.
    """
    session_files.create("cut", transport="tcp")
    with stopped("cut"):
        front = connection.read_front_door(session_files.load("cut"))
        assert front is not None
        with proxied(front) as proxy:
            monkeypatch.setattr(connection, "read_front_door", lambda _: proxy.connection)
            with kr.attach("cut") as far:
                assert far.execute("x = 20; x").text == "20"
                assert proxy.cut() >= 1
                assert far.execute("x + 1", timeout=30).text == "21"
                # and cut while a call waits for its reply: it runs once
                threading.Timer(0.3, proxy.cut).start()
                again = far.execute("import time; time.sleep(0.6); x += 1; x", timeout=30)
                assert again.text == "21"
                assert far.execute("x", timeout=30).text == "21"


def test_r13_kernel_killed_between_two_cells(fresh: kr.Session) -> None:
    """The kernel is killed between two cells. The next one is refused with what is lost, and not run into
    a NameError; once that is accepted it runs in the next incarnation.
    """
    fresh.execute("x = 1", cell_id="c1")
    os.kill(kernel_pid(fresh), signal.SIGKILL)
    eventually(lambda: fresh.row()["state"] == "dead", what="dead")
    with pytest.raises(HeapLost) as refused:
        fresh.execute("x")
    report = refused.value.fields["report"]
    assert report["lost"] == 1
    assert [(cell["cell_id"], cell["truth"]) for cell in report["cells"]] == [("c1", "lost")]
    assert report["cells"][0]["evidence"]["source"] == "x = 1"
    assert [e.kind for e in entries(fresh)].count("ExecutionQueued") == 1
    died = entries(fresh, "KernelDied")[-1].fact
    assert getattr(died, "signal", None) == signal.SIGKILL
    ran = fresh.execute("x", accept=True)
    assert ran.outcome == "error"
    assert ran.error is not None
    assert ran.error.ename == "NameError"
    assert ran.incarnation == 2
