"""What happens to a session (events) and what it wants done (commands).

The commands of one event hold at most one `Append`, and it comes first: if it fails the shell
keeps the old state and does nothing of the rest.

`token` is the shell's own handle of whoever asked; the core hands it back and never looks inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from kernel_runtime.core.lifecycle.state import Pending
from kernel_runtime.errors import KernelRuntimeError
from kernel_runtime.model.entry import Draft
from kernel_runtime.model.execution import Execution
from kernel_runtime.model.facts import ExecutionQueued


class Event(Struct, frozen=True, kw_only=True):
    """Something happened."""


class Submitted(Event):
    """A client wants source run. `recorded` is the execution its key already names."""

    token: Any
    queued: ExecutionQueued
    principal: str
    client: str
    accept: bool = False
    expect_incarnation: int | None = None
    recorded: Execution | None = None
    recorded_digest_differs: bool = False
    jupyter: bool = False


class StartRequested(Event):
    token: Any
    principal: str
    reason: str = "new"


class RestartRequested(Event):
    token: Any
    principal: str


class StopRequested(Event):
    token: Any
    principal: str
    reason: str = "stop"


class Attached(Event):
    principal: str


class LossAccepted(Event):
    token: Any
    principal: str


class LossTold(Event):
    principal: str
    lost: int
    how: str


class KernelCameUp(Event):
    """A started kernel answered kernel_info."""

    pid: int
    start_time: int
    boot_id: str
    language: str
    implementation: str
    own: bool


class KernelFailedToStart(Event):
    stderr: str
    exit_status: int | None = None
    signal: int | None = None


class KernelExited(Event):
    """The kernel process is gone, and everything it said before has been handled."""

    pid: int
    exit_status: int | None = None
    signal: int | None = None
    evidence: Mapping[str, Any] = {}
    asked: str | None = None
    """the reason, when we stopped it"""


class Adopted(Event):
    """A new supervisor found the kernel alive and has read its outbox to the end."""

    pid: int
    start_time: int
    boot_id: str


class Replied(Event):
    """An execute_reply. Times are CLOCK_MONOTONIC nanoseconds of this host."""

    msg_id: str
    status: str
    execution_count: int | None = None
    error: Mapping[str, Any] | None = None
    exiting: bool = False
    """the reply's payload announces that the kernel leaves (`quit()`)"""
    sigint_at: int | None = None
    """our kernel saw SIGINT while this execution ran"""
    finished_at: int | None = None
    reply: bytes | None = None
    position: int | None = None


class ErrorSeen(Event):
    """An `error` message on iopub."""

    msg_id: str
    error: Mapping[str, Any]


class WentIdle(Event):
    """`status: idle` for a request."""

    msg_id: str


class ShellDrained(Event):
    """A kernel that is not ours answered on shell after an adoption: whatever ran before has ended."""


class InputAsked(Event):
    msg_id: str
    prompt: str
    password: bool
    since: str


class Answered(Event):
    token: Any
    principal: str
    text: str | None
    eof: bool = False
    execution_id: str | None = None


class Interrupted(Event):
    token: Any
    principal: str


class TurnedUnresponsive(Event):
    evidence: Mapping[str, Any]


class TurnedResponsive(Event):
    pass


class Proceeded(Event):
    """The queue may move: sent by the shell while `may_dispatch` holds."""


class Ticked(Event):
    """Time passed; the shell sends it at `next_deadline`."""


class Command(Struct, frozen=True, kw_only=True):
    """Do this, in the order given."""


class Append(Command):
    """Journal these, all or nothing. If it fails, nothing after it is done and the old state stands."""

    drafts: tuple[Draft, ...]
    sync: bool = False


class Dispatch(Command):
    """Send the request to the kernel's shell channel."""

    execution: Pending
    again: bool = False
    """only to a kernel that drops a msg_id it has seen"""


class Ended(Command):
    """An execution has its outcome; `replied` tells whether the kernel's own reply goes to the client."""

    execution: Pending
    outcome: str
    error: Mapping[str, Any] | None
    replied: bool


class StartKernel(Command):
    incarnation: int


class StopKernel(Command):
    reason: str


class SendInterrupt(Command):
    """`how`: `message` (interrupt_request on control) or `signal` (SIGINT to the process group)."""

    how: str


class SendInput(Command):
    text: str | None
    eof: bool


class WithdrawInput(Command):
    execution_id: str


class ProbeShell(Command):
    """Ask kernel_info on shell; its answer is a `ShellDrained`."""


class Respond(Command):
    token: Any
    result: Mapping[str, Any]


class Refuse(Command):
    token: Any
    error: KernelRuntimeError
