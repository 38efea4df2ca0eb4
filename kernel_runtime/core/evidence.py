"""A cell's evidence in words: what people read beside its truth, in a terminal and in a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def in_words(cell: Mapping[str, Any]) -> str:
    """Of a cell as reports have it; empty where there is nothing to add to its truth."""
    evidence = cell.get("evidence") or {}
    parts = []
    ran, current = evidence.get("ran_in"), evidence.get("current")
    if ran is not None and (ran != current or cell.get("truth") == "lost"):
        parts.append(f"ran in incarnation {ran}" + (f", now {current}" if ran != current else ""))
    if status := evidence.get("status"):
        parts.append(str(status))
    if was := evidence.get("was"):
        parts.append(f"was {was}; the notebook's source differs")
    for name, change in (evidence.get("changed") or {}).items():
        by = change.get("by")
        parts.append(f"{name} was changed " + (f"by {by[:8]}" if by else "outside any execution"))
    for name, by in (evidence.get("superseded_by") or {}).items():
        parts.append(f"{name} bound again" + (f" by {by[:8]}" if by else ""))
    if evidence.get("drifted"):
        parts.append("drifted: " + ", ".join(evidence["drifted"]))
    if evidence.get("dynamic"):
        parts.append("cannot be followed: " + ", ".join(evidence["dynamic"]))
    if evidence.get("awaiting"):
        parts.append(f"what {evidence['awaiting'][:8]} did is not known yet")
    if reason := evidence.get("reason"):
        parts.append(str(reason))
    return "; ".join(parts)
