"""The transition function: one table from event type to handler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from kernel_runtime.core.lifecycle import interaction, kernel_life, outcome, queue, requests
from kernel_runtime.core.lifecycle import messages as m
from kernel_runtime.core.lifecycle.queue import Result
from kernel_runtime.core.lifecycle.state import Policy, State

_DEFAULT = Policy()


def step(state: State, event: m.Event, now: int, policy: Policy = _DEFAULT) -> Result:
    """The state after `event` at monotonic time `now` (ns), and what is to be done.

    Raises:
        KeyError: an event type this function does not know (our bug).
    """
    return _HANDLERS[type(event)](state, event, now, policy)


def next_deadline(state: State, policy: Policy = _DEFAULT) -> int | None:
    """When the core next wants a `Ticked`, monotonic ns; None when nothing is pending."""
    due: list[int] = []
    if state.ladder is not None:
        patience = policy.message_patience if state.ladder.reached == "message" else policy.signal_patience
        due.append(state.ladder.since + patience)
    if state.running is not None and state.running.idle_at is not None:
        due.append(state.running.idle_at + policy.reply_patience)
    if state.exit_announced is not None:
        due.append(state.exit_announced + policy.exit_patience)
    return min(due) if due else None


def _ticked(state: State, event: m.Ticked, now: int, policy: Policy) -> Result:
    running = state.running
    if running is not None and running.idle_at is not None and now >= running.idle_at + policy.reply_patience:
        verdict = outcome.of_missing_reply(running, "idle was seen and no reply followed")
        after, drafts, commands = queue.finish(state, verdict, now, None, None)
        return after, [m.Append(drafts=tuple(drafts)), *commands]
    climbed = interaction.ladder_due(state, now, policy)
    if climbed is not None:
        return climbed
    if state.exit_announced is not None and now >= state.exit_announced + policy.exit_patience:
        return replace(state, exit_announced=None), []
    return state, []


_HANDLERS: dict[type[m.Event], Callable[[State, Any, int, Policy], Result]] = {
    m.Submitted: requests.submitted,
    m.StartRequested: kernel_life.start_requested,
    m.RestartRequested: kernel_life.restart_requested,
    m.StopRequested: kernel_life.stop_requested,
    m.Attached: requests.attached,
    m.LossAccepted: requests.loss_accepted,
    m.LossTold: requests.loss_told,
    m.KernelCameUp: kernel_life.came_up,
    m.KernelFailedToStart: kernel_life.failed_to_start,
    m.KernelExited: kernel_life.kernel_exited,
    m.Adopted: kernel_life.adopted,
    m.ErrorSeen: queue.error_seen,
    m.Replied: queue.replied,
    m.WentIdle: queue.went_idle,
    m.ShellDrained: queue.shell_drained,
    m.InputAsked: interaction.input_asked,
    m.InputGone: interaction.input_gone,
    m.Answered: interaction.answered,
    m.Interrupted: interaction.interrupted,
    m.TurnedUnresponsive: kernel_life.unresponsive,
    m.TurnedResponsive: kernel_life.responsive,
    m.Proceeded: queue.proceeded,
    m.Ticked: _ticked,
}
