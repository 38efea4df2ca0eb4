"""What a journal's entries amount to, computed anew into a temporary database, and compared with its tables.

The rows are written by the code with which the writer writes them (`ProjectionStore`), so there is one
implementation; and they are on a temporary disk, so memory does not grow with the journal.
"""

# ruff: noqa: S608 - the only parts put into statements are constants of this package
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

import apsw

from kernel_runtime.core.projection import Projections
from kernel_runtime.journal import connection as opener
from kernel_runtime.journal import schema
from kernel_runtime.journal.cell_rows import CELL_COLUMNS
from kernel_runtime.journal.heap_rows import TABLES as HEAP_TABLES
from kernel_runtime.journal.rows import EXECUTION_COLUMNS, ProjectionStore
from kernel_runtime.model.entry import Entry
from kernel_runtime.model.facts import ExecutionQueued

PROJECTIONS = {
    "executions": EXECUTION_COLUMNS,
    "cells": CELL_COLUMNS,
    "cell_counts": "incarnation, status, outcome, heap, n",
    "seen": "principal, incarnation, accepted",
    "positions": "incarnation, position",
    **HEAP_TABLES,
}
"""table → its columns"""

_BATCH = 2000
"""entries folded in memory before their rows are written"""

# What the store asks of the log: where an execution began.
_BEGINNINGS = """
DROP TABLE entries;
CREATE TABLE entries (seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, execution_id TEXT);
CREATE INDEX entries_by_execution ON entries (execution_id, seq);
CREATE TABLE checked (digest TEXT PRIMARY KEY) WITHOUT ROWID;
"""


class Refolded:
    """A fold of entries in their order. One thread."""

    def __init__(self) -> None:
        self._connection = opener.open_scratch()
        schema.migrate(self._connection)
        self._connection.execute(_BEGINNINGS)
        self._connection.execute("BEGIN")
        self._store = ProjectionStore(self._connection)
        self._change: Projections | None = None
        self._first = 0
        self._taken = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._connection.close()

    def take(self, entry: Entry) -> None:
        """Fold the next entry."""
        if self._change is None:
            self._change = Projections(self._store)
            self._first = entry.seq
        if type(entry.fact) is ExecutionQueued:
            values = (entry.seq, entry.kind, entry.execution_id)
            self._connection.execute("INSERT INTO entries VALUES (?, ?, ?)", values)
        self._change.apply(entry)
        self._taken += 1
        if self._taken % _BATCH == 0:
            self._write()

    def note(self, digest: str) -> None:
        """A large payload was checked and is well."""
        self._connection.execute("INSERT OR IGNORE INTO checked VALUES (?)", (digest,))

    def noted(self, digest: str) -> bool:
        found = self._connection.execute("SELECT 1 FROM checked WHERE digest = ?", (digest,)).fetchone()
        return found is not None

    def differences(self, journal: apsw.Connection, table: str) -> Iterator[tuple[bool, Sequence[Any]]]:
        """`(wanted, row)` of every row that only one side has: should be there, or should not.

        Texts are bytes, so that damaged ones are compared too.
        """
        self._write()
        columns = as_bytes(PROJECTIONS[table])
        names = PROJECTIONS[table].split(", ")
        there, mine = f"there_{table}", f"SELECT {columns} FROM {table}"
        self._connection.execute(f"CREATE TABLE {there} ({', '.join(names)})")
        marks = ", ".join("?" * len(names))
        self._connection.executemany(f"INSERT INTO {there} VALUES ({marks})", journal.execute(mine))
        theirs = f"SELECT * FROM {there}"
        for row in self._connection.execute(f"{mine} EXCEPT {theirs}"):
            yield True, row
        for row in self._connection.execute(f"{theirs} EXCEPT {mine}"):
            yield False, row
        self._connection.execute(f"DROP TABLE {there}")

    def _write(self) -> None:
        change, self._change = self._change, None
        if change is not None:
            self._store.write(change, self._first)
            self._store.keep(change)


def as_bytes(columns: str) -> str:
    """Text columns as bytes, so that damaged text is compared and not decoded; others as they are."""
    return ", ".join(
        f"CASE typeof({name}) WHEN 'text' THEN CAST({name} AS BLOB) ELSE {name} END"
        for name in columns.split(", ")
    )
