"""What an attach reads, and what an open does, costs the same in a long journal as in a short one.

Counted in instructions of SQLite's virtual machine, not in time: a busy machine does not change them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import apsw
import pytest

from kernel_runtime.journal import Journal, JournalReader
from kernel_runtime.journal.reader import check_end
from kernel_runtime.journal.rows import ProjectionStore
from kernel_runtime.model import facts
from tests.unit.journal.support import append, draft, finished, printed, queued, started, steps_of

SHORT, LONG = 40, 2000


def observed(name: str, n: int) -> facts.ExecutionObserved:
    """It bound a name that twenty executions later is bound again, and read one that nobody changes."""
    row = {"how": "bound", "type": "int", "bytes": 28, "digest": f"d:{n}"}
    return facts.ExecutionObserved(execution_id=name, names={f"n{n % 20}": row}, reads=["numpy"])


def journal_of(path: Path, executions: int) -> Path:
    with Journal.create(path) as journal:
        append(journal, facts.KernelStarting(argv=[], reason="new"), facts.PrincipalAttached())
        drafts = []
        for n in range(executions):
            name = f"x{n:06}"
            drafts += [queued(name, key=f"k{n}"), started(name), printed(name, "out\n", n)]
            drafts.append(finished(name, execution_count=n))
            drafts.append(observed(name, n))
        journal.append([draft(fact) for fact in drafts], sync=False)
        append(journal, queued("last"), started("last"), printed("last", "x", executions + 1))
    return path


@pytest.fixture(scope="module")
def journals(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    directory = tmp_path_factory.mktemp("cost")
    return journal_of(directory / "short.db", SHORT), journal_of(directory / "long.db", LONG)


READS: dict[str, Callable[[JournalReader], object]] = {
    "head": lambda reader: reader.head(),
    "latest rare kind": lambda reader: reader.latest("KernelStarting"),
    "latest absent kind": lambda reader: reader.latest("KernelDied"),
    "latest frequent kind": lambda reader: reader.latest("ExecutionFinished"),
    "seen": lambda reader: reader.seen(),
    "cell counts": lambda reader: reader.cell_counts(),
    "cells by what became of their names": lambda reader: reader.heap_counts(),
    "name counts": lambda reader: reader.name_counts(),
    "a name": lambda reader: reader.name("n7"),
    "the heap": lambda reader: reader.heap(1),
    "observations of some cells": lambda reader: reader.observations(["c-x000007", "c-x000019"]),
    "worst cells when all are fine": lambda reader: reader.worst_cells(20, 1),
    "worst cells when all are lost": lambda reader: reader.worst_cells(20, 2),
    "position": lambda reader: reader.position(1),
    "what is alive": lambda reader: reader.executions(status="running"),
    "an execution": lambda reader: reader.execution("x000007"),
    "an execution by key": lambda reader: reader.by_key("k7"),
    "a source": lambda reader: reader.source("x000007"),
    "an execution's entries": lambda reader: reader.entries(execution_id="x000007"),
    "the tail": lambda reader: reader.entries(last=10),
    "after a cursor": lambda reader: reader.entries(reader.head() - 5),
    "rare kinds": lambda reader: reader.entries(kinds=["KernelStarting", "KernelDied"]),
    "recent history": lambda reader: reader.history(n=5),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
def test_reading(journals: tuple[Path, Path], read: Callable[[JournalReader], object]):
    steps = []
    for path in journals:
        with JournalReader.open(path) as reader:
            assert read(reader) is not None or read is READS["latest absent kind"]
            steps.append(steps_of(reader.connection, partial(read, reader)))
    short, long = steps
    assert 0 < long <= short * 1.2 + 20


def test_opening_for_writing(journals: tuple[Path, Path]):
    steps = []
    for path in journals:
        connection = apsw.Connection(str(path))
        steps.append(steps_of(connection, partial(check_end, connection, path, [])))
        steps[-1] += steps_of(connection, partial(ProjectionStore, connection))
        connection.close()
    short, long = steps
    assert long <= short * 1.2


def test_appending(journals: tuple[Path, Path], tmp_path: Path):
    steps = []
    for n, path in enumerate(journals):
        copy = tmp_path / f"{n}.db"
        copy.write_bytes(path.read_bytes())
        with Journal.open(copy) as journal:
            facts_of_one = (finished("last"), observed("last", 7), queued("new", key="new"), started("new"))
            steps.append(steps_of(journal._connection, partial(append, journal, *facts_of_one)))
    short, long = steps
    assert long <= short * 1.2
