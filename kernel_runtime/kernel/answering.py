"""What the supervisor asks the kernel on the control channel: `krt_probe_request` in, `krt_probe_reply` out.

Answered on the control thread, so also while a cell runs; silent only while something holds the GIL.
An answer is content `{"ok": true, "result"}` or `{"ok": false, "error": {"ename", "evalue"}}`. Nothing
here changes the heap, but for what an expression does that its author declared free of side effects.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kernel_runtime.kernel import settings
from kernel_runtime.kernel.attribution import NOBODY, current
from kernel_runtime.kernel.describe import describe
from kernel_runtime.kernel.environment import running_environment

if TYPE_CHECKING:
    from kernel_runtime.kernel.kernel import SessionKernel

THREAD_PREFIX = "krt-"
"""names of threads that are the kernel's own begin so"""

_FRAMES = 20
_REPR_MAX = 2000
_DEEPEST = 50

Respond = Callable[[dict[str, Any]], None]


class Answering:
    """One function per op. `Respond` is called once, from any thread."""

    def __init__(self, kernel: SessionKernel) -> None:
        self._kernel = kernel
        self.ops: dict[str, Callable[[Mapping[str, Any], Respond], None]] = {
            "stack": lambda _, respond: respond({"frames": main_stack()}),
            "evaluate": self._evaluate,
            "snapshot": lambda asked, respond: respond(
                kernel.observer.heap.snapshot(float(asked.get("seconds") or 1.0))
            ),
            "world": lambda _, respond: respond(settings.world()),
            "describe": self._describe,
            "environment": lambda _, respond: respond(running_environment()),
        }

    def request(self, stream: Any, ident: list[bytes], message: dict[str, Any]) -> None:
        """Handler of `krt_probe_request`, on the control thread."""
        session = self._kernel.session
        assert session is not None

        def send(content: dict[str, Any]) -> None:
            session.send(stream, "krt_probe_reply", content, parent=message, ident=ident)

        def respond(result: dict[str, Any]) -> None:
            self._loop.add_callback(send, {"ok": True, "result": result})

        asked = message.get("content") or {}
        try:
            self.ops[str(asked.get("op"))](asked, respond)
        except Exception as error:  # noqa: BLE001 - whoever asks is told
            described = {"ename": type(error).__name__, "evalue": str(error)[:_REPR_MAX]}
            send({"ok": False, "error": described})

    def _describe(self, asked: Mapping[str, Any], respond: Respond) -> None:
        assert self._kernel.shell is not None
        respond(describe(self._kernel.shell.user_ns, str(asked.get("name", ""))))

    def _evaluate(self, asked: Mapping[str, Any], respond: Respond) -> None:
        """The value of an expression, in a thread that is told to stop when the time is up."""
        expression = str(asked.get("expression", ""))
        seconds = float(asked.get("timeout") or 1.0)
        code = compile(expression, "<claim>", "eval")
        assert self._kernel.shell is not None
        namespace = self._kernel.shell.user_ns
        answered = threading.Lock()

        def answer(result: dict[str, Any]) -> None:
            if answered.acquire(blocking=False):
                respond(result)

        def run() -> None:
            current.set(NOBODY)
            try:
                # what it binds with := goes with this dict
                answer(described(eval(code, namespace, {})))  # noqa: S307 - declared by its author
            except BaseException as error:  # noqa: BLE001 - its outcome, whatever it is
                answer({"error": {"ename": type(error).__name__, "evalue": _text(error)}})

        worker = threading.Thread(target=run, name=f"{THREAD_PREFIX}evaluate", daemon=True)
        worker.start()

        def expire() -> None:
            if answered.acquire(blocking=False):
                respond(
                    {"error": {"ename": "TimeoutError", "evalue": f"no value within {seconds:g} seconds"}}
                )
                _raise_in(worker, TimeoutError)

        self._loop.call_later(seconds, expire)

    @property
    def _loop(self) -> Any:
        """The control thread's."""
        assert self._kernel.control_stream is not None
        return self._kernel.control_stream.io_loop


def main_stack() -> list[dict[str, Any]]:
    """Frames of the main thread, the innermost first: `{"file", "line", "function"}` of each."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001 - the documented way
    frames: list[dict[str, Any]] = []
    while frame is not None and len(frames) < _FRAMES:
        code = frame.f_code
        frames.append({"file": code.co_filename, "line": frame.f_lineno, "function": code.co_name})
        frame = frame.f_back
    return frames


def described(value: Any) -> dict[str, Any]:
    """`{"value", "type"}` of what JSON can hold, else `{"repr", "type"}`."""
    result: dict[str, Any] = {"type": type(value).__name__, "repr": repr(value)[:_REPR_MAX]}
    if _is_plain(value, _DEEPEST):
        result["value"] = value
    return result


def _is_plain(value: Any, depth: int) -> bool:
    kind = type(value)
    if value is None or kind in (bool, str):
        return True
    if kind is int:
        return bool(value.bit_length() < 64)
    if kind is float:
        return bool(value - value == 0)  # neither NaN nor an infinity
    if depth and kind is list:
        return len(value) <= _REPR_MAX and all(_is_plain(item, depth - 1) for item in value)
    if depth and kind is dict:
        return len(value) <= _REPR_MAX and all(
            type(key) is str and _is_plain(item, depth - 1) for key, item in value.items()
        )
    return False


def _text(error: BaseException) -> str:
    try:
        return str(error)[:_REPR_MAX]
    except Exception:  # noqa: BLE001 - its own __str__ raises; the class's name is told all the same
        return ""


def _raise_in(thread: threading.Thread, error: type[BaseException]) -> None:
    """Ask a thread to end: it sees the exception when it next runs Python code, and in no native call."""
    if thread.ident is not None and thread.is_alive():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(error))
