# ruff: noqa: ARG001, ARG005
# Handlers share one signature.
"""How values of numpy and pandas are written into a digest, once a cell has imported them.

Nothing here imports them: `know()` looks for their modules and registers what it finds. Attributes
are read of exact instances of their own types, or through the descriptors of these types.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from kernel_runtime.kernel.probe import layout as lay
from kernel_runtime.kernel.probe.encoder import HANDLERS, SOLIDS, Encoder, Handler, Unreadable
from kernel_runtime.kernel.probe.identity import ident

_CHUNK = 4 << 20
_EXACT_KINDS = frozenset("biufcSUmMV")
_known: set[str] = set()
IMMUTABLE: set[int] = set()
"""ids of types here whose instances are neither mutable nor on the way to something that is"""


def know() -> None:
    """Look for what cells have imported since."""
    modules = sys.modules
    if "numpy" not in _known and _complete(modules.get("numpy"), "ndarray", "generic", "sum"):
        _known.add("numpy")
        _know_numpy(modules["numpy"])
    if "numpy.random" not in _known and _complete(modules.get("numpy.random"), "Generator", "RandomState"):
        _known.add("numpy.random")
        _know_random(modules["numpy.random"])
    if "pandas" not in _known and _complete(modules.get("pandas"), "DataFrame", "Index", "Timestamp"):
        _known.add("pandas")
        _know_pandas()


def _complete(module: Any, *names: str) -> bool:
    """Whether the module is there, is a plain module, and has got so far in its import."""
    return type(module) is types.ModuleType and all(name in lay.MODULE_DICT(module) for name in names)


def _add(
    table: dict[int, tuple[type, Handler]], cls: Any, handler: Handler, *, immutable: bool = False
) -> None:
    if lay.is_a(type(cls), type):
        table[ident(cls)] = (cls, handler)
        if immutable:
            IMMUTABLE.add(ident(cls))


# -- numpy ------------------------------------------------------------------------


def _know_numpy(np: Any) -> None:
    ndarray, generic = np.ndarray, np.generic
    if lay.is_heap(ndarray):  # a module of the user's that has the name
        return

    def array(enc: Encoder, obj: Any) -> None:
        if not enc.again(obj):
            array_part(enc, obj)

    def array_part(enc: Encoder, obj: Any) -> None:
        _put_array(enc, obj if type(obj) is ndarray else ndarray.view(obj, ndarray), np)

    _add(HANDLERS, ndarray, array)
    _add(SOLIDS, ndarray, array_part)
    pending = [generic]
    while pending:
        cls = pending.pop()
        pending += type.__subclasses__(cls)
        if not lay.is_heap(cls):
            _add(HANDLERS, cls, _scalar, immutable=True)
    _add(HANDLERS, np.dtype, _dtype, immutable=True)
    for cls in vars(np.dtypes).values() if hasattr(np, "dtypes") else ():
        if type(cls) is type(type(np.dtype("f8"))):
            _add(HANDLERS, cls, _dtype, immutable=True)
    _add(HANDLERS, type(np.dtype("V1")), _dtype, immutable=True)
    _add(HANDLERS, type(np.sum), _named, immutable=True)
    _add(HANDLERS, np.ufunc, _put_ufunc, immutable=True)


def _know_random(random: Any) -> None:
    _add(HANDLERS, random.Generator, _generator)
    _add(HANDLERS, random.RandomState, _random_state)
    for cls in type.__subclasses__(random.BitGenerator):
        if lay.found_by_name(cls, lay.MODULE(cls), lay.QUALNAME(cls)):
            _add(HANDLERS, cls, _bit_generator)


def _scalar(enc: Encoder, obj: Any) -> None:
    enc.mark(b"nx")
    enc.put(obj.dtype)
    if obj.dtype.hasobject:
        raise Unreadable("a numpy scalar that holds objects")
    enc.write(obj.tobytes())


def _dtype(enc: Encoder, obj: Any) -> None:
    if obj.kind not in _EXACT_KINDS and obj.kind not in "OT":
        raise Unreadable("a numpy type of its own")
    if obj.names is None and obj.subdtype is None and obj.metadata is None:
        enc.mark(b"nd", obj.str)
    else:
        enc.mark(b"nr")
        enc.put(obj.__reduce__()[1:])


def _put_ufunc(enc: Encoder, obj: Any) -> None:
    if not lay.found_by_name(obj, "numpy", obj.__name__):
        raise Unreadable("a ufunc that numpy does not hold")
    enc.mark(b"nu", obj.__name__)


def _put_array(enc: Encoder, obj: Any, np: Any) -> None:
    """Its items in C order: a copy that is laid out otherwise has the same content."""
    kind = obj.dtype.kind
    fortran = obj.flags.f_contiguous and not obj.flags.c_contiguous
    enc.mark(b"na", obj.shape, bool(obj.flags.writeable), bool(fortran))
    enc.put(obj.dtype)
    if (owner := _owner(obj, np)) is not obj:
        enc.again(owner)
    if kind in "OT":
        if obj.size > enc.steps * 10:
            raise Unreadable("more objects than the bound")
        enc.put_items(b"no", obj.ravel().tolist())
        return
    if obj.dtype.hasobject and kind == "V" and obj.dtype.names is not None:
        for name in obj.dtype.names:
            _put_array(enc, obj[name], np)
        return
    if obj.dtype.hasobject or kind not in _EXACT_KINDS:
        raise Unreadable("an array of a type of its own")
    if obj.nbytes > enc.bound - enc.size:
        enc.size += obj.nbytes
        raise Unreadable("over the bound")
    if fortran:
        obj = obj.T
    if obj.flags.c_contiguous:
        flat = obj.reshape(-1)
        enc.buffer(flat.view(np.uint8) if flat.nbytes else b"", flat.nbytes)
        return
    enc.mark(b"B", obj.nbytes)
    enc.size += obj.nbytes
    for piece in _pieces(obj, np):
        enc.raw(np.ascontiguousarray(piece).reshape(-1).view(np.uint8))


def _pieces(obj: Any, np: Any) -> list[Any]:
    """Slices along the first axis, each small enough to copy."""
    rows = max(1, obj.shape[0] * _CHUNK // max(1, obj.nbytes)) if obj.ndim else 1
    return [obj[start : start + rows] for start in range(0, obj.shape[0], rows)] if obj.ndim else [obj]


def _owner(obj: Any, np: Any) -> Any:
    """The object whose memory it is."""
    base = obj.base
    while base is not None:
        obj = base
        base = np.ndarray.base.__get__(obj) if lay.is_a(type(obj), np.ndarray) else None
    return obj.obj if type(obj) is memoryview else obj


def _bit_generator(enc: Encoder, obj: Any) -> None:
    if not enc.again(obj):
        enc.mark(b"nb", type(obj).__name__)
        enc.put(obj.state)
        seeds = getattr(obj, "seed_seq", None)
        enc.put(getattr(seeds, "state", None))


def _generator(enc: Encoder, obj: Any) -> None:
    if not enc.again(obj):
        enc.mark(b"ng")
        enc.put(obj.bit_generator)


def _random_state(enc: Encoder, obj: Any) -> None:
    if not enc.again(obj):
        enc.mark(b"ns")
        enc.put(obj.get_state(legacy=False))


# -- pandas -----------------------------------------------------------------------


def _know_pandas() -> None:
    modules = sys.modules
    pandas = modules["pandas"]
    internals = lay.MODULE_DICT(modules["pandas._libs.internals"])
    arrays = lay.MODULE_DICT(modules["pandas._libs.arrays"])
    backed = arrays["NDArrayBacked"]
    if not lay.class_has_home(pandas.DataFrame):  # a module of the user's that has the name
        return
    _add(SOLIDS, backed, _reader(backed, "_ndarray", "_dtype"))
    _add(SOLIDS, internals["BlockManager"], _reader(internals["BlockManager"], "axes", "blocks"))
    _add(SOLIDS, internals["Block"], _reader(internals["Block"], "_mgr_locs", "values", "ndim"))
    _add(HANDLERS, internals["BlockPlacement"], _placement)
    _add(HANDLERS, lay.MODULE_DICT(modules["pandas.core.flags"])["Flags"], _flags)
    _add(HANDLERS, pandas.Timestamp, _timestamp, immutable=True)
    _add(HANDLERS, pandas.Timedelta, _span, immutable=True)
    _add(HANDLERS, pandas.Period, _period, immutable=True)
    _add(HANDLERS, pandas.Interval, _interval)
    _add(HANDLERS, pandas.PeriodDtype, lambda enc, obj: _offset(enc, obj._freq))  # noqa: SLF001
    _add(HANDLERS, type(pandas.NaT), lambda enc, obj: enc.mark(b"pn"), immutable=True)
    _add(HANDLERS, type(pandas.NA), lambda enc, obj: enc.mark(b"pN"), immutable=True)
    sparse = lay.MODULE_DICT(modules["pandas._libs.sparse"])
    _add(HANDLERS, sparse["IntIndex"], _reader(sparse["IntIndex"], "length", "indices"))
    _add(HANDLERS, sparse["BlockIndex"], _reader(sparse["BlockIndex"], "length", "blocs", "blengths"))
    _add(HANDLERS, type(lay.CLASS_DICT(internals["Block"]).get("slice_block_rows")), _named)
    offsets = lay.MODULE_DICT(modules["pandas._libs.tslibs.offsets"])
    for cls in offsets.values():
        if lay.is_a(type(cls), type) and lay.is_a(cls, offsets["BaseOffset"]):
            _add(HANDLERS, cls, _offset, immutable=True)


def _reader(cls: Any, *names: str) -> Handler:
    """Writes these attributes of a C class, read past whatever a subclass says of them."""
    members = lay.CLASS_DICT(cls)
    getters = [members[name].__get__ for name in names if type(members.get(name)) in _C_MEMBERS]

    def handler(enc: Encoder, obj: Any) -> None:
        if len(getters) != len(names):
            raise Unreadable("a pandas whose inside is not known")
        for get in getters:
            enc.put(get(obj))

    return handler


_C_MEMBERS = (types.GetSetDescriptorType, types.MemberDescriptorType)


def _named(enc: Encoder, obj: Any) -> None:
    """A library's function that is not Python's: the module that it names must hold it."""
    if not lay.found_by_name(obj, obj.__module__, obj.__qualname__):
        raise Unreadable("a function that no module holds")
    enc.mark(b"nf", obj.__module__, obj.__qualname__)


def _placement(enc: Encoder, obj: Any) -> None:
    enc.mark(b"pb")
    enc.put(obj.indexer)


def _flags(enc: Encoder, obj: Any) -> None:
    enc.mark(b"pf", obj._allows_duplicate_labels)  # noqa: SLF001


def _timestamp(enc: Encoder, obj: Any) -> None:
    enc.mark(b"pt", obj._value, obj.unit, obj.fold)  # noqa: SLF001
    enc.put(obj.tzinfo)


def _span(enc: Encoder, obj: Any) -> None:
    enc.mark(b"pd", obj._value, obj.unit)  # noqa: SLF001


def _period(enc: Encoder, obj: Any) -> None:
    enc.mark(b"pp", obj.ordinal)
    enc.put(obj.freq)


def _interval(enc: Encoder, obj: Any) -> None:
    enc.mark(b"pi", obj.closed)
    enc.put(obj.left)
    enc.put(obj.right)


def _offset(enc: Encoder, obj: Any) -> None:
    name = type(obj).__name__
    if name.startswith("Custom") or name in ("DateOffset", "RelativeDeltaOffset", "BusinessHour"):
        raise Unreadable(f"a pandas offset: {name}")
    enc.mark(b"po", name, obj.freqstr, obj.normalize)
