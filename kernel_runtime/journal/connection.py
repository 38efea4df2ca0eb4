"""The one place that opens a journal's SQLite connection and sets every pragma.

A writer's connection never checkpoints by itself: `Journal.sync` does that in another thread, so that
an append does not wait for the main file's fsync.

Nothing here, and nothing in a process that has a journal open, opens its main file by other means: when
any descriptor of a file is closed, the process loses its POSIX locks on it, SQLite's too.

A reader finds its way by what is there:
- plain read-only, beside a living writer or after one that died;
- `immutable`, where the directory is read-only and no log (-wal) was left: the file is all there is;
- with the log's index in private memory, where the directory is read-only and a log was left
  without its index (-shm).
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import apsw

from kernel_runtime.errors import KernelRuntimeError, NotFound
from kernel_runtime.journal import faults, schema

BUSY_TIMEOUT = 5.0
"""seconds that a call waits for another process's lock"""

_LOG_LIMIT = 16 << 20
"""bytes to which the log file is cut once it starts anew"""

_SCRATCH_CACHE = 32 << 10
"""KiB of a temporary database that are kept in memory"""

_HEADER = 100
"""bytes of an SQLite file that say what it is"""


def wal_path(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def shm_path(path: Path) -> Path:
    return path.with_name(path.name + "-shm")


def check_file(path: Path) -> None:
    """Refuse what cannot be a journal before SQLite touches it.

    Raises:
        NotFound: no file there.
        JournalCorrupt: empty, or too short for an SQLite file.
    """
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise NotFound(
            f"there is no journal at {path}", hint="`krt ls` lists the sessions", path=str(path)
        ) from None
    except OSError as error:
        raise faults.from_os(error, path) from error
    if size < _HEADER:
        raise faults.corrupt(path, "the file is empty" if size == 0 else "the file is cut off in its header")


def open_writer(path: Path, *, busy_timeout: float = BUSY_TIMEOUT, vfs: str | None = None) -> apsw.Connection:
    """A read-write connection to an existing journal file.

    Raises:
        JournalCorrupt, ReadOnlyStorage, DiskFull, JournalBusy, StorageFault: it cannot be used.
    """
    connection = _connect(path, apsw.SQLITE_OPEN_READWRITE, "", vfs)
    try:
        _settings(connection, busy_timeout)
        if connection.readonly("main"):
            raise faults.read_only(path, "opened read-only")
        schema.check(connection, path)  # before anything is changed: it may be somebody else's
        mode = connection.pragma("journal_mode", "wal")
        if mode != "wal":
            raise faults.corrupt(path, f"it cannot be switched to a write-ahead log (it stays {mode})")
        connection.pragma("journal_size_limit", _LOG_LIMIT)
        connection.wal_autocheckpoint(0)
        connection.pragma("synchronous", "NORMAL")
    except apsw.Error as error:
        raise closing_fault(connection, error, path) from error
    except KernelRuntimeError:
        connection.close()
        raise
    return connection


def open_new(path: Path, *, vfs: str | None = None) -> apsw.Connection:
    """A connection that may create `path`, for building a file that is renamed into place once whole.

    Its rollback journal is in memory: a half-built file is thrown away.
    """
    connection = _connect(path, apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE, "", vfs)
    try:
        _settings(connection, BUSY_TIMEOUT)
        connection.pragma("journal_mode", "memory")
    except apsw.Error as error:
        raise closing_fault(connection, error, path) from error
    return connection


def open_reader(path: Path, *, busy_timeout: float = BUSY_TIMEOUT) -> apsw.Connection:
    """A read-only connection; see the module's docstring for how.

    Raises:
        NotFound: no file there.
        JournalCorrupt, JournalBusy, StorageFault: it cannot be read.
    """
    check_file(path)
    try:
        return _reader(path, "mode=ro", busy_timeout)
    except (apsw.CantOpenError, apsw.ReadOnlyError) as error:
        if shm_path(path).exists():
            raise faults.from_sqlite(error, path) from error
    except apsw.Error as error:
        raise faults.from_sqlite(error, path) from error
    try:
        log = wal_path(path)
        if not log.exists() or log.stat().st_size == 0:
            return _reader(path, "mode=ro&immutable=1", busy_timeout)
        return _reader(path, "mode=ro", busy_timeout, private_index=True)
    except apsw.Error as error:
        raise faults.from_sqlite(error, path) from error


def open_scratch() -> apsw.Connection:
    """A database in a temporary file of SQLite's own, which is gone when it is closed."""
    connection = apsw.Connection("")
    _settings(connection, BUSY_TIMEOUT)
    for pragma, value in (
        ("temp_store", "file"),
        ("cache_size", -_SCRATCH_CACHE),
        ("journal_mode", "off"),
        ("synchronous", "off"),
    ):
        connection.pragma(pragma, value)
    return connection


def open_immutable(path: Path) -> apsw.Connection:
    """A read-only connection to a file that nobody changes: without locks, log or index.

    Raises:
        apsw.Error: it cannot be read.
    """
    return _reader(path, "mode=ro&immutable=1", BUSY_TIMEOUT)


def _reader(path: Path, query: str, busy_timeout: float, *, private_index: bool = False) -> apsw.Connection:
    vfs = "unix-none" if private_index else None  # locks nothing: nobody can write here
    connection = _connect(path, apsw.SQLITE_OPEN_READONLY, query, vfs)
    try:
        if private_index:
            connection.pragma("locking_mode", "exclusive")
        _settings(connection, busy_timeout)
        connection.pragma("query_only", True)
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    except apsw.Error:
        connection.close()
        raise
    return connection


def _connect(path: Path, flags: int, query: str, vfs: str | None) -> apsw.Connection:
    # Absolute, because SQLite keeps the name and a process may change directory. A URI, because
    # `immutable` can be said nowhere else.
    name = f"file:{quote(str(path.absolute()))}?{query}"
    try:
        return apsw.Connection(name, flags=flags | apsw.SQLITE_OPEN_URI, vfs=vfs)
    except apsw.Error as error:
        if query:
            raise
        raise faults.from_sqlite(error, path) from error


def _settings(connection: apsw.Connection, busy_timeout: float) -> None:
    connection.set_busy_timeout(int(busy_timeout * 1000))
    # Values and indexes are checked against their page, triggers fire on REPLACE, and a hostile
    # file's schema runs no function of ours.
    for pragma, value in (
        ("trusted_schema", False),
        ("cell_size_check", True),
        ("foreign_keys", True),
        ("recursive_triggers", True),
        ("mmap_size", 0),
        ("temp_store", "memory"),
    ):
        connection.pragma(pragma, value)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    # One plan per statement: else SQLite plans anew for each value bound, at 10 to 20 times the cost of
    # the look-up itself. Every statement of ours has one index to use, whatever the values.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 1)


def closing_fault(connection: apsw.Connection, error: apsw.Error, path: Path) -> KernelRuntimeError:
    """The fault behind `error`, after closing the connection it happened on."""
    fault = faults.from_sqlite(error, path, connection.system_errno)
    connection.close()
    return fault
