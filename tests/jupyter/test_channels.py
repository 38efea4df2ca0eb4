"""Websockets to a session's kernel: everything a console or a page without shared documents needs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import kernel_runtime as kr
from tests.contract.stock import executions
from tests.jupyter.server import Channels, Server
from tests.support import eventually


@pytest.fixture
def kernel_id(server: Server, session: kr.Session) -> str:
    found = server.kernel_of(session.name)
    eventually(lambda: found in server.kernels(), what="the session is one of the kernels")
    return found


@pytest.fixture(params=["v1", "legacy"])
def channels(server: Server, kernel_id: str, request: pytest.FixtureRequest) -> Iterator[Channels]:
    """Each of the two protocols that pages speak."""
    with server.channels(kernel_id, v1=request.param == "v1") as channels:
        yield channels


def test_cells_are_the_persons_who_is_signed_in(
    session: kr.Session, channels: Channels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KRT_PRINCIPAL", raising=False)
    assert channels.run("print('a')")[1] == "a\n"
    assert channels.run("print('b')", username="agent:planner")[1] == "b\n"
    from kernel_runtime import places

    assert {one.principal for one in executions(session)} == {places.principal()}


def test_stdin(session: kr.Session, channels: Channels) -> None:
    msg_id = channels.execute("print('hello ' + input('who? '))")
    asked = channels.until(lambda m: m["msg_type"] == "input_request")[-1]
    assert asked["content"] == {"prompt": "who? ", "password": False}
    channels.send("stdin", "input_reply", {"value": "ada"}, parent=asked["header"])
    assert channels.line() == "hello ada\n"
    assert channels.reply(msg_id)["content"]["status"] == "ok"


def test_completion_and_inspection(channels: Channels) -> None:
    channels.run("import math")
    msg_id = channels.send("shell", "complete_request", {"code": "math.sq", "cursor_pos": 7})
    matches = channels.reply(msg_id)["content"]["matches"]
    assert any(match.endswith("sqrt") for match in matches)
    msg_id = channels.send(
        "shell", "inspect_request", {"code": "math.sqrt", "cursor_pos": 9, "detail_level": 0}
    )
    assert channels.reply(msg_id)["content"]["found"]


def test_comms(channels: Channels) -> None:
    channels.run(
        "import ipywidgets\nslider = ipywidgets.IntSlider()\nseen = []\n"
        "slider.observe(lambda change: seen.append(change.new), 'value')"
    )
    msg_id = channels.send("shell", "comm_info_request", {"target_name": "jupyter.widget"})
    comms = channels.reply(msg_id)["content"]["comms"]
    _, text = channels.run("print(slider.model_id)")
    assert text.strip() in comms
    update = {"method": "update", "state": {"value": 42}, "buffer_paths": []}
    channels.send("shell", "comm_msg", {"comm_id": text.strip(), "data": update})
    assert channels.run("print(slider.value, seen)")[1] == "42 [42]\n"


def test_a_page_connects_while_a_cell_runs(
    server: Server, session: kr.Session, kernel_id: str, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    running = session.submit(f"open({str(gate)!r}).read(); print('on')")
    eventually(lambda: server.kernels()[kernel_id]["execution_state"] == "busy", what="busy")
    with server.channels(kernel_id) as channels:
        msg_id = channels.send("shell", "kernel_info_request", {})
        assert channels.reply(msg_id)["content"]["status"] == "ok"
        channels.connected()
        gate.write_text("")
        assert channels.line() == "on\n"
    assert running.wait(timeout=30).outcome == "ok"


def test_a_console_on_the_notebooks_kernel(server: Server, session: kr.Session, kernel_id: str) -> None:
    session.execute("shared = 'heap'")
    opening = {"path": "console-1", "name": "Console 1", "type": "console", "kernel": {"id": kernel_id}}
    console = server.post("/api/sessions", opening, 201)
    assert console["kernel"]["id"] == kernel_id
    with server.channels(kernel_id) as channels:
        assert channels.run("print(shared)")[1] == "heap\n"


def test_a_failing_cell_of_one_page_aborts_nothing_of_another(
    server: Server, session: kr.Session, kernel_id: str, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with server.channels(kernel_id) as first, server.channels(kernel_id) as second:
        failing = first.execute(f"open({str(gate)!r}).read(); 1/0")
        first.until(lambda m: m["msg_type"] == "execute_input")
        aborted, goes_on = first.execute("1"), second.execute("2")
        eventually(lambda: len(executions(session)) == 3, what="all are queued")
        gate.write_text("")
        assert first.reply(failing)["content"]["ename"] == "ZeroDivisionError"
        assert first.reply(aborted)["content"]["status"] == "aborted"
        assert second.reply(goes_on)["content"]["status"] == "ok"
