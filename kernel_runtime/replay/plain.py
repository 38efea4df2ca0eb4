"""Verdicts by plain equality."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kernel_runtime.replay.downstream import Cause
from kernel_runtime.replay.plan import Plan, Ran, Run, Step
from kernel_runtime.replay.result import DIFFERENT, NONDETERMINISTIC, SAME, SKIPPED, Result


def judged(plan: Plan, runs: Sequence[Run], causes: Mapping[int, Cause]) -> Result:
    """The result of one or two runs of a plan."""
    rows = []
    for index, step in enumerate(plan.steps):
        if not step.injected:
            rows.append(_row(step, [run.ran[index] for run in runs], causes.get(step.number)))
    names = _names(plan, runs)
    verdicts = {row["verdict"] for row in (*rows, *names)}
    return Result(
        source=plan.source,
        verdict=next((one for one in (DIFFERENT, NONDETERMINISTIC) if one in verdicts), SAME),
        executions=rows,
        names=names,
        kind=plan.kind,
        order=plan.order,
        notes=plan.notes,
        changed=[
            {
                "execution_id": row["execution_id"],
                "number": row["number"],
                "because": row["after"] or None,
            }
            for row in rows
            if row["verdict"] not in (SAME, SKIPPED)
        ],
        head=plan.head,
        seconds=sum(run.seconds for run in runs),
    )


def _row(step: Step, ran: Sequence[Ran], cause: Cause | None) -> dict[str, Any]:
    first = ran[0]
    row = {
        "execution_id": step.execution_id,
        "cell_id": step.cell_id,
        "number": step.number,
        "verdict": SAME,
        "rules": [],
        "diff": None,
        "reason": None,
        "remarks": [remark for one in ran for remark in one.remarks],
        "asked": [msgspec.to_builtins(asked) for asked in first.asked],
        "after": msgspec.to_builtins(cause) if cause is not None else None,
    }
    if first.step is None:
        return row | {"verdict": SKIPPED, "reason": first.skip}
    again = ran[1].step if len(ran) > 1 else first.step
    if again is None or _shown(first.step) != _shown(again):
        return row | {"verdict": NONDETERMINISTIC, "reason": "two replays disagree"}
    if step.uncompared is not None and step.outcome in (None, first.step.outcome):
        return row | {"verdict": SKIPPED if step.outcome is None else SAME, "reason": step.uncompared}
    differs = [asked.prompt for asked in first.asked if asked.differs]
    if differs or first.unasked:
        return row | {"verdict": DIFFERENT, "reason": "it asked other questions"}
    if _shown(step) != _shown(first.step):
        return row | {"verdict": DIFFERENT, "reason": "outputs or outcome differ"}
    return row


def _shown(step: Step) -> Any:
    outputs = [{k: v for k, v in output.items() if k != "execution_count"} for output in step.outputs]
    return step.outcome, outputs


def _names(plan: Plan, runs: Sequence[Run]) -> list[dict[str, Any]]:
    if plan.names is None or runs[0].names is None:
        return []
    recorded = {name.name: name.digest for name in plan.names}
    replayed = {name.name: name.digest for name in runs[0].names}
    return [
        {"name": name, "verdict": SAME if recorded.get(name) == replayed.get(name) else DIFFERENT}
        for name in sorted(recorded.keys() | replayed.keys())
    ]
