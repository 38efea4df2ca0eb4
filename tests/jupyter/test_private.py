"""What a session and its JupyterLab keep is its owner's alone, whatever the umask lets others read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import kernel_runtime as kr
from kernel_runtime import places
from tests.jupyter import shared_page
from tests.jupyter.server import Server
from tests.jupyter.shared_page import known, page, saved_cells
from tests.support import eventually

server = shared_page.server


def readable(directory: Path) -> list[str]:
    """Files below it that others than the owner may do anything with; a directory hides what is in it."""
    found = []
    for place, _, names in os.walk(directory):
        for name in names:
            mode = (Path(place) / name).lstat().st_mode
            if (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)) and mode & 0o077:
                found.append(str((Path(place) / name).relative_to(directory)))
    return found


def test_files_of_a_session_with_an_open_notebook(server: Server, session: kr.Session) -> None:
    """Mechanism: a file made by `open` has the umask's mode; in a directory that somebody opens up, or in
    a copy of it, everybody reads it. Right: each file is made 0600.
    """
    session.execute("a = 1; a", timeout=60, cell_id="ran")
    known(server, session)
    with page(server, f"{session.name}.ipynb") as one:
        one.until(lambda: one.sources() == ["a = 1; a"], what="the document")
        one.add(1, "text", "# t", "markdown")
        eventually(lambda: len(saved_cells(server, session)) == 2, what="saved")
        directory = places.session_dir(session.name)
        assert (directory / "notebook.base").exists()
        assert readable(directory) == []
        assert readable(places.runtime_dir()) == []
