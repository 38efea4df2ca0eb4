"""What a supervisor costs while nothing happens."""

from __future__ import annotations

import time

from benchmarks.measure import Result
from benchmarks.subjects import cpu_seconds, places, private_bytes, session, stock, wake_ups

_GOAL_MIB = 30.0


def run(*, quick: bool = False) -> list[Result]:
    watched = 5.0 if quick else 60.0
    with places() as root, stock(root) as (_, _, bare), session() as (kept, _):
        kept.execute("x = 1")
        supervisor = int(kept.row()["supervisor_pid"])
        time.sleep(3.0)  # what the last cell left to do, journal and notebook, is over
        before = {pid: (wake_ups(pid), cpu_seconds(pid)) for pid in (supervisor, bare)}
        time.sleep(watched)
        spent = {pid: (wake_ups(pid) - wakes, cpu_seconds(pid) - cpu) for pid, (wakes, cpu) in before.items()}
        memory = {pid: private_bytes(pid) / 2**20 for pid in (supervisor, bare)}
    wakes = {pid: n / watched for pid, (n, _) in spent.items()}
    return [
        Result(
            what="idle supervisor, memory of its own (USS)",
            ours=f"{memory[supervisor]:.1f} MiB",
            theirs=f"{memory[bare]:.1f} MiB",
            ok=memory[supervisor] <= _GOAL_MIB,
            note=f"goal {_GOAL_MIB:.0f} MiB; beside it a stock idle ipykernel",
        ),
        Result(
            what=f"idle supervisor, wake-ups in {watched:.0f} s",
            ours=f"{spent[supervisor][0]} ({wakes[supervisor]:.2f}/s), {spent[supervisor][1]:.2f} s CPU",
            theirs=f"{spent[bare][0]} ({wakes[bare]:.2f}/s), {spent[bare][1]:.2f} s CPU",
            ok=wakes[supervisor] <= 0.1,
            note="goal: none beyond what answers heartbeats; beside it a stock idle ipykernel",
        ),
    ]
