"""The only writer of a journal.

`append` is one transaction: entries, payloads and projections, all or nothing. With `sync=True` it
returns once they are on the disk; without, once the operating system has them, which a killed
process does not lose and a power cut can; `sync` makes those durable from another thread.

Invariants:
- What `append` returned is in the file, with the hash it returned.
- An append that raised wrote nothing, and the same Journal goes on as soon as the cause is gone.
- No execution is queued twice, by id or by key, and none gets a second outcome: such an append is
  our bug and is refused.

It does not decide what to write, and does not check that an incarnation makes sense.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import apsw

from kernel_runtime.core.projection import MOVES_EXECUTION, Projections
from kernel_runtime.errors import InternalFault, SessionExists, StorageFault
from kernel_runtime.journal import connection as opener
from kernel_runtime.journal import faults, schema
from kernel_runtime.journal.codec import INLINE_MAX, digest_of, entry_hash, pack
from kernel_runtime.journal.drafts import drafted, sync_directory
from kernel_runtime.journal.lock import Mark, WriterLock
from kernel_runtime.journal.reader import JournalReader, check_end
from kernel_runtime.journal.rows import ProjectionStore, fetch_by_key
from kernel_runtime.model import facts
from kernel_runtime.model.entry import Draft, Entry
from kernel_runtime.model.facts import ExecutionFinished, ExecutionQueued
from kernel_runtime.testing.failpoints import reach

Clock = Callable[[], tuple[int, int]]
"""`() -> (UTC ns since the epoch, CLOCK_MONOTONIC ns)`"""

_ENTRY = "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_CHECKPOINT = 1000
"""pages in the log (4 MiB) from which `sync` moves them into the main file"""
_BACKSTOP = 16384
"""pages in the log (64 MiB) from which `append` does, because nobody calls `sync`"""

_REBUILD_BATCH = 16 << 20
_READER_PATIENCE = 200
"""milliseconds for which `empty_log` waits for readers that are in the middle of a look"""


def system_clock() -> tuple[int, int]:
    return time.time_ns(), time.monotonic_ns()


class Journal:
    """A journal open for writing. `append` from one thread; `sync` from any other as well."""

    def __init__(
        self,
        path: Path,
        lock: WriterLock,
        clock: Clock,
        *,
        busy_timeout: float = opener.BUSY_TIMEOUT,
        vfs: str | None = None,
    ) -> None:
        """Use `create` or `open`."""
        self.path = path
        self._lock = lock
        self._clock = clock
        self._vfs = vfs
        self._busy_timeout = busy_timeout
        self._connection = opener.open_writer(path, busy_timeout=busy_timeout, vfs=vfs)
        try:
            schema.migrate(self._connection)
            self._written = check_end(self._connection, path, lock.expected())
            self._store = ProjectionStore(self._connection)
            self._log = self._open_log()
        except apsw.Error as error:
            raise opener.closing_fault(self._connection, error, path) from error
        except BaseException:
            self._connection.close()
            raise
        # what an earlier writer left may be in the system's memory only
        self._synced: Mark = lock.found.synced
        self._pragma_sync = ""
        self._log_pages = 0
        self._connection.set_wal_hook(self._committed)
        self._committing = False
        self._suspicions = 0
        self._cleared = 0
        lock.record(self._written, self._synced)

    @staticmethod
    def create(path: Path | str, clock: Clock = system_clock, *, vfs: str | None = None) -> Journal:
        """A new journal. The file appears whole or not at all.

        Raises:
            SessionExists: there is a file already.
            JournalBusy, DiskFull, ReadOnlyStorage, StorageFault.
        """
        path = Path(path)
        lock = WriterLock(path)
        try:
            _refuse_existing(path)
            lock.forget()
            _build(path, vfs)
            return Journal(path, lock, clock, vfs=vfs)
        except BaseException:
            lock.release()
            raise

    @staticmethod
    def open(
        path: Path | str,
        clock: Clock = system_clock,
        *,
        busy_timeout: float = opener.BUSY_TIMEOUT,
        vfs: str | None = None,
    ) -> Journal:
        """An existing journal, migrated to this version. Its cost does not grow with its length.

        Args:
            path: the journal's file; the lock file lies beside it.
            clock: gives both clocks of an entry.
            busy_timeout: seconds that an append waits for another process's lock on the file.
            vfs: name of a registered SQLite VFS, for tests that make storage fail.

        Raises:
            NotFound: no file there.
            JournalBusy: another process writes it; names its pid.
            JournalNewer: written by a newer version; names both.
            JournalCorrupt: its end is not what was written, or was cut off.
            ReadOnlyStorage, DiskFull, StorageFault.
        """
        path = Path(path)
        opener.check_file(path)
        lock = WriterLock(path)
        try:
            return Journal(path, lock, clock, busy_timeout=busy_timeout, vfs=vfs)
        except BaseException:
            lock.release()
            raise

    @property
    def head(self) -> int:
        """The last entry's `seq`; 0 when there is none."""
        return self._written[0]

    @property
    def head_hash(self) -> str:
        return self._written[1]

    @property
    def unsynced(self) -> bool:
        """Whether there are entries that a power cut could still take."""
        return self._synced[0] < self._written[0]

    def append(self, drafts: Sequence[Draft], *, sync: bool) -> list[Entry]:
        """Write these facts as the next entries, in one transaction.

        Raises:
            DiskFull, ReadOnlyStorage, StorageFault, JournalBusy: nothing was written; try again when
                the cause is gone.
            JournalCorrupt: the file is damaged.
            InternalFault: the facts break a law (see the module's docstring); nothing was written.
        """
        return self._transact(lambda: self._write(drafts), sync=sync) if drafts else []

    def rewrite(
        self, edit: Callable[[apsw.Connection], Sequence[Draft]], *, refold: Callable[[], bool]
    ) -> list[Entry]:
        """Change payloads of entries, and write the entries that say so, in one synced transaction.

        Args:
            edit: is called inside the transaction, with the triggers off that keep payloads as they
                are; gives the drafts of what is to be said of it. None: nothing was changed.
            refold: whether all projections are to be computed anew; asked after `edit`, which may have
                changed single rows itself.

        What was there is overwritten in the file, not only unlinked; what the log still holds of it goes
        with `compact`.

        Raises:
            As `append`, and whatever `edit` raises; nothing was changed.
        """

        def write() -> tuple[list[Entry], Projections]:
            with schema.unlocked(self._connection):
                drafts = edit(self._connection)
            entries, change = self._write(drafts)
            if drafts and refold():
                self._refold()
            reach("before-rewrite")
            return entries, change

        self._connection.pragma("secure_delete", True)
        try:
            entries = self._transact(write, sync=True)
        finally:
            self._connection.pragma("secure_delete", False)
        if entries:
            self._store = ProjectionStore(self._connection)  # what it remembered may have been changed
        reach("after-rewrite")
        return entries

    def compact(self) -> None:
        """`vacuum`, then `empty_log`."""
        self.vacuum()
        self.empty_log()

    def vacuum(self) -> None:
        """Write the whole file anew, without what is free in it; the log still has older pages.

        Takes as long as copying the file takes, and as much free space as twice its size.

        Raises:
            DiskFull, StorageFault, JournalBusy: the file is as it was, and as good.
        """
        connection = self._connection
        try:
            connection.pragma("temp_store", "file")  # the copy may not fit into memory
            try:
                connection.execute("VACUUM")
            finally:
                connection.pragma("temp_store", "memory")
        except apsw.Error as error:
            raise faults.from_sqlite(error, self.path, connection.system_errno) from error
        reach("before-truncate")

    def empty_log(self) -> None:
        """Move the log into the file and cut it to nothing.

        Raises:
            DiskFull, StorageFault: the log is as it was.
            JournalBusy: a reader is in the middle of a look: call again.
        """
        connection = self._connection
        connection.set_busy_timeout(_READER_PATIENCE)
        try:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.Error as error:
            raise faults.from_sqlite(error, self.path, connection.system_errno) from error
        finally:
            connection.set_busy_timeout(int(self._busy_timeout * 1000))
        self._log_pages = 0

    def _transact(self, write: Callable[[], tuple[list[Entry], Projections]], *, sync: bool) -> list[Entry]:
        connection = self._connection
        try:
            if sync and self._log_suspect:
                self._pragma_sync = ""
                self._rewrite_log(connection)
            wanted = "FULL" if sync else "NORMAL"
            if wanted != self._pragma_sync:
                connection.execute(f"PRAGMA synchronous = {wanted}")
                self._pragma_sync = wanted
            connection.execute("BEGIN IMMEDIATE")
            entries, change = write()
            if not entries:
                connection.execute("ROLLBACK")
                return []
            self._committing = True
            connection.execute("COMMIT")
        except apsw.Error as error:
            fault = faults.from_sqlite(error, self.path, connection.system_errno)
            self._roll_back(error)
            raise fault from error
        except BaseException:
            self._roll_back(None)
            raise
        finally:
            self._committing = False
        self._store.keep(change)
        last = entries[-1]
        self._written = (last.seq, last.hash)
        if sync:
            self._synced = self._written
        self._lock.record(self._written, self._synced)
        if self._log_pages > _BACKSTOP:
            self._checkpoint(connection)
        return entries

    def _committed(self, _connection: apsw.Connection, _database: str, pages: int) -> int:
        self._log_pages = pages
        return apsw.SQLITE_OK

    def _write(self, drafts: Sequence[Draft]) -> tuple[list[Entry], Projections]:
        at, mono = self._clock()
        seq, prev_hash = self._written
        first = seq + 1
        change = Projections(self._store)
        entries: list[Entry] = []
        rows: list[tuple[object, ...]] = []
        for draft in drafts:
            seq += 1
            entry, payload, digest = _next_entry(draft, seq, at, mono, prev_hash)
            prev_hash = entry.hash
            if type(entry.fact) in MOVES_EXECUTION:
                self._guard(entry, change)
            change.apply(entry)
            entries.append(entry)
            inline: bytes | None = payload
            if len(payload) > INLINE_MAX:
                keep_payload(self._connection, digest, payload)
                inline = None
            rows.append(
                (
                    seq,
                    at,
                    mono,
                    entry.incarnation,
                    entry.principal,
                    entry.kind,
                    entry.execution_id,
                    inline,
                    digest,
                    entry.prev_hash,
                    prev_hash,
                )
            )
        self._connection.executemany(_ENTRY, rows)
        self._store.write(change, first)
        return entries, change

    def _guard(self, entry: Entry, change: Projections) -> None:
        """Refuse what would break a law of executions."""
        fact, execution_id = entry.fact, entry.execution_id
        row = change.execution(execution_id) if execution_id is not None else None
        broken = ""
        if isinstance(fact, ExecutionQueued):
            if row is not None:
                broken = "it was queued before"
            elif fact.key is not None and self._key_known(fact.key, change):
                broken = f"its key {fact.key!r} was used before"
        elif row is None:
            broken = "it was never queued"
        elif isinstance(fact, ExecutionFinished) and row.status == "done":
            broken = f"its outcome is recorded already: {row.outcome}"
        if broken:
            raise InternalFault(
                f"{entry.kind} refused for execution {execution_id}: {broken}",
                hint="this is a bug in kernel-runtime; nothing was written",
                execution_id=execution_id,
                kind=entry.kind,
            )

    def _key_known(self, key: str, change: Projections) -> bool:
        return any(x.key == key for x in change.executions.values()) or (
            fetch_by_key(self._connection, key) is not None
        )

    def _roll_back(self, error: apsw.Error | None) -> None:
        """After a failed append: no open transaction, and no trace of it that recovery would honour."""
        connection = self._connection
        self._pragma_sync = ""
        if isinstance(error, apsw.IOError):
            # Whether the disk has what earlier commits wrote is no longer known. (A write that found no
            # space, FullError, took nothing away.)
            self._suspicions += 1
        with contextlib.suppress(apsw.Error):  # the first error is the one that is told
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if error is not None and self._committing:
                # Perhaps the log holds the whole transaction and only its fsync failed: were we killed
                # now, recovery would find what we are about to report as not written. A commit of one
                # unchanged page takes its place. (On a disk that refuses this too, nothing can.)
                connection.execute("PRAGMA synchronous = NORMAL")
                connection.pragma("user_version", schema.version_of(connection))

    def sync(self) -> None:
        """Make everything written so far durable. Callable from another thread than `append`.

        Raises:
            DiskFull, StorageFault: it is not known to be durable; `unsynced` stays true.
        """
        target = self._written
        try:
            if self._log_suspect:
                connection = opener.open_writer(self.path, vfs=self._vfs)
                try:
                    self._rewrite_log(connection)
                finally:
                    connection.close()
            else:
                os.fdatasync(self._log)
                if self._log_pages > _CHECKPOINT:
                    # its own connection: the writer's may be in use
                    connection = opener.open_writer(self.path, vfs=self._vfs)
                    try:
                        self._checkpoint(connection)
                    finally:
                        connection.close()
        except OSError as error:
            self._suspicions += 1
            raise faults.from_os(error, self.path) from error
        except apsw.Error as error:
            raise faults.from_sqlite(error, self.path) from error
        self._synced = max(self._synced, target)
        self._lock.record(self._written, self._synced)

    def _checkpoint(self, connection: apsw.Connection) -> None:
        """Move what can be moved of the log into the main file; waits for no reader and no writer."""
        self._log_pages = 0  # until the next commit says
        # If it fails (a full disk), the log keeps what it has and the next one tries again.
        with contextlib.suppress(apsw.Error):
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def _rewrite_log(self, connection: apsw.Connection) -> None:
        """Copy the log into the main file and sync that.

        After a failed fsync of the log another one that succeeds proves nothing: the system may have
        dropped what it could not write.
        """
        suspicions = self._suspicions
        connection.pragma("synchronous", "FULL")
        total, done = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_FULL)
        if done < total:
            raise StorageFault(
                f"the journal {self.path} could not be made durable: a reader holds it",
                hint="do the same again",
                path=str(self.path),
            )
        self._cleared = suspicions

    @property
    def _log_suspect(self) -> bool:
        """Whether a write or fsync of the log failed since the log was last copied into the main file."""
        return self._suspicions > self._cleared

    def rebuild(self) -> None:
        """Compute every projection anew from the entries: for a journal that `verify` says differs.

        Raises:
            DiskFull, ReadOnlyStorage, StorageFault, JournalBusy, JournalCorrupt: nothing was changed.
        """
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            store = self._refold()
            connection.execute("COMMIT")
        except apsw.Error as error:
            fault = faults.from_sqlite(error, self.path, connection.system_errno)
            self._roll_back(error)
            raise fault from error
        except BaseException:
            self._roll_back(None)
            raise
        self._store = store

    def _refold(self) -> ProjectionStore:
        """Every projection from the entries, inside a transaction; what the next append goes on from."""
        entries = JournalReader(self.path, self._connection)
        store = ProjectionStore(self._connection)
        store.clear()
        after = 0
        try:
            while batch := entries.entries(after, max_bytes=_REBUILD_BATCH):
                change = Projections(store)
                for entry in batch:
                    change.apply(entry)
                store.write(change, after + 1)
                store.keep(change)
                after = batch[-1].seq
        finally:
            entries.segments.close()
        return store

    def reader(self) -> JournalReader:
        """A reader of this journal, on a connection of its own."""
        return JournalReader.open(self.path)

    def close(self) -> None:
        """Everything durable, the log moved into the main file, the lock free. Closing twice is fine.

        Raises:
            DiskFull, StorageFault: closed, but the last entries are not known to be durable.
        """
        if self._log < 0:
            return
        try:
            if self.unsynced:
                self.sync()
        finally:
            os.close(self._log)
            self._log = -1
            # Moving the log may fail on a full or broken disk; it then stays, and the next open uses it.
            with contextlib.suppress(apsw.Error):
                self._connection.close()
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _open_log(self) -> int:
        """The log's file for `sync`, after making sure that its directory entry is durable."""
        try:
            log = os.open(opener.wal_path(self.path), os.O_RDWR | os.O_CLOEXEC)
            sync_directory(self.path.parent)
        except OSError as error:
            raise faults.from_os(error, self.path) from error
        return log


def _next_entry(draft: Draft, seq: int, at: int, mono: int, prev_hash: str) -> tuple[Entry, bytes, str]:
    fact, payload = facts.prepare(draft.fact)
    kind = type(fact).__name__
    principal = draft.principal
    execution_id = facts.execution_of(fact)
    if not principal.isascii():
        principal = facts.escape_text(principal)
    digest = digest_of(payload)
    made = Entry(
        seq=seq,
        at=at,
        mono=mono,
        incarnation=draft.incarnation,
        principal=principal,
        kind=kind,
        fact=fact,
        execution_id=execution_id,
        prev_hash=prev_hash,
        hash=entry_hash(seq, at, mono, draft.incarnation, principal, kind, execution_id, digest, prev_hash),
    )
    return made, payload, digest


def keep_payload(connection: apsw.Connection, digest: str, payload: bytes) -> None:
    """Keep a large payload beside the entries, unless it is there already."""
    known = connection.execute("SELECT 1 FROM payloads WHERE digest = ?", (digest,)).fetchone()
    if known is None:
        stored = pack(payload)
        connection.execute(
            "INSERT INTO payloads (digest, size, codec, checksum, data) VALUES (?, ?, ?, ?, ?)",
            (digest, stored.size, stored.codec, stored.checksum, stored.data),
        )


def _refuse_existing(path: Path) -> None:
    if path.exists():
        raise SessionExists(
            f"there is a journal at {path} already", hint="open it, or choose another name", path=str(path)
        )


def _build(path: Path, vfs: str | None) -> None:
    """A journal of no entries at `path`: made beside it, durable, then renamed into place."""
    with drafted(path) as new:
        connection = opener.open_new(new, vfs=vfs)
        try:
            schema.migrate(connection)
        except apsw.Error as error:
            raise opener.closing_fault(connection, error, path) from error
        connection.close()
