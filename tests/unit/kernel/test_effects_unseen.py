# ruff: noqa: SIM115
# What a file that is left open is seen to do is what is tested.
"""Effects that no event tells: what is found of them in the process's tables, and what is unseen."""

from __future__ import annotations

import ctypes
import os
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_runtime.core.effects import verdict
from kernel_runtime.kernel import effects
from tests.support import eventually
from tests.unit.kernel import effect_cells
from tests.unit.kernel.effect_cells import Cells

cells = effect_cells.cells


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
