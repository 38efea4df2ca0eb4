"""The session's notebook over both journals: the one in memory that unit tests use, and the real one."""

import json
from collections.abc import Callable

import nbformat
import pytest

from kernel_runtime.journal import Journal
from kernel_runtime.model.entry import Draft
from kernel_runtime.notebook.render import NotebookBuilder
from tests.unit.notebook.sessions import FakeJournal, Script, load, printed, shown, source_of, text_of


@pytest.fixture(params=["fake", "real"])
def session(request, tmp_path):
    """`(reader, script)` of an empty session."""
    if request.param == "fake":
        journal = FakeJournal()
        yield journal, Script(journal.append)
        return
    with Journal.create(tmp_path / "journal.db") as writer, writer.reader() as reader:

        def append(fact, incarnation=1, principal="agent:a"):
            writer.append([Draft(fact, principal, incarnation)], sync=False)

        yield reader, Script(append)


@pytest.fixture
def reader(session):
    return session[0]


@pytest.fixture
def script(session):
    return session[1]


def test_an_empty_session_is_a_valid_notebook(reader, script):
    builder = NotebookBuilder(reader)
    assert builder.refresh() == set()
    document = load(builder.document())
    assert document["cells"] == []
    assert document["metadata"]["kernelspec"]["name"] == "python3"
    assert document["metadata"]["language_info"] == {"name": "python"}
    assert document["metadata"]["kernel_runtime"] == {"session": "s", "session_id": "5e55-10", "head": 2}


def test_cells_stand_in_the_order_of_first_execution_with_outputs_and_timing(reader, script):
    script.run("1", "a", printed("x\ny\n"))
    script.run("2", "b")
    script.run("3", "a", printed("z"))
    builder = NotebookBuilder(reader)
    builder.refresh()
    first, second = load(builder.document())["cells"]
    assert (first["id"], source_of(first), text_of(first)) == ("a", "3", "z")
    assert (second["id"], second["outputs"], second["execution_count"]) == ("b", [], 2)
    ours = first["metadata"]["kernel_runtime"]
    assert (ours["execution_id"], ours["incarnation"], ours["outcome"]) == ("e3", 1, "ok")
    assert first["metadata"]["execution"]["iopub.execute_input"].endswith("Z")
    assert set(first["metadata"]["execution"]) == {
        "iopub.execute_input", "iopub.status.busy", "iopub.status.idle", "shell.execute_reply",
    }  # fmt: skip


def test_step_by_step_gives_the_same_bytes_as_at_once(reader, script):
    builder = NotebookBuilder(reader)
    steps: list[Callable[[], object]] = [
        lambda: script.queue("print(1)", "a"),
        lambda: script.start("e1"),
        lambda: script.output("e1", printed("1\n"), shown("one", "d")),
        lambda: script.gap("e1"),
        lambda: script.queue("2", "b"),
        lambda: script.finish("e1"),
        lambda: script.start("e2"),
        lambda: script.output("e2", shown("two", "d", "update_display_data")),
        lambda: script.output("e1", printed("late\n")),
        lambda: script.finish("e2", "error"),
        lambda: script.queue("again", "a"),
        lambda: script.start("e3"),
        lambda: script.output("e2", printed("late too\n")),
    ]
    for step in steps:
        step()
        builder.refresh()
        fresh = NotebookBuilder(reader)
        fresh.refresh()
        assert builder.document() == fresh.document()
        load(builder.document())


def test_the_bytes_are_what_nbformat_would_write(reader, script):
    script.run("x = 'ü'\nx", "a", printed("1\n2"), shown("s\nt", "d"))
    builder = NotebookBuilder(reader)
    builder.refresh()
    data = builder.document()
    assert data.decode() == nbformat.writes(nbformat.reads(data.decode(), as_version=4)) + "\n"


def test_a_queued_execution_does_not_hide_what_ran(reader, script):
    script.run("old", "a", printed("kept"))
    script.queue("new", "a")
    builder = NotebookBuilder(reader)
    builder.refresh()
    assert text_of(load(builder.document())["cells"][0]) == "kept"
    script.finish("e2", "aborted")
    builder.refresh()
    assert source_of(load(builder.document())["cells"][0]) == "old"


def test_a_cell_that_waits_is_there_and_says_so(reader, script):
    script.queue("waits", "a")
    builder = NotebookBuilder(reader)
    builder.refresh()
    [cell] = load(builder.document())["cells"]
    assert cell["metadata"]["kernel_runtime"]["status"] == "queued"
    assert cell["metadata"]["kernel_runtime"]["outcome"] is None


def test_silent_executions_are_no_cells(reader, script):
    builder = NotebookBuilder(reader)
    script.run("1", "a")
    builder.refresh()
    script.queue("secret", "a", silent=True)
    script.start("e2")
    script.queue("secret", "z", silent=True)
    builder.refresh()
    script.output("e2", printed("psst"))
    script.finish("e2")
    builder.refresh()
    assert [source_of(cell) for cell in load(builder.document())["cells"]] == ["1"]


def test_c38_a_display_of_two_cells_changes_in_both(reader, script):
    builder = NotebookBuilder(reader)
    script.run("display", "a", shown("1", "p"))
    script.run("display", "b", shown("2", "p"))
    builder.refresh()
    script.run("update", "c", shown("3", "p", "update_display_data"))
    assert builder.refresh() == {"a", "b", "c"}
    first, second, third = load(builder.document())["cells"]
    assert first["outputs"][0]["data"] == second["outputs"][0]["data"] == {"text/plain": ["3"]}
    assert third["outputs"] == []


def test_an_update_that_belongs_to_no_execution_changes_the_display(reader, script):
    builder = NotebookBuilder(reader)
    script.run("display", "a", shown("1", "p"))
    builder.refresh()
    script.output(None, shown("2", "p", "update_display_data"), printed("unowned"))
    builder.refresh()
    fresh = NotebookBuilder(reader)
    fresh.refresh()
    for one in (builder, fresh):
        [cell] = load(one.document())["cells"]
        assert cell["outputs"][0]["data"] == {"text/plain": ["2"]}
        assert text_of(cell) == ""


def test_c30_a_capped_cell_points_to_the_rest(reader, script):
    script.run("noisy", "a", *(printed(f"line {i}\n") for i in range(1000)))
    builder = NotebookBuilder(reader, cap_bytes=1000)
    builder.refresh()
    text = text_of(load(builder.document())["cells"][0])
    assert text.startswith("line 0\n")
    assert text.endswith("line 999\n")
    assert "krt wait s e1" in text


def test_c26_odd_text_stays_valid(reader, script):
    script.run("print('a\ud800b')", "a", printed("a\ud800b\x00"))
    builder = NotebookBuilder(reader)
    builder.refresh()
    [cell] = load(builder.document())["cells"]
    assert text_of(cell) == "a\\ud800b\x00"
    assert source_of(cell) == "print('a\\ud800b')"


def test_ids_that_nbformat_does_not_allow_are_derived(reader, script):
    script.run("1", "päth/to cell")
    builder = NotebookBuilder(reader)
    builder.refresh()
    [cell] = load(builder.document())["cells"]
    assert cell["id"].startswith("cell-")
    assert json.loads(builder.document()) == load(builder.document())
