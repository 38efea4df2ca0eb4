"""`interrupt(execution_id)` means that one only, also when it ends while the interrupt is on its way."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import kernel_runtime as kr
from tests.cases.support import entries, printed, status_when, stopped
from tests.support import eventually

# a control thread that is busy: what is sent to it is heard when the next cell lets it
FIRST = """
import os, threading, time
shut, gate = threading.Event(), threading.Event()
def wait():
    shut.set()
    gate.wait(30)
get_ipython().kernel.control_thread.io_loop.add_callback(wait)
shut.wait(30)
print("shut", flush=True)
while not os.path.exists({go!r}): time.sleep(0.005)
"""
NEXT = """
print('on', flush=True)
gate.set()
while not os.path.exists({end!r}): time.sleep(0.005)
"""


@pytest.fixture
def session() -> Iterator[kr.Session]:
    with stopped("meant") as session:
        session.execute("1")
        yield session


def test_the_next_cell_is_not_interrupted(session: kr.Session, tmp_path: Path) -> None:
    """The kernel's control thread hears the interrupt of a cell when that cell has ended and the next one
    runs. It is for nobody then: the next cell ends `ok`, and the journal names none but the first.
    """
    go, end = tmp_path / "go", tmp_path / "end"
    first = session.submit(FIRST.format(go=str(go)), stop_on_error=False)
    behind = session.submit(NEXT.format(end=str(end)))
    eventually(lambda: printed(session, first, "shut"), what="the control thread is busy")
    asking = threading.Thread(target=session.interrupt, args=(first.execution_id,))
    asking.start()
    eventually(lambda: entries(session, "InterruptRequested"), what="the interrupt is sent")
    go.touch()
    first.wait(timeout=30)
    eventually(lambda: printed(session, behind, "on"), what="the next runs")
    # only the kernel tells of this, on the socket of the interrupt and after it: so it has heard that too
    status_when(session, lambda told: any(row.get("name") == "random" for row in told.resources))
    end.touch()
    assert behind.wait(timeout=30).outcome == "ok"
    asking.join(20)
    assert {entry.execution_id for entry in entries(session, "InterruptRequested")} == {first.execution_id}
