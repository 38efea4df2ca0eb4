"""Each test reads as a transcript: facts in, the row that results."""

from __future__ import annotations

import hashlib

import pytest

from kernel_runtime.core.projection import Projections, fold, source_digest
from kernel_runtime.model import facts
from kernel_runtime.model.entry import Entry
from kernel_runtime.model.execution import Cell, Execution, Seen
from kernel_runtime.model.facts import Fact, InputAnswered, InputRequested, InputWithdrawn
from tests.unit.core.support import FoldedRows
from tests.unit.journal.support import AGENT, finished, printed, queued, started


def entries(*said: Fact | tuple[Fact, int] | tuple[Fact, int, str]) -> list[Entry]:
    """Entries of these facts; with an incarnation (else 1) and a principal (else `agent:a`)."""
    made = []
    for seq, what in enumerate(said, 1):
        fact, incarnation, principal, *_ = (*what, AGENT) if isinstance(what, tuple) else (what, 1, AGENT)
        made.append(
            Entry(
                seq=seq,
                at=seq * 100,
                mono=seq,
                incarnation=incarnation,
                principal=principal,
                kind=type(fact).__name__,
                fact=fact,
                execution_id=facts.execution_of(fact),
                prev_hash="",
                hash="",
            )
        )
    return made


def execution(*said: Fact | tuple[Fact, int]) -> Execution:
    return fold(entries(*said)).executions["a"]


def cell(*said: Fact | tuple[Fact, int], cell_id: str = "c") -> Cell:
    return fold(entries(*said)).cells[cell_id]


def test_an_execution_from_intent_to_outcome():
    row = execution(queued("a", "1+1", key="k"))
    assert (row.status, row.outcome, row.key, row.queued_seq, row.queued_at) == ("queued", None, "k", 1, 100)
    assert row.source_digest == hashlib.sha256(b"1+1").hexdigest()

    row = execution(queued("a"), started("a"))
    assert (row.status, row.started_at, row.outcome) == ("running", 200, None)

    error = {"ename": "E", "evalue": "v", "traceback": []}
    row = execution(
        queued("a"),
        started("a"),
        finished("a", "error", execution_count=3, error=error, evidence={"why": "w"}),
    )
    assert (row.status, row.outcome, row.execution_count) == ("done", "error", 3)
    assert (row.finished_at, row.finished_seq, row.error, row.evidence) == (300, 3, error, {"why": "w"})


def test_it_belongs_to_the_incarnation_it_ran_in():
    assert execution((queued("a"), 1)).incarnation == 1
    assert execution((queued("a"), 1), (started("a"), 2)).incarnation == 2


def test_blocked_with_its_prompt_until_answered_or_withdrawn():
    asked = (queued("a"), started("a"), InputRequested(execution_id="a", prompt="Name: ", password=False))
    row = execution(*asked)
    assert row.status == "blocked"
    assert row.blocked == {"on": "input", "prompt": "Name: ", "pid": None, "since": 300}
    for end in (
        InputAnswered(execution_id="a", value="x"),
        InputWithdrawn(execution_id="a", reason="interrupted"),
    ):
        row = execution(*asked, end)
        assert (row.status, row.blocked) == ("running", None)
    row = execution(*asked, finished("a", "died"))
    assert (row.status, row.blocked, row.outcome) == ("done", None, "died")


def test_a_password_is_asked_for_as_one():
    row = execution(
        queued("a"), started("a"), InputRequested(execution_id="a", prompt="Password: ", password=True)
    )
    assert row.blocked is not None
    assert row.blocked["on"] == "password"


@pytest.mark.parametrize(
    "late",
    [
        finished("a", "died"),
        started("a"),
        queued("a", "other"),
        InputRequested(execution_id="a", prompt="?", password=False),
        printed("a", "late"),
    ],
)
def test_the_first_outcome_stands(late: Fact):
    done = (queued("a"), started("a"), finished("a", "ok"))
    assert execution(*done, late) == execution(*done)


def test_what_was_never_queued_makes_no_row():
    folded = fold(entries(started("a"), finished("a")))
    assert not folded.executions
    assert not folded.cells
    assert not folded.counts


def test_aborted_before_it_started():
    row = execution(queued("a"), finished("a", "aborted"))
    assert (row.status, row.outcome, row.started_at) == ("done", "aborted", None)


def test_a_cell_tells_of_what_started_last():
    first = (queued("a", "v1", cell_id="c"), started("a"), finished("a", "ok"))
    row = cell(*first)
    assert (row.execution_id, row.status, row.outcome, row.position, row.executions) == (
        "a",
        "done",
        "ok",
        1,
        1,
    )

    waiting = (*first, queued("b", "v2", cell_id="c"))
    row = cell(*waiting)
    assert (row.execution_id, row.outcome, row.executions) == ("a", "ok", 2)

    row = cell(*waiting, started("b"))
    assert (row.execution_id, row.status, row.source_digest) == ("b", "running", source_digest("v2"))
    assert row.position == 1

    row = cell(*waiting, finished("b", "aborted"))
    assert (row.execution_id, row.outcome, row.executions) == ("a", "ok", 2)


def test_a_cell_that_never_started_tells_of_what_was_queued_last():
    aborted = (queued("a", cell_id="c"), finished("a", "aborted"))
    assert cell(*aborted).outcome == "aborted"
    row = cell(*aborted, queued("b", cell_id="c"))
    assert (row.execution_id, row.status, row.outcome) == ("b", "queued", None)
    row = cell(queued("a", cell_id="c"), queued("b", cell_id="c"), finished("a", "aborted"))
    assert (row.execution_id, row.status) == ("b", "queued")


def test_a_silent_execution_is_no_cell():
    folded = fold(entries(queued("a", cell_id="c", silent=True), started("a"), finished("a")))
    assert folded.executions["a"].outcome == "ok"
    assert not folded.cells
    assert not folded.counts


def test_what_an_editor_asks_for_itself_is_no_cell():
    """VS Code runs code of its own when it connects: kept out of the history, and without a cell's name."""
    asked = queued("0123456789", cell_id="01234567", door="jupyter", store_history=False)
    assert not fold(entries(asked, started("0123456789"), finished("0123456789"))).cells
    named = queued("0123456789", cell_id="c", door="jupyter", store_history=False)
    assert "c" in fold(entries(named, started("0123456789"))).cells
    kept = queued("0123456789", cell_id="01234567", door="jupyter")
    assert "01234567" in fold(entries(kept, started("0123456789"))).cells


def test_counts_follow_the_cells():
    folded = fold(
        entries(
            queued("a", cell_id="c"),
            started("a"),
            finished("a"),
            queued("b", cell_id="d"),
            (started("b"), 2),
            (finished("b", "error"), 2),
            queued("x", cell_id="c"),
        )
    )
    assert {state: n for state, n in folded.counts.items() if n} == {
        (1, "done", "ok", ""): 1,
        (2, "done", "error", ""): 1,
    }


def seen(*said: tuple[Fact, int]) -> Seen | None:
    return fold(entries(*said)).seen.get(AGENT)


def test_attaching_and_executing_is_seeing():
    assert seen((facts.PrincipalAttached(), 3)) == Seen(principal=AGENT, incarnation=3)
    assert seen((queued("a"), 2), (started("a"), 2)) == Seen(principal=AGENT, incarnation=2)
    assert seen((facts.PrincipalAttached(), 3), (started("a"), 2)) == Seen(principal=AGENT, incarnation=3)


def test_waiting_in_the_queue_is_not():
    assert seen((queued("a"), 2)) is None


@pytest.mark.parametrize(
    "how, accepted", [("status", 2), ("brief", 2), ("stderr", 2), ("refused", 0), ("attach", 0)]
)
def test_reading_the_truth_accepts_and_being_refused_does_not(how: str, accepted: int):
    row = seen((facts.PrincipalAttached(), 1), (facts.HeapLossTold(lost=3, how=how), 2))
    assert row == Seen(principal=AGENT, incarnation=1, accepted=accepted)


def test_accepting_accepts():
    assert seen((facts.HeapLossAccepted(how="accept"), 2)) == Seen(principal=AGENT, incarnation=0, accepted=2)


def test_each_principal_for_itself():
    folded = fold(
        entries(
            (facts.PrincipalAttached(), 1, "agent:a"), (facts.HeapLossAccepted(how="accept"), 2, "human:b")
        )
    )
    assert folded.seen == {
        "agent:a": Seen(principal="agent:a", incarnation=1),
        "human:b": Seen(principal="human:b", incarnation=0, accepted=2),
    }


def test_positions_are_the_greatest_of_their_incarnation():
    folded = fold(
        entries(
            (queued("a"), 1),
            (printed("a", "x", 10), 1),
            (printed("a", "y", 30), 1),
            (printed("a", "z", 20), 1),
            (printed(None, "new"), 2),
            (finished("a", position=5), 2),
        )
    )
    assert folded.positions == {1: 30, 2: 5}


def test_folding_on_top_of_earlier_rows_is_folding_all():
    said = entries(
        queued("a", cell_id="c"),
        started("a"),
        printed("a", "x", 4),
        finished("a"),
        queued("b", cell_id="c"),
        started("b"),
    )

    whole = fold(said)
    for cut in range(len(said) + 1):
        before = fold(said[:cut])
        change = Projections(FoldedRows(before))
        for entry in said[cut:]:
            change.apply(entry)
        assert {**before.executions, **change.executions} == whole.executions
        assert {**before.cells, **change.cells} == whole.cells
        assert {**before.seen, **change.seen} == whole.seen
        before.counts.update(change.counts)
        assert +before.counts == +whole.counts


def test_the_digest_of_a_source_with_a_lone_surrogate_is_that_of_its_escaped_form():
    assert source_digest("a\ud800") == source_digest(r"a\ud800")
    assert source_digest("é") == hashlib.sha256("é".encode()).hexdigest()
