"""Sessions as directories: made once, whole, private; found, refused and removed with a reason."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from kernel_runtime import places, process
from kernel_runtime.client import overview, session_files, spawn
from kernel_runtime.errors import (
    InvalidName,
    JournalCorrupt,
    NoSuchSession,
    ReadOnlyStorage,
    SessionBusy,
    SessionExists,
    UnknownKernelSpec,
    UsageError,
)


def test_a_session_is_a_private_directory_with_its_identity(krt_home: Path, tmp_path: Path) -> None:
    made = session_files.create("alice", cwd=tmp_path, notebook=tmp_path / "n.ipynb", principal="agent:a")
    assert session_files.load("alice") == made
    assert stat.S_IMODE(made.directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((made.directory / "session.json").stat().st_mode) == 0o600
    document = json.loads((made.directory / "session.json").read_text())
    assert set(document) == {
        "session_id", "name", "kernel", "cwd", "notebook", "principal", "created_at", "transport", "scratch",
    }  # fmt: skip
    assert (document["cwd"], document["kernel"], document["principal"]) == (
        str(tmp_path),
        "python3",
        "agent:a",
    )


def test_its_notebook_lies_beside_the_journal_unless_named(krt_home: Path) -> None:
    made = session_files.create("alice")
    assert Path(made.notebook) == made.directory / "notebook.ipynb"


def test_of_many_that_create_one_name_exactly_one_does(krt_home: Path) -> None:
    start = threading.Barrier(20)
    outcomes: list[str] = []

    def create() -> None:
        start.wait()
        try:
            outcomes.append(session_files.create("alice").session_id)
        except SessionExists:
            outcomes.append("exists")

    threads = [threading.Thread(target=create) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    made = [outcome for outcome in outcomes if outcome != "exists"]
    assert made == [session_files.load("alice").session_id]
    assert os.listdir(krt_home / "sessions") == ["alice"]


@pytest.mark.parametrize("name", ["", "a b", "../x", ".hidden", "a/b", "x" * 65, "naïve", "-x"])
def test_what_is_no_name_is_refused_and_makes_nothing(krt_home: Path, name: str) -> None:
    with pytest.raises(InvalidName):
        session_files.create(name)
    assert not krt_home.exists()


def test_a_second_of_the_same_name_is_refused(krt_home: Path) -> None:
    first = session_files.create("alice")
    with pytest.raises(SessionExists, match="alice") as caught:
        session_files.create("alice")
    assert "krt attach alice" in caught.value.hint
    assert session_files.load("alice") == first


def test_an_unknown_kernelspec_makes_nothing(krt_home: Path) -> None:
    with pytest.raises(UnknownKernelSpec) as caught:
        session_files.create("alice", kernel="no-such-kernel")
    assert "python3" in caught.value.hint
    assert session_files.names() == []


@pytest.mark.parametrize("how", [{"cwd": "/no/such/place"}, {"transport": "udp"}])
def test_bad_wishes_make_nothing(krt_home: Path, how: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        session_files.create("alice", **how)
    assert session_files.names() == []


def test_storage_that_cannot_be_written_is_named(krt_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, *args: object, **kwargs: object) -> None:
        raise OSError(30, "Read-only file system", str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(ReadOnlyStorage, match="Read-only"):
        session_files.create("alice")


def test_one_that_is_not_there_names_those_that_are(krt_home: Path) -> None:
    session_files.create("alice")
    with pytest.raises(NoSuchSession) as caught:
        session_files.load("bob")
    assert "alice" in caught.value.hint
    assert "krt new bob" in caught.value.hint


@pytest.mark.parametrize("content", ["", "{", "[]", '{"name": "alice"}'])
def test_an_identity_that_cannot_be_read_is_an_integrity_fault(krt_home: Path, content: str) -> None:
    made = session_files.create("alice")
    (made.directory / "session.json").write_text(content)
    with pytest.raises(JournalCorrupt):
        session_files.load("alice")


def test_a_directory_renamed_by_hand_is_not_another_session(krt_home: Path) -> None:
    """Two names with one session_id would share sockets."""
    made = session_files.create("alice")
    made.directory.rename(made.directory.with_name("bob"))
    with pytest.raises(JournalCorrupt, match="session alice"):
        session_files.load("bob")


def test_removed_it_leaves_nothing(krt_home: Path) -> None:
    made = session_files.create("alice")
    places.private_dir(places.socket_dir(made.session_id))
    session_files.remove("alice")
    assert os.listdir(krt_home / "sessions") == []
    assert os.listdir(places.runtime_dir()) == []


def test_a_notebook_elsewhere_survives_its_session(krt_home: Path, tmp_path: Path) -> None:
    notebook = tmp_path / "mine.ipynb"
    notebook.write_text("{}")
    session_files.create("alice", notebook=notebook)
    session_files.remove("alice")
    assert notebook.exists()


def test_one_whose_supervisor_lives_is_not_removed(krt_home: Path) -> None:
    made = session_files.create("alice")
    lock = os.open(made.directory / "supervisor.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert spawn.is_running(made)
        with pytest.raises(SessionBusy, match="running"):
            session_files.remove("alice")
    finally:
        os.close(lock)
    assert session_files.load("alice") == made


def test_one_whose_kernel_lives_is_not_removed(krt_home: Path) -> None:
    made = session_files.create("alice")
    me = process.identify(os.getpid())
    assert me is not None
    identity = {"pid": me.pid, "start_time": me.start_time, "boot_id": me.boot_id}
    (made.directory / "kernel.json").write_text(json.dumps({"incarnation": 1, "process": identity}))
    assert session_files.living_kernel(made) == me
    with pytest.raises(SessionBusy):
        session_files.remove("alice")


def test_d17_a_kernel_file_that_names_a_stranger_names_no_kernel(krt_home: Path) -> None:
    """A leftover pid that another process has now: its start time differs."""
    made = session_files.create("alice")
    me = process.identify(os.getpid())
    assert me is not None
    identity = {"pid": me.pid, "start_time": me.start_time - 1, "boot_id": me.boot_id}
    (made.directory / "kernel.json").write_text(json.dumps({"process": identity}))
    assert session_files.living_kernel(made) is None


def test_leftovers_of_killed_commands_are_found_and_are_no_sessions(krt_home: Path) -> None:
    session_files.create("alice")
    (krt_home / "sessions" / ".new-x").mkdir()
    assert overview.leftovers() == [".new-x"]
    assert session_files.names() == ["alice"]


def test_a_working_directory_that_is_gone(krt_home: Path, tmp_path: Path, monkeypatch) -> None:
    """getcwd fails where the directory was removed; that is the caller's place, and no bug of ours."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(UsageError, match="is gone"):
        session_files.create("alice")
    assert not session_files.exists("alice")
    assert session_files.create("alice", cwd=tmp_path).cwd == str(tmp_path)
