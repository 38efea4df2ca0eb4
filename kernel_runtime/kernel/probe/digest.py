"""The exact digest of a value: equal digests mean equal content, and none is given where that cannot be said.

Values made of builtin numbers, texts, lists, tuples and dicts are looked through with
`gc.get_referents` and hashed as marshal writes them, all in C. Everything else goes through
encoder.py, object by object.

Invariants: no code of a user's class runs; nothing is raised, printed or kept; the same content
gives the same digest, whichever objects it is made of, but for mutable objects that appear twice
in it: whether two places hold one list or two equal ones is content.

Not promised: that different digests mean different behaviour. The order of a dict, NaN's bits,
-0.0 and 0.0, 1 and True and 1.0, and cached attributes of an instance are content here.
"""

from __future__ import annotations

import gc
import marshal
from typing import Any, NamedTuple

import xxhash

from kernel_runtime.kernel.probe import builtin_types, foreign
from kernel_runtime.kernel.probe import layout as lay
from kernel_runtime.kernel.probe.encoder import ATOMS, TEXTS, Encoder, Unreadable, kinds_of, text_size
from kernel_runtime.kernel.probe.identity import ident

BOUND = 256 << 20
STEPS = 400_000
"""objects that are looked at one by one; of those that marshal writes, ten times as many"""
ALGORITHM = "xxh3_128"
_LEVELS_MAX = 400
_CONTAINERS = frozenset(map(ident, (list, tuple, dict)))
_PLAIN = ATOMS | _CONTAINERS

builtin_types.know()


class Print(NamedTuple):
    """What `fingerprint` found."""

    type: str
    bytes: int
    """of its content as it was hashed, buffers included; what was seen of it when there is no digest"""
    digest: str | None
    why: str | None
    mutable: bool
    """whether it can change while its name is bound to the same object"""


def _plain(obj: object, bound: int, most: int) -> tuple[bool, bool]:
    """Whether marshal writes all of it exactly, and whether it is mutable.

    A mutable object that appears twice is not plain: marshal would write it twice.
    """
    level: list[Any] = [obj]
    seen: set[int] = set()
    count = size = depth = 0
    mutable = False
    while True:
        count += len(level)
        kinds = kinds_of(level)
        if not kinds <= _PLAIN:
            return False, True
        if count > most or depth > _LEVELS_MAX:
            raise Unreadable("more objects than the bound" if count > most else "too deep")
        if kinds & TEXTS:
            size += text_size(level, kinds)
            if size > bound:
                raise Unreadable("over the bound")
        if not kinds & _CONTAINERS:
            return True, mutable
        if kinds & ATOMS:
            level = [item for item in level if ident(type(item)) in _CONTAINERS]
        found = [ident(item) for item in level if type(item) is not tuple]
        if found:
            mutable = True
            before = len(seen)
            seen.update(found)
            if len(seen) != before + len(found):
                return False, True
        level = gc.get_referents(*level)
        depth += 1


def fingerprint(
    obj: object, bound: int = BOUND, *, steps: int = STEPS, home: dict[str, Any] | None = None
) -> Print:
    """The exact digest of a value, or why there is none. `home`: the namespace of the cells."""
    cls = type(obj)
    kind, name = ident(cls), ""
    enc: Encoder | None = None
    try:
        name = lay.type_name(cls)
        mutable = True
        plain = kind in ATOMS
        if plain:
            mutable = False
            if kind in TEXTS and len(obj) > bound:  # type: ignore[arg-type]
                return Print(name, len(obj), None, "over the bound", False)  # type: ignore[arg-type]
        elif kind in _CONTAINERS:
            plain, mutable = _plain(obj, bound, steps * 10)
        if plain:
            data = marshal.dumps(obj, 2)  # type: ignore[arg-type]
            return Print(name, len(data), f"{ALGORITHM}:{xxhash.xxh3_128_hexdigest(data)}", None, mutable)
        foreign.know()
        enc = Encoder(bound, steps, home)
        enc.put(obj)
        return Print(name, enc.size, f"{ALGORITHM}:{enc.digest()}", None, enc.mutable)
    except Unreadable as error:
        why = str(error.args[0])
    except RecursionError:
        why = "too deep"
    except MemoryError:
        why = "not enough memory to read it"
    except RuntimeError:
        why = "it changed while it was read"
    except Exception as error:  # noqa: BLE001 - whatever it is, there is no digest
        why = f"reading it raised {lay.type_name(type(error))}"
    return Print(name, 0 if enc is None else enc.size, None, why, True)
