"""The page's part without a pointer, without sight, and in each of JupyterLab's themes.

axe-core says what is wrong with what is ours: the panel, badges, the row that asks, the line that says that
the server is away, and the bodies of our dialogs. JupyterLab's own frame around them is JupyterLab's.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, expect

import kernel_runtime as kr
from tests.contract.stock import kernel_of, kill
from tests.lab.conftest import SCREENSHOTS
from tests.lab.page import NotebookPage
from tests.lab.record import done
from tests.support import eventually, krt

AXE = Path(__file__).parents[2] / "labextension" / "node_modules" / "axe-core" / "axe.min.js"
THEMES = ["JupyterLab Light", "JupyterLab Dark", "JupyterLab Dark High Contrast"]
TOLD = """async ours => {
  const found = await axe.run({ include: ours.map(one => [one]) });
  const tell = rule => rule.nodes.map(node => ({
    rule: rule.id, target: String(node.target), html: node.html.slice(0, 200), why: node.failureSummary
  }));
  // what axe cannot tell of contrast is not held to be well
  const unsure = found.incomplete.filter(rule => rule.id === 'color-contrast');
  const seen = found.passes.filter(rule => rule.id === 'color-contrast').flatMap(rule => rule.nodes);
  const looked = seen.map(node => document.querySelector(String(node.target)));
  return {
    there: ours.filter(one => looked.some(node => node?.closest(one))),
    wrong: [...found.violations, ...unsure].flatMap(tell)
  };
}"""
MEASURED = "html, body { height: 100% }"
"""what JupyterLab leaves at nothing, since all in it is placed: axe takes it that nothing is seen there, and
looks at no contrast"""


def nothing_is_wrong(notebook: NotebookPage, *ours: str) -> None:
    """axe finds no fault with these, and looked at the contrast of each."""
    page = notebook.page
    if not page.evaluate("'axe' in window"):
        page.add_style_tag(content=MEASURED)
        page.evaluate(AXE.read_text())

    def looked() -> dict[str, Any] | None:
        told: dict[str, Any] = page.evaluate(TOLD, ours)
        return told if told["there"] == list(ours) else None

    # while a theme's style sheets come, or something lies above, axe cannot see, and looks at nothing
    told = eventually(looked, 30, f"axe looks at the contrast of {ours}")
    assert told is not None
    assert not told["wrong"], json.dumps(told["wrong"], indent=1)


def in_theme(notebook: NotebookPage, theme: str) -> None:
    """Switch to that theme, as a person does."""
    page = notebook.page
    page.keyboard.press("Control+Shift+C")
    page.locator(".lm-CommandPalette-input").fill(f"Use Theme: {theme}")
    exactly = re.compile(rf"^Use Theme: {theme}$")
    page.locator(".lm-CommandPalette-itemLabel", has_text=exactly).first.click()
    expect(page.locator("body")).to_have_attribute("data-jp-theme-name", theme)


def picture(notebook: NotebookPage, theme: str, name: str) -> None:
    SCREENSHOTS.mkdir(exist_ok=True)
    words = theme.removeprefix("JupyterLab ").lower().replace(" ", "-")
    notebook.page.screenshot(path=SCREENSHOTS / f"theme-{words}-{name}.png", animations="disabled")


def test_what_is_ours_is_accessible_in_every_theme(session: kr.Session, notebook: NotebookPage) -> None:
    session.execute("price = 10")
    session.execute("total = price * 2; helper = [total]")
    session.execute("price = 20")
    session.execute("raise ValueError('half way')")
    krt("claim", session.name, "the door is open", "--probe", "port 1 listens")
    session.submit("print('got', input('Go on? '))")
    expect(notebook.prompt()).to_be_visible(timeout=15_000)
    expect(notebook.section("waiting")).to_contain_text("Go on?")
    expect(notebook.badge("total =")).to_contain_text("stale", timeout=15_000)
    for theme in THEMES:
        in_theme(notebook, theme)
        nothing_is_wrong(notebook, "[data-krt-panel]", ".krt-badge", ".krt-PromptRow")
        picture(notebook, theme, "asks")
        notebook.section("state").locator("[data-krt-action='restart']").click()
        expect(notebook.dialog).to_contain_text("incarnation 1")
        nothing_is_wrong(notebook, ".jp-krt-Loss")
        picture(notebook, theme, "restart")
        notebook.page.keyboard.press("Escape")
        expect(notebook.dialog).to_have_count(0)
    session.answer("yes")
    done(session, "input('Go on? ')")
    kill(kernel_of(session))
    expect(notebook.section("loss")).to_contain_text("price", timeout=20_000)
    notebook.page.get_by_text("its heap is gone").first.wait_for()
    notebook.page.locator(".jp-Notification-Toast-Close").first.click()
    expect(notebook.page.locator(".Toastify__toast")).to_have_count(0)
    notebook.page.route("**/kernel-runtime/api/**", lambda route: route.abort())
    expect(notebook.away()).to_be_visible(timeout=40_000)
    for theme in reversed(THEMES):
        in_theme(notebook, theme)
        nothing_is_wrong(notebook, "[data-krt-panel]", ".krt-badge", "[data-krt-away]")
        picture(notebook, theme, "lost")
    notebook.page.unroute("**/kernel-runtime/api/**")
    expect(notebook.away()).to_have_count(0, timeout=20_000)


def tab_to(notebook: NotebookPage, wanted: Locator, *, most: int = 40) -> None:
    """Press Tab until it has the focus."""
    for _ in range(most):
        notebook.page.keyboard.press("Tab")
        if wanted.evaluate("one => one === document.activeElement"):
            return
    raise AssertionError(f"not reached with {most} times Tab: {wanted}")


def test_all_of_it_by_keyboard_and_told_to_a_screen_reader(
    session: kr.Session, notebook: NotebookPage
) -> None:
    page = notebook.page
    asked = session.submit("print('got', input('By keys? '))")
    expect(notebook.announced()).to_have_text("A cell waits for input: By keys? ", timeout=15_000)
    expect(notebook.announced()).to_have_attribute("role", "alert")
    page.keyboard.press("Control+Shift+C")
    page.keyboard.type("Show Session Panel")
    page.keyboard.press("Enter")
    panel = page.locator("[data-krt-panel]")
    expect(panel).to_be_focused()
    box = panel.locator("[data-krt-answer]")
    expect(box).to_be_visible()
    tab_to(notebook, box)
    page.keyboard.type("yes")
    page.keyboard.press("Enter")
    assert asked.wait(timeout=30).text.endswith("got yes\n")
    expect(box).to_have_count(0)
    inside = "one => one.contains(document.activeElement)"
    eventually(lambda: panel.evaluate(inside), 30, "the keyboard is still in the panel")
    assert page.evaluate("document.activeElement !== document.body")

    kill(kernel_of(session))
    expect(notebook.announced()).to_contain_text("its heap is gone", timeout=20_000)
    start = panel.locator("[data-krt-section='loss'] [data-krt-action='start']")
    expect(start).to_be_visible(timeout=15_000)
    tab_to(notebook, start)
    page.keyboard.press("Enter")
    accept = panel.locator("[data-krt-action='accept']")
    expect(accept).to_be_visible(timeout=20_000)
    eventually(lambda: panel.evaluate(inside), 30, "the keyboard is still in the panel")
    tab_to(notebook, accept)
    page.keyboard.press("Enter")
    expect(accept).to_have_count(0, timeout=15_000)
    eventually(lambda: panel.evaluate(inside), 30, "the keyboard is still in the panel")

    # the row below a cell has the cursor in the page that ran the cell, and gives it back
    notebook.run("print('hello', input('Name? '))")
    row = notebook.prompt()
    expect(row).to_be_focused(timeout=15_000)
    page.keyboard.type("ada")
    page.keyboard.press("Enter")
    notebook.shows("'Name? '", "hello ada")
    expect(row).to_have_count(0)
    eventually(
        lambda: page.locator(".jp-Notebook").evaluate(inside), 30, "the keyboard is in the notebook again"
    )
