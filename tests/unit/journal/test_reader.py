"""What a reader gives, and from where: beside the writer, after it, in a directory it cannot write."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kernel_runtime.errors import JournalNewer, NoSuchExecution, NotFound
from kernel_runtime.journal import Journal, JournalReader
from kernel_runtime.model import facts
from kernel_runtime.model.execution import Seen
from tests.unit.journal.support import (
    AGENT,
    FixedClock,
    append,
    draft,
    finished,
    in_own_mounts,
    plain_sqlite,
    printed,
    queued,
    run,
    started,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def journal(path: Path):
    with Journal.create(path, FixedClock()) as journal:
        yield journal


def seqs(reader: JournalReader, *args: object, **kwargs: object) -> list[int]:
    return [entry.seq for entry in reader.entries(*args, **kwargs)]  # type: ignore[arg-type]


def test_entries_after_a_cursor(journal: Journal):
    run(journal, "a")
    run(journal, "b")
    append(journal, facts.PrincipalAttached())
    with journal.reader() as reader:
        assert reader.head() == 9
        assert seqs(reader) == list(range(1, 10))
        assert seqs(reader, 7) == [8, 9]
        assert seqs(reader, 9) == []
        assert seqs(reader, 2, limit=3) == [3, 4, 5]
        assert seqs(reader, last=2) == [8, 9]
        assert seqs(reader, 8, last=5) == [9]
        assert seqs(reader, execution_id="b") == [5, 6, 7, 8]
        assert seqs(reader, 6, execution_id="b") == [7, 8]
        assert seqs(reader, execution_id="b", last=1) == [8]
        assert seqs(reader, execution_id="b", kinds=["OutputRecorded"]) == [7]
        assert seqs(reader, execution_id="nobody") == []
        assert seqs(reader, kinds=["ExecutionFinished", "PrincipalAttached"]) == [4, 8, 9]
        assert seqs(reader, 4, kinds=["ExecutionFinished", "PrincipalAttached"], limit=1) == [8]
        assert seqs(reader, kinds=["ExecutionFinished", "PrincipalAttached"], last=2) == [8, 9]
        assert seqs(reader, kinds=["KernelDied"]) == []
        assert seqs(reader, kinds=[]) == []
        assert seqs(reader, kinds=iter(["PrincipalAttached", "PrincipalAttached"])) == [9]


def test_entries_bounded_by_bytes(journal: Journal):
    append(journal, queued("a"), started("a"), *(printed("a", "x" * 50_000) for _ in range(5)))
    with journal.reader() as reader:
        assert seqs(reader, 2, max_bytes=100_000) == [3, 4]
        assert seqs(reader, 2, max_bytes=1) == [3]


def test_latest_of_a_kind(journal: Journal):
    append(journal, facts.KernelResponsive(), facts.PrincipalAttached(), facts.KernelResponsive())
    run(journal, "a")
    with journal.reader() as reader:
        assert reader.latest("KernelDied") is None
        for kind, seq in {
            "KernelResponsive": 3,
            "PrincipalAttached": 2,
            "ExecutionQueued": 4,
            "ExecutionFinished": 7,
        }.items():
            latest = reader.latest(kind)
            assert latest is not None
            assert (latest.seq, latest.kind) == (seq, kind)


def test_executions(journal: Journal):
    run(journal, "a", source="1", cell_id="c", key="first")
    run(journal, "b", "error", source="2", cell_id="c")
    append(journal, queued("d", "3", cell_id="c"), queued("e", cell_id="other"), started("d"))
    with journal.reader() as reader:
        assert [x.execution_id for x in reader.executions()] == ["a", "b", "d", "e"]
        assert [x.execution_id for x in reader.executions(cell_id="c")] == ["a", "b", "d"]
        assert [x.execution_id for x in reader.executions(cell_id="c", last=2)] == ["b", "d"]
        assert [x.execution_id for x in reader.executions(status="queued")] == ["e"]
        assert [x.execution_id for x in reader.executions(status="running")] == ["d"]
        assert [x.execution_id for x in reader.executions(status="done")] == ["a", "b"]
        assert [x.execution_id for x in reader.executions(last=1)] == ["e"]
        a = reader.execution("a")
        assert a is not None
        assert reader.by_key("first") == a
        assert (a.status, a.outcome, a.execution_count) == ("done", "ok", 1)
        assert reader.by_key("second") is None
        assert reader.execution("z") is None
        assert reader.source("d") == "3"
        with pytest.raises(NoSuchExecution, match="no execution z"):
            reader.source("z")


def test_what_an_execution_says_comes_back_whole(journal: Journal):
    error = {"ename": "E", "evalue": "", "traceback": ["a"]}
    append(
        journal,
        queued("a"),
        started("a"),
        finished("a", "error", error=error, evidence={"n": [1, {"x": None}]}),
    )
    append(
        journal, queued("b"), started("b"), facts.InputRequested(execution_id="b", prompt="?", password=True)
    )
    with journal.reader() as reader:
        a, b = reader.executions()
    assert (a.error, a.evidence) == (error, {"n": [1, {"x": None}]})
    assert b.status == "blocked"
    assert b.blocked is not None
    assert b.blocked["on"] == "password"


def test_cells_and_counts(journal: Journal):
    run(journal, "a", cell_id="z")
    run(journal, "b", "error", cell_id="y")
    append(journal, queued("c", cell_id="x"))
    run(journal, "d", cell_id="z", incarnation=2)
    with journal.reader() as reader:
        assert [cell.cell_id for cell in reader.cells()] == ["z", "y", "x"]
        assert [cell.executions for cell in reader.cells()] == [2, 1, 1]
        assert reader.cell_counts() == [(1, "done", "error", 1), (1, "queued", None, 1), (2, "done", "ok", 1)]


def test_worst_cells_first(journal: Journal):
    for name, outcome, incarnation in (
        ("fine", "ok", 2),
        ("broken", "error", 2),
        ("gone", "ok", 1),
        ("who knows", "unknown", 2),
        ("gone broken", "error", 1),
        ("dead", "died", 2),
    ):
        run(journal, name, outcome, cell_id=name, incarnation=incarnation)
    append(journal, queued("never", cell_id="never"), finished("never", "aborted"), incarnation=1)
    append(journal, queued("waits", cell_id="waits"), incarnation=2)
    with journal.reader() as reader:
        order = [cell.cell_id for cell in reader.worst_cells(20, 2)]
        assert order == ["gone broken", "gone", "who knows", "dead", "broken", "never", "waits"]
        assert [cell.cell_id for cell in reader.worst_cells(2, 2)] == order[:2]
        assert reader.worst_cells(0, 2) == []
        assert "gone" not in [cell.cell_id for cell in reader.worst_cells(20, 1)]


def test_seen_and_position(journal: Journal):
    append(journal, facts.PrincipalAttached())
    append(journal, queued("a"), started("a"), printed("a", "x", 100), incarnation=2)
    append(journal, printed("a", "x", 50), finished("a", position=120), incarnation=2)
    with journal.reader() as reader:
        assert reader.seen() == {AGENT: Seen(principal=AGENT, incarnation=2)}
        assert reader.position(1) is None
        assert reader.position(2) == 120


def test_history_is_what_a_person_would_recall(journal: Journal):
    run(journal, "1", source="a = 1")
    run(journal, "2", source="secret", store_history=False)
    run(journal, "3", source="probe", silent=True)
    run(journal, "4", source="a = 1")
    run(journal, "5", source="b = 2")
    append(journal, queued("q", "queued only"))
    with journal.reader() as reader:
        assert reader.history() == [(1, 1, "a = 1"), (1, 1, "a = 1"), (1, 1, "b = 2")]
        assert reader.history(n=1) == [(1, 1, "b = 2")]
        assert reader.history(n=0) == []
        assert reader.history(pattern="a*", unique=True) == [(1, 1, "a = 1")]
        assert reader.history(pattern="*[12]", n=2) == [(1, 1, "a = 1"), (1, 1, "b = 2")]


def test_readers_see_what_is_appended_and_block_nobody(journal: Journal, path: Path):
    with JournalReader.open(path) as one, JournalReader.open(path) as other:
        for n in range(1, 20):
            append(journal, facts.PrincipalAttached(), sync=n % 2 == 0)
            assert one.head() == n
            assert len(other.entries()) == n
        journal.sync()
        assert one.head() == 19


def test_no_reader_changes_the_file(journal: Journal, path: Path):
    run(journal, "a")
    before = path.read_bytes()
    with JournalReader.open(path) as reader:
        reader.entries()
        with pytest.raises(Exception, match=r"readonly|read-only|query_only"):
            reader.connection.execute("DELETE FROM cells")
    assert path.read_bytes() == before


def test_a_missing_journal(path: Path):
    with pytest.raises(NotFound):
        JournalReader.open(path)
    assert not list(path.parent.iterdir())


def test_an_odd_path(tmp_path: Path):
    directory = tmp_path / "a?b#c%20d e"
    directory.mkdir()
    path = directory / "journal.db"
    with Journal.create(path) as journal:
        run(journal, "a")
        with JournalReader.open(path) as reader:
            assert reader.head() == 4
    with JournalReader.open(path) as reader:
        assert reader.head() == 4


def test_a_kind_of_a_newer_version_is_named(journal: Journal, path: Path):
    (entry,) = journal.append([draft(facts.PrincipalAttached())], sync=False)
    with plain_sqlite(path) as plain:
        plain.execute(
            "INSERT INTO entries SELECT 2, at, mono, 1, principal, 'MindRead', NULL, payload, digest, hash, "
            "digest FROM entries"
        )
    with JournalReader.open(path) as reader, pytest.raises(JournalNewer, match=r"entry 2 .* is a MindRead"):
        reader.entries()
    assert entry.seq == 1


DYING_WRITER = """
import os, sys
from kernel_runtime.journal import Journal
from kernel_runtime.model.entry import Draft
from kernel_runtime.model.facts import PrincipalAttached
journal = Journal.create(sys.argv[1])
for _ in range(5):
    journal.append([Draft(PrincipalAttached(), "agent:a", 1)], sync=False)
os._exit(0)
"""


def left_by_a_dead_writer(path: Path) -> None:
    subprocess.run([sys.executable, "-c", DYING_WRITER, str(path)], check=True)
    assert path.with_name("journal.db-wal").stat().st_size > 0


def test_a_journal_whose_writer_died(path: Path):
    left_by_a_dead_writer(path)
    with JournalReader.open(path) as reader:
        assert reader.head() == 5
    with Journal.open(path) as journal:
        assert journal.head == 5
        assert journal.unsynced


READ_ONLY_MOUNT = """
import subprocess, sys
directory, path = sys.argv[1:]
subprocess.run(["mount", "--bind", directory, directory], check=True)
subprocess.run(["mount", "-o", "remount,bind,ro", directory], check=True)
from kernel_runtime.errors import ReadOnlyStorage
from kernel_runtime.journal import Journal, JournalReader, verify
with JournalReader.open(path) as reader:
    print(reader.head(), len(reader.entries()))
print(verify(path).ok)
try:
    Journal.open(path)
except ReadOnlyStorage as error:
    print(bool(error.hint))
"""


@pytest.mark.parametrize("left", ["nothing", "log and index", "log only"])
def test_a_read_only_directory(path: Path, left: str):
    if left == "nothing":
        with Journal.create(path) as journal:
            append(journal, *[facts.PrincipalAttached()] * 5)
    else:
        left_by_a_dead_writer(path)
        if left == "log only":
            path.with_name("journal.db-shm").unlink()
    done = in_own_mounts(READ_ONLY_MOUNT, str(path.parent), str(path))
    assert done == ["5 5", "True", "True"]
