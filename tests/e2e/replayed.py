"""What tests of replays share: sessions that are recorded, places of their own, and what came out."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kernel_runtime as kr
from kernel_runtime import process
from kernel_runtime.client import session_files
from kernel_runtime.replay import workspace
from kernel_runtime.replay.result import Result


@pytest.fixture(autouse=True)
def places(tmp_path: Path) -> Iterator[Path]:
    """The directory under which this test's replays have their places; nothing may be left in it."""
    assert tmp_path.exists()  # made before TMPDIR is another one
    root = Path(tempfile.mkdtemp(prefix="rp-"))
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("TMPDIR", str(root))
        monkeypatch.setattr(tempfile, "tempdir", None)
        yield root
        left = [str(path) for path in workspace.base().iterdir()]
        running = processes_under(root)
    shutil.rmtree(root, ignore_errors=True)
    assert left == []
    assert running == []


def processes_under(root: Path) -> list[process.ProcessId]:
    """Living processes of a replay whose places are there."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and (env := process.environment_of(int(name))) is not None:
            who = process.identify(int(name))
            if env.get("KRT_HOME", "").startswith(f"{root}/") and who is not None:
                found.append(who)
    return found


def looked_at_and_stopped(session: kr.Session) -> None:
    """A stop does not wait until the last cell has been looked at, and its names would be missing."""
    session.status(limit=0)
    session.stop()


Record = Callable[..., None]


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Record]:
    """Runs cells in a session `s` and stops it. `None` in place of a cell is a restart."""

    def run(*cells: str | None, name: str = "s", principal: str = "agent:a") -> None:
        with kr.attach(name, create=True, cwd=str(tmp_path), principal=principal) as session:
            for cell in cells:
                if cell is None:
                    session.restart()
                else:
                    session.execute(cell, accept=True, stop_on_error=False, timeout=30)
            looked_at_and_stopped(session)

    yield run
    for name in session_files.names():
        with kr.attach(name) as session:
            session.stop()


def verdicts(result: Result) -> list[str]:
    return [row["verdict"] for row in result.executions]


def reasons(result: Result) -> list[str]:
    return [row["reason"] or "" for row in result.executions]
