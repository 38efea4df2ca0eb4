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

from collections.abc import Mapping, Sequence
from types import CodeType
from typing import Any, NamedTuple

from kernel_runtime.kernel.probe.bytecode import facts
from kernel_runtime.kernel.probe.instructions import NOTHING, Names
from kernel_runtime.kernel.probe.kinds import CLASS, FUNCTION, LEAF, MODULE, kind_of_type
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


def analyse(
    codes: Sequence[CodeType], namespace: dict[str, Any], called: Mapping[str, object] | None = None
) -> Touch:
    """What the code of a cell that has just run may have touched.

    Args:
        codes: the code objects that were executed, in order.
        namespace: the user's namespace as it is now.
        called: what names held before the cell; see `held`.
    """
    walk = Walk(namespace, called or {})
    try:
        walk.cell(codes)
    except RuntimeError:  # a container changed while it was looked through
        walk.dynamic.add("threads")
    except RecursionError:
        walk.dynamic.add("objects")
    return Touch(
        frozenset(walk.reads),
        frozenset(walk.uses),
        frozenset(walk.binds),
        frozenset(walk.surely),
        frozenset(walk.deletes),
        frozenset(walk.stores_into),
        frozenset(walk.builtins - walk.reads),
        tuple(sorted(walk.dynamic)),
    )


def held(codes: Sequence[CodeType], namespace: dict[str, Any]) -> dict[str, object]:
    """What the cell may call and no longer be found afterwards; to be asked before it runs.

    For each name that the code mentions and that stands for more than data: the functions and classes it
    leads to. Keeps no other object alive.
    """
    found: dict[str, object] = {}
    for code in codes:
        for name in facts(code, "top").called:
            value = namespace.get(name)
            kind = kind_of_type(type(value), namespace)
            if name in found or kind in {LEAF, MODULE}:
                continue
            if kind in {FUNCTION, CLASS}:
                found[name] = value
            else:
                walk = Walk(namespace, {})
                walk.push(value, NOTHING, escapes=True)
                walk.drain()
                if walk.makers:
                    found[name] = tuple(walk.makers)
    return found
