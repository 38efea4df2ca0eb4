"""What `verify` says of damage: where, which entry, and that nothing stops it from looking further."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_runtime.errors import NotFound
from kernel_runtime.journal import Journal, VerifyReport, verify
from tests.unit.journal.support import append, plain_sqlite, printed, run, without_triggers


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "journal.db"
    with Journal.create(path) as journal:
        for name in "abc":
            run(journal, name, key=name)
        append(journal, printed("a", "large " * 2000))
    path.with_suffix(".lock").unlink()  # so that each test sees what the journal alone can tell
    return path


def found(path: Path) -> list[tuple[str, int | None, str]]:
    return [(problem.where, problem.seq, problem.what) for problem in verify(path).problems]


def test_a_whole_journal(path: Path):
    report = verify(path)
    assert report == VerifyReport(
        ok=True, entries=13, head=13, head_hash=report.head_hash, projections="match", problems=[], found=0
    )
    assert verify(str(path)) == report


def test_a_missing_journal(tmp_path: Path):
    with pytest.raises(NotFound):
        verify(tmp_path / "journal.db")


@pytest.mark.parametrize("name", ["entries_no_update", "entries_in_order", "payloads_no_delete"])
def test_a_missing_trigger(path: Path, name: str):
    with plain_sqlite(path) as plain:
        plain.execute(f"DROP TRIGGER {name}")
    assert found(path) == [("schema", None, f"trigger {name} is missing")]


def test_a_changed_and_a_foreign_trigger(path: Path):
    with plain_sqlite(path) as plain:
        plain.execute("DROP TRIGGER entries_no_update")
        plain.execute("CREATE TRIGGER entries_no_update BEFORE UPDATE ON entries BEGIN SELECT 1; END")
        plain.execute("CREATE TRIGGER helpful AFTER INSERT ON entries BEGIN SELECT 1; END")
    assert found(path) == [
        ("schema", None, "trigger entries_no_update was changed"),
        ("schema", None, "trigger helpful is not ours"),
    ]


def test_a_changed_column_is_one_problem_at_its_entry(path: Path):
    with without_triggers(path) as plain:
        plain.execute("UPDATE entries SET at = at + 1 WHERE seq = 5")
    problems = verify(path).problems
    assert (problems[0].where, problems[0].seq) == ("entries", 5)
    assert problems[0].what == "hash does not fit: a column was changed"
    # its time stands in the execution's row as well, which therefore differs from the fold
    assert {problem.where for problem in problems[1:]} == {"executions"}


def test_a_rewritten_entry_breaks_the_chain_behind_it(path: Path):
    with without_triggers(path) as plain:
        plain.execute("UPDATE entries SET hash = digest WHERE seq = 5")
    assert [(where, seq) for where, seq, _what in found(path)] == [("entries", 5), ("entries", 6)]


def test_a_removed_entry(path: Path):
    with without_triggers(path) as plain:
        plain.execute("DELETE FROM entries WHERE seq IN (6, 7)")
    report = verify(path)
    assert report.projections == "unknown"
    assert (report.entries, report.head) == (11, 13)
    assert found(path) == [
        ("entries", 8, "entries 6 to 7 are not there"),
        ("entries", 8, "prev_hash is not the hash of entry 5"),
    ]


def test_a_payload_that_belongs_to_no_entry(path: Path):
    with plain_sqlite(path) as plain:
        plain.execute("INSERT INTO payloads VALUES ('d', 1, 'raw', 0, x'00')")
    assert found(path) == [("payloads", None, "payload d belongs to no entry")]


def test_text_that_is_none(path: Path):
    with without_triggers(path) as plain:
        plain.execute("UPDATE entries SET principal = CAST(x'ff61' AS TEXT) WHERE seq = 1")
    assert ("entries", 1, "principal is not UTF-8") in found(path)


def test_an_execution_id_that_is_not_the_payload_s(path: Path):
    with without_triggers(path) as plain:
        plain.execute("UPDATE entries SET execution_id = 'b' WHERE seq = 3")
    assert ("entries", 3, "execution_id is not the one in the payload") in found(path)


def test_projections_that_differ_name_the_row(path: Path):
    with plain_sqlite(path) as plain:
        plain.execute("UPDATE executions SET outcome = 'died' WHERE execution_id = 'b'")
    report = verify(path)
    assert report.projections == "differ"
    assert [(problem.where, problem.seq) for problem in report.problems] == [("executions", 5)] * 2
    assert "should hold queued_seq=5" in report.problems[0].what
    assert "outcome=died" in report.problems[1].what


def test_many_problems_are_counted_and_the_first_hundred_listed(tmp_path: Path):
    path = tmp_path / "journal.db"
    with Journal.create(path) as journal:
        append(journal, *(printed(None, "x") for _ in range(300)))
    with without_triggers(path) as plain:
        plain.execute("UPDATE entries SET mono = mono + 1")
    report = verify(path)
    assert (report.found, len(report.problems), report.ok) == (300, 100, False)


def test_an_index_that_lacks_a_row_is_sqlite_s_to_find(path: Path):
    with plain_sqlite(path) as plain:
        plain.execute("PRAGMA writable_schema = ON")
        plain.execute(
            "UPDATE sqlite_schema SET sql = replace(sql, 'status <> ''done''', 'status = ''done''')"
        )
    assert any(where == "file" for where, _seq, _what in found(path))
