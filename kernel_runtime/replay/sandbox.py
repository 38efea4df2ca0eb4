"""What a replayed program can reach: by default no network, and files that are copies.

With bubblewrap the runner, its supervisor and the kernel stand in namespaces of their own: the whole file
system is read-only, the recorded working directory is a copy at its own path, temporary directories and the
places of running services are empty, and there is no network but an empty loopback. The kernel (Linux's)
keeps it so. Where bubblewrap cannot be used the guard stands in its place (`kernel/guard.py`): an audit hook
in the replay's kernel that refuses the same where Python asks. That is no security boundary, and the result
says so.

Invariant: the record and the directory it was made in are not changed, unless `--allow` says that they may.
Not promised: secrecy of what the user can read. Without a network it can leave only through what is
compared and reported.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from kernel_runtime import places
from kernel_runtime.errors import UsageError
from kernel_runtime.replay.settings import own_places

WORDS = "net, write:PATH, processes, all"
_MOST_BYTES = 2 << 30
_MOST_FILES = 100_000
"""of a working directory that is copied"""
_EMPTY = ("/tmp", "/var/tmp", "/run", "/dev/shm")  # noqa: S108 - made empty, not written to
_BWRAP = "bwrap"


class Allowed(Struct, frozen=True, kw_only=True):
    """What may really happen, of `--allow`."""

    everything: bool = False
    network: bool = False
    processes: bool = False
    """the guard alone refuses them: what they do it does not see"""
    writes: tuple[str, ...] = ()
    """absolute paths of directories and files"""


def allowed(words: Iterable[str]) -> Allowed:
    """From `--allow` words.

    Raises:
        UsageError: a word that is none, or a path that is not there.
    """
    found = Allowed()
    for word in words:
        kind, _, value = word.partition(":")
        if word == "all":
            found = msgspec.structs.replace(found, everything=True)
        elif word == "net":
            found = msgspec.structs.replace(found, network=True)
        elif word == "processes":
            found = msgspec.structs.replace(found, processes=True)
        elif kind == "write" and value:
            path = Path(value).expanduser().absolute()
            if not path.exists():
                raise UsageError(f"--allow {word}: {path} is not there", hint="make it first")
            found = msgspec.structs.replace(found, writes=(*found.writes, str(path)))
        else:
            raise UsageError(f"--allow {word!r} is nothing that can be allowed", hint=f"one of: {WORDS}")
    return found


class Sandbox(Struct, frozen=True, kw_only=True):
    """How a runner is started, and what is said of it."""

    kind: str
    """`bubblewrap`, `guard` (no security boundary) or `none`"""
    prefix: list[str] = []
    """goes before the runner's argv"""
    environment: dict[str, str] = {}
    cwd: str = ""
    """where the cells run"""
    notes: list[str] = []

    def document(self) -> dict[str, Any]:
        """As the result shows it."""
        boundary = self.kind == "bubblewrap"
        return {"kind": self.kind, "boundary": boundary, "cwd": self.cwd, "notes": self.notes}


def confine(cwd: str, workspace: Path, may: Allowed, *, python: str = sys.executable) -> Sandbox:
    """The sandbox for one run.

    Args:
        cwd: the recorded working directory; it need not be there.
        workspace: the replay's own directory, writable inside and outside.
        may: what is allowed.
        python: the interpreter that has to be found inside.
    """
    notes: list[str] = []
    there = Path(cwd).is_dir()
    where = cwd if there else str(_made(workspace / "cwd"))
    if may.everything:
        return Sandbox(kind="none", cwd=where)
    copy = None
    if there and not _covered(cwd, may.writes):
        copy = _copied(Path(cwd), workspace / "files", workspace, notes)
    elif not there:
        notes.append(f"the recorded directory {cwd} is not there: an empty one stands for it")
    own = own_places(workspace / "own")
    why = why_no_bubblewrap()
    if why is None:
        seen = [str(Path(python).parent.parent), *_of_python()]
        prefix = _bubblewrap(cwd if there else None, copy, workspace, may, seen)
        return Sandbox(kind="bubblewrap", prefix=prefix, environment=own, cwd=where, notes=notes)
    notes.append(f"{why}: the guard in the kernel refuses instead, which is no security boundary")
    rules = {
        "writes": [str(workspace), *may.writes],
        "network": may.network,
        "processes": may.processes,
    }
    own["TMPDIR"] = str(_made(workspace / "tmp"))
    own["KRT_GUARD"] = msgspec.json.encode(rules).decode()
    return Sandbox(kind="guard", environment=own, cwd=where if copy is None else str(copy), notes=notes)


@cache
def why_no_bubblewrap() -> str | None:
    """Why it cannot be used here; None: it can."""
    program = shutil.which(_BWRAP)
    if program is None:
        return "bubblewrap is not installed"
    tried = subprocess.run(
        [program, "--ro-bind", "/", "/", "--dev", "/dev", "--unshare-net", "--unshare-pid", "--proc", "/proc"]
        + ["true"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=60,
    )
    if tried.returncode == 0:
        return None
    said = tried.stderr.decode("utf-8", "replace").strip().splitlines()
    return f"bubblewrap cannot be used here ({said[-1] if said else f'status {tried.returncode}'})"


def _bubblewrap(
    cwd: str | None, copy: Path | None, workspace: Path, may: Allowed, seen: Sequence[str]
) -> list[str]:
    argv = [_BWRAP, "--ro-bind", "/", "/", "--dev", "/dev", "--unshare-pid", "--proc", "/proc"]
    argv += ["--unshare-ipc", "--die-with-parent"]
    if not may.network:
        argv.append("--unshare-net")
    # Temporary files, and the sockets of services and of other sessions: a read-only file system does not
    # keep anybody from connecting to one.
    empty = [*(place for place in _EMPTY if Path(place).is_dir()), str(places.runtime_dir())]
    for place in dict.fromkeys(empty):
        argv += ["--tmpfs", place]
    hidden = tuple(os.path.join(place, "") for place in empty)
    for place in seen:
        if place.startswith(hidden):
            argv += ["--ro-bind-try", place, place]
    if cwd is not None:
        argv += ["--bind" if copy is not None else "--ro-bind", str(copy or cwd), cwd]
    for place in may.writes:
        argv += ["--bind", place, place]
    argv += ["--bind", str(workspace), str(workspace), "--chdir", str(workspace), "--"]
    return argv


def _of_python() -> list[str]:
    found = [sys.prefix, sys.base_prefix, *(place for place in sys.path if place)]
    return list(dict.fromkeys(os.path.abspath(place) for place in found))  # noqa: PTH100 - links stay


def _made(directory: Path) -> Path:
    directory.mkdir(mode=0o700, exist_ok=True)
    return directory


def _covered(path: str, by: Sequence[str]) -> bool:
    return any(f"{path}/".startswith(f"{place}/") for place in by)


def _copied(source: Path, target: Path, workspace: Path, notes: list[str]) -> Path | None:
    """A copy of the directory; None where it is too large, which the notes tell."""
    why = _too_large(source, workspace)
    if why is None:
        target.mkdir(mode=0o700)
        done = subprocess.run(
            ["cp", "-a", "--reflink=auto", "--", f"{source}/.", str(target)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if done.returncode == 0:
            return target
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        why = said[0] if said else f"cp ended with status {done.returncode}"
        shutil.rmtree(target, ignore_errors=True)
    notes.append(f"{source} was not copied ({why}): it is read-only (--allow write:{source})")
    return None


def _too_large(source: Path, workspace: Path) -> str | None:
    if workspace.is_relative_to(source):
        return "the replay's own files are in it"
    files, size = 0, 0
    pending = [source]
    while pending:
        try:
            entries = list(os.scandir(pending.pop()))
        except OSError as error:
            return f"{error.filename}: {error.strerror}"
        for entry in entries:
            files += 1
            if entry.is_dir(follow_symlinks=False):
                pending.append(Path(entry.path))
            else:
                size += entry.stat(follow_symlinks=False).st_size
        if files > _MOST_FILES:
            return f"over {_MOST_FILES:,} files"
        if size > _MOST_BYTES:
            return f"over {_MOST_BYTES >> 30} GiB"
    free = shutil.disk_usage(workspace).free
    return None if size < free // 2 else f"{size >> 20:,} MiB, and {free >> 20:,} MiB of disk are free"
