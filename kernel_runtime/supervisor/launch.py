"""Start a kernel process, and know it again.

The kernel has a parent that outlives us (`foster`), leads its own process group and has a terminal that
is nobody else's, so no client's death reaches it. JPY_PARENT_PID is not set: ipykernel's parent poller would
end it with its supervisor. What is needed to adopt it is written to kernel.json before anybody talks to it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import select
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import zmq
from msgspec import Struct

from kernel_runtime import process
from kernel_runtime.errors import IntegrityFault, KernelStartFailed
from kernel_runtime.process import ProcessId
from kernel_runtime.supervisor.bounds import Bounds
from kernel_runtime.supervisor.door import write_private
from kernel_runtime.supervisor.kernelspec import KernelSpec, is_ipykernel, offers_curve
from kernel_runtime.supervisor.recorder import execution_of_msg
from kernel_runtime.wire import Connection, ipc_connection

_PR_SET_CHILD_SUBREAPER = 36
STATUS_WITHIN = 0.5
"""seconds in which the parent of a kernel has written down how it ended"""

_TRACE_BYTES = 1 << 20
"""are looked through: the fault handler writes up to 100 frames for each of up to 100 threads"""

MARK = "KRT_SESSION_ID"
"""in the environment of every process of a session, so that they are found after reparenting"""


STARTED_BY = "KRT_EXECUTION"
"""msg_id of the request that was running when a process was started, in its environment"""


def started_by_execution(session_id: str, environment: Mapping[str, str]) -> str | None:
    """The execution that started a process, by its environment; None for the kernel itself."""
    msg_id = environment.get(STARTED_BY)
    return execution_of_msg(session_id, msg_id) if msg_id else None


class KernelRecord(Struct, frozen=True, kw_only=True):
    """kernel.json: the living kernel, for whoever supervises next."""

    incarnation: int
    process: ProcessId
    connection: Connection
    outbox: str | None
    """directory of our kernel's outbox; None for a kernel that has none"""
    log: str
    interrupt_mode: str
    language: str
    ready: bool = False
    identities: list[str] = []
    """foreign kernels: under what names requests were sent, the present supervisor's last; the earlier
    ones for a reply that is still due"""
    info: dict[str, Any] | None = None
    """content of its kernel_info_reply, once it answered"""
    foster: ProcessId | None = None
    """its parent, which holds its terminal; None for a kernel of a version that had none"""
    terminal: str | None = None
    """the kernel's controlling terminal, `/dev/pts/N`"""
    keys: str = ""
    """FIFO: what is written there is typed on the terminal"""
    screen: str = ""
    """file to which the terminal's output is appended"""
    observes: bool = False
    """it tells what executions did to its names; False also for one of ours that an older version started"""


def become_subreaper() -> None:
    """Be the parent of every orphan among our descendants (prctl(2), Linux 3.4)."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_CHILD_SUBREAPER): {os.strerror(number)}")


def load_record(path: Path) -> KernelRecord | None:
    """The record, if there is one.

    Raises:
        IntegrityFault: the file is not one of ours; a living kernel may be behind it.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=KernelRecord)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise IntegrityFault(
            f"{path} cannot be read: {error}",
            hint="look for the kernel with `krt doctor`; end it and remove the file to go on",
            path=str(path),
        ) from error


def save_record(path: Path, record: KernelRecord) -> None:
    write_private(path, msgspec.json.encode(record))


def start(
    spec: KernelSpec,
    *,
    session_id: str,
    incarnation: int,
    directory: Path,
    sockets: Path,
    cwd: str,
    key: str,
    kernel_name: str,
    bounds: Bounds,
) -> tuple[subprocess.Popen[bytes], KernelRecord]:
    """Start the kernel of an incarnation; it is not ready yet.

    Raises:
        KernelStartFailed: the program cannot be executed at all.
    """
    own = is_ipykernel(spec) and _importable(spec.argv[0])
    if own:
        connection = ipc_connection(sockets / f"kernel-{incarnation}", key, kernel_name)
    else:
        # the one transport that every kernel knows
        connection = tcp_connection(key, kernel_name, curve=offers_curve(spec))
    connection_file = sockets / f"kernel-{incarnation}.json"
    write_private(connection_file, connection.dump())
    outbox = directory / f"outbox-{incarnation}" if own else None
    values = {
        "connection_file": str(connection_file),
        "prefix": sys.prefix,
        "resource_dir": spec.resource_dir,
    }
    argv = [_fill(part, values) for part in spec.argv]
    if outbox is not None:
        at = argv.index("-m")
        argv[at + 1] = "kernel_runtime.kernel"
        argv += ["--outbox", str(outbox)]
    argv[0] = _interpreter(argv[0])
    env = {k: v for k, v in os.environ.items() if k not in NOT_THE_SESSIONS}
    env.update({k: _fill(v, values) for k, v in spec.env.items()})
    env[MARK] = session_id
    env["KRT_OUTBOX_BOUND"] = str(bounds.outbox)
    env["KRT_OUTBOX_FREE"] = str(bounds.free_disk)
    log = directory / f"kernel-{incarnation}.log"
    keys = sockets / f"kernel-{incarnation}.keys"
    screen = directory / f"kernel-{incarnation}.tty"
    status = status_file(directory, incarnation)
    status.unlink(missing_ok=True)
    keys.unlink(missing_ok=True)
    os.mkfifo(keys, 0o600)
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    try:
        child, pid, terminal = _spawn_in_foster_care(
            [str(status), str(screen), str(keys)], argv, env, cwd, fd
        )
    except OSError as error:
        raise KernelStartFailed(
            f"{shlex.join(argv)} cannot be started: {error.strerror}",
            hint="is the kernel's program installed, and its working directory there?",
            argv=argv,
            stderr=str(error),
        ) from error
    finally:
        os.close(fd)
    who = process.identify(pid) or ProcessId(pid, 0, process.boot_id())
    record = KernelRecord(
        incarnation=incarnation,
        process=who,
        connection=connection,
        outbox=str(outbox) if outbox is not None else None,
        log=str(log),
        interrupt_mode=spec.interrupt_mode,
        language=spec.language,
        identities=[] if own else [new_identity()],
        foster=process.identify(child.pid),
        terminal=terminal,
        keys=str(keys),
        screen=str(screen),
        observes=own,
    )
    return child, record


def _spawn_in_foster_care(
    places: list[str], argv: list[str], env: dict[str, str], cwd: str, log: int
) -> tuple[subprocess.Popen[bytes], int, str]:
    """Start a kernel whose parent outlives us (`foster`); that parent, the kernel's pid and its terminal.

    Raises:
        OSError: the program cannot be executed.
    """
    foster = Path(__file__).with_name("foster.py")
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", str(foster), *places, *argv],
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=log,
        start_new_session=True,
        close_fds=True,
        bufsize=0,
    )
    assert child.stdout is not None
    answer = child.stdout.readline().decode().rstrip("\n")
    if answer.startswith("!") or not answer:
        child.communicate()
        number = int(answer[1:] or 0)
        raise OSError(number, os.strerror(number) if number else "its parent process failed")
    pid, terminal = answer.split(" ", 1)
    return child, int(pid), terminal


def status_file(directory: Path, incarnation: int) -> Path:
    """Where the wait(2) status of a kernel is found once it has ended."""
    return directory / f"kernel-{incarnation}.status"


def told_status(
    directory: Path, incarnation: int, child: subprocess.Popen[bytes] | None = None, patience: float = 0.0
) -> int | None:
    """How a kernel ended, as its parent `child`, or that of another supervisor, tells; None: nobody does."""
    if child is not None and child.stdout is not None:
        with child.stdout:
            ready = select.select([child.stdout], [], [], patience)[0]
            line = child.stdout.readline() if ready else b""
        child.poll()
        if line:
            return int(line)
    deadline = time.monotonic() + patience
    while True:
        try:
            return int(status_file(directory, incarnation).read_text(encoding="ascii"))
        except (FileNotFoundError, ValueError):
            if time.monotonic() >= deadline:
                return None
        time.sleep(0.002)


def new_identity() -> str:
    """A name that no kernel's socket knows yet."""
    return f"krt-{secrets.token_hex(8)}"


def tcp_connection(key: str, kernel_name: str, *, curve: bool) -> Connection:
    """Five ports of the loopback interface that were free a moment ago; with CurveZMQ keys if wanted.

    Whoever takes one first has it: such a kernel fails to start, and is tried again on others.
    """
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(5)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        ports = [one.getsockname()[1] for one in sockets]
    public, secret = zmq.curve_keypair() if curve else (None, None)
    return Connection(
        transport="tcp",
        ip="127.0.0.1",
        shell_port=ports[0],
        iopub_port=ports[1],
        stdin_port=ports[2],
        control_port=ports[3],
        hb_port=ports[4],
        key=key,
        kernel_name=kernel_name,
        curve_publickey=public.decode() if public else None,
        curve_secretkey=secret.decode() if secret else None,
    )


NOT_THE_SESSIONS = frozenset({"JPY_PARENT_PID", "JPY_INTERRUPT_EVENT", "KRT_PRINCIPAL"})
"""of our own environment, what no process of the session gets"""


def _fill(text: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        text = text.replace("{" + name + "}", value)
    return text


def _interpreter(program: str) -> str:
    """As jupyter_client does: a bare `python` in a kernelspec means this environment's."""
    version = sys.version_info
    bare = {"python", f"python{version.major}", f"python{version.major}.{version.minor}"}
    return sys.executable if program in bare else program


def _importable(program: str) -> bool:
    """Whether that interpreter can run our kernel: it is ours, or has the package installed."""
    interpreter = _interpreter(program)
    if os.path.realpath(interpreter) == os.path.realpath(sys.executable) and os.path.dirname(
        interpreter
    ) == os.path.dirname(sys.executable):
        return True
    asked = subprocess.run(
        [interpreter, "-c", "import kernel_runtime.kernel.outbox"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=60,
    )
    return asked.returncode == 0


def last_words(path: str, limit: int = 8192) -> str:
    """What a kernel's log says of its end: the last fatal error of Python's fault handler, or the log's end.

    The handler puts the innermost frame of a thread first, and the thread that failed anywhere among the
    others; a long trace is therefore cut behind that frame, not in front of it.
    """
    try:
        with open(path, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TRACE_BYTES))
            said = file.read()
    except FileNotFoundError:
        return ""
    fatal = said.rfind(b"Fatal Python error")
    if fatal < 0 or len(said) - fatal <= limit:
        return said[-limit:].decode("utf-8", "backslashreplace")
    error, rest = said[fatal:].split(b"\n", 1)
    failed = rest[max(0, rest.find(b"Current thread")) :]
    return (error + b"\n\n" + failed)[:limit].decode("utf-8", "backslashreplace")
