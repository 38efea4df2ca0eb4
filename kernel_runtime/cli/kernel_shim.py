"""The life of the process that a Jupyter KernelManager believes to be its kernel.

It has no kernel of its own: it sees that the session has a supervisor and a kernel, waits, and ends
as the kernel ends, so that whoever polls it reads the truth. Its invariant: once it has ended, the
ports of its connection file are free again.

SIGINT interrupts the running cell. SIGTERM and SIGHUP end an ephemeral session's kernel and leave a
named one alone. So does the end of the process that started it (JPY_PARENT_PID, as ipykernel reads
it): nobody else knows of an ephemeral session, and its kernel would stay for ever. SIGKILL is the
supervisor's to notice (`supervisor.ephemeral`). When the supervisor is killed, another one is started
and adopts the kernel.

It does not promise the kernel's exit status when nobody could observe it: it then exits with 1.
"""

from __future__ import annotations

import contextlib
import os
import queue
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from kernel_runtime import process
from kernel_runtime.client import session_files, spawn
from kernel_runtime.client.blocking import Session, observe
from kernel_runtime.client.session_files import SessionFile
from kernel_runtime.errors import KernelRuntimeError, NoSuchSession
from kernel_runtime.journal import JournalReader
from kernel_runtime.model.facts import KernelDied, KernelStopped
from kernel_runtime.supervisor.launch import load_record
from kernel_runtime.supervisor.reactor import Reactor

_REVIVALS = 5
"""supervisors in a row that may die within a minute before the shim gives up"""
_PATIENCE = 10.0
"""seconds in which the journal is expected to say how a kernel ended"""
_LOOK = 0.5
"""seconds between looks at whether a supervisor that is not our child lives"""


class Ending:
    """How it ended: `status` as a shell would show it, `signal` when a signal did it."""

    def __init__(self, status: int = 0, signum: int | None = None, *, final: bool = False) -> None:
        self.status = status
        self.signal = signum
        self.final = final
        """nobody will start this kernel again: an ephemeral session can go"""


class Shim:
    """Keeps one session's kernel alive in the eyes of a KernelManager, until it has ended."""

    def __init__(self, session: SessionFile, *, ephemeral: bool) -> None:
        self.session = session
        self.ephemeral = ephemeral
        self.reactor = Reactor()
        self.ending: Ending | None = None
        self._work = Worker(self.reactor)
        self._asked: str | None = None
        """the reason for which we ended the kernel ourselves"""
        self._incarnation = 0
        self._kernel_fd: int | None = None
        self._failures = 0

    def run(self) -> Ending:
        """Blocks until the kernel has ended or the session is left.

        Raises:
            KernelRuntimeError: supervisor or kernel cannot be started.
        """
        with self._signals():
            self._watch_parent()
            spawn.ensure_supervisor(self.session)
            self._work.do(self._start_kernel, self._started)
            self.reactor.after(_LOOK, self._look)
            try:
                self.reactor.run()
            finally:
                self._forget_kernel()
                self._work.close()
        assert self.ending is not None
        return self.ending

    def leave(self, ending: Ending) -> None:
        """End with that."""
        self.ending = self.ending or ending
        self.reactor.stop()

    # the kernel

    def _start_kernel(self) -> None:
        if session_files.living_kernel(self.session) is None:
            with self._client() as client:
                client.restart(reason="jupyter")

    def _started(self, error: BaseException | None, _: Any = None) -> None:
        if error is not None:
            self._fail(error)
            return
        self._watch_kernel()

    def _watch_kernel(self) -> None:
        record = load_record(self.session.directory / "kernel.json")
        if record is None:
            self._work.do(self._how_it_ended, self._ended)
            return
        self._incarnation = record.incarnation
        try:
            fd = os.pidfd_open(record.process.pid)
        except ProcessLookupError:
            self._work.do(self._how_it_ended, self._ended)
            return
        self._kernel_fd = fd
        if process.is_alive(record.process):
            self.reactor.watch(fd, self._kernel_gone)
        else:
            self._kernel_gone()

    def _kernel_gone(self) -> None:
        self._forget_kernel()
        if self._asked is None:  # else we are ending it, and say so ourselves
            self._work.do(self._how_it_ended, self._ended)

    def _forget_kernel(self) -> None:
        if self._kernel_fd is not None:
            self.reactor.forget(self._kernel_fd)
            os.close(self._kernel_fd)
            self._kernel_fd = None

    def _how_it_ended(self) -> KernelDied | KernelStopped | None:
        """What the journal says of this incarnation's end; None when it says nothing in time."""
        pause = threading.Event()
        for _ in range(int(_PATIENCE / 0.02)):
            try:
                found = self._end_in_journal()
            except (KernelRuntimeError, OSError):  # not there yet, or removed under us
                found = None
            if found is not None:
                return found
            pause.wait(0.02)
        return None

    def _end_in_journal(self) -> KernelDied | KernelStopped | None:
        with contextlib.closing(JournalReader.open(self.session.journal)) as reader:
            entries = [reader.latest(kind) for kind in ("KernelDied", "KernelStopped")]
        known = [entry for entry in entries if entry is not None and entry.incarnation >= self._incarnation]
        if not known:
            return None
        fact = max(known, key=lambda entry: entry.seq).fact
        assert isinstance(fact, (KernelDied, KernelStopped))
        return fact

    def _ended(self, error: BaseException | None, fact: KernelDied | KernelStopped | None = None) -> None:
        if error is not None:
            self._fail(error)
        elif fact is None:
            self._finish(Ending(1))
        elif isinstance(fact, KernelStopped) and fact.reason == "restart":
            # `krt restart` from elsewhere: the next incarnation is this shim's kernel as well
            self._work.do(self._start_kernel, self._started)
        else:
            stopped = isinstance(fact, KernelStopped)
            status = int(not stopped) if fact.exit_status is None else fact.exit_status
            final = isinstance(fact, KernelStopped) and "restart" not in fact.reason
            self._finish(Ending(status, fact.signal, final=final))

    def _finish(self, ending: Ending) -> None:
        """Free the ports, then end."""
        if self.ephemeral:
            self._work.do(self._stop_supervisor, lambda *_: self.leave(ending))
        else:
            self.leave(ending)

    def _stop_supervisor(self) -> None:
        if spawn.is_running(self.session):
            with self._client() as client:
                client.stop()

    # the supervisor

    def _look(self) -> None:
        """See that there is a supervisor; one that was killed is replaced and adopts the kernel."""
        if self.ending is not None or self._asked:
            return
        alive = session_files.exists(self.session.name) and spawn.is_running(self.session)
        if not alive and session_files.living_kernel(self.session) is not None:
            self._work.do(lambda: spawn.ensure_supervisor(self.session), self._revived)
        self.reactor.after(_LOOK, self._look)

    def _revived(self, error: BaseException | None, _: Any = None) -> None:
        if error is None:
            self._failures = 0
            return
        self._failures += 1
        if isinstance(error, NoSuchSession) or self._failures >= _REVIVALS:
            self._fail(error)

    # signals

    def _watch_parent(self) -> None:
        parent = os.environ.get("JPY_PARENT_PID", "")
        if not parent.isdigit() or int(parent) <= 1:
            return
        try:
            fd = os.pidfd_open(int(parent))
        except ProcessLookupError:
            self.reactor.after(0, lambda: self._terminate(signal.SIGTERM, final=False))
            return

        def gone() -> None:
            self.reactor.forget(fd)
            os.close(fd)
            # what was lost with the tool can still be read, until the next sweep
            self._terminate(signal.SIGTERM, final=False)

        self.reactor.watch(fd, gone)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        handled = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {signum: signal.signal(signum, _noted) for signum in handled}
        signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        self.reactor.watch(ours.fileno(), lambda: self._on_signals(ours))
        try:
            yield
        finally:
            self.reactor.forget(ours.fileno())
            signal.set_wakeup_fd(-1)
            for signum, handler in before.items():
                signal.signal(signum, handler)
            ours.close()
            theirs.close()

    def _on_signals(self, ours: socket.socket) -> None:
        for signum in set(ours.recv(256)):
            if signum == signal.SIGINT:
                self._work.do(self._interrupt, self._told)
            elif signum in (signal.SIGTERM, signal.SIGHUP):
                self._terminate(signum, final=True)

    def _terminate(self, signum: int, *, final: bool) -> None:
        if self._asked:
            return
        self._asked = "signal"
        if self.ephemeral:
            self._work.do(self._stop_supervisor, lambda *_: self.leave(Ending(0, signum, final=final)))
        else:
            self.leave(Ending(0, signum))

    def _interrupt(self) -> None:
        if spawn.is_running(self.session):
            with self._client() as client:
                client.interrupt()

    def _told(self, error: BaseException | None, _: Any = None) -> None:
        if error is not None and self.ending is None and self._kernel_fd is not None:
            print(f"krt kernel: not interrupted: {error}", file=sys.stderr)

    # helpers

    @contextlib.contextmanager
    def _client(self) -> Iterator[Session]:
        client = observe(self.session.name)
        try:
            yield client
        finally:
            client.detach()

    def _fail(self, error: BaseException) -> None:
        stderr = getattr(error, "fields", {}).get("stderr")
        if stderr:
            print(stderr, file=sys.stderr)
        print(f"krt kernel: {error}", file=sys.stderr)
        sys.stderr.flush()
        # the session is kept: its journal says what happened
        self._finish(Ending(1))


class Worker:
    """Runs what blocks in threads, and tells the reactor's thread how it went."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._done: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        reactor.watch(self._read, self._collect)

    def do(self, work: Callable[[], Any], then: Callable[..., None]) -> None:
        """Call `then(error, result)` once `work()` is over; one of the two is None."""
        threading.Thread(target=self._run, args=(work, then), name="krt-kernel", daemon=True).start()

    def _run(self, work: Callable[[], Any], then: Callable[..., None]) -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - handed over, not swallowed
            caught = error
            self._done.put(lambda: then(caught, None))
        else:
            self._done.put(lambda: then(None, result))
        with contextlib.suppress(OSError):  # closed: nobody wants to know any more
            os.write(self._write, b"\0")

    def _collect(self) -> None:
        os.read(self._read, 256)
        while not self._done.empty():
            self._done.get()()

    def close(self) -> None:
        self._reactor.forget(self._read)
        os.close(self._read)
        os.close(self._write)


def _noted(_signum: int, _frame: FrameType | None) -> None:
    """The wake-up descriptor carries it."""


def exit_like(ending: Ending) -> int:
    """Exit status of the shim; does not return when a signal ended the kernel."""
    if ending.signal is not None:
        sys.stdout.flush()
        sys.stderr.flush()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the kernel's core, if any, is the one that tells
        with contextlib.suppress(OSError, ValueError):
            signal.signal(ending.signal, signal.SIG_DFL)
        os.kill(os.getpid(), ending.signal)
    return ending.status
