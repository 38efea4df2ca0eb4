"""Writes one value into a hash, object by object, in a form that no other value has.

One function per known type (`HANDLERS`; builtin_types.py and foreign.py register theirs); instances
of other classes through their layout. A mutable object that is met again is written as a reference
to where it was first: what shares what is content. Numbers and texts are not: equal ones are equal.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Collection
from itertools import compress, repeat
from operator import is_
from typing import Any

import xxhash

from kernel_runtime.kernel.probe import layout as lay
from kernel_runtime.kernel.probe.identity import ident

_DEPTH_MAX = 120
_FLUSH = 1 << 16
_MANY = 128

_ATOM_TYPES = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))
ATOMS = frozenset(map(ident, _ATOM_TYPES))
TEXTS = frozenset((ident(str), ident(bytes)))
_SORTABLE = ({ident(int)}, {ident(str)}, {ident(bytes)})


class Unreadable(Exception):
    """No exact digest: args[0] says why."""


def kinds_of(items: Collection[object]) -> set[int]:
    """The ids of their types."""
    if len(items) < _MANY:
        return set(map(ident, map(type, items)))
    return set(map(ident, lay.distinct_types(items)))


def text_size(items: Collection[Any], kinds: set[int]) -> int:
    """How long its texts are together, counted in C."""
    if kinds <= TEXTS:
        return sum(map(len, items))
    return sum(
        sum(map(len, compress(items, map(is_, map(type, items), repeat(cls)))))
        for cls in (str, bytes)
        if ident(cls) in kinds
    )


class Encoder:
    """Writes one value into a hash, in a form that no other value has."""

    __slots__ = ("_depth", "_hash", "_held", "_pending", "_seen", "bound", "home", "mutable", "size", "steps")

    def __init__(self, bound: int, steps: int, home: dict[str, Any] | None) -> None:
        self._hash = xxhash.xxh3_128(seed=1)
        self._pending = bytearray()
        self._seen: dict[int, int] = {}
        self._held: list[object] = []  # so that no id in _seen is used again before the end
        self._depth = 0
        self.bound, self.steps, self.home = bound, steps, home
        self.mutable = False
        self.size = 0

    def digest(self) -> str:
        self._hash.update(bytes(self._pending))
        return self._hash.hexdigest()

    def isolated(self, obj: object) -> bytes:
        """The digest of an object that is looked at on its own, on this one's account."""
        inner = Encoder(self.bound - self.size, self.steps, self.home)
        inner._depth = self._depth + 1
        inner.put(obj)
        self.steps, self.mutable = inner.steps, self.mutable or inner.mutable
        inner._hash.update(bytes(inner._pending))
        return inner._hash.digest()

    def write(self, data: bytes) -> None:
        pending = self._pending
        self.size += len(data)
        if self.size > self.bound:
            raise Unreadable("over the bound")
        pending += data
        if len(pending) > _FLUSH:
            self._hash.update(bytes(pending))
            pending.clear()

    def buffer(self, data: Any, nbytes: int) -> None:
        """A contiguous buffer, hashed where it lies."""
        self.mark(b"B", nbytes)
        self.size += nbytes
        if self.size > self.bound:
            raise Unreadable("over the bound")
        if nbytes:
            self.raw(data)

    def raw(self, data: Any) -> None:
        """A piece of a buffer whose size was written and counted."""
        self._hash.update(bytes(self._pending))
        self._pending.clear()
        self._hash.update(data)

    def mark(self, tag: bytes, *values: object) -> None:
        """A tag and atoms, framed."""
        self.write(tag + marshal.dumps(values, 2))  # type: ignore[arg-type]

    def again(self, obj: object) -> bool:
        """Whether a mutable object was written before; if so a reference to it is written."""
        self.mutable = True
        number = self._seen.setdefault(ident(obj), len(self._seen))
        if number != len(self._held):
            self.mark(b"@", number)
            return True
        self._held.append(obj)
        return False

    def spend(self, steps: int) -> None:
        self.steps -= steps
        if self.steps < 0:
            raise Unreadable("more objects than the bound")

    def put(self, obj: object) -> None:
        self.spend(1)
        kind = ident(type(obj))
        if kind in ATOMS:
            self._put_atom(obj)
            return
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise Unreadable("too deep")
        known = HANDLERS.get(kind)
        if known is None:
            put_instance(self, obj)
        else:
            known[1](self, obj)
        self._depth -= 1

    def _put_atom(self, obj: Any) -> None:
        if ident(type(obj)) in TEXTS and len(obj) > self.bound - self.size:
            self.size += len(obj)
            raise Unreadable("over the bound")
        self.write(b"a" + marshal.dumps(obj, 2))

    def put_items(self, tag: bytes, items: list[Any]) -> None:
        """A sequence of objects, all at once if they are atoms."""
        kinds = kinds_of(items)
        if kinds <= ATOMS:
            self.spend(len(items) // 10)
            if kinds & TEXTS and text_size(items, kinds) > self.bound - self.size:
                raise Unreadable("over the bound")
            self.write(tag + b"m" + marshal.dumps(items, 2))
            return
        self.mark(tag, len(items))
        for item in items:
            self.put(item)

    def put_pairs(self, tag: bytes, pairs: list[tuple[Any, Any]]) -> None:
        self.put_items(tag + b"k", [key for key, _ in pairs])
        self.put_items(tag + b"v", [value for _, value in pairs])

    def put_unordered(self, tag: bytes, items: list[Any]) -> None:
        """The members of a set: in an order that does not depend on how it was built."""
        if kinds_of(items) in _SORTABLE:
            self.put_items(tag + b"s", sorted(items))
            return
        keyed = sorted(((self.isolated(item), item) for item in items), key=lambda pair: pair[0])
        self.mark(tag + b"h", len(items))
        for _, item in keyed:
            self.put(item)


Handler = Callable[[Encoder, Any], None]
HANDLERS: dict[int, tuple[type, Handler]] = {}
"""id of a type → the type, held so that its id stays its own, and what writes an exact instance of it"""
SOLIDS: dict[int, tuple[type, Handler]] = {}
"""the same for the builtin part of an instance of a subclass"""


def handles(*types: type) -> Callable[[Handler], Handler]:
    def add(handler: Handler) -> Handler:
        HANDLERS.update({ident(cls): (cls, handler) for cls in types})
        return handler

    return add


def put_instance(enc: Encoder, obj: object) -> None:
    """An instance of a class without a handler: its class, its builtin part, its dict, its slots."""
    cls = type(obj)
    if lay.is_a(cls, type):
        HANDLERS[ident(type)][1](enc, obj)  # a class with a metaclass
        return
    where = lay.layout(cls, SOLIDS)
    if isinstance(where, str):
        raise Unreadable(f"{where}: {lay.type_name(cls)}")
    if enc.again(obj):
        return
    enc.mark(b"o")
    enc.put(cls)
    SOLIDS[ident(where.solid)][1](enc, obj)
    if where.dict_of is not None:
        state = where.dict_of(obj)
        if where.caches and type(state) is dict:
            state = {name: value for name, value in state.items() if name not in where.caches}
        enc.put(state)
    for name, get in where.slots:
        try:
            value = get(obj)
        except AttributeError:
            enc.mark(b"-", name)
        else:
            enc.mark(b"+", name)
            enc.put(value)
