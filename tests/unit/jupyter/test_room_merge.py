"""A document and its file, both changed: docs/notebook.md, the open document."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kernel_runtime.core.projection import source_digest
from kernel_runtime.jupyter.room_merge import Base, Merged, base_of, merge

Cell = dict[str, Any]


def code(cell_id: str, source: str, **metadata: Any) -> Cell:
    return {
        "cell_type": "code",
        "id": cell_id,
        "source": source,
        "metadata": metadata,
        "outputs": [],
        "execution_count": None,
    }


def ran(cell_id: str, source: str, was: str | None = None) -> Cell:
    """A cell that ran with that source, or with `was`."""
    return code(cell_id, source, kernel_runtime={"source_digest": source_digest(was or source)})


def text(cell_id: str, source: str) -> Cell:
    return {"cell_type": "markdown", "id": cell_id, "source": source, "metadata": {}}


def content(*cells: Cell, **metadata: Any) -> dict[str, Any]:
    return {"cells": list(cells), "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def sources(merged: Merged) -> list[str]:
    return [cell["source"] for cell in merged.content["cells"]]


START = content(text("t", "# t"), ran("a", "a"), code("n", "n"))
BASE = base_of(START)


def test_nothing_changed() -> None:
    merged = merge(BASE, START, START)
    assert merged.content == START
    assert not merged.ahead


def test_a_cell_of_which_the_store_has_only_the_beginning_is_what_ran() -> None:
    """A server killed in mid-cell kept that a cell was put in, and not all of what was typed into it."""
    there = content(text("t", "# t"), ran("a", "a"), code("n", "n"), ran("new", "x = 1\nx"))
    for kept in ("", "x = 1"):
        here = content(text("t", "# t"), ran("a", "a"), code("n", "n"), code("new", kept))
        assert sources(merge(BASE, here, there, derived="file")) == ["# t", "a", "n", "x = 1\nx"]
    typed = content(text("t", "# t"), ran("a", "a"), code("n", "n"), code("new", "y"))
    assert sources(merge(BASE, typed, there, derived="file"))[3] == "y"


def test_each_side_changed_another_cell() -> None:
    here = content(text("t", "# here"), ran("a", "a"), code("n", "n"))
    there = content(text("t", "# t"), ran("a", "a there", "a"), code("n", "n"))
    merged = merge(BASE, here, there)
    assert sources(merged) == ["# here", "a there", "n"]
    assert merged.ahead


def test_what_only_the_file_changed_leaves_nothing_to_save() -> None:
    there = content(text("t", "# there"), ran("a", "a"), code("n", "n"), code("new", "new"))
    merged = merge(BASE, START, there)
    assert sources(merged) == ["# there", "a", "n", "new"]
    assert not merged.ahead


def test_both_changed_one_text() -> None:
    here = content(text("t", "# here"), ran("a", "a"), code("n", "n here"))
    there = content(text("t", "# there"), ran("a", "a"), code("n", "n there"))
    merged = merge(BASE, here, there)
    assert sources(merged) == ["# here", "# there", "a", "n here", "n there"]
    assert merged.content["cells"][4]["metadata"] == {"kernel_runtime": {"truth": "not-run", "edit_of": "n"}}
    assert len(merged.notes) == 2
    again = merge(base_of(there), merged.content, there)
    assert sources(again) == sources(merged)


def test_taken_out_on_one_side() -> None:
    without = content(text("t", "# t"), code("n", "n"))
    assert sources(merge(BASE, without, START)) == ["# t", "n"]
    assert merge(BASE, without, START).ahead
    assert sources(merge(BASE, START, without)) == ["# t", "n"]
    assert not merge(BASE, START, without).ahead


def test_taken_out_on_one_side_and_changed_on_the_other() -> None:
    without = content(ran("a", "a"), code("n", "n"))
    changed = content(text("t", "# changed"), ran("a", "a"), code("n", "n"))
    assert sources(merge(BASE, without, changed)) == ["# changed", "a", "n"]
    assert sources(merge(BASE, changed, without)) == ["# changed", "a", "n"]


def test_added_on_both_sides() -> None:
    here = content(text("t", "# t"), code("h", "h"), ran("a", "a"), code("n", "n"))
    there = content(text("t", "# t"), ran("a", "a"), code("f", "f"), code("n", "n"))
    assert sources(merge(BASE, here, there)) == ["# t", "h", "a", "f", "n"]


def test_moved_in_the_file_only() -> None:
    there = content(code("n", "n"), text("t", "# t"), ran("a", "a"))
    assert sources(merge(BASE, START, there)) == ["n", "# t", "a"]


def test_moved_on_both_sides_the_document_s_order_stays() -> None:
    here = content(ran("a", "a"), text("t", "# t"), code("n", "n"))
    there = content(code("n", "n"), text("t", "# t"), ran("a", "a"))
    merged = merge(BASE, here, there)
    assert sources(merged) == ["a", "# t", "n"]
    assert merged.ahead


def test_metadata_of_people_and_of_the_journal() -> None:
    start = content(ran("a", "a"), tag=1)
    here = content({**ran("a", "a"), "outputs": ["here"]}, tag=2)
    there_cell = {**ran("a", "a"), "outputs": ["there"]}
    there_cell["metadata"] = {**there_cell["metadata"], "mine": 1}
    merged = merge(base_of(start), here, content(there_cell, tag=1, other=3))
    (cell,) = merged.content["cells"]
    assert cell["outputs"] == ["here"]
    assert cell["metadata"]["mine"] == 1
    assert merged.content["metadata"] == {"tag": 2, "other": 3}
    merged = merge(base_of(start), here, content(there_cell, tag=1), derived="file")
    assert merged.content["cells"][0]["outputs"] == ["there"]


def test_without_a_base_an_edit_is_known_by_what_ran() -> None:
    here = content(text("t", "# t"), ran("a", "a edited", "a"), ran("gone", "gone"), code("new", "new"))
    there = content(text("t", "# t"), ran("a", "a"), ran("later", "later"))
    assert sources(merge(None, here, there)) == ["# t", "a edited", "new", "later"]


def test_without_a_base_two_texts_both_stay() -> None:
    assert sources(merge(None, content(text("t", "one")), content(text("t", "two")))) == ["one", "two"]


cells = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.sampled_from(["1", "2", "3"]), st.booleans()),
    max_size=5,
    unique_by=lambda one: one[0],
).map(lambda many: content(*(text(i, i + s) if md else code(i, i + s) for i, s, md in many)))


@given(cells, cells, cells)
def test_no_change_of_either_side_is_lost(start: Any, here: Any, there: Any) -> None:
    merged = merge(base_of(start), here, there)
    ids = [cell["id"] for cell in merged.content["cells"]]
    assert len(ids) == len(set(ids))
    before = {cell["source"] for cell in start["cells"]}
    kept = set(sources(merged))
    for side in (here, there):
        assert {cell["source"] for cell in side["cells"]} - before <= kept
    # once the file has it too, there is nothing more to do
    again = merge(base_of(there), merged.content, merged.content)
    assert again.content == merged.content
    assert not again.ahead


@given(cells, cells)
def test_what_one_side_alone_changed_is_what_becomes(start: Any, changed: Any) -> None:
    base = base_of(start)
    assert merge(base, start, changed).content == changed
    assert merge(base, changed, start).content == changed


def test_a_base_survives_being_written_down() -> None:
    import msgspec

    assert msgspec.json.decode(msgspec.json.encode(BASE), type=Base) == BASE
