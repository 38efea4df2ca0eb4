"""What the probe says a cell's code binds, deletes and stores into."""

import sys

import pytest

from tests.unit.kernel.probe.touched import touch

BINDS = {
    "plain": ("a = b = 1", "a b", "a b"),
    "unpacked": ("a, (b, *c) = 1, (2, 3)", "a b c", "a b c"),
    "import": ("import os.path as p, sys\nfrom math import pi as q", "p sys q", "p sys q"),
    "def and class": ("def f(): pass\nclass C:\n    m = 1", "f C", "f C"),
    "for": ("for i in x:\n    a = 1", "i a", ""),
    "while true": ("while True:\n    a = 1\n    break", "a", "a"),
    "with, whose __exit__ may swallow": ("import io\nwith io.StringIO() as s:\n    a = 1", "io s a", "io"),
    "if": ("if x:\n    a = 1", "a", ""),
    "if and else": ("if x:\n    a = 1\nelse:\n    a = 2", "a", "a"),
    "try": ("try:\n    a = 1\nexcept Exception as e:\n    b = 1\nelse:\n    c = 1\nfinally:\n    d = 1",
            "a e b c d", "d"),
    "walrus": ("(a := 1)", "a", "a"),
    "walrus in a comprehension": ("[(a := i) for i in x]", "a", ""),
    "global in a function": ("def f():\n    global a\n    a = 1\nf()", "f a", "f"),
    "global in a class": ("class C:\n    global a\n    a = 1", "C a", "C"),
    "match": ("match x:\n    case [a]:\n        pass", "a", ""),
    "deleted again": ("a = 1\ndel a", "a", ""),
    "annotated only": ("a: int", "", ""),
    "conditional expression": ("a = 1 if x else 2", "a", "a"),
}  # fmt: skip


@pytest.mark.parametrize("source,binds,surely", BINDS.values(), ids=BINDS.keys())
def test_binds(source: str, binds: str, surely: str):
    found = touch(source)
    assert found.binds - {"__annotations__", "__conditional_annotations__"} == set(binds.split())
    assert found.binds_surely <= found.binds
    if sys.version_info[:2] == (3, 11) or "comprehension" not in source:
        assert found.binds_surely - {"__annotations__"} == set(surely.split())


def test_a_called_function_binds_and_deletes():
    setup = "a = 1\ndef f():\n    global a, b\n    b = 1\n    del a"
    found = touch("f()", setup)
    assert found.binds == {"b"}
    assert found.deletes == {"a"}
    assert found.binds_surely == set()


def test_deletes():
    assert touch("del x, y").deletes == {"x", "y"}
    assert touch("del z['a']").deletes == set()
    assert touch("try:\n    1/0\nexcept Exception as e:\n    pass").deletes == {"e"}


STORES = {
    "x[0] = y": "x",
    "x[len(y) - 1] = y": "x",
    "x[0:1] = y": "x",
    "x[0] += y[0]": "x",
    "x[0:1] += y": "x",
    "x += y": "x",
    "del x[0]": "x",
    "z['b'] = x[0]": "z",
    "x[0] = y[0] = 1": "x y",
    "import math\nmath.ours = 1": "math",
    "import math\nmath.ours = 1\ndel math.ours": "math",
    "z['a'] += 1": "z",
    "for x[0] in y: pass": "x",
    "x.sort()": "",
    "a = x[0]": "",
    "def f():\n    x[0] = 1\nf()": "x",
    "o = type('O', (), {})()\no.a = 1\no.a += 1\no.b = o\no.b.c = y": "o",
    "[x][0][0] = 1": "x",
}


@pytest.mark.parametrize("source,names", STORES.items())
def test_stores_into(source: str, names: str):
    assert touch(source).stores_into == set(names.split())


def test_stores_into_one_of_two():
    assert touch("(x if y else z)[0] = 1").stores_into >= {"x", "z"}
