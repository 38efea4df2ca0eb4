"""What a page may see and do, and what an agent's output may not do to who looks at it."""

from __future__ import annotations

import json
import stat

import psutil
from playwright.sync_api import expect

import kernel_runtime as kr
from kernel_runtime import places, process
from tests.lab.page import NotebookPage, Open
from tests.lab.record import done
from tests.lab.server import LabServer
from tests.support import eventually

ROUTES = ["/kernel-runtime/api/sessions", "/api/kernels", "/api/sessions", "/api/contents", "/api/terminals"]
HOSTILE = [
    "HTML('<img src=x onerror=\"window.harm = 1\"><p>harmless-1</p>')",
    "HTML('<script>window.harm = 2</script><p>harmless-2</p>')",
    "SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"><script>window.harm = 3</script></svg>')",
    "Javascript('window.harm = 4')",
    'Markdown(\'<a href="javascript:window.harm=5" id="lure">harmless-5</a>\')',
]


def test_nothing_is_told_without_the_token(session: kr.Session, lab: LabServer) -> None:
    kernel_id = next(row["kernel_id"] for row in lab.get(ROUTES[0]) if row["name"] == session.name)
    eventually(
        lambda: kernel_id in [kernel["id"] for kernel in lab.get("/api/kernels")], 30, "it is attached"
    )
    for route in [*ROUTES, f"/kernel-runtime/api/kernels/{kernel_id}/overview"]:
        assert lab.status(route) == 403, route
        assert lab.status(route, "0" * 48) == 403, route
        assert lab.status(route, lab.token) == 200, route


def test_a_hostile_host_and_origin_are_refused(
    session: kr.Session, notebook: NotebookPage, lab: LabServer
) -> None:
    for route in ROUTES:
        assert lab.status(route, lab.token, Host="attacker.example") == 403, route
        # with the person's cookie, as a page elsewhere would have it sent
        ask = notebook.page.context.request
        assert ask.get(lab.base + route).status == 200, route
        hostile = ask.get(lab.base + route, headers={"Origin": "https://attacker.example"})
        assert hostile.status == 404, route


def test_a_page_elsewhere_cannot_act_with_the_persons_cookie(
    session: kr.Session, notebook: NotebookPage, lab: LabServer
) -> None:
    kernel_id = next(row["kernel_id"] for row in lab.get(ROUTES[0]) if row["name"] == session.name)
    reply = notebook.page.context.request.post(
        f"{lab.base}/kernel-runtime/api/kernels/{kernel_id}/execute",
        data={"source": "harm = 1", "key": "forged"},
    )
    assert reply.status == 403
    session.execute("assert 'harm' not in globals()")


def test_it_listens_on_loopback_only_and_its_files_are_private(lab: LabServer) -> None:
    listening = [c.laddr for c in psutil.Process(lab.who.pid).net_connections() if c.status == "LISTEN"]
    assert listening
    assert {address.ip for address in listening} <= {"127.0.0.1", "::1"}
    record = places.runtime_dir() / "lab.json"
    assert stat.S_IMODE(record.stat().st_mode) == 0o600


def test_the_token_is_in_no_log_and_no_argv(
    session: kr.Session, notebook: NotebookPage, lab: LabServer
) -> None:
    notebook.run("print('seen')")
    notebook.shows("print('seen')", "seen")
    assert lab.log.read_bytes()
    assert lab.token not in lab.log.read_text(errors="replace")
    assert lab.token not in " ".join(process.command_line(lab.who.pid))
    environment = places.home().parent / "home" / "sessions" / session.name / "supervisor.log"
    assert not environment.exists() or lab.token not in environment.read_text(errors="replace")
    assert session.execute(f"import os; {lab.token[:8]!r} in repr(dict(os.environ))").text in ("", "False")


def test_nobody_is_asked_about_news_and_no_other_host_is_asked_for_any(
    session: kr.Session, notebook: NotebookPage, lab: LabServer
) -> None:
    """JupyterLab 4.6 asks whether to fetch news whatever `LabApp.news_url` says, and after either answer has
    its server look for a newer release. The part of the page that does both is left out.
    """
    asked: list[str] = []
    notebook.page.on("request", lambda request: asked.append(request.url))
    notebook.reload()
    notebook.run("print('a while later')")
    notebook.shows("a while later", "a while later")
    expect(notebook.page.get_by_text("official Jupyter news")).to_have_count(0)
    assert [url for url in asked if not url.startswith((lab.base, "data:", "blob:"))] == []
    assert [url for url in asked if "/lab/api/news" in url or "/lab/api/update" in url] == []
    configured = notebook.page.evaluate("document.getElementById('jupyter-config-data').textContent")
    disabled = json.loads(configured)["disabledExtensions"]
    assert "@jupyterlab/apputils-extension:announcements" in disabled
    assert "@jupyterlab/notebook-extension:cell-executor" in disabled, "and what others disable still is"


def test_an_agents_html_and_javascript_do_nothing_until_trusted(session: kr.Session, pages: Open) -> None:
    session.execute("from IPython.display import HTML, SVG, Javascript, Markdown, display")
    live = pages(session)
    for source in HOSTILE:
        session.execute(f"display({source})")
    session.execute("print('all out')")
    live.shows("all out", "all out")
    later = pages(session, elsewhere=True)
    later.shows("all out", "all out")
    for notebook in (live, later):
        expect(notebook.output("harmless-1").get_by_text("harmless-1")).to_be_visible()
        lure = notebook.output("harmless-5").get_by_text("harmless-5")
        lure.scroll_into_view_if_needed()
        lure.click()
        assert notebook.page.evaluate("window.harm") is None
        expect(notebook.page.locator(".jp-OutputArea-output script")).to_have_count(0)


def test_a_persons_own_javascript_runs(session: kr.Session, notebook: NotebookPage) -> None:
    notebook.run("from IPython.display import Javascript\nJavascript('window.mine = 1')")
    done(session, "window.mine")
    notebook.page.wait_for_function("window.mine === 1")


def test_outputs_of_an_agent_stay_untrusted_beside_a_persons(
    session: kr.Session, notebook: NotebookPage
) -> None:
    """That somebody ran a cell of their own trusts nobody else's."""
    notebook.run("print('mine')")
    notebook.shows("print('mine')", "mine")
    session.execute("from IPython.display import Javascript\nJavascript('window.harm = 6')")
    session.execute("print('after it')")
    notebook.shows("after it", "after it")
    assert notebook.page.evaluate("window.harm") is None
