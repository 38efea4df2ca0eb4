"""Journals in shared documents: each room of a session's notebook gets a keeper, for as long as it is there.

Only while a notebook is open on this server is there anything to do: otherwise the session's supervisor
writes the file as ever. A room is met before it reads its file where jupyter-collaboration adds it, and at
the latest in the next look at all rooms, which also finds notebooks that became a session's while open.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol

from jupyter_server_ydoc.app import YDocExtension  # type: ignore[import-untyped]
from jupyter_server_ydoc.rooms import DocumentRoom  # type: ignore[import-untyped]

from kernel_runtime.client import session_files
from kernel_runtime.client.session import AsyncSession
from kernel_runtime.errors import KernelRuntimeError
from kernel_runtime.jupyter.mirror_document import clocks
from kernel_runtime.jupyter.room import SessionRoom, adopt, give_back, is_notebook
from kernel_runtime.jupyter.room_keeper import RoomKeeper

log = logging.getLogger("kernel_runtime.jupyter")

LOOK = 1.0
"""seconds between two looks at all rooms"""
PRINCIPAL = "system"
_TYPED = 0.01
"""seconds between two looks at whether what a page typed has come"""
_LEAVE = 15.0
"""seconds that the server's end waits for what is open to be saved; leases end with the process"""


class Known(Protocol):
    """A session that the server knows."""

    @property
    def name(self) -> str: ...


class KnownSessions(Protocol):
    """What is looked up: `clients.Attached` has it."""

    def by_path(self, path: str) -> Known | None: ...


class _Keeper(RoomKeeper):
    """A keeper that leaves once, to the end, whoever asks for it and whoever of them stops waiting."""

    _leaving: asyncio.Task[None] | None = None

    def __init__(self, session: AsyncSession, leaving: set[asyncio.Task[None]]) -> None:
        super().__init__(session)
        self._all_leaving = leaving

    async def leave(self) -> None:
        if self._leaving is None:
            self._leaving = asyncio.get_running_loop().create_task(super().leave())
            self._all_leaving.add(self._leaving)
            self._leaving.add_done_callback(self._all_leaving.discard)
        await asyncio.shield(self._leaving)


class Mirrors:
    """All of a server's."""

    def __init__(self, serverapp: Any, attached: KnownSessions) -> None:
        self._serverapp = serverapp
        self._attached = attached
        self._kept: dict[str, tuple[SessionRoom, RoomKeeper, str]] = {}
        """by room id, with the session's name"""
        self._leaving: set[asyncio.Task[None]] = set()
        """of keepers that are on their way out: a room that ends is no longer among those above"""
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        extension = self._serverapp.extension_manager.extension_points["jupyter_server_ydoc"].app
        assert isinstance(extension, YDocExtension)
        rooms = extension.ywebsocket_server
        add = rooms.add_room

        def add_room(path: str, room: Any) -> None:
            add(path, room)
            self._meet(path, room)

        rooms.add_room = add_room
        self._rooms = rooms
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def stop(self) -> None:
        """Save what is open and let the supervisors write again."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        kept, self._kept = self._kept, {}
        ends = [keeper.leave() for _, keeper, _ in kept.values()]
        with suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE):
                await asyncio.gather(*ends, *self._leaving, return_exceptions=True)
        # what is cut off has to end before the loop does: its threads last as long as it, and Python
        # waits for its threads
        cut = list(self._leaving)
        for task in cut:
            task.cancel()
        await asyncio.gather(*cut, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            for path, (room, keeper, name) in list(self._kept.items()):
                if self._rooms.rooms.get(path) is not room:
                    del self._kept[path]
                    await keeper.leave()
                elif self._session_of(room) != name:
                    del self._kept[path]
                    await keeper.leave()
                    give_back(room)
            for path, room in list(self._rooms.rooms.items()):
                self._meet(path, room)

    async def has_all(self, name: str, state: bytes, within: float) -> bool:
        """Wait for what a page has of the session's document, as a state vector; False: the time is up.

        A document that has nothing in common with it is another one, which nobody waits for.

        Raises:
            ValueError: it is no state vector.
        """
        wanted = clocks(state)
        deadline = time.monotonic() + within
        while any(_lacks(room, wanted) for room, _, kept in self._kept.values() if kept == name):
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(_TYPED)
        return True

    def _session_of(self, room: DocumentRoom) -> str | None:
        try:
            known = self._attached.by_path(room._file.path)  # noqa: SLF001 - pinned by tests/jupyter/test_room_contract.py
        except RuntimeError:  # its file was removed
            return None
        return None if known is None else known.name

    def _meet(self, path: str, room: Any) -> None:
        """Keep the room if it is of a session's notebook."""
        if path in self._kept or not is_notebook(room):
            return
        name = self._session_of(room)
        if name is None:
            return
        try:
            session = AsyncSession(session_files.load(name), PRINCIPAL)
        except KernelRuntimeError as error:
            log.info("session %s: %s", name, error.message)
            return
        keeper = _Keeper(session, self._leaving)
        adopted = adopt(room, keeper)
        keeper.keep(adopted)
        self._kept[path] = (adopted, keeper, name)
        log.info("session %s: its notebook is open", name)
        if adopted.ready:
            keeper.loaded()


def _lacks(room: SessionRoom, wanted: Mapping[int, int]) -> bool:
    there = clocks(room.notebook.ydoc.get_state())
    known = not there.keys().isdisjoint(wanted)
    return known and any(there.get(client, 0) < clock for client, clock in wanted.items())
