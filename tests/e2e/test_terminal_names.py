"""A process's name that is used again is the new process's: its socket, log, screen and status."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import kernel_runtime as kr
from kernel_runtime import places, process
from kernel_runtime.client.terminals import TerminalLine
from kernel_runtime.errors import EnvironmentFault
from tests.cases.support import stopped
from tests.support import eventually

# a terminal's leader that ends hangs up on those at the terminal, if they care
LEAVES_ONE = """
trap '' HUP
{{ while ! [ -e {go} ]; do sleep 0.01; done; echo late; }} &
echo first
"""


@pytest.fixture
def session() -> Iterator[kr.Session]:
    with stopped("alice") as session:
        yield session


def socket_of(session: kr.Session, process_id: str) -> Path:
    return places.socket_dir(session.session_id) / "processes" / f"{process_id}.sock"


def files(session: kr.Session) -> Path:
    return session.coroutines.file.directory / "processes"


def holder_of(session: kr.Session, process_id: str) -> process.ProcessId:
    return process.ProcessId(**json.loads((files(session) / f"{process_id}.json").read_bytes())["holder"])


def screen_is_kept(session: kr.Session, process_id: str) -> bool:
    try:
        session.screen(process_id)
    except EnvironmentFault:
        return False
    return True


def test_the_socket_is_gone_before_the_end_is_told(session: kr.Session) -> None:
    """Once an end is told the name may be used again. A holder that removed its socket by its path later (it
    draws and writes the last screen first) would remove the next holder's: nobody could reach that then.
    """
    session.spawn(["sh", "-c", "read x"], name="web")
    assert socket_of(session, "web").exists()
    session.type("web", "\r")
    session.wait_process("web", timeout=30)
    assert not socket_of(session, "web").exists()


def test_an_earlier_holder_that_lives_on_takes_nothing_away(session: kr.Session, tmp_path: Path) -> None:
    """A command that left somebody on its terminal has ended, and its holder lives on, also while the name is
    used again. What that one still says, its last screen and its going are not the new process's.
    """
    go = tmp_path / "go"
    session.spawn(["sh", "-c", LEAVES_ONE.format(go=go)], name="web")
    session.wait_process("web", timeout=30)
    earlier = holder_of(session, "web")
    assert process.is_alive(earlier)
    session.spawn(["sh", "-c", "echo second; read x; exit 7"], name="web")
    eventually(lambda: "second" in session.tail("web").text, what="the second runs")
    go.touch()
    eventually(lambda: not process.is_alive(earlier), what="the first one's holder is gone")
    line = TerminalLine(session.session_id, "web", "alice")
    line.close()
    assert session.tail("web").text == "second\r\n"
    assert not (files(session) / "web.screen").exists()
    session.type("web", "\r")
    assert session.wait_process("web", timeout=30)["exit_status"] == 7
    eventually((files(session) / "web.screen").exists, what="its last screen is kept")
    eventually(lambda: session.screen("web").text == "second", what="the screen is its own")


def test_the_screen_of_an_earlier_process_is_not_shown(session: kr.Session) -> None:
    """What lies there as the last screen may be an earlier process's, written as the name was used again. It
    says whose it is, so that it is not told as another's.
    """
    session.spawn(["sh", "-c", "echo mine; read x"], name="web")
    eventually(lambda: "mine" in session.tail("web").text, what="it runs")
    session.type("web", "\r")
    session.wait_process("web", timeout=30)
    path = files(session) / "web.screen"
    eventually(path.exists, what="its last screen is kept")
    eventually(lambda: session.screen("web").text == "mine", what="its own is shown")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"pid": 1}))
    # as long as the line to its holder is there, that is asked
    eventually(lambda: not screen_is_kept(session, "web"), what="nobody has kept its screen")
