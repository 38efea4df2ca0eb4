"""What JupyterLab does with a kernel besides running cells works with a session's."""

from __future__ import annotations

import re

from playwright.sync_api import expect

import kernel_runtime as kr
from kernel_runtime import places
from tests.lab.page import NotebookPage, Open
from tests.lab.record import done
from tests.support import eventually, krt_json


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
    eventually(lambda: value(session, "slider.value") == "7", 20, "the heap has what the slider shows")
    session.execute("slider.value = 42")
    expect(notebook.output("import ipywidgets").locator(".widget-readout")).to_have_text("42")


def test_an_agents_widget_is_alive_in_a_page_opened_later(session: kr.Session, pages: Open) -> None:
    session.execute(
        "import ipywidgets\nseen = []\nbutton = ipywidgets.Button(description='Press me')\n"
        "button.on_click(lambda b: seen.append(len(seen)))\nbutton"
    )
    notebook = pages(session)
    button = notebook.output("import ipywidgets").get_by_role("button", name="Press me")
    expect(button).to_be_visible(timeout=20_000)
    button.click()
    eventually(lambda: value(session, "seen") == "[0]", 20, "the kernel heard the click")


def test_completion_knows_the_heap(session: kr.Session, notebook: NotebookPage) -> None:
    session.execute("agents_treasure_map = {'x': 1}")
    notebook.write("agents_trea")
    notebook.page.keyboard.press("Tab")
    expect(notebook.cell("agents_treasure_map").last).to_be_visible()
    notebook.write("agents_treasure_map.")
    notebook.page.keyboard.press("Tab")
    expect(notebook.page.locator(".jp-Completer")).to_contain_text("setdefault")


def test_inspection_shows_what_an_agent_defined(session: kr.Session, notebook: NotebookPage) -> None:
    session.execute('def fare(km):\n    """What a ride of so many kilometres costs."""\n    return km * 2')
    notebook.write("fare")
    notebook.page.keyboard.press("Shift+Tab")
    expect(notebook.page.locator(".jp-Tooltip")).to_contain_text("What a ride of so many kilometres costs.")


def test_a_console_on_the_session(session: kr.Session, notebook: NotebookPage) -> None:
    notebook.menu("File", "New Console for Activity")
    prompt = notebook.page.locator(".jp-CodeConsole-promptCell .cm-content")
    expect(prompt).to_be_visible(timeout=15_000)
    prompt.click()
    notebook.page.keyboard.insert_text("print('from the console', origin)")
    notebook.page.keyboard.press("Shift+Enter")
    expect(notebook.page.locator(".jp-CodeConsole-content .jp-OutputArea-output")).to_contain_text(
        "from the console 1"
    )
    ran = done(session, "from the console")
    assert (ran.principal, ran.outcome) == (places.principal(), "ok")


def test_the_debugger_works_or_is_off(session: kr.Session, notebook: NotebookPage) -> None:
    button = notebook.page.locator(".jp-DebuggerBugButton")
    expect(button).to_be_visible()
    expect(button).to_have_attribute("aria-disabled", "true")
    expect(button).to_have_attribute("title", re.compile("debugger", re.IGNORECASE))
