"""What a name stands for, told without running any code of the user's: for claims about names.

Only types that are known exactly are looked into (`type(x) is list`, never `isinstance`): a subclass may
have an `__len__`, a property or a `__repr__` of its own. What is not known is left out of the answer.
Called on the control thread while a cell may run, so it works on copies and bounds what it copies.

Not promised: one moment of a container that the running cell is changing.
"""

from __future__ import annotations

import array
import collections
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any, cast

_SIZED = (
    list,
    tuple,
    dict,
    set,
    frozenset,
    bytearray,
    range,
    array.array,
    collections.deque,
    collections.OrderedDict,
    collections.defaultdict,
    collections.Counter,
)
_LEAVES = (bool, int, float, complex, str, bytes, type(None))
_NODES = 10_000
_LETTERS = 4_000
_BITS = 10_000
"""of an integer; longer ones Python declines to print"""
_DEPTH = 50


class _NotPlain(Exception):
    """The value is not made of literals, or is too large to be one."""


def describe(namespace: Mapping[str, Any], name: str) -> dict[str, Any]:
    """`{"exists", "type"}`, and what is known of `rows`, `columns`, `literal`; `why` there is no literal."""
    found: dict[str, Any] = {"name": name}
    if name not in namespace:
        return {**found, "exists": False}
    try:
        value = namespace[name]
    except KeyError:  # deleted by the running cell in between
        return {**found, "exists": False}
    found |= {"exists": True, "type": type_name(type(value))}
    found |= _shape(value)
    try:
        found["literal"] = _literal(value)
    except _NotPlain as reason:
        if str(reason):
            found["why"] = str(reason)
    return found


def _one_of(kind: type, kinds: tuple[Any, ...]) -> bool:
    # `in` would ask a metaclass's __eq__
    return any(kind is other for other in kinds)


def type_name(kind: type) -> str:
    """`module.qualified.name`, without `builtins.`; asks the type's own slots, not its metaclass."""
    # descriptors of `type` itself: a metaclass may have put properties in their places
    name = type.__dict__["__qualname__"].__get__(kind)
    text = name if type(name) is str else str.__str__(name)
    module = _module_of(kind)
    return text if module in ("", "builtins") else f"{module}.{text}"


def _module_of(kind: type) -> str:
    try:
        module = type.__dict__["__module__"].__get__(kind)
    except AttributeError:
        return ""
    return module if type(module) is str else ""


def _library(name: str) -> dict[str, Any] | None:
    """The namespace of a module that is loaded already."""
    module = sys.modules.get(name)
    if type(module) is not ModuleType:
        return None
    return cast("dict[str, Any]", object.__getattribute__(module, "__dict__"))


def _is_of(kind: type, roots: tuple[str, ...]) -> bool:
    """Whether a type is what a module of these libraries has under its name, and no look-alike."""
    module = _module_of(kind)
    if module.partition(".")[0] not in roots:
        return False
    namespace = _library(module)
    name = type.__dict__["__qualname__"].__get__(kind)
    return namespace is not None and type(name) is str and namespace.get(name) is kind


# -- how large it is


def _shape(value: Any) -> dict[str, int]:
    kind = type(value)
    if _one_of(kind, _SIZED):
        try:
            return {"rows": len(value)}
        except OverflowError:  # a range longer than an index can be
            return {}
    numpy, pandas = _library("numpy"), _library("pandas")
    if numpy is not None and kind is numpy.get("ndarray"):
        return _named(value.shape)
    if pandas is not None and _one_of(kind, (pandas.get("DataFrame"), pandas.get("Series"))):
        return _pandas_shape(value)
    return {}


def _named(shape: tuple[int, ...]) -> dict[str, int]:
    return dict(zip(("rows", "columns"), shape, strict=False))


def _pandas_shape(value: Any) -> dict[str, int]:
    """Of a frame or series whose axes are pandas' own; an index of the user's class is not asked."""
    try:
        axes = object.__getattribute__(object.__getattribute__(value, "_mgr"), "axes")
        sizes = [_pandas_length(axis) for axis in axes]
    except (AttributeError, TypeError):  # another pandas than this knows
        return {}
    if None in sizes:
        return {}
    # managers have the columns first
    return _named(tuple(size for size in reversed(sizes) if size is not None))


def _pandas_length(axis: Any) -> int | None:
    if not _is_of(type(axis), ("pandas",)):
        return None
    data = axis.__dict__.get("_data")
    if data is not None and not _is_of(type(data), ("numpy", "pandas")):
        return None
    return len(axis)


# -- what it is


def _literal(value: Any) -> str:
    """The value as source text that `ast.literal_eval` reads.

    Raises:
        _NotPlain: with a reason where it is too large; without one where it is of another type.
    """
    kind = type(value)
    if not _one_of(kind, _LEAVES) and _is_of(kind, ("numpy",)) and _is_scalar(kind):
        value = value.item()
    left = [_NODES]
    try:
        text = repr(_copied(value, _DEPTH, left))
    except RuntimeError:
        raise _NotPlain("it is being changed") from None
    if len(text) > _LETTERS:
        raise _NotPlain("it is too large to be compared with a literal")
    return text


def _is_scalar(kind: type) -> bool:
    numpy = _library("numpy")
    generic = numpy.get("generic") if numpy is not None else None
    return generic is not None and _one_of(generic, type.__dict__["__mro__"].__get__(kind))


def _copied(value: Any, depth: int, left: list[int]) -> Any:
    # a copy, because the running cell may put anything into the original before repr is through with it
    left[0] -= 1
    if left[0] < 0 or depth < 0:
        raise _NotPlain("it is too large to be compared with a literal")
    kind = type(value)
    if _one_of(kind, _LEAVES):
        if kind is int and value.bit_length() > _BITS:
            raise _NotPlain("it is too large to be compared with a literal")
        if (kind is str or kind is bytes) and len(value) > _LETTERS:
            raise _NotPlain("it is too large to be compared with a literal")
        return value
    if kind is list:
        return [_copied(item, depth - 1, left) for item in value]
    if kind is tuple:
        return tuple([_copied(item, depth - 1, left) for item in value])
    if kind is set:
        return {_copied(item, depth - 1, left) for item in value}
    if kind is dict:
        return {_copied(key, depth - 1, left): _copied(item, depth - 1, left) for key, item in value.items()}
    raise _NotPlain
