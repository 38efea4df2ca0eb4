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


class Submitted(Event, frozen=True, kw_only=True):
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


class StartRequested(Event, frozen=True, kw_only=True):
    token: Any
    principal: str
    reason: str = "new"


class RestartRequested(Event, frozen=True, kw_only=True):
    token: Any
    principal: str


class StopRequested(Event, frozen=True, kw_only=True):
    token: Any
    principal: str
    reason: str = "stop"


class Attached(Event, frozen=True, kw_only=True):
    principal: str


class LossAccepted(Event, frozen=True, kw_only=True):
    token: Any
    principal: str


class LossTold(Event, frozen=True, kw_only=True):
    principal: str
    lost: int
    how: str


class KernelCameUp(Event, frozen=True, kw_only=True):
    """A started kernel answered kernel_info."""

    pid: int
    start_time: int
    boot_id: str
    language: str
    implementation: str
    own: bool


class KernelFailedToStart(Event, frozen=True, kw_only=True):
    stderr: str
    exit_status: int | None = None
    signal: int | None = None


class KernelExited(Event, frozen=True, kw_only=True):
    """The kernel process is gone, and everything it said before has been handled."""

    pid: int
    exit_status: int | None = None
    signal: int | None = None
    evidence: Mapping[str, Any] = {}
    asked: str | None = None
    """the reason, when we stopped it"""
    position: int | None = None


class Adopted(Event, frozen=True, kw_only=True):
    """A new supervisor found the kernel alive and has read its outbox to the end."""

    pid: int
    start_time: int
    boot_id: str


class Replied(Event, frozen=True, kw_only=True):
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
    reply: Mapping[str, Any] | None = None
    position: int | None = None


class ErrorSeen(Event, frozen=True, kw_only=True):
    """An `error` message on iopub."""

    msg_id: str
    error: Mapping[str, Any]


class WentIdle(Event, frozen=True, kw_only=True):
    """`status: idle` for a request."""

    msg_id: str


class ShellDrained(Event, frozen=True, kw_only=True):
    """A kernel that is not ours answered on shell after an adoption: whatever ran before has ended."""


class InputAsked(Event, frozen=True, kw_only=True):
    msg_id: str
    prompt: str
    password: bool
    since: str
    position: int | None = None
    on: str = ""
    """`terminal`: a process reads the kernel's terminal; empty: the cell itself asks"""
    pid: int | None = None
    command: tuple[str, ...] = ()
    echo: bool = True


class InputGone(Event, frozen=True, kw_only=True):
    """The process that waited for the terminal does no longer, and nobody of ours answered."""

    execution_id: str
    reason: str


class Answered(Event, frozen=True, kw_only=True):
    token: Any
    principal: str
    text: str | None
    eof: bool = False
    execution_id: str | None = None


class Interrupted(Event, frozen=True, kw_only=True):
    token: Any
    principal: str
    execution_id: str | None = None
    """only this one: if it has ended meanwhile, nothing else is interrupted"""


class TurnedUnresponsive(Event, frozen=True, kw_only=True):
    evidence: Mapping[str, Any]


class TurnedResponsive(Event, frozen=True, kw_only=True):
    pass


class Proceeded(Event, frozen=True, kw_only=True):
    """The queue may move: sent by the shell while `may_dispatch` holds."""


class Ticked(Event, frozen=True, kw_only=True):
    """Time passed; the shell sends it at `next_deadline`."""


class Command(Struct, frozen=True, kw_only=True):
    """Do this, in the order given."""


class Append(Command, frozen=True, kw_only=True):
    """Journal these, all or nothing. If it fails, nothing after it is done and the old state stands."""

    drafts: tuple[Draft, ...]
    sync: bool = False


class Dispatch(Command, frozen=True, kw_only=True):
    """Send the request to the kernel's shell channel."""

    execution: Pending
    again: bool = False
    """only to a kernel that drops a msg_id it has seen"""


class Ended(Command, frozen=True, kw_only=True):
    """An execution has its outcome; `replied` tells whether the kernel's own reply goes to the client."""

    execution: Pending
    outcome: str
    error: Mapping[str, Any] | None
    replied: bool


class StartKernel(Command, frozen=True, kw_only=True):
    incarnation: int


class StopKernel(Command, frozen=True, kw_only=True):
    reason: str


class SendInterrupt(Command, frozen=True, kw_only=True):
    """`how`: `message` (interrupt_request on control) or `signal` (SIGINT to the process group)."""

    how: str
    msg_id: str
    """the request that is meant: when a message is heard, another one may run"""


class SendInput(Command, frozen=True, kw_only=True):
    text: str | None
    eof: bool


class TypeInput(Command, frozen=True, kw_only=True):
    """Type on the kernel's terminal."""

    text: str | None
    eof: bool


class WithdrawInput(Command, frozen=True, kw_only=True):
    execution_id: str


class ProbeShell(Command, frozen=True, kw_only=True):
    """Ask kernel_info on shell; its answer is a `ShellDrained`."""


class Respond(Command, frozen=True, kw_only=True):
    token: Any
    result: Mapping[str, Any]


class Refuse(Command, frozen=True, kw_only=True):
    token: Any
    error: KernelRuntimeError
