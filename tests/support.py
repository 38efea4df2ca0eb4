"""What tests share: waiting for a condition, running `krt`, ending exactly the processes a test started.

Nothing here sleeps blindly: a wait ends as soon as its condition holds, and says what it waited for
when it does not.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from kernel_runtime import process
from kernel_runtime.journal import JournalReader
from kernel_runtime.replay import sandbox

T = TypeVar("T")

_PAUSE = 0.01

bubblewrap = pytest.mark.skipif(
    not os.environ.get("CI") and sandbox.why_no_bubblewrap() is not None, reason="bubblewrap is not here"
)
"""a test that needs it; with CI set it fails without"""


def eventually(predicate: Callable[[], T], timeout: float = 30.0, what: str = "") -> T:
    """The first truthy value of `predicate()`.

    Raises:
        AssertionError: none came within `timeout` seconds; tells `what` and the last value.
    """
    pause = threading.Event()
    deadline = time.monotonic() + timeout
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() >= deadline:
            name = what or getattr(predicate, "__name__", repr(predicate))
            raise AssertionError(f"not within {timeout} s: {name} (last value: {value!r})")
        pause.wait(_PAUSE)


def waits(gate: Path) -> str:
    """Lines of a cell that are done once somebody has made the file `gate`."""
    return f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)\n"


def free_port() -> int:
    """A port of loopback on which nobody listens, and that is given to nobody who asks for any port."""
    given_to_anybody = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = 10_000 + secrets.randbelow(max(given_to_anybody - 10_000, 10_000))
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue


def krt(
    *args: str, stdin: str | None = None, timeout: float = 60.0, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user would, in this test's KRT_HOME."""
    return subprocess.run(
        [sys.executable, "-m", "kernel_runtime.cli", *args],
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, **env},
        check=False,
    )


def krt_json(*args: str, exit_code: int = 0, **kwargs: Any) -> Any:
    """The document that `krt … --json` prints; asserts its exit status."""
    done = krt(*args, "--json", **kwargs)
    assert done.returncode == exit_code, (
        f"krt {' '.join(args)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    )
    return json.loads(done.stdout)


def processes_of(home: Path) -> list[process.ProcessId]:
    """Living processes that started with this KRT_HOME or whose working directory lies under it."""
    found = {who.pid: who for who, _env in process.marked_processes("KRT_HOME", str(home))}
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) in found or int(name) == os.getpid():
            continue
        try:
            cwd = os.readlink(f"/proc/{name}/cwd")
        except OSError:  # gone, a kernel thread or another user's
            continue
        if Path(cwd).is_relative_to(home):
            who = process.identify(int(name))
            if who is not None:
                found[who.pid] = who
    return list(found.values())


def described(pid: int) -> str:
    """A process, and where it is a supervisor what its log and its journal say last."""
    argv = process.command_line(pid)
    lines = [f"{pid} {process.run_state(pid)} {' '.join(argv)[:200]}"]
    for directory in (Path(word) for word in argv if (Path(word) / "supervisor.log").is_file()):
        lines += (directory / "supervisor.log").read_text(errors="replace").splitlines()[-20:]
        if (directory / "journal.db").is_file():
            with JournalReader.open(directory / "journal.db") as journal:
                lines += [f"{entry.seq} {entry.at} {entry.kind}" for entry in journal.entries(last=20)]
    return "\n    ".join(lines)


def listening_under(directory: Path) -> list[str]:
    """Unix sockets bound under a directory by a living process."""
    paths = (line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines()[1:])
    return sorted({path for path in paths if path.startswith(f"{directory}/")})
