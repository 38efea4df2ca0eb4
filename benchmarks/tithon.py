"""Beside Tithon 0.2.5, the closest program, installed from the lock into an environment of its own."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kernel_runtime as kr
from benchmarks.measure import Result, compared, in_turns
from benchmarks.subjects import places
from kernel_runtime import process

_ROOT = Path(__file__).parent.parent
_LOCK = _ROOT / "requirements" / "tithon.txt"
_VENV = _ROOT / ".bench" / "tithon"
_LINES = 60
_DISPLAYS = 20_000
_SESSION = "bench"

_PRINTING = f"import time\nfor i in range({_LINES}):\n    print('line', i, flush=True)\n    time.sleep(0.1)"
_SHOWING = f"for i in range({_DISPLAYS}):\n    display({{'text/plain': str(i)}}, raw=True)"


def run(*, quick: bool = False) -> list[Result]:
    command = _installed()
    with places() as root:
        theirs = Tithon(command, root / "tithon")
        try:
            return [
                _one_exec(theirs, 3 if quick else 15),
                _killed(theirs),
                _stopped(theirs, 5.0 if quick else 15.0),
            ]
        finally:
            theirs.close()


def _installed() -> Path:
    stamp = _VENV / ".lock"
    digest = hashlib.sha256(_LOCK.read_bytes()).hexdigest()
    if not (stamp.exists() and stamp.read_text() == digest):
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(_VENV)], check=True)
        subprocess.run(
            [str(_VENV / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            + ["--require-hashes", "-r", str(_LOCK)],
            check=True,
        )
        stamp.write_text(digest)
    return _VENV / "bin" / "tithon"


class Tithon:
    """Its daemon and command line, as its users run them."""

    def __init__(self, command: Path, home: Path) -> None:
        home.mkdir()
        self._command = str(command)
        self._env = {**os.environ, "TITHON_HOME": str(home)}
        self._home = home
        self.start()

    def start(self) -> None:
        self._daemon = subprocess.Popen(
            [self._command, "daemon"],
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _until(lambda: self._ask("status").returncode == 0, "Tithon's daemon answers")

    def _ask(self, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._command, *args], env=self._env, capture_output=True, text=True, check=False, timeout=120
        )

    def execute(self, code: str, *options: str) -> None:
        done = self._ask("run", "--session", _SESSION, "-c", code, *options)
        assert done.returncode == 0, done.stderr

    def kill(self) -> None:
        self._daemon.kill()
        self._daemon.wait()

    def signal(self, signum: int) -> None:
        self._daemon.send_signal(signum)

    def last(self) -> dict[str, Any]:
        """Its latest execution, as its snapshot tells it."""
        for line in self._ask("attach", "--session", _SESSION, "--once").stdout.splitlines():
            event = json.loads(line)
            if event["op"] == "snapshot":
                execution: dict[str, Any] = event["executions"][-1]
                return execution
        raise AssertionError("no snapshot")

    def close(self) -> None:
        self._ask("shutdown", "--kill-kernels")
        self.kill()
        for who, _ in process.marked_processes("TITHON_HOME", str(self._home)):
            process.signal_process(who, signal.SIGKILL)


def _one_exec(theirs: Tithon, rounds: int) -> Result:
    krt = [sys.executable, "-m", "kernel_runtime.cli", "exec", _SESSION, "1 + 1"]
    with kr.attach(_SESSION, create=True) as client:
        client.execute("None")
    theirs.execute("None")
    subjects: dict[str, Callable[[], object]] = {
        "ours": lambda: subprocess.run(krt, check=True, capture_output=True),
        "theirs": lambda: theirs.execute("1 + 1"),
    }
    series = in_turns(subjects, rounds, warm=1)
    return compared("one `exec` from the command line", series, note="a new process each time; beside Tithon")


def _killed(theirs: Tithon) -> Result:
    """Lines that are there after the supervisor was killed in mid-cell and another one came."""
    with kr.attach(_SESSION) as client:
        running = client.submit(_PRINTING)
        theirs.execute(_PRINTING, "--no-wait")
        time.sleep(2.0)
        os.kill(int(client.row()["supervisor_pid"]), signal.SIGKILL)
        theirs.kill()
        time.sleep(2.0)
        theirs.start()
        ours = running.wait(timeout=60)
        lines = ours.text.count("line")
        outcome = ours.outcome
    time.sleep(4.0)
    told = theirs.last()
    return Result(
        what=f"supervisor killed in mid-cell: lines kept of {_LINES}",
        ours=f"{lines}, `{outcome}`",
        theirs=f"{_lines(told)}, `{told['status']}`",
        ok=lines == _LINES and outcome == "ok",
        note="SIGKILL 2 s into a cell that prints for 6 s; beside Tithon's daemon",
    )


def _stopped(theirs: Tithon, seconds: float) -> Result:
    """Messages that are there after the supervisor was stopped while the kernel sent them."""
    with kr.attach(_SESSION) as client:
        supervisor = int(client.row()["supervisor_pid"])
        running = client.submit("import time; time.sleep(0.5)\n" + _SHOWING)
        theirs.execute("import time; time.sleep(0.5)\n" + _SHOWING, "--no-wait")
        time.sleep(0.2)
        os.kill(supervisor, signal.SIGSTOP)
        theirs.signal(signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(supervisor, signal.SIGCONT)
        theirs.signal(signal.SIGCONT)
        ours = running.wait(timeout=120)
        kept = sum(o["output_type"] == "display_data" for o in ours.outputs)
        outcome = ours.outcome
        client.stop()
    _until(lambda: theirs.last()["status"] not in ("running", "queued"), "Tithon's execution is over", 60.0)
    told = theirs.last()
    theirs_kept = sum(o["output_type"] == "display_data" for o in told["outputs"])
    return Result(
        what=f"supervisor stopped for {seconds:.0f} s: displays kept of {_DISPLAYS:,}",
        ours=f"{kept:,}, `{outcome}`",
        theirs=f"{theirs_kept:,}, `{told['status']}`",
        ok=kept == _DISPLAYS and outcome == "ok",
        note="SIGSTOP while the kernel sends; beside Tithon's daemon",
    )


def _lines(execution: dict[str, Any]) -> int:
    return sum(o.get("text", "").count("line") for o in execution["outputs"] if o["output_type"] == "stream")


def _until(predicate: Callable[[], bool], what: str, timeout: float = 20.0) -> None:
    deadline = time.monotonic() + timeout
    while not predicate():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.1)
