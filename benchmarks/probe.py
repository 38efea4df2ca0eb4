"""What looking at the heap costs: after a cell that touches little, after one that reads much, and in a loop.

The probe tells itself how long it looked (ExecutionObserved.nanoseconds), which is when reply and idle
are out. What a cell takes from request to idle is compared with a stock kernel, which looks at nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from benchmarks.lean import LeanClient
from benchmarks.measure import Result, Series, compared, spell, timed
from benchmarks.subjects import places, session, stock
from kernel_runtime.client.blocking import Session
from kernel_runtime.model.facts import ExecutionObserved
from kernel_runtime.wire import Message

_GOAL_SMALL = 1e-3
_GOAL_LARGE = 25e-3
_GOAL_REPLY = 1.05
_GOAL_LOOP = 1.02
_NAMES = 500
_ARRAYS = 40
_ROOM = 8 << 30
"""bytes of memory; with less there are fewer arrays"""
_ITEMS = 12_500_000
_SETUP = f"import numpy as np\na = np.ones({_ITEMS})"
_HEAP = """
for i in range({arrays} - 1):
    globals()[f'array{{i}}'] = np.full({items}, float(i))
def f(n):
    return 2 * n
a_small, l, d = np.arange(1000.0), [], {{}}
_makers = [
    lambda i: i,
    lambda i: f'text {{i}}',
    lambda i: [i, str(i), float(i)],
    lambda i: {{'a': i, 'b': [i]}},
    lambda i: np.arange(float(i)),
    lambda i: {{i, i + 1}},
    lambda i: (lambda: i),
    lambda i: (i, 'x' * i),
]
for i in range({names} - {arrays} - 7):
    globals()[f'name{{i}}'] = _makers[i % len(_makers)](i)
del _makers, i
x, s = 0, 0.0
"""
_SMALL = ["x = 1", "l.append(1)", "d['k'] = f(3)", "s = a_small.sum()"]
_LARGE = "a.sum()"
_STEP = "def step(n):\n    return n + 1"
_LOOPS = {
    "3,000,000 times `total += i` in a `for`": "total = 0\nfor i in range(3_000_000):\n    total += i",
    "1,500,000 calls of a function in a `while`": "n = 0\nwhile n < 1_500_000:\n    n = step(n)",
}
_TIMED = """
import time
began = time.process_time()
{source}
took = time.process_time() - began
"""


def run(*, quick: bool = False) -> list[Result]:
    if quick:
        return [*_looking(20, 5), *_loops(1, 4)]
    return [*_looking(200, 40), *_loops(5, 8)]


class _Ours:
    """A session's front door; after each execution it waits for what the probe saw."""

    def __init__(self, kept: Session, client: LeanClient) -> None:
        self._kept, self._client, self._after = kept, client, 0
        self._observed()  # what the session began with

    def execute(self, source: str) -> tuple[float, float]:
        """Seconds from request to idle, and seconds that the probe looked."""
        return timed(lambda: _run(self._client, source)), self._observed()

    def _observed(self) -> float:
        for entry in self._kept.follow(self._after, timeout=60):
            self._after = entry.seq
            if isinstance(entry.fact, ExecutionObserved):
                return entry.fact.nanoseconds / 1e9
        raise TimeoutError("nothing was observed")


@contextmanager
def _ours() -> Iterator[_Ours]:
    with session() as (kept, front), LeanClient(front) as client:
        yield _Ours(kept, client)


@contextmanager
def _theirs(root: Path) -> Iterator[Callable[[str], float]]:
    with stock(root) as (bare, _, _), LeanClient(bare) as client:
        yield lambda source: timed(lambda: _run(client, source))


def _run(client: LeanClient, source: str) -> None:
    reply = client.execute(source)
    assert reply["status"] == "ok", reply


# -- after an execution


def _looking(small: int, large: int) -> list[Result]:
    room = psutil.virtual_memory().available
    arrays = min(_ARRAYS, max(2, int(_ARRAYS * room / _ROOM)))
    with places() as root, _ours() as ours, _theirs(root) as theirs:
        ours.execute(_SETUP)
        theirs(_SETUP)
        ours.execute(_HEAP.format(arrays=arrays, items=_ITEMS, names=_NAMES))
        heap = f"{_NAMES} names, {arrays * 8 * _ITEMS / 1e9:.1f} GB in {arrays} arrays"
        if arrays < _ARRAYS:
            heap += f" (for 4 GB there is too little memory: {room / 2**30:.1f} GiB)"
        results = [_after_small(ours, source, small, heap) for source in _SMALL]
        return [*results, *_after_large(ours, theirs, large, heap)]


def _after_small(ours: _Ours, source: str, rounds: int, heap: str) -> Result:
    looks = Series([ours.execute(source)[1] for _ in range(rounds + 2)][2:])
    return Result(
        what=f"looking at the heap after `{source}`",
        ours=str(looks),
        theirs="",
        ok=looks.median <= _GOAL_SMALL,
        note=f"{rounds} executions, {heap}; goal {spell(_GOAL_SMALL)}, median",
    )


def _after_large(ours: _Ours, theirs: Callable[[str], float], rounds: int, heap: str) -> list[Result]:
    both, alone = [], []
    for number in range(rounds + 2):
        if number % 2:
            alone.append(theirs(_LARGE))
        both.append(ours.execute(_LARGE))
        if not number % 2:
            alone.append(theirs(_LARGE))
    replies, looks = (Series(seconds[2:]) for seconds in zip(*both, strict=True))
    return [
        Result(
            what=f"looking at the heap after `{_LARGE}` of 100 MB",
            ours=str(looks),
            theirs="",
            ok=looks.median <= _GOAL_LARGE,
            note=f"{rounds} executions, {heap}; goal {spell(_GOAL_LARGE)}, median",
        ),
        compared(
            f"`{_LARGE}` of 100 MB, from request to idle",
            {"ours": replies, "theirs": Series(alone[2:])},
            goal=_GOAL_REPLY,
            note="looking comes after: each cell waits until that of the one before is over",
        ),
    ]


# -- while one runs


def _loops(pairs: int, rounds: int) -> list[Result]:
    taken: dict[str, list[tuple[list[float], list[float]]]] = {what: [] for what in _LOOPS}
    for _ in range(pairs):
        with (
            places() as root,
            session() as (_, front),
            stock(root) as (bare, _, _),
            LeanClient(front) as ours,
            LeanClient(bare) as theirs,
        ):
            for client in (ours, theirs):
                _run(client, _STEP)
            for what, source in _LOOPS.items():
                taken[what].append(_in_turns(ours, theirs, source, rounds))
    return [_loop(what, series, rounds) for what, series in taken.items()]


def _in_turns(
    ours: LeanClient, theirs: LeanClient, source: str, rounds: int
) -> tuple[list[float], list[float]]:
    here, there = [], []
    for number in range(rounds):
        if number % 2:
            there.append(_processor_time(theirs, source))
        here.append(_processor_time(ours, source))
        if not number % 2:
            there.append(_processor_time(theirs, source))
    return here, there


def _processor_time(client: LeanClient, source: str) -> float:
    """What the cell cost its kernel, all threads; another process's turn does not count."""
    _run(client, _TIMED.format(source=source))
    told: list[str] = []
    client.execute("print(took)", lambda message: told.extend(_printed(message)))
    return float("".join(told))


def _printed(message: Message) -> list[str]:
    return [message.content_dict()["text"]] if message.header.msg_type == "stream" else []


def _loop(what: str, series: list[tuple[list[float], list[float]]], rounds: int) -> Result:
    """Two processes with the same code differ by where the machine put them, so there are several pairs."""
    ratios = [min(ours) / min(theirs) for ours, theirs in series]
    ours, theirs = ([seconds for pair in series for seconds in pair[side]] for side in (0, 1))
    return Result(
        what=what,
        ours=str(Series(ours)),
        theirs=str(Series(theirs)),
        ratio=statistics.median(ratios),
        goal=_GOAL_LOOP,
        note=f"globals; processor time of the kernel; ratio of the minima of {rounds} rounds, median of "
        f"{len(series)} pairs of kernels ({', '.join(f'{ratio:.3f}' for ratio in sorted(ratios))})",
    )
