"""Readers of /proc have an answer for everything, also for processes that are gone."""

from __future__ import annotations

import os

import pytest

from kernel_runtime.supervisor.world import procfs

NOBODY = 2**22 + 1
"""no process has this pid: the kernel's limit is below"""

LINE = (
    b"4711 (a) (b c) S 1 4711 4700 34818 -1 4194304 7869 0 2 0 35 5 0 0 20 0 9 0 1227279 522006528 10915 "
    b"18446744073709551615 0 0 0 0 0 0 0 16781312 1258 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 9\n"
)


def test_a_name_may_hold_what_separates_fields() -> None:
    found = procfs.parse_stat(LINE)
    assert found is not None
    assert (found.pid, found.comm, found.state, found.ppid, found.session) == (4711, "a) (b c", "S", 1, 4700)
    assert (found.ticks, found.threads, found.start_time, found.rss) == (40, 9, 1227279, 10915)
    assert (found.tty, found.exit_code) == (34818, 9)
    assert procfs.terminal_name(found.tty) == "/dev/pts/2"


@pytest.mark.parametrize("raw", [b"", b"1 (x", b"1 (x) S 1", b"no line of it"])
def test_what_is_no_stat_line_is_none(raw: bytes) -> None:
    assert procfs.parse_stat(raw) is None


def test_a_process_that_is_gone_has_nothing() -> None:
    assert procfs.stat(NOBODY) is None
    assert procfs.environment(NOBODY, "PATH") == {}
    assert procfs.command(NOBODY) == []
    assert procfs.children(NOBODY) == set()
    assert procfs.threads(NOBODY) == []
    assert procfs.descriptors(NOBODY) == {}
    assert procfs.descriptor(NOBODY, 0) is None
    assert procfs.regular_file(NOBODY, 0) is None
    assert procfs.link(f"/proc/{NOBODY}/cwd") == ""


def test_this_process_is_found() -> None:
    me = procfs.table()[os.getpid()]
    assert me.ppid == os.getppid()
    assert os.getpid() in procfs.children(os.getppid())
    assert os.getpid() in procfs.threads(os.getpid())


@pytest.mark.parametrize(
    "target, kind, inode",
    [
        ("socket:[12]", "socket", 12),
        ("pipe:[7]", "pipe", 7),
        ("pipe:[7]", "socket", None),
        ("/a", "pipe", None),
    ],
)
def test_inodes(target: str, kind: str, inode: int | None) -> None:
    assert procfs.inode(target, kind) == inode


@pytest.mark.parametrize(
    "flags, mode",
    [(0o100000, "read"), (0o100001, "write"), (0o102001, "append"), (0o100002, "read-write")],
)
def test_modes(flags: int, mode: str) -> None:
    assert procfs.Descriptor(flags, 0, "").mode == mode
