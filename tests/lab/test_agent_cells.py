"""What an agent runs, as somebody sees it who has the notebook open."""

from __future__ import annotations

import kernel_runtime as kr
from tests.lab.page import NotebookPage


def test_the_harness(session: kr.Session, notebook: NotebookPage) -> None:
    notebook.write("typed = 1")
    assert "typed = 1" in notebook.sources()
    assert "origin = 1" in notebook.sources()
