"""SIGTERM ends the server, whatever it is in the middle of, and what is open is saved before it goes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_server_terminals.terminalmanager import TerminalManager
from tornado import web

import kernel_runtime as kr
from kernel_runtime import process
from kernel_runtime.jupyter.terminals import SessionTerminalManager
from tests.contract.stock import supervisor_of
from tests.jupyter.server import Server, is_running
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


def test_after_a_kernel_that_could_not_be_started(server: Server) -> None:
    """A start that failed stayed in stock's list of starts, and shutting that down raised.

    jupyter_server stops its event loop only after all kernels are shut down, so the error was the last of it:
    it listened no more, and stayed. What failed to start is no kernel, and no error keeps the server.
    """
    other = server.post("/api/kernels", {"name": "python3"}, 201)
    assert server.ask("POST", "/api/kernels", {"name": "no-such-kernelspec"})[0] == 500
    with server.channels(other["id"]) as channels:
        pid = int(channels.run("import os; print(os.getpid())")[1])
    server.stop()
    assert not is_running(pid)
    server.start()


def test_terminals_that_end_while_the_server_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shutting a terminal down takes its time, in which the next may end by itself.

    Then it is gone, and asking for it raised: the server's end stopped there, as above.
    """
    asked: list[str] = []
    terminals = SessionTerminalManager(shell_command=["true"])
    monkeypatch.setattr(terminals, "_ours", dict)
    terminals.terminals.update(dict.fromkeys(("1", "2", "3")))

    async def terminate(_manager: Any, name: str, force: bool = False) -> None:
        del force
        asked.append(name)
        terminals.terminals.pop("2", None)
        if name not in terminals.terminals:
            raise web.HTTPError(404, f"Terminal not found: {name}")

    monkeypatch.setattr(TerminalManager, "terminate", terminate)
    asyncio.run(terminals.terminate_all())
    assert asked == ["1", "2", "3"]
