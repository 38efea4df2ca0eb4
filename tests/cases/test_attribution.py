"""Whose output is it: A35 A39b."""

from __future__ import annotations

import kernel_runtime as kr
from kernel_runtime.client.blocking import Execution
from kernel_runtime.model.facts import OutputRecorded
from tests.cases.support import cell_of, entries, streamed, text_in
from tests.support import eventually


def test_a35_thread_prints_across_cells(shared: kr.Session) -> None:
    """A thread of cell A prints while B runs and after. Its context says whose it is: all six lines are
    A's, those after A's outcome are marked late, and the outcome does not change.
    """
    source = """
import sys, threading, time
def talk():
    for i in range(6):
        sys.stdout.write(f'thread {i}\\n')  # in one piece: print writes its end apart
        time.sleep(0.1)
t = threading.Thread(target=talk); t.start(); _ = sys.stdout.write('A done\\n')
"""
    a = shared.execute(source)
    b = shared.execute("for i in range(3):\n    print('B', i); time.sleep(0.1)")
    shared.execute("t.join()")
    eventually(lambda: "thread 5" in a.refresh().text, what="the thread's last line")
    assert (a.outcome, b.outcome) == ("ok", "ok")
    assert sorted(a.text.splitlines()) == sorted(["A done", *(f"thread {i}" for i in range(6))])
    assert b.text == "B 0\nB 1\nB 2\n"
    late = [e for e in entries(shared, execution=a) if isinstance(e.fact, OutputRecorded) and e.fact.late]
    assert "thread 5" in streamed(late)
    finished = entries(shared, "ExecutionFinished", execution=a)
    assert len(finished) == 1
    assert all(e.seq > finished[0].seq for e in late)
    eventually(lambda: "thread 5" in text_in(cell_of(shared.name, a)), what="late lines in A's cell")
    assert "thread" not in text_in(cell_of(shared.name, b))


def test_a39b_child_process_writes_during_another_cell(shared: kr.Session) -> None:
    """A child keeps the pipe it was born with, so what it writes while B runs is A's and never B's."""
    child = "['sh', '-c', 'sleep 0.4; echo from-the-child; echo err >&2']"
    a = shared.execute(f"import subprocess; p = subprocess.Popen({child})")
    b = shared.execute("import time\nfor i in range(8):\n    print('B', i); time.sleep(0.1)")
    shared.execute("p.wait()")
    eventually(lambda: "from-the-child" in a.refresh().text, what="the child's line")
    # two pipes: which is read first is not said
    eventually(lambda: "err\n" in errors_of(a.refresh()), what="the child's other line")
    assert b.text == "".join(f"B {i}\n" for i in range(8))
    assert not any("err" in str(out) for out in b.outputs)
    assert a.outcome == "ok"


def errors_of(execution: Execution) -> str:
    return "".join(out["text"] for out in execution.outputs if out.get("name") == "stderr")
