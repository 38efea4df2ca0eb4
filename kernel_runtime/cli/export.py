"""`krt export`: the session's notebook as a file."""

from __future__ import annotations

from pathlib import Path

import click

from kernel_runtime.cli import frame, report
from kernel_runtime.client.session_files import SessionFile
from kernel_runtime.errors import NoSuchExecution


@frame.command("export", example="krt export alice analysis.ipynb")
@frame.session_argument
@click.argument("file", type=click.Path(path_type=Path))
def command(*, name: str, file: Path, as_json: bool, principal: str | None) -> int:
    """Write the session's notebook to FILE, valid nbformat 4.5; a FILE that is there is replaced.

    Holds what the journal holds, and what people wrote or edited in the session's notebook. Starts
    nothing.
    """
    del principal
    from kernel_runtime.client import session_files
    from kernel_runtime.notebook.put import atomic_write

    session = session_files.load(name)
    target = file.expanduser().absolute()
    cells, data, notes = _document(session)
    atomic_write(target, data)
    for note in notes:
        report.note(f"[krt: {note}]")
    if as_json:
        report.emit({"session": name, "file": str(target), "cells": cells})
    else:
        print(f"session {name}: {cells:,} executed cells written to {target}")
    return 0


def _document(session: SessionFile) -> tuple[int, bytes, list[str]]:
    """Number of executed cells, the file, and notes for people."""
    from kernel_runtime.journal import JournalReader
    from kernel_runtime.notebook.document import NotJson, parse
    from kernel_runtime.notebook.merge import Merged, NotANotebook
    from kernel_runtime.notebook.render import NotebookBuilder

    if not session.journal.exists():
        raise NoSuchExecution(
            f"session {session.name}: nothing was ever run in it, so there is no notebook",
            hint=f"krt exec {session.name} CODE",
            session=session.name,
        )
    with JournalReader.open(session.journal) as journal:
        builder = NotebookBuilder(journal)
        builder.refresh()
        merged = Merged(builder.session_id)
        notes = []
        try:
            merged.take(parse(Path(session.notebook).read_bytes()))
        except FileNotFoundError:
            pass  # not written yet: the journal has all of it
        except (OSError, NotJson, NotANotebook) as error:
            notes.append(f"{session.notebook} cannot be read ({error}); this is the journal's side alone")
        merged.settle(builder.cells, set(builder.cells))
        return len(builder.cells), merged.bytes(builder.metadata()), notes + merged.notes
