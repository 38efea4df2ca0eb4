"""What the server's list says that a session's kernel does, while others run cells in it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from kernel_runtime.client import session_files
from kernel_runtime.jupyter.kernels import SessionKernelManager, SessionMappingKernelManager
from kernel_runtime.jupyter.kernelspecs import SessionKernelSpecManager
from tests.contract.stock import running_session
from tests.support import eventually


def while_a_cell_runs(
    check: Callable[[SessionMappingKernelManager, SessionKernelManager], Awaitable[None]], gate: Path
) -> None:
    """A cell waits at the gate; then the session is attached, and looked at."""

    async def attached() -> None:
        kernels = SessionMappingKernelManager(kernel_spec_manager=SessionKernelSpecManager())
        try:
            kernel = kernels.session_kernel(await kernels.attach(session_files.load("busy")))
            assert kernel is not None
            await check(kernels, kernel)
        finally:
            await kernels.shutdown_all()

    with running_session("busy") as session:
        running = session.submit(f"while not __import__('os').path.exists({str(gate)!r}): pass")
        try:
            eventually(lambda: session.row()["state"] == "busy", what="it runs")
            asyncio.run(attached())
        finally:
            gate.touch()
        assert running.wait(timeout=30).outcome == "ok"


async def until(said: Callable[[], bool]) -> None:
    await asyncio.to_thread(eventually, said)


def test_attached_over_a_cell_that_runs(krt_home: Path, tmp_path: Path) -> None:
    """The journal's last word of the kernel's life is its start, told again to who attaches: after it the
    list said `idle`, until the cell ended. It runs.
    """

    async def check(_kernels: SessionMappingKernelManager, kernel: SessionKernelManager) -> None:
        assert kernel.watch is not None
        await until(lambda: kernel.watch is not None and kernel.watch.told > 0)
        assert kernel.execution_state == "busy"

    while_a_cell_runs(check, tmp_path / "gate")


def test_a_cell_began_before_its_state_was_listened_for(krt_home: Path, tmp_path: Path) -> None:
    """A subscription takes effect some time after it was asked for, and `busy` is published once: a cell that
    began before that was `idle` in the list for as long as it ran. Who begins to listen asks.
    """

    async def check(kernels: SessionMappingKernelManager, kernel: SessionKernelManager) -> None:
        await until(lambda: kernel.watch is not None and kernel.watch.told > 0)
        kernels.stop_watching_activity(kernel.kernel_id)
        kernel.execution_state = "idle"  # as it was looked at before the cell
        kernels.start_watching_activity(kernel.kernel_id)
        await until(lambda: kernel.execution_state == "busy")

    while_a_cell_runs(check, tmp_path / "gate")
