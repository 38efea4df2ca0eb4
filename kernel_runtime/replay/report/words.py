"""Words that every report uses."""

from __future__ import annotations


def first_line(source: str, most: int = 80) -> str:
    """What names a cell: its first line that says something."""
    lines = source[:2000].strip().splitlines() or ["(empty)"]
    return lines[0] if len(lines[0]) <= most else lines[0][: most - 1] + "…"
