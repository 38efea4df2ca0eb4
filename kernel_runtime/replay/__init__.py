"""Run a record again in a fresh kernel, and say of each execution whether it came out the same.

`replay` is the one call; `plan` says what is run, `driver` runs it in a private session, `compare` and
`verdict` judge. Nothing here changes the record that is replayed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernel_runtime.replay.audit import replay

__all__ = ["replay"]


def __getattr__(name: str) -> Any:
    if name == "replay":
        from kernel_runtime.replay.audit import replay

        return replay
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
