"""A replay's report in a browser: nothing runs, nothing is loaded, everybody can read it, it prints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Dialog, Page, Request, expect

from kernel_runtime.replay.plan import Step
from kernel_runtime.replay.report.history import History
from kernel_runtime.replay.report.html import MOST_BYTES
from kernel_runtime.replay.report.html import page as page_of
from tests.lab.conftest import SCREENSHOTS
from tests.lab.test_accessibility import AXE
from tests.unit.replay.report_samples import MARKER, history, hostile, ordinary, printed, replayed, step

POLICY = b'http-equiv="Content-Security-Policy"'
TOLD = """async () => {
  const found = await axe.run();
  const unsure = found.incomplete.filter(rule => rule.id === 'color-contrast');
  const seen = found.passes.filter(rule => rule.id === 'color-contrast').flatMap(rule => rule.nodes);
  const tell = rule => rule.nodes.map(node => [rule.id, node.html.slice(0, 200), node.failureSummary]);
  return { looked: seen.length, wrong: [...found.violations, ...unsure].flatMap(tell) };
}"""


class Watched:
    """A page, and what it did that a report may not do."""

    def __init__(self, page: Page, path: Path) -> None:
        self.page = page
        self.asked: list[str] = []
        self.said: list[str] = []
        self.address = path.as_uri()
        page.on("request", self._request)
        page.on("dialog", self._dialog)
        page.on("console", lambda one: self.said.append(one.text))
        page.on("pageerror", lambda one: self.said.append(str(one)))
        page.on("popup", lambda one: self.said.append(f"popup {one.url}"))
        page.goto(self.address)

    def _request(self, request: Request) -> None:
        if not request.url.startswith((self.address, "data:")):
            self.asked.append(request.url)

    def _dialog(self, dialog: Dialog) -> None:
        self.said.append(f"dialog {dialog.message}")
        dialog.dismiss()


@contextmanager
def opened(browser: Browser, path: Path, **how: str) -> Iterator[Watched]:
    context = browser.new_context(**how)  # type: ignore[arg-type]
    try:
        yield Watched(context.new_page(), path)
    finally:
        context.close()


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "report.html"
    path.write_bytes(page_of(ordinary(), by="human:b", history=history()))
    return path


@pytest.mark.parametrize("with_policy", [True, False])
def test_hostile_outputs_do_nothing(browser: Browser, tmp_path: Path, with_policy: bool) -> None:
    """With the page's policy, and by the sanitizer alone: either would do."""
    data = page_of(hostile(), by="<script>alert(1)</script>", history=History())
    assert data.count(POLICY) == 1
    path = tmp_path / "hostile.html"
    path.write_bytes(data if with_policy else data.replace(POLICY, b'name="nothing"'))
    with opened(browser, path) as watched:
        page = watched.page
        page.mouse.move(200, 200)
        for key in ("Tab", "Enter", "End", "Tab", "Enter"):
            page.keyboard.press(key)
        page.locator(".output").last.click()
        page.wait_for_load_state("networkidle")
        assert (watched.asked, watched.said) == ([], [])
        assert page.evaluate("window.hit === undefined")
        assert page.url.split("#")[0] == path.as_uri()
        active = (
            "script, iframe, object, embed, form, input, link, base, svg, math, template, body style, [style]"
        )
        assert page.locator(active).count() == 0
        inside = page.locator("main > article > .sides > div > .output")
        assert page.locator(".output").count() == inside.count() > 60
        assert page.locator("main > article").count() == len(hostile().plan.steps)
        assert page.locator("#fake").count() == 0
        assert page.locator("h1").count() == 1
        # What a hostile output says is said in its box, or in the diff that quotes it, and nowhere else.
        outside = page.evaluate(
            "() => { const all = document.body.cloneNode(true);"
            " all.querySelectorAll('.box').forEach(one => one.remove()); return all.textContent; }"
        )
        assert MARKER not in outside
        assert page.locator(".output", has_text=MARKER).count() > 40


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_read_it(browser: Browser, report: Path, scheme: str) -> None:
    with opened(browser, report, color_scheme=scheme) as watched:
        page = watched.page
        # executions out of sight are not laid out, and axe cannot tell the contrast of these
        page.set_viewport_size({"width": 1280, "height": 9000})
        page.evaluate(AXE.read_text())
        told = page.evaluate(TOLD)
        assert not told["wrong"], json.dumps(told["wrong"], indent=1)
        assert told["looked"] > 100
        SCREENSHOTS.mkdir(exist_ok=True)
        page.screenshot(path=SCREENSHOTS / f"replay-report-{scheme}.png", full_page=True)


def test_by_keyboard_from_the_verdict_to_a_cell(browser: Browser, report: Path) -> None:
    with opened(browser, report) as watched:
        page = watched.page
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "What was replayed"
        for _ in range(40):
            if page.evaluate("document.activeElement.getAttribute('href')") == "#step-4":
                break
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.wait_for_url("**#step-4")
        expect(page.locator("#step-4")).to_be_in_viewport()


def test_pictures_are_shown(browser: Browser, report: Path) -> None:
    with opened(browser, report) as watched:
        pictures = watched.page.locator("#step-4 img")
        assert pictures.count() == 2
        for at in range(2):
            assert pictures.nth(at).evaluate("one => one.complete && one.naturalWidth > 0")
            assert "step 4" in (pictures.nth(at).get_attribute("alt") or "")


def test_a_page_at_its_bound_opens(browser: Browser, tmp_path: Path) -> None:
    """1,000 cells of 10 MB each. Laid out at once, they took a browser over 30 seconds."""
    large = "<x>\n" * 2_500_000
    pairs: list[tuple[Step, Step | None]] = [
        (step(n, printed(large)), step(n, printed(large))) for n in range(1000)
    ]
    path = tmp_path / "large.html"
    path.write_bytes(page_of(replayed(pairs), history=History()))
    assert 30 << 20 < path.stat().st_size < MOST_BYTES
    with opened(browser, path) as watched:
        assert watched.page.locator("article").count() == 1000
        watched.page.goto(f"{path.as_uri()}#step-999")
        title = watched.page.locator("#title-999")
        expect(title).to_be_in_viewport()


def test_it_prints(browser: Browser, report: Path) -> None:
    """Nothing is behind a scroll bar on paper."""
    with opened(browser, report) as watched:
        watched.page.emulate_media(media="print")
        hidden = "all => all.filter(one => one.scrollHeight > one.clientHeight + 1 && "
        hidden += "getComputedStyle(one).overflowY !== 'visible').length"
        assert watched.page.locator(".box, .scroll").evaluate_all(hidden) == 0
        paper = watched.page.pdf(format="A4")
        assert paper.startswith(b"%PDF")
        assert len(paper) > 20_000
