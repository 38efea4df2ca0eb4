"""What `krt exec` takes to run."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from kernel_runtime.cli.cells import Work, cell_key, gather
from kernel_runtime.core.source import MAX_SOURCE
from kernel_runtime.errors import InvalidNotebook, InvalidSource, NoSuchNotebook, UsageError


class Stdin(io.TextIOWrapper):
    def __init__(self, data: bytes, *, tty: bool = False) -> None:
        super().__init__(io.BytesIO(data))
        self._tty = tty

    def isatty(self) -> bool:
        return self._tty


def take(code: str | None = None, file: Path | None = None, **how: Any) -> Work:
    return gather("alice", code, file, **{"key": None, "again": False, **how})


def notebook(path: Path, *cells: tuple[str, str, str]) -> Path:
    document = {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {},
        "cells": [
            {"id": cell_id, "cell_type": kind, "source": source, "metadata": {}}
            | ({"outputs": [], "execution_count": None} if kind == "code" else {})
            for cell_id, kind, source in cells
        ],
    }
    path.write_text(json.dumps(document))
    return path


def test_code_is_one_cell_with_the_callers_key() -> None:
    (cell,) = take("x = 1", key="k").cells
    assert (cell.source, cell.key, cell.cell_id) == ("x = 1", "k", None)


def test_a_dash_reads_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Stdin("é = 1\n".encode()))
    assert take("-").cells[0].source == "é = 1\n"


def test_a_pipe_is_read_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Stdin(b"x = 1"))
    assert take().cells[0].source == "x = 1"


@pytest.mark.parametrize("stdin", [Stdin(b"", tty=True), Stdin(b"  \n")])
def test_nothing_to_run_is_a_usage_error(monkeypatch: pytest.MonkeyPatch, stdin: Stdin) -> None:
    monkeypatch.setattr(sys, "stdin", stdin)
    with pytest.raises(UsageError, match="nothing to run"):
        take()


def test_a_script_is_one_cell_without_its_byte_order_mark(tmp_path: Path) -> None:
    script = tmp_path / "a.py"
    script.write_bytes(b"\xef\xbb\xbfx = 1\ny = 2\n")
    assert [cell.source for cell in take(file=script).cells] == ["x = 1\ny = 2\n"]


def test_two_sources_are_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="both given"):
        take("x", tmp_path / "a.py")


@pytest.mark.parametrize(
    "data, says", [(b"x = '\xff'", "0xff at offset 5"), (b"x" * (MAX_SOURCE + 1), "the most")]
)
def test_a_script_that_is_no_source_is_refused(tmp_path: Path, data: bytes, says: str) -> None:
    script = tmp_path / "a.py"
    script.write_bytes(data)
    with pytest.raises(InvalidSource, match=says):
        take(file=script)


@pytest.mark.parametrize("name", ["missing.py", "."])
def test_a_script_that_is_not_there_is_a_usage_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="session alice"):
        take(file=tmp_path / name)


def test_a_notebook_gives_its_code_cells_with_keys(tmp_path: Path) -> None:
    path = notebook(
        tmp_path / "n.ipynb", ("a", "code", "x = 1"), ("b", "markdown", "# x"), ("c", "code", "x")
    )
    work = take(file=path)
    assert [(cell.cell_id, cell.source, cell.label) for cell in work.cells] == [
        ("a", "x = 1", "cell 1 of 2"),
        ("c", "x", "cell 2 of 2"),
    ]
    assert len({cell.key for cell in work.cells}) == 2
    assert [cell.key for cell in take(file=path).cells] == [cell.key for cell in work.cells]


def test_keys_follow_file_cell_and_source(tmp_path: Path) -> None:
    link = tmp_path / "link.ipynb"
    link.symlink_to(tmp_path / "n.ipynb")
    here = cell_key(tmp_path / "n.ipynb", "a", "x")
    assert cell_key(link, "a", "x") == here
    assert here not in (
        cell_key(tmp_path / "m.ipynb", "a", "x"),
        cell_key(tmp_path / "n.ipynb", "b", "x"),
        cell_key(tmp_path / "n.ipynb", "a", "y"),
    )


def test_again_makes_keys_that_were_never_used(tmp_path: Path) -> None:
    path = notebook(tmp_path / "n.ipynb", ("a", "code", "x"))
    keys = {take(file=path, again=again).cells[0].key for again in (False, True, True)}
    assert len(keys) == 3


def test_a_key_for_a_notebook_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="many"):
        take(file=notebook(tmp_path / "n.ipynb", ("a", "code", "x")), key="k")


def test_s51_notebooks_that_are_none_are_refused_for_their_session(tmp_path: Path) -> None:
    with pytest.raises(NoSuchNotebook) as caught:
        take(file=tmp_path / "missing.ipynb")
    assert caught.value.fields["session"] == "alice"
    (tmp_path / "n.ipynb").write_text("")
    with pytest.raises(InvalidNotebook):
        take(file=tmp_path / "n.ipynb")
