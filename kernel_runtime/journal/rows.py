"""Rows of the projection tables: between SQL values and the model's types, and the writer's copy.

`ProjectionStore` is what core.projection folds new entries on top of, and writes the rows that
changed. It does not read again what it has just written: living executions, their cells and the
principals of this process are kept in memory, and only once their transaction is on file.
"""

# ruff: noqa: S608 - the only parts put into statements are constants of this package
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw
import msgspec

from kernel_runtime.core.projection import Projections
from kernel_runtime.journal.cell_rows import CELL_COLUMNS, cell_of_row, cell_row
from kernel_runtime.journal.heap_rows import HeapStore, remember
from kernel_runtime.model.execution import Cell, Execution, Seen

EXECUTION_COLUMNS = (
    "queued_seq, execution_id, cell_id, principal, msg_id, source_digest, queued_at, key, incarnation, "
    "status, outcome, execution_count, started_at, finished_at, finished_seq, error, evidence, blocked"
)
QUEUED_SEQ = (
    "SELECT seq FROM entries WHERE execution_id = ? AND kind = 'ExecutionQueued' ORDER BY seq LIMIT 1"
)
"""where an execution began, which is the key of its row"""

_INSERT_EXECUTION = f"INSERT INTO executions ({EXECUTION_COLUMNS}) VALUES ({', '.join('?' * 18)})"
_UPDATE_EXECUTION = (
    "UPDATE executions SET incarnation = ?, status = ?, outcome = ?, execution_count = ?, started_at = ?, "
    "finished_at = ?, finished_seq = ?, error = ?, evidence = ?, blocked = ? WHERE queued_seq = ?"
)
_INSERT_CELL = f"INSERT INTO cells ({CELL_COLUMNS}) VALUES ({', '.join('?' * 15)})"
_UPDATE_CELL = (
    "UPDATE cells SET execution_id = ?, source_digest = ?, incarnation = ?, status = ?, outcome = ?, "
    "executions = ?, heap = ?, held = ?, adrift = ?, gone = ?, changed = ?, unsure = ?, open = ? "
    "WHERE cell_id = ?"
)
_COUNT = (
    "INSERT INTO cell_counts VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (incarnation, status, outcome, heap) DO UPDATE SET n = n + excluded.n"
)
_DROP_COUNT = (
    "DELETE FROM cell_counts WHERE incarnation = ? AND status = ? AND outcome = ? AND heap = ? AND n = 0"
)
_SEEN = (
    "INSERT INTO seen VALUES (?, ?, ?) ON CONFLICT (principal) "
    "DO UPDATE SET incarnation = excluded.incarnation, accepted = excluded.accepted"
)
_POSITION = (
    "INSERT INTO positions VALUES (?, ?) "
    "ON CONFLICT (incarnation) DO UPDATE SET position = max(position, excluded.position)"
)

_ENDED = 8
"""executions that have ended and are kept in memory"""

_encode = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder().decode


def _json(value: dict[str, Any] | None) -> str | None:
    return _encode(value).decode() if value else None


def execution_row(execution: Execution) -> tuple[Any, ...]:
    """Values in the order of EXECUTION_COLUMNS."""
    x = execution
    return (
        x.queued_seq,
        x.execution_id,
        x.cell_id,
        x.principal,
        x.msg_id,
        x.source_digest,
        x.queued_at,
        x.key,
        *_moving(x),
    )


def _moving(x: Execution) -> tuple[Any, ...]:
    return (
        x.incarnation,
        x.status,
        x.outcome,
        x.execution_count,
        x.started_at,
        x.finished_at,
        x.finished_seq,
        # an empty error is not no error
        None if x.error is None else _encode(x.error).decode(),
        _json(x.evidence),
        _json(x.blocked),
    )


def execution_of_row(row: Sequence[Any]) -> Execution:
    return Execution(
        queued_seq=row[0],
        execution_id=row[1],
        cell_id=row[2],
        principal=row[3],
        msg_id=row[4],
        source_digest=row[5],
        queued_at=row[6],
        key=row[7],
        incarnation=row[8],
        status=row[9],
        outcome=row[10],
        execution_count=row[11],
        started_at=row[12],
        finished_at=row[13],
        finished_seq=row[14],
        error=None if row[15] is None else _decode(row[15]),
        evidence=_decode(row[16]) if row[16] else {},
        blocked=_decode(row[17]) if row[17] else None,
    )


def replace_execution(connection: apsw.Connection, x: Execution) -> None:
    """Write the row of an execution anew, and what its cell's row shows of its source."""
    columns = ", ".join(f"{name} = ?" for name in EXECUTION_COLUMNS.split(", "))
    connection.execute(
        f"UPDATE executions SET {columns} WHERE queued_seq = ?", (*execution_row(x), x.queued_seq)
    )
    connection.execute(
        "UPDATE cells SET source_digest = ? WHERE cell_id = ? AND execution_id = ?",
        (x.source_digest, x.cell_id, x.execution_id),
    )


def fetch_execution(connection: apsw.Connection, execution_id: str) -> Execution | None:
    row = connection.execute(
        f"SELECT {EXECUTION_COLUMNS} FROM executions WHERE queued_seq = ({QUEUED_SEQ})", (execution_id,)
    ).fetchone()
    return None if row is None else execution_of_row(row)


def fetch_by_key(connection: apsw.Connection, key: str) -> Execution | None:
    """The first execution queued under that key."""
    row = connection.execute(
        f"SELECT {EXECUTION_COLUMNS} FROM executions WHERE key = ? ORDER BY queued_seq LIMIT 1", (key,)
    ).fetchone()
    return None if row is None else execution_of_row(row)


class ProjectionStore(HeapStore):
    """The projections as the writer has them: tables, and in memory what moves."""

    def __init__(self, connection: apsw.Connection) -> None:
        super().__init__(connection)
        rows = connection.execute(f"SELECT {EXECUTION_COLUMNS} FROM executions WHERE status <> 'done'")
        self._alive = {x.execution_id: x for x in map(execution_of_row, rows)}
        self._ended: dict[str, Execution] = {}
        """the last ones: their observations are about to come"""
        self._cells: dict[str, Cell] = {}
        self._seen: dict[str, Seen] = {}
        self._positions: dict[int, int] = {}

    def execution(self, execution_id: str) -> Execution | None:
        return (
            self._alive.get(execution_id)
            or self._ended.get(execution_id)
            or fetch_execution(self._connection, execution_id)
        )

    def cell(self, cell_id: str) -> Cell | None:
        cell = self._cells.get(cell_id)
        if cell is None:
            row = self._connection.execute(
                f"SELECT {CELL_COLUMNS} FROM cells WHERE cell_id = ?", (cell_id,)
            ).fetchone()
            cell = None if row is None else cell_of_row(row)
        return cell

    def seen(self, principal: str) -> Seen | None:
        seen = self._seen.get(principal)
        if seen is None:
            row = self._connection.execute(
                "SELECT incarnation, accepted FROM seen WHERE principal = ?", (principal,)
            ).fetchone()
            seen = None if row is None else Seen(principal=principal, incarnation=row[0], accepted=row[1])
        return seen

    def write(self, change: Projections, first_seq: int) -> None:
        """Write the rows of `change`, made by entries from `first_seq` on. Inside their transaction."""
        execute = self._connection.execute
        for x in change.executions.values():
            if x.queued_seq >= first_seq:
                execute(_INSERT_EXECUTION, execution_row(x))
            else:
                execute(_UPDATE_EXECUTION, (*_moving(x), x.queued_seq))
        old: list[tuple[Any, ...]] = []
        for cell in change.cells.values():
            row = cell_row(cell)
            if cell.position >= first_seq:
                execute(_INSERT_CELL, row)
            else:
                old.append((*row[2:], row[0]))
        if old:
            self._connection.executemany(_UPDATE_CELL, old)
        for (incarnation, status, outcome, heap), n in change.counts.items():
            if n:
                execute(_COUNT, (incarnation, status, outcome or "", heap, n))
                if n < 0:
                    execute(_DROP_COUNT, (incarnation, status, outcome or "", heap))
        if change.heap_moved is not None:
            self.write_heap(change.heap_moved)
        for seen in change.seen.values():
            execute(_SEEN, (seen.principal, seen.incarnation, seen.accepted))
        for incarnation, position in change.positions.items():
            if position != self._positions.get(incarnation):
                execute(_POSITION, (incarnation, position))

    def keep(self, change: Projections) -> None:
        """The transaction of `change` is on file: remember what it made."""
        for x in change.executions.values():
            if x.status == "done":
                self._alive.pop(x.execution_id, None)
                remember(self._ended, {x.execution_id: x}, _ENDED)
            else:
                self._alive[x.execution_id] = x
        remember(self._cells, change.cells)
        if change.heap_moved is not None:
            self.keep_heap(change.heap_moved)
        remember(self._seen, change.seen)
        remember(self._positions, change.positions)

    def clear(self) -> None:
        """Empty the tables, to fold the journal into them anew. Inside a transaction."""
        for table in ("executions", "cells", "cell_counts", "seen", "positions"):
            self._connection.execute(f"DELETE FROM {table}")
        self.clear_heap()
        self._alive.clear()
        self._ended.clear()
        self._cells.clear()
        self._seen.clear()
        self._positions.clear()
