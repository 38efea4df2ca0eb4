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
from kernel_runtime.notebook import put as writing
from kernel_runtime.notebook.put import atomic_write
from kernel_runtime.notebook.render import NotebookBuilder
from kernel_runtime.notebook.replaced import Replaced
from kernel_runtime.notebook.write import NotebookFile
from tests.support import eventually
from tests.unit.notebook.sessions import FakeJournal, Script, load, printed, source_of


@pytest.fixture
def journal():
    return FakeJournal()


@pytest.fixture
def session(journal):
    return Script(journal.append)


@pytest.fixture
def replaced(tmp_path_factory):
    return Replaced(tmp_path_factory.mktemp("session") / "replaced")


@pytest.fixture
def file(journal, tmp_path, replaced):
    return NotebookFile(tmp_path / "n.ipynb", NotebookBuilder(journal), replaced)


def kept(replaced: Replaced) -> list[list[str]]:
    """The sources of each notebook that was kept, oldest first."""
    found = sorted(replaced.directory.glob("*.ipynb"))
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in found)
    return [[source_of(cell) for cell in load(path.read_bytes())["cells"]] for path in found]


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
    NotebookFile(file.path, NotebookBuilder(journal), file._replaced).write()
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


def markdown(cell_id: str, source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "id": cell_id, "metadata": {}, "source": source}


def with_a_text(file: NotebookFile, source: str) -> str:
    saved = document(file)
    saved["cells"].append(markdown("t", source))
    return json.dumps(saved)


@pytest.mark.parametrize("how", ["into it", "in its place"])
@pytest.mark.parametrize("knows", ["exchange", "second names", "neither"])
def test_a_save_in_the_instant_of_ours_is_put_back_and_merged(file, session, monkeypatch, knows, how):
    """A look at the file before the rename cannot see what is saved after it: that went under unseen.

    Names are exchanged, and what came out is looked at: it is not what was merged, so it goes back to its
    place, untouched, and the next try merges it. A file system that cannot exchange names has second names
    for what is about to be replaced, which shows what is written into it; what is renamed over it in the
    very instant is not seen there.
    """
    session.run("a = 1", "a")
    file.write()
    session.run("b = 1", "b")
    saves = [with_a_text(file, "just now")]
    rename, holds = writing._rename, writing._holds

    def save():
        if saves and how == "into it":
            file.path.write_text(saves.pop())
        elif saves:
            theirs = file.path.with_name("theirs")
            theirs.write_text(saves.pop())
            theirs.replace(file.path)

    def with_a_save_before(one, other, flags):
        if knows != "exchange":
            raise OSError(errno.EINVAL, "unknown flag")
        save()
        rename(one, other, flags)

    def looks(path, content):
        if knows == "neither":
            save()
            return holds(path, content)
        found = holds(path, content)
        if knows == "second names":
            save()
        return found

    def no_second_names(*_args):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(writing, "_rename", with_a_save_before)
    monkeypatch.setattr(writing, "_holds", looks)
    if knows == "neither":
        monkeypatch.setattr(os, "link", no_second_names)
    assert file.write().changed
    assert saves == []
    assert sources(file) == ["a = 1", "just now", "b = 1"]
    assert os.listdir(file.path.parent) == ["n.ipynb"]


def test_a_file_that_somebody_is_writing_into_is_his_until_he_is_done(file, session):
    """An editor that truncates and writes has the inode open; renamed away, its end would go nowhere."""
    session.run("a = 1", "a")
    file.write()
    session.run("b = 1", "b")
    data = with_a_text(file, "slowly")
    with file.path.open("r+") as editor:
        assert file.write().deferred
        editor.write(data[:50])
        editor.flush()
        assert file.write().deferred
        editor.seek(0)
        editor.write(data)
        editor.truncate()
    assert file.write().changed
    assert sources(file) == ["a = 1", "slowly", "b = 1"]


def test_one_who_opens_the_file_in_the_instant_of_the_exchange_writes_into_the_file(
    file, session, monkeypatch
):
    """The name that he opened is another's a moment later; his inode gets its place back, and he goes on."""
    session.run("a = 1", "a")
    file.write()
    session.run("b = 1", "b")
    data = with_a_text(file, "slowly")
    rename = writing._rename
    editors: list[Any] = []

    def opened_just_before(*args):
        if not editors:
            editors.append(file.path.open("r+"))
        rename(*args)

    monkeypatch.setattr(writing, "_rename", opened_just_before)
    assert file.write().deferred
    with editors[0] as editor:
        editor.write(data)
        editor.truncate()
    assert file.path.read_text() == data
    assert file.write().changed
    assert sources(file) == ["a = 1", "slowly", "b = 1"]


def test_of_two_who_write_in_one_instant_both_are_there(file, session, monkeypatch, replaced):
    """The second writes over ours while that is looked at: it is the newest, and the first's is kept."""
    session.run("a = 1", "a")
    file.write()
    session.run("b = 1", "b")
    saves = [with_a_text(file, "the second"), with_a_text(file, "the first")]
    rename, looks = writing._rename, []

    def with_a_save_before(*args):
        looks.append(args)
        if saves and len(looks) <= 2:
            file.path.write_text(saves.pop())
        rename(*args)

    monkeypatch.setattr(writing, "_rename", with_a_save_before)
    assert file.write().changed
    assert sources(file) == ["a = 1", "the second", "b = 1"]
    assert kept(replaced) == [["a = 1", "the first"]]


def test_what_a_writer_left_who_was_killed_in_the_exchange_is_kept(file, session, replaced):
    """Between exchange and look, the file that was taken out has the name of a temporary one."""
    session.run("a = 1", "a")
    file.write()
    gone = subprocess.Popen(["true"])
    gone.wait()
    left = file.path.with_name(f".n.ipynb.krt-{gone.pid}-out")
    left.write_text(with_a_text(file, "somebody's"))
    session.run("b = 1", "b")
    assert file.write().changed
    assert kept(replaced) == [["a = 1", "somebody's"]]
    assert os.listdir(file.path.parent) == ["n.ipynb"]


def test_text_that_a_checkout_takes_out_is_kept(file, session, replaced):
    """The file is what an old copy was, so its base has the text and the file has not: that is a deletion,
    and git says nothing of it. What ran is the journal's and needs no keeping.
    """
    session.run("a = 1", "a")
    file.write()
    old = file.path.read_text()
    file.path.write_text(with_a_text(file, "written by a person"))
    session.run("b = 1", "b")
    file.write()
    file.path.write_text(old)
    session.run("c = 1", "c")
    notes = file.write().notes
    assert sources(file) == ["a = 1", "b = 1", "c = 1"]
    assert kept(replaced) == [["a = 1", "written by a person", "b = 1", "c = 1"]]
    assert str(replaced.directory) in notes[0]
    file.path.write_text(old)
    session.run("d = 1", "d")
    file.write()
    assert len(kept(replaced)) == 1


def test_what_somebody_else_took_out_who_held_the_file_is_not_kept_again(file, session, replaced):
    session.run("a = 1", "a")
    file.write()
    file.path.write_text(with_a_text(file, "typed and taken out in an open document"))
    session.run("b = 1", "b")
    file.write()
    file.hold()
    saved = document(file)
    del saved["cells"][1]
    file.path.write_text(json.dumps(saved))
    file.release()
    session.run("c = 1", "c")
    file.write()
    assert sources(file) == ["a = 1", "b = 1", "c = 1"]
    assert kept(replaced) == []


def test_no_notebook_in_a_file_that_somebody_holds_is_for_him_to_see_to(file, session):
    session.run("a = 1", "a")
    file.hold()
    file.path.write_text("<<<<<<< HEAD")
    make_old(file.path)
    assert file.write().deferred
    file.release()
    assert file.write().path.name == "n.kernel_runtime.ipynb"


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
        NotebookFile(loop, file.builder, file._replaced).write()


def test_a_missing_directory_is_an_error_that_names_the_file(file, session, tmp_path):
    session.run("a = 1", "a")
    with pytest.raises(StorageFault, match="gone"):
        NotebookFile(tmp_path / "gone" / "n.ipynb", file.builder, file._replaced).write()


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
        "from kernel_runtime.notebook.put import atomic_write\n"
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

            eventually(enough, 30, "some files written")
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
