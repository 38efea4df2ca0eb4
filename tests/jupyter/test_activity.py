"""What the server's list says that a session's kernel does, while others run cells in it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kernel_runtime import process
from kernel_runtime.client import session_files
from kernel_runtime.jupyter import identity
from kernel_runtime.jupyter import kernels as kernels_module
from kernel_runtime.jupyter.kernels import SessionKernelManager, SessionMappingKernelManager
from kernel_runtime.jupyter.kernelspecs import SessionKernelSpecManager
from tests.contract.stock import kernel_of, running_session
from tests.support import eventually


@asynccontextmanager
async def kernels_of(name: str) -> AsyncIterator[tuple[SessionMappingKernelManager, SessionKernelManager]]:
    """A server's kernels with that session among them."""
    kernels = SessionMappingKernelManager(kernel_spec_manager=SessionKernelSpecManager())
    try:
        kernel = kernels.session_kernel(await kernels.attach(session_files.load(name)))
        assert kernel is not None
        yield kernels, kernel
    finally:
        await kernels.shutdown_all()


def while_a_cell_runs(
    check: Callable[[SessionMappingKernelManager, SessionKernelManager], Awaitable[None]], gate: Path
) -> None:
    """A cell waits at the gate; then the session is attached, and looked at."""

    async def attached() -> None:
        async with kernels_of("busy") as (kernels, kernel):
            await check(kernels, kernel)

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


def test_attached_while_the_kernel_does_not_answer(krt_home: Path) -> None:
    """A kernel that does not answer is `busy` in the list. When it answers again its supervisor is told, and
    no message of the kernel's says so: the list said `busy` until the next cell.
    """

    async def attached(kernel_process: process.ProcessId) -> None:
        async with kernels_of("stopped") as (kernels, kernel):
            # what is asked for at the start is answered before it goes on
            await kernels._look_at(kernel)
            await until(lambda: not kernels._looks)
            assert kernel.execution_state == "busy"
            process.signal_process(kernel_process, signal.SIGCONT)
            await until(lambda: kernel.execution_state == "idle")

    with running_session("stopped") as session:
        stopped = kernel_of(session)
        process.signal_process(stopped, signal.SIGSTOP)
        try:
            eventually(lambda: session.row()["state"] == "unresponsive", what="it does not answer")
            asyncio.run(attached(stopped))
        finally:
            process.signal_process(stopped, signal.SIGCONT)


def test_the_first_message_of_a_kernel_that_is_up(krt_home: Path) -> None:
    """A kernel says `starting` once, and the news of its start may be here before that: no message says what
    it does after it, until the next cell.
    """

    async def attached() -> None:
        async with kernels_of("new") as (_, kernel):
            await until(lambda: kernel.execution_state == "idle")
            kernel.execution_state = "starting"  # as stock takes it from the message
            assert kernel.execution_state == "idle"
            kernel.execution_state = "busy"
            kernel.execution_state = "starting"
            assert kernel.execution_state == "busy"

    with running_session("new"):
        asyncio.run(attached())


def test_a_supervisor_that_does_not_answer_is_asked_again(
    krt_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What a kernel does is asked for where no message tells. On a busy machine the answer may take longer
    than anybody waits: it was asked once, and the list kept what it had.
    """
    monkeypatch.setattr(kernels_module, "_SCAN_WITHIN", 0.2)

    async def check(kernels: SessionMappingKernelManager, kernel: SessionKernelManager) -> None:
        await until(lambda: kernel.watch is not None and kernel.watch.told > 0)
        row = await kernels.clients.observer_of(kernel.file, identity.SERVER).row(within=30)
        supervisor = process.identify(int(row["supervisor_pid"]))
        assert supervisor is not None
        kernel.execution_state = "idle"
        process.signal_process(supervisor, signal.SIGSTOP)
        try:
            kernels._look(kernel)
            await until(lambda: "no answer" in caplog.text)
        finally:
            process.signal_process(supervisor, signal.SIGCONT)
        await until(lambda: kernel.execution_state == "busy")

    with caplog.at_level("INFO"):
        while_a_cell_runs(check, tmp_path / "gate")
