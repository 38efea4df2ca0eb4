"""The open document and its file: one writer at a time, and what somebody else writes is not lost."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

import kernel_runtime as kr
from tests.jupyter import shared_page
from tests.jupyter.server import Server
from tests.jupyter.shared_page import Page, ended, file_of, known, page, saved_cells
from tests.support import eventually

server = shared_page.server


@pytest.fixture
def opened(server: Server, session: kr.Session) -> Iterator[Page]:
    """A notebook with a text, a cell that ran and one that did not, open on a page."""
    session.execute("a = 1; a", timeout=60, cell_id="ran")
    known(server, session)
    eventually(lambda: saved_sources(server, session) == ["a = 1; a"], what="the cell in the file")
    document = json.loads(file_of(server, session).read_bytes())
    document["cells"].insert(0, markdown("text", "# t"))
    document["cells"].append(code("idle", "idle"))
    file_of(server, session).write_text(json.dumps(document))
    with page(server, f"{session.name}.ipynb") as one:
        one.until(lambda: one.sources() == ["# t", "a = 1; a", "idle"], what="the document")
        yield one


def markdown(cell_id: str, source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "id": cell_id, "metadata": {}, "source": source}


def code(cell_id: str, source: str) -> dict[str, Any]:
    cell = {"cell_type": "code", "id": cell_id, "metadata": {}, "source": source}
    return {**cell, "outputs": [], "execution_count": None}


def saved_sources(server: Server, session: kr.Session) -> list[str]:
    return ["".join(cell["source"]) for cell in saved_cells(server, session)]


def digest_of(server: Server, session: kr.Session) -> str:
    """As the room tells the pages once it has saved the file."""
    return hashlib.sha256(file_of(server, session).read_bytes()).hexdigest()


def rewrite(server: Server, session: kr.Session, **sources: str) -> None:
    """Somebody else changes cells in the file, while nothing is being saved."""
    path = file_of(server, session)
    document = json.loads(path.read_bytes())
    for cell in document["cells"]:
        if cell["id"] in sources:
            cell["source"] = sources[cell["id"]]
    path.write_text(json.dumps(document))


def test_what_is_typed_is_in_the_file_and_the_supervisor_does_not_write_it(
    opened: Page, server: Server, session: kr.Session
) -> None:
    opened.type("text", "# typed")
    eventually(lambda: saved_sources(server, session) == ["# typed", "a = 1; a", "idle"], what="saved")
    refused = session.hold_notebook("somebody-else", seconds=5)
    assert not refused.held


def test_another_program_changes_the_file_and_people_something_else(
    opened: Page, server: Server, session: kr.Session
) -> None:
    opened.type("text", "# typed")
    opened.sync()
    rewrite(server, session, idle="from elsewhere")
    both = ["# typed", "a = 1; a", "from elsewhere"]
    opened.until(lambda: opened.sources() == both, what="the file's change on the page")
    eventually(lambda: saved_sources(server, session) == both, what="both in the file")


def test_another_program_and_people_change_the_same_cell(
    opened: Page, server: Server, session: kr.Session
) -> None:
    opened.type("idle", "typed")
    opened.sync()
    rewrite(server, session, idle="from elsewhere")
    both = ["# t", "a = 1; a", "typed", "from elsewhere"]
    opened.until(lambda: opened.sources() == both, what="both on the page")
    eventually(lambda: saved_sources(server, session) == both, what="both in the file")


def test_an_old_copy_takes_no_cell_away(opened: Page, server: Server, session: kr.Session) -> None:
    old = file_of(server, session).read_bytes()
    session.execute("b = 2; b", timeout=60, cell_id="later")
    ended(opened, "later")
    opened.add(len(opened.cells()), "note", "# by hand", "markdown")
    everything = ["# t", "a = 1; a", "idle", "b = 2; b", "# by hand"]
    eventually(lambda: saved_sources(server, session) == everything, what="saved")
    opened.until(lambda: opened.notebook.hash == digest_of(server, session), what="the end of the save")
    file_of(server, session).write_bytes(old)  # git checkout
    # the note was in the file that was replaced, and is taken out by that, as it is without an open page
    without = ["# t", "a = 1; a", "idle", "b = 2; b"]
    opened.until(lambda: opened.sources() == without, what="the old copy, with what ran since")
    eventually(lambda: saved_sources(server, session) == without, what="the same in the file")
    assert opened.cell("later")["outputs"][0]["data"]["text/plain"] == "2"  # type: ignore[index]


def test_what_is_saved_is_what_the_supervisor_would_have_written(
    opened: Page, server: Server, session: kr.Session
) -> None:
    source = "import sys; from IPython.display import display, HTML\nprint('é\\n1'); display(HTML('<b>'))\nx"
    session.execute("x = 1; x", timeout=60, cell_id="one")
    session.execute(source, timeout=60, cell_id="rich")
    session.execute("1/0", timeout=60, cell_id="raises")
    ended(opened, "raises")
    opened.type("one", "x = 1; x  # edited")
    opened.type("text", "# more\ntext")
    eventually(lambda: "x = 1; x  # edited" in saved_sources(server, session), what="saved")
    opened.close()
    # the room ends, and its lease
    eventually(lambda: session.hold_notebook("check", seconds=60).held, what="the lease is free")
    before = json.loads(file_of(server, session).read_bytes())
    session.execute("last", timeout=60, cell_id="last")
    session.hold_notebook("check", seconds=60, flush=True)
    after = json.loads(file_of(server, session).read_bytes())
    assert after["cells"][-1]["id"] == "last"
    assert after["cells"][:-1] == before["cells"]
    for document in (before, after):
        document["metadata"]["kernel_runtime"].pop("head")
    assert after["metadata"] == before["metadata"]
    session.release_notebook("check")


def test_a_notebook_that_is_no_session_s_is_as_in_any_jupyter(server: Server) -> None:
    path = server.root / "plain.ipynb"
    document = {"cells": [markdown("m", "one")], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(document))
    with page(server, "plain.ipynb") as plain:
        plain.until(lambda: plain.sources() == ["one"], what="the document")
        document["cells"] = [markdown("m", "two")]
        path.write_text(json.dumps(document))
        plain.until(lambda: plain.sources() == ["two"], what="overwritten")
        plain.type("m", "three")
        eventually(lambda: "three" in path.read_text(), what="saved")
        assert "kernel_runtime" not in path.read_text()
