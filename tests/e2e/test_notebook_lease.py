"""Who writes the notebook file: one at a time, and nobody's death leaves it behind the journal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kernel_runtime as kr
from kernel_runtime import process
from kernel_runtime.client.blocking import Session
from tests.support import eventually

LONG = 60.0
"""longer than any of these tests"""


@pytest.fixture
def notebook(krt_home: Path) -> Path:
    return krt_home.parent / "work.ipynb"


@pytest.fixture
def session(notebook: Path) -> Iterator[Session]:
    with kr.attach("alice", create=True, principal="agent:a", notebook=str(notebook)) as session:
        yield session
        session.stop()


def cells(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    found: list[dict[str, Any]] = json.loads(path.read_bytes())["cells"]
    return found


def sources(path: Path) -> list[str]:
    return ["".join(cell["source"]) for cell in cells(path)]


def test_holding_brings_the_file_up_to_date_and_then_nothing_writes_it(
    session: Session, notebook: Path
) -> None:
    session.execute("x = 1", timeout=60)
    held = session.hold_notebook("lab-1", seconds=LONG)
    assert (held.held, held.deferred) == (True, False)
    assert sources(notebook) == ["x = 1"]
    before = notebook.stat()
    session.execute("y = 2", timeout=60)
    session.execute("import time; time.sleep(1)", timeout=60)  # longer than a write is put off
    assert notebook.stat() == before
    assert sources(notebook) == ["x = 1"]
    assert session.hold_notebook("lab-1", seconds=LONG).held
    assert sources(notebook) == ["x = 1"]
    assert session.release_notebook("lab-1")
    eventually(lambda: sources(notebook) == ["x = 1", "y = 2", "import time; time.sleep(1)"])


def test_flush_merges_what_somebody_wrote_with_the_journal(session: Session, notebook: Path) -> None:
    session.execute("x = 1", timeout=60)
    session.hold_notebook("lab-1", seconds=LONG)
    session.execute("y = 2", timeout=60)
    document = json.loads(notebook.read_bytes())
    document["cells"].insert(0, {"cell_type": "markdown", "id": "md", "metadata": {}, "source": ["# hand"]})
    notebook.write_text(json.dumps(document))
    assert session.hold_notebook("lab-1", seconds=LONG, flush=True).held
    assert sources(notebook) == ["# hand", "x = 1", "y = 2"]


def test_one_holder_at_a_time(session: Session, notebook: Path) -> None:
    assert session.hold_notebook("lab-1", seconds=LONG).held
    refused = session.hold_notebook("lab-2", seconds=LONG)
    assert (refused.held, refused.by) == (False, "agent:a")
    assert 0 < refused.seconds <= LONG
    assert not session.release_notebook("lab-2")
    assert session.release_notebook("lab-1")
    assert session.hold_notebook("lab-2", seconds=LONG).held


def test_a_lease_that_is_not_renewed_ends(session: Session, notebook: Path) -> None:
    session.hold_notebook("lab-1", seconds=1)
    session.execute("x = 1", timeout=60)
    eventually(lambda: sources(notebook) == ["x = 1"], what="the lease ran out")
    assert session.hold_notebook("lab-2", seconds=LONG).held


HOLD = """
import sys, time
import kernel_runtime as kr
session = kr.attach("alice")
session.hold_notebook("doomed", seconds=100)
print("held", flush=True)
time.sleep(600)
"""


def test_a_holder_that_is_killed_holds_no_more(session: Session, notebook: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        session.execute("x = 1", timeout=60)
        assert not session.hold_notebook("lab-1", seconds=LONG).held
        assert sources(notebook) == []
    finally:
        holder.kill()
        holder.communicate()
    assert session.hold_notebook("lab-1", seconds=LONG).held
    assert sources(notebook) == ["x = 1"]


def test_a_killed_supervisor_is_followed_by_one_that_keeps_the_lease(
    session: Session, notebook: Path
) -> None:
    session.execute("x = 1", timeout=60)
    assert session.hold_notebook("lab-1", seconds=LONG).held
    pid = session.attached["supervisor_pid"]
    who = process.identify(pid)
    assert who is not None
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not process.is_alive(who), what="the supervisor is gone")
    session.execute("y = 2", timeout=60)
    assert not session.hold_notebook("lab-2", seconds=LONG).held
    assert sources(notebook) == ["x = 1"]
    assert session.release_notebook("lab-1")
    eventually(lambda: sources(notebook) == ["x = 1", "y = 2"], what="the file catches up")


def test_a_lease_that_nobody_can_know_of_any_more_is_caught_up_with(
    session: Session, notebook: Path, krt_home: Path
) -> None:
    session.execute("x = 1", timeout=60)
    session.hold_notebook("lab-1", seconds=LONG)
    session.execute("y = 2", timeout=60)
    session.stop()
    lease = krt_home / "sessions" / "alice" / "notebook.lease"
    assert lease.exists()
    lease.write_text("{")
    session.status()  # the next supervisor
    eventually(lambda: sources(notebook) == ["x = 1", "y = 2"], what="the file catches up")
