# ruff: noqa: PTH101, PTH102, PTH104, PTH106, PTH107, PTH109, PTH116, PTH211, SIM115
# What os.rename and its like are seen to do is what is tested.
"""Effects of cells, with real files, processes and sockets, and what their author says of them."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from kernel_runtime.core.effects import verdict
from kernel_runtime.kernel import effects
from kernel_runtime.kernel.effects import MAX_EFFECTS, declared_by
from tests.unit.kernel import effect_cells
from tests.unit.kernel.effect_cells import Cells

cells = effect_cells.cells


def _environ() -> dict[bytes, bytes]:
    data: dict[bytes, bytes] = vars(os.environ)["_data"]
    return data


# -- files


def test_reading_is_no_effect(cells: Cells, tmp_path: Path):
    (tmp_path / "in").write_text("x")

    def cell():
        (tmp_path / "in").read_text()
        os.listdir(tmp_path)
        os.stat(tmp_path)
        with open("/dev/null", "w") as sink:
            sink.write("x")

    assert cells.run(cell) == ([], [])


@pytest.mark.parametrize("mode, how", [("w", "write"), ("a", "append"), ("x", "create"), ("r+", "update")])
def test_a_file_opened_for_writing(cells: Cells, tmp_path: Path, mode: str, how: str):
    path = tmp_path / "out"
    if mode == "r+":
        path.touch()
    assert cells.seen(lambda: open(path, mode).close()) == [{"kind": "file", "how": how, "path": str(path)}]


def test_paths_are_absolute_whatever_they_are_made_of(cells: Cells, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def cell():
        open("a", "w").close()
        open(b"b", "w").close()
        open(Path("sub") / ".." / "c", "w").close()

    (tmp_path / "sub").mkdir()
    assert [effect["path"] for effect in cells.seen(cell)] == [str(tmp_path / name) for name in "abc"]


def test_os_open_beside_an_unknown_directory_claims_no_full_path(cells: Cells, tmp_path: Path):
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        found = cells.seen(lambda: os.close(os.open("x", os.O_CREAT | os.O_WRONLY, dir_fd=directory)))
    finally:
        os.close(directory)
    assert found == [{"kind": "file", "how": "write", "path": "x", "cwd": os.getcwd()}]


def test_what_is_done_to_paths(cells: Cells, tmp_path: Path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.touch()

    def cell():
        os.rename(one, two)
        os.link(two, one)
        os.symlink("one", tmp_path / "three")
        os.truncate(two, 0)
        os.chmod(two, 0o600)
        os.utime(two, (0, 0))
        os.mkdir(tmp_path / "d")
        os.rmdir(tmp_path / "d")
        os.remove(two)
        shutil.copyfile(one, two)

    found = cells.seen(cell)
    assert [effect["how"] for effect in found] == (
        ["rename", "link", "symlink", "truncate", "chmod", "utime", "mkdir", "remove", "remove"]
        + ["copy", "write"]
    )
    assert found[0] == {"kind": "file", "how": "rename", "path": str(one), "to": str(two)}


def test_a_removed_tree_is_one_effect_and_what_is_beside_it_another(cells: Cells, tmp_path: Path):
    for name in "abc":
        (tmp_path / "tree" / name).mkdir(parents=True)
    (tmp_path / "tree2").touch()

    def cell():
        shutil.rmtree(tmp_path / "tree")
        os.remove(tmp_path / "tree2")

    assert [(effect["how"], effect["path"]) for effect in cells.seen(cell)] == [
        ("remove-tree", str(tmp_path / "tree")),
        ("remove", str(tmp_path / "tree2")),
    ]


def test_what_is_done_to_a_descriptor_names_its_file(cells: Cells, tmp_path: Path):
    path = tmp_path / "x"
    path.write_text("x")
    with path.open("r+") as file:
        cells.run(lambda: None)
        found = cells.seen(lambda: os.chmod(file.fileno(), 0o600))
    assert found == [{"kind": "file", "how": "chmod", "path": str(path)}]


def test_repeats_are_one_effect_with_a_count(cells: Cells, tmp_path: Path):
    def cell():
        for _ in range(5):
            open(tmp_path / "x", "a").close()

    assert cells.seen(cell) == [{"kind": "file", "how": "append", "path": str(tmp_path / "x"), "count": 5}]


def test_more_than_the_bound_is_counted(cells: Cells, tmp_path: Path):
    def cell():
        for number in range(MAX_EFFECTS + 7):
            open(tmp_path / str(number), "w").close()

    found = cells.seen(cell)
    assert len(found) == MAX_EFFECTS + 1
    assert found[-1] == {"kind": "more", "how": "bound", "effects": 7}


def test_what_an_import_compiles_is_no_effect(cells: Cells, tmp_path: Path, monkeypatch):
    (tmp_path / "fresh_module_of_a_test.py").write_text("x = 1")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    assert cells.seen(lambda: __import__("fresh_module_of_a_test")) == []
    assert list((tmp_path / "__pycache__").iterdir())


def test_the_runtimes_own_directories(tmp_path: Path):
    cells = Cells()
    cells.effects.install(own=[str(tmp_path / "own")])
    (tmp_path / "own").mkdir()
    assert cells.seen(lambda: open(tmp_path / "own" / "x", "w").close()) == []
    assert len(cells.seen(lambda: open(tmp_path / "ownership", "w").close())) == 1


# -- databases, hosts, processes


def test_a_database_in_a_file(cells: Cells, tmp_path: Path):
    def cell():
        sqlite3.connect(tmp_path / "db").close()
        sqlite3.connect(":memory:").close()

    assert cells.seen(cell) == [{"kind": "database", "how": "sqlite", "path": str(tmp_path / "db")}]


def test_connections(cells: Cells, tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as unix:
        port = server.getsockname()[1]

        def cell():
            socket.create_connection(("127.0.0.1", port)).close()
            unix.bind(str(tmp_path / "s"))
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
                datagrams.sendto(b"x", ("127.0.0.1", port))

        cells.run(lambda: None)
        found, _ = cells.run(cell)
    assert found == [
        {"kind": "socket", "how": "connect", "family": "inet", "host": "127.0.0.1", "port": port},
        {"kind": "socket", "how": "bind", "family": "unix", "path": str(tmp_path / "s")},
        {"kind": "socket", "how": "send", "family": "inet", "host": "127.0.0.1", "port": port},
    ]


def test_a_request_hides_what_its_address_holds(cells: Cells):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    def cell():
        with pytest.raises(urllib.error.URLError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/x?token=abc", data=b"x")

    assert cells.seen(cell) == [
        {"kind": "url", "how": "request", "url": f"http://127.0.0.1:{port}/x?token=***", "method": "POST"},
        {"kind": "host", "how": "http", "host": "127.0.0.1", "port": port},
        {"kind": "socket", "how": "connect", "family": "inet", "host": "127.0.0.1", "port": port},
    ]


def test_processes_with_their_secrets_masked(cells: Cells):
    def cell():
        subprocess.run(["true", "--password", "pw"], check=True)
        os.system("PGPASSWORD=pw true")
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)

    found, _ = cells.run(cell)
    assert found == [
        {"kind": "process", "how": "Popen", "argv": ["true", "--password", "***"]},
        {"kind": "process", "how": "system", "argv": ["PGPASSWORD=*** true"]},
        {"kind": "process", "how": "fork"},
    ]


def test_a_fork_child_records_nothing(cells: Cells, tmp_path: Path):
    read, write = os.pipe()

    def cell():
        pid = os.fork()
        if pid == 0:
            open(tmp_path / "child", "w").close()
            os.write(write, pickle.dumps(list(effects._notes)))
            os._exit(0)
        os.waitpid(pid, 0)

    found, _ = cells.run(cell)
    assert pickle.loads(os.read(read, 1000)) == []
    assert [effect["how"] for effect in found if effect["kind"] != "descriptor"] == ["fork"]
    os.close(read)
    os.close(write)


def test_a_signal_is_an_effect_and_asking_is_none(cells: Cells):
    with subprocess.Popen(["sleep", "60"]) as child:

        def cell():
            os.kill(child.pid, 0)
            os.kill(child.pid, signal.SIGTERM)

        found = cells.seen(cell)
    assert found == [{"kind": "kill", "how": "kill", "pid": str(child.pid), "signal": "15"}]


# -- this process


def test_the_environment_by_name_only(cells: Cells, monkeypatch):
    monkeypatch.setenv("KRT_TEST_B", "1")

    def cell():
        os.environ["KRT_TEST_A"] = "secret"
        del os.environ["KRT_TEST_B"]
        os.environ["KRT_EXECUTION"] = "the kernel's own"
        _environ()[b"KRT_TEST_C"] = b"secret"  # behind the hook's back

    found = cells.seen(cell)
    assert found == [
        {"kind": "environ", "how": "set", "name": "KRT_TEST_A"},
        {"kind": "environ", "how": "unset", "name": "KRT_TEST_B"},
        {"kind": "environ", "how": "found", "name": "KRT_TEST_C"},
    ]
    for name in ("KRT_TEST_A", "KRT_TEST_C", "KRT_EXECUTION"):
        _environ().pop(name.encode(), None)


def test_a_directory_that_was_left_again_is_no_effect(cells: Cells, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(os.getcwd())
    home = os.getcwd()

    def cell():
        os.chdir(tmp_path)
        os.chdir(home)

    assert cells.seen(cell) == []
    found = cells.seen(lambda: os.chdir(tmp_path))
    assert found == [{"kind": "cwd", "how": "chdir", "path": str(tmp_path)}]


def test_a_variable_that_was_put_back_is_no_effect(cells: Cells, monkeypatch):
    monkeypatch.setenv("KRT_TEST_B", "1")

    def put_back():
        os.environ["KRT_TEST_A"] = "x"
        del os.environ["KRT_TEST_A"]
        os.environ["KRT_TEST_B"] = "2"
        os.environ["KRT_TEST_B"] = "1"

    def behind_its_back():
        os.putenv("KRT_TEST_A", "x")
        os.putenv("KRT_TEST_B", "2")

    assert cells.seen(put_back) == []
    assert [effect["name"] for effect in cells.seen(behind_its_back)] == ["KRT_TEST_A", "KRT_TEST_B"]
    os.unsetenv("KRT_TEST_A")


def test_what_the_kernel_did_before_the_first_cell_is_its_own(tmp_path: Path):
    cells = Cells()
    open(tmp_path / "x", "w").close()
    assert cells.effects.take_late() == []
    assert cells.seen(lambda: None) == []
    assert cells.effects.take_late() == []


def test_signal_handlers(cells: Cells):
    def handler(signum: int, frame: Any) -> None:
        raise AssertionError

    was = signal.getsignal(signal.SIGUSR1)
    try:
        found = cells.seen(lambda: signal.signal(signal.SIGUSR1, handler))
        assert found == [
            {
                "kind": "signal",
                "how": "handler",
                "signal": "SIGUSR1",
                "before": "default",
                "after": "a function",
            }
        ]
        assert cells.seen(lambda: None) == []
    finally:
        signal.signal(signal.SIGUSR1, was)


def test_the_working_directory_may_be_gone(cells: Cells, tmp_path: Path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()

    def cell():
        with pytest.raises(OSError, match="No such file"):
            open("x", "w")

    found, _ = cells.run(cell)
    assert found == [{"kind": "file", "how": "write", "path": "x"}]


def test_a_long_command_line_is_cut(cells: Cells):
    found, _ = cells.run(lambda: subprocess.run(["true", "x" * 5000, *["y"] * 500], check=True))
    assert len(found[0]["argv"]) == 41
    assert all(len(word) <= 501 for word in found[0]["argv"])


# -- what the author says


@pytest.mark.parametrize(
    "code, metadata, declared, rest",
    [
        ("x = 1", None, None, "x = 1"),
        ("%%effect_free\nx = 1", {}, "effect-free", "# declared effect_free\nx = 1"),
        ("%%effect-free  # pure\nx", {}, "effect-free", "# declared effect-free\nx"),
        ("\n\n%%effectful\r\nx", {}, "effectful", "\n\n# declared effectful\nx"),
        ("%%effect_free\n%%time\nx", {}, "effect-free", "\n%%time\nx"),
        ("%%effect_freely\nx", {}, None, "%%effect_freely\nx"),
        ("x\n%%effect_free", {}, None, "x\n%%effect_free"),
        ("x", {"tags": ["a", "effect-free"]}, "effect-free", "x"),
        ("x", {"cellMeta": {"tags": ["effectful"]}}, "effectful", "x"),
        ("%%effect_free\nx", {"tags": ["effectful"]}, "effectful", "# declared effect_free\nx"),
        ("x", {"tags": "effect-free"}, None, "x"),
        ("x", {"tags": [1, None, {}], "cellMeta": 3}, None, "x"),
        ("x", [], None, "x"),
        ("", {}, None, ""),
    ],
)
def test_declared_by(code: str, metadata: Any, declared: str | None, rest: str):
    assert declared_by(code, metadata) == (declared, rest)
    assert rest.count("\n") == code.count("\n")


def test_verdict():
    assert verdict([], [], None) == "effect-free"
    assert verdict([], ["extension: numpy"], None) == "effect-free"
    assert verdict([], ["native: ctypes.dlopen"], None) == "effectful"
    assert verdict([{"kind": "file"}], [], None) == "effectful"
    assert verdict([{"kind": "file"}], [], "effect-free") == "declared"
    assert verdict([], [], "effectful") == "declared"
    assert verdict([], [], "nonsense") == "effect-free"
