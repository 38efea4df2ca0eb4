"""The client's part of the notebook's lease: whoever has the document open writes the file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from kernel_runtime import process
from kernel_runtime.client import session_files
from kernel_runtime.client.connection import ControlLine, Revive
from kernel_runtime.client.session_files import SessionFile
from kernel_runtime.errors import SupervisorFault


class Held(Struct, frozen=True, kw_only=True):
    """What was said to a wish to hold the notebook."""

    held: bool
    """True: the file is yours to write, and the supervisor writes it no more"""
    by: str = ""
    """principal of whoever holds it"""
    seconds: float = 0.0
    """until it ends, unless it is asked for again"""
    deferred: bool = False
    """the file was in the middle of somebody's save, and was not brought up to date"""


class NotebookCalls:
    """Methods of a session that are about its notebook file."""

    _line: ControlLine
    file: SessionFile

    async def hold_notebook(
        self, holder: str, *, seconds: float, flush: bool = False, revive: Revive = True
    ) -> Held:
        """Be the one who writes the notebook's file, for so many seconds; asked again it goes on.

        The file is brought up to date before this first returns, and, with `flush`, each time. It
        ends early when this process does.

        Args:
            holder: a name that no other holder has.
            seconds: 1 to 120.
            flush: merge what is in the file now with the journal, and write it.
            revive: start a supervisor where none lives, or whether to, asked then.

        Raises:
            SupervisorFault: none lives, with `revive=False`.
        """
        arguments = {"holder": holder, "seconds": seconds, "flush": flush, "owner": _me()}
        reply = await self._line.request("hold_notebook", arguments, revive=revive)
        return msgspec.convert(reply, Held)

    async def release_notebook(self, holder: str) -> bool:
        """Have the supervisor write the file again; whether that holder held it.

        Raises:
            SupervisorFault: no supervisor lives.
        """
        reply = await self._line.request("release_notebook", {"holder": holder}, revive=False)
        return bool(reply["released"])

    async def move_notebook(self, path: str | Path) -> None:
        """Another file is the notebook from now on: the old one, renamed, which whoever calls has done.

        Raises:
            StorageFault: it cannot be written down; the notebook is what it was.
        """
        self.file = session_files.move_notebook(self.file.name, path)
        with _gone_is_well():
            await self._line.request("notebook_moved", revive=False)


@contextmanager
def _gone_is_well() -> Iterator[None]:
    """No supervisor is as well: the next one reads what was written down."""
    try:
        yield
    except SupervisorFault as fault:
        if not fault.fields.get("gone"):
            raise


def _me() -> dict[str, Any]:
    """This process, for a supervisor that shares its pid namespace to see it end."""
    me = process.identify(os.getpid())
    if me is None:
        return {}
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return {
        "pid": me.pid,
        "start_time": me.start_time,
        "boot_id": me.boot_id,
        "pid_namespace": namespace,
    }
