"""The file on disk: whole or not at all, and never over what is not ours."""

import errno
import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kernel_runtime.errors import DiskFull, InvalidNotebook, ReadOnlyStorage, StorageFault
from kernel_runtime.notebook import write as writing
from kernel_runtime.notebook.render import NotebookBuilder
from kernel_runtime.notebook.write import NotebookFile, atomic_write
from tests.support import eventually
from tests.unit.notebook.sessions import FakeJournal, Script, load, printed, source_of


@pytest.fixture
def journal():
    return FakeJournal()


@pytest.fixture
def session(journal):
    return Script(journal.append)


@pytest.fixture
def file(journal, tmp_path):
    return NotebookFile(tmp_path / "n.ipynb", NotebookBuilder(journal))


def document(file: NotebookFile) -> Any:
    return load(file.path.read_bytes())


def sources(file: NotebookFile) -> list[str]:
    return [source_of(cell) for cell in document(file)["cells"]]


def make_old(path: Path) -> None:
    """As if its last save were a while ago."""
    os.utime(path, (1, 1))


def test_a_notebook_is_written_private_and_only_when_there_is_news(file, session):
    session.run("a = 1", "a")
    assert file.write().changed
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    before = file.path.stat().st_mtime_ns
    assert not file.write().changed
    assert file.path.stat().st_mtime_ns == before
    session.run("b = 1", "b")
    assert file.write().changed
    assert sources(file) == ["a = 1", "b = 1"]
    assert os.listdir(file.path.parent) == ["n.ipynb"]


def test_one_more_cell_reads_only_what_is_new(file, session, journal):
    for i in range(500):
        session.run(f"x = {i}", None, printed("x"))
    file.write()
    journal.reads = 0
    session.run("last", None, printed("x"))
    file.write()
    assert journal.reads < 20


def test_a_save_by_people_is_merged_with_the_next_news_and_not_before(file, session):
    session.run("a = 1", "a")
    file.write()
    saved = document(file)
    saved["cells"][0]["source"] = ["a = 2"]
    file.path.write_text(json.dumps(saved))
    assert not file.write().changed
    session.run("b = 1", "b")
    assert file.write().changed
    assert sources(file) == ["a = 2", "b = 1"]
    assert document(file)["cells"][0]["metadata"]["kernel_runtime"]["truth"] == "edited"
    session.run("c = 1", "c")
    file.write()
    assert sources(file) == ["a = 2", "b = 1", "c = 1"]


def test_sources_tell_what_people_see_before_anything_is_written(file, session):
    session.run("a = 1", "a")
    file.write()
    before = file.sources()
    saved = document(file)
    saved["cells"][0]["source"] = ["a = 2"]
    saved["cells"].append({**saved["cells"][0], "id": "new", "metadata": {}})
    file.path.write_text(json.dumps(saved))
    session.run("z", "z")
    after = file.sources()
    assert list(before) == ["a"]
    assert list(after) == ["a", "new", "z"]
    assert after["a"] == after["new"] != before["a"]
    assert load(file.path.read_bytes())["cells"][0]["source"] == ["a = 2"]


def test_a_conflict_is_told_once(file, session):
    session.run("a = 1", "a")
    file.write()
    saved = document(file)
    saved["cells"][0]["source"] = ["a = 'people'"]
    file.path.write_text(json.dumps(saved))
    session.run("a = 'agent'", "a")
    assert file.sources() is not None
    assert len(file.write().notes) == 1
    assert sources(file) == ["a = 'agent'", "a = 'people'"]
    session.run("b", "b")
    assert file.write().notes == []


def test_a_file_that_people_removed_is_written_again(file, session):
    session.run("a = 1", "a")
    file.write()
    file.path.unlink()
    assert file.write().changed
    assert sources(file) == ["a = 1"]


def test_a_new_supervisor_goes_on_with_the_file(file, session, journal):
    session.run("a = 1", "a")
    session.run("b = 1", "b")
    file.write()
    saved = document(file)
    del saved["cells"][0]
    file.path.write_text(json.dumps(saved))
    session.run("c = 1", "c")
    NotebookFile(file.path, NotebookBuilder(journal)).write()
    assert sources(file) == ["b = 1", "c = 1"]


@pytest.mark.parametrize("content", ["", "not json", "[]", '{"nbformat": 3}', "<<<<<<< HEAD\n{}"])
def test_what_is_no_notebook_is_left_as_it_is_and_ours_goes_beside(file, session, content):
    file.path.write_text(content)
    make_old(file.path)
    session.run("a = 1", "a")
    written = file.write()
    assert written.path.name == "n.kernel_runtime.ipynb"
    assert "was left as it is" in written.notes[0]
    assert file.path.read_text() == content
    load(written.path.read_bytes())
    session.run("b = 1", "b")
    assert file.write().notes == []
    assert len(load(written.path.read_bytes())["cells"]) == 2


def test_a_file_that_breaks_later_takes_no_text_with_it(file, session):
    session.run("a = 1", "a")
    file.write()
    saved = document(file)
    saved["cells"].append({"cell_type": "markdown", "id": "t", "metadata": {}, "source": "people's"})
    file.path.write_text(json.dumps(saved))
    session.run("b = 1", "b")
    file.write()
    file.path.write_text("<<<<<<< HEAD")
    make_old(file.path)
    session.run("c = 1", "c")
    beside = file.write().path
    assert [source_of(cell) for cell in load(beside.read_bytes())["cells"]] == [
        "a = 1", "people's", "b = 1", "c = 1",
    ]  # fmt: skip


def test_a_save_in_progress_is_waited_for(file, session):
    session.run("a = 1", "a")
    file.path.write_text('{"nbformat": 4, "cel')
    written = file.write()
    assert written.deferred
    assert not written.changed
    assert file.path.read_text() == '{"nbformat": 4, "cel'


def test_a_save_that_lands_while_we_write_is_merged(file, session, monkeypatch):
    session.run("a = 1", "a")
    file.write()
    session.run("b = 1", "b")
    saved = document(file)
    saved["cells"].append({"cell_type": "markdown", "id": "t", "metadata": {}, "source": "just now"})
    write_synced, saves = writing._write_synced, [json.dumps(saved)]

    def with_a_save_in_between(*args):
        write_synced(*args)
        if saves:
            file.path.write_text(saves.pop())

    monkeypatch.setattr(writing, "_write_synced", with_a_save_in_between)
    assert file.write().changed
    assert sources(file) == ["a = 1", "just now", "b = 1"]


def test_a_symbolic_link_stays_and_its_target_is_written_with_its_mode(file, session, tmp_path):
    (tmp_path / "real").mkdir()
    target = tmp_path / "real" / "other.ipynb"
    target.write_text('{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": []}')
    target.chmod(0o640)
    file.path.symlink_to(target)
    session.run("a = 1", "a")
    assert file.write().path == target
    assert file.path.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert len(load(target.read_bytes())["cells"]) == 1


def test_a_directory_or_a_loop_of_links_is_refused(file, session, tmp_path):
    session.run("a = 1", "a")
    file.path.mkdir()
    with pytest.raises(InvalidNotebook, match="directory"):
        file.write()
    loop = tmp_path / "loop.ipynb"
    loop.symlink_to(loop)
    with pytest.raises(InvalidNotebook, match="loop"):
        NotebookFile(loop, file.builder).write()


def test_a_missing_directory_is_an_error_that_names_the_file(file, session, tmp_path):
    session.run("a = 1", "a")
    with pytest.raises(StorageFault, match="gone"):
        NotebookFile(tmp_path / "gone" / "n.ipynb", file.builder).write()


@pytest.mark.parametrize(
    "number, kind",
    [(errno.ENOSPC, DiskFull), (errno.EROFS, ReadOnlyStorage), (errno.EIO, StorageFault)],
)
@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_failing_call_leaves_the_old_file_and_the_next_write_mends_it(  # noqa: PLR0917 - fixtures
    file, session, monkeypatch, call, number, kind
):
    session.run("a = 1", "a")
    file.write()
    old = file.path.read_bytes()
    session.run("b = 1", "b")

    def fails(*_args):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        if call == "write":
            patch.setattr(writing, "_write_synced", fails)
        elif call == "fsync":
            patch.setattr(os, "fsync", fails)
        else:
            patch.setattr(Path, "replace", fails)
        with pytest.raises(kind):
            file.write()
    assert file.path.read_bytes() == old
    assert os.listdir(file.path.parent) == ["n.ipynb"]
    assert file.write().changed
    assert sources(file) == ["a = 1", "b = 1"]


def test_s48_killed_in_the_middle_of_writing_the_old_or_the_new_file_is_there(tmp_path):
    path = tmp_path / "n.ipynb"
    program = (
        "import itertools, pathlib, sys\n"
        "from kernel_runtime.notebook.write import atomic_write\n"
        "for i in itertools.count():\n"
        "    atomic_write(pathlib.Path(sys.argv[1]), b'%d' % (i % 10) * 300_000)\n"
    )
    for files in (1, 2, 3):
        writer = subprocess.Popen([sys.executable, "-c", program, str(path)])
        try:
            seen: set[int] = set()

            def enough(seen=seen, files=files):
                if path.exists():
                    seen.add(path.stat().st_ino)
                return len(seen) > files

            eventually(enough, 20, "some files written")
        finally:
            writer.send_signal(signal.SIGKILL)
            writer.wait()
        data = path.read_bytes()
        assert len(data) == 300_000
        assert len(set(data)) == 1
    atomic_write(path, b"whole")
    assert path.read_bytes() == b"whole"
    assert os.listdir(tmp_path) == ["n.ipynb"]


def test_writing_loads_no_nbformat():
    """It is tens of megabytes, and the supervisor writes notebooks."""
    program = "import sys, kernel_runtime.notebook.write as _; sys.exit('nbformat' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
