"""A document and its file, both changed: docs/notebook.md, the open document."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kernel_runtime.core.projection import source_digest
from kernel_runtime.jupyter.room_merge import Base, Merged, base_of, gone, merge, without

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


def test_an_edit_that_is_the_beginning_of_what_ran_is_an_edit() -> None:
    """One rule for what a killed server's store has of a cell: only one that knows of no run may be the
    beginning of what ran. Here a person took the end of a line out of a cell that had run, and the base was
    lost: the end came back, for the file's text began with the person's.
    """
    here = content(ran("a", "x = 1", was="x = 1\nx"))
    there = content(ran("a", "x = 1\nx"))
    assert sources(merge(None, here, there, derived="file")) == ["x = 1"]


def test_text_that_only_the_file_took_out_is_named() -> None:
    """A saved cell that is not in a replaced file was taken out by whoever replaced it, says the merge. What
    is then nowhere has a name: what ran is in the journal, and what moved is there.
    """
    without_any = content()
    assert gone(START, merge(BASE, START, without_any).content, {"a"}) == ["t", "n"]
    assert gone(START, without_any, None) == ["t", "n"]
    assert gone(START, without_any, set()) == ["t", "a", "n"]
    other = content(text("t", "# other"), ran("a", "a"), code("n", "n"))
    assert gone(START, merge(BASE, START, other).content, {"a"}) == ["t"]
    moved = content(code("elsewhere", "n"), code("as-code", "# t"))
    assert gone(START, moved, {"a"}) == []
    edited = content(ran("a", "a edited", "a"))
    assert gone(edited, content(ran("a", "a")), {"a"}) == ["a"]
    assert gone(content(text("t", " \n")), without_any, set()) == []


def test_the_beginning_of_what_ran_is_not_missed() -> None:
    assert gone(content(code("new", "x =")), content(ran("new", "x = 1")), set()) == []
    assert gone(content(code("new", "y")), content(ran("new", "x = 1")), set()) == ["new"]


def test_an_attachment_that_is_nowhere_is_named() -> None:
    picture = {**text("t", "# t"), "attachments": {"p.png": {"image/png": "aGk="}}}
    assert gone(content(picture), content(text("t", "# t")), set()) == ["t"]
    assert gone(content(picture), content(picture), set()) == []


def test_cells_that_are_to_stay_stay() -> None:
    """Where the document cannot be kept, what it has and the file has not is as if it had been changed."""
    other = content(text("t", "# other"), ran("a", "a"))
    lost = gone(START, merge(BASE, START, other).content, {"a"})
    assert lost == ["t", "n"]
    assert sources(merge(without(BASE, lost), START, other)) == ["# t", "# other", "a", "n"]
    assert sources(merge(without(None, lost), START, other)) == ["# t", "# other", "a", "n"]


def test_what_has_one_place_and_both_changed_is_told() -> None:
    start = content({**code("n", "n"), "metadata": {"tags": ["a"]}}, author="a")
    here = content({**code("n", "n"), "metadata": {"tags": ["here"]}}, author="a")
    there = content({**code("n", "n"), "metadata": {"tags": ["there"]}}, author="a")
    merged = merge(base_of(start), here, there)
    assert merged.overruled
    assert merged.content["cells"][0]["metadata"] == {"tags": ["here"]}
    assert not merge(base_of(start), here, start).overruled
    assert not merge(base_of(start), start, there).overruled
    here, there = content(author="here"), content(author="there")
    assert merge(base_of(content(author="a")), here, there).overruled
    assert not merge(base_of(here), here, there).overruled


def test_outputs_of_a_cell_that_never_ran_here_are_people_s() -> None:
    """They came with the file: the journal has none, so neither side may be taken for what it derives."""

    def shows(text: str) -> Cell:
        return {**code("n", "n"), "outputs": [{"output_type": "stream", "name": "stdout", "text": text}]}

    base = base_of(content(shows("then")))
    merged = merge(base, content(shows("then")), content(shows("from nbconvert")))
    assert merged.content["cells"] == [shows("from nbconvert")]
    assert not merged.ahead
    cleared = merge(base, content(code("n", "n")), content(shows("then")))
    assert cleared.content["cells"] == [code("n", "n")]
    assert cleared.ahead
    both = merge(base, content(shows("here")), content(shows("there")))
    assert both.content["cells"] == [shows("here")]
    assert both.overruled


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
    named = set(gone(here, merged.content, set()))
    assert {cell["source"] for cell in here["cells"] if cell["id"] not in named} <= kept
    stays = merge(without(base_of(start), named), here, there)
    assert {cell["source"] for cell in here["cells"]} <= set(sources(stays))
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
