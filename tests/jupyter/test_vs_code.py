"""What VS Code's Jupyter extension does with an existing server, through the client library that it uses.

VS Code itself is not run: `node/editor.cjs` does what its extension does, with @jupyterlab/services 7.5.1.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import nbformat
import pytest

import kernel_runtime as kr
from tests.contract.stock import executions, kernel_of
from tests.jupyter.hub import NODE
from tests.jupyter.server import TOKEN, Server
from tests.support import eventually


class Editor:
    """An editor's connection to a server."""

    def __init__(self, server: Server) -> None:
        node = shutil.which("node")
        assert node is not None, "no node: Node 20 or newer runs the client library"
        assert (NODE / "node_modules" / "@jupyterlab").exists(), (
            f"`npm ci` in {NODE} brings the client library"
        )
        argv = [node, str(NODE / "editor.cjs"), f"http://127.0.0.1:{server.port}", TOKEN]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, do: str, **how: Any) -> Any:
        """Have it do something; what it says."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **how}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert "ok" in answer, (do, answer)
        return answer["ok"]

    def close(self) -> None:
        """The window is closed."""
        self._process.communicate(timeout=30)


@pytest.fixture
def editor(server: Server) -> Iterator[Editor]:
    editor = Editor(server)
    yield editor
    editor.close()


@pytest.fixture
def path(server: Server, session: kr.Session) -> str:
    """Where the session's notebook is on the server."""
    found = f"{session.name}.ipynb"
    eventually(lambda: found in server.rows(), what="its row")
    return found


def test_it_lists_the_session_and_runs_cells_in_it(
    server: Server, session: kr.Session, editor: Editor, path: str
) -> None:
    session.execute("delays = [3, 14, 15]")
    listed = {row["path"]: row["kernel"] for row in editor("list")}
    assert listed[path] == server.kernel_of(session.name)
    assert editor("connect", path=path) == {"kernel": listed[path]}
    assert editor("run", code="print(sum(delays))") == {
        "status": "ok",
        "count": 2,
        "text": "32\n",
        "prompt": None,
    }
    asked = editor("run", code="print('for ' + input('who? '))", cell="W1", answer="ada")
    assert (asked["prompt"], asked["text"]) == ("who? ", "for ada\n")
    failed = editor("run", code="1 / 0", cell="W2")
    assert (failed["status"], failed["text"]) == ("error", "ZeroDivisionError: division by zero")
    assert {row.principal.partition(":")[0] for row in executions(session)[1:]} == {"human"}


def test_no_output_of_quick_cells_is_lost(session: kr.Session, editor: Editor, path: str) -> None:
    """A client library takes messages of another header session for another kernel's, and drops what it has
    not yet looked at of the first one's: supervisor and kernel speak under one.
    """
    editor("connect", path=path)
    said = [editor("run", code=f"print({number})")["text"] for number in range(30)]
    assert said == [f"{number}\n" for number in range(30)]


def test_closing_it_ends_nothing(session: kr.Session, editor: Editor, path: str) -> None:
    kernel = kernel_of(session)
    editor("connect", path=path)
    editor("run", code="kept = 1")
    editor("close")
    assert session.execute("print(kept)").text == "1\n"
    assert kernel_of(session) == kernel


def test_shutting_the_kernel_down_detaches(
    server: Server, session: kr.Session, editor: Editor, path: str
) -> None:
    kernel = kernel_of(session)
    editor("connect", path=path)
    editor("run", code="kept = 1")
    editor("shutdown")
    eventually(lambda: path not in server.rows(), what="the row is gone")
    assert kernel_of(session) == kernel
    assert session.execute("print(kept)").text == "1\n"
    # and started for its notebook it is there again, with its heap
    assert editor("start", path=path, kernel="python3")["path"] == path
    assert editor("run", code="print(kept)")["text"] == "1\n"


def test_restart_is_the_next_incarnation(session: kr.Session, editor: Editor, path: str) -> None:
    editor("connect", path=path)
    editor("run", code="gone = 1")
    before = session.status().incarnation
    editor("restart")
    failed = editor("run", code="print(gone)", cell="W1")
    assert failed["text"] == "NameError: name 'gone' is not defined"
    assert session.status().incarnation == before + 1


def test_a_server_that_was_killed_is_found_again(
    server: Server, session: kr.Session, editor: Editor, path: str
) -> None:
    editor("connect", path=path)
    editor("run", code="kept = 1")
    editor("again")
    server.kill()
    server.start()
    assert "connected" in editor("again")["statuses"]
    assert editor("run", code="print(kept)", cell="W1")["text"] == "1\n"


def test_its_ids_of_cells_do_not_reach_the_file(
    server: Server, session: kr.Session, editor: Editor, path: str
) -> None:
    """It names a cell by its editor's address, which nbformat does not allow as an id.

    Nor does what it asks the kernel for itself, when it connects: it named no cell, and wanted no history.
    """
    editor("connect", path=path)
    editor("run", code="print('seen')")
    assert executions(session)[-1].cell_id.startswith("vscode-notebook-cell:")
    file = server.root / path
    eventually(lambda: "seen" in file.read_text(), what="the cell is in the file")
    notebook = nbformat.read(file, as_version=4)
    nbformat.validate(notebook)
    assert [cell.source for cell in notebook.cells] == ["print('seen')"]
