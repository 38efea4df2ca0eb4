"""What is still true of cells, names, resources and claims is on the page, and what can be done about it."""

from __future__ import annotations

import re

from playwright.sync_api import expect

import kernel_runtime as kr
from tests.contract.stock import kernel_of, kill, kinds_of_entries
from tests.lab.gate import Gate
from tests.lab.page import NotebookPage, Open
from tests.lab.record import all_of, done, row
from tests.support import eventually, krt, krt_json

WHILE = 30_000
"""milliseconds for a truth that nobody's cell brought about: the file is looked at now and then"""


def truth_of(session: kr.Session, source: str) -> str:
    """The verdict of `krt status` on the cell with that source."""
    cell_id = row(session, source).cell_id
    cells = krt_json("status", session.name, exit_code=0)["cells"]
    return str(next(cell["truth"] for cell in cells if cell["cell_id"] == cell_id))


def test_each_cell_shows_its_truth(session: kr.Session, notebook: NotebookPage) -> None:
    session.execute("price = 10")
    session.execute("total = price * 2")
    session.execute("half = 1\nraise ValueError('half way')")
    expect(notebook.badge("half = 1")).to_contain_text("partial", timeout=15_000)
    expect(notebook.badge("total = price")).not_to_contain_text(re.compile("stale|lost|partial"))
    session.execute("price = 20")
    expect(notebook.badge("total = price")).to_contain_text("stale", timeout=15_000)
    expect(notebook.badge("price = 10")).to_contain_text("superseded")
    for source, truth in {
        "total = price": "stale",
        "price = 10": "superseded",
        "half = 1": "partial",
        "price = 20": "live",
    }.items():
        assert truth_of(session, source) == truth


def test_a_cell_under_way_says_so_and_an_empty_one_says_nothing(
    session: kr.Session, notebook: NotebookPage, gate: Gate
) -> None:
    """Whoever ran it, and whatever most cells are: here most are under way."""
    notebook.run(f"print('mine')\n{gate.wait}")
    expect(notebook.badge("print('mine')")).to_have_text("running", timeout=15_000)
    session.submit("print('theirs')")
    expect(notebook.badge("print('theirs')")).to_contain_text("queued", timeout=15_000)
    expect(notebook.badge("print('theirs')")).to_contain_text("agent:host")
    expect(notebook.section("not-live").locator("[data-krt-cell]")).to_have_count(0)
    gate.open()
    expect(notebook.badge("print('mine')")).to_have_count(0, timeout=15_000)
    expect(notebook.badge("print('theirs')")).to_have_text("agent:host", timeout=15_000)
    asked = session.submit("input('Yes? ')")
    expect(notebook.badge("input('Yes? ')")).to_contain_text("blocked", timeout=15_000)
    session.answer("yes")
    asked.wait(timeout=30)
    notebook.retype("print('mine')", " ")
    empty = notebook.page.locator(".jp-Notebook .jp-CodeCell:not(:has(.cm-line:not(:empty)))")
    expect(notebook.page.locator(".jp-Notebook .jp-Cell.jp-mod-active .krt-badge")).to_have_count(0)
    expect(empty.locator(".krt-badge")).to_have_count(0)
    expect(notebook.section("not-live")).to_contain_text("Every cell that ran still stands.")


def test_a_cell_that_somebody_edited_shows_it(session: kr.Session, notebook: NotebookPage) -> None:
    session.execute("rate = 0.1")
    expect(notebook.cell("rate = 0.1")).to_be_visible()
    notebook.retype("rate = 0.1", "rate = 0.2")
    expect(notebook.badge("rate = 0.2")).to_contain_text("edited", timeout=WHILE)
    eventually(lambda: truth_of(session, "rate = 0.1") == "edited", 30, "krt status says edited")


def test_truths_after_a_restart_by_an_agent(session: kr.Session, notebook: NotebookPage) -> None:
    session.execute("kept = 5")
    expect(notebook.cell("kept = 5")).to_be_visible()
    session.restart()
    expect(notebook.badge("kept = 5")).to_contain_text("lost", timeout=20_000)
    expect(notebook.section("state")).to_contain_text("incarnation 2")
    expect(notebook.section("not-live")).to_contain_text("lost")
    assert truth_of(session, "kept = 5") == "lost"
    session.execute("kept = 5", cell_id=row(session, "kept = 5").cell_id)
    expect(notebook.badge("kept = 5")).not_to_contain_text("lost", timeout=20_000)
    assert truth_of(session, "kept = 5") == "live"


def test_the_panel_names_what_is_in_the_heap(session: kr.Session, notebook: NotebookPage) -> None:
    session.execute("blob = bytearray(2_000_000); twin = [blob]")
    name = notebook.section("names").locator("[data-krt-name='blob']")
    expect(name).to_contain_text("live", timeout=15_000)
    expect(name).to_contain_text("bytearray")
    expect(name).to_contain_text("2 MB")
    expect(name).to_contain_text("twin")
    session.execute("del blob, twin")
    expect(name).to_have_count(0, timeout=15_000)


def test_the_panel_shows_what_cells_left_behind(session: kr.Session, notebook: NotebookPage) -> None:
    session.execute(
        "import socket, subprocess\n"
        "helper = subprocess.Popen(['sleep', '611'])\n"
        "door = socket.socket(); door.bind(('127.0.0.1', 0)); door.listen(); print(door.getsockname()[1])"
    )
    port = session.execute("print(door.getsockname()[1])").text.strip()
    resources = notebook.section("resources")
    expect(resources.locator("[data-krt-resource='process']", has_text="sleep 611")).to_be_visible(
        timeout=15_000
    )
    expect(resources.locator("[data-krt-resource='socket']", has_text=port)).to_be_visible()
    session.execute("helper.kill(); helper.wait(); door.close()")
    expect(resources.locator("[data-krt-resource='socket']", has_text=port)).to_have_count(0, timeout=15_000)


def test_a_prompt_is_answered_in_the_panel(session: kr.Session, notebook: NotebookPage) -> None:
    x = session.submit("print('got', input('From the panel? '))")
    waiting = notebook.section("waiting")
    expect(waiting).to_contain_text("From the panel?", timeout=15_000)
    box = waiting.locator("[data-krt-answer]")
    box.fill("yes")
    box.press("Enter")
    assert x.wait(timeout=30).text.endswith("got yes\n")
    expect(waiting.locator("[data-krt-answer]")).to_have_count(0)


def test_claims_are_shown_and_checked(session: kr.Session, notebook: NotebookPage) -> None:
    opened = "import socket\ndoor = socket.socket(); door.bind(('127.0.0.1', 0)); door.listen()"
    port = session.execute(f"{opened}\nprint(door.getsockname()[1])").text.strip()
    made = krt("claim", session.name, "the door is open", "--probe", f"port {port} listens")
    assert made.returncode == 0, made.stderr
    claim = notebook.section("claims").locator("[data-krt-claim='the door is open']")
    expect(claim).to_have_attribute("data-krt-truth", "true", timeout=15_000)
    session.execute("door.close()")
    notebook.section("claims").locator("[data-krt-action='check']").click()
    expect(claim).to_have_attribute("data-krt-truth", "false", timeout=15_000)
    assert "ClaimChecked" in kinds_of_entries(session)


def test_a_loss_offers_a_plan_and_its_buttons_work(session: kr.Session, notebook: NotebookPage) -> None:
    notebook.run("costly = sum(range(100))")
    assert done(session, "costly =").outcome == "ok"
    expect(notebook.section("state")).to_contain_text("idle", timeout=15_000)
    expect(notebook.section("loss")).to_have_count(0)
    kill(kernel_of(session))
    loss = notebook.section("loss")
    expect(loss).to_be_visible(timeout=20_000)
    expect(loss).to_contain_text("costly")
    start = loss.locator("[data-krt-action='start']")
    expect(start).to_be_visible()
    assert kinds_of_entries(session).count("KernelStarted") == 1
    start.click()
    expect(notebook.section("state")).to_contain_text("incarnation 2", timeout=20_000)
    eventually(lambda: kinds_of_entries(session).count("KernelStarted") == 2, 30, "its kernel has started")
    accept = loss.locator("[data-krt-action='accept']")
    expect(accept).to_be_visible()
    accept.click()
    expect(accept).to_have_count(0)
    notebook.run("print('costly' in globals())")
    notebook.shows("'costly' in globals", "False")
    assert notebook.dialog.count() == 0


def test_the_panel_asks_before_it_restarts(session: kr.Session, pages: Open) -> None:
    notebook = pages(session)
    notebook.run("first_life = True")
    done(session, "first_life")
    session.restart()
    notebook.section("state").locator("[data-krt-action='restart']").click()
    expect(notebook.dialog).to_contain_text("incarnation 2")
    notebook.dialog.locator(".jp-mod-reject").click()
    assert session.row()["incarnation"] == 2
    notebook.section("state").locator("[data-krt-action='restart']").click()
    notebook.dialog.locator(".jp-mod-accept").click()
    expect(notebook.section("state")).to_contain_text("incarnation 3", timeout=20_000)
    assert session.row()["incarnation"] == 3
    assert all_of(session, "first_life")[-1].incarnation == 1


def test_a_cell_has_one_badge_however_often_it_is_drawn(session: kr.Session, notebook: NotebookPage) -> None:
    """A cell's node is built in steps. A badge that was drawn while its place was not in the cell yet was not
    found the next time, and another one drawn beside it.
    """
    expect(notebook.badge("origin = 1")).to_have_count(1)
    place = notebook.cell("origin = 1").locator(".jp-Cell-inputWrapper").element_handle()
    place.evaluate("node => { window.apart = [node.parentNode, node.nextSibling, node]; node.remove(); }")
    session.execute("origin = 'again'")
    drawn = "() => window.apart[2].innerHTML.includes('superseded')"
    notebook.page.wait_for_function(drawn, polling=100, timeout=30_000)
    notebook.page.evaluate("() => window.apart[0].insertBefore(window.apart[2], window.apart[1])")
    expect(notebook.badge("origin = 1")).to_have_count(1)
