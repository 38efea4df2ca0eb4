"""Checking a long journal takes no more memory than checking a short one."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_runtime.journal import Journal
from kernel_runtime.model import facts
from kernel_runtime.model.entry import Draft
from tests.unit.journal.support import draft, finished, printed, queued, started

VERIFY = """
import re, sys
from pathlib import Path
from kernel_runtime.journal import verify
report = verify(sys.argv[1])
assert report.ok and report.projections == "match", report.problems
# not ru_maxrss: that of a child begins with what its parent had when it was forked
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""
BOUND = 150 << 10
"""KiB; folded in memory, the long journal below takes 235 MiB, and one of 1,000,000 entries 1,055"""


def journal_of(path: Path, executions: int) -> Path:
    """Five entries for each execution, one cell each, names that later ones rebind and read."""
    with Journal.create(path) as journal:
        drafts: list[Draft] = []
        for n in range(executions):
            name = hashlib.sha256(str(n).encode()).hexdigest()[:32]
            row = {"how": "bound", "type": "int", "bytes": 28, "digest": f"d:{n}"}
            seen = facts.ExecutionObserved(
                execution_id=name, names={f"n{n % 200}": row}, reads=["numpy", f"n{n * 7 % 200}"]
            )
            made = [queued(name, key=f"k{n}"), started(name), printed(name, "out\n", n)]
            drafts += map(draft, [*made, finished(name, execution_count=n), seen])
            if len(drafts) >= 5000:
                journal.append(drafts, sync=False)
                drafts = []
        journal.append(drafts, sync=False)
    return path


def peak(path: Path) -> int:
    """KiB that a process takes at most to check it."""
    done = subprocess.run(
        [sys.executable, "-c", VERIFY, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_memory_is_bounded(tmp_path: Path):
    assert peak(journal_of(tmp_path / "long.db", 40_000)) < BOUND
