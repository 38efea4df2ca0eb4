"""`krt lab`: JupyterLab on the sessions."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import click

from kernel_runtime.cli import frame, lab_server, report
from kernel_runtime.errors import LabFault, NoSuchNotebook, UsageError

_KNOWN_WITHIN = 30.0
"""seconds until a busy server's own look has found a session that was made a moment ago"""


@frame.command("lab", example="krt lab\nkrt lab alice --root ~/project\nkrt lab --stop")
@click.argument("name", required=False, shell_complete=frame._complete_session)  # noqa: SLF001 - optional here
@click.option(
    "--root", type=click.Path(path_type=Path), metavar="DIR", help="What it serves; here by default."
)
@click.option("--port", type=click.IntRange(0, 65535), metavar="N", help="Exactly this port; 0: any.")
@click.option("--ip", default="127.0.0.1", metavar="IP", help="Where it listens; on this machine by default.")
@click.option("--no-browser", is_flag=True, help="Print the address and open nothing.")
@click.option("--foreground", is_flag=True, help="Stay, and be the server: for a container or a unit.")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The token is what this file holds; then it is not printed.",
)
@click.option("--stop", is_flag=True, help="End the one that runs; sessions go on.")
def command(
    *,
    name: str | None,
    root: Path | None,
    port: int | None,
    ip: str,
    no_browser: bool,
    foreground: bool,
    token_file: Path | None,
    stop: bool,
    as_json: bool,
    principal: str | None,
) -> int:
    """Start JupyterLab on the sessions, or print the address of the one that runs.

    With NAME the address opens that session's notebook. The token is in the address: do not pass it on.
    """
    from kernel_runtime.client import session_files

    del principal
    if name is not None:
        session_files.load(name)
    if stop:
        return _stop(as_json=as_json)
    lab_server.require()
    place = (root.expanduser() if root else Path.cwd()).absolute()
    how = lab_server.How(
        root=_directory(place),
        ip=ip,
        port=port,
        token=_token(token_file) if token_file else lab_server.token(),
    )
    if foreground:
        return _stay(how, name, secret=token_file is not None, as_json=as_json)
    with lab_server.turn():
        lab = lab_server.running()
        found = lab is not None
        if lab is None:
            lab = lab_server.start(how)
    url = _print(lab, name, started=not found, secret=token_file is not None, as_json=as_json)
    if as_json:
        return 0
    if found and (what := _other(lab, place if root else None, port)):
        report.note(f"  it runs already, {what}; `krt lab --stop` ends it, no session changes")
    if not os.access(lab.root, os.W_OK):
        report.note(f"  {lab.root} is not yours to write: notebooks in it open, and are not saved")
    report.note("  next: open it; `krt lab --stop` ends it, sessions go on")
    if not no_browser:
        lab_server.show(url)
    return 0


def _directory(place: Path) -> Path:
    if not place.is_dir():
        raise UsageError(f"{place} is not a directory", hint="pass --root DIR of an existing directory")
    if not os.access(place, os.R_OK | os.X_OK):
        raise UsageError(f"{place} is not yours to read", hint="pass --root DIR of a directory that is")
    return place


def _other(lab: lab_server.Lab, root: Path | None, port: int | None) -> str:
    """In what the one that runs differs from what was asked for; empty: in nothing."""
    differs = []
    if root is not None and str(root) != lab.root:
        differs.append(f"serves {lab.root}")
    if port and port != urlsplit(lab.url).port:
        differs.append(f"listens at port {urlsplit(lab.url).port}")
    return " and ".join(differs)


def _path_of(lab: lab_server.Lab, name: str | None) -> str | None:
    """The session's notebook as the server has it.

    Raises:
        NoSuchNotebook: it lies outside what the server serves, or the server is of another KRT_HOME.
        LabFault: the server has not looked.
    """
    from kernel_runtime.client import session_files

    if name is None:
        return None
    deadline = time.monotonic() + _KNOWN_WITHIN
    while True:
        rows = {row["name"]: row["path"] for row in lab.ask("kernel-runtime/api/sessions")}
        if rows.get(name):
            return str(rows[name])
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
    if name not in rows:
        raise NoSuchNotebook(
            f"session {name}: the JupyterLab that runs was started with another KRT_HOME, and knows no such",
            hint="`krt lab --stop`, then `krt lab NAME`; or set KRT_RUNTIME_DIR too",
            session=name,
        )
    if Path(session_files.load(name).notebook).is_relative_to(lab.root):
        raise LabFault(
            f"session {name}: JupyterLab has not seen it within {_KNOWN_WITHIN:g} s",
            hint="try again; `krt lab --stop`, then `krt lab NAME` if that does not help",
        )
    raise NoSuchNotebook(
        f"session {name}: its notebook lies outside {lab.root}, which JupyterLab serves",
        hint="`krt lab --stop`, then `krt lab NAME --root DIR` with a directory above it",
        session=name,
        root=lab.root,
    )


def _stop(*, as_json: bool) -> int:
    with lab_server.turn():
        lab = lab_server.running()
        if lab is not None:
            lab_server.stop(lab)
    if as_json:
        report.emit({"stopped": lab is not None})
    else:
        print("stopped; the sessions go on" if lab is not None else "none runs")
    return 0


def _stay(how: lab_server.How, name: str | None, *, secret: bool, as_json: bool) -> int:
    """Be there for as long as the server is; a signal to this process is one to it."""
    with lab_server.turn():
        if (other := lab_server.running()) is not None:
            raise LabFault(
                f"one runs already (pid {other.process.pid})", hint="`krt lab --stop` ends it, sessions go on"
            )
        child = lab_server.spawn(how, log=None)
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(signum, lambda *_: child.terminate())
        lab = lab_server.wait(child, how)
    _print(lab, name, started=True, secret=secret, as_json=as_json)
    sys.stdout.flush()
    status = child.wait()
    return 0 if status in (0, -signal.SIGTERM) else 1


def _token(file: Path) -> str:
    """What the file holds."""
    try:
        token = file.read_text().strip()
    except OSError as error:
        raise UsageError(
            f"{file}: {error.strerror}", hint="a file that holds the token, mode 0600"
        ) from error
    if len(token) < 16:
        raise UsageError(f"{file} holds no token", hint="16 letters and digits at least")
    return token


def _print(lab: lab_server.Lab, name: str | None, *, started: bool, secret: bool, as_json: bool) -> str:
    """Say where it is; the address that opens it."""
    path = _path_of(lab, name)
    url = lab.page(path)
    shown = url.partition("?")[0] if secret else url
    if as_json:
        document = {
            "url": shown,
            "base_url": lab.url,
            "pid": lab.process.pid,
            "root": lab.root,
            "path": path,
            "started": started,
            "log": str(lab_server.log_file()),
        }
        report.emit(document if secret else document | {"token": lab.token})
    else:
        print(shown)
    return url
