"""What may be asked of a cell that is to be run."""

from __future__ import annotations

from typing import TypedDict


class How(TypedDict, total=False):
    """How a cell is to be run; every part may be left out."""

    key: str | None
    """idempotency key: the same key and source run once, ever"""
    cell_id: str | None
    """the nbformat cell it belongs to; a new one by default"""
    accept: bool
    """run it even if the heap this principal knew is gone"""
    expect_incarnation: int | None
    """refuse it in any other"""
    allow_stdin: bool
    stop_on_error: bool
    store_history: bool
    silent: bool
