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

import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import gc
import pathlib
import re
import sys
import types
import typing
import uuid
import weakref
import zoneinfo
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from kernel_runtime.kernel.probe import foreign
from kernel_runtime.kernel.probe import layout as lay
from kernel_runtime.kernel.probe.encoder import ATOMS, kinds_of
from kernel_runtime.kernel.probe.identity import ident

NODES = 20_000
"""objects with several references that one walk looks at"""
ELEMENTS = 3_000_000
"""objects of any kind, from each of these"""
_FEW = 10

# Neither mutable nor on the way to something that is.
_STOPS = frozenset(
    map(
        ident,
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
            dt.date,
            dt.time,
            dt.datetime,
            dt.timedelta,
            dt.timezone,
            zoneinfo.ZoneInfo,
            decimal.Decimal,
            pathlib.PosixPath,
            pathlib.PurePosixPath,
            uuid.UUID,
            fractions.Fraction,
            typing.TypeVar,
            type(dataclasses.MISSING),
            type(dataclasses._HAS_DEFAULT_FACTORY),  # type: ignore[attr-defined]  # noqa: SLF001
        ),
    )
)
_SKIP = ATOMS | _STOPS
_TUPLE = frozenset((ident(tuple),))
_SEQUENCES = frozenset(map(ident, (list, tuple, set, frozenset)))

# Made by class statements and decorators, of parts that many classes have in common.
_CLASS_PARTS = frozenset(
    ("__dataclass_fields__", "__dataclass_params__", "__orig_bases__", "__parameters__", "__annotations__")
    + (
        "__abstractmethods__",
        "_abc_impl",
        "__slotnames__",
        "_generate_next_value_",
        "__new__",
        "_new_member_",
    )
)


def _made_in_a_cell(cls: type) -> bool:
    if not lay.is_heap(cls):
        return False
    module = lay.MODULE(cls)
    return type(module) is not str or module == "__main__" or module not in sys.modules


def _references_of_class(cls: type) -> list[Any]:
    """What it holds but for what many classes have in common; itself as often as it holds itself."""
    found: list[Any] = [type(cls), lay.BASE(cls), *lay.BASES(cls), *lay.MRO(cls)]
    for name, item in lay.CLASS_DICT(cls).items():
        if type(item) is types.GetSetDescriptorType or type(item) is types.MemberDescriptorType:
            found.append(item.__objclass__)
        elif name not in _CLASS_PARTS:
            found.append(item)
    return found


def _holds_class(cell: types.CellType) -> bool:
    """Whether it is what `super()` and `__class__` in methods stand on."""
    try:
        return lay.is_a(type(cell.cell_contents), type)
    except ValueError:
        return False


class Component:
    """Names that reach common mutable objects, and what is reached from them."""

    __slots__ = (
        "called",
        "codes",
        "complete",
        "escaped",
        "function_ids",
        "functions",
        "held",
        "ids",
        "names",
    )

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.ids: set[int] = set()
        """objects that are reached from them other than through functions and classes"""
        self.codes: set[int] = set()
        """functions and classes made in cells, which several components may reach"""
        self.functions: list[types.FunctionType] = []
        """of these, functions whose globals are the namespace; only until the walk's user lets go"""
        self.function_ids: frozenset[int] = frozenset()
        self.held: frozenset[int] = frozenset()
        """those that are reached other than through code"""
        self.escaped = False
        """somebody else holds something of it, and may change it, or call what is in `functions`"""
        self.called: frozenset[str] | None = frozenset()
        """names that these functions may touch if it has escaped; None: any"""
        self.complete = True


def _calibrate() -> int:
    probe = [object()]
    return next(map(sys.getrefcount, probe))


OWN_REFERENCES = _calibrate()
"""what getrefcount counts of an object that nothing but one list of ours holds"""


class Walk:
    """One joint walk. Holds the objects it has met: let go of it soon.

    Each name, and each function or class that is met, has a number; what is met from a number's own
    object is that number's, and two numbers that meet at an object are united.
    """

    def __init__(self, namespace: dict[str, Any], passive: Callable[[], Iterable[int]] = tuple) -> None:
        """`passive`: gives ids, as often as it is held, of what those hold who never use it."""
        self._stops = {ident(namespace), ident(__builtins__)}
        self._namespace = namespace
        self._parent: list[int] = []
        self._names: dict[int, str] = {}
        self._owner: dict[int, int] = {}
        self._counts: dict[int, int] = {}
        self._nodes: list[Any] = []
        self._codes: dict[int, int] = {}
        """id of a function or class made in a cell (or of a method's cell with its class) → its number"""
        self._code_nodes: dict[int, Any] = {}
        self._reaches: dict[int, set[int]] = {}
        """number → numbers of the functions and classes met from it"""
        self._new_codes: list[Any] = []
        self._unfinished: set[int] = set()
        self._special: dict[int, bool] = {}
        self._passive = passive
        self._bound: dict[int, int] = {}
        """id → how many of the names that were followed are bound to it"""
        np = sys.modules.get("numpy")
        ndarray = lay.MODULE_DICT(np).get("ndarray") if type(np) is types.ModuleType else None
        foreign.know()
        self._skip = _SKIP | foreign.IMMUTABLE
        self._ndarray: Any = ndarray if ndarray is not None and not lay.is_heap(ndarray) else None

    def follow(self, name: str, value: object, limit: int = NODES) -> None:
        """Walk from one name. The value must stay bound to it until `components` was called."""
        number = self._number()
        self._names[number] = name
        key = ident(value)
        self._bound[key] = self._bound.get(key, 0) + 1
        stack: list[Any] = []
        self._meet(value, number, stack, counted=False)
        left = self._spread(number, stack, limit)
        codes = self._new_codes
        while codes and left >= 0:
            code = codes.pop()
            left = self._spread(self._codes[ident(code)], [code], left)
        if left < 0:
            self._unfinished.add(number)
            self._unfinished.update(self._codes[ident(code)] for code in codes)
            codes.clear()

    def _number(self) -> int:
        number = len(self._parent)
        self._parent.append(number)
        return number

    def _spread(self, number: int, stack: list[Any], left: int) -> int:
        """Walk from what is on the stack; how many nodes may still be looked at, -1 if it did not end.

        An object with one reference, from what it was met in, is nobody else's: what it holds is looked
        at in its stead, whole levels at a time. Only what has more becomes a node.
        """
        skip, items = self._skip, ELEMENTS
        while stack:
            obj = stack.pop()
            left -= 1
            if ident(type(obj)) in _SEQUENCES and kinds_of(obj) <= skip:
                continue  # however long it is
            references = self.references(obj)
            while references:
                items -= len(references)
                kinds = kinds_of(references)
                if kinds <= skip:
                    break
                if kinds & skip:
                    references = [item for item in references if ident(type(item)) not in skip]
                owned, others = self._apart(references)
                references.clear()
                left -= len(others)
                if left < 0 or items < 0:
                    self._unfinished.add(number)
                    return -1
                for other in others:
                    self._meet(other, number, stack, counted=True)
                references = gc.get_referents(*owned) if owned else []
                owned.clear()
        return left

    def _apart(self, references: list[Any]) -> tuple[list[Any], list[Any]]:
        """Objects that only what they were met in holds, and all others. The list must hold each once."""
        special, types_met = self._special, list(map(type, references))
        kinds = list(map(ident, types_met))
        for kind, cls in dict(zip(kinds, types_met, strict=True)).items():
            if kind not in special:
                special[kind] = self._is_special(cls)
        one = OWN_REFERENCES + 1
        counts = list(map(sys.getrefcount, references))
        if counts.count(one) == len(counts) and not any(map(special.__getitem__, set(kinds))):
            return references.copy(), []
        owned: list[Any] = []
        others: list[Any] = []
        for item, count, kind in zip(references, counts, kinds, strict=True):
            (owned if count == one and not special[kind] else others).append(item)
        return owned, others

    def _is_special(self, cls: type) -> bool:
        """Whether its instances have to be nodes: they are not looked into as others are."""
        return (
            cls is types.FunctionType
            or cls is types.CellType
            or lay.is_a(cls, type)
            or lay.is_a(cls, types.ModuleType)
            or lay.is_a(cls, enum.Enum)
            or (self._ndarray is not None and lay.is_a(cls, self._ndarray))
        )

    def _find(self, number: int) -> int:
        parent = self._parent
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    def _unite(self, one: int, other: int) -> None:
        one, other = self._find(one), self._find(other)
        if one != other:
            self._parent[one] = other

    def _meet(self, obj: Any, number: int, stack: list[Any], *, counted: bool) -> None:
        key = ident(obj)
        known = self._counts.get(key)
        if known is not None:
            self._counts[key] = known + counted
            code = self._codes.get(key)
            if code is None:
                self._unite(number, self._owner[key])
            else:
                self._reaches.setdefault(number, set()).add(code)
            return
        cls = type(obj)
        if ident(cls) in self._skip or key in self._stops or lay.is_module(obj):
            return
        if (cls is tuple or cls is frozenset) and self._is_inert(obj):
            return
        if lay.is_a(cls, enum.Enum) and not _made_in_a_cell(cls):
            return
        is_class = lay.is_a(cls, type)
        if (is_class and not _made_in_a_cell(obj)) or self._is_a_librarys(cls, obj):
            return
        self._counts[key] = int(counted)
        self._nodes.append(obj)
        if is_class or cls is types.FunctionType or (cls is types.CellType and _holds_class(obj)):
            code = self._codes[key] = self._number()
            self._code_nodes[key] = obj
            self._reaches.setdefault(number, set()).add(code)
            self._new_codes.append(obj)
        else:
            self._owner[key] = number
            stack.append(obj)

    def _is_a_librarys(self, cls: type, obj: Any) -> bool:
        """Whether it is a function that a module holds."""
        if cls is types.BuiltinFunctionType:
            owner = obj.__self__
            return owner is None or lay.is_module(owner) or lay.is_a(type(owner), type)
        return (
            cls is types.FunctionType
            and obj.__globals__ is not self._namespace
            and lay.found_by_name(obj, obj.__module__, obj.__qualname__)
        )

    def _is_inert(self, items: Any, depth: int = 2) -> bool:
        """Whether a tuple surely leads to nothing mutable, so that sharing it is not sharing."""
        kinds = kinds_of(items)
        if kinds <= self._skip:
            return True
        if not depth or len(items) > _FEW or not kinds <= self._skip | _TUPLE:
            return False
        return all(type(item) is not tuple or self._is_inert(item, depth - 1) for item in items)

    def references(self, obj: Any) -> list[Any]:
        """What it holds; an array's elements and the array that it is a view of, too."""
        cls = type(obj)
        if cls is types.FunctionType:
            # Not its globals and its code.
            skipped = (ident(obj.__globals__), ident(obj.__builtins__), ident(obj.__code__))
            return [item for item in gc.get_referents(obj) if ident(item) not in skipped]
        if lay.is_a(cls, type):
            return _references_of_class(obj)
        if self._ndarray is not None and lay.is_a(cls, self._ndarray):
            found = gc.get_referents(obj)
            base = self._ndarray.base.__get__(obj)
            if base is not None:
                found.append(base)
            if self._ndarray.dtype.__get__(obj).kind == "O":
                found += self._ndarray.ravel(self._ndarray.view(obj, self._ndarray)).tolist()
            return found
        return gc.get_referents(obj)

    # -- what came of it

    def components(self) -> list[Component]:
        """The names' components. Functions in them are held: clear `functions` after use."""
        self._unite_through_code()
        outside = self._held_by_others()
        by_root: dict[int, Component] = {}
        for number in self._names:
            component = by_root.setdefault(self._find(number), Component())
            component.names.add(self._names[number])
        members: dict[int, list[int]] = {}
        for number in self._reaches:
            members.setdefault(self._find(number), []).append(number)
        reached = {root: self._codes_from(root, members) for root in by_root}
        for root, component in by_root.items():
            codes = reached[root]
            within = {root, *map(self._find, codes)}
            component.complete = not any(self._find(n) in within for n in self._unfinished)
            component.escaped = bool(within & outside) or bool(codes & outside)
        for key, number in self._owner.items():
            owned = by_root.get(self._find(number))
            if owned is not None:
                owned.ids.add(key)
        keys = {number: key for key, number in self._codes.items()}
        for root, component in by_root.items():
            for number in reached[root]:
                key = keys[number]
                component.codes.add(key)
                node = self._code_nodes[key]
                if type(node) is types.FunctionType and node.__globals__ is self._namespace:
                    component.functions.append(node)
            component.function_ids = frozenset(map(ident, component.functions))
            direct = {keys[code] for number in members.get(root, ()) for code in self._reaches[number]}
            component.held = component.function_ids & direct
        return list(by_root.values())

    def _unite_through_code(self) -> None:
        """Names that reach code which holds what a name or other code reaches share that."""
        while True:
            met = Counter(map(self._find, self._codes.values()))
            named = {self._find(number) for number in self._names} | {
                n for n, times in met.items() if times > 1
            }
            found = [
                (number, code)
                for number, codes in self._reaches.items()
                for code in codes
                if self._find(code) in named and self._find(code) != self._find(number)
            ]
            if not found:
                return
            for number, code in found:
                self._unite(number, code)

    def _codes_from(self, root: int, members: dict[int, list[int]]) -> set[int]:
        """Numbers of the functions and classes that are reached from a root, through others too."""
        found: set[int] = set()
        roots, seen = [root], {root}
        while roots:
            for number in members.get(roots.pop(), ()):
                for code in self._reaches[number] - found:
                    found.add(code)
                    if (other := self._find(code)) not in seen:
                        seen.add(other)
                        roots.append(other)
        return found

    def _held_by_others(self) -> set[int]:
        """Roots with an object, and numbers of code, that have more references than were met."""
        counts, codes, bound = self._counts, self._codes, self._bound
        roots: Counter[int] | None = None
        found: set[int] = set()
        for node, references in zip(self._nodes, self.refcounts(), strict=True):
            key = ident(node)
            outside = references - counts[key]
            if outside <= 0 or outside <= bound.get(key, 0):
                continue
            if roots is None:  # asking all names costs more than the rest of a small walk
                roots = Counter(map(ident, self._namespace.values()))
                roots.update(self._passive())
            if outside > roots[key]:
                found.add(codes[key] if key in codes else self._find(self._owner[key]))
        return found

    def code_node(self, key: int) -> object:
        """The function or class with that id."""
        return self._code_nodes[key]

    def refcounts(self) -> list[int]:
        """How many references each node has, but for this walk's own."""
        twice = self._code_nodes
        counts = map(sys.getrefcount, self._nodes)
        if not twice:
            return [count - OWN_REFERENCES for count in counts]
        keys = map(ident, self._nodes)
        return [count - OWN_REFERENCES - (key in twice) for count, key in zip(counts, keys, strict=True)]
