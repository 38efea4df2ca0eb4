"""What is typed and run at once comes to the server by two sockets, in either order."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import kernel_runtime as kr
from tests.contract.stock import executions
from tests.jupyter import shared_page
from tests.jupyter.server import Server
from tests.jupyter.shared_page import Page, ended, known, page

server = shared_page.server


@pytest.fixture
def opened(server: Server, session: kr.Session) -> Iterator[Page]:
    """The session's notebook, open on a page, with one cell that ran."""
    session.execute("x = 1; x", timeout=60, cell_id="ran")
    known(server, session)
    with page(server, f"{session.name}.ipynb") as one:
        ended(one, "ran")
        yield one


def run(server: Server, session: kr.Session, opened: Page, cell_id: str, **more: Any) -> Any:
    """As a page does when Shift+Enter is pressed."""
    cell = opened.cell(cell_id)
    assert cell is not None
    body = {"source": cell["source"], "cell_id": cell_id, "client": "page", **more}
    return server.post(server.api(session.name, "execute"), body, 202)


def state(opened: Page) -> str:
    return base64.b64encode(opened.doc.get_state()).decode()


@pytest.mark.parametrize("cell_id", ["new", "ran"])
def test_run_before_the_last_of_it_has_come(
    server: Server, session: kr.Session, opened: Page, cell_id: str
) -> None:
    """The request to run overtook the document's last changes: the server put the source that ran in place of
    the text that it had, then the page's own came, and the cell had both (`nemine = 1` for `mine = 1`). The
    request says how much of the document its page has, and waits for that.
    """
    if cell_id == "new":
        opened.add(1, "new", "x = 2")
        opened.sync()
    opened.hold()
    opened.type(cell_id, "x = 25; x")
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(run, server, session, opened, cell_id, document=state(opened))
        for _ in range(50):  # as long as it took, were it not waiting
            server.get("/api/kernels")
        assert not asked.done()
        assert len(executions(session)) == 1
        opened.let_go()
        asked.result(timeout=30)
    opened.until(lambda: ended(opened, cell_id)["execution_count"] == 2, what="its end")
    cell = opened.cell(cell_id)
    assert cell is not None
    assert cell["source"] == "x = 25; x"
    assert opened.sources() == (["x = 1; x", "x = 25; x"] if cell_id == "new" else ["x = 25; x"])


def test_another_document_is_not_waited_for(server: Server, session: kr.Session, opened: Page) -> None:
    """Another notebook on the session's kernel has a document of its own, of which this one has nothing."""
    alone = base64.b64encode(b"\x01\x07\x09").decode()  # client 7, nine of its changes
    run(server, session, opened, "ran", document=alone)
    assert ended(opened, "ran")["source"] == "x = 1; x"


def test_what_is_no_state_is_refused(server: Server, session: kr.Session, opened: Page) -> None:
    for wrong in ("*", base64.b64encode(b"\x05").decode()):
        body = {"source": "1", "document": wrong}
        told = server.post(server.api(session.name, "execute"), body, 400)
        assert told["error"]["type"] == "UsageError"
    assert len(executions(session)) == 1
