"""Somebody replaces the file of an open notebook: what stood in it is on the page, in the file, or kept."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import kernel_runtime as kr
from kernel_runtime import places, process
from tests.jupyter.server import Server
from tests.jupyter.shared_page import Page, collaborative, file_of, in_the_store, known, page, saved_cells
from tests.jupyter.test_room_file import digest_of
from tests.support import eventually


@pytest.fixture(scope="module")
def failpoint(krt_home: Path) -> Path:
    """Holds `arm` and `hit` of the instant in which the server's save takes the file's place."""
    directory = krt_home.parent / "failpoint"
    directory.mkdir()
    return directory


@pytest.fixture(scope="module")
def server(krt_home: Path, failpoint: Path) -> Iterator[Server]:
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KRT_FAILPOINT", "in-notebook-rename:stop")
            patch.setenv("KRT_FAILPOINT_DIR", str(failpoint))
            server = stack.enter_context(collaborative(krt_home.parent, "work"))
        yield server


@pytest.fixture
def opened(server: Server, session: kr.Session) -> Iterator[Page]:
    """A notebook with a cell that ran and a text, open on a page."""
    session.execute("a = 1; a", timeout=60, cell_id="ran")
    known(server, session)
    eventually(lambda: saved_sources(server, session) == ["a = 1; a"], what="the cell in the file")
    with page(server, f"{session.name}.ipynb") as one:
        one.until(lambda: one.sources() == ["a = 1; a"], what="the document")
        one.add(1, "text", "# t", "markdown")
        eventually(lambda: saved_sources(server, session) == ["a = 1; a", "# t"], what="saved")
        at_rest(one, server, session)
        yield one


def saved_sources(server: Server, session: kr.Session) -> list[str]:
    return ["".join(cell["source"]) for cell in saved_cells(server, session)]


def at_rest(one: Page, server: Server, session: kr.Session) -> None:
    """Until the page was told of the last save."""
    one.until(lambda: one.notebook.hash == digest_of(server, session), what="the end of the save")


def kept(session: kr.Session) -> list[list[str]]:
    """The sources of each notebook that is kept, oldest first."""
    directory = places.session_dir(session.name) / "replaced"
    documents: list[dict[str, Any]] = [json.loads(path.read_bytes()) for path in sorted(directory.glob("*"))]
    return [["".join(cell["source"]) for cell in document["cells"]] for document in documents]


def told(one: Page) -> list[str]:
    """What the page is told, in the document's state."""
    one.hear(0.1)
    notes = one.notebook.ystate.get("kernel_runtime_notes") or []
    return [note["text"] for note in notes]


def replace(path: Path, data: bytes, *, age: float | None = None) -> None:
    """As git does: a new file in the place of the old one."""
    theirs = path.with_name("theirs")
    theirs.write_bytes(data)
    if age is not None:
        os.utime(theirs, (age, age))
    theirs.replace(path)


def with_text(path: Path, source: str) -> bytes:
    document = json.loads(path.read_bytes())
    document["cells"][1]["source"] = source
    return json.dumps(document).encode()


def test_text_that_a_checkout_takes_out_is_kept_and_everybody_is_told(
    opened: Page, server: Server, session: kr.Session
) -> None:
    """To a merge of three sides, a saved cell that is not in the new file was taken out there. Nobody decided
    that: it is what an old copy looks like. The document as it was is kept before, and the page says where.
    """
    old = file_of(server, session).read_bytes()
    opened.add(2, "never", "never_ran = 'and was saved'")
    opened.type("text", "# t, and more of it")
    everything = ["a = 1; a", "# t, and more of it", "never_ran = 'and was saved'"]
    eventually(lambda: saved_sources(server, session) == everything, what="saved")
    at_rest(opened, server, session)
    replace(file_of(server, session), old)
    opened.until(lambda: opened.sources() == ["a = 1; a", "# t"], what="the old copy")
    assert kept(session) == [everything]
    (note,) = opened.until(lambda: told(opened), what="a note")
    assert "2 cells" in note
    assert str(places.session_dir(session.name) / "replaced") in note
    with page(server, f"{session.name}.ipynb") as another:  # whoever opens it next is told too
        another.until(lambda: told(another) == [note], what="the note")


def test_a_save_in_the_instant_of_the_rooms_is_merged(
    opened: Page, server: Server, session: kr.Session, failpoint: Path
) -> None:
    """jupyter_server looks at the file's time, and then truncates the file and writes into it: what is saved
    between the two was overwritten, and the time it looked at afterwards was that of its own write.

    The server is stopped where all is done but the exchange of the two files; another program replaces the
    file; the server goes on. What it takes out is not what it had seen: that gets its place back, and is
    merged as any change from outside.
    """
    path = file_of(server, session)
    by_another = {"cell_type": "markdown", "id": "by", "metadata": {}, "source": "by another"}
    (failpoint / "arm").touch()
    opened.type("text", "# typed")
    pid = int(eventually(lambda: _read(failpoint / "hit"), 30, "the server is about to save"))
    (failpoint / "arm").unlink()
    try:
        eventually(lambda: process.run_state(pid) == "T", what="it is stopped")
        document = json.loads(path.read_bytes())
        assert "# typed" not in str(document)
        document["cells"].append(by_another)
        replace(path, json.dumps(document).encode())
    finally:
        os.kill(pid, signal.SIGCONT)
    both = ["a = 1; a", "# typed", "by another"]
    opened.until(lambda: opened.sources() == both, what="both on the page")
    eventually(lambda: saved_sources(server, session) == both, what="both in the file")
    # the names are exchanged before what was taken out is gone
    eventually(lambda: not list(path.parent.glob(f".{path.name}*")), what="nothing is left beside it")


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


def test_an_older_file_that_is_moved_into_the_place_is_noticed(
    opened: Page, server: Server, session: kr.Session
) -> None:
    """jupyter-collaboration looks for a file that is newer than the one it knows; `mv` and `cp -p` bring one
    that is older. Whether it is another one is what counts.
    """
    path = file_of(server, session)
    replace(path, with_text(path, "# from a backup"), age=1e9)
    opened.until(lambda: opened.sources() == ["a = 1; a", "# from a backup"], what="the older file")
    assert kept(session) == [["a = 1; a", "# t"]]


def test_what_is_no_notebook_is_left_as_it_is_and_the_page_goes_on(
    opened: Page, server: Server, session: kr.Session
) -> None:
    """A merge with conflicts leaves marks in the file. Saved over, what people are to decide would be gone;
    so the document waits, in the server's store, until the file is a notebook again.
    """
    path = file_of(server, session)
    before = path.read_bytes()
    marks = b"<<<<<<< HEAD\n" + before
    path.write_bytes(marks)
    opened.until(lambda: told(opened), what="a note")
    failed = server.log.read_text().count("Error saving file")  # a read that fails is told in the same words
    opened.add(2, "meanwhile", "# typed meanwhile", "markdown")
    opened.until(lambda: server.log.read_text().count("Error saving file") > failed, what="a save was tried")
    assert path.read_bytes() == marks
    path.write_bytes(before)
    everything = ["a = 1; a", "# t", "# typed meanwhile"]
    eventually(lambda: saved_sources(server, session) == everything, 30, "both in the file")
    assert opened.sources() == everything
    assert not path.with_name(f"{path.stem}.kernel_runtime.ipynb").exists()


def test_what_cannot_be_kept_is_not_taken_out(opened: Page, server: Server, session: kr.Session) -> None:
    """The disk is full, or somebody put a file where the directory is to be: then the text stays."""
    path = file_of(server, session)
    (places.session_dir(session.name) / "replaced").touch()
    replace(path, with_text(path, "# other"))
    both = ["a = 1; a", "# t", "# other"]
    opened.until(lambda: opened.sources() == both, what="both on the page")
    eventually(lambda: saved_sources(server, session) == both, what="both in the file")


def test_what_an_editor_wrote_it_may_go_on_writing(opened: Page, server: Server, session: kr.Session) -> None:
    """An editor that saves as one types replaces its own text again and again; that is no history to keep."""
    path = file_of(server, session)
    replace(path, with_text(path, "# by hand"))
    opened.until(lambda: opened.sources() == ["a = 1; a", "# by hand"], what="the first save")
    for number in range(3):
        replace(path, with_text(path, f"# by hand {number}"))
        opened.until(lambda n=number: opened.sources()[1] == f"# by hand {n}", what="the next")  # type: ignore[misc]
    assert kept(session) == [["a = 1; a", "# t"]]


def test_a_server_that_was_killed_over_edits_takes_nothing_out_when_it_comes_back(
    opened: Page, server: Server, session: kr.Session
) -> None:
    """Its store and the file are merged as on any change, and neither lacks what nobody took out."""
    opened.type("text", "# t, not saved")
    opened.add(2, "begun", "b = ")
    opened.sync()
    in_the_store(server, "begun")
    server.kill()
    session.execute("b = 2; b", timeout=60, cell_id="begun")
    server.start()
    everything = ["a = 1; a", "# t, not saved", "b = 2; b"]
    with page(server, f"{session.name}.ipynb") as again:
        again.until(lambda: again.sources() == everything, what="both")
        eventually(lambda: saved_sources(server, session) == everything, what="both in the file")
        assert told(again) == []
    assert kept(session) == []
