"""Whoever leaves, and whatever is killed, in the middle of a cell: all its output is there afterwards."""

from __future__ import annotations

import re

from playwright.sync_api import BrowserContext, Route, expect

import kernel_runtime as kr
from kernel_runtime import process
from tests.contract.stock import kernel_of, kill, kinds_of_entries, supervisor_of
from tests.lab.gate import Gate
from tests.lab.network import Network
from tests.lab.page import NotebookPage, Open
from tests.lab.record import all_of, done, saved, sources, text_of
from tests.lab.server import LabServer
from tests.support import eventually, krt, krt_json

LINES = 200


def counting(gate: Gate) -> str:
    """A cell that prints numbered lines, half of them after the gate."""
    half = LINES // 2
    first, second = (f"for n in range({part}): print('line', n)" for part in (f"{half}", f"{half}, {LINES}"))
    return f"{first}\n{gate.wait}\n{second}"


def all_lines(notebook: NotebookPage, session: kr.Session) -> None:
    """Each line is there once and in order, on the page and in the journal."""
    wanted = [f"line {n}" for n in range(LINES)]
    notebook.shows("for n in range", f"line {LINES - 1}", timeout=30_000)
    expect(notebook.cell("for n in range").locator(".jp-InputPrompt")).to_have_text(re.compile(r"\[\d+\]:"))
    # not read at one moment: outputs are drawn anew when it is known whose they are
    expect(notebook.output("for n in range")).to_have_text(" ".join(wanted), use_inner_text=True)
    assert text_of(session, "for n in range").splitlines() == wanted


def it_counts(mine: NotebookPage, gate: Gate) -> NotebookPage:
    """The page, with the beginning of a cell that goes on when the gate is opened."""
    mine.run(counting(gate))
    mine.shows("for n in range", "line 99")
    return mine


def test_browser_closed_in_mid_cell_and_opened_on_another_machine(
    session: kr.Session, pages: Open, gate: Gate
) -> None:
    mine = it_counts(pages(session), gate)
    mine.page.close()
    gate.open()
    assert done(session, "for n in range").outcome == "ok"
    all_lines(pages(session, elsewhere=True), session)


def test_browser_closed_and_opened_again_while_the_cell_runs(
    session: kr.Session, pages: Open, gate: Gate
) -> None:
    mine = it_counts(pages(session), gate)
    mine.page.close()
    again = pages(session, elsewhere=True)
    again.shows("for n in range", "line 99")
    gate.open()
    all_lines(again, session)


def test_network_cut_in_mid_cell(session: kr.Session, wire: Network, pages: Open, gate: Gate) -> None:
    """The page says that it is cut off, and is whole again without a reload: what ran meanwhile is there
    once, and so is what was typed and pressed.
    """
    mine = it_counts(pages(session, over=wire), gate)
    mine.write("draft = 'begun'")
    mine.page.evaluate("window.oneLife = true")
    assert wire.cut() > 0
    expect(mine.away()).to_contain_text("Cut off from the server", timeout=15_000)
    expect(mine.away()).to_be_visible()
    expect(mine.announced()).to_contain_text("Cut off from the server")
    mine.retype("draft = 'begun'", "draft = 'typed while cut off'")
    mine.run("print('pressed while cut off', n)")
    gate.open()
    assert done(session, "for n in range").outcome == "ok"
    krt("exec", session.name, "print('an agent went on')", "--as", "agent:planner")
    expect(mine.output("for n in range")).not_to_contain_text(f"line {LINES - 1}")
    expect(mine.cell("an agent went on")).to_have_count(0)

    wire.mend()
    expect(mine.away()).to_have_count(0, timeout=30_000)
    expect(mine.announced()).to_contain_text("answers again")
    all_lines(mine, session)
    mine.counted("for n in range", done(session, "for n in range").execution_count or 0)
    mine.shows("an agent went on", "an agent went on")
    mine.shows("pressed while cut off", f"pressed while cut off {LINES - 1}", timeout=30_000)
    mine.counted("pressed while cut off", done(session, "pressed while cut off").execution_count or 0)
    assert len(all_of(session, "pressed while cut off")) == 1
    wanted = ["for n in range", "draft =", "an agent went on", "pressed while cut off"]
    for source in wanted:
        expect(mine.cell(source)).to_have_count(1)
    expect(mine.cell("draft = 'typed while cut off'")).to_have_count(1)
    assert mine.page.evaluate("window.oneLife") is True
    theirs = pages(session, elsewhere=True)
    for source in wanted:
        expect(theirs.cell(source)).to_have_count(1)
    all_lines(theirs, session)
    eventually(lambda: saved(session, "typed while cut off") is not None, 30, "the file has the edit")
    eventually(lambda: sum("draft" in source for source in sources(session)) == 1, what="once")


def test_jupyter_server_killed_in_mid_cell(
    session: kr.Session, pages: Open, gate: Gate, lab: LabServer
) -> None:
    mine = it_counts(pages(session), gate)
    kernel = kernel_of(session)
    lab.kill()
    gate.open()
    assert done(session, "for n in range").outcome == "ok"
    krt("exec", session.name, "print('while nobody served')", "--as", "agent:planner")
    lab.start()
    mine.page.goto(lab.page_of(mine.path, f"{session.name}-again"))
    mine.ready()
    all_lines(mine, session)
    mine.shows("while nobody served", "while nobody served")
    assert kernel_of(session) == kernel
    mine.run("print(n)")
    mine.shows("print(n)", str(LINES - 1))


def test_jupyter_server_killed_and_back_while_the_cell_runs(
    session: kr.Session, pages: Open, gate: Gate, lab: LabServer
) -> None:
    mine = it_counts(pages(session), gate)
    lab.kill()
    lab.start()
    mine.page.goto(lab.page_of(mine.path, f"{session.name}-again"))
    mine.ready()
    mine.shows("for n in range", "line 99")
    gate.open()
    all_lines(mine, session)


def test_two_browsers(session: kr.Session, pages: Open, gate: Gate) -> None:
    mine, theirs = pages(session), pages(session, elsewhere=True)
    mine.run(counting(gate))
    theirs.shows("for n in range", "line 99")
    gate.open()
    all_lines(mine, session)
    all_lines(theirs, session)
    theirs.run("print('from the other side')")
    mine.shows("from the other side", "from the other side")
    assert len([s for s in mine.sources() if "for n in range" in s]) == 1


def test_supervisor_killed_under_an_open_page(
    session: kr.Session, notebook: NotebookPage, gate: Gate
) -> None:
    notebook.run(counting(gate))
    notebook.shows("for n in range", "line 99")
    kernel, old = kernel_of(session), supervisor_of(session)
    kill(old)
    gate.open()
    all_lines(notebook, session)
    assert kernel_of(session) == kernel
    assert supervisor_of(session) != old
    notebook.run("print(n)")
    notebook.shows("print(n)", str(LINES - 1))


def test_shutting_down_in_the_page_detaches(session: kr.Session, notebook: NotebookPage) -> None:
    kernel = kernel_of(session)
    notebook.menu("Kernel", "Shut Down Kernel")
    expect(notebook.page.get_by_text("Detached from the session")).to_be_visible()
    # it stays for as long as somebody may be about to take its offer
    notebook.page.locator(".Toastify__toast", has_text="Detached from the session").hover()
    assert process.is_alive(kernel)
    said = krt_json("exec", session.name, "origin", "--as", "agent:planner")
    assert said["outputs"][0]["data"]["text/plain"] == "1"
    assert not {"KernelStopped", "KernelDied"} & set(kinds_of_entries(session))
    notebook.page.get_by_role("button", name="Attach again").click()
    notebook.ready()
    notebook.run("print('attached again', origin)")
    notebook.shows("attached again", "attached again 1")
    assert kernel_of(session) == kernel


def test_shut_down_before_the_page_has_heard_what_its_kernel_is(
    session: kr.Session, machine: BrowserContext, pages: Open
) -> None:
    """What a shutdown was is told of sessions only, and a page learns from the server which kernels are. One
    that had not heard by then told nothing; it waits for that.
    """
    held: list[Route] = []
    asks = re.compile("/kernel-runtime/api/sessions")

    def hold(route: Route) -> None:
        held.append(route)

    machine.route(asks, hold)
    try:
        notebook = pages(session)
        notebook.menu("Kernel", "Shut Down Kernel")
        expect(notebook.page.get_by_text("No Kernel").first).to_be_visible()
        assert held
        expect(notebook.page.get_by_text("Detached from the session")).to_have_count(0)
    finally:
        for route in held:
            route.continue_()
        machine.unroute(asks)
    expect(notebook.page.get_by_text("Detached from the session")).to_be_visible()


def test_restarting_asks_what_it_means_here_and_tells_everybody(session: kr.Session, pages: Open) -> None:
    mine, theirs = pages(session), pages(session, elsewhere=True)
    kernel = kernel_of(session)
    mine.menu("Kernel", "Restart Kernel…")
    expect(mine.dialog).to_contain_text(re.compile("incarnation", re.IGNORECASE))
    expect(mine.dialog).to_contain_text(re.compile("heap|memory|variables", re.IGNORECASE))
    mine.dialog.locator(".jp-mod-accept").click()
    eventually(lambda: session.row()["incarnation"] == 2, 30, "incarnation 2")
    assert not process.is_alive(kernel)
    for page in (mine, theirs):
        expect(page.panel()).to_contain_text(re.compile(r"incarnation\s*2", re.IGNORECASE), timeout=20_000)
    expect(theirs.badge("origin = 1")).to_contain_text("lost", timeout=20_000)
    refused = krt_json("exec", session.name, "origin", "--as", "agent:host", exit_code=4)
    assert refused["error"]["type"] == "HeapLost"


def test_interrupting_in_the_page(session: kr.Session, notebook: NotebookPage) -> None:
    notebook.run("import time\nprint('at work')\nwhile True: time.sleep(0.05)")
    notebook.shows("at work", "at work")
    notebook.menu("Kernel", "Interrupt Kernel")
    notebook.shows("at work", "KeyboardInterrupt")
    assert done(session, "at work").outcome == "interrupted"
    notebook.run("print('still here', origin)")
    notebook.shows("still here", "still here 1")


def test_a_prompt_is_answered_in_the_page(session: kr.Session, notebook: NotebookPage) -> None:
    notebook.run("name = input('Your name? '); print('hello', name)")
    box = notebook.prompt()
    expect(box).to_be_visible(timeout=15_000)
    expect(notebook.page.get_by_text("Your name?").first).to_be_visible()
    expect(box).to_have_attribute("type", "text")
    box.fill("ada")
    box.press("Enter")
    notebook.shows("name = input", "hello ada")
    expect(box).to_be_hidden()
    assert done(session, "name = input").outcome == "ok"


def test_a_prompt_of_an_agents_cell_is_answered_in_the_page(
    session: kr.Session, notebook: NotebookPage
) -> None:
    x = session.submit("print('got', input('Proceed? '))")
    box = notebook.prompt()
    expect(box).to_be_visible(timeout=15_000)
    box.fill("yes")
    box.press("Enter")
    assert x.wait(timeout=30).outcome == "ok"
    notebook.shows("Proceed?", "got yes")


def test_a_prompt_is_answered_elsewhere_first(session: kr.Session, notebook: NotebookPage) -> None:
    notebook.run("print('got', input('Which? '))")
    box = notebook.prompt()
    expect(box).to_be_visible(timeout=15_000)
    assert krt("answer", session.name, "from outside").returncode == 0
    notebook.shows("Which?", "got from outside")
    expect(box).to_be_hidden()
    assert krt("answer", session.name, "too late").returncode != 0
    assert text_of(session, "Which?").endswith("got from outside\n")


def test_a_password_is_typed_unseen_and_not_kept(session: kr.Session, notebook: NotebookPage) -> None:
    secret = "correct-horse-battery"
    notebook.run("import getpass; print('letters', len(getpass.getpass('Password: ')))")
    box = notebook.prompt()
    expect(box).to_be_visible(timeout=15_000)
    expect(box).to_have_attribute("type", "password")
    box.fill(secret)
    box.press("Enter")
    notebook.shows("getpass.getpass", f"letters {len(secret)}")
    expect(notebook.page.locator(".jp-Notebook")).not_to_contain_text(secret)
    assert secret not in krt("log", session.name).stdout


def test_a_kernel_that_was_killed_is_told_and_not_replaced_in_silence(
    session: kr.Session, notebook: NotebookPage
) -> None:
    notebook.run("treasure = 'in the heap'")
    assert done(session, "treasure =").outcome == "ok"
    kill(kernel_of(session))
    expect(notebook.badge("treasure =")).to_contain_text("lost", timeout=20_000)
    expect(notebook.section("state")).to_contain_text("dead")
    expect(notebook.page.get_by_text("its heap is gone").first).to_be_visible()
    assert session.row()["state"] == "dead"
    assert kinds_of_entries(session).count("KernelStarted") == 1
    notebook.run("print(treasure)")
    expect(notebook.dialog).to_contain_text("heap")
    assert all_of(session, "print(treasure)") == []
    notebook.dialog.get_by_role("button", name="Run anyway").click()
    notebook.shows("print(treasure)", "NameError")
    assert (done(session, "print(treasure)").incarnation, session.row()["incarnation"]) == (2, 2)
