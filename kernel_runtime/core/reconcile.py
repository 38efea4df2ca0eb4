"""What the journal and notebook say, held against the live kernel: the truth of every cell.

Pure and total: any cells, any state, any notebook give a Report, and what is not known is `unknown`.
A cell is judged by its latest execution:

    not done                                    unknown   evidence: its status
    aborted, or never executed                  not-run
    outcome unknown                             unknown
    ok, this incarnation, kernel alive          live
    error, interrupted, died, this incarnation  partial
    any of these, and the incarnation is gone   lost      evidence keeps the outcome
    ran, and the notebook's source differs      edited    evidence: what it `was` without the edit

An incarnation is gone when it is not the session's latest, or the state is `dead` or `stopped`.
Not promised: truth of names. An effect on the world outside the heap is not judged, only what the
execution left in the kernel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from kernel_runtime.model.execution import OUTCOMES, Cell
from kernel_runtime.model.truth import CELL_TRUTHS, STATES, CellTruth, PlanStep, Report

TRUTHS = ("lost", "unknown", "partial", "edited", "not-run", "live")
"""the truths this module gives, worst first; all are in every `counts`"""

CountRow = tuple[int, str, str | None, int]
"""`(incarnation, status, outcome, n)`: n cells whose latest execution is like that"""

_GONE = ("dead", "stopped")
_RANK = {truth: rank for rank, truth in enumerate(CELL_TRUTHS)}
_SOURCE_SHOWN = 80


def verdict(cell_incarnation: int, status: str, outcome: str | None, *, incarnation: int, state: str) -> str:
    """The truth of a cell by its latest execution alone, without the notebook."""
    if status != "done" or outcome not in OUTCOMES or state not in STATES:
        return "unknown"
    if outcome == "aborted":
        return "not-run"
    if outcome == "unknown" or cell_incarnation > incarnation:
        return "unknown"
    if cell_incarnation < incarnation or state in _GONE:
        return "lost"
    return "live" if outcome == "ok" else "partial"


def reconcile(
    *,
    session: str,
    incarnation: int,
    state: str,
    cells: Iterable[Cell],
    notebook_sources: Mapping[str, str] | None = None,
    why: Mapping[str, Any] | None = None,
    sources: Mapping[str, str] | None = None,
    limit: int | None = None,
) -> Report:
    """Every cell's truth, worst first, then in notebook order; `limit` cuts cells, never counts.

    Args:
        session: its name, for the report and the plan.
        incarnation: the session's latest.
        state: one of STATES; any other is taken as not known.
        cells: in any order.
        notebook_sources: code cells of the notebook people read, `cell_id → sha256 of source`, in its order;
            None when it was not read.
        why: evidence for the state.
        sources: `execution_id → source`; its first line is shown in the evidence.
        limit: how many cells to list.
    """
    places = {cell_id: place for place, cell_id in enumerate(notebook_sources or ())}
    ranked: list[tuple[tuple[int, int, int], CellTruth]] = []
    known: set[str] = set()
    for cell in cells:
        known.add(cell.cell_id)
        truth = _judge(cell, incarnation, state, notebook_sources, sources or {})
        ranked.append(((_RANK[truth.truth], places.get(cell.cell_id, len(places)), cell.position), truth))
    for cell_id, place in places.items():
        if cell_id not in known:
            truth = CellTruth(cell_id=cell_id, truth="not-run", evidence={"executions": 0})
            ranked.append(((_RANK["not-run"], place, 0), truth))
    ranked.sort(key=lambda pair: pair[0])
    found = [truth for _, truth in ranked]
    listed = found if limit is None else found[:limit]
    counts = Counter(truth.truth for truth in found)
    return Report(
        session=session,
        incarnation=incarnation,
        state=state,
        cells=listed,
        plan=_plan(session, state, listed, counts),
        counts=_all_counts(counts),
        why=dict(why or {}),
    )


def summary_counts(rows: Iterable[CountRow], *, incarnation: int, state: str) -> dict[str, int]:
    """`truth → cells`, as reconcile counts them when the notebook is as the journal left it."""
    counts: Counter[str] = Counter()
    for cell_incarnation, status, outcome, n in rows:
        counts[verdict(cell_incarnation, status, outcome, incarnation=incarnation, state=state)] += n
    return _all_counts(counts)


def summary(
    *,
    session: str,
    incarnation: int,
    state: str,
    rows: Iterable[CountRow],
    worst: Iterable[Cell] = (),
    why: Mapping[str, Any] | None = None,
    sources: Mapping[str, str] | None = None,
) -> Report:
    """The report of an attach: all counts from `rows`, and only the `worst` cells listed.

    Costs what `rows` and `worst` cost, however many cells there are.
    """
    report = reconcile(
        session=session,
        incarnation=incarnation,
        state=state,
        cells=worst,
        why=why,
        sources=sources,
    )
    counts = summary_counts(rows, incarnation=incarnation, state=state)
    return msgspec.structs.replace(
        report, counts=counts, plan=_plan(session, state, report.cells, Counter(counts))
    )


def heap_loss(report: Report) -> dict[str, Any]:
    """`fields["report"]` of HeapLost: the report as JSON with the lost cells only, and `lost`, how many."""
    lost = [cell for cell in report.cells if _is_lost(cell)]
    targets = {cell.cell_id for cell in lost} | {report.session}
    document: dict[str, Any] = msgspec.to_builtins(
        msgspec.structs.replace(
            report, cells=lost, plan=[step for step in report.plan if step.target in targets]
        )
    )
    document["lost"] = report.counts.get("lost", len(lost))
    return document


def _is_lost(cell: CellTruth) -> bool:
    return cell.truth == "lost" or cell.evidence.get("was") == "lost"


def _judge(
    cell: Cell,
    incarnation: int,
    state: str,
    notebook: Mapping[str, str] | None,
    sources: Mapping[str, str],
) -> CellTruth:
    truth = verdict(cell.incarnation, cell.status, cell.outcome, incarnation=incarnation, state=state)
    evidence: dict[str, Any] = {
        "execution_id": cell.execution_id,
        "ran_in": cell.incarnation,
        "current": incarnation,
        "outcome": cell.outcome,
        "source_digest": cell.source_digest,
    }
    if cell.status != "done":
        evidence["status"] = cell.status
    if state not in STATES:
        evidence["state"] = state
    if cell.executions > 1:
        evidence["executions"] = cell.executions
    if first := _first_line(sources.get(cell.execution_id)):
        evidence["source"] = first
    if notebook is not None:
        in_notebook = notebook.get(cell.cell_id)
        if in_notebook is None:
            evidence["in_notebook"] = False
        elif in_notebook != cell.source_digest:
            evidence["notebook_digest"] = in_notebook
            if truth != "not-run":
                evidence["was"] = truth
                truth = "edited"
    return CellTruth(
        cell_id=cell.cell_id,
        truth=truth,
        execution_id=cell.execution_id,
        outcome=cell.outcome,
        evidence=evidence,
    )


def _first_line(source: str | None) -> str:
    line = next((line for line in (source or "").splitlines() if line.strip()), "")
    return line if len(line) <= _SOURCE_SHOWN else line[: _SOURCE_SHOWN - 1] + "…"


def _plan(session: str, state: str, cells: Sequence[CellTruth], counts: Mapping[str, int]) -> list[PlanStep]:
    """What could be done next; nothing in it happens by itself."""
    steps: list[PlanStep] = []
    if state in _GONE:
        steps.append(PlanStep(action="restart", target=session, reason=f"the kernel is {state}"))
    elif state == "unresponsive":
        steps.append(PlanStep(action="wait", target=session, reason="the kernel lives and does not answer"))
    steps += [_step(cell) for cell in cells if cell.truth != "live"]
    if live := counts.get("live", 0):
        steps.append(PlanStep(action="keep", target=session, reason=f"{live} cells are live"))
    return steps


def _step(cell: CellTruth) -> PlanStep:
    evidence = cell.evidence
    if cell.truth == "lost":
        action, reason = (
            "re-run",
            f"it ended {cell.outcome} in incarnation {evidence['ran_in']}, which is gone",
        )
    elif cell.truth == "partial":
        action, reason = "ask", f"it ended {cell.outcome}: some of it happened"
    elif cell.truth == "edited":
        action, reason = (
            "ask",
            f"the notebook's source is not the source that ran (which is {evidence['was']})",
        )
    elif cell.truth == "not-run":
        action, reason = "re-run", "it never started" if cell.execution_id else "it was never executed"
    elif evidence.get("status") in ("queued", "running", "blocked"):
        action, reason = "wait", f"it is {evidence['status']}"
    else:
        action, reason = "ask", "nobody can know how it ended"
    return PlanStep(action=action, target=cell.cell_id, reason=reason)


def _all_counts(counts: Mapping[str, int]) -> dict[str, int]:
    return {truth: counts.get(truth, 0) for truth in TRUTHS}
