"""What a replay says: INTERFACE's `krt replay --json`, as a struct."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

SAME, NORMALIZED, DIFFERENT = "same", "same-normalized", "different"
NONDETERMINISTIC, SKIPPED = "nondeterministic", "skipped"
_ILL = (DIFFERENT, NONDETERMINISTIC, "missing", "new")
"""what speaks against a record; `unreadable` names say nothing"""


class Result(Struct, kw_only=True):
    """The verdict on a record and on each of its executions."""

    source: str
    verdict: str
    """the worst of all: `different`, `nondeterministic`, `same-normalized`, `same`"""
    executions: list[dict[str, Any]]
    """`{"execution_id", "cell_id", "verdict", "rules", "diff", "reason", …}`"""
    names: list[dict[str, Any]] = []
    """`{"name", "verdict"}`"""
    environment: dict[str, Any] = {}
    rules: dict[str, Any] = {}
    """by which outputs were compared: `{"on": [names], "relative", "absolute"}`"""
    kind: str = ""
    order: str = ""
    notes: list[str] = []
    integrity: dict[str, Any] = {}
    settings: list[dict[str, Any]] = []
    """what `--set` put where: `{"name", "value", "number", "after", "why"}`"""
    changed: list[dict[str, Any]] = []
    """executions that did not come out as recorded, each with what they read of what had changed"""
    sandbox: dict[str, Any] = {}
    """what kept the replay from the world: `{"kind": "bubblewrap|guard|none", "boundary", "notes"}`"""
    kept: str | None = None
    head: int = 0
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether nothing came out otherwise: all is `same`, `same-normalized` or `skipped`."""
        return all(row["verdict"] not in _ILL for row in (*self.executions, *self.names))
