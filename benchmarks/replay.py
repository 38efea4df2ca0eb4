"""A notebook of 1,000 small cells: replayed and judged, against nbclient that only runs it.

Ours is the whole of `replay(path)`: reading the file, a session of its own with its journal and probe, each
cell's verdict, and nothing left of it. Theirs is nbclient's `execute`, kernel start and end included.
"""

from __future__ import annotations

import os
from pathlib import Path

import nbclient
import nbformat

from benchmarks.measure import Result, Series, compared, in_turns
from benchmarks.subjects import places
from kernel_runtime.replay import replay

CELLS = 1000
GOAL = 1.10


def run(*, quick: bool = False) -> list[Result]:
    cells, rounds = (50, 1) if quick else (CELLS, 5)
    # nbclient's kernels warn of their tcp ports on every start
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    with places() as root:
        path = _notebook(root, cells)
        verdicts: set[str] = set()

        def ours() -> None:
            verdicts.add(replay(path).verdict)

        series = in_turns({"ours": ours, "theirs": lambda: _theirs(path)}, rounds, warm=0 if quick else 1)
    note = f"{cells:,} cells that print and show a number; theirs: nbclient, which only runs them"
    each = {name: Series([seconds / cells for seconds in one.seconds]) for name, one in series.items()}
    return [
        compared("replay of a notebook, each cell", each, goal=GOAL, note=note, ok=verdicts == {"same"}),
    ]


def _theirs(path: Path) -> None:
    document = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    nbclient.NotebookClient(document, timeout=60, kernel_name="python3").execute()


def _notebook(root: Path, cells: int) -> Path:
    """Run once by nbclient, which writes down what the cells put out."""
    made = [nbformat.v4.new_code_cell(f"x = {n}\nprint(x)\nx * 2") for n in range(cells)]  # type: ignore[no-untyped-call]
    document = nbformat.v4.new_notebook(cells=made)  # type: ignore[no-untyped-call]
    nbclient.NotebookClient(document, timeout=60, kernel_name="python3").execute()
    path = root / "notebook" / "cells.ipynb"  # by itself: what lies beside it is copied for the replay
    path.parent.mkdir()
    nbformat.write(document, path)  # type: ignore[no-untyped-call]
    return path
