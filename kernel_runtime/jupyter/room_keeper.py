"""Keeps one open notebook of a session: who writes its file, when, and that nothing of two sides is lost.

While the room is there it holds the notebook's file (`hold_notebook`) and saves the document: soon after a
change, at the latest `LATEST` seconds after the first one however much goes on, and the longer a save takes
the longer the next one waits. Where another Jupyter server holds the file, the document goes on showing
what the journal tells, and is saved only where people changed it here, merged with what is in the file.

What somebody else writes is merged (`room_merge`). Before that takes out text that people had in the
document, the document as it was is kept in a file, and everybody who has it open is told of it; where it
cannot be kept, the text stays.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Collection
from contextlib import suppress
from typing import Any

from kernel_runtime.client.session import AsyncSession
from kernel_runtime.errors import KernelRuntimeError
from kernel_runtime.jupyter.contents import OpenFile
from kernel_runtime.jupyter.mirror_document import SharedNotebook
from kernel_runtime.jupyter.mirror_follow import Follow
from kernel_runtime.jupyter.room import SessionRoom
from kernel_runtime.jupyter.room_base import KeptBase
from kernel_runtime.jupyter.room_content import as_bytes, as_saved, with_ids
from kernel_runtime.jupyter.room_merge import Base, Merged, Side, base_of, gone, merge, without
from kernel_runtime.notebook.document import joined
from kernel_runtime.notebook.put import Mark
from kernel_runtime.notebook.replaced import Replaced

log = logging.getLogger("kernel_runtime.jupyter")

LEASE = 20.0
"""seconds for which the file is held, and asked for again three times as often"""
PATIENCE = 15.0
"""seconds that opening waits for the file to be brought up to date"""
LATEST = 5.0
"""seconds until a change is saved while others follow it"""
SHARE = 10
"""a save that took t is followed by a pause of at least SHARE times t"""
_RELEASE = 3.0
"""seconds that leaving waits for the supervisor to take the file back"""
_TRIES = 5
_SETTLING = 2.0
"""seconds for which a file that cannot be read may still be in the middle of somebody's save"""
_OWN = 60.0
"""seconds for which text that another program wrote into the file is that program's own to write over"""


class RoomKeeper:
    """The keeper of one room, from before it is loaded until it ends."""

    def __init__(self, session: AsyncSession) -> None:
        self.session = session
        self.holds = False
        """whether the file is ours to write"""
        self._replaced = Replaced(session.file.directory / "replaced")
        self.disk = OpenFile(self._replaced.keep)
        self._room: SessionRoom | None = None
        self._notebook: SharedNotebook | None = None
        self._follow: Follow | None = None
        self._holder = f"jupyter-{uuid.uuid4().hex}"
        self._tasks: list[asyncio.Task[None]] = []
        self._lock = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._changed_at: float | None = None
        """of the first change that is not saved"""
        self._edited = False
        """people changed something that is not saved"""
        self._not_before = 0.0
        self._told = False
        self._base: Base | None = None
        """what document and file last had in common"""
        self._bases = KeptBase(session.file.directory)
        self._brought: dict[str, float] = {}
        """text that another program put into the document, and when"""
        self._notes: list[str] | None = []
        """to be told once the document is there"""
        self._no_notebook: Mark | None = None
        """the file that people were told cannot be read"""
        self._from_file = False
        """the document is being read from the file, or from what was kept of it"""
        self._left = False

    def keep(self, room: SessionRoom) -> None:
        self._room = room
        self._notebook = SharedNotebook(room.notebook)

    # the room asks

    async def before_load(self) -> None:
        self._from_file = True
        try:
            await asyncio.wait_for(self._hold(), PATIENCE)
        except TimeoutError:
            log.warning("session %s: its notebook opens before it is up to date", self.session.name)

    def reconcile(self, content: dict[str, Any]) -> None:
        assert self._notebook is not None
        self._merge_in(content, self._bases.read(self._notebook), derived="file")

    def loaded(self) -> None:
        assert self._notebook is not None
        if self._base is None and self._from_file:
            self._base = base_of(self._notebook.content())
            self._bases.write(self._notebook, self._base)
        self._follow = Follow(self.session, self._notebook, self._tell)
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._follow.run()), loop.create_task(self._renew())]
        for task in self._tasks:
            task.add_done_callback(_report)
        notes, self._notes = self._notes or [], None
        for note in notes:
            self._tell(note)

    def changed(self, target: str, outputs: Collection[int] = ()) -> None:
        if target == "state" or self._notebook is None or self._left:
            return
        if not self._notebook.writing:
            self._edited = True
            if outputs and self._follow is not None:
                self._follow.look_at({self._notebook.ids[at] for at in outputs})
            if self._notebook.doubled and self._follow is not None:
                asyncio.get_running_loop().call_soon(self._follow.tidy)
        if self._changed_at is None:
            self._changed_at = time.monotonic()
        self._plan()

    async def save(self) -> None:
        async with self._lock:
            await self._save()

    async def changed_on_disk(self) -> None:
        async with self._lock:
            try:
                await self._merge()
            except Exception as error:  # noqa: BLE001 - as in `_save`
                assert self._room is not None
                self._room.complain(error)
                self._tell_of_no_notebook()

    def _tell_of_no_notebook(self) -> None:
        """Tell, once, of a file that cannot be read and is not in the middle of somebody's save."""
        mark = self.disk.look()
        if mark is None or mark == self._no_notebook or time.time() - mark[1] / 1e9 < _SETTLING:
            return
        self._no_notebook = mark
        self._tell(
            "The file was replaced by something that cannot be read as a notebook. It is left as it is, and "
            "what is here is not saved until it is a notebook again."
        )

    async def leave(self) -> None:
        if self._left:
            return
        self._left = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._changed_at is not None and (self.holds or self._edited) and self._autosaves():
            await self.save()
        if self._follow is not None:
            self._follow.close()
        if self._notebook is not None:
            self._notebook.close()
        with suppress(KernelRuntimeError, TimeoutError):  # then it ends by itself
            async with asyncio.timeout(_RELEASE):
                await self.session.release_notebook(self._holder)
        await self.session.detach()

    # the lease

    async def _hold(self) -> None:
        try:
            held = await self.session.hold_notebook(self._holder, seconds=LEASE, revive=self._may_revive)
        except KernelRuntimeError as error:
            # nobody else writes it then
            log.info("session %s: its notebook is not held: %s", self.session.name, error.message)
            return
        self.holds = held.held
        if not held.held and not self._told:
            self._told = True
            self._tell(
                "This notebook is open on another Jupyter server too, which saves what is run in it. "
                "What you change here is saved as well, and shows there."
            )

    def _may_revive(self) -> bool:
        """Not if the session was stopped on purpose, or never ran: looking at it does not bring it back."""
        try:
            return not self.session.was_stopped()
        except FileNotFoundError:
            return False

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(LEASE / 3)
            await self._hold()
            if self.disk.has_changed():  # with an older date, which is not looked for
                await self.changed_on_disk()

    # saving

    def _autosaves(self) -> bool:
        room = self._room
        return room is not None and room.save_delay is not None and room.autosaves

    def _unsaved_since(self, moment: float | None) -> None:
        if moment is not None and (self._changed_at is None or moment < self._changed_at):
            self._changed_at = moment

    def _plan(self) -> None:
        """Have the document saved when it is due."""
        if not self._autosaves() or not (self.holds or self._edited):
            return
        assert self._room is not None
        assert self._changed_at is not None
        now = time.monotonic()
        due = min(now + (self._room.save_delay or 0.0), self._changed_at + LATEST)
        wait = max(due, self._not_before) - now
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(max(0.0, wait), self._due)

    def _due(self) -> None:
        self._timer = None
        task = asyncio.get_running_loop().create_task(self.save())
        self._tasks.append(task)
        task.add_done_callback(self._saved)

    def _saved(self, task: asyncio.Task[None]) -> None:
        if task in self._tasks:
            self._tasks.remove(task)
        _report(task)

    async def _save(self) -> None:
        room, notebook = self._room, self._notebook
        if room is None or notebook is None:
            return
        began = time.monotonic()
        changed_at, edited = self._changed_at, self._edited
        self._changed_at, self._edited = None, False
        try:
            if not self.holds:
                await self._merge()
            for _ in range(_TRIES):
                if self._follow is not None:
                    self._follow.settle()
                content = as_saved(notebook.content(), self._follow.ran if self._follow is not None else ())
                if await room.write_file(content):
                    self._base = base_of(content)
                    self._bases.write(notebook, self._base)
                    if not self.disk.has_changed():
                        break
                await self._merge()
            else:
                # somebody writes it again and again
                self._unsaved_since(changed_at or began)
                self._edited |= edited
                self._plan()
        except Exception as error:  # noqa: BLE001 - whatever a contents manager raises is told to people, as a stock room does
            self._unsaved_since(changed_at)
            self._edited |= edited
            room.complain(error)
        self._not_before = time.monotonic() + SHARE * (time.monotonic() - began)

    async def _merge(self) -> None:
        """Take in what somebody else made of the file."""
        assert self._room is not None
        if self.holds:
            with suppress(KernelRuntimeError):  # without a supervisor what the file says is taken as it is
                await self.session.hold_notebook(
                    self._holder, seconds=LEASE, flush=True, revive=self._may_revive
                )
        self._merge_in(await self._room.read_file(), self._base)

    def _merge_in(self, content: dict[str, Any], base: Base | None, *, derived: Side = "document") -> None:
        assert self._notebook is not None
        here, there = self._notebook.content(), with_ids(content)
        merged = merge(base, here, there, derived=derived)
        if lost := self._lost(here, merged):
            try:
                kept = self._replaced.keep(as_bytes(here))
            except KernelRuntimeError as error:
                log.warning("session %s: text cannot be kept, and stays: %s", self.session.name, error)
                merged = merge(without(base, lost), here, there, derived=derived)
            else:
                merged.notes.append(
                    f"Another program replaced the file, and text of {_cells(len(lost))} with it. "
                    f"The notebook as it was is kept in {kept}"
                )
        if merged.overruled:
            try:
                where = f"is kept in {self._replaced.keep(as_bytes(there))}"
            except KernelRuntimeError as error:
                where = f"could not be kept: {error.message}"
            merged.notes.append(
                "Another program changed metadata, attachments or outputs that were changed here too: "
                f"what is here stays. The file as it was {where}"
            )
        self._brought = self._new_text(here, merged.content)
        self._notebook.become(merged.content)
        self._base = base_of(content)
        for note in merged.notes:
            self._tell(note)
        if merged.ahead:
            self._edited = True
            self._unsaved_since(time.monotonic())
            self._plan()

    def _lost(self, here: dict[str, Any], merged: Merged) -> list[str]:
        """Cells of the document with text that would be nowhere else."""
        ran = self._follow.ran if self._follow is not None else None
        sources = {cell["id"]: joined(cell["source"]) for cell in here["cells"]}
        staying = {cell["id"] for cell in merged.content["cells"]}
        own_since = time.monotonic() - _OWN
        return [
            cell_id
            for cell_id in gone(here, merged.content, ran)
            # what a program wrote, and goes on writing, is its own
            if cell_id not in staying or self._brought.get(sources[cell_id], 0.0) < own_since
        ]

    def _new_text(self, here: dict[str, Any], content: dict[str, Any]) -> dict[str, float]:
        now = time.monotonic()
        before = {joined(cell["source"]) for cell in here["cells"]}
        new = {joined(cell["source"]) for cell in content["cells"]} - before
        recent = {text: when for text, when in self._brought.items() if now - when < _OWN}
        return {**recent, **dict.fromkeys(new, now)}

    def _tell(self, note: str) -> None:
        if self._notes is not None:
            self._notes.append(note)
        elif self._room is not None:
            self._room.tell(note)


def _cells(count: int) -> str:
    return "1 cell" if count == 1 else f"{count} cells"


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("an open notebook is no longer followed", exc_info=error)
