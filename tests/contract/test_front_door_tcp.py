"""A front door on tcp: encrypted, and at the same ports for as long as the session lives."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

import kernel_runtime as kr
from kernel_runtime.client import session_files
from kernel_runtime.errors import SupervisorFault
from kernel_runtime.wire import Connection, read_connection
from tests.contract.stock import (
    kill,
    replace_supervisor,
    reply_to,
    run,
    running_session,
    stock_client,
    supervisor_of,
    text_of,
    until_idle,
)
from tests.support import eventually


@pytest.fixture
def session() -> Iterator[kr.Session]:
    session_files.create("s", transport="tcp")
    with running_session() as opened:
        yield opened


def door(session: kr.Session) -> Connection:
    return read_connection(Path(session.connection_file()))


def test_a_stock_client_works_with_the_keys_of_the_file(session):
    assert door(session).transport == "tcp"
    assert Path(session.connection_file()).stat().st_mode & 0o077 == 0
    with stock_client(session) as client:
        msg_id = client.execute("print('encrypted')")
        assert reply_to(client, msg_id)["content"]["status"] == "ok"
        assert text_of(until_idle(client, msg_id)) == "encrypted\n"
        msg_id = client.execute("input('? ')", allow_stdin=True)
        assert client.get_stdin_msg(timeout=20)["content"]["prompt"] == "? "
        client.input("yes")
        assert reply_to(client, msg_id)["content"]["status"] == "ok"
        assert client.hb_channel.is_alive()


@pytest.mark.parametrize("keys", ["none", "another"])
def test_a_subscriber_without_the_key_gets_nothing(session, keys):
    stranger: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.SUB)
    stranger.linger = 0
    stranger.subscribe(b"")
    if keys == "another":
        stranger.curve_publickey, stranger.curve_secretkey = zmq.curve_keypair()
        stranger.curve_serverkey = zmq.curve_keypair()[0]
    stranger.connect(door(session).endpoint("iopub"))
    try:
        with stock_client(session) as client:
            run(client, "print('secret')")
        assert not stranger.poll(500)
    finally:
        stranger.close()


def test_the_ports_stay_the_same_under_another_supervisor(session):
    before = door(session)
    with stock_client(session) as client:
        run(client, "x = 5")
        for signum in (signal.SIGKILL, signal.SIGTERM):
            replace_supervisor(session, signum)
            assert door(session) == before
            msg_id = client.execute("print(x)")
            assert reply_to(client, msg_id)["content"]["status"] == "ok"
            assert text_of(until_idle(client, msg_id)) == "5\n"


def test_ports_that_somebody_else_took_are_named_and_nothing_is_changed(session):
    before = door(session)
    kernel = session.row()["kernel_pid"]
    kill(supervisor_of(session))
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

        def stolen() -> bool:
            try:
                thief.bind(("127.0.0.1", before.shell_port))
            except OSError:
                return False  # what the killed one had open is still on its way out
            return True

        eventually(stolen, what="the port is taken")
        thief.listen()
        with pytest.raises(SupervisorFault) as raised, kr.attach("s", principal="agent:host"):
            pass
    assert str(before.shell_port) in str(raised.value)
    # the thief has gone: the same kernel, the same door
    assert session.row()["kernel_pid"] == kernel
    assert door(session) == before
