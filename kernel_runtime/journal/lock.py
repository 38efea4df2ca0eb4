"""One writer per journal, and how far that writer got.

The lock file holds one line of JSON: the pid that holds the lock, and two marks, each `[seq, hash]`:
`written`, the last acknowledged entry, good for this boot (a killed process loses nothing that the
operating system has), and `synced`, the last one known to be on the disk, good for ever. A mark is
written after the commit it tells of, so it can be behind the journal and never ahead: a journal that
ends before its mark was cut, or is an old copy.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from pathlib import Path

import msgspec
from msgspec import Struct

from kernel_runtime import process
from kernel_runtime.errors import KernelRuntimeError
from kernel_runtime.journal import faults
from kernel_runtime.journal.codec import GENESIS

Mark = tuple[int, str]
"""`(seq, hash)` of an entry"""

_SIZE = 512
"""bytes of the line, padded with spaces: written in place with one write, so never torn by a kill"""


class _Line(Struct, frozen=True):
    pid: int = 0
    boot_id: str = ""
    written: Mark = (0, GENESIS)
    synced: Mark = (0, GENESIS)


class WriterLock:
    """flock on the lock file for as long as the journal is open for writing."""

    def __init__(self, journal: Path) -> None:
        """Take the lock.

        Raises:
            JournalBusy: another process has it; names its pid.
            ReadOnlyStorage, DiskFull, StorageFault: the file cannot be made.
        """
        self._journal = journal
        self.path = journal.with_suffix(".lock")
        self._guard = threading.Lock()
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise faults.from_os(error, journal) from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fault: KernelRuntimeError = faults.busy(
                journal, f"lock {self.path.name}", self._read().pid or None
            )
            os.close(self._fd)
            raise fault from None
        except OSError as error:
            os.close(self._fd)
            raise faults.from_os(error, journal) from error
        self.found = self._line = self._read()
        self._line = _Line(os.getpid(), process.boot_id(), self._line.written, self._line.synced)

    def expected(self) -> list[Mark]:
        """Entries that the journal must hold, if it is the one this lock file stood beside."""
        return _good(self.found)

    def record(self, written: Mark, synced: Mark) -> None:
        """Move the marks. Callable from any thread."""
        with self._guard:
            line = self._line
            self._line = _Line(line.pid, line.boot_id, max(written, line.written), max(synced, line.synced))
            self._write()

    def forget(self) -> None:
        """No marks: the journal they told of is gone, and another one begins here."""
        self.found = _Line()
        with self._guard:
            self._line = _Line(self._line.pid, self._line.boot_id)
            self._write()

    def release(self) -> None:
        os.close(self._fd)

    def _write(self) -> None:
        # A mark that could not be written stays behind, which is safe; the journal itself reports
        # the full disk.
        with contextlib.suppress(OSError):
            os.pwrite(self._fd, msgspec.json.encode(self._line).ljust(_SIZE - 1) + b"\n", 0)

    def _read(self) -> _Line:
        return _parse(os.pread(self._fd, _SIZE, 0))


def marks_of(journal: Path) -> list[Mark]:
    """Entries that the journal must hold, as its lock file has them; takes no lock."""
    try:
        return _good(_parse(journal.with_suffix(".lock").read_bytes()))
    except OSError:  # none there, or none for this user to read: no marks, so nothing to hold against it
        return []


def _good(line: _Line) -> list[Mark]:
    marks = [line.synced]
    if line.boot_id == process.boot_id():
        marks.append(line.written)
    return sorted((mark for mark in marks if mark[0] > 0), reverse=True)


def _parse(line: bytes) -> _Line:
    try:
        return msgspec.json.decode(line or b"{}", type=_Line)
    except msgspec.DecodeError:
        # no marks: they guard against an old copy, and are not needed to read a journal
        return _Line()
