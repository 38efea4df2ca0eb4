"""The notebook file has one writer at a time, and no side's work is lost in it."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import nbformat
from playwright.sync_api import expect

import kernel_runtime as kr
from kernel_runtime import places
from tests.lab.page import NotebookPage, Open
from tests.lab.record import at_rest, done, path_of, saved, sources
from tests.lab.server import LabServer
from tests.support import eventually, krt


def in_the_file(session: kr.Session, text: str) -> None:
    eventually(lambda: saved(session, text) is not None, 30, f"{text!r} is in the file")


def add_by_hand(path: Path, text: str) -> None:
    """What another editor does: read, add a cell at the end, write."""
    at_rest(path)
    document = nbformat.read(path, as_version=4)
    document.cells.append(nbformat.v4.new_markdown_cell(text))
    nbformat.write(document, path)


def undisturbed(notebook: NotebookPage) -> None:
    """Nobody was asked what to do about a file that changed."""
    assert notebook.dialog.count() == 0


def test_an_edit_in_the_page_and_an_agents_cell_are_both_in_the_file(
    session: kr.Session, notebook: NotebookPage
) -> None:
    notebook.write("draft = 'a person writes'")
    for n in range(5):
        session.execute(f"print('agent', {n})")
    notebook.page.keyboard.insert_text("  # and goes on")
    notebook.shows("print('agent', 4)", "agent 4")
    in_the_file(session, "draft = 'a person writes'  # and goes on")
    in_the_file(session, "print('agent', 4)")
    expect(notebook.cell("draft = 'a person writes'  # and goes on")).to_have_count(1)
    assert len(sources(session)) == len(set(sources(session)))
    nbformat.validate(nbformat.read(path_of(session), as_version=4))
    undisturbed(notebook)


def test_a_file_edited_by_hand_under_an_open_page(session: kr.Session, notebook: NotebookPage) -> None:
    notebook.write("in_the_page = 1")
    in_the_file(session, "in_the_page = 1")
    add_by_hand(path_of(session), "written in another editor")
    session.execute("print('an agent too')")
    expect(notebook.page.locator(".jp-MarkdownCell", has_text="written in another editor")).to_be_visible(
        timeout=30_000
    )
    notebook.shows("an agent too", "an agent too")
    expect(notebook.cell("in_the_page = 1")).to_have_count(1)
    eventually(
        lambda: (
            {"written in another editor", "in_the_page = 1", "print('an agent too')"} <= set(sources(session))
        ),
        30,
        "all three are in the file",
    )
    undisturbed(notebook)


def test_a_checkout_under_an_open_page(session: kr.Session, notebook: NotebookPage) -> None:
    """An old copy comes back: what ran since is put back, what people do afterwards is there too.

    A cell that never ran and was in the replaced file goes with that file, as a deletion does.
    So the notebook as it was is kept, and the page says where.
    """
    path = path_of(session)
    repository = path.parent / f"repository-of-{session.name}"
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", f"--git-dir={repository}"]
    git += [f"--work-tree={path.parent}"]

    def run(*what: str) -> None:
        subprocess.run([*git, *what], check=True, capture_output=True, cwd=path.parent)

    subprocess.run(["git", "init", "-q", "--bare", str(repository)], check=True, capture_output=True)
    run("config", "core.bare", "false")
    in_the_file(session, "origin = 1")
    run("add", path.name)
    run("commit", "-q", "-m", "then")
    session.execute("print('ran since')")
    notebook.write("never_ran = 'and was saved'")
    in_the_file(session, "never_ran")
    in_the_file(session, "print('ran since')")
    at_rest(path)
    run("checkout", "--", path.name)
    expect(notebook.cell("never_ran")).to_have_count(0, timeout=30_000)
    (kept,) = (places.session_dir(session.name) / "replaced").iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    notice = notebook.page.locator(".Toastify__toast", has_text="text of 1 cell")
    notice.get_by_role("button", name="Read all of it").click()
    expect(notebook.dialog).to_contain_text(str(kept))
    notebook.dialog.get_by_role("button", name="Ok").click()
    before = {cell.source for cell in nbformat.read(kept, as_version=4).cells}
    assert before == {"origin = 1", "print('ran since')", "never_ran = 'and was saved'"}
    notebook.shows("ran since", "ran since")
    notebook.write("written = 'after'")
    session.execute("print('ran after')")
    notebook.shows("ran after", "ran after")
    expect(notebook.cell("written = 'after'")).to_have_count(1)
    wanted = {"origin = 1", "print('ran since')", "print('ran after')", "written = 'after'"}
    eventually(lambda: set(sources(session)) == wanted, 30, "the file has all of it")
    undisturbed(notebook)


def test_the_supervisor_writes_again_once_the_page_and_jupyter_are_gone(
    session: kr.Session, pages: Open, lab: LabServer
) -> None:
    notebook = pages(session)
    notebook.write("left_behind = 'by a person'")
    in_the_file(session, "left_behind")
    notebook.page.close()
    lab.kill()
    try:
        krt("exec", session.name, "print('nobody looks')", "--as", "agent:planner")
        done(session, "nobody looks")
        # before its end, too, and without what it shows
        eventually(lambda: (saved(session, "nobody looks") or {}).get("outputs"), 90, "it wrote the file")
        in_the_file(session, "left_behind")
        cell = saved(session, "nobody looks")
        assert cell is not None
        assert cell["outputs"][0]["text"] == ["nobody looks\n"]
    finally:
        lab.start()
    again = pages(session)
    again.shows("nobody looks", "nobody looks")
    expect(again.cell("left_behind")).to_have_count(1)
