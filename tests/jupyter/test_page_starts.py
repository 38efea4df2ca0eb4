"""JupyterLab starts a notebook's kernel at a made-up path, and moves the row to the notebook's afterwards."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import kernel_runtime as kr
from kernel_runtime.client import session_files
from tests.jupyter.server import Server
from tests.support import eventually


def _started_by_a_page(server: Server, notebook: str, kernel: str) -> Any:
    """As `SessionContext` of JupyterLab does it."""
    placeholder = str(uuid.uuid4())
    asked = {"path": placeholder, "name": notebook, "type": "notebook", "kernel": {"name": kernel}}
    row = server.post("/api/sessions", asked, 201)
    # it takes a row at another path for one that somebody else has asked for since, and shuts it down
    assert row["path"] == placeholder
    status, moved = server.ask("PATCH", f"/api/sessions/{row['id']}", {"path": notebook})
    assert status == 200, moved
    return row


def test_a_page_that_starts_a_kernel_for_the_notebook_attaches(server: Server, session: kr.Session) -> None:
    kernel_id = server.kernel_of(session.name)
    notebook = Path(session_files.load(session.name).notebook).name
    eventually(lambda: kernel_id in server.kernels(), what="the session is one of the kernels")
    server.ask("DELETE", f"/api/kernels/{kernel_id}")
    row = _started_by_a_page(server, notebook, "python3")
    assert row["kernel"]["id"] == kernel_id
    rows = [one for one in server.get("/api/sessions") if one["kernel"]["id"] == kernel_id]
    assert [(one["id"], one["path"]) for one in rows] == [(row["id"], notebook)]


def test_a_new_session_from_a_page_has_the_notebook_as_its_own(server: Server) -> None:
    row = _started_by_a_page(server, "from a page.ipynb", "krt-python3")
    found = [
        one for one in server.get("/kernel-runtime/api/sessions") if one["kernel_id"] == row["kernel"]["id"]
    ]
    try:
        assert [one["path"] for one in found] == ["from a page.ipynb"]
    finally:
        with kr.attach(found[0]["name"]) as session:
            session.stop()
