"""Content: C26 C27 C29 C30 C32 C33 C34 C38."""

from __future__ import annotations

import json
from typing import Any

import pytest

import kernel_runtime as kr
from tests.cases.support import cell_of, entries, messages, running, streamed, text_in
from tests.support import eventually


def error_of(execution: Any) -> str:
    """The class name that the execution's one error has everywhere: outcome, outputs and fact."""
    assert execution.outcome == "error"
    assert execution.error is not None
    shown = [out["ename"] for out in execution.outputs if out["output_type"] == "error"]
    assert shown == [execution.error.ename]
    return str(execution.error.ename)


def test_c26_text_that_is_not_utf8(shared: kr.Session) -> None:
    """A lone surrogate has no UTF-8, a child's bytes need not be any, NUL ends strings elsewhere. Each is
    kept, escaped where it must be, and the notebook is valid.
    """
    x = shared.execute(r"print('a\ud800b'); '\udfff'")
    assert x.text == "a\\ud800b\n'\\udfff'"
    child = shared.execute(r"""import subprocess; _ = subprocess.run(["printf", r"\377\376ok\n"])""")
    eventually(lambda: "ok" in child.refresh().text, what="the child's output")
    assert child.text == "\\xff\\xfeok\n"
    nul = shared.execute(r"print('n\0u\0l')")
    assert nul.text == "n\0u\0l\n"
    for execution in (x, child, nul):
        assert text_in(cell_of(shared.name, execution)).strip() in execution.text


def test_c27_values_that_json_lacks(shared: kr.Session) -> None:
    """NaN and Infinity are no JSON, Decimal, datetime and numpy scalars no values of it. What is shown is
    valid JSON, and each change is told in the output's metadata.
    """
    source = """
from IPython.display import display
import datetime, decimal
class Scalar:  # as numpy's: it has tolist()
    def tolist(self): return 7
display({"application/json": {"nan": float("nan"), "inf": [float("inf"), -float("inf")], "n": Scalar(),
                              "d": decimal.Decimal("1.10"), "t": datetime.datetime(2026, 1, 2)},
         "text/plain": "shown"}, raw=True)
"""
    x = shared.execute(source)
    assert x.outcome == "ok"
    (output,) = x.outputs
    shown = output["data"]["application/json"]
    assert shown == {
        "nan": "NaN",
        "inf": ["Infinity", "-Infinity"],
        "n": 7,
        "d": "1.10",
        "t": "2026-01-02T00:00:00",
    }
    notes = " ".join(output["metadata"]["krt_json"])
    for name in ("nan", "inf[0]", "n:", "d:", "t:"):
        assert f"application/json.{name}" in notes
    assert "NaN" not in json.dumps(x.json(), allow_nan=False).replace('"NaN', "").replace("NaN as", "")
    assert cell_of(shared.name, x).outputs[0].data["application/json"] == shown


def test_c29_progress_bar(shared: kr.Session) -> None:
    """20,000 carriage-return updates: the journal has them all, merged; what is shown is the last state."""
    source = "for i in range(20_000):\n    print(f'\\r{i:5d} of 20000', end='', flush=True)\nprint()"
    x = shared.execute(source, timeout=60)
    assert x.text == "19999 of 20000\n"
    recorded = streamed(entries(shared, execution=x))
    assert recorded == "".join(f"\r{i:5d} of 20000" for i in range(20_000)) + "\n"
    assert text_in(cell_of(shared.name, x)) == "19999 of 20000\n"


def test_c29_clear_output_in_a_loop(shared: kr.Session) -> None:
    """`clear_output(wait=True)` before each print: the last one is shown, all are in the journal."""
    source = "from IPython.display import clear_output\n"
    source += "for i in range(200):\n    clear_output(wait=True)\n    print(i)"
    x = shared.execute(source, timeout=30)
    assert x.text == "199\n"
    found = messages(entries(shared, execution=x))
    assert [m["type"] for m in found].count("clear_output") == 200
    assert streamed(entries(shared, execution=x)) == "".join(f"{i}\n" for i in range(200))
    assert text_in(cell_of(shared.name, x)) == "199\n"


def print_lines(session: kr.Session, lines: int, timeout: float) -> None:
    x = session.execute(f"for i in range({lines}):\n    print('line', i)", timeout=timeout)
    expected = "".join(f"line {i}\n" for i in range(lines))
    assert x.gaps == []
    assert x.text == expected
    shown = cell_of(session.name, x, timeout=60)
    kept = text_in(shown)
    assert kept.startswith("line 0\nline 1\n")
    assert kept.endswith(f"line {lines - 1}\n")
    if len(expected) > 9 << 20:
        assert len(kept) < 9 << 20
        assert x.execution_id in text_in(shown, "stderr"), "a pointer to the rest"


def test_c30_many_lines(shared: kr.Session) -> None:
    """100,000 lines: kept, every one; the notebook has them while they fit its cap."""
    print_lines(shared, 100_000, 60)


@pytest.mark.slow
def test_c30_a_million_lines(shared: kr.Session) -> None:
    """A million lines: kept, every one; the notebook is capped and points to the rest."""
    print_lines(shared, 1_000_000, 110)


def print_long_line(session: kr.Session, size: int, timeout: float) -> None:
    x = session.execute(f"print('x' * {size})", timeout=timeout)
    assert x.outcome == "ok"
    missing = sum(gap["bytes"] for gap in x.gaps)
    assert len(x.text) + missing == size + 1
    assert len(text_in(cell_of(session.name, x, timeout=60))) < 9 << 20
    assert session.execute("1 + 1", timeout=30).text == "2"


def test_c30_long_line(shared: kr.Session) -> None:
    """One line of 5 MB: kept whole."""
    print_long_line(shared, 5_000_000, 30)


@pytest.mark.slow
def test_c30_hundred_megabytes_in_a_line(shared: kr.Session) -> None:
    """One line of 100 MB: kept, or counted in a gap; nothing in between."""
    print_long_line(shared, 100_000_000, 110)


def show_images(session: kr.Session, count: int, timeout: float) -> None:
    source = f"""
import os
from IPython.display import Image, display
for i in range({count}):
    display(Image(data=b"\\x89PNG\\r\\n\\x1a\\n" + os.urandom(100_000), format="png"))
"""
    x = session.execute(source, timeout=timeout)
    assert x.outcome == "ok"
    assert len(x.outputs) + sum(gap["messages"] for gap in x.gaps) == count
    assert all(len(out["data"]["image/png"]) > 133_000 for out in x.outputs)
    shown = cell_of(session.name, x, timeout=60)
    if count > 60:
        assert len(shown.outputs) < count
        assert x.execution_id in text_in(shown, "stderr")


def test_c30_images(shared: kr.Session) -> None:
    """100 images of 100 kB: kept; the notebook's cell is capped and points to the rest."""
    show_images(shared, 100, 60)


@pytest.mark.slow
def test_c30_thousand_images(shared: kr.Session) -> None:
    """1,000 images of 100 kB: the same."""
    show_images(shared, 1000, 110)


def test_c32_exception_that_cannot_be_printed(shared: kr.Session) -> None:
    """`__str__` that raises: one outcome `error`, with the class's own name and not ZeroDivisionError."""
    x = shared.execute("class E(Exception):\n    __str__ = lambda s: 1/0\nraise E")
    assert error_of(x) == "E"


@pytest.mark.parametrize(
    "body, outcome",
    [("raise ValueError('no')", "error"), ("return repr(self)", "error"), ("print('hi'); return 'R'", "ok")],
    ids=["raises", "recurses", "prints"],
)
def test_c32_broken_repr(shared: kr.Session, body: str, outcome: str) -> None:
    """A value whose repr raises, recurses or prints: one outcome, of the exception's own class."""
    x = shared.execute(f"class R:\n    def __repr__(self):\n        {body}\nR()", timeout=30)
    assert x.outcome == outcome
    if outcome == "error":
        assert error_of(x) == ("ValueError" if "ValueError" in body else "RecursionError")
    else:
        assert x.text == "hi\nR"


def test_c32_endless_repr(shared: kr.Session) -> None:
    """A repr that takes for ever is busy, and interruptible."""
    source = "class R:\n    def __repr__(self):\n        while True: pass\nR()"
    x = shared.submit(source)
    eventually(lambda: running(shared, x), what="running")
    assert shared.interrupt().ended
    assert x.wait(timeout=30).outcome == "interrupted"


def test_c33_endless_recursion(shared: kr.Session) -> None:
    """Recursion without end is an error in the end."""
    assert error_of(shared.execute("def f():\n    f()\nf()", timeout=60)) == "RecursionError"


def test_c33_deeply_nested_repr(shared: kr.Session) -> None:
    """A list nested 100,000 deep: its repr cannot be had, its cell has an outcome, the session goes on."""
    x = shared.execute("deep = []\nfor _ in range(100_000): deep = [deep]\ndeep", timeout=60)
    assert x.outcome in ("ok", "error")
    if x.outcome == "error":
        assert error_of(x) == "RecursionError"
    assert shared.execute("del deep; 'on'").text == "'on'"


@pytest.mark.parametrize(
    "breaks, mends",
    [
        ("import sys; kept = sys.stdout; sys.stdout = None", "sys.stdout = kept"),
        ("import builtins; kept = builtins.print; del builtins.print", "builtins.print = kept"),
        (
            "import os, sys; kept = sys.stdout; sys.stdout = open(os.devnull, 'w')",
            "sys.stdout.close(); sys.stdout = kept",
        ),
        ("import builtins; kept = builtins.len; del builtins.len", "builtins.len = kept"),
    ],
    ids=["stdout-none", "no-print", "stdout-devnull", "no-len"],
)
def test_c34_broken_interpreter(shared: kr.Session, breaks: str, mends: str) -> None:
    """Code that takes stdout or a builtin away: its own cell and the next one have an outcome."""
    assert shared.execute(breaks, timeout=30).outcome == "ok"
    after = shared.execute("1 + 1", timeout=30)
    assert (after.outcome, after.text) == ("ok", "2")
    assert shared.execute(mends, timeout=30).outcome == "ok"
    assert shared.execute("print('back')", timeout=30).text == "back\n"


def test_c38_display_shared_by_cells(shared: kr.Session) -> None:
    """One display_id shown in two cells and updated from a third: both show the update in the notebook,
    and the journal keeps what they showed before.
    """
    one = shared.execute("from IPython.display import update_display\ndisplay('first', display_id='d38');")
    two = shared.execute("display('second', display_id='d38');")
    three = shared.execute("update_display('third', display_id='d38')")
    cell_of(shared.name, three)

    def shown(execution: Any) -> str:
        return str(cell_of(shared.name, execution).outputs[0].data["text/plain"])

    eventually(lambda: shown(one) == shown(two) == "'third'", what="both updated")
    history = [
        message["content"]["data"]["text/plain"]
        for execution in (one, two, three)
        for message in messages(entries(shared, execution=execution))
    ]
    assert history == ["'first'", "'second'", "'third'"]
