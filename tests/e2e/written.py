"""Files that a session's processes write while a test looks through them."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tests.support import eventually

T = TypeVar("T")


def looked_at(look: Callable[[Path], T], *places: Path) -> dict[Path, T]:
    """What `look` finds of all that lies under them."""
    found: dict[Path, T] = {}

    def at_all_of_them() -> bool:
        found.clear()
        try:
            found.update((path, look(path)) for place in places for path in place.rglob("*"))
        except FileNotFoundError:
            # a draft that was renamed: its new name may have come after the listing, so list again
            return False
        return True

    eventually(at_all_of_them, what="a look during which no file is renamed or removed")
    return found


def contents(*places: Path) -> dict[Path, bytes]:
    """The bytes of each file under them."""
    found = looked_at(_content, *places)
    return {path: content for path, content in found.items() if content is not None}


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if stat.S_ISREG(path.stat().st_mode) else None
