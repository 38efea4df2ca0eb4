"""A shared document's content as the file holds it: what the supervisor's merge would leave as it is.

In the document the metadata of ours tells what ran. In the file it tells too where people's hand shows:
`edited` where a cell's source is not what ran, `not-run` in code cells that never did.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from kernel_runtime.core.projection import source_digest
from kernel_runtime.notebook.document import cell_bytes, document_bytes, joined, lined, lines
from kernel_runtime.notebook.ids import derived_id, is_valid
from kernel_runtime.notebook.merge import OURS


def as_saved(content: dict[str, Any], ran: Container[str]) -> dict[str, Any]:
    """The content for the file. `ran`: ids of cells that the journal knows."""
    metadata = {key: value for key, value in content["metadata"].items() if not _is_filler(key, value)}
    return {
        **content,
        "cells": [_cell(cell, known=cell.get("id") in ran) for cell in content["cells"]],
        "metadata": metadata,
    }


def as_bytes(content: dict[str, Any]) -> bytes:
    """A notebook file of it, laid out as Jupyter does."""
    cells = [
        {**cell, "source": lines(joined(cell["source"]))}
        | ({"outputs": lined(cell["outputs"])} if cell["cell_type"] == "code" else {})
        for cell in content["cells"]
    ]
    metadata = {key: value for key, value in content["metadata"].items() if not _is_filler(key, value)}
    return document_bytes(map(cell_bytes, cells), metadata, content["nbformat_minor"])


def with_ids(content: dict[str, Any]) -> dict[str, Any]:
    """A file's content with one id for each cell, as `notebook.merge` gives them, and texts in one piece."""
    cells: list[dict[str, Any]] = []
    given = {cell["id"] for cell in content["cells"] if is_valid(cell.get("id"))}
    used: set[str] = set()
    for position, cell in enumerate(content["cells"]):
        cell_id, source = cell.get("id"), joined(cell.get("source"))
        if not isinstance(cell_id, str) or not is_valid(cell_id) or cell_id in used:
            cell_id = derived_id(position, str(cell.get("cell_type")), source, given | used)
        used.add(cell_id)
        cells.append({**cell, "id": cell_id, "source": source, "metadata": cell.get("metadata") or {}})
    return {**content, "cells": cells}


def _cell(cell: dict[str, Any], *, known: bool) -> dict[str, Any]:
    metadata = cell.get("metadata") or {}
    ours = metadata.get(OURS)
    ours = ours if isinstance(ours, dict) else {}
    written = ours.get("source_digest")
    if known and cell["cell_type"] == "code" and isinstance(written, str):
        ours = {key: value for key, value in ours.items() if key != "truth"}
        if source_digest(joined(cell.get("source"))) != written:
            ours["truth"] = "edited"
        return {**cell, "metadata": {**metadata, OURS: ours}}
    derived = (OURS, "execution") if written is not None else (OURS,)
    metadata = {key: value for key, value in metadata.items() if key not in derived}
    if cell["cell_type"] == "code":
        kept = {"edit_of": ours["edit_of"]} if "edit_of" in ours else {}
        metadata[OURS] = {"truth": "not-run", **kept}
    return {**cell, "metadata": metadata}


def _is_filler(key: str, value: Any) -> bool:
    """What a shared document puts in where a notebook does not say."""
    return (key == "language_info" and value == {"name": ""}) or (
        key == "kernelspec" and isinstance(value, dict) and not value.get("name")
    )
