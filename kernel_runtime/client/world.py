"""The client's part of the world of a session: its resources, and why a busy cell is busy."""

from __future__ import annotations

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
