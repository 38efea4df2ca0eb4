"""S51: notebooks of other people, read with a note of what was repaired or refused with a hint."""

import json
from pathlib import Path
from typing import Any

import pytest

from kernel_runtime.errors import InvalidNotebook, NoSuchNotebook
from kernel_runtime.notebook.read import Notebook, read_notebook


def cell(source: Any = "x = 1", kind: str = "code", **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"cell_type": kind, "metadata": {}, "source": source}
    if kind == "code":
        found |= {"outputs": [], "execution_count": None}
    return found | more


@pytest.fixture
def write(tmp_path):
    def write(*cells, minor=5, text=None, **metadata):
        path = tmp_path / "n.ipynb"
        document = {"nbformat": 4, "nbformat_minor": minor, "metadata": metadata, "cells": list(cells)}
        path.write_bytes((json.dumps(document) if text is None else text).encode())
        return path

    return write


def twice(path: Path) -> Notebook:
    """Read two times: the same, and the file untouched."""
    before = path.read_bytes(), path.stat().st_mtime_ns
    found = read_notebook(path)
    assert read_notebook(path) == found
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    ids = [c.id for c in found.cells]
    assert len(set(ids)) == len(ids)
    return found


def test_a_sound_notebook_is_read_without_notes(write):
    path = write(
        cell(["a\n", "b"], id="one"),
        cell("# T", "markdown", id="two"),
        cell("  ", id="three"),
        kernelspec={"name": "python3", "language": "python"},
        title="t",
    )
    found = twice(path)
    assert [(c.id, c.type, c.source) for c in found.cells] == [
        ("one", "code", "a\nb"),
        ("two", "markdown", "# T"),
        ("three", "code", "  "),
    ]
    assert [c.id for c in found.code] == ["one"]
    assert (found.notes, found.kernelspec, found.language) == ([], "python3", "python")
    assert found.metadata["title"] == "t"


def test_s51_missing_ids_are_the_same_each_time(write):
    found = twice(write(cell("a"), cell("a"), cell("b", id="kept")))
    assert found.cells[2].id == "kept"
    assert found.notes == ["cell 1; 2 has no id: one is derived from place and content"]


def test_s51_a_4_4_notebook_says_its_version(write):
    found = twice(write(cell("a"), minor=4))
    assert found.nbformat == (4, 4)
    assert "(nbformat 4.4)" in found.notes[0]


def test_s51_ids_used_twice_are_renamed_and_noted(write):
    found = twice(write(cell("a", id="x"), cell("b", id="x"), cell("c", id="no spaces")))
    assert found.cells[0].id == "x"
    assert found.notes == [
        f"cell 2, now {found.cells[1].id} had the id 'x', which is used twice",
        f"cell 3, now {found.cells[2].id} had the id 'no spaces', which is no valid id",
    ]


def test_s51_nbformat_3_is_upgraded(write):
    cells = [
        {"cell_type": "code", "language": "python", "input": ["print 1"], "outputs": [], "prompt_number": 1},
        {"cell_type": "markdown", "metadata": {}, "source": "hello"},
        {"cell_type": "heading", "metadata": {}, "level": 1, "source": "Top"},
    ]
    v3 = {"nbformat": 3, "nbformat_minor": 0, "metadata": {"name": "old"}, "worksheets": [{"cells": cells}]}
    found = twice(write(text=json.dumps(v3)))
    assert [(c.type, c.source) for c in found.cells] == [
        ("code", "print 1"),
        ("markdown", "hello"),
        ("markdown", "# Top"),
    ]
    assert found.nbformat == (3, 0)
    assert any("was read as 4.5" in note for note in found.notes)


def test_s51_a_surrogate_in_an_output_is_noted_and_in_a_source_escaped(write):
    out = {"output_type": "stream", "name": "stdout", "text": "a\ud800"}
    found = twice(write(cell("'\ud800'", id="a", outputs=[out]), cell("'\U0001f600'", id="b")))
    assert found.cells[0].source == "'\\ud800'"
    assert found.cells[1].source == "'\U0001f600'"
    assert [note.split(" lone")[0] for note in found.notes] == ["cell 1 has", "cell 1 has"]


def test_s51_fifty_megabytes_are_read(write):
    out = {"output_type": "stream", "name": "stdout", "text": "x" * 500_000}
    path = write(*(cell(f"x = {i}", id=f"c{i}", outputs=[out]) for i in range(100)))
    assert path.stat().st_size > 50_000_000
    found = read_notebook(path)
    assert (len(found.cells), found.notes) == (100, [])


def test_bytes_that_are_not_utf_8_are_noted(write, tmp_path):
    path = write(cell("x", id="a"))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b'"x"', b'"x\xff"'))
    found = twice(path)
    assert found.cells[0].source.startswith("x")
    assert "not UTF-8" in found.notes[0]


def test_odd_cells_are_noted_and_nothing_is_made_up(write):
    found = twice(write("no cell", cell("x", "heading", id="a"), cell(3, id="b")))
    assert [(c.type, c.source) for c in found.cells] == [("raw", "x"), ("code", "")]
    assert len(found.notes) == 2


def test_a_long_list_of_repairs_is_short(write):
    [note] = twice(write(*(cell(f"{i}") for i in range(1000)))).notes
    assert len(note) < 200
    assert "and 995 more" in note


@pytest.mark.parametrize(
    "text, why",
    [
        ("", "zero bytes"),
        (" \n", "white space"),
        ("not json", "not JSON"),
        ('{"nbformat": 4, "cells": [', "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "no nbformat"),
        ("{}", "no nbformat"),
        ('{"nbformat": "4"}', "its nbformat is '4'"),
        ('{"nbformat": 5}', "newer than 4"),
        ('{"nbformat": 4}', "no list of cells"),
        ('{"nbformat": 3, "worksheets": 7}', "could not be upgraded"),
    ],
)
def test_s51_what_is_no_notebook_is_refused_with_a_hint(write, text, why):
    with pytest.raises(InvalidNotebook, match=why) as caught:
        read_notebook(write(text=text))
    assert caught.value.hint


def test_s51_directories_loops_and_nothing(tmp_path):
    loop, dangling = tmp_path / "loop.ipynb", tmp_path / "dangling.ipynb"
    loop.symlink_to(loop)
    dangling.symlink_to(tmp_path / "nothing")
    with pytest.raises(InvalidNotebook, match="directory"):
        read_notebook(tmp_path)
    with pytest.raises(InvalidNotebook) as caught:
        read_notebook(loop)
    assert "circle" in caught.value.hint
    with pytest.raises(NoSuchNotebook) as missing:
        read_notebook(dangling)
    assert "link" in missing.value.hint
    with pytest.raises(NoSuchNotebook):
        read_notebook(tmp_path / "nothing")
