"""One session under fault: a cell with a side effect on disk, and what must hold whatever dies when."""

from __future__ import annotations

import os
import signal
import textwrap
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

import kernel_runtime as kr
from kernel_runtime import places, process
from kernel_runtime.client import session_files, spawn
from kernel_runtime.client.blocking import Execution, Session
from kernel_runtime.errors import SupervisorFault
from kernel_runtime.journal import JournalReader, verify
from kernel_runtime.model.entry import Entry
from kernel_runtime.model.facts import ExecutionFinished, OutputRecorded
from tests.support import eventually

LINES = 200
NAME = "m"


class Rig:
    """A session called `m`, its acknowledged executions, and the file its cells append to."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.side = root / "side-effects"
        self.side.touch()
        self.points = root / "points"
        self.points.mkdir()
        self.monkeypatch = monkeypatch
        self.acknowledged: list[tuple[str, int, str]] = []
        """`(execution_id, cursor, key)` of every submit that was answered"""
        self.clients: list[Session] = []
        self.pool = ThreadPoolExecutor(4)
        self.work: list[Future[object]] = []

    # -- clients

    def attach(self, principal: str = "agent:a") -> Session:
        session = kr.attach(NAME, create=True, principal=principal, cwd=str(self.root))
        self.clients.append(session)
        return session

    @staticmethod
    def attach_to(name: str) -> Session:
        """A client of another session; whoever asks for it detaches and stops it."""
        return kr.attach(name, principal="agent:other")

    def attach_anew(self, principal: str = "agent:recovers") -> Session:
        """The next command after something died.

        A supervisor that dies while starting is told as such, and the command after that one starts another.
        """
        for _ in range(3):
            try:
                return self.attach(principal)
            except SupervisorFault:
                continue
        return self.attach(principal)

    def cell(self, tag: str, *, lines: int = LINES, inside: str = "") -> str:
        """Appends `tag` to the file, prints numbered lines; `inside` runs in the middle of them."""
        return (
            "import os\n"
            f"fd = os.open({str(self.side)!r}, os.O_WRONLY | os.O_APPEND)\n"
            f"os.write(fd, b'{tag}\\n'); os.close(fd)\n"
            f"for i in range({lines}):\n"
            f"    print('{tag}', i)\n"
            f"    if i == {lines // 2}:\n"
            f"{textwrap.indent(inside or 'pass', ' ' * 8)}\n"
        )

    def submit(self, session: Session, key: str, source: str) -> Execution:
        execution = session.submit(source, key=key)
        self.acknowledged.append((execution.execution_id, execution.cursor, key))
        return execution

    def begin(self, work: Callable[[], object]) -> Future[object]:
        """Do something in a thread of its own, since whoever it asks may be stopped."""
        self.work.append(self.pool.submit(work))
        return self.work[-1]

    # -- faults

    def failpoint(self, point: str, action: str, count: int = 1) -> None:
        """Processes started from now on fail there, once `arm` was called."""
        self.monkeypatch.setenv("KRT_FAILPOINT", f"{point}:{action}:{count}")
        self.monkeypatch.setenv("KRT_FAILPOINT_DIR", str(self.points))

    def no_more_failpoints(self) -> None:
        self.monkeypatch.delenv("KRT_FAILPOINT", raising=False)
        self.monkeypatch.delenv("KRT_FAILPOINT_DIR", raising=False)

    def arm(self) -> None:
        (self.points / "arm").touch()

    def hit(self, timeout: float = 30.0) -> process.ProcessId | None:
        """Wait until the point was reached; who reached it, if it is still there."""
        path = self.points / "hit"
        try:
            eventually(path.exists, timeout=timeout, what="the failpoint is reached")
        except AssertionError as error:
            error.add_note(f"meanwhile: {[w.exception() for w in self.work if w.done()]}")
            raise
        return process.identify(int(path.read_text()))

    def let_go_on(self, who: process.ProcessId | None, stopped_for: float) -> None:
        """SIGCONT to a process that stopped itself, when it has been stopped for so long."""
        assert who is not None
        eventually(lambda: process.run_state(who.pid) in ("T", "t"), what="it stopped")
        threading.Event().wait(stopped_for)
        assert process.signal_process(who, signal.SIGCONT)

    def kill(self, pid: int | None) -> None:
        assert pid is not None
        who = process.identify(pid)
        if who is not None:
            process.signal_process(who, signal.SIGKILL)
            eventually(lambda: not process.is_alive(who), what=f"{pid} is gone")

    @property
    def file(self) -> session_files.SessionFile:
        return session_files.load(NAME)

    def supervisor_pid(self) -> int:
        lock = self.file.directory / "supervisor.lock"
        return int(msgspec.json.decode(lock.read_bytes())["pid"])

    def kernel_and_parent(self) -> set[int]:
        kernel = self.kernel_pid()
        fields = process.stat_fields(kernel)
        assert fields is not None
        return {kernel, int(fields[1])}

    def kernel_pid(self) -> int:
        who = session_files.living_kernel(self.file)
        assert who is not None
        return who.pid

    # -- checks

    def entries(self) -> list[Entry]:
        entries: list[Entry] = []
        with JournalReader.open(self.file.journal) as reader:
            while batch := reader.entries(entries[-1].seq if entries else 0):
                entries += batch
        return entries

    def outcome(self, key: str) -> str | None:
        """Of the execution with that key; "" when it was never queued."""
        with JournalReader.open(self.file.journal) as reader:
            row = reader.by_key(key)
        return "" if row is None else row.outcome

    def ran(self, tag: str) -> int:
        return Counter(self.side.read_text().splitlines())[tag]

    def settle(self, session: Session) -> None:
        """Wait until nothing runs and nothing is queued."""

        def quiet() -> bool:
            row = session.row()
            return row["state"] in ("idle", "dead", "stopped") and not row["queued"]

        eventually(quiet, timeout=30, what="the session is quiet")

    def check(self, *keys: str, lines: int = LINES) -> None:
        """The promises, read from the disk alone."""
        entries = self.entries()
        assert [e.seq for e in entries] == list(range(1, len(entries) + 1)), "seq without gap"
        report = verify(self.file.journal)
        assert report.ok, report.problems
        assert report.projections == "match"
        queued = {e.execution_id: e for e in entries if e.kind == "ExecutionQueued"}
        for execution_id, cursor, _key in self.acknowledged:
            assert execution_id in queued, "acknowledged and not in the journal"
            assert queued[execution_id].seq > cursor, "its cursor is before all of it"
        finished = Counter(e.execution_id for e in entries if e.kind == "ExecutionFinished")
        assert finished == dict.fromkeys(queued, 1), "one outcome each"
        started = Counter(e.execution_id for e in entries if e.kind == "ExecutionStarted")
        assert all(count == 1 for count in started.values()), "started once at most"
        for key in keys:
            self.check_cell(key, entries, lines)

    def check_cell(self, key: str, entries: list[Entry], lines: int) -> None:
        outcome = self.outcome(key)
        ran = self.ran(key)
        if outcome == "":
            assert ran == 0, "it ran and nobody wrote down that it would"
            return
        with JournalReader.open(self.file.journal) as reader:
            row = reader.by_key(key)
        assert row is not None
        mine = [e for e in entries if e.execution_id == row.execution_id]
        printed = printed_by(mine)
        whole = "".join(f"{key} {i}\n" for i in range(lines))
        gaps = [e for e in mine if e.kind == "GapRecorded"]
        if outcome == "ok":
            assert ran == 1, f"ok, and its effect is there {ran} times"
            assert printed == whole or gaps, "complete, or an explicit gap"
        else:
            assert ran <= 1, "ran twice"
            assert whole.startswith(printed) or gaps, "in order and without a hole"
        if outcome == "aborted":
            assert ran == 0, "aborted means that it never started"
            assert not printed
        if ran and outcome == "died":
            finish = next(e.fact for e in mine if isinstance(e.fact, ExecutionFinished))
            assert finish.evidence, "a death without a word of evidence"

    def close(self) -> None:
        """Stop and remove it, and look that nothing of it is left."""
        self.no_more_failpoints()
        session_id, directory = self.file.session_id, self.file.directory
        session = self.attach_anew("agent:closes")
        session.stop()
        for client in self.clients:
            client.detach()
        self.pool.shutdown(wait=True, cancel_futures=True)
        assert spawn.wait_until_gone(self.file, 10)
        sockets = places.socket_dir(session_id)
        session_files.remove(NAME)
        eventually(
            lambda: not process.marked_processes("KRT_SESSION_ID", session_id), what="no process of ours"
        )
        assert not directory.exists()
        assert not sockets.exists()
        assert os.listdir(directory.parent) == []


def printed_by(entries: list[Entry]) -> str:
    """What was written to stdout, as the journal has it."""
    text = []
    for entry in entries:
        if isinstance(entry.fact, OutputRecorded):
            for raw in entry.fact.messages:
                message = msgspec.json.decode(raw)
                if message["type"] == "stream" and message["content"]["name"] == "stdout":
                    text.append(message["content"]["text"])
    return "".join(text)
