"""Sockets of processes: /proc/net joined with their descriptors by inode.

Listening, bound (UDP) and connected sockets of TCP, UDP and, where they have a path, of Unix. A network
namespace has tables of its own, so they are read once for each namespace that a process is in.

Not promised: the peer of a Unix socket, which no file of /proc tells; raw, netlink and vsock sockets.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

from msgspec import Struct

from kernel_runtime.supervisor.world import procfs

LISTENING, CONNECTED, BOUND = "listening", "connected", "bound"
_STATES = {0x0A: LISTENING, 0x01: CONNECTED, 0x02: "connecting", 0x08: "closed by peer"}
_ACCEPTS = 0x10000
"""__SO_ACCEPTCON, in the flags of /proc/net/unix"""


class Socket(Struct, frozen=True, kw_only=True):
    inode: int
    protocol: str
    """`tcp`, `tcp6`, `udp`, `udp6`, `unix`"""
    state: str
    """`listening`, `connected`, `bound`, `connecting`, `closed by peer`"""
    address: str
    """`127.0.0.1:3000`, `[::1]:3000`, or a path"""
    port: int | None = None
    peer: str | None = None


def of_namespace(pid: int) -> dict[int, Socket]:
    """By inode, the sockets of the network namespace which that process is in."""
    found: dict[int, Socket] = {}
    for protocol in ("tcp", "tcp6", "udp", "udp6"):
        for one in parse_inet(protocol, procfs.read(f"/proc/{pid}/net/{protocol}")):
            found[one.inode] = one
    for one in parse_unix(procfs.read(f"/proc/{pid}/net/unix")):
        found[one.inode] = one
    return found


def parse_inet(protocol: str, raw: bytes) -> Iterator[Socket]:
    """The sockets in a table of TCP or UDP; those in TIME_WAIT have no inode and are left out."""
    for line in raw.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 10 or fields[9] == b"0":
            continue
        address, port = _endpoint(fields[1])
        peer, peer_port = _endpoint(fields[2])
        state = _STATES.get(int(fields[3], 16))
        if protocol.startswith("udp"):
            state = CONNECTED if peer_port else BOUND
        if state is None:
            continue
        yield Socket(
            inode=int(fields[9]),
            protocol=protocol,
            state=state,
            address=_join(address, port),
            port=port,
            peer=_join(peer, peer_port) if peer_port else None,
        )


def parse_unix(raw: bytes) -> Iterator[Socket]:
    """The Unix sockets that have a path."""
    for line in raw.splitlines()[1:]:
        fields = line.split(None, 7)
        if len(fields) < 8:
            continue
        listens = int(fields[3], 16) & _ACCEPTS
        state = LISTENING if listens else CONNECTED if fields[5] == b"03" else BOUND
        yield Socket(
            inode=int(fields[6]),
            protocol="unix",
            state=state,
            address=fields[7].decode("utf-8", "backslashreplace"),
        )


def _endpoint(field: bytes) -> tuple[str, int]:
    """`0100007F:0BB8` is 127.0.0.1:3000: words of the host's byte order, in hexadecimal."""
    address, _, port = field.partition(b":")
    words = [int(address[at : at + 8], 16) for at in range(0, len(address), 8)]
    packed = struct.pack(f"={len(words)}I", *words)
    family = socket.AF_INET if len(words) == 1 else socket.AF_INET6
    return socket.inet_ntop(family, packed), int(port, 16)


def _join(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


class Tables:
    """The sockets of each namespace, read when first asked for."""

    def __init__(self) -> None:
        self._by_namespace: dict[str, dict[int, Socket]] = {}
        self._by_process: dict[int, dict[int, Socket]] = {}

    def find(self, pid: int, inode: int) -> Socket | None:
        """The socket behind an inode of that process."""
        table = self._by_process.get(pid)
        if table is None:
            namespace = procfs.link(f"/proc/{pid}/ns/net")
            if namespace not in self._by_namespace:
                self._by_namespace[namespace] = of_namespace(pid)
            table = self._by_process[pid] = self._by_namespace[namespace]
        return table.get(inode)
