"""The kernel process in our care: started, watched, adopted, interrupted, stopped, buried.

Death is seen through a pidfd the moment it happens. What killed it is told only by wait(2), through the
kernel's parent (`foster`), which outlives us.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import zmq

from kernel_runtime import process
from kernel_runtime.core.lifecycle import messages as m
from kernel_runtime.errors import EnvironmentFault, KernelRuntimeError
from kernel_runtime.supervisor import kernelspec, launch
from kernel_runtime.supervisor.asking import REPLY
from kernel_runtime.supervisor.bounds import Bounds
from kernel_runtime.supervisor.launch import KernelRecord
from kernel_runtime.supervisor.link import KernelLink
from kernel_runtime.supervisor.oom import OomWatch
from kernel_runtime.supervisor.pulse import Pulse
from kernel_runtime.supervisor.pump import Pump
from kernel_runtime.supervisor.reactor import Reactor, Timer
from kernel_runtime.supervisor.shell import RETRY, Shell
from kernel_runtime.testing.failpoints import reach
from kernel_runtime.wire import BadMessage, Header, Message

log = logging.getLogger("kernel_runtime.supervisor")

START_TIMEOUT = 60.0
"""seconds until a kernel that does not answer has failed to start"""
_ASKED_EVERY = 1.0
"""seconds between questions whether a kernel is up"""
TERM_AFTER = 1.0
KILL_AFTER = 2.0
HEARD_WITHIN = 2.0
"""seconds in which a foreign kernel's iopub must be heard; one that never is runs all the same"""


class Keeper:
    """Owns the kernel process and its link."""

    def __init__(
        self,
        shell: Shell,
        reactor: Reactor,
        pump: Pump,
        context: zmq.Context[zmq.Socket[bytes]],
        *,
        session_id: str,
        directory: Path,
        sockets: Path,
        cwd: str,
        kernel_name: str,
        key: str,
        bounds: Bounds,
        probe_session: str,
        on_message: Callable[[str, Message], None],
    ) -> None:
        self._shell = shell
        self._reactor = reactor
        self._pump = pump
        self._context = context
        self._session_id = session_id
        self._directory = directory
        self._sockets = sockets
        self._cwd = cwd
        self._kernel_name = kernel_name
        self._key = key
        self._bounds = bounds
        self._probe_session = probe_session
        self._on_message = on_message
        self.arguments: list[str] = []
        """added to the kernelspec's command line"""
        self.record: KernelRecord | None = None
        self.link: KernelLink | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._pidfd: int | None = None
        self._timers: list[Timer] = []
        self._asked: str | None = None
        self._oom = OomWatch()
        self._pulse = Pulse(
            reactor,
            lambda: shell.state,
            pid=self._askable,
            ask=lambda: self._ask("control", "alive"),
            happen=self._happen,
            on_watch=self._note_cgroup,
        )
        self._drained_probe: str | None = None
        self._drained_by: set[str] = set()
        self._drained_for: str | None = None
        self._heard = False
        """a foreign kernel's iopub reaches us"""
        self._info: dict[str, Any] | None = None
        """what a starting foreign kernel answered; it is up once its iopub is heard too"""
        shell.performers[m.StartKernel] = self._start
        shell.performers[m.StopKernel] = self._stop
        shell.performers[m.SendInterrupt] = self._interrupt
        shell.performers[m.ProbeShell] = self._probe_shell

    @property
    def child_pid(self) -> int | None:
        """The child whose end is ours to wait for."""
        return self._child.pid if self._child is not None else None

    @property
    def observes(self) -> bool:
        """False if the kernel that lives tells nothing of its names: not ours, or of an older version."""
        return self.record is None or self.record.observes

    @property
    def path(self) -> Path:
        return self._directory / "kernel.json"

    # -- start

    def _start(self, command: m.StartKernel) -> None:
        self._asked = None
        # the answer to whoever asked goes out first: starting takes a while
        self._reactor.after(0, lambda: self._launch(command.incarnation))

    def _launch(self, incarnation: int) -> None:
        if self._asked is not None:
            evidence = {"found": "told to stop before it was started"}
            self._happen(m.KernelExited(pid=0, asked=self._asked, evidence=evidence))
            return
        record: KernelRecord | None = None
        try:
            spec = kernelspec.find(self._kernel_name)
            spec = msgspec.structs.replace(spec, argv=[*spec.argv, *self.arguments])
            self._child, record = launch.start(
                spec,
                session_id=self._session_id,
                incarnation=incarnation,
                directory=self._directory,
                sockets=self._sockets,
                cwd=self._cwd,
                key=self._key,
                kernel_name=self._kernel_name,
                bounds=self._bounds,
            )
            reach("before-kernel-json")
            launch.save_record(self.path, record)
            reach("after-kernel-json")
        except (KernelRuntimeError, OSError) as error:
            self._end_child(record)
            self._happen(m.KernelFailedToStart(stderr=str(error)))
            return
        self._connect(record, 0)
        self._expect_ready()

    def end_unrecorded(self, incarnation: int) -> None:
        """End a kernel that a supervisor started and died before it could write it down.

        Nobody ever spoke to it, and nobody could: it is found by the session's mark.
        """
        mark = f"kernel-{incarnation}.json"
        found = [
            who
            for who, _ in process.marked_processes(launch.MARK, self._session_id)
            if any(part.endswith(mark) for part in process.command_line(who.pid))
        ]
        for who in found:
            process.signal_process(who, signal.SIGKILL)
        deadline = time.monotonic() + KILL_AFTER
        while any(map(process.is_alive, found)) and time.monotonic() < deadline:
            time.sleep(0.005)

    def start_over(self, incarnation: int) -> None:
        """Begin a start again of which no kernel is left."""
        shutil.rmtree(self._directory / f"outbox-{incarnation}", ignore_errors=True)
        self._start(m.StartKernel(incarnation=incarnation))

    def _end_child(self, record: KernelRecord | None) -> None:
        """A kernel whose record could not be written would be nobody's: it ends before the next try."""
        child, self._child = self._child, None
        if child is not None and child.poll() is None:
            if record is not None:
                process.signal_process(record.process, signal.SIGKILL)
            else:
                child.kill()
            child.communicate()

    def _connect(self, record: KernelRecord, position: int, *, inherited: bool = False) -> None:
        self.record = record
        self._heard = False
        self._info = self._drained_probe = None
        self._listen_to(record, position, inherited=inherited)
        try:
            self._pidfd = os.pidfd_open(record.process.pid)
        except ProcessLookupError:
            self._reactor.after(0, self._gone)
            return
        self._reactor.watch(self._pidfd, self._gone)

    def _listen_to(self, record: KernelRecord, position: int, *, inherited: bool) -> None:
        self.link = KernelLink(
            self._context,
            self._reactor,
            record,
            session_id=self._session_id,
            on_message=self._received,
            on_outbox=self._pump.rung,
            position=position,
        )
        self._pump.attach(self.link, record.incarnation, position, inherited=inherited)

    def _expect_ready(self) -> None:
        self._ask("shell", "ready")
        self._timers += [
            self._reactor.after(START_TIMEOUT, self._too_slow),
            self._reactor.after(_ASKED_EVERY, self._go_on_asking),
        ]

    def _go_on_asking(self) -> None:
        """Until it answers, as every Jupyter client does: a kernel may lose what it is asked at first."""
        if self._shell.state.kernel == "starting" and self.link is not None:
            self._ask("shell", "ready")
            self._timers.append(self._reactor.after(_ASKED_EVERY, self._go_on_asking))

    def _ask_ready(self) -> None:
        if self._shell.state.kernel == "starting" and self.link is not None:
            self._ask("shell", "ready")

    def _too_slow(self) -> None:
        if self._shell.state.kernel == "starting" and self.record is not None:
            log.warning("the kernel did not answer within %s s", START_TIMEOUT)
            process.signal_process(self.record.process, signal.SIGKILL)

    def _ask(self, channel: str, why: str) -> str:
        """Send a kernel_info_request of our own; its reply comes to `_received`."""
        assert self.link is not None
        msg_id = f"{why}-{uuid.uuid4().hex}"
        frames = self.link.signer.build(
            "kernel_info_request", b"{}", session=self._probe_session, msg_id=msg_id
        )
        self.link.send(channel, frames)
        return msg_id

    def _received(self, channel: str, message: Message) -> None:
        if channel == "iopub":
            self._heard = self.link is not None and self.link.hears_stdin()
        try:
            parent = message.parent()
        except BadMessage:
            parent = Header()
        if parent.session == self._probe_session:
            if message.header.msg_type == REPLY:
                self._on_message(channel, message)
            elif message.header.msg_type in ("kernel_info_reply", "execute_reply"):
                self._answered(parent.msg_id, message)
            elif channel == "iopub":
                self._probe_heard(parent.msg_id, message)
            return
        if message.header.msg_type != "iopub_welcome":
            self._on_message(channel, message)

    def _answered(self, msg_id: str, message: Message) -> None:
        if self._pulse.answered(msg_id):
            return
        if msg_id.startswith("ready-") and self._shell.state.kernel == "starting":
            self._ready(message.content_dict())
        elif msg_id == self._drained_probe:
            # what it said on iopub before may still be on its way: the probe's own idle ends it
            self._drained_by.add("reply")
            self._timers.append(self._reactor.after(HEARD_WITHIN, self._drained))
            self._drained_on_both()

    def _probe_heard(self, msg_id: str, message: Message) -> None:
        if self._info is not None and self._heard and self._shell.state.kernel == "starting":
            info, self._info = self._info, None
            self._came_up(info)
        elif msg_id == self._drained_probe and b'"idle"' in message.content:
            self._drained_by.add("idle")
            self._drained_on_both()

    def _drained_on_both(self) -> None:
        if len(self._drained_by) == 2:
            self._timers.append(self._reactor.after(0, self._drained))

    def _drained(self) -> None:
        """Our question on shell was answered: whatever ran before it has ended."""
        if self._drained_probe is None:
            return
        if not self._pump.voice.finish():
            self._timers.append(self._reactor.after(RETRY, self._drained))
            return
        self._drained_probe = None
        running = self._shell.state.running
        # it may have ended by itself, and the next one runs: nothing was asked about that
        if running is not None and running.execution.execution_id == self._drained_for:
            self._happen(m.ShellDrained())

    def _ready(self, info: dict[str, Any]) -> None:
        """It answered. A subscription takes a moment longer, and what is said before it is lost."""
        assert self.record is not None
        if self.record.outbox is not None or self._heard:
            self._came_up(info)
            return
        if self._info is None:
            self._timers.append(self._reactor.after(HEARD_WITHIN, self._never_heard))
        self._info = info
        self._timers.append(self._reactor.after(0.05, self._ask_ready))

    def _never_heard(self) -> None:
        if self._info is not None and self._shell.state.kernel == "starting":
            log.warning("nothing of the kernel's iopub was heard in %s s", HEARD_WITHIN)
            info, self._info = self._info, None
            self._came_up(info)

    def _came_up(self, info: dict[str, Any]) -> None:
        assert self.record is not None
        assert self.link is not None
        who = process.identify(self.record.process.pid) or self.record.process
        record = msgspec.structs.replace(self.record, ready=True, info=info, process=who)
        try:
            reach("before-ready")
            launch.save_record(self.path, record)
        except OSError as error:
            log.warning("the kernel is up, and its record cannot be written: %s", error)
            self._timers.append(self._reactor.after(RETRY, self._ask_ready))
            return
        self._cancel_timers()
        self.record = record
        self.link.open_outbox()
        self._pump.read()
        language = info.get("language_info") or {}
        self._happen(
            m.KernelCameUp(
                pid=who.pid,
                start_time=who.start_time,
                boot_id=who.boot_id,
                language=str(language.get("name", self.record.language)),
                implementation=str(info.get("implementation", "")),
                own=self.record.outbox is not None,
            )
        )

    # -- adoption

    def adopt(self, record: KernelRecord, position: int) -> None:
        """Take over a living kernel: first hear all it said, then go on."""
        if record.outbox is None:
            record = self._under_a_new_name(record)
        self._connect(record, position, inherited=True)
        if not record.ready or self._shell.state.kernel == "starting":
            # it may have answered the last supervisor, but the journal does not know: ask again
            self._expect_ready()
            return
        if record.outbox is None:
            self._listen()
        self._pump.read(to_end=True)
        reach("during-adopt")
        who = record.process
        self._happen(m.Adopted(pid=who.pid, start_time=who.start_time, boot_id=who.boot_id))
        self._pump.read()
        self.watch()

    def _under_a_new_name(self, record: KernelRecord) -> KernelRecord:
        """The record with an identity of our own, after those that may still be answered.

        A foreign kernel's sockets may hold on to the identity of a supervisor that is gone, and would
        not hear another one under it.
        """
        answered = record.identities if self._shell.state.running is not None else []
        record = msgspec.structs.replace(record, identities=[*answered, launch.new_identity()])
        try:
            launch.save_record(self.path, record)
        except OSError as error:
            log.warning("kernel.json cannot be written: %s", error)
        return record

    def _listen(self) -> None:
        """Be subscribed before anything is sent to an adopted foreign kernel.

        What it said before is not to be had, nor its amount. Where something ran, the journal says so.
        """
        assert self.link is not None
        deadline = time.monotonic() + HEARD_WITHIN
        while not self._heard and time.monotonic() < deadline:
            self._ask("control", "heard")
            self.link.wait("iopub", 0.05)
        running = self._shell.state.running
        if running is not None:
            self._pump.unsupervised(running.execution.execution_id)

    def bury(self, record: KernelRecord, position: int) -> None:
        """A kernel that died while nobody looked: hear its last words, then record the death."""
        self.record = record
        self._listen_to(record, position, inherited=True)
        # a parent that lives is about to tell: it and the kernel end one after the other
        telling = record.foster is not None and process.is_alive(record.foster)
        status = launch.told_status(
            self._directory, record.incarnation, patience=launch.STATUS_WITHIN if telling else 0.0
        )
        evidence: dict[str, Any] = {"found": "dead when a supervisor started"}
        if status is None:
            evidence["exit_status"] = "not known: no supervisor was there"
        if record.process.boot_id != process.boot_id():
            evidence = {"found": "the machine was rebooted"}
        self._finish_death(status, evidence)

    # -- death

    def _gone(self) -> None:
        """The pidfd is readable: the process has ended."""
        assert self.record is not None
        if self._pidfd is not None:
            self._reactor.forget(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
        evidence: dict[str, Any] = {}
        child, self._child = self._child, None
        status = launch.told_status(
            self._directory, self.record.incarnation, child, patience=launch.STATUS_WITHIN
        )
        if status is None:
            evidence["exit_status"] = "not known: the kernel's parent did not tell"
        self._finish_death(status, evidence)

    def _finish_death(self, status: int | None, evidence: dict[str, Any]) -> None:
        record = self.record
        assert record is not None
        self._cancel_timers()
        if self.link is not None:
            self.link.drain()
        if not (self._pump.voice.finish() and self._pump.read(to_end=True)):
            # nothing is said about the death before its last words are journaled
            self._timers.append(self._reactor.after(RETRY, lambda: self._finish_death(status, evidence)))
            return
        how = process.describe_exit(status) if status is not None else {}
        if how.get("signal") == signal.SIGKILL:
            evidence.update(self._oom.evidence(record.process.pid))
        event: m.Event
        if self._shell.state.kernel == "starting" and self._asked is None:
            said = launch.last_words(record.log)
            event = m.KernelFailedToStart(
                stderr=said, exit_status=how.get("exit_status"), signal=how.get("signal")
            )
        else:
            if self._asked is None and (said := launch.last_words(record.log)):
                evidence["stderr"] = said
            event = m.KernelExited(
                pid=record.process.pid,
                exit_status=how.get("exit_status"),
                signal=how.get("signal"),
                evidence=evidence,
                asked=self._asked,
            )
        try:
            self._shell.apply(event)
        except EnvironmentFault as error:
            log.warning("the kernel's end waits for the journal: %s", error.message)
            self._timers.append(self._reactor.after(RETRY, lambda: self._finish_death(status, evidence)))
            return
        self.clear(record)

    def clear(self, record: KernelRecord) -> None:
        """Remove what a kernel left whose end is journaled, unless the next one is there already."""
        link = self.link
        if link is not None and link.record.incarnation == record.incarnation:
            link.close()
            if self._shell.state.kernel != "starting" or self.record is record:
                self.link = None
                self.record = None
                self._pump.link = None
        if record.connection.transport == "ipc":
            for channel in ("shell", "iopub", "stdin", "control", "hb"):
                Path(record.connection.endpoint(channel).removeprefix("ipc://")).unlink(missing_ok=True)
        for kind in ("json", "keys"):
            (self._sockets / f"kernel-{record.incarnation}.{kind}").unlink(missing_ok=True)
        launch.status_file(self._directory, record.incarnation).unlink(missing_ok=True)
        if record.outbox is not None:
            shutil.rmtree(record.outbox, ignore_errors=True)
        current = launch.load_record(self.path)
        if current is not None and current.process == record.process:
            self.path.unlink(missing_ok=True)

    # -- stop

    def _stop(self, command: m.StopKernel) -> None:
        self._asked = command.reason
        if self.record is None or self.link is None:
            return  # between the intent to start and the process: `_launch` will find it stopped
        if self._shell.state.kernel == "starting":
            process.signal_process(self.record.process, signal.SIGKILL)
            return
        frames = self.link.signer.build(
            "shutdown_request", {"restart": command.reason == "restart"}, session=self._probe_session
        )
        self.link.send("control", frames)
        who = self.record.process
        self._timers += [
            self._reactor.after(TERM_AFTER, lambda: process.signal_process(who, signal.SIGTERM)),
            # a stopped process hears SIGTERM only when it goes on; SIGKILL reaches it all the same
            self._reactor.after(KILL_AFTER, lambda: process.signal_process(who, signal.SIGKILL)),
        ]

    def _cancel_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    # -- interrupt

    def _interrupt(self, command: m.SendInterrupt) -> None:
        if self.record is None or self.link is None:
            return
        foreign = self.record.outbox is None
        if command.how == "signal" or (foreign and self.record.interrupt_mode == "signal"):
            # one or the other, as its kernelspec says: a second interrupt would hit what comes after
            process.signal_group(self.record.process, signal.SIGINT)
        else:
            content = b"{}" if foreign else {"execution": command.msg_id}
            frames = self.link.signer.build("interrupt_request", content, session=self._probe_session)
            self.link.send("control", frames)
        if command.how == "message" and foreign:
            # wakes an event loop that waits in `await`, for kernels that need it (ipykernel)
            self._ask("shell", "nudge")

    def _probe_shell(self, command: m.ProbeShell) -> None:
        assert self.link is not None
        running = self._shell.state.running
        self._drained_for = running.execution.execution_id if running is not None else None
        self._drained_by.clear()
        self._drained_probe = f"drained-{uuid.uuid4().hex}"
        self.link.run_nothing(self._probe_session, self._drained_probe)

    # -- responsiveness

    def watch(self) -> None:
        """Look at a busy kernel now and then; an idle one is looked at when somebody asks."""
        self._pulse.watch()

    def look(self) -> None:
        """Is the kernel stopped, or silent?"""
        self._pulse.look()

    def _note_cgroup(self) -> None:
        if self.record is not None:
            self._oom.note(self.record.process.pid)

    def _askable(self) -> int | None:
        return self.record.process.pid if self.record is not None and self.link is not None else None

    def _happen(self, event: m.Event) -> None:
        """Apply an event that nobody waits for; try again while the journal refuses."""
        try:
            self._shell.apply(event)
        except EnvironmentFault as error:
            log.warning("%s waits for the journal: %s", type(event).__name__, error.message)
            self._reactor.after(RETRY, lambda: self._happen(event))

    def close(self) -> None:
        """Let go of the kernel, which lives on."""
        self._cancel_timers()
        self._pulse.close()
        if self._pidfd is not None:
            self._reactor.forget(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
        if self.link is not None:
            self.link.close()
            self.link = None
