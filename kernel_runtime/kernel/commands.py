"""`!command` in a cell: a child that has the kernel's terminal, so that it can ask.

IPython runs it on a terminal of its own that nobody reads from: what asks there asks in vain. Here its
input, and its /dev/tty, are the kernel's terminal, which the supervisor watches and clients answer. Its
output goes to a terminal all the same, so programs write it line by line and in colour, as they did.
It is in the kernel's process group: SIGINT reaches it as it reaches any other child.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import select
import signal
import subprocess
import termios

_CHUNK = 1 << 14
_PATIENCE = 1.0
"""seconds that an interrupted command has to end by itself"""
_OFLAG = 1


def run(command: str) -> int:
    """Run a shell command; its exit status, or minus the signal that ended it."""
    master, slave = os.openpty()
    try:
        settings = termios.tcgetattr(slave)
        settings[_OFLAG] &= ~termios.OPOST
        termios.tcsetattr(slave, termios.TCSANOW, settings)
        child = subprocess.Popen(["/bin/sh", "-c", command], stdout=slave, stderr=slave)
    except BaseException:
        os.close(master)
        raise
    finally:
        os.close(slave)
    try:
        with child:
            try:
                _show(child.pid, master)
            except KeyboardInterrupt:
                _end(child)
                _show(child.pid, master)
    finally:
        os.close(master)
    code = child.returncode
    # a shell tells by 128 + N that signal N ended its last command
    return code if code <= 128 else 128 - code


def _show(pid: int, master: int) -> None:
    """Print what it writes until it has ended; a process that it leaves behind is not waited for."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    poll = select.poll()
    poll.register(master, select.POLLIN)
    ended = -1
    with contextlib.suppress(ProcessLookupError):  # waited for already
        ended = os.pidfd_open(pid)
        poll.register(ended, select.POLLIN)
    try:
        while True:
            ready = [fd for fd, _ in poll.poll(0 if ended < 0 else None)]
            if master not in ready:
                return
            try:
                text = decoder.decode(os.read(master, _CHUNK))
            except OSError:  # nobody has the other end any more
                return
            print(text, end="", flush=True)  # noqa: T201 - into the cell
    finally:
        if ended >= 0:
            os.close(ended)


def _end(child: subprocess.Popen[bytes]) -> None:
    """It was interrupted with us, and may take a moment; one that ignores it is ended."""
    for signum in (None, signal.SIGTERM, signal.SIGKILL):
        if signum is not None:
            child.send_signal(signum)
        with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            child.wait(_PATIENCE)
            return
