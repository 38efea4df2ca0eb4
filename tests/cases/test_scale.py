"""Long sessions: what an attach costs does not depend on what ever ran, and what is shown stays short."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import kernel_runtime as kr
from kernel_runtime.client import session_files
from kernel_runtime.core.lifecycle import State
from kernel_runtime.journal import Journal, JournalReader
from kernel_runtime.model.entry import Draft
from kernel_runtime.model.facts import (
    ExecutionFinished,
    ExecutionQueued,
    ExecutionStarted,
    KernelDied,
    KernelStarted,
    KernelStarting,
    SessionCreated,
)
from kernel_runtime.supervisor.recover import recover
from kernel_runtime.supervisor.report import ATTACH_CELLS, Reporter
from tests.cases.support import stopped
from tests.support import krt

CELLS = 10_000


def build(path: Path, cells: int, *, session_id: str = "0" * 8, name: str = "long") -> None:
    """A journal of that many cells, each run once, then a dead kernel."""
    journal = Journal.create(path)
    created = SessionCreated(
        session_id=session_id, name=name, kernel="python3", cwd="/", notebook="", version="0"
    )
    starting = KernelStarting(argv=[], reason="execute")
    up = KernelStarted(
        pid=1, start_time=1, boot_id="b", language="python", implementation="ipython", own=True
    )
    journal.append(
        [Draft(created, "agent:a", 0), Draft(starting, "agent:a", 1), Draft(up, "system", 1)], sync=False
    )
    for first in range(0, cells, 500):
        drafts = []
        for i in range(first, min(first + 500, cells)):
            execution = f"e{i:08d}"
            queued = ExecutionQueued(
                execution_id=execution, source=f"x{i} = {i}", cell_id=f"c{i}", msg_id=f"krt-exec-{execution}"
            )
            outcome = "error" if i % 100 == 7 else "ok"
            done = ExecutionFinished(execution_id=execution, outcome=outcome, execution_count=i + 1)
            started = ExecutionStarted(execution_id=execution)
            drafts += [Draft(fact, "agent:a", 1) for fact in (queued, started)] + [Draft(done, "system", 1)]
        journal.append(drafts, sync=False)
    journal.append([Draft(KernelDied(pid=1, signal=9), "system", 1)], sync=True)
    journal.close()


def steps_of_attach(path: Path) -> int:
    """Steps of SQLite's virtual machine for what a supervisor reads to start and to answer an attach."""
    count = 0

    def step() -> bool:
        nonlocal count
        count += 1
        return False

    with JournalReader.open(path) as reader:
        reader.connection.set_progress_handler(step, 1)
        state = recover(reader, "long", time.monotonic_ns())
        reporter = Reporter("long", reader, lambda: None)
        report = reporter.brief(state)
        reader.connection.set_progress_handler(None)
        assert len(report.cells) <= ATTACH_CELLS
        assert report.counts["lost"] == len(reader.cells())
        assert isinstance(state, State)
    return count


def test_attach_reads_as_much_of_a_long_journal_as_of_a_short_one(tmp_path: Path) -> None:
    """Counted in steps of SQLite, not in time: 10,000 cells cost what 1,000 do."""
    build(tmp_path / "short.db", CELLS // 10)
    build(tmp_path / "long.db", CELLS)
    short, long = steps_of_attach(tmp_path / "short.db"), steps_of_attach(tmp_path / "long.db")
    assert long <= short * 1.05, (short, long)


@pytest.mark.slow
def test_ten_thousand_cells() -> None:
    """A session of 10,000 cells whose kernel is lost: the table and the brief are short and say how many
    more there are, and cells run while the notebook is being written.
    """
    file = session_files.create("long")
    file.directory.mkdir(exist_ok=True)
    build(file.journal, CELLS, session_id=file.session_id, name=file.name)
    with stopped("long", principal="agent:new") as session:
        with kr.attach("long") as known:
            assert known.heap_lost
            assert len(known.truth.cells) == ATTACH_CELLS
            assert known.truth.counts["lost"] == CELLS
            brief = known.brief()
        assert len(brief) < 6000
        table = krt("status", "long")
        assert table.returncode == 0
        assert len(table.stdout.splitlines()) < 35
        assert "10,000" in table.stdout
        full = session.status()
        assert len(full.cells) == CELLS
        assert session.execute("1 + 1", timeout=60).text == "2"
