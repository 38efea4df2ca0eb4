"""Replays of cells that asked: recorded answers, other questions, passwords, a person at the terminal."""

from __future__ import annotations

import sys
from pathlib import Path

import pexpect
import pytest

import kernel_runtime as kr
from kernel_runtime.client.blocking import Execution
from kernel_runtime.errors import UsageError
from kernel_runtime.replay import replay
from tests.e2e import replayed
from tests.e2e.replayed import Record, looked_at_and_stopped, reasons, verdicts
from tests.support import eventually, krt

places = replayed.places  # autouse
record = replayed.record

ASKS = """
a = input('one? ')
try:
    b = input('two? ')
except EOFError:
    b = 'end'
print(a, b)
"""
READS = "import subprocess; subprocess.run(['bash', '-c', 'read -p \"t: \" t </dev/tty; echo $t'])"


def asked(session: kr.Session, x: Execution, prompt: str) -> None:
    """Wait for that question."""
    eventually(lambda: (session.peek(x.execution_id).blocked or {}).get("prompt") == prompt, what=prompt)


@pytest.mark.slow
def test_recorded_answers_are_given_again(record: Record, tmp_path: Path) -> None:
    with kr.attach("s", create=True, cwd=str(tmp_path)) as session:
        for answers in (["Ada", None], ["Bo", "Cy"]):
            x = session.submit(ASKS)
            for prompt, answer in zip(["one? ", "two? "], answers, strict=True):
                asked(session, x, prompt)
                session.answer(answer, eof=answer is None)
            assert x.wait(timeout=30).outcome == "ok"
        x = session.submit(READS)
        asked(session, x, "t: ")
        session.answer("typed")
        assert "typed" in x.wait(timeout=30).text
        looked_at_and_stopped(session)
    result = replay("s")
    assert (result.verdict, verdicts(result)) == ("same", ["same"] * 3), [
        (row["reason"], row["diff"]) for row in result.executions
    ]
    assert [[asked["how"] for asked in row["asked"]] for row in result.executions] == [
        ["recorded"] * 2
    ] * 2 + [["recorded"]]
    skipped = replay("s", inputs="none")
    assert verdicts(skipped) == ["skipped"] * 3


@pytest.mark.slow
def test_another_question_and_one_more_are_told(record: Record, tmp_path: Path) -> None:
    (tmp_path / "n").write_text("1")
    with kr.attach("s", create=True, cwd=str(tmp_path)) as session:
        x = session.submit("n = int(open('n').read())\nfor i in range(n): print(input(f'{n} {i}? '))")
        eventually(lambda: session.peek(x.execution_id).blocked)
        session.answer("yes")
        x.wait(timeout=30)
        looked_at_and_stopped(session)
    (tmp_path / "n").write_text("3")
    (row,) = replay("s").executions
    assert row["verdict"] == "different"
    assert [(asked["how"], asked["prompt"], asked.get("recorded")) for asked in row["asked"]] == [
        ("recorded", "3 0? ", "1 0? "),
        ("end", "3 1? ", None),
    ]
    (tmp_path / "n").write_text("0")
    (row,) = replay("s").executions
    assert "does not ask '1 0? '" in row["reason"]


@pytest.mark.slow
def test_a_cell_that_asks_for_ever_is_interrupted(record: Record, tmp_path: Path) -> None:
    record(
        "import os\nwhile os.path.exists('ask'):\n    try: input('? ')\n    except EOFError: pass", "1 + 1"
    )
    (tmp_path / "ask").write_text("")
    result = replay("s")
    assert verdicts(result) == ["different", "same"]
    assert result.executions[0]["outcome"] == {"recorded": "ok", "replayed": "interrupted"}
    assert any("not in the record" in remark for remark in result.executions[0]["remarks"])


@pytest.mark.slow
def test_a_password_is_asked_for_or_its_execution_is_skipped(record: Record, tmp_path: Path) -> None:
    with kr.attach("s", create=True, cwd=str(tmp_path)) as session:
        x = session.submit("import getpass; n = len(getpass.getpass('pw: ')); n")
        eventually(lambda: session.peek(x.execution_id).blocked)
        session.answer("four")
        assert x.wait(timeout=30).text == "4"
        session.execute("n * 2")
        looked_at_and_stopped(session)
    result = replay("s")
    assert verdicts(result) == ["skipped", "different"]
    assert "asked for a secret" in reasons(result)[0]
    assert result.executions[1]["after"] == {"names": ["n"], "steps": [1]}
    questions: list[tuple[str, bool]] = []

    def answer(prompt: str, hidden: bool) -> str:
        questions.append((prompt, hidden))
        return "four"

    result = replay("s", secrets="ask", ask=answer)
    assert (verdicts(result), questions) == (["same", "same"], [("pw: ", True)])
    with pytest.raises(UsageError, match="nobody to ask"):
        replay("s", secrets="ask")
    assert krt("replay", "s", "--secrets", "ask").returncode == 2


@pytest.mark.slow
def test_a_person_is_asked_at_the_terminal(record: Record, tmp_path: Path) -> None:
    with kr.attach("s", create=True, cwd=str(tmp_path)) as session:
        x = session.submit("import getpass; n = len(getpass.getpass('pw: ')); print(input('and? '), n)")
        asked(session, x, "pw: ")
        session.answer("four")
        asked(session, x, "and? ")
        session.answer("yes")
        assert x.wait(timeout=30).text == "yes 4\n"
        looked_at_and_stopped(session)
    child = pexpect.spawn(
        sys.executable,
        ["-m", "kernel_runtime.cli", "replay", "s", "--secrets", "ask", "--inputs", "ask"],
        encoding="utf-8",
        timeout=60,
    )
    child.expect("pw: ")
    child.sendline("hush")
    child.expect("and\\? ")
    child.sendline("no")
    child.expect(pexpect.EOF)
    shown = child.before
    child.close()
    assert child.exitstatus == 1
    assert "hush" not in shown
    assert "s: different" in shown
