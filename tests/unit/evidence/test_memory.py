"""A bundle is read through, not into memory: a million entries take what a hundred thousand take."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernel_runtime.evidence import standalone
from kernel_runtime.evidence.bundle import _Archive
from tests.unit.evidence.support import SESSION, rehash

_VERIFY = """
import json, re, runpy, sys
from pathlib import Path
verify = runpy.run_path(sys.argv[1])["verify"]
found = verify(sys.argv[2])
# not ru_maxrss: that of a child begins with what its parent had when it was forked
peak = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
print(json.dumps([found["ok"], found["entries"], peak]))
"""

ROOM = 12 << 10
"""KiB that buffers may grow by; a hundred bytes kept of each of a million entries are eight times that"""


def _lines(chain: standalone.Chain, entries: int) -> Iterator[bytes]:
    created = {"session_id": SESSION, "name": "alice", "kernel": "python3", "cwd": "/"}
    row: list[Any] = [1, 1, 1, 0, "human:a", "SessionCreated", None, "", "", "", json.dumps(created)]
    for seq in range(1, entries + 1):
        if seq > 1:
            name = f"e{seq // 4}"
            payload = json.dumps(
                {"execution_id": name, "messages": [{"type": "stream", "content": {"text": seq}}]}
            )
            row = [seq, seq, seq, 1, "agent:a", "OutputRecorded", name, "", "", "", payload]
        row[7], row[8] = standalone.sha256(row[10].encode()), chain.hash
        row = rehash(row)
        chain.add(row)
        yield standalone.entry_line(row)


def synthetic(path: Path, entries: int) -> None:
    """A bundle of so many entries, most of them something that was printed."""
    chain = standalone.Chain()
    with path.open("x+b") as file:
        made = _Archive(file)
        for name in standalone.MEMBERS[:-1]:
            made.add(name, _lines(chain, entries) if name == standalone.JOURNAL else [])
        made.add(standalone.MANIFEST, [standalone.manifest_bytes("0", chain.summary(), made.digests)])
        made.close()


def peak(path: Path, entries: int) -> int:
    """KiB that verifying takes at most, in a process of its own."""
    synthetic(path, entries)
    argv = [sys.executable, "-I", "-S", "-c", _VERIFY, standalone.__file__, str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    ok, found, most = json.loads(done.stdout)
    assert (ok, found) == (True, entries)
    return int(most)


def test_ten_times_the_entries_take_the_same_memory(tmp_path: Path):
    assert peak(tmp_path / "long.zip", 10_000) < peak(tmp_path / "short.zip", 1_000) + ROOM


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_million_entries_take_what_a_hundred_thousand_take(tmp_path: Path):
    small, large = peak(tmp_path / "short.zip", 100_000), peak(tmp_path / "long.zip", 1_000_000)
    assert large < small + ROOM
