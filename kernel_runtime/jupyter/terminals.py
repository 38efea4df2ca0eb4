"""The terminals of sessions among the terminals of the server.

Each process that a session manages (`krt term`, `krt spawn`) is listed as `SESSION_ID`, and opening it runs
`krt term` on it: so it is the same screen that every other client has. Closing or shutting it down in a page
detaches; the process goes on, and stays listed. Terminals that people open themselves are stock.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
from jupyter_server._tz import isoformat, utcfromtimestamp, utcnow
from jupyter_server_terminals.terminalmanager import TerminalManager
from tornado import web

from kernel_runtime import process
from kernel_runtime.client import session_files
from kernel_runtime.client.session_files import SessionFile
from kernel_runtime.errors import KernelRuntimeError


def living(session: SessionFile) -> dict[str, float]:
    """Ids of the managed processes that live, each with when its record was written (seconds)."""
    found: dict[str, float] = {}
    for path in sorted((session.directory / "processes").glob("*.json")):
        try:
            holder = msgspec.convert(msgspec.json.decode(path.read_bytes())["holder"], process.ProcessId)
            if process.is_alive(holder):
                found[path.stem] = path.stat().st_mtime
        except (FileNotFoundError, msgspec.MsgspecError, KeyError, TypeError):
            continue  # being written, or removed under us
    return found


def name_of(session: str, process_id: str) -> str:
    """As an address can have it."""
    return re.sub(r"\W", "_", f"{session}_{process_id}")


class _Terminals(dict[str, Any]):
    """Those that were opened; asked for one of a session, it is opened."""

    def __init__(self, is_ours: Callable[[str], bool], make: Callable[[str], Any]) -> None:
        super().__init__()
        self._is_ours, self._make = is_ours, make

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (isinstance(name, str) and self._is_ours(name))

    def __missing__(self, name: str) -> Any:
        if not self._is_ours(name):
            raise KeyError(name)
        return self._make(name)


class SessionTerminalManager(TerminalManager):
    """Stock's manager, and the sessions' terminals."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.terminals: dict[str, Any] = _Terminals(lambda name: name in self._ours(), self._open)

    def _ours(self) -> dict[str, tuple[str, str, float]]:
        """Session, process id and start by terminal name."""
        found: dict[str, tuple[str, str, float]] = {}
        for session_name in session_files.names():
            try:
                session = session_files.load(session_name)
            except KernelRuntimeError:
                continue  # the scan tells of it
            for process_id, since in living(session).items():
                found.setdefault(name_of(session_name, process_id), (session_name, process_id, since))
        return found

    def _open(self, name: str) -> Any:
        session, process_id, _ = self._ours()[name]
        command = [sys.executable, "-P", "-m", "kernel_runtime.cli", "term", session, process_id]
        terminal: Any = self.new_named_terminal(name=name, shell_command=command)[1]
        terminal.last_activity = utcnow()
        return terminal

    def get_terminal_model(self, name: str) -> dict[str, Any]:
        if not dict.__contains__(self.terminals, name) and (ours := self._ours().get(name)) is not None:
            return {"name": name, "last_activity": isoformat(utcfromtimestamp(ours[2]))}
        return super().get_terminal_model(name)

    def list(self) -> list[dict[str, Any]]:
        opened = super().list()
        known = {model["name"] for model in opened}
        return opened + [self.get_terminal_model(name) for name in self._ours() if name not in known]

    async def terminate(self, name: str, force: bool = False) -> None:
        """Close it; what a session runs in it goes on."""
        if name in self._ours() and not dict.__contains__(self.terminals, name):
            return
        await super().terminate(name, force=force)

    async def terminate_all(self) -> None:
        """Close all. One that ends by itself meanwhile is no error, which would keep the server."""
        for name in list(self.terminals):
            with suppress(KeyError, web.HTTPError):
                await self.terminate(name, force=True)
