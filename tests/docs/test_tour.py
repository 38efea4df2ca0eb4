"""The tour is a valid notebook that says the same in any Jupyter."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
from nbclient import NotebookClient

TOUR = Path(__file__).parent.parent.parent / "notebooks" / "tour.ipynb"


def test_is_valid_and_names_no_machine() -> None:
    text = TOUR.read_text()
    notebook = nbformat.reads(text, as_version=4)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) >= (4, 5)
    assert not re.search(r"/(home|root|tmp|Users)/|site-packages|\d\d:\d\d:\d\d", text)


def test_runs_anywhere_and_says_what_it_shows() -> None:
    shown = nbformat.read(TOUR, as_version=4)
    run = nbformat.read(TOUR, as_version=4)
    NotebookClient(run, timeout=100).execute()
    for cell, before in zip(run.cells, shown.cells, strict=True):
        assert cell.get("outputs") == before.get("outputs"), cell.id
