"""A real kernel of ours: every cell ends in exactly one reply and one idle, with the right name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.kernel_harness import LiveKernel, one, reply, text
from tests.support import eventually


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveKernel]:
    kernel = LiveKernel(tmp_path_factory.mktemp("k"))
    yield kernel
    kernel.close()


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[LiveKernel]:
    kernel = LiveKernel(tmp_path)
    yield kernel
    kernel.close()


def test_a_cell_goes_out_in_order(shared):
    seen = shared.run("print('hi'); 1 + 1")
    kinds = [(s.kind, s.content.get("execution_state")) for s in seen]
    assert (kinds[0], kinds[-1]) == (("status", "busy"), ("status", "idle"))
    assert [k for k, _ in kinds if k != "stdout"] == [
        "status", "execute_input", "execute_result", "execute_reply", "status",
    ]  # fmt: skip
    assert text(seen) == "hi\n"
    assert one(seen, "execute_reply").metadata["krt"]["sigint_ns"] is None


def test_c32_exception_that_cannot_be_printed(shared):
    seen = shared.run("class E(Exception): __str__ = lambda s: 1/0\nraise E")
    assert one(seen, "error").content["ename"] == "E"
    assert reply(seen)["ename"] == "E"


@pytest.mark.parametrize(
    "body, ename",
    [("raise ValueError('r')", "ValueError"), ("return repr(self)", "RecursionError")],
    ids=["raises", "recurses"],
)
def test_c32_repr(shared, body, ename):
    seen = shared.run(f"class R:\n    def __repr__(self): {body}\nR()")
    assert one(seen, "error").content["ename"] == ename
    assert (reply(seen)["status"], reply(seen)["ename"]) == ("error", ename)


def test_exception_group_gives_error_and_reply(shared):
    seen = shared.run("raise ExceptionGroup('g', [ValueError(1), TypeError(2)])")
    assert one(seen, "error").content["ename"] == "ExceptionGroup"
    assert "TypeError: 2" in "\n".join(reply(seen)["traceback"])


@pytest.mark.parametrize(
    "code",
    [
        "import sys; sys.stdout = None",
        "import sys; sys.stdout.close()",
        "import sys, os; sys.stdout = open(os.devnull, 'w')",
        "import sys, os; sys.stdout = open(os.devnull, 'w'); sys.stdout.close()",
        "import sys; sys.stderr = None",
        "import builtins; del builtins.print",
        "import builtins; del builtins.len, builtins.isinstance, builtins.getattr",
        "import asyncio; asyncio.get_event_loop().stop()",
        "import asyncio\nfor t in asyncio.all_tasks(): t.cancel()",
        "import sys; sys.exit(3)",
    ],
)
def test_c34_an_outcome_all_the_same(kernel, code):
    assert reply(kernel.run(code))["status"] in ("ok", "error")
    assert reply(kernel.run("1+1"))["status"] == "ok"
    seen = kernel.run("len('abc')")
    assert one(seen, "execute_result").content["data"]["text/plain"] == "3"


def test_c26_surrogates_nul_and_bytes_are_kept(shared):
    seen = shared.run("print('a\\ud800b\\0c')")
    assert text(seen) == "a\\ud800b\0c\n"
    seen = shared.run("import subprocess; _ = subprocess.run(['printf', r'caf\\351 \\377x'])")
    assert text(seen) == "caf\\xe9 \\xffx"


def test_c27_mimebundles_are_json_and_say_what_changed(shared):
    seen = shared.run(
        "import decimal, datetime, numpy\n"
        "from IPython.display import display\n"
        "display({'application/json': {'a': [float('nan'), float('inf')], 'd': decimal.Decimal('1.5'),"
        " 't': datetime.datetime(2026, 1, 2), 'n': numpy.float64(2.5), 'i': numpy.int64(7)}}, raw=True)"
    )
    shown = one(seen, "display_data").content
    assert shown["data"]["application/json"] == {
        "a": ["NaN", "Infinity"],
        "d": "1.5",
        "t": "2026-01-02T00:00:00",
        "n": 2.5,
        "i": 7,
    }
    assert len(shown["metadata"]["krt_json"]) >= 5


def test_write_rejects_what_is_not_text(shared):
    assert reply(shared.run("import sys; sys.stdout.write(b'x')"))["ename"] == "TypeError"
    seen = shared.run("print(sys.stdout.isatty(), sys.stdout.encoding, sys.stdout.writable())")
    assert text(seen) == "False UTF-8 True\n"


def test_a_second_request_of_the_same_id_is_dropped(shared):
    msg_id = shared.submit("n = globals().get('n', 0) + 1; print(n)")
    shared.wait(msg_id)
    shared.submit("n = globals().get('n', 0) + 1; print(n)", msg_id=msg_id)
    assert text(shared.run("print(n)")) == "1\n"
    assert len([s for s in shared.of(msg_id) if s.kind == "execute_reply"]) == 1


def test_an_error_aborts_nothing_queued_behind_it(shared):
    first, second = shared.submit("1/0"), shared.submit("print('ran')")
    shared.wait(first)
    assert text(shared.wait(second)) == "ran\n"


def test_fork_whose_child_falls_through(shared):
    seen = shared.run("import os\npid = os.fork()\nprint('child' if pid == 0 else 'parent')")
    assert reply(seen)["status"] == "ok"
    status = shared.run("print(os.waitpid(pid, 0)[1])")
    assert text(status) == "0\n"

    def both() -> bool:
        shared.collect()
        # each is written in two pieces, so that one may stand in the middle of the other
        return sorted(text(shared.of(seen[0].parent))) == sorted("child\nparent\n")

    eventually(both, what="the child's line, which the watching thread reads")


def test_the_marker_is_in_the_environment_of_children(shared):
    msg_id = shared.submit("import os; os.system('echo $KRT_EXECUTION')")
    assert text(shared.wait(msg_id)).strip() == msg_id


def test_history_of_this_incarnation_without_a_database(shared):
    shared.run("marker_of_history = 1")
    assert "marker_of_history = 1" in text(shared.run("%history"))
    assert text(shared.run("print(In[-2])")) != ""


def test_quit_is_announced(kernel):
    seen = kernel.run("quit()")
    assert [p["source"] for p in reply(seen)["payload"]] == ["ask_exit"]
    eventually(lambda: kernel.process.poll() is not None, 30, "the kernel to exit")
    assert kernel.file.exists()


def test_the_kernel_outlives_its_parent_pid(tmp_path):
    kernel = LiveKernel(tmp_path, {"JPY_PARENT_PID": "999999"})
    try:
        seen = kernel.run("import time, os; time.sleep(1.5); print(os.environ.get('JPY_PARENT_PID'))")
        assert text(seen) == "None\n"
    finally:
        kernel.close()


def test_d11_print_then_sigkill_keeps_the_print(kernel):
    msg_id = kernel.submit("import os; print('kept', end=''); os.kill(os.getpid(), 9)")
    assert kernel.process.wait(10) == -9
    kernel.collect()
    assert text(kernel.of(msg_id)) == "kept"


def test_input_asks_through_the_outbox(shared):
    msg_id = shared.submit("print(input('name? ').upper())")
    eventually(lambda: shared.collect() or any(s.kind == "input_request" for s in shared.of(msg_id)), 10)
    asked = one(shared.of(msg_id), "input_request").content
    assert asked == {"prompt": "name? ", "password": False}
    shared.answer("ada")
    assert text(shared.wait(msg_id)) == "ADA\n"


def test_a_large_cell_output_comes_whole(shared):
    assert len(text(shared.run("print('é' * 5_000_000)"))) == 5_000_001
