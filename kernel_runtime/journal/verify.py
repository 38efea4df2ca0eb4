# ruff: noqa: S608 - the only parts put into statements are constants of this package
"""The whole check: chain, payloads, projections, schema, file.

Reads every byte that means something and computes everything again from the entries alone. Damage
is described, with `seq` wherever an entry is concerned, and does not stop the walk: what lies behind
a page that cannot be read is checked too. Nothing is mended. Works beside a living writer, on the
state at the moment it began.

It cannot tell a journal that was rewritten as a whole, hashes included, from the true one, unless
somebody kept an earlier `head_hash`; the writer's lock file keeps one.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
from msgspec import Struct

from kernel_runtime.core.projection import Projections
from kernel_runtime.errors import JournalCorrupt, JournalNewer
from kernel_runtime.journal import lock, schema
from kernel_runtime.journal.cell_rows import CELL_COLUMNS, cell_row
from kernel_runtime.journal.codec import GENESIS, BadPayload, digest_of, entry_hash, unpack
from kernel_runtime.journal.heap_rows import TABLES as HEAP_TABLES
from kernel_runtime.journal.heap_rows import heap_rows_of
from kernel_runtime.journal.reader import ENTRY_COLUMNS, JournalReader, entry_of_row
from kernel_runtime.journal.rows import EXECUTION_COLUMNS, execution_row
from kernel_runtime.model import facts

_MOST = 100
"""problems listed; the rest is counted"""

_PROBE = 10_000
"""entries tried one by one behind a page that cannot be read"""

_PROJECTIONS = {
    "executions": EXECUTION_COLUMNS,
    "cells": CELL_COLUMNS,
    "cell_counts": "incarnation, status, outcome, heap, n",
    "seen": "principal, incarnation, accepted",
    "positions": "incarnation, position",
    **HEAP_TABLES,
}


class Problem(Struct, frozen=True, kw_only=True):
    """One thing that is not as it was written."""

    where: str
    """`file`, `schema`, `entries`, `payloads`, or the name of a projection"""
    what: str
    seq: int | None = None
    """the entry concerned, or the entry whose execution the row is about"""


class VerifyReport(Struct, frozen=True, kw_only=True):
    """What `krt verify` says. `problems` holds the first 100 of `found`."""

    ok: bool
    entries: int
    head: int
    """the last `seq`"""
    head_hash: str
    projections: str
    """`match`, `differ`, or `unknown` where entries could not be read to compute them"""
    problems: list[Problem] = []
    found: int = 0


def verify(path: Path | str) -> VerifyReport:
    """Check a journal from its first entry to its last.

    Raises:
        NotFound: no file there.
        JournalNewer: written by a newer version, so its meaning is not known here.
        JournalBusy, StorageFault: it cannot be read at the moment.
    """
    path = Path(path)
    check = _Check(path)
    marks = lock.marks_of(path)  # before the journal: a writer moves them after its commit
    try:
        reader = JournalReader.open(path)
    except JournalCorrupt as error:
        check.report("file", error.message)
        return check.conclude()
    with reader:
        check.run(reader.connection, marks)
    return check.conclude()


class _Check:
    """One run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[Problem] = []
        self.found = 0
        self.entries = 0
        self.head: lock.Mark = (0, GENESIS)
        self.folded = Projections()
        self.complete = True
        """whether every entry could be folded"""
        self.compared = False
        self.payloads: set[str] = set()
        """digests of payloads kept outside their entries that were checked and are well"""

    def report(self, where: str, what: str, seq: int | None = None) -> None:
        self.found += 1
        if len(self.problems) < _MOST:
            self.problems.append(Problem(where=where, what=what, seq=seq))

    def conclude(self) -> VerifyReport:
        projections = {p.where for p in self.problems} & set(_PROJECTIONS)
        known = self.complete and self.compared
        return VerifyReport(
            ok=self.found == 0,
            entries=self.entries,
            head=self.head[0],
            head_hash=self.head[1],
            projections="unknown" if not known else "differ" if projections else "match",
            problems=self.problems,
            found=self.found,
        )

    def run(self, connection: apsw.Connection, marks: Sequence[lock.Mark]) -> None:
        steps = (
            ("file", lambda: connection.execute("BEGIN")),  # one state for all that follows
            ("schema", lambda: self._schema(connection)),
            ("entries", lambda: self._walk(connection, dict(marks))),
            ("payloads", lambda: self._unreferenced(connection)),
            ("projections", lambda: self._compare(connection)),
            ("file", lambda: self._integrity(connection)),
        )
        for where, step in steps:
            try:
                step()
            except apsw.Error as error:
                self.report(where, f"cannot be read: {error}")
                self.complete = self.complete and where != "entries"

    def _schema(self, connection: apsw.Connection) -> None:
        wanted, there = schema.declared(), schema.objects(connection)
        for kind, name in sorted(wanted.keys() | there.keys()):
            if (kind, name) not in there:
                self.report("schema", f"{kind} {name} is missing")
            elif (kind, name) not in wanted:
                self.report("schema", f"{kind} {name} is not ours")
            elif wanted[kind, name] != there[kind, name]:
                self.report("schema", f"{kind} {name} was changed")

    def _walk(self, connection: apsw.Connection, marks: dict[int, str]) -> None:
        for row in self._rows(connection):
            seq = row[0]
            self.entries += 1
            if seq != self.head[0] + 1:
                self.report("entries", f"entries {self.head[0] + 1} to {seq - 1} are not there", seq)
                self.complete = False
            hashed = self._entry(connection, row)
            if seq in marks and hashed != marks.pop(seq):
                self.report("entries", "another entry than was acknowledged here (see the lock file)", seq)
            self.head = (seq, hashed)
        for seq in marks:
            self.report("entries", f"acknowledged, but the journal ends at {self.head[0]}", seq)

    def _rows(self, connection: apsw.Connection) -> Iterator[Sequence[Any]]:
        query = f"SELECT {_as_bytes(ENTRY_COLUMNS)} FROM entries WHERE seq > ? ORDER BY seq"
        after, tries = 0, 0
        while True:
            try:
                for row in connection.execute(query, (after,)):
                    after, tries = row[0], 0
                    yield row
            except apsw.Error as error:
                self.complete = False
                if tries == 0:
                    self.report("entries", f"cannot be read: {error}", after + 1)
                # Step over the page: each try seeks behind one entry more.
                after, tries = after + 1, tries + 1
                if tries >= _PROBE:
                    return
            else:
                return

    def _entry(self, connection: apsw.Connection, row: Sequence[Any]) -> str:
        """Check one row and fold it; its hash as it stands there."""
        seq, at, mono, incarnation, *_ = row
        text: dict[str, Any] = {}
        for name, value in zip(ENTRY_COLUMNS.split(", "), row, strict=True):
            if name in ("principal", "kind", "execution_id", "digest", "prev_hash", "hash"):
                text[name] = self._text(value, name, seq)
        if text["prev_hash"] != self.head[1]:
            self.report("entries", f"prev_hash is not the hash of entry {self.head[0]}", seq)
        hashed = entry_hash(
            seq,
            at,
            mono,
            incarnation,
            text["principal"],
            text["kind"],
            text["execution_id"],
            text["digest"],
            text["prev_hash"],
        )
        if hashed != text["hash"]:
            self.report("entries", "hash does not fit: a column was changed", seq)
        payload = self._payload(connection, row[7], text["digest"], seq)
        if payload is None:
            self.complete = False
        else:
            self._fold((*row[:4], *list(text.values())[:3], None, *list(text.values())[3:]), payload)
        return str(text["hash"])

    def _fold(self, row: Sequence[Any], payload: bytes) -> None:
        seq = row[0]
        try:
            entry = entry_of_row(row, payload, self.path)
        except (JournalCorrupt, JournalNewer) as error:
            self.report("entries", error.message, seq)
            self.complete = False
            return
        if entry.execution_id != facts.execution_of(entry.fact):
            self.report("entries", "execution_id is not the one in the payload", seq)
        self.folded.apply(entry)

    def _payload(
        self, connection: apsw.Connection, inline: bytes | None, digest: str, seq: int
    ) -> bytes | None:
        if inline is not None:
            if digest_of(inline) != digest:
                self.report("entries", "payload does not fit its digest", seq)
                return None
            return inline
        try:
            row = connection.execute(
                "SELECT size, CAST(codec AS BLOB), checksum, data FROM payloads WHERE digest = ?", (digest,)
            ).fetchone()
            if row is None:
                self.report("payloads", f"payload {digest} is missing", seq)
                return None
            size, codec, checksum, data = row
            payload = unpack(size, codec.decode("utf-8", "backslashreplace"), data)
        except (apsw.Error, BadPayload, MemoryError, OverflowError) as error:
            self.report("payloads", f"payload {digest} cannot be read: {error}", seq)
            return None
        if zlib.crc32(data) != checksum:
            self.report("payloads", f"payload {digest} does not fit its checksum", seq)
        if digest_of(payload) != digest:
            self.report("payloads", f"payload {digest} is not what was written", seq)
            return None
        self.payloads.add(digest)
        return payload

    def _unreferenced(self, connection: apsw.Connection) -> None:
        if not self.complete:
            return  # the entry that needs it may be one that could not be read
        for (raw,) in connection.execute("SELECT CAST(digest AS BLOB) FROM payloads"):
            digest = raw.decode("utf-8", "backslashreplace")
            if digest not in self.payloads:
                self.report("payloads", f"payload {digest} belongs to no entry")

    def _text(self, value: bytes | None, name: str, seq: int) -> str | None:
        if value is None:
            return None
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            self.report("entries", f"{name} is not UTF-8", seq)
            return value.decode("utf-8", "backslashreplace")

    def _compare(self, connection: apsw.Connection) -> None:
        if not self.complete:
            return  # computed from a part, they would differ for that reason alone
        for table, columns in _PROJECTIONS.items():
            there = Counter(connection.execute(f"SELECT {_as_bytes(columns)} FROM {table}"))
            wanted = Counter(_bytes_of(row) for row in self._expected(table))
            for row in wanted - there:
                self.report(
                    table, f"differs from the entries: should hold {_told(columns, row)}", _seq(table, row)
                )
            for row in there - wanted:
                self.report(table, f"differs from the entries: holds {_told(columns, row)}", _seq(table, row))
        self.compared = True

    def _expected(self, table: str) -> Iterable[Sequence[Any]]:
        folded = self.folded
        match table:
            case "executions":
                return map(execution_row, folded.executions.values())
            case "cells":
                return map(cell_row, folded.cells.values())
            case "cell_counts":
                return ((i, s, o or "", heap, n) for (i, s, o, heap), n in folded.counts.items() if n)
            case "seen":
                return ((seen.principal, seen.incarnation, seen.accepted) for seen in folded.seen.values())
            case "positions":
                return folded.positions.items()
            case _:
                return heap_rows_of(folded.heap, table)

    def _integrity(self, connection: apsw.Connection) -> None:
        for (line,) in connection.execute(f"PRAGMA integrity_check({_MOST})"):
            if line != "ok":
                self.report("file", f"SQLite: {line}")


def _as_bytes(columns: str) -> str:
    """Text columns as bytes, so that damaged text is compared and not decoded; others as they are."""
    return ", ".join(
        f"CASE typeof({name}) WHEN 'text' THEN CAST({name} AS BLOB) ELSE {name} END"
        for name in columns.split(", ")
    )


def _bytes_of(row: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(value.encode("utf-8") if isinstance(value, str) else value for value in row)


def _told(columns: str, row: Sequence[Any]) -> str:
    pairs = zip(columns.split(", "), row, strict=True)
    return ", ".join(
        f"{name}={value.decode('utf-8', 'backslashreplace') if isinstance(value, bytes) else value}"
        for name, value in pairs
        if value is not None
    )


def _seq(table: str, row: Sequence[Any]) -> int | None:
    place = {"executions": 0, "cells": 1, "names": 8, "heaps": 1, "observations": 3}.get(table)
    return None if place is None or type(row[place]) is not int else row[place]
