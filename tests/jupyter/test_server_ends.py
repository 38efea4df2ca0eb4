"""SIGTERM ends the server, whatever it is in the middle of, and what is open is saved before it goes."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import kernel_runtime as kr
from kernel_runtime import process
from tests.contract.stock import supervisor_of
from tests.jupyter.server import Server
from tests.jupyter.shared_page import collaborative, known, page, saved_cells
from tests.support import eventually


@pytest.fixture
def server(krt_home: Path, tmp_path: Path) -> Iterator[Server]:
    with collaborative(tmp_path, "work") as server:
        yield server


def test_while_a_room_is_being_left(server: Server, session: kr.Session) -> None:
    """The last page closes, its room ends and saves, and SIGTERM comes before that is done.

    The server's end waited for rooms that are there, and not for one on its way out: the event loop stopped
    in the middle of it, and the thread that had written the file for it, which ends with the task that it
    worked for, never ended. Python waits for its threads, so the server stayed for good. A supervisor that
    does not answer makes the leaving take its time.
    """
    session.execute("x = 1", cell_id="a")
    known(server, session)
    supervisor = supervisor_of(session)
    with page(server, f"{session.name}.ipynb") as one:
        one.until(one.cells, what="the document")
        one.add(1, "mine", "typed")
        one.sync()
        process.signal_process(supervisor, signal.SIGSTOP)
    try:
        eventually(lambda: "Saving file" in server.log.read_text(), what="the room is being left")
        server.stop()
    finally:
        process.signal_process(supervisor, signal.SIGCONT)
    assert ["".join(cell["source"]) for cell in saved_cells(server, session)] == ["x = 1", "typed"]
    server.start()
