"""What the journal and notebook say, held against the live kernel: the truth of every cell and name.

Pure and total: any cells, any state, any notebook give a Report, and what is not known is `unknown`.
A cell is judged by its latest execution, the first that applies:

    not done                                    unknown     evidence: its status
    aborted, or never executed                  not-run     an empty cell that never ran is nothing
    outcome unknown                             unknown
    the incarnation is gone                     lost        evidence keeps the outcome
    error, interrupted, died                    partial
    ok, and the kernel does not tell of names   live
    ok, and the probe has not told of it        unknown     evidence: `observed` false
    ok                                          superseded, stale, unknown or live: core.standing
    ran, and the notebook's source differs      edited      evidence: what it `was` without the edit

An incarnation is gone when it is not the session's latest, or the state is `dead` or `stopped`. While
an execution runs, the verdicts are those of the last observation (`as_of`), unless a snapshot shows
more. When one has ended and was not told of yet, nobody knows what it did, and nothing is `live`.
Not promised: an effect on the world outside the heap is not judged, only what the execution left in
the kernel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from kernel_runtime.core import name_truth
from kernel_runtime.core.name_truth import NameCount, NamesNow
from kernel_runtime.core.projection import source_digest
from kernel_runtime.core.standing import judge
from kernel_runtime.model.execution import OUTCOMES, Cell, Heap, Name, Observation
from kernel_runtime.model.truth import CELL_TRUTHS, STATES, CellTruth, PlanStep, Report

TRUTHS = CELL_TRUTHS
"""worst first; all are in every `counts`"""

CountRow = tuple[int, str, str | None, int] | tuple[int, str, str | None, str, int]
"""`(incarnation, status, outcome, n)`: n cells whose latest execution is like that; or
`(incarnation, status, outcome, heap, n)` where `Cell.heap` is known as well"""

_GONE = name_truth.GONE
_RANK = {truth: rank for rank, truth in enumerate(CELL_TRUTHS)}
_SOURCE_SHOWN = 80
_EMPTY = source_digest("")


class HeapView(msgspec.Struct, frozen=True, kw_only=True):
    """What the entries tell of names, for a kernel that tells of them. Build it with `view`."""

    now: NamesNow
    observations: Mapping[str, Observation]
    """per cell"""
    running: str | None
    """the execution that runs"""
    awaiting: str | None
    """one that has ended and was not told of yet"""


def view(
    *,
    incarnation: int,
    names: Iterable[Name] = (),
    heap: Heap | None = None,
    observations: Mapping[str, Observation] | None = None,
    running: str | None = None,
    snapshot: Any = None,
) -> HeapView:
    """What is known of the names of the live kernel.

    Args:
        incarnation: the session's latest.
        names: every row, those of deleted names too; for a summary, those that the worst cells depend on.
        heap: of this incarnation; None: nothing was observed in it.
        observations: per cell.
        running: the execution that runs.
        snapshot: what the kernel shows now (`krt_probe_request`, op `snapshot`).
    """
    ended = [x for x in heap.awaited if x != running] if heap is not None else []
    awaiting = ended[-1] if ended else None
    now = name_truth.names_now(names, heap, incarnation, snapshot=snapshot, busy=running or awaiting)
    return HeapView(now=now, observations=observations or {}, running=running, awaiting=awaiting)


def verdict(cell_incarnation: int, status: str, outcome: str | None, *, incarnation: int, state: str) -> str:
    """The truth of a cell by its latest execution alone, without the notebook and without names."""
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
    heap: HeapView | None = None,
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
        heap: what is known of names; None: the kernel does not tell of them.
    """
    places = {cell_id: place for place, cell_id in enumerate(notebook_sources or ())}
    ranked: list[tuple[tuple[int, int, int], CellTruth]] = []
    known: set[str] = set()
    for cell in cells:
        known.add(cell.cell_id)
        truth = _judge(cell, incarnation, state, notebook=notebook_sources, sources=sources or {}, heap=heap)
        ranked.append(((_RANK[truth.truth], places.get(cell.cell_id, len(places)), cell.position), truth))
    for cell_id, place in places.items():
        # an empty cell waits for somebody to type into it
        if cell_id not in known and (notebook_sources or {}).get(cell_id) != _EMPTY:
            truth = CellTruth(cell_id=cell_id, truth="not-run", evidence={"executions": 0})
            ranked.append(((_RANK["not-run"], place, 0), truth))
    ranked.sort(key=lambda pair: pair[0])
    found = [truth for _, truth in ranked]
    listed = found if limit is None else found[:limit]
    counts = Counter(truth.truth for truth in found)
    names: list[dict[str, Any]] = []
    name_counts: dict[str, int] = {}
    if heap is not None:
        names = name_truth.name_truths(heap.now, incarnation=incarnation, state=state)
        name_counts = name_truth.all_counts(Counter(name["truth"] for name in names))
    return Report(
        session=session,
        incarnation=incarnation,
        state=state,
        cells=listed,
        names=names,
        plan=_plan(session, state, listed, counts),
        counts=_all_counts(counts),
        why=dict(why or {}),
        name_counts=name_counts,
    )


def summary_counts(
    rows: Iterable[CountRow], *, incarnation: int, state: str, heap: HeapView | None = None
) -> dict[str, int]:
    """`truth → cells`, as reconcile counts them when the notebook is as the journal left it.

    No snapshot is held against them: that takes every cell.
    """
    counts: Counter[str] = Counter()
    for row in rows:
        cell_incarnation, status, outcome = row[:3]
        truth = verdict(cell_incarnation, status, outcome, incarnation=incarnation, state=state)
        if truth == "live" and heap is not None:
            truth = (row[3] if len(row) == 5 else "") or "unknown"
            if truth == "live" and heap.awaiting is not None:
                truth = "unknown"
        counts[truth if truth in _RANK else "unknown"] += row[-1]
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
    heap: HeapView | None = None,
    names: Iterable[NameCount] = (),
) -> Report:
    """The report of an attach: all counts from `rows` and `names`, and only the `worst` cells listed.

    Costs what is given to it costs, however many cells and names there are.
    """
    report = reconcile(
        session=session,
        incarnation=incarnation,
        state=state,
        cells=worst,
        why=why,
        sources=sources,
        heap=heap,
    )
    counts = summary_counts(rows, incarnation=incarnation, state=state, heap=heap)
    known = heap is not None
    return msgspec.structs.replace(
        report,
        counts=counts,
        names=[],
        name_counts=name_truth.count_names(names, incarnation=incarnation, state=state) if known else {},
        plan=_plan(session, state, report.cells, Counter(counts)),
    )


def heap_loss(report: Report) -> dict[str, Any]:
    """`fields["report"]` of HeapLost: the report as JSON with what is lost only, and `lost`, how many."""
    lost = [cell for cell in report.cells if _is_lost(cell)]
    targets = {cell.cell_id for cell in lost} | {report.session}
    document: dict[str, Any] = msgspec.to_builtins(
        msgspec.structs.replace(
            report,
            cells=lost,
            names=[name for name in report.names if name["truth"] == "lost"],
            plan=[step for step in report.plan if step.target in targets],
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
    *,
    notebook: Mapping[str, str] | None,
    sources: Mapping[str, str],
    heap: HeapView | None,
) -> CellTruth:
    truth = verdict(cell.incarnation, cell.status, cell.outcome, incarnation=incarnation, state=state)
    evidence: dict[str, Any] = {
        "execution_id": cell.execution_id,
        "ran_in": cell.incarnation,
        "current": incarnation,
        "outcome": cell.outcome,
        "source_digest": cell.source_digest,
    }
    if truth == "live" and heap is not None:
        truth, told = _judge_by_names(cell, heap)
        evidence |= told
    elif truth in ("lost", "partial") and heap is not None and not _is_observed(cell, heap):
        evidence["observed"] = False
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


def _is_observed(cell: Cell, heap: HeapView) -> bool:
    observation = heap.observations.get(cell.cell_id)
    return observation is not None and observation.execution_id == cell.execution_id


def _judge_by_names(cell: Cell, heap: HeapView) -> tuple[str, dict[str, Any]]:
    observation = heap.observations.get(cell.cell_id)
    if observation is None or observation.execution_id != cell.execution_id:
        return "unknown", {"observed": False}
    now = heap.now
    truth, evidence = judge(observation, now.rows.get, now.heap, changed_now=bool(now.shown))
    if now.heap is not None:
        evidence["as_of"] = now.heap.seq
    if truth == "live" and heap.awaiting is not None:
        return "unknown", {**evidence, "awaiting": heap.awaiting}
    if now.shown and heap.running is not None:
        evidence["while"] = heap.running
    return truth, evidence


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
    steps += [_step(cell) for cell in cells if cell.truth not in ("live", "superseded")]
    if live := counts.get("live", 0):
        steps.append(PlanStep(action="keep", target=session, reason=f"{live} cells are live"))
    return steps


def _step(cell: CellTruth) -> PlanStep:
    evidence = cell.evidence
    if cell.truth == "lost" and cell.outcome != "ok" and evidence.get("observed") is False:
        action = "ask"
        reason = (
            f"it ended {cell.outcome} in incarnation {evidence['ran_in']}, which is gone; "
            "what it did outside the heap was not observed"
        )
    elif cell.truth == "lost":
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
    elif cell.truth == "stale":
        changed = ", ".join(sorted(evidence["changed"]))
        action, reason = "re-run", f"what it read is not as it was: {changed}"
    elif evidence.get("status") in ("queued", "running", "blocked"):
        action, reason = "wait", f"it is {evidence['status']}"
    elif cell.outcome == "ok" and evidence.get("awaiting"):
        action, reason = "wait", "what ran last has not been looked at yet"
    elif cell.outcome == "ok" and evidence.get("observed") is False:
        action, reason = "ask", "what it did was not observed"
    elif cell.outcome == "ok" and "observed" in evidence:
        action, reason = "ask", f"what it left may have changed unseen{_because(evidence)}"
    else:
        action, reason = "ask", "nobody can know how it ended"
    return PlanStep(action=action, target=cell.cell_id, reason=reason)


def _because(evidence: Mapping[str, Any]) -> str:
    names = sorted({*evidence.get("unsure", ()), *evidence.get("drifted", ())})
    return f": {', '.join(names)}" if names else ""


def _all_counts(counts: Mapping[str, int]) -> dict[str, int]:
    return {truth: counts.get(truth, 0) for truth in TRUTHS}
