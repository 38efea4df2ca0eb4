"""The server's sessions: a notebook that is a session's is at its kernel, whoever opens it.

Two words that are one in Jupyter: its "session" is a row that says which kernel a path uses. A row for each
attached session whose notebook lies under the served directory is there from the start, with an id that stays
the same, so that a page finds its kernel again after the server was restarted.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from jupyter_core.utils import ensure_async
from jupyter_server.services.sessions.sessionmanager import SessionManager

from kernel_runtime.client import session_files
from kernel_runtime.client.session_files import SessionFile
from kernel_runtime.errors import KernelRuntimeError, Refused
from kernel_runtime.jupyter import identity
from kernel_runtime.jupyter.clients import AttachedSession
from kernel_runtime.jupyter.kernels import SessionMappingKernelManager
from kernel_runtime.jupyter.kernelspecs import kernel_behind, make_session, session_spec
from kernel_runtime.jupyter.refusals import ToldError

_ROWS = uuid.UUID("d0a4b9f4-52a7-5f43-8d8b-1d2f0b3f8a64")


def row_id_of(session_id: str) -> str:
    """The id of the row that a session's notebook has from the start."""
    return str(uuid.uuid5(_ROWS, session_id))


class SessionRowManager(SessionManager):
    """Stock's manager, which knows whose notebook a path is."""

    def keep_row(self, session: AttachedSession) -> None:
        """See to it that there is a row for its notebook."""
        if session.path is None:
            return
        row_id, name = row_id_of(session.session_id), Path(session.path).name
        self.cursor.execute("SELECT session_id FROM session WHERE path=?", (session.path,))
        if self.cursor.fetchone() is not None:
            # the row of our own may stand at a path that the notebook had before
            self.cursor.execute("DELETE FROM session WHERE session_id=? AND path!=?", (row_id, session.path))
            return
        self.cursor.execute(
            "UPDATE session SET path=?, name=? WHERE session_id=?", (session.path, name, row_id)
        )
        if not self.cursor.rowcount:
            self.cursor.execute(
                "INSERT INTO session VALUES (?,?,?,?,?)",
                (row_id, session.path, name, "notebook", session.kernel_id),
            )

    def move_row(self, kernel_id: str, old: str, new: str) -> None:
        """Its notebook is at another path; the page that renamed it says so too, a moment later."""
        self.cursor.execute(
            "UPDATE session SET path=?, name=? WHERE path=? AND kernel_id=?",
            (new, Path(new).name, old, kernel_id),
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
        kernels = self.kernel_manager
        if isinstance(kernels, SessionMappingKernelManager):
            try:
                place = _notebook_of(path, name, type)
                if (file := await self._session_for(kernels, place, kernel_name)) is not None:
                    return await kernels.attach(file, start_as=identity.asking())
            except KernelRuntimeError as error:
                raise ToldError(error) from error
        started: str = await super().start_kernel_for_session(
            session_id, path=path, name=name, type=type, kernel_name=kernel_name, kernel_id=kernel_id
        )
        return started

    async def _session_for(
        self, kernels: SessionMappingKernelManager, path: str | None, kernel_name: str | None
    ) -> SessionFile | None:
        """The session that a kernel of that kernelspec for that path is; None: a stock kernel."""
        spec = session_spec(kernels.kernel_spec_manager, kernel_name)
        owner = kernels.attached.by_path(path) if path else None
        if owner is None:
            if spec is None:
                return None
            folder = await ensure_async(self.contents_manager.get_kernel_path(path=path))
            file = make_session(spec, cwd=kernels.cwd_for_path(folder), notebook=self._file_of(path))
            kernels.know(file)
            return file
        wanted = kernel_behind(spec) if spec is not None else kernel_name
        if wanted not in (None, "", owner.kernel_name):
            raise Refused(
                f"{owner.path} is the notebook of session {owner.name}, whose kernel is {owner.kernel_name}",
                hint=f"for {wanted} copy the notebook, or make a session (`krt new NAME --kernel {wanted}`)",
                session=owner.name,
            )
        return session_files.load(owner.name)

    async def save_session(
        self,
        session_id: str,
        path: str | None = None,
        name: str | None = None,
        type: str | None = None,  # noqa: A002
        kernel_id: str | None = None,
    ) -> Any:
        """As stock; a session's notebook keeps the row that it has, whoever opens it."""
        kernels = self.kernel_manager
        known = None
        if isinstance(kernels, SessionMappingKernelManager) and kernel_id is not None:
            known = kernels.attached.by_kernel(kernel_id)
        if known is not None and path is not None and known.path == path.strip("/"):
            session_id = row_id_of(known.session_id)
            self.cursor.execute("DELETE FROM session WHERE session_id=?", (session_id,))
        return await super().save_session(session_id, path=path, name=name, type=type, kernel_id=kernel_id)

    async def update_session(self, session_id: str, **changes: Any) -> None:
        """As stock; the row that a page moves to its notebook takes the place of the one that stood there."""
        await super().update_session(session_id, **changes)
        if "path" in changes:
            self.cursor.execute(
                "DELETE FROM session WHERE path=? AND session_id!=?"
                " AND kernel_id=(SELECT kernel_id FROM session WHERE session_id=?)",
                (changes["path"], session_id, session_id),
            )

    def _file_of(self, path: str | None) -> Path | None:
        """The file of a notebook's path; None for what is no notebook, as a console is not."""
        if not path or not path.endswith(".ipynb"):
            return None
        root = getattr(self.contents_manager, "root_dir", None)
        return None if root is None else Path(root) / path.strip("/")


def _notebook_of(path: str | None, name: Any, kind: str | None) -> str | None:
    """The notebook that a kernel is started for.

    JupyterLab asks with a made-up path in the notebook's directory and the notebook's name, and gives its row
    the real path once the kernel is there.
    """
    if kind != "notebook" or not path or not isinstance(name, str) or path.endswith(".ipynb"):
        return path
    return str(Path(path).parent / name) if name.endswith(".ipynb") and "/" not in name else path
