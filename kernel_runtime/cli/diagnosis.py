"""The checks behind `krt doctor`. Each says what was found and, where it is not well, how to mend it.

Looks only: no session is started, adopted or changed by being examined.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from msgspec import Struct

from kernel_runtime import places, process
from kernel_runtime.client import overview, session_files
from kernel_runtime.errors import KernelRuntimeError

_LITTLE = 1024**3
_NO_SPACE = 100 * 1024**2
_PACKAGES = (
    "apsw",
    "click",
    "ipykernel",
    "jupyter_client",
    "msgspec",
    "nbformat",
    "pyzmq",
    "rich",
    "zstandard",
)
_SQLITE = (3, 37, 0)
"""STRICT tables"""
_MARK = "KRT_SESSION_ID"


class Finding(Struct, frozen=True, kw_only=True):
    """One check."""

    check: str
    level: str
    """`ok`, `warning` or `failed`"""
    found: str
    mend: str = ""


def examine(principal: str | None = None) -> list[Finding]:
    """All checks."""
    found = [*_python(), *_packages(), *_home(), *_sockets(), *_kernels()]
    found += _sessions(principal)
    found += _orphans()
    return found


def _python() -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    # an older one cannot even import this
    yield Finding(check="python", level="ok", found=f"{version} at {sys.executable}")


def _packages() -> Iterator[Finding]:
    missing = []
    versions = []
    for name in _PACKAGES:
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        mend = "pip install --upgrade --force-reinstall kernel-runtime"
        yield Finding(check="packages", level="failed", found=f"missing: {', '.join(missing)}", mend=mend)
    else:
        yield Finding(check="packages", level="ok", found=", ".join(versions))
    if "apsw" not in missing:
        import apsw

        found = apsw.sqlite_lib_version()
        old = tuple(int(part) for part in found.split(".")[:3]) < _SQLITE
        mend = "pip install --upgrade apsw" if old else ""
        yield Finding(check="sqlite", level="failed" if old else "ok", found=found, mend=mend)
    if "pyzmq" not in missing:
        import zmq

        curve = zmq.has("curve")
        yield Finding(
            check="curve",
            level="ok" if curve else "warning",
            found="zmq has CurveZMQ" if curve else "zmq was built without CurveZMQ",
            mend=""
            if curve
            else "sessions with --transport tcp need it: pip install --force-reinstall pyzmq",
        )


def _home() -> Iterator[Finding]:
    home = places.home()
    if not home.exists():
        above = next(parent for parent in home.parents if parent.exists())
        fine = os.access(above, os.W_OK)
        yield Finding(
            check="KRT_HOME",
            level="ok" if fine else "failed",
            found=f"{home} is not there yet" + ("" if fine else f", and {above} cannot be written"),
            mend="" if fine else "set KRT_HOME to a directory of your own",
        )
        return
    yield from _private("KRT_HOME", home)
    free = shutil.disk_usage(home).free
    level = "failed" if free < _NO_SPACE else "warning" if free < _LITTLE else "ok"
    mend = "" if level == "ok" else "free some space, `krt rm` old sessions, or set KRT_HOME to another disk"
    yield Finding(check="free space", level=level, found=f"{free / 1024**3:.1f} GiB at {home}", mend=mend)


def _private(check: str, path: Path) -> Iterator[Finding]:
    info = path.stat()
    mode = stat.S_IMODE(info.st_mode)
    if info.st_uid != os.getuid():
        mend = f"set {check} to a directory of your own"
        yield Finding(check=check, level="failed", found=f"{path} belongs to uid {info.st_uid}", mend=mend)
    elif not os.access(path, os.W_OK | os.X_OK):
        found = f"{path} cannot be written"
        mend = f"mount it writable, chmod u+rwx {path}, or set {check} elsewhere"
        yield Finding(check=check, level="failed", found=found, mend=mend)
    elif mode & 0o077:
        mend = f"chmod 700 {path}"
        yield Finding(check=check, level="warning", found=f"{path} is open to others ({mode:04o})", mend=mend)
    else:
        yield Finding(check=check, level="ok", found=str(path))


def _sockets() -> Iterator[Finding]:
    asked = os.environ.get("KRT_RUNTIME_DIR")
    try:
        path = places.runtime_dir()
    except (KernelRuntimeError, OSError) as error:
        mend = "set KRT_RUNTIME_DIR to a short path of your own"
        yield Finding(check="KRT_RUNTIME_DIR", level="failed", found=str(error).partition("\n")[0], mend=mend)
        return
    if asked and Path(asked).absolute() != path:
        found = f"{asked} is too long for sockets (107 bytes with their names); they are in {path}"
        mend = "nothing has to be done; a shorter KRT_RUNTIME_DIR avoids it"
        yield Finding(check="KRT_RUNTIME_DIR", level="warning", found=found, mend=mend)
    else:
        yield from _private("KRT_RUNTIME_DIR", path)


def _kernels() -> Iterator[Finding]:
    from kernel_runtime.client.kernelspecs import available

    specs = available()
    if session_files.DEFAULT_KERNEL not in specs:
        mend = "pip install ipykernel (in this environment)"
        yield Finding(check="kernelspecs", level="failed", found="no python3", mend=mend)
    else:
        yield Finding(check="kernelspecs", level="ok", found=", ".join(sorted(specs)))


def _sessions(principal: str | None) -> Iterator[Finding]:
    rows = overview.sessions(principal)
    for row in rows:
        name, state = row["name"], row["state"]
        check, problem = f"session {name}", row.get("problem")
        if problem and not row["session_id"]:
            mend = f"look at {places.sessions_dir() / name}; nothing in it was changed"
            yield Finding(check=check, level="failed", found=problem, mend=mend)
        elif problem and row["kernel_pid"] is not None and row["supervisor_pid"] is None:
            mend = f"krt status {name} (or krt stop {name})"
            yield Finding(check=check, level="warning", found=f"orphaned: {problem}", mend=mend)
        elif problem:
            mend = f"see {session_files.load(name).directory / 'supervisor.log'}, and krt verify {name}"
            yield Finding(check=check, level="failed", found=problem, mend=mend)
        elif state == "unresponsive":
            mend = f"krt status {name} says why; krt interrupt {name}, or krt restart {name}"
            yield Finding(check=check, level="warning", found="the kernel does not answer", mend=mend)
        elif state == "dead":
            mend = f"krt status {name} says what is lost; the next accepted exec starts a new kernel"
            yield Finding(check=check, level="warning", found="its kernel died", mend=mend)
        else:
            yield Finding(check=check, level="ok", found=f"{state}, incarnation {row['incarnation']}")
    for name in overview.leftovers():
        path = places.sessions_dir() / name
        found = f"{path} was left by a command that was killed"
        yield Finding(check="leftovers", level="warning", found=found, mend=f"rm -r {path}")
    yield from _stale_sockets({row["session_id"].replace("-", "")[:12] for row in rows})


def _stale_sockets(known: set[str]) -> Iterator[Finding]:
    try:
        found = sorted(p for p in places.runtime_dir().iterdir() if p.is_dir() and p.name not in known)
    except (KernelRuntimeError, OSError):
        return  # said above
    for path in found:
        if (path / "front.json").exists():
            what = f"{path} belongs to no session under {places.home()}"
            mend = f"rm -r {path}, unless another KRT_HOME uses this KRT_RUNTIME_DIR"
            yield Finding(check="sockets", level="warning", found=what, mend=mend)


def _orphans() -> Iterator[Finding]:
    """Processes that cells started and that no session looks after any more."""
    attended = set()
    for name in session_files.names():
        try:
            session = session_files.load(name)
        except KernelRuntimeError:
            continue  # said above
        if session_files.lives(session):
            attended.add(session.session_id)
    here = str(places.home())
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        environment = process.environment_of(int(entry))
        if not environment or environment.get(_MARK, "") in {"", *attended}:
            continue
        if environment.get("KRT_HOME", here) != here:
            continue  # of another installation, which has its own doctor
        argv = " ".join(process.command_line(int(entry)))[:80]
        if process.identify(int(entry)) is not None:
            found = (
                f"pid {entry} ({argv}) was started in session {environment[_MARK]}, which is stopped or gone"
            )
            yield Finding(check="processes", level="warning", found=found, mend=f"kill {entry}")
