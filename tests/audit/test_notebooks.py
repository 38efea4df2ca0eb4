"""Twenty notebooks, each worked through by an agent and replayed: verdicts are as written down beforehand."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_runtime.replay import replay
from tests.audit.agent import expected, found, names_found, record, told
from tests.audit.described import all_names, described

UNMARKED = ("changed_file", "random_numbers")
"""of `make test`"""
CASES = [
    pytest.param(name, marks=[] if name in UNMARKED else [pytest.mark.slow, pytest.mark.timeout(240)])
    for name in all_names()
]


@pytest.mark.parametrize("name", CASES)
def test_verdicts_are_as_written_down(name: str, tmp_path: Path) -> None:
    notebook = described(name)
    session = record(notebook, tmp_path / "work")
    result = replay(session, two_times=notebook.two_times, allow=notebook.allow)
    assert found(result) == expected(notebook), told(result)
    assert names_found(result) == notebook.names, told(result)
    assert result.verdict == notebook.verdict
    assert len(result.notes) == len(notebook.notes), result.notes
    assert all(words in note for words, note in zip(notebook.notes, result.notes, strict=True)), result.notes
    assert result.integrity == {"ok": True, "problems": []}


def test_there_are_twenty_and_they_are_varied() -> None:
    """Each has cells out of order, repeated or changed; half have errors, a quarter a kernel's death."""
    notebooks = [described(name) for name in all_names()]
    assert len(notebooks) == 20
    for notebook in notebooks:
        order = [row.cell for row in notebook.executions]
        assert 6 <= len({row.cell_id for row in notebook.executions}) <= 15, notebook.name
        assert order != list(notebook.cells), f"{notebook.name} runs from top to bottom"
    assert sum(any(row.outcome == "error" for row in one.executions) for one in notebooks) >= 10
    assert (
        sum(any("KILL" in row.action or row.outcome == "died" for row in one.run) for one in notebooks) >= 5
    )
