"""Refuses what a replay must not do, where Python asks: writing elsewhere, connecting, starting processes.

No security boundary: native code and whoever means to get around it are not held. It keeps an honest
program from doing again what it did when it was recorded, where there is no sandbox (replay/sandbox.py).

Every refusal is a PermissionError that says so, raised before the operation; the cell sees it as it would
see that of a read-only file system.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from typing import Any

from kernel_runtime.kernel.audited import EVENTS, OPEN, WRITES, Effect

_FILES = frozenset(("file", "database"))
_NETWORK = frozenset(("socket", "host", "url"))
_PATHS = ("path", "to", "from")
_SAID = "refused by the replay's guard"


def install(rules: dict[str, Any], *, own: list[str]) -> None:
    """From here on, in this process, for good.

    Args:
        rules: `{"writes": [paths], "network": bool, "processes": bool}`: what may be done.
        own: directories of the kernel's.
    """
    writes = [*rules["writes"], *own]
    sys.addaudithook(hook(writes, network=bool(rules["network"]), processes=bool(rules["processes"])))


def hook(writes: list[str], *, network: bool, processes: bool) -> Callable[[str, tuple[Any, ...]], None]:
    """The audit hook."""
    roots = tuple(root for place in writes for root in dict.fromkeys((place, os.path.realpath(place))))
    refused = {kind for kind, may in (("process", processes), ("kill", processes)) if not may}
    if not network:
        refused |= _NETWORK

    def asked(event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            # a descriptor that is open already was judged when it was opened
            if len(args) < 3 or type(args[0]) is int or type(args[2]) is not int or not args[2] & WRITES:
                return
            describe = OPEN
        else:
            known = EVENTS.get(event)
            if known is None:
                return
            describe = known
        effect = describe(args)
        if effect is not None and (effect[0] in _FILES or effect[0] in refused):
            _judge(effect, roots)

    return asked


def _judge(effect: Effect, roots: tuple[str, ...]) -> None:
    kind, how, fields = effect
    told = dict(fields)
    if kind == "socket" and told.get("family") == "unix" and _is_within(str(told.get("path")), roots):
        return
    if kind not in _FILES:
        target = told.get("host") or told.get("url") or told.get("path") or " ".join(told.get("argv", ()))
        raise PermissionError(errno.EPERM, f"{_SAID}: {kind} {how}", str(target))
    changed = [told["path"]]
    if how in ("rename", "move"):
        changed.append(told["to"])
    elif how == "link":
        changed = [told["to"]]
    for path in changed:
        if not _is_within(_placed(str(path), told), roots):
            raise PermissionError(errno.EROFS, f"{_SAID}: {kind} {how}", str(path))


def _placed(path: str, told: dict[str, Any]) -> str:
    """A path as links lead it; one that is told beside a directory, beside that."""
    if not path.startswith("/") and "cwd" in told:
        path = os.path.join(str(told["cwd"]), path)
    return os.path.realpath(path)


def _is_within(path: str, roots: tuple[str, ...]) -> bool:
    return any(path == root or path.startswith(f"{root}/") for root in roots)
