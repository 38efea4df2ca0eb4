"""Rows of the tables of names and what hangs on them, and the writer's side of them.

`HeapStore` is what core.heap folds new entries on top of. What moves with every execution (names,
heaps) is kept in memory as well, once its transaction is on file; the rest is read where it is needed.
"""

# ruff: noqa: S608 - the only parts put into statements are constants of this package
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import apsw
import msgspec

from kernel_runtime.core.heap import HeapFold
from kernel_runtime.journal.cell_rows import CELL_COLUMNS, cell_of_row
from kernel_runtime.model.execution import Cell, Heap, Name, Observation

NAME_COLUMNS = (
    "name, incarnation, present, type, bytes, digest, why, token, changed_seq, bound_by, bound_in, "
    "changed_by, drifted, unbound, shaky"
)
HEAP_COLUMNS = "incarnation, seq, changed_seq, blind_seq, groups, unfollowed, volatile, awaited"
OBSERVATION_COLUMNS = "cell_id, execution_id, incarnation, seq, bound, mutated, reads, dynamic"
READ_COLUMNS = "incarnation, name, token, cell_id"
NAME_COUNT_COLUMNS = "incarnation, state, n"

TABLES = {
    "names": NAME_COLUMNS,
    "name_counts": NAME_COUNT_COLUMNS,
    "heaps": HEAP_COLUMNS,
    "observations": OBSERVATION_COLUMNS,
    "reads": READ_COLUMNS,
}
"""table → its columns"""


def _upsert(table: str, columns: str) -> str:
    names = columns.split(", ")
    moving = ", ".join(f"{name} = excluded.{name}" for name in names[1:])
    return (
        f"INSERT INTO {table} ({columns}) VALUES ({', '.join('?' * len(names))}) "
        f"ON CONFLICT ({names[0]}) DO UPDATE SET {moving}"
    )


_NAME = _upsert("names", NAME_COLUMNS)
_HEAP = _upsert("heaps", HEAP_COLUMNS)
_OBSERVATION = _upsert("observations", OBSERVATION_COLUMNS)
_NO_OBSERVATION = "DELETE FROM observations WHERE cell_id = ?"
_READ = "INSERT OR IGNORE INTO reads VALUES (?, ?, ?, ?)"
_NO_READ = "DELETE FROM reads WHERE incarnation = ? AND name = ? AND token = ? AND cell_id = ?"
_COUNT = (
    "INSERT INTO name_counts VALUES (?, ?, ?) "
    "ON CONFLICT (incarnation, state) DO UPDATE SET n = n + excluded.n"
)
_DROP_COUNT = "DELETE FROM name_counts WHERE incarnation = ? AND state = ? AND n = 0"

_CELLS = ", ".join(f"cells.{name}" for name in CELL_COLUMNS.split(", "))
_READERS = (
    f"SELECT reads.token, {_CELLS} FROM reads JOIN cells USING (cell_id) "
    "WHERE reads.incarnation = ? AND reads.name = ?"
)
_OPEN = f"SELECT {CELL_COLUMNS} FROM cells WHERE incarnation = ? AND open = 1"
_OBSERVED = f"SELECT {CELL_COLUMNS} FROM cells WHERE incarnation = ? AND heap <> ''"
_UNREADABLE = (
    f"SELECT {NAME_COLUMNS} FROM names "
    "WHERE incarnation = ? AND digest IS NULL AND present = 1 AND shaky = 0 ORDER BY name"
)

_CACHED = 256
"""rows of a kind kept in memory"""
_CACHED_NAMES = 4096

_K = TypeVar("_K")
_V = TypeVar("_V")

_encode = msgspec.json.Encoder(order="sorted").encode
_texts = msgspec.json.Decoder(list[str]).decode
_groups = msgspec.json.Decoder(list[list[str]]).decode
_tokens = msgspec.json.Decoder(dict[str, str]).decode


def name_row(x: Name) -> tuple[Any, ...]:
    """Values in the order of NAME_COLUMNS."""
    return (
        x.name,
        x.incarnation,
        int(x.present),
        x.type,
        x.bytes,
        x.digest,
        x.why,
        x.token,
        x.changed_seq,
        x.bound_by,
        x.bound_in,
        x.changed_by,
        int(x.drifted),
        int(x.unbound),
        int(x.shaky),
    )


def name_of_row(row: Sequence[Any]) -> Name:
    return Name(
        name=row[0],
        incarnation=row[1],
        present=bool(row[2]),
        type=row[3],
        bytes=row[4],
        digest=row[5],
        why=row[6],
        token=row[7],
        changed_seq=row[8],
        bound_by=row[9],
        bound_in=row[10],
        changed_by=row[11],
        drifted=bool(row[12]),
        unbound=bool(row[13]),
        shaky=bool(row[14]),
    )


def heap_row(x: Heap) -> tuple[Any, ...]:
    """Values in the order of HEAP_COLUMNS."""
    lists = (x.groups, x.unfollowed, x.volatile, x.awaited)
    return (x.incarnation, x.seq, x.changed_seq, x.blind_seq, *(_encode(part).decode() for part in lists))


def heap_of_row(row: Sequence[Any]) -> Heap:
    return Heap(
        incarnation=row[0],
        seq=row[1],
        changed_seq=row[2],
        blind_seq=row[3],
        groups=_groups(row[4]),
        unfollowed=_texts(row[5]),
        volatile=_texts(row[6]),
        awaited=_texts(row[7]),
    )


def observation_row(x: Observation) -> tuple[Any, ...]:
    """Values in the order of OBSERVATION_COLUMNS."""
    parts = (x.bound, x.mutated, x.reads, x.dynamic)
    return (x.cell_id, x.execution_id, x.incarnation, x.seq, *(_encode(part).decode() for part in parts))


def observation_of_row(row: Sequence[Any]) -> Observation:
    return Observation(
        cell_id=row[0],
        execution_id=row[1],
        incarnation=row[2],
        seq=row[3],
        bound=_texts(row[4]),
        mutated=_texts(row[5]),
        reads=_tokens(row[6]),
        dynamic=_texts(row[7]),
    )


def fetch_name(connection: apsw.Connection, name: str) -> Name | None:
    row = connection.execute(f"SELECT {NAME_COLUMNS} FROM names WHERE name = ?", (name,)).fetchone()
    return None if row is None else name_of_row(row)


def fetch_heap(connection: apsw.Connection, incarnation: int) -> Heap | None:
    query = f"SELECT {HEAP_COLUMNS} FROM heaps WHERE incarnation = ?"
    row = connection.execute(query, (incarnation,)).fetchone()
    return None if row is None else heap_of_row(row)


class HeapStore:
    """The heap's part of the projections as the writer has them."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._names: dict[str, Name] = {}
        self._heaps: dict[int, Heap] = {}

    def name(self, name: str) -> Name | None:
        return self._names.get(name) or fetch_name(self._connection, name)

    def heap(self, incarnation: int) -> Heap | None:
        return self._heaps.get(incarnation) or fetch_heap(self._connection, incarnation)

    def observation(self, cell_id: str) -> Observation | None:
        query = f"SELECT {OBSERVATION_COLUMNS} FROM observations WHERE cell_id = ?"
        row = self._connection.execute(query, (cell_id,)).fetchone()
        return None if row is None else observation_of_row(row)

    def readers(self, incarnation: int, name: str, tokens: tuple[str, ...] | None) -> list[tuple[str, Cell]]:
        query, values = _READERS, (incarnation, name, *(tokens or ()))
        if tokens is not None:
            query += f" AND reads.token IN ({', '.join('?' * len(tokens))})"
        return [(row[0], cell_of_row(row[1:])) for row in self._connection.execute(query, values)]

    def open_cells(self, incarnation: int) -> list[Cell]:
        return [cell_of_row(row) for row in self._connection.execute(_OPEN, (incarnation,))]

    def observed_cells(self, incarnation: int) -> list[Cell]:
        return [cell_of_row(row) for row in self._connection.execute(_OBSERVED, (incarnation,))]

    def unreadable(self, incarnation: int) -> list[Name]:
        return [name_of_row(row) for row in self._connection.execute(_UNREADABLE, (incarnation,))]

    def write_heap(self, change: HeapFold) -> None:
        """Write the rows of `change`. Inside the transaction of its entries."""
        execute = self._connection.execute
        for name in change.names.values():
            execute(_NAME, name_row(name))
        for heap in change.heaps.values():
            execute(_HEAP, heap_row(heap))
        for cell_id, seen in change.observations.items():
            if seen is None:
                execute(_NO_OBSERVATION, (cell_id,))
            else:
                execute(_OBSERVATION, observation_row(seen))
        for read, came in change.reads.items():
            execute(_READ if came else _NO_READ, read)
        for (incarnation, state), n in change.counts.items():
            if n:
                execute(_COUNT, (incarnation, state, n))
                if n < 0:
                    execute(_DROP_COUNT, (incarnation, state))

    def keep_heap(self, change: HeapFold) -> None:
        """The transaction of `change` is on file: remember what it made."""
        remember(self._names, change.names, _CACHED_NAMES)
        remember(self._heaps, change.heaps)

    def clear_heap(self) -> None:
        for table in TABLES:
            self._connection.execute(f"DELETE FROM {table}")
        self._names.clear()
        self._heaps.clear()


def remember(kept: dict[_K, _V], changed: Mapping[_K, _V], most: int = _CACHED) -> None:
    """Keep rows in memory, but no more than that many."""
    if len(kept) + len(changed) > most:
        kept.clear()
    kept.update(changed)
