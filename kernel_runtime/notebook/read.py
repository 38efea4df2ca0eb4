"""Read anybody's notebook, and say what had to be repaired. The file is never written.

nbformat 4 is read as it is; what is older is upgraded by nbformat, which is loaded only then. Ids
that are missing, invalid or used twice are derived from place and content: read twice, the same.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from kernel_runtime.core.listing import some
from kernel_runtime.errors import InvalidNotebook, NoSuchNotebook
from kernel_runtime.model.facts import escape_text
from kernel_runtime.notebook.document import joined
from kernel_runtime.notebook.ids import derived_id, is_valid

_TYPES = ("code", "markdown", "raw")
_MAYBE_LONE = re.compile(rb"\\u[dD][89a-fA-F]")
_SHOWN = 5
"""cells a note names"""


class NotebookCell(Struct, frozen=True):
    """A cell that may be run or shown."""

    id: str
    type: str
    """`code`, `markdown` or `raw`"""
    source: str
    metadata: dict[str, Any] = {}
    outputs: list[Any] = []
    """as in the file, repaired in nothing"""
    execution_count: int | None = None


class Notebook(Struct, frozen=True, kw_only=True):
    """What a file holds, and what was repaired to read it."""

    path: Path
    cells: list[NotebookCell]
    notes: list[str] = []
    kernelspec: str | None = None
    language: str | None = None
    metadata: dict[str, Any] = {}
    nbformat: tuple[int, int] = (4, 5)
    """as in the file"""

    @property
    def code(self) -> list[NotebookCell]:
        """Code cells with something in them."""
        return [cell for cell in self.cells if cell.type == "code" and cell.source.strip()]


def read_notebook(path: Path | str) -> Notebook:
    """The notebook at `path`, repaired where it can be.

    Raises:
        NoSuchNotebook: nothing is there.
        InvalidNotebook: what is there cannot be read as a notebook; the hint says what to do.
    """
    path = Path(path)
    data = _bytes(path)
    notes: list[str] = []
    document = _document(path, data, notes)
    major, minor = _version(path, document)
    if major < 4:
        document = _upgraded(path, document, notes, f"{major}.{minor}")
    raw_cells = document.get("cells")
    if not isinstance(raw_cells, list):
        raise _invalid(path, "it has no list of cells", "open it in Jupyter and save it again")
    cells = _cells(raw_cells, (major, minor), notes)
    if _MAYBE_LONE.search(data):
        _note_surrogates(raw_cells, notes)
    metadata = document.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    return Notebook(
        path=path,
        cells=cells,
        notes=notes,
        kernelspec=_text_in(metadata, "kernelspec", "name"),
        language=_text_in(metadata, "language_info", "name") or _text_in(metadata, "kernelspec", "language"),
        metadata=metadata,
        nbformat=(major, minor),
    )


def _bytes(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        where = "the link points nowhere" if path.is_symlink() else "check the name"
        raise NoSuchNotebook(f"no notebook at {path}", hint=where, path=str(path)) from error
    except IsADirectoryError as error:
        raise _invalid(path, "it is a directory", "name a .ipynb file") from error
    except OSError as error:
        hint = "symbolic links lead in a circle" if path.is_symlink() else "check who may read it"
        raise _invalid(path, f"it cannot be read: {os.strerror(error.errno or 0)}", hint) from error
    if not data.strip():
        what = "it is empty (zero bytes)" if not data else "it holds only white space"
        raise _invalid(path, what, "restore it from a backup or a checkpoint")
    return data


def _document(path: Path, data: bytes, notes: list[str]) -> dict[str, Any]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        text = data.decode("utf-8-sig", "surrogateescape")
        notes.append(f"bytes that are not UTF-8, the first at {error.start}, are shown as escapes")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _invalid(path, f"it is not JSON: {error}", "it may be cut short or hold merge marks") from error
    if not isinstance(document, dict) or "nbformat" not in document:
        raise _invalid(path, "it is JSON and no notebook: it has no nbformat", "name an .ipynb file")
    return document


def _version(path: Path, document: dict[str, Any]) -> tuple[int, int]:
    major, minor = document.get("nbformat"), document.get("nbformat_minor", 0)
    if not isinstance(major, int) or not isinstance(minor, int) or major < 1:
        raise _invalid(path, f"its nbformat is {major!r}", "open it in Jupyter and save it again")
    if major > 4:
        raise _invalid(path, f"its nbformat {major}.{minor} is newer than 4", "upgrade this program")
    return major, minor


def _upgraded(path: Path, document: dict[str, Any], notes: list[str], version: str) -> dict[str, Any]:
    import nbformat

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about what the upgrade repairs, which the note says
            upgraded: dict[str, Any] = nbformat.convert(nbformat.from_dict(document), 4)  # type: ignore[no-untyped-call]
    except Exception as error:  # nbformat lets whatever its walk over foreign JSON meets escape
        raise _invalid(
            path, f"nbformat {version} could not be upgraded: {error}", "open it in Jupyter and save it again"
        ) from error
    for cell in upgraded["cells"]:
        cell.pop("id", None)  # nbformat's are random
    notes.append(f"nbformat {version} was read as 4.5")
    return upgraded


def _cells(raw_cells: list[Any], version: tuple[int, int], notes: list[str]) -> list[NotebookCell]:
    taken = {cell["id"] for cell in raw_cells if isinstance(cell, dict) and is_valid(cell.get("id"))}
    used: set[str] = set()
    repaired: dict[str, list[str]] = {}
    cells: list[NotebookCell] = []
    for position, cell in enumerate(raw_cells):
        if not isinstance(cell, dict):
            repaired.setdefault("is no cell and is left out", []).append(f"{position + 1}")
            continue
        kind, source = cell.get("cell_type"), joined(cell.get("source"))
        if kind not in _TYPES:
            repaired.setdefault(f"is of unknown type {kind!r} and is read as raw", []).append(
                f"{position + 1}"
            )
            kind = "raw"
        clean = escape_text(source)
        if clean != source:
            repaired.setdefault("has lone surrogates in its source, escaped", []).append(f"{position + 1}")
        given = cell.get("id")
        cell_id = str(given)
        if not is_valid(given) or given in used:
            cell_id = derived_id(position, kind, clean, taken | used)
            what, where = "has no id: one is derived from place and content", f"{position + 1}"
            if given is not None:
                why = "is used twice" if given in used else "is no valid id"
                what, where = f"had the id {given!r}, which {why}", f"{where}, now {cell_id}"
            repaired.setdefault(what, []).append(where)
        used.add(cell_id)
        cells.append(_cell(cell_id, kind, clean, cell))
    notes += [_note(what, where, version) for what, where in repaired.items()]
    return cells


def _cell(cell_id: str, kind: str, source: str, cell: dict[str, Any]) -> NotebookCell:
    metadata, outputs, count = cell.get("metadata"), cell.get("outputs"), cell.get("execution_count")
    return NotebookCell(
        cell_id,
        kind,
        source,
        metadata if isinstance(metadata, dict) else {},
        outputs if isinstance(outputs, list) else [],
        count if isinstance(count, int) else None,
    )


def _note(what: str, where: list[str], version: tuple[int, int]) -> str:
    shown = some(where, _SHOWN, joint="; ")
    old = (
        f" (nbformat {version[0]}.{version[1]})" if version < (4, 5) and what.startswith("has no id") else ""
    )
    return f"cell {shown} {what}{old}"


def _note_surrogates(raw_cells: list[Any], notes: list[str]) -> None:
    found = [
        f"{position + 1}"
        for position, cell in enumerate(raw_cells)
        if isinstance(cell, dict) and any(map(_is_lone, _strings(cell.get("outputs"))))
    ]
    if found:
        notes.append(_note("has lone surrogates in its outputs, which are not read", found, (4, 5)))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


def _is_lone(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _text_in(metadata: dict[str, Any], *keys: str) -> str | None:
    value: Any = metadata
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) and value else None


def _invalid(path: Path, why: str, hint: str) -> InvalidNotebook:
    return InvalidNotebook(f"{path} is not a notebook: {why}", hint=hint, path=str(path))
