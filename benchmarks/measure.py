"""Taking turns, and what is said of a series of times."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Series:
    """Seconds of one subject's rounds."""

    seconds: Sequence[float]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def __str__(self) -> str:
        return f"{spell(min(self.seconds))} / **{spell(self.median)}** / {spell(max(self.seconds))}"


@dataclass(frozen=True)
class Result:
    """One line of RESULTS.md. `ratio` is ours to theirs; None where a ratio says nothing."""

    what: str
    ours: str
    theirs: str
    ratio: float | None = None
    goal: float | None = None
    note: str = ""
    ok: bool | None = None
    """whether what has no ratio came out as it must"""
    details: Mapping[str, str] = field(default_factory=dict)

    @property
    def met(self) -> bool | None:
        if self.goal is not None and self.ratio is not None and self.ratio > self.goal:
            return False
        if self.ok is not None:
            return self.ok
        return True if self.goal is not None and self.ratio is not None else None


def spell(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"


def timed(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def in_turns(subjects: Mapping[str, Callable[[], object]], rounds: int, warm: int = 1) -> dict[str, Series]:
    """Time each subject once per round, in alternating order; `warm` rounds are not counted."""
    taken: dict[str, list[float]] = {name: [] for name in subjects}
    names = list(subjects)
    for number in range(warm + rounds):
        for name in names if number % 2 == 0 else reversed(names):
            gc.collect()
            seconds = timed(subjects[name])
            if number >= warm:
                taken[name].append(seconds)
    return {name: Series(seconds) for name, seconds in taken.items()}


def compared(
    what: str,
    series: Mapping[str, Series],
    *,
    goal: float | None = None,
    note: str = "",
    ok: bool | None = None,
) -> Result:
    """A result of `ours` against `theirs`, by their medians."""
    ours, theirs = series["ours"], series["theirs"]
    return Result(
        what=what,
        ours=str(ours),
        theirs=str(theirs),
        ratio=ours.median / theirs.median,
        goal=goal,
        note=note,
        ok=ok,
    )
