"""The plan of a journal: order, what is skipped and why, inputs, late output, displays, names."""

from __future__ import annotations

import msgspec
import pytest

from kernel_runtime.model import facts as f
from kernel_runtime.replay.plan import Plan, Wait
from kernel_runtime.replay.plan_journal import plan_of_journal
from tests.unit.replay.record import SECOND, START, Record, bound


def ids(plan: Plan) -> list[str | None]:
    return [step.execution_id for step in plan.steps]


def text(plan: Plan, number: int) -> str:
    return "".join(output.get("text", "") for output in plan.steps[number - 1].outputs)


def test_steps_are_in_the_order_in_which_they_began() -> None:
    """Queued first is not run first: another client's queue may have been aborted or overtaken."""
    record = Record()
    record.queue("b", "2")
    record.queue("a", "1")
    record.start("a")
    record.says("a", "one\n")
    record.finish("a", execution_count=1)
    record.start("b")
    record.finish("b", execution_count=2)
    plan = plan_of_journal(record, "s")
    assert ids(plan) == ["a", "b"]
    assert [step.number for step in plan.steps] == [1, 2]
    first = plan.steps[0]
    assert (first.source, first.outcome, first.execution_count, first.principal) == ("1", "ok", 1, "agent:a")
    assert first.outputs == [{"output_type": "stream", "name": "stdout", "text": "one\n"}]
    assert (plan.kernel, plan.cwd, plan.language, plan.session_id) == ("python3", "/w", "python", "id-1")
    assert (plan.head, plan.head_hash) == (len(record.log), f"hash-{len(record.log)}")


@pytest.mark.parametrize(
    "outcome, evidence, word",
    [
        ("aborted", {}, "never ran"),
        ("interrupted", {}, "interrupted"),
        ("unknown", {}, "not known"),
        ("died", {}, "died"),
        ("died", {"kernel_stopped_for": "restart"}, "restart"),
    ],
)
def test_what_cannot_be_run_again_stays_in_the_plan_with_its_reason(
    outcome: str, evidence: dict[str, str], word: str
) -> None:
    record = Record()
    record.queue("a", "x")
    if outcome != "aborted":
        record.start("a")
    record.finish("a", outcome, evidence=evidence)
    record.ran("b", "y")
    plan = plan_of_journal(record, "s")
    assert ids(plan) == ["a", "b"]
    assert word in (plan.steps[0].skip or "")
    assert plan.steps[1].skip is None


def test_a_kernel_that_the_cell_itself_ended_is_ended_again() -> None:
    record = Record()
    record.queue("a", "exit()")
    record.start("a")
    record.add(f.KernelDied(pid=1, exit_status=0, by_user_code=True))
    record.finish("a", "died")
    (step,) = plan_of_journal(record, "s").steps
    assert step.skip is None


def test_an_error_is_run_again() -> None:
    record = Record()
    record.queue("a", "1/0")
    record.start("a")
    record.finish("a", "error", error={"ename": "ZeroDivisionError", "evalue": "", "traceback": []})
    (step,) = plan_of_journal(record, "s").steps
    assert (step.skip, step.outcome, step.error and step.error["ename"]) == (
        None,
        "error",
        "ZeroDivisionError",
    )


def test_what_still_runs_is_skipped() -> None:
    record = Record()
    record.queue("a", "forever")
    record.start("a")
    (step,) = plan_of_journal(record, "s").steps
    assert "had not ended" in (step.skip or "")


def test_silent_executions_are_left_out_and_told() -> None:
    record = Record()
    record.queue("q", "x = 9", silent=True)
    record.start("q")
    record.finish("q")
    record.saw("q", {"x": bound()})
    record.ran("a", "1")
    plan = plan_of_journal(record, "s")
    assert ids(plan) == ["a"]
    assert any("1 silent" in note and "x" in note for note in plan.notes)


def test_inputs_are_there_with_what_became_of_them() -> None:
    record = Record()
    record.queue("a", "ask()")
    record.start("a")
    for prompt, password in (("name? ", False), ("pw? ", True), ("more? ", False), ("gone? ", False)):
        record.add(f.InputRequested(execution_id="a", prompt=prompt, password=password))
        if prompt == "gone? ":
            record.add(f.InputWithdrawn(execution_id="a", reason="another process reads"))
        else:
            value = {"name? ": "Ada", "pw? ": None, "more? ": None}[prompt]
            record.add(
                f.InputAnswered(execution_id="a", value=value, eof=prompt == "more? "), principal="human:h"
            )
    record.finish("a")
    (step,) = plan_of_journal(record, "s").steps
    name, secret, end, gone = step.inputs
    assert (name.value, name.by, name.is_secret) == ("Ada", "human:h", False)
    assert secret.is_secret
    assert (end.eof, end.is_secret) == (True, False)
    assert (gone.withdrawn, gone.is_secret) == ("another process reads", False)


def test_an_answer_that_was_redacted_is_a_secret() -> None:
    record = Record()
    record.queue("a", "ask()")
    record.start("a")
    record.add(f.InputRequested(execution_id="a", prompt="name? ", password=False))
    seq = record.add(f.InputAnswered(execution_id="a", value="[redacted]"))
    record.finish("a")
    record.add(f.PayloadRedacted(seqs=[seq], digests=["x"], replacements={}, reason="r", how="text"))
    (step,) = plan_of_journal(record, "s").steps
    assert step.inputs[0].is_secret
    assert step.redacted == ["input"]


def test_redacted_outputs_are_not_compared_and_a_redacted_source_is_not_run() -> None:
    record = Record()
    record.queue("a", "print(token)")
    record.start("a")
    output = record.says("a", "[redacted]\n")
    record.finish("a")
    record.queue("b", "token = '[redacted]'")
    source = len(record.log)
    record.start("b")
    record.finish("b")
    record.add(
        f.PayloadRedacted(seqs=[output, source], digests=["x", "y"], replacements={}, reason="r", how="text")
    )
    first, second = plan_of_journal(record, "s").steps
    assert first.skip is None
    assert (first.uncompared or "").startswith("redacted")
    assert second.skip == "its source was redacted"


def test_late_output_belongs_to_its_execution_and_the_next_step_waits_for_it() -> None:
    record = Record()
    record.ran("a", "start a thread", says="now\n")
    record.says("a", "tick\ntock", late=True)
    record.ran("b", "look")
    record.message("a", "display_data", {"data": {"text/plain": "x"}, "metadata": {}}, late=True)
    plan = plan_of_journal(record, "s")
    first, second = plan.steps
    assert text(plan, 1) == "now\ntick\ntock"
    (wait,) = second.waits
    assert (wait.number, wait.late.lines, wait.late.messages, wait.late.seconds) == (1, 2, 0, 1.0)
    (last,) = plan.waits
    assert (last.number, last.late.lines, last.late.messages) == (1, 2, 1)
    assert first.late is not None


def test_a_display_that_a_later_execution_updated_shows_its_last_content() -> None:
    def shown(value: str) -> dict[str, object]:
        return {"data": {"text/plain": value}, "metadata": {}, "transient": {"display_id": "d"}}

    record = Record()
    record.queue("a", "h = display(1, display_id=True)")
    record.start("a")
    record.message("a", "display_data", shown("1"))
    record.finish("a")
    record.queue("b", "h.update(2)")
    record.start("b")
    record.message("b", "update_display_data", shown("2"))
    record.finish("b")
    plan = plan_of_journal(record, "s")
    assert plan.steps[0].outputs[0]["data"] == {"text/plain": "2"}
    assert plan.steps[1].outputs == []


def test_gaps_are_counted_and_leave_no_text() -> None:
    record = Record()
    record.queue("a", "print")
    record.start("a")
    record.says("a", "some\n")
    record.add(f.GapRecorded(reason="disk", messages=2, bytes=20, execution_id="a"))
    record.add(f.GapRecorded(reason="disk", messages=1, bytes=10, execution_id="a"))
    record.finish("a")
    plan = plan_of_journal(record, "s")
    assert plan.steps[0].gaps == [{"reason": "disk", "messages": 3, "bytes": 30}]
    assert text(plan, 1) == "some\n"


def test_names_are_those_of_the_last_incarnation_at_the_end() -> None:
    record = Record()
    record.ran("a", "old = 1")
    record.saw("a", {"old": bound()})
    record.incarnation = 2
    record.kernel()
    record.ran("b", "x, y = 1, 2")
    record.saw("b", {"x": bound("d:1"), "y": bound("d:2")})
    record.add(f.NamesDrifted(names={"x": {"how": "rebound", "digest": "d:3"}}, found="idle"))
    record.ran("c", "del y")
    record.saw("c", {"y": {"how": "deleted"}}, reads=["y"], dynamic=["exec"])
    plan = plan_of_journal(record, "s")
    assert [(name.name, name.digest) for name in plan.names or []] == [("x", "d:3")]
    assert [step.incarnation for step in plan.steps] == [1, 2, 2]
    assert (plan.steps[2].reads, plan.steps[2].dynamic) == (["y"], ["exec"])


def test_names_are_not_compared_while_the_last_execution_was_not_looked_at() -> None:
    """The probe tells of an execution after its end. A record that is read in between knows nothing of the
    names that it bound; the replay's, which waits, does, and they would be `new`.
    """
    record = Record()
    record.ran("a", "x = 1")
    record.saw("a", {"x": bound()})
    record.ran("b", "y = 1")
    early = plan_of_journal(record, "s")
    assert early.names is None
    assert any("execution b" in note for note in early.notes)
    record.saw("b", {"y": bound()})
    assert [name.name for name in plan_of_journal(record, "s").names or []] == ["x", "y"]


def test_a_kernel_that_tells_no_names_has_none_to_compare() -> None:
    record = Record()
    record.ran("a", "x=1")
    plan = plan_of_journal(record, "s")
    assert plan.names is None
    assert not plan.steps[0].observed


def test_until_takes_what_had_ended_and_what_was_told_of_it_later() -> None:
    record = Record()
    record.queue("a", "x = 1")
    record.queue("b", "y = 2")
    record.start("a")
    seq = record.finish("a")
    record.start("b")
    record.saw("a", {"x": bound()})
    record.finish("b")
    record.saw("b", {"y": bound()})
    plan = plan_of_journal(record, "s", until=seq + 1)
    assert ids(plan) == ["a"]
    assert plan.head == seq + 1
    assert [name.name for name in plan.names or []] == ["x"]
    assert any("b still ran" in note for note in plan.notes)


def test_document_order_is_each_cells_last_execution_from_top_to_bottom() -> None:
    record = Record()
    record.ran("a1", "first", cell_id="A")
    record.ran("b1", "second", cell_id="B")
    record.incarnation = 2
    record.ran("a2", "first again", cell_id="A")
    plan = plan_of_journal(record, "s", order="document")
    assert ids(plan) == ["a2", "b1"]
    assert [step.incarnation for step in plan.steps] == [1, 1]
    assert plan.names is None


def test_tags_come_from_the_request_or_from_the_notebook() -> None:
    record = Record()
    request = '{"identity": "", "metadata": {"cellMeta": {"tags": ["parameters"]}}}'
    record.ran("a", "x = 1", request=request)
    record.ran("b", "y = 1")
    plan = plan_of_journal(record, "s", tags={"b": ["other"]})
    assert [step.tags for step in plan.steps] == [["parameters"], ["other"]]


def test_a_plan_is_json_and_comes_back() -> None:
    record = Record()
    record.ran("a", "print(1)", says="1\n")
    record.says("a", "late\n", late=True)
    record.ran("b", "2")
    plan = plan_of_journal(record, "s")
    again = msgspec.json.decode(msgspec.json.encode(plan), type=Plan)
    assert again == plan
    assert isinstance(again.steps[1].waits[0], Wait)
    assert again.steps[0].started_at == START + 4 * SECOND
