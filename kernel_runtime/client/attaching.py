"""How a client comes to a session: find or create it, then attach."""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import Any, TypedDict, Unpack

from kernel_runtime import places
from kernel_runtime.client import session_files
from kernel_runtime.client.session import AsyncSession
from kernel_runtime.errors import SessionExists


class Creation(TypedDict, total=False):
    """What a session that is created is like."""

    kernel: str | None
    """kernelspec; python3 by default"""
    cwd: str | None
    """where its kernel starts; here by default"""
    notebook: str | None
    """the notebook derived from its journal; in the session's directory by default"""


def open_session(
    name: str,
    *,
    create: bool = False,
    principal: str | None = None,
    **creation: Unpack[Creation],
) -> AsyncSession:
    """A client that has not attached: it may read, and whatever it asks starts a supervisor if need be.

    Raises:
        NoSuchSession: none of that name, and `create` is false.
    """
    if create and not session_files.exists(name):
        with contextlib.suppress(SessionExists):  # somebody else was first, which is as good
            session_files.create(name, principal=principal, **creation)
    return AsyncSession(session_files.load(name), principal or places.principal())


class Attaching:
    """What `attach` returns: await it, or enter it with `async with`."""

    def __init__(self, session: AsyncSession, *, accept: bool) -> None:
        self._session = session
        self._accept = accept

    async def _attach(self) -> AsyncSession:
        try:
            return await self._session.attach(accept=self._accept)
        except BaseException:
            await self._session.detach()
            raise

    def __await__(self) -> Any:
        return self._attach().__await__()

    async def __aenter__(self) -> AsyncSession:
        return await self._attach()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.detach()


def attach(
    name: str,
    *,
    create: bool = False,
    principal: str | None = None,
    accept: bool = False,
    **creation: Unpack[Creation],
) -> Attaching:
    """Join a session. Await what this returns, or enter it with `async with`, which detaches at its end.

    Args:
        name: of the session.
        create: make it when there is none.
        principal: who acts, `agent:NAME` or `human:NAME`; KRT_PRINCIPAL by default.
        accept: accept at once that the heap this principal knew may be gone.
        creation: `kernel`, `cwd` and `notebook` of a session that is created.

    Raises:
        NoSuchSession, InvalidName, UnknownKernelSpec: at once.
        SupervisorFault, StorageFault, JournalCorrupt, JournalNewer: when awaited.
    """
    return Attaching(open_session(name, create=create, principal=principal, **creation), accept=accept)
