"""What a person types and runs in the page is journaled, and runs in the agent's heap."""

from __future__ import annotations

import json
import threading

from playwright.sync_api import expect

import kernel_runtime as kr
from kernel_runtime import places
from tests.contract.stock import journal
from tests.lab.gate import Gate
from tests.lab.page import NotebookPage, Open
from tests.lab.record import all_of, done, row, saved, text_of
from tests.support import eventually, krt, krt_json


def test_a_typed_cell_is_journaled_with_who_and_key(session: kr.Session, notebook: NotebookPage) -> None:
    notebook.select_last()
    notebook.page.keyboard.press("b")
    notebook.begin_to_edit()
    notebook.page.keyboard.type("mine = origin + 41; mine")
    with notebook.page.expect_request(lambda request: "/execute?" in request.url) as asked:
        notebook.page.keyboard.press("Shift+Enter")
    assert json.loads(asked.value.post_data or "")["document"], "else it may be run before the text has come"
    notebook.shows("mine = origin", "42")
    notebook.counted("mine = origin", 2)
    ran = done(session, "mine = origin + 41; mine")
    assert ran.principal == places.principal()
    assert ran.key
    assert (ran.outcome, ran.execution_count) == ("ok", 2)
    cell = eventually(lambda: saved(session, "mine = origin"), 30, "the file has the cell")
    assert cell is not None
    assert cell["id"] == ran.cell_id
    expect(notebook.badge("mine = origin")).to_have_count(0, timeout=30_000)


def test_people_and_agents_share_one_heap(session: kr.Session, notebook: NotebookPage) -> None:
    notebook.run("typed = [1, 2, 3]")
    done(session, "typed = [1, 2, 3]")
    said = krt_json("exec", session.name, "typed.append(4); print(typed)", "--as", "agent:planner")
    assert said["outputs"][0]["text"] == "[1, 2, 3, 4]\n"
    notebook.shows("typed.append(4)", "[1, 2, 3, 4]")
    notebook.run("len(typed)")
    notebook.shows("len(typed)", "4")


def test_running_a_cell_again_is_another_execution(session: kr.Session, notebook: NotebookPage) -> None:
    notebook.run("origin += 1; print('now', origin)")
    notebook.shows("origin += 1", "now 2")
    notebook.cell("origin += 1").locator(".jp-InputPrompt").click()
    notebook.page.keyboard.press("Control+Enter")
    notebook.shows("origin += 1", "now 3")
    first, second = all_of(session, "origin += 1")
    assert first.cell_id == second.cell_id
    assert first.key != second.key
    assert first.execution_id != second.execution_id


def test_an_agents_cell_edited_and_run_by_a_person(session: kr.Session, notebook: NotebookPage) -> None:
    session.execute("label = 'agent'; print(label)")
    notebook.shows("label =", "agent")
    notebook.retype("label =", "label = 'person'; print(label)")
    notebook.page.keyboard.press("Shift+Enter")
    notebook.shows("label = 'person'", "person")
    old, new = all_of(session, "label =")
    assert old.cell_id == new.cell_id
    assert (old.principal, new.principal) == ("agent:host", places.principal())
    expect(notebook.cell("label =")).to_have_count(1)


def test_a_cell_that_fails_aborts_its_own_page_and_nobody_else(
    session: kr.Session, notebook: NotebookPage, gate: Gate
) -> None:
    notebook.write("after = 'must not run'")
    notebook.cell("origin = 1").locator(".jp-InputPrompt").click()
    notebook.page.keyboard.press("b")
    notebook.begin_to_edit()
    notebook.page.keyboard.insert_text(f"{gate.wait}\nraise ValueError('stop here')")
    expect(notebook.cell("stop here")).to_be_visible()
    notebook.menu("Run", "Run All Cells")
    row(session, "stop here")
    theirs = session.submit("print('an agent goes on')")
    gate.open()
    notebook.shows("stop here", "ValueError")
    assert theirs.wait(timeout=30).outcome == "ok"
    assert done(session, "stop here").outcome == "error"
    assert all(ran.outcome == "aborted" for ran in all_of(session, "must not run"))
    said = krt_json("exec", session.name, "print('after' in globals())")
    assert said["outputs"][0]["text"] == "False\n"


def test_a_cell_waits_its_turn_behind_an_agents(
    session: kr.Session, notebook: NotebookPage, gate: Gate
) -> None:
    session.submit(f"{gate.wait}\nturn = 'agent first'")
    row(session, "agent first")
    notebook.run("print(turn)")
    expect(notebook.cell("print(turn)").locator(".jp-InputPrompt")).to_have_text("[*]:")
    assert row(session, "print(turn)").status == "queued"
    gate.open()
    notebook.shows("print(turn)", "agent first")
    done(session, "print(turn)")
    assert text_of(session, "print(turn)") == "agent first\n"


def test_the_cell_a_person_runs_shows_its_output_while_it_runs(
    session: kr.Session, notebook: NotebookPage, gate: Gate
) -> None:
    notebook.run(f"print('begun')\n{gate.wait}\nprint('ended')")
    notebook.shows("print('begun')", "begun")
    expect(notebook.output("print('begun')")).not_to_contain_text("ended")
    gate.open()
    notebook.shows("print('begun')", "ended")
    done(session, "print('begun')")
    assert text_of(session, "print('begun')") == "begun\nended\n"


def test_two_people_and_two_agents_at_once(session: kr.Session, pages: Open) -> None:
    """Each one's cells run in that one's order, every page shows the same cells, and whose is said."""
    people = {"ada": pages(session), "bob": pages(session, elsewhere=True)}
    rounds = range(4)
    for name, page in people.items():
        page.write(f"print('{name} is here')")
    agents = {
        name: threading.Thread(target=_series, args=(session.name, name, len(rounds)), name=name)
        for name in ("planner", "critic")
    }
    for agent in agents.values():
        agent.start()
    for number in rounds:
        for name, page in people.items():
            page.run(f"said = 'by {name}', {number}; print(said)")
    for agent in agents.values():
        agent.join(60)
        assert not agent.is_alive()
    everyone = [*people, *agents]
    for name in everyone:
        for number in rounds:
            assert done(session, f"'by {name}', {number}").outcome == "ok"
        ran = all_of(session, f"said = 'by {name}'")
        with journal(session) as entries:
            texts = [entries.source(one.execution_id) or "" for one in ran]
        assert texts == [f"said = 'by {name}', {number}; print(said)" for number in rounds]
        assert len({one.execution_count for one in ran}) == len(rounds)
    counts = [one.execution_count for one in all_of(session, "said = 'by ")]
    assert counts == sorted(counts, key=lambda count: count or 0)
    assert len(set(counts)) == len(everyone) * len(rounds)
    for page in people.values():
        for name in everyone:
            for number in rounds:
                source = f"said = 'by {name}', {number};"
                expect(page.cell(source)).to_have_count(1)
                page.shows(source, f"('by {name}', {number})")
                page.counted(source, done(session, source).execution_count or 0)
                if name in agents:
                    expect(page.badge(source)).to_contain_text(f"agent:{name}")
                else:
                    # one that is live and one's own says nothing
                    expect(page.badge(source).filter(has_text="agent")).to_have_count(0)
        # an agent's cells stand in the order in which they ran
        for name in agents:
            shown = [text for text in page.sources() if f"'by {name}'" in text]
            assert shown == [f"said = 'by {name}', {number}; print(said)" for number in rounds]
    first, second = people.values()
    eventually(lambda: first.sources() == second.sources(), what="both pages have the same order")


def _series(session: str, name: str, count: int) -> None:
    for number in range(count):
        krt("exec", session, f"said = 'by {name}', {number}; print(said)", "--as", f"agent:{name}")
