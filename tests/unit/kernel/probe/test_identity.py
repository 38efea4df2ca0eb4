"""Which objects a tuple holds, as bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kernel_runtime.kernel.probe import identity

ROUTES = (identity._addresses, identity._asked)


@given(st.lists(st.integers(0, 9), max_size=200), st.data())
def test_both_routes_tell_the_same_objects_apart(chosen, data):
    """The quick route copies a tuple's pointers as they stand in memory; the other asks each object."""
    pool = [object() for _ in range(10)]
    before = tuple(pool[which] for which in chosen)
    after = tuple(pool[which] for which in data.draw(st.permutations(chosen)))
    positions = [at for at, (one, other) in enumerate(zip(before, after, strict=True)) if one is not other]
    for look in ROUTES:
        one, other = look(before), look(after)
        assert look(before) == one
        assert list(identity.differing(one, other)) == positions


def test_the_quick_route_is_taken_here():
    assert identity.idents is identity._addresses


def test_nothing_is_held():
    """A word is no reference: an object that was looked at goes when its last name goes."""
    import sys

    item = object()
    before = sys.getrefcount(item)
    identity.idents((item,) * 3)
    assert sys.getrefcount(item) == before
