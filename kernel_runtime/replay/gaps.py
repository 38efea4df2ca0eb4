"""Outputs of which a journal holds only a part: what is there of both sides is what can be compared.

A bound (of an execution, a session, the disk) cuts the end off, somewhere between two messages. So where
either side has such a gap, the longer of two is cut to the length of the shorter one. A gap of any other
kind may be anywhere: then nothing is compared, and the step says why.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from kernel_runtime.replay.plan import Output, Plan, Ran, Run

_CUTS_THE_END = frozenset({"execution-bound", "session-bound", "disk"})


def what_is_there(plan: Plan, runs: Sequence[Run]) -> tuple[Plan, list[Run], dict[int, str]]:
    """Plan and runs with outputs that can be compared, and by step what is to be told of its gaps."""
    told: dict[int, str] = {}
    steps = list(plan.steps)
    rans = [list(run.ran) for run in runs]
    for index, step in enumerate(steps):
        sides = [step, *(ran[index].step for ran in rans)]
        there = [side for side in sides if side is not None]
        gaps = [(side, gap) for side in there for gap in side.gaps]
        if not gaps or len(there) < 2 or step.uncompared is not None:
            continue
        words = ", ".join(
            f"{gap['messages']} messages of the {'record' if side is step else 'replay'} ({gap['reason']})"
            for side, gap in gaps
        )
        if any(gap["reason"] not in _CUTS_THE_END for _, gap in gaps):
            steps[index] = replace(step, uncompared=f"gap: {words} are missing")
            continue
        told[step.number] = f"gap: {words} are missing; compared is what is there"
        cut = _cut([side.outputs for side in there], [bool(side.gaps) for side in there])
        trimmed = iter([replace(side, outputs=outputs) for side, outputs in zip(there, cut, strict=True)])
        steps[index] = next(trimmed)
        for ran in rans:
            if ran[index].step is not None:
                ran[index] = replace(ran[index], step=next(trimmed))
    return replace(plan, steps=steps), [_with(run, ran) for run, ran in zip(runs, rans, strict=True)], told


def _with(run: Run, ran: list[Ran]) -> Run:
    return replace(run, ran=ran)


def _cut(sides: list[list[Output]], gaps: list[bool]) -> list[list[Output]]:
    """All sides, none longer than the shortest of those that have gaps; an error at the end is kept there."""
    length = min(len(outputs) for outputs, gap in zip(sides, gaps, strict=True) if gap)
    cut = [list(outputs[:length]) for outputs in sides]
    shared = min(map(len, cut))
    streams = [at for at in range(shared) if all(outputs[at]["output_type"] == "stream" for outputs in cut)]
    if streams:
        at = streams[-1]
        characters = min(len(outputs[at]["text"]) for outputs, gap in zip(cut, gaps, strict=True) if gap)
        for outputs in cut:
            outputs[at] = {**outputs[at], "text": outputs[at]["text"][:characters]}
    return cut
