"""The shell around the pure core, as far as laws need one, and the laws themselves.

`test_lifecycle` makes the histories.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from hypothesis.stateful import RuleBasedStateMachine, invariant

from kernel_runtime.core.lifecycle import Policy, State, step
from kernel_runtime.core.lifecycle import messages as m
from kernel_runtime.core.projection import Projections
from kernel_runtime.errors import HeapLost
from kernel_runtime.model import facts as f
from kernel_runtime.model.entry import Draft, Entry
from kernel_runtime.model.execution import Execution, Seen
from kernel_runtime.model.truth import STATES
from kernel_runtime.supervisor.recover import recover

POLICY = Policy()
SECOND = 1_000_000_000


class ModelJournal:
    """Entries in memory, with the projections and the questions that `recover` asks of a real one."""

    def __init__(self) -> None:
        self.all: list[Entry] = []
        self.folds = Projections()

    def append(self, drafts: Iterable[Draft], now: int) -> list[Entry]:
        added = []
        for draft in drafts:
            entry = Entry(
                seq=len(self.all) + 1,
                at=now,
                mono=now,
                incarnation=draft.incarnation,
                principal=draft.principal,
                kind=type(draft.fact).__name__,
                fact=draft.fact,
                execution_id=f.execution_of(draft.fact),
                prev_hash="",
                hash="",
            )
            self.all.append(entry)
            self.folds.apply(entry)
            added.append(entry)
        return added

    # what recover reads

    def latest(self, kind: str) -> Entry | None:
        return next((e for e in reversed(self.all) if e.kind == kind), None)

    def entries(
        self,
        after: int = 0,
        *,
        limit: int = 1000,
        execution_id: str | None = None,
        kinds: Iterable[str] | None = None,
        last: int | None = None,
    ) -> list[Entry]:
        wanted = None if kinds is None else set(kinds)
        found = [
            e
            for e in self.all
            if e.seq > after
            and (wanted is None or e.kind in wanted)
            and (execution_id is None or e.execution_id == execution_id)
        ]
        return found[:limit] if last is None else found[-last:]

    def executions(self, *, status: str) -> list[Execution]:
        rows = [row for row in self.folds.executions.values() if row.status == status]
        return sorted(rows, key=lambda row: row.queued_seq)

    def seen(self) -> dict[str, Seen]:
        return dict(self.folds.seen)


class Laws(RuleBasedStateMachine):
    """The shell, as far as the laws need one, around `step`."""

    def __init__(self) -> None:
        super().__init__()
        self.journal = ModelJournal()
        self.state = State(session="s")
        self.now = SECOND
        self.count = 0
        self.asked: dict[int, m.Event] = {}
        self.answered: Counter[int] = Counter()
        self.dispatched: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.untold: set[str] = set()
        """principals that knew a heap which is gone, and to whom nobody has said so"""
        self.foretold: dict[str, int] = {}
        """principals that ended an incarnation themselves"""
        self.leaving = False
        """the kernel was told to stop and has not gone yet"""

    # -- the shell

    def number(self) -> int:
        self.count += 1
        return self.count

    def token(self) -> int:
        return self.number()

    def happen(self, event: m.Event, *, fails: bool = False) -> list[m.Command]:
        """Apply an event. With `fails` the journal takes nothing: then nothing may have happened."""
        token = getattr(event, "token", None)
        if token is not None:
            self.asked[token] = event
        before = self.state
        after, commands = step(before, event, self.now, POLICY)
        appends = [c for c in commands if isinstance(c, m.Append)]
        assert len(appends) <= 1, "one transaction per event"
        assert commands[:1] == appends or not appends, "the journal comes before all else"
        if appends and fails:
            if token is not None:
                self.answered[token] += 1  # the shell refuses it with the journal's error
            return []
        entries = [e for a in appends for e in self.journal.append(a.drafts, self.now)]
        self.state = after
        self.hold_against_the_laws(event, before, appends, entries, commands)
        for command in commands:
            self.perform(command)
        return commands

    def perform(self, command: m.Command) -> None:
        if isinstance(command, m.Respond | m.Refuse) and command.token is not None:
            self.answered[command.token] += 1
        elif isinstance(command, m.Ended):
            self.ended[command.execution.execution_id] += 1
        elif isinstance(command, m.StopKernel):
            self.leaving = True

    # -- laws of one transition

    def hold_against_the_laws(
        self,
        event: m.Event,
        before: State,
        appends: list[m.Append],
        entries: list[Entry],
        commands: list[m.Command],
    ) -> None:
        started = {e.execution_id for e in entries if isinstance(e.fact, f.ExecutionStarted)}
        dispatches = [c for c in commands if isinstance(c, m.Dispatch)]
        assert len(dispatches) <= 1
        for dispatch in dispatches:
            name = dispatch.execution.execution_id
            assert self.journal.folds.executions[name].status in ("running", "blocked")
            if dispatch.again:
                assert isinstance(event, m.Adopted)
                assert before.own, "a kernel that does not drop what it has seen is never sent it again"
                assert name not in started
            else:
                assert name in started
                assert not self.leaving, "begun in a kernel on its way out"
                assert appends[0].sync, "the intent is on the disk before the kernel can see it"
                assert self.dispatched[name] == 0, "dispatched twice"
                self.dispatched[name] += 1
        assert started == {d.execution.execution_id for d in dispatches if not d.again}
        if any(isinstance(e.fact, f.ExecutionQueued) for e in entries):
            assert appends[0].sync, "the intent to run is on the disk before its reply"
        self.check_outcomes(event, before, entries)
        self.check_loss(event, before, entries, commands)
        for command in commands:
            if isinstance(command, m.StartKernel):
                # again only as the next try of a start that nobody saw come up
                known = [e.incarnation for e in self.journal.all if e.kind == "KernelStarting"]
                assert command.incarnation == known[-1] == self.state.incarnation
                assert self.state.kernel == "starting"

    def check_outcomes(self, event: m.Event, before: State, entries: list[Entry]) -> None:
        over = isinstance(event, m.KernelExited | m.KernelFailedToStart)
        failed = next(
            (
                e.execution_id
                for e in entries
                if isinstance(e.fact, f.ExecutionFinished) and e.fact.outcome in ("error", "interrupted")
            ),
            None,
        )
        for entry in entries:
            fact = entry.fact
            if not isinstance(fact, f.ExecutionFinished):
                continue
            name = fact.execution_id
            earlier = [e for e in self.journal.all if e.execution_id == name and e.kind == entry.kind]
            assert len(earlier) == 1, "a second outcome"
            queued = next(p for p in (*before.queue, *running_in(before)) if p.execution_id == name)
            if any(p.execution_id == name for p in before.queue):
                assert fact.outcome == "aborted"
                taken_back = isinstance(event, m.Interrupted) and event.execution_id == name
                assert (
                    over
                    or taken_back
                    or (
                        failed is not None
                        and before.running is not None
                        and before.running.execution.client == queued.client
                        and failed == before.running.execution.execution_id
                    )
                ), "only the queue of the client whose cell failed, or of a kernel that is gone"
            elif fact.outcome == "aborted":
                assert isinstance(event, m.Replied)
                assert event.status == "aborted", "the kernel itself said that it did not run it"
            if fact.outcome == "died":
                assert isinstance(event, m.KernelExited)
            if fact.outcome == "ok":
                assert isinstance(event, m.Replied)
                assert event.status == "ok"
                assert event.sigint_at is None

    def check_loss(
        self, event: m.Event, before: State, entries: list[Entry], commands: list[m.Command]
    ) -> None:
        """The rules of INTERFACE.md, kept here by other means: a set of people nobody has told yet."""
        if isinstance(event, m.Submitted) and event.recorded is None:
            lost = event.principal in self.untold
            accepted = any(isinstance(e.fact, f.ExecutionQueued) for e in entries)
            refused = [c.error for c in commands if isinstance(c, m.Refuse)]
            assert accepted != bool(refused)
            if accepted:
                assert not lost or event.accept, "run before the loss was told or accepted"
            if any(isinstance(error, HeapLost) for error in refused):
                assert lost
                assert not event.accept
        for entry in entries:
            fact = entry.fact
            if entry.kind in ("KernelDied", "KernelStopped", "KernelStartFailed"):
                self.leaving = False
            told = isinstance(fact, f.HeapLossTold) and fact.how in ("status", "brief", "stderr")
            if isinstance(fact, f.HeapLossAccepted) or told:
                self.untold.discard(entry.principal)
                self.foretold[entry.principal] = entry.incarnation
            elif entry.kind in ("KernelDied", "KernelStopped", "KernelStartFailed"):
                if self.state.kernel == "starting" and self.state.incarnation == entry.incarnation:
                    continue  # it will be tried again
                for principal, seen in self.journal.folds.seen.items():
                    if seen.incarnation == entry.incarnation and (
                        self.foretold.get(principal, 0) <= entry.incarnation
                    ):
                        self.untold.add(principal)

    # -- laws of every moment

    @invariant()
    def state_has_a_name(self) -> None:
        assert self.state.name in STATES

    @invariant()
    def one_runs_at_most_and_the_journal_agrees(self) -> None:
        rows = self.journal.folds.executions.values()
        running = [row.execution_id for row in rows if row.status in ("running", "blocked")]
        assert running == [p.execution_id for p in running_in(self.state)]
        queued = sorted((r.queued_seq, r.execution_id) for r in rows if r.status == "queued")
        assert [name for _, name in queued] == [p.execution_id for p in self.state.queue]

    @invariant()
    def no_answer_twice(self) -> None:
        assert all(count == 1 for count in self.answered.values())

    @invariant()
    def as_many_told_as_ended(self) -> None:
        done = {r.execution_id for r in self.journal.folds.executions.values() if r.status == "done"}
        assert all(count == 1 for count in self.ended.values())
        assert self.ended.keys() <= done

    @invariant()
    def a_kernel_that_is_gone_leaves_nothing_open(self) -> None:
        if self.state.kernel in ("none", "dead", "stopped"):
            assert self.state.running is None
            assert not self.state.queue
            assert self.state.ladder is None
            assert not self.state.start_waiters
            assert not self.state.restarting
            assert not self.state.stopping

    @invariant()
    def the_journal_is_enough(self) -> None:
        """A supervisor that starts now knows what this one knows, but for what only a process can hold."""
        known = recover(self.journal, "s", self.now)  # type: ignore[arg-type]
        assert _lasting(known) == _lasting(self.state)
        assert (known.exit_announced is None) >= (self.state.exit_announced is None) or (known.kernel == "up")


def running_in(state: State) -> list[Any]:
    return [state.running.execution] if state.running is not None else []


def _lasting(state: State) -> dict[str, Any]:
    """What a supervisor's death must not change."""
    running = state.running
    return {
        "incarnation": state.incarnation,
        "kernel": state.kernel,
        "heap": state.heap,
        "own": state.own or not state.incarnation,
        "queue": [p.execution_id for p in state.queue],
        "pending": list(state.queue),
        "running": running and running.execution,
        "blocked": running and running.blocked and {k: v for k, v in running.blocked.items() if k != "since"},
        "interrupts": running and running.interrupts,
        "seen": {
            name: (seen.incarnation, seen.accepted)
            for name, seen in state.seen.items()
            if seen.incarnation or seen.accepted
        },
        "deaths": min(state.deaths, POLICY.crash_loop),
        "attempts": state.attempts,
    }
