"""Every test has a KRT_HOME of its own and leaves nothing running.

A test that leaves a process or a bound socket fails, with what it left, and the process is ended so
that the next test is not disturbed. A skipped test fails the run: a part that is missing here is a
part that nobody proved.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from kernel_runtime import process
from tests.support import described, eventually, listening_under, processes_of

_GRACE = 20.0
"""seconds that a process which was told to end has for it"""

_skipped: list[str] = []

# what takes long on a busy machine is no counterexample; all else stays as it was set before
settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")

# Under nohup, or as a shell's background job, these come ignored, and every process inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def krt_home() -> Iterator[Path]:
    """This test's KRT_HOME."""
    with isolated() as home:
        yield home


@contextmanager
def isolated() -> Iterator[Path]:
    """A KRT_HOME of its own. KRT_RUNTIME_DIR beside it is short: a socket's path holds 107 bytes."""
    root = Path(tempfile.mkdtemp(prefix="krt-"))
    home, runtime = root / "home", root / "run"
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name, value in {
            "KRT_HOME": home,
            "KRT_RUNTIME_DIR": runtime,
            "IPYTHONDIR": root / "ipython",
            "JUPYTER_CONFIG_DIR": root / "jupyter-config",
            "JUPYTER_DATA_DIR": root / "jupyter-data",
            "JUPYTER_RUNTIME_DIR": root / "jupyter-run",
        }.items():
            monkeypatch.setenv(name, str(value))
        for name in ("KRT_PRINCIPAL", "JPY_PARENT_PID", "JUPYTER_PATH"):
            monkeypatch.delenv(name, raising=False)
        yield home
    left = _end_what_is_left(home)
    sockets = listening_under(runtime)
    shutil.rmtree(root, ignore_errors=True)
    problems = [f"process left behind: {line}" for line in left]
    problems += [f"socket left bound: {path}" for path in sockets]
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)


def _end_what_is_left(home: Path) -> list[str]:
    try:
        eventually(lambda: not processes_of(home), timeout=_GRACE, what="no process left")
    except AssertionError:
        left = processes_of(home)
        told = [described(who.pid) for who in left]
        for who in left:
            process.signal_process(who, signal.SIGKILL)
        eventually(lambda: not any(map(process.is_alive, left)), timeout=_GRACE, what="leftovers ended")
        return told
    return []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        _skipped.append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if _skipped and exitstatus == pytest.ExitCode.OK:
        print(f"\nskipped, so not proved: {', '.join(_skipped)}")  # noqa: T201 - after the reporter's end
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
