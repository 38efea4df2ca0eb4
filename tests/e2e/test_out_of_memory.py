"""The out-of-memory killer is named when the cgroup says so, and only then."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import kernel_runtime as kr

LIMIT = 400 << 20
EAT = "held = []\nwhile True: held.append(bytearray(8 << 20))"


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A memory cgroup of this test's own, v1 or v2; needs root, as CI has it."""
    v1 = Path("/sys/fs/cgroup/memory")
    group = (v1 if v1.is_dir() else Path("/sys/fs/cgroup")) / f"krt-test-{os.getpid()}"
    group.mkdir()
    limit = group / ("memory.limit_in_bytes" if v1.is_dir() else "memory.max")
    limit.write_text(str(LIMIT))
    yield group
    group.rmdir()


def test_a_kernel_that_the_oom_killer_ended_says_so_with_evidence(cgroup: Path) -> None:
    """Mechanism: the kernel runs in a cgroup of 400 MiB and allocates without end.

    Right: `died` by signal 9, and `oom` with the cgroup's count before and after.
    """
    with kr.attach("eater", create=True) as session:
        pid = session.execute("import os; os.getpid()").text
        (cgroup / "cgroup.procs").write_text(pid)
        done = session.execute(EAT, timeout=60)
        assert done.outcome == "died"
        assert done.evidence["signal"] == signal.SIGKILL
        counts = done.evidence["oom"]["cgroup"]
        assert counts["oom_kill_after"] > counts["oom_kill_before"]
        session.stop()


def test_a_plain_sigkill_is_not_called_out_of_memory() -> None:
    """Right: signal 9 in the entry, and no cause that nobody observed."""
    with kr.attach("killed", create=True) as session:
        done = session.execute("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", timeout=30)
        assert done.outcome == "died"
        assert done.evidence["signal"] == signal.SIGKILL
        assert "oom" not in done.evidence
        session.stop()
