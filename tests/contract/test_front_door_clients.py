"""Several stock clients on one session, slow ones and strangers among them."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.session import Session as WireSession

import kernel_runtime as kr
from kernel_runtime.wire import read_connection
from tests.contract.stock import (
    Message,
    executions,
    is_idle,
    kinds,
    reply_to,
    run,
    running_session,
    stock_client,
    text_of,
    until,
    until_idle,
)
from tests.support import eventually, waits


@pytest.fixture
def session() -> Iterator[kr.Session]:
    with running_session() as opened:
        yield opened


def test_each_client_gets_its_own_replies_and_both_see_all_of_iopub(session):
    with stock_client(session, "ada") as ada, stock_client(session, "ben") as ben:
        first = ada.execute("print('from ada')")
        second = ben.execute("print('from ben')")
        assert reply_to(ada, first)["content"]["status"] == "ok"
        assert reply_to(ben, second)["content"]["status"] == "ok"
        for client in (ada, ben):
            # two clients, two sockets: which cell came first is not said
            said = both_idle(client, first, second)
            assert text_of(said[first]) == "from ada\n"
            assert text_of(said[second]) == "from ben\n"
            with pytest.raises(queue.Empty):
                client.get_shell_msg(timeout=0.2)
    assert sorted(row.principal for row in executions(session)) == ["human:ada", "human:ben"]


def both_idle(client: BlockingKernelClient, *msg_ids: str) -> dict[str, list[Message]]:
    """What iopub says of each request, until all are idle."""
    said: dict[str, list[Message]] = {msg_id: [] for msg_id in msg_ids}
    deadline = time.monotonic() + 20
    while not all(messages and is_idle(messages[-1]) for messages in said.values()):
        message = client.get_iopub_msg(timeout=max(0.01, deadline - time.monotonic()))
        said.get(message["parent_header"].get("msg_id"), []).append(message)
    return said


def test_m42_a_failing_cell_aborts_its_own_clients_queue_and_nobody_elses(session, tmp_path):
    gate = tmp_path / "gate"
    with stock_client(session, "ada") as ada, stock_client(session, "ben") as ben:
        failing = ada.execute(f"print('on', flush=True)\n{waits(gate)}1 / 0")
        until(ben, failing, lambda m: m["msg_type"] == "stream")
        of_ben = ben.execute("print('ben runs')")
        of_ada = ada.execute("print('ada does not')")
        eventually(lambda: len(executions(session)) == 3, what="all are queued")
        gate.touch()
        assert reply_to(ada, failing)["content"]["status"] == "error"
        assert reply_to(ada, of_ada)["content"]["status"] == "aborted"
        assert reply_to(ben, of_ben)["content"]["status"] == "ok"
        assert kinds(until_idle(ada, of_ada)) == ["status:busy", "status:idle"]
        assert text_of(until_idle(ben, of_ben)) == "ben runs\n"
        # and ada goes on
        assert run(ada, "1")["content"]["status"] == "ok"
    outcomes: dict[str, list[str | None]] = {"human:ada": [], "human:ben": []}
    for row in executions(session):
        # two clients, two sockets: whose cell the supervisor read first is not said
        outcomes[row.principal].append(row.outcome)
    assert outcomes == {"human:ada": ["error", "aborted", "ok"], "human:ben": ["ok"]}


def test_stop_on_error_false_keeps_the_queue(session):
    with stock_client(session) as client:
        failing = client.execute("import time\ntime.sleep(0.5)\n1 / 0", stop_on_error=False)
        after = client.execute("print('goes on')")
        assert reply_to(client, failing)["content"]["status"] == "error"
        assert reply_to(client, after)["content"]["status"] == "ok"


def test_input_goes_to_the_client_that_asked_and_a_second_answer_is_not_taken(session):
    with stock_client(session, "ada") as ada, stock_client(session, "ben") as ben:
        msg_id = ada.execute("print('got', input('? '))", allow_stdin=True)
        assert ada.get_stdin_msg(timeout=20)["content"]["prompt"] == "? "
        with pytest.raises(queue.Empty):
            ben.get_stdin_msg(timeout=0.3)
        session.answer("from the SDK")
        ada.input("too late")
        assert text_of(until_idle(ada, msg_id)) == "got from the SDK\n"
        # nor does it answer the next question
        msg_id = ada.execute("print('got', input('again? '))", allow_stdin=True)
        assert ada.get_stdin_msg(timeout=20)["content"]["prompt"] == "again? "
        ada.input("in time")
        assert text_of(until_idle(ada, msg_id)) == "got in time\n"


def _raw(session: kr.Session, channel: str, kind: int, identity: bytes | None = None) -> zmq.Socket[bytes]:
    connection = read_connection(Path(session.connection_file()))
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(kind)
    socket.linger = 0
    if identity is not None:
        socket.identity = identity
    socket.connect(connection.endpoint(channel))
    return socket


def _wire(session: kr.Session, key: bytes | None = None) -> WireSession:
    connection = read_connection(Path(session.connection_file()))
    return WireSession(key=key if key is not None else connection.key.encode(), username="ada")


def test_a_client_that_comes_back_with_its_identity_gets_its_reply(session, tmp_path):
    wire = _wire(session)
    shell = _raw(session, "shell", zmq.DEALER, b"the-same")
    gate = tmp_path / "gate"
    # what is sent before the other side has seen the close goes nowhere, and nobody can see that it has
    request = wire.msg("execute_request", {"code": waits(gate) + "time.sleep(0.5)\n5"})
    wire.send(shell, request)
    eventually(lambda: session.row()["executions"] == 1, what="the request arrived")
    shell.close()
    gate.touch()
    eventually(
        lambda: [row.outcome for row in executions(session)] == ["ok"], what="it ran without its client"
    )
    again = _raw(session, "shell", zmq.DEALER, b"the-same")
    assert again.poll(30_000)
    _, reply = wire.recv(again)
    again.close()
    assert reply is not None
    assert reply["parent_header"]["msg_id"] == request["header"]["msg_id"]
    assert reply["content"]["status"] == "ok"


def test_two_sockets_with_one_identity_the_later_one_has_it(session):
    wire = _wire(session)
    first = _raw(session, "shell", zmq.DEALER, b"twin")
    wire.send(first, "kernel_info_request", {})
    assert first.poll(30_000)
    second = _raw(session, "shell", zmq.DEALER, b"twin")
    wire.send(second, "kernel_info_request", {})
    assert second.poll(30_000)
    first.close()
    second.close()


def test_a_message_signed_with_another_key_is_as_if_it_had_not_come(session):
    shell = _raw(session, "shell", zmq.DEALER, b"stranger")
    control = _raw(session, "control", zmq.DEALER, b"stranger")
    for key in (b"wrong", b""):
        wire = _wire(session, key)
        wire.send(shell, "execute_request", {"code": "intruder = 1"})
        wire.send(control, "shutdown_request", {"restart": False})
        wire.send(control, "krt_request", {"op": "stop", "principal": "system"})
    assert not shell.poll(500)
    assert not control.poll(100)
    shell.close()
    control.close()
    assert session.execute("'intruder' in globals()").text == "False"
    assert [row.principal for row in executions(session)] == ["agent:host"]


_STALLED = """
import sys, time
from jupyter_client.blocking.client import BlockingKernelClient
client = BlockingKernelClient(connection_file=sys.argv[1])
client.load_connection_file()
client.start_channels()
client.wait_for_ready(timeout=30)
print("ready", flush=True)
sys.stdin.readline()
count = 0
while True:
    message = client.get_iopub_msg(timeout=30)
    count += message["msg_type"] == "display_data"
    if message["msg_type"] == "stream" and "the end" in message["content"]["text"]:
        break
print(count, flush=True)
"""


def test_a_stalled_subscriber_hurts_nobody_and_misses_nothing(session):
    stalled = subprocess.Popen(
        [sys.executable, "-c", _STALLED, session.connection_file()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert stalled.stdin is not None
    assert stalled.stdout is not None
    try:
        assert stalled.stdout.readline() == "ready\n"
        os.kill(stalled.pid, signal.SIGSTOP)
        with stock_client(session) as client:
            msg_id = client.execute("for i in range(5000): display(i)\nprint('the end')")
            messages = until(client, msg_id, is_idle, 60)
            assert sum(m["msg_type"] == "display_data" for m in messages) == 5000
            assert run(client, "1")["content"]["status"] == "ok"
        os.kill(stalled.pid, signal.SIGCONT)
        print(file=stalled.stdin, flush=True)
        assert stalled.stdout.readline() == "5000\n"
    finally:
        stalled.kill()
        stalled.wait()
        stalled.stdin.close()
        stalled.stdout.close()
