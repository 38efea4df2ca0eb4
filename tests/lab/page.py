"""A session's notebook as somebody sees it in a browser: cells, outputs, badges, the session's panel.

Everything is looked up when it is asked for, so a `NotebookPage` stays right while others change the
document. Whether something is there is playwright's `expect` to say, which waits for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import Locator, Page, expect

LOADED = 40_000
"""milliseconds for JupyterLab's own page on a busy machine"""
SOON = 15_000
"""milliseconds for something that happened in the session to be on the page"""

BADGE = ".krt-badge"
PANEL_TAB = ".jp-SideBar .lm-TabBar-tab[data-id='kernel-runtime-session']"


_READ = """source => {
  const notebook = window.jupyterapp.shell.currentWidget.content;
  const sources = notebook.model.sharedModel.cells.map(cell => cell.getSource());
  const at = sources.indexOf(source);
  void notebook.scrollToItem(at, 'center');
  const node = notebook.widgets[at]?.node;
  const { top, bottom, height } = node?.getBoundingClientRect() ?? { top: 0, bottom: 0, height: 0 };
  if (height === 0 || bottom <= 0 || top >= window.innerHeight) {
    return null;
  }
  const text = name => node.querySelector(name)?.textContent?.trim() ?? '';
  return {
    cells: sources.filter(one => one === source).length,
    output: text('.jp-OutputArea-output'),
    prompt: text('.jp-InputPrompt'),
    badge: text('.krt-badge')
  };
}"""


class NotebookPage:
    """One notebook in one page."""

    def __init__(self, page: Page, path: str) -> None:
        self.page = page
        self.path = path

    def ready(self, *, kernel: bool = True) -> NotebookPage:
        """Wait until its first cell is shown and, with `kernel`, until it knows its kernel."""
        expect(self.cells.first).to_be_visible(timeout=LOADED)
        if kernel:
            expect(self.page.locator(".jp-Notebook-ExecutionIndicator").first).to_have_attribute(
                "data-status", re.compile("idle|busy"), timeout=LOADED
            )
        return self

    def reload(self) -> NotebookPage:
        self.page.reload()
        return self.ready()

    # reading

    @property
    def cells(self) -> Locator:
        return self.page.locator(".jp-Notebook .jp-Cell")

    def cell(self, source: str) -> Locator:
        """Cells whose source has that text (on one of its lines)."""
        editor = self.page.locator(".jp-InputArea-editor", has_text=source)
        return self.cells.filter(has=editor)

    @property
    def active(self) -> Locator:
        """The source of the cell that the person is at."""
        return self.page.locator(".jp-Notebook .jp-Cell.jp-mod-active .cm-content")

    def sources(self) -> list[str]:
        """Of all cells that are shown, from the top; empty ones left out."""
        found = [text.strip() for text in self.cells.locator(".cm-content").all_inner_texts()]
        return [text for text in found if text]

    def output(self, source: str) -> Locator:
        """What came out of the cell with that source."""
        return self.cell(source).locator(".jp-OutputArea-output")

    def shows(self, source: str, text: str, timeout: float = SOON) -> None:
        """The cell's outputs hold that text, or will soon."""
        outputs = self.cell(source).locator(".jp-Cell-outputWrapper")
        expect(outputs).to_contain_text(text, timeout=timeout)

    def counted(self, source: str, count: int, timeout: float = SOON) -> None:
        """The cell's prompt shows that execution count."""
        prompt = self.cell(source).locator(".jp-InputPrompt")
        expect(prompt).to_have_text(f"[{count}]:", timeout=timeout)

    def badge(self, source: str) -> Locator:
        """What the cell says of who ran it and of its truth."""
        return self.cell(source).locator(BADGE)

    def prompt(self) -> Locator:
        """The box below the cell that waits for input."""
        return self.page.locator(".krt-PromptRow [data-krt-answer]")

    def panel(self) -> Locator:
        """The session's panel, shown."""
        panel = self.page.locator("[data-krt-panel]")
        if not panel.is_visible():
            self.page.locator(PANEL_TAB).click()
        expect(panel).to_be_visible()
        return panel

    def section(self, name: str) -> Locator:
        """A part of the panel: `state`, `waiting`, `loss`, `not-live`, `names`, `resources`, `claims`."""
        return self.panel().locator(f"[data-krt-section='{name}']")

    def away(self) -> Locator:
        """The line that says that the page is cut off from its server."""
        return self.page.locator("[data-krt-away]")

    def announced(self) -> Locator:
        """What a screen reader was told last, unasked."""
        return self.page.locator("[data-krt-live]")

    # doing

    def read_at(self, source: str) -> dict[str, object] | None:
        """What can be read of the cell with that source, once it is in view: `output`, `prompt`, `badge`; and
        how many `cells` have that source.

        JupyterLab goes to it as it does for its table of contents. In a long notebook heights are estimates
        until cells were in view, and each that is corrected moves the others: so who reads goes there again
        each time, and all is read in one moment.
        """
        read: dict[str, object] | None = self.page.evaluate(_READ, source)
        return read

    def select_last(self) -> None:
        """The last cell, in command mode."""
        self.cells.last.locator(".jp-InputPrompt").click()

    def begin_to_edit(self) -> None:
        """The selected cell, in edit mode; a new one gets an editor, and that the focus, a moment later."""
        self.page.keyboard.press("Enter")
        expect(self.active).to_be_focused()

    def write(self, source: str) -> None:
        """A new cell at the end, with that source typed into it."""
        self.select_last()
        self.page.keyboard.press("b")
        self.begin_to_edit()
        self.page.keyboard.insert_text(source)
        expect(self.active).to_contain_text(source.splitlines()[0])

    def run(self, source: str) -> None:
        """A new cell at the end, typed and run as a person does."""
        self.write(source)
        self.page.keyboard.press("Shift+Enter")

    def retype(self, source: str, new: str) -> None:
        """Replace the source of a cell; it is not run."""
        self.cell(source).locator(".cm-content").click()
        expect(self.active).to_be_focused()
        self.page.keyboard.press("Control+a")
        self.page.keyboard.insert_text(new)
        expect(self.active).to_contain_text(new.splitlines()[0])

    def menu(self, menu: str, item: str) -> None:
        """Choose from the menu bar."""
        self.page.locator(".lm-MenuBar-item", has_text=re.compile(rf"^{menu}$")).click()
        self.page.locator(".lm-Menu-itemLabel", has_text=re.compile(rf"^{item}")).first.click()

    def command(self, label: str) -> None:
        """Run a command from the palette."""
        self.page.keyboard.press("Control+Shift+C")
        self.page.locator(".lm-CommandPalette-input").fill(label)
        self.page.locator(".lm-CommandPalette-itemLabel", has_text=label).first.click()

    @property
    def dialog(self) -> Locator:
        return self.page.locator(".jp-Dialog")


Open = Callable[..., NotebookPage]
"""`open(session)`, `open(session, elsewhere=True)`: how a test opens a session's notebook in a page"""
