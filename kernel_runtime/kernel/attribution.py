# ruff: noqa: SLF001
# Thread._bootstrap_inner is where a thread begins; there is no public place.
"""Whose output is it: one context variable says which request a piece of code runs for.

asyncio tasks copy their context when they are made, so they keep the request they were started in.
Threads do not (before Python 3.14), so starting one, and handing work to a thread pool, is wrapped
here to carry it over. Code that reaches us on a thread nobody here saw start belongs to no request:
its output is unowned, never given to whatever happens to run.
"""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import wraps
from typing import Any

from kernel_runtime.kernel.jsonpack import pack


class Parent:
    """A request: its message, the identities to answer, and its header's raw JSON."""

    __slots__ = ("header", "ident", "message", "raw")

    def __init__(self, message: dict[str, Any], ident: list[bytes], raw: bytes) -> None:
        self.message = message
        self.header: dict[str, Any] = message.get("header", {})
        self.ident = ident
        self.raw = raw


NOBODY = Parent({}, [], b"{}")
current: ContextVar[Parent] = ContextVar("krt_parent", default=NOBODY)


class ParentHeader:
    """The `parent_header` protocol of ipykernel's output objects, on the one variable.

    Also `set_parent`, `set_thread_parent` and `reset_thread_parent`, which programs call to have a
    thread's output shown under another request.
    """

    @property
    def parent_header(self) -> dict[str, Any]:
        return current.get().header

    @parent_header.setter
    def parent_header(self, header: dict[str, Any]) -> None:
        current.set(from_header(header))

    def set_parent(self, parent: dict[str, Any]) -> None:
        current.set(from_header(parent))

    def set_thread_parent(self, parent: dict[str, Any]) -> Any:
        return current.set(from_header(parent))

    def reset_thread_parent(self, token: Any) -> None:
        current.reset(token)


def from_header(message: dict[str, Any]) -> Parent:
    """The Parent of a message, or of a bare header."""
    if not message:
        return NOBODY
    if "header" not in message:
        message = {"header": message}
    known = current.get()
    if known.header is message["header"]:
        return known
    return Parent(message, [], pack(message["header"]))


def install() -> None:
    """Make new threads and pool jobs carry the request of whoever starts them. Once per process."""
    start, bootstrap = threading.Thread.start, threading.Thread._bootstrap_inner  # type: ignore[attr-defined]
    submit: Callable[..., Any] = ThreadPoolExecutor.submit
    spawn: Callable[..., int] = _thread.start_new_thread

    @wraps(start)
    def start_here(self: threading.Thread) -> None:
        self._krt_parent = current.get()  # type: ignore[attr-defined]
        start(self)

    @wraps(bootstrap)
    def bootstrap_there(self: threading.Thread) -> None:
        parent = self.__dict__.pop("_krt_parent", NOBODY)
        self.__dict__["_krt_started_by"] = parent.header.get("msg_id")
        current.set(parent)
        bootstrap(self)

    @wraps(submit)
    def submit_here(self: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return submit(self, _carried(fn), *args, **kwargs)

    @wraps(spawn)
    def spawn_here(function: Callable[..., Any], *rest: Any) -> int:
        return spawn(_carried(function), *rest)

    threading.Thread.start = start_here  # type: ignore[method-assign]
    threading.Thread._bootstrap_inner = bootstrap_there  # type: ignore[attr-defined]
    ThreadPoolExecutor.submit = submit_here  # type: ignore[assignment,method-assign]
    _thread.start_new_thread = spawn_here
    if hasattr(_thread, "start_new"):
        _thread.start_new = spawn_here


def _carried(function: Callable[..., Any]) -> Callable[..., Any]:
    parent = current.get()
    if parent is NOBODY:
        return function

    def run(*args: Any, **kwargs: Any) -> Any:
        token = current.set(parent)
        try:
            return function(*args, **kwargs)
        finally:
            current.reset(token)

    return run
