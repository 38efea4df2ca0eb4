"""The form that every source file has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
MAX_LINES = 600


def _sources() -> Iterator[Path]:
    """Also where there is no git, as in an sdist: without what npm and builds put beside them."""
    yield from ROOT.glob("*.py")
    for part in ("kernel_runtime", "tests", "benchmarks", "labextension/src", "labextension/test"):
        for directory, below, names in os.walk(ROOT / part):
            below[:] = [name for name in below if name != "node_modules" and not name.startswith(".")]
            yield from (Path(directory, name) for name in names if name.endswith((".py", ".ts", ".tsx")))


def test_no_source_file_is_too_long() -> None:
    """Right: what outgrew the limit is split by subject, not by line."""
    lines = {str(path.relative_to(ROOT)): path.read_bytes().count(b"\n") for path in _sources()}
    assert len(lines) > 100
    assert {name: count for name, count in lines.items() if count > MAX_LINES} == {}
