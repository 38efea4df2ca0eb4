"""What the server says that a session's kernel does."""

from __future__ import annotations

from kernel_runtime.jupyter.kernels import SessionKernelManager


def test_a_late_message_brings_no_dead_kernel_back():
    """jupyter_server takes a kernel's state from the messages that pass. That it has died comes another way,
    by the journal, and could overtake the `idle` of the cell that killed it: its model then said `idle`.
    """
    kernel = SessionKernelManager()
    kernel.on_life("KernelStarted", 1)
    kernel.execution_state = "busy"
    kernel.on_life("KernelDied", 1)
    kernel.execution_state = "idle"
    assert kernel.execution_state == "dead"
    kernel.on_life("KernelStarted", 2)
    assert kernel.execution_state == "idle"
    kernel.execution_state = "busy"
    assert kernel.execution_state == "busy"
