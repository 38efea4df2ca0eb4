"""Rows of the table of cells: between SQL values and the model's type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernel_runtime.model.execution import Cell

CELL_COLUMNS = (
    "cell_id, position, execution_id, source_digest, incarnation, status, outcome, executions, "
    "heap, held, adrift, gone, changed, unsure, open"
)


def cell_row(cell: Cell) -> tuple[Any, ...]:
    """Values in the order of CELL_COLUMNS."""
    return (
        cell.cell_id,
        cell.position,
        cell.execution_id,
        cell.source_digest,
        cell.incarnation,
        cell.status,
        cell.outcome,
        cell.executions,
        cell.heap,
        cell.held,
        cell.adrift,
        cell.gone,
        cell.changed,
        cell.unsure,
        cell.open,
    )


def cell_of_row(row: Sequence[Any]) -> Cell:
    return Cell(
        cell_id=row[0],
        position=row[1],
        execution_id=row[2],
        source_digest=row[3],
        incarnation=row[4],
        status=row[5],
        outcome=row[6],
        executions=row[7],
        heap=row[8],
        held=row[9],
        adrift=row[10],
        gone=row[11],
        changed=row[12],
        unsure=row[13],
        open=row[14],
    )
