"""The server's sessions: a notebook that is a session's is at its kernel, whoever opens it.

Two words that are one in Jupyter: its "session" is a row that says which kernel a path uses. A row for each
attached session whose notebook lies under the served directory is there from the start, with an id that stays
the same, so that a page finds its kernel again after the server was restarted.
"""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import Any

from jupyter_core.utils import ensure_async
from jupyter_server.services.sessions.sessionmanager import SessionManager
from tornado import web

from kernel_runtime import places
from kernel_runtime.client import session_files
from kernel_runtime.client.session_files import SessionFile
from kernel_runtime.errors import KernelRuntimeError, SessionExists
from kernel_runtime.jupyter import identity
from kernel_runtime.jupyter.clients import AttachedSession
from kernel_runtime.jupyter.kernels import SessionMappingKernelManager
from kernel_runtime.jupyter.kernelspecs import kernel_behind, session_of

_ROWS = uuid.UUID("d0a4b9f4-52a7-5f43-8d8b-1d2f0b3f8a64")


def row_id_of(session_id: str) -> str:
    """The id of the row that a session's notebook has from the start."""
    return str(uuid.uuid5(_ROWS, session_id))


class SessionRowManager(SessionManager):
    """Stock's manager, which knows whose notebook a path is."""

    kernel_manager: SessionMappingKernelManager

    def keep_row(self, session: AttachedSession) -> None:
        """See to it that there is a row for its notebook."""
        if session.path is None:
            return
        self.cursor.execute("SELECT kernel_id FROM session WHERE path=?", (session.path,))
        if self.cursor.fetchone() is None:
            self.cursor.execute(
                "INSERT INTO session VALUES (?,?,?,?,?)",
                (
                    row_id_of(session.session_id),
                    session.path,
                    Path(session.path).name,
                    "notebook",
                    session.kernel_id,
                ),
            )

    def drop_rows(self, kernel_id: str) -> None:
        """Forget every row of a kernel that is no longer one of the server's."""
        self.cursor.execute("DELETE FROM session WHERE kernel_id=?", (kernel_id,))

    async def start_kernel_for_session(  # noqa: PLR0917 - jupyter_server's
        self,
        session_id: str,
        path: str | None,
        name: Any,
        type: str | None,  # noqa: A002 - jupyter_server's
        kernel_name: Any,
        kernel_id: str | None = None,
    ) -> str:
        """The kernel for a path: a session's own, a new session's, or a stock one."""
        owner = self.kernel_manager.attached.by_path(path) if path else None
        try:
            if owner is not None:
                return await self._attach(owner, kernel_name)
            if kernel_name and (spec := self._ours(kernel_name)) is not None:
                file = await self._make(path, spec, named=session_of(spec))
                return await self.kernel_manager.attach(file, start_as=identity.asking())
        except KernelRuntimeError as error:
            raise web.HTTPError(500, str(error)) from error
        started: str = await super().start_kernel_for_session(
            session_id, path=path, name=name, type=type, kernel_name=kernel_name, kernel_id=kernel_id
        )
        return started

    async def _attach(self, owner: AttachedSession, kernel_name: str | None) -> str:
        spec = self._ours(kernel_name) if kernel_name else None
        wanted = kernel_behind(spec) if spec is not None else kernel_name
        if wanted not in (None, "", owner.kernel_name):
            raise web.HTTPError(
                409,
                f"{owner.path} is the notebook of session {owner.name}, whose kernel is {owner.kernel_name}: "
                f"for {wanted} copy the notebook, or make a session (`krt new NAME --kernel {wanted}`)",
            )
        return await self.kernel_manager.attach(session_files.load(owner.name), start_as=identity.asking())

    def _ours(self, kernel_name: str) -> Any:
        """The kernelspec of that name if its kernels are sessions; None for any other."""
        specs = self.kernel_manager.kernel_spec_manager
        try:
            spec = specs.get_kernel_spec(kernel_name) if specs is not None else None
        except KeyError:
            return None
        return spec if spec is not None and kernel_behind(spec) is not None else None

    async def _make(self, path: str | None, spec: Any, *, named: str | None) -> SessionFile:
        """The session that a kernelspec names, or a new one whose notebook is that path."""
        if named is not None and session_files.exists(named):
            return session_files.load(named)
        folder = await ensure_async(self.contents_manager.get_kernel_path(path=path))
        notebook = self._file_of(path)
        for name in _names(named, notebook):
            try:
                file = session_files.create(
                    name,
                    kernel=kernel_behind(spec),
                    cwd=self.kernel_manager.cwd_for_path(folder),
                    notebook=notebook,
                    principal=identity.asking(),
                )
            except SessionExists:
                continue
            self.kernel_manager.know(file)
            return file
        raise SessionExists(f"no name is left for {path}", hint="`krt ls` lists the sessions")

    def _file_of(self, path: str | None) -> Path | None:
        """The file of a notebook's path; None for what is no notebook, as a console is not."""
        if not path or not path.endswith(".ipynb"):
            return None
        root = getattr(self.contents_manager, "root_dir", None)
        return None if root is None else Path(root) / path.strip("/")


def _names(named: str | None, notebook: Path | None) -> list[str]:
    """Names to try for a new session, after the notebook that it is for."""
    if named is not None:
        return [named]
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", notebook.stem if notebook else "console").strip("-._")[:56]
    base = stem if places.NAME.fullmatch(stem) else "notebook"
    return [base, *(f"{base}-{number}" for number in range(2, 100)), f"{base[:30]}-{uuid.uuid4().hex}"]
