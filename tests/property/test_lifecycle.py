"""The laws of a session's life, whatever happens in whatever order.

A model journal takes what the core appends, or refuses it at random: then the event has not happened.
Events come in any order, also in orders that no kernel and no client ever made: replies of the
dead, second replies, exits while starting, adoptions out of the blue. At any moment the
supervisor may be gone and the next one know only what the journal says.
"""

from __future__ import annotations

from collections import Counter

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec.structs import replace

from kernel_runtime.core.blocked import is_secret, on_terminal
from kernel_runtime.core.lifecycle import State, may_dispatch, next_deadline, step
from kernel_runtime.core.lifecycle import messages as m
from kernel_runtime.errors import (
    CrashLoop,
    HeapLost,
    IncarnationMismatch,
    KernelStartFailed,
    KeyConflict,
    NotBlocked,
    SessionBusy,
)
from kernel_runtime.model import facts as f
from kernel_runtime.model.execution import Execution
from kernel_runtime.supervisor.recover import recover
from tests.property.lifecycle_laws import POLICY, SECOND, Laws, running_in

PRINCIPALS = ("agent:a", "agent:b", "human:c")
CLIENTS = ("c1", "c2", "c3")

principals = st.sampled_from(PRINCIPALS)
journal_fails = st.sampled_from([False] * 5 + [True])
seldom = st.sampled_from([False] * 3 + [True])
"""for what ends everything: else hardly any history would get anywhere"""


class Lifecycle(Laws):
    """Histories: what clients, kernels, time and supervisors do."""

    # -- what clients do

    def known_executions(self) -> list[Execution]:
        return list(self.journal.folds.executions.values())

    @rule(
        principal=principals,
        client=st.sampled_from(CLIENTS),
        accept=st.booleans(),
        stop_on_error=st.booleans(),
        silent=st.sampled_from([False, False, True]),
        jupyter=st.sampled_from([False, False, True]),
        expected=st.sampled_from([None, None, None, 1, 2]),
        fails=journal_fails,
    )
    def submit(  # noqa: PLR0917 - hypothesis draws each
        self,
        principal: str,
        client: str,
        accept: bool,
        stop_on_error: bool,
        silent: bool,
        jupyter: bool,
        expected: int | None,
        fails: bool,
    ) -> None:
        name = f"e{self.number()}"
        queued = f.ExecutionQueued(
            execution_id=name,
            source=name,
            cell_id=f"cell-{name}",
            msg_id=f"m-{name}",
            key=f"k-{name}",
            client_session=client,
            stop_on_error=stop_on_error,
            silent=silent,
        )
        heap = self.state.heap
        commands = self.happen(
            m.Submitted(
                token=self.token(),
                queued=queued,
                principal=principal,
                client=client,
                accept=accept and not jupyter,
                expect_incarnation=expected,
                jupyter=jupyter,
            ),
            fails=fails,
        )
        for command in commands:
            if isinstance(command, m.Refuse):
                assert isinstance(command.error, HeapLost | IncarnationMismatch | CrashLoop)
                assert isinstance(command.error, IncarnationMismatch) == (expected not in (None, heap))
            elif isinstance(command, m.Respond):
                assert expected in (None, heap)
                assert command.result["execution_id"] == name
                assert command.result["incarnation"] == self.state.incarnation == heap

    @rule(
        principal=principals,
        client=st.sampled_from(CLIENTS),
        cells=st.integers(1, 3),
        aware=st.booleans(),
        own=st.sampled_from([True, True, False]),
    )
    def a_client_goes_about_its_work(
        self, principal: str, client: str, cells: int, aware: bool, own: bool
    ) -> None:
        """Accepts what was lost or does not know, runs some cells; a kernel starts, and the queue moves."""
        if aware:
            self.happen(m.LossAccepted(token=self.token(), principal=principal))
        for _ in range(cells):
            self.submit_one(principal, client)
        if self.state.kernel == "starting":
            self.kernel_comes_up(own=own, fails=False)
        self.queue_moves(fails=False)

    @rule(principal=principals, client=st.sampled_from(CLIENTS))
    def submit_one(self, principal: str, client: str) -> None:
        self.submit(
            principal,
            client,
            accept=False,
            stop_on_error=True,
            silent=False,
            jupyter=False,
            expected=None,
            fails=False,
        )

    @precondition(lambda self: self.state.running is not None)
    @rule(status=st.sampled_from(["ok", "ok", "error"]))
    def the_cell_ends(self, status: str) -> None:
        (running,) = running_in(self.state)
        error = {"ename": "E", "evalue": "", "traceback": []} if status == "error" else None
        self.happen(m.Replied(msg_id=running.msg_id, status=status, finished_at=self.now, error=error))

    @precondition(lambda self: self.journal.folds.executions)
    @rule(data=st.data(), principal=principals, same=st.booleans())
    def submit_with_a_known_key(self, data: st.DataObject, principal: str, same: bool) -> None:
        row = data.draw(st.sampled_from(self.known_executions()))
        queued = f.ExecutionQueued(
            execution_id=f"e{self.number()}", source="", cell_id="c", msg_id="", key=row.key
        )
        before, length = self.state, len(self.journal.all)
        (command,) = self.happen(
            m.Submitted(
                token=self.token(),
                queued=queued,
                principal=principal,
                client="c1",
                recorded=row,
                recorded_digest_differs=not same,
            )
        )
        assert (self.state, len(self.journal.all)) == (before, length), "a known key runs nothing"
        if same:
            assert isinstance(command, m.Respond)
            assert command.result["execution_id"] == row.execution_id
        else:
            assert isinstance(command, m.Refuse)
            assert isinstance(command.error, KeyConflict)

    @rule(principal=principals, reason=st.sampled_from(["new", "jupyter"]), fails=journal_fails)
    def start(self, principal: str, reason: str, fails: bool) -> None:
        self.happen(m.StartRequested(token=self.token(), principal=principal, reason=reason), fails=fails)

    @rule(principal=principals, fails=journal_fails, really=seldom)
    def restart(self, principal: str, fails: bool, really: bool) -> None:
        if not really:
            return
        self.happen(m.RestartRequested(token=self.token(), principal=principal), fails=fails)

    @rule(principal=principals, fails=journal_fails, really=seldom)
    def stop(self, principal: str, fails: bool, really: bool) -> None:
        if not really:
            return
        self.happen(m.StopRequested(token=self.token(), principal=principal), fails=fails)

    @rule(principal=principals, fails=journal_fails)
    def attach(self, principal: str, fails: bool) -> None:
        self.happen(m.Attached(principal=principal), fails=fails)

    @rule(principal=principals, fails=journal_fails)
    def accept_the_loss(self, principal: str, fails: bool) -> None:
        self.happen(m.LossAccepted(token=self.token(), principal=principal), fails=fails)

    @rule(
        principal=principals,
        how=st.sampled_from(["status", "brief", "attach", "refused"]),
        fails=journal_fails,
    )
    def tell_the_loss(self, principal: str, how: str, fails: bool) -> None:
        self.happen(m.LossTold(principal=principal, lost=1, how=how), fails=fails)

    @rule(principal=principals, eof=st.booleans(), wrong=st.booleans(), fails=journal_fails)
    def answer(self, principal: str, eof: bool, wrong: bool, fails: bool) -> None:
        running = self.state.running
        blocked = running is not None and running.blocked is not None
        secret = running is not None and running.blocked is not None and is_secret(running.blocked)
        name = "nobody" if wrong else None
        event = m.Answered(token=self.token(), principal=principal, text="secret", eof=eof, execution_id=name)
        commands = self.happen(event, fails=fails)
        sent = [c for c in commands if isinstance(c, m.SendInput | m.TypeInput)]
        assert not (sent and (wrong or not blocked))
        at_terminal = running is not None and on_terminal(running.blocked)
        assert all(isinstance(c, m.TypeInput) == at_terminal for c in sent)
        for command in commands:
            if isinstance(command, m.Refuse):
                assert isinstance(command.error, NotBlocked)
                assert wrong or not blocked
            if isinstance(command, m.Append) and secret:
                assert "secret" not in repr(command.drafts), "a password in the journal"

    @rule(principal=principals, fails=journal_fails)
    def interrupt(self, principal: str, fails: bool) -> None:
        running = self.state.running
        commands = self.happen(m.Interrupted(token=self.token(), principal=principal), fails=fails)
        if running is None:
            (command,) = commands
            if isinstance(command, m.Refuse):
                assert isinstance(command.error, SessionBusy)

    @precondition(lambda self: self.journal.folds.executions)
    @rule(data=st.data(), principal=principals, fails=journal_fails)
    def interrupt_this_one(self, data: st.DataObject, principal: str, fails: bool) -> None:
        """Queued, it is taken back; running, it is interrupted; ended, nobody else is hit instead."""
        queued = [row for row in self.known_executions() if row.status == "queued"]
        row = data.draw(st.sampled_from([*queued, *queued, *self.known_executions()]))
        event = m.Interrupted(token=self.token(), principal=principal, execution_id=row.execution_id)
        before, length = self.state, len(self.journal.all)
        self.happen(event, fails=fails)
        after = self.journal.folds.executions[row.execution_id]
        if fails:
            return
        if row.status == "queued":
            assert after.outcome == "aborted"
            assert self.state.running == before.running
        elif row.status == "done":
            assert (self.state, len(self.journal.all)) == (before, length)
        else:
            assert self.state.ladder is not None

    @precondition(lambda self: self.state.running is not None)
    @rule(principal=principals, seconds=st.sampled_from([7.0, 1.5]))
    def interrupt_and_wait(self, principal: str, seconds: float) -> None:
        """The ladder answers: at its top at the latest, message and signal later."""
        self.interrupt(principal, fails=False)
        self.time_passes(seconds)
        if seconds > (POLICY.message_patience + POLICY.signal_patience) / SECOND:
            assert self.state.ladder is None
            assert all(
                token in self.answered for token, e in self.asked.items() if isinstance(e, m.Interrupted)
            )

    @precondition(lambda self: self.state.running is not None)
    @rule(principal=principals)
    def stop_in_mid_cell(self, principal: str) -> None:
        """The cell may still end before the kernel does; what is queued behind it must not begin then."""
        self.submit_one(principal, "c1")
        self.stop(principal, fails=False, really=True)
        self.the_cell_ends("ok")
        self.queue_moves(fails=False)

    # -- what kernels do

    @rule(own=st.booleans(), fails=journal_fails)
    def kernel_comes_up(self, own: bool, fails: bool) -> None:
        self.happen(
            m.KernelCameUp(pid=1, start_time=1, boot_id="b", language="python", implementation="i", own=own),
            fails=fails,
        )

    @precondition(lambda self: self.state.kernel == "starting")
    @rule(fails=journal_fails)
    def kernel_really_comes_up(self, fails: bool) -> None:
        self.kernel_comes_up(True, fails)

    @rule(fails=journal_fails, really=seldom)
    def kernel_fails_to_start(self, fails: bool, really: bool) -> None:
        if not really:
            return
        commands = self.happen(m.KernelFailedToStart(stderr="no", exit_status=1), fails=fails)
        assert all(isinstance(c.error, KernelStartFailed) for c in commands if isinstance(c, m.Refuse))

    @rule(asked=st.sampled_from([None, "stop", "restart"]), fails=journal_fails, really=seldom)
    def kernel_exits(self, asked: str | None, fails: bool, really: bool) -> None:
        if not really:
            return
        self.happen(m.KernelExited(pid=1, signal=9, asked=asked), fails=fails)

    @rule(principal=principals, times=st.integers(1, 3))
    def a_cell_that_kills_its_kernel(self, principal: str, times: int) -> None:
        for _ in range(times):
            self.a_client_goes_about_its_work(principal, "c1", cells=1, aware=True, own=True)
            self.kernel_exits(asked=None, fails=False, really=True)

    @precondition(lambda self: self.state.running is not None)
    @rule(asked=st.sampled_from([None, None, "stop", "restart"]))
    def kernel_dies_over_a_cell(self, asked: str | None) -> None:
        self.happen(m.KernelExited(pid=1, signal=9, asked=asked))

    @rule(fails=journal_fails)
    def adopted(self, fails: bool) -> None:
        self.happen(m.Adopted(pid=1, start_time=1, boot_id="b"), fails=fails)

    def some_msg_id(self, data: st.DataObject) -> str:
        running = [p.msg_id for p in running_in(self.state)]
        others = [row.msg_id for row in self.known_executions()]
        candidates: list[str] = [*running, *running, *others, "m-stranger"]
        chosen: str = data.draw(st.sampled_from(candidates))
        return chosen

    @rule(
        data=st.data(),
        status=st.sampled_from(["ok", "ok", "error", "aborted"]),
        exiting=st.sampled_from([False, False, False, True]),
        sigint=st.sampled_from([None, None, 5]),
        fails=journal_fails,
    )
    def reply(self, data: st.DataObject, status: str, exiting: bool, sigint: int | None, fails: bool) -> None:
        msg_id = self.some_msg_id(data)
        mine = msg_id in [p.msg_id for p in running_in(self.state)]
        event = m.Replied(
            msg_id=msg_id,
            status=status,
            exiting=exiting,
            sigint_at=sigint,
            finished_at=self.now,
            error={"ename": "E", "evalue": "", "traceback": []} if status == "error" else None,
            reply={"payload": [{"source": "ask_exit"}]} if exiting else None,
        )
        before, length = self.state, len(self.journal.all)
        self.happen(event, fails=fails)
        if not mine:
            assert (self.state, len(self.journal.all)) == (before, length), "late, double or a stranger's"

    @rule(data=st.data())
    def error_on_iopub(self, data: st.DataObject) -> None:
        self.happen(m.ErrorSeen(msg_id=self.some_msg_id(data), error={"ename": "KeyboardInterrupt"}))

    @rule(data=st.data())
    def idle(self, data: st.DataObject) -> None:
        self.happen(m.WentIdle(msg_id=self.some_msg_id(data)))

    @rule(fails=journal_fails, really=seldom)
    def shell_drained(self, fails: bool, really: bool) -> None:
        if not really:
            return
        self.happen(m.ShellDrained(), fails=fails)

    @rule(data=st.data(), password=st.booleans(), fails=journal_fails)
    def input_asked(self, data: st.DataObject, password: bool, fails: bool) -> None:
        self.happen(
            m.InputAsked(msg_id=self.some_msg_id(data), prompt="?", password=password, since="now"),
            fails=fails,
        )

    @rule(
        data=st.data(), pid=st.integers(1, 2), echo=st.booleans(), by_lines=st.booleans(), fails=journal_fails
    )
    def terminal_read(self, data: st.DataObject, pid: int, echo: bool, by_lines: bool, fails: bool) -> None:
        before = self.state.running
        event = m.InputAsked(
            msg_id=self.some_msg_id(data),
            prompt="?",
            password=by_lines and not echo,
            since="now",
            on="terminal",
            pid=pid,
            command=("cat",),
            echo=echo,
        )
        self.happen(event, fails=fails)
        if before is not None and before.blocked is not None and not on_terminal(before.blocked):
            assert self.state.running == before, "the cell's own question stands"

    @rule(wrong=seldom, fails=journal_fails)
    def terminal_read_no_longer(self, wrong: bool, fails: bool) -> None:
        running = self.state.running
        name = "nobody" if running is None or wrong else running.execution.execution_id
        self.happen(m.InputGone(execution_id=name, reason="it has ended"), fails=fails)

    @rule(fails=journal_fails, back=st.booleans())
    def responsiveness(self, fails: bool, back: bool) -> None:
        event = m.TurnedResponsive() if back else m.TurnedUnresponsive(evidence={"process": "stopped"})
        self.happen(event, fails=fails)

    # -- time and the supervisor itself

    @rule(fails=journal_fails)
    def queue_moves(self, fails: bool) -> None:
        movable = may_dispatch(self.state, self.now, POLICY)
        commands = self.happen(m.Proceeded(), fails=fails)
        assert fails or bool(commands) == movable

    @rule(seconds=st.sampled_from([0.1, 1.0, 2.5, 7.0]))
    def time_passes(self, seconds: float) -> None:
        """As the shell does it: a `Ticked` at each deadline on the way."""
        end = self.now + int(seconds * SECOND)
        while (due := next_deadline(self.state, POLICY)) is not None and due <= end:
            self.now = max(self.now, due)
            self.happen(m.Ticked())
            later = next_deadline(self.state, POLICY)
            assert later is None or later > self.now or self.state.ladder is not None, "a busy loop"
        self.now = max(self.now, end)

    @rule()
    def a_tick_too_early(self) -> None:
        self.happen(m.Ticked())

    @rule()
    def supervisor_dies_and_the_next_one_starts(self) -> None:
        """Whoever waited for an answer of the old one hears of its death, and asks again."""
        waiting = self.asked.keys() - self.answered.keys()
        for token in waiting:
            self.answered[token] += 1
        self.state = recover(self.journal, "s", self.now)  # type: ignore[arg-type]
        self.leaving = False  # whoever asked hears that it is not known whether it took effect
        # what was journaled and not told is read from the journal by whoever waits for it
        for row in self.journal.folds.executions.values():
            if row.status == "done":
                self.ended[row.execution_id] = 1

    def teardown(self) -> None:
        """Let it end: each execution has one outcome then, and each question one answer."""
        for _ in range(3):
            if self.state.kernel in ("up", "starting"):
                self.happen(m.KernelExited(pid=1, asked="stop"))
        assert self.state.kernel not in ("up", "starting")
        self.a_kernel_that_is_gone_leaves_nothing_open()
        self.one_runs_at_most_and_the_journal_agrees()
        outcomes = Counter(e.execution_id for e in self.journal.all if e.kind == "ExecutionFinished")
        queued = {e.execution_id for e in self.journal.all if e.kind == "ExecutionQueued"}
        assert outcomes == dict.fromkeys(queued, 1)
        assert self.ended == dict.fromkeys(queued, 1)
        assert self.answered == dict.fromkeys(self.asked, 1)


@pytest.mark.timeout(300)
def test_the_laws_hold():
    run_state_machine_as_test(Lifecycle, settings=settings(max_examples=200, stateful_step_count=40))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_laws_hold_for_longer():
    run_state_machine_as_test(Lifecycle, settings=settings(max_examples=1500, stateful_step_count=60))


def test_a_refused_event_leaves_the_very_same_state():
    """`step` returns a new state; the old one is untouched and stands when the journal refuses."""
    state = State(session="s")
    queued = f.ExecutionQueued(execution_id="e", source="1", cell_id="c", msg_id="m")
    event = m.Submitted(token=1, queued=queued, principal="agent:a", client="c1")
    kept = replace(state)
    after, commands = step(state, event, 0)
    assert state == kept
    assert after != state
    assert isinstance(commands[0], m.Append)


def test_an_unknown_event_is_our_bug():
    class Strange(m.Event, frozen=True):
        pass

    with pytest.raises(KeyError):
        step(State(session="s"), Strange(), 0)
