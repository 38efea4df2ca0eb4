"""The async client of one session.

What changes the session goes to its supervisor; what has happened is read from the journal, by this
process itself. So output reaches a reader from the record alone: a slow reader, or one that comes
late, loses nothing and holds nobody up, and the death of a supervisor shows as a pause at most.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

import msgspec

from kernel_runtime.client import session_files, spawn
from kernel_runtime.client.brief import Brief, brief_of, gather
from kernel_runtime.client.connection import ControlLine
from kernel_runtime.client.follow import Follower
from kernel_runtime.client.handoff import HandoffCalls
from kernel_runtime.client.notebook import NotebookCalls
from kernel_runtime.client.results import Accepted, Interrupted, Record
from kernel_runtime.client.session_files import SessionFile
from kernel_runtime.client.status import Status
from kernel_runtime.client.submission import How
from kernel_runtime.client.terminals import TerminalCalls
from kernel_runtime.client.world import WorldCalls
from kernel_runtime.core.entries import walk
from kernel_runtime.core.source import check_source
from kernel_runtime.errors import (
    NoSuchExecution,
    StillRunning,
    SupervisorFault,
    UsageError,
)
from kernel_runtime.journal import JournalReader
from kernel_runtime.model.entry import Entry
from kernel_runtime.model.execution import Execution as Row
from kernel_runtime.model.facts import KernelStarted
from kernel_runtime.testing.failpoints import reach

_DOORBELL = 30.0
_LOSSES = 10
"""supervisors that may die one after another under somebody who listens"""
_LAUNCH = 180.0
"""seconds for what may start a kernel"""


class Execution(Record):
    """An execution of an `AsyncSession`."""

    def __init__(
        self, session: AsyncSession, document: dict[str, Any], *, cursor: int, recorded: bool = False
    ) -> None:
        super().__init__(document, cursor=cursor, recorded=recorded)
        self._session = session

    async def wait(self, timeout: float | None = None) -> Execution:
        """Wait until it is done; this object then tells how it ended.

        Raises:
            StillRunning: the time is up; it goes on.
        """
        await self._session.settle(self.execution_id, timeout, stop_when_blocked=False)
        return await self.refresh()

    async def refresh(self) -> Execution:
        """Read its present state and outputs from the journal."""
        self._document = await self._session.document(self.execution_id)
        return self

    def follow(self, timeout: float | None = None) -> AsyncIterator[Entry]:
        """Its entries from the first on, as they come; ends with its ExecutionFinished."""
        return self._session.follow(after=self.cursor, until=self.execution_id, timeout=timeout, only=True)


class AsyncSession(HandoffCalls, WorldCalls, TerminalCalls, NotebookCalls):
    """A client of one session. `attach` makes one; leaving its `async with` detaches."""

    def __init__(self, session: SessionFile, principal: str) -> None:
        self.file = session
        self.name = session.name
        self.session_id = session.session_id
        self.principal = principal
        self.truth: Status | None = None
        """the report made at attach; None for one that only observes"""
        self.heap_lost = False
        """True: the heap this principal knew is gone and that is not yet accepted"""
        self.incarnation = 0
        self.state = ""
        self.attached: dict[str, Any] = {}
        self._line = ControlLine(session, principal)
        self._line.on_connect = self._forget_journal
        self._journal: JournalReader | None = None

    # coming and going

    def only_ask_the_living(self) -> None:
        """From now on start no supervisor: where none lives, calls raise SupervisorFault (`gone`)."""
        self._line.revives = False

    async def attach(self, *, accept: bool = False) -> AsyncSession:
        """Join: starts a supervisor where none lives, and reconciles.

        Raises:
            SupervisorFault, StorageFault, JournalCorrupt, JournalNewer: no supervisor can be had.
        """
        reply = await self._line.request("attach", {"accept": accept})
        self.attached = reply
        self.incarnation = int(reply.get("incarnation") or 0)
        self.state = str(reply.get("state") or "")
        self.heap_lost = bool(reply.get("heap_lost"))
        self.truth = Status.from_json(reply["report"])
        return self

    async def detach(self) -> None:
        """Leave; the session does not change."""
        self._line.close()
        self._forget_journal()

    def _forget_journal(self) -> None:
        """Have it opened again: a new supervisor may have migrated it."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.detach()

    @property
    def journal(self) -> JournalReader:
        """The journal, read-only. Raises FileNotFoundError where no supervisor ever ran."""
        if self._journal is None:
            if not self.file.journal.exists():
                raise FileNotFoundError(self.file.journal)
            self._journal = JournalReader.open(self.file.journal)
        return self._journal

    # running

    async def submit(self, source: str, **how: Unpack[How]) -> Execution:
        """Queue one execution; returns when the intent to run it is on disk.

        The same `key` and source give the recorded execution and run nothing. Without a key one is
        made up, so that a request repeated after a lost connection never runs twice.

        Raises:
            HeapLost: the kernel this principal knew is gone; `fields["report"]` says what with it.
            IncarnationMismatch, KeyConflict, CrashLoop, SessionBusy: refused, nothing was run.
            KernelStartFailed, DiskFull, ReadOnlyStorage: the machine was at fault, nothing was run.
            InvalidSource: over 16 MiB, or not text.
        """
        check_source(source, self.name)
        key = how.get("key")
        wanted = {name: value for name, value in how.items() if value is not None}
        wanted |= {"source": source, "key": key or f"auto-{uuid.uuid4().hex}"}
        reach("client-before-submit")
        reply = await self._line.request("submit", wanted, within=_LAUNCH)
        reach("client-after-ack")
        accepted = msgspec.convert(reply, Accepted)
        self.heap_lost = False
        self.incarnation = accepted.incarnation
        document: dict[str, Any] = {
            "session": self.name,
            "execution_id": accepted.execution_id,
            "key": key,
            "cell_id": accepted.cell_id,
            "principal": self.principal,
            "incarnation": accepted.incarnation,
            "status": accepted.status,
            "outcome": None,
            "source": source,
            "cursor": accepted.cursor,
        }
        execution = Execution(self, document, cursor=accepted.cursor, recorded=accepted.recorded)
        return await execution.refresh() if accepted.status == "done" else execution

    async def execute(self, source: str, *, timeout: float | None = None, **how: Unpack[How]) -> Execution:
        """Run one cell and return when it is done, or blocked on input (`status == "blocked"`).

        What it raised is in `error`. The rest is as in `submit`.

        Raises:
            StillRunning: `timeout` seconds are over; it goes on, `fields["execution_id"]` names it.
        """
        started = time.monotonic()
        execution = await self.submit(source, **how)
        left = None if timeout is None else timeout - (time.monotonic() - started)
        await self.settle(execution.execution_id, left, stop_when_blocked=True)
        return await execution.refresh()

    async def execution(self, execution_id: str | None = None, *, key: str | None = None) -> Execution:
        """An execution by its id (or a prefix of one, 6 letters at least) or key; without either, the latest.

        Raises:
            NoSuchExecution: none such in this session's journal.
        """
        row = await self.find(execution_id, key=key)
        return Execution(self, self._document_of(row), cursor=row.queued_seq - 1, recorded=True)

    async def wait(
        self, execution_id: str | None = None, *, key: str | None = None, timeout: float | None = None
    ) -> Execution:
        """The execution of that id or key (else the latest), once it is done.

        Raises:
            NoSuchExecution: none such.
            StillRunning: the time is up; it goes on.
        """
        row = await self.find(execution_id, key=key)
        await self.settle(row.execution_id, timeout, stop_when_blocked=False)
        return await self.execution(row.execution_id)

    # reading along

    async def follow(
        self,
        after: int = 0,
        *,
        until: str | None = None,
        timeout: float | None = None,
        only: bool = False,
    ) -> AsyncIterator[Entry]:
        """Every entry after that `seq`, each once and in order, and then new ones as they come.

        Ends when the session is stopped; with `until`, after that execution's ExecutionFinished;
        with `timeout`, when so many seconds are over. `only` leaves out entries of other executions.
        A supervisor that dies meanwhile is replaced.
        """
        async for batch in self.follow_batches(after, until=until, timeout=timeout, only=only):
            for entry in batch:
                yield entry

    def follow_batches(
        self,
        after: int = 0,
        *,
        until: str | None = None,
        timeout: float | None = None,
        only: bool = False,
    ) -> Follower:
        """As `follow`, in the portions in which the entries are read."""
        return Follower(self, after, until=until, timeout=timeout, only=only)

    async def news(self, after: int, deadline: float | None) -> bool:
        """Wait for an entry after that one, or the deadline; False when the session was stopped."""
        await self._need_journal()
        if self.journal.head() > after:
            return True
        losses = 0
        while True:
            wait = _DOORBELL if deadline is None else min(_DOORBELL, max(0.0, deadline - time.monotonic()))
            arguments = {"after": after, "timeout": wait}
            try:
                # a supervisor that was stopped on purpose is not brought back by somebody who only listens
                reply = await self._line.request(
                    "changes",
                    arguments,
                    within=wait + 90.0,
                    revive=lambda: not self.was_stopped(),
                    resend=False,
                )
            except SupervisorFault as fault:
                losses += 1
                if not fault.fields.get("gone") or losses > _LOSSES:
                    raise
                if self.was_stopped():
                    return self.journal.head() > after
                continue
            losses = 0
            if int(reply["head"]) > after or (deadline is not None and time.monotonic() >= deadline):
                return True

    def was_stopped(self) -> bool:
        """Whether the last word of the journal is that somebody stopped the session.

        Raises FileNotFoundError where no supervisor ever ran.
        """
        stopped = self.journal.latest("SupervisorStopped")
        return stopped is not None and stopped.seq == self.journal.head()

    async def settle(self, execution_id: str, timeout: float | None, *, stop_when_blocked: bool) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        await self._need_journal()
        while True:
            head = self.journal.head()
            row = await self.peek(execution_id)
            if row.status == "done" or (stop_when_blocked and row.status == "blocked"):
                return
            if deadline is not None and time.monotonic() >= deadline:
                raise still_running(self.name, row, timeout or 0.0)
            if not await self.news(head, deadline):
                raise still_running(self.name, row, timeout or 0.0)

    # what is so

    async def status(self, limit: int | None = None) -> Status:
        """Reconcile: the truth of every cell (the worst `limit` only, where given).

        Reading it counts as being told of a lost heap: the next `execute` is accepted.
        """
        return await self._told(limit, "status")

    async def _told(self, limit: int | None, how: str) -> Status:
        arguments: dict[str, Any] = {"how": how} if limit is None else {"how": how, "limit": limit}
        status = Status.from_json(await self._line.request("status", arguments))
        self.heap_lost = False
        self.incarnation, self.state = status.incarnation, status.state
        return status

    async def brief(self, max_tokens: int = 1000) -> Brief:
        """What a worker reads first, the most important first: text, with its `lines`.

        At most `max_tokens` tokens at 4 letters each. Counts as being told, as `status` does.
        """
        status = await self._told(20, "brief")
        await self._need_journal()
        return brief_of(await gather(self, status), max_tokens)

    async def answer(
        self, text: str | None = None, *, eof: bool = False, execution_id: str | None = None
    ) -> str:
        """Answer what the session is blocked on; the execution that asked.

        Raises:
            NotBlocked: nothing asks, or somebody else has answered.
        """
        if (text is None) == (not eof):
            raise UsageError(f"session {self.name}: an answer is a text or eof", hint="pass one of the two")
        arguments: dict[str, Any] = {"eof": True} if eof else {"text": text}
        if execution_id is not None:
            arguments["execution_id"] = execution_id
        return str((await self._line.request("answer", arguments))["execution_id"])

    async def interrupt(self, execution_id: str | None = None) -> Interrupted:
        """Interrupt what runs; returns when it ended, or when nothing but killing is left.

        With an `execution_id` that one only: nothing happens if it has ended, and one that is still
        queued is taken back (`aborted`).
        """
        arguments = {} if execution_id is None else {"execution_id": execution_id}
        return msgspec.convert(await self._line.request("interrupt", arguments), Interrupted)

    async def start(self) -> int:
        """Start the kernel if none lives; the incarnation, once it has answered.

        Raises:
            KernelStartFailed: it died before it answered; `fields["stderr"]` is what it said.
        """
        self.incarnation = int(
            (await self._line.request("start", {"reason": "new"}, within=_LAUNCH))["incarnation"]
        )
        return self.incarnation

    async def restart(self, *, reason: str = "restart") -> int:
        """A new kernel; the number of its incarnation, once it has answered. `reason` is for the record.

        Raises:
            KernelStartFailed: it died before it answered; `fields["stderr"]` is what it said.
        """
        reply = await self._line.request("restart", {"reason": reason}, within=_LAUNCH)
        self.incarnation = int(reply["incarnation"])
        self.heap_lost = False
        return self.incarnation

    async def accept(self) -> int:
        """Accept that the earlier heap is gone; the present incarnation."""
        reply = await self._line.request("accept", within=_LAUNCH)
        self.heap_lost = False
        self.incarnation = int(reply["incarnation"])
        return self.incarnation

    async def stop(self) -> list[dict[str, Any]]:
        """End the kernel and the supervisor, keep the session; the processes that were left alive."""
        left: list[dict[str, Any]] = []
        if session_files.lives(self.file):
            try:
                left = list((await self._line.request("stop")).get("left") or [])
            except SupervisorFault as fault:
                # it may end before its reply is out; what counts is what is left
                if not fault.fields.get("gone") or session_files.living_kernel(self.file) is not None:
                    raise
            await asyncio.to_thread(spawn.wait_until_gone, self.file, 15.0)
        return left

    async def peek(self, execution_id: str) -> Row:
        """The journal's row of an execution: all but its source and outputs.

        Raises:
            NoSuchExecution: none such.
        """
        await self._need_journal()
        row = self.journal.execution(execution_id)
        if row is None:
            raise _no_execution(self.name, execution_id)
        return row

    async def running(self) -> Row | None:
        """The execution that runs now, or is blocked; None when nothing does."""
        await self._need_journal()
        for status in ("running", "blocked"):
            if rows := self.journal.executions(status=status, last=1):
                return rows[-1]
        return None

    async def present(self) -> int:
        """The cursor from which a reader sees all of what runs now; else the journal's head."""
        row = await self.running()
        return self.journal.head() if row is None else row.queued_seq - 1

    async def history(self, n: int | None = None) -> list[str]:
        """Sources that ran in this session, in all incarnations, oldest first; each the once."""
        await self._need_journal()
        return [source for _, _, source in self.journal.history(n=n, unique=True)]

    async def language(self) -> str:
        """What the kernel's info says it speaks, e.g. `python`; "" when none has started yet."""
        await self._need_journal()
        started = self.journal.latest("KernelStarted")
        if started is None or not isinstance(started.fact, KernelStarted):
            return "python" if self.file.kernel == session_files.DEFAULT_KERNEL else ""
        return started.fact.language

    async def row(self, *, within: float = 3.0) -> dict[str, Any]:
        """This session's row of `krt ls`, and whether this principal's heap is gone (`heap_lost`).

        Raises:
            SupervisorFault: no supervisor can be had, or it did not answer within so many seconds.
        """
        return await self._line.request("state", within=within)

    async def connection_file(self) -> Path:
        """Path of the front door's connection file, for any Jupyter client; the door is open."""
        await self._line.request("ping")
        return self.file.front

    # the journal

    async def _need_journal(self) -> None:
        if self._journal is None and not self.file.journal.exists():
            await self._line.request("ping")  # the first supervisor makes it

    async def find(self, execution_id: str | None = None, *, key: str | None = None) -> Row:
        """The journal's row of an execution by id, first letters of one, or key; else of the latest.

        Raises:
            NoSuchExecution: none such.
        """
        try:
            journal = self.journal
        except FileNotFoundError:
            raise _no_execution(self.name, execution_id or key or "any") from None
        if key is not None:
            row = journal.by_key(key)
        elif execution_id is None:
            latest = journal.executions(last=1)
            row = latest[-1] if latest else None
        else:
            row = journal.execution(execution_id)
            if row is None and len(execution_id) >= 6:
                same = [r for r in journal.executions() if r.execution_id.startswith(execution_id)]
                row = same[0] if len(same) == 1 else None
        if row is None:
            raise _no_execution(self.name, execution_id or key or "any")
        return row

    async def document(self, execution_id: str) -> dict[str, Any]:
        """The execution document of INTERFACE.md."""
        return self._document_of(await self.peek(execution_id))

    def _document_of(self, row: Row) -> dict[str, Any]:
        from kernel_runtime.core.execution_view import view

        entries = walk(self.journal, row.queued_seq - 1, execution_id=row.execution_id)
        return view(self.name, row, self.journal.source(row.execution_id), entries)


def still_running(name: str, row: Row, seconds: float) -> StillRunning:
    """The time is up: says how to come back to it."""
    return StillRunning(
        f"session {name}: execution {row.execution_id} is {row.status} after {seconds:g} s; it goes on",
        hint=f"`krt wait {name} {row.execution_id}` waits for it, `krt interrupt {name}` ends it",
        session=name,
        execution_id=row.execution_id,
        status=row.status,
        cursor=row.queued_seq - 1,
    )


def _no_execution(name: str, what: str) -> NoSuchExecution:
    return NoSuchExecution(
        f"session {name}: no execution {what}",
        hint=f"`krt log {name} --kind ExecutionQueued` lists them",
        session=name,
    )
