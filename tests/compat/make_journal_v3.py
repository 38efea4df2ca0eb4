"""Wrote `journal_v3.db`, its segment and `journal_v3.json`, once. Not to be run again once it was released.

    python -m tests.compat.make_journal_v3 DIRECTORY

A journal of schema version 3 with an entry of every kind that came with it, payloads that were redacted (in
the journal and in its segment) and entries whose payloads are in the segment only. `test_journal_v3.py` holds
every later version to what it says.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from kernel_runtime.journal import Journal
from kernel_runtime.journal.archive import archive
from kernel_runtime.journal.forms import Forms
from kernel_runtime.journal.redact import Wanted, redact
from kernel_runtime.model import facts as f
from kernel_runtime.model.entry import Draft
from tests.compat import make_journal_v2 as v2
from tests.unit.journal.support import FixedClock, printed, queued, started

SEGMENT = "journal_v3-1-9.2.db"
SECRET = "hunter2-zwölf"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHV0aGVyZSBpcyBubyBrZXkgb2YgdGhpcyBraW5k"


def story() -> list[tuple[int, str, list[f.Fact]]]:
    """`(incarnation, principal, facts)` of each append."""
    return [
        (
            1,
            "system",
            [
                f.EnvironmentRecorded(
                    python={
                        "version": "3.13.1",
                        "implementation": "CPython",
                        "executable": "/p",
                        "prefix": "/",
                    },
                    platform={"system": "Linux", "machine": "x86_64"},
                    packages={
                        "numpy": {"version": "2.2.0", "digest": "sha256:1f"},
                        "ours": {"version": "1.0", "digest": None, "how": "editable"},
                    },
                    fingerprint="f1",
                    git={"commit": "c0ffee", "branch": "main", "dirty": "d1"},
                    missing=["conda: not there"],
                )
            ],
        ),
        (1, "agent:planner", v2.ran("a", names={"df": v2.named("bound", "1")})),
        (1, "agent:planner", [queued("b", f"login({SECRET!r})", cell_id="c-b"), started("b")]),
        (1, "system", [printed("b", f"using {SECRET}\n"), printed("b", "x" * 5000 + SECRET)]),
        (1, "system", [f.HeadSigned(seq=9, hash="ab", signature="-----", key=KEY, namespace="n")]),
        (
            1,
            "human:kim",
            [f.HeadAnchored(seq=9, hash="ab", where="git", reference="/r refs/notes/krt c0ffee")],
        ),
        (1, "system", [f.HeadWitnessed(session_id="s-2", name="bob", seq=4, hash="cd", signature="-----")]),
        (1, "human:kim", [f.HeadWitnessed(session_id="s-2", name="bob", seq=5, hash="ce")]),
    ]


def said(path: Path) -> dict[str, Any]:
    """What a reader says of it."""
    return v2.said(path)


def make(directory: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch) / "journal_v3"
        place.mkdir()
        path = place / "journal.db"
        with Journal.create(path, FixedClock()) as journal:
            for incarnation, principal, facts in story():
                journal.append([Draft(fact, principal, incarnation) for fact in facts], sync=False)
            ended = f.ExecutionFinished(execution_id="b", outcome="ok", execution_count=2)
            journal.append([Draft(ended, "system", 1)], sync=True)
            archive(journal, "human:kim", 1, before=10, directory=place)
            redact(journal, Wanted(reason="it was printed", forms=Forms(SECRET)), "human:kim", 1)
            journal.compact()
        shutil.copy(path, directory / "journal_v3.db")
        shutil.copy(place / SEGMENT, directory / SEGMENT)
        golden = msgspec.json.format(msgspec.json.encode(said(path), order="sorted"), indent=1)
    (directory / "journal_v3.json").write_bytes(golden + b"\n")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
