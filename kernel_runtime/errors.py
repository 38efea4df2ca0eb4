"""Every error this package raises on purpose, in one tree.

    KernelRuntimeError
    ├── CallerError                 the request was wrong; change it and ask again
    │   ├── UsageError              exit 2   InvalidName, InvalidSource, InvalidNotebook, UnknownKernelSpec,
    │   │                                    BadProbe
    │   ├── NotFound                exit 3   NoSuchSession, NoSuchExecution, NoSuchNotebook,
    │   │                                    NoSuchProcess, NoSuchVariable
    │   └── Refused                 exit 4   nothing was run: SessionExists, HeapLost, IncarnationMismatch,
    │                                        KeyConflict, CrashLoop, NotBlocked, NotAllowed,
    │                                        SpawnFailed
    ├── EnvironmentFault            exit 4   the machine was at fault, nothing was run: StorageFault
    │                                        (DiskFull, ReadOnlyStorage), JournalNewer, JournalBusy,
    │                                        KernelStartFailed, SupervisorFault, MissingPackage, LabFault
    ├── IntegrityFault              exit 9   JournalCorrupt
    ├── StillRunning                exit 6   time is up, the execution goes on
    └── InternalFault               exit 70  our bug

Each carries `message` (what failed, on what), `hint` (what to do next) and `fields`
(the facts, for programs). `to_json` is the document that `--json` and the wire carry, and
`from_json` raises the same class again on the other side.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any, ClassVar


class KernelRuntimeError(Exception):
    """Base of the tree. `exit_code` is what the CLI exits with."""

    exit_code: ClassVar[int] = 70

    def __init__(self, message: str, *, hint: str = "", **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.fields: dict[str, Any] = fields

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self.hint, self.fields))

    def to_json(self) -> dict[str, Any]:
        return {**self.fields, "type": type(self).__name__, "message": self.message, "hint": self.hint}


def _rebuild(
    cls: type[KernelRuntimeError], message: str, hint: str, fields: dict[str, Any]
) -> KernelRuntimeError:
    return cls(message, hint=hint, **fields)


class CallerError(KernelRuntimeError):
    """The request was wrong."""

    exit_code = 2


class UsageError(CallerError):
    """The request cannot be understood."""


class InvalidName(UsageError):
    """A session name outside `[A-Za-z0-9][A-Za-z0-9._-]{0,63}`."""


class InvalidSource(UsageError):
    """Source that cannot be a cell: not UTF-8, or over the size bound."""


class InvalidNotebook(UsageError):
    """A file that is not a notebook and cannot be repaired into one."""


class UnknownKernelSpec(UsageError):
    """No kernelspec of that name is installed."""


class BadProbe(UsageError):
    """A claim's probe that cannot be read; `fields`: probe, column (from 1), expected."""


class NotFound(CallerError):
    """The thing named does not exist."""

    exit_code = 3


class NoSuchSession(NotFound):
    """No session of that name under this KRT_HOME."""


class NoSuchExecution(NotFound):
    """No execution with that id or key in this session's journal."""


class NoSuchNotebook(NotFound):
    """No notebook at that path."""


class NoSuchProcess(NotFound):
    """No managed process of that name in this session."""


class NoSuchVariable(NotFound):
    """No execution of this session bound or changed a name like that."""


class Refused(CallerError):
    """Understood and declined; nothing was run."""

    exit_code = 4


class SessionExists(Refused):
    """A session of that name exists already."""


class HeapLost(Refused):
    """The kernel this principal knew is gone; `fields["report"]` is the truth table."""


class IncarnationMismatch(Refused):
    """The caller expected another incarnation."""


class KeyConflict(Refused):
    """The idempotency key was used before, with other source."""


class CrashLoop(Refused):
    """The kernel died too often in a row; starting it again needs an explicit restart."""


class NotBlocked(Refused):
    """An answer came while nothing asks, or after somebody else answered."""


class NotAllowed(Refused):
    """The place or connection belongs to another user."""


class SpawnFailed(Refused):
    """A managed process cannot be started, or not be reached."""


class SessionBusy(Refused):
    """The session cannot do this in its present state."""


class EnvironmentFault(KernelRuntimeError):
    """The machine was at fault; nothing was run."""

    exit_code = 4


class StorageFault(EnvironmentFault):
    """The journal's storage failed."""


class DiskFull(StorageFault):
    """No space left, on the disk or in the user's quota."""

    ERRNOS: ClassVar[frozenset[int]] = frozenset({errno.ENOSPC, errno.EDQUOT})


class ReadOnlyStorage(StorageFault):
    """Storage that does not accept our writes."""

    ERRNOS: ClassVar[frozenset[int]] = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})


class JournalNewer(EnvironmentFault):
    """The journal was written by a newer version of this package."""


class JournalBusy(EnvironmentFault):
    """Another process holds the journal."""


class KernelStartFailed(EnvironmentFault):
    """The kernel died before it answered; `fields["stderr"]` is what it said."""


class SupervisorFault(EnvironmentFault):
    """The supervisor could not be started or reached."""


class MissingPackage(EnvironmentFault):
    """An optional part is not installed."""


class LabFault(EnvironmentFault):
    """JupyterLab could not be started."""


class IntegrityFault(KernelRuntimeError):
    """Stored data is not what was written."""

    exit_code = 9


class JournalCorrupt(IntegrityFault):
    """The journal cannot be read as what it claims to be."""


class StillRunning(KernelRuntimeError):
    """The time given was up; the execution goes on."""

    exit_code = 6


class InternalFault(KernelRuntimeError):
    """Our bug."""


def _tree(root: type[KernelRuntimeError]) -> dict[str, type[KernelRuntimeError]]:
    found = {root.__name__: root}
    for sub in root.__subclasses__():
        found.update(_tree(sub))
    return found


def from_json(document: Mapping[str, Any]) -> KernelRuntimeError:
    """The error that `to_json` described; an unknown type becomes an InternalFault that names it."""
    fields = {k: v for k, v in document.items() if k not in ("type", "message", "hint")}
    cls = _tree(KernelRuntimeError).get(str(document.get("type")))
    if cls is None:
        return InternalFault(f"{document.get('type')}: {document.get('message')}", **fields)
    return cls(str(document.get("message", "")), hint=str(document.get("hint", "")), **fields)
