"""What JupyterLab does with a kernel besides running cells works with a session's."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeout

import kernel_runtime as kr
from kernel_runtime import places
from tests.lab.page import SOON, NotebookPage, Open
from tests.lab.record import at_rest, done, path_of
from tests.lab.server import LabServer
from tests.support import eventually, krt, krt_json


def value(session: kr.Session, expression: str) -> str:
    """What an agent reads in the heap."""
    said = krt_json("exec", session.name, f"print({expression})", "--as", "agent:planner")
    return str(said["outputs"][0]["text"]).strip()


def test_a_slider_moved_in_the_page_changes_the_heap(session: kr.Session, notebook: NotebookPage) -> None:
    notebook.run("import ipywidgets\nslider = ipywidgets.IntSlider(value=3, description='amount')\nslider")
    handle = notebook.output("import ipywidgets").locator(".noUi-handle")
    expect(handle).to_be_visible(timeout=20_000)
    handle.focus()
    for _ in range(4):
        handle.press("ArrowRight")
    expect(notebook.output("import ipywidgets").locator(".widget-readout")).to_have_text("7")
    eventually(lambda: value(session, "slider.value") == "7", 30, "the heap has what the slider shows")
    session.execute("slider.value = 42")
    expect(notebook.output("import ipywidgets").locator(".widget-readout")).to_have_text("42")


def test_an_agents_widget_works_once_it_is_trusted(session: kr.Session, pages: Open) -> None:
    """A widget is code of whoever made it: until then the page shows what it is, in words."""
    session.execute(
        "import ipywidgets\nseen = []\nbutton = ipywidgets.Button(description='Press me')\n"
        "button.on_click(lambda b: seen.append(len(seen)))\nbutton"
    )
    notebook = pages(session)
    notebook.shows("import ipywidgets", "Button(description='Press me'")
    at_rest(path_of(session))  # trusting saves, and JupyterLab asks where the room saves in that instant
    notebook.command("Trust Notebook")
    notebook.dialog.locator(".jp-mod-accept").click()
    button = notebook.output("import ipywidgets").get_by_role("button", name="Press me")
    expect(button).to_be_visible(timeout=20_000)
    button.click()
    eventually(lambda: value(session, "seen") == "[0]", 30, "the kernel heard the click")


def pressed_until(notebook: NotebookPage, keys: str, shown: Locator) -> None:
    """Ask until there is an answer: JupyterLab waits one second for it, and the first takes longer."""

    def ask() -> bool:
        notebook.page.keyboard.press(keys)
        try:
            shown.wait_for(state="visible", timeout=3000)
        except PlaywrightTimeout:
            return False
        return True

    eventually(ask, 30, f"an answer to {keys}")


def test_completion_knows_the_heap(session: kr.Session, notebook: NotebookPage) -> None:
    session.execute("agents_treasure_map = {'x': 1}")
    expect(notebook.cell("agents_treasure_map")).to_be_visible()
    notebook.write("agents_treasure_map.setd")
    pressed_until(notebook, "Tab", notebook.cell("agents_treasure_map.setdefault"))
    notebook.write("agents_treasure_map.")
    pressed_until(notebook, "Tab", notebook.page.locator(".jp-Completer"))
    expect(notebook.page.locator(".jp-Completer")).to_contain_text("popitem")


def test_inspection_shows_what_an_agent_defined(session: kr.Session, notebook: NotebookPage) -> None:
    session.execute('def fare(km):\n    """What a ride of so many kilometres costs."""\n    return km * 2')
    expect(notebook.cell("def fare(km)")).to_be_visible()
    notebook.write("fare")
    pressed_until(notebook, "Shift+Tab", notebook.page.locator(".jp-Tooltip"))
    expect(notebook.page.locator(".jp-Tooltip")).to_contain_text("What a ride of so many kilometres costs.")


def test_a_console_on_the_session(session: kr.Session, notebook: NotebookPage) -> None:
    notebook.menu("File", "New Console for")
    prompt = notebook.page.locator(".jp-CodeConsole-promptCell .cm-content")
    # the first prompt goes when the kernel has said what it is
    expect(notebook.page.locator(".jp-CodeConsole-banner")).to_contain_text("Python")
    prompt.click()
    expect(prompt).to_be_focused()
    notebook.page.keyboard.insert_text("print('from the console', origin)")
    expect(prompt).to_contain_text("from the console")
    notebook.page.keyboard.press("Shift+Enter")
    expect(
        notebook.page.locator(".jp-CodeConsole-content .jp-OutputArea-output", has_text="from the console")
    ).to_contain_text("from the console 1", timeout=15_000)
    ran = done(session, "from the console")
    assert (ran.principal, ran.outcome) == (places.principal(), "ok")
    notebook.shows("from the console", "from the console 1")


def test_a_terminal_of_the_session(session: kr.Session, notebook: NotebookPage, lab: LabServer) -> None:
    """What is typed in the page goes to the shell that lives in the session, and stays without the page."""
    assert krt("spawn", session.name, "--name", "shell", "--", "bash", "--norc").returncode == 0
    notebook.page.locator(".lm-TabBar-tab[data-id='jp-running-sessions']").click()
    listed = notebook.page.locator(".jp-RunningSessions-item", has_text=re.compile("_shell|_p1"))
    expect(listed.first).to_be_visible(timeout=SOON)
    listed.first.locator(".jp-RunningSessions-itemLabel").click()
    screen = notebook.page.locator(".jp-Terminal .xterm")
    expect(screen).to_be_visible(timeout=SOON)
    screen.click()
    notebook.page.keyboard.type("echo typed-$((6*7)) | tee from-the-page\n")
    eventually((lab.root / "from-the-page").exists, 30, "the shell did what was typed")
    notebook.page.close()
    seen = krt("term", session.name, "shell", "--tail", "5")
    assert "typed-42" in seen.stdout


def test_the_debugger_stops_where_somebody_says(session: kr.Session, notebook: NotebookPage) -> None:
    # first, since a second after it was typed JupyterLab sets its breakpoints to those it knew then
    notebook.write("stops = 1\nstops += 1\nprint('went on', stops)")
    button = notebook.page.locator(".jp-DebuggerBugButton")
    expect(button).to_have_attribute("aria-disabled", "false", timeout=SOON)
    button.click()
    expect(button).to_have_attribute("aria-pressed", "true", timeout=SOON)
    gutter = notebook.cell("went on").locator(".cm-breakpoint-gutter .cm-gutterElement")
    expect(gutter.nth(3)).to_be_visible(timeout=SOON)
    gutter.nth(2).click()
    expect(notebook.page.locator(".jp-DebuggerBreakpoint")).to_contain_text("2")
    notebook.active.click()
    notebook.page.keyboard.press("Control+Enter")
    go_on = notebook.page.locator("[data-command='debugger:continue'][aria-label^='Continue']")
    expect(go_on).to_have_attribute("aria-disabled", "false", timeout=SOON)
    expect(notebook.page.locator(".jp-DebuggerVariables")).to_contain_text("stops")
    go_on.click()
    notebook.shows("went on", "went on 2")
    assert done(session, "went on").outcome == "ok"
