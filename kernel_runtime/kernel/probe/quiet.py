"""Cells during which nothing but the interpreter itself runs: `x = 1`, `a, b = b, a`, `d = {"k": x}`.

Such a cell binds names to constants, to what other names hold, and to new containers of these; it calls
nothing, so it has no effects, mutates nothing, and starts nothing. What it overwrites must not have a
finalizer, so that has to be a number or a text. Cheaper by far to tell than what other cells do.

Not promised: that the collector does not run meanwhile, and somebody's finalizer with it.
"""

from __future__ import annotations

from opcode import opmap
from types import CodeType
from typing import Any

from kernel_runtime.kernel.probe.encoder import ATOMS
from kernel_runtime.kernel.probe.identity import ident

_NAMES = (
    *("CACHE", "RESUME", "NOP", "POP_TOP", "EXTENDED_ARG", "COPY", "SWAP", "LOAD_CONST", "LOAD_SMALL_INT"),
    *("LOAD_NAME", "STORE_NAME", "UNPACK_SEQUENCE", "RETURN_VALUE", "RETURN_CONST"),
    *("BUILD_TUPLE", "BUILD_LIST", "BUILD_MAP", "BUILD_CONST_KEY_MAP"),
)
_ALLOWED = frozenset(opmap[name] for name in _NAMES if name in opmap)
_MISSING = 0


def is_quiet(code: CodeType, namespace: dict[str, Any]) -> bool:
    """Whether running this code runs no other. To be asked before it runs."""
    if not _ALLOWED.issuperset(code.co_code[::2]):
        return False
    # a key of a dict is hashed, and what is overwritten is let go of
    return all(
        ident(type(namespace.get(name, _MISSING))) in ATOMS or name not in namespace for name in code.co_names
    )
