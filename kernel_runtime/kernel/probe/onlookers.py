"""Decorators and base classes that do not call what they are given, so that a definition reads nothing.

Invariant: what is not known here is taken to call it.
"""

from __future__ import annotations

import builtins
import functools
import sys
from types import ModuleType
from typing import Any, Final

from kernel_runtime.kernel.probe.instructions import Names
from kernel_runtime.kernel.probe.kinds import (
    CLASS,
    LEAF,
    MODULE,
    class_dict,
    class_order,
    kind_of_type,
    module_dict,
)
from kernel_runtime.kernel.probe.reasons import DECORATORS

_METACLASSES: Final = frozenset({"abc", "enum", "typing"})
"""modules whose metaclasses call no method of a class that they make"""


def is_harmless(name: str, attributes: Names, namespace: dict[str, Any]) -> bool:
    """Whether the name stands for one, or for a module of which only such are asked."""
    value: Any = namespace[name] if name in namespace else vars(builtins).get(name)
    kind = kind_of_type(type(value), namespace)
    if kind == MODULE:
        held = module_dict(value)
        named = [held[attribute] for attribute in attributes if attribute in held]
        return bool(named) and all(_is_onlooker(value, namespace) for value in named)
    return (kind == LEAF and name in namespace) or _is_onlooker(value, namespace)


def is_partial(value: Any, attributes: Names) -> bool:
    """`functools.partial`, or the module of which it is asked: it keeps what it is given."""
    if attributes:
        return type(value) is ModuleType and module_dict(value).get("partial") is functools.partial
    return value is functools.partial


def _is_onlooker(value: Any, namespace: dict[str, Any]) -> bool:
    for module, decorators in DECORATORS.items():
        found = sys.modules.get(module)
        if type(found) is ModuleType and any(
            value is module_dict(found).get(name, found) for name in decorators
        ):
            return True
    if kind_of_type(type(value), namespace) != CLASS:
        return False
    if type(value) is not type and class_dict(type(value)).get("__module__") not in _METACLASSES:
        return False
    return not any(
        "__init_subclass__" in class_dict(base) and class_dict(base).get("__module__") != "typing"
        for base in class_order(value)
        if base is not object
    )
