"""Storage that fails at its N-th operation, for N = 1, 2, … until a run is clean.

A VFS shim counts what SQLite asks of the disk (write, sync, truncate) and fails one of them. At each
N: the error is one of ours with a hint; what was acknowledged is there, and nothing else of what was
refused; the same Journal goes on once the disk is well; and a copy of the files taken at the moment
of the failure, as a kill would leave them, holds every acknowledged entry.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from kernel_runtime.errors import DiskFull, KernelRuntimeError, StorageFault
from kernel_runtime.journal import Journal, JournalReader, verify
from tests.unit.journal.support import AGENT, draft, finished, printed, queued, started

VFS = "krt-failing"


class Disk:
    """Counts operations, and fails those that it is told to."""

    def __init__(self) -> None:
        self.operations = 0
        self.fail_at = 0
        """0: never"""
        self.for_good = False
        """whether it stays broken after the first failure"""
        self.error: Callable[[], Exception] = no_space
        self.failed = 0

    def operate(self) -> None:
        self.operations += 1
        if self.fail_at and (
            self.operations == self.fail_at or (self.for_good and self.operations > self.fail_at)
        ):
            self.failed += 1
            raise self.error()

    def mend(self) -> None:
        self.fail_at = 0


def no_space() -> Exception:
    return apsw.FullError("failed by the test")


def broken() -> Exception:
    return apsw.IOError("failed by the test")


class FailingFile(apsw.VFSFile):
    def __init__(self, disk: Disk, name: str | apsw.URIFilename, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._disk = disk

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's names
        self._disk.operate()
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.operate()
        super().xSync(flags)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._disk.operate()
        super().xTruncate(newsize)


class FailingVFS(apsw.VFS):
    def __init__(self, disk: Disk) -> None:
        super().__init__(VFS, "")
        self._disk = disk

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        assert name is not None
        return FailingFile(self._disk, name, flags)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk()
    vfs = FailingVFS(disk)
    yield disk
    vfs.unregister()


def story(journal: Journal) -> Iterator[list[int]]:
    """An execution's life, one append after another; each step yields what was acknowledged by it."""
    big = "x" * 20_000 + os.urandom(10_000).hex()
    for facts, sync in (
        ([queued("a"), started("a")], True),
        ([printed("a", "one\n", 10)], False),
        ([printed("a", big, 20)], False),
        ([finished("a", position=30), queued("b"), started("b")], True),
        ([printed("b", big + "b", 40)], False),
        ([finished("b", "error")], False),
    ):
        entries = journal.append([draft(fact) for fact in facts], sync=sync)
        yield [entry.seq for entry in entries]


def copied(path: Path, into: Path) -> Path:
    """The files as they lie there, as a kill at this moment would leave them."""
    into.mkdir()
    for name in (path.name, f"{path.name}-wal", f"{path.stem}.lock"):
        if path.with_name(name).exists():
            shutil.copy(path.with_name(name), into / name)
    return into / path.name


@pytest.mark.parametrize("for_good", [False, True], ids=["once", "for a while"])
@pytest.mark.parametrize("error", [no_space, broken])
def test_appending(disk: Disk, tmp_path: Path, error: Callable[[], Exception], for_good: bool):
    disk.error, disk.for_good = error, for_good
    for n in range(1, 1000):
        path = tmp_path / f"{n}" / "journal.db"
        path.parent.mkdir()
        journal = Journal.create(path, vfs=VFS)
        disk.operations, disk.failed, disk.fail_at = 0, 0, n
        acknowledged: list[int] = []
        try:
            for seqs in story(journal):
                acknowledged += seqs
        except KernelRuntimeError as fault:
            assert isinstance(fault, DiskFull if error is no_space else StorageFault), fault  # noqa: PT017
            assert fault.hint  # noqa: PT017
        clean = disk.failed == 0
        killed = copied(path, tmp_path / f"{n}-killed")
        disk.mend()

        assert journal.head == len(acknowledged)
        with JournalReader.open(path) as reader:
            assert [entry.seq for entry in reader.entries()] == acknowledged
        with Journal.open(killed) as survivor:
            # The refused append is undone on the disk too, unless the disk refuses that as well; then it
            # is there as a whole.
            assert survivor.head - len(acknowledged) in ((0, 2, 3) if for_good else (0,))
        assert verify(killed).ok

        head = journal.append([draft(printed(None, "space is back"))], sync=True)[-1].seq
        assert head == len(acknowledged) + 1
        assert not journal.unsynced
        journal.close()
        assert verify(path).ok
        shutil.rmtree(path.parent)
        shutil.rmtree(killed.parent)
        if clean:
            assert n > 20
            return
    pytest.fail("no run was clean")


@pytest.mark.parametrize("error", [no_space, broken])
def test_creating(disk: Disk, tmp_path: Path, error: Callable[[], Exception]):
    disk.error = error
    for n in range(1, 1000):
        path = tmp_path / f"{n}" / "journal.db"
        path.parent.mkdir()
        disk.operations, disk.failed, disk.fail_at = 0, 0, n
        try:
            journal = Journal.create(path, vfs=VFS)
        except KernelRuntimeError as fault:
            assert isinstance(fault, DiskFull if error is no_space else StorageFault), fault  # noqa: PT017
            disk.mend()
            # whole or not at all, and nothing in the way of another try
            assert not path.exists() or verify(path).ok
            journal = Journal.open(path, vfs=VFS) if path.exists() else Journal.create(path, vfs=VFS)
        clean = disk.failed == 0
        disk.mend()
        journal.append([draft(queued("a"))], sync=True)
        journal.close()
        assert verify(path).ok
        if clean:
            return
    pytest.fail("no run was clean")


@pytest.mark.parametrize("error", [no_space, broken])
def test_opening_what_a_killed_writer_left(disk: Disk, tmp_path: Path, error: Callable[[], Exception]):
    disk.error = error
    origin = tmp_path / "journal.db"
    with Journal.create(origin) as journal:
        acknowledged = [seq for seqs in story(journal) for seq in seqs]
        for n in range(1, 1000):
            path = copied(origin, tmp_path / f"{n}")
            disk.operations, disk.failed, disk.fail_at = 0, 0, n
            try:
                Journal.open(path, vfs=VFS).close()
            except KernelRuntimeError as fault:
                assert isinstance(fault, DiskFull if error is no_space else StorageFault), fault  # noqa: PT017
            clean = disk.failed == 0
            disk.mend()
            with Journal.open(path, vfs=VFS) as again:
                assert again.head == len(acknowledged)
                again.append([draft(printed(None, "x"))], sync=True)
            assert verify(path).ok
            if clean:
                return
    pytest.fail("no run was clean")


def test_a_sync_that_failed_is_not_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """After a failed fsync the system may call the next one a success and have dropped the data.

    So the log is copied into the main file instead of synced once more.
    """
    path = tmp_path / "journal.db"

    def fails(_fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with Journal.create(path) as journal:
        journal.append([draft(queued("a")), draft(started("a"))], sync=False)
        with monkeypatch.context() as broken_disk:
            broken_disk.setattr(os, "fdatasync", fails)
            with pytest.raises(StorageFault, match="storage of the journal"):
                journal.sync()
        unsynced = journal.unsynced
        before = path.read_bytes()
        journal.sync()
        assert (unsynced, journal.unsynced) == (True, False)
        assert path.read_bytes() != before
        with JournalReader.open(path) as reader:
            assert reader.entries()[0].principal == AGENT
    assert verify(path).ok


def test_a_full_disk_at_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fails(_fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with Journal.create(tmp_path / "journal.db") as journal:
        journal.append([draft(queued("a"))], sync=False)
        with monkeypatch.context() as full_disk:
            full_disk.setattr(os, "fdatasync", fails)
            with pytest.raises(DiskFull, match="no space left"):
                journal.sync()
        journal.append([draft(started("a"))], sync=True)
        assert not journal.unsynced
