"""What is told of a name, and that no code of the user's runs for it."""

from __future__ import annotations

import ast
import collections
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kernel_runtime.kernel.describe import describe

# pandas moved them
FRAME, SERIES = f"{pd.DataFrame.__module__}.DataFrame", f"{pd.Series.__module__}.Series"


def told(value: Any) -> dict[str, Any]:
    found = describe({"x": value}, "x")
    assert found.pop("name") == "x"
    assert found.pop("exists") is True
    return found


class Trap:
    """Every way to run code of the user's ends the test."""

    def trapped(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("the user's code ran")

    __len__ = __repr__ = __str__ = __eq__ = __hash__ = __bool__ = __iter__ = __getattr__ = trapped
    __getattribute__ = __reduce_ex__ = __getitem__ = __sizeof__ = trapped
    __class__ = property(trapped)


class Meta(type):
    """A metaclass that puts itself in the place of what a type says of itself."""

    def __getattribute__(cls, name: str) -> Any:
        raise AssertionError(name)

    def __eq__(cls, other: object) -> bool:
        raise AssertionError

    def __hash__(cls) -> int:
        raise AssertionError


class TrapList(list):  # type: ignore[type-arg]
    def __len__(self) -> int:
        raise AssertionError

    def __repr__(self) -> str:
        raise AssertionError


class TrapFrame(pd.DataFrame):  # type: ignore[misc]
    def __len__(self) -> int:
        raise AssertionError


@pytest.mark.parametrize(
    "value, expected",
    [
        ([1, 2], {"type": "list", "rows": 2, "literal": "[1, 2]"}),
        ({"a": (1.5, None)}, {"type": "dict", "rows": 1, "literal": "{'a': (1.5, None)}"}),
        ("text", {"type": "str", "literal": "'text'"}),
        (set(), {"type": "set", "rows": 0, "literal": "set()"}),
        (frozenset({1}), {"type": "frozenset", "rows": 1}),
        (range(3), {"type": "range", "rows": 3}),
        (range(2**100), {"type": "range"}),
        (collections.Counter("aab"), {"type": "collections.Counter", "rows": 2}),
        (np.zeros(3), {"type": "numpy.ndarray", "rows": 3}),
        (np.zeros((3, 4)), {"type": "numpy.ndarray", "rows": 3, "columns": 4}),
        (np.zeros(()), {"type": "numpy.ndarray"}),
        (np.float64(0.5), {"type": "numpy.float64", "literal": "0.5"}),
        (np.int8(5), {"type": "numpy.int8", "literal": "5"}),
        (pd.Series([1, 2, 3]), {"type": SERIES, "rows": 3}),
        (
            pd.DataFrame({"a": [1, 2], "b": [3, 4], "c": ["x", "y"]}, index=["p", "q"]),
            {"type": FRAME, "rows": 2, "columns": 3},
        ),
        (
            pd.DataFrame(
                index=pd.date_range("2020-01-01", periods=4), columns=pd.MultiIndex.from_product([[1], [2]])
            ),
            {"type": FRAME, "rows": 4, "columns": 1},
        ),
    ],
)
def test_what_is_known_is_told(value: Any, expected: dict[str, Any]) -> None:
    assert told(value) == expected


def test_a_name_that_is_not_there() -> None:
    assert describe({}, "x") == {"name": "x", "exists": False}


def test_values_that_are_too_large_say_so() -> None:
    for value in (["x"] * 20_000, 1 << 20_000, "x" * 5_000, [["y" * 3_000], ["z" * 3_000]]):
        assert "too large" in told(value)["why"]
    deep: Any = []
    for _ in range(100):
        deep = [deep]
    assert "too large" in told(deep)["why"]
    loop: list[Any] = []
    loop.append(loop)
    assert "too large" in told(loop)["why"]


def test_no_code_of_the_users_runs() -> None:
    class Odd(metaclass=Meta):
        pass

    trap = object.__new__(Trap)
    name = f"{__name__}.Trap"
    assert told(trap) == {"type": name}
    assert told([trap])["rows"] == 1
    assert "literal" not in told({"a": [trap]})
    assert told(TrapList([1])) == {"type": f"{__name__}.TrapList"}
    assert told(TrapFrame({"a": [1]})) == {"type": f"{__name__}.TrapFrame"}
    assert told(object.__new__(Odd))["type"].endswith("Odd")


def test_a_look_alike_of_a_library_is_not_taken_for_it() -> None:
    fake = type("Index", (TrapList,), {"__module__": "pandas.core.indexes.base"})
    frame = pd.DataFrame({"a": [1]})
    frame._mgr.axes[1] = fake([1])
    assert told(frame) == {"type": FRAME}


@pytest.mark.parametrize(
    "value", [None, True, -1, 1.5e300, 2j, "\ud800'\"", b"\x00", [], (1,), {"a": {1: {2}}}]
)
def test_a_literal_reads_back_as_it_was(value: Any) -> None:
    assert ast.literal_eval(told(value)["literal"]) == value
