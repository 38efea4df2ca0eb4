"""One writer, and marks that are never ahead of the journal."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_runtime.errors import JournalBusy
from kernel_runtime.journal.lock import WriterLock, marks_of

ONE, TWO = (1, "1" * 64), (2, "2" * 64)


def test_exclusive_while_held(tmp_path: Path):
    journal = tmp_path / "journal.db"
    lock = WriterLock(journal)
    lock.record(ONE, ONE)
    with pytest.raises(JournalBusy) as caught:
        WriterLock(journal)
    assert caught.value.fields["pid"]
    lock.release()
    WriterLock(journal).release()


def test_marks_last_and_never_go_back(tmp_path: Path):
    journal = tmp_path / "journal.db"
    lock = WriterLock(journal)
    assert lock.expected() == []
    lock.record(TWO, ONE)
    lock.record(ONE, ONE)
    lock.release()
    assert marks_of(journal) == [TWO, ONE]
    again = WriterLock(journal)
    assert again.expected() == [TWO, ONE]
    again.forget()
    assert again.expected() == []
    again.release()
    assert marks_of(journal) == []


def test_another_boot_vouches_for_what_was_synced_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    journal = tmp_path / "journal.db"
    lock = WriterLock(journal)
    lock.record(TWO, ONE)
    lock.release()
    monkeypatch.setattr("kernel_runtime.process.boot_id", lambda: "another")
    assert marks_of(journal) == [ONE]


@pytest.mark.parametrize("content", [b"", b"\0" * 512, b"1234\n", b"{}", b'{"pid": "x"}', b"\xff"])
def test_a_lock_file_that_says_nothing_vouches_for_nothing(tmp_path: Path, content: bytes):
    journal = tmp_path / "journal.db"
    journal.with_suffix(".lock").write_bytes(content)
    assert marks_of(journal) == []
    WriterLock(journal).release()
