"""Which sessions the Jupyter server knows, and its own lines to them.

`Attached` is the one table of sessions that everything in this package looks things up in. `Clients` keeps
one `AsyncSession` for each (session, principal, client): the queue that a failing cell aborts is that of its
own line, so two pages of one person must not share one.

Lines of pages that have not been used for a while are closed; one without a client's name stays. A session
that was removed and made again under its name gets new lines. Neither promises that a supervisor lives:
whatever is asked on a line starts one.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from kernel_runtime.client import session_files
from kernel_runtime.client.session import AsyncSession
from kernel_runtime.client.session_files import SessionFile

_KERNELS = uuid.UUID("6b1c5f0e-3d0f-5b9e-9a55-0d6f7f1d7c11")
"""namespace of kernel ids: the same session has the same one on every server, after every restart"""

_UNUSED = 900.0
"""seconds after which a page's line is closed; longer than any request on it"""


def kernel_id_of(session_id: str) -> str:
    """The id under which Jupyter knows the session's kernel, in every incarnation."""
    return str(uuid.uuid5(_KERNELS, session_id))


class AttachedSession(Struct, frozen=True, kw_only=True):
    """A session that this server knows."""

    name: str
    session_id: str
    kernel_id: str
    path: str | None
    """of its notebook as the contents API has it; None where that lies outside the served directory"""
    notebook: Path
    """its notebook file"""
    kernel_name: str
    """its kernelspec"""
    running: bool
    """whether it is one of the server's kernels now; False for one that is stopped or detached"""


class Attached:
    """The sessions that this server knows, kept up to date by its scan of KRT_HOME."""

    def __init__(self, clients: Clients) -> None:
        self.clients = clients
        self._by_name: dict[str, AttachedSession] = {}

    def client_for(self, session_name: str, principal: str, client: str = "") -> AsyncSession:
        """As `Clients.client_for`."""
        return self.clients.client_for(session_name, principal, client)

    def all(self) -> list[AttachedSession]:
        """By name."""
        return [self._by_name[name] for name in sorted(self._by_name)]

    def by_name(self, name: str) -> AttachedSession | None:
        return self._by_name.get(name)

    def by_kernel(self, kernel_id: str) -> AttachedSession | None:
        return next((one for one in self._by_name.values() if one.kernel_id == kernel_id), None)

    def by_path(self, path: str) -> AttachedSession | None:
        """The session whose notebook has that path in the contents API."""
        wanted = path.strip("/")
        return next((one for one in self._by_name.values() if one.path == wanted), None)

    def put(self, session: AttachedSession) -> None:
        self._by_name[session.name] = session

    def remove(self, name: str) -> None:
        self._by_name.pop(name, None)


class Clients:
    """Lines to sessions, made when first asked for. Belongs to the server's event loop."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lines: dict[tuple[str, str, str], AsyncSession] = {}
        self._used: dict[tuple[str, str, str], float] = {}

    def client_for(self, session_name: str, principal: str, client: str = "") -> AsyncSession:
        """The line of that principal and client to that session. Do not detach it.

        Raises:
            NoSuchSession: none of that name.
        """
        return self.client_of(session_files.load(session_name), principal, client)

    def client_of(self, session: SessionFile, principal: str, client: str = "") -> AsyncSession:
        """As `client_for`, of a session that was loaded."""
        key = (session.session_id, principal, client)
        self._used[key] = self._now()
        if (line := self._lines.get(key)) is None:
            line = self._lines[key] = AsyncSession(session, principal)
        return line

    def observer_of(self, session: SessionFile, principal: str) -> AsyncSession:
        """A line that starts no supervisor: looking at a session that is being stopped lets it stop."""
        line = self.client_of(session, principal, "observer")
        line.only_ask_the_living()
        return line

    async def sweep(self) -> None:
        """Close the lines of pages that are gone."""
        oldest = self._now() - _UNUSED
        for key in [key for key, used in self._used.items() if key[2] and used < oldest]:
            await self._close(key)

    async def forget(self, session_id: str) -> None:
        """Close every line to a session that was removed."""
        for key in [key for key in self._lines if key[0] == session_id]:
            await self._close(key)

    async def close(self) -> None:
        """Detach from everything; no session changes."""
        for key in list(self._lines):
            await self._close(key)

    async def _close(self, key: tuple[str, str, str]) -> None:
        self._used.pop(key, None)
        await self._lines.pop(key).detach()
