"""Two authors, one file: people's edits against the journal's news.

Each test is a transcript: the session runs, people change the document, the session goes on.
"""

import copy
import json
from typing import Any

import pytest

from kernel_runtime.notebook.document import parse
from kernel_runtime.notebook.merge import Merged, NotANotebook
from kernel_runtime.notebook.render import NotebookBuilder
from tests.unit.notebook.sessions import FakeJournal, Script, load, printed, source_of, text_of


class Desk:
    """A session, and a document that people and the session write in turn."""

    def __init__(self) -> None:
        self.journal = FakeJournal()
        self.session = Script(self.journal.append)
        self.builder = NotebookBuilder(self.journal)
        self.document: Any = None
        self.notes: list[str] = []

    def write(self) -> Any:
        """What the next write of the file leaves in it."""
        changed = self.builder.refresh()
        merged = Merged(self.builder.session_id)
        if self.document is not None:
            merged.take(copy.deepcopy(self.document))
        merged.settle(self.builder.cells, changed)
        self.notes = merged.notes
        self.document = load(merged.bytes(self.builder.metadata()))
        self.sources = merged.sources(self.builder.cells)
        return self.document["cells"]

    def cell(self, cell_id: str) -> Any:
        return next(cell for cell in self.document["cells"] if cell["id"] == cell_id)

    def ids(self) -> list[str]:
        return [cell["id"] for cell in self.document["cells"]]

    def truth(self, cell_id: str) -> Any:
        return self.cell(cell_id)["metadata"]["kernel_runtime"].get("truth")


def new_cell(cell_id: str, source: Any = "", kind: str = "code", **more: Any) -> dict[str, Any]:
    cell: dict[str, Any] = {"cell_type": kind, "id": cell_id, "metadata": {}, "source": source} | more
    return cell | ({"outputs": [], "execution_count": None} if kind == "code" else {})


@pytest.fixture
def desk():
    desk = Desk()
    for name in "abc":
        desk.session.run(f"{name} = 1", name, printed(f"{name}\n"))
    desk.write()
    return desk


def test_nothing_changes_when_nobody_changed_anything(desk):
    before = desk.document
    desk.write()
    assert desk.document == before


def test_cells_people_added_stay_in_place_and_are_not_run(desk):
    desk.document["cells"].insert(1, new_cell("mine", "x = 2\ny = 3"))
    desk.document["cells"].insert(2, new_cell("text", "# Title", "markdown", attachments={"a": {}}))
    desk.session.run("d = 1", "d")
    desk.write()
    assert desk.ids() == ["a", "mine", "text", "b", "c", "d"]
    assert desk.truth("mine") == "not-run"
    assert source_of(desk.cell("mine")) == "x = 2\ny = 3"
    assert desk.cell("text") == new_cell("text", ["# Title"], "markdown", attachments={"a": {}})


def test_an_added_cell_that_is_run_becomes_the_sessions(desk):
    desk.document["cells"].insert(1, new_cell("mine", "x = 2"))
    desk.write()
    desk.session.run("x = 2", "mine", printed("ran"))
    desk.write()
    assert desk.ids() == ["a", "mine", "b", "c"]
    assert desk.truth("mine") is None
    assert text_of(desk.cell("mine")) == "ran"


def test_an_edited_source_is_kept_and_marked_and_the_outputs_are_of_what_ran(desk):
    desk.cell("b")["source"] = ["b = 2"]
    desk.write()
    desk.write()
    assert source_of(desk.cell("b")) == "b = 2"
    assert desk.truth("b") == "edited"
    assert text_of(desk.cell("b")) == "b\n"
    assert desk.sources["b"] != desk.sources["a"]


def test_an_edit_that_is_run_is_no_edit_any_more(desk):
    desk.cell("b")["source"] = ["b = 2"]
    desk.session.run("b = 2", "b", printed("new"))
    desk.write()
    assert (source_of(desk.cell("b")), desk.truth("b"), text_of(desk.cell("b"))) == ("b = 2", None, "new")


def test_a_source_run_elsewhere_replaces_one_that_nobody_edited(desk):
    desk.session.run("b = 3", "b")
    desk.write()
    assert source_of(desk.cell("b")) == "b = 3"
    assert desk.notes == []


def test_m45_both_changed_a_source_and_both_survive(desk):
    desk.cell("b")["source"] = ["b = 'people'"]
    desk.session.run("b = 'agent'", "b", printed("agent"))
    desk.write()
    at = desk.ids().index("b")
    beside = desk.document["cells"][at + 1]
    assert source_of(desk.cell("b")) == "b = 'agent'"
    assert source_of(beside) == "b = 'people'"
    assert beside["metadata"]["kernel_runtime"] == {"truth": "not-run", "edit_of": "b"}
    assert len(desk.notes) == 1
    assert beside["id"] in desk.notes[0]
    before = desk.document
    desk.write()
    assert desk.document == before


def test_the_same_conflict_saved_again_by_an_open_editor_makes_no_second_copy(desk):
    stale = copy.deepcopy(desk.document)
    stale["cells"][1]["source"] = ["b = 'people'"]
    desk.document = copy.deepcopy(stale)
    desk.session.run("b = 'agent'", "b")
    desk.write()
    kept = desk.document["cells"][2]
    stale["cells"].insert(2, kept)
    desk.document = stale
    desk.write()
    assert desk.ids() == ["a", "b", kept["id"], "c"]


def test_deleted_cells_stay_deleted_until_they_run_again(desk):
    del desk.document["cells"][1]
    desk.session.run("d = 1", "d")
    desk.write()
    desk.write()
    assert desk.ids() == ["a", "c", "d"]
    desk.session.run("b = 1", "b")
    desk.write()
    assert desk.ids() == ["a", "b", "c", "d"]


def test_a_deleted_cell_that_was_queued_before_and_started_after_comes_back(desk):
    execution = desk.session.queue("b = 1", "b")
    del desk.document["cells"][1]
    desk.write()
    assert desk.ids() == ["a", "c"]
    desk.session.start(execution)
    desk.write()
    assert desk.ids() == ["a", "b", "c"]


def test_a_stale_copy_saved_over_a_newer_file_deletes_nothing(desk):
    stale = copy.deepcopy(desk.document)
    desk.session.run("d = 1", "d")
    desk.session.run("b = 2", "b")
    desk.write()
    desk.document = stale
    desk.write()
    assert desk.ids() == ["a", "b", "c", "d"]
    assert source_of(desk.cell("b")) == "b = 2"


def test_people_own_the_order(desk):
    desk.document["cells"].reverse()
    desk.session.run("d = 1", "d")
    desk.write()
    assert desk.ids() == ["c", "b", "a", "d"]


def test_people_own_metadata_that_is_not_ours(desk):
    desk.cell("a")["metadata"] |= {"tags": ["keep"], "collapsed": True}
    desk.cell("a")["metadata"]["execution"] = {"iopub.execute_input": "made up"}
    desk.document["metadata"] |= {"title": "T", "kernelspec": {"name": "mine", "display_name": "Mine"}}
    desk.session.run("d = 1", "d")
    desk.write()
    metadata = desk.cell("a")["metadata"]
    assert (metadata["tags"], metadata["collapsed"]) == (["keep"], True)
    assert metadata["execution"]["iopub.execute_input"] != "made up"
    assert desk.document["metadata"]["title"] == "T"
    assert desk.document["metadata"]["kernelspec"]["name"] == "mine"
    assert desk.document["metadata"]["kernel_runtime"]["head"] == desk.journal.head()


def test_outputs_are_the_journals(desk):
    desk.cell("a")["outputs"] = []
    desk.write()
    assert text_of(desk.cell("a")) == "a\n"


def test_a_copy_of_a_cell_under_a_new_id_is_a_new_cell(desk):
    twin = copy.deepcopy(desk.cell("a"))
    twin["id"] = "twin"
    desk.document["cells"].append(twin)
    desk.write()
    assert desk.cell("twin")["metadata"]["kernel_runtime"] == {"truth": "not-run"}
    assert text_of(desk.cell("twin")) == "a\n"


def test_a_copy_under_the_same_id_gets_another_one_each_time_the_same(desk):
    desk.document["cells"].append(copy.deepcopy(desk.cell("a")))
    document = copy.deepcopy(desk.document)
    desk.write()
    once = desk.ids()
    assert len(set(once)) == 4
    desk.document = document
    desk.write()
    assert desk.ids() == once


def test_a_cell_turned_into_text_stays_text_until_it_runs_again(desk):
    cell = desk.cell("b")
    desk.document["cells"][1] = new_cell("b", cell["source"], "markdown")
    desk.session.run("d = 1", "d")
    desk.write()
    assert desk.cell("b")["cell_type"] == "markdown"
    desk.session.run("b = 5", "b")
    desk.write()
    assert source_of(desk.cell("b")) == "b = 5"
    texts = [source_of(cell) for cell in desk.document["cells"] if cell["cell_type"] == "markdown"]
    assert texts == ["b = 1"]


def test_an_editor_that_drops_our_metadata_loses_no_text(desk):
    for cell in desk.document["cells"]:
        cell["metadata"] = {}
    desk.document["metadata"] = {}
    desk.cell("b")["source"] = "b = 2"
    del desk.document["cells"][2]
    desk.write()
    assert desk.ids() == ["a", "b", "c"]
    assert (desk.truth("a"), desk.truth("b")) == (None, "edited")


def test_ids_that_are_missing_are_derived(desk):
    for cell in desk.document["cells"]:
        del cell["id"]
    desk.document["nbformat_minor"] = 4
    desk.write()
    texts = [source_of(cell) for cell in desk.document["cells"]]
    assert texts == ["a = 1", "b = 1", "c = 1"]


def test_people_s_own_notebook_becomes_the_sessions():
    desk = Desk()
    cells = [new_cell("t", "# Plan", "markdown"), new_cell("a", "a = 1"), new_cell("b", "b = 1")]
    desk.document = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    desk.session.run("a = 1", "a")
    desk.session.run("z = 1", "z")
    desk.write()
    assert desk.ids() == ["t", "a", "b", "z"]
    assert (desk.truth("a"), desk.truth("b")) == (None, "not-run")


def test_another_sessions_notebook_is_people_s_text():
    desk = Desk()
    desk.session.run("a = 1", "a")
    desk.write()
    desk.document["metadata"]["kernel_runtime"]["session_id"] = "another"
    desk.document["cells"] = [new_cell("x", "x")]
    desk.write()
    assert desk.ids() == ["x", "a"]


@pytest.mark.parametrize(
    "document",
    [None, [], {}, {"nbformat": 3, "worksheets": []}, {"nbformat": 4}, {"nbformat": 4, "cells": [1]}],
)
def test_what_is_no_notebook_is_refused(document):
    with pytest.raises(NotANotebook):
        Merged("s").take(document)


def test_what_python_writes_and_json_forbids_is_kept_as_text():
    document = {"nbformat": 4, "cells": [new_cell("a", "x\ud800", metadata={"n": float("nan")})]}
    merged = Merged("s")
    merged.take(parse(json.dumps(document).encode()))
    merged.settle({}, ())
    [cell] = load(merged.bytes({"kernel_runtime": {}}))["cells"]
    assert source_of(cell) == "x\\ud800"
    assert cell["metadata"]["n"] == "NaN"


def test_a_kept_edit_that_was_edited_again_makes_room_for_the_next(desk):
    for _ in range(2):
        desk.cell("b")["source"] = ["b = 'people'"]
        desk.session.run(f"b = {desk.journal.head()}", "b")
        desk.write()
        desk.document["cells"][2]["source"] = ["b = 'more'"]
    desk.write()
    texts = [source_of(cell) for cell in desk.document["cells"]]
    assert texts.count("b = 'more'") == 2


def test_the_last_write_of_two_with_one_text_keeps_it_once(desk):
    for _ in range(2):
        desk.cell("b")["source"] = ["b = 'people'"]
        desk.session.run(f"b = {desk.journal.head()}", "b")
        desk.write()
    texts = [source_of(cell) for cell in desk.document["cells"]]
    assert texts.count("b = 'people'") == 1
