"""How every blocking call is made: handed to the session's own loop, and waited for.

Invariant: an exception that reaches the caller first (Ctrl-C) ends the waiting and cancels the call,
never the execution it was about.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from kernel_runtime.client.session import AsyncSession
from kernel_runtime.errors import UsageError

T = TypeVar("T")


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="krt-client", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    @property
    def closed(self) -> bool:
        return self.loop.is_closed()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine that runs over there.

        An exception that arrives here first (KeyboardInterrupt) cancels it.
        """
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        if self.closed:
            return
        self.run(self._finish())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    async def _finish(self) -> None:
        """Let what was cancelled end before its loop does."""
        others = asyncio.all_tasks() - {t for t in [asyncio.current_task()] if t is not None}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self.loop.shutdown_asyncgens()
        await self.loop.shutdown_default_executor()


class BlockingCalls:
    """An async session, and the loop that its coroutines run in."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session
        self._loop = Loop()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of one of the async client's coroutines, run in this session's own loop."""
        if self._loop.closed:
            work.close()
            name = self._session.name
            raise UsageError(
                f"session {name}: this client has detached", hint=f"attach again: attach({name!r})"
            )
        return self._loop.run(work)
