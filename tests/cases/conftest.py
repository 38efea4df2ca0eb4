"""The cases share one KRT_HOME per module, and one session where a case leaves it as it found it.

A module that leaves a process or a bound socket fails, with what it left.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import kernel_runtime as kr
from kernel_runtime import process
from tests.cases.support import stopped
from tests.support import eventually, listening_under, processes_of

Attach = Callable[..., kr.Session]


@pytest.fixture(autouse=True, scope="module")
def krt_home() -> Iterator[Path]:
    """This module's KRT_HOME."""
    root = Path(tempfile.mkdtemp(prefix="krt-"))
    home, runtime = root / "home", root / "run"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "KRT_HOME": home,
            "KRT_RUNTIME_DIR": runtime,
            "KRT_PRINCIPAL": "agent:a",
            "IPYTHONDIR": root / "ipython",
            "JUPYTER_CONFIG_DIR": root / "jupyter-config",
            "JUPYTER_DATA_DIR": root / "jupyter-data",
            "JUPYTER_RUNTIME_DIR": root / "jupyter-run",
        }.items():
            patch.setenv(name, str(value))
        for name in ("JPY_PARENT_PID", "JUPYTER_PATH"):
            patch.delenv(name, raising=False)
        yield home
    problems = [f"process left behind: {line}" for line in _end_what_is_left(home)]
    problems += [f"socket left bound: {path}" for path in listening_under(runtime)]
    shutil.rmtree(root, ignore_errors=True)
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)


@pytest.fixture(scope="module")
def _shared(krt_home: Path) -> Iterator[kr.Session]:
    with stopped("shared") as session:
        session.execute("1 / 0")  # loads what formats tracebacks, so that no interrupt has to wait for it
        yield session


@pytest.fixture
def shared(_shared: kr.Session) -> Iterator[kr.Session]:
    """A session for cases that leave the kernel as they found it; what still runs is interrupted."""
    yield _shared
    while _shared.row()["state"] in ("busy", "blocked"):
        assert _shared.interrupt().ended


@pytest.fixture
def attach() -> Iterator[Attach]:
    """`attach(name, **how)`: a client that leaves when the test ends."""
    with ExitStack() as clients:

        def join(name: str, **how: Any) -> kr.Session:
            return clients.enter_context(kr.attach(name, **how))

        yield join


@pytest.fixture
def fresh(request: pytest.FixtureRequest) -> Iterator[kr.Session]:
    """A session of this test's own, stopped when it ends."""
    name = request.node.name.replace("[", "-").rstrip("]")[:60]
    with stopped(name) as session:
        yield session


def _end_what_is_left(home: Path) -> list[str]:
    try:
        eventually(lambda: not processes_of(home), timeout=30, what="no process left")
    except AssertionError:
        left = processes_of(home)
        told = [f"{who.pid} {' '.join(process.command_line(who.pid))[:200]}" for who in left]
        for who in left:
            process.signal_process(who, signal.SIGKILL)
        eventually(lambda: not any(map(process.is_alive, left)), timeout=30, what="leftovers ended")
        return told
    return []
