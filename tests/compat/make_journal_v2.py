"""Wrote `journal_v2.db` and `journal_v2.json`, once. Never run it again once version 2 was released.

    python -m tests.compat.make_journal_v2 DIRECTORY

A journal of schema version 2 with an entry of every kind that came with it, and every truth that
names give a cell. `test_journal_v2.py` holds every later version to what it says.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec

from kernel_runtime.journal import Journal, JournalReader
from kernel_runtime.model import facts as f
from kernel_runtime.model.entry import Draft
from tests.compat import make_journal_v1 as v1
from tests.unit.journal.support import FixedClock, finished, queued, started

BOOT = v1.BOOT


def named(how: str, digest: str | None = None, kind: str = "list") -> dict[str, Any]:
    row: dict[str, Any] = {"how": how, "type": kind, "bytes": 64}
    return row | ({"why": "over the bound"} if digest is None else {"digest": f"xxh3_128:{digest}"})


def ran(name: str, **observed: Any) -> list[f.Fact]:
    """One execution, and what the probe saw of it."""
    return [
        queued(name, cell_id=f"c-{name}"),
        started(name),
        finished(name, execution_count=1),
        f.ExecutionObserved(execution_id=name, nanoseconds=120_000, **observed),
    ]


def story() -> list[tuple[int, str, list[f.Fact]]]:
    """`(incarnation, principal, facts)` of each append."""
    return [
        (
            1,
            "system",
            [
                f.KernelStarted(
                    pid=101, start_time=1001, boot_id=BOOT, language="python", implementation="krt", own=True
                )
            ],
        ),
        (1, "agent:planner", ran("a", names={"df": named("bound", "1"), "old": named("bound", "2")})),
        (1, "agent:planner", ran("b", names={"n": named("bound", "3", "int")}, reads=["df"])),
        (
            1,
            "agent:planner",
            ran(
                "c",
                names={"df": named("mutated", "4"), "alias": named("bound", "4")},
                reads=["df"],
                groups=[["alias", "df"]],
                dynamic=["exec"],
                effects=[{"kind": "file", "path": "out.csv", "how": "written"}],
                unseen=["ctypes"],
                declared="effectful",
                position=640,
            ),
        ),
        (
            1,
            "human:kim",
            ran("d", names={"old": named("deleted"), "lock": named("bound"), "n": named("rebound", "5")}),
        ),
        (
            1,
            "human:kim",
            ran("e", names={"t": named("bound")}, volatile=["thread t"], unfollowed=["t"]),
        ),
        (
            1,
            "system",
            [
                f.NamesDrifted(
                    names={"alias": named("mutated", "6")}, found="idle", volatile=["thread t"], position=700
                ),
                f.EffectsObserved(
                    execution_id="e", effects=[{"kind": "connect", "host": "localhost"}], position=710
                ),
                f.ProcessSpawned(
                    process_id="p1",
                    argv=["npm", "run", "dev"],
                    cwd="/home/kim",
                    pid=300,
                    start_time=3000,
                    boot_id=BOOT,
                ),
                f.ProcessEnded(process_id="p1", exit_status=1, evidence={"waitpid": True}),
            ],
        ),
        (
            1,
            "agent:planner",
            [
                f.ClaimMade(
                    claim_id="k1",
                    text="port 3000 listens",
                    probe="port 3000 listens",
                    options={"timeout": 2},
                ),
                f.ClaimChecked(claim_id="k1", truth="false", evidence={"listening": []}),
                f.ClaimWithdrawn(claim_id="k1", reason="it was wrong"),
                f.HandoffWritten(
                    version=1, document={"goal": "ship", "next": "run the tests"}, complete=True
                ),
            ],
        ),
        (
            1,
            "human:kim",
            [
                queued("g", "!sudo true", cell_id="c-g"),
                started("g"),
                f.InputRequested(
                    execution_id="g",
                    prompt="[sudo] password for kim: ",
                    password=True,
                    on="terminal",
                    pid=310,
                    command=["sudo", "true"],
                ),
            ],
        ),
        (2, "agent:planner", ran("h", names={"df": named("bound", "7")}, reads=["df", "numpy"])),
        (2, "agent:planner", ran("i", names={}, reads=["df"])),
        (2, "agent:planner", [queued("j", cell_id="c-a"), started("j"), finished("j", execution_count=3)]),
        (2, "agent:planner", ran("k", names={"df": named("rebound", "8")})),
    ]


def said(path: Path) -> dict[str, Any]:
    """What a reader says of a journal, names included, as JSON values."""
    with JournalReader.open(path) as reader:
        return {
            **v1.said(path),
            "heap_counts": [list(count) for count in reader.heap_counts()],
            "names": [_plain(name) for name in reader.all_names()],
            "shared": {name.name: name.shares_with for name in reader.names()},
            "name_counts": [list(count) for count in reader.name_counts()],
            "heaps": [_plain(reader.heap(incarnation)) for incarnation in (1, 2)],
            "observations": {key: _plain(seen) for key, seen in sorted(reader.observations().items())},
        }


def _plain(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def make(directory: Path) -> None:
    path = directory / "journal_v2.db"
    with Journal.create(path, FixedClock()) as journal:
        for incarnation, principal, facts in story():
            journal.append([Draft(fact, principal, incarnation) for fact in facts], sync=False)
    path.with_suffix(".lock").unlink()
    golden = msgspec.json.format(msgspec.json.encode(said(path), order="sorted"), indent=1)
    (directory / "journal_v2.json").write_bytes(golden + b"\n")
    for leftover in ("journal_v2.db-wal", "journal_v2.db-shm"):  # a read-only reader cannot remove them
        (directory / leftover).unlink(missing_ok=True)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
