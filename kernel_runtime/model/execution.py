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
    heap: str = ""
    """what became of what that execution left in the heap, by the names: `live`, `superseded`, `stale`,
    `unknown`; empty while the probe has not told of it"""
    held: int = 0
    """names it bound that are as an execution left them, and nobody bound again"""
    adrift: int = 0
    """names it bound that something outside any execution changed since"""
    gone: int = 0
    """names it bound that another execution bound or deleted since"""
    changed: int = 0
    """names it read whose content is another one now"""
    unsure: int = 0
    """names it read whose content may be another one now"""
    open: int = 0
    """0: what it read is known; 1: it read more than is known (`dynamic`), and no name changed since;
    2: something may have reached it that nobody saw"""


class Observation(Struct, frozen=True, kw_only=True):
    """What the probe told of a cell's execution: what its truth depends on."""

    cell_id: str
    execution_id: str
    incarnation: int
    seq: int
    """its ExecutionObserved entry"""
    bound: list[str] = []
    """names it bound, rebound or deleted"""
    mutated: list[str] = []
    """names it changed otherwise, or may have"""
    reads: dict[str, str] = {}
    """names it read, each with the token it had when the execution ended"""
    dynamic: list[str] = []


class Name(Struct, frozen=True, kw_only=True):
    """A name of the heap, as the entries tell of it. Kept after it was deleted, as `present` false."""

    name: str
    incarnation: int
    present: bool
    type: str | None = None
    bytes: int | None = None
    digest: str | None = None
    """exact, `ALGORITHM:HEX`; None: its content cannot be compared, `why` tells why"""
    why: str | None = None
    token: str = ""
    """its content, to compare: the digest; `?SEQ` without one, of the entry that last may have changed
    it; empty when it is not present"""
    changed_seq: int = 0
    bound_by: str | None = None
    """the execution that last bound or deleted it"""
    bound_in: str | None = None
    """that execution's cell"""
    changed_by: str | None = None
    """the execution that last may have changed it; None: it drifted"""
    drifted: bool = False
    """something outside any execution changed it, and no execution has set it since"""
    unbound: bool = False
    """something outside any execution bound or deleted it since `bound_by` did"""
    shaky: bool = False
    """its content cannot be compared, and code outside any execution lived beside it since it was set"""
    shares_with: list[str] | None = []
    """names that share mutable objects with it; None: that could not be followed"""


class Heap(Struct, frozen=True, kw_only=True):
    """What is known of an incarnation's names as a whole, since its first observation."""

    incarnation: int
    seq: int
    """the last entry that told of names"""
    changed_seq: int = 0
    """the last one that told of a change"""
    blind_seq: int = 0
    """the last entry before which something ran that was never told of"""
    groups: list[list[str]] = []
    unfollowed: list[str] = []
    volatile: list[str] = []
    awaited: list[str] = []
    """executions that started and were not told of yet, at most two"""


class Seen(Struct, frozen=True, kw_only=True):
    """What a principal knows of the heap."""

    principal: str
    incarnation: int
    """latest incarnation in which it attached or executed"""
    accepted: int = 0
    """latest incarnation whose loss of predecessors it has accepted"""
