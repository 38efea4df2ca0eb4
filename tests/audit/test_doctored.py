"""Five finished records, doctored as a forger would: which tool finds it, and which one cannot.

Each is forged carelessly, so that the chain tells; and with the whole journal written anew, so that only an
anchor tells that it is another record, and only a replay that it is a false one.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import kernel_runtime as kr
from kernel_runtime.evidence import standalone
from kernel_runtime.replay import replay
from kernel_runtime.replay.result import Result
from tests.audit import forger
from tests.audit.agent import record, told
from tests.audit.described import described
from tests.support import krt_json

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


class Case:
    """A record, and its anchor from before the forgery."""

    def __init__(self, name: str, tmp_path: Path) -> None:
        self.name = record(described(name), tmp_path / "work")
        self.anchors = tmp_path / "anchors.jsonl"
        krt_json("anchor", self.name, "--file", str(self.anchors))
        with kr.attach(self.name) as session:
            session.stop()
        self.verified(ok=True, anchored=True)

    def verified(self, *, ok: bool, anchored: bool = False) -> list[str]:
        """Where `krt verify` finds something, after asserting whether it does."""
        options = ["--anchor", str(self.anchors)] if anchored else []
        document = krt_json("verify", self.name, *options, exit_code=0 if ok else 9)
        return [problem["where"] for problem in document["problems"]]

    @contextmanager
    def careless(self) -> Iterator[None]:
        """What is done to the journal in here is found by `krt verify` alone, and undone."""
        journal = forger.journal_of(self.name)
        kept = forger.files_of(journal)
        yield
        self.verified(ok=False)
        forger.put(kept, journal)
        self.verified(ok=True)


def different(result: Result) -> list[str]:
    return [
        row["cell_id"] for row in result.executions if row["verdict"] in ("different", "nondeterministic")
    ]


def other_number(text: str) -> tuple[str, str]:
    """The line of a text's first decimal number, and that line with another one."""
    line = next(line for line in text.splitlines() if re.search(r"\d", line))
    return line, re.sub(r"\d", lambda digit: str((int(digit[0]) + 1) % 10), line, count=1)


def test_a_changed_number(tmp_path: Path) -> None:
    case = Case("iris_clusters", tmp_path)
    old, new = other_number(forger.printed(case.name, "centres"))
    with case.careless():
        forger.careless_text(case.name, old, new)
    forger.rewrite(case.name, lambda entries: forger.with_output(entries, old, new))
    case.verified(ok=True)
    assert any("anchor" in where for where in case.verified(ok=False, anchored=True))
    result = replay(case.name)
    assert different(result) == ["centres"], told(result)
    (row,) = (row for row in result.executions if row["verdict"] == "different")
    assert new in row["diff"]
    assert old in row["diff"]


def test_a_moved_cell(tmp_path: Path) -> None:
    """The total is said to have been computed before the second correction."""
    case = Case("in_place_edits", tmp_path)

    def ids(cell: str) -> list[str]:
        return forger.executions(forger.entries_of(case.name), cell)

    total, correction = ids("total")[0], ids("correct")[1]
    with case.careless():
        forger.careless_swap(case.name, total, correction)
    forger.rewrite(case.name, lambda entries: forger.moved(entries, total, correction))
    case.verified(ok=True)
    assert any("anchor" in where for where in case.verified(ok=False, anchored=True))
    result = replay(case.name)
    assert different(result) == ["total"], told(result)


def test_a_cut_tail(tmp_path: Path) -> None:
    """What is left is a true record of less: nothing but the anchor can tell."""
    case = Case("cars_chart", tmp_path)
    entries = forger.entries_of(case.name)
    cut = forger.executions(entries, "as_json")[0]
    last = next(entry.seq for entry in entries if entry.execution_id == cut) - 1
    with case.careless():
        forger.careless_cut(case.name, last)
    forger.rewrite(case.name, lambda entries: entries[:last])
    case.verified(ok=True)
    result = replay(case.name)
    assert different(result) == [], told(result)
    assert any("anchor" in where for where in case.verified(ok=False, anchored=True))


def test_an_edited_output_of_a_notebook(tmp_path: Path) -> None:
    case = Case("airports_words", tmp_path)
    bundle, notebook = tmp_path / "a.bundle", tmp_path / "work" / "a.ipynb"
    krt_json("bundle", case.name, str(bundle))
    krt_json("export", case.name, str(notebook))
    result = replay(notebook)
    assert (result.order, different(result)) == ("executed", []), told(result)

    old, new = other_number(forger.printed(case.name, "common"))
    forger.edit_notebook(notebook, "common", old, new)
    result = replay(notebook)
    assert different(result) == ["common"], told(result)
    assert different(replay(case.name)) == []  # the journal is another record, and a true one

    whole = bundle.read_bytes()
    bundle.write_bytes(whole.replace(b"notebook.ipynb", b"notebook.ipynB"))
    assert bundle_problems(bundle) != []
    bundle.write_bytes(whole)
    forger.with_notebook(bundle, notebook.read_bytes())
    assert bundle_problems(bundle) == ["notebook.ipynb"]
    assert alone(bundle) == 0  # the small verifier renders no notebook: docs/audit.md says so


def test_a_moved_cell_of_a_notebook(tmp_path: Path) -> None:
    """A file that tells its order is run in that order, wherever its cells stand; from top to bottom, not."""
    case = Case("airports_words", tmp_path)
    notebook = tmp_path / "work" / "a.ipynb"
    krt_json("export", case.name, str(notebook))
    forger.move_cell(notebook, "words", 99)
    assert different(replay(notebook)) == []
    assert set(different(replay(notebook, order="document"))) == {"rare", "common"}


def test_a_swapped_image(tmp_path: Path) -> None:
    case = Case("digits_pca", tmp_path)
    drawn = forger.images(case.name)
    assert drawn[0] != drawn[-1]
    with case.careless():
        forger.careless_images(case.name)
    forger.rewrite(case.name, lambda entries: forger.with_output(entries, drawn[-1], drawn[0]))
    case.verified(ok=True)
    assert any("anchor" in where for where in case.verified(ok=False, anchored=True))
    result = replay(case.name)
    assert different(result) == ["curve"], told(result)
    (row,) = (row for row in result.executions if row["verdict"] == "different")
    assert "image" in row["diff"]


def bundle_problems(bundle: Path) -> list[str]:
    """Where `krt verify FILE` finds something."""
    document: dict[str, Any] = krt_json("verify", str(bundle), exit_code=9)
    return [problem["where"] for problem in document["problems"]]


def alone(bundle: Path) -> int:
    """The exit status of the single-file verifier."""
    return subprocess.run(
        [sys.executable, "-I", standalone.__file__, str(bundle)], capture_output=True, check=False
    ).returncode
