"""What a cell's own metadata says of what ran in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernel_runtime.core.projection import source_digest
from kernel_runtime.notebook.document import joined
from kernel_runtime.notebook.merge import OURS


def ran_digest(metadata: Mapping[str, Any]) -> str | None:
    """Digest of the source that ran, as the cell was written last; None where nothing is said."""
    ours = metadata.get(OURS)
    digest = ours.get("source_digest") if isinstance(ours, dict) else None
    return digest if isinstance(digest, str) else None


def is_as_run(cell: Mapping[str, Any]) -> bool:
    """Whether its source is what ran, for a cell as nbformat has it."""
    digest = ran_digest(cell["metadata"])
    return cell["cell_type"] == "code" and digest == source_digest(joined(cell["source"]))


def is_begun(source: str, based_on: str | None, ran: str) -> bool:
    """Whether a cell's text is no edit of what ran, but the beginning of it.

    Of what was typed just before it ran, the store of a server that was killed may have only the
    beginning. Such a cell knows of nothing that ran (`based_on`); one that does was edited.
    """
    return based_on is None and ran.startswith(source)
