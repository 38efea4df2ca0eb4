"""Reading an object's state from its C layout, so that none of its own code can run.

Everything a user's class can override (`__class__`, `__dict__`, `__getattr__`, a metaclass's
attributes, `len`) is passed by: what is read is read through the descriptors of builtin types.
Types are compared by `is` and kept by id: hashing or comparing a class runs its metaclass's code.
`layout(cls)` says where the state of an instance is, and says so only when that is all of it: the
size of the instance must be accounted for by the builtin base, the dict, the weak references and
the slots. A C type with anything beyond that has no layout here.
"""

from __future__ import annotations

import sys
import types
import weakref
from collections.abc import Callable, Collection
from itertools import compress, repeat
from operator import is_not
from typing import Any, NamedTuple

from kernel_runtime.kernel.probe.identity import ident

_type = type.__dict__
MRO: Callable[[type], tuple[type, ...]] = _type["__mro__"].__get__
FLAGS: Callable[[type], int] = _type["__flags__"].__get__
CLASS_DICT: Callable[[type], types.MappingProxyType[str, Any]] = _type["__dict__"].__get__
QUALNAME: Callable[[type], str] = _type["__qualname__"].__get__
BASES: Callable[[type], tuple[type, ...]] = _type["__bases__"].__get__
BASE: Callable[[type], type] = _type["__base__"].__get__
MODULE: Callable[[type], Any] = _type["__module__"].__get__
BASICSIZE: Callable[[type], int] = _type["__basicsize__"].__get__
ITEMSIZE: Callable[[type], int] = _type["__itemsize__"].__get__
DICTOFFSET: Callable[[type], int] = _type["__dictoffset__"].__get__
WEAKREFOFFSET: Callable[[type], int] = _type["__weakrefoffset__"].__get__
MODULE_DICT: Callable[[Any], dict[str, Any]] = vars(types.ModuleType)["__dict__"].__get__

_subclasses: Callable[[type], list[type]] = _type["__subclasses__"]
_subtype: Callable[[type, type], bool] = type.__subclasscheck__

HEAP = 1 << 9
_MANAGED_WEAKREF = 1 << 3
_MANAGED_DICT = 1 << 4
_WORD = 8 if sys.maxsize > 2**32 else 4
_CACHE_MAX = 4096
_MANY = 128
_VERY_MANY = 4096
_ROUNDS = 8


class Layout(NamedTuple):
    """Where the state of a class's instances is."""

    solid: type
    """the builtin type whose C structure they begin with"""
    dict_of: Callable[[Any], Any] | None
    slots: tuple[tuple[str, Callable[[Any], Any]], ...]
    caches: frozenset[str] = frozenset()
    """keys of its dict that hold what was computed of the rest, or who looks at it"""


_PANDAS_CACHES = frozenset(("_cache", "_id", "_references", "_item_cache", "_cacher", "_is_copy"))


def is_heap(cls: type) -> bool:
    return bool(FLAGS(cls) & HEAP)


def is_a(cls: type, base: type) -> bool:
    """issubclass without asking a metaclass. `base`: a class whose metaclass is `type`."""
    return _subtype(base, cls)


def _hashes_types_plainly() -> bool:
    """Whether a set of any types hashes them as `type` does: no metaclass there is has a say in it.

    It holds for as long as only C code runs. Some twenty microseconds.
    """
    pending = _subclasses(type)
    while pending:
        cls = pending.pop()
        for base in MRO(cls):
            if base is type or base is object:
                continue
            held = CLASS_DICT(base)
            if ("__hash__" in held or "__eq__" in held) and not (
                MODULE(base) == "typing_extensions" and class_has_home(base)
            ):  # that one's is `type`'s own
                return False
        pending += _subclasses(cls)
    return True


def distinct_types(items: Collection[object]) -> list[type]:
    """Their types, each once; a set of types would hash them, and a metaclass may define that."""
    # what asks about every class there is must have that many items to save on
    if len(items) > _VERY_MANY and _hashes_types_plainly():
        return list(set(map(type, items)))
    found: list[type] = []
    left = list(map(type, items))
    while len(left) > _MANY and len(found) < _ROUNDS:
        found.append(left[0])
        left = list(compress(left, map(is_not, left, repeat(left[0]))))
    return found + list(dict(zip(map(ident, left), left, strict=True)).values())


def is_module(obj: object) -> bool:
    return _subtype(types.ModuleType, type(obj))


def type_name(cls: type) -> str:
    """`module.Qualified.name`; builtin types and those of cells without their module."""
    module, name = MODULE(cls), QUALNAME(cls)
    if type(module) is not str or module in ("builtins", "__main__"):
        return name
    return f"{module}.{name}"


def found_by_name(obj: object, module: object, qualname: object) -> bool:
    """Whether `module.qualname` is this very object, in a module other than `__main__`."""
    if type(module) is not str or type(qualname) is not str or module == "__main__":
        return False
    modules = sys.modules
    if type(modules) is not dict:
        return False
    current: Any = modules.get(module)
    for part in qualname.split("."):
        if current is None:
            return False
        if is_module(current):
            names: Any = MODULE_DICT(current)
        elif _subtype(type, type(current)):
            names = CLASS_DICT(current)
        else:
            return False
        try:
            current = names.get(part)
        except TypeError:  # a module without a dict
            return False
    return current is obj


def class_has_home(cls: type) -> bool:
    """Whether the class can be named: a module holds it. Others were made in cells."""
    return not is_heap(cls) or found_by_name(cls, MODULE(cls), QUALNAME(cls))


def _slots_of(mro: tuple[type, ...]) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    slots = []
    for cls in mro:
        names = CLASS_DICT(cls)
        if is_heap(cls) and "__slots__" in names:
            slots += [
                (f"{QUALNAME(cls)}.{name}", member.__get__)
                for name, member in names.items()
                if type(member) is types.MemberDescriptorType and member.__objclass__ is cls
            ]
    return tuple(slots)


def _dict_of(mro: tuple[type, ...]) -> Callable[[Any], Any] | None:
    for cls in mro:
        getter: Any = CLASS_DICT(cls).get("__dict__")
        kind = type(getter)
        if kind is types.GetSetDescriptorType or kind is types.MemberDescriptorType:
            return getter.__get__  # type: ignore[no-any-return]
    return None


def _compute(cls: type, solids: dict[int, Any]) -> Layout | str:
    mro = MRO(cls)
    solid = next((base for base in mro if ident(base) in solids), None)
    if solid is None:
        return "a type without a known layout"
    slots = _slots_of(mro)
    size = BASICSIZE(solid) + _WORD * len(slots)
    flags, dictoffset = FLAGS(cls), DICTOFFSET(cls)
    if dictoffset != DICTOFFSET(solid) and not flags & _MANAGED_DICT:
        size += _WORD
    if WEAKREFOFFSET(cls) != WEAKREFOFFSET(solid) and not flags & _MANAGED_WEAKREF:
        size += _WORD
    if size != BASICSIZE(cls) or ITEMSIZE(cls) != ITEMSIZE(solid):
        return "a type without a known layout"
    if not dictoffset:
        return Layout(solid, None, slots)
    dict_of = _dict_of(mro)
    if dict_of is None:
        return "its dict cannot be read"
    module = MODULE(cls)
    pandas = type(module) is str and module.startswith("pandas") and class_has_home(cls)
    return Layout(solid, dict_of, slots, _PANDAS_CACHES if pandas else frozenset())


_cache: dict[int, tuple[Any, Layout | str]] = {}


def layout(cls: type, solids: dict[int, Any]) -> Layout | str:
    """The layout of instances of `cls`, or why it has none. `solids`: by id, the builtin bases known."""
    known = _cache.get(ident(cls))
    if known is not None and known[0]() is cls:
        return known[1]
    found = _compute(cls, solids)
    if len(_cache) >= _CACHE_MAX:
        _cache.clear()
    _cache[ident(cls)] = (weakref.ref(cls), found)
    return found
