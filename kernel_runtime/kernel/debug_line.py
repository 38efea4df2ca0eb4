"""The debugger's line to the thread that runs cells, and its requests in order.

ipykernel's debugger has debugpy started by an execute_request on the kernel's shell socket and waits there
for the reply. Ours come out of the outbox, so it would wait for ever, and the control thread with it. This
stands for that socket and the session that writes to it, and runs the code itself.

It waits `PATIENCE` at most: while a cell runs, the debugger cannot be started, and says so.

debugpy's answers come in a queue without regard for who asked, so that of two requests at a time one gets the
other's. Where that happens to the look at the threads after a stop, no page ever hears of the stop; so one
waits for the other.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any

PATIENCE = 10.0
"""seconds"""


class DebugLine:
    """Socket and session at once: `send` has a request's code run, `recv` says how that ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._done: Future[None] = Future()

    def getsockopt(self, _option: int) -> bytes:
        return b""

    def send(self, _socket: object, _kind: str, content: dict[str, Any], *_rest: object) -> None:
        done: Future[None] = Future()
        self._done = done

        def run() -> None:
            if not done.set_running_or_notify_cancel():
                return  # nobody waits any more
            try:
                exec(content["code"], {})  # noqa: S102 - the debugger's own line: import debugpy, listen
            except BaseException as error:  # noqa: BLE001 - told to who waits
                done.set_exception(error)
            else:
                done.set_result(None)

        self._loop.call_soon_threadsafe(run)

    def recv(self, _socket: object, mode: int = 0) -> tuple[None, dict[str, Any]]:
        """The reply, of which ipykernel reads the status."""
        try:
            self._done.result(timeout=PATIENCE)
        except TimeoutError:
            self._done.cancel()
            return None, {"content": {"status": "aborted"}}
        except Exception:  # noqa: BLE001 - whatever debugpy raised, it does not listen
            return None, {"content": {"status": "error"}}
        return None, {"content": {"status": "ok"}}


def one_at_a_time(debugger: Any) -> None:
    """Have its requests to debugpy wait for each other."""
    turn = asyncio.Lock()
    forward = debugger._forward_message  # noqa: SLF001 - ipykernel's, held by tests/contract/test_kernel_debugger.py

    async def forward_in_turn(message: dict[str, Any]) -> Any:
        async with turn:
            return await forward(message)

    debugger._forward_message = forward_in_turn  # noqa: SLF001
