"""The holder of one managed process: parent, terminal and log of it, whoever else comes and goes.

A pseudo terminal ends with the last copy of its master end, so somebody who survives has to keep it, and
only a parent is told how a process ended. That is this one, a few megabytes for each managed process,
started by a supervisor and bound to none. It

- starts the command on a terminal of its own, and writes ID.json once it runs;
- appends what it reads to ID.log, bounded, at the pace of the process and never at that of a reader;
- serves ID.sock: input, size, signals, the screen, the live output (`frames`);
- writes ID.status when the command has ended, and ID.screen, and goes once nobody holds the terminal.

SIGTERM ends the command and then the holder. Not promised: a status when the holder is killed with
SIGKILL; the command is then hung up on.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from ptyprocess import PtyProcess

from kernel_runtime.frames import JSON, RAW, BadFrame, Unpacker, pack
from kernel_runtime.supervisor.holder_drawing import Drawing
from kernel_runtime.supervisor.holder_log import ProcessLog

PATIENCE = 2.0
"""seconds that a command which was told to end has for it"""
GOODBYE = 1.0
"""seconds in which those who listen take the last words"""
_INPUT_MAX = 1 << 16
"""bytes that wait for a command which does not read"""
_LAG_MAX = 1 << 20
"""bytes that wait for a reader; one who is slower is told of a gap and shown the screen again"""
_READ = 1 << 16
_LAST_WORDS = 4 << 20
"""bytes that are read of a command that has ended before its end is told"""

_Handler = Callable[[int], None]


class Peer:
    """Somebody at the socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.unpack = Unpacker()
        self.out = bytearray()
        self.listens = False
        self.missed = 0
        """bytes that this reader was too slow for"""


class Holder:
    """One command, its terminal, and a loop."""

    def __init__(self, config: dict[str, Any], parent: socket.socket) -> None:
        self._config = config
        self._files = os.path.join(config["directory"], config["process_id"])
        self._socket_path = os.path.join(config["sockets"], config["process_id"] + ".sock")
        self._drawing = Drawing(int(config["rows"]), int(config["cols"]))
        self._poll = select.poll()
        self._handlers: dict[int, _Handler] = {}
        self._peers: dict[int, Peer] = {}
        self._input = bytearray()
        self._status: dict[str, Any] | None = None
        self._hung_up = False
        self._ending = False
        self._kill_at: float | None = None
        self._leave_at: float | None = None
        self._parent = parent

    # -- start

    def start(self) -> dict[str, Any]:
        """Run the command; what is known of it.

        Raises:
            OSError: it cannot be run, or its record not be written; then nothing runs.
        """
        config = self._config
        # the log too: a holder of this name whose command left somebody behind still writes the old one
        for suffix in (".status", ".screen", ".json", ".log"):
            _remove(self._files + suffix)
        self._log = ProcessLog(self._files + ".log", bound=config["bound"], floor=config["floor"])
        listener = self._listen()
        self._process = PtyProcess.spawn(
            config["argv"],
            env=config["env"],
            preexec_fn=lambda: _become(config["cwd"]),
            dimensions=(self._drawing.rows, self._drawing.cols),
        )
        self._master: int = self._process.fd
        os.set_blocking(self._master, False)
        os.set_inheritable(self._master, False)
        self._pid: int = self._process.pid
        self._pidfd = os.pidfd_open(self._pid)
        record = {
            "process_id": config["process_id"],
            "pid": self._pid,
            "start_time": _start_time(self._pid),
            "boot_id": config["boot_id"],
            "holder": {
                "pid": os.getpid(),
                "start_time": _start_time(os.getpid()),
                "boot_id": config["boot_id"],
            },
            "argv": config["shown"],
            "cwd": config["cwd"],
            "interactive": config["interactive"],
            "principal": config["principal"],
            "started_at": time.time_ns(),
        }
        try:
            _write(self._files + ".json", record)
        except OSError:
            os.killpg(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            raise
        self._watch(listener.fileno(), lambda _: self._join(listener))
        self._watch(self._master, self._output)
        self._watch(self._pidfd, lambda _: self._reap())
        self._watch_signals()
        self._admit(self._parent)
        return record

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX)
        _remove(self._socket_path)
        # a path may be longer than an address holds; the working directory has no such limit
        os.chdir(self._config["sockets"])
        before = os.umask(0o177)
        try:
            listener.bind(self._config["process_id"] + ".sock")
        finally:
            os.umask(before)
            os.chdir("/")
        self._bound = os.stat(self._socket_path)  # noqa: PTH116 - pathlib is a megabyte of memory
        listener.listen(16)
        listener.setblocking(False)
        return listener

    def _unbind(self) -> None:
        """Nobody is to come to us any more; what a later holder of the name has bound there stays."""
        try:
            ours = os.path.samestat(os.stat(self._socket_path), self._bound)  # noqa: PTH116
        except FileNotFoundError:
            return
        if ours:
            _remove(self._socket_path)

    def _watch(self, fd: int, handler: _Handler, events: int = select.POLLIN) -> None:
        self._handlers[fd] = handler
        self._poll.register(fd, events)

    def _forget(self, fd: int) -> None:
        if self._handlers.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def _watch_signals(self) -> None:
        read, write = os.pipe()
        os.set_blocking(read, False)
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)

        def woken(_: int) -> None:
            os.read(read, 4096)
            self._end()

        for signum in (signal.SIGINT, signal.SIGHUP):
            signal.signal(signum, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: None)
        self._watch(read, woken)

    # -- the loop

    def run(self) -> None:
        """Until the command has ended and nobody holds its terminal any more, or the holder is told to go."""
        while self._leave_at is None or (any(p.out for p in self._peers.values()) and not self._late()):
            for fd, events in self._poll.poll(self._patience()):
                # an earlier one of this round may have forgotten it
                handler = self._handlers.get(fd)
                if handler is not None:
                    handler(events)
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                self._kill_at = None
                self._signal_group(signal.SIGKILL)
            if self._drawing.pending:
                self._drawing.step()
            if self._leave_at is None and self._status is not None and (self._hung_up or self._ending):
                self._keep_screen()
        self._log.close()
        self._unbind()

    def _late(self) -> bool:
        return self._leave_at is not None and time.monotonic() >= self._leave_at

    def _patience(self) -> int | None:
        if self._drawing.pending:
            return 0
        dues = [due for due in (self._kill_at, self._leave_at) if due is not None]
        return max(0, int((min(dues) - time.monotonic()) * 1000) + 1) if dues else None

    # -- the command

    def _output(self, events: int) -> None:
        if events & select.POLLOUT:
            self._send_input()
        if events & (select.POLLIN | select.POLLHUP | select.POLLERR):
            self._read_output(_READ)

    def _read_output(self, most: int) -> int:
        """Take what the terminal holds, `most` bytes and a little; how much it was."""
        pieces: list[bytes] = []
        size = 0
        while size < most:
            try:
                piece = os.read(self._master, _READ)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                piece = b""
            if not piece:
                # the last one who held the terminal has let go
                self._hung_up = True
                self._forget(self._master)
                break
            pieces.append(piece)
            size += len(piece)
        if pieces:
            self._heard(b"".join(pieces))
        return size

    def _heard(self, data: bytes) -> None:
        self._log.append(data)
        self._drawing.heard(data)
        for peer in list(self._peers.values()):
            if peer.listens:
                self._pass_on(peer, data)

    def _pass_on(self, peer: Peer, data: bytes) -> None:
        if peer.missed or len(peer.out) > _LAG_MAX:
            peer.missed += len(data)
        else:
            self._send(peer, RAW, data)

    def _reap(self) -> None:
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if pid == 0:
            return
        self._forget(self._pidfd)
        self._kill_at = None
        left = _LAST_WORDS
        while left > 0 and not self._hung_up and (size := self._read_output(_READ)):
            left -= size
        how = (
            {"signal": os.WTERMSIG(status)}
            if os.WIFSIGNALED(status)
            else {"exit_status": os.WEXITSTATUS(status)}
        )
        self._status = {"pid": self._pid, **how, "ended_at": time.time_ns(), "output": self._log.counts()}
        if self._hung_up:
            self._unbind()  # once the end is told, the name may be used again
        self._keep(".status", self._status)
        for peer in list(self._peers.values()):
            self._say(peer, {"event": "ended", **self._status})

    def _signal_group(self, signum: int, *, foreground: bool = False) -> bool:
        if self._status is not None:
            return False
        group = self._pid
        if foreground:
            try:
                group = os.tcgetpgrp(self._master)
            except OSError:
                group = self._pid
        try:
            os.killpg(group, signum)
        except ProcessLookupError:
            return False
        return True

    def _end(self) -> None:
        """Have the command end; then go."""
        self._ending = True
        if self._status is not None or self._kill_at is not None:
            return
        self._signal_group(signal.SIGTERM)
        if self._config["interactive"]:
            self._signal_group(signal.SIGHUP)  # a shell does not end at SIGTERM
        self._signal_group(signal.SIGCONT)
        self._kill_at = time.monotonic() + PATIENCE

    def _write_input(self, data: bytes) -> bool:
        """Type; False when the command has not read what was typed before."""
        if self._hung_up or len(self._input) + len(data) > _INPUT_MAX:
            return False
        self._input += data
        self._send_input()
        return True

    def _send_input(self) -> None:
        try:
            while self._input:
                # a terminal takes 4095 bytes of a line, and drops what is beyond
                sent = os.write(self._master, self._input[:1024])
                del self._input[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._input.clear()
        if not self._hung_up:
            self._poll.modify(self._master, select.POLLIN | (select.POLLOUT if self._input else 0))

    # -- those at the socket

    def _join(self, listener: socket.socket) -> None:
        try:
            sock, _ = listener.accept()
        except OSError:
            return
        self._admit(sock)

    def _admit(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        peer = Peer(sock)
        self._peers[sock.fileno()] = peer
        self._watch(sock.fileno(), lambda events: self._talk(peer, events))

    def _dismiss(self, peer: Peer) -> None:
        fd = peer.sock.fileno()
        if fd >= 0:
            self._forget(fd)
            self._peers.pop(fd, None)
            peer.sock.close()

    def _talk(self, peer: Peer, events: int) -> None:
        if events & select.POLLOUT:
            self._flush(peer)
        if not events & (select.POLLIN | select.POLLHUP | select.POLLERR):
            return
        try:
            data = peer.sock.recv(_READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._dismiss(peer)
            return
        try:
            for kind, content in peer.unpack.feed(data):
                if kind == RAW:
                    self._write_input(content)
                else:
                    self._answer(peer, json.loads(content))
        except (BadFrame, ValueError, TypeError, KeyError, AttributeError) as error:
            self._say(peer, {"ok": False, "error": f"not understood: {error}"})
            self._dismiss(peer)

    def _send(self, peer: Peer, kind: int, content: bytes) -> None:
        peer.out += pack(kind, content)
        self._flush(peer)

    def _say(self, peer: Peer, document: dict[str, Any]) -> None:
        self._send(peer, JSON, json.dumps(document).encode())

    def _flush(self, peer: Peer) -> None:
        if peer.sock.fileno() < 0:
            return
        try:
            while peer.out:
                sent = peer.sock.send(peer.out[:_READ])
                del peer.out[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._dismiss(peer)
            return
        if not peer.out and peer.missed:
            missed, peer.missed = peer.missed, 0
            self._say(peer, {"event": "gap", "bytes": missed})
            self._show(peer)
        events = select.POLLIN | (select.POLLOUT if peer.out else 0)
        if peer.sock.fileno() >= 0:
            self._poll.modify(peer.sock.fileno(), events)

    def _answer(self, peer: Peer, request: dict[str, Any]) -> None:
        number = request.get("id")

        def reply(document: dict[str, Any]) -> None:
            self._say(peer, {"id": number, "ok": "error" not in document, **document})

        match request["op"]:
            case "state":
                reply(self._state())
            case "input":
                taken = self._write_input(str(request["text"]).encode("utf-8", "replace"))
                reply({} if taken else {"error": "it does not read what was typed before"})
            case "eof":
                self._process.sendeof()
                reply({})
            case "resize":
                self._resize(int(request["rows"]), int(request["cols"]))
                reply({})
            case "signal":
                sent = self._signal_group(int(request["signal"]), foreground=bool(request.get("foreground")))
                reply({} if sent else {"error": "it has ended"})
            case "screen":
                self._drawing.when_drawn(lambda: reply({"screen": self._drawing.document()}))
            case "subscribe":
                reply(self._state())
                self._show(peer)
            case "end":
                self._end()
                reply({})
            case other:
                reply({"error": f"no op {other!r}"})

    def _state(self) -> dict[str, Any]:
        return {
            "process_id": self._config["process_id"],
            "pid": self._pid,
            "rows": self._drawing.rows,
            "cols": self._drawing.cols,
            "ended": self._status,
            "output": self._log.counts(),
        }

    def _resize(self, rows: int, cols: int) -> None:
        if not (0 < rows < 1000 and 0 < cols < 1000):
            raise ValueError(f"no size of a terminal: {rows} x {cols}")
        if (rows, cols) != (self._drawing.rows, self._drawing.cols) and not self._hung_up:
            self._drawing.resize(rows, cols)
            self._process.setwinsize(rows, cols)

    # -- the screen

    def _show(self, peer: Peer) -> None:
        """Bring a terminal to the present screen; from then on it gets all that is said."""
        peer.listens = False

        def shown() -> None:
            if peer.sock.fileno() >= 0:
                peer.listens = True
                self._send(peer, RAW, self._drawing.render())

        self._drawing.when_drawn(shown)

    def _keep_screen(self) -> None:
        """The last screen, for those who ask when the holder is gone; then go."""
        self._leave_at = time.monotonic() + GOODBYE
        if self._ending:
            return
        self._drawing.when_drawn(self._save_screen)
        while self._drawing.pending:
            self._drawing.step()

    def _save_screen(self) -> None:
        self._keep(".screen", {"pid": self._pid, **self._drawing.document()})

    def _keep(self, suffix: str, document: dict[str, Any]) -> None:
        """Write it down, unless the name has a later holder by now; a reader knows whose it is by the pid."""
        try:
            with open(self._files + ".json", "rb") as file:
                if json.load(file)["pid"] != self._pid:
                    return
        except (OSError, ValueError):  # removed by somebody, or by a later holder that is starting
            pass
        try:
            _write(self._files + suffix, document)
        except OSError as error:  # a full disk: whoever listens is told all the same
            sys.stderr.write(f"{self._files}{suffix} cannot be written: {error}\n")


def _become(cwd: str) -> None:
    """In the child: what Python ignores stays ignored over exec."""
    for signum in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGTERM, signal.SIGXFSZ):
        signal.signal(signum, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.chdir(cwd)


def _start_time(pid: int) -> int:
    with open(f"/proc/{pid}/stat", "rb") as file:
        raw = file.read()
    return int(raw[raw.rindex(b")") + 2 :].split()[19])


def _write(path: str, document: dict[str, Any]) -> None:
    """A file whole or not at all, on disk."""
    draft = f"{path}.new"
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(json.dumps(document).encode())
            file.flush()
            os.fsync(fd)
        os.rename(draft, path)  # noqa: PTH104 - pathlib is a megabyte of memory
    except OSError:
        _remove(draft)
        raise


def _remove(path: str) -> None:
    try:
        os.unlink(path)  # noqa: PTH108
    except FileNotFoundError:
        return


def main(fd: int) -> None:
    """Hold what the supervisor at `fd` says, and tell it whether that runs."""
    parent = socket.socket(fileno=fd)
    os.set_inheritable(fd, False)
    unpack = Unpacker()
    frames: list[tuple[int, bytes]] = []
    while not frames:
        data = parent.recv(_READ)
        if not data:
            return
        frames = unpack.feed(data)
    holder = Holder(json.loads(frames[0][1]), parent)
    try:
        record = holder.start()
    except OSError as error:
        told = {"ok": False, "error": str(error), "errno": error.errno}
        parent.sendall(pack(JSON, json.dumps(told).encode()))
        return
    parent.setblocking(True)
    with contextlib.suppress(OSError):  # that supervisor is gone: the next one finds the record
        parent.sendall(pack(JSON, json.dumps({"ok": True, **record}).encode()))
    parent.setblocking(False)
    holder.run()
    os._exit(0)  # ptyprocess would look for the child once more
