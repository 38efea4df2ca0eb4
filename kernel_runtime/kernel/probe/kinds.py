"""What an object is, for the search of code that it leads to: told by exact type, without asking the object.

Invariant: nothing here runs the user's code. Types are keyed by id, since a metaclass may define
`__hash__`; class and module dictionaries are read through `type`'s and `module`'s own slots.
"""

from __future__ import annotations

import builtins
import collections
import functools
import gc
import types
import weakref
from collections.abc import Callable, Iterable
from types import FunctionType, MethodType, ModuleType
from typing import Any, Final

from kernel_runtime.kernel.probe.identity import ident
from kernel_runtime.kernel.probe.layout import distinct_types

LEAF, CONTAINER, FUNCTION, METHOD, CLASS, MODULE, CELL, PLAIN, FOREIGN, OPAQUE, SHELL, WEAK, GENERATOR = (
    range(13)
)
"""LEAF holds no code; CONTAINER is one of Python's own; CELL is an instance of a class that a cell made;
PLAIN is made of parts and calls nothing but them; FOREIGN is of a library; OPAQUE is not looked into; SHELL
can do anything to the namespace; WEAK hides what it stands for."""

CLOSED: Final = frozenset({LEAF, OPAQUE})
_MOST_INERT: Final = 10_000_000
_INERT_DEPTH: Final = 20
_SEQUENCES: Final = frozenset(map(ident, (list, tuple, set, frozenset)))

_dict_of_class = type.__dict__["__dict__"].__get__
_order_of_class = type.__dict__["__mro__"].__get__
_dict_of_module: Any = vars(ModuleType)["__dict__"].__get__

_LEAVES: Final = (
    int, float, complex, bool, str, bytes, bytearray, type(None), type(...), type(NotImplemented), range,
    object, types.CodeType, types.GetSetDescriptorType, types.MemberDescriptorType,
    types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType,
)  # fmt: skip
_CONTAINERS: Final = (
    list, tuple, dict, set, frozenset, collections.deque, collections.OrderedDict, collections.defaultdict,
)  # fmt: skip
_OPAQUE: Final = (types.FrameType, types.TracebackType, memoryview)
_EMPTY: Final[tuple[Any, ...]] = ([], (), {}, set(), "", b"", range(0))
_PLAIN: Final = (
    *(value for value in vars(builtins).values() if type(value) is type),
    *(value for value in vars(types).values() if type(value) is type),
    functools.partial,
    functools.partialmethod,
    functools.cached_property,
    type(functools.lru_cache(len)),
    weakref.ref,
    *(type(iter(empty)) for empty in _EMPTY),
    type({}.keys()),
    type({}.values()),
    type({}.items()),
    type(reversed([])),
)
_HARMLESS_BASES: Final = frozenset(
    {
        ("abc", "ABC"),
        ("enum", "Enum"),
        ("enum", "IntEnum"),
        ("enum", "ReprEnum"),
        ("enum", "StrEnum"),
        ("enum", "Flag"),
        ("enum", "IntFlag"),
        ("typing", "Generic"),
        ("typing", "Protocol"),
    }
)
"""classes of the standard library that call a subclass's methods by no other name than a hook's"""
_OPAQUE_PACKAGES: Final = frozenset({"ipykernel", "zmq", "tornado", "kernel_runtime"})
_OPAQUE_CLASSES: Final = frozenset(
    {
        ("pandas.core.internals.managers", "BlockManager"),
        ("pandas.core.internals.managers", "SingleBlockManager"),
        ("pandas.core.flags", "Flags"),
    }
)
"""the columns of data frames: arrays, whose elements the collector is not told about"""
_FIXED: Final[dict[int, int]] = {
    **{ident(cls): PLAIN for cls in _PLAIN},
    **{ident(cls): CONTAINER for cls in _CONTAINERS},
    **{ident(cls): LEAF for cls in _LEAVES},
    **{ident(cls): OPAQUE for cls in _OPAQUE},
    ident(FunctionType): FUNCTION,
    ident(MethodType): METHOD,
    ident(ModuleType): MODULE,
    ident(type): CLASS,
    ident(weakref.ProxyType): WEAK,
    ident(weakref.CallableProxyType): WEAK,
    ident(types.GeneratorType): GENERATOR,
    ident(types.CoroutineType): GENERATOR,
    ident(types.AsyncGeneratorType): GENERATOR,
}
"""types that live as long as the process, so that their ids are theirs"""


def is_inert(container: Any, kind: Callable[[type], int], namespace: dict[str, Any]) -> bool:
    """Whether there surely is no code in a container, nor in those inside it: seen a level at a time."""
    distinct = distinct_types(container) if ident(type(container)) in _SEQUENCES else ()
    if distinct and CLOSED.issuperset(map(kind, distinct)):
        return True  # however long it is
    level, elements = [container], 0
    for _ in range(_INERT_DEPTH):
        found = [(cls, kind(cls)) for cls in distinct_types(level)]
        if all(kind in CLOSED for _, kind in found):
            return True
        if not all(kind in CLOSED or kind == CONTAINER for _, kind in found):
            return False
        containers = {ident(cls) for cls, kind in found if kind == CONTAINER}
        if len(containers) < len(found):
            level = [item for item in level if ident(type(item)) in containers]
        if ident(namespace) in map(ident, level):
            return False
        level = gc.get_referents(*level)
        elements += len(level)
        if elements > _MOST_INERT:
            return False
    return False


def class_dict(cls: type) -> Any:
    return _dict_of_class(cls)


def class_order(cls: type) -> tuple[type, ...]:
    return _order_of_class(cls) or ()


def module_dict(module: Any) -> dict[str, Any]:
    found = _dict_of_module(module)
    return found if type(found) is dict else {}


def contents(container: Any) -> Iterable[object]:
    """What is in one of Python's own containers, as it is now."""
    cls = type(container)
    if cls is dict or cls is collections.OrderedDict:
        return [*dict.keys(container), *dict.values(container)]
    if cls is collections.defaultdict:
        return [*dict.keys(container), *dict.values(container), container.default_factory]
    return list(container)


def referents(item: Any) -> list[object]:
    """What an object holds, but for its class."""
    cls = type(item)
    if cls is weakref.ref:
        return [item()]
    found = gc.get_referents(item)
    for index, held in enumerate(found):
        if held is cls:
            del found[index]  # once: an attribute may hold it too
            break
    return found


class _About:
    """What was found out about a class."""

    __slots__ = ("kind", "modules", "own", "ref", "size", "worlds")

    def __init__(self, cls: type) -> None:
        self.ref = weakref.ref(cls)
        self.size = 0
        self.own: frozenset[int] = frozenset()
        modules: list[object] = []
        worlds: set[int] = set()
        kind = FOREIGN
        for base in class_order(cls):
            held = class_dict(base)
            self.size += len(held)
            module = held.get("__module__")
            if type(module) is str:
                modules.append(module)
            worlds.update(
                ident(value.__globals__) for value in list(held.values()) if type(value) is FunctionType
            )
            if base is cls:
                self.own = frozenset(worlds)
            if base is type:
                kind = CLASS
            elif base is ModuleType:
                kind = MODULE
        first = str(modules[0]) if modules else ""
        if _is(cls, "InteractiveShell", "IPython"):
            kind = SHELL
        elif first.partition(".")[0] in _OPAQUE_PACKAGES or _is(cls, "AbstractEventLoop", "asyncio"):
            kind = OPAQUE if kind == FOREIGN else kind
        elif (first, _name(cls)) in _OPAQUE_CLASSES:
            kind = OPAQUE
        elif kind == FOREIGN and (first, _name(cls)) in _HARMLESS_BASES:
            kind = PLAIN
        self.kind = kind
        self.modules = frozenset(modules)
        self.worlds = frozenset(worlds)


def _name(cls: type) -> str:
    return str(type.__dict__["__name__"].__get__(cls))


def _is(cls: type, name: str, package: str) -> bool:
    return any(
        _name(base) == name and str(class_dict(base).get("__module__")).partition(".")[0] == package
        for base in class_order(cls)
    )


_known: dict[int, _About] = {}


def _about(cls: type) -> _About:
    key = ident(cls)
    known = _known.get(key)
    size = sum(map(len, map(_dict_of_class, class_order(cls))))
    if known is not None and known.ref() is cls and known.size == size:
        return known
    found = _About(cls)
    _known[key] = found
    found.ref = weakref.ref(cls, lambda _: _known.pop(key, None))
    return found


def kind_of_type(cls: type, namespace: dict[str, Any]) -> int:
    """The kind of the class's instances."""
    fixed = _FIXED.get(ident(cls))
    if fixed is not None:
        return fixed
    about = _about(cls)
    if about.kind == FOREIGN and (
        namespace.get("__name__") in about.modules or ident(namespace) in about.worlds
    ):
        return CELL
    return about.kind


def is_cell_class(cls: type, namespace: dict[str, Any]) -> bool:
    """Whether a cell made the class, or put a function into it."""
    if ident(cls) in _FIXED:
        return False
    module = class_dict(cls).get("__module__")
    if type(module) is str and module == namespace.get("__name__"):
        return True
    return ident(namespace) in _about(cls).own
