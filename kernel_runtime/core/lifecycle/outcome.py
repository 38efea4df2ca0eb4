"""How an execution ended, from what was observed and nothing else.

The kernel's word is evidence, not the verdict: `ok` after a delivered interrupt is `interrupted`
(an interrupted `os.system` replies ok), and a reply that never comes is decided by what iopub said
or called `unknown`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from kernel_runtime.core.lifecycle.messages import KernelExited, Replied
from kernel_runtime.core.lifecycle.state import Running


class Verdict(Struct, frozen=True):
    """An outcome with its evidence."""

    outcome: str
    evidence: dict[str, Any]
    error: Mapping[str, Any] | None = None


def _interrupt_evidence(running: Running, reply: Replied, *, own: bool) -> dict[str, Any] | None:
    """Why the execution counts as interrupted, or None.

    Our kernel tells when a SIGINT reached it during the execution; a signal we sent before the
    execution finished also counts (it may have hit a child the kernel was waiting for, while the
    kernel itself ignored it). An interrupt *message* counts by itself only for kernels that cannot
    tell more.
    """
    if reply.sigint_at is not None:
        return {"sigint_seen_by_kernel": True}
    for how, at in running.interrupts:
        if how == "signal" and (reply.finished_at is None or at < reply.finished_at):
            return {"sigint_sent_while_running": True}
        if how == "message" and not own and (reply.finished_at is None or at < reply.finished_at):
            return {"interrupt_message_sent_while_running": True}
    return None


def of_reply(running: Running, reply: Replied, *, own: bool) -> Verdict:
    """The verdict on an execution whose reply arrived."""
    evidence: dict[str, Any] = {"reply": reply.status}
    interrupted = _interrupt_evidence(running, reply, own=own)
    if interrupted is not None:
        return Verdict("interrupted", {**evidence, **interrupted}, reply.error)
    if reply.status == "ok":
        return Verdict("ok", evidence)
    if reply.status == "error":
        return Verdict("error", evidence, reply.error or running.error)
    if reply.status in ("aborted", "abort"):  # the latter of older kernels: it says that it did not run it
        return Verdict("aborted", evidence)
    return Verdict("unknown", {**evidence, "because": "the reply's status is none that the protocol knows"})


def of_missing_reply(running: Running, why: str) -> Verdict:
    """The verdict when the kernel went idle and no reply came."""
    evidence: dict[str, Any] = {"reply": "missing", "because": why}
    if running.error is not None:
        if running.interrupts and running.error.get("ename") == "KeyboardInterrupt":
            return Verdict("interrupted", {**evidence, "error_message_seen": True}, running.error)
        return Verdict("error", {**evidence, "error_message_seen": True}, running.error)
    return Verdict("unknown", evidence)


def of_exit(exit_: KernelExited) -> Verdict:
    """The verdict on an execution that was running when the kernel went."""
    evidence: dict[str, Any] = dict(exit_.evidence)
    if exit_.signal is not None:
        evidence["signal"] = exit_.signal
    if exit_.exit_status is not None:
        evidence["exit_status"] = exit_.exit_status
    if exit_.asked:
        evidence["kernel_stopped_for"] = exit_.asked
    return Verdict("died", evidence)
