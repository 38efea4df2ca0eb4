"""Questions on the kernel's terminal while the kernel's parent, which types and keeps its log, is slow."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kernel_runtime import process
from kernel_runtime.client.blocking import Execution, Session
from kernel_runtime.model.facts import InputAnswered, InputRequested
from kernel_runtime.supervisor import launch
from kernel_runtime.supervisor.launch import KernelRecord
from tests.fault.rig import Rig
from tests.support import eventually

pytestmark = pytest.mark.slow

CHILD = "import sys; open('/dev/tty', 'w').write('name? '); print('<' + sys.stdin.readline().strip() + '>')"
PROMPTS = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {CHILD!r}])"
TWO_READERS = "import os\nos.system('cat; echo over; cat')"


def started(rig: Rig) -> tuple[Session, KernelRecord]:
    """A session whose supervisor stops after a look that found a reader, once the test has armed that."""
    rig.failpoint("after-reader", "stop")
    session = rig.attach()
    session.execute("1")
    rig.no_more_failpoints()
    record = launch.load_record(rig.file.directory / "kernel.json")
    assert record is not None
    return session, record


@contextmanager
def stopped_parent(record: KernelRecord) -> Iterator[None]:
    """The kernel's parent is stopped within; it goes on whatever happens."""
    who = record.foster
    assert who is not None
    assert process.signal_process(who, signal.SIGSTOP)
    try:
        eventually(lambda: process.run_state(who.pid) == "T", what="the parent is stopped")
        yield
    finally:
        process.signal_process(who, signal.SIGCONT)


def submit(rig: Rig, session: Session, source: str, **how: Any) -> Execution:
    execution = session.submit(source, key="asks", **how)
    rig.acknowledged.append((execution.execution_id, execution.cursor, "asks"))
    return execution


def questions(rig: Rig) -> list[str]:
    return [entry.fact.prompt for entry in rig.entries() if isinstance(entry.fact, InputRequested)]


def answers(rig: Rig) -> int:
    return sum(isinstance(entry.fact, InputAnswered) for entry in rig.entries())


def test_a_prompt_that_comes_late_is_told(rig: Rig) -> None:
    """A process writes its prompt and reads; the parent of the kernel appends what the terminal shows to a
    file, and may not have got to it when the reader is seen. A reader that seems to have shown nothing is
    looked at once more before it is asked for, since a question is told once, with its prompt.
    """
    session, record = started(rig)
    rig.arm()
    with stopped_parent(record):
        execution = submit(rig, session, PROMPTS)
        supervisor = rig.hit()
    shown = Path(record.screen)
    eventually(lambda: shown.exists() and b"name? " in shown.read_bytes(), what="the prompt is in the log")
    rig.let_go_on(supervisor, 0.0)
    eventually(lambda: questions(rig), what="it is asked")
    session.answer("bob")
    assert "<bob>" in execution.wait(timeout=30).text
    assert questions(rig) == ["name? "]


def test_an_answer_that_is_on_its_way_is_not_asked_for_again(rig: Rig) -> None:
    """The answer goes through the kernel's parent; the next look may come before the reader has it. Its read
    is the one that was answered: it is no new question, and the answer that comes ends it.
    """
    session, record = started(rig)
    execution = submit(rig, session, PROMPTS)
    eventually(lambda: questions(rig), what="it is asked")
    with stopped_parent(record):
        session.answer("bob")
        rig.arm()
        supervisor = rig.hit()
    rig.let_go_on(supervisor, 0.0)
    assert "<bob>" in execution.wait(timeout=30).text
    assert (questions(rig), answers(rig)) == (["name? "], 1)


def test_the_end_of_input_is_given_once_to_each_reader(rig: Rig) -> None:
    """For a request that allows no input, what reads is given its end at once. A second one for the same read
    would stay in the terminal, and end the input of whoever reads next.
    """
    session, record = started(rig)
    with stopped_parent(record):
        execution = submit(rig, session, TWO_READERS, allow_stdin=False)
        eventually(lambda: answers(rig) == 1, what="the first is given the end")
        rig.arm()
        supervisor = rig.hit()
        given = answers(rig)
    rig.let_go_on(supervisor, 0.0)
    assert "over" in execution.wait(timeout=30).text
    assert (given, answers(rig)) == (1, 2)
