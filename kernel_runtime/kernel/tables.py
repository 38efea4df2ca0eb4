"""This process as the operating system shows it, before and after a cell: what no audit event tells.

Environment, working directory, signal handlers, children, descriptors, and how many bytes were
written. What differs is an effect of the kind `found`, or a sign that something went unseen.

Invariant: it compares by identity and by plain values, so no code of the user's runs, and it keeps
nothing of the user's beyond `after`. Its cost is bounded: descriptors beyond _MAX_NEW are counted.

Not promised: who did it. Between `before` and `after` another thread, or a native library, may have.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # signal wraps each of its answers in an enum
import _socket
import fcntl
import os
import signal
import stat
import threading
from collections.abc import Callable, Collection, Iterable
from operator import is_not
from typing import Any

from kernel_runtime.kernel.audited import Effect, address, argv, type_name

_SIGNALS = range(1, signal.NSIG)
_MAX_NEW = 256
_MAX_WATCHED = 64
_MAX_PATHS = 2000
_UNEXPLAINED = 1000
"""bytes: less than a log line or two of the kernel's own is no sign of anything"""
_TCP_INFO = 11
_AF_UNIX, _AF_INET, _AF_INET6, _SOCK_STREAM = 1, 2, 10, 1
_EXPLAINS_WRITING = frozenset(("file", "process", "database", "descriptor"))
_EXPLAINS_SOCKETS = frozenset(("socket", "host", "url"))


class Tables:
    """What was there before the cell. `own`: directories whose files are the runtime's."""

    def __init__(self) -> None:
        self.own: tuple[str, ...] = ()
        self.own_fds: Callable[[], Collection[int]] = tuple
        """descriptors that the runtime opens and closes meanwhile"""
        self._fds: set[int] | None = None
        self._own_names: set[Any] = set()
        self._files: dict[int, _File] = {}
        self._connections: dict[int, _Connection] = {}
        self._paths: dict[str, None] = {}
        self._bound: dict[int, str] = {}
        self._io = self._children = self._directory = -1
        self._environ: dict[Any, Any] = {}
        self._handlers: list[Any] = []
        self._cwd = ""
        self._written = (0, 0)
        self._pids = b""

    def noted(self, effect: Effect) -> None:
        """The hook saw this: its file will be no surprise among the descriptors."""
        if effect[0] == "file" and len(self._paths) < _MAX_PATHS:
            self._paths[effect[2][0][1]] = None

    def before(self) -> None:
        """Right before the cell."""
        if self._fds is None:
            self._start()
        self._environ = _environ().copy()
        self._cwd = _cwd()
        for file in self._files.values():
            file.look()
        for connection in self._connections.values():
            connection.look()
        self._handlers = list(map(_signal.getsignal, _SIGNALS))
        self._pids = _pread(self._children)
        self._written = _counted(_pread(self._io))

    def undone(self, seen: list[Effect], times: list[int]) -> set[Effect]:
        """Those of the effects that the cell itself took back: the directory, variables. Before `after`."""
        found = {effect for effect in seen if effect[0] == "cwd"} if _cwd() == self._cwd else set()
        changes: dict[str, dict[str, int]] = {}
        for (kind, how, fields), count in zip(seen, times, strict=True):
            if kind == "environ":
                changes.setdefault(fields[0][1], {})[how] = count
        now = _environ()
        for name, hows in changes.items():
            value = now.get(key := os.fsencode(name))
            if value != self._environ.get(key):
                continue
            # One putenv that os.environ knows nothing of looks like a change taken back, but for its number.
            if "unset" in hows if value is None else "set" in hows and sum(hows.values()) > 1:
                found |= {("environ", how, (("name", name),)) for how in hows}
        return found

    def after(self, seen: Iterable[Effect]) -> tuple[list[Effect], list[str]]:
        """What differs and is not among the effects seen; and signs of the unseen."""
        written = _counted(_pread(self._io))
        kinds = {effect[0] for effect in seen}
        found: list[Effect] = []
        signs: list[str] = []
        self._compare_signals(found)
        self._compare_environ(found, seen)
        if (cwd := _cwd()) != self._cwd and "cwd" not in kinds:
            found.append(("cwd", "found", (("path", cwd),)))
        if "process" not in kinds and (pids := _pread(self._children)) != self._pids:
            known = self._pids.split()
            found += [_child(int(pid)) for pid in pids.split() if pid not in known and pid.isdigit()]
        found += [file.changed() for file in self._files.values() if file.differs()]
        signs += [connection.why for connection in self._connections.values() if connection.differs()]
        self._compare_descriptors(found, kinds)
        if kinds.isdisjoint(_EXPLAINS_WRITING) and not any(e[0] in _EXPLAINS_WRITING for e in found):
            # a wake-up inside the kernel is a write of 8 bytes to an eventfd
            excess = (written[0] - self._written[0]) - 8 * (written[1] - self._written[1])
            if excess > _UNEXPLAINED:
                signs.append(f"writing: {excess} bytes were written to what no effect explains")
        return found, signs

    def _start(self) -> None:
        """What is open now is the kernel's own."""
        if self._io < 0:
            self._io = os.open("/proc/self/io", os.O_RDONLY | os.O_CLOEXEC)
            self._directory = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        main = threading.main_thread().native_id
        try:
            self._children = os.open(f"/proc/self/task/{main}/children", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
            self._children = -1
        self._fds = self._list()
        for fd in self._fds:
            if _link(fd).startswith("socket:"):
                self._own_names.add(_asked(fd, lambda s: s.getsockname()))
        self._own_names -= {None, "", b""}

    def _list(self) -> set[int]:
        own = self.own_fds()
        found = set(map(int, os.listdir("/proc/self/fd")))
        listing = os.dup(self._io)  # gets the number that the listing itself had, and is gone again
        os.close(listing)
        found.discard(listing)
        return found.difference(own)

    def _is_as_listed(self) -> bool:
        """Whether the same descriptors are open: all of them still are, and there are no more.

        Since Linux 6.2 the size of the directory is their number (before: 0). Asking takes a third of the
        time that listing does.
        """
        known = self._fds or set()
        try:
            if os.fstat(self._directory).st_size != len(known) + len(self.own_fds()):
                return False
            for fd in known:
                fcntl.fcntl(fd, fcntl.F_GETFD)
        except OSError:
            return False
        return True

    def _compare_signals(self, found: list[Effect]) -> None:
        before, self._handlers = self._handlers, []
        after = list(map(_signal.getsignal, _SIGNALS))
        if not any(map(is_not, before, after)):
            return
        for number, was, now in zip(_SIGNALS, before, after, strict=True):
            if was is not now:
                name = signal.Signals(number).name if number in _NAMED else f"signal {number}"
                fields = (("signal", name), ("before", _handler(was)), ("after", _handler(now)))
                found.append(("signal", "handler", fields))

    def _compare_environ(self, found: list[Effect], seen: Iterable[Effect]) -> None:
        before, self._environ = self._environ, {}
        now = _environ()
        if before == now:
            return
        known = {effect[2][0][1] for effect in seen if effect[0] == "environ"}
        for name in sorted(before.keys() | now.keys()):
            told = os.fsdecode(name)
            if before.get(name) != now.get(name) and told not in known and told != "KRT_EXECUTION":
                found.append(("environ", "found", (("name", told),)))

    def _compare_descriptors(self, found: list[Effect], kinds: set[str]) -> None:
        before = self._fds or set()
        self._fds = now = before if self._is_as_listed() else self._list()
        for gone in before - now:
            self._files.pop(gone, None)
            self._connections.pop(gone, None)
            self._bound.pop(gone, None)
        # a number that was used before may be another file now
        again = [fd for fd in (*self._files, *self._connections) if fd in now and _link(fd) != self._was(fd)]
        fresh = [*(now - before), *again]
        for fd in sorted(fresh)[:_MAX_NEW]:
            self._files.pop(fd, None)
            self._connections.pop(fd, None)
            link = _link(fd)
            if link.startswith("/"):
                self._new_file(fd, link, found)
            elif link.startswith("socket:"):
                self._new_socket(fd, link, found, kinds)
        if len(fresh) > _MAX_NEW:
            found.append(("descriptor", "more", (("descriptors", len(fresh) - _MAX_NEW),)))

    def _was(self, fd: int) -> str:
        return self._files[fd].link if fd in self._files else self._connections[fd].link

    def _new_file(self, fd: int, link: str, found: list[Effect]) -> None:
        if link.startswith(("/memfd:", *self.own)):
            return
        try:
            writable = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
            mode = os.fstat(fd).st_mode
        except OSError:  # closed meanwhile
            return
        if not writable:
            return
        path = link.removesuffix(" (deleted)")
        if stat.S_ISREG(mode):
            if len(self._files) < _MAX_WATCHED:
                self._files[fd] = _File(fd, link)
            if path not in self._paths:
                found.append(("descriptor", "open", (("path", path), ("fd", fd))))
        elif path.startswith("/dev/pts/") or path == "/dev/ptmx":
            found.append(("descriptor", "terminal", (("path", path), ("fd", fd))))

    def _new_socket(self, fd: int, link: str, found: list[Effect], kinds: set[str]) -> None:
        if (asked := _asked(fd, _who)) is None:
            return
        family, _, here, there = asked
        if here in self._own_names:
            return  # the kernel's own channels
        if there is None and self._fds is not None:
            self._fds.discard(fd)  # not connected yet: look again next time
        if there is not None and not (family == _AF_UNIX and not there and not here):
            where = dict(address(family, there))
            peer = where.get("path") or f"{where.get('host')}:{where.get('port')}"
            if len(self._connections) < _MAX_WATCHED:
                self._connections[fd] = _Connection(fd, link, peer)
            if kinds.isdisjoint(_EXPLAINS_SOCKETS):
                found.append(("descriptor", "connection", (*address(family, there), ("fd", fd))))
        elif (
            there is None
            and self._bound.get(fd) != link
            and kinds.isdisjoint(_EXPLAINS_SOCKETS)
            and _is_bound(family, here)
        ):
            found.append(("descriptor", "bound", (*address(family, here), ("fd", fd))))
            self._bound[fd] = link


class _File:
    """A file that a cell left open for writing: later cells write to it, and no event tells."""

    __slots__ = ("_now", "_was", "fd", "link")

    def __init__(self, fd: int, link: str) -> None:
        self.fd, self.link = fd, link
        self._was: tuple[int, int] | None = None
        self._now: tuple[int, int] | None = None

    def look(self) -> None:
        self._was = _stamp(self.fd, self.link)

    def differs(self) -> bool:
        self._now = _stamp(self.fd, self.link)
        return self._was is not None and self._now is not None and self._was != self._now

    def changed(self) -> Effect:
        return ("file", "changed", (("path", self.link.removesuffix(" (deleted)")), ("fd", self.fd)))


class _Connection:
    """A connection that a cell left open: what goes through it is no event."""

    __slots__ = ("_sent", "fd", "link", "peer")

    def __init__(self, fd: int, link: str, peer: str) -> None:
        self.fd, self.link, self.peer = fd, link, peer
        self._sent: tuple[int, int] | None = None

    @property
    def why(self) -> str:
        return f"connection: something may have been sent to {self.peer}"

    def look(self) -> None:
        self._sent = _asked(self.fd, _sent)

    def differs(self) -> bool:
        """Also True where nobody counts: Unix sockets."""
        return self._sent is None or self._sent != _asked(self.fd, _sent)


_NAMED = frozenset(int(number) for number in signal.Signals)
_decode = os.fsdecode


def _environ() -> dict[Any, Any]:
    """The dict behind os.environ."""
    data = getattr(os.environ, "_data", None)
    return data if type(data) is dict else {}


def _cwd() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - a string, per execution
    except OSError:
        return ""


def _pread(fd: int) -> bytes:
    return os.pread(fd, 4096, 0) if fd >= 0 else b""


def _counted(io: bytes) -> tuple[int, int]:
    """Bytes written and calls that wrote, by this process and the children it has waited for."""
    words = io.split(None, 8)
    if len(words) < 9 or words[2] != b"wchar:":  # a cell closed our descriptor, and has its own there now
        return 0, 0
    return int(words[3]), int(words[7])


def _link(fd: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""


def _stamp(fd: int, link: str) -> tuple[int, int] | None:
    try:
        found = os.fstat(fd) if _link(fd) == link else os.stat(link)  # noqa: PTH116
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def _asked(fd: int, question: Callable[[Any], Any]) -> Any:
    """What a socket says, asked through a copy: an interrupt in here must not close the user's."""
    try:
        sock = _socket.socket(-1, -1, -1, os.dup(fd))
    except OSError:
        return None
    try:
        return question(sock)
    except OSError:
        return None
    finally:
        sock.close()


def _who(sock: Any) -> tuple[int, int, Any, Any]:
    try:
        there = sock.getpeername()
    except OSError:
        there = None
    return int(sock.family), int(sock.type), sock.getsockname(), there


def _sent(sock: Any) -> tuple[int, int] | None:
    """Segments with data that left, and bytes that wait to: tcp_info, where the kernel counts."""
    if sock.family not in (_AF_INET, _AF_INET6) or sock.type != _SOCK_STREAM:
        return None
    info = sock.getsockopt(6, _TCP_INFO, 160)
    if len(info) < 160:
        return None
    return int.from_bytes(info[156:160], "little"), int.from_bytes(info[144:148], "little")


def _is_bound(family: int, here: Any) -> bool:
    return bool(here) if family == _AF_UNIX else type(here) is tuple and len(here) > 1 and bool(here[1])


def _handler(value: Any) -> str:
    if value is None:
        return "none"
    if type(value) is signal.Handlers or type(value) is int:
        return {0: "default", 1: "ignore"}.get(int(value), "unknown")
    return f"a {type_name(value)}"


def _child(pid: int) -> Effect:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = [_decode(word) for word in file.read(1 << 14).split(b"\0")[:-1]]
    except OSError:
        words = []
    return ("process", "found", (("pid", pid), ("argv", tuple(argv(words)))))
