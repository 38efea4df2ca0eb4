"""Objects that the probe meets as it follows a cell's code: hostile ones, and more than it can follow."""

import gc
import weakref

from kernel_runtime.kernel.probe.code import analyse
from tests.unit.kernel.probe.touched import compiled, namespace_of


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
