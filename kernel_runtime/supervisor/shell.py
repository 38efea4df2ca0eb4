"""The imperative shell: one session's state, and the carrying out of what the core commands.

`apply` is the only way the state changes. The journal comes first: when it refuses, the state stays
what it was and the event has not happened; a request is then refused, and what came from the kernel
stays in the outbox and comes again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from kernel_runtime.core.lifecycle import Policy, State, may_dispatch, next_deadline, step
from kernel_runtime.core.lifecycle import messages as m
from kernel_runtime.errors import DiskFull, EnvironmentFault, KernelRuntimeError
from kernel_runtime.journal import Journal
from kernel_runtime.model.entry import Draft
from kernel_runtime.supervisor.reactor import Reactor, Timer
from kernel_runtime.supervisor.reserve import Reserve
from kernel_runtime.testing.failpoints import reach

log = logging.getLogger("kernel_runtime.supervisor")

SYNC_WITHIN = 0.15
"""seconds from an unsynced commit to its sync"""
RETRY = 1.0
"""seconds until storage that failed is tried again"""
RESERVE_EVERY = 5.0
"""seconds until there may be room for the reserve again"""

_ENDS = (
    m.Interrupted,
    m.Ticked,
    m.Replied,
    m.ShellDrained,
    m.Answered,
    m.StopRequested,
    m.RestartRequested,
    m.KernelExited,
)
"""what may use the reserve of a full disk"""

Perform = Callable[[Any], None]


class Token:
    """Who waits for an answer. `respond` or `refuse` is called at most once."""

    __slots__ = ("refuse", "respond")

    def __init__(
        self,
        respond: Callable[[Mapping[str, Any]], None],
        refuse: Callable[[KernelRuntimeError], None],
    ) -> None:
        self.respond = respond
        self.refuse = refuse


class Shell:
    """State, journal and clock of a session. Commands other than `Append` go to `performers`."""

    def __init__(
        self, reactor: Reactor, journal: Journal, state: State, policy: Policy, *, durable: bool = True
    ) -> None:
        """`durable=False`: no commit waits for the disk, and a power cut may take all of them."""
        self._durable = durable
        self.reactor = reactor
        self.journal = journal
        self.reader = journal.reader()
        self.state = state
        self.policy = policy
        self.performers: dict[type[m.Command], Perform] = {
            m.Respond: self._respond,
            m.Refuse: self._refuse,
        }
        self.on_commit: list[Callable[[], None]] = []
        """called after entries were appended"""
        self.on_change: list[Callable[[State], None]] = []
        """called after every event with the state before it"""
        self.carry: tuple[Draft, ...] = ()
        """what happened before the next event and is journaled with it, in one transaction"""
        self._tick: Timer | None = None
        self._tick_due: int | None = None
        self._retry: Timer | None = None
        self._reserve = Reserve(journal.path.with_name("reserve"))
        self._syncer = _Syncer(journal)
        self._lay_in_reserve()
        self._sync_timer: Timer | None = None

    def apply(self, event: m.Event) -> None:
        """Let an event happen.

        Raises:
            EnvironmentFault: the journal could not take it; nothing happened.
        """
        before = self.state
        after, commands = step(before, event, time.monotonic_ns(), self.policy)
        for command in commands:
            if isinstance(command, m.Append):
                reach("before", event)
                self._append(event, command)
                reach("after", event)
        self.state = after
        for command in commands:
            if not isinstance(command, m.Append):
                self.performers[type(command)](command)
        if any(isinstance(command, m.Append) for command in commands):
            self.committed()
        for changed in self.on_change:
            changed(before)
        self._schedule_tick()
        self._proceed()

    def _append(self, event: m.Event, command: m.Append) -> None:
        drafts = (*self.carry, *command.drafts)
        try:
            self.journal.append(drafts, sync=command.sync and self._durable)
        except DiskFull:
            if not isinstance(event, _ENDS) or not self._reserve.spend():
                raise
            self.reactor.after(RETRY, self._lay_in_reserve)
            self.journal.append(drafts, sync=command.sync and self._durable)
        self.carry = ()

    def _lay_in_reserve(self) -> None:
        if not self._reserve.restore():
            self.reactor.after(RESERVE_EVERY, self._lay_in_reserve)

    def request(self, event: m.Event, token: Token) -> None:
        """Let a request happen, or tell whoever asked why not."""
        try:
            self.apply(event)
        except KernelRuntimeError as error:
            token.refuse(error)

    def committed(self) -> None:
        """Entries were appended: followers may read them, and the disk will soon have them."""
        for call in self.on_commit:
            call()
        if self._durable and self.journal.unsynced and self._sync_timer is None:
            self._sync_timer = self.reactor.after(SYNC_WITHIN, self._sync)

    def _sync(self) -> None:
        self._sync_timer = None
        self._syncer.wake()

    def _proceed(self) -> None:
        if not may_dispatch(self.state, time.monotonic_ns(), self.policy):
            return
        try:
            self.apply(m.Proceeded())
        except EnvironmentFault as error:
            log.warning("the queue waits: %s", error.message)
            if self._retry is None:
                self._retry = self.reactor.after(RETRY, self._retried)

    def _retried(self) -> None:
        self._retry = None
        self._proceed()

    def _schedule_tick(self) -> None:
        due = next_deadline(self.state, self.policy)
        if due == self._tick_due:
            return
        if self._tick is not None:
            self._tick.cancel()
        self._tick_due = due
        self._tick = None if due is None else self.reactor.at(due, self._ticked)

    def _ticked(self) -> None:
        self._tick = self._tick_due = None
        try:
            self.apply(m.Ticked())
        except EnvironmentFault as error:
            log.warning("a deadline waits for the journal: %s", error.message)
            self._tick = self.reactor.after(RETRY, self._ticked)

    def _respond(self, command: m.Respond) -> None:
        if command.token is not None:
            command.token.respond(command.result)

    def _refuse(self, command: m.Refuse) -> None:
        if command.token is not None:
            command.token.refuse(command.error)

    def close(self) -> None:
        self._syncer.close()
        self.journal.close()


class _Syncer:
    """Syncs the journal's file on a thread of its own, so that the loop never waits for the disk."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._wanted = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="journal-sync", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        self._wanted.set()

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            if self._closed:
                return
            try:
                self._journal.sync()
            except (OSError, EnvironmentFault) as error:
                # the next synced commit covers the same pages and reports to whoever asked
                log.warning("the journal could not be synced: %s", error)

    def close(self) -> None:
        self._closed = True
        self._wanted.set()
        self._thread.join()
