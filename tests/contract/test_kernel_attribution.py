"""A real kernel of ours: output belongs to the cell that caused it, however late it comes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.kernel_harness import LiveKernel, Seen, text
from tests.support import eventually


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveKernel]:
    kernel = LiveKernel(tmp_path_factory.mktemp("k"))
    yield kernel
    kernel.close()


def _all_of(kernel: LiveKernel, a: str, wanted: str) -> bool:
    kernel.collect()
    return text(kernel.of(a)) == wanted


@pytest.mark.parametrize(
    "start",
    [
        "import threading; threading.Thread(target=late).start()",
        "import _thread; _ = _thread.start_new_thread(late, ())",
        "from concurrent.futures import ThreadPoolExecutor as P; p = P(1); _ = p.submit(late)",
    ],
    ids=["thread", "raw-thread", "pool"],
)
def test_a35_a_thread_across_cells(kernel, start):
    kernel.run("import threading; go = threading.Event()\ndef late():\n for i in range(6):\n"
               "  go.wait(5) if i == 3 else None; print(i)")  # fmt: skip
    a = kernel.submit(start)
    kernel.wait(a)
    b = kernel.submit("go.set(); import time; time.sleep(.2); print('b')")
    assert text(kernel.wait(b)) == "b\n"
    eventually(lambda: _all_of(kernel, a, "".join(f"{i}\n" for i in range(6))), 30, "all six lines under A")


def test_a35_a_pool_made_in_one_cell_and_used_in_another(kernel):
    kernel.run("from concurrent.futures import ThreadPoolExecutor as P; p = P(1)")
    a = kernel.submit("p.submit(print, 'a').result()")
    kernel.wait(a)
    b = kernel.submit("p.submit(print, 'b').result()")
    assert text(kernel.wait(b)) == "b\n"
    assert text(kernel.of(a)) == "a\n"


@pytest.mark.parametrize(
    "own",
    ["print('own')", "sys.stderr.write('own')", "display('own')", "'own'", "1/0", "clear_output()"],
    ids=["print", "stderr", "display", "result", "error", "clear"],
)
def test_what_a_child_wrote_before_stands_before(kernel, own):
    """A child's output comes by a pipe, the cell's own does not. Read by a thread, at some time, it could
    come after what the cell did once the child had ended, so that now and then a replay differed.
    """
    kernel.run("import subprocess, sys; from IPython.display import clear_output")
    for _ in range(15):
        shown = _shown(kernel, f"subprocess.run(['printf', 'child']); {own}")
        assert shown[0].kind == "stdout", [m.kind for m in shown]
        assert shown[0].content["text"].startswith("child")  # text grows in its record, piece by piece


def test_what_native_code_wrote_stands_before_the_result(kernel):
    kernel.run("import os")
    for _ in range(15):
        shown = _shown(kernel, "_ = os.write(1, b'native'); 'own'")
        assert [m.kind for m in shown] == ["stdout", "execute_result"]


def test_a_handler_that_prints_in_the_middle_of_a_print_waits_for_nobody(kernel):
    """A print takes in first what children wrote. In a signal handler that came while the thread was inside
    the outbox, the reader of the pipe may have the pipe and wait for the outbox: each waited for the other.
    """
    msg_id = kernel.submit("""if True:
        import subprocess, threading
        kernel = get_ipython().kernel
        subprocess.run(["true"])
        has_pipe = threading.Event()
        def reader():
            with kernel.capture._current[0].lock:
                has_pipe.set()
                with kernel.outbox._lock:
                    pass
        with kernel.outbox._lock:
            thread = threading.Thread(target=reader)
            thread.start()
            has_pipe.wait()
            print("printed")
        thread.join()""")
    assert text(kernel.wait(msg_id)) == "printed\n"


def test_what_a_child_wrote_outlives_a_handler_that_raises_in_a_print(kernel):
    """A print that reads the child's pipe itself has the bytes in its hands when a handler raises, and drops
    them. Right: the thread that gets no signals reads, and all lines are there, once, in order.
    """
    msg_id = kernel.submit("""if True:
        import os, signal, subprocess, sys, tempfile
        class Alarm(Exception): pass
        armed, raised = [], 0
        def raises(*_):
            if armed:
                armed.clear()
                raise Alarm
        before = signal.signal(signal.SIGALRM, raises)
        done = os.path.join(tempfile.mkdtemp(), "done")
        child = subprocess.Popen(["sh", "-c", f"seq 1 200000; touch {done}"])
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        while not os.path.exists(done):
            try:
                armed.append(True)
                while not os.path.exists(done):
                    sys.stderr.write(".")
                armed.clear()
            except Alarm:
                raised += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        child.wait()
        _ = signal.signal(signal.SIGALRM, before)
        assert raised > 10, raised""")
    seen = kernel.wait(msg_id)
    assert text(seen) == "".join(f"{n}\n" for n in range(1, 200001))


def _shown(kernel: LiveKernel, code: str) -> list[Seen]:
    msg_id = kernel.submit(code)
    kernel.wait(msg_id)
    return [
        m
        for m in kernel.of(msg_id)
        if m.kind in ("stdout", "stderr", "display_data", "execute_result", "error", "clear_output")
    ]


def test_a35_displays_and_tasks(kernel):
    a = kernel.submit(
        "import asyncio\nfrom IPython.display import display\n"
        "async def later():\n await asyncio.sleep(.3); print('task'); display('shown')\n"
        "task = asyncio.create_task(later())"
    )
    kernel.wait(a)
    b = kernel.submit("await asyncio.sleep(.6); print('b')")
    seen = kernel.wait(b)
    assert text(seen) == "b\n"
    assert not [s for s in seen if s.kind == "display_data"]
    assert text(kernel.of(a)) == "task\n"
    assert len([s for s in kernel.of(a) if s.kind == "display_data"]) == 1


def test_a39b_a_child_of_a_writes_during_b(kernel):
    a = kernel.submit("import subprocess; c = subprocess.Popen('sleep .3; echo late', shell=True)")
    kernel.wait(a)
    b = kernel.submit("c.wait(); import os; os.system('echo mine')")
    assert text(kernel.wait(b)) == "mine\n"
    eventually(lambda: _all_of(kernel, a, "late\n"), 30, "the child's line under A")


def test_child_output_precedes_the_reply(kernel):
    seen = kernel.run("import os; _ = os.system('echo out; echo err >&2')")
    kinds = [s.kind for s in seen]
    assert kinds.index("stdout") < kinds.index("execute_reply")
    assert kinds.index("stderr") < kinds.index("execute_reply")


def test_a_fork_childs_display_comes_through_the_parent(kernel):
    a = kernel.submit("import os\nfrom IPython.display import display\n"
                      "if (pid := os.fork()) == 0:\n display('from the child')\n"
                      "else: os.waitpid(pid, 0)")  # fmt: skip
    kernel.wait(a)

    def shown() -> bool:
        kernel.collect()
        return any(s.kind == "display_data" for s in kernel.of(a))

    eventually(shown, 30, "the child's display")


def test_many_children_never_exhaust_the_descriptors(kernel):
    """Past the bound, child output belongs to nobody; with the children gone it is a cell's again."""
    kernel.run("import os, subprocess; cs = []")
    for _ in range(80):
        kernel.run("cs.append(subprocess.Popen(['sleep', '60']))")
    assert int(text(kernel.run("print(len(os.listdir('/proc/self/fd')))"))) < 400
    over = kernel.submit("_ = os.system('echo unowned')")
    assert text(kernel.wait(over)) == ""
    eventually(lambda: "unowned\n" in text(kernel.of("")), 30, "the line, under nobody")
    kernel.run("for c in cs: c.kill(); c.wait()")
    eventually(lambda: text(kernel.run("_ = os.system('echo owned')")) == "owned\n", 30, "own pipes again")
