"""Why a busy cell is busy, told of a real kernel: one cell for each answer there is."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kernel_runtime as kr
from tests.cases.support import kernel_pid, stopped
from tests.support import eventually

pytestmark = pytest.mark.slow

SET_UP = """
import ctypes, os, re, select, socket, subprocess, threading, time, asyncio
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
lock = threading.Lock()
lock.acquire()
"""


@pytest.fixture(scope="module")
def busy(krt_home: object) -> Iterator[kr.Session]:
    with stopped("busy") as session:
        session.execute(SET_UP)
        yield session


Evidence = dict[str, Any]


def names_the_cell(evidence: Evidence) -> bool:
    return "cell" in evidence


def told(
    session: kr.Session, code: str, doing: str, holds: Callable[[Evidence], bool] = lambda _: True
) -> Evidence:
    """The evidence, once it `holds`, for `code` being told as `doing`; the cell is interrupted."""
    execution = session.submit(code)
    seen: list[Any] = []

    def look() -> Evidence:
        why = session.why()["why"]
        activity = why.get("activity") if why.get("execution_id") == execution.execution_id else None
        seen[:] = [activity]
        evidence: Evidence = {"doing": activity["doing"], **activity["evidence"]} if activity else {}
        return evidence if evidence.get("doing") == doing and holds(evidence) else {}

    try:
        return eventually(look, timeout=30, what=f"{doing}: {code}")
    except AssertionError as error:
        raise AssertionError(f"{error}; last: {seen}") from None
    finally:
        session.interrupt()
        execution.wait(30)


def test_computing(busy: kr.Session) -> None:
    evidence = told(busy, "x = 1\nwhile True: pass", "computing", names_the_cell)
    assert (evidence["cell"]["line"], evidence["cell"]["function"]) == (2, "<module>")


def test_waiting_on_a_child(busy: kr.Session) -> None:
    def sleeps(evidence: Evidence) -> bool:
        # a child is forked, then loads its program, and only then does what it is for
        child = evidence.get("child", {})
        return (child.get("command"), child.get("doing")) == (["sleep", "60"], "sleeping")

    evidence = told(
        busy, "subprocess.run(['sleep', '60'])", "waiting on a child", lambda e: sleeps(e) and "cell" in e
    )
    assert evidence["cell"]["line"] == 1


@pytest.mark.parametrize(
    "code",
    [
        "subprocess.run(['sleep', '60'], capture_output=True)",  # poll on its pipes
        "get_ipython().system('sleep 60')",  # select on a terminal's master
        "os.system('sleep 60')",
    ],
)
def test_waiting_on_a_child_in_other_ways(busy: kr.Session, code: str) -> None:
    def sleeps(evidence: Evidence) -> bool:
        return evidence.get("child", {}).get("command", [""])[-1] in ("60", "sleep 60")

    told(busy, code, "waiting on a child", sleeps)


def test_a_child_that_reads_its_terminal(busy: kr.Session) -> None:
    execution = busy.submit("get_ipython().system('read answer')")

    def child() -> Any:
        activity = busy.why()["why"].get("activity", {})
        found = activity.get("evidence", {}).get("child", {})
        return found if found.get("doing") == "reading a terminal" else None

    found = eventually(child, what="a child that reads")
    assert found["terminal"].startswith("/dev/pts/")
    busy.interrupt()
    execution.wait(30)


@pytest.mark.parametrize("code", ["client.recv(10)", "select.select([client], [], [])"])
def test_waiting_on_a_socket(busy: kr.Session, code: str) -> None:
    port = busy.execute("server.getsockname()[1]").text.strip()
    evidence = told(busy, code, "waiting on a socket")
    assert (evidence["protocol"], evidence["peer"]) == ("tcp", f"127.0.0.1:{port}")


def test_waiting_on_a_socket_in_the_event_loop(busy: kr.Session) -> None:
    """Only what the kernel itself does not hold open in its loop is waited for."""
    code = "r, w = await asyncio.open_connection(*server.getsockname()); await r.read(1)"
    assert told(busy, code, "waiting on a socket")["syscall"] == "epoll_wait"
    busy.execute("w.close()")
    assert told(busy, "await asyncio.sleep(60)", "sleeping")["event_loop"]


def test_waiting_on_a_lock(busy: kr.Session) -> None:
    evidence = told(busy, "lock.acquire()", "waiting on a lock")
    assert (evidence["syscall"], evidence["timed"]) == ("futex", False)


def test_waiting_on_a_file(busy: kr.Session) -> None:
    evidence = told(busy, "r, w = os.pipe(); os.read(r, 1)", "waiting on a file")
    assert evidence["other_end"] == "in this process"


def test_sleeping(busy: kr.Session) -> None:
    assert told(busy, "time.sleep(60)", "sleeping", names_the_cell)["cell"]["function"] == "<module>"


def test_asleep_while_holding_the_gil(busy: kr.Session) -> None:
    """Mechanism: ctypes.PyDLL keeps the GIL over the call, so no other thread runs until it returns."""
    evidence = told(busy, "ctypes.PyDLL(None).sleep(15)", "holding the GIL in native code")
    assert evidence["gil"]["by_main"] is True
    assert evidence["control"].startswith("silent")


def test_computing_while_holding_the_gil(busy: kr.Session) -> None:
    """A regular expression that backtracks for hours, in one call of native code."""
    told(busy, "re.match(r'(a+)+$', 'a' * 40 + 'b')", "holding the GIL in native code")


def test_a_stopped_kernel(fresh: kr.Session) -> None:
    fresh.submit("while True: pass")
    eventually(lambda: fresh.row()["state"] == "busy", what="busy")
    pid = kernel_pid(fresh)
    os.kill(pid, signal.SIGSTOP)
    try:
        eventually(
            lambda: fresh.why()["why"].get("activity", {}).get("doing") == "stopped", what="told as stopped"
        )
    finally:
        os.kill(pid, signal.SIGCONT)
    fresh.interrupt()


def test_an_idle_session_has_no_activity(fresh: kr.Session) -> None:
    fresh.execute("1")
    assert fresh.why() == {"state": "idle", "why": {}}
