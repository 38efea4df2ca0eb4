"""What `krt exec` is given to run: code, stdin, a script, or the cells of a notebook."""

from __future__ import annotations

import hashlib
import sys
import uuid
from pathlib import Path

from msgspec import Struct

from kernel_runtime.core.source import MAX_SOURCE
from kernel_runtime.errors import InvalidSource, KernelRuntimeError, UsageError


class Cell(Struct, frozen=True, kw_only=True):
    """One cell to run."""

    source: str
    cell_id: str | None = None
    key: str | None = None
    label: str = ""
    """`cell 3 of 10` of a notebook"""


class Work(Struct, frozen=True, kw_only=True):
    """All that one `krt exec` runs, in order."""

    cells: list[Cell]
    notes: list[str] = []
    """what was repaired in a notebook"""
    notebook: Path | None = None


def gather(session: str, code: str | None, file: Path | None, *, key: str | None, again: bool) -> Work:
    """The cells that the command line names.

    Raises:
        UsageError: nothing to run, or two things.
        InvalidSource: not UTF-8, or over the bound.
        NoSuchNotebook, InvalidNotebook: a `.ipynb` that is not there, or is no notebook.
    """
    if code is not None and file is not None:
        raise UsageError(f"session {session}: CODE and --file are both given", hint="give one of the two")
    if file is not None:
        if file.suffix == ".ipynb":
            if key is not None:
                raise UsageError(
                    f"session {session}: --key is for one cell, and {file} has many",
                    hint="leave it out: each cell gets a key of its own, so a run that is repeated resumes",
                )
            return _notebook(session, file, again=again)
        return Work(cells=[Cell(source=_decoded(session, _read(session, file), str(file)), key=key)])
    if code is None and sys.stdin.isatty():
        raise _nothing(session)
    if code is None or code == "-":
        data = sys.stdin.buffer.read(MAX_SOURCE + 1)
        if code is None and not data.strip():
            raise _nothing(session)
        return Work(cells=[Cell(source=_decoded(session, data, "stdin"), key=key)])
    return Work(cells=[Cell(source=code, key=key)])


def _nothing(session: str) -> UsageError:
    hint = f"krt exec {session} 'x = 1', or --file F, or - for stdin"
    return UsageError(f"session {session}: nothing to run", hint=hint)


def _read(session: str, file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(MAX_SOURCE + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"session {session}: no file {file}", hint="check the path") from None
    except OSError as error:
        raise UsageError(
            f"session {session}: {file} cannot be read: {error.strerror}", hint="check the path"
        ) from error


def _decoded(session: str, data: bytes, what: str) -> str:
    if len(data) > MAX_SOURCE:
        raise InvalidSource(
            f"session {session}: {what} has over {MAX_SOURCE:,} bytes, the most that one cell may have",
            hint="put the data in a file and have the cell read it",
            session=session,
            bound=MAX_SOURCE,
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidSource(
            f"session {session}: {what} is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}",
            hint="save it as UTF-8 (`iconv -t utf-8`); nothing was run",
            session=session,
        ) from None


def _notebook(session: str, file: Path, *, again: bool) -> Work:
    from kernel_runtime.notebook.read import read_notebook

    try:
        notebook = read_notebook(file)
    except KernelRuntimeError as error:
        error.fields.setdefault("session", session)
        raise
    sources = [(cell.id, cell.source) for cell in notebook.code]
    run = uuid.uuid4().hex[:12] if again else ""
    cells = [
        Cell(
            source=source,
            cell_id=cell_id,
            key=cell_key(file, cell_id, source, run),
            label=f"cell {number} of {len(sources)}",
        )
        for number, (cell_id, source) in enumerate(sources, 1)
    ]
    return Work(cells=cells, notes=list(notebook.notes), notebook=file)


def cell_key(notebook: Path, cell_id: str, source: str, run: str = "") -> str:
    """The key of a notebook's cell: the same file, cell and source run once, however often asked.

    `run` sets one run apart from all others.
    """
    where = hashlib.sha256(str(notebook.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    what = hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return ":".join(part for part in ("ipynb", where, cell_id, what, run) if part)
