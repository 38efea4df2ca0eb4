"""Notebook 7: with the wheel installed and nothing configured, sessions are there and its page has our part.

Its server is a JupyterLab server with another page, so what all the other tests here prove of a server is
not said again.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.stock import executions, running_session
from tests.jupyter.installed import Installed
from tests.jupyter.server import TOKEN, Server

pytestmark = pytest.mark.timeout(300)  # a wheel is built for it


class Notebook(Server):
    """`jupyter notebook`."""

    module = "notebook"


@pytest.fixture
def notebook(tmp_path: Path, wheel: Installed) -> Iterator[Notebook]:
    (tmp_path / "work").mkdir()
    server = Notebook(tmp_path / "work")
    server.installed = wheel
    server.start()
    yield server
    server.stop()


def page(server: Server, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}?token={TOKEN}", timeout=30) as reply:
        return str(reply.read().decode())


def test_an_agents_session_is_its_notebook_with_a_running_kernel(notebook: Notebook) -> None:
    where = notebook.root / "flights.ipynb"
    with running_session("flights", cwd=notebook.root, notebook=where) as session:
        session.execute("delays = [3, 14, 15]")
        kernel_id = notebook.kernel_of("flights")
        assert notebook.row("flights.ipynb")["kernel"]["id"] == kernel_id
        text = page(notebook, "/notebooks/flights.ipynb")
        assert '"notebookPage": "notebooks"' in text
        assert "@kernel-runtime/lab" in text
        with notebook.channels(kernel_id) as channels:
            assert channels.run("print(sum(delays))")[1] == "32\n"
        assert [row.outcome for row in executions(session)] == ["ok", "ok"]
