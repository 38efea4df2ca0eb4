"""What the probe says a cell's code reads."""

import ast
import dis
import sys
from pathlib import Path
from typing import Any

import pytest

from kernel_runtime.kernel.probe.code import analyse
from kernel_runtime.kernel.probe.instructions import exception_ranges
from tests.unit.kernel.probe.touched import F, compiled, looked_at, namespace_of, touch

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


def test_names_of_builtins_are_told_apart():
    found = touch("print(len(x), end='')")
    assert found.builtins == {"print", "len"}
    assert found.reads == {"x"}
    assert "len" in touch("len(x)", "def len(v):\n    return 0").reads


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
