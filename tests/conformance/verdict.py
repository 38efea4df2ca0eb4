"""Hold one run of a suite against another: pure, so that it is tested without running anything.

The law: a test that stock passes, ours passes. What stock itself fails proves nothing about us, and is
counted. A test that fails in the full run and passes alone is called unsteady, for stock and for ours
alike; it is shown, and it does not fail the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

PASSED, FAILED, SKIPPED, UNSTEADY, MISSING = "passed", "failed", "skipped", "unsteady", "missing"


@dataclass(frozen=True)
class Exemption:
    """A difference that is left so on purpose."""

    suite: str
    test: str
    reason: str

    def covers(self, suite: str, test: str) -> bool:
        return suite == self.suite and fnmatchcase(test, self.test)


@dataclass(frozen=True)
class Verdict:
    """What one suite says. `regressions` fail the run."""

    suite: str
    stock: Mapping[str, int]
    ours: Mapping[str, int]
    regressions: Sequence[str] = ()
    excepted: Mapping[str, str] = field(default_factory=dict)
    """test to reason"""
    both_fail: Sequence[str] = ()
    unsteady: Sequence[str] = ()
    unused: Sequence[str] = ()
    """exemptions that cover nothing any more: remove them"""

    @property
    def ok(self) -> bool:
        return not self.regressions and not self.unused


def judge(
    suite: str, stock: Mapping[str, str], ours: Mapping[str, str], exemptions: Sequence[Exemption]
) -> Verdict:
    """Compare outcomes by test; `ours` lacking a test that stock ran counts as `missing`, a regression."""
    regressions: list[str] = []
    excepted: dict[str, str] = {}
    used: set[Exemption] = set()
    for test in sorted(stock):
        theirs, mine = stock[test], ours.get(test, MISSING)
        if mine in (PASSED, UNSTEADY) or theirs == FAILED or (theirs == SKIPPED and mine == SKIPPED):
            continue
        exemption = next((e for e in exemptions if e.covers(suite, test)), None)
        if exemption is None:
            regressions.append(f"{test} ({theirs} on stock, {mine} here)")
        else:
            used.add(exemption)
            excepted[test] = exemption.reason
    return Verdict(
        suite=suite,
        stock=_count(stock),
        ours=_count(ours),
        regressions=regressions,
        excepted=excepted,
        both_fail=sorted(t for t, o in stock.items() if o == FAILED and ours.get(t) == FAILED),
        unsteady=sorted({t for run in (stock, ours) for t, o in run.items() if o == UNSTEADY}),
        unused=[e.test for e in exemptions if e.suite == suite and e not in used],
    )


def _count(outcomes: Mapping[str, str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for outcome in outcomes.values():
        counts[outcome] = counts.get(outcome, 0) + 1
    return counts
