"""Schema versions: forward in one transaction or not at all, and never back."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from kernel_runtime.errors import JournalCorrupt, JournalNewer
from kernel_runtime.journal import Journal, JournalReader, schema, verify
from kernel_runtime.model import facts
from tests.unit.journal.support import append, plain_sqlite, run

BEFORE = len(schema.STEPS)
"""the version that this package writes"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "journal.db"
    with Journal.create(path) as journal:
        run(journal, "a")
    return path


def with_label(connection: apsw.Connection) -> None:
    """A step as a later version will have it."""
    connection.execute("ALTER TABLE cells ADD COLUMN label TEXT")
    connection.execute("UPDATE cells SET label = 'cell ' || cell_id")


def later_versions(monkeypatch: pytest.MonkeyPatch, *steps: schema.Step) -> None:
    monkeypatch.setattr(schema, "STEPS", (*schema.STEPS, *steps))


def version(path: Path) -> int:
    with plain_sqlite(path) as plain:
        return int(plain.execute("PRAGMA user_version").fetchone()[0])


def test_an_older_journal_is_migrated_when_opened_for_writing(path: Path, monkeypatch: pytest.MonkeyPatch):
    later_versions(monkeypatch, with_label)
    with Journal.open(path) as journal:
        assert journal.head == 4
        append(journal, facts.PrincipalAttached())
    assert version(path) == len(schema.STEPS)
    with plain_sqlite(path) as plain:
        assert plain.execute("SELECT label FROM cells").fetchall() == [("cell c-a",)]
    assert verify(path).ok


def test_an_older_journal_is_read_without_touching_it(path: Path, monkeypatch: pytest.MonkeyPatch):
    before = path.read_bytes()
    later_versions(monkeypatch, with_label)
    with JournalReader.open(path) as reader:
        assert reader.head() == 4
        assert reader.connection.execute("SELECT label FROM cells").fetchall() == [("cell c-a",)]
    assert path.read_bytes() == before
    assert version(path) == BEFORE


def test_a_migration_that_fails_half_way_leaves_the_old_version_whole(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    class PulledThePlug(Exception):
        pass

    def fails(connection: apsw.Connection) -> None:
        connection.execute("DROP TABLE cells")
        raise PulledThePlug

    with monkeypatch.context() as later:
        later_versions(later, with_label, fails)
        with pytest.raises(PulledThePlug):
            Journal.open(path)
    assert version(path) == BEFORE
    assert verify(path).ok
    with Journal.open(path) as journal:
        append(journal, facts.PrincipalAttached())
    assert verify(path).ok


def test_all_steps_from_nothing_give_the_declared_schema(tmp_path: Path):
    connection = apsw.Connection(str(tmp_path / "new.db"))
    assert schema.migrate(connection) == 0
    assert schema.migrate(connection) == len(schema.STEPS)
    assert schema.objects(connection) == schema.declared()
    connection.close()


def test_a_newer_journal_is_refused_with_both_versions_and_left_alone(path: Path):
    with plain_sqlite(path) as plain:
        plain.execute("PRAGMA user_version = 7")
    before = path.read_bytes()
    for use in (Journal.open, JournalReader.open, verify):
        with pytest.raises(JournalNewer, match=rf"version 7.*up to {BEFORE}") as caught:
            use(path)
        assert caught.value.fields["journal_version"] == 7
        assert caught.value.fields["supported_version"] == BEFORE
        assert "upgrade" in caught.value.hint
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "content, why",
    [
        (b"", "empty"),
        (b"hello" * 100, "not a database"),
        (b"SQLite format 3\0", "cut off"),
        (b"SQLite format 3\0" + b"\xff" * 5000, "not a database"),
    ],
)
def test_files_that_are_no_journal(tmp_path: Path, content: bytes, why: str):
    path = tmp_path / "journal.db"
    path.write_bytes(content)
    for use in (Journal.open, JournalReader.open):
        with pytest.raises(JournalCorrupt, match=why) as caught:
            use(path)
        assert caught.value.hint
    report = verify(path)
    assert not report.ok
    assert why in report.problems[0].what
    assert path.read_bytes() == content


def test_another_program_s_database(tmp_path: Path):
    path = tmp_path / "journal.db"
    with plain_sqlite(path) as plain:
        plain.execute("CREATE TABLE t (a)")
    before = path.read_bytes()
    for use in (Journal.open, JournalReader.open):
        with pytest.raises(JournalCorrupt, match="not a journal"):
            use(path)
    assert not verify(path).ok
    assert path.read_bytes() == before
