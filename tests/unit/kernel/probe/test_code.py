"""What the probe says a cell's code reads, binds and deletes."""

import ast
import dis
import gc
import sys
import types
import weakref
from pathlib import Path
from typing import Any

import pytest

from kernel_runtime.kernel.probe.code import Touch, analyse
from kernel_runtime.kernel.probe.instructions import exception_ranges


def compiled(source: str) -> list[types.CodeType]:
    """One code object for each statement, as IPython makes them."""
    return [compile(ast.Module([node], []), "<cell>", "exec") for node in ast.parse(source).body]


def namespace_of(*cells: str) -> dict[str, Any]:
    """The namespace after these cells; `x`, `y` and `z` hold data."""
    namespace: dict[str, Any] = {"__name__": "__main__", "x": [1.5], "y": [2.5], "z": {"a": 1}}
    for source in cells:
        for code in compiled(source):
            exec(code, namespace)
    return namespace


def touch(source: str, *cells: str) -> Touch:
    """What the last cell touches, after the others."""
    namespace = namespace_of(*cells)
    codes = compiled(source)
    before = analyse(codes, namespace)
    for code in codes:
        exec(code, namespace)
    return analyse(codes, namespace, before)


def looked_at(source: str, *cells: str) -> Touch:
    """As `touch`, without running the last cell."""
    return analyse(compiled(source), namespace_of(*cells))


F = "def f():\n    return x"
P = """
class P:
    unit = 1
    def __init__(self, r=1):
        self.r = r, setting
    def area(self):
        return x
    def other(self):
        return y
    def both(self):
        return self.area()
    def __add__(self, other):
        return z
    @property
    def side(self):
        return x
    @staticmethod
    def still():
        return x
    @classmethod
    def made(cls):
        return y
setting = 5
"""
READS = {
    # statement by statement
    "a name": ("x", "x", []),
    "a store is no read": ("a = 1", "", []),
    "bound before it is read": ("x = 1\na = x", "", []),
    "read before it is bound": ("a = x\nx = 1", "x", []),
    "bound in one branch only": ("if y:\n    x = 1\na = x", "x y", []),
    "bound in both branches": ("if y:\n    x = 1\nelse:\n    x = 2\na = x", "y", []),
    "a loop's own variable": ("for x in y:\n    a = x", "y", []),
    "after a loop that may not have run": ("for x in y:\n    pass\na = x", "x y", []),
    "bound in the loop before it is read": ("for i in y:\n    x = i\n    a = x", "y", []),
    "read in the loop before it is bound": ("for i in y:\n    a = x\n    x = i", "x y", []),
    "bound in a try that may fail": ("try:\n    x = y\nexcept Exception:\n    pass\na = x", "x y", []),
    "bound in a handler and its try": ("try:\n    x = y\nexcept Exception:\n    x = 0\na = x", "y", []),
    "bound by with": ("import io\nwith io.StringIO() as x:\n    a = x", "", []),
    "deleted, so not read": ("del x", "", []),
    "in-place": ("x += [1]", "x", []),
    "item": ("x[0] = 1", "x", []),
    "a comprehension's name is its own": ("a = [x for x in y]", "y", []),
    "a comprehension reads": ("a = [x for _ in y]", "x y", []),
    "a loop's variable in a comprehension": ("for i in y:\n    a = [i for _ in range(2)]", "y", []),
    "walrus": ("(x := 1) + x", "", []),
    "f-string": ("a = f'{x!r:>{y[0]}}'", "x y", []),
    "lambda called": ("a = (lambda: x)()", "x", []),
    "lambda given away": ("a = sorted([1], key=lambda _: x)", "x", []),
    "starred": ("a, *b = x", "x", []),
    "match": ("match x:\n    case [a]:\n        b = a", "x", []),
    "import": ("import math", "", []),
    "builtin": ("a = len(x)", "x", []),
    "annotation without effect": ("a: int = 1", "", []),
    # functions
    "a definition reads nothing": (F, "", []),
    "a default is read": ("def f(a=x):\n    return a", "x", []),
    "a local is no read": ("def f():\n    x = 1\n    return x\na = f()", "", []),
    "a call reads what the function reads": ("a = f()", "f x", [F]),
    "defined and called": ("def f():\n    return x\na = f()", "x", []),
    "defined and called after binding": ("x = 1\ndef f():\n    return x\na = f()", "", []),
    "called before it is rebound, or after": ("a = f()\ndef f():\n    return y", "f x y", [F]),
    "called before it is deleted": ("f()\ndel f", "f x", [F]),
    "kept under another name": ("g = f", "f", [F]),
    "called by that name": ("g()", "g x", [F, "g = f"]),
    "through another function": ("g()", "f g x", [F, "def g():\n    return f()"]),
    "a function that binds before it reads": (
        "f()",
        "f",
        ["def f():\n    global x\n    x = 1\n    return x"],
    ),
    "recursion": ("f(0)", "f x", ["def f(n):\n    return x if n else f(n - 1)"]),
    "keyword default": ("f()", "f g x", ["def g():\n    return x\ndef f(*, h=lambda: g()):\n    return h()"]),
    "closure": (
        "a()",
        "a x",
        [
            """def make():
    def inner():
        return x
    return inner
a = make()"""
        ],
    ),
    "a closure is made": (
        "a = make()",
        "make",
        ["def make():\n    def inner():\n        return x\n    return inner"],
    ),
    "a closure is made and called": (
        "a = make()\na()",
        "make x",
        ["def make():\n    def inner():\n        return x\n    return inner"],
    ),
    "a maker that is another one by the end": (
        "def make():\n    x\n    return lambda: 1\na = make()\ndef make():\n    return lambda: 2",
        "x",
        [],
    ),
    "a base that is another one by the end": (
        "class B:\n    def __init_subclass__(cls):\n        x\nclass C(B):\n    pass\nclass B:\n    pass",
        "x",
        [],
    ),
    "a base that is gone by the end": (
        "class B:\n    def __init_subclass__(cls):\n        x\nclass C(B):\n    pass\ndel B",
        "x",
        [],
    ),
    "a closure's maker reads": (
        "a = make()",
        "make y",
        ["def make():\n    y\n    return lambda: x"],
    ),
    "a maker calls what it makes": (
        "a = make()",
        "make x",
        ["def make():\n    f = lambda: x\n    f()\n    return f"],
    ),
    "a maker is given functions that it keeps": (
        "a = d(f)",
        "d f",
        [F, "def d(g):\n    def w():\n        return y, g()\n    return w"],
    ),
    "a maker is given functions that it calls": (
        "a = d(f)",
        "d f x y",
        [F, "def d(g):\n    h = g()\n    return lambda: (h, y)"],
    ),
    "a decorator that keeps what it is given": (
        "@d\ndef h():\n    return x",
        "d",
        ["def d(g):\n    def w():\n        return y, g()\n    return w"],
    ),
    "a generator is made": ("g = make(x)", "make x", ["def make(a):\n    yield y"]),
    "a generator is made and used": ("g = make(x)\na = list(g)", "make x y", ["def make(a):\n    yield y"]),
    "closed over": ("h()", "h x", [F, "def deco(g):\n    return lambda: g()\nh = deco(f)\ndel f, deco"]),
    "wrapped": (
        "f()",
        "f x y",
        [
            """import functools
def d(g):
    @functools.wraps(g)
    def w():
        return y, g()
    return w""",
            "@d\n" + F,
        ],
    ),
    "cached": ("f()", "f x", ["import functools\n@functools.lru_cache\ndef f():\n    return x"]),
    "caching reads nothing": (
        "@lru_cache\ndef f():\n    return x",
        "lru_cache",
        ["from functools import lru_cache"],
    ),
    "a decorator may call": ("@d\n" + F, "d x", ["def d(g):\n    return g"]),
    "partial is made": ("p = partial(f)", "partial f", [F, "from functools import partial"]),
    "partial is made of a lambda": (
        "p = functools.partial(f, lambda: y)",
        "functools f",
        [F, "import functools"],
    ),
    "partial": ("p()", "p x", [F, "import functools\np = functools.partial(f)"]),
    "partial's arguments": (
        "p()",
        "p f x",
        [
            F,
            """import functools
p = functools.partial(sorted, [1], key=lambda _: f())""",
        ],
    ),
    "context manager": (
        "with f():\n    pass",
        "f x",
        ["import contextlib\n@contextlib.contextmanager\ndef f():\n    yield x"],
    ),
    "attribute of a function": ("f.g()", "f y x", [F, "def h():\n    return y\nf.g = h\ndel h"]),
    # containers
    "a list of functions": ("l[0]()", "l x", [F, "l = [f]"]),
    "put into a list": ("l = [f]", "f", [F]),
    "a dictionary of functions": ("h['a']()", "h x y", ["h = {'a': lambda: x, 'b': lambda: y}"]),
    "popped": ("l.pop()()", "l x", ["l = [lambda: x]"]),
    "deep": ("d['a'][0][1]()", "d x", ["d = {'a': [(1, lambda: x)]}"]),
    "a set of functions": ("[f() for f in s]", "s x", ["s = {lambda: x}"]),
    "a deque of functions": (
        "q.popleft()()",
        "q x",
        ["import collections\nq = collections.deque([lambda: x])"],
    ),
    "a default factory": ("d[1]", "d x", ["import collections\nd = collections.defaultdict(lambda: x)"]),
    "many that are no functions": ("len(l)", "l", ["l = list(range(100_000))"]),
    # generators
    "a generator": ("next(g)", "g x", ["def make():\n    yield x\ng = make()"]),
    "a generator that ends": ("a = list(g)", "g x", ["def make():\n    yield x\ng = make()"]),
    "a generator expression": ("a = list(g)", "g x", ["g = (x for _ in [1])"]),
    "a coroutine": (
        "try:\n    c.send(None)\nexcept StopIteration:\n    pass",
        "c x",
        ["async def make():\n    return x\nc = make()"],
    ),
    "map": ("list(m)", "m x", ["m = map(lambda _: x, [1])"]),
    # classes
    "a class statement reads nothing of its methods": (P, "", []),
    "a class body reads": ("class C:\n    a = x", "x", []),
    "a class body reads its own": ("class C:\n    x = 1\n    a = x", "", []),
    "a class body that calls its own": ("class C:\n    def m():\n        return x\n    a = m()", "x", []),
    "a base": ("class Q(P):\n    def q(self):\n        return x", "P", [P]),
    "a metaclass's": (
        "class C(metaclass=M):\n    pass",
        "M x",
        ["class M(type):\n    def __init__(c, *a):\n        x"],
    ),
    "a base that looks at its subclasses": (
        "class C(B):\n    pass",
        "B x",
        ["class B:\n    def __init_subclass__(cls):\n        x"],
    ),
    "dataclass reads nothing of its methods": (
        "@dataclass\nclass C:\n    a: int\n    def m(self):\n        return x",
        "dataclass",
        ["from dataclasses import *"],
    ),
    "making one": ("p = P()", "P setting z", [P]),
    "a method": ("p.area()", "p x z", [P, "p = P()"]),
    "a method through another": ("p.both()", "p x z", [P, "p = P()"]),
    "an operator": ("p + 1", "p z", [P, "p = P()"]),
    "a property": ("p.side", "p x z", [P, "p = P()"]),
    "a static method": ("P.still()", "P setting x z", [P]),
    "a class method": ("p.made()", "p y z", [P, "p = P()"]),
    "a bound method": ("b()", "b x z", [P, "b = P().area"]),
    "by its name in a text": ("getattr(p, 'other')()", "p x y z setting", [P, "p = P()"]),
    "attrgetter": (
        "operator.methodcaller('other')(p)",
        "operator p y x z setting",
        [P, "import operator\np = P()"],
    ),
    "in a list": ("[q.area() for q in l]", "l x z", [P, "l = [P()]"]),
    "in an attribute": ("o.p.area()", "o x z", [P, "class O:\n    pass\no = O()\no.p = P()"]),
    "a callback in an attribute": ("o.call()", "o x", ["class O:\n    pass\no = O()\no.call = lambda: x"]),
    "slots": ("o.call()", "o x", ["class O:\n    __slots__ = ('call',)\no = O()\no.call = lambda: x"]),
    "given to a library": (
        "json.dumps([1], cls=E)",
        "json E x",
        [
            """import json
class E(json.JSONEncoder):
    def iterencode(self, *a, **k):
        return [str(x)]"""
        ],
    ),
    "super": (
        "q.area()",
        "q x y z",
        [
            P,
            """class Q(P):
    def area(self):
        return super().area(), y
q = Q()
del P""",
        ],
    ),
    "type of it": ("q = type(p)()", "p setting z", [P, "p = P()"]),
    "with": (
        "with o:\n    pass",
        "o x",
        [
            """class O:
    def __enter__(self):
        x
    def __exit__(self, *a):
        pass
o = O()"""
        ],
    ),
    "iteration": ("list(o)", "o x", ["class O:\n    def __iter__(self):\n        yield x\no = O()"]),
    "printed into": ("print(1, file=o)", "o x", ["class O:\n    def write(self, s):\n        x\no = O()"]),
    "a list's subclass": ("o[0]()", "o x", ["class O(list):\n    pass\no = O([lambda: x])"]),
    "enum": (
        "E.A.value",
        "E",
        [
            """import enum
class E(enum.Enum):
    A = 1
    def m(self):
        return x"""
        ],
    ),
    # libraries
    "a module's own names are not ours": ("math.sqrt(2)", "math", ["import math"]),
    "put into a module": ("math.ours()", "math x", ["import math\nmath.ours = lambda: x"]),
    "put over a library's class": (
        "t.ours()",
        "t x",
        [
            """import fractions
fractions.Fraction.ours = lambda s: x
t = fractions.Fraction(1)"""
        ],
    ),
    "in a library's object": ("t.run()", "t x", ["import threading\nt = threading.Timer(9, lambda: x)"]),
    "imported inside a function": (
        "f()",
        "f x",
        [
            """import colorsys
colorsys.ours = lambda: x
def f():
    import colorsys
    return colorsys.ours()"""
        ],
    ),
    "weak reference": ("r()()", "r h x", ["import weakref\nh = lambda: x\nr = weakref.ref(h)"]),
    "a text that asks for names": (
        "q.query('a > @y')",
        "q y",
        ["class Q:\n    def query(self, t):\n        pass\nq = Q()"],
    ),
}


@pytest.mark.parametrize("source,reads,cells", READS.values(), ids=READS.keys())
def test_reads(source: str, reads: str, cells: list[str]):
    unrun = source in {"t.run()", "json.dumps([1], cls=E)"}
    found = (looked_at if unrun else touch)(source, *cells)
    expected = set(reads.split())
    if source == "r()()":
        expected.discard("h")  # it is known by what the reference leads to
    assert found.reads == expected
    assert found.dynamic == ()
    assert found.reads <= found.uses


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


DYNAMIC = {
    "exec('x')": "exec",
    "eval('x')": "eval",
    "e = exec\ne('x')": "exec",
    "e('x')": "exec",
    "l[0]('x')": "exec",
    "import builtins\nbuiltins.eval('x')": "eval",
    "globals()['x']": "globals",
    "g['x']": "globals",
    "locals()": "locals",
    "vars()": "vars",
    "dir()": "dir",
    "import sys\nsys._getframe()": "frames",
    "from sys import _getframe as q\nq()": "frames",
    "import inspect\ninspect.currentframe()": "frames",
    "import inspect\ninspect.stack()": "frames",
    "f.__globals__": "globals",
    "getattr(f, '__globals__')": "globals",
    "import sys\nsys.modules": "sys.modules",
    "import __main__": "__main__",
    "from __main__ import x": "__main__",
    "__import__('__main__')": "__main__",
    "import importlib\nimportlib.import_module('__main__')": "__main__",
    "import gc\ngc.get_objects()": "gc",
    "import gc\ngc.get_referrers(x)": "gc",
    "import ctypes": "ctypes",
    "from math import *": "import *",
    "d()": "eval",
    "a = eval('x')": "eval",
    "a = locals()": "locals",
}


@pytest.mark.parametrize("source,reason", DYNAMIC.items())
def test_dynamic(source: str, reason: str):
    cells = ["def f():\n    return x", "e = exec\nl = [exec]\ng = globals()\ndef d():\n    return eval('x')"]
    assert reason in looked_at(source, *cells).dynamic


@pytest.mark.parametrize(
    "source",
    [
        "vars(f)",
        "a = vars(f)",
        "dir(f)",
        "def h():\n    return locals()\nh()",
        "if __name__ == '__main__':\n    pass",
        "import sys\nsys.path, sys.version",
        "import numpy as np\nnp.stack([x])",
        "__import__('math').pi",
        "input",
        "a = str(x).format(1)",
    ],
)
def test_not_dynamic(source: str):
    assert looked_at(source, "def f():\n    pass").dynamic == ()


MAGICS = {
    "get_ipython().system('echo {x} $y')": ("x y", "", ()),
    "a = get_ipython().getoutput('ls {x[0]}')": ("x", "a", ()),
    "get_ipython().run_line_magic('time', 'a = f()')": ("f x", "a", ()),
    "get_ipython().run_line_magic('timeit', '-n 10 -r3 f()')": ("f x", "", ()),
    "get_ipython().run_cell_magic('time', '', 'a = f()\\nb = y\\n')": ("f x y", "a b", ()),
    "get_ipython().run_cell_magic('capture', 'out', 'print(x)\\n')": ("x", "out", ()),
    "get_ipython().run_cell_magic('bash', '', 'ls $HOME\\n')": ("", "", ()),
    "get_ipython().run_line_magic('matplotlib', 'inline')": ("", "", ()),
    "get_ipython().run_line_magic('pip', 'install {x}')": ("x", "", ()),
    "get_ipython().run_line_magic('run', 'a.py')": ("", "", ("magic run",)),
    "get_ipython().run_line_magic('time', 'a b')": ("", "", ("magic time",)),
    "get_ipython().run_cell_magic('bash', '--out a', 'ls')": ("", "", ("magic bash",)),
    "ip = get_ipython()": ("", "ip", ("get_ipython",)),
    "get_ipython().run_line_magic('time', x)": ("x", "", ("get_ipython",)),
    "get_ipython().user_ns": ("", "", ("get_ipython",)),
}


@pytest.mark.parametrize("source,expected", MAGICS.items())
def test_magics(source: str, expected: tuple[str, str, tuple[str, ...]]):
    reads, binds, dynamic = expected
    found = looked_at(source, F)
    assert found.reads == set(reads.split())
    assert found.binds == set(binds.split())
    assert found.dynamic == dynamic


def test_the_shell_itself_can_do_anything():
    shell = type("InteractiveShell", (), {"__module__": "IPython.core.interactiveshell"})()
    namespace = namespace_of()
    namespace["ip"] = shell
    assert analyse(compiled("ip.ev('x')"), namespace).dynamic == ("get_ipython",)


def test_names_of_builtins_are_told_apart():
    found = touch("print(len(x), end='')")
    assert found.builtins == {"print", "len"}
    assert found.reads == {"x"}
    assert "len" in touch("len(x)", "def len(v):\n    return 0").reads


class Hostile:
    """Raises whatever it is asked, and lies about its class."""

    def __getattribute__(self, name):
        raise AssertionError(name)

    def __eq__(self, other):
        raise AssertionError

    def __hash__(self):
        raise AssertionError

    def __repr__(self):
        raise AssertionError

    def __len__(self):
        raise AssertionError

    def __bool__(self):
        raise AssertionError

    def __iter__(self):
        raise AssertionError


HOSTILE = """
class Meta(type):
    def __getattribute__(cls, name):
        raise AssertionError(name)
    def __hash__(cls):
        raise AssertionError
    def __eq__(cls, other):
        raise AssertionError
    def __instancecheck__(cls, other):
        raise AssertionError
    def __subclasscheck__(cls, other):
        raise AssertionError
class Bad(metaclass=Meta):
    @property
    def __class__(self):
        raise AssertionError
    @property
    def __dict__(self):
        raise AssertionError
    def __getattribute__(self, name):
        raise AssertionError(name)
    def __getattr__(self, name):
        raise AssertionError(name)
    def __eq__(self, other):
        raise AssertionError
    def __hash__(self):
        raise AssertionError
    def m(self):
        return x
class Module(__import__('types').ModuleType):
    def __getattribute__(self, name):
        raise AssertionError(name)
o = Bad()
lazy = Module('lazy')
"""


def test_hostile_objects_are_not_asked():
    namespace = namespace_of(HOSTILE)
    namespace["h"] = Hostile()
    namespace["l"] = [namespace["o"], namespace["h"], {"k": Hostile()}, *([Hostile()] * 20)]
    source = "o.m()\nh\nl\nlazy.a\nBad\nMeta\nh + h\nfor i in l: i.m()\nclass C(Bad): pass"
    found = analyse(compiled(source), namespace)
    assert found.reads == {"o", "h", "l", "lazy", "Bad", "Meta", "x"}


def test_a_hostile_class_is_not_kept_alive():
    namespace = namespace_of(
        "class C:\n    def m(self):\n        return x\nc = C()\ndef f():\n    return c.m()"
    )
    codes = compiled("f()\nc.m()")
    analyse(codes, namespace)
    gone = [weakref.ref(namespace[name]) for name in ("C", "c", "f")]
    gone.extend(weakref.ref(code) for code in codes)
    del codes
    namespace.clear()
    gc.collect()
    assert [ref() for ref in gone] == [None] * len(gone)


def test_a_heap_without_end_is_bounded():
    namespace = namespace_of(
        "class N:\n    pass\nhead = N()\nn = head\nfor _ in range(60_000):\n    n.n = N(); n = n.n"
    )
    found = analyse(compiled("head"), namespace)
    assert found.dynamic == ("objects",)


def test_a_long_chain_of_functions_is_followed():
    chain = "def f0():\n    return x\n" + "".join(
        f"def f{n}():\n    return f{n - 1}()\n" for n in range(1, 600)
    )
    assert analyse(compiled(chain + "f599()"), namespace_of()).reads >= {"x"}
    assert analyse(compiled("f599()"), namespace_of(chain)).reads >= {"x", "f0", "f300"}
    assert analyse(compiled(chain + "f599()"), namespace_of()).dynamic == ()


def test_cycles_end():
    namespace = namespace_of(
        "l = []\nl.append(l)\nd = {}\nd[1] = d\ndef f():\n    return g()\ndef g():\n    return f()"
    )
    assert analyse(compiled("l, d, f"), namespace).reads == {"l", "d", "f", "g"}


def test_values_in_a_namespace_that_has_lost_them():
    found = analyse(compiled("gone + 1"), namespace_of())
    assert found.reads == {"gone"}


def test_exception_tables():
    source = "try:\n    a\nexcept Exception:\n    b\nwith c as d:\n    e\n"
    code = compile(source, "<cell>", "exec")
    parsed: Any = dis.Bytecode(code)
    entries = [(entry.start, entry.end, entry.target) for entry in parsed.exception_entries]
    assert list(exception_ranges(code.co_exceptiontable)) == entries


@pytest.mark.parametrize("name", ["typing", "dataclasses", "argparse", "asyncio.base_events", "tarfile"])
def test_code_of_every_kind_is_read(name: str):
    """Whole modules as cells: every construct of the standard library, and wide arguments."""
    __import__(name)
    source = Path(str(sys.modules[name].__file__)).read_text(encoding="utf-8")
    code = compile(source, "<cell>", "exec")
    names = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    found = analyse([code], {"__name__": "elsewhere"})
    assert found.binds
    assert found.reads | found.builtins <= names | set(code.co_names)
