"""What a reconcile found, as the SDK hands it out: by name, and asked rather than searched."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import msgspec
from msgspec import Struct

from kernel_runtime.model.truth import CELL_TRUTHS, CellTruth, PlanStep, Report


class NameTruth(Struct, frozen=True, kw_only=True):
    """The verdict on one name of the heap."""

    name: str
    truth: str
    type: str | None = None
    bytes: int | None = None
    bound_by: str | None = None
    """execution_id that bound it last"""
    shares_with: list[str] = []
    would_survive: bool | None = None
    evidence: dict[str, Any] = {}


class Status:
    """A report of one moment. Changes nothing and is not updated.

    `cells` may hold only the worst ones (at attach: 20); `counts` always tells all.
    """

    def __init__(self, report: Report) -> None:
        self.report = report

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Status:
        return cls(msgspec.convert(document, Report))

    @property
    def session(self) -> str:
        return self.report.session

    @property
    def incarnation(self) -> int:
        return self.report.incarnation

    @property
    def state(self) -> str:
        """`starting`, `idle`, `busy`, `blocked`, `unresponsive`, `dead` or `stopped`."""
        return self.report.state

    @property
    def why(self) -> dict[str, Any]:
        """Evidence for `state`."""
        return self.report.why

    @property
    def counts(self) -> dict[str, int]:
        """How many cells have each truth."""
        return self.report.counts

    @property
    def plan(self) -> list[PlanStep]:
        """What could be done next; nothing of it happens by itself."""
        return self.report.plan

    @cached_property
    def cells(self) -> dict[str, CellTruth]:
        """By cell id, worst first."""
        return {cell.cell_id: cell for cell in sorted(self.report.cells, key=_badness)}

    @cached_property
    def names(self) -> dict[str, NameTruth]:
        """By name; empty where name-level truth is not to be had."""
        return {name["name"]: msgspec.convert(name, NameTruth) for name in self.report.names}

    @property
    def resources(self) -> list[dict[str, Any]]:
        """`{"kind", "truth", "started_by", …}`: what executions left behind outside the heap."""
        return self.report.resources

    @property
    def claims(self) -> list[dict[str, Any]]:
        """`{"text", "probe", "truth", "evidence"}`."""
        return self.report.claims

    @property
    def all_live(self) -> bool:
        return self.report.all_live

    def summary(self) -> str:
        """One line: `alice: incarnation 2, idle; 3 lost, 4 live`."""
        counts = ", ".join(f"{self.counts[truth]} {truth}" for truth in CELL_TRUTHS if self.counts.get(truth))
        return f"{self.session}: incarnation {self.incarnation}, {self.state}; {counts or 'no cells'}"

    def json(self) -> dict[str, Any]:
        """The document of `krt status --json`."""
        document: dict[str, Any] = msgspec.to_builtins(self.report)
        return document

    def __repr__(self) -> str:
        return f"<Status {self.summary()}>"


def _badness(cell: CellTruth) -> int:
    return CELL_TRUTHS.index(cell.truth) if cell.truth in CELL_TRUTHS else len(CELL_TRUTHS)
