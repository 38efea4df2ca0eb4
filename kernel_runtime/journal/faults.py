"""What SQLite and the operating system say, in the words of errors.py.

Nothing here decides anything: a fault keeps its class, names the file and says what to do next.
"""

from __future__ import annotations

from pathlib import Path

import apsw

from kernel_runtime.errors import (
    DiskFull,
    JournalBusy,
    JournalCorrupt,
    KernelRuntimeError,
    ReadOnlyStorage,
    StorageFault,
)


def disk_full(path: Path, why: object) -> DiskFull:
    return DiskFull(
        f"no space left for the journal {path} ({why}); nothing of this was written",
        hint=f"free space on the disk that holds {path.parent}, then do the same again; "
        "what was acknowledged before is safe",
        path=str(path),
    )


def no_temporary_space(path: Path, why: object) -> DiskFull:
    """While a journal was checked, which writes nothing to it."""
    return DiskFull(
        f"no temporary space left for checking the journal {path} ({why}); the journal is as it was",
        hint="free space under SQLITE_TMPDIR, TMPDIR or /var/tmp, or point TMPDIR elsewhere, and check again",
        path=str(path),
    )


def read_only(path: Path, why: object) -> ReadOnlyStorage:
    return ReadOnlyStorage(
        f"the journal {path} cannot be written ({why})",
        hint=f"make {path.parent} writable for this user; reading it goes on working meanwhile",
        path=str(path),
    )


def corrupt(path: Path, why: object, *, hint: str = "", **fields: object) -> JournalCorrupt:
    return JournalCorrupt(
        f"the journal {path} is damaged: {why}",
        hint=hint or "`krt verify` says which entries are affected; put back a copy that verifies",
        path=str(path),
        **fields,
    )


def busy(path: Path, why: object, pid: int | None = None) -> JournalBusy:
    who = f"process {pid}" if pid else "another process"
    return JournalBusy(
        f"{who} holds the journal {path} ({why})",
        hint=f"see what process {pid} is (`ps -p {pid}`); a supervisor ends with `krt stop`"
        if pid
        else f"find the holder with `fuser {path}` and let it finish, then do the same again",
        path=str(path),
        pid=pid,
    )


def from_os(error: OSError, path: Path) -> KernelRuntimeError:
    """The fault an OSError on the journal's files amounts to."""
    if error.errno in DiskFull.ERRNOS:
        return disk_full(path, error.strerror)
    if error.errno in ReadOnlyStorage.ERRNOS:
        return read_only(path, error.strerror)
    return _storage(path, error)


def from_sqlite(error: apsw.Error, path: Path, system_errno: int = 0) -> KernelRuntimeError:
    """The fault an apsw error amounts to; `system_errno` is errno of the failed call, 0 if none."""
    if isinstance(error, apsw.FullError) or system_errno in DiskFull.ERRNOS:
        return disk_full(path, error)
    if isinstance(error, apsw.CorruptError | apsw.NotADBError | apsw.FormatError):
        return corrupt(path, error)
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return busy(path, error)
    if isinstance(error, apsw.ReadOnlyError | apsw.PermissionsError):
        return read_only(path, error)
    if isinstance(error, apsw.CantOpenError | apsw.IOError) and system_errno in ReadOnlyStorage.ERRNOS:
        return read_only(path, error)
    return _storage(path, error)


def _storage(path: Path, error: Exception) -> StorageFault:
    return StorageFault(
        f"the storage of the journal {path} failed: {error}; nothing of this was written",
        hint="look at the system's log for this disk, then do the same again; "
        "what was acknowledged before is safe",
        path=str(path),
    )
