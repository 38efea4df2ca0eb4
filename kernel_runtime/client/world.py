"""The client's part of the world of a session: its resources, and why a busy cell is busy."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from kernel_runtime.client.connection import ControlLine


class WorldCalls:
    """Methods of a session that are about what is around its heap."""

    _line: ControlLine

    async def resources(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Processes, sockets, files and terminals of the session, each with the execution that started it.

        Rows are `{"kind", "truth", "started_by", …}`, described in docs/world.md; at most `limit` of each
        kind. Not those of the session's own machinery.
        """
        arguments = {} if limit is None else {"limit": limit}
        rows: list[dict[str, Any]] = (await self._line.request("resources", arguments))["resources"]
        return rows

    async def why(self) -> dict[str, Any]:
        """`{"state", "why"}`: what the session is doing now, `why["activity"]` for a busy one."""
        return await self._line.request("why")


def activity_line(activity: Mapping[str, Any]) -> str:
    """What a busy cell does, in one line for people: `waiting on a child: sleep 60 (pid 4711)`."""
    evidence = activity.get("evidence") or {}
    parts = [str(activity.get("doing") or "unknown")]
    child = evidence.get("child") or next(iter(evidence.get("children") or []), None)
    if child:
        what = shlex.join(child.get("command") or ["?"])
        does = f", {child['doing']}" if child.get("doing") else ""
        parts.append(f"{what} (pid {child['pid']}{does})")
    elif evidence.get("peer") or evidence.get("address"):
        parts.append(f"{evidence.get('protocol')} {evidence.get('peer') or evidence['address']}")
    elif evidence.get("file") or evidence.get("terminal"):
        parts.append(str(evidence.get("file") or evidence["terminal"]))
    where = ""
    if cell := evidence.get("cell"):
        where = f", at line {cell['line']} of the cell"
    elif frame := evidence.get("frame"):
        where = f", in {frame['function']} ({frame['file']}:{frame['line']})"
    return ": ".join(parts) + where
