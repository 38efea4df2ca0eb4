"""Programs that hide what they change, and what must not be said of their cells.

Each is a list of cells, with the truths that each may have at the end: what is not live must never be
called so; what is has to be, where a finer look than ours is not needed to tell.
"""

from __future__ import annotations

import sys
import threading
import types
import warnings
from collections.abc import Iterator

import pytest

from kernel_runtime.kernel.probe import heap as heap_module
from tests.property.heap_programs import Cell
from tests.property.test_truth_oracle import Session

NOT = {"stale", "unknown", "superseded"}
LIVE = {"live"}

PROGRAMS: dict[str, list[tuple[str, set[str]]]] = {
    "a closure that mutates": [
        (("def make():\n    kept = []\n    def put(v): kept.append(v)\n    def get(): return len(kept)\n"
         "    return put, get"), LIVE),
        ("put, get = make()", LIVE),
        ("n = get()", NOT),
        ("put(1)", LIVE),
    ],
    "a default argument": [
        ("def f(v, kept=[]):\n    kept.append(v)\n    return len(kept)", LIVE),
        ("g = f", NOT),
        ("shown = f.__defaults__[0]", NOT),
        ("n = len(shown)", NOT),
        ("g(2)", LIVE),
    ],
    "a class attribute": [
        ("class K:\n    limit = 1\n    def get(self): return self.limit", LIVE),
        ("k = K()", NOT | LIVE),
        ("n = k.get()", NOT),
        ("type(k).limit = 2", LIVE),
    ],
    "a descriptor": [
        (("store = {}\nclass D:\n    def __set__(self, o, v): store['v'] = v\n"
         "    def __get__(self, o, t=None): return store.get('v')\nclass K:\n    d = D()"), LIVE),
        ("k = K()", LIVE),
        ("n = len(store)", NOT),
        ("k.d = 3", LIVE),
    ],
    "a property of another object": [
        ("log = []", LIVE),
        ("class K:\n    @property\n    def p(self):\n        log.append(1)\n        return 1", LIVE),
        ("k = K()", LIVE),
        ("n = len(log)", NOT),
        ("k.p", LIVE),
    ],
    "a generator that holds a list": [
        ("kept = [1]", LIVE),
        ("def walk(items):\n    while True:\n        items.append(len(items))\n        yield", LIVE),
        ("gen = walk(kept)", NOT | LIVE),
        ("n = len(kept)", NOT),
        ("next(gen)", NOT | LIVE),
    ],
    "functools.partial": [
        ("import functools\nkept = []", LIVE),
        ("p = functools.partial(kept.append, 1)", NOT | LIVE),
        ("n = sum(kept)", NOT),
        ("p()", NOT | LIVE),
    ],
    "a bound method as a callback": [
        (("class Bus:\n    def __init__(self): self.heard = []\n    def on(self, f): self.heard.append(f)\n"
         "    def fire(self):\n        for f in self.heard: f()"), LIVE),
        ("class Counter:\n    def __init__(self): self.n = 0\n    def tick(self): self.n += 1", LIVE),
        ("bus = Bus(); c = Counter(); bus.on(c.tick)", LIVE),
        ("n = c.n", NOT),
        ("bus.fire()", NOT | LIVE),
    ],
    "a weak reference": [
        ("import weakref\nclass Box: pass\nbox = Box(); box.v = 1", NOT | LIVE),
        ("ref = weakref.ref(box)", NOT | LIVE),
        ("n = box.v", NOT),
        ("ref().v = 2", NOT | LIVE),
    ],
    "a weak value table": [
        ("import weakref\nclass Box: pass\nbox = Box(); box.v = 1", NOT | LIVE),
        ("table = weakref.WeakValueDictionary(b=box)", NOT | LIVE),
        ("n = box.v", NOT),
        ("table['b'].v = 2", NOT | LIVE),
    ],
    "a context manager": [
        (("import contextlib\ndepth = []\n@contextlib.contextmanager\ndef level():\n    depth.append(1)\n"
         "    yield\n"), LIVE),
        ("n = len(depth)", NOT),
        ("with level(): pass", NOT | LIVE),
    ],
    "a dataclass": [
        ("from dataclasses import dataclass, field, replace", LIVE),
        ("@dataclass\nclass P:\n    xs: list = field(default_factory=list)", LIVE),
        ("p = P()\nq = replace(p)", LIVE),
        ("n = len(p.xs)", NOT),
        ("q.xs.append(1)", NOT | LIVE),
    ],
    "views of views": [
        ("import numpy as np\na = np.zeros((4, 4))", LIVE),
        ("v = a[1:].T[::-1]", NOT | LIVE),
        ("m = memoryview(a)\nn = float(a.sum())", NOT),
        ("w = v[1:, 0]\nw += 1", NOT | LIVE),
    ],
    "an array over a bytearray": [
        ("import numpy as np\nraw = bytearray(16)\na = np.frombuffer(raw, dtype='u1')", LIVE),
        ("n = int(a.sum())", NOT),
        ("raw[3] = 7", NOT | LIVE),
    ],
    "a frame over an array": [
        ("import numpy as np, pandas as pd\na = np.zeros((3, 2))\ndf = pd.DataFrame(a, copy=False)", LIVE),
        ("n = float(df[0].sum())", NOT),
        ("a[:] = 5", NOT | LIVE),
    ],
    "globals().update": [
        ("x = 1", NOT),
        ("y = x + 1", NOT),
        ("globals().update(x=2)", NOT | LIVE),
    ],
    "a cache": [
        ("rate = 2", NOT),
        ("import functools\n@functools.lru_cache\ndef f(n): return n * rate", NOT | LIVE),
        ("y = f(3)", NOT),
        ("rate = 5", LIVE),
    ],
    "a cache that calls once more": [
        ("import functools\ncalls = []", LIVE),
        ("@functools.cache\ndef f(n):\n    calls.append(n)\n    return n", LIVE),
        ("f(1)\nn = len(calls)", NOT),
        ("f(2)", NOT | LIVE),
    ],
    "an attribute of a module": [
        ("import hand_module", LIVE),
        ("x = hand_module.limit", NOT),
        ("y = hand_module.limit + 1", NOT),
        ("hand_module.limit = 9", NOT | LIVE),
    ],
    "a function of a module, replaced": [
        ("import hand_module\nkept = []", NOT | LIVE),
        ("n = len(kept)", NOT),
        ("hand_module.call = kept.append", NOT | LIVE),
        ("hand_module.run(4)", NOT | LIVE),
    ],
    "names that a loop deletes": [
        ("a = b = 1", NOT),
        ("d = a + b", NOT),
        ("for name in ('a', 'b'): del globals()[name]", NOT | LIVE),
    ],
    "from module import *": [
        ("limit = 1", NOT),
        ("y = limit + 1", NOT),
        ("from hand_module import *", NOT | LIVE),
    ],
    "a dict's method kept": [
        ("d = {}", LIVE),
        ("put = d.__setitem__", NOT | LIVE),
        ("n = len(d)", NOT),
        ("put('k', 1)", NOT | LIVE),
    ],
    "map with a method": [
        ("kept = []", LIVE),
        ("lazy = map(kept.append, [1, 2])", NOT | LIVE),
        ("n = len(kept)", NOT),
        ("list(lazy)", NOT | LIVE),
    ],
    "__init_subclass__": [
        ("known = []\nclass Base:\n    def __init_subclass__(cls): known.append(cls.__name__)", LIVE),
        ("n = len(known)", NOT),
        ("class One(Base): pass", NOT | LIVE),
    ],
    "a finalizer": [
        ("gone = []\nclass T:\n    def __del__(self): gone.append(1)\nt = T()", NOT | LIVE),
        ("n = len(gone)", NOT),
        ("del t", NOT | LIVE),
    ],
    "a list within a long list": [
        ("inner = [0]\nouter = [1] * 5000 + [inner]", LIVE),
        ("n = sum(inner)", NOT),
        ("outer[-1].append(3)", NOT | LIVE),
    ],
    "a function within a long list": [
        ("kept = []\ndef put(): kept.append(1)\nmany = [1] * 5000 + [[put]]", LIVE),
        ("n = len(kept)", NOT),
        ("many[-1][0]()", NOT | LIVE),
    ],
    "a function deep in containers of numbers": [
        ("kept = []", LIVE),
        ("many = [[[i, (i,)]] for i in range(400)]", LIVE),
        ("many[7][0].append({'f': lambda: kept.append(1)})", NOT | LIVE),
        ("n = len(kept)", NOT),
        ("many[7][0][2]['f']()", NOT | LIVE),
    ],
}  # fmt: skip


@pytest.fixture(autouse=True)
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A library to be changed, and no patrol: it would find small changes by looking at everything."""
    monkeypatch.setattr(heap_module, "_PATROL_NS", -1)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    made = types.ModuleType("hand_module")
    exec("limit = 3\ndef call(v): return v\ndef run(v): return call(v)", vars(made))
    monkeypatch.setitem(sys.modules, "hand_module", made)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("title", PROGRAMS)
def test_truth(title: str) -> None:
    """Mechanism: a change by a way that neither names nor shows what it changes.

    Right: no cell whose values changed is called live.
    """
    cells = PROGRAMS[title]
    session = Session()
    for index, (source, _) in enumerate(cells):
        session.run(index, Cell(source))
    told = {row.cell_id: row for row in session.report().cells}
    for index, (source, allowed) in enumerate(cells):
        row = told[f"c{index}"]
        assert row.outcome == "ok", source
        assert row.truth in allowed, (source, row.truth, row.evidence)
