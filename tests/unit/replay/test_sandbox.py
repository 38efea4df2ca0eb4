"""What a replayed program reaches, with real bubblewrap, and what stands in where there is none."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_runtime.errors import UsageError
from kernel_runtime.replay import sandbox
from kernel_runtime.replay.sandbox import Allowed, allowed, confine
from tests.conftest import isolated
from tests.support import bubblewrap

NOTHING = Allowed()


@pytest.fixture
def krt_home() -> Iterator[Path]:
    with isolated() as home:
        yield home


@pytest.fixture
def cwd(krt_home: Path) -> Path:
    place = krt_home.parent / "work"
    place.mkdir()
    (place / "data.txt").write_text("as it was")
    return place


@pytest.fixture
def workspace(krt_home: Path) -> Path:
    place = krt_home.parent / "workspace"
    place.mkdir()
    return place


def _inside(code: str, cwd: Path, workspace: Path, may: Allowed = NOTHING) -> str:
    box = confine(str(cwd), workspace, may)
    assert box.kind == "bubblewrap"
    done = subprocess.run(
        [*box.prefix, sys.executable, "-c", f"import os; os.chdir({box.cwd!r})\n{code}"],
        env={**os.environ, **box.environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    shutil.rmtree(workspace / "files", ignore_errors=True)
    return (done.stdout.strip() or done.stderr.strip() or "nothing said").splitlines()[-1]


@bubblewrap
def test_files_are_copies_and_the_rest_is_read_only(cwd: Path, workspace: Path) -> None:
    """The same path, so that what is printed of it is the same."""
    said = _inside(
        "open('data.txt', 'w').write('changed'); open('new.txt', 'w'); print(os.getcwd(), len(os.listdir()))",
        cwd,
        workspace,
    )
    assert said == f"{cwd} 2"
    assert (cwd / "data.txt").read_text() == "as it was"
    assert not (cwd / "new.txt").exists()
    outside = cwd.parent / "outside.txt"
    assert "OSError" in _inside("open('/etc/written-by-a-replay', 'w')", cwd, workspace)
    _inside(f"open({str(outside)!r}, 'w').write('x')", cwd, workspace)
    assert not outside.exists()  # under the temporary directory it goes to one of its own


@bubblewrap
def test_no_network_and_no_sockets_of_anybody(cwd: Path, workspace: Path, krt_home: Path) -> None:
    """A service on loopback, and a session's socket: connecting needs no right to write."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connect = f"import socket; socket.create_connection({server.getsockname()!r}, 2); print('reached')"
        assert "ConnectionRefusedError" in _inside(connect, cwd, workspace)
        assert _inside(connect, cwd, workspace, Allowed(network=True)) == "reached"
    runtime = Path(os.environ["KRT_RUNTIME_DIR"])
    runtime.mkdir(exist_ok=True)
    path = str(runtime / "s")
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(path)
        unix.listen()
        assert "FileNotFoundError" in _inside(
            f"import socket; socket.socket(socket.AF_UNIX).connect({path!r})", cwd, workspace
        )


@bubblewrap
def test_no_process_of_outside_is_seen(cwd: Path, workspace: Path) -> None:
    said = _inside(
        f"print(os.path.exists('/proc/{os.getpid()}/cmdline') and os.getppid() > 50)", cwd, workspace
    )
    assert said == "False"


@bubblewrap
def test_what_is_allowed_is_the_real_thing(cwd: Path, workspace: Path) -> None:
    _inside("open('data.txt', 'w').write('changed')", cwd, workspace, allowed([f"write:{cwd}"]))
    assert (cwd / "data.txt").read_text() == "changed"


def test_everything_allowed_is_no_sandbox(cwd: Path, workspace: Path) -> None:
    box = confine(str(cwd), workspace, allowed(["all"]))
    assert (box.kind, box.prefix, box.cwd) == ("none", [], str(cwd))


def test_without_bubblewrap_the_guard_says_that_it_is_no_boundary(
    cwd: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "why_no_bubblewrap", lambda: "bubblewrap is not installed")
    box = confine(str(cwd), workspace, Allowed())
    assert (box.kind, box.document()["boundary"]) == ("guard", False)
    assert Path(box.environment["TMPDIR"]).is_dir()  # it can be written to, as /tmp cannot
    assert any("no security boundary" in note for note in box.notes)
    assert (Path(box.cwd) / "data.txt").read_text() == "as it was"
    assert box.cwd != str(cwd)
    assert str(workspace) in box.environment["KRT_GUARD"]


def test_a_directory_that_is_too_large_is_not_copied(
    cwd: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "_MOST_FILES", 3)
    for number in range(4):
        (cwd / f"{number}.txt").touch()
    box = confine(str(cwd), workspace, Allowed())
    assert any("read-only" in note and "over 3 files" in note for note in box.notes)
    assert not (workspace / "files").exists()


def test_a_directory_that_is_gone_has_an_empty_one_in_its_place(cwd: Path, workspace: Path) -> None:
    box = confine(str(cwd / "gone"), workspace, Allowed())
    assert Path(box.cwd).is_dir()
    assert any("is not there" in note for note in box.notes)


@pytest.mark.parametrize("word", ["", "network", "write:", "write:/no/such/place", "all,net"])
def test_what_cannot_be_allowed_is_a_usage_error(word: str) -> None:
    with pytest.raises(UsageError, match="--allow"):
        allowed([word])
