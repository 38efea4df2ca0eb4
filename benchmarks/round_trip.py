"""One small execution: request to reply and idle, journaled, against a bare kernel."""

from __future__ import annotations

from benchmarks.lean import LeanClient
from benchmarks.measure import Result, compared, in_turns
from benchmarks.subjects import places, session, stock


def run(*, quick: bool = False) -> list[Result]:
    rounds, block = (10, 5) if quick else (60, 10)
    with (
        places() as root,
        stock(root) as (bare, _, _),
        session() as (_, front),
        LeanClient(bare) as theirs,
        LeanClient(front) as ours,
    ):

        def cells(client: LeanClient) -> None:
            for _ in range(block):
                client.execute("x = 1")

        series = in_turns({"ours": lambda: cells(ours), "theirs": lambda: cells(theirs)}, rounds, warm=3)
    note = f"`x = 1`, {block} in a row, {rounds} rounds; ours: two facts on disk before the kernel sees it"
    return [compared("journaled round trip", series, goal=0.8, note=note)]
