"""Results and reports, read by property."""

from __future__ import annotations

import pytest

from kernel_runtime.client.brief import shown
from kernel_runtime.client.results import Record, text_of
from kernel_runtime.client.status import Status
from kernel_runtime.core.source import MAX_SOURCE, check_source
from kernel_runtime.errors import InvalidSource

STDOUT = {"output_type": "stream", "name": "stdout", "text": "a\n"}
STDERR = {"output_type": "stream", "name": "stderr", "text": "oops\n"}
VALUE = {"output_type": "execute_result", "data": {"text/plain": ["4", "2"]}, "execution_count": 1}


@pytest.mark.parametrize(
    "outputs, text",
    [
        ([], ""),
        ([STDOUT, STDERR, VALUE], "a\n42"),
        ([{**STDOUT, "text": "no newline"}, VALUE], "no newline\n42"),
        ([VALUE, VALUE], "42\n42"),
        ([{"output_type": "display_data", "data": {"image/png": "…"}}], ""),
    ],
)
def test_text_is_stdout_and_values(outputs: list[dict[str, object]], text: str) -> None:
    assert text_of(outputs) == text


def test_a_record_reads_its_document() -> None:
    record = Record(
        {
            "execution_id": "e",
            "cell_id": "c",
            "status": "done",
            "outcome": "error",
            "incarnation": 2,
            "error": {"ename": "E", "evalue": "v", "traceback": ["t"]},
        },
        cursor=7,
    )
    assert (record.done, record.outcome, record.cursor, record.incarnation) == (True, "error", 7, 2)
    assert record.error is not None
    assert (record.error.ename, record.error.traceback) == ("E", ["t"])
    assert (record.outputs, record.gaps, record.text) == ([], [], "")


def test_a_status_lists_the_worst_first_and_counts_all() -> None:
    status = Status.from_json(
        {
            "session": "alice",
            "incarnation": 2,
            "state": "idle",
            "cells": [{"cell_id": "a", "truth": "live"}, {"cell_id": "b", "truth": "lost"}],
            "names": [{"name": "df", "truth": "live", "type": "DataFrame", "bytes": 10}],
            "counts": {"live": 40, "lost": 1},
        }
    )
    assert list(status.cells) == ["b", "a"]
    assert status.names["df"].truth == "live"
    assert status.summary() == "alice: incarnation 2, idle; 1 lost, 40 live"
    assert not status.all_live


@pytest.mark.parametrize("source", ["x" * (MAX_SOURCE + 1), "é" * (MAX_SOURCE // 2 + 1), "'\ud800'"])
def test_what_cannot_be_a_cell_is_refused_before_it_is_sent(source: str) -> None:
    with pytest.raises(InvalidSource) as caught:
        check_source(source, "alice")
    assert "alice" in caught.value.message
    assert caught.value.hint


def test_the_largest_cell_is_allowed() -> None:
    check_source("x" * MAX_SOURCE, "alice")


@pytest.mark.parametrize(
    "text, line",
    [
        ("\n\n  x = 1\ny", "x = 1"),
        ("\x1b[31mred", "\N{REPLACEMENT CHARACTER}[31mred"),
        ("x" * 100, "x" * 79 + "…"),
    ],
)
def test_what_is_shown_of_a_source_is_one_line_that_drives_no_terminal(text: str, line: str) -> None:
    assert shown(text) == line
