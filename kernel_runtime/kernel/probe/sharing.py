"""What names share, and what somebody outside the namespace may reach.

`walk` follows references from the values of names with `gc.get_referents`, one joint walk for all
names it is given: names that reach a common mutable object end in one component (union-find).
Each reference that is met is counted; where an object has more references than the walk and the
namespace account for, somebody else holds it (a module's state, a registered callback, a thread's
frame, an object that could not be followed): the component has escaped, and may be changed by code
that names nothing of it.

Invariant: two names in different components of one complete walk have no mutable object in common,
but for classes and functions, which are told apart in `codes`.

Not followed: modules, classes that a module holds, the globals of functions, weak references, what
a C type does not tell the garbage collector (numpy's bases and object arrays are known here). What
such a type hides raises a reference count, so it shows as escaped.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import gc
import pathlib
import re
import sys
import types
import uuid
import weakref
import zoneinfo
from collections import Counter
from collections.abc import Iterable
from typing import Any

from kernel_runtime.kernel.probe import foreign
from kernel_runtime.kernel.probe import layout as lay
from kernel_runtime.kernel.probe.encoder import ATOMS, kinds_of

NODES = 20_000
"""objects, other than numbers and texts, that one walk looks at"""
_EDGES_PER_NODE = 100
_FEW = 10

# Neither mutable nor on the way to something that is.
_STOPS = frozenset(
    map(
        id,
        (
            types.CodeType,
            types.ModuleType,
            types.WrapperDescriptorType,
            types.MethodDescriptorType,
            types.GetSetDescriptorType,
            types.MemberDescriptorType,
            type(NotImplemented),
            weakref.ref,
            object,
            range,
            re.Pattern,
            datetime.date,
            datetime.time,
            datetime.datetime,
            datetime.timedelta,
            datetime.timezone,
            zoneinfo.ZoneInfo,
            decimal.Decimal,
            pathlib.PosixPath,
            pathlib.PurePosixPath,
            uuid.UUID,
            fractions.Fraction,
        ),
    )
)
_SKIP = ATOMS | _STOPS
_TUPLE = frozenset((id(tuple),))
# References to these are shared by whoever likes: what they hold is what counts.
_UNCOUNTED = frozenset(
    map(
        id,
        (
            tuple,
            frozenset,
            types.MethodType,
            types.BuiltinFunctionType,
            types.MappingProxyType,
            property,
            staticmethod,
            classmethod,
        ),
    )
)


# Made by class statements and decorators, of parts that many classes have in common.
_CLASS_PARTS = frozenset(
    ("__dataclass_fields__", "__dataclass_params__", "__orig_bases__", "__parameters__", "__annotations__")
    + ("__abstractmethods__", "_abc_impl", "__slotnames__", "_generate_next_value_", "__new__", "_new_member_")
)


def _made_in_a_cell(cls: type) -> bool:
    if not lay.is_heap(cls):
        return False
    module = lay.MODULE(cls)
    return type(module) is not str or module == "__main__" or module not in sys.modules


class Component:
    """Names that reach common mutable objects, and what is reached from them."""

    __slots__ = ("called", "codes", "complete", "escaped", "function_ids", "functions", "ids", "loose", "names")

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.ids: set[int] = set()
        """objects that are theirs alone"""
        self.codes: set[int] = set()
        """functions and classes made in cells, which several components may reach"""
        self.functions: dict[int, types.FunctionType] = {}
        """of these, functions whose globals are the namespace; only until the walk's user lets go"""
        self.loose: list[types.FunctionType] = []
        """functions among them that somebody else holds too"""
        self.function_ids: frozenset[int] = frozenset()
        self.called: frozenset[str] | None = frozenset()
        """names that the loose functions may touch; None: any"""
        self.escaped = False
        self.complete = True


def _calibrate() -> int:
    probe = [object()]
    return next(map(sys.getrefcount, probe))


_OWN_REFERENCES = _calibrate()
"""what getrefcount counts of an object that nothing but one list of ours holds"""


class Walk:
    """One joint walk. Holds the objects it has met: let go of it soon."""

    def __init__(self, namespace: dict[str, Any], outside: Iterable[dict[Any, Any]] = ()) -> None:
        self._stops = {id(namespace), id(__builtins__)}
        self._namespace = namespace
        self._parent: list[int] = []
        self._owner: dict[int, int] = {}
        self._counts: dict[int, int] = {}
        self._nodes: list[Any] = []
        self._codes: dict[int, set[int]] = {}
        self._code_nodes: dict[int, Any] = {}
        """functions and classes that were made in cells"""
        self._names: list[str] = []
        self._unfinished: set[int] = set()
        self._roots = [key for table in (namespace, *outside) for key in map(id, table.values())]
        np = sys.modules.get("numpy")
        ndarray = lay.MODULE_DICT(np).get("ndarray") if type(np) is types.ModuleType else None
        foreign.know()
        self._skip = _SKIP | foreign.IMMUTABLE
        self._ndarray: Any = ndarray if ndarray is not None and not lay.is_heap(ndarray) else None

    def follow(self, name: str, value: object, limit: int = NODES) -> None:
        """Walk from one name. The value must stay bound to it until `components` was called."""
        number = len(self._parent)
        self._parent.append(number)
        self._names.append(name)
        stack: list[Any] = []
        self._meet(value, number, stack, counted=False)
        skip = self._skip
        left, edges = limit, limit * _EDGES_PER_NODE
        while stack:
            node = stack.pop()
            references = self._references(node)
            left -= 1
            edges -= len(references)
            if left < 0 or edges < 0:
                self._unfinished.add(number)
                return
            if kinds_of(references) <= skip:
                continue
            for reference in references:
                if id(type(reference)) not in skip:
                    self._meet(reference, number, stack, counted=True)

    def _find(self, number: int) -> int:
        parent = self._parent
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    def _meet(self, obj: Any, number: int, stack: list[Any], *, counted: bool) -> None:
        key = id(obj)
        known = self._counts.get(key)
        if known is not None:
            self._counts[key] = known + counted
            if key in self._codes:
                self._codes[key].add(number)
                return
            other = self._find(self._owner[key])
            mine = self._find(number)
            if other != mine:
                self._parent[mine] = other
            return
        cls = type(obj)
        if id(cls) in self._skip or key in self._stops or lay.is_module(obj):
            return
        if (cls is tuple or cls is frozenset) and self._is_inert(obj):
            return
        if lay.is_a(cls, enum.Enum) and not _made_in_a_cell(cls):
            return
        if lay.is_a(cls, type):
            if not _made_in_a_cell(obj):
                return
            self._codes[key] = {number}
            self._code_nodes[key] = obj
        elif cls is types.FunctionType:
            self._codes[key] = {number}
            self._code_nodes[key] = obj
        self._counts[key] = int(counted)
        self._owner[key] = number
        self._nodes.append(obj)
        stack.append(obj)

    def _is_inert(self, items: Any, depth: int = 2) -> bool:
        """Whether a tuple surely leads to nothing mutable, so that sharing it is not sharing."""
        kinds = kinds_of(items)
        if kinds <= self._skip:
            return True
        if not depth or len(items) > _FEW or not kinds <= self._skip | _TUPLE:
            return False
        return all(type(item) is not tuple or self._is_inert(item, depth - 1) for item in items)

    def _references(self, obj: Any) -> list[Any]:
        cls = type(obj)
        if cls is types.FunctionType:
            # Not its globals, and not what is made on reading (annotations, dict).
            skipped = (id(obj.__globals__), id(obj.__builtins__), id(obj.__code__))
            return [item for item in gc.get_referents(obj) if id(item) not in skipped]
        if lay.is_a(cls, type):
            # What it holds, not what makes it a class.
            found = [item for name, item in lay.CLASS_DICT(obj).items() if name not in _CLASS_PARTS]
            return [*found, *lay.BASES(obj), cls]
        if self._ndarray is not None and lay.is_a(cls, self._ndarray):
            found = gc.get_referents(obj)
            base = self._ndarray.base.__get__(obj)
            if base is not None:
                found.append(base)
            if self._ndarray.dtype.__get__(obj).kind == "O":
                found += self._ndarray.ravel(self._ndarray.view(obj, self._ndarray)).tolist()
            return found
        return gc.get_referents(obj)

    def components(self) -> list[Component]:
        """The names' components. Functions in them are held: clear `functions` and `loose` after use."""
        found: dict[int, Component] = {}
        for number, name in enumerate(self._names):
            component = found.setdefault(self._find(number), Component())
            component.names.add(name)
            if number in self._unfinished:
                component.complete = False
        counts = self._counts
        # Counting them all pays off from a few on.
        several = Counter(self._roots) if len(self._nodes) > _FEW else None
        count = self._roots.count if several is None else several.__getitem__
        for node, references in zip(self._nodes, self.refcounts(), strict=True):
            key = id(node)
            outside = references - counts[key]
            if outside > 0:
                outside -= count(key)
            holders = self._codes.get(key)
            if holders is not None:
                function = type(node) is types.FunctionType
                for number in holders:
                    component = found[self._find(number)]
                    component.codes.add(key)
                    if function and node.__globals__ is self._namespace:
                        component.functions[key] = node
                        if outside > 0:
                            component.loose.append(node)
                continue
            component = found[self._find(self._owner[key])]
            component.ids.add(key)
            if outside > 0 and id(type(node)) not in _UNCOUNTED:
                component.escaped = True
        return list(found.values())

    def code_node(self, key: int) -> object:
        """The function or class with that id."""
        return self._code_nodes[key]

    def refcounts(self) -> list[int]:
        """How many references each node has, but for this walk's own."""
        twice = self._code_nodes
        counts = map(sys.getrefcount, self._nodes)
        if not twice:
            return [count - _OWN_REFERENCES for count in counts]
        keys = map(id, self._nodes)
        return [count - _OWN_REFERENCES - (key in twice) for count, key in zip(counts, keys, strict=True)]
