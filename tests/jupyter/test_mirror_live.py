"""What a session runs is in the open document as it runs, and in the file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kernel_runtime as kr
from tests.jupyter.server import Server
from tests.jupyter.shared_page import Page, page
from tests.support import eventually


@pytest.fixture(scope="module")
def server(krt_home: Path) -> Iterator[Server]:
    root = krt_home.parent / "work"
    root.mkdir()
    server = Server(
        root,
        ServerApp={
            "jpserver_extensions": {
                "kernel_runtime.jupyter": True,
                "jupyter_server_ydoc": True,
                "jupyter_server_fileid": True,
            }
        },
        SQLiteYStore={"db_path": str(krt_home.parent / "ystore.db")},
        YDocExtension={"document_cleanup_delay": 0.5, "file_poll_interval": 0.2},
    )
    server.start()
    yield server
    server.stop()


@pytest.fixture
def opened(server: Server, session: kr.Session) -> Iterator[Page]:
    """The session's notebook, open on a page."""
    session.execute("'before'", timeout=60)
    known(server, session)
    with page(server, f"{session.name}.ipynb") as one:
        one.until(lambda: one.sources() == ["'before'"], what="the document")
        yield one


def known(server: Server, session: kr.Session) -> None:
    def path() -> Any:
        rows = server.get("/kernel-runtime/api/sessions")
        return next((row["path"] for row in rows if row["name"] == session.name), None)

    eventually(path, what="the server knows the notebook")
    eventually(lambda: file_of(server, session).exists(), what="its file")


def file_of(server: Server, session: kr.Session) -> Path:
    return server.root / f"{session.name}.ipynb"


def saved_cells(server: Server, session: kr.Session) -> list[dict[str, Any]]:
    """Those in the file; none while a save is half done."""
    try:
        cells: list[dict[str, Any]] = json.loads(file_of(server, session).read_bytes())["cells"]
    except ValueError:
        return []
    return cells


def test_a_new_cell_comes_with_its_output(opened: Page, session: kr.Session, server: Server) -> None:
    execution = session.submit("print('one'); 2", cell_id="two")
    opened.until(lambda: (opened.cell("two") or {}).get("execution_state") == "idle", what="its end")
    cell = opened.cell("two")
    assert cell is not None
    assert cell["source"] == "print('one'); 2"
    assert cell["execution_count"] == 2
    assert [out["output_type"] for out in cell["outputs"]] == ["stream", "execute_result"]
    ours = cell["metadata"]["kernel_runtime"]
    assert ours["execution_id"] == execution.execution_id
    assert (ours["outcome"], ours["principal"]) == ("ok", session.principal)
    assert cell["metadata"]["execution"]["iopub.status.busy"]

    def saved() -> bool:
        cells = saved_cells(server, session)
        return bool(cells) and cells[-1]["id"] == "two" and cells[-1]["outputs"][0]["text"] == ["one\n"]

    eventually(saved, what="the room saves it")
