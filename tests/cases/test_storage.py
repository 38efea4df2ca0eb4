"""Storage: S48 S51."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest

import kernel_runtime as kr
from kernel_runtime.client import session_files
from kernel_runtime.errors import InvalidNotebook, KernelRuntimeError, NoSuchNotebook
from kernel_runtime.notebook.read import read_notebook
from tests.cases.support import stopped
from tests.support import eventually, krt, krt_json


@pytest.mark.slow
def test_s48_killed_while_it_writes_the_notebook() -> None:
    """The supervisor is killed the moment its temporary file appears, again and again. The notebook is at
    each moment the old one or the new one, whole; the next supervisor sweeps up and writes what is due.
    """
    with stopped("s48") as session:
        path = Path(session_files.load("s48").notebook)
        session.execute("for i in range(40_000): print('line', i)", cell_id="large")
        eventually(lambda: whole(path) == ["large"], what="first write")
        turns = killed_writing = 0
        while killed_writing < 3 and turns < 30:  # a draft may come and go between two looks
            turn, turns = turns, turns + 1
            session.execute(f"print({turn})", cell_id=f"c{turn}")
            pid = int(session.row()["supervisor_pid"])
            draft = path.with_name(f".{path.name}.krt-{pid}")
            if appears(draft, 3.0):
                os.kill(pid, signal.SIGKILL)
                killed_writing += 1
                found = whole(path)
                assert found == ["large", *(f"c{i}" for i in range(turn + 1))][: len(found)]
                assert found
        assert killed_writing >= 3
        session.execute("'end'", cell_id="end")
        expected = ["large", *(f"c{i}" for i in range(turns)), "end"]
        eventually(lambda: whole(path) == expected, what="all cells in the notebook")
        left = [name for name in os.listdir(path.parent) if name.startswith(f".{path.name}.krt-")]
        assert left == []


def appears(path: Path, timeout: float) -> bool:
    """Whether the file comes into being; looks without a pause, since it does not last."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if path.exists():
            return True
    return False


def whole(path: Path) -> list[str]:
    """Cell ids of the notebook, which is valid; none while there is no file."""
    if not path.exists():
        return []
    document = nbformat.read(path, as_version=nbformat.NO_CONVERT)
    nbformat.validate(document)
    return [cell["id"] for cell in document.cells]


def code(source: str, **more: Any) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "metadata": {},
        "source": source,
        "outputs": [],
        "execution_count": None,
        **more,
    }


def notebook(cells: list[dict[str, Any]], minor: int = 5) -> bytes:
    document = {"nbformat": 4, "nbformat_minor": minor, "metadata": {}, "cells": cells}
    return json.dumps(document).encode()


SURROGATE = {"output_type": "stream", "name": "stdout", "text": "lone \ud800"}
OLD = {
    "nbformat": 3,
    "nbformat_minor": 0,
    "metadata": {"name": "old"},
    "worksheets": [
        {
            "cells": [
                {"cell_type": "code", "input": "a = 3", "language": "python", "outputs": [], "metadata": {}}
            ]
        }
    ],
}
REPAIRED: dict[str, tuple[bytes, list[str], str]] = {
    "no-ids": (notebook([code("a = 1"), code("a + 1")]), ["a = 1", "a + 1"], "no id"),
    "duplicate-ids": (
        notebook([code("a = 1", id="same"), code("a = 2", id="same")]),
        ["a = 1", "a = 2"],
        "used twice",
    ),
    "4.4": (notebook([code("a = 1")], minor=4), ["a = 1"], "no id"),
    "3.0": (json.dumps(OLD).encode(), ["a = 3"], "3.0"),
    "surrogate": (notebook([code("a = 1", id="s", outputs=[SURROGATE])]), ["a = 1"], "surrogate"),
}


@pytest.mark.parametrize("what", REPAIRED)
def test_s51_read_with_a_note(what: str, tmp_path: Path) -> None:
    """What can be repaired is read, twice with the same ids, with a note of what was repaired; the file is
    not touched.
    """
    data, sources, note = REPAIRED[what]
    path = tmp_path / "n.ipynb"
    path.write_bytes(data)
    one, two = read_notebook(path), read_notebook(path)
    assert [cell.source for cell in one.code] == sources
    assert [cell.id for cell in one.cells] == [cell.id for cell in two.cells]
    assert len({cell.id for cell in one.cells}) == len(one.cells)
    assert any(note in told for told in one.notes), one.notes
    assert path.read_bytes() == data


def make_large(path: Path) -> None:
    png = {"output_type": "display_data", "metadata": {}, "data": {"image/png": "A" * 1_000_000}}
    path.write_bytes(notebook([code(f"a{i} = 1", id=f"c{i}", outputs=[png]) for i in range(50)]))


def test_s51_large_notebook(tmp_path: Path) -> None:
    """50 MB, nearly all of it outputs: read."""
    path = tmp_path / "large.ipynb"
    make_large(path)
    assert len(read_notebook(path).code) == 50


def make_loop(path: Path) -> None:
    path.symlink_to(path.name)


REFUSED: dict[str, tuple[Callable[[Path], Any], type[KernelRuntimeError], str]] = {
    "not-json": (lambda p: p.write_text("<html>"), InvalidNotebook, "not JSON"),
    "zero-bytes": (lambda p: p.write_bytes(b""), InvalidNotebook, "empty"),
    "directory": (lambda p: p.mkdir(), InvalidNotebook, "directory"),
    "loop": (make_loop, InvalidNotebook, "cannot be read"),
    "nothing": (lambda p: None, NoSuchNotebook, "no notebook"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_s51_refused(what: str, tmp_path: Path) -> None:
    """What is no notebook is refused with what is wrong and what to do, by the library and by `krt exec`,
    which creates no session for it.
    """
    make, error, words = REFUSED[what]
    path = tmp_path / "n.ipynb"
    make(path)
    with pytest.raises(error, match=words) as refused:
        read_notebook(path)
    assert refused.value.hint
    told = krt_json(
        "exec", "never", "--create", "--file", str(path), exit_code=3 if error is NoSuchNotebook else 2
    )
    assert told["error"]["type"] == error.__name__
    assert words in told["error"]["message"]
    assert not session_files.exists("never")


def test_s51_run_twice(tmp_path: Path, krt_home: Path) -> None:
    """A notebook without ids, run from the command line twice: its cells have the same ids each time, so
    the second run runs nothing; what was repaired is told; the file is not touched.
    """
    path = tmp_path / "n.ipynb"
    mark = tmp_path / "ran"
    data = notebook([code(f"open({str(mark)!r}, 'a').write('x')"), code("print('two')")])
    path.write_bytes(data)
    first = krt("exec", "s51", "--create", "--file", str(path))
    second = krt("exec", "s51", "--file", str(path))
    try:
        assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
        assert "two" in first.stdout
        assert "no id" in first.stderr
        assert mark.read_text() == "x"
        assert path.read_bytes() == data
    finally:
        with kr.attach("s51") as session:
            session.stop()
