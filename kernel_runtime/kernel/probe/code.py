"""What a cell's code may read, bind and delete, from compiled code and the live objects it can reach.

Invariant: a name whose earlier value the cell can have read is in `reads`, or `dynamic` says why more may
have been read than can be told. Nothing of the user's runs: objects are told apart by exact type, classes
are read through `type`'s own slots, contents through the collector's references, and no user object is
hashed, compared, printed or asked for an attribute. Nothing is kept when `analyse` returns.

How far it follows: functions of the namespace and what they close over; methods that the followed code
names, and those that operators call; objects inside containers and inside libraries' objects, up to a
bound. An object that was handed to library code may have any of its methods called.

Not promised: what finalizers, weak references' callbacks and hooks in other modules (`sys.stdout`,
`atexit`, event handlers) read; what C code finds without a reference the collector is told about;
methods put over a library class's own operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import CodeType
from typing import Any, NamedTuple

from kernel_runtime.kernel.probe.instructions import Names
from kernel_runtime.kernel.probe.walk import Walk


class Touch(NamedTuple):
    reads: Names
    """names whose value from before the cell may have been read"""
    uses: Names
    """names whose value may have been read, whoever bound it"""
    binds: Names
    binds_surely: Names
    """bound by the cell's own statements, if it ended well"""
    deletes: Names
    stores_into: Names
    """names whose attributes or items are stored into or deleted, or that are changed in place"""
    builtins: Names
    """names that came from builtins, because the namespace does not have them"""
    dynamic: tuple[str, ...]
    """why there may be more than what is listed"""


def analyse(codes: Sequence[CodeType], namespace: dict[str, Any], before: Touch | None = None) -> Touch:
    """What the code of a cell may touch, with the values that the names have now.

    Asked before the cell runs it sees what the cell may rebind, delete or use up (a function, a list's
    last callback, a generator); asked afterwards, what the cell made. Both count: `before` is the first
    answer, and is added to the second.

    Args:
        codes: the code objects of the cell, in the order they run.
        namespace: the user's namespace.
        before: what this function said before the cell ran.
    """
    walk = Walk(namespace)
    try:
        walk.cell(codes)
    except RuntimeError:  # a container changed while it was looked through, or nesting without end
        walk.dynamic.add("objects")
    found = Touch(
        frozenset(walk.reads),
        frozenset(walk.uses),
        frozenset(walk.binds),
        frozenset(walk.surely),
        frozenset(walk.deletes),
        frozenset(walk.stores_into),
        frozenset(walk.builtins),
        tuple(sorted(walk.dynamic)),
    )
    return found if before is None else _joined(before, found)


def _joined(one: Touch, other: Touch) -> Touch:
    return Touch(
        one.reads | other.reads,
        one.uses | other.uses,
        one.binds | other.binds,
        one.binds_surely & other.binds_surely,
        one.deletes | other.deletes,
        one.stores_into | other.stores_into,
        one.builtins | other.builtins,
        tuple(sorted({*one.dynamic, *other.dynamic})),
    )
