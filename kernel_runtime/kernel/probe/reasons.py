"""Names that give code more than the names it mentions: the tables of `code.py`."""

from __future__ import annotations

from typing import Final

REASONS: Final = {
    ("builtins", "exec"): "exec",
    ("builtins", "eval"): "eval",
    ("builtins", "globals"): "globals",
    ("builtins", "locals"): "locals",
    ("builtins", "vars"): "vars",
    ("builtins", "dir"): "dir",
    ("builtins", "breakpoint"): "debugger",
    ("pdb", "set_trace"): "debugger",
    ("code", "interact"): "debugger",
    ("sys", "_getframe"): "frames",
    ("sys", "_current_frames"): "frames",
    ("sys", "modules"): "sys.modules",
    ("sys", "settrace"): "frames",
    ("sys", "setprofile"): "frames",
    ("inspect", "currentframe"): "frames",
    ("inspect", "stack"): "frames",
    ("inspect", "trace"): "frames",
    ("gc", "get_objects"): "gc",
    ("gc", "get_referrers"): "gc",
    ("gc", "get_referents"): "gc",
    ("IPython.core.getipython", "get_ipython"): "get_ipython",
    ("IPython", "get_ipython"): "get_ipython",
    ("runpy", "run_path"): "runpy",
}
REASON_OF_ATTRIBUTE: Final = {
    "f_globals": "frames",
    "f_locals": "frames",
    "f_back": "frames",
    "f_builtins": "frames",
    "tb_frame": "frames",
    "gi_frame": "frames",
    "cr_frame": "frames",
    "ag_frame": "frames",
    "__globals__": "globals",
    "__builtins__": "globals",
    "user_ns": "get_ipython",
    "user_global_ns": "get_ipython",
    "user_module": "get_ipython",
}
BUILTINS_ASKED: Final = frozenset({"exec", "eval", "globals", "locals", "vars", "dir", "breakpoint"})
IMPORTERS: Final = frozenset({"__import__", "import_module"})
ANY_ATTRIBUTE: Final = frozenset(
    {"attrgetter", "methodcaller", "__getattribute__", "__getattr__", "__dict__", "getmembers"}
)
ANY_ATTRIBUTE_BUILTINS: Final = frozenset({"getattr", "vars", "dir"})
ASKS_BY_TEXT: Final = frozenset(
    {"query", "eval", "sql", "evaluate", "execute", "from_formula", "dmatrix", "dmatrices", "ols", "glm"}
    | {"logit", "probit", "poisson", "mixedlm", "wls", "gls"}
)
"""what finds names of the caller in a text: data frames' queries, SQL on frames, formulas"""
BIRTH: Final = frozenset(
    {"__init__", "__new__", "__post_init__", "__init_subclass__", "__class_getitem__", "__set_name__"}
    | {"__prepare__", "__mro_entries__"}
)
"""run when a class is made or called, not when an object is used"""
DECORATORS: Final = {
    "builtins": {"property", "staticmethod", "classmethod"},
    "functools": {"lru_cache", "cache", "cached_property", "total_ordering", "singledispatch"},
    "contextlib": {"contextmanager", "asynccontextmanager"},
    "dataclasses": {"dataclass"},
    "abc": {"abstractmethod"},
    "typing": {"overload", "final", "no_type_check", "runtime_checkable", "override"},
    "enum": {"unique"},
}
"""decorators that look at a function or class and do not call it"""
HARMLESS_MODULES: Final = frozenset(DECORATORS) | {"collections", "operator", "reprlib", "numbers"}
"""modules whose functions call what they hold, and an object's hooks, and no other of its methods"""
