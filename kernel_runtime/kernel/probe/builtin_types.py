# ruff: noqa: ARG001
# mypy: disable-error-code="import-not-found,attr-defined,unused-ignore"
# Handlers share one signature, and some types live in modules that are C alone.
"""How the types of Python and its standard library are written into a digest.

Each function here gets an exact instance of its types (or the builtin part of an instance of a
subclass, for those in `SOLIDS`), so that every attribute it reads is the type's own.
"""

from __future__ import annotations

import _abc
import _collections
import _random
import array
import collections
import collections.abc
import datetime as dt
import decimal
import functools
import gc
import marshal
import operator
import pathlib
import re
import sys
import types
import weakref
import zoneinfo
from typing import Any

import xxhash

from kernel_runtime.kernel.probe import layout as lay
from kernel_runtime.kernel.probe.encoder import ATOMS, SOLIDS, Encoder, Unreadable, handles
from kernel_runtime.kernel.probe.identity import ident

_CODES_MAX = 20_000
_codes: dict[int, tuple[Any, bytes]] = {}
"""id of a code object → a weak reference to it, its digest: code does not change"""

# What a class's dict holds besides what its author wrote.
_CLASS_EXTRAS = frozenset(
    (
        "__dict__",
        "__weakref__",
        "__slotnames__",
        "__firstlineno__",
        "__static_attributes__",
        "__annotations_cache__",
    )
)


def know() -> None:
    """The builtin parts that instances of subclasses may begin with."""
    for cls, handler in _SOLID_HANDLERS.items():
        SOLIDS[ident(cls)] = (cls, handler)


# -- containers ------------------------------------------------------------------


@handles(list)
def _list(enc: Encoder, obj: list[Any]) -> None:
    if not enc.again(obj):
        _list_part(enc, obj)


def _list_part(enc: Encoder, obj: list[Any]) -> None:
    enc.put_items(b"l", [*list.__iter__(obj)])


@handles(tuple)
def _tuple(enc: Encoder, obj: tuple[Any, ...]) -> None:
    enc.put_items(b"t", [*tuple.__iter__(obj)])


@handles(dict)
def _dict(enc: Encoder, obj: dict[Any, Any]) -> None:
    if not enc.again(obj):
        _dict_part(enc, obj)


def _dict_part(enc: Encoder, obj: dict[Any, Any]) -> None:
    enc.put_pairs(b"d", [*dict.items(obj)])


@handles(set)
def _set(enc: Encoder, obj: set[Any]) -> None:
    if not enc.again(obj):
        _set_part(enc, obj)


def _set_part(enc: Encoder, obj: set[Any]) -> None:
    enc.put_unordered(b"s", [*set.__iter__(obj)])


@handles(frozenset)
def _frozenset(enc: Encoder, obj: frozenset[Any]) -> None:
    enc.put_unordered(b"f", [*frozenset.__iter__(obj)])


@handles(bytearray)
def _bytearray(enc: Encoder, obj: bytearray) -> None:
    if not enc.again(obj):
        enc.mark(b"ba")
        with memoryview(obj) as view:
            enc.buffer(view, view.nbytes)


@handles(array.array)
def _array(enc: Encoder, obj: array.array[Any]) -> None:
    if not enc.again(obj):
        enc.mark(b"aa", obj.typecode)
        if obj.typecode == "u":
            enc.put(obj.tounicode())
            return
        with memoryview(obj) as view:
            enc.buffer(view, view.nbytes)


@handles(memoryview)
def _memoryview(enc: Encoder, obj: memoryview) -> None:
    enc.mark(b"mv", obj.format, obj.shape, obj.strides, obj.readonly)
    owner = obj.obj
    enc.mutable = True
    if owner is not None:
        enc.again(owner)
    if obj.nbytes > enc.bound:
        raise Unreadable("over the bound")
    data = obj if obj.c_contiguous else obj.tobytes()
    enc.buffer(data, obj.nbytes)


@handles(collections.deque)
def _deque(enc: Encoder, obj: collections.deque[Any]) -> None:
    if not enc.again(obj):
        _deque_part(enc, obj)


def _deque_part(enc: Encoder, obj: collections.deque[Any]) -> None:
    enc.mark(b"dq", collections.deque.maxlen.__get__(obj))
    enc.put_items(b"l", [*collections.deque.__iter__(obj)])


@handles(collections.OrderedDict)
def _ordered(enc: Encoder, obj: collections.OrderedDict[Any, Any]) -> None:
    if not enc.again(obj):
        _ordered_part(enc, obj)
        enc.put(vars(obj))


def _ordered_part(enc: Encoder, obj: collections.OrderedDict[Any, Any]) -> None:
    keys = [*dict.__iter__(obj)]
    # Walking an OrderedDict in its own order hashes its keys.
    if not all(type(key) is str or type(key) is int for key in keys):
        raise Unreadable("an OrderedDict whose keys are not texts or whole numbers")
    _dict_part(enc, obj)
    enc.put_items(b"od", [*collections.OrderedDict.__iter__(obj)])


@handles(collections.defaultdict)
def _defaultdict(enc: Encoder, obj: collections.defaultdict[Any, Any]) -> None:
    if not enc.again(obj):
        _defaultdict_part(enc, obj)


def _defaultdict_part(enc: Encoder, obj: collections.defaultdict[Any, Any]) -> None:
    enc.put(_DEFAULT_FACTORY(obj))
    _dict_part(enc, obj)


_DEFAULT_FACTORY = collections.defaultdict.__dict__["default_factory"].__get__


@handles(types.GenericAlias, types.UnionType)
def _alias(enc: Encoder, obj: Any) -> None:
    # Attributes of an alias are those of what it is an alias of.
    enc.mark(b"ga", type(obj) is types.UnionType)
    for part in gc.get_referents(obj):
        enc.put(part)


@handles(types.MappingProxyType)
def _proxy(enc: Encoder, obj: Any) -> None:
    enc.mark(b"mp")
    enc.put(gc.get_referents(obj)[0])


@handles(type({}.keys()), type({}.values()), type({}.items()))
def _view(enc: Encoder, obj: Any) -> None:
    enc.mark(b"dv", type(obj).__name__)
    enc.put(gc.get_referents(obj)[0])


@handles(types.SimpleNamespace)
def _namespace(enc: Encoder, obj: types.SimpleNamespace) -> None:
    if not enc.again(obj):
        enc.mark(b"ns")
        enc.put(vars(obj))


# -- the builtin part of instances of subclasses -------------------------------------


def _nothing(enc: Encoder, obj: object) -> None:
    pass


def _exception(enc: Encoder, obj: BaseException) -> None:
    read = BaseException.__dict__
    if read["__traceback__"].__get__(obj) is not None:
        raise Unreadable("an exception with a traceback")
    for name in ("args", "__cause__", "__context__", "__suppress_context__"):
        enc.put(read[name].__get__(obj))


_SOLID_HANDLERS: dict[type, Any] = {
    object: _nothing,
    list: _list_part,
    dict: _dict_part,
    set: _set_part,
    frozenset: lambda enc, obj: enc.put_unordered(b"f", [*frozenset.__iter__(obj)]),
    tuple: lambda enc, obj: enc.put_items(b"t", [*tuple.__iter__(obj)]),
    int: lambda enc, obj: enc.put(int.__int__(obj)),
    float: lambda enc, obj: enc.put(float.__float__(obj)),
    complex: lambda enc, obj: enc.put(complex.__pos__(obj)),
    str: lambda enc, obj: enc.put(str.__str__(obj)),
    bytes: lambda enc, obj: enc.put(bytes.__getitem__(obj, slice(None))),
    collections.deque: _deque_part,
    collections.OrderedDict: _ordered_part,
    collections.defaultdict: _defaultdict_part,
    BaseException: _exception,
    _random.Random: lambda enc, obj: enc.put(_random.Random.getstate(obj)),
    types.SimpleNamespace: _nothing,
}


# -- values ---------------------------------------------------------------------------


@handles(type(NotImplemented))
def _constant(enc: Encoder, obj: object) -> None:
    enc.mark(b"ni")


@handles(range, slice)
def _range(enc: Encoder, obj: Any) -> None:
    enc.mark(b"r", type(obj) is range)
    for part in (obj.start, obj.stop, obj.step):
        enc.put(part)


@handles(dt.date, dt.datetime, dt.time)
def _moment(enc: Encoder, obj: Any) -> None:
    enc.mark(b"dt", type(obj).__name__)
    enc.put(obj.__reduce_ex__(4)[1])


@handles(dt.timedelta)
def _timedelta(enc: Encoder, obj: dt.timedelta) -> None:
    enc.mark(b"td", obj.days, obj.seconds, obj.microseconds)


@handles(dt.timezone)
def _timezone(enc: Encoder, obj: dt.timezone) -> None:
    enc.mark(b"tz")
    enc.put(obj.__getinitargs__())


@handles(zoneinfo.ZoneInfo)
def _zone(enc: Encoder, obj: zoneinfo.ZoneInfo) -> None:
    if obj.key is None:
        raise Unreadable("a time zone without a key")
    enc.mark(b"zi", obj.key)


@handles(decimal.Decimal)
def _decimal(enc: Encoder, obj: decimal.Decimal) -> None:
    enc.mark(b"de", *tuple(obj.as_tuple()))


@handles(pathlib.PurePosixPath, pathlib.PosixPath, pathlib.PureWindowsPath)
def _path(enc: Encoder, obj: pathlib.PurePath) -> None:
    # Its slots hold what was computed of it so far.
    enc.mark(b"pa", type(obj).__name__, pathlib.PurePath.__str__(obj))


@handles(re.Pattern)
def _pattern(enc: Encoder, obj: re.Pattern[Any]) -> None:
    enc.mark(b"re", obj.pattern, obj.flags)


@handles(operator.itemgetter, operator.attrgetter, operator.methodcaller)
def _getter(enc: Encoder, obj: Any) -> None:
    enc.mark(b"og", type(obj).__name__)
    enc.put(obj.__reduce__()[1])


@handles(type(iter([])), type(iter(())), type(iter("")), type(iter(range(0))), type(iter("é")))
def _iterator(enc: Encoder, obj: Any) -> None:
    if not enc.again(obj):
        enc.mark(b"it", type(obj).__name__)
        enc.put(obj.__reduce__()[1:])


@handles(_collections._tuplegetter)  # noqa: SLF001
def _field(enc: Encoder, obj: Any) -> None:
    enc.mark(b"tg")
    enc.put(obj.__reduce__()[1])


@handles(weakref.ref)
def _weakref(enc: Encoder, obj: Any) -> None:
    raise Unreadable("a weak reference")


# -- code ------------------------------------------------------------------------------


@handles(types.CodeType)
def _code(enc: Encoder, obj: types.CodeType) -> None:
    known = _codes.get(ident(obj))
    if known is None or known[0]() is not obj:
        if len(_codes) >= _CODES_MAX:
            _codes.clear()
        known = _codes[ident(obj)] = (weakref.ref(obj), _code_digest(enc, obj))
    enc.write(b"\xff" + known[1])


def _code_digest(enc: Encoder, code: types.CodeType) -> bytes:
    """What it does; not where it stands: the same source in another cell is the same code."""
    parts = (
        code.co_code,
        code.co_names,
        code.co_varnames,
        code.co_freevars,
        code.co_cellvars,
        code.co_argcount,
        code.co_posonlyargcount,
        code.co_kwonlyargcount,
        code.co_flags,
        code.co_name,
        code.co_qualname,
        code.co_exceptiontable,
    )
    constants = enc.isolated(code.co_consts)
    return xxhash.xxh3_128_digest(marshal.dumps(parts, 2) + constants)


@handles(types.CellType)
def _cell(enc: Encoder, obj: types.CellType) -> None:
    if enc.again(obj):
        return
    try:
        content = obj.cell_contents
    except ValueError:
        enc.mark(b"ce")
        return
    enc.mark(b"cf")
    enc.put(content)


@handles(types.FunctionType)
def _function(enc: Encoder, obj: types.FunctionType) -> None:
    module, qualname = obj.__module__, obj.__qualname__
    if lay.found_by_name(obj, module, qualname):
        enc.mark(b"fn", module, qualname)
        return
    if enc.again(obj):
        return
    enc.mark(b"fu", obj.__name__, qualname)
    parts = [module, obj.__doc__, obj.__defaults__, obj.__kwdefaults__, obj.__closure__]
    parts.append(obj.__dict__ or None)
    if sys.version_info < (3, 14):  # from then on annotations are code that would have to run
        parts.append(obj.__annotations__ or None)
    _code(enc, obj.__code__)
    enc.put_items(b"fp", parts)
    _put_globals(enc, obj)


def _put_globals(enc: Encoder, obj: types.FunctionType) -> None:
    """A function's globals are names of their own, unless no namespace that we know of is theirs."""
    names = obj.__globals__
    if names is enc.home or names is vars(sys.modules["__main__"]):
        return
    owner = dict.get(names, "__name__")
    module = sys.modules.get(owner) if type(owner) is str else None
    if module is not None and lay.is_module(module) and lay.MODULE_DICT(module) is names:
        enc.mark(b"gm", owner)
        return
    enc.mark(b"go")
    for name in _global_names(obj.__code__):
        if name in names:
            enc.mark(b"+", name)
            enc.put(names[name])


def _global_names(code: types.CodeType) -> list[str]:
    found = dict.fromkeys(code.co_names)
    for constant in code.co_consts:
        if type(constant) is types.CodeType:
            found.update(dict.fromkeys(_global_names(constant)))
    return list(found)


@handles(types.MethodType)
def _method(enc: Encoder, obj: types.MethodType) -> None:
    enc.mark(b"bm")
    enc.put(obj.__func__)
    enc.put(obj.__self__)


@handles(types.BuiltinFunctionType)
def _builtin(enc: Encoder, obj: types.BuiltinFunctionType) -> None:
    owner = obj.__self__
    enc.mark(b"bf", obj.__qualname__)
    enc.put(obj.__module__)
    if owner is not None and not lay.is_module(owner):
        enc.put(owner)


@handles(types.MethodWrapperType)
def _wrapper(enc: Encoder, obj: types.MethodWrapperType) -> None:
    enc.mark(b"mw", obj.__name__)
    enc.put(obj.__self__)


@handles(
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)
def _descriptor(enc: Encoder, obj: Any) -> None:
    enc.mark(b"ds", type(obj).__name__, obj.__name__)
    enc.put(obj.__objclass__)


@handles(property)
def _property(enc: Encoder, obj: property) -> None:
    enc.mark(b"pr")
    for part in (obj.fget, obj.fset, obj.fdel, obj.__doc__):
        enc.put(part)


@handles(staticmethod, classmethod)
def _static(enc: Encoder, obj: Any) -> None:
    enc.mark(b"sm", type(obj) is staticmethod)
    enc.put(obj.__func__)


@handles(functools.partial)
def _partial(enc: Encoder, obj: functools.partial[Any]) -> None:
    if enc.again(obj):
        return
    enc.mark(b"pt")
    for part in (obj.func, obj.args, obj.keywords, obj.__dict__):
        enc.put(part)


@handles(functools.cached_property)
def _cached_property(enc: Encoder, obj: Any) -> None:
    enc.mark(b"cp", obj.attrname)
    enc.put(obj.func)


@handles(type(functools.lru_cache(len)))
def _lru(enc: Encoder, obj: Any) -> None:
    raise Unreadable("a function with a cache")


# -- modules, classes --------------------------------------------------------------------


@handles(types.ModuleType)
def _module(enc: Encoder, obj: types.ModuleType) -> None:
    names = lay.MODULE_DICT(obj)
    name = names.get("__name__")
    if type(name) is str and sys.modules.get(name) is obj:
        enc.mark(b"mo", name)
        return
    if not enc.again(obj):
        enc.mark(b"mu")
        enc.put(names)


@handles(type)
def _class(enc: Encoder, obj: type) -> None:
    """A class that a module holds, by name; one that was made in a cell, by what it is made of."""
    if lay.class_has_home(obj):
        enc.mark(b"cl", lay.MODULE(obj), lay.QUALNAME(obj))
        return
    if enc.again(obj):
        return
    enc.mark(b"cd", lay.QUALNAME(obj))
    meta = type(obj)
    if meta is not type:
        enc.put(meta)
    enc.put(lay.BASES(obj))
    names: list[Any] = []
    parts: list[Any] = []
    others: list[Any] = []
    for name, value in lay.CLASS_DICT(obj).items():
        if type(name) is str and name in _CLASS_EXTRAS:
            continue
        names.append(name)
        kind = type(value)
        if ident(kind) in ATOMS:
            parts += ("=", value)
        elif kind is types.GetSetDescriptorType or kind is types.MemberDescriptorType:
            parts += (".", value.__name__)
        elif kind is _ABC_DATA:
            if _abc._get_dump(obj)[0]:  # noqa: SLF001
                raise Unreadable("an abstract class with registered classes")
        else:
            parts.append("*")
            others.append(value)
    enc.put_items(b"cn", names)
    enc.put_items(b"cv", parts)
    for value in others:
        enc.put(value)


_ABC_DATA = type(vars(collections.abc.Sized)["_abc_impl"])
