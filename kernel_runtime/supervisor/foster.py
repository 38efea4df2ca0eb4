"""The parent of a foreign kernel: one that stays.

`python foster.py PID_FD STATUS_FILE PROGRAM [ARGUMENT…]`

Some kernels end when their parent does, and a supervisor may be replaced at any time. So this small
process is the parent: it starts the kernel as the leader of a session of its own, tells its pid on
PID_FD, waits, writes its wait(2) status to STATUS_FILE for whoever supervises by then, and ends the
way the kernel did. Nothing of ours is imported: it lives as long as the kernel.
"""

import contextlib
import os
import signal
import sys


def main(pid_fd: int, status_file: str, argv: list[str]) -> None:
    os.set_inheritable(pid_fd, False)
    tell, told = os.pipe()  # closed by a successful exec, else the errno
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            # the supervisor ignores them, and what is ignored stays so over exec
            for signum in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
                signal.signal(signum, signal.SIG_DFL)
            os.execvp(argv[0], argv)  # noqa: S606 - argv is the kernelspec's, and no shell is wanted
        except OSError as error:
            os.write(told, str(error.errno).encode())
        os._exit(127)
    os.close(told)
    failed = os.read(tell, 16)
    os.write(pid_fd, b"!" + failed if failed else str(pid).encode())
    os.close(pid_fd)
    os.close(tell)
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    # not the kernel's working directory: that may be unmounted
    with contextlib.suppress(OSError):
        os.chdir("/")
    status = os.waitpid(pid, 0)[1]
    with contextlib.suppress(OSError):  # a full disk: the supervisor has it from us as its child
        draft = f"{status_file}.new"
        with open(draft, "w", encoding="ascii") as file:
            file.write(str(status))
        os.rename(draft, status_file)  # noqa: PTH104 - pathlib is a megabyte of memory for one call
    if os.WIFSIGNALED(status):
        how = os.WTERMSIG(status)
        if how != signal.SIGKILL:
            signal.signal(how, signal.SIG_DFL)
        os.kill(os.getpid(), how)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
