"""What is measured: a stock ipykernel, a session of ours, each in places of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import kernel_runtime as kr
from kernel_runtime import process
from kernel_runtime.client import session_files
from kernel_runtime.client.blocking import Session
from kernel_runtime.client.blocking import attach as attach_session
from kernel_runtime.journal import Journal
from kernel_runtime.model import facts as f
from kernel_runtime.model.entry import Draft
from kernel_runtime.wire import Connection, ipc_connection, read_connection


@contextlib.contextmanager
def places() -> Iterator[Path]:
    """A private KRT_HOME and IPYTHONDIR; ends whatever is left in them."""
    root = Path(tempfile.mkdtemp(prefix="krt-b-"))
    chosen = {
        "KRT_HOME": str(root / "home"),
        "KRT_RUNTIME_DIR": str(root / "run"),
        "IPYTHONDIR": str(root / "ipython"),
        "KRT_PRINCIPAL": "agent:bench",
    }
    before = {name: os.environ.get(name) for name in chosen}
    os.environ.update(chosen)
    try:
        yield root
    finally:
        for who, _ in process.marked_processes("KRT_HOME", chosen["KRT_HOME"]):
            process.signal_process(who, signal.SIGKILL)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        shutil.rmtree(root, ignore_errors=True)


@contextlib.contextmanager
def stock(root: Path) -> Iterator[tuple[Connection, Path, int]]:
    """An ipykernel as Jupyter starts it, over ipc: connection, its file, its pid."""
    directory = Path(tempfile.mkdtemp(prefix="stock-", dir=root))
    connection = ipc_connection(directory / "k", os.urandom(16).hex(), "python3")
    path = directory / "connection.json"
    path.write_bytes(connection.dump())
    kernel = subprocess.Popen(
        [sys.executable, "-m", "ipykernel_launcher", "-f", str(path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield connection, path, kernel.pid
    finally:
        kernel.kill()
        kernel.wait()


@contextlib.contextmanager
def session(name: str = "bench") -> Iterator[tuple[Session, Connection]]:
    """A running session and its front door."""
    with attach_session(name, create=True) as client:
        client.execute("None")
        try:
            yield client, read_connection(Path(client.connection_file()))
        finally:
            client.stop()


def private_bytes(pid: int) -> int:
    """USS: what the machine would get back if this process ended."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return 1024 * sum(
        int(line.split()[1]) for line in lines if line.startswith(("Private_Clean", "Private_Dirty"))
    )


def wake_ups(pid: int) -> int:
    """How often its threads have gone to sleep so far, and so have been woken."""
    total = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        for line in status.read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches"):
                total += int(line.split()[1])
    return total


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = process.stat_fields(pid)
    assert fields is not None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


_BATCH = 6_000
"""facts that are appended at a time"""


def with_past(name: str, past: Iterable[f.Fact], *, cwd: Path, notebook: Path | None = None) -> None:
    """A session that was stopped, and whose journal tells of this between its kernel's start and end."""
    file = session_files.create(name, cwd=cwd, notebook=notebook)
    journal = Journal.create(file.journal)
    pending: list[f.Fact] = [
        f.SessionCreated(
            session_id=file.session_id,
            name=name,
            kernel=file.kernel,
            cwd=file.cwd,
            notebook=file.notebook,
            version=kr.__version__,
        ),
        f.KernelStarting(argv=["python"], reason="new"),
        f.KernelStarted(
            pid=2**22 + 1, start_time=1, boot_id="0", language="python", implementation="ipython", own=True
        ),
    ]
    for fact in past:
        pending.append(fact)
        if len(pending) >= _BATCH:
            _append(journal, pending)
            pending.clear()
    _append(journal, [*pending, f.KernelStopped(reason="stop", exit_status=0)])
    journal.close()


def _append(journal: Journal, facts: list[f.Fact]) -> None:
    journal.append([Draft(fact, "agent:bench", 1) for fact in facts], sync=False)
