"""Verdicts and reports."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

CELL_TRUTHS = (
    "lost",
    "unknown",
    "partial",
    "edited",
    "stale",
    "not-run",
    "superseded",
    "recomputed",
    "restored",
    "live",
)
"""worst first: the order in which tables print them"""

NAME_TRUTHS = ("lost", "drifted", "unreadable", "recomputed", "restored", "live")
"""worst first"""

STATES = ("starting", "idle", "busy", "blocked", "unresponsive", "dead", "stopped")


class CellTruth(Struct, frozen=True, kw_only=True):
    cell_id: str
    truth: str
    execution_id: str | None = None
    outcome: str | None = None
    evidence: dict[str, Any] = {}


class PlanStep(Struct, frozen=True, kw_only=True):
    action: str
    """`keep`, `re-run`, `wait`, `ask`, `restart`"""
    target: str
    reason: str
    cost: str | None = None


class Report(Struct, frozen=True, kw_only=True):
    """What reconcile found. `cells` may hold only the worst; `counts` always tells all."""

    session: str
    incarnation: int
    state: str
    cells: list[CellTruth] = []
    names: list[dict[str, Any]] = []
    resources: list[dict[str, Any]] = []
    claims: list[dict[str, Any]] = []
    plan: list[PlanStep] = []
    counts: dict[str, int] = {}
    why: dict[str, Any] = {}
    """evidence for `state`"""
    name_counts: dict[str, int] = {}
    """`truth → names`, as `counts` of cells; empty where the kernel does not tell of names"""

    @property
    def all_live(self) -> bool:
        """Nothing is known to be amiss; what cannot be compared or was not checked is not amiss."""
        cells = all(n == 0 for truth, n in self.counts.items() if truth not in _FINE)
        names = all(n == 0 for truth, n in self.name_counts.items() if truth not in _FINE_NAMES)
        claims = all(claim.get("truth") != "false" for claim in self.claims)
        return cells and names and claims and self.state not in ("dead", "unresponsive")


_FINE = ("live", "superseded", "restored", "recomputed")
_FINE_NAMES = ("live", "unreadable", "restored", "recomputed")
