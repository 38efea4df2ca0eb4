"""Real processes, killed and stopped at every point of an execution's life.

Each test runs cells with a side effect on disk, breaks something at one named point, lets the next
command come, and holds what is on the disk against the promises (`Rig.check`): no acknowledged entry
lost, `seq` without a gap, one outcome each, nothing ran twice, output complete or an explicit gap,
and after `stop` and `rm` nothing of it left.

Clocks: whatever measures a duration (ladder, patience, start timeouts) uses CLOCK_MONOTONIC, which a
change of the wall clock does not touch; entries carry both, so there is no test that sets the clock.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from kernel_runtime import process
from kernel_runtime.client import spawn
from kernel_runtime.errors import HeapLost, KernelRuntimeError, SupervisorFault
from kernel_runtime.model.facts import KernelDied
from tests.fault.rig import LINES, Rig
from tests.support import eventually, waits

PAUSE = 1.2
"""seconds that a stopped process stays stopped"""

EXECUTION_POINTS = (
    "before-intent",
    "after-intent",
    "after-dispatch",
    "on-output",
    "after-output",
    "before-outcome",
    "after-outcome",
    "before-intent-to-dispatch",
    "after-intent-to-dispatch",
    "in-notebook-rename",
)
START_POINTS = (
    "before-front-json",
    "before-kernel-json",
    "after-kernel-json",
    "before-ready",
    "before-started",
    "after-started",
)
ADOPT_POINTS = ("before-adopt", "during-adopt", "before-adopted", "after-adopted")
KERNEL_POINTS = (
    "kernel-request",
    "kernel-after-input",
    "kernel-mid-print",
    "kernel-before-reply",
    "kernel-after-reply",
    "kernel-after-idle",
)
ENDS = ("kernel-before-reply", "kernel-after-reply", "kernel-after-idle")
CLIENT_POINTS = ("client-before-submit", "client-after-ack")

MID_PRINT = "from kernel_runtime.testing.failpoints import reach; reach('kernel-mid-print')"


def by_default(points: tuple[str, ...], *some: str) -> list[Any]:
    """Those named run in `make test` too, the others in `.ci/run` only."""
    return [p if p in some else pytest.param(p, marks=pytest.mark.slow) for p in points]


def run_two(rig: Rig, principal: str = "agent:a") -> None:
    """Two cells at once, so that one is queued behind the other, as one client would."""
    session = rig.attach(principal)
    behind = rig.root / "second-is-queued"
    wait = f"while not os.path.exists({str(behind)!r}) and time.monotonic() < end: time.sleep(0.01)"
    # an end, for where the second is refused and the kernel lives
    inside = f"{MID_PRINT}; import time; end = time.monotonic() + 15\n{wait}"
    first = rig.submit(session, "first", rig.cell("first", inside=inside))
    second = rig.submit(session, "second", rig.cell("second"))
    behind.touch()
    first.wait(60)
    second.wait(60)


def warm(rig: Rig) -> None:
    """A kernel that is up, and has run something."""
    assert rig.attach("agent:warm").execute("x = 1").outcome == "ok"


# -- the supervisor


@pytest.mark.parametrize(
    "point",
    by_default(
        EXECUTION_POINTS, "after-intent", "after-dispatch", "on-output", "after-output", "before-outcome"
    ),
)
def test_supervisor_killed_in_an_execution(rig: Rig, point: str):
    """The kernel goes on; the next command adopts it; nothing is missing and nothing ran twice."""
    rig.failpoint(point, "kill")
    warm(rig)
    rig.no_more_failpoints()
    kernel = rig.kernel_pid()
    rig.arm()
    work = rig.begin(lambda: run_two(rig))
    rig.hit()
    work.result(60)
    recovered = rig.attach_anew()
    rig.settle(recovered)
    assert rig.kernel_pid() == kernel, "its death changed the kernel"
    assert recovered.incarnation == 1
    rig.check("first", "second")
    assert (rig.outcome("first"), rig.outcome("second")) == ("ok", "ok")


@pytest.mark.parametrize("point", by_default(START_POINTS, "before-kernel-json", "before-started"))
def test_supervisor_killed_while_it_starts(rig: Rig, point: str):
    """Whatever it had begun is ended by the next one or adopted, never doubled."""
    rig.failpoint(point, "kill")
    rig.arm()
    work = rig.begin(lambda: rig.submit(rig.attach("agent:warm"), "early", rig.cell("early")))
    rig.hit()
    rig.no_more_failpoints()
    failure = work.exception(60)
    assert failure is None or isinstance(failure, KernelRuntimeError)
    recovered = rig.attach_anew()
    rig.settle(recovered)
    rig.check("early")
    # what was acknowledged runs: it had not begun, and no heap is lost
    assert rig.outcome("early") == ("ok" if rig.acknowledged else "")
    assert recovered.attach().incarnation == len(rig.acknowledged)
    run_two(rig, "agent:new")
    rig.check("first", "second")
    assert rig.outcome("second") == "ok"
    session_id = rig.file.session_id
    marked = {who.pid for who, _ in process.marked_processes("KRT_SESSION_ID", session_id)}
    assert marked == rig.kernel_and_parent(), (
        "one kernel with its parent, and no other process of the session"
    )


@pytest.mark.parametrize("point", by_default(ADOPT_POINTS, "during-adopt"))
def test_supervisor_killed_while_it_adopts(rig: Rig, point: str):
    """Adoption can itself be cut short: the one after that adopts, in the middle of a cell."""
    session = rig.attach()
    go = rig.root / "go"
    rig.submit(session, "first", rig.cell("first", inside=waits(go)))
    eventually(lambda: rig.ran("first"), what="it runs")
    kernel = rig.kernel_pid()
    rig.failpoint(point, "kill")
    rig.arm()
    rig.kill(rig.supervisor_pid())
    work = rig.begin(rig.attach_anew)
    rig.hit()
    rig.no_more_failpoints()
    work.result(60)
    go.touch()
    rig.settle(rig.attach_anew())
    assert rig.kernel_pid() == kernel
    rig.check("first")
    assert rig.outcome("first") == "ok"


@pytest.mark.parametrize("point", by_default(EXECUTION_POINTS, "on-output"))
def test_supervisor_stopped_in_an_execution(rig: Rig, point: str):
    """It goes on as if nothing had been; nobody takes its place meanwhile."""
    rig.failpoint(point, "stop")
    warm(rig)
    rig.no_more_failpoints()
    supervisor = rig.supervisor_pid()
    rig.arm()
    work = rig.begin(lambda: run_two(rig))
    rig.let_go_on(rig.hit(), PAUSE)
    work.result(60)
    rig.settle(rig.attach_anew())
    assert rig.supervisor_pid() == supervisor
    rig.check("first", "second")
    assert (rig.outcome("first"), rig.outcome("second")) == ("ok", "ok")


@pytest.mark.parametrize("point", by_default(EXECUTION_POINTS, "on-output"))
def test_kernel_killed_while_the_supervisor_is_stopped(rig: Rig, point: str):
    """What it said before is in the outbox and is told before its death is."""
    rig.failpoint(point, "stop")
    warm(rig)
    rig.no_more_failpoints()
    kernel = rig.kernel_pid()
    rig.arm()
    work = rig.begin(lambda: run_two(rig))
    stopped = rig.hit()
    rig.kill(kernel)
    rig.let_go_on(stopped, 0.2)
    work.exception(60)  # it may be told that the heap is lost
    rig.settle(rig.attach_anew())
    rig.check("first", "second")
    (died,) = [e.fact for e in rig.entries() if e.kind == "KernelDied"]
    assert isinstance(died, KernelDied)
    assert died.signal == signal.SIGKILL, "its parent knows how"


@pytest.mark.parametrize("point", by_default(EXECUTION_POINTS, "after-output"))
def test_both_killed_at_once(rig: Rig, point: str):
    """The kernel's own parent outlives both and knows how it ended; what the kernel said is kept."""
    rig.failpoint(point, "stop")
    warm(rig)
    rig.no_more_failpoints()
    kernel = rig.kernel_pid()
    rig.arm()
    work = rig.begin(lambda: run_two(rig))
    stopped = rig.hit()
    assert stopped is not None
    rig.kill(kernel)
    rig.kill(stopped.pid)
    work.exception(60)
    rig.settle(rig.attach_anew())
    rig.check("first", "second")
    (died,) = [e.fact for e in rig.entries() if e.kind == "KernelDied"]
    assert isinstance(died, KernelDied)
    assert died.signal == signal.SIGKILL
    assert "not known" not in str(died.evidence)


@pytest.mark.parametrize("point", ["before-death", "after-death"])
def test_supervisor_killed_over_the_kernels_death(rig: Rig, point: str):
    """One death is recorded, by the one that saw it or by the next, and what the kernel left is gone."""
    rig.failpoint(point, "kill")
    warm(rig)
    rig.no_more_failpoints()
    rig.arm()
    session = rig.attach()
    last = rig.submit(session, "last", "import os; print('last words'); os.kill(os.getpid(), 9)")
    rig.hit()
    last.wait(30)
    rig.settle(rig.attach_anew())
    rig.check()
    assert (last.outcome, last.text) == ("died", "last words\n")
    (died,) = [e.fact for e in rig.entries() if e.kind == "KernelDied"]
    assert isinstance(died, KernelDied)
    assert died.signal == signal.SIGKILL
    left = {path.name for path in rig.file.directory.iterdir()}
    assert "kernel.json" not in left
    assert "outbox-1" not in left


def test_supervisor_killed_in_the_middle_of_a_restart(rig: Rig):
    """The old kernel's end and the intent to start the next are one transaction; the next one is started."""
    rig.failpoint("after-death", "kill")
    warm(rig)
    rig.no_more_failpoints()
    rig.arm()
    session = rig.attach()
    with pytest.raises(SupervisorFault, match="died over `restart`"):
        session.restart()
    other = rig.attach_anew("agent:a")
    rig.settle(other)
    kinds = [e.kind for e in rig.entries()]
    assert kinds.count("KernelStopped") == 1
    assert kinds.count("KernelStartFailed") == kinds.count("KernelDied") == 0
    assert other.execute("1 + 1").text == "2"
    assert other.incarnation == 2
    rig.check()


# -- the kernel


@pytest.mark.parametrize(
    "point", by_default(KERNEL_POINTS, "kernel-mid-print", "kernel-before-reply", "kernel-after-reply")
)
def test_kernel_killed(rig: Rig, point: str):
    """Seen, with its signal; what it printed is kept; the outcome is what was observed."""
    rig.failpoint(point, "kill")
    warm(rig)
    rig.no_more_failpoints()
    session = rig.attach()
    inside = MID_PRINT
    if point in ENDS:
        # armed by the cell itself: the end of what ran before may still be on its way
        inside = f"open({str(rig.points / 'arm')!r}, 'w').close()"
    else:
        rig.arm()
    first = rig.submit(session, "first", rig.cell("first", inside=inside))
    rig.hit()
    first.wait(30)
    eventually(lambda: session.row()["state"] == "dead", what="its death is seen")
    rig.check("first")
    replied = point in ("kernel-after-reply", "kernel-after-idle")
    assert first.outcome == ("ok" if replied else "died")
    died = [e.fact for e in rig.entries() if e.kind == "KernelDied"]
    assert [d.signal for d in died if isinstance(d, KernelDied)] == [signal.SIGKILL]
    if point == "kernel-mid-print":
        assert first.text.splitlines()[-1] == f"first {LINES // 2}", "to the very last line"
    with pytest.raises(HeapLost):
        session.submit("x", key="unaware")
    assert rig.outcome("unaware") == ""
    session.accept()
    assert session.execute("2 + 2").text == "4"
    assert session.incarnation == 2


@pytest.mark.parametrize("point", by_default(KERNEL_POINTS, "kernel-before-reply"))
def test_kernel_stopped(rig: Rig, point: str):
    """A stopped kernel is not a dead one: it goes on where it was."""
    rig.failpoint(point, "stop")
    warm(rig)
    rig.no_more_failpoints()
    kernel = rig.kernel_pid()
    rig.arm()
    work = rig.begin(lambda: run_two(rig))
    rig.let_go_on(rig.hit(), PAUSE)
    work.result(60)
    rig.settle(rig.attach_anew())
    assert rig.kernel_pid() == kernel
    rig.check("first", "second")
    assert (rig.outcome("first"), rig.outcome("second")) == ("ok", "ok")


@pytest.mark.parametrize("point", by_default(KERNEL_POINTS, "kernel-mid-print"))
def test_supervisor_killed_while_the_kernel_is_stopped(rig: Rig, point: str):
    """The next supervisor adopts a kernel that cannot answer, and waits for it."""
    rig.failpoint(point, "stop")
    warm(rig)
    rig.no_more_failpoints()
    kernel = rig.kernel_pid()
    rig.arm()
    work = rig.begin(lambda: run_two(rig))
    stopped = rig.hit()
    rig.kill(rig.supervisor_pid())
    recovered = rig.attach_anew()
    assert recovered.incarnation == 1
    rig.let_go_on(stopped, 0.2)
    work.result(60)
    rig.settle(recovered)
    assert rig.kernel_pid() == kernel
    rig.check("first", "second")
    assert (rig.outcome("first"), rig.outcome("second")) == ("ok", "ok")


# -- the client

CLIENT = """
import sys, kernel_runtime as kr
with kr.attach("m", principal="agent:client") as s:
    x = s.submit(sys.stdin.read(), key="first")
    print(x.execution_id, x.cursor, flush=True)
    x.wait(60)
    print(x.outcome, flush=True)
"""


def client(rig: Rig) -> subprocess.Popen[str]:
    process_ = subprocess.Popen(
        [sys.executable, "-c", CLIENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process_.stdin is not None
    process_.stdin.write(rig.cell("first"))
    process_.stdin.close()
    process_.stdin = None  # so that `communicate` leaves it alone
    return process_


@pytest.mark.parametrize("point", CLIENT_POINTS)
def test_client_killed(rig: Rig, point: str):
    """Its cell runs once or not at all, and the same key from somebody else runs it once altogether."""
    warm(rig)
    rig.failpoint(point, "kill")
    rig.arm()
    victim = client(rig)
    rig.no_more_failpoints()
    assert victim.wait(30) == -signal.SIGKILL
    assert victim.stdout is not None
    victim.stdout.close()
    session = rig.attach()
    again = rig.submit(session, "first", rig.cell("first"))
    assert again.recorded == (point == "client-after-ack")
    assert again.wait(30).outcome == "ok"
    rig.check("first")
    assert rig.ran("first") == 1


@pytest.mark.parametrize("point", by_default(CLIENT_POINTS))
def test_client_stopped(rig: Rig, point: str):
    """It goes on and sees its outcome; the session noticed nothing."""
    warm(rig)
    rig.failpoint(point, "stop")
    rig.arm()
    stopped = client(rig)
    rig.no_more_failpoints()
    rig.let_go_on(rig.hit(), PAUSE)
    out, _ = stopped.communicate(timeout=30)
    assert out.split()[-1] == "ok"
    rig.check("first")


@pytest.mark.slow
def test_client_and_supervisor_killed_at_once(rig: Rig):
    """Acknowledged is acknowledged: the cell goes on with nobody there."""
    warm(rig)
    supervisor = rig.supervisor_pid()
    rig.failpoint("client-after-ack", "stop")
    rig.arm()
    victim = client(rig)
    rig.no_more_failpoints()
    stopped = rig.hit()
    assert stopped is not None
    rig.kill(supervisor)
    victim.kill()
    victim.communicate()
    session = rig.attach_anew()
    again = session.submit(rig.cell("first"), key="first")
    assert again.recorded
    assert again.wait(30).outcome == "ok"
    rig.check("first")


# -- what stands in the way of the record


@pytest.mark.parametrize("action", by_default(("enospc", "eio"), "enospc"))
def test_a_kernel_whose_record_cannot_be_written_is_not_left_behind(rig: Rig, action: str):
    """The start fails once, is tried again, and only one kernel is there in the end."""
    rig.failpoint("before-kernel-json", action)
    rig.arm()
    session = rig.attach()
    rig.no_more_failpoints()
    assert rig.submit(session, "first", rig.cell("first")).wait(30).outcome == "ok"
    rig.check("first")
    assert [e.kind for e in rig.entries()].count("KernelStartFailed") == 1
    marked = process.marked_processes("KRT_SESSION_ID", rig.file.session_id)
    assert {who.pid for who, _ in marked} == rig.kernel_and_parent()


@pytest.mark.slow
def test_a_kernel_that_is_up_and_cannot_be_written_down(rig: Rig):
    """It is asked again until it can; the cell waits, and runs once."""
    rig.failpoint("before-ready", "enospc")
    rig.arm()
    session = rig.attach()
    rig.no_more_failpoints()
    assert rig.submit(session, "first", rig.cell("first")).wait(30).outcome == "ok"
    rig.check("first")
    assert [e.kind for e in rig.entries()].count("KernelStartFailed") == 0


@pytest.mark.parametrize("action", by_default(("enospc", "eio"), "enospc"))
def test_a_notebook_that_cannot_be_written_costs_no_outcome(rig: Rig, action: str):
    """The journal has it; the next write brings the file up to date."""
    rig.failpoint("in-notebook-rename", action)
    warm(rig)
    rig.no_more_failpoints()
    rig.arm()
    session = rig.attach()
    assert rig.submit(session, "first", rig.cell("first")).wait(30).outcome == "ok"
    rig.hit()
    assert rig.submit(session, "second", rig.cell("second")).wait(30).outcome == "ok"
    notebook = Path(rig.file.notebook)
    eventually(lambda: notebook.exists() and "second 199" in notebook.read_text(), what="the notebook")
    # what was replaced is there under another name for a moment after
    eventually(
        lambda: not [name for name in os.listdir(notebook.parent) if ".krt-" in name],
        what="no half a notebook is left behind",
    )
    rig.check("first", "second")


# -- two of them


def test_two_supervisors_by_hand(rig: Rig):
    """The second one is told that there is one, changes nothing, and the first goes on."""
    warm(rig)
    supervisor, kernel = rig.supervisor_pid(), rig.kernel_pid()
    before = len(rig.entries())
    second = subprocess.run(
        [sys.executable, "-m", "kernel_runtime.supervisor", str(rig.file.directory), "--ready-fd", "1"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert second.returncode == 4
    assert "has a supervisor already" in second.stdout
    assert (rig.supervisor_pid(), rig.kernel_pid()) == (supervisor, kernel)
    # what the probe saw of the first execution may come a moment after it
    assert {entry.kind for entry in rig.entries()[before:]} <= {"ExecutionObserved", "EnvironmentRecorded"}
    run_two(rig)
    rig.check("first", "second")


def test_two_supervisors_at_the_same_instant(rig: Rig):
    """Of any number, one takes the session; the others say so."""
    warm(rig)
    kernel = rig.kernel_pid()
    rig.kill(rig.supervisor_pid())
    command = [sys.executable, "-m", "kernel_runtime.supervisor", str(rig.file.directory)]
    three = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(3)]

    def losers() -> list[int]:
        return [p.returncode for p in three if p.poll() is not None]

    eventually(lambda: len(losers()) == 2, timeout=30, what="two of three give way")
    assert losers() == [4, 4]
    run_two(rig)
    rig.check("first", "second")
    assert rig.kernel_pid() == kernel
    rig.attach().stop()
    for each in three:
        each.wait(10)


def test_a_stop_that_overtakes_a_start(rig: Rig):
    """Asked for in one breath: the kernel that was about to start does not."""
    session = rig.attach()

    async def both() -> None:
        import asyncio

        line = session.coroutines._line
        started = asyncio.ensure_future(line.request("start", {}))
        stopped = asyncio.ensure_future(line.request("stop", {}))
        await asyncio.wait([started, stopped], timeout=30)
        assert stopped.done()
        assert stopped.result()["stopped"] is True
        assert started.done()
        started.exception()

    session.run(both())
    assert spawn.wait_until_gone(rig.file, 10)
    session_id = rig.file.session_id
    eventually(
        lambda: not process.marked_processes("KRT_SESSION_ID", session_id), what="no process of ours is left"
    )


# -- a supervisor that is slow


def _stopped_supervisor(rig: Rig, displays: int, seconds: float) -> None:
    warm(rig)
    session = rig.attach()
    who = process.identify(rig.supervisor_pid())
    assert who is not None
    source = (
        "from IPython.display import display\n"
        f"with open({str(rig.side)!r}, 'a') as f: f.write('shown\\n')\n"
        f"for i in range({displays}): display({{'text/plain': str(i)}}, raw=True)\n"
        f"with open({str(rig.side)!r}, 'a') as f: f.write('done\\n')\n"
    )
    shown = rig.submit(session, "shown", source)
    eventually(lambda: rig.ran("shown"), what="it began")
    assert process.signal_process(who, signal.SIGSTOP)
    pause = time.monotonic()
    eventually(lambda: rig.ran("done"), timeout=100, what="the kernel needs nobody to go on")
    threading.Event().wait(max(0.0, seconds - (time.monotonic() - pause)))
    assert process.signal_process(who, signal.SIGCONT)
    shown.wait(60)
    assert shown.outcome == "ok"
    assert not shown.gaps
    assert [int(o["data"]["text/plain"]) for o in shown.outputs] == list(range(displays))


def test_supervisor_stopped_during_many_displays(rig: Rig):
    """All are kept: they wait in the outbox."""
    _stopped_supervisor(rig, 5_000, 5)


@pytest.mark.slow
def test_supervisor_stopped_for_half_a_minute_during_20_000_displays(rig: Rig):
    """FINDINGS' measure: stock Jupyter keeps 8,492 of them, the closest program 4,397."""
    _stopped_supervisor(rig, 20_000, 30)


def test_kernel_killed_right_after_it_printed(rig: Rig):
    """D11: `died`, signal 9, the print kept, long before anybody would have to ask."""
    session = rig.attach()
    session.execute("import os, signal")
    last = rig.submit(session, "last", "print('last words', flush=False); os.kill(os.getpid(), 9)")
    last.wait(10)
    assert (last.outcome, last.evidence["signal"]) == ("died", 9)
    assert last.text == "last words\n"
    rig.check()
