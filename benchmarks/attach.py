"""Attach to a running session: against `wait_for_ready`, and with a long past against a short one."""

from __future__ import annotations

import hashlib
import uuid
from pathlib import Path

from jupyter_client.blocking.client import BlockingKernelClient

import kernel_runtime as kr
from benchmarks.measure import Result, compared, in_turns
from benchmarks.subjects import places, session, stock, with_past
from kernel_runtime.model import facts as f


def run(*, quick: bool = False) -> list[Result]:
    return [against_ready(8 if quick else 30), against_age(2_000 if quick else 100_000, 8 if quick else 30)]


def against_ready(rounds: int) -> Result:
    with places() as root, stock(root) as (_, path, _), session("warm"):

        def theirs() -> None:
            client = BlockingKernelClient()
            client.load_connection_file(str(path))
            client.start_channels()
            client.wait_for_ready(timeout=60)
            client.stop_channels()

        series = in_turns({"ours": lambda: _attach("warm"), "theirs": theirs}, rounds, warm=2)
    note = "a new client in a warm process, until it has the session's truth table / the kernel is ready"
    return compared("attach", series, goal=0.05, note=note)


def against_age(executions: int, rounds: int) -> Result:
    with places():
        for name, past in (("young", 10), ("old", executions)):
            _with_past(name, past)
            with kr.attach(name) as client:
                client.restart()
        series = in_turns(
            {"ours": lambda: _attach("old"), "theirs": lambda: _attach("young")}, rounds, warm=2
        )
        for name in ("young", "old"):
            with kr.attach(name) as client:
                client.stop()
    note = f"`theirs` is our own session with 10 executions behind it; {executions:,} against that"
    return compared(f"attach at {executions:,} executions", series, goal=1.5, note=note)


def _attach(name: str) -> None:
    with kr.attach(name) as client:
        assert client.incarnation


def _with_past(name: str, executions: int) -> None:
    """A session whose journal tells of so many executions, every tenth of a cell that ran before."""
    past = (fact for number in range(executions) for fact in _execution(number))
    with_past(name, past, cwd=Path.cwd())


def _execution(number: int) -> list[f.Fact]:
    execution_id = str(uuid.uuid4())
    source = f"x{number} = {number}"
    cell = number - 1 if number % 10 == 9 else number
    return [
        f.ExecutionQueued(
            execution_id=execution_id,
            source=source,
            cell_id=hashlib.sha256(str(cell).encode()).hexdigest()[:8],
            msg_id=execution_id,
        ),
        f.ExecutionStarted(execution_id=execution_id),
        f.ExecutionFinished(execution_id=execution_id, outcome="ok", execution_count=number + 1),
    ]
