"""Points at which a process can be killed, stopped or made to fail, by name, from outside.

    KRT_FAILPOINT=NAME:ACTION[:COUNT]

is read once, when a process starts. Without it `reach` is bound to a function that does nothing, and
nothing in this module can make it do anything. With it, the COUNT-th time that NAME is reached
(the first, by default) the ACTION is taken, once in the life of the process:

    kill    SIGKILL of this process
    stop    SIGSTOP of this process
    enospc  OSError, no space left on device
    eio     OSError, input/output error

KRT_FAILPOINT_DIR, if set, names a directory: nothing counts until it holds a file `arm`, and the
point writes its pid into a new file `hit` before it acts. Where `hit` exists already nothing
happens, so a process that takes over with the same environment does not fail a second time.

Names say where: `before-intent`, `after-dispatch`, `kernel-before-reply`, … Those that stand around
an event of the core are given the event, and their second half comes from its type (`EVENTS`).
"""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Callable, Mapping

EVENTS: Mapping[str, str] = {
    "Submitted": "intent",
    "Proceeded": "intent-to-dispatch",
    "Replied": "outcome",
    "KernelExited": "death",
    "KernelCameUp": "started",
    "Adopted": "adopted",
}
"""event type → what `before-` and `after-` are followed by"""

ACTIONS = ("kill", "stop", "enospc", "eio")

Reach = Callable[..., None]


def _nothing(point: str, event: object = None) -> None:
    """No failpoint is set."""


class Failpoint:
    """One point, armed. Call it with every point that is reached."""

    def __init__(self, spec: str, directory: str | None = None) -> None:
        name, _, rest = spec.partition(":")
        action, _, count = rest.partition(":")
        if not name or action not in ACTIONS or not (count or "1").isdigit():
            raise ValueError(f"KRT_FAILPOINT={spec!r} is not NAME:{'|'.join(ACTIONS)}[:COUNT]")
        self.name = name
        self.action = action
        self._left = int(count or 1)
        self._directory = directory

    def __call__(self, point: str, event: object = None) -> None:
        if event is not None:
            point = f"{point}-{EVENTS.get(type(event).__name__, type(event).__name__)}"
        if point != self.name or self._left <= 0 or not self._armed():
            return
        self._left -= 1
        if self._left == 0 and self._first():
            self._act()

    def _armed(self) -> bool:
        return self._directory is None or os.access(os.path.join(self._directory, "arm"), os.F_OK)

    def _first(self) -> bool:
        if self._directory is None:
            return True
        path = os.path.join(self._directory, "hit")
        temporary = f"{path}.{os.getpid()}"
        with open(temporary, "w") as file:
            file.write(str(os.getpid()))
        try:
            os.link(temporary, path)  # appears whole, and for one process only
        except FileExistsError:
            return False
        finally:
            os.remove(temporary)  # noqa: PTH107 - no pathlib: the kernel imports this
        return True

    def _act(self) -> None:
        if self.action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.action == "stop":
            # to the process, any of its threads may take it, and this one goes on for as long as that lasts
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        else:
            number = errno.ENOSPC if self.action == "enospc" else errno.EIO
            raise OSError(number, f"{os.strerror(number)} (failpoint {self.name})")


def _from_environment(environment: Mapping[str, str]) -> Reach:
    spec = environment.get("KRT_FAILPOINT")
    return Failpoint(spec, environment.get("KRT_FAILPOINT_DIR")) if spec else _nothing


reach: Reach = _from_environment(os.environ)
"""`reach(point)` or `reach("before" | "after", event)`: this point has been reached."""
