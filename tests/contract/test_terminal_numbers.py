"""Two terminals of one number: real sandboxes whose /dev/pts begins at 0 again, as every container's does.

Mechanism: since Linux 4.7 each mount of devpts counts its terminals for itself. `/dev/pts/0` and its device
number then name another terminal in each container, sandbox or confined replay on the machine, and /proc
shows both alike. A shell that waited in somebody's container was told as what held a cell up.
Right: a terminal is known by its session or by its file system, never by its number.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kernel_runtime.supervisor.world import looks, procfs, rows, waiting
from kernel_runtime.supervisor.world.processes import Member
from tests.contract.test_terminal_readers import program
from tests.support import bubblewrap, eventually

pytestmark = [pytest.mark.slow, bubblewrap]

READS_ON = """
import os, sys
while True:
    master, slave = os.openpty()
    if os.ttyname(slave) == sys.argv[1]: break
if os.fork() == 0:
    os.login_tty(slave)
    os.execv("/bin/sh", ["sh", "-c", "printf 'Password: '; read x"])
while b"Password" not in os.read(master, 100): pass
print("asks", flush=True)
os.read(0, 1)
"""
STRANGER = (
    *("bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--unshare-pid", "--proc", "/proc"),
    *("--die-with-parent", sys.executable, "-c", READS_ON),
)
WAITS_ON = """
import os, subprocess, sys
master, slave = os.openpty()
terminal = os.ttyname(slave)
pid = os.fork()
if pid == 0:
    os.login_tty(slave)
    os.execv("/bin/sleep", ["sleep", "600"])
stranger = subprocess.Popen([*sys.argv[1:], terminal], stdout=subprocess.PIPE)
stranger.stdout.readline()
print(pid, flush=True)
os.read(master, 1)
"""


@contextmanager
def stranger(terminal: str) -> Iterator[int]:
    """Somebody asks for a password on a terminal of that path in a sandbox: who asks."""
    with subprocess.Popen([*STRANGER, terminal], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as box:
        try:
            assert box.stdout is not None
            assert box.stdout.readline() == b"asks\n"
            yield looks.descendants(box.pid)[-1]
        finally:
            box.kill()


def test_who_reads_another_terminal_of_that_number_does_not_hold_a_cell_up() -> None:
    with program("/bin/sleep", "600") as at, stranger(at.terminal) as asks:
        stat = procfs.stat(asks)
        assert stat is not None
        assert procfs.terminal_name(stat.tty) == procfs.link(f"/proc/{asks}/fd/0") == at.terminal
        assert at.seen() == []
        assert at.look().others == 1


def test_they_are_two_terminals_of_a_session() -> None:
    with program("/bin/sleep", "600") as at, stranger(at.terminal) as asks:
        users = [stat for pid in (at.pid, asks) if (stat := procfs.stat(pid)) is not None]
        told = rows.terminal_rows([Member(stat=stat, by="descendant") for stat in users], kernel=None)
        assert [row["pids"] for row in told] == [[at.pid], [asks]]
        told = rows.terminal_rows([Member(stat=stat, by="descendant") for stat in users], kernel=at.pid)
        assert [row["pids"] for row in told] == [[asks]]


def test_who_waits_for_a_terminal_waits_for_those_that_are_on_it() -> None:
    argv = [sys.executable, "-c", WAITS_ON, *STRANGER]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        on_it = int(parent.stdout.readline())
        try:

            def users() -> list[int] | None:
                found = looks.thread(parent.pid, parent.pid)
                assert found is not None
                return waiting.wait_of(parent.pid, found, lambda *_: False).evidence.get("terminal_of")

            assert eventually(users, what="waits for its terminal") == [on_it]
        finally:
            os.kill(on_it, signal.SIGKILL)
            parent.kill()
