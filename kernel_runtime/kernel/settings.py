"""The kernel's own view of its world: everything that is neither heap nor file, and that cells depend on.

`world()` is `{item: {"value", "digest"}}`; two worlds are compared by their digests, which are of the
value as shown (so a secret that changed behind its mask does not show). A thing that cannot be read
now is `{"value": None, "why"}`, and has no digest.

Invariant: it may be called from any thread while a cell runs; it imports nothing, waits for no lock,
and runs no code of the user's: values are shown only where their type is exactly a plain one.

Not promised: one instant. A cell that runs meanwhile may change an item after another was read.
What Python keeps per thread and context (numpy's print options and error state, the decimal context)
is as of the last `note()`, which the main thread makes after each cell.
"""

from __future__ import annotations

import _locale
import _random
import fcntl
import json
import os
import random
import re
import resource
import sys
import threading
from collections.abc import Callable, Iterable
from hashlib import blake2b
from types import CoroutineType
from typing import Any

from kernel_runtime.core.masking import mask_environment
from kernel_runtime.kernel import volatility
from kernel_runtime.kernel.audited import type_name

_MAX_FILES = 200
_MAX_ITEMS = 200
_TEXT = 300
_DEPTH = 6
_GETSTATE = _random.Random.getstate
_RLIMITS = {name[7:].lower(): getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}

_own_files: dict[str, str] = {}
_own_directories: list[str] = []
_started: list[bool] = []
_noted: dict[str, Any] = {}

Value = dict[str, Any] | list[Any] | str | int | float | None


class _Unreadable(Exception):
    """Why an item cannot be read now."""


def start(own: Iterable[str] = ()) -> None:
    """Name directories of the runtime's, whose files are not the user's."""
    _own_directories.extend(os.path.join(path, "") for path in own)


def volatile(own_threads: Iterable[threading.Thread] = ()) -> list[str]:
    """What may change the heap between executions; see volatility.py. On the main thread."""
    _baseline()
    return volatility.volatile(own_threads)


def note() -> None:
    """Remember what only the main thread can see. After each cell, on the main thread."""
    noted: dict[str, Any] = {}
    if (options := getattr(_loaded("numpy._core.printoptions"), "format_options", None)) is not None:
        noted["numpy.printoptions"] = dict(options.get())
    elif type(options := getattr(_loaded("numpy.core.arrayprint"), "_format_options", None)) is dict:
        noted["numpy.printoptions"] = dict(options)
    if (numpy := _loaded("numpy")) is not None and "geterr" in vars(numpy):
        noted["numpy.errstate"] = numpy.geterr()
    if (decimal := _loaded("_decimal")) is not None:
        noted["decimal"] = repr(decimal.getcontext())
    _noted.clear()
    _noted.update(noted)


def world() -> dict[str, dict[str, Any]]:
    """Every item with its value and digest."""
    _baseline()
    if threading.get_ident() == threading.main_thread().ident:
        note()
    items: dict[str, dict[str, Any]] = {}
    for name, look in _ITEMS.items():
        try:
            value = look()
        except _Unreadable as why:
            items[name] = {"value": None, "why": str(why)}
        except Exception as error:  # noqa: BLE001 - libraries differ, and one item must not cost the others
            items[name] = {"value": None, "why": f"could not be read: {type_name(error)}"}
        else:
            if value is not None:
                items[name] = {"value": value, "digest": digest(value)}
    return items


def digest(value: Value) -> str:
    """`blake2b:HEX` of a value as JSON."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return _hashed(text.encode())


def differences(
    before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]
) -> dict[str, bool | None]:
    """For each item of either world: whether it differs; None if that is not known."""
    found: dict[str, bool | None] = {}
    for name in before.keys() | after.keys():
        was, now = before.get(name), after.get(name)
        if was is None or now is None:
            found[name] = True
        elif "digest" in was and "digest" in now:
            found[name] = was["digest"] != now["digest"]
        else:
            found[name] = None
    return found


def _baseline() -> None:
    """What is there when it is asked for the first time, before the first cell, is the kernel's own."""
    if not _started:
        _started.append(True)
        volatility.start()
        _own_files.update((fd, _link(fd)) for fd in os.listdir("/proc/self/fd"))


# -- items


def _cwd() -> Value:
    try:
        return os.readlink("/proc/self/cwd")
    except OSError as error:
        raise _Unreadable(str(error.strerror)) from None


def _environment() -> Value:
    data = getattr(os.environ, "_data", None)
    if type(data) is not dict:
        raise _Unreadable("os.environ was replaced")
    return mask_environment({os.fsdecode(name): os.fsdecode(value) for name, value in list(data.items())})


def _umask() -> Value:
    # not os.umask, which can only be asked by setting it: a cell may be making files just now
    with open("/proc/self/status", "rb") as file:
        found = dict(line.split(b":\t", 1) for line in file.read().splitlines() if b":\t" in line)
    return found[b"Umask"].strip().decode()


def _python_random() -> Value:
    generator = vars(random).get("_inst")
    if type(generator) is not random.Random:
        raise _Unreadable("random._inst was replaced")
    return _hashed(repr((_GETSTATE(generator), plain(vars(generator).get("gauss_next")))).encode())


def _numpy_random() -> Value:
    generator = getattr(_loaded("numpy.random.mtrand"), "_rand", None)
    if generator is None:
        return None
    bits = generator._bit_generator  # noqa: SLF001
    if type(bits).__module__.partition(".")[0] != "numpy":
        raise _Unreadable(f"the bit generator is a {type_name(bits)}")
    if not bits.lock.acquire(blocking=False):
        raise _Unreadable("numbers are being drawn")
    try:
        state = generator.get_state(legacy=False)
        parts = {
            name: value.tobytes().hex() if hasattr(value, "tobytes") else value
            for name, value in state["state"].items()
        }
        return _hashed(repr((state["bit_generator"], parts, state["has_gauss"], state["gauss"])).encode())
    finally:
        bits.lock.release()


def _torch_random() -> Value:
    generator = vars(_loaded("torch.random") or object).get("default_generator")
    if generator is None:
        return None
    return _hashed(bytes(generator.get_state().numpy().data))


def _pandas() -> Value:
    module = _loaded("pandas._config.config")
    if module is None:
        return None
    changed: dict[str, Any] = {}
    for key, option in list(module._registered_options.items()):  # noqa: SLF001
        here: Any = module._global_config  # noqa: SLF001
        for part in key.split("."):
            here = here[part]
        shown = plain(here)
        if here is not option.defval and shown != plain(option.defval):
            changed[key] = shown
    return changed


def _noted_item(name: str) -> Callable[[], Value]:
    def look() -> Value:
        return plain(_noted[name]) if name in _noted else None

    return look


def _matplotlib() -> Value:
    module = _loaded("matplotlib")
    now, default = getattr(module, "rcParams", None), getattr(module, "rcParamsDefault", None)
    if not isinstance(now, dict) or not isinstance(default, dict):
        return None
    changed = {}
    # dict's own methods: asking rcParams for its backend would choose and import one
    for key, value in list(dict.items(now)):
        shown = _cycle(value)
        if shown != _cycle(dict.get(default, key)):
            changed[str(key)] = shown
    backend = dict.get(now, "backend")
    return {"backend": backend if type(backend) is str else "not chosen yet", "changed": changed}


def _cycle(value: Any) -> Any:
    return repr(value) if type(value).__module__ == "cycler" else plain(value)


def _warnings() -> Value:
    filters = vars(_loaded("warnings") or object).get("filters")
    if type(filters) is not list:
        raise _Unreadable("warnings.filters was replaced")
    return {"count": len(filters), "filters": [_filter(entry) for entry in filters[:_MAX_ITEMS]]}


def _filter(entry: Any) -> Any:
    if type(entry) is not tuple or len(entry) != 5:
        return plain(entry)
    action, message, category, module, line = entry
    patterns = [part.pattern if type(part) is re.Pattern else part for part in (message, module)]
    return [plain(action), plain(patterns[0]), _class(category), plain(patterns[1]), plain(line)]


def _class(value: Any) -> str:
    if not issubclass(type(value), type):
        return f"<{type_name(value)}>"
    return str(type.__dict__["__name__"].__get__(value))


def _rlimits() -> Value:
    return {name: list(resource.getrlimit(number)) for name, number in _RLIMITS.items()}


def _threads() -> Value:
    return [
        {
            "name": name,
            "daemon": plain(state.get("_daemonic")),
            "native_id": plain(state.get("_native_id")),
            "started_by": plain(state.get("_krt_started_by")),
        }
        for name, state in volatility.user_threads()[:_MAX_ITEMS]
    ]


def _tasks() -> Value:
    found = []
    for name, coroutine in volatility.user_tasks()[:_MAX_ITEMS]:
        known = type(coroutine) is CoroutineType
        found.append(
            {"name": plain(name), "runs": coroutine.cr_code.co_qualname if known else type_name(coroutine)}
        )
    return found


def _open_files() -> Value:
    found = []
    for fd in sorted(map(int, os.listdir("/proc/self/fd"))):
        link = _link(str(fd))
        if not link.startswith("/") or _own_files.get(str(fd)) == link:
            continue
        if link.startswith(("/memfd:", "/proc/", *_own_directories)):
            continue
        try:
            access = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
        except OSError:  # closed meanwhile
            continue
        found.append({"fd": fd, "path": link, "mode": ("r", "w", "r+")[access]})
    return found[:_MAX_FILES]


_ITEMS: dict[str, Callable[[], Value]] = {
    "cwd": _cwd,
    "environment": _environment,
    "umask": _umask,
    "random": _python_random,
    "numpy.random": _numpy_random,
    "torch.random": _torch_random,
    "pandas.options": _pandas,
    "numpy.printoptions": _noted_item("numpy.printoptions"),
    "numpy.errstate": _noted_item("numpy.errstate"),
    "decimal": _noted_item("decimal"),
    "matplotlib": _matplotlib,
    "warnings": _warnings,
    "locale": lambda: _locale.setlocale(_locale.LC_ALL),
    "recursion_limit": sys.getrecursionlimit,
    "rlimits": _rlimits,
    "threads": _threads,
    "tasks": _tasks,
    "open_files": _open_files,
}


def plain(value: Any, depth: int = _DEPTH) -> Any:
    """A value as JSON where it is made of exactly plain types; anything else by its type."""
    kind = type(value)
    if value is None or kind is bool or kind is int:
        return value
    if kind is float:
        return value if value - value == 0 else repr(value)
    if kind is str:
        return value if len(value) <= _TEXT else value[:_TEXT] + "…"
    if kind is list or kind is tuple:
        return [plain(item, depth - 1) for item in value[:_MAX_ITEMS]] if depth > 0 else "…"
    if kind is dict:
        if depth <= 0:
            return "…"
        return {
            plain(key) if type(key) is str else str(plain(key)): plain(item, depth - 1)
            for key, item in list(value.items())[:_MAX_ITEMS]
        }
    return f"<{type_name(value)}>"


def _loaded(name: str) -> Any:
    """A module that somebody has imported, whole; never one that is being imported just now."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    return None if getattr(spec, "_initializing", False) else module


def _link(fd: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""


def _hashed(data: bytes) -> str:
    return "blake2b:" + blake2b(data, digest_size=16).hexdigest()
