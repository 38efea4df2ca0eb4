"""RESULTS.md as the benchmarks write it."""

from __future__ import annotations

from benchmarks.__main__ import document, updated
from benchmarks.measure import Result


def _result(what: str, ours: str) -> Result:
    return Result(what=what, ours=ours, theirs="")


def test_rows_that_were_measured_again_take_the_place_of_the_old_ones() -> None:
    before = document([_result("attach", "1 ms"), _result("output", "2 ms")])
    after = updated(before, [_result("output", "3 ms"), _result("replay", "4 ms")])
    assert after == document(
        [_result("attach", "1 ms"), _result("output", "3 ms"), _result("replay", "4 ms")]
    )
