"""The JupyterLab that `krt lab` starts: found, started, stopped.

One for each KRT_RUNTIME_DIR. `lab.json` there names its process beyond its pid, and how to reach it; a lock
lets one caller start it at a time. The token is in that file and in the server's configuration, both 0600,
and in no argument, environment or log. What the server keeps for itself is under KRT_HOME/lab, never in the
directory it serves. Stopping or killing it changes no session.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import importlib.util
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct

from kernel_runtime import places, process
from kernel_runtime.client.spawn import tail
from kernel_runtime.errors import LabFault, MissingPackage, UsageError

START_WITHIN = 60.0
_POLL = 0.05


class Lab(Struct, frozen=True, kw_only=True):
    """`lab.json`: a JupyterLab that runs."""

    process: process.ProcessId
    url: str
    """with a slash at its end, without the token"""
    token: str
    root: str

    def page(self, path: str | None) -> str:
        """The address that opens a notebook, or Lab as it was left; with the token."""
        place = f"lab/tree/{quote(path)}" if path else "lab"
        return f"{self.url}{place}?token={self.token}"

    def ask(self, path: str, timeout: float = 10.0) -> Any:
        """What the server answers to a GET.

        Raises:
            LabFault: it did not, within so many seconds.
        """
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"token {self.token}"})  # noqa: S310
        try:
            with _direct().open(request, timeout=timeout) as reply:
                return json.loads(reply.read())
        except (OSError, ValueError) as error:  # URLError and a time limit are OSErrors
            reason = getattr(error, "reason", None) or error
            raise LabFault(
                f"JupyterLab runs (pid {self.process.pid}) and does not answer at {self.url}: {reason}",
                hint=f"`krt lab --stop` ends it, no session changes; its log is {log_file()}",
                url=self.url,
                pid=self.process.pid,
            ) from error


def _direct() -> urllib.request.OpenerDirector:
    # what is on this machine is not asked for through a proxy
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))


def require() -> None:
    """Refuse without JupyterLab.

    Raises:
        MissingPackage: names what to install.
    """
    missing = [
        name for name in ("jupyterlab", "jupyter_server_ydoc") if importlib.util.find_spec(name) is None
    ]
    if missing:
        raise MissingPackage(
            f"`krt lab` needs {', '.join(missing)}, which is not installed",
            hint="pip install kernel-runtime[lab]",
            missing=missing,
        )


def running() -> Lab | None:
    """The one that runs here."""
    try:
        lab = msgspec.json.decode((places.runtime_dir() / "lab.json").read_bytes(), type=Lab)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None
    return lab if process.is_alive(lab.process) else None


@contextlib.contextmanager
def turn() -> Iterator[None]:
    """Held while somebody starts or stops it."""
    lock = os.open(places.runtime_dir() / "lab.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


class How(Struct, frozen=True, kw_only=True):
    """How one is to be started."""

    root: Path
    ip: str
    port: int | None
    token: str


def start(how: How) -> Lab:
    """Start one that stays when its caller leaves; returns when its sessions are attached.

    Raises:
        LabFault: it ended, or did not answer in time; the hint holds its log's end.
    """
    child = spawn(how, log=log_file())
    try:
        return wait(child, how)
    except BaseException:
        child.kill()
        child.wait()
        raise


def spawn(how: How, *, log: Path | None) -> subprocess.Popen[bytes]:
    """The server's process; without a log it writes where its caller does.

    Raises:
        UsageError: it could not listen there whatever happens.
        LabFault: the port is taken.
    """
    check_address(how.ip, how.port or 0)
    if log is None:
        return subprocess.Popen(command(configure(how)), stdin=subprocess.DEVNULL, cwd=how.root)
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(
            command(configure(how)),
            stdin=subprocess.DEVNULL,
            stdout=fd,
            stderr=fd,
            start_new_session=True,
            cwd=how.root,
        )
    finally:
        os.close(fd)


def check_address(ip: str, port: int) -> None:
    """Refuse an address that cannot be listened at, in words; the server would end over it.

    Raises:
        UsageError: it is no address of this machine, or not one for this user.
        LabFault: the port is taken.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            None if ip in ("", "*") else ip, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:  # gaierror is one
        if error.errno == errno.EADDRINUSE:
            raise LabFault(
                f"port {port} is taken on {ip}", hint="`--port 0` takes any that is free", ip=ip, port=port
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM):
            raise UsageError(
                f"port {port} is not for this user to listen at", hint="`--port` of 1024 or more"
            ) from error
        raise UsageError(
            f"{ip} is no address of this machine ({error.strerror})",
            hint="127.0.0.1 by default; 0.0.0.0 listens on all of its addresses",
        ) from error


def command(config: Path) -> list[str]:
    """argv of the server."""
    # -P: a file in the served directory must not stand in for a module
    return [sys.executable, "-P", "-m", "jupyterlab", f"--config={config}", "--no-browser"]


def wait(child: subprocess.Popen[bytes], how: How) -> Lab:
    """Until the server that was started answers; writes `lab.json`."""
    who = process.identify(child.pid)
    deadline = time.monotonic() + START_WITHIN
    while child.poll() is None and time.monotonic() < deadline and who is not None:
        if (url := _address(child.pid)) is not None:
            lab = Lab(process=who, url=url, token=how.token, root=str(how.root))
            with contextlib.suppress(LabFault):
                lab.ask("kernel-runtime/api/sessions")
                _write(places.runtime_dir() / "lab.json", msgspec.json.encode(lab))
                return lab
        time.sleep(_POLL)
    what = f"ended with status {child.poll()}" if child.poll() is not None else "did not answer in time"
    raise LabFault(f"JupyterLab {what}", hint=f"the end of {log_file()}:\n{tail(log_file())}")


def _address(pid: int) -> str | None:
    """Where the server says that it listens; it takes another port when the one it was told is taken."""
    from jupyter_core.paths import jupyter_runtime_dir

    try:
        document = json.loads((Path(jupyter_runtime_dir()) / f"jpserver-{pid}.json").read_text())
    except (FileNotFoundError, ValueError):
        return None
    host = document["hostname"]
    if host in ("0.0.0.0", "::", ""):  # noqa: S104 - told, not bound
        host = "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host else host}:{document['port']}{document['base_url']}"


def stop(lab: Lab) -> None:
    """End it. No session changes."""
    process.signal_process(lab.process, signal.SIGTERM)
    deadline = time.monotonic() + 15.0
    while process.is_alive(lab.process):
        if time.monotonic() > deadline:
            process.signal_process(lab.process, signal.SIGKILL)
        time.sleep(_POLL)
    (places.runtime_dir() / "lab.json").unlink(missing_ok=True)


def token() -> str:
    """The same each time, so that a page which is open gets on with the server that comes after this one."""
    path = _state() / "token"
    with contextlib.suppress(FileNotFoundError):
        if kept := path.read_text().strip():
            return kept
    made = secrets.token_hex(24)
    _write(path, made.encode())
    return made


def log_file() -> Path:
    return _state() / "lab.log"


def _state() -> Path:
    """Where the server keeps what is its own.

    Raises:
        LabFault: it cannot be made.
    """
    place = places.home() / "lab"
    try:
        places.private_dir(places.home())
        return places.private_dir(place)
    except OSError as error:
        raise LabFault(
            f"{place}, where JupyterLab's configuration goes, cannot be made: {error.strerror}",
            hint="set KRT_HOME to a directory that you may write",
        ) from error


def configure(how: How) -> Path:
    """Write the server's configuration; its path."""
    state = _state()
    document: dict[str, Any] = {
        "ServerApp": {
            "root_dir": str(how.root),
            "ip": how.ip,
            "open_browser": False,
            "jpserver_extensions": {"kernel_runtime.jupyter": True},
            # kernels run as whoever runs this, so being root here adds nothing to what they can do
            "allow_root": os.geteuid() == 0,
        },
        "IdentityProvider": {"token": how.token},
        "YDocExtension": {
            "disable_rtc": False,
            "session_store_path": str(state / "collaboration_sessions.json"),
        },
        "SQLiteYStore": {"db_path": str(state / "ystore.db")},
        "BaseFileIdManager": {"db_path": str(state / "file_id_manager.db")},
        # no news: a question on every first page, and requests to hosts that nobody asked for (the
        # extension sees to it: JupyterLab itself asks all the same)
        "LabApp": {"workspaces_dir": str(state / "workspaces"), "news_url": None},
    }
    if how.port is not None:
        document["ServerApp"] |= {"port": how.port, "port_retries": 0}
    path = state / "jupyter_config.json"
    _write(path, json.dumps(document, indent=2).encode())
    return path


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all, and for its owner only.

    Raises:
        LabFault: it cannot be written.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(content)
        draft.rename(path)
    except OSError as error:
        raise LabFault(
            f"{path} cannot be written: {error.strerror}", hint="see what its disk and its mode say"
        ) from error


def show(url: str) -> None:
    """Open the person's browser. The token goes through a file: arguments are read by everyone."""
    import html
    import webbrowser

    page = places.runtime_dir() / "lab-open.html"
    text = f'<!doctype html><meta http-equiv="refresh" content="0; url={html.escape(url)}">'
    _write(page, text.encode())
    webbrowser.open(page.as_uri())
