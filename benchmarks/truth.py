"""What is said of random programs, held against the oracle of tests/property: is it true, is it enough.

`python -m benchmarks.truth 2000` for as many programs as you like; the result is a row as in RESULTS.md.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections import Counter
from random import Random

from benchmarks.measure import Result

_GOAL = 0.98
_CELLS = 14


def run(*, quick: bool = False, programs: int | None = None) -> list[Result]:
    # what the suite needs is needed only here
    from tests.property.heap_programs import program
    from tests.property.test_truth_oracle import check

    programs = programs or (20 if quick else 300)
    counts: Counter[str] = Counter()
    broken: list[str] = []
    threads_told, threading.excepthook = threading.excepthook, lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for seed in range(programs):
                # what exec did nobody can tell afterwards: there only a false `live` counts
                hidden = seed % 3 == 2
                cells = program(Random(seed), _CELLS, hidden=hidden)
                try:
                    check(cells, Counter() if hidden else counts)
                except AssertionError as error:
                    broken.append(f"program {seed}: {error}")
    finally:
        threading.excepthook = threads_told
    for line in broken:
        print(line, file=sys.stderr)
    return [
        Result(
            what=f"programs of {programs:,} in which something is called `live` that is not",
            ours=str(len(broken)),
            theirs="",
            ok=not broken,
            note=f"random, {_CELLS + 5} cells each, a third of them with exec and globals(); goal 0",
        ),
        *(_share(kind, counts) for kind in ("cells", "names")),
    ]


def _share(kind: str, counts: Counter[str]) -> Result:
    live, told = counts[f"{kind} live"], counts[f"{kind} called live"]
    return Result(
        what=f"{kind} called `live`, of those that are",
        ours=f"{told / live:.2%} of {live:,}",
        theirs="",
        ok=told >= _GOAL * live,
        note=f"in the programs without exec and globals(); goal {_GOAL:.0%}",
    )


if __name__ == "__main__":
    from benchmarks.__main__ import row

    for result in run(programs=int(sys.argv[1])):
        print(row(result))
