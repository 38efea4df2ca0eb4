"""The directory of a session: made, listed and removed without a supervisor.

A session exists when its directory holds `session.json`. Who it is never changes; where its notebook lies
may, by `move_notebook`, which replaces the file as a whole.
It is made under another name and renamed into place, so that of any number of callers exactly one
creates it and nobody ever sees half of one. What the directory holds besides is listed in `places`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from kernel_runtime import places, process
from kernel_runtime.core.listing import some
from kernel_runtime.errors import (
    DiskFull,
    JournalCorrupt,
    NoSuchSession,
    NotAllowed,
    ReadOnlyStorage,
    SessionBusy,
    SessionExists,
    StorageFault,
    UsageError,
)

DEFAULT_KERNEL = "python3"
_SHOWN = 8
"""sessions that an error names"""


class SessionFile(Struct, frozen=True, kw_only=True):
    """`session.json`: who the session is."""

    session_id: str
    name: str
    kernel: str
    """kernelspec name"""
    cwd: str
    """absolute; where the kernel starts"""
    notebook: str
    """absolute path of the notebook derived from the journal"""
    principal: str
    """who created it"""
    created_at: str
    """UTC, ISO 8601"""
    transport: str = "ipc"
    """`ipc` or `tcp` (with CurveZMQ)"""
    scratch: bool = False
    """read once and thrown away: no entry has to outlive a power cut, and nobody reads its notebook"""

    @property
    def directory(self) -> Path:
        return places.session_dir(self.name)

    @property
    def journal(self) -> Path:
        return self.directory / "journal.db"

    @property
    def front(self) -> Path:
        """The front door's connection file; there once a supervisor has started."""
        return places.socket_dir(self.session_id) / "front.json"


def create(
    name: str,
    *,
    kernel: str | None = None,
    cwd: str | Path | None = None,
    notebook: str | Path | None = None,
    principal: str | None = None,
    transport: str = "ipc",
    scratch: bool = False,
) -> SessionFile:
    """Create a session; its kernel is started by the first client that needs it.

    Raises:
        InvalidName: not a session name.
        SessionExists: the name is taken; nothing was changed.
        UnknownKernelSpec: no such kernelspec; the hint lists the installed ones.
        UsageError: `cwd` is not a directory, or `transport` neither ipc nor tcp.
        StorageFault: KRT_HOME cannot be written.
    """
    target = places.session_dir(name)
    if transport not in ("ipc", "tcp"):
        raise UsageError(f"transport {transport!r}", hint="ipc (this host) or tcp (with CurveZMQ)")
    where = (Path(cwd) if cwd else _here(name)).absolute()
    if not where.is_dir():
        raise UsageError(
            f"session {name}: {where} is not a directory", hint="pass --cwd DIR of an existing directory"
        )
    if exists(name):
        raise _exists(name)
    if kernel is not None and kernel != DEFAULT_KERNEL:
        from kernel_runtime.client.kernelspecs import require

        require(kernel)
    document = SessionFile(
        session_id=str(uuid.uuid4()),
        name=name,
        kernel=kernel or DEFAULT_KERNEL,
        cwd=str(where),
        notebook=str(Path(notebook).absolute() if notebook else target / "notebook.ipynb"),
        principal=principal or places.principal(),
        created_at=datetime.now(UTC).isoformat(),
        transport=transport,
        scratch=scratch,
    )
    with _storage_faults(name):
        _place(document, target)
    return document


def _here(name: str) -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise UsageError(
            f"session {name}: the directory this was started in is gone",
            hint="cd to one that exists, or pass --cwd DIR",
        ) from None


def _place(document: SessionFile, target: Path) -> None:
    places.private_dir(places.home())
    places.private_dir(target.parent)
    draft = target.parent / f".new-{document.session_id}"
    draft.mkdir(mode=0o700)
    try:
        _write_document(draft / "session.json", document)
        _sync_directory(draft)
        try:
            # rename(2) replaces an empty directory only, and a session's is never empty
            draft.rename(target)
        except (FileExistsError, NotADirectoryError, OSError) as error:
            if target.exists() or target.is_symlink():
                raise _exists(document.name) from error
            raise
        _sync_directory(target.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def move_notebook(name: str, notebook: str | Path) -> SessionFile:
    """Have another file be the session's notebook; whoever calls has put it there, and tells the supervisor.

    Raises:
        NoSuchSession: none of that name.
        StorageFault: it cannot be written; nothing was changed.
    """
    session = load(name)
    draft = session.directory / f".session-{uuid.uuid4().hex}"
    with _storage_faults(name):
        lock = os.open(session.directory / "spawn.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            moved = msgspec.structs.replace(load(name), notebook=str(Path(notebook).absolute()))
            _write_document(draft, moved)
            draft.rename(session.directory / "session.json")
            _sync_directory(session.directory)
        finally:
            draft.unlink(missing_ok=True)
            os.close(lock)
    return moved


def _write_document(path: Path, document: SessionFile) -> None:
    with open(path, "xb", opener=places.private) as file:
        file.write(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _exists(name: str) -> SessionExists:
    return SessionExists(
        f"session {name} exists already",
        hint=f"use it (`krt exec {name} …`, `krt attach {name}`) or choose another name",
        session=name,
    )


@contextlib.contextmanager
def _storage_faults(name: str) -> Iterator[None]:
    """Turn what the file system refuses into an error that says where and what to do."""
    try:
        yield
    except OSError as error:
        where = str(error.filename or places.sessions_dir())
        if error.errno in DiskFull.ERRNOS:
            raise DiskFull(
                f"session {name}: no space left at {where}", hint="free some space, or set KRT_HOME elsewhere"
            ) from error
        if error.errno in ReadOnlyStorage.ERRNOS:
            raise ReadOnlyStorage(
                f"session {name}: {where} cannot be written ({error.strerror})",
                hint="set KRT_HOME to a directory of your own",
            ) from error
        raise StorageFault(f"session {name}: {error.strerror} at {where}", hint="see `krt doctor`") from error


def exists(name: str) -> bool:
    """Whether a session of that name is under this KRT_HOME."""
    return (places.session_dir(name) / "session.json").is_file()


def load(name: str) -> SessionFile:
    """The session of that name.

    Raises:
        InvalidName: not a session name.
        NoSuchSession: none of that name; the hint names those that exist.
        NotAllowed: it belongs to another user.
        JournalCorrupt: `session.json` is not what was written.
    """
    path = places.session_dir(name) / "session.json"
    try:
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        known = names()
        raise NoSuchSession(
            f"no session {name} under {places.home()}",
            hint=(f"there are: {some(known, _SHOWN)}; " if known else "")
            + f"`krt new {name}` creates it, `--create` on exec does so too",
            session=name,
        ) from None
    except PermissionError as error:
        raise NotAllowed(
            f"session {name}: {path} belongs to another user",
            hint="set KRT_HOME to a directory of your own",
            session=name,
        ) from error
    try:
        document = msgspec.json.decode(raw, type=SessionFile)
    except msgspec.MsgspecError as error:
        raise JournalCorrupt(
            f"session {name}: {path} cannot be read: {error}",
            hint="restore session.json from a backup; the journal beside it is untouched",
            session=name,
        ) from error
    if document.name != name:  # a directory copied or renamed by hand would share ids and sockets
        raise JournalCorrupt(
            f"session {name}: {path} says it is session {document.name}",
            hint=f"rename the directory back to {document.name}",
            session=name,
        )
    return document


def names() -> list[str]:
    """Names of all sessions under this KRT_HOME, sorted."""
    try:
        found = os.listdir(places.sessions_dir())
    except (FileNotFoundError, PermissionError):
        return []
    return sorted(name for name in found if places.NAME.fullmatch(name) and exists(name))


def living_kernel(session: SessionFile) -> process.ProcessId | None:
    """The kernel that `kernel.json` names, if exactly that process lives."""
    try:
        document = msgspec.json.decode((session.directory / "kernel.json").read_bytes())
    except (FileNotFoundError, msgspec.MsgspecError):
        return None
    found = _process_in(document)
    return found if found is not None and process.is_alive(found) else None


def living_holders(session: SessionFile) -> list[process.ProcessId]:
    """The holders of managed processes (`krt spawn`) that live."""
    found: list[process.ProcessId] = []
    for path in (session.directory / "processes").glob("*.json"):
        with contextlib.suppress(FileNotFoundError, msgspec.MsgspecError, KeyError, TypeError):
            holder = msgspec.convert(msgspec.json.decode(path.read_bytes())["holder"], process.ProcessId)
            if process.is_alive(holder):
                found.append(holder)
    return found


def lives(session: SessionFile) -> bool:
    """Whether anything of the session runs: its supervisor, its kernel or a managed process."""
    from kernel_runtime.client import spawn

    return spawn.is_running(session) or living_kernel(session) is not None or bool(living_holders(session))


def _process_in(document: object) -> process.ProcessId | None:
    if not isinstance(document, dict):
        return None
    with contextlib.suppress(msgspec.ValidationError):
        return msgspec.convert(document, process.ProcessId)
    for value in document.values():
        if (found := _process_in(value)) is not None:
            return found
    return None


def remove(name: str) -> SessionFile:
    """Remove a stopped session: journal, checkpoints and its own notebook, for ever.

    A notebook that lies elsewhere is left alone.

    Raises:
        NoSuchSession: none of that name.
        SessionBusy: its supervisor, its kernel or a managed process lives; nothing was changed.
    """
    session = load(name)
    lock = os.open(session.directory / "spawn.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # with the spawn lock held nobody starts a supervisor in what is about to vanish
        fcntl.flock(lock, fcntl.LOCK_EX)
        if lives(session):
            raise SessionBusy(
                f"session {name} is running",
                hint=f"`krt stop {name}` first: it ends the kernel and keeps the session",
                session=name,
            )
        grave = session.directory.with_name(f".removed-{uuid.uuid4().hex}")
        session.directory.rename(grave)
    finally:
        os.close(lock)
    shutil.rmtree(grave)
    shutil.rmtree(places.socket_dir(session.session_id), ignore_errors=True)
    return session
