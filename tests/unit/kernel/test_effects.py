# ruff: noqa: PTH101, PTH102, PTH104, PTH106, PTH107, PTH109, PTH116, PTH211, SIM115
# What os.rename and its like are seen to do is what is tested.
"""Effects of cells, with real files, processes and sockets: what is seen, whose it is, what is unseen."""

from __future__ import annotations

import ctypes
import os
import pickle
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernel_runtime.core.effects import verdict
from kernel_runtime.kernel import audited, effects
from kernel_runtime.kernel.attribution import NOBODY, Parent, current
from kernel_runtime.kernel.audited import EVENTS
from kernel_runtime.kernel.effects import MAX_EFFECTS, Effects, declared_by
from tests.support import eventually

Seen = list[dict[str, Any]]


class Cells:
    """Runs functions as if each were a cell."""

    def __init__(self) -> None:
        self.effects = Effects()
        self.effects.install()
        self.count = 0

    def run(self, cell: Callable[[], Any], key: str = "") -> tuple[Seen, list[str]]:
        self.count += 1
        key = key or f"m{self.count}"
        token = current.set(Parent({"header": {"msg_id": key}}, [], b"{}"))
        try:
            self.effects.begin(key)
            cell()
            return self.effects.end()
        finally:
            current.reset(token)

    def seen(self, cell: Callable[[], Any]) -> Seen:
        found, unseen = self.run(cell)
        assert unseen == []
        return found


@pytest.fixture
def cells() -> Iterator[Cells]:
    found = Cells()
    found.run(lambda: None)  # what is open by now is the kernel's
    found.effects.take_late()  # what the test runner did
    yield found
    effects._notes.clear()


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


# -- what no event tells


def test_a_file_left_open_is_watched_in_later_cells(cells: Cells, tmp_path: Path):
    file = open(tmp_path / "log", "w", buffering=1)
    cells.run(lambda: None)
    assert cells.seen(lambda: None) == []
    assert cells.seen(lambda: file.write("a line\n")) == [
        {"kind": "file", "how": "changed", "path": str(tmp_path / "log"), "fd": file.fileno()}
    ]
    assert cells.seen(file.close) == []
    assert cells.seen(lambda: None) == []


def test_a_descriptor_that_the_hook_did_not_see_is_found(cells: Cells, tmp_path: Path):
    found: list[int] = []
    hidden = dict(effects._notes)

    def cell():
        effects._notes.clear()  # as if native code did it
        found.append(os.open(tmp_path / "native", os.O_CREAT | os.O_WRONLY))
        effects._notes.update(hidden)

    seen = cells.seen(cell)
    os.close(found[0])
    assert seen == [{"kind": "descriptor", "how": "open", "path": str(tmp_path / "native"), "fd": found[0]}]


def test_a_connection_that_the_hook_did_not_see_is_found_and_watched(cells: Cells):
    hidden = dict(effects._notes)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        cells.run(lambda: None)
        port = server.getsockname()[1]

        def cell():
            effects._notes.clear()
            client.connect(("127.0.0.1", port))
            effects._notes.update(hidden)

        assert cells.seen(cell) == [
            {
                "kind": "descriptor",
                "how": "connection",
                "family": "inet",
                "host": "127.0.0.1",
                "port": port,
                "fd": client.fileno(),
            }
        ]
        assert cells.run(lambda: None) == ([], [])
        why = f"connection: something may have been sent to 127.0.0.1:{port}"
        assert cells.run(lambda: client.send(b"x")) == ([], [why])
        assert cells.run(lambda: None) == ([], [])


def test_writing_that_nothing_explains(cells: Cells, tmp_path: Path):
    hidden = dict(effects._notes)

    def cell():
        effects._notes.clear()
        (tmp_path / "out").write_text("x" * 5000)
        effects._notes.update(hidden)

    found, unseen = cells.run(cell)
    assert found == []
    assert len(unseen) == 1
    assert unseen[0].startswith("writing: ")
    assert verdict(found, unseen, None) == "effectful"


def test_a_child_that_the_hook_did_not_see_is_found(cells: Cells):
    hidden = dict(effects._notes)
    started: list[subprocess.Popen[bytes]] = []

    def cell():
        effects._notes.clear()
        started.append(subprocess.Popen(["sleep", "61"]))
        eventually(Path(f"/proc/{started[0].pid}/cmdline").read_bytes)
        effects._notes.update(hidden)

    found, _ = cells.run(cell)
    started[0].kill()
    started[0].wait()
    assert found == [{"kind": "process", "how": "found", "pid": started[0].pid, "argv": ["sleep", "61"]}]


def test_native_calls_and_extensions_are_said(cells: Cells):
    def cell():
        ctypes.CDLL(None).getpid()
        sys.audit(
            "import", "numpy.core._multiarray", "/lib/python3/site-packages/numpy/x.so", None, None, None
        )

    found, unseen = cells.run(cell)
    assert found == []
    assert set(unseen) == {"native: ctypes.dlopen", "native: ctypes.dlsym", "extension: numpy"}


# -- whose it is


def test_a_thread_that_outlives_its_cell(cells: Cells, tmp_path: Path):
    cells.effects.take_late()
    go, done = threading.Event(), threading.Event()

    def work(parent: Parent) -> None:
        current.set(parent)
        go.wait()
        open(tmp_path / "late", "w").close()
        done.set()

    cells.run(lambda: threading.Thread(target=work, args=(current.get(),)).start(), "first")

    def second():
        go.set()
        done.wait()

    assert cells.run(second, "second") == ([], [])
    late = [("first", {"kind": "file", "how": "write", "path": str(tmp_path / "late")})]
    assert cells.effects.take_late() == late
    assert cells.effects.take_late() == []


def test_a_thread_of_nobodys(cells: Cells, tmp_path: Path):
    def work() -> None:
        current.set(NOBODY)
        ctypes.string_at(b"", 0)
        open(tmp_path / "x", "w").close()

    cells.effects.take_late()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    late = cells.effects.take_late()
    assert [(key, effect["kind"]) for key, effect in late] == [(None, "file")]


def test_many_threads_lose_nothing(cells: Cells, tmp_path: Path):
    def cell():
        parent = current.get()

        def work() -> None:
            current.set(parent)
            for _ in range(50):
                open(tmp_path / "x", "a").close()

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert [effect["count"] for effect in cells.seen(cell)] == [200]


def test_the_records_of_old_executions_are_dropped(cells: Cells):
    for number in range(200):
        cells.run(lambda: None, f"k{number}")
        cells.effects.take_late()
    assert len(cells.effects._records) < 100


def test_end_without_begin():
    assert Effects().end() == ([], [])


# -- the hook and the user's code


class Hostile(str):
    """A path whose every method raises."""

    __slots__ = ()

    def _raise(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("user code was run")

    __hash__ = __eq__ = __str__ = __repr__ = __fspath__ = __getitem__ = __len__ = startswith = _raise


def test_no_method_of_the_users_is_run(cells: Cells):
    path = Hostile("/tmp/hostile")

    def cell():
        for event in EVENTS:
            for args in (
                (path,) * 4,
                (object(),) * 4,
                (),
                ([path], [path], path, 1),
            ):
                sys.audit(event, *args)
        sys.audit("open", path, "w", os.O_CREAT)
        sys.audit("open")
        sys.audit("open", path, "w", path)
        sys.audit("import")

    found, unseen = cells.run(cell)
    assert {"kind": "file", "how": "write", "path": "/tmp/hostile"} in found
    assert any(why.startswith("events: one could not be read") for why in unseen)


def test_what_a_users_signal_handler_raises_is_the_users(cells: Cells, tmp_path: Path, monkeypatch):
    """A timer may fire in the middle of the hook: its exception must not be taken for one of ours."""

    class TimeIsUp(Exception):
        pass

    def interrupted(args: Any) -> Any:
        raise_from_elsewhere()

    def raise_from_elsewhere() -> None:
        raise TimeIsUp

    notes = effects._notes
    notes["os.mkdir"] = cells.effects._noting(interrupted)
    with pytest.raises(TimeIsUp):
        cells.run(lambda: os.mkdir(tmp_path / "x"))
    assert not cells.effects._busy


def test_looking_at_events_makes_no_events(cells: Cells, tmp_path: Path, monkeypatch):
    """The guard against recursion would drop them; this says that there are none to drop."""
    seen: list[str] = []
    real = audited.absolute

    def watched(*args: Any) -> str:
        seen.append("in")
        try:
            return real(*args)
        finally:
            seen.append("out")

    monkeypatch.setattr(audited, "absolute", watched)
    effects._notes["os.listdir"] = lambda _: seen.append("listdir")
    cells.run(lambda: os.mkdir(tmp_path / "x", dir_fd=None))
    assert seen[:2] == ["in", "out"]


def test_a_handler_that_runs_inside_the_hook_is_not_lost_silently(cells: Cells, tmp_path: Path):
    def nested(args: Any) -> Any:
        open(tmp_path / "nested", "w").close()

    effects._notes["os.mkdir"] = cells.effects._noting(nested)
    _, unseen = cells.run(lambda: os.mkdir(tmp_path / "x"))
    assert unseen == ["events: some happened while one was being noted"]


def test_the_working_directory_may_be_gone(cells: Cells, tmp_path: Path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()

    def cell():
        with pytest.raises(OSError, match="No such file"):
            open("x", "w")

    found, _ = cells.run(cell)
    assert found == [{"kind": "file", "how": "write", "path": "x"}]


def test_as_many_descriptors_as_before_and_one_of_them_another(cells: Cells, tmp_path: Path):
    """That nothing changed is told by their number and by all of them still being open: a number alone would
    hide one that took the place of another.
    """
    first = os.open(tmp_path / "first", os.O_WRONLY | os.O_CREAT)
    high = 700
    cells.run(lambda: None)  # knows of the first
    path = tmp_path / "second"
    subprocess.run(["touch", str(path)], check=True)  # or the hook would know of it
    libc = ctypes.CDLL(None)

    def cell() -> None:
        second = libc.open(os.fsencode(path), os.O_WRONLY)
        libc.dup2(second, high)
        libc.close(second)
        libc.close(first)

    try:
        found, _ = cells.run(cell)
        assert {"kind": "descriptor", "how": "open", "path": str(path), "fd": high} in found
        assert cells.run(lambda: None) == ([], [])
    finally:
        os.close(high)


def test_no_descriptor_left_to_look_with(cells: Cells, tmp_path: Path):
    held: list[int] = []
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)

    def cell():
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 5, limits[1]))
        with pytest.raises(OSError, match="Too many"):
            held.extend(os.open(tmp_path, os.O_RDONLY) for _ in range(100))

    try:
        first, second = cells.run(cell), cells.run(lambda: None)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for fd in held:
            os.close(fd)
    assert first == (
        [{"kind": "limit", "how": "setrlimit", "resource": str(resource.RLIMIT_NOFILE)}],
        ["tables: Too many open files"],
    )
    assert second == ([], ["tables: Too many open files"])
    assert cells.run(lambda: None) == ([], [])


def test_a_cell_that_closes_the_descriptors_we_look_with(cells: Cells, tmp_path: Path):
    ours = [cells.effects._tables._io, cells.effects._tables._children]

    def cell():
        for fd in ours:
            os.close(fd)
            os.open(tmp_path, os.O_RDONLY)

    cells.run(cell)
    for fd in ours:
        os.close(fd)
    found, unseen = cells.run(lambda: None)
    assert found == []
    assert unseen == ["tables: Bad file descriptor"]


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
