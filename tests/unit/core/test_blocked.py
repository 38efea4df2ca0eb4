"""What a running execution waits for: the cell's own question, or a process at the kernel's terminal."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_runtime.core.blocked import blocked_of, is_secret, on_terminal
from kernel_runtime.core.lifecycle import Pending, Running, State, step
from kernel_runtime.core.lifecycle import messages as m
from kernel_runtime.errors import UsageError
from kernel_runtime.model import facts as f

PENDING = Pending(execution_id="e1", cell_id="c1", msg_id="m1", principal="agent:a", client="k")
BUSY = State(session="s", incarnation=1, kernel="up", running=Running(execution=PENDING, dispatched_at=0))


def reads(pid: int = 7, **how: Any) -> m.InputAsked:
    about: dict[str, Any] = {"prompt": "token: ", "password": False, "echo": True, **how}
    return m.InputAsked(msg_id="m1", since="t", on="terminal", pid=pid, command=("bash", "-c"), **about)


OWN = m.InputAsked(msg_id="m1", prompt="name? ", password=False, since="t")


def happen(state: State, *events: m.Event) -> tuple[State, list[f.Fact], list[m.Command]]:
    """The state after all, and the facts and other commands of the last."""
    facts: list[f.Fact] = []
    others: list[m.Command] = []
    for event in events:
        state, commands = step(state, event, 1)
        facts = [d.fact for c in commands if isinstance(c, m.Append) for d in c.drafts]
        others = [c for c in commands if not isinstance(c, m.Append)]
    return state, facts, others


def answer(text: str | None, *, eof: bool = False) -> m.Answered:
    return m.Answered(token=1, principal="human:b", text=text, eof=eof)


def test_a_process_that_reads_blocks_its_cell() -> None:
    state, facts, _ = happen(BUSY, reads())
    assert state.name == "blocked"
    assert state.running is not None
    assert state.running.blocked == {
        "on": "terminal",
        "prompt": "token: ",
        "pid": 7,
        "since": "t",
        "command": ["bash", "-c"],
        "echo": True,
    }
    assert facts == [
        f.InputRequested(
            execution_id="e1", prompt="token: ", password=False, on="terminal", pid=7, command=["bash", "-c"]
        )
    ]


def test_an_answer_is_typed_and_recorded() -> None:
    state, facts, commands = happen(BUSY, reads(), answer("abc"))
    assert state.name == "busy"
    assert facts == [f.InputAnswered(execution_id="e1", value="abc")]
    assert commands[0] == m.TypeInput(text="abc", eof=False)


@pytest.mark.parametrize("how", [{"password": True, "echo": False}, {"password": False, "echo": False}])
def test_what_the_terminal_does_not_show_is_not_recorded(how: dict[str, bool]) -> None:
    _, facts, commands = happen(BUSY, reads(**how), answer("s3cret"))
    assert facts == [f.InputAnswered(execution_id="e1", value=None)]
    assert commands[0] == m.TypeInput(text="s3cret", eof=False)


def test_an_answer_that_a_terminal_would_cut_is_refused() -> None:
    state, facts, commands = happen(BUSY, reads(), answer("é" * 2048))
    assert state.name == "blocked"
    assert facts == []
    assert isinstance(commands[0], m.Refuse)
    assert isinstance(commands[0].error, UsageError)
    _, _, commands = happen(BUSY, OWN, answer("é" * 2048))
    assert isinstance(commands[0], m.SendInput)


def test_end_of_file_is_typed_too() -> None:
    _, facts, commands = happen(BUSY, reads(), answer(None, eof=True))
    assert facts == [f.InputAnswered(execution_id="e1", value=None, eof=True)]
    assert commands[0] == m.TypeInput(text=None, eof=True)


def test_a_process_that_reads_no_longer_frees_its_cell() -> None:
    state, facts, _ = happen(BUSY, reads(), m.InputGone(execution_id="e1", reason="it has ended"))
    assert state.name == "busy"
    assert facts == [f.InputWithdrawn(execution_id="e1", reason="it has ended")]


def test_another_process_that_reads_is_another_question() -> None:
    state, facts, _ = happen(BUSY, reads(7), reads(8))
    assert [type(fact) for fact in facts] == [f.InputWithdrawn, f.InputRequested]
    assert state.running is not None
    assert (state.running.blocked or {})["pid"] == 8


def test_the_cells_own_question_comes_first() -> None:
    state, facts, commands = happen(BUSY, OWN, reads())
    assert (facts, commands) == ([], [])
    state, facts, _ = happen(BUSY, reads(), OWN)
    assert [type(fact) for fact in facts] == [f.InputWithdrawn, f.InputRequested]
    _, _, commands = happen(state, answer("bob"))
    assert commands[0] == m.SendInput(text="bob", eof=False)


@pytest.mark.parametrize(
    "events",
    [
        (OWN, m.InputGone(execution_id="e1", reason="gone")),
        (m.InputGone(execution_id="e1", reason="gone"),),
        (reads(), m.InputGone(execution_id="e2", reason="gone")),
        (reads(), answer("x"), m.InputGone(execution_id="e1", reason="gone")),
    ],
)
def test_what_nobody_asked_is_not_withdrawn(events: tuple[m.Event, ...]) -> None:
    before, _, _ = happen(BUSY, *events[:-1])
    after, facts, commands = happen(before, events[-1])
    assert (after, facts, commands) == (before, [], [])


def test_the_end_of_the_cell_withdraws_the_question() -> None:
    state, facts, _ = happen(BUSY, reads(), m.Replied(msg_id="m1", status="ok"))
    assert state.running is None
    assert [type(fact) for fact in facts] == [f.InputWithdrawn, f.ExecutionFinished]


@pytest.mark.parametrize(
    "fact, on, terminal, secret",
    [
        ({"password": False}, "input", False, False),
        ({"password": True}, "password", False, True),
        ({"password": False, "on": "terminal"}, "terminal", True, False),
        ({"password": True, "on": "terminal", "echo": False}, "terminal-password", True, True),
        ({"password": False, "on": "terminal", "echo": False}, "terminal", True, True),
    ],
)
def test_words_for_it(fact: dict[str, Any], on: str, terminal: bool, secret: bool) -> None:
    blocked = blocked_of(f.InputRequested(execution_id="e1", prompt="?", **fact), "t")
    assert (blocked["on"], on_terminal(blocked), is_secret(blocked)) == (on, terminal, secret)
    assert not on_terminal(None)
