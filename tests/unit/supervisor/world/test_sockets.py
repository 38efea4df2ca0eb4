"""The tables of /proc/net, as the kernel writes them on a machine with little-endian words."""

from __future__ import annotations

from kernel_runtime.supervisor.world.sockets import parse_inet, parse_unix

HEAD = b"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
TCP = HEAD + (
    b"   0: 0100007F:0BB8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1001 1 0\n"
    b"   1: 0100007F:0BB8 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 1002 1 0\n"
    b"   2: 0100007F:D431 0100007F:0BB8 06 00000000:00000000 03:00000A0B 00000000     0        0 0 3 0\n"
    b"   3: 0100007F:D431 0100007F:0BB8 08 00000000:00000000 03:00000A0B 00000000     0        0 1003 3 0\n"
)
TCP6 = HEAD + (
    b"   0: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A "
    b"00000000:00000000 00:00000000 00000000     0        0 2001 1 0\n"
)
UDP = HEAD + (
    b"  10: 00000000:14E9 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 3001 2 0 0\n"
    b"  11: 0100007F:14EA 08080808:0035 01 00000000:00000000 00:00000000 00000000     0        0 3002 2 0 0\n"
)
UNIX = (
    b"Num       RefCount Protocol Flags    Type St Inode Path\n"
    b"0000000000000000: 00000002 00000000 00010000 0001 01 4001 /run/a b.sock\n"
    b"0000000000000000: 00000003 00000000 00000000 0001 03 4002 /run/a b.sock\n"
    b"0000000000000000: 00000003 00000000 00000000 0001 03 4003\n"
    b"0000000000000000: 00000002 00000000 00000000 0002 01 4004 @abstract\n"
)


def test_tcp() -> None:
    listening, connected, closing = parse_inet("tcp", TCP)
    assert (listening.inode, listening.state, listening.address) == (1001, "listening", "127.0.0.1:3000")
    assert (listening.port, listening.peer) == (3000, None)
    assert (connected.state, connected.peer) == ("connected", "127.0.0.1:54321")
    assert closing.state == "closed by peer"


def test_an_address_of_ipv6_is_in_brackets() -> None:
    (one,) = parse_inet("tcp6", TCP6)
    assert (one.address, one.port) == ("[::1]:8080", 8080)


def test_udp_is_bound_or_connected() -> None:
    bound, connected = parse_inet("udp", UDP)
    assert (bound.state, bound.port, bound.peer) == ("bound", 5353, None)
    assert (connected.state, connected.peer) == ("connected", "8.8.8.8:53")


def test_unix_sockets_with_a_path() -> None:
    found = {one.inode: (one.state, one.address) for one in parse_unix(UNIX)}
    assert found == {
        4001: ("listening", "/run/a b.sock"),
        4002: ("connected", "/run/a b.sock"),
        4004: ("bound", "@abstract"),
    }


def test_nothing_is_nothing() -> None:
    assert list(parse_inet("tcp", b"")) == []
    assert list(parse_unix(b"")) == []
