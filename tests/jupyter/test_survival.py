"""The server ends in every way there is, and no session notices."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import kernel_runtime as kr
from tests.contract.stock import executions, kernel_of, kill, supervisor_of
from tests.jupyter.server import Server
from tests.support import eventually


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A cell that opens it for reading waits until somebody writes."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


def _waits(gate: Path) -> str:
    return f"print('begins', flush=True); open({str(gate)!r}).read(); print('ends', flush=True)"


def test_killed_over_a_running_cell_it_comes_back_to_the_same_kernel(
    server: Server, session: kr.Session, gate: Path
) -> None:
    kernel_id = server.kernel_of(session.name)
    eventually(lambda: kernel_id in server.kernels(), what="attached")
    path = f"{session.name}.ipynb"
    row = server.row(path)
    kernel = kernel_of(session)
    with server.channels(kernel_id) as channels:
        channels.execute(_waits(gate))
        channels.until(lambda m: m["msg_type"] == "stream")
        server.kill()
    server.start()
    eventually(lambda: kernel_id in server.kernels(), 30, "attached again")
    assert server.row(path)["id"] == row["id"]
    assert "Traceback" not in server.log.read_text()
    # a page connects while the cell runs, and sees its end
    with server.channels(kernel_id) as channels:
        channels.connected()
        gate.write_text("on")
        assert channels.line() == "ends\n"
    assert kernel_of(session) == kernel
    eventually(lambda: executions(session)[-1].status == "done", what="the cell has ended")
    assert executions(session)[-1].outcome == "ok"


def test_stopped_it_leaves_kernels_alone(server: Server, session: kr.Session) -> None:
    kernel_id = server.kernel_of(session.name)
    eventually(lambda: kernel_id in server.kernels(), what="attached")
    kernel = kernel_of(session)
    session.execute("kept = 1")
    server.stop()
    assert session.execute("kept").text == "1"
    server.start()
    assert kernel_of(session) == kernel
    eventually(lambda: kernel_id in server.kernels(), 30, "attached again")


def test_a_supervisor_killed_under_an_open_page(server: Server, session: kr.Session, gate: Path) -> None:
    kernel_id = server.kernel_of(session.name)
    eventually(lambda: kernel_id in server.kernels(), what="attached")
    kernel, supervisor = kernel_of(session), supervisor_of(session)
    with server.channels(kernel_id) as channels:
        msg_id = channels.execute(_waits(gate))
        channels.until(lambda m: m["msg_type"] == "stream")
        kill(supervisor)
        # nobody asks: the server's own watch brings the next one
        eventually(
            lambda: _supervisor(server, session) not in (None, supervisor.pid), 30, "another supervisor"
        )
        gate.write_text("on")
        assert channels.reply(msg_id)["content"]["status"] == "ok"
    assert kernel_of(session) == kernel


def _supervisor(server: Server, session: kr.Session) -> object:
    rows = server.get("/kernel-runtime/api/sessions")
    return next(row["supervisor_pid"] for row in rows if row["name"] == session.name)


def test_stopped_and_started_again_under_an_open_page(server: Server, session: kr.Session) -> None:
    kernel_id = server.kernel_of(session.name)
    eventually(lambda: kernel_id in server.kernels(), what="attached")
    with server.channels(kernel_id) as channels:
        channels.run("x = 1")
        session.stop()
        eventually(lambda: server.kernels()[kernel_id]["execution_state"] == "dead", what="its model says so")
        ran = server.post(server.api(session.name, "execute"), {"source": "1", "accept": True}, 202)
        status = server.get(server.api(session.name, f"executions/{ran['execution_id']}?wait=30"))
        assert status["outcome"] == "ok"
        assert session.row()["incarnation"] == 2
    with server.channels(kernel_id) as channels:
        assert channels.run("print(2)")[1] == "2\n"
