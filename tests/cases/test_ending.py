"""A session's end: no process of it is left, whatever it did to get away, and nobody else's is touched."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kernel_runtime as kr
from kernel_runtime import process
from kernel_runtime.process import ProcessId
from tests.support import eventually

DOUBLE_FORKED = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        Path('pid').write_text(f'{os.getpid()}\\n')
        os.execve('/bin/sleep', ['sleep', '1000'], {})
    os._exit(0)
"""
STUBBORN = """
program = 'trap "" TERM; echo $$ > pid; while :; do sleep 1; done'
argv = ['setsid', '-f', 'sh', '-c', program, 'sh', '--password', 'hunter2']
subprocess.run(argv, env={'PATH': os.environ['PATH']})
"""
CHILD = """
program = 'echo $$ > pid; exec sleep 1000'
child = subprocess.Popen(['sh', '-c', program], env={'PATH': os.environ['PATH']}, start_new_session=True)
"""


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process of nobody's session, that came to life as any daemon does."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    yield child
    child.kill()
    child.wait()


def started(session: kr.Session, code: str, directory: Path) -> ProcessId:
    """The process that `code` starts, once it has nothing of the session's in its environment."""
    session.execute(f"import os, subprocess\nfrom pathlib import Path\nos.chdir({str(directory)!r})\n{code}")
    file = directory / "pid"
    eventually(lambda: file.exists() and file.read_text().endswith("\n"), what="it has begun")
    pid = int(file.read_text())
    eventually(lambda: "KRT_SESSION_ID" not in (process.environment_of(pid) or {}), what="its environment")
    who = process.identify(pid)
    assert who is not None
    return who


def stop(session: kr.Session) -> dict[str, Any]:
    """As `session.stop`, with all that the supervisor answers."""
    found: dict[str, Any] = session.run(session._session._line.request("stop"))
    return found


@pytest.mark.parametrize("code", [DOUBLE_FORKED, STUBBORN, CHILD], ids=["double-forked", "stubborn", "child"])
def test_what_cleared_its_environment_ends_with_the_session(
    code: str, fresh: kr.Session, tmp_path: Path, stranger: subprocess.Popen[bytes]
) -> None:
    who = started(fresh, code, tmp_path)
    answer = stop(fresh)
    assert answer["left"] == []
    assert who.pid in [row["pid"] for row in answer["ended"]]
    assert not process.is_alive(who)
    assert stranger.poll() is None
    assert "hunter2" not in str(answer)
