"""Interrupting: I18 I20 I22 I24."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

import kernel_runtime as kr
from kernel_runtime import process
from kernel_runtime.client.status import Status
from kernel_runtime.errors import NotBlocked
from tests.cases.support import blocked, entries, kernel_pid, running, status_when
from tests.support import eventually, waits


def test_i18_interrupt_of_an_await(shared: kr.Session) -> None:
    """A stock kernel leaves `await asyncio.sleep(30)` alone until a message comes on shell. Here the
    interrupt wakes the loop: interrupted within a second, and the next cell runs.
    """
    x = shared.submit("import asyncio; await asyncio.sleep(30)")
    eventually(lambda: running(shared, x), what="running")
    told = shared.interrupt()
    assert told.ended
    # on a busy machine the second rung may be reached, and on no machine the offer to kill
    assert told.offer is None
    assert x.wait(timeout=30).outcome == "interrupted"
    assert shared.execute("1 + 1").text == "2"


def test_i20_interrupt_of_os_system(shared: kr.Session) -> None:
    """SIGINT ends the child, `os.system` returns, and the kernel replies ok. What was interrupted is
    called interrupted all the same, and the child is gone.
    """
    x = shared.submit("import os; os.system('sleep 61')")
    status = status_when(shared, lambda status: bool(sleeps(status)), what="the child")
    (pid,) = sleeps(status)
    child = process.identify(pid)
    assert child is not None
    told = shared.interrupt()
    assert (told.ended, x.wait(timeout=30).outcome) == (True, "interrupted")
    eventually(lambda: not process.is_alive(child), what="the child gone")
    assert shared.execute("1 + 1").text == "2"


def sleeps(status: Status) -> list[int]:
    """The `sleep` processes of a session."""
    return [r["pid"] for r in status.resources if r.get("command", [])[:1] == ["sleep"]]


def interrupt_repeatedly(session: kr.Session, times: int) -> None:
    session.execute("import time")
    chance = random.Random(22)
    outcomes = []
    for _ in range(times):
        x = session.submit("time.sleep(.05)", stop_on_error=False)
        alarm = threading.Timer(chance.uniform(0.04, 0.09), session.interrupt)
        alarm.start()
        outcomes.append(x.wait(timeout=30).outcome)
        alarm.join()
    assert set(outcomes) <= {"ok", "interrupted"}
    assert session.execute("'still here'").text == "'still here'"
    finished = entries(session, "ExecutionFinished")
    assert len({e.execution_id for e in finished}) == len(finished)


def test_i22_interrupts_near_the_end_of_a_cell(shared: kr.Session) -> None:
    """SIGINT that lands near a cell's end can leave a stock kernel idle without a reply. Ours replies
    whatever arrives: a terminal outcome each time, exactly one.
    """
    interrupt_repeatedly(shared, 25)


@pytest.mark.slow
def test_i22_eighty_interrupts(shared: kr.Session) -> None:
    """As above, as often as it took to see it in a stock kernel."""
    interrupt_repeatedly(shared, 80)


def test_i24_interrupt_of_input(shared: kr.Session) -> None:
    """Interrupted while it asks: the prompt is withdrawn for everybody, and an answer finds nobody."""
    x = shared.submit("input('name? ')")
    eventually(lambda: blocked(shared, x), what="blocked")
    assert shared.interrupt().ended
    x.wait(timeout=30)
    assert (x.outcome, x.blocked) == ("interrupted", None)
    assert entries(shared, "InputWithdrawn", execution=x)
    with pytest.raises(NotBlocked):
        shared.answer("too late")
    assert shared.execute("1 + 1").text == "2"


def test_interrupt_of_a_cell_that_holds_its_gil(shared: kr.Session) -> None:
    """A call that keeps the GIL hears no message. The ladder climbs to SIGINT, which ends the call."""
    shared.execute("import ctypes")
    x = shared.submit("print('now'); ctypes.PyDLL(None).sleep(8)")
    eventually(lambda: "now" in x.refresh().text, what="its own code runs")
    # until it sleeps the kernel still hears messages
    channel = Path(f"/proc/{kernel_pid(shared)}/wchan")
    eventually(lambda: "nanosleep" in channel.read_text(), what="the call that keeps the GIL")
    told = shared.interrupt()
    assert (told.reached, told.ended) == ("signal", True)
    assert x.wait(timeout=30).outcome == "interrupted"


def test_interrupt_that_nothing_hears(shared: kr.Session, tmp_path: Path) -> None:
    """A cell that ignores SIGINT is not killed unasked: the ladder ends with an offer, the cell goes on."""
    gate = tmp_path / "gate"
    source = (
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        f"print('deaf')\n{waits(gate)}print('done all the same')"
    )
    x = shared.submit(source)
    eventually(lambda: "deaf" in x.refresh().text, what="its own code runs")
    told = shared.interrupt()
    assert (told.steps, told.ended) == (["message", "signal"], False)
    assert told.offer == f"krt restart {shared.name}"
    gate.touch()
    assert x.wait(timeout=30).text == "deaf\ndone all the same\n"
    assert shared.execute("'on'").text == "'on'"
