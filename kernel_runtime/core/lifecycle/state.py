"""What the core knows of a session at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from kernel_runtime.model.execution import Seen

SECOND = 1_000_000_000


class Policy(Struct, frozen=True):
    """Numbers a session is run by. Durations in nanoseconds of the monotonic clock."""

    start_attempts: int = 3
    """tries of one start before it is given up"""
    crash_loop: int = 5
    """deaths in a row, without an `ok` between, after which only `restart` starts a kernel"""
    message_patience: int = SECOND
    """from the interrupt message to SIGINT"""
    signal_patience: int = 2 * SECOND
    """from SIGINT to the offer to kill"""
    reply_patience: int = SECOND
    """from `idle` to calling a missing reply missing"""
    exit_patience: int = 5 * SECOND
    """how long the queue waits for a kernel that announced its exit"""
    jupyter_loss: str = "refuse"
    """a Jupyter client's first cell after a loss: `refuse` it, or `tell` and run it (because its own
    manager restarted the kernel)"""


class Pending(Struct, frozen=True, kw_only=True):
    """An execution that was accepted and has not started."""

    execution_id: str
    cell_id: str
    msg_id: str
    principal: str
    client: str
    """who else's queue must not be aborted: the client session id"""
    stop_on_error: bool = True
    silent: bool = False


class Running(Struct, frozen=True, kw_only=True):
    """The execution that was dispatched."""

    execution: Pending
    dispatched_at: int
    interrupts: tuple[tuple[str, int], ...] = ()
    """how (`message`, `signal`) and when each interrupt was sent"""
    error: Mapping[str, Any] | None = None
    """the `error` message seen on iopub, if any"""
    idle_at: int | None = None
    """`idle` was seen and no reply yet"""
    blocked: Mapping[str, Any] | None = None


class Ladder(Struct, frozen=True, kw_only=True):
    """An interrupt on its way up."""

    execution_id: str
    principal: str
    reached: str
    since: int
    steps: tuple[str, ...]
    tokens: tuple[Any, ...] = ()


class State(Struct, frozen=True, kw_only=True):
    """`kernel` is `none` (never had one), `starting`, `up`, `dead` (unasked) or `stopped` (asked)."""

    session: str
    incarnation: int = 0
    kernel: str = "none"
    own: bool = True
    queue: tuple[Pending, ...] = ()
    running: Running | None = None
    ladder: Ladder | None = None
    seen: Mapping[str, Seen] = field(default_factory=dict)
    attempts: int = 0
    """failed tries of the present start"""
    deaths: int = 0
    """in a row"""
    exit_announced: int | None = None
    unresponsive: Mapping[str, Any] | None = None
    start_waiters: tuple[Any, ...] = ()
    start_reason: str = ""
    restarting: bool = False
    """the old kernel is being stopped to make room for the next incarnation"""
    stopping: bool = False
    """the kernel is being stopped: nothing that is still queued begins"""

    @property
    def heap(self) -> int:
        """The incarnation whose heap the next execution would meet."""
        if self.kernel in ("starting", "up"):
            return self.incarnation
        return self.incarnation + 1

    def has_lost(self, principal: str) -> bool:
        """Whether the heap this principal knew is gone and it has neither accepted nor been told."""
        seen = self.seen.get(principal)
        return seen is not None and seen.accepted <= seen.incarnation and 0 < seen.incarnation < self.heap

    @property
    def name(self) -> str:
        """`starting|idle|busy|blocked|unresponsive|dead|stopped`."""
        if self.kernel == "up":
            if self.unresponsive is not None:
                return "unresponsive"
            if self.running is None:
                return "idle"
            return "blocked" if self.running.blocked is not None else "busy"
        return "stopped" if self.kernel == "none" else self.kernel

    def accepting(self, principal: str, heap: int) -> State:
        """`principal` knows that every heap before `heap` is gone."""
        known = self.seen.get(principal)
        incarnation = 0 if known is None else known.incarnation
        seen = Seen(principal=principal, incarnation=incarnation, accepted=heap)
        return replace(self, seen={**self.seen, principal: seen})

    def seeing(self, principal: str) -> State:
        """`principal` has seen the heap of this incarnation."""
        known = self.seen.get(principal)
        accepted = 0 if known is None else known.accepted
        seen = Seen(principal=principal, incarnation=self.incarnation, accepted=accepted)
        return replace(self, seen={**self.seen, principal: seen})
