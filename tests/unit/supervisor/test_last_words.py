"""What a log says of a kernel's end, from traces that Python's own fault handler wrote."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kernel_runtime.supervisor.launch import last_words

_CRASH = """
import ctypes, faulthandler, sys, threading

faulthandler.enable()
print("started", file=sys.stderr, flush=True)
threads, depth = int(sys.argv[1]), int(sys.argv[2])
there = threading.Barrier(threads + 1)

def deep(n, then):
    deep(n - 1, then) if n else then()

def wait():
    there.wait()
    threading.Event().wait()

def innermost():
    ctypes.string_at(0)

for _ in range(threads):
    threading.Thread(target=deep, args=(depth, wait), daemon=True).start()
there.wait()
deep(depth, innermost)
"""


@pytest.mark.parametrize("threads, depth", [(0, 0), (0, 90), (20, 90)])
def test_a_crash_shows_the_innermost_frame(tmp_path: Path, threads: int, depth: int) -> None:
    """Mechanism: the fault handler puts the innermost frame first and the failing thread last, so the end
    of a long trace is the outermost frames of it, which are the same for every crash.

    Right: the kind of error and the innermost frames of the thread that failed, in at most the limit.
    """
    log = tmp_path / "kernel.log"
    with log.open("wb") as stderr:
        subprocess.run([sys.executable, "-c", _CRASH, str(threads), str(depth)], stderr=stderr, check=False)
    said = last_words(str(log), 2048)
    assert "Segmentation fault" in said
    assert "in innermost" in said
    assert len(said.encode()) <= 2048


def test_without_a_fatal_error_the_end_of_the_log(tmp_path: Path) -> None:
    log = tmp_path / "kernel.log"
    log.write_bytes(b"a" * 100 + b"the end\xff")
    assert last_words(str(log), 8) == "the end\\xff"
    assert last_words(str(tmp_path / "none"), 8) == ""
