"""What the probes of claims look at on this machine: ports, processes, files, HTTP.

Each function answers with an observation for `core.claims.judge` and changes nothing. They may take as
long as their time limit, so they run on threads (`Observers`), never on the reactor's.

Invariant: what could not be looked at is `{"unknown": REASON}`; no function raises for what it finds.
Not promised: a name resolution that hangs ends with the resolver's own time limit, not with the claim's
(whoever asked has long been told `unknown`).
"""

from __future__ import annotations

import errno
import hashlib
import ipaddress
import os
import queue
import socket
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from kernel_runtime import process
from kernel_runtime.core.claims import File, Http, Pid, Port
from kernel_runtime.core.execution_view import iso_time
from kernel_runtime.core.masking import mask_argv
from kernel_runtime.supervisor import launch
from kernel_runtime.supervisor.reactor import Reactor

T = TypeVar("T")
Seen = dict[str, Any]
Job = Callable[[], Seen]
Done = Callable[[Seen], None]

THREADS = 4
ANY_HOST = "network"
"""in a claim's `allow`: it may ask any host"""
_CHUNK = 1 << 20
_LISTEN = "0A"
_WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - compared with, never bound


class Observers:
    """Runs jobs on a few daemon threads; their results come back on the reactor's.

    Neither `close` nor the process's exit waits for a job, however long it hangs.
    """

    def __init__(self, reactor: Reactor, threads: int = THREADS) -> None:
        self._reactor = reactor
        self._most = threads
        self._jobs: queue.SimpleQueue[tuple[Job, Done] | None] = queue.SimpleQueue()
        self._results: deque[tuple[Done, Seen]] = deque()
        self._bell: int | None = None
        self._threads = 0
        self._busy = 0

    def submit(self, job: Job, done: Done) -> None:
        """Have it run soon; `done` is called later, by the reactor."""
        if self._bell is None:
            self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self._reactor.watch(self._bell, self._ring)
        self._busy += 1
        if self._threads < min(self._most, self._busy):
            self._threads += 1
            threading.Thread(target=self._run, name=f"observer-{self._threads}", daemon=True).start()
        self._jobs.put((job, done))

    def close(self) -> None:
        """Let the threads end, each when what it does is done."""
        for _ in range(self._threads):
            self._jobs.put(None)

    def _run(self) -> None:
        bell = self._bell
        assert bell is not None
        while True:
            next_one = self._jobs.get()
            if next_one is None:
                return
            job, done = next_one
            try:
                seen = job()
            except Exception as error:  # noqa: BLE001 - a fault of ours is told as the reason, and the thread goes on
                seen = {"unknown": f"looking failed: {type(error).__name__}: {error}"}
            self._results.append((done, seen))
            os.eventfd_write(bell, 1)

    def _ring(self) -> None:
        assert self._bell is not None
        os.eventfd_read(self._bell)
        while self._results:
            done, seen = self._results.popleft()
            self._busy -= 1
            done(seen)


# -- ports


class _Tables:
    """Tables of the whole machine, read once for all who asked before the reading began."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[float, Any]] = {}

    def get(self, key: str, asked: float, read: Callable[[], T]) -> T:
        """What `read` gives, not begun before the monotonic time `asked`."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is None or kept[0] < asked:
                kept = self._kept[key] = (time.monotonic(), read())
            return cast("T", kept[1])


_tables = _Tables()


def port(probe: Port, session_id: str, asked: float | None = None) -> Seen:
    """`listening`: the sockets that what is sent to that port would reach, and whose they are.

    They are looked up after `asked` (monotonic; now, if not given).
    """
    asked = time.monotonic() if asked is None else asked
    bound = _tables.get(probe.protocol, asked, lambda: _bound(probe.protocol))
    sockets = [found for found in bound if _reaches(probe, *found[:2])]
    if not sockets:
        return {"listening": []}
    owners = _tables.get("owners", asked, _owners)
    listening = []
    for address, number, inode in sockets:
        row: Seen = {"address": address, "port": number}
        holder = owners.get(inode)
        if holder is not None:
            row["pid"] = holder
            row["command"] = mask_argv(process.command_line(holder))
            row |= _belongs(holder, session_id)
        else:
            row["owner"] = "another user's process, or the system"
        listening.append(row)
    return {"listening": listening}


def _belongs(pid: int, session_id: str) -> Seen:
    """Whether a process is the session's, and which execution started it."""
    environment = process.environment_of(pid)
    if environment is None or environment.get(launch.MARK) != session_id:
        return {"of_session": False}
    row: Seen = {"of_session": True}
    if started_by := launch.started_by_execution(session_id, environment):
        row["started_by"] = started_by
    return row


def _bound(protocol: str) -> list[tuple[str, int, str]]:
    """`(address, port, inode)` of what accepts connections (tcp) or receives from anyone (udp)."""
    found = []
    for table in (protocol, f"{protocol}6"):
        try:
            with open(f"/proc/net/{table}") as file:
                lines = file.read().splitlines()[1:]
        except FileNotFoundError:  # no IPv6 on this machine
            continue
        for line in lines:
            fields = line.split()
            local, remote, state, inode = fields[1], fields[2], fields[3], fields[9]
            if state == _LISTEN if protocol == "tcp" else remote.strip("0") == ":":
                address, _, number = local.partition(":")
                found.append((_address(address), int(number, 16), inode))
    return found


def _address(text: str) -> str:
    """An address as /proc/net has it: 32-bit words, each in the host's byte order."""
    raw = b"".join(bytes.fromhex(text[at : at + 8])[::-1] for at in range(0, len(text), 8))
    address = ipaddress.ip_address(raw)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def _reaches(probe: Port, address: str, number: int) -> bool:
    if number != probe.number:
        return False
    if address in _WILDCARDS:
        return True
    if not probe.host:
        return ipaddress.ip_address(address).is_loopback
    try:
        return ipaddress.ip_address(probe.host) == ipaddress.ip_address(address)
    except ValueError:
        return False


def _owners() -> dict[str, int]:
    """`inode → pid` of every open socket; other users' processes cannot be looked into.

    Of several holders the one with the lowest pid, which as a rule opened it.
    """
    found: dict[str, int] = {}
    for number in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        try:
            descriptors = os.listdir(f"/proc/{number}/fd")
        except OSError:  # gone meanwhile, or not ours to read
            continue
        for descriptor in descriptors:
            try:
                link = os.readlink(f"/proc/{number}/fd/{descriptor}")
            except OSError:  # closed meanwhile
                continue
            if link.startswith("socket:["):
                found.setdefault(link[8:-1], number)
    return found


# -- processes


def pid(probe: Pid, meant: Seen | None) -> Seen:
    """`process`: who has that pid now; `meant`: who had it when the claim was made."""
    return {"process": identity(probe.pid), "meant": meant}


def identity(number: int) -> Seen | None:
    """`start_time`, `boot_id` and `command` of a living process."""
    who = process.identify(number)
    if who is None:
        return None
    return {
        "start_time": who.start_time,
        "boot_id": who.boot_id,
        "command": process.command_line(number),
    }


# -- files


def file(probe: File, cwd: str, deadline: float) -> Seen:
    """`exists`, `path`, `kind`, `bytes`, `modified_at`, and `sha256` where it is asked for."""
    path = os.path.join(cwd, probe.path)
    try:
        info = Path(path).stat()
    except (FileNotFoundError, NotADirectoryError):
        return {"exists": False, "path": path}
    except OSError as error:
        return {"unknown": f"it cannot be looked at: {error.strerror}", "path": path}
    seen: Seen = {
        "exists": True,
        "path": path,
        "kind": _kind(info.st_mode),
        "modified_at": iso_time(info.st_mtime_ns),
    }
    if stat.S_ISREG(info.st_mode):
        seen["bytes"] = info.st_size
    # the size settles it already where it differs
    if probe.sha256 and (probe.bytes is None or probe.bytes == info.st_size):
        seen |= _digest(path, deadline)
    return seen


def _kind(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    return "directory" if stat.S_ISDIR(mode) else "special"


def _digest(path: str, deadline: float) -> Seen:
    # a FIFO that took its place between the look and this would block an ordinary open for ever
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        return {"unknown": f"it cannot be read: {error.strerror}"}
    with open(fd, "rb", buffering=0) as opened:
        before = os.fstat(fd)
        if not stat.S_ISREG(before.st_mode):
            return {"unknown": "it is no regular file: it has no content to compare"}
        digest = hashlib.sha256()
        try:
            while chunk := opened.read(_CHUNK):
                digest.update(chunk)
                if time.monotonic() > deadline:
                    return {"unknown": "reading it took longer than the time limit"}
        except OSError as error:
            return {"unknown": f"it cannot be read: {error.strerror}"}
        after = os.fstat(fd)
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        return {"unknown": "it changed while it was read"}
    return {"sha256": digest.hexdigest()}


# -- HTTP


def http(probe: Http, allow: Iterable[str], deadline: float) -> Seen:
    """`status` of a GET, or `error`. Follows no redirect, uses no proxy, reads no body."""
    parts = urlsplit(probe.url)
    host = parts.hostname or ""
    number = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        addresses = resolve(host, number)
    except OSError as error:
        return {"unknown": f"{host} is no host that is known here: {error.strerror}"}
    allowed = set(allow) & {ANY_HOST, host}
    if not allowed and not all(ipaddress.ip_address(a.partition("%")[0]).is_loopback for a in addresses):
        return {
            "unknown": f"{host} is not this machine, and the claim does not say `--allow {host}`",
            "addresses": addresses,
        }
    errors: list[str] = []
    # to the addresses that were checked, and to none that the name means a moment later
    for address in addresses:
        left = deadline - time.monotonic()
        if left <= 0:
            break
        try:
            return {**_get(probe.url, address, number, left), "address": address}
        except TimeoutError:
            return {"unknown": "no answer within the time limit", "address": address}
        except OSError as error:
            errors.append(_told(error))
    if not errors:
        return {"unknown": "no answer within the time limit"}
    return {"error": "; ".join(dict.fromkeys(errors)), "addresses": addresses}


def resolve(host: str, number: int) -> list[str]:
    """The addresses a name has now."""
    found = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(item[4][0]) for item in found))


def _told(error: OSError) -> str:
    if error.errno == errno.ECONNREFUSED:
        return "connection refused"
    return error.strerror or f"{type(error).__name__}: {error}"


def _get(url: str, address: str, number: int, seconds: float) -> Seen:
    import http.client  # only who asks over HTTP pays for it

    parts = urlsplit(url)
    host = parts.hostname or ""
    connection = http.client.HTTPConnection(host, number, timeout=seconds)
    sock = socket.create_connection((address, number), timeout=seconds)
    began = time.monotonic()
    # a server that sends a byte now and then would outlive any time limit of single reads
    limit = threading.Timer(seconds, lambda: _cut(sock))
    limit.daemon = True
    limit.start()
    try:
        if parts.scheme == "https":
            import ssl

            sock = ssl.create_default_context().wrap_socket(sock, server_hostname=host)
        connection.sock = sock
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", target, headers={"User-Agent": "kernel-runtime", "Connection": "close"})
        answer = connection.getresponse()
        seen: Seen = {"status": answer.status, "reason_phrase": answer.reason}
        if location := answer.getheader("Location"):
            seen["location"] = location[:200]
        return seen
    except (http.client.HTTPException, OSError) as error:
        if time.monotonic() - began >= seconds:
            raise TimeoutError from error
        if isinstance(error, OSError):
            raise
        return {"error": f"what answers there is not HTTP: {type(error).__name__}"}
    finally:
        limit.cancel()
        connection.close()
        sock.close()


def _cut(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it has ended by itself
