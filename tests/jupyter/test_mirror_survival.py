"""The page, the server and the supervisor come and go, and the document has everything, once."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import kernel_runtime as kr
from tests.contract.stock import kill, supervisor_of
from tests.jupyter import shared_page
from tests.jupyter.server import Server
from tests.jupyter.shared_page import (
    Page,
    collaborative,
    ended,
    file_of,
    in_the_store,
    known,
    page,
    saved_cells,
)
from tests.support import eventually

server = shared_page.server


@pytest.fixture
def ran(server: Server, session: kr.Session) -> kr.Session:
    """Its notebook has one cell."""
    session.execute("print('before')", timeout=60, cell_id="before")
    known(server, session)
    eventually(lambda: len(saved_cells(server, session)) == 1, what="the cell in the file")
    return session


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A cell that opens it for reading waits until somebody writes."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


def waits(gate: Path) -> str:
    return f"print('begins', flush=True); open({str(gate)!r}).read(); print('ends', flush=True)"


def it_begins(one: Page, ran: kr.Session, gate: Path) -> None:
    """The page has the document, and the beginning of a cell that waits at the gate."""
    one.until(one.cells, what="the document")
    ran.submit(waits(gate), cell_id="long")
    one.until(lambda: one.text("long") == "begins\n", what="its beginning")


def has_all_once(one: Page) -> None:
    ended(one, "after")
    one.until(lambda: one.text("long") == "begins\nends\n", what="all of it, once")
    assert [cell["id"] for cell in one.cells()] == ["before", "long", "after"]


def test_closed_over_a_running_cell_and_opened_again(server: Server, ran: kr.Session, gate: Path) -> None:
    path = f"{ran.name}.ipynb"
    with page(server, path) as first:
        it_begins(first, ran, gate)
    # the room ends half a second after its last page
    eventually(lambda: ran.hold_notebook("check", seconds=1).held, what="the room has ended")
    gate.write_text("on")
    ran.wait(timeout=60)
    ran.execute("print('after')", timeout=60, cell_id="after")
    # the same page comes back with what it had, and another one with nothing
    with page(server, path, first.doc) as back, page(server, path) as other:
        for one in (back, other):
            has_all_once(one)


def test_the_server_is_killed_over_a_running_cell(server: Server, ran: kr.Session, gate: Path) -> None:
    path = f"{ran.name}.ipynb"
    with page(server, path) as before:
        it_begins(before, ran, gate)
        in_the_store(server, str(gate))
        server.kill()
    gate.write_text("on")
    ran.wait(timeout=60)
    ran.execute("print('after')", timeout=60, cell_id="after")
    server.start()
    known(server, ran)
    with page(server, path, before.doc) as back, page(server, path) as other:
        for one in (back, other):
            has_all_once(one)


def test_the_server_is_killed_and_the_cell_runs_on(server: Server, ran: kr.Session, gate: Path) -> None:
    path = f"{ran.name}.ipynb"
    with page(server, path) as before:
        it_begins(before, ran, gate)
        in_the_store(server, str(gate))
        server.kill()
    server.start()
    known(server, ran)
    with page(server, path) as one:
        one.until(lambda: one.text("long") == "begins\n", what="what it had")
        cell = one.cell("long")
        assert cell is not None
        assert cell["execution_state"] == "running"
        gate.write_text("on")
        ended(one, "long")
        assert one.text("long") == "begins\nends\n"


def test_edits_that_a_killed_server_had_not_saved(server: Server, ran: kr.Session, krt_home: Path) -> None:
    path = f"{ran.name}.ipynb"
    with page(server, path) as before:
        before.until(before.cells, what="the document")
        before.add(1, "first", "# saved", "markdown")
        base = krt_home / "sessions" / ran.name / "notebook.base"
        eventually(lambda: b'"first"' in base.read_bytes(), what="saved")
        before.type("first", "# not saved")
        before.type("before", "print('before')  # not saved")
        before.add(2, "last", "quite new")
        store = server.root.parent / "work.ystore1.db"
        journal = store.with_name(f"{store.name}-journal")
        eventually(
            lambda: b"quite new" in store.read_bytes() and not journal.exists(), what="kept, not yet saved"
        )
        server.kill()
    # the supervisor has the file again, and writes what ran since
    ran.execute("print('after')", timeout=60, cell_id="after")
    eventually(
        lambda: [c["id"] for c in saved_cells(server, ran)][-1:] == ["after"], 30, "the file catches up"
    )
    server.start()
    known(server, ran)
    with page(server, path) as one:
        everything = ["print('before')  # not saved", "# not saved", "quite new", "print('after')"]
        one.until(lambda: one.sources() == everything, what="edits and what ran since")
    eventually(
        lambda: ["".join(cell["source"]) for cell in saved_cells(server, ran)] == everything, what="saved"
    )


def test_the_supervisor_is_killed_under_an_open_page(server: Server, ran: kr.Session, gate: Path) -> None:
    with page(server, f"{ran.name}.ipynb") as one:
        it_begins(one, ran, gate)
        kill(supervisor_of(ran))
        gate.write_text("on")
        ended(one, "long")
        assert one.text("long") == "begins\nends\n"
        ran.execute("print('after')", timeout=60, cell_id="after")
        ended(one, "after")
        assert [cell["id"] for cell in one.cells()] == ["before", "long", "after"]


def test_two_servers_on_one_session(server: Server, ran: kr.Session, krt_home: Path) -> None:
    path = f"{ran.name}.ipynb"
    with collaborative(krt_home.parent, "work", number=2) as second:
        known(second, ran)
        with page(server, path) as one, page(second, path) as other:
            for here in (one, other):
                here.until(here.cells, what="the document")
            ran.execute("print('agent')", timeout=60, cell_id="agent")
            ended(one, "agent")
            ended(other, "agent")
            other.add(0, "other", "# from the other", "markdown")
            one.until(lambda: one.cell("other"), what="the other's cell")
            one.type("other", "# from the one")
            other.until(lambda: "# from the one" in other.sources(), what="the one's edit")
            ids = ["other", "before", "agent"]
            eventually(lambda: [c["id"] for c in saved_cells(server, ran)] == ids, what="the file")
            for here in (one, other):
                assert [cell["id"] for cell in here.cells()] == ids
                assert here.text("agent") == "agent\n"


def test_a_notebook_that_is_opened_costs_what_is_new(server: Server, ran: kr.Session) -> None:
    before = json.loads(file_of(server, ran).read_bytes())
    head = before["metadata"]["kernel_runtime"]["head"]
    with page(server, f"{ran.name}.ipynb") as one:
        one.until(one.cells, what="the document")
        ran.execute("1", timeout=60, cell_id="new")
        ended(one, "new")
        eventually(
            lambda: (
                len(saved_cells(server, ran)) == 2
                and json.loads(file_of(server, ran).read_bytes())["metadata"]["kernel_runtime"]["head"] > head
            ),
            what="the file tells up to where it goes",
        )
