"""Wrote `journal_v1.db` and `journal_v1.json`, once. Never run it again for version 1.

    python -m tests.compat.make_journal_v1 DIRECTORY

A journal of schema version 1 with an entry of every kind of that version, every way of keeping a
payload and every column filled somewhere, under a clock that stands still. What it says must be read
the same for ever; `test_journal_v1.py` holds every later version to that.
"""

from __future__ import annotations

import base64
import hashlib
import sys
from pathlib import Path
from typing import Any

import msgspec

from kernel_runtime.journal import Journal, JournalReader
from kernel_runtime.model import facts as f
from kernel_runtime.model.entry import Draft
from tests.unit.journal.support import FixedClock, printed

BOOT = "00000000-0000-4000-8000-000000000001"


def noise(size: int) -> str:
    """Text that compresses as badly as an image in base64, the same each time."""
    data, block = b"", b"seed"
    while len(data) < size:
        block = hashlib.sha256(block).digest()
        data += block
    return base64.b64encode(data).decode()[:size]


def story() -> list[tuple[int, str, list[f.Fact]]]:
    """`(incarnation, principal, facts)` of each append."""
    png = msgspec.Raw(
        b'{"type":"display_data","content":{"data":{"image/png":"iVBORw0KGgo="},"metadata":{}}}'
    )
    error = {"ename": "ZeroDivisionError", "evalue": "division by zero", "traceback": ["…", "1/0"]}
    return [
        (
            0,
            "human:kim",
            [
                f.SessionCreated(
                    session_id="11111111-1111-4111-8111-111111111111",
                    name="sample",
                    kernel="python3",
                    cwd="/home/kim",
                    notebook="notebook.ipynb",
                    version="0.1.0",
                )
            ],
        ),
        (
            1,
            "system",
            [
                f.SupervisorStarted(pid=100, start_time=1000, boot_id=BOOT, version="0.1.0"),
                f.KernelStarting(argv=["python", "-m", "ipykernel_launcher"], reason="new"),
                f.KernelStartFailed(attempt=1, stderr="no module\n", exit_status=1),
                f.KernelStarted(
                    pid=101,
                    start_time=1001,
                    boot_id=BOOT,
                    language="python",
                    implementation="ipython",
                    own=True,
                ),
            ],
        ),
        (1, "agent:planner", [f.PrincipalAttached()]),
        (
            1,
            "agent:planner",
            [
                f.ExecutionQueued(
                    execution_id="aaaaaaaa-0000-4000-8000-000000000001",
                    source="import pandas as pd\nprint('안녕')",
                    cell_id="c1",
                    msg_id="m1",
                    key="step-1",
                    client_session="s1",
                    request="kaRteA==",
                ),
                f.ExecutionStarted(execution_id="aaaaaaaa-0000-4000-8000-000000000001"),
            ],
        ),
        (
            1,
            "agent:planner",
            [
                printed("aaaaaaaa-0000-4000-8000-000000000001", "안녕\n", 64),
                f.OutputRecorded(
                    execution_id="aaaaaaaa-0000-4000-8000-000000000001",
                    messages=[png, msgspec.Raw(b'{"text":"a\\ud800b","x":NaN}')],
                    position=256,
                ),
                printed("aaaaaaaa-0000-4000-8000-000000000001", "the same line again\n" * 500, 512),
                printed("aaaaaaaa-0000-4000-8000-000000000001", noise(6000), 9000),
                f.GapRecorded(
                    execution_id="aaaaaaaa-0000-4000-8000-000000000001",
                    reason="execution-bound",
                    messages=3,
                    bytes=12345,
                ),
                f.ExecutionFinished(
                    execution_id="aaaaaaaa-0000-4000-8000-000000000001",
                    outcome="ok",
                    execution_count=1,
                    reply={"user_expressions": {"x": {"status": "ok", "data": {"text/plain": "1"}}}},
                    position=9500,
                ),
            ],
        ),
        (
            1,
            "human:kim",
            [
                f.ExecutionQueued(
                    execution_id="aaaaaaaa-0000-4000-8000-000000000002",
                    source="input('name? '); 1/0",
                    cell_id="c2",
                    msg_id="m2",
                    door="jupyter",
                ),
                f.ExecutionStarted(execution_id="aaaaaaaa-0000-4000-8000-000000000002"),
                f.InputRequested(
                    execution_id="aaaaaaaa-0000-4000-8000-000000000002", prompt="name? ", password=False
                ),
                f.InputWithdrawn(
                    execution_id="aaaaaaaa-0000-4000-8000-000000000002", reason="the client left"
                ),
                f.InputRequested(
                    execution_id="aaaaaaaa-0000-4000-8000-000000000002", prompt="word? ", password=True
                ),
                f.InputAnswered(execution_id="aaaaaaaa-0000-4000-8000-000000000002", value=None),
                f.InterruptRequested(execution_id="aaaaaaaa-0000-4000-8000-000000000002", reached="message"),
                f.ExecutionFinished(
                    execution_id="aaaaaaaa-0000-4000-8000-000000000002",
                    outcome="error",
                    execution_count=2,
                    error=error,
                    evidence={"reply": "error", "after": ["interrupt"]},
                ),
            ],
        ),
        (
            1,
            "agent:planner",
            [
                f.ExecutionQueued(
                    execution_id="aaaaaaaa-0000-4000-8000-000000000003",
                    source="secret()",
                    cell_id="c3",
                    msg_id="m3",
                    silent=True,
                    store_history=False,
                    allow_stdin=False,
                    stop_on_error=False,
                ),
                f.ExecutionFinished(execution_id="aaaaaaaa-0000-4000-8000-000000000003", outcome="aborted"),
            ],
        ),
        (
            1,
            "system",
            [
                f.KernelUnresponsive(evidence={"state": "T"}),
                f.KernelResponsive(),
                f.KernelDied(pid=101, signal=9, evidence={"waitpid": True}),
                f.SupervisorStopped(reason="stop"),
                f.SupervisorStarted(pid=200, start_time=2000, boot_id=BOOT, version="0.1.0"),
            ],
        ),
        (2, "agent:planner", [f.HeapLossTold(lost=2, how="refused"), f.HeapLossAccepted(how="accept")]),
        (
            2,
            "agent:planner",
            [
                f.KernelStarting(argv=["python"], reason="execute"),
                f.KernelStarted(
                    pid=201,
                    start_time=2001,
                    boot_id=BOOT,
                    language="python",
                    implementation="ipython",
                    own=True,
                ),
                f.KernelAdopted(pid=201, start_time=2001, boot_id=BOOT),
                f.ExecutionQueued(
                    execution_id="aaaaaaaa-0000-4000-8000-000000000004",
                    source="x = 'a\ud800'",
                    cell_id="c1",
                    msg_id="m4",
                    key="step-2",
                ),
                f.ExecutionStarted(execution_id="aaaaaaaa-0000-4000-8000-000000000004"),
                f.InputRequested(
                    execution_id="aaaaaaaa-0000-4000-8000-000000000004", prompt="? ", password=False
                ),
            ],
        ),
        (2, "human:kim", [f.KernelStopped(reason="stop", exit_status=0)]),
    ]


def said(path: Path) -> dict[str, Any]:
    """Everything that a reader says of a journal, as JSON values."""
    with JournalReader.open(path) as reader:
        last = reader.head()
        return {
            "head": last,
            "log": [_plain(entry) for entry in reader.entries()],
            "executions": [_plain(execution) for execution in reader.executions()],
            "sources": {x.execution_id: reader.source(x.execution_id) for x in reader.executions()},
            "cells": [_plain(cell) for cell in reader.cells()],
            "counts": [list(count) for count in reader.cell_counts()],
            "seen": {name: _plain(seen) for name, seen in sorted(reader.seen().items())},
            "positions": [reader.position(incarnation) for incarnation in (0, 1, 2)],
            "history": [list(line) for line in reader.history()],
        }


def _plain(value: Any) -> Any:
    plain = msgspec.json.decode(msgspec.json.encode(value))
    if "fact" in plain:
        plain["fact"] = msgspec.json.decode(f.encode(value.fact))
    return plain


def make(directory: Path) -> None:
    path = directory / "journal_v1.db"
    with Journal.create(path, FixedClock()) as journal:
        for incarnation, principal, facts in story():
            journal.append([Draft(fact, principal, incarnation) for fact in facts], sync=False)
    path.with_suffix(".lock").unlink()
    golden = msgspec.json.format(msgspec.json.encode(said(path), order="sorted"), indent=1)
    (directory / "journal_v1.json").write_bytes(golden + b"\n")
    for leftover in ("journal_v1.db-wal", "journal_v1.db-shm"):  # a read-only reader cannot remove them
        (directory / leftover).unlink(missing_ok=True)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
