"""What the probe tells of executions, held against what really happened."""

from __future__ import annotations

import ast
import gc
import io
import sys
import threading
import time
import types
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kernel_runtime.kernel.probe import heap as heap_module
from kernel_runtime.kernel.probe.heap import HeapProbe
from tests.unit.kernel.probe import programs


class Session:
    """A namespace with a probe, and cells run as the shell runs them: statement by statement."""

    def __init__(self, **names: Any) -> None:
        self.module = types.ModuleType("__main__")
        self.names = vars(self.module)
        self.names.update(names)
        self.complaints: list[str] = []
        self.probe = HeapProbe(self.names, tuple(names), self.complaints.append)
        self.volatile: list[str] = []

    def run(self, source: str) -> dict[str, Any]:
        self.began = self.probe.begin(self.volatile)
        ok = True
        try:
            for node in ast.parse(source).body:
                code = compile(ast.Module([node], []), "<cell>", "exec")
                self.probe.ran(code)
                exec(code, self.names)
        except Exception as error:  # noqa: BLE001 - cells fail
            ok = False
            error.__traceback__ = None
        return self.probe.end(ok, self.volatile)

    def how(self, source: str) -> dict[str, str]:
        return {name: row["how"] for name, row in self.run(source)["names"].items()}


@pytest.fixture
def session(monkeypatch) -> Iterator[Session]:
    """Without the patrol: what is found is found by following code and references."""
    monkeypatch.setattr(heap_module, "_PATROL_NS", -1)
    session = Session(np=np, pd=pd)
    monkeypatch.setitem(sys.modules, "__main__", session.module)
    yield session
    assert session.complaints == []


@pytest.fixture
def library(monkeypatch, session) -> Any:
    module = types.ModuleType("lib")
    exec(programs.LIBRARY, vars(module))
    monkeypatch.setitem(sys.modules, "lib", module)
    session.names["lib"] = module
    session.run("")
    return module


@pytest.mark.parametrize(
    "before, cell, told",
    [
        ("", "x = 1", {"x": "bound"}),
        ("x = 1", "x = 1", {"x": "rebound"}),
        ("x = 1", "x = 2", {"x": "rebound"}),
        ("x = 1", "x += 1", {"x": "rebound"}),
        ("x = 1", "del x", {"x": "deleted"}),
        ("x = 1", "y = x", {"y": "bound"}),
        ("x = 1.5", "x", {}),
        ("x = [1]", "len(x)", {}),
        ("x = [1]", "x.append(2)", {"x": "mutated"}),
        ("x = [1]; y = x", "y.append(2)", {"x": "mutated", "y": "mutated"}),
        ("x = [1]; y = {'k': x}; z = [1]", "y['k'].append(2)", {"x": "mutated", "y": "mutated"}),
        ("x = [[1], [2]]; y = x[0]", "y.append(2)", {"x": "mutated", "y": "mutated"}),
        ("x = [1]", "x[:] = [1]", {}),
        ("x = [1]\ndef f(): x.append(2)", "f()", {"x": "mutated"}),
        ("x = [1]\ndef f(): x.append(2)\ng = [f]", "g[0]()", {"x": "mutated"}),
        ("def f():\n    global x\n    x = 1", "f()", {"x": "bound"}),
        ("x = 1\ndef f():\n    global x\n    x = 2", "f()", {"x": "rebound"}),
        ("a = np.zeros(3); v = a[1:]", "v[0] = 1", {"a": "mutated", "v": "mutated"}),
        ("a = np.zeros(3); v = a[1:]", "a.sum()", {}),
        ("a = np.zeros(3)", "np.add(a, 1, out=a)", {"a": "mutated"}),
        ("df = pd.DataFrame({'x': [1, 2]})", "df.loc[0, 'x'] = 9", {"df": "mutated"}),
        ("df = pd.DataFrame({'x': [1, 2]})", "df.describe(); df.x.sum()", {}),
        ("df = pd.DataFrame({'x': [1, 2]})", "df['y'] = 1", {"df": "mutated"}),
        ("class K:\n    n = 0\nk = K(); m = K()", "K.n = 1", dict.fromkeys("Kkm", "mutated")),
        ("class K:\n    def f(self): self.n = 1\nk = K(); m = K()", "k.f()", {"k": "mutated"}),
        ("def f(x=[]): x.append(1)", "f()", {"f": "mutated"}),
        ("def make():\n    n = 0\n    def f():\n        nonlocal n; n+=1\n    return f\nf = make(); g = [f]",
         "g[0]()", {"f": "mutated", "g": "mutated"}),
        ("def make():\n    n = [0]\n    return (lambda: n.append(1)), (lambda: n)\nf, g = make()",
         "f()", {"f": "mutated", "g": "mutated"}),
        ("x = [1]; f = x.append", "f(2)", {"x": "mutated", "f": "mutated"}),
        ("x = 1", "exec('x = 2; y = 1')", {"x": "rebound", "y": "bound"}),
        ("x = [1]", "globals()['x'].append(1)", {"x": "mutated"}),
        ("x = [1]", "x.append(2); 1 / 0; y = 1", {"x": "mutated"}),
        ("x = [1]", "x = [1]; 1 / 0", {"x": "rebound"}),
        ("x = (i for i in [1, 2])", "next(x)", {"x": "touched"}),
        ("x = [1]", "if False: x = 2", {}),
        ("x = 3", "for x in []: pass", {}),
        ("import types; t = types", "t.mark = 1", {"t": "touched", "types": "touched"}),
    ],
)  # fmt: skip
def test_what_a_cell_did(session, before, cell, told):
    session.run(before)
    seen = session.run(cell)
    how = {name: row["how"] for name, row in seen["names"].items()}
    if before.startswith("import"):
        del session.names["types"].mark
        told = {name: how_told for name, how_told in told.items() if name in how or name == "t"}
    assert how == told


def test_a_row_tells_type_size_and_digest(session):
    row = session.run("x = [1]")["names"]["x"]
    assert row["type"] == "list"
    assert row["digest"].startswith("xxh3_128:")
    assert row["why"] is None
    assert session.run("y = [1]")["names"]["y"]["digest"] == row["digest"]
    row = session.run("f = (i for i in [1])")["names"]["f"]
    assert (row["type"], row["digest"]) == ("generator", None)
    assert "generator" in row["why"]


def test_reads_and_dynamic(session):
    session.run("x = 1\ndef f(): return x")
    assert session.run("y = f()")["reads"] == ["f", "x"]
    assert session.run("z = 1; z")["reads"] == []
    assert session.run("eval('x')")["dynamic"]
    assert session.run("_")["dynamic"] == ["earlier output"]


def test_groups_are_told_when_they_change(session):
    assert session.run("x = [1]; y = x")["groups"] == [["x", "y"]]
    assert session.run("z = 1")["groups"] is None
    assert session.run("y = 1")["groups"] == []
    assert session.run("f = lambda: 1; g = [f]")["groups"] == [["f", "g"]]
    assert session.run("class K:\n    def m(self): pass\na = K(); b = K()")["groups"] is None


def test_what_the_shell_binds_is_not_told(session):
    session.names["hidden"] = shown = [1]
    session.probe = HeapProbe(session.names, {"hidden": shown})
    session.names.update(_=1, __=2, _1=3, _i="x", In=[], Out={1: 2}, exit=print)
    assert session.how("x = 1") == {"x": "bound"}
    assert session.how("hidden = 3") == {"hidden": "bound"}


def test_an_output_that_ipython_keeps_is_not_an_escape(session):
    session.names["_oh"] = out = {}
    session.run("a = np.zeros(4)")
    out[1] = session.names["_"] = session.names["_1"] = session.names["a"]
    session.run("a")
    assert session.probe._groups.restless() == set()


def test_the_last_error_is_not_an_escape(session, monkeypatch):
    session.run("a = np.zeros(4); b = [1]\ndef f(x, y): return x[9], y\ndef g(x): f(x, (b, 1))")
    try:
        exec("g(a)", session.names)
    except IndexError as error:
        monkeypatch.setattr(sys, "last_value", error, raising=False)
    session.run("a; b; f; g")
    assert session.probe._groups.restless() <= {"b"}  # held in a tuple that only a frame holds


def test_what_a_library_was_given_may_change_in_any_execution(session, library):
    session.run("x = [1]; y = [1]")
    assert session.how("lib.register(x)") == {}
    assert session.how("lib.poke()") == {"x": "mutated"}
    session.run("lib.forget()")
    session.run("lib.register(lambda: y.append(2))")
    assert session.how("lib.fire()") == {"y": "mutated"}
    session.run("lib.forget(); z = lib.held")
    assert session.how("lib.register(1)") == {"z": "mutated"}


def test_a_function_that_a_thread_runs_makes_its_names_drift(session):
    session.run("x = [1]; y = [1]")
    session.run("import threading; go, done, end = (threading.Event() for _ in range(3))")
    session.run(
        "def work():\n    go.wait(); x.append(2); done.set(); end.wait()\n"
        "t = threading.Thread(target=work); t.start()"
    )
    session.volatile = ["thread work"]
    try:
        session.names["go"].set()
        assert session.names["done"].wait(10)
        session.run("z = 1")
        assert session.began is not None
        assert session.began["names"]["x"]["how"] == "mutated"
        assert "y" not in session.began["names"]
        session.names["x"].append(3)
        seen = session.run("z = 2")
        assert "x" not in seen["names"]
    finally:
        session.names["end"].set()
        session.names["t"].join()


def test_a_drift_within_an_execution_is_told_apart(session):
    session.run("x = [1]")
    held = session.names["x"]
    session.run("x")
    session.volatile = ["thread t"]
    session.probe.begin([])
    code = compile("y = 1", "<cell>", "exec")
    session.probe.ran(code)
    exec(code, session.names)
    held.append(2)
    seen = session.probe.end(True, session.volatile)
    drift = session.probe.take_drift()
    assert set(seen["names"]) == {"y"}
    assert drift is not None
    assert drift["names"]["x"]["how"] == "mutated"
    assert session.probe.take_drift() is None


def test_an_idle_scan_finds_what_nothing_else_did(session):
    session.run("x = [1]; y = np.zeros(1000); z = 1")
    assert session.probe.scan(1, lambda: False) is None
    assert not session.probe.wants_scan
    session.names["x"].append(2)
    session.names["y"][5] = 1
    session.names["new"] = 1
    del session.names["z"]
    drift = session.probe.scan(1, lambda: False)
    assert drift is not None
    assert {n: row["how"] for n, row in drift["names"].items()} == {
        "x": "mutated", "y": "mutated", "new": "bound", "z": "deleted",
    }  # fmt: skip
    assert session.probe.scan(1, lambda: False) is None


def test_a_scan_ends_when_the_kernel_is_wanted(session):
    session.run("x = [1]; y = [2]")
    asked: list[int] = []

    def wanted() -> bool:
        asked.append(1)
        return True

    session.probe.scan(10, wanted)
    assert session.probe.wants_scan
    assert len(asked) == 1


def test_what_is_too_much_for_one_execution_is_touched_and_read_later(session, monkeypatch):
    session.run("a = np.zeros(1000); b = np.zeros(1000)")
    monkeypatch.setattr(heap_module, "EXECUTION_BOUND", 12_000)
    seen = session.run("a.sum(); b.sum()")["names"]
    assert {name: row["how"] for name, row in seen.items()} == {"b": "touched"}
    assert seen["b"]["digest"] is None
    drift = session.probe.scan(1, lambda: False)
    assert drift is not None
    assert drift["names"]["b"]["how"] == "read"
    assert drift["names"]["b"]["digest"] is not None


def test_the_patrol_reads_small_values_whatever_the_code_says(monkeypatch):
    monkeypatch.setattr(heap_module, "_PATROL_NS", 10**9)
    monkeypatch.setattr(heap_module, "_LOOK_NS", 10**9)
    session = Session()
    session.run("x = [1]; y = 1")
    session.names["x"].append(2)
    assert session.how("z = 1") == {"z": "bound"}  # which calls nothing, so can have changed nothing unseen
    assert session.how("z = len('')") == {"x": "mutated", "z": "rebound"}


def test_a_snapshot_from_another_thread_while_names_change(session):
    session.run("x = [1]; y = np.zeros(10)")
    rows = {name: session.probe._records[name].print.digest for name in ("x", "y")}
    found: list[dict[str, Any]] = []
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            found.append(session.probe.snapshot(5))

    thread = threading.Thread(target=look)
    thread.start()
    deadline = time.monotonic() + 20
    n = 0
    while len(found) < 3 and time.monotonic() < deadline:
        session.names[f"n{n % 50}"] = [n]
        session.names["big"] = list(range(n % 1000))
        session.names.pop(f"n{(n + 7) % 50}", None)
        n += 1
    stop.set()
    thread.join()
    assert len(found) >= 3
    for snapshot in found:
        assert {name: snapshot["names"][name]["digest"] for name in rows} == rows
    assert session.probe._records.keys() == rows.keys()


def test_a_snapshot_has_its_time():
    session = Session()
    session.run("x = [1]")
    session.run("y = 1")
    names = session.probe.snapshot(-1)["names"]
    assert names["x"]["why"] == "no time was left to read it"
    assert names["y"]["digest"] is not None


def test_a_probe_that_fails_says_that_anything_may_have_changed(monkeypatch):
    session = Session()
    session.run("x = [1]; y = 1")

    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(session.probe, "_look", broken)
    seen = session.run("del y")
    assert seen["dynamic"] == ["probe failed: ZeroDivisionError"]
    assert seen["names"] == {
        "x": {"how": "touched", "type": "object", "bytes": 0, "digest": None, "why": "the probe failed"},
        "y": {"how": "deleted"},
    }
    assert session.complaints
    monkeypatch.undo()
    assert session.how("z = 1") == {"x": "touched", "z": "bound"}
    assert session.how("x.append(1)") == {"x": "mutated"}


HOSTILE = """
class Broken:
    def __getattribute__(self, name): raise SystemExit
    def __eq__(self, other): raise SystemExit
    __hash__ = __repr__ = __len__ = __iter__ = __bool__ = __reduce_ex__ = __sizeof__ = __eq__
    __class__ = property(__eq__)
class Meta(type):
    def __eq__(self, other): raise SystemExit
    __hash__ = __getattribute__ = __eq__
a = Broken()
b = Meta("Lazy", (), {})()
c = [a, b, Broken, Meta]
"""


def test_hostile_objects_are_only_looked_at(session):
    assert set(session.how(HOSTILE)) == {"Broken", "Meta", "a", "b", "c"}
    assert session.how("c.append(1)") == {"c": "mutated"}
    assert session.how("exec('d = 1')")["d"] == "bound"
    assert session.probe.scan(1, lambda: False) is None
    assert session.probe.snapshot(1)["names"]["a"]["type"] == "Broken"


def test_nothing_is_kept_alive(session):
    gc.disable()
    try:
        session.run("class K: pass\na = K(); b = [K()]; c = np.zeros(3); d = lambda: 1")
        session.run("a.x = b; b.append(c)")
        dead = [weakref.ref(session.names[name]) for name in "acd"]
        dead.append(weakref.ref(session.names["b"][0]))
        session.run("")
        session.probe.scan(1, lambda: False)
        session.probe.snapshot(1)
        for name in "abcd":
            del session.names[name]
        assert [ref() for ref in dead] == [None] * 4
    finally:
        gc.enable()


@pytest.mark.parametrize("seed", range(60))
def test_every_real_change_is_told(monkeypatch, session, library, seed):
    """Random programs; each change that the oracle sees is in the observation of the cell that made it."""
    session.names["io"] = io.StringIO()
    session.run("")
    watched = {*programs.NAMES, *programs.NAMES.upper()}
    before: dict[str, Any] = {}
    for number, cell in enumerate(programs.program(seed, 10)):
        seen = session.run(cell)
        after = {name: programs.drawn(value) for name, value in session.names.items() if name in watched}
        changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        assert changed <= seen["names"].keys(), (seed, number, cell)
        before = after


def test_a_cell_that_touches_nothing_large_is_cheap(monkeypatch):
    """Five hundred names. The figure to keep is a millisecond; this only tells of an order of magnitude."""
    session = Session(np=np)
    session.run("\n".join(f"n{i} = {i} * 1.5; s{i} = 'text {i}'" for i in range(75)))
    session.run("\n".join(f"def f{i}(a, b=2): return a + b * {i}" for i in range(120)))
    session.run("\n".join(f"l{i} = [{i}, 'a', (1, 2)]; d{i} = {{'k': {i}, 'v': [1, 2]}}" for i in range(100)))
    session.run("a = [np.zeros(1000) for _ in range(30)]")
    for i in range(20):
        session.names[f"big{i}"] = np.empty(1 << 20)
    session.run("x = 0")
    costs = sorted(session.run("x = n1 + n2")["nanoseconds"] for _ in range(50))
    assert costs[5] < 10_000_000


def test_what_others_hold_is_not_read_for_a_cell_that_calls_nothing(session, library):
    session.run("x = [1]; y = 1")
    session.run("lib.register(x)")
    assert "x" in session.probe._groups.restless()
    before = session.probe._records["x"]
    session.run("y = 2")
    assert session.probe._records["x"] is before
    session.names["x"].append(2)
    session.probe.begin([], hooked=True)
    session.probe.ran(compile("y = 3", "<cell>", "exec"))
    assert session.probe.end(True, [])["names"]["x"]["how"] == "mutated"  # what runs with every cell may
    session.volatile = ["thread t"]
    session.names["x"].append(3)
    assert session.run("y = 4")["names"].keys() | (session.began or {"names": {}})["names"].keys() >= {"x"}


def test_what_only_the_last_errors_frames_hold_is_not_an_escape(session, monkeypatch):
    session.run("a = np.zeros(9)\ndef f(x):\n    view = x[1:]; held = {'k': [view, x]}\n    1 / 0")
    try:
        exec("f(a)", session.names)
    except ZeroDivisionError as error:
        monkeypatch.setattr(sys, "last_value", error, raising=False)
    session.run("a; f")
    assert session.probe._groups.restless() == set()


def test_what_a_failed_cell_gave_to_others_is_one(session, library, monkeypatch):
    session.run("a = np.zeros(9)\ndef f(x):\n    view = x[1:]; lib.register([view])\n    1 / 0")
    try:
        exec("f(a)", session.names)
    except ZeroDivisionError as error:
        monkeypatch.setattr(sys, "last_value", error, raising=False)
    session.run("a; f")
    assert "a" in session.probe._groups.restless()


def test_the_same_object_bound_again_where_nobody_can_tell(session):
    """Mechanism: `x` may be bound to the very object that it is bound to, and that leaves no trace.

    Right: a cell that may have done only that does not claim to be known in full.
    """
    session.run("x = 3; n = 5")
    assert session.run("if n > 2: x = 3")["dynamic"] == ["x may have been bound to what it was bound to"]
    assert session.run("if n > 2: x = 4")["dynamic"] == []
    assert session.run("x = 4")["dynamic"] == []
