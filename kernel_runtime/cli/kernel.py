"""`krt kernel`: what our kernelspec runs. A Jupyter tool starts it and believes it to be a kernel.

Without `--session` the session is ephemeral: it is named after the connection file, its front door
binds exactly what that file says, and it goes when its kernel is shut down or this process is killed.
With `--session` it is the named, durable one; this process passes messages between the file's ports
and the session's own front door, and nothing that happens to it changes the session's kernel.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import signal
import time
from pathlib import Path

import click

from kernel_runtime.cli import frame
from kernel_runtime.client.session_files import SessionFile
from kernel_runtime.errors import KernelRuntimeError, NoSuchSession, SessionExists, UsageError

_EPHEMERAL = re.compile(r"jupyter-[0-9a-f]{16}")
_KEEP = 3600.0
"""seconds that an ephemeral session is kept after a kernel that died, for a restart or a look"""
_HANDOVER = 15.0
"""seconds that a supervisor whose owner was killed has to let go of the ports"""


@frame.command("kernel", example="krt kernel -f {connection_file}     # as a kernelspec's argv")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "-f", "connection_file", required=True, type=click.Path(path_type=Path), help="Connection file to serve."
)
@click.option("--kernel", metavar="SPEC", help="Kernelspec of the session's kernel; python3 by default.")
@click.option("--session", "name", metavar="NAME", help="Join this session instead of an ephemeral one.")
def command(
    *,
    connection_file: Path,
    kernel: str | None,
    name: str | None,
    arguments: tuple[str, ...],
    as_json: bool,
    principal: str | None,
) -> int:
    """Be a kernel to whoever started this. ARGUMENTS are passed on to the kernel of an ephemeral session."""
    del as_json
    # a manager may interrupt before there is anything to interrupt; the shim's own handler comes later
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if principal is not None:
        os.environ["KRT_PRINCIPAL"] = principal
    from kernel_runtime.cli.kernel_shim import Shim, exit_like

    path = connection_file.absolute()
    if name is not None:
        from kernel_runtime.cli.kernel_relay import Relay

        shim: Shim = Relay(_named(name, kernel), path)
        return exit_like(shim.run())
    session = _ephemeral(path, kernel, list(arguments))
    shim = Shim(session, ephemeral=True)
    ending = shim.run()
    if ending.final:
        _remove(session)
    return exit_like(ending)


# a tool adds options of the kernel's own behind ours, such as --HistoryManager.hist_file
command.context_settings["ignore_unknown_options"] = True


def _named(name: str, kernel: str | None) -> SessionFile:
    from kernel_runtime.client import session_files

    if not session_files.exists(name):
        with contextlib.suppress(SessionExists):
            session_files.create(name, kernel=kernel)
    return session_files.load(name)


def _ephemeral(path: Path, kernel: str | None, arguments: list[str]) -> SessionFile:
    """The session of that connection file, with this process as its owner."""
    from kernel_runtime import process
    from kernel_runtime.client import session_files, spawn
    from kernel_runtime.supervisor import ephemeral
    from kernel_runtime.wire import BadMessage, read_connection

    try:
        connection = read_connection(path)
    except (OSError, BadMessage) as error:
        raise UsageError(
            f"connection file {path} cannot be used: {error}",
            hint="a Jupyter tool writes it and passes it with -f",
        ) from error
    # with the key: the same path used for another kernel later is another session
    digest = hashlib.sha256(f"{path}\0{connection.key}".encode()).hexdigest()
    name = f"jupyter-{digest[:16]}"
    sweep()
    me = process.identify(os.getpid())
    assert me is not None
    deadline = time.monotonic() + _HANDOVER
    while True:
        with contextlib.suppress(SessionExists):
            session_files.create(name, kernel=kernel, cwd=_cwd(), transport=connection.transport)
        try:
            session = session_files.load(name)
            record = ephemeral.Ephemeral(connection_file=str(path), owner=me, arguments=arguments)
            ephemeral.save(session.directory, record)
        except (NoSuchSession, FileNotFoundError):
            continue  # it was just being removed after its last owner
        # the supervisor of an owner that was killed is on its way out, and its ports with it
        if spawn.wait_until_gone(session, max(0.0, deadline - time.monotonic())):
            return session
        raise KernelRuntimeError(
            f"session {name}: the supervisor of an earlier owner does not end",
            hint=f"`krt stop {name}`",
            session=name,
        )


def _cwd() -> Path:
    """Where the kernel runs; the tool that starts it may have removed the place by now, which stops none."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path.home()


def sweep() -> None:
    """Remove ephemeral sessions that nobody came back to."""
    from kernel_runtime import process
    from kernel_runtime.client import session_files
    from kernel_runtime.supervisor import ephemeral

    for name in filter(_EPHEMERAL.fullmatch, session_files.names()):
        with contextlib.suppress(KernelRuntimeError, OSError):
            session = session_files.load(name)
            record = ephemeral.load(session.directory)
            newest = max(item.stat().st_mtime for item in session.directory.iterdir())
            gone = record is None or not process.is_alive(record.owner)
            if gone and time.time() - newest > _KEEP:
                session_files.remove(name)


def _remove(session: SessionFile) -> None:
    from kernel_runtime.client import session_files, spawn

    spawn.wait_until_gone(session, _HANDOVER)
    with contextlib.suppress(NoSuchSession):
        session_files.remove(session.name)
