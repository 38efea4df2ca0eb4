"""Cells as source, and what the probe says their code touches.

No future import here: what is compiled below would inherit it.
"""

import ast
import types
from typing import Any

from kernel_runtime.kernel.probe.code import Touch, analyse


def compiled(source: str) -> list[types.CodeType]:
    """One code object for each statement, as IPython makes them."""
    return [compile(ast.Module([node], []), "<cell>", "exec") for node in ast.parse(source).body]


def namespace_of(*cells: str) -> dict[str, Any]:
    """The namespace after these cells; `x`, `y` and `z` hold data."""
    namespace: dict[str, Any] = {"__name__": "__main__", "x": [1.5], "y": [2.5], "z": {"a": 1}}
    for source in cells:
        for code in compiled(source):
            exec(code, namespace)
    return namespace


def touch(source: str, *cells: str) -> Touch:
    """What the last cell touches, after the others."""
    namespace = namespace_of(*cells)
    codes = compiled(source)
    before = analyse(codes, namespace)
    for code in codes:
        exec(code, namespace)
    return analyse(codes, namespace, before)


def looked_at(source: str, *cells: str) -> Touch:
    """As `touch`, without running the last cell."""
    return analyse(compiled(source), namespace_of(*cells))


F = "def f():\n    return x"
