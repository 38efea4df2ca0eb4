# ruff: noqa: FLY002, C414, PLW0108
# Equal values are made in different ways here.
"""Exact digests: what differs has another one, what is equal has the same, and nothing of the user's runs."""

from __future__ import annotations

import collections
import copy
import dataclasses
import datetime as dt
import decimal
import enum
import functools
import gc
import pathlib
import random
import re
import sys
import threading
import types
import uuid
import weakref
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

from kernel_runtime.kernel.probe.digest import fingerprint


def digest(value: object) -> str | None:
    return fingerprint(value).digest


class Point:
    def __init__(self, x: Any) -> None:
        self.x = x


class Slotted:
    __slots__ = ("a", "b")


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@dataclasses.dataclass
class Record:
    a: int
    b: list[int] = dataclasses.field(default_factory=list)


class Pair(NamedTuple):
    a: int
    b: int


Older = collections.namedtuple("Older", "a b")  # noqa: PYI024


def make_counter() -> Any:
    n = [0]

    def count() -> int:
        n[0] += 1
        return n[0]

    return count


def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "i": [1, 2],
            "f": [1.5, np.nan],
            "s": ["x", "y"],
            "c": pd.Categorical(["p", "q"]),
            "t": pd.to_datetime(["2020", "2021"]),
            "z": pd.to_datetime(["2020", "2021"]).tz_localize("UTC"),
            "n": pd.array([1, None], dtype="Int64"),
            "p": pd.period_range("2020", periods=2, freq="M"),
            "v": pd.interval_range(0, 2),
            "o": [{}, [1]],
        }
    )


# Each made anew on every call; none equal to another.
VALUES: dict[str, Any] = {
    "none": lambda: None,
    "true": lambda: True,
    "one": lambda: 1,
    "one float": lambda: 1.0,
    "zero": lambda: 0.0,
    "minus zero": lambda: -0.0,
    "nan": lambda: float("nan"),
    "big": lambda: 10**50,
    "complex": lambda: 1j,
    "text": lambda: "".join(["te", "xt"]),
    "bytes": lambda: b"text",
    "surrogate": lambda: "\ud800",
    "ellipsis": lambda: ...,
    "list": lambda: [1, "a", [2.5], {"k": (1, 2)}],
    "tuple": lambda: (1, "a", [2.5], {"k": (1, 2)}),
    "strings": lambda: ["ab", "".join(["a", "b"])],
    "dict": lambda: {"a": 1, "b": 2},
    "dict in another order": lambda: {"b": 2, "a": 1},
    "set": lambda: {"a", "b", 1},
    "frozenset": lambda: frozenset({"a", "b", 1}),
    "set of tuples": lambda: {(1, 2), (3, "x")},
    "bytearray": lambda: bytearray(b"x"),
    "deque": lambda: collections.deque([1], 3),
    "counter": lambda: collections.Counter("aab"),
    "ordered": lambda: collections.OrderedDict(a=1, b=2),
    "defaultdict": lambda: collections.defaultdict(list, a=[1]),
    "namespace": lambda: types.SimpleNamespace(a=1),
    "range": lambda: range(3),
    "slice": lambda: slice(1, 2),
    "date": lambda: dt.date(2020, 1, 1),
    "datetime": lambda: dt.datetime(2020, 1, 1),  # noqa: DTZ001
    "aware": lambda: dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
    "delta": lambda: dt.timedelta(1),
    "decimal": lambda: decimal.Decimal("1.10"),
    "decimal of fewer digits": lambda: decimal.Decimal("1.1"),
    "uuid": lambda: uuid.UUID(int=1),
    "path": lambda: pathlib.PurePosixPath("/x/y"),
    "pattern": lambda: re.compile("a+"),
    "enum": lambda: Colour.RED,
    "other enum": lambda: Colour.BLUE,
    "pair": lambda: Pair(1, 2),
    "older": lambda: Older(1, 2),
    "instance": lambda: Point([1]),
    "other instance": lambda: Point([2]),
    "dataclass": lambda: Record(1),
    "slots": Slotted,
    "function": lambda: make_counter(),
    "partial": lambda: functools.partial(print, 1),
    "method": lambda: Point(1).__init__,  # type: ignore[misc]
    "builtin": lambda: len,
    "bound builtin": lambda: [].append,
    "module": lambda: sys,
    "class": lambda: Point,
    "library class": lambda: dict,
    "generic": lambda: list[int],
    "union": lambda: int | str,
    "random": lambda: random.Random(1),
    "other random": lambda: random.Random(2),
    "exception": lambda: ValueError("x"),
    "iterator": lambda: iter([1, 2]),
    "array": lambda: np.arange(6.0),
    "array of other shape": lambda: np.arange(6.0).reshape(2, 3),
    "array of ints": lambda: np.arange(6),
    "array in columns": lambda: np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "array of texts": lambda: np.array(["a", "b"]),
    "array of objects": lambda: np.array([[1], {}], dtype=object),
    "structured": lambda: np.zeros(2, dtype=[("a", "i4"), ("b", "f8")]),
    "structured with objects": lambda: np.zeros(2, dtype=[("a", "i4"), ("b", "O")]),
    "dates": lambda: np.array(["2020-01-01"], dtype="M8[D]"),
    "empty": lambda: np.zeros((0, 3)),
    "no dimensions": lambda: np.array(5.0),
    "scalar": lambda: np.float64(1),
    "masked": lambda: np.ma.masked_array([1, 2], mask=[False, True]),
    "dtype": lambda: np.dtype("f8"),
    "ufunc": lambda: np.add,
    "generator of numbers": lambda: np.random.default_rng(1),
    "frame": frame,
    "series": lambda: pd.Series([1, 2], name="q"),
    "other series": lambda: pd.Series([1, 2], name="r"),
    "index": lambda: pd.Index([1, 2]),
    "range index": lambda: pd.RangeIndex(2),
    "multi index": lambda: pd.MultiIndex.from_product([[1, 2], ["a"]]),
    "days": lambda: pd.date_range("2020", periods=3),
    "timestamp": lambda: pd.Timestamp("2020"),
    "nat": lambda: pd.NaT,
    "na": lambda: pd.NA,
}


def test_equal_values_have_one_digest_and_others_another():
    found: dict[str, str] = {}
    for name, make in VALUES.items():
        one, again = fingerprint(make()), fingerprint(make())
        assert one.digest is not None, (name, one.why)
        assert one == again, name
        assert one.digest not in found, (name, found[one.digest])
        found[one.digest] = name


@pytest.mark.parametrize("name", VALUES)
def test_looking_changes_nothing(name):
    value = VALUES[name]()
    first = fingerprint(value)
    assert fingerprint(value) == first


def test_a_copy_is_equal():
    value = [Point({"a": [1, 2]}), Record(1, [2]), np.arange(4), frame()]
    assert digest(value) == digest(copy.deepcopy(value))


@pytest.mark.parametrize(
    "value, change",
    [
        ([1, [2]], lambda v: v[1].append(3)),
        ({"a": {"b": 1}}, lambda v: v["a"].update(b=2)),
        ({1, 2}, lambda v: v.add(3)),
        (Point([1]), lambda v: v.x.append(2)),
        (Point(1), lambda v: setattr(v, "y", 1)),
        (Record(1), lambda v: v.b.append(1)),
        (make_counter(), lambda v: v()),
        (make_counter(), lambda v: setattr(v, "mark", 1)),
        (np.arange(5), lambda v: v.__setitem__(4, 9)),
        (np.arange(50).reshape(5, 10)[::2, ::3], lambda v: v.__setitem__((2, 3), -1)),
        (np.array([[1], 2], dtype=object), lambda v: v[0].append(2)),
        (np.random.default_rng(1), lambda v: v.random()),
        (np.random.RandomState(1), lambda v: v.rand()),
        (random.Random(1), lambda v: v.random()),
        (frame(), lambda v: v.__setitem__("new", 1)),
        (frame(), lambda v: v.loc.__setitem__((0, "i"), 5)),
        (frame(), lambda v: v.loc.__setitem__((0, "s"), "z")),
        (frame(), lambda v: v.o[1].append(2)),
        (frame(), lambda v: setattr(v.index, "name", "i")),
        (frame(), lambda v: v.attrs.update(a=1)),
        (pd.Series([1, 2]), lambda v: v.__setitem__(0, 7)),
        (iter([1, 2]), next),
        (collections.deque([1]), lambda v: v.append(1)),
        (collections.OrderedDict(a=1, b=2), lambda v: v.move_to_end("a")),
        (bytearray(b"ab"), lambda v: v.extend(b"c")),
        (Slotted(), lambda v: setattr(v, "a", 1)),
        (types.SimpleNamespace(), lambda v: setattr(v, "a", 1)),
        (functools.partial(print, [1]), lambda v: v.args[0].append(1)),
    ],
)
def test_a_change_inside_is_seen(value, change):
    before = digest(value)
    assert before is not None
    change(value)
    assert digest(value) not in (before, None)


def test_what_shares_what_is_content():
    one: list[int] = [1]
    assert digest([one, one]) != digest([[1], [1]])
    assert digest([one, one]) == digest([two := [1], two])
    array = np.zeros(3)
    assert digest([array, array[:]]) != digest([array, array.copy()])
    assert digest([array, array[:]]) == digest([other := np.zeros(3), other[:]])


def test_equal_texts_and_numbers_are_one_however_they_were_made():
    made = "".join(["a", "b"])
    assert digest([made, made, (1, made)]) == digest(["ab", "a" + "b"[:], (1, str(b"ab", "ascii"))])
    assert digest({"x", "yy", 3}) == digest({3, "yy", "x"})
    assert digest(set(range(1000))) == digest(set(reversed(range(1000))))


def test_a_class_attribute_is_part_of_its_instances():
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec("class K:\n    n = 0\nk = K()", namespace)
    before = digest(namespace["k"])
    namespace["K"].n = 1
    assert before is not None
    assert digest(namespace["k"]) != before


def test_two_classes_that_differ_in_what_stands_where():
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec("class K:\n    x = ...\n    y = [1]", namespace)
    one = digest(namespace["K"])
    exec("class K:\n    x = [1]\n    y = ...", namespace)
    assert digest(namespace["K"]) != one


def test_the_same_source_is_the_same_function_wherever_it_stands():
    one: dict[str, Any] = {}
    other: dict[str, Any] = {}
    exec("def f(a, b=[1], *, c=2) -> int:\n    return [a for _ in b if _ > c]", one)
    exec("\n\n\ndef f(a, b=[1], *, c=2) -> int:\n    return [a for _ in b if _ > c]", other)
    assert fingerprint(one["f"], home=one).digest == fingerprint(other["f"], home=other).digest
    exec("def f(a, b=[1], *, c=2) -> int:\n    return [a for _ in b if _ < c]", other)
    assert fingerprint(one["f"], home=one).digest != fingerprint(other["f"], home=other).digest


def test_cycles_end():
    cycle: list[Any] = [1]
    cycle.append(cycle)
    other: list[Any] = [1]
    other.append(other)
    assert digest(cycle) == digest(other) is not None
    point = Point(None)
    point.x = {"self": point}
    assert digest(point) is not None


def nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


def chain(length: int) -> Point | None:
    found = None
    for _ in range(length):
        found = Point(found)
    return found


def twice(depth: int) -> tuple[Any, ...]:
    found: tuple[Any, ...] = ()
    for _ in range(depth):
        found = (found, found)
    return found


@pytest.mark.parametrize(
    "make, why",
    [
        (lambda: (i for i in [1]), "generator"),
        (threading.Lock, "lock"),
        (lambda: sys.stdout, ""),
        (lambda: nested(5000), "deep"),
        (lambda: chain(5000), "deep"),
        (lambda: twice(60), "bound"),
        (lambda: [twice(60), Point(1)], ""),
        (lambda: weakref.ref(Point), "weak"),
        (lambda: functools.lru_cache(lambda: 1), "cache"),
        (lambda: [1, threading.Lock()], "lock"),
        (lambda: np.zeros(1 << 20), "bound"),
        (lambda: b"x" * (1 << 20), "bound"),
        (lambda: ["x" * 1000] * 1000, "bound"),
        (lambda: memoryview(bytearray(1 << 20)), "bound"),
    ],
)
def test_what_cannot_be_read_says_why(make, why):
    found = fingerprint(make(), 1 << 16)
    assert found.digest is None
    assert why in (found.why or "")


class Trap(BaseException):
    """Not an Exception, so that nothing which ignores exceptions hides it."""


def _spring(self: Any, *args: Any, **kwargs: Any) -> Any:
    raise Trap


_SPECIAL = (
    (
        "getattribute",
        "getattr",
        "setattr",
        "delattr",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "hash",
        "repr",
        "str",
    )
    + (
        "bytes",
        "bool",
        "len",
        "iter",
        "next",
        "contains",
        "getitem",
        "setitem",
        "call",
        "reduce",
        "reduce_ex",
    )
    + (
        "getstate",
        "getnewargs",
        "getnewargs_ex",
        "sizeof",
        "dir",
        "format",
        "int",
        "float",
        "index",
        "complex",
    )
    + ("enter", "exit", "copy", "deepcopy", "get", "array", "array_interface", "array_struct", "buffer")
    + ("length_hint", "missing", "reversed", "instancecheck", "subclasscheck")
)


def trapped(base: type, **more: Any) -> type:
    members: dict[str, Any] = {f"__{name}__": _spring for name in _SPECIAL}
    members["__class__"] = property(_spring)
    members["x"] = property(_spring)
    return type("Trapped", (base,), {**members, **more})


class TrapMeta(type):
    __hash__ = _spring
    __eq__ = _spring
    __getattribute__ = _spring
    __instancecheck__ = _spring
    __subclasscheck__ = _spring
    mro = type.mro


@pytest.mark.parametrize(
    "base", [object, list, dict, tuple, set, int, str, float, bytes, Exception, frozenset]
)
def test_nothing_of_a_users_class_runs(base):
    value = base.__new__(trapped(base))
    array = np.empty(1, dtype=object)
    array[0] = value
    for held in (value, [value], {"k": value}, (value, 1), Point(value), array):
        assert fingerprint(held).digest is not None


def test_nothing_of_a_metaclass_runs():
    cls: Any = TrapMeta("T", (), {})
    value = object.__new__(cls)
    for held in (value, cls, [value, cls], Point(cls), {"a": value}):
        found = fingerprint(held)
        assert found.digest is not None, found.why


def test_a_property_named_dict_and_one_named_class_are_not_asked():
    class Liar:
        __dict__ = property(_spring)
        __slots__ = ("__weakref__", "a")

    assert fingerprint(Liar()).digest is not None


def test_a_lazy_module_is_not_loaded():
    class Lazy(types.ModuleType):
        __getattribute__ = _spring
        __getattr__ = _spring

    assert isinstance(fingerprint(Lazy("lazy")).why, str | None)


def test_nothing_is_kept_alive():
    class Thing:
        pass

    gc.disable()
    try:
        thing, array = Thing(), np.zeros(10)
        thing.array = array  # type: ignore[attr-defined]
        lock = threading.Lock()
        dead: list[Any] = [weakref.ref(thing), weakref.ref(array), weakref.ref(lock)]
        fingerprint([thing, array])
        fingerprint([thing, lock])
        fingerprint({thing: lock})
        del thing, array, lock
        assert [ref() for ref in dead] == [None, None, None]
    finally:
        gc.enable()


def test_sizes_are_those_of_the_content():
    assert fingerprint(np.zeros(1000)).bytes >= 8000
    assert fingerprint(np.zeros(1 << 22), 1 << 20).bytes >= 8 << 22
    assert 300 < fingerprint("x" * 300).bytes < 400


def test_what_is_mutable():
    value: Any
    for value in (1, "a", (1, ("a",)), None, np.float64(1), dt.date(2020, 1, 1), frozenset({1}), len, dict):
        assert not fingerprint(value).mutable, value
    for value in ([], {}, ([],), Point(1), np.zeros(1), lambda: 1):
        assert fingerprint(value).mutable, value
