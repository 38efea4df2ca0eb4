"""Files that are not what was written: cut, overwritten, replaced. Each is refused or described."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_runtime.errors import JournalCorrupt, KernelRuntimeError
from kernel_runtime.journal import Journal, JournalReader, verify
from tests.unit.journal.support import append, printed, queued, run, without_triggers

PAGE = 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "journal.db"
    with Journal.create(path) as journal:
        for n in range(200):
            run(journal, f"x{n}")
        append(journal, printed("x1", "large " * 5000))
    return path


def refused(path: Path, why: str) -> JournalCorrupt:
    with pytest.raises(JournalCorrupt, match=why) as caught:
        Journal.open(path)
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize("keep", [0, 50, 100, 4096, 10_000, 0.5, 0.99])
def test_a_truncated_file(path: Path, keep: float):
    whole = path.read_bytes()
    size = int(keep * len(whole)) if keep < 1 else int(keep)
    path.write_bytes(whole[:size])
    refused(path, "damaged")
    report = verify(path)
    assert not report.ok
    assert report.problems


def test_every_page_overwritten_in_turn_is_found(path: Path):
    whole = path.read_bytes()
    for page in range(0, len(whole) // PAGE, 7):
        damaged = bytearray(whole)
        damaged[page * PAGE : (page + 1) * PAGE] = b"\xa5" * PAGE
        path.write_bytes(damaged)
        report = verify(path)
        assert not report.ok, page
        assert report.problems
        try:
            Journal.open(path).close()
        except KernelRuntimeError as error:
            assert isinstance(error, JournalCorrupt), error  # noqa: PT017


def test_an_unreadable_page_costs_its_own_entries_only(path: Path):
    pages = leaves_of_entries(path)
    damaged = bytearray(path.read_bytes())
    middle = pages[len(pages) // 2]
    damaged[(middle - 1) * PAGE : middle * PAGE] = b"\0" * PAGE
    path.write_bytes(damaged)
    report = verify(path)
    assert not report.ok
    assert report.projections == "unknown"
    assert 700 < report.entries < 801
    assert report.head == 801
    concerned = [problem for problem in report.problems if problem.where == "entries"]
    assert any("are not there" in problem.what for problem in concerned)
    with JournalReader.open(path) as reader, pytest.raises(JournalCorrupt, match="damaged"):
        reader.entries(limit=801)


def test_a_log_that_was_cut_is_noticed(path: Path, tmp_path: Path):
    killed = tmp_path / "killed"
    killed.mkdir()
    with Journal.open(path) as journal:
        for n in range(5):
            append(journal, queued(f"late{n}"), sync=n < 3)
        for name in ("journal.db", "journal.db-wal", "journal.lock"):
            shutil.copy(tmp_path / name, killed / name)
    log = killed / "journal.db-wal"
    whole = log.read_bytes()

    (killed / "journal.db").with_name("journal.db-shm").unlink(missing_ok=True)
    with JournalReader.open(killed / "journal.db") as reader:
        assert reader.head() == 806

    for keep in (0, len(whole) // 3, len(whole) - 100):
        log.write_bytes(whole[:keep])
        error = refused(killed / "journal.db", "had been acknowledged")
        assert error.fields["acknowledged"] == 806
        assert "-wal" in error.hint
        assert "journal.lock" in error.hint
        assert not verify(killed / "journal.db").ok

    (killed / "journal.lock").unlink()
    with Journal.open(killed / "journal.db") as journal:
        append(journal, queued("after all"))
    assert verify(killed / "journal.db").ok


def test_after_a_power_cut_only_what_was_synced_must_be_there(path: Path, monkeypatch: pytest.MonkeyPatch):
    old = path.read_bytes()
    with Journal.open(path) as journal:
        append(journal, queued("a"))
        line = path.with_suffix(".lock").read_bytes()
        assert b'"written":[802' in line
        assert b'"synced":[801' in line
    # what a power cut leaves: the log's last pages never reached the disk, and the boot is another one
    path.write_bytes(old)
    path.with_suffix(".lock").write_bytes(line)
    refused(path, "802 had been acknowledged")
    monkeypatch.setattr("kernel_runtime.process.boot_id", lambda: "the next boot")
    path.with_suffix(".lock").write_bytes(line)
    with Journal.open(path) as journal:
        assert journal.head == 801


def test_an_old_copy_put_back_is_noticed(path: Path):
    old = path.read_bytes()
    with Journal.open(path) as journal:
        run(journal, "later")
    path.write_bytes(old)
    error = refused(path, "ends at entry 801, but 802 to 805 had been acknowledged")
    assert "older copy" in error.hint
    assert [problem.seq for problem in verify(path).problems] == [805]


def test_another_journal_put_in_its_place_is_noticed(path: Path, tmp_path: Path):
    other = tmp_path / "other.db"
    with Journal.create(other) as journal:
        for n in range(300):
            run(journal, f"y{n}")
    other.replace(path)
    refused(path, "another one than was acknowledged here")
    assert verify(path).problems[0].seq == 801


def changed(statement: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        with without_triggers(path) as plain:
            plain.execute(statement)

    return change


@pytest.mark.parametrize(
    "change, why",
    [
        (changed("UPDATE entries SET principal = 'human:eve' WHERE seq = 801"), "not what was written"),
        (changed("UPDATE entries SET prev_hash = hash WHERE seq = 801"), "does not follow"),
        (changed("UPDATE payloads SET data = substr(data, 2)"), "payload of entry 801 cannot be read"),
        (changed("DELETE FROM payloads"), "payload of entry 801 is missing"),
        (changed("DELETE FROM entries WHERE seq = 801"), "801 had been acknowledged"),
    ],
)
def test_a_changed_end_is_refused_on_open(path: Path, change: Callable[[Path], None], why: str):
    change(path)
    refused(path, why)


def leaves_of_entries(path: Path) -> list[int]:
    """Pages that hold entries, in order: table leaves (0x0d) that mention a kind often."""
    data = path.read_bytes()
    return [
        number + 1
        for number in range(len(data) // PAGE)
        if data[number * PAGE] == 0x0D
        and data[number * PAGE : (number + 1) * PAGE].count(b"OutputRecorded") > 2
    ]
