"""What names share, and what others hold of it."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kernel_runtime.kernel.probe.sharing import Component, Walk


def walked(namespace: dict[str, Any]) -> dict[str, Component]:
    walk = Walk(namespace)
    for name in list(namespace):
        if not name.startswith("__"):
            walk.follow(name, namespace[name])
    components = walk.components()
    for component in components:
        component.functions.clear()
    return {name: component for component in components for name in component.names}


def run(source: str, **names: Any) -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": "__main__", "np": np, "pd": pd, **names}
    exec(source, namespace)
    return namespace


def groups(namespace: dict[str, Any]) -> set[str]:
    found = {" ".join(sorted(component.names)) for component in walked(namespace).values()}
    return {names for names in found if " " in names}


@pytest.mark.parametrize(
    "source, shared",
    [
        ("a = [1]; b = a", {"a b"}),
        ("a = [1]; b = {'k': a}; c = [1]", {"a b"}),
        ("a = [1]; b = ((a,),); c = (1, (2,))", {"a b"}),
        ("a = (1, 2); b = [a]; c = [a]; d = 'text'; e = d", set()),
        ("a = np.zeros(3); b = a[1:]; c = b.reshape(2, 1); d = a.copy()", {"a b c"}),
        ("a = [1]; b = np.array([a, None], dtype=object)", {"a b"}),
        ("a = bytearray(8); b = memoryview(a); c = np.frombuffer(b)", {"a b c"}),
        ("a = pd.DataFrame({'x': [1]}); b = a['x']; c = pd.DataFrame({'x': [1]})", {"a b"}),
        ("a = [1]\ndef f(): return a\ng = f", set()),
        ("def make():\n    n = [0]\n    return (lambda: n.append(1)), (lambda: n)\nf, g = make()", {"f g"}),
        ("a = [1]\ndef make(x):\n    return lambda: x\nf = make(a)", {"a f"}),
        ("a = [1]; f = a.append; g = a.__len__", {"a f g"}),
        ("class K: pass\nk = K(); m = K()", set()),
        ("class K:\n    made = []\nk = K(); m = K.made", {"K k m"}),
        ("class K:\n    def f(self): pass\nk = K(); f = k.f", {"f k"}),
        ("a = [1]; b = (x for x in a)", {"a b"}),
        ("a = [1]; b = iter(a); c = dict(k=1).keys()", {"a b"}),
        ("from functools import partial\na = [1]; b = partial(print, a)", {"a b"}),
        ("import logging, sys; a = logging; b = sys", set()),
    ],
)
def test_names_that_share(source, shared):
    assert groups(run(source)) == shared


FREE = """
import abc, collections, dataclasses, enum, functools, typing
class K:
    made = []
    def __init__(self): self.a = [1]
    def m(self): return super().__init__
    @property
    def p(self): return 1
    @classmethod
    def c(cls): return 1
class S(K):
    __slots__ = ("q",)
class E(enum.Enum):
    R = 1
@dataclasses.dataclass
class D:
    x: int = 1
    y: list = dataclasses.field(default_factory=list)
@dataclasses.dataclass(slots=True, frozen=True)
class F:
    x: int = 1
N = collections.namedtuple("N", "a b")
class A(abc.ABC):
    @abc.abstractmethod
    def q(self): ...
class I(A):
    def q(self): return self
T = typing.TypeVar("T")
class G(typing.Generic[T]): pass
class M(type): pass
class X(metaclass=M): pass
k = K(); s = S(); e = E.R; d = D(); f = F(); n = N(1, 2); i = I(); x = X()
def g(a, b=[1]): return a
h = lambda: 1
j = [h, h, {"k": g}]
a = np.zeros(3); v = a[1:]; o = np.array([[1]], dtype=object)
df = pd.DataFrame({"a": [1, 2], "b": ["x", "y"], "c": pd.Categorical(["p", "q"])})
df.sum(numeric_only=True); df["a"] + 1; df.loc[0]; str(df)
col = df["a"]; ix = df.index; ts = pd.Timestamp("2020")
deep = [[[[1]], {"k": {1: [2]}}]]
it = iter([1]); q = collections.deque([1]); od = collections.OrderedDict(a=1); p = functools.partial(h, 1)
gen = (y for y in [1, 2]); next(gen)
ex = ValueError("x"); rng = np.random.default_rng(1); by = bytearray(8); me = memoryview(by)
"""


def test_what_nobody_else_holds_has_not_escaped():
    found = walked(run(FREE))
    assert {name for name, component in found.items() if component.escaped} == set()
    assert all(component.complete for component in found.values())


@pytest.mark.parametrize(
    "source, held, escaped",
    [
        ("a = [1]; b = [2]", "a", {"a"}),
        ("a = [[1]]; b = [2]", "a[0]", {"a"}),
        ("a = [1]; b = a; c = [a]", "[a]", {"a", "b", "c"}),
        ("a = np.zeros(3); v = a[1:]", "v[1:]", {"a", "v"}),
        ("a = ([1], 2)", "a", {"a"}),
        ("a = [1]", "a.append", {"a"}),
        ("a = [1]", "lambda a=a: a", {"a"}),
        ("def f(): pass\ng = [f]; h = [1]", "f", {"f", "g"}),
        ("class K:\n    def m(self): pass\nk = K(); h = [1]", "K", {"K", "k"}),
        ("class K:\n    def m(self): pass\nk = K(); h = [1]", "k", {"k"}),
        ("class K:\n    def m(self): pass\nk = K(); h = [1]", "k.m", {"K", "k"}),
        ("def make():\n    n = [0]\n    return lambda: n\nf = make(); h = [f]", "f()", {"f", "h"}),
        ("df = pd.DataFrame({'a': [1]}); other = [1]", "df", {"df"}),
        ("df = pd.DataFrame({'a': [1]}); other = [1]", "df.index", {"df"}),
        ("a = [1]; g = (x for x in a)", "g", {"a", "g"}),
    ],
)
def test_what_somebody_else_holds_has_escaped(source, held, escaped):
    namespace = run(source)
    elsewhere = eval(held, namespace)  # noqa: F841
    found = {name for name, component in walked(namespace).items() if component.escaped}
    assert escaped <= found
    assert not {"h", "b", "other"} & (found - escaped)


def test_a_walk_that_does_not_end_says_so():
    namespace: dict[str, Any] = {"a": [[i] for i in range(100)], "b": [1]}
    namespace["also"] = list(namespace["a"])
    walk = Walk(namespace)
    walk.follow("a", namespace["a"], limit=50)
    walk.follow("b", namespace["b"])
    assert {name: c.complete for c in walk.components() for name in c.names} == {"a": False, "b": True}


def test_what_an_unfinished_walk_did_not_reach_counts_as_held_by_somebody():
    inner = [0]
    namespace: dict[str, Any] = {"a": [[i] for i in range(100)], "b": inner}
    namespace["also"] = list(namespace["a"])
    namespace["a"][50].append(inner)
    del inner
    walk = Walk(namespace)
    walk.follow("a", namespace["a"], limit=10)
    walk.follow("b", namespace["b"])
    assert all(component.escaped for component in walk.components() if "b" in component.names)


def test_many_objects_that_nobody_else_holds_are_looked_through_at_once():
    namespace: dict[str, Any] = {"a": [{"k": [i]} for i in range(100_000)]}
    found = walked(namespace)["a"]
    assert found.complete
    assert not found.escaped
    elsewhere = namespace["a"][70_000]["k"]
    assert walked(namespace)["a"].escaped
    namespace["b"] = elsewhere
    del elsewhere
    assert groups(namespace) == {"a b"}


def test_nothing_is_kept_alive():
    class Thing:
        pass

    gc.disable()
    try:
        namespace: dict[str, Any] = {"a": Thing(), "b": [Thing()]}
        dead = [weakref.ref(namespace["a"]), weakref.ref(namespace["b"][0])]
        kept = walked(namespace)
        namespace.clear()
        assert [ref() for ref in dead] == [None, None]
        assert set(kept) == {"a", "b"}
    finally:
        gc.enable()
