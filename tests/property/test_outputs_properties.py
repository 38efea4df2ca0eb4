"""Laws of folding outputs and judging cells, on inputs nobody thought of."""

import json
from collections import Counter
from typing import Any

import msgspec
import nbformat
from hypothesis import given
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_notebook

from kernel_runtime.core.outputs import OutputFolder, fold
from kernel_runtime.core.reconcile import TRUTHS, reconcile, summary_counts
from kernel_runtime.core.stream_text import StreamText
from kernel_runtime.model.execution import OUTCOMES, STATUSES, Cell
from kernel_runtime.model.truth import STATES

pieces = st.text(alphabet="ab\r\b\nü😀", max_size=8)


def terminal(text: str) -> str:
    """The same discipline, one character at a time, on a list of lines."""
    lines: list[list[str]] = [[]]
    cursor = 0
    for char in text:
        line = lines[-1]
        if char == "\n":
            lines.append([])
            cursor = 0
        elif char == "\r":
            cursor = 0
        elif char == "\b":
            if cursor:
                if cursor == len(line):
                    line.pop()
                cursor -= 1
        else:
            line[cursor : cursor + 1] = [char]
            cursor += 1
    return "\n".join(map("".join, lines))


@given(st.lists(pieces, max_size=12))
def test_stream_text_is_a_terminal_however_the_text_is_cut_into_writes(writes):
    stream, whole, grown = StreamText(), StreamText(), 0
    for text in writes:
        grown += stream.write(text)
    whole.write("".join(writes))
    assert stream.text() == whole.text() == terminal("".join(writes))
    assert grown == stream.size


@given(st.lists(pieces, max_size=12), st.integers(0, 60))
def test_what_is_taken_from_the_front_and_what_stays_are_the_text(writes, limit):
    stream = StreamText()
    for text in writes:
        stream.write(text)
    before = stream.text()
    assert stream.take(limit) + stream.text() == before


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)
kinds = st.sampled_from(
    ["stream", "display_data", "execute_result", "error", "clear_output", "update_display_data", "comm_msg"]
)
names = st.sampled_from(
    ["name", "text", "data", "metadata", "transient", "execution_count", "ename", "traceback", "wait"]
)
bundles = st.dictionaries(st.sampled_from(["text/plain", "application/json", "a/b"]), anything, max_size=3)
contents = st.dictionaries(names, anything | bundles | st.just({"display_id": "d"}), max_size=4)
messages = st.builds(lambda kind, content: {"type": kind, "content": content}, kinds, contents)


@given(st.lists(messages, max_size=6), st.none() | st.integers(1, 200), st.booleans())
def test_any_messages_fold_into_a_valid_notebook(sent, cap, as_json):
    given_messages = [msgspec.Raw(json.dumps(m).encode()) for m in sent] if as_json else sent
    folder = OutputFolder(cap_bytes=cap)
    for message in given_messages:
        folder.add(message)
    outputs = folder.outputs()
    json.dumps(outputs, allow_nan=False).encode("ascii")
    assert "\ud800" not in str(outputs)
    cell = new_code_cell()
    cell["outputs"] = nbformat.from_dict(outputs)
    nbformat.validate(new_notebook(cells=[cell]), relax_add_props=False)
    if cap is None:
        assert outputs == fold(given_messages)


def _cells(raw_cells: list[Any]) -> list[Cell]:
    return [
        Cell(
            cell_id=f"c{i}", execution_id=f"e{i}", source_digest="d", incarnation=incarnation,
            status=status, outcome=outcome, position=i,
        )
        for i, (incarnation, status, outcome) in enumerate(raw_cells)
    ]  # fmt: skip


raw_cells = st.lists(
    st.tuples(
        st.integers(-1, 4),
        st.sampled_from([*STATUSES, "odd"]),
        st.none() | st.sampled_from([*OUTCOMES, "odd"]),
    ),
    max_size=20,
)
states = st.sampled_from([*STATES, "odd", ""])


@given(raw_cells, st.integers(-1, 4), states, st.none() | st.integers(0, 5))
def test_reconcile_is_total_counts_add_up_and_the_summary_agrees(raw, incarnation, state, limit):
    cells = _cells(raw)
    report = reconcile(session="s", incarnation=incarnation, state=state, cells=cells, limit=limit)
    assert set(report.counts) == set(TRUTHS)
    assert sum(report.counts.values()) == len(cells)
    rows = [(*row, n) for row, n in Counter(raw).items()]
    assert summary_counts(rows, incarnation=incarnation, state=state) == report.counts


@given(
    raw_cells,
    st.integers(0, 4),
    states,
    st.dictionaries(st.from_regex(r"c[0-9]{1,2}", fullmatch=True), st.sampled_from(["d", "e"]), max_size=9),
)
def test_the_notebook_only_edits_and_adds(raw, incarnation, state, notebook):
    cells = _cells(raw)
    plain = {
        c.cell_id: c for c in reconcile(session="s", incarnation=incarnation, state=state, cells=cells).cells
    }
    report = reconcile(
        session="s", incarnation=incarnation, state=state, cells=cells, notebook_sources=notebook
    )
    assert {c.cell_id for c in report.cells} == set(plain) | set(notebook)
    for found in report.cells:
        if found.truth == "edited":
            assert notebook[found.cell_id] == "e"
            assert found.evidence["was"] == plain[found.cell_id].truth
        elif found.cell_id in plain:
            assert found.truth == plain[found.cell_id].truth
        else:
            assert found.truth == "not-run"
