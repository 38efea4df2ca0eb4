"""The blocking client: `AsyncSession` for callers without an event loop.

Each session has one background thread with an event loop, in which its async twin lives; every
method here hands over one call and waits. So it works inside a running loop too (a notebook), and
Ctrl-C in the caller ends the waiting at once and leaves the execution running.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self, Unpack

from kernel_runtime.client.attaching import Creation, open_session
from kernel_runtime.client.blocking_claims import BlockingClaimCalls
from kernel_runtime.client.blocking_notebook import BlockingNotebookCalls
from kernel_runtime.client.blocking_terminals import BlockingTerminalCalls
from kernel_runtime.client.brief import Brief
from kernel_runtime.client.follow import Follower
from kernel_runtime.client.results import Interrupted, Record
from kernel_runtime.client.session import AsyncSession
from kernel_runtime.client.session import Execution as AsyncExecution
from kernel_runtime.client.status import Status
from kernel_runtime.client.submission import How
from kernel_runtime.errors import UsageError
from kernel_runtime.model.entry import Entry
from kernel_runtime.model.execution import Execution as Row


class Execution(Record):
    """An execution of a `Session`."""

    def __init__(self, session: Session, execution: AsyncExecution) -> None:
        super().__init__(execution.json(), cursor=execution.cursor, recorded=execution.recorded)
        self._session = session
        self._execution = execution

    def wait(self, timeout: float | None = None) -> Execution:
        """Wait until it is done; this object then tells how it ended.

        Raises:
            StillRunning: the time is up; it goes on.
        """
        self._document = self._session.run(self._execution.wait(timeout)).json()
        return self

    def refresh(self) -> Execution:
        """Read its present state and outputs from the journal."""
        self._document = self._session.run(self._execution.refresh()).json()
        return self

    def follow(self, timeout: float | None = None) -> Iterator[Entry]:
        """Its entries from the first on, as they come; ends with its ExecutionFinished."""
        return self._session.follow(self.cursor, until=self.execution_id, timeout=timeout, only=True)


class Session(BlockingClaimCalls, BlockingTerminalCalls, BlockingNotebookCalls):
    """A client of one session. `attach` makes one; leaving its `with` detaches.

    Methods, their arguments and errors are those of `AsyncSession`.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.detach()

    def __repr__(self) -> str:
        return f"<Session {self.name} as {self.principal}>"

    def attach(self, *, accept: bool = False) -> Session:
        """Join; `kernel_runtime.attach` has done so already."""
        self.run(self._session.attach(accept=accept))
        return self

    def detach(self) -> None:
        """Leave; the session does not change."""
        if not self._loop.closed:
            try:
                self._loop.run(self._session.detach())
            finally:
                self._loop.close()

    @property
    def name(self) -> str:
        return self._session.name

    @property
    def session_id(self) -> str:
        return self._session.session_id

    @property
    def principal(self) -> str:
        return self._session.principal

    @property
    def truth(self) -> Status:
        """The report made at attach."""
        if self._session.truth is None:
            raise UsageError(f"session {self.name}: not attached", hint="attach first, or ask status()")
        return self._session.truth

    @property
    def heap_lost(self) -> bool:
        """True: the heap this principal knew is gone, and `execute` will refuse until that is accepted."""
        return self._session.heap_lost

    @property
    def incarnation(self) -> int:
        return self._session.incarnation

    @property
    def attached(self) -> dict[str, Any]:
        """The supervisor's reply to attach: head, pids, state."""
        return self._session.attached

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that `coroutines` run in."""
        return self._loop.loop

    @property
    def coroutines(self) -> AsyncSession:
        """The async client behind this one; its coroutines belong into `run`."""
        return self._session

    def submit(self, source: str, **how: Unpack[How]) -> Execution:
        """Queue one execution and return once the intent to run it is on disk."""
        return Execution(self, self.run(self._session.submit(source, **how)))

    def execute(self, source: str, *, timeout: float | None = None, **how: Unpack[How]) -> Execution:
        """Run one cell and return when it is done, or blocked on input."""
        return Execution(self, self.run(self._session.execute(source, timeout=timeout, **how)))

    def execution(self, execution_id: str | None = None, *, key: str | None = None) -> Execution:
        """An execution by its id or key; without either, the latest."""
        return Execution(self, self.run(self._session.execution(execution_id, key=key)))

    def wait(
        self, execution_id: str | None = None, *, key: str | None = None, timeout: float | None = None
    ) -> Execution:
        """The execution of that id or key (else the latest), once it is done."""
        return Execution(self, self.run(self._session.wait(execution_id, key=key, timeout=timeout)))

    def follow(
        self,
        after: int = 0,
        *,
        until: str | None = None,
        timeout: float | None = None,
        only: bool = False,
    ) -> Iterator[Entry]:
        """Every entry after that `seq`, each once and in order, and then new ones as they come."""
        for batch in self.follow_batches(after, until=until, timeout=timeout, only=only):
            yield from batch

    def follow_batches(
        self,
        after: int = 0,
        *,
        until: str | None = None,
        timeout: float | None = None,
        only: bool = False,
    ) -> Iterator[list[Entry]]:
        """As `follow`, in the portions in which the entries were read."""
        batches = self._session.follow_batches(after, until=until, timeout=timeout, only=only)
        while (batch := self.run(_next(batches))) is not None:
            yield batch

    def status(self, limit: int | None = None) -> Status:
        """Reconcile: the truth of every cell."""
        return self.run(self._session.status(limit))

    def brief(self, max_tokens: int = 1000) -> Brief:
        """What a worker reads first: text, with its `lines`."""
        return self.run(self._session.brief(max_tokens))

    def answer(self, text: str | None = None, *, eof: bool = False, execution_id: str | None = None) -> str:
        """Answer what the session is blocked on."""
        return self.run(self._session.answer(text, eof=eof, execution_id=execution_id))

    def interrupt(self, execution_id: str | None = None) -> Interrupted:
        """Interrupt what runs."""
        return self.run(self._session.interrupt(execution_id))

    def start(self) -> int:
        """Start the kernel if none lives; the incarnation, once it has answered."""
        return self.run(self._session.start())

    def restart(self, *, reason: str = "restart") -> int:
        """A new kernel; the number of its incarnation."""
        return self.run(self._session.restart(reason=reason))

    def accept(self) -> int:
        """Accept that the earlier heap is gone."""
        return self.run(self._session.accept())

    def stop(self) -> list[dict[str, Any]]:
        """End the kernel and the supervisor, keep the session."""
        return self.run(self._session.stop())

    def resources(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Processes, sockets, files and terminals of the session, with the execution that started each."""
        return self.run(self._session.resources(limit))

    def why(self) -> dict[str, Any]:
        """What the session is doing now: `{"state", "why"}`."""
        return self.run(self._session.why())

    def peek(self, execution_id: str) -> Row:
        """The journal's row of an execution: all but its source and outputs."""
        return self.run(self._session.peek(execution_id))

    def find(self, execution_id: str | None = None, *, key: str | None = None) -> Row:
        """The journal's row of an execution by id, first letters of one, or key; else of the latest."""
        return self.run(self._session.find(execution_id, key=key))

    def running(self) -> Row | None:
        """The execution that runs now, or is blocked; None when nothing does."""
        return self.run(self._session.running())

    def present(self) -> int:
        """The cursor from which a reader sees all of what runs now; else the journal's head."""
        return self.run(self._session.present())

    def history(self, n: int | None = None) -> list[str]:
        """Sources that ran in this session, in all incarnations, oldest first; each the once."""
        return self.run(self._session.history(n))

    def language(self) -> str:
        """What the kernel speaks, e.g. `python`; "" when none has started yet."""
        return self.run(self._session.language())

    def row(self) -> dict[str, Any]:
        """This session's row of `krt ls`."""
        return self.run(self._session.row())

    def connection_file(self) -> str:
        """Path of the front door's connection file; the door is open."""
        return str(self.run(self._session.connection_file()))


async def _next(batches: Follower) -> list[Entry] | None:
    return await anext(batches, None)


def attach(
    name: str,
    *,
    create: bool = False,
    principal: str | None = None,
    accept: bool = False,
    **creation: Unpack[Creation],
) -> Session:
    """Join a session; leaving the `with` block of what this returns detaches.

    Args and errors are those of `kernel_runtime.aio.attach`.
    """
    session = observe(name, create=create, principal=principal, **creation)
    try:
        return session.attach(accept=accept)
    except BaseException:
        session.detach()
        raise


def observe(
    name: str,
    *,
    create: bool = False,
    principal: str | None = None,
    **creation: Unpack[Creation],
) -> Session:
    """A client that has not attached: it reads the record, and starts no supervisor until it must."""
    return Session(open_session(name, create=create, principal=principal, **creation))
