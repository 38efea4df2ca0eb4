"""Outputs of which a journal holds only a part are not compared: where the hole is, nobody knows.

A bound leaves out what is too much at that moment, and takes the next smaller message again, so that a hole
may be in the middle of a word. Outcome, error, questions and names of such a step are compared all the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from kernel_runtime.core.outputs import missing
from kernel_runtime.replay.plan import Plan, Run, Step


def with_gaps(plan: Plan, runs: Sequence[Run]) -> Plan:
    """The plan with a reason (`gap: …`) at each step of whose outputs some are missing, on either side."""
    steps: list[Step] = []
    for index, step in enumerate(plan.steps):
        sides = [("record", step)]
        sides += [("replay", ran.step) for run in runs if (ran := run.ran[index]).step is not None]
        told = [
            f"in the {whose}, {missing(gap['reason'], gap['messages'], gap['bytes'])}"
            for whose, side in sides
            for gap in side.gaps
        ]
        if told and len(sides) > 1 and step.uncompared is None:
            step = replace(step, uncompared=f"gap: {'; '.join(told)}")  # noqa: PLW2901
        steps.append(step)
    return replace(plan, steps=steps)
