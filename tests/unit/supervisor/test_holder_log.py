"""The log of a managed process: bounded, and every byte in it or counted in it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kernel_runtime.supervisor import holder_log
from kernel_runtime.supervisor.holder_log import ProcessLog

GAP = re.compile(rb"\[krt: (\d+) bytes, (\d+) lines are not kept: (bound|disk)\]\n")


def accounted(path: Path, counts: dict[str, int]) -> None:
    """What is in the file and what its gaps count are together all that was said."""
    data = path.read_bytes()
    gaps = [(int(m[1]), int(m[2])) for m in GAP.finditer(data)]
    # a gap in the middle begins a line of its own
    kept = GAP.sub(b"", re.sub(rb"\n(?=\[krt: \d+ bytes, \d+ lines are not kept: disk)", b"", data))
    assert len(kept) + sum(size for size, _ in gaps) == counts["bytes"]
    assert kept.count(b"\n") + sum(lines for _, lines in gaps) == counts["lines"]
    assert sum(size for size, _ in gaps) == counts["dropped_bytes"]
    assert sum(lines for _, lines in gaps) == counts["dropped_lines"]


def watched(path: Path, bound: int, clock: list[float], free: list[int]) -> ProcessLog:
    """A log on a file system that has `free[0]` blocks of one byte."""

    def look(_fd: int) -> os.statvfs_result:
        return os.statvfs_result((1, 1, 1 << 41, free[0], free[0], 0, 0, 0, 0, 255))

    return ProcessLog(str(path), bound=bound, floor=1 << 20, clock=lambda: clock[0], look=look)


def test_below_the_bound_it_is_what_was_said(tmp_path: Path) -> None:
    log = ProcessLog(str(tmp_path / "log"), bound=1 << 16, floor=0)
    log.append(b"one\r\ntwo")
    log.append(b"\r\n\xff\x00")
    log.close()
    assert (tmp_path / "log").read_bytes() == b"one\r\ntwo\r\n\xff\x00"
    assert log.counts() == {"bytes": 12, "lines": 2, "dropped_bytes": 0, "dropped_lines": 0}
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600


def test_past_the_bound_the_older_half_is_counted_in_the_first_line(tmp_path: Path) -> None:
    log = ProcessLog(str(tmp_path / "log"), bound=8192, floor=0)
    for number in range(5000):
        log.append(b"line %06d\n" % number)
        assert (tmp_path / "log").stat().st_size <= 8192 + 80
    log.close()
    data = (tmp_path / "log").read_bytes()
    first = GAP.match(data)
    assert first is not None
    assert first[3] == b"bound"
    assert data.endswith(b"line 004999\n")
    assert data[first.end() :].startswith(b"line ")
    assert len(data) >= 4096
    accounted(tmp_path / "log", log.counts())


def test_while_the_disk_is_short_it_is_counted_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, free = [0.0], [1 << 40]
    monkeypatch.setattr(holder_log, "_LOOK_EVERY", 1)
    log = watched(tmp_path / "log", 1 << 20, clock, free)
    log.append(b"before\n")
    free[0] = 1000
    clock[0] += 10
    log.append(b"lost\n")
    log.append(b"lost too\n")
    free[0] = 1 << 40
    log.append(b"lost as well\n")  # it is not looked at again so soon
    clock[0] += 10
    log.append(b"after\n")
    log.close()
    text = (tmp_path / "log").read_text()
    assert text == "before\n\n[krt: 27 bytes, 3 lines are not kept: disk]\nafter\n"
    assert log.counts() == {"bytes": 40, "lines": 5, "dropped_bytes": 27, "dropped_lines": 3}
    accounted(tmp_path / "log", log.counts())


@example([(True, 1000, 0), (False, 1047, 0), (False, 3000, 0)])  # the first thing in the file is a gap
@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    pieces=st.lists(
        st.tuples(st.booleans(), st.integers(0, 3000), st.integers(0, 60)), min_size=1, max_size=40
    )
)
def test_every_byte_is_there_or_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pieces: list[tuple[bool, int, int]]
) -> None:
    """Whatever is said, while the disk comes and goes."""
    clock, free = [0.0], [1 << 40]
    monkeypatch.setattr(holder_log, "_LOOK_EVERY", 1)
    log = watched(tmp_path / "log", 4096, clock, free)
    for short, size, width in pieces:
        clock[0] += 2
        free[0] = 10 if short else 1 << 40
        log.append((b"x" * width + b"\n") * (size // (width + 1)) + b"y" * (size % (width + 1)))
    free[0] = 1 << 40
    log.close()
    accounted(tmp_path / "log", log.counts())
