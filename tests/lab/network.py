"""The network between a browser and its server: a port that forwards to the server's, until it is cut.

Cut, it resets what goes through it and refuses what comes anew, as a cable that was pulled; whole again, it
answers at the same address. Nothing is delayed or changed on the way.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")
_CHUNK = 1 << 16


class Network:
    """`base` is where the server is found through it."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._port = 0
        self._server: asyncio.Server | None = None
        self._through: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)
        self._thread.start()
        self.mend()

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def cut(self) -> int:
        """Reset every connection and refuse new ones; how many there were."""
        return self._do(self._cut())

    def mend(self) -> None:
        """Let everything through."""
        self._do(self._listen())

    def close(self) -> None:
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, what: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(20)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def _cut(self) -> int:
        if self._server is not None:
            self._server.close()
            self._server = None
        cut = list(self._through)
        for task in cut:
            task.cancel()
        await asyncio.gather(*cut, return_exceptions=True)
        return len(cut)

    async def _serve(self, near_in: asyncio.StreamReader, near_out: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._through.add(task)
        ends = [near_out]
        try:
            far_in, far_out = await asyncio.open_connection("127.0.0.1", self._target)
            ends.append(far_out)
            async with asyncio.TaskGroup() as both:
                both.create_task(_pass(near_in, far_out))
                both.create_task(_pass(far_in, near_out))
        except (OSError, BaseExceptionGroup, asyncio.CancelledError):
            pass  # one end left, or the network was cut: the other end is told below
        finally:
            for end in ends:
                end.transport.abort()
            self._through.discard(task)


async def _pass(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(_CHUNK):
        sink.write(data)
        await sink.drain()
    # the one half is done; HTTP's other half may still answer
    sink.write_eof()


@contextlib.contextmanager
def network(port: int) -> Iterator[Network]:
    """A network to the server on that port."""
    between = Network(port)
    try:
        yield between
    finally:
        between.close()
