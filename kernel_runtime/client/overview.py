"""All sessions at a glance: what `krt ls` shows. Starts nothing.

A session whose supervisor lives is asked; of others the journal and `kernel.json` tell. What cannot
be told is said in the row's `problem`, and never holds up the others.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from kernel_runtime import places
from kernel_runtime.client import session_files, spawn
from kernel_runtime.client.session import AsyncSession
from kernel_runtime.client.session_files import SessionFile
from kernel_runtime.errors import KernelRuntimeError
from kernel_runtime.journal import JournalReader

_AT_ONCE = 32
"""supervisors asked at a time: each takes a few file descriptors"""


def sessions(principal: str | None = None) -> list[dict[str, Any]]:
    """One row per session, by name, as INTERFACE.md has it for `krt ls --json`."""
    return asyncio.run(gather(principal or places.principal()))


async def gather(principal: str) -> list[dict[str, Any]]:
    """As `sessions`."""
    turn = asyncio.Semaphore(_AT_ONCE)

    async def one(name: str) -> dict[str, Any]:
        async with turn:
            return await _row(name, principal)

    return list(await asyncio.gather(*map(one, session_files.names())))


async def _row(name: str, principal: str) -> dict[str, Any]:
    try:
        session = session_files.load(name)
    except KernelRuntimeError as error:
        return _blank(name) | {"problem": error.message}
    if spawn.is_running(session):
        client = AsyncSession(session, principal)
        client.only_ask_the_living()
        try:
            return _of_file(session) | await client.row()
        except KernelRuntimeError as error:
            if error.fields.get("gone"):
                return unattended(session)
            return unattended(session) | {"state": "unresponsive", "problem": error.message}
        finally:
            await client.detach()
    return unattended(session)


def unattended(session: SessionFile) -> dict[str, Any]:
    """The row of a session that no supervisor answers for."""
    row = _of_file(session)
    kernel = session_files.living_kernel(session)
    try:
        if not session.journal.exists():
            return row
        with JournalReader.open(session.journal) as journal:
            started = journal.latest("KernelStarted")
            ended = [journal.latest(kind) for kind in ("KernelStopped", "KernelDied")]
            row["incarnation"] = started.incarnation if started else 0
            row["executions"] = sum(n for *_, n in journal.cell_counts())
            row["head"] = journal.head()
            running = [journal.executions(status=status, last=1) for status in ("blocked", "running")]
    except KernelRuntimeError as error:
        return row | {"state": "unresponsive" if kernel else "dead", "problem": error.message}
    if kernel is not None:
        states = [state for state, rows in zip(("blocked", "busy"), running, strict=True) if rows]
        problem = f"its supervisor is gone and its kernel lives: `krt status {session.name}` adopts it"
        return row | {"state": [*states, "idle"][0], "kernel_pid": kernel.pid, "problem": problem}
    last = max((entry for entry in (started, *ended) if entry is not None), key=lambda e: e.seq, default=None)
    died = last is not None and last.kind in ("KernelDied", "KernelStarted")
    return row | {"state": "dead" if died else "stopped"}


def _of_file(session: SessionFile) -> dict[str, Any]:
    return _blank(session.name) | {
        "session_id": session.session_id,
        "notebook": session.notebook,
        "kernel": session.kernel,
        "cwd": session.cwd,
        "created_at": session.created_at,
    }


def _blank(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "session_id": "",
        "state": "stopped",
        "incarnation": 0,
        "kernel_pid": None,
        "supervisor_pid": None,
        "executions": 0,
        "notebook": "",
    }


def leftovers() -> list[str]:
    """Directories that a killed `new` or `rm` left behind."""
    try:
        found = os.listdir(places.sessions_dir())
    except FileNotFoundError:
        return []
    return sorted(name for name in found if name.startswith((".new-", ".removed-")))
