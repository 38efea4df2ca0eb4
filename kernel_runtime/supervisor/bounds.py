"""How much output is kept. Past a bound the journal holds an explicit gap with counts."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from msgspec import Struct

from kernel_runtime.errors import UsageError

MiB = 1 << 20


class Bounds(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All in bytes. `bounds.json` in the session's directory, else in KRT_HOME, overrides any of them."""

    message: int = 64 * MiB
    """one message; a larger one is left out whole and counted"""
    execution: int = 256 * MiB
    """what one execution may say"""
    session: int = 4096 * MiB
    """what all executions of a session may say"""
    free_disk: int = 64 * MiB
    """no output is kept when less than this, or 5 % of the file system if that is less, is free"""
    outbox: int = 256 * MiB
    """what a kernel keeps while nobody collects"""
    process_log: int = 16 * MiB
    """the log of one managed process; past it the first half is dropped"""


def load(session: Path, home: Path) -> Bounds:
    """The bounds in force.

    Raises:
        UsageError: a bounds.json that is not an object of these numbers.
    """
    for path in (session / "bounds.json", home / "bounds.json"):
        try:
            return msgspec.json.decode(path.read_bytes(), type=Bounds)
        except FileNotFoundError:
            continue
        except msgspec.MsgspecError as error:
            raise UsageError(
                f"{path}: {error}",
                hint=f"an object with any of {', '.join(Bounds.__struct_fields__)}, in bytes",
                path=str(path),
            ) from error
    return Bounds()


def disk_is_short(directory: Path, floor: int) -> bool:
    """Whether the file system of a session has less free than `floor` or a twentieth of itself.

    What the journal's log holds counts as used twice: it is copied into the main file in time.
    """
    info = os.statvfs(directory)
    try:
        log = (directory / "journal.db-wal").stat().st_size
    except FileNotFoundError:
        log = 0
    free = info.f_bavail * info.f_frsize - log
    return free < min(floor, info.f_blocks * info.f_frsize // 20)
