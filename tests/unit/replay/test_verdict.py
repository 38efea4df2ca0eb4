"""Verdicts: of executions from their outcome, questions and outputs; of names; of the whole."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kernel_runtime.replay.compare import STRICT, RuleSet, choose
from kernel_runtime.replay.downstream import Cause
from kernel_runtime.replay.plan import Asked, NameDigest, Plan, Ran, Run, Step
from kernel_runtime.replay.result import Result
from kernel_runtime.replay.verdict import judged, total
from tests.unit.replay.comparing import EARLY, LATE, SECOND, error, stream

DIVISION = {"ename": "ZeroDivisionError", "evalue": "division by zero", "traceback": ["ZeroDivisionError"]}


def step(number: int = 1, *outputs: Any, outcome: str | None = "ok", began: int = EARLY, **more: Any) -> Step:
    return Step(
        number=number,
        execution_id=f"e{number}",
        cell_id=f"c{number}",
        outcome=outcome,
        outputs=list(outputs),
        started_at=began,
        finished_at=began + SECOND,
        **more,
    )


def plan(*steps: Step, names: dict[str, str | None] | None = None) -> Plan:
    digests = (
        None if names is None else [NameDigest(name=name, digest=digest) for name, digest in names.items()]
    )
    return Plan(
        source="s", kind="journal", order="executed", kernel="k", cwd="/", steps=list(steps), names=digests
    )


def run(*ran: Step | Ran, names: dict[str, str | None] | None = None) -> Run:
    rows = [one if isinstance(one, Ran) else Ran(number=one.number, step=one) for one in ran]
    digests = (
        None if names is None else [NameDigest(name=name, digest=digest) for name, digest in names.items()]
    )
    return Run(ran=rows, names=digests, seconds=1.5)


def one(recorded: Step, *replays: Step | Ran, rules: RuleSet | None = None) -> dict[str, Any]:
    """The row of a plan of one step."""
    result = judged(plan(recorded), [run(replay) for replay in replays], {}, rules)
    (row,) = result.executions
    assert result.verdict == row["verdict"]
    return row


def test_the_three_verdicts_of_outputs():
    recorded = step(1, stream("<A at 0x7f0000000001>\n"))
    assert one(recorded, step(1, stream("<A at 0x7f0000000001>\n")))["verdict"] == "same"
    row = one(recorded, step(1, stream("<A at 0x7f0000000002>\n")))
    assert (row["verdict"], row["rules"], row["diff"]) == ("same-normalized", ["addresses"], None)
    assert row["rule_uses"][0]["recorded"] == "0x7f0000000001"
    row = one(recorded, step(1, stream("<B at 0x7f0000000002>\n")))
    assert (row["verdict"], row["rules"]) == ("different", [])
    assert "+<B at 0x7f0000000002>" in row["diff"]
    assert one(recorded, step(1, stream("<A at 0x7f0000000002>\n")), rules=STRICT)["verdict"] == "different"


def test_another_outcome_is_different_and_told_with_its_error():
    failed = step(1, error(*DIVISION["traceback"], ename="ZeroDivisionError", evalue="division by zero"))
    failed = msgspec.structs.replace(failed, outcome="error", error=DIVISION)
    row = one(step(1, stream("1")), failed)
    assert row["verdict"] == "different"
    assert row["reason"] == "it was ok, and is error (ZeroDivisionError: division by zero)"
    assert row["outcome"] == {"recorded": "ok", "replayed": "error"}
    row = one(failed, step(1, stream("1")))
    assert row["reason"] == "it was error (ZeroDivisionError: division by zero), and is ok"
    assert one(failed, failed)["verdict"] == "same"


def test_an_error_that_no_output_shows_is_compared_all_the_same():
    recorded = step(1, outcome="error", error=DIVISION)
    other = step(1, outcome="error", error={**DIVISION, "ename": "KeyError"})
    assert one(recorded, other)["verdict"] == "different"
    assert one(recorded, recorded)["verdict"] == "same"


def test_two_replays_that_disagree_are_nondeterministic():
    recorded = step(1, stream("7"))
    row = one(recorded, step(1, stream("7")), step(1, stream("8")))
    assert (row["verdict"], row["reason"]) == ("nondeterministic", "two replays disagree")
    assert "-7" in row["diff"]
    assert "+8" in row["diff"]
    row = one(recorded, step(1, stream("8")), step(1, stream("8")))
    assert row["verdict"] == "different"
    row = one(recorded, step(1, stream("7")), step(1, stream("7"), outcome="error", error=DIVISION))
    assert row["reason"] == (
        "two replays disagree: the first was ok, the second error (ZeroDivisionError: division by zero)"
    )
    row = one(recorded, step(1, stream("7")), Ran(number=1, skip="the kernel died"))
    assert (row["verdict"], row["reason"]) == (
        "nondeterministic",
        "only the first of two replays ran it: the kernel died",
    )


def test_a_rule_bridges_two_replays_too():
    recorded = step(1, stream("took 0.1 s"))
    row = one(recorded, step(1, stream("took 0.2 s")), step(1, stream("took 0.3 s")))
    assert (row["verdict"], row["rules"]) == ("same-normalized", ["timings"])


@pytest.mark.parametrize(
    "recorded, replayed, reason",
    [
        (step(1, stream("1")), Ran(number=1, skip="it was redacted"), "it was redacted"),
        (step(1, stream("1"), uncompared="a tag says so"), step(1, stream("2")), "a tag says so"),
        (step(1, outcome=None), step(1, stream("2")), "nothing is recorded of it"),
    ],
)
def test_what_is_not_compared_is_skipped_and_not_the_same(recorded: Step, replayed: Any, reason: str):
    row = one(recorded, replayed)
    assert (row["verdict"], row["reason"]) == ("skipped", reason)


def test_a_step_that_is_not_compared_must_end_as_it_did():
    recorded = step(1, stream("1"), uncompared="a tag says so")
    assert one(recorded, step(1, outcome="error", error=DIVISION))["verdict"] == "different"
    assert one(recorded, step(1, stream("2")), step(1, stream("3")))["verdict"] == "skipped"


@pytest.mark.parametrize(
    "asked, unasked, reason",
    [
        ([Asked(prompt="name? ", how="recorded", recorded="name? ")], [], None),
        ([Asked(prompt="pid 8? ", how="recorded", recorded="pid 7? ")], [], None),
        ([Asked(prompt="n? ", how="recorded", recorded="m? ")], [], "it asks 'n? ', where it asked 'm? '"),
        ([Asked(prompt="n? ", how="end")], [], "it asks 'n? ', a question more than the record has"),
        ([], ["m? "], "it does not ask 'm? ' any more"),
    ],
)
def test_questions_count(asked: list[Asked], unasked: list[str], reason: str | None):
    row = one(step(1), Ran(number=1, step=step(1), asked=asked, unasked=unasked))
    assert row["verdict"] == ("same" if reason is None else "different")
    assert row["reason"] == reason


def test_a_time_of_the_run_may_have_been_taken_by_an_earlier_step():
    first, second = step(1), step(2, stream("since 2023-11-14 22:13:21"), began=EARLY + 3600 * SECOND)
    again = step(1, began=LATE), step(2, stream("since 2025-11-30 00:56:58"), began=LATE + 60 * SECOND)
    result = judged(plan(first, second), [run(*again)], {})
    assert [row["verdict"] for row in result.executions] == ["same", "same-normalized"]
    assert result.executions[1]["rules"] == ["now"]


def _names(result: Result) -> dict[str, str]:
    return {row["name"]: row["verdict"] for row in result.names}


def test_names_at_the_end():
    recorded = {"a": "x:1", "b": "x:2", "c": None, "d": "x:4", "f": "x:6"}
    replayed = {"a": "x:1", "b": "x:3", "c": None, "e": "x:5", "f": None}
    result = judged(plan(step(1), names=recorded), [run(step(1), names=replayed)], {})
    assert _names(result) == {
        "a": "same",
        "b": "different",
        "c": "unreadable",
        "d": "missing",
        "e": "new",
        "f": "unreadable",
    }
    assert result.verdict == "different"
    assert not result.ok


def test_names_that_are_equal_or_unreadable_are_well():
    result = judged(
        plan(step(1), names={"a": "x:1", "c": None}), [run(step(1), names={"a": "x:1", "c": None})], {}
    )
    assert (result.verdict, result.ok) == ("same", True)


def test_a_record_without_names_has_no_verdict_on_any():
    assert judged(plan(step(1)), [run(step(1), names={"a": "x:1"})], {}).names == []


def test_names_of_two_replays():
    recorded = plan(step(1), names={"t": "x:1", "u": "x:1"})
    runs = [run(step(1), names={"t": "x:2", "u": "x:1"}), run(step(1), names={"t": "x:3", "u": "x:1"})]
    result = judged(recorded, runs, {})
    assert _names(result) == {"t": "nondeterministic", "u": "same"}
    assert result.verdict == "nondeterministic"


def test_a_name_that_only_a_skipped_step_bound_is_skipped():
    bound = {"key": {"how": "bound", "digest": "x:1"}}
    recorded = plan(step(1, names=bound), step(2, observed=True), names={"key": "x:1", "n": "x:2"})
    replay = run(Ran(number=1, skip="it asks for a secret"), step(2), names={"n": "x:2"})
    result = judged(recorded, [replay], {})
    assert _names(result) == {"key": "skipped", "n": "same"}
    assert result.names[0]["reason"] == "execution 1 was not run: it asks for a secret"
    assert (result.verdict, result.ok) == ("same", True)
    again = step(2, names=bound)
    result = judged(recorded, [run(replay.ran[0], again, names={"key": "x:9", "n": "x:2"})], {})
    assert _names(result)["key"] == "different"


def test_a_name_of_a_step_that_nobody_observed_is_skipped():
    """A session that is stopped right behind its last execution has no observation of that one.

    Its names are not in the record, or as they were before, and the replay has them: `new` or `different`
    would be a false accusation.
    """
    bound = {"late": {"how": "bound", "digest": "x:1"}, "n": {"how": "rebound", "digest": "x:3"}}
    replay = run(step(1), step(2, names=bound, observed=True), names={"late": "x:1", "n": "x:3"})
    result = judged(plan(step(1, observed=True), step(2), names={"n": "x:2"}), [replay], {})
    assert _names(result) == {"late": "skipped", "n": "skipped"}
    assert "execution 2" in result.names[0]["reason"]
    assert (result.verdict, result.ok) == ("same", True)
    result = judged(plan(step(1, observed=True), step(2, observed=True), names={"n": "x:2"}), [replay], {})
    assert _names(result) == {"late": "new", "n": "different"}


def test_names_may_be_told_without_counting():
    recorded, replay = plan(step(1), names={"t": "x:1"}), run(step(1), names={"t": "x:2"})
    result = judged(recorded, [replay], {}, choose(on=["name-digests"]))
    assert result.names == [
        {"name": "t", "verdict": "same-normalized", "was": "different", "rules": ["name-digests"]}
    ]
    assert (result.verdict, result.ok) == ("same-normalized", True)


def test_the_worst_verdict_is_the_total():
    order = ["different", "nondeterministic", "same-normalized", "same"]
    for at, verdict in enumerate(order):
        assert total([*order[at:], "skipped", "unreadable"]) == verdict
    assert total(["missing"]) == total(["new"]) == "different"
    assert total(["skipped", "skipped"]) == "skipped"
    assert total([]) == "same"


def test_the_result_is_json_and_says_by_which_rules():
    recorded = plan(step(1, stream("1")), step(2, stream("2")), names={"a": "x:1"})
    replay = run(step(1, stream("1")), step(2, stream("3\ud800")), names={"a": "x:1"})
    cause = Cause(names=["a"], steps=[1])
    result = judged(recorded, [replay], {2: cause}, choose(off=["ansi"], relative=1e-6))
    told = msgspec.json.decode(msgspec.json.encode(result))
    assert told["rules"]["relative"] == 1e-6
    assert "ansi" not in told["rules"]["on"]
    assert told["verdict"] == "different"
    assert [row["verdict"] for row in told["executions"]] == ["same", "different"]
    assert told["changed"] == [
        {"execution_id": "e2", "cell_id": "c2", "number": 2, "because": {"names": ["a"], "steps": [1]}}
    ]
    assert told["executions"][1]["differences"][0]["place"] == {"line": 1}


def test_what_set_put_in_is_no_part_of_the_record():
    recorded = plan(Step(number=1, injected=True), step(2))
    result = judged(recorded, [run(Step(number=1, outcome="ok"), step(2))], {})
    assert [row["number"] for row in result.executions] == [2]
