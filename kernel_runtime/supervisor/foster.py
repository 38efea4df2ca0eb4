# ruff: noqa: SIM105 - contextlib is loaded by nothing else here
"""The parent of a kernel: one that stays, and that holds the kernel's terminal.

`python foster.py STATUS_FILE TERMINAL_LOG KEYS PROGRAM [ARGUMENT…]`

Some kernels end when their parent does, and a supervisor may be replaced at any time. So this small
process is the parent: leader of a session of its own whose controlling terminal is a pty, of which it
holds both ends. It starts the kernel in a process group of its own, the terminal's foreground group, tells
`PID TERMINAL` on its stdout (the kernel's is our stderr), appends what the terminal shows to TERMINAL_LOG
(bounded), types what comes through the FIFO KEYS, and when the kernel has ended tells its wait(2) status on
stdout and in STATUS_FILE.

Invariant: neither a supervisor's end nor the kernel's hangs anybody up. Were the kernel the session's
leader, its death would be SIGHUP for every server that a cell started; were the supervisor the holder of
the pty, its death would be SIGHUP for all. Nobody who writes to the terminal ever waits for a reader.
Not promised: that others survive this process's own SIGKILL, which is a terminal's hang-up.
Nothing of ours is imported, and little else: it lives as long as the kernel.
"""

# what `signal` wraps in enumerations: a third of this process's memory, and of its start
import _signal as signal  # type: ignore[import-not-found]
import fcntl
import os
import select
import sys
import termios

LOG_MAX = 1 << 18
"""bytes of the terminal's output that are kept at most"""
LOG_KEPT = 1 << 16
"""of them after the log was cut"""
_CHUNK = 1 << 12
_DISABLED = b"\0"  # _POSIX_VDISABLE of Linux
_WINDOW = b"".join(n.to_bytes(2, sys.byteorder) for n in (24, 80, 0, 0))
"""struct winsize: lines, columns"""
_LFLAG = 3
_CC = 6


def main(status_file: str, log_file: str, keys_file: str, argv: list[str]) -> None:
    # or our own typing, and giving the terminal away, would stop us
    for signum in (
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGTTOU,
        signal.SIGTTIN,
        signal.SIGTSTP,
    ):
        signal.signal(signum, signal.SIG_IGN)
    master, slave = _open_terminal()
    pid, failed = _start(slave, argv)
    _tell("!" + failed if failed else f"{pid} {os.ttyname(slave)}")
    # not the kernel's working directory: that may be unmounted
    try:
        os.chdir("/")
    except OSError:
        pass
    if not failed:
        _serve(pid, master, slave, log_file, keys_file)
    status = os.waitpid(pid, 0)[1]
    _tell(str(status))
    try:
        draft = f"{status_file}.new"
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        os.write(fd, str(status).encode())
        os.close(fd)
        os.rename(draft, status_file)  # noqa: PTH104 - pathlib is a megabyte of memory for one call
    except OSError:  # a full disk: who started us has it from our stdout
        pass
    # a session whose leader ends is hung up: its foreground group hears SIGHUP, so let that be us alone
    os.tcsetpgrp(slave, os.getpid())
    os._exit(0)


def _tell(line: str) -> None:
    try:
        os.write(1, f"{line}\n".encode())
    except OSError:  # whoever started us may be gone
        pass


def _open_terminal() -> tuple[int, int]:
    """The two ends of a new pty that is our session's controlling terminal."""
    master, slave = os.openpty()
    os.set_blocking(master, False)
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    fcntl.ioctl(slave, termios.TIOCSWINSZ, _WINDOW)
    settings = termios.tcgetattr(slave)
    # a control character in an answer may end input or interrupt, and not stop or kill the kernel
    settings[_CC][termios.VSUSP] = settings[_CC][termios.VQUIT] = _DISABLED
    termios.tcsetattr(slave, termios.TCSANOW, settings)
    return master, slave


def _start(slave: int, argv: list[str]) -> tuple[int, str]:
    """The kernel's pid, and the errno if it could not be executed."""
    tell, told = os.pipe()  # closed by a successful exec, else the errno
    pid = os.fork()
    if pid == 0:
        try:
            os.setpgid(0, 0)
            os.tcsetpgrp(slave, os.getpid())
            os.dup2(slave, 0)
            os.dup2(2, 1)
            # the supervisor ignores some, we the others, and what is ignored stays so over exec
            for signum in (
                *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE),
                *(signal.SIGTTOU, signal.SIGTTIN, signal.SIGTSTP),
            ):
                signal.signal(signum, signal.SIG_DFL)
            os.execvp(argv[0], argv)  # noqa: S606 - argv is the kernelspec's, and no shell is wanted
        except OSError as error:
            os.write(told, str(error.errno).encode())
        os._exit(127)
    os.close(told)
    failed = os.read(tell, 16).decode()
    os.close(tell)
    return pid, failed


def _serve(pid: int, master: int, slave: int, log_file: str, keys_file: str) -> None:
    """Keep the terminal's log and type what is sent to it, until the kernel has ended."""
    ended = os.pidfd_open(pid)
    # both ends are ours: a supervisor that leaves is no end of file
    keys = os.open(keys_file, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    poll.register(keys, select.POLLIN)
    poll.register(master, select.POLLIN)
    log = _Log(log_file)
    typed = b""
    while True:
        ready = [fd for fd, _ in poll.poll()]
        if keys in ready and not typed:
            typed = os.read(keys, _CHUNK)
        if typed:
            typed = _type(master, slave, typed, log)
        poll.modify(master, select.POLLIN | (select.POLLOUT if typed else 0))
        _read(master, log)
        if ended in ready:
            return


def _type(master: int, slave: int, typed: bytes, log: "_Log") -> bytes:
    """Put it into the terminal; what it does not take yet."""
    shown = termios.tcgetattr(slave)[_LFLAG] & termios.ECHO
    try:
        written = os.write(master, typed)
    except BlockingIOError:
        return typed
    if not shown:
        # no echo ends the line of the prompt: without this the next one would seem to be part of it
        log.append(b"\n")
    return typed[written:]


def _read(master: int, log: "_Log") -> None:
    try:
        for _ in range(16):
            log.append(os.read(master, _CHUNK))
    except BlockingIOError:
        pass


class _Log:
    """The terminal's output on disk; a full disk costs what it cannot take."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = 0

    def append(self, data: bytes) -> None:
        try:
            if self._size + len(data) > LOG_MAX:
                self._cut()
            self._size += os.write(self._fd, data)
        except OSError:
            pass

    def _cut(self) -> None:
        """Keep the end, in a new file, so that a reader sees the old one or the new one."""
        kept = os.pread(self._fd, LOG_KEPT, max(0, self._size - LOG_KEPT))
        draft = f"{self._path}.new"
        fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.write(fd, kept)
        os.rename(draft, self._path)  # noqa: PTH104
        os.close(self._fd)
        self._fd, self._size = fd, len(kept)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
