"""A process is boot id, pid and start time; nothing else is ever signalled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from kernel_runtime import process
from tests.support import eventually


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    started = subprocess.Popen(
        [sys.executable, "-c", "import signal; signal.pause()"],
        env={**os.environ, "KRT_TEST_MARK": "here"},
        start_new_session=True,
    )
    yield started
    started.kill()
    started.wait()


def test_a_stranger_with_the_same_pid_is_never_signalled(child: subprocess.Popen[bytes]) -> None:
    """D17. Mechanism: a pid file outlives its process and the pid is reused.

    Right: another start time or boot id is another process, and the signal is not sent.
    """
    who = process.identify(child.pid)
    assert who is not None
    stale = replace(who, start_time=who.start_time - 1)
    rebooted = replace(who, boot_id="00000000-0000-0000-0000-000000000000")
    for stranger in (stale, rebooted):
        assert not process.is_alive(stranger)
        assert not process.signal_process(stranger, signal.SIGKILL)
        assert not process.signal_group(stranger, signal.SIGKILL)
    assert child.poll() is None
    assert process.signal_process(who, signal.SIGTERM)
    assert child.wait(10) == -signal.SIGTERM
    assert not process.signal_process(who, signal.SIGTERM)


def test_a_zombie_is_not_alive(child: subprocess.Popen[bytes]) -> None:
    who = process.identify(child.pid)
    assert who is not None
    os.kill(child.pid, signal.SIGKILL)
    eventually(lambda: process.run_state(child.pid) == "Z", timeout=30, what="a zombie")
    assert process.identify(child.pid) is None
    assert not process.is_alive(who)


def test_marked_processes_are_found_by_their_environment(child: subprocess.Popen[bytes]) -> None:
    eventually(
        lambda: child.pid in [w.pid for w, _ in process.marked_processes("KRT_TEST_MARK", "here")],
        timeout=30,
        what="the child under its mark",
    )
    assert process.command_line(child.pid)[-1] == "import signal; signal.pause()"


def test_what_is_gone_is_nothing() -> None:
    gone = 2**22 - 7
    assert process.stat_fields(gone) is None
    assert process.identify(gone) is None
    assert process.environment_of(gone) is None
    assert process.command_line(gone) == []


def test_a_name_with_parentheses_does_not_confuse_stat() -> None:
    """Mechanism: comm stands in parentheses in /proc/PID/stat and may hold some itself."""
    program = "import ctypes, signal; ctypes.CDLL(None).prctl(15, b') R 1 (', 0, 0, 0); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", program]) as child:
        try:
            eventually(
                lambda: b") R 1 (" in Path(f"/proc/{child.pid}/stat").read_bytes(),
                timeout=30,
                what="the odd name",
            )
            eventually(lambda: process.run_state(child.pid) == "S", what="it pauses")
            who = process.identify(child.pid)
            assert who is not None
            assert who.start_time > 0
        finally:
            child.kill()
