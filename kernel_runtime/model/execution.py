"""An execution as the journal tells it."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

STATUSES = ("queued", "running", "blocked", "done")
OUTCOMES = ("ok", "error", "interrupted", "aborted", "died", "unknown")


class Execution(Struct, frozen=True, kw_only=True):
    """One row per execution: everything but its outputs. Times are UTC nanoseconds."""

    execution_id: str
    cell_id: str
    principal: str
    msg_id: str
    source_digest: str
    """sha256 of the source, hexadecimal"""
    queued_seq: int
    queued_at: int
    key: str | None = None
    incarnation: int = 0
    """the incarnation it ran in; that it was queued in until it starts"""
    status: str = "queued"
    outcome: str | None = None
    execution_count: int | None = None
    started_at: int | None = None
    finished_at: int | None = None
    finished_seq: int | None = None
    error: dict[str, Any] | None = None
    evidence: dict[str, Any] = {}
    blocked: dict[str, Any] | None = None
    """`{"on": "input"|"password", "prompt", "pid", "since"}` while status is `blocked`"""


class Cell(Struct, frozen=True, kw_only=True):
    """What reconcile needs of one cell and no more: its execution that started last.

    While none has started, the one queued last.
    """

    cell_id: str
    execution_id: str
    source_digest: str
    incarnation: int
    status: str
    outcome: str | None
    position: int
    """queued_seq of the cell's first execution: notebook order"""
    executions: int = 1


class Seen(Struct, frozen=True, kw_only=True):
    """What a principal knows of the heap."""

    principal: str
    incarnation: int
    """latest incarnation in which it attached or executed"""
    accepted: int = 0
    """latest incarnation whose loss of predecessors it has accepted"""
