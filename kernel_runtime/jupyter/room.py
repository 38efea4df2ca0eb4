"""The room of a session's notebook: a stock one, but for who saves, when, and what a change on disk does.

A room that is adopted hands to its keeper what a stock one does by itself: every change of the document,
every save, and what it does when the file was changed by somebody else, which is to overwrite what people
have open. Rooms of other documents stay as they are.

Private names of jupyter-collaboration are used here and nowhere else in this package;
tests/jupyter/test_room_contract.py pins them.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Collection
from contextlib import suppress
from typing import Any, Protocol

from jupyter_server_ydoc.rooms import DocumentRoom  # type: ignore[import-untyped]
from jupyter_server_ydoc.utils import LogLevel, OutOfBandChanges  # type: ignore[import-untyped]
from jupyter_ydoc import YNotebook
from pycrdt.store import YDocNotFound

from kernel_runtime.jupyter.contents import OpenFile, Overtaken
from kernel_runtime.jupyter.mirror_document import ORIGIN

NOTES = "kernel_runtime_notes"
"""key in the document's state: what people are told, `[{"id", "at", "text"}]`, the latest last"""
_MOST_NOTES = 10
_DRAIN = 5.0
"""seconds"""


class Keeper(Protocol):
    """What a room of ours asks."""

    disk: OpenFile
    """what was seen of the file"""

    async def before_load(self) -> None:
        """The file is about to be read."""

    def reconcile(self, content: dict[str, Any]) -> None:
        """The document was kept from when it was last open, and the file holds this."""

    def loaded(self) -> None:
        """The document holds what the file held."""

    def changed(self, target: str, outputs: Collection[int] = ()) -> None:
        """The document changed: `state`, `meta` or `cells`, the outputs of the cells at those places."""

    async def save(self) -> None:
        """Somebody asked for the file to be written."""

    async def changed_on_disk(self) -> None:
        """Somebody else wrote the file."""

    async def leave(self) -> None:
        """The room is about to end."""


class SessionRoom(DocumentRoom):  # type: ignore[misc]
    """Made of a stock room by `adopt`."""

    keeper: Keeper
    ready: bool

    async def initialize(self) -> None:
        if self.ready:
            return
        await self.keeper.before_load()
        if not await self._read_store():
            with self.keeper.disk.current():
                await super().initialize()
            if self._document_load_progressively:
                await self._document_progressively_loaded
        else:
            content = await self.read_file()
            async with self._update_lock:
                self.keeper.reconcile(content)
                await self.ystore.encode_state_as_update(self.ydoc)
                self.ready = True
            self._emit(LogLevel.INFO, "initialize", "Room initialized")
        # what is written before that, neither pages nor the store are told of
        await self.ydoc_observed.wait()
        self.keeper.loaded()

    async def _read_store(self) -> bool:
        """Whether the document was kept from when it was last open; then it holds that now."""
        if self.ystore is None:
            return False
        async with self.ystore.start_lock:
            if not self.ystore.started.is_set():
                self.create_task(self.ystore.start())
                await self.ystore.started.wait()
        async with self._update_lock:
            try:
                await self.ystore.apply_updates(self.ydoc)
            except YDocNotFound:
                return False
        return True

    def _on_document_change(self, target: str, event: Any) -> None:
        if not self._update_lock.locked():
            self.keeper.changed(target, _with_outputs(event) if target == "cells" else ())

    async def _maybe_save_document(
        self, saving_document: asyncio.Task[None] | None, save_now: bool = False
    ) -> None:
        if save_now:
            await self.keeper.save()

    async def _on_outofband_change(self) -> None:
        await self.keeper.changed_on_disk()

    async def stop(self) -> None:
        await self.keeper.leave()
        await self._drain()
        await super().stop()

    async def _drain(self) -> None:
        """Have what was written last told to pages and kept, before the room ends.

        A stock room that ends over an update ends the tasks of all other rooms with it, and one that ends
        over a write into its store leaves the store locked for seconds.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN):
                stream = self._update_receive_stream
                while stream.statistics().current_buffer_used:  # noqa: ASYNC110 - it does not tell when it is empty
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0)  # the last write is at the store's lock
                if self.ystore is not None and hasattr(self.ystore, "lock"):
                    async with self.ystore.lock:
                        pass

    async def _broadcast_updates(self) -> None:
        try:
            await super()._broadcast_updates()
        except AttributeError:
            if self._task_group is not None:
                raise
            # it ended over an update; see `_drain`

    # for the keeper

    @property
    def notebook(self) -> YNotebook:
        document: YNotebook = self._document
        return document

    @property
    def path(self) -> str:
        """Of its file, in the contents API."""
        return str(self._file.path)

    @property
    def save_delay(self) -> float | None:
        """Seconds from a change to the save; None: only when asked to."""
        delay: float | None = self._save_delay
        return delay

    @property
    def autosaves(self) -> bool:
        """Whether anybody who has it open wants it saved without asking."""
        wishes = [state.get("autosave", True) for state in self.awareness.states.values() if state]
        return any(wishes) if wishes else True

    async def read_file(self) -> dict[str, Any]:
        """The notebook on disk, which from now on is what a save expects to find there."""
        with self.keeper.disk.current():
            model = await self._file.load_content(self._file_format, self._file_type)
        content: dict[str, Any] = model["content"]
        return content

    async def write_file(self, content: dict[str, Any]) -> bool:
        """Write it; False: somebody else wrote the file since it was last read or written here.

        Raises:
            Whatever the server's contents manager does.
        """
        model = {"format": self._file_format, "type": self._file_type, "content": content}
        try:
            with self.keeper.disk.current():
                saved = await self._file.maybe_save_content(model)
        except (OutOfBandChanges, Overtaken):
            return False
        if saved:
            async with self._update_lock:
                self._document.dirty = False
                self._document.hash = saved["hash"]
        self._emit(LogLevel.INFO, "save", "Content saved.")
        return True

    def tell(self, note: str) -> None:
        """Show something to everybody who has it open, and to who opens it next.

        It goes into the document's state. A warning of jupyter-collaboration's would be shown as one, too:
        that the file "has been opened with two different views", whatever the note says.
        """
        notes = self._document.ystate.get(NOTES)
        notes = [*notes] if isinstance(notes, list) else []
        new = {"id": secrets.token_hex(8), "at": time.time(), "text": note}
        with self._document.ydoc.transaction(origin=ORIGIN):
            self._document.ystate[NOTES] = [*notes, new][-_MOST_NOTES:]
        self._emit(LogLevel.INFO, None, note)

    def complain(self, error: Exception) -> None:
        """The file could not be written or read: say so as a stock room does."""
        message = f"Error saving file: {self._file.path}\n{error!r}"
        self.log.error(message, exc_info=error)
        self._emit(LogLevel.ERROR, None, message)


def _with_outputs(events: Any) -> Collection[int]:
    paths = [event.path for event in events]
    return {path[0] for path in paths if len(path) > 1 and path[1] == "outputs"}


def adopt(room: DocumentRoom, keeper: Keeper) -> SessionRoom:
    """Have the keeper asked from now on."""
    room.__class__ = SessionRoom
    assert isinstance(room, SessionRoom)
    room.keeper = keeper
    _listen(room)
    return room


def give_back(room: SessionRoom) -> None:
    """Make it a stock room again."""
    room.__class__ = DocumentRoom
    _listen(room)


def _listen(room: DocumentRoom) -> None:
    """Bind the room's callbacks to what its class is now."""
    room._document.observe(room._on_document_change)  # noqa: SLF001 - pinned, as the docstring says
    room._file.observe(room.room_id, room._on_outofband_change, room._on_filepath_change)  # noqa: SLF001


def is_notebook(room: object) -> bool:
    return isinstance(room, DocumentRoom) and room.file_type == "notebook"
