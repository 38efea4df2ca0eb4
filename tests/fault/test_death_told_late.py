"""Kernel and supervisor killed at once, and the kernel's parent slow to say how the kernel ended."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from kernel_runtime import process
from kernel_runtime.journal import JournalReader
from kernel_runtime.model.facts import KernelDied
from kernel_runtime.supervisor import launch
from tests.fault.rig import Rig
from tests.support import eventually

pytestmark = pytest.mark.slow


def death(rig: Rig) -> KernelDied | None:
    with JournalReader.open(rig.file.journal) as reader:
        entry = reader.latest("KernelDied")
    return entry.fact if entry is not None and isinstance(entry.fact, KernelDied) else None


def waits(rig: Rig, killed: int) -> bool:
    """Whether the next supervisor is there and waits for nothing but the clock."""
    try:
        pid = rig.supervisor_pid()
        return pid != killed and "nanosleep" in Path(f"/proc/{pid}/wchan").read_text()
    except (OSError, ValueError):
        return False


def test_the_next_supervisor_waits_for_a_parent_that_lives(rig: Rig) -> None:
    """The parent tells the kernel's wait status a moment after the kernel's end, and may be later than the
    next supervisor's look. While it lives that status is about to come: it is waited for, so the death has
    its signal, and not `no supervisor was there`.
    """
    session = rig.attach()
    session.execute("1")
    record = launch.load_record(rig.file.directory / "kernel.json")
    assert record is not None
    parent = record.foster
    assert parent is not None
    process.signal_process(parent, signal.SIGSTOP)
    eventually(lambda: process.run_state(parent.pid) == "T", what="the parent is stopped")
    killed = rig.supervisor_pid()
    rig.kill(killed)
    process.signal_process(record.process, signal.SIGKILL)
    eventually(lambda: not process.is_alive(record.process), what="the kernel is gone")
    rig.begin(rig.attach_anew)
    eventually(
        lambda: death(rig) or waits(rig, killed), timeout=30, what="it waits, or has written the death"
    )
    process.signal_process(parent, signal.SIGCONT)
    told = eventually(lambda: death(rig), timeout=30, what="the death is told")
    assert told is not None
    assert told.signal == signal.SIGKILL
    assert "exit_status" not in told.evidence
