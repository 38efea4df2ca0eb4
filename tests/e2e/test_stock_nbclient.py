"""nbclient, unmodified, running notebooks in a session that exists."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import nbformat
import pytest
from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

import kernel_runtime as kr
from tests.contract.stock import executions, running_session


@pytest.fixture
def session() -> Iterator[kr.Session]:
    with running_session() as opened:
        yield opened


def client_of(session: kr.Session, notebook: Any, **options: Any) -> NotebookClient:
    """nbclient on an existing kernel: a manager that owns nothing and a client of the connection file."""
    manager = AsyncKernelManager()
    manager.load_connection_file(session.connection_file())
    client = NotebookClient(notebook, km=manager, timeout=60, **options)
    client.kc = AsyncKernelClient(connection_file=session.connection_file())
    client.kc.load_connection_file()
    client.kc.session.username = "ada"
    client.kc.start_channels()
    return client


def execute(client: NotebookClient) -> Any:
    """As nbclient's own `execute` does it, but for starting and ending a kernel."""
    channels = client.kc
    assert isinstance(channels, AsyncKernelClient)

    async def run() -> Any:
        await channels.wait_for_ready(timeout=30)
        for index, cell in enumerate(client.nb.cells):
            await client.async_execute_cell(cell, index)
        return client.nb

    try:
        return asyncio.run(run())
    finally:
        channels.stop_channels()


def test_a_notebook_runs_in_the_session_and_leaves_it_running(session):
    session.execute("greeting = 'hello from the session'")
    notebook = new_notebook(
        cells=[
            new_markdown_cell("# A notebook"),
            new_code_cell("print(greeting)"),
            new_code_cell("import sys; print('to stderr', file=sys.stderr); [x * x for x in range(4)]"),
            new_code_cell("from IPython.display import display, HTML"),
            new_code_cell("h = display(HTML('<b>1</b>'), display_id='d')"),
            new_code_cell("h.update(HTML('<b>2</b>'))"),
            new_code_cell("for i in range(3000): print('line', i)"),
        ]
    )
    done = execute(client_of(session, notebook))
    nbformat.validate(done)
    cells = done.cells
    assert cells[1].outputs[0].text == "hello from the session\n"
    assert [o.output_type for o in cells[2].outputs] == ["stream", "execute_result"]
    assert cells[2].outputs[1].data["text/plain"] == "[0, 1, 4, 9]"
    assert cells[4].outputs[0].data["text/html"] == "<b>2</b>"
    assert "".join(o.text for o in cells[6].outputs) == "".join(f"line {i}\n" for i in range(3000))
    assert [c.execution_count for c in cells[1:]] == [2, 3, 4, 5, 6, 7]

    rows = executions(session)
    assert [row.principal for row in rows] == ["agent:host"] + ["human:ada"] * 6
    assert {row.outcome for row in rows} == {"ok"}
    assert session.execute("h is not None").text == "True"


def test_a_cell_that_raises_stops_the_notebook_and_not_the_session(session):
    notebook = new_notebook(cells=[new_code_cell("x = 1"), new_code_cell("1 / 0"), new_code_cell("x = 2")])
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        execute(client_of(session, notebook))
    assert notebook.cells[1].outputs[0].ename == "ZeroDivisionError"
    assert session.execute("x").text == "1"


def test_allowed_errors_are_part_of_the_notebook(session):
    notebook = new_notebook(cells=[new_code_cell("1 / 0"), new_code_cell("print('goes on')")])
    done = execute(client_of(session, notebook, allow_errors=True))
    assert done.cells[1].outputs[0].text == "goes on\n"
    assert [row.outcome for row in executions(session)] == ["error", "ok"]
