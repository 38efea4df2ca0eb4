"""System calls that a thread can wait in: their names by number, on the machines this is built for.

Only those that say something about what is waited for. A number that is not here is not guessed.
"""

from __future__ import annotations

import platform

X86_64 = {
    0: "read",
    1: "write",
    7: "poll",
    17: "pread64",
    18: "pwrite64",
    19: "readv",
    20: "writev",
    23: "select",
    34: "pause",
    35: "nanosleep",
    40: "sendfile",
    42: "connect",
    43: "accept",
    44: "sendto",
    45: "recvfrom",
    46: "sendmsg",
    47: "recvmsg",
    61: "wait4",
    72: "fcntl",
    73: "flock",
    74: "fsync",
    75: "fdatasync",
    128: "rt_sigtimedwait",
    130: "rt_sigsuspend",
    202: "futex",
    230: "clock_nanosleep",
    232: "epoll_wait",
    247: "waitid",
    257: "openat",
    270: "pselect6",
    271: "ppoll",
    281: "epoll_pwait",
    288: "accept4",
    299: "recvmmsg",
    441: "epoll_pwait2",
}
AARCH64 = {
    22: "epoll_pwait",
    25: "fcntl",
    32: "flock",
    56: "openat",
    63: "read",
    64: "write",
    65: "readv",
    66: "writev",
    67: "pread64",
    68: "pwrite64",
    71: "sendfile",
    72: "pselect6",
    73: "ppoll",
    82: "fsync",
    83: "fdatasync",
    95: "waitid",
    98: "futex",
    101: "nanosleep",
    115: "clock_nanosleep",
    133: "rt_sigsuspend",
    137: "rt_sigtimedwait",
    202: "accept",
    203: "connect",
    206: "sendto",
    207: "recvfrom",
    211: "sendmsg",
    212: "recvmsg",
    242: "accept4",
    243: "recvmmsg",
    260: "wait4",
    441: "epoll_pwait2",
}
_TABLES = {"x86_64": X86_64, "aarch64": AARCH64}
NAMES = _TABLES.get(platform.machine(), {})

ON_DESCRIPTOR = frozenset(
    ("read", "write", "pread64", "pwrite64", "readv", "writev", "sendfile", "connect", "accept", "accept4")
    + ("sendto", "recvfrom", "sendmsg", "recvmsg", "recvmmsg", "flock", "fsync", "fdatasync", "fcntl")
)
"""their first argument is the descriptor that is waited for"""
SLEEPS = frozenset(("nanosleep", "clock_nanosleep", "pause", "rt_sigtimedwait", "rt_sigsuspend"))
POLLS = frozenset(("poll", "ppoll"))
SELECTS = frozenset(("select", "pselect6"))
EPOLLS = frozenset(("epoll_wait", "epoll_pwait", "epoll_pwait2"))

FUTEX_WAITS = frozenset((0, 6, 9, 11))
"""FUTEX_WAIT, LOCK_PI, WAIT_BITSET, WAIT_REQUEUE_PI, without the flags"""
FUTEX_COMMAND = 0x7F

BY_CHANNEL = (
    ("do_wait", "child"),
    ("futex", "lock"),
    ("hrtimer_nanosleep", "sleep"),
    ("pipe_read", "pipe"),
    ("anon_pipe", "pipe"),
    ("n_tty_read", "terminal"),
    ("sk_wait_data", "socket"),
    ("unix_stream", "socket"),
    ("inet_csk_accept", "socket"),
)
"""beginnings of names of kernel functions (/proc/PID/wchan), for when the system call may not be seen"""
