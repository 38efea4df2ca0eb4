"""Cell ids as nbformat 4.5 allows them, the same each time they are made."""

from __future__ import annotations

import hashlib
import re

_VALID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_DIGITS = 12


def is_valid(cell_id: object) -> bool:
    return isinstance(cell_id, str) and _VALID.fullmatch(cell_id) is not None


def notebook_id(cell_id: str) -> str:
    """The id a cell of ours has in a file: itself where nbformat allows it, else derived from it."""
    return cell_id if is_valid(cell_id) else f"cell-{_digest(cell_id)}"


def derived_id(position: int, cell_type: str, source: str, taken: set[str]) -> str:
    """An id from a cell's place and content, not among `taken`."""
    for attempt in range(len(taken) + 1):
        candidate = _digest(f"{position}\0{cell_type}\0{source}\0{attempt or ''}")
        if candidate not in taken:
            return candidate
    raise AssertionError("more candidates than ids taken")


def version_id(cell_id: str, source: str) -> str:
    """The id of the cell that keeps another version of this cell's source."""
    return f"{cell_id[:48]}-{_digest(source)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:_DIGITS]
