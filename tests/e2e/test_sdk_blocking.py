"""The blocking client on a real session: what INTERFACE.md says of Python, line by line."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import kernel_runtime as kr
from kernel_runtime import process
from kernel_runtime.client import session_files, spawn
from kernel_runtime.client.blocking import observe
from kernel_runtime.errors import (
    HeapLost,
    IncarnationMismatch,
    InvalidSource,
    KeyConflict,
    NoSuchExecution,
    NoSuchSession,
    NotBlocked,
    StillRunning,
    UsageError,
)
from tests.support import eventually, waits


@pytest.fixture
def session(krt_home: object) -> Iterator[kr.Session]:
    with kr.attach("alice", create=True, principal="agent:planner") as attached:
        try:
            yield attached
        finally:
            attached.stop()


def kill(pid: int) -> None:
    who = process.identify(pid)
    assert who is not None
    assert process.signal_process(who, signal.SIGKILL)
    eventually(lambda: not process.is_alive(who), what="it is dead")


def supervisor(session: kr.Session) -> int:
    return int(session.row()["supervisor_pid"])


def test_an_execution_tells_what_it_did(session: kr.Session) -> None:
    result = session.execute("print('a'); 6 * 7", key="step-1", timeout=60)
    assert (result.outcome, result.text, result.error) == ("ok", "a\n42", None)
    assert [output["output_type"] for output in result.outputs] == ["stream", "execute_result"]
    assert (result.key, result.principal, result.incarnation) == ("step-1", "agent:planner", 1)
    assert result.json()["session"] == "alice"


def test_what_a_cell_raised_is_data(session: kr.Session) -> None:
    result = session.execute("1 / 0", timeout=60)
    assert result.outcome == "error"
    assert result.error is not None
    assert (result.error.ename, result.error.evalue) == ("ZeroDivisionError", "division by zero")


def test_the_same_key_runs_once(session: kr.Session) -> None:
    source = "n = globals().get('n', 0) + 1; n"
    first = session.execute(source, key="k", timeout=60)
    again = session.execute(source, key="k", timeout=60)
    assert (first.text, again.text, again.recorded) == ("1", "1", True)
    assert again.execution_id == first.execution_id
    with pytest.raises(KeyConflict):
        session.execute("n = 5", key="k")
    assert session.execute("n", timeout=60).text == "1"


def test_submit_returns_at_once_and_wait_comes_back(session: kr.Session) -> None:
    execution = session.submit("import time; time.sleep(0.3); print('done')")
    assert not execution.done
    assert execution.wait(timeout=60).text == "done\n"
    assert session.wait(execution.execution_id).text == "done\n"
    assert session.execution().execution_id == execution.execution_id


def test_m43_a_time_limit_ends_the_waiting_and_nothing_overlaps(session: kr.Session) -> None:
    with pytest.raises(StillRunning) as caught:
        session.execute("import time; time.sleep(1); end = time.time()", timeout=0.2)
    second = session.execute("start = time.time(); start >= end", timeout=60)
    assert second.text == "True"
    assert session.wait(caught.value.fields["execution_id"]).outcome == "ok"


def test_following_from_a_cursor_sees_each_entry_once(session: kr.Session) -> None:
    execution = session.submit("for i in range(50): print(i, flush=True)")
    seen = [entry.seq for entry in session.follow(after=execution.cursor, until=execution.execution_id)]
    assert seen == list(range(execution.cursor + 1, execution.cursor + 1 + len(seen)))
    kinds = [entry.kind for entry in execution.follow()]
    assert (kinds[0], kinds[-1]) == ("ExecutionQueued", "ExecutionFinished")


def test_two_clients_see_one_heap(session: kr.Session) -> None:
    session.execute("x = 5", timeout=60)
    session.status()  # waits longer than an attach for the cell to be looked at
    with kr.attach("alice", principal="human:ann") as other:
        assert other.execute("x", timeout=60).text == "5"
        assert other.truth.all_live


def test_d16_a_supervisor_killed_in_mid_cell_loses_nothing(session: kr.Session) -> None:
    source = "import time\nfor i in range(20): print(i, flush=True); time.sleep(0.05)"
    execution = session.submit(source)
    before = supervisor(session)
    seen: list[int] = []
    for entry in execution.follow(timeout=60):
        if not seen:
            kill(before)
        seen.append(entry.seq)
    assert len(set(seen)) == len(seen)
    assert execution.refresh().outcome == "ok"
    assert execution.text == "".join(f"{i}\n" for i in range(20))
    assert supervisor(session) != before
    assert session.execute("i", timeout=60).text == "19"


def test_r8_the_call_after_a_supervisors_death_says_nothing_of_it(session: kr.Session) -> None:
    session.execute("x = 1", timeout=60)
    kill(supervisor(session))
    assert session.execute("x", timeout=60).text == "1"


def test_r13_a_lost_heap_is_told_before_the_next_cell(session: kr.Session) -> None:
    session.execute("x = 1", timeout=60)
    kill(session.row()["kernel_pid"])
    eventually(lambda: session.row()["state"] == "dead", what="the death is seen")
    with pytest.raises(HeapLost) as caught:
        session.execute("x")
    (cell,) = caught.value.fields["report"]["cells"]
    assert (cell["truth"], cell["evidence"]["source"]) == ("lost", "x = 1")
    assert session.accept() >= 1
    assert session.execute("'x' in globals()", timeout=60).text == "False"


def test_reading_the_status_counts_as_being_told(session: kr.Session) -> None:
    session.execute("x = 1", timeout=60)
    kill(session.row()["kernel_pid"])
    eventually(lambda: session.row()["state"] == "dead", what="the death is seen")
    assert [cell.truth for cell in session.status().cells.values()] == ["lost"]
    assert session.execute("2", timeout=60).text == "2"
    assert session.incarnation == 2
    with pytest.raises(IncarnationMismatch):
        session.execute("3", expect_incarnation=1)


def test_the_brief_puts_what_matters_first_and_keeps_to_its_length(session: kr.Session) -> None:
    session.execute("1 / 0", timeout=60)
    for i in range(10):
        session.execute(f"x{i} = '{'y' * 200}'", timeout=60)
    lines = session.brief().splitlines()
    assert lines[0] == "# alice: incarnation 1, idle; 1 partial, 10 live"
    assert any(line.startswith("- partial: 1 / 0") for line in lines)
    assert len(session.brief(max_tokens=100)) < 600


def test_a_question_blocks_and_any_client_answers(session: kr.Session) -> None:
    result = session.execute("name = input('name? '); name", timeout=60)
    assert (result.status, result.outcome) == ("blocked", None)
    assert result.blocked is not None
    assert (result.blocked["on"], result.blocked["prompt"]) == ("input", "name? ")
    with kr.attach("alice", principal="human:ann") as other:
        assert other.answer("bob") == result.execution_id
        with pytest.raises(NotBlocked):
            other.answer("eve")
    assert result.wait(timeout=60).text.endswith("'bob'")


def test_an_interrupt_tells_how_far_it_went(session: kr.Session) -> None:
    assert session.interrupt().reached == "nothing-running"
    session.execute("1 / 0", timeout=60)  # loads what formats tracebacks: the interrupt is what is timed
    execution = session.submit("import time; time.sleep(60)")
    eventually(lambda: session.peek(execution.execution_id).status == "running", what="it runs")
    result = session.interrupt()
    assert result.ended
    assert result.execution_id == execution.execution_id
    assert execution.wait(timeout=30).outcome == "interrupted"


def test_restart_and_stop(session: kr.Session) -> None:
    session.execute("x = 1", timeout=60)
    assert session.restart() == 2
    assert session.execute("'x' in globals()", timeout=60).text == "False"
    assert session.stop() == []
    assert not spawn.is_running(session_files.load("alice"))
    assert session.stop() == []
    assert [entry.kind for entry in session.follow()][-1] == "SupervisorStopped"


def test_it_works_inside_a_running_loop(session: kr.Session) -> None:
    async def notebook() -> str:
        return session.execute("1 + 1", timeout=60).text

    assert asyncio.run(notebook()) == "2"


def test_ctrl_c_ends_the_waiting_and_not_the_execution(session: kr.Session, tmp_path: Path) -> None:
    go = tmp_path / "go"

    def ctrl_c() -> None:
        with observe("alice") as other:
            eventually(other.running, timeout=30, what="it runs")
        os.kill(os.getpid(), signal.SIGINT)

    presser = threading.Thread(target=ctrl_c)
    presser.start()
    with pytest.raises(KeyboardInterrupt):
        session.execute(f"{waits(go)}'went on'", timeout=60)
    assert session.row()["state"] == "busy"
    presser.join()
    go.touch()
    assert session.wait(timeout=60).text == "'went on'"


def test_what_is_refused_names_the_session(session: kr.Session) -> None:
    with pytest.raises(NoSuchSession):
        kr.attach("nobody")
    with pytest.raises(InvalidSource, match="alice"):
        session.execute("x" * (17 << 20))
    with pytest.raises(NoSuchExecution, match="alice"):
        session.execution("no-such-id")
    with pytest.raises(UsageError):
        session.answer()


def test_a_client_that_detached_says_so(session: kr.Session) -> None:
    with kr.attach("alice") as other:
        pass
    other.detach()
    with pytest.raises(UsageError, match="detached"):
        other.execute("1")
