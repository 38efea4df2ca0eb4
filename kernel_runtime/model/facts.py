"""What a journal entry can say: one frozen struct per kind, named in the past tense.

A fact is stored as canonical JSON (keys sorted, no spaces), so fields may be added with a default
and never renamed or removed: journals of every past version must decode. Times inside facts are
nanoseconds; the entry around the fact carries the wall and monotonic clock.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct


class Fact(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of all kinds. `kind` of the entry is the class name."""


class SessionCreated(Fact):
    session_id: str
    name: str
    kernel: str
    """kernelspec name"""
    cwd: str
    notebook: str
    version: str


class SupervisorStarted(Fact):
    pid: int
    start_time: int
    """clock ticks since boot, /proc/PID/stat field 22"""
    boot_id: str
    version: str


class SupervisorStopped(Fact):
    reason: str


class KernelStarting(Fact):
    """The intent to start an incarnation; the entry's `incarnation` is the new one."""

    argv: list[str]
    reason: str
    """`new`, `execute`, `restart`, `jupyter`"""


class KernelStarted(Fact):
    pid: int
    start_time: int
    boot_id: str
    language: str
    implementation: str
    own: bool
    """True: a kernel with our outbox; False: any other kernelspec, cell-level truth only"""


class KernelAdopted(Fact):
    pid: int
    start_time: int
    boot_id: str
    executions_running: list[str] = []


class KernelStartFailed(Fact):
    attempt: int
    stderr: str
    exit_status: int | None = None
    signal: int | None = None


class KernelDied(Fact):
    """Nobody asked for it. Cause only by evidence: exit_status/signal from wait(2), `oom` from cgroup or kernel log."""

    pid: int
    exit_status: int | None = None
    signal: int | None = None
    by_user_code: bool = False
    """`quit()` or `exit()` in a cell: the kernel announced its exit"""
    evidence: dict[str, Any] = {}


class KernelStopped(Fact):
    """Asked for: `stop`, `restart` or a Jupyter shutdown_request."""

    reason: str
    exit_status: int | None = None
    signal: int | None = None
    evidence: dict[str, Any] = {}


class KernelUnresponsive(Fact):
    evidence: dict[str, Any]


class KernelResponsive(Fact):
    pass


class PrincipalAttached(Fact):
    """First attach of a principal in an incarnation: from here on it has seen this heap."""


class HeapLossTold(Fact):
    lost: int
    """cells lost"""
    how: str
    """`refused`, `status`, `brief`, `attach`, `stderr`"""


class HeapLossAccepted(Fact):
    how: str
    """`told`, `accept`, `restart`"""


class ExecutionQueued(Fact):
    """The intent to run. Synced to disk before its reply and before dispatch."""

    execution_id: str
    source: str
    cell_id: str
    msg_id: str
    key: str | None = None
    client_session: str | None = None
    silent: bool = False
    store_history: bool = True
    allow_stdin: bool = True
    stop_on_error: bool = True
    door: str = "krt"
    """`krt` our clients, `jupyter` any other"""
    request: str | None = None
    """what a new supervisor needs to dispatch a Jupyter client's request and route its reply: JSON of
    `{"identity": hex, "header": raw, "metadata": raw, "user_expressions": {}}`"""


class ExecutionStarted(Fact):
    """The intent to dispatch. Synced before the kernel can see the request."""

    execution_id: str


class OutputRecorded(Fact):
    """Messages the kernel sent, in its order. `messages` are `{"type", "content", "metadata"?, "buffers"?}`.

    `position` is how far the outbox has been read when this entry is on disk.
    """

    messages: list[msgspec.Raw]
    execution_id: str | None = None
    late: bool = False
    """arrived after the outcome, from a thread or child process the execution left behind"""
    position: int | None = None


class GapRecorded(Fact):
    """Output that is not here, counted. Never silent."""

    reason: str
    """`message-bound`, `execution-bound`, `session-bound`, `disk`, `outbox-bound`, `iopub-overflow`"""
    messages: int
    bytes: int
    execution_id: str | None = None
    position: int | None = None


class InputRequested(Fact):
    execution_id: str
    prompt: str
    password: bool


class InputAnswered(Fact):
    execution_id: str
    value: str | None
    """None for passwords: they are in no file of ours"""
    eof: bool = False


class InputWithdrawn(Fact):
    execution_id: str
    reason: str


class InterruptRequested(Fact):
    """One step up the ladder. `reached`: `message`, `signal`, `nothing-running`."""

    reached: str
    execution_id: str | None = None
    evidence: dict[str, Any] = {}


class ExecutionFinished(Fact):
    """The one outcome of an execution."""

    execution_id: str
    outcome: str
    execution_count: int | None = None
    error: dict[str, Any] | None = None
    """`{"ename", "evalue", "traceback"}`"""
    evidence: dict[str, Any] = {}
    reply: msgspec.Raw | None = None
    """content of the kernel's execute_reply, when there was one"""
    position: int | None = None


KINDS: dict[str, type[Fact]] = {cls.__name__: cls for cls in Fact.__subclasses__()}

_encoder = msgspec.json.Encoder(order="sorted")


def encode(fact: Fact) -> bytes:
    """Canonical JSON of a fact: what is stored and hashed."""
    return _encoder.encode(fact)


def decode(kind: str, payload: bytes) -> Fact:
    """The fact of that kind.

    Raises:
        KeyError: a kind this version does not know.
        msgspec.DecodeError: not the JSON of that kind.
    """
    return msgspec.json.decode(payload, type=KINDS[kind])


def execution_of(fact: Fact) -> str | None:
    """The execution a fact belongs to, if any."""
    return getattr(fact, "execution_id", None)
