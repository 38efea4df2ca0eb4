"""Files that a record itself left in its working directory: a replay begins with them.

The copy that a replay works in is of today's directory, not of the one that the record began with. A cell
that looked for a file before another one wrote it finds it now, and comes out otherwise; a reader of the
verdict has to know. Not promised: files that a child process or native code wrote (docs/effects.md: unseen).
"""

from __future__ import annotations

import os
from pathlib import Path

from kernel_runtime.core.listing import some
from kernel_runtime.replay.plan import Plan

_SHOWN = 3
_MADE = frozenset(
    ("write", "append", "create", "update", "copy", "rename", "move", "link", "symlink", "mkdir")
)


def note_of(plan: Plan) -> list[str]:
    """What the result says of it; nothing where there is no such file."""
    there = [name for name in _made(plan) if (Path(plan.cwd) / name).exists()]
    if not there:
        return []
    told = some(there, _SHOWN)
    return [f"{told} in the working directory: the record itself wrote that, and the replay begins with it"]


def _made(plan: Plan) -> list[str]:
    """Paths beneath the working directory, in the order in which they were written."""
    root = os.path.join(plan.cwd, "")
    found: dict[str, None] = {}
    for step in plan.steps:
        for effect in (step.effects or {}).get("seen", ()):
            if effect.get("kind") == "file" and effect.get("how") in _MADE:
                path = os.path.join(plan.cwd, str(effect.get("to") or effect.get("path") or ""))
                if path.startswith(root) and path != root:
                    found[path.removeprefix(root)] = None
    return list(found)
