"""A status that lists some cells says of them what one that lists all says, and reads less for it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kernel_runtime.core.lifecycle import State
from kernel_runtime.journal import Journal, JournalReader
from kernel_runtime.model.entry import Draft
from kernel_runtime.model.execution import Observation
from kernel_runtime.model.facts import (
    ExecutionFinished,
    ExecutionObserved,
    ExecutionQueued,
    ExecutionStarted,
    Fact,
    NamesDrifted,
)
from kernel_runtime.supervisor.aside import encoded
from kernel_runtime.supervisor.report import Reporter

UP = State(session="long", incarnation=2, kernel="up")


def cell(name: str, incarnation: int, outcome: str | None, binds: str = "", reads: str = "") -> list[Draft]:
    """The entries of one execution; without an outcome it still waits."""
    facts: list[Fact] = [ExecutionQueued(execution_id=name, source=name, cell_id=name, msg_id=f"krt-{name}")]
    if outcome is not None:
        facts += [
            ExecutionStarted(execution_id=name),
            ExecutionFinished(execution_id=name, outcome=outcome, execution_count=1),
        ]
    if binds:
        names = {binds: {"how": "bound", "type": "int", "bytes": 28, "digest": f"t:{name}"}}
        facts.append(ExecutionObserved(execution_id=name, names=names, reads=[reads] if reads else []))
    return [Draft(fact, "agent:a", incarnation) for fact in facts]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Cells of every kind: lost, failed, stale, superseded, unknown, live, queued, dropped."""
    drafts = [
        *cell("lost", 1, "ok", "gone"),
        *cell("a1", 2, "ok", "a"),
        *cell("b", 2, "ok", "b", reads="a"),
        *cell("a2", 2, "ok", "a"),
        *cell("c", 2, "ok", "c", reads="a"),
        *cell("d", 2, "ok", "d", reads="c"),
        *cell("failed", 2, "error", "e"),
        *cell("dropped", 2, "aborted"),
        *cell("f", 2, "ok", "f"),
        *cell("g", 2, "ok", "g", reads="f"),
        Draft(NamesDrifted(found="idle", names={"f": {"type": "int", "digest": "t:other"}}), "system", 2),
        *cell("waits", 2, None),
    ]
    journal = Journal.create(tmp_path / "journal.db")
    journal.append(drafts, sync=False)
    journal.close()
    return tmp_path / "journal.db"


def unobserved(path: Path) -> None:
    """One more cell has ended, and nobody has told yet of what it did: so nothing is known to be live."""
    with Journal.open(path) as journal:
        journal.append(cell("unseen", 2, "ok"), sync=False)


class Counting(JournalReader):
    """Counts the cells whose observations are read."""

    read: list[str | None]

    def observations(self, cell_ids: Iterable[str] | None = None) -> dict[str, Observation]:
        wanted = None if cell_ids is None else list(cell_ids)
        self.read += [None] if wanted is None else wanted
        return super().observations(wanted)


def reporter(path: Path) -> tuple[Reporter, Counting]:
    plain = JournalReader.open(path)
    reader = Counting(path, plain.connection)
    reader.read = []
    return Reporter("long", reader, lambda: None), reader


def snapshot_of(reader: JournalReader) -> dict[str, Any]:
    """What a kernel answers whose names are as the journal has them."""
    rows = [row for row in reader.names() if row.incarnation == UP.incarnation]
    return {"names": {row.name: {"type": row.type, "digest": row.digest} for row in rows}}


@pytest.mark.parametrize("observed", [True, False])
@pytest.mark.parametrize("limit", [0, 1, 3, 6, 100])
@pytest.mark.parametrize("state", [UP, replace(UP, kernel="dead"), replace(UP, own=False)])
def test_some_cells_are_judged_as_all_are(path: Path, limit: int, state: State, *, observed: bool) -> None:
    if not observed:
        unobserved(path)
    some, _ = reporter(path)
    everything = some.full(state)
    report = some.full(state, limit)
    assert report.cells == everything.cells[:limit]
    assert (report.counts, report.names) == (everything.counts, everything.names)
    assert report.name_counts == everything.name_counts


def test_every_kind_of_cell_is_there(path: Path) -> None:
    counts = reporter(path)[0].full(UP).counts
    there = {truth for truth, n in counts.items() if n}
    assert there == {"lost", "unknown", "partial", "stale", "not-run", "superseded", "live"}


def test_only_what_is_listed_is_read(path: Path) -> None:
    some, reader = reporter(path)
    report = some.full(UP, 3, snapshot_of(reader))
    assert sorted(reader.read, key=str) == sorted(shown.cell_id for shown in report.cells)
    reader.read.clear()
    some.full(UP)
    assert reader.read == [None]


def test_a_snapshot_that_shows_something_else_is_held_against_every_cell(path: Path) -> None:
    some, reader = reporter(path)
    shown = snapshot_of(reader)
    shown["names"]["c"]["digest"] = "t:changed behind our back"
    everything, report = some.full(UP, None, shown), some.full(UP, 3, shown)
    assert report.counts == everything.counts
    assert report.counts["live"] < some.full(UP).counts["live"]


def test_a_part_of_a_report_is_json_whatever_is_in_it() -> None:
    for value in ({"a": [1, "é"]}, ["\udc80"]):
        assert json.loads(bytes(encoded(value))) == value
