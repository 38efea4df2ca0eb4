"""What may change the heap between executions: threads, tasks, callbacks and timers of the user's.

Cheap enough to be asked before and after each cell. Whatever was there when it was asked first is the
kernel's own, and so is what runs the kernel's own code. Asked with care: no lock is taken and no
attribute of a user's class is looked up by name, so a subclass of Thread or Task runs nothing here.

Not promised: threads that native code made and that have not called Python yet; handlers of signals
that somebody else may send; finalizers.
"""

from __future__ import annotations

import _thread
import asyncio
import functools
import os
import signal
import sys
import threading
import weakref
from collections.abc import Iterable
from types import BuiltinMethodType, CoroutineType, FunctionType, MethodType
from typing import Any

from kernel_runtime.kernel.audited import type_name

_OWN_PACKAGES = ("kernel_runtime", "ipykernel", "zmq", "tornado")
_OWN_COROUTINES = ("kernel_runtime", "ipykernel")
_ASYNCIO = os.path.dirname(asyncio.__file__) + "/"
_TIMERS = (
    (signal.ITIMER_REAL, "real"),
    (signal.ITIMER_VIRTUAL, "virtual"),
    (signal.ITIMER_PROF, "profiling"),
)
_MAX = 50
_DEPTH = 4
_MAX_KNOWN = 64

_module = type.__dict__["__module__"].__get__
_thread_dict = threading.Thread.__dict__["__dict__"].__get__
_active: dict[int, threading.Thread] = threading._active  # type: ignore[attr-defined]  # noqa: SLF001
"""what enumerate() lists, for which it takes a lock"""
_Task: type[asyncio.Task[Any]] = getattr(asyncio.tasks, "_CTask", asyncio.Task)
"""the C class, which nobody overrides; not by `import _asyncio`, which breaks asyncio if it comes first"""
_own_threads: dict[int, Any] = {}
_own_files: list[tuple[str, ...]] = []
_unlisted: list[int] = []
_loops: list[Any] = []
_own_tasks: dict[int, Any] = {}
"""weak references to them"""
_own_readers: dict[int, Any] = {}


def start() -> None:
    """What runs now is the kernel's own. Called by whoever asks first; the threads are kept for it."""
    if _own_files:
        return
    _own_threads.update((id(thread), thread) for thread in list(_active.values()))
    for names in (_OWN_PACKAGES, _OWN_COROUTINES):
        files = (getattr(sys.modules.get(name), "__file__", None) for name in names)
        _own_files.append(tuple(os.path.dirname(file) + "/" for file in files if file))
    _unlisted.append(_thread._count() - len(_active))  # noqa: SLF001


def volatile(own_threads: Iterable[threading.Thread] = ()) -> list[str]:
    """`thread NAME`, `task NAME`, `callback NAME`, `timer NAME`: nothing, where the heap cannot change.

    On the main thread, within the kernel's loop. Threads in `own_threads` are the kernel's too.
    """
    if not _own_files:
        start()
    found = [f"thread {name}" for name, _ in user_threads(own_threads)]
    if _thread._count() - len(_active) + _native() > _unlisted[0]:  # noqa: SLF001
        found.append("thread started without threading")
    loop = asyncio._get_running_loop()  # noqa: SLF001
    if loop is not None and loop not in _loops:
        _loops[:] = [loop]
    found += [f"task {name}" for name, _ in user_tasks()]
    found += [f"callback {name}" for name in user_callbacks()]
    found += [f"timer {name}" for which, name in _TIMERS if signal.getitimer(which)[0]]
    return found[:_MAX]


def user_threads(own_threads: Iterable[threading.Thread] = ()) -> list[tuple[str, dict[str, Any]]]:
    """Name and instance dict of each thread that is alive, but for the kernel's and for idle pool workers."""
    own = {id(thread) for thread in own_threads}
    found = []
    for thread in list(_active.values()):
        if id(thread) in _own_threads or (own and id(thread) in own):
            continue
        state = _thread_dict(thread)
        name = plain(state.get("_name"))
        if not name.startswith(("pydevd.", "krt-")) and not _idles(thread, state):
            found.append((name, state))
    return found


def user_tasks() -> list[tuple[str, Any]]:
    """Name and coroutine of each task that is pending and not the kernel's."""
    found: list[tuple[str, Any]] = []
    for reference in _task_references():
        if id(reference) in _own_tasks:
            continue
        task = reference()
        if task is None:
            continue
        if type(task) is not _Task:
            found.append((f"of {type_name(task)}", None))
            continue
        if _Task.done(task):
            continue
        coroutine = _Task.get_coro(task)
        if type(coroutine) is CoroutineType and coroutine.cr_code.co_filename.startswith(_own_files[1]):
            _remember(_own_tasks, reference)
            continue
        found.append((_Task.get_name(task), coroutine))
    return found


def user_callbacks() -> list[str]:
    """What the kernel's loop will call that is not its own: call_later, call_soon, add_reader."""
    found = []
    for loop in _loops:
        state = getattr(loop, "__dict__", None)
        if type(state) is not dict or "_scheduled" not in state:
            found.append(f"of {type_name(loop)}")  # another kind of loop: it does not show them
            continue
        handles = [*state["_scheduled"], *state["_ready"]]
        keys = getattr(state.get("_selector"), "_fd_to_key", None)
        found += filter(None, map(_called, handles))
        for key in list(keys.values()) if type(keys) is dict else ():
            readers = key.data
            if id(readers) in _own_readers or type(readers) is not tuple:
                continue
            names = [*filter(None, map(_called, readers))]
            found += names
            if not names:
                _remember(_own_readers, readers)
    return found


def _called(handle: Any) -> str | None:
    kind = type(handle)
    if kind is not asyncio.Handle and kind is not asyncio.TimerHandle:
        return None
    if handle._cancelled:  # noqa: SLF001
        return None
    return _strange((handle._callback, handle._args), _DEPTH)  # noqa: SLF001


def _remember(known: dict[int, Any], own: Any) -> None:
    """Something of the kernel's that lasts. It is kept, so that its id stays its own."""
    if len(known) >= _MAX_KNOWN:
        known.clear()
    known[id(own)] = own


def plain(name: Any) -> str:
    """A name that a user may have set to anything."""
    return name if type(name) is str else f"<{type_name(name)}>"


def _native() -> int:
    """Threads of native code that have called Python: `threading` lists them, `_thread` counts them not."""
    if len(_active) == len(_own_threads):
        return 0
    dummy = threading._DummyThread  # noqa: SLF001
    return sum(type(thread) is dummy and id(thread) not in _own_threads for thread in list(_active.values()))


def _idles(thread: threading.Thread, state: dict[str, Any]) -> bool:
    """A worker of a ThreadPoolExecutor that waits for work, of which there is none."""
    pool = sys.modules.get("concurrent.futures.thread")
    queues = getattr(pool, "_threads_queues", None)
    if type(thread) is not threading.Thread or queues is None or thread not in queues:
        return False
    frame = sys._current_frames().get(state.get("_ident", 0))  # noqa: SLF001
    waits = _waiting_places(pool)
    queue = queues[thread]
    return frame is not None and (frame.f_code, frame.f_lasti) in waits and queue.empty()


@functools.cache
def _waiting_places(pool: Any) -> frozenset[tuple[Any, int]]:
    """Where in its code a pool's worker is while it waits for the next work item."""
    import dis

    code = pool._worker.__code__  # noqa: SLF001
    places, asked = set(), False
    for instruction in dis.get_instructions(code):
        asked = asked or (instruction.argval == "get" and instruction.opname.startswith("LOAD_"))
        if asked and instruction.opname.startswith("CALL"):
            places.add((code, instruction.offset))
            asked = False
    return frozenset(places)


def _task_references() -> list[Any]:
    """Functions that give a task, or None when it is gone by now."""
    if sys.version_info >= (3, 14):  # tasks are no longer in a set that can be copied in one step
        return [weakref.ref(task) for loop in _loops for task in asyncio.all_tasks(loop)]
    tasks = asyncio.tasks
    for name in ("_all_tasks", "_scheduled_tasks"):
        if (data := getattr(getattr(tasks, name, None), "data", None)) is not None:
            return list(data)
    return []


def _strange(value: Any, depth: int) -> str | None:
    """The name of a function in there that is neither the kernel's nor asyncio's."""
    kind = type(value)
    if kind is MethodType:
        value, kind = value.__func__, type(value.__func__)
    if kind is FunctionType:
        file = value.__code__.co_filename
        return None if file.startswith((_ASYNCIO, *_own_files[0])) else value.__code__.co_qualname
    if depth <= 0 or value is None:
        return None
    if kind is functools.partial:
        return _strange(value.func, depth) or _strange(value.args, depth)
    if kind is tuple:
        for item in value:
            if (name := _strange(item, depth - 1)) is not None:
                return name
        return None
    if kind is BuiltinMethodType and _module(type(value.__self__)) != "_asyncio":
        return str(value.__qualname__)  # `[].append` changes things as well as any function
    if _module(kind) in {"builtins", "_asyncio"}:
        return None  # a task's own step, which is told as a task, or plain data
    return f"of {type_name(value)}" if callable(value) else None
