"""One Chromium for the run, one KRT_HOME and one JupyterLab for each module, a page of its own for each test.

A page that a test leaves open is photographed into `.lab-screenshots/`, whether the test went well or not.
What a module leaves running fails it, as everywhere.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize, expect, sync_playwright

import kernel_runtime as kr
from tests.conftest import isolated
from tests.contract.stock import running_session
from tests.lab.gate import Gate
from tests.lab.network import Network, network
from tests.lab.page import SOON, NotebookPage, Open
from tests.lab.server import LabServer

expect.set_options(timeout=SOON)

SCREENSHOTS = Path(__file__).parents[2] / ".lab-screenshots"
CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
VIEW: ViewportSize = {"width": 1280, "height": 1100}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker("lab")


@pytest.fixture(scope="session", autouse=True)
def browser() -> Iterator[Browser]:
    """Started before any KRT_HOME is set: it belongs to no module."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module", autouse=True)
def krt_home(browser: Browser) -> Iterator[Path]:
    """This module's KRT_HOME."""
    with isolated() as home:
        yield home


@pytest.fixture(scope="module")
def lab(krt_home: Path) -> Iterator[LabServer]:
    root = krt_home.parent / "work"
    root.mkdir()
    config = Path(os.environ["JUPYTER_CONFIG_DIR"]) / "jupyter_lab_config.json"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(json.dumps({"LabApp": {"expose_app_in_browser": True}}))  # for `NotebookPage.read_at`
    server = LabServer(root)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def session(lab: LabServer, request: pytest.FixtureRequest) -> Iterator[kr.Session]:
    """A session named after the test, its notebook in the served directory; one cell has run in it."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name).strip("-")[:40].lower()
    with running_session(name, cwd=lab.root, notebook=lab.root / f"{name}.ipynb") as session:
        session.execute("origin = 1")
        yield session


@pytest.fixture(scope="module")
def machine(browser: Browser) -> Iterator[BrowserContext]:
    """The browser of one person on one machine; its cache is what makes later pages quick."""
    context = browser.new_context(viewport=VIEW)
    yield context
    context.close()


@pytest.fixture
def pages(
    lab: LabServer, machine: BrowserContext, browser: Browser, request: pytest.FixtureRequest
) -> Iterator[Open]:
    """Open a session's notebook: `pages(session)`; `pages(session, elsewhere=True)` on another machine;
    `pages(session, over=network)` by another way.
    """
    opened: list[Page] = []
    with ExitStack() as stack:

        def show(
            session: kr.Session,
            *,
            elsewhere: bool = False,
            kernel: bool = True,
            over: Network | None = None,
        ) -> NotebookPage:
            context = machine
            if elsewhere:
                context = browser.new_context(viewport=VIEW)
                stack.callback(context.close)
            page = context.new_page()
            opened.append(page)
            path = Path(session.row()["notebook"]).relative_to(lab.root).as_posix()
            base = over.base if over is not None else ""
            page.goto(lab.page_of(path, f"{session.name}-{len(opened)}", base))
            return NotebookPage(page, path).ready(kernel=kernel)

        yield show
        _photograph(opened, request.node.nodeid)
        for page in opened:
            page.close()


@pytest.fixture
def notebook(pages: Open, session: kr.Session) -> NotebookPage:
    """The session's notebook, open in a page."""
    return pages(session)


def _photograph(pages: list[Page], nodeid: str) -> None:
    SCREENSHOTS.mkdir(exist_ok=True)
    name = re.sub(r"[^A-Za-z0-9]+", "-", nodeid.partition("::")[2])
    for number, page in enumerate(pages):
        if not page.is_closed():
            page.screenshot(path=SCREENSHOTS / f"{name}{'' if number == 0 else f'-{number}'}.png")


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path / "open")


@pytest.fixture
def wire(lab: LabServer) -> Iterator[Network]:
    """A way to the server that a test can cut; ask for it before `pages`, which closes them."""
    with network(lab.port) as between:
        yield between
