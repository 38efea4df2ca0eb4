"""Death and status: D11 D14 D21 D40 D41, and a kernel that holds its GIL."""

from __future__ import annotations

import os
import signal
import time

import pytest

import kernel_runtime as kr
from kernel_runtime import process
from kernel_runtime.errors import HeapLost, StillRunning
from tests.cases.conftest import Attach
from tests.cases.support import entries, kernel_pid, printed, running, state, status_when, stopped
from tests.support import eventually


def test_d11_kernel_kills_itself_after_a_print(fresh: kr.Session) -> None:
    """SIGKILL right after a print. The text was in memory that outlives the kernel, the status comes from
    wait(2): died, signal 9, the print kept, as soon as the pidfd tells.
    """
    fresh.execute("0")
    x = fresh.execute("print('before'); import os; os.kill(os.getpid(), 9)", timeout=30)
    assert (x.outcome, x.text) == ("died", "before\n")
    assert x.evidence["signal"] == signal.SIGKILL
    died = entries(fresh, "KernelDied")[-1].fact
    assert (getattr(died, "signal", None), getattr(died, "by_user_code", None)) == (signal.SIGKILL, False)
    assert state(fresh) == "dead"


def stop_and_go(session: kr.Session, seconds: float) -> None:
    """Stop the kernel for so long, see it unresponsive, let it go on, see it answer.

    Mechanism of a second `KernelUnresponsive`: an answer that was on its way when the kernel was stopped
    arrives after the stop was seen. Right: it is no sign of life; responsive once, when it goes on.
    """
    session.execute("kept = 41")
    pid = kernel_pid(session)
    x = session.submit("import time\nfor _ in range(20): time.sleep(0.05)\nkept += 1")
    eventually(lambda: running(session, x), what="running")
    os.kill(pid, signal.SIGSTOP)
    stopped_at = time.monotonic()
    try:
        eventually(lambda: state(session) == "unresponsive", what="unresponsive")
        status = session.status()
        assert (status.state, status.why["process"]) == ("unresponsive", "stopped")
        with pytest.raises(StillRunning):
            x.wait(timeout=seconds - (time.monotonic() - stopped_at))
        assert state(session) == "unresponsive"
        assert session.peek(x.execution_id).outcome is None
    finally:
        os.kill(pid, signal.SIGCONT)
    assert x.wait(timeout=30).outcome == "ok"
    eventually(lambda: state(session) == "idle", what="idle again")
    assert session.execute("kept").text == "42"
    assert kernel_pid(session) == pid
    kinds = [e.kind for e in entries(session)]
    assert kinds.count("KernelStarted") == 1
    assert kinds.count("KernelUnresponsive") == kinds.count("KernelResponsive") == 1


def test_d14_kernel_stopped_and_continued(fresh: kr.Session) -> None:
    """SIGSTOP is not death: state `unresponsive` with the process's state as evidence, nothing restarted,
    and after SIGCONT the cell ends and its variables are there.
    """
    stop_and_go(fresh, 4.0)


@pytest.mark.slow
def test_d14_kernel_stopped_for_a_minute(fresh: kr.Session) -> None:
    """As above, for longer than any heartbeat would wait."""
    stop_and_go(fresh, 60.0)


def test_d14_kernel_holds_its_gil(fresh: kr.Session) -> None:
    """A call that keeps the GIL answers nothing, not even control, and is not dead: `unresponsive` with
    the silence as evidence, and the cell's own outcome in the end.
    """
    fresh.execute("import ctypes")
    x = fresh.submit("ctypes.PyDLL(None).sleep(14)")
    # by the row: a status asks the kernel too, and waits for it
    eventually(lambda: state(fresh) == "unresponsive", timeout=30, what="unresponsive")
    status = fresh.status()
    assert (status.state, status.why["control"]) == ("unresponsive", "silent")
    assert status.why["seconds"] >= 5
    assert process.identify(kernel_pid(fresh)) is not None
    assert x.wait(timeout=40).outcome == "ok"
    eventually(lambda: state(fresh) == "idle", what="idle again")
    assert "KernelDied" not in {e.kind for e in entries(fresh)}


@pytest.mark.slow
def test_d21_process_outlives_its_kernel() -> None:
    """A process in a session of its own is missed by group and parent. A mark in its environment names
    the execution that started it, also when its kernel was restarted; stopping the session ends it.
    """
    source = "import subprocess\nsubprocess.Popen(['sleep', '1000'], start_new_session=True).pid"
    with stopped("d21") as session:
        x = session.execute(source)
        child = process.identify(int(x.text))
        assert child is not None
        assert session.restart() == 2
        assert process.is_alive(child)
        found = {r["pid"]: r for r in session.status().resources if r["kind"] == "process"}
        assert found[child.pid]["started_by"] == x.execution_id
        assert found[child.pid]["command"] == ["sleep", "1000"]
        left = session.stop()
        assert left == []
        assert not process.is_alive(child)


def test_d40_user_code_leaves(fresh: kr.Session) -> None:
    """`quit()` replies ok and then the kernel is gone: recorded as the user's own exit, and a cell sent
    at once is not swallowed by the leaving kernel: it is told that it never ran, or refused.
    """
    fresh.execute("x = 1")
    assert fresh.execute("quit()").outcome == "ok"
    try:
        after = fresh.execute("open('ran', 'w')", timeout=30)
        assert after.outcome == "aborted"
    except HeapLost:
        pass  # the kernel was gone already
    eventually(lambda: state(fresh) == "dead", what="gone")
    died = entries(fresh, "KernelDied")[-1].fact
    assert getattr(died, "by_user_code", None) is True
    assert fresh.execute("import os; os.path.exists('ran')", accept=True).text == "False"
    assert fresh.incarnation == 2


def test_d40_sys_exit_is_an_error(shared: kr.Session) -> None:
    """`sys.exit(3)` raises SystemExit, and the kernel lives on."""
    pid = kernel_pid(shared)
    x = shared.execute("import sys; sys.exit(3)")
    assert x.outcome == "error"
    assert x.error is not None
    assert (x.error.ename, x.error.evalue) == ("SystemExit", "3")
    assert shared.execute("'alive'").text == "'alive'"
    assert kernel_pid(shared) == pid


def test_d40_os_exit_is_death(fresh: kr.Session) -> None:
    """`os._exit(0)` announces nothing: died, with exit status 0."""
    x = fresh.execute("print('bye'); import os; os._exit(0)", timeout=30)
    assert (x.outcome, x.text) == ("died", "bye\n")
    assert x.evidence["exit_status"] == 0
    died = entries(fresh, "KernelDied")[-1].fact
    assert (getattr(died, "exit_status", None), getattr(died, "by_user_code", None)) == (0, False)


def test_d41_background_child_of_a_cell_magic(shared: kr.Session, attach: Attach) -> None:
    """`%%bash` with a background child waits until that lets go of the pipe. The cell is running, the
    status says which process it started is there, and whoever ran it may leave.
    """
    with kr.attach(shared.name) as leaving:
        x = leaving.submit("%%bash\necho started\nsleep 3 &")
        eventually(lambda: running(leaving, x), what="running")
        status = status_when(
            leaving, lambda s: ["sleep", "3"] in [r.get("command") for r in s.resources], what="the child"
        )
    assert status.state == "busy"
    assert status.why["execution_id"] == x.execution_id
    commands = [r.get("command") for r in status.resources if r["started_by"] == x.execution_id]
    assert ["sleep", "3"] in commands
    assert [p["command"] for p in status.why["processes"] if p["command"] == ["sleep", "3"]]
    mine = attach(shared.name).wait(x.execution_id, timeout=30)
    assert (mine.outcome, mine.text) == ("ok", "started\n")
    assert printed(shared, shared.execution(x.execution_id), "started")


def test_segfault_is_a_death_by_signal_with_the_trace_as_evidence(fresh: kr.Session) -> None:
    """Mechanism: native code reads address 0; Python's fault handler writes to the kernel's real fd 2.

    Right: `died`, signal 11, what was printed before kept, and the trace in the evidence.
    """
    x = fresh.execute("import ctypes\nprint('before')\nctypes.string_at(0)", timeout=30)
    assert (x.outcome, x.text) == ("died", "before\n")
    assert x.evidence["signal"] == signal.SIGSEGV
    assert "string_at" in x.evidence["stderr"]


def test_a_forked_child_that_falls_out_of_its_cell_is_no_second_kernel(fresh: kr.Session) -> None:
    """Mechanism: `os.fork()` copies the kernel with its sockets; a child that returns from the cell would
    answer requests meant for its parent and wedge it.

    Right: both print into the cell that forked, one outcome, and the next cells run in the one kernel. A
    `print` is two writes, the text and its newline: those of two processes may come in any order.
    """
    x = fresh.execute("import os\npid = os.fork()\nprint('child' if pid == 0 else 'parent')", timeout=30)
    assert x.outcome == "ok"
    eventually(
        lambda: all(word in x.refresh().text for word in ("child", "parent")),
        timeout=20,
        what="both have printed",
    )
    done = fresh.execute("os.waitpid(pid, 0)[1]; os.getpid() != pid", timeout=30)
    assert (done.outcome, done.text) == ("ok", "True")
