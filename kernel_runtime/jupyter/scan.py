"""Which sessions there are, looked up often: new ones are attached, removed ones forgotten.

A look costs a directory listing and a lock's state for each session that is not attached; no supervisor is
asked. A session that runs is attached, one that somebody stopped is let go when its last page has left, one
that was detached here stays so until it is opened. A session that cannot be attached holds up no other.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from kernel_runtime import places
from kernel_runtime.client import session_files, spawn
from kernel_runtime.client.session import AsyncSession
from kernel_runtime.client.session_files import SessionFile
from kernel_runtime.errors import KernelRuntimeError, SupervisorFault
from kernel_runtime.jupyter import identity
from kernel_runtime.jupyter.clients import AttachedSession, kernel_id_of
from kernel_runtime.jupyter.contents import SessionContentsManager
from kernel_runtime.jupyter.kernels import SessionMappingKernelManager
from kernel_runtime.jupyter.sessions import SessionRowManager

_EVERY = 1.0
"""seconds between two looks"""


class Scan:
    """Keeps the kernel manager's table of sessions true."""

    def __init__(self, kernels: SessionMappingKernelManager, rows: Any, contents: Any, log: Any) -> None:
        self._kernels = kernels
        self._rows: SessionRowManager | None = rows if isinstance(rows, SessionRowManager) else None
        self._contents = contents
        self._log = log
        self._files: dict[str, tuple[int, SessionFile]] = {}
        """by name, with the inode of session.json, which is replaced as a whole"""
        self._told: dict[str, str] = {}
        self._task: asyncio.Task[None] | None = None
        kernels.know = self.know
        if isinstance(contents, SessionContentsManager):
            contents.renaming = self._renaming

    async def start(self) -> None:
        """Attach all that run; returns when that is done."""
        await self.look()
        self._task = asyncio.get_running_loop().create_task(self._keep_looking())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(_EVERY)
            try:
                await self.look()
            except OSError as error:  # KRT_HOME out of reach for a moment
                self._tell("", str(error))

    async def look(self) -> None:
        """Once."""
        present = await asyncio.to_thread(self._present)
        for name in [one.name for one in self._kernels.attached.all() if one.name not in present]:
            await self._removed(name)
        await asyncio.gather(*(self._one(file, lives=lives) for file, lives in present.values()))
        await self._kernels.clients.sweep()

    def _present(self) -> dict[str, tuple[SessionFile, bool]]:
        found: dict[str, tuple[SessionFile, bool]] = {}
        for name in session_files.names():
            try:
                file = self._load(name)
                lives = spawn.is_running(file) or session_files.living_kernel(file) is not None
            except (KernelRuntimeError, FileNotFoundError) as error:
                self._tell(name, str(error))
                continue
            found[name] = (file, lives)
        return found

    def _load(self, name: str) -> SessionFile:
        inode = _inode(name)
        known = self._files.get(name)
        if known is None or known[0] != inode:
            known = self._files[name] = (inode, session_files.load(name))
        return known[1]

    async def _one(self, file: SessionFile, *, lives: bool) -> None:
        known = self._kernels.attached.by_name(file.name)
        if known is not None and known.session_id != file.session_id:
            await self._removed(file.name)
        kernel_id = kernel_id_of(file.session_id)
        try:
            if not lives and self._kernels.session_kernel(kernel_id) is not None:
                await self._stopped(kernel_id)
            elif lives and file.session_id not in self._kernels.detached:
                await self._running(file, kernel_id)
        except (KernelRuntimeError, OSError) as error:
            self._tell(file.name, str(error))
        # it may have been moved while it was attached
        latest = self._files.get(file.name, (0, file))[1]
        self.know(latest if latest.session_id == file.session_id else file)

    async def _running(self, file: SessionFile, kernel_id: str) -> None:
        kernel = self._kernels.session_kernel(kernel_id)
        if kernel is None:
            await self._kernels.attach(file)
            self._told.pop(file.name, None)
            return
        if kernel.load_door():
            self._kernels.moved(kernel_id)
        self._kernels.watch(kernel)

    async def _stopped(self, kernel_id: str) -> None:
        kernel = self._kernels.session_kernel(kernel_id)
        assert kernel is not None
        kernel.ended()
        if not self._kernels.connections(kernel_id):
            await self._kernels.detach(kernel_id)

    async def _removed(self, name: str) -> None:
        known = self._kernels.attached.by_name(name)
        self._kernels.attached.remove(name)
        self._files.pop(name, None)
        if isinstance(self._contents, SessionContentsManager):
            self._contents.outside.pop(name, None)
        if known is None:
            return
        kernel = self._kernels.session_kernel(known.kernel_id)
        if kernel is not None:
            kernel.tell("dead")
            await self._kernels.detach(known.kernel_id)
        if self._rows is not None:
            self._rows.drop_rows(known.kernel_id)
        await self._kernels.clients.forget(known.session_id)

    async def _renaming(self, old: str, new: str, rename: Callable[[], Awaitable[None]]) -> None:
        """Rename a file or directory in the served one; a notebook in it stays its session's."""
        there = [one for one in self._kernels.attached.all() if one.path and _is_at(one.path, old)]
        lines = [(one, self._kernels.clients.client_for(one.name, identity.SERVER)) for one in there]
        holder = f"rename-{uuid.uuid4().hex}"
        held: list[AsyncSession] = []
        for _, line in lines:
            with suppress(SupervisorFault):  # none lives, so none writes
                if (await line.hold_notebook(holder, seconds=10, revive=False)).held:
                    held.append(line)
        try:
            await rename()
            for one, line in lines:
                path = new + str(one.path)[len(old) :]
                await line.move_notebook(Path(self._contents.root_dir) / path)
                if self._rows is not None:
                    self._rows.move_row(one.kernel_id, str(one.path), path)
                self._files[one.name] = (_inode(one.name), line.file)
                self.know(line.file)
        finally:
            for line in held:
                with suppress(SupervisorFault):
                    await line.release_notebook(holder)

    def know(self, file: SessionFile) -> None:
        """Put it into the table, and its row beside it."""
        kernel_id = kernel_id_of(file.session_id)
        session = AttachedSession(
            name=file.name,
            session_id=file.session_id,
            kernel_id=kernel_id,
            path=self._path_of(file.name, Path(file.notebook)),
            notebook=Path(file.notebook),
            kernel_name=file.kernel,
            running=self._kernels.session_kernel(kernel_id) is not None,
        )
        self._kernels.attached.put(session)
        if self._rows is not None and session.running:
            self._rows.keep_row(session)

    def _path_of(self, name: str, notebook: Path) -> str | None:
        """Where the contents API has it; None: nowhere."""
        path = self._path_within(notebook)
        if not isinstance(self._contents, SessionContentsManager):
            return path
        if path is not None:
            self._contents.outside.pop(name, None)
            return path
        self._contents.outside[name] = notebook
        return self._contents.path_of(name)

    def _path_within(self, notebook: Path) -> str | None:
        root = getattr(self._contents, "root_dir", None)
        if not root:
            return None
        for base, file in ((Path(root), notebook), (Path(root).resolve(), notebook.resolve())):
            if file.is_relative_to(base):
                relative = file.relative_to(base)
                hidden = any(part.startswith(".") for part in relative.parts)
                return None if hidden and not self._contents.allow_hidden else relative.as_posix()
        return None

    def _tell(self, name: str, what: str) -> None:
        """Log it, once until it is something else."""
        if self._told.get(name) != what:
            self._told[name] = what
            self._log.warning("kernel_runtime: session %s: %s", name or "?", what)


def _inode(name: str) -> int:
    return (places.session_dir(name) / "session.json").stat().st_ino


def _is_at(path: str, place: str) -> bool:
    """Whether a path is that one or lies under it."""
    return path == place or path.startswith(f"{place}/")
