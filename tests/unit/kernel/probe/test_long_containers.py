"""Long containers of numbers and texts: looked through without a step of Python's for each."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from typing import Any

import pytest

from kernel_runtime.kernel.probe import layout
from kernel_runtime.kernel.probe.code import analyse
from kernel_runtime.kernel.probe.encoder import kinds_of, text_size
from kernel_runtime.kernel.probe.identity import ident
from kernel_runtime.kernel.probe.layout import distinct_types
from kernel_runtime.kernel.probe.sharing import Walk

MIXED = ["a", float("nan"), None, b"bc", "def"] * 100


@pytest.mark.parametrize("plainly", [True, False])
def test_the_types_of_many(monkeypatch: pytest.MonkeyPatch, plainly: bool) -> None:
    monkeypatch.setattr(layout, "_hashes_types_plainly", lambda: plainly)
    many = [*MIXED, *[1] * 300, True]
    assert len(distinct_types(many)) == 6
    assert set(distinct_types(many)) == {str, float, type(None), bytes, int, bool}
    assert kinds_of(many) == {ident(cls) for cls in distinct_types(many)}
    assert distinct_types([]) == []
    several = [type(f"C{i}", (), {}) for i in range(20)]
    assert len(distinct_types([cls() for cls in several for _ in range(20)])) == 20


def test_no_metaclass_is_asked() -> None:
    """Mechanism: a set of types hashes them, and that is the metaclass's to say.

    Right: while one has a say, types are told apart by identity alone.
    """

    class Trap(type):
        def __hash__(cls) -> int:
            raise AssertionError("a metaclass was asked")

        def __eq__(cls, other: object) -> bool:
            raise AssertionError("a metaclass was asked")

    base = Trap("Mixed", (), {})
    many = [base() for _ in range(200)] + MIXED
    assert not layout._hashes_types_plainly()
    assert len(distinct_types(many)) == 5
    assert ident(base) in kinds_of(many)


def test_a_metaclass_that_inherits_what_it_says() -> None:
    class Says:
        def __hash__(self) -> int:
            raise AssertionError("a metaclass was asked")

    meta = type("Meta", (Says, type), {})
    assert not layout._hashes_types_plainly()
    del meta


def test_the_length_of_texts_among_others() -> None:
    assert text_size(MIXED, kinds_of(MIXED)) == 100 * (1 + 2 + 3)
    assert text_size(["ab"] * 300, {ident(str)}) == 600


ROWS: list[Any] = [[i, (i, "a")] for i in range(2000)]


@pytest.mark.parametrize(
    "value",
    [
        list(range(2_000_000)),
        ROWS,
        {i: ROWS[i] for i in range(2000)},
        deque(ROWS),
        OrderedDict(enumerate(ROWS)),
        {(i, "a") for i in range(2000)},
        defaultdict(list, {i: [i] for i in range(2000)}),
    ],
)
def test_what_holds_no_code_hides_none(value: object) -> None:
    """Mechanism: beyond a bound, a cell that names a long container may touch anything.

    Right: however long, if there are only numbers and texts in it, it is known to hold no code.
    """
    found = analyse([compile("x[0]", "<cell>", "exec")], {"x": value, "y": 1})
    assert (set(found.reads), found.dynamic) == ({"x"}, ())


def test_code_at_the_end_of_a_long_container_is_found() -> None:
    space: dict[str, Any] = {"__name__": "__main__"}
    exec("def f(): return y\ny = 1", space)
    containers: list[Any] = [
        [1] * 5000 + [space["f"]],
        [[i] for i in range(5000)] + [[space["f"]]],
        [[[i]] for i in range(500)] + [[{1: [space["f"]]}]],
        OrderedDict[Any, Any]([(0, space["f"]), *((i, "a") for i in range(1, 5000))]),
        defaultdict(space["f"], dict.fromkeys(range(5000), "a")),
    ]
    for deep in containers:
        space["x"] = deep
        assert "y" in analyse([compile("x[0]()", "<cell>", "exec")], space).reads, type(deep)


def test_the_namespace_in_a_container_is_seen() -> None:
    space: dict[str, Any] = {"a": 1}
    space["x"] = [[1]] * 10 + [[space]]
    assert analyse([compile("x[0]", "<cell>", "exec")], space).dynamic


def test_a_list_that_cannot_share_is_not_walked() -> None:
    """Mechanism: beyond a bound a walk does not end, and what it began at may share anything.

    Right: a list of numbers has nothing to share, however long it is.
    """
    space = {"x": [0] * 4_000_000, "y": MIXED * 1000}
    walk = Walk(space)
    walk.follow("x", space["x"])
    walk.follow("y", space["y"])
    found = walk.components()
    assert len(found) == 2
    assert all(component.complete and not component.escaped for component in found)
