"""Jupyter sessions that survive everyone.

    import kernel_runtime as kr
    with kr.attach("alice", create=True) as s:
        s.execute("1 + 1").text

Importing this package loads nothing heavy: names are resolved on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernel_runtime.version import __version__

if TYPE_CHECKING:
    from kernel_runtime.client.blocking import Session, attach

__all__ = ["Session", "__version__", "attach"]

_LAZY = {"attach": "kernel_runtime.client.blocking", "Session": "kernel_runtime.client.blocking"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    if name in {"errors", "aio"}:
        from importlib import import_module

        return import_module(f"kernel_runtime.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
