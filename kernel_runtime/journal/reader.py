"""Reading a journal: entries after a cursor, and the projections kept beside them.

Any number of readers in any process, while the writer writes. No call holds a transaction after it
returned, so a reader neither blocks the writer nor keeps its log from starting anew. What a client
reads on attach (`head`, `latest`, `seen`, `cell_counts`, `worst_cells`, `position`) costs the same
in a long journal as in a short one.

It trusts what it reads: `verify` is what checks.
"""

# ruff: noqa: S608 - the only parts put into statements are constants of this package
from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar, cast

import apsw
import msgspec

from kernel_runtime.core.names import sharing
from kernel_runtime.errors import JournalNewer, NoSuchExecution
from kernel_runtime.journal import connection as opener
from kernel_runtime.journal import faults, schema
from kernel_runtime.journal.cell_rows import CELL_COLUMNS, cell_of_row
from kernel_runtime.journal.codec import GENESIS, digest_of, entry_hash
from kernel_runtime.journal.heap_rows import (
    NAME_COLUMNS,
    NAME_COUNT_COLUMNS,
    OBSERVATION_COLUMNS,
    fetch_heap,
    fetch_name,
    name_of_row,
    observation_of_row,
)
from kernel_runtime.journal.lock import Mark
from kernel_runtime.journal.rows import (
    EXECUTION_COLUMNS,
    QUEUED_SEQ,
    execution_of_row,
    fetch_by_key,
    fetch_execution,
)
from kernel_runtime.journal.segments import ENTRY_COLUMNS, Segments, kept
from kernel_runtime.model import facts
from kernel_runtime.model.entry import Entry
from kernel_runtime.model.execution import Cell, Execution, Heap, Name, Observation, Seen
from kernel_runtime.model.facts import ExecutionQueued

_SEVERITY = ("unknown", "died", "interrupted", "error", "stale", "aborted", "", "ok")
"""outcomes worst first; the empty one has none yet, and `stale` is what an `ok` became"""

_CELLS_OF_STATE = (
    f"SELECT {CELL_COLUMNS} FROM cells WHERE incarnation = ? AND status = ? AND outcome IS ? AND heap = ? "
    "ORDER BY position LIMIT ?"
)

_BATCH = 1000
_BATCH_BYTES = 4 << 20

_State = tuple[bool, str, str, str | None, int]
"""`(of an earlier incarnation, status, outcome, heap where it decides, incarnation)`"""

_T = TypeVar("_T")


class JournalReader:
    """A read-only view of a journal. One thread at a time."""

    def __init__(self, path: Path, connection: apsw.Connection) -> None:
        """Use `open`."""
        self.path = path
        self._connection = connection
        self.segments = Segments(connection, path)
        """where archived payloads are"""

    @staticmethod
    def open(path: Path | str, *, busy_timeout: float = opener.BUSY_TIMEOUT) -> JournalReader:
        """A reader of the journal at `path`.

        Works beside a living writer, after one that died, and in a read-only directory. A journal
        of an older version with other tables is read through a migrated copy in a temporary file, as it
        is at this moment.

        Raises:
            NotFound: no file there.
            JournalNewer: written by a newer version; names both.
            JournalCorrupt, JournalBusy, StorageFault.
        """
        path = Path(path)
        connection = opener.open_reader(path, busy_timeout=busy_timeout)
        try:
            if not schema.reads_as_it_is(schema.check(connection, path)):
                connection = _migrated_copy(connection)
        except apsw.Error as error:
            raise opener.closing_fault(connection, error, path) from error
        except BaseException:
            connection.close()
            raise
        return JournalReader(path, connection)

    @property
    def connection(self) -> apsw.Connection:
        """The read-only connection, for `verify`."""
        return self._connection

    def close(self) -> None:
        self.segments.close()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def head(self) -> int:
        """The last entry's `seq`; 0 when there is none."""
        return cast("int", self._one("SELECT coalesce(max(seq), 0) FROM entries")[0])

    def entries(
        self,
        after: int = 0,
        *,
        limit: int = 1000,
        execution_id: str | None = None,
        kinds: Iterable[str] | None = None,
        last: int | None = None,
        max_bytes: int | None = None,
    ) -> list[Entry]:
        """Entries with `seq > after`, in order.

        Args:
            after: a cursor: the last `seq` seen.
            limit: at most that many.
            execution_id: only those of this execution.
            kinds: only those of these kinds.
            last: instead of the first `limit`, the last that many (still in order).
            max_bytes: stop after that many bytes of payloads, though never before one entry.

        Raises:
            JournalNewer: an entry of a kind that this version does not know.
            JournalCorrupt, JournalBusy, StorageFault.
        """
        return self._guarded(
            lambda: self._entries(after, limit, execution_id, kinds, last=last, max_bytes=max_bytes)
        )

    def _entries(
        self,
        after: int,
        limit: int,
        execution_id: str | None,
        kinds: Iterable[str] | None,
        *,
        last: int | None,
        max_bytes: int | None,
    ) -> list[Entry]:
        order, count = ("ASC", limit) if last is None else ("DESC", last)
        wanted = None if kinds is None else list(dict.fromkeys(kinds))
        values: list[object]
        if execution_id is not None:
            where, values = "execution_id = ? AND seq > ?", [execution_id, after]
            if wanted is not None:
                # `+`: few entries have this execution, many have this kind
                where += f" AND +kind IN ({', '.join('?' * len(wanted))})"
                values += wanted
        elif wanted is not None:
            # each kind by its index, so that a rare kind does not walk the whole journal
            parts = [_seqs_of_kind(kind, order) for kind in wanted]
            where = f"seq IN ({' UNION ALL '.join(parts) or 'SELECT 0'})"
            values = [value for kind in wanted for value in (kind, after, count)]
        else:
            where, values = "seq > ?", [after]
        query = f"SELECT {ENTRY_COLUMNS} FROM entries WHERE {where} ORDER BY seq {order} LIMIT ?"
        found: list[Entry] = []
        size = 0
        for row in self._connection.execute(query, (*values, count)):
            payload = self.payload_of(row)
            found.append(entry_of_row(row, payload, self.path))
            size += len(payload)
            if max_bytes is not None and size >= max_bytes:
                break
        return found if last is None else found[::-1]

    def payload_of(self, row: Sequence[Any]) -> bytes:
        """The JSON of an entry, wherever it is kept; `row` has the values of ENTRY_COLUMNS.

        Raises:
            JournalCorrupt: it is not there, or cannot be unpacked.
            StorageFault: it is in a segment that is not there.
        """
        seq, inline, digest = row[0], row[7], row[8]
        if inline is not None:
            return cast("bytes", inline)
        payload = kept(self._connection, seq, digest, self.path)
        return self.segments.payload(seq) if payload is None else payload

    def rows(self, after: int = 0) -> Iterator[tuple[Sequence[Any], bytes]]:
        """Every entry with `seq > after` as it is stored: the values of ENTRY_COLUMNS, and its payload.

        Columns are not checked, and a payload may be a redacted one: then it does not fit its digest. One
        batch is in memory at a time; entries that come meanwhile are told too.

        Raises:
            JournalCorrupt, JournalBusy, StorageFault: also between two entries.
        """
        while batch := self._guarded(lambda after=after: self._rows(after)):  # type: ignore[misc]
            yield from batch
            after = batch[-1][0][0]

    def _rows(self, after: int) -> list[tuple[Sequence[Any], bytes]]:
        query = f"SELECT {ENTRY_COLUMNS} FROM entries WHERE seq > ? ORDER BY seq"
        found: list[tuple[Sequence[Any], bytes]] = []
        size = 0
        for row in self._connection.execute(query, (after,)):
            payload = self.payload_of(row)
            found.append((row, payload))
            size += len(payload)
            if size >= _BATCH_BYTES or len(found) >= _BATCH:
                break
        return found

    def latest(self, kind: str) -> Entry | None:
        """The last entry of a kind."""
        found = self.entries(kinds=(kind,), last=1)
        return found[0] if found else None

    def execution(self, execution_id: str) -> Execution | None:
        return self._guarded(lambda: fetch_execution(self._connection, execution_id))

    def by_key(self, key: str) -> Execution | None:
        """The execution queued under an idempotency key."""
        return self._guarded(lambda: fetch_by_key(self._connection, facts.escape_text(key)))

    def executions(
        self, *, cell_id: str | None = None, status: str | None = None, last: int | None = None
    ) -> list[Execution]:
        """Executions in queue order; with `last`, only the last that many."""
        conditions, values = ["1"], list[object]()
        if cell_id is not None:
            conditions.append("cell_id = ?")
            values.append(cell_id)
        if status is not None:
            # the second term lets the planner use the index of those that are alive
            conditions.append("status = ?" if status == "done" else "status = ? AND status <> 'done'")
            values.append(status)
        query = (
            f"SELECT {EXECUTION_COLUMNS} FROM executions WHERE {' AND '.join(conditions)} "
            "ORDER BY queued_seq DESC LIMIT ?"
        )
        rows = self._all(query, (*values, -1 if last is None else last))
        return [execution_of_row(row) for row in reversed(rows)]

    def source(self, execution_id: str) -> str:
        """The source that ran, lone surrogates escaped.

        Raises:
            NoSuchExecution: none of that id.
        """
        return self._guarded(lambda: self._source(execution_id))

    def _source(self, execution_id: str) -> str:
        row = self._connection.execute(QUEUED_SEQ, (execution_id,)).fetchone()
        if row is None:
            raise NoSuchExecution(
                f"no execution {execution_id} in {self.path}",
                hint="`krt log` lists what was executed",
                execution_id=execution_id,
            )
        return self._queued(row[0]).source

    def _queued(self, seq: int) -> ExecutionQueued:
        row = self._connection.execute(
            f"SELECT {ENTRY_COLUMNS} FROM entries WHERE seq = ?", (seq,)
        ).fetchone()
        if row is not None:
            fact = entry_of_row(row, self.payload_of(row), self.path).fact
            if isinstance(fact, ExecutionQueued):
                return fact
        raise faults.corrupt(self.path, f"entry {seq} should be an ExecutionQueued", seq=seq)

    def cells(self) -> list[Cell]:
        """All cells, in notebook order."""
        return [cell_of_row(row) for row in self._all(f"SELECT {CELL_COLUMNS} FROM cells ORDER BY position")]

    def cell_counts(self) -> list[tuple[int, str, str | None, int]]:
        """`(incarnation, status, outcome, number of cells)` of each state that a cell is in."""
        rows = self._all(
            "SELECT incarnation, status, outcome, sum(n) FROM cell_counts GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
        )
        return [(incarnation, status, outcome or None, n) for incarnation, status, outcome, n in rows]

    def heap_counts(self) -> list[tuple[int, str, str | None, str, int]]:
        """`cell_counts` told apart by `Cell.heap`: `(incarnation, status, outcome, heap, n)`."""
        rows = self._all(
            "SELECT incarnation, status, outcome, heap, n FROM cell_counts "
            "ORDER BY incarnation, status, outcome, heap"
        )
        return [(number, status, outcome or None, heap, n) for number, status, outcome, heap, n in rows]

    def worst_cells(self, limit: int, incarnation: int, *, own: bool = False) -> list[Cell]:
        """At most `limit` cells that are not well in this incarnation, the worst first.

        First those of earlier incarnations, whose heap is gone, then by outcome: unknown, died,
        interrupted, error, stale by its names, aborted, none yet. Within that in notebook order.
        Superseded cells are well. `own`: the kernel tells of names, so a cell of which it has not is
        not known to be well.
        """
        well = ("live", "superseded") if own else ("live", "superseded", "")
        groups: dict[_State, list[str]] = {}
        for number, status, outcome, heap, _n in self.heap_counts():
            this_ok = (number, status, outcome) == (incarnation, "done", "ok")
            if this_ok and heap in well:
                continue
            state = (number != incarnation, status, outcome or "", heap if this_ok else None, number)
            groups.setdefault(state, []).append(heap)
        found: list[Cell] = []
        for state in sorted(groups, key=_badness):
            left = limit - len(found)
            if left <= 0:
                break
            _earlier, status, outcome, _heap, number = state
            # each part by the index; together they are in the notebook's order again
            parts = [
                self._all(_CELLS_OF_STATE, (number, status, outcome or None, heap, left))
                for heap in groups[state]
            ]
            cells = sorted((cell_of_row(row) for part in parts for row in part), key=lambda c: c.position)
            found += cells[:left]
        return found

    def names(self) -> list[Name]:
        """Every name that is there, or was in an earlier incarnation, by name; with what they share."""
        rows = self._all(f"SELECT {NAME_COLUMNS} FROM names WHERE present = 1 ORDER BY name")
        return sharing(map(name_of_row, rows), self._last_heap())

    def all_names(self) -> list[Name]:
        """`names`, and those that were deleted."""
        return [name_of_row(row) for row in self._all(f"SELECT {NAME_COLUMNS} FROM names ORDER BY name")]

    def name(self, name: str) -> Name | None:
        """One name, also when it was deleted (`present` is false)."""
        row = self._guarded(lambda: fetch_name(self._connection, facts.escape_text(name)))
        return None if row is None else sharing([row], self.heap(row.incarnation))[0]

    def name_counts(self) -> list[tuple[int, str, int]]:
        """`(incarnation, state, n)`: names that are there; the state is `live`, `drifted`, `unreadable`."""
        rows = self._all(f"SELECT {NAME_COUNT_COLUMNS} FROM name_counts ORDER BY incarnation, state")
        return [(incarnation, state, n) for incarnation, state, n in rows]

    def heap(self, incarnation: int) -> Heap | None:
        """What is known of an incarnation's names as a whole; None before its first observation."""
        return self._guarded(lambda: fetch_heap(self._connection, incarnation))

    def _last_heap(self) -> Heap | None:
        (last,) = self._one("SELECT max(incarnation) FROM heaps")
        return None if last is None else self.heap(last)

    def observations(self, cell_ids: Iterable[str] | None = None) -> dict[str, Observation]:
        """What the probe told of each cell's latest execution; of these cells only, if given."""
        query = f"SELECT {OBSERVATION_COLUMNS} FROM observations"
        if cell_ids is None:
            rows = self._all(query)
        else:
            rows = [
                row for cell_id in cell_ids for row in self._all(f"{query} WHERE cell_id = ?", (cell_id,))
            ]
        return {row[0]: observation_of_row(row) for row in rows}

    def count_executions(self) -> int:
        """How many executions there are. Walks an index: ask once and count on."""
        return cast("int", self._one("SELECT count(*) FROM executions")[0])

    def seen(self) -> dict[str, Seen]:
        """What each principal knows of the heap."""
        rows = self._all("SELECT principal, incarnation, accepted FROM seen")
        return {row[0]: Seen(principal=row[0], incarnation=row[1], accepted=row[2]) for row in rows}

    def position(self, incarnation: int) -> int | None:
        """How far that incarnation's outbox has been recorded; None when nothing was."""
        rows = self._all("SELECT position FROM positions WHERE incarnation = ?", (incarnation,))
        return cast("int", rows[0][0]) if rows else None

    def history(
        self,
        *,
        n: int | None = None,
        raw: bool = True,
        pattern: str | None = None,
        unique: bool = False,
    ) -> list[tuple[int, int, str]]:
        """`(incarnation, execution_count, source)` of what ran with `store_history` and not `silent`.

        Oldest first. `n`: the last that many. `pattern`: a glob over the whole source, as Jupyter's
        history search has it. `unique`: of equal sources only the last. `raw` makes no difference:
        what was typed is what is kept.
        """
        return self._guarded(lambda: self._history(n, pattern, unique=unique))

    def _history(self, n: int | None, pattern: str | None, *, unique: bool) -> list[tuple[int, int, str]]:
        rows = self._connection.execute(
            "SELECT queued_seq, incarnation, execution_count FROM executions "
            "WHERE execution_count IS NOT NULL ORDER BY queued_seq DESC"
        )
        found: list[tuple[int, int, str]] = []
        known: set[str] = set()
        for seq, incarnation, count in rows:
            if n is not None and len(found) >= n:
                break
            fact = self._queued(seq)
            if fact.silent or not fact.store_history:
                continue
            if pattern is not None and not fnmatch.fnmatchcase(fact.source, pattern):
                continue
            if unique and fact.source in known:
                continue
            known.add(fact.source)
            found.append((incarnation, count, fact.source))
        return found[::-1]

    def _all(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        return self._guarded(lambda: self._connection.execute(query, values).fetchall())

    def _one(self, query: str) -> Any:
        return self._all(query)[0]

    def _guarded(self, read: Callable[[], _T]) -> _T:
        try:
            return read()
        except apsw.Error as error:
            raise faults.from_sqlite(error, self.path, self._connection.system_errno) from error


def _seqs_of_kind(kind: str, order: str) -> str:
    """A query for `(kind, after, count)`."""
    by_index = "" if kind in schema.FREQUENT else f"AND {schema.RARE} "
    one = f"SELECT seq FROM entries WHERE kind = ? {by_index}AND seq > ? ORDER BY seq {order} LIMIT ?"
    return f"SELECT seq FROM ({one})"


def _badness(state: _State) -> tuple[bool, int, int, str]:
    earlier, _status, outcome, heap, number = state
    last = not earlier or outcome in ("", "aborted")
    told = outcome if heap is None else heap or "unknown"
    return last, _SEVERITY.index(told) if told in _SEVERITY else 0, number, heap or ""


def entry_of_row(row: Sequence[Any], payload: bytes, path: Path) -> Entry:
    """An entry from the values of ENTRY_COLUMNS and its payload.

    Raises:
        JournalNewer: a kind that this version does not know.
        JournalCorrupt: the payload is not of its kind.
    """
    seq, kind = row[0], row[5]
    try:
        fact = facts.decode(kind, payload)
    except KeyError:
        raise JournalNewer(
            f"entry {seq} of {path} is a {kind}, which this kernel-runtime does not know",
            hint="upgrade kernel-runtime (`pip install -U kernel-runtime`)",
            path=str(path),
            seq=seq,
            kind=kind,
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise faults.corrupt(path, f"entry {seq} is not a {kind}: {error}", seq=seq) from error
    return Entry(
        seq=seq,
        at=row[1],
        mono=row[2],
        incarnation=row[3],
        principal=row[4],
        kind=kind,
        fact=fact,
        execution_id=row[6],
        prev_hash=row[9],
        hash=row[10],
    )


def check_end(connection: apsw.Connection, path: Path, marks: Sequence[Mark]) -> Mark:
    """The last entry's `(seq, hash)`, after checking it and that the journal reaches every mark.

    Raises:
        JournalCorrupt: says which entry is wrong, or which acknowledged ones are missing.
    """
    query = f"SELECT {ENTRY_COLUMNS} FROM entries ORDER BY seq DESC LIMIT 2"
    rows: list[Any] = connection.execute(query).fetchall()
    head: Mark = (rows[0][0], rows[0][10]) if rows else (0, GENESIS)
    if rows:
        seq, at, mono, incarnation, principal, kind, execution_id, _inline, digest, prev_hash, hashed = rows[
            0
        ]
        if digest_of(JournalReader(path, connection).payload_of(rows[0])) != digest:
            raise faults.corrupt(path, f"entry {seq} has another payload than was written", seq=seq)
        if prev_hash != (rows[1][10] if len(rows) > 1 else GENESIS):
            raise faults.corrupt(path, f"entry {seq} does not follow the one before it", seq=seq)
        if hashed != entry_hash(seq, at, mono, incarnation, principal, kind, execution_id, digest, prev_hash):
            raise faults.corrupt(path, f"entry {seq} is not what was written", seq=seq)
    for seq, hashed in marks:
        if seq > head[0]:
            missing = f"{head[0] + 1}" if seq == head[0] + 1 else f"{head[0] + 1} to {seq}"
            raise faults.corrupt(
                path,
                f"it ends at entry {head[0]}, but {missing} had been acknowledged",
                hint="its log (-wal) was cut or removed, or an older copy was put in its place: put the "
                "newest copy back, with its -wal; to go on from this one on purpose, remove "
                f"{path.with_suffix('.lock')}",
                head=head[0],
                acknowledged=seq,
            )
        row = connection.execute("SELECT hash FROM entries WHERE seq = ?", (seq,)).fetchone()
        if row is None or row[0] != hashed:
            raise faults.corrupt(
                path,
                f"entry {seq} is another one than was acknowledged here",
                hint="another copy was put in its place: put the right one back; to go on from this one on "
                f"purpose, remove {path.with_suffix('.lock')}",
                seq=seq,
            )
    return head


def _migrated_copy(old: apsw.Connection) -> apsw.Connection:
    copy = opener.open_scratch()
    with copy.backup("main", old, "main") as backup:
        backup.step()
    old.close()
    schema.migrate(copy)
    return copy
