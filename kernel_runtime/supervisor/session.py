"""The supervisor: everything of one session, put together.

Start-up order matters: lock, journal, state, front door, kernel; only then is readiness told, so a
client that was told finds a session that has heard all its kernel said.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import zmq
from msgspec import Struct

from kernel_runtime import places, process
from kernel_runtime.core import reconcile
from kernel_runtime.core.lifecycle import Policy, State
from kernel_runtime.core.lifecycle import messages as m
from kernel_runtime.errors import EnvironmentFault, JournalCorrupt, NoSuchSession
from kernel_runtime.journal import Journal
from kernel_runtime.model.entry import Draft
from kernel_runtime.model.facts import ExecutionQueued, SessionCreated, SupervisorStarted, SupervisorStopped
from kernel_runtime.supervisor import bounds as bounds_module
from kernel_runtime.supervisor import jupyter_requests, launch
from kernel_runtime.supervisor.aside import Reports
from kernel_runtime.supervisor.asking import REPLY, KernelQuestions
from kernel_runtime.supervisor.claims import Claims
from kernel_runtime.supervisor.door import FrontDoor, new_connection, write_private
from kernel_runtime.supervisor.ending import Ending
from kernel_runtime.supervisor.environment import Environment
from kernel_runtime.supervisor.ephemeral import Ephemeral, watch_owner
from kernel_runtime.supervisor.handoffs import Handoffs
from kernel_runtime.supervisor.heads import Heads
from kernel_runtime.supervisor.jupyter_door import JupyterDoor
from kernel_runtime.supervisor.keeper import Keeper
from kernel_runtime.supervisor.notebook_keeper import NotebookKeeper
from kernel_runtime.supervisor.notebook_lease import NotebookLease
from kernel_runtime.supervisor.pump import Pump
from kernel_runtime.supervisor.reactor import Reactor, Timer
from kernel_runtime.supervisor.recorder import KRT_MSG, Recorder
from kernel_runtime.supervisor.recover import queued_fact, recover
from kernel_runtime.supervisor.redaction import Redaction
from kernel_runtime.supervisor.report import Reporter
from kernel_runtime.supervisor.rpc import Rpc
from kernel_runtime.supervisor.shell import Shell, Token
from kernel_runtime.supervisor.terminals import Terminals
from kernel_runtime.supervisor.tty.watch import TerminalWatch
from kernel_runtime.supervisor.world import World
from kernel_runtime.testing.failpoints import reach
from kernel_runtime.version import __version__
from kernel_runtime.wire import Header, Message, read_connection

log = logging.getLogger("kernel_runtime.supervisor")

LINGER = 300.0
"""seconds a supervisor without a kernel stays, unasked"""
RETURN_WITHIN = 10.0
"""seconds that iopub waits for a predecessor's subscribers; they connect in 0.2 s, and subscribe when
they next look at that socket"""
_OUTCOMES = {("shell", "execute_reply"), ("stdin", "input_request")}


class Identity(Struct, frozen=True, kw_only=True):
    """session.json, as far as a supervisor reads it."""

    session_id: str
    name: str
    kernel: str
    cwd: str
    notebook: str
    transport: str = "ipc"
    principal: str = "system"
    scratch: bool = False
    """read once and thrown away: nothing has to outlive a power cut, and no notebook is written"""


def read_identity(directory: Path) -> Identity:
    """Who the session is.

    Raises:
        NoSuchSession: no session.json there.
        JournalCorrupt: it is not one of ours.
    """
    path = directory / "session.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=Identity)
    except FileNotFoundError:
        raise NoSuchSession(f"no session in {directory}", hint="`krt ls` shows the sessions") from None
    except msgspec.MsgspecError as error:
        raise JournalCorrupt(f"{path} cannot be read: {error}", hint="restore it from a copy") from error


class Supervisor:
    """Owns one session until told to let go."""

    def __init__(self, directory: Path, ephemeral: Ephemeral | None = None) -> None:
        self.directory = directory
        self.ephemeral = ephemeral
        """set when the session stands in for one Jupyter kernel"""
        self.orphaned = False
        """the owner of an ephemeral session is gone without a word"""
        self.identity = read_identity(directory)
        self.reactor = Reactor()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._requests: dict[str, tuple[ExecutionQueued, Message | None]] = {}
        self._reply: tuple[str, Sequence[bytes]] | None = None
        self._linger: Timer | None = None
        self._exit_reason = "told to"
        self._executions: int | None = None

        bounds = bounds_module.load(directory, places.home())
        journal = self._open_journal()
        # its manager restarted the kernel and knows; a refused cell would be a failure of the tool's
        policy = Policy(jupyter_loss="tell") if ephemeral is not None else Policy()
        reader = journal.reader()
        self.shell = Shell(
            self.reactor,
            journal,
            recover(reader, self.identity.name, time.monotonic_ns()),
            policy,
            durable=not self.identity.scratch,
        )
        sockets = places.private_dir(places.socket_dir(self.identity.session_id))
        self.sockets = sockets
        self.door = self._open_door(sockets)
        self.recorder = Recorder(
            self.identity.session_id, directory, bounds, (directory / "journal.db").stat().st_size
        )
        probe_session = "krt-probe-" + secrets.token_hex(8)
        self.pump = Pump(
            self.shell,
            self.reactor,
            self.door,
            self.recorder,
            probe_session=probe_session,
            on_reply=self._keep_reply,
            on_input=self._forward_input,
        )
        self.keeper = Keeper(
            self.shell,
            self.reactor,
            self.pump,
            self._context,
            session_id=self.identity.session_id,
            directory=directory,
            sockets=sockets,
            cwd=self.identity.cwd,
            kernel_name=self.identity.kernel,
            key=self.door.connection.key,
            bounds=bounds,
            probe_session=probe_session,
            on_message=self._from_kernel,
        )
        if ephemeral is not None:
            self.keeper.arguments = ephemeral.arguments
        notebook = Path(self.identity.notebook)
        self.notebooks = NotebookKeeper(self.reactor, journal.reader(), notebook, directory / "notebook.mark")
        if self.identity.scratch:
            self.notebooks.hold()
        self.reporter = Reporter(
            self.identity.name,
            self.shell.reader,
            self.notebooks.edited_sources,
            observes=lambda: self.keeper.observes,
        )
        self.reports = Reports(self, self.notebooks.edited_sources)
        self.questions = KernelQuestions(self, probe_session)
        self.ending = Ending(self)
        self.rpc = Rpc(self)
        self.tty = TerminalWatch(self)
        self.terminals = Terminals(self)
        self.world = World(self)
        self.world.managed = self.terminals.rows
        self.world.helpers.append(self.terminals.machinery)
        self.claims = Claims(self)
        self.handoffs = Handoffs(self)
        self.heads = Heads(self)
        self.environment = Environment(self)
        self.notebook_lease = NotebookLease(self)
        self.redaction = Redaction(self)
        self.rpc.register({"notebook_moved": self._notebook_moved})
        self.jupyter = JupyterDoor(self)
        self.shell.performers.update(
            {
                m.Dispatch: self._dispatch,
                m.Ended: self._ended,
                m.SendInput: self._send_input,
                m.WithdrawInput: lambda _: None,
            }
        )
        self.shell.on_change.append(self._changed)

    def _notebook_moved(
        self, _principal: str, _args: dict[str, Any], token: Token, _request: Message
    ) -> None:
        """Whoever renamed the file has written it into session.json: nobody else is believed."""
        notebook = read_identity(self.directory).notebook
        self.identity = msgspec.structs.replace(self.identity, notebook=notebook)
        self.notebooks.move(Path(notebook))
        token.respond({"notebook": notebook})

    # -- start

    def _open_journal(self) -> Journal:
        path = self.directory / "journal.db"
        if path.exists():
            return Journal.open(path)
        journal = Journal.create(path)
        created = SessionCreated(
            session_id=self.identity.session_id,
            name=self.identity.name,
            kernel=self.identity.kernel,
            cwd=self.identity.cwd,
            notebook=self.identity.notebook,
            version=__version__,
        )
        journal.append([Draft(created, self.identity.principal, 0)], sync=True)
        return journal

    def _open_door(self, sockets: Path) -> FrontDoor:
        front = sockets / "front.json"
        if self.ephemeral is not None:
            connection = self.ephemeral.connection()
        elif front.exists():
            connection = read_connection(front)
        else:
            connection = new_connection(sockets, self.identity.transport, self.identity.kernel)
        door = FrontDoor(self._context, self.reactor, connection, sockets / "front.subscribers")
        reach("before-front-json")
        write_private(front, door.connection.dump())
        return door

    def start(self) -> None:
        """Take over what there is: adopt a living kernel, bury a dead one, begin to serve."""
        launch.become_subreaper()
        self._watch_signals()
        me = process.identify(os.getpid())
        assert me is not None
        fact = SupervisorStarted(
            pid=me.pid, start_time=me.start_time, boot_id=me.boot_id, version=__version__
        )
        state = self.shell.state
        killed_after = self._predecessor_killed()
        self.shell.journal.append([Draft(fact, "system", state.incarnation)], sync=False)
        self._changed(state)
        record = launch.load_record(self.keeper.path)
        if record is not None and record.incarnation < state.incarnation:
            # its end is journaled, and the supervisor died before it could clear up and start the next
            self.keeper.clear(record)
            record = None
        if record is not None or killed_after is not None:
            self.door.await_subscribers(RETURN_WITHIN)
        if killed_after is not None:
            self.jupyter.tell_last(killed_after)
        if record is not None:
            position = self.shell.reader.position(record.incarnation) or 0
            if process.is_alive(record.process):
                reach("before-adopt")
                self.keeper.adopt(record, position)
            else:
                self.keeper.bury(record, position)
        elif state.kernel in ("up", "starting"):
            self._lost_without_record(state)
        self.door.serve(self._received)
        if self.ephemeral is not None:
            watch_owner(self.reactor, self.ephemeral.owner, self._owner_gone)
        self._changed(self.shell.state)
        self.shell.committed()

    def _predecessor_killed(self) -> int | None:
        """The entry with which the last supervisor started, if it ended without a word."""
        started = self.shell.reader.latest("SupervisorStarted")
        stopped = self.shell.reader.latest("SupervisorStopped")
        if started is None or (stopped is not None and stopped.seq > started.seq):
            return None
        return started.seq

    def _lost_without_record(self, state: State) -> None:
        """No kernel.json: the last supervisor died between the intent to start a kernel and its record."""
        self.keeper.end_unrecorded(state.incarnation)
        if state.kernel == "starting":
            # what was accepted to run in it has not begun, and will
            self.keeper.start_over(state.incarnation)
            return
        self.shell.apply(m.KernelExited(pid=0, evidence={"found": "kernel.json is gone"}))

    def run(self) -> None:
        """Serve until told to let go; then leave everything as another supervisor needs it."""
        self.reactor.run()
        self._close()

    def _watch_signals(self) -> None:
        read, write = os.pipe()
        os.set_blocking(read, False)
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        # handlers, not SIG_IGN: a kernel inherits what is ignored and could not be interrupted then,
        # and a shell that starts us in the background has us ignore SIGINT
        for signum in (signal.SIGTERM, signal.SIGCHLD, signal.SIGINT, signal.SIGHUP):
            signal.signal(signum, lambda *_: None)

        def woken() -> None:
            numbers = os.read(read, 4096)
            if signal.SIGTERM in numbers:
                self.leave("SIGTERM")
            if signal.SIGCHLD in numbers:
                self._reap()

        self.reactor.watch(read, woken)

    def _reap(self) -> None:
        """Bury orphans that became our children; the kernel, or its parent, is the keeper's."""
        kept = self.keeper.child_pid
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None or found.si_pid == kept:
                return
            self.world.bury(found.si_pid)

    def _owner_gone(self) -> None:
        self.orphaned = True
        # a tool that killed its kernel to restart it is already asking for the next one on these ports
        self.door.go_deaf()
        self.ending.stop("system", None)

    # -- messages

    def _received(self, channel: str, message: Message) -> None:
        if channel == "control" and message.header.msg_type == "krt_request":
            self.rpc.handle(message)
        else:
            self.jupyter.handle(channel, message)

    def _from_kernel(self, channel: str, message: Message) -> None:
        kind = message.header.msg_type
        if kind == REPLY:
            self.questions.answered(message)
        elif channel == "iopub" or (channel, kind) in _OUTCOMES:
            self.pump.voice.heard(channel, message)
        else:
            self.jupyter.reply_from_kernel(message)

    def _keep_reply(self, parent: Header, frames: Sequence[bytes]) -> None:
        self._reply = (parent.msg_id, frames)

    def _forward_input(self, parent: Header, frames: Sequence[bytes]) -> None:
        running = self.shell.state.running
        if running is None or running.execution.msg_id != parent.msg_id:
            return
        request = self.request(running.execution.execution_id)[1]
        if request is not None:
            self.door.send("stdin", request.identities, frames)

    # -- requests that are under way

    def keep_request(
        self, execution_id: str, queued: ExecutionQueued, message: Message | None = None
    ) -> None:
        """Hold what `Dispatch` will need."""
        self._requests[execution_id] = (queued, message)

    def prune_request(self, execution_id: str) -> None:
        """Let go of it if the execution was not accepted; count it if it was."""
        state = self.shell.state
        if self._executions is not None and execution_id in self._requests:
            self._executions = None
        running = state.running
        if running is not None and running.execution.execution_id == execution_id:
            return
        if not any(p.execution_id == execution_id for p in state.queue):
            self._requests.pop(execution_id, None)

    def request(self, execution_id: str) -> tuple[ExecutionQueued, Message | None]:
        """An execution's intent, and the request as its Jupyter client sent it."""
        kept = self._requests.get(execution_id)
        if kept is None:
            queued = queued_fact(self.shell.reader, execution_id)
            message = None
            if queued.request is not None:
                message = jupyter_requests.restore(queued, self.door.signer.sign)
            kept = self._requests[execution_id] = (queued, message)
        return kept

    def _dispatch(self, command: m.Dispatch) -> None:
        link = self.keeper.link
        assert link is not None
        queued, message = self.request(command.execution.execution_id)
        if message is not None:
            frames: Sequence[bytes] = message.frames
        else:
            frames = self.door.signer.build(
                "execute_request",
                jupyter_requests.execute_content(queued, {}),
                session=self.door.session,
                msg_id=KRT_MSG + queued.execution_id,
                username=command.execution.principal,
                metadata={"cellId": queued.cell_id},
            )
        self.pump.expect()
        link.send("shell", frames)
        reach("after-dispatch")

    def _ended(self, command: m.Ended) -> None:
        execution = command.execution
        request = self.request(execution.execution_id)[1]
        self._requests.pop(execution.execution_id, None)
        reply, self._reply = self._reply, None
        if request is not None:
            if command.replied and reply is not None and reply[0] == execution.msg_id:
                self.door.send("shell", request.identities, reply[1])
            else:
                self.jupyter.ended(request, command)
        self.notebooks.touch()

    def _send_input(self, command: m.SendInput) -> None:
        link = self.keeper.link
        if link is None:
            return
        # EOF as ipykernel reads it
        value = "\x04" if command.eof else command.text or ""
        frames = link.signer.build("input_reply", {"value": value}, session=self.door.session)
        link.send("stdin", frames)

    # -- state

    def _changed(self, before: State) -> None:
        state = self.shell.state
        running = state.running
        self.recorder.running = running.execution.execution_id if running is not None else None
        self.keeper.watch()
        if state.kernel in ("up", "starting"):
            if self._linger is not None:
                self._linger.cancel()
                self._linger = None
        else:
            if self.ending.kernel_is_down(state):
                return
            if self._linger is None:
                self._linger = self.reactor.after(LINGER, lambda: self.leave("no kernel to keep"))

    def leave(self, reason: str) -> None:
        """Let go of the session once what is under way is done; the kernel goes on."""
        self._exit_reason = reason
        self.reactor.stop()

    def row(self) -> dict[str, Any]:
        """One row of `krt ls`."""
        state = self.shell.state
        record = self.keeper.record
        if self._executions is None:
            self._executions = self.shell.reader.count_executions()
        return {
            "name": self.identity.name,
            "session_id": self.identity.session_id,
            "state": state.name,
            "incarnation": state.incarnation,
            "kernel": self.identity.kernel,
            "kernel_pid": record.process.pid if record is not None else None,
            "supervisor_pid": os.getpid(),
            "executions": self._executions,
            "queued": len(state.queue),
            "notebook": self.identity.notebook,
            "head": self.shell.journal.head,
        }

    def kernel_is_coming(self) -> bool:
        """Whether a kernel is about to answer for itself."""
        kernel = self.shell.state.kernel
        # the owner of an ephemeral session starts its kernel as soon as the door is open
        return kernel == "starting" or (kernel == "none" and self.ephemeral is not None)

    def kernel_info(self) -> dict[str, Any]:
        """Content of a kernel_info_reply: the kernel's own, or what its kernelspec tells."""
        record = self.keeper.record
        if record is not None and record.info is not None:
            info = dict(record.info)
            features = info.get("supported_features")
            if isinstance(features, list):
                # executions are one queue here, so a subshell would promise what is not given
                info["supported_features"] = [f for f in features if f != "kernel subshells"]
            return info
        return {
            "status": "ok",
            "protocol_version": "5.4",
            "implementation": self.identity.kernel,
            "implementation_version": "",
            "language_info": {"name": record.language if record is not None else "", "version": ""},
            "banner": f"session {self.identity.name}: its kernel is {self.shell.state.name}",
            "help_links": [],
        }

    def loss_table(self) -> str:
        """What is lost, as lines for a stderr stream."""
        report = self.reporter.brief(self.shell.state)
        document = reconcile.heap_loss(report)
        lines = [f"The heap of session {self.identity.name!r} is gone: {document['lost']} cells are lost."]
        for cell in document["cells"][:10]:
            source = str(cell.get("evidence", {}).get("source", ""))
            lines.append(f"  lost  {cell['cell_id']}  {source}")
        return "\n".join(lines) + "\n"

    @staticmethod
    def digest(source: str) -> str:
        return hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()

    # -- end

    def _close(self) -> None:
        fact = SupervisorStopped(reason=self._exit_reason)
        try:
            self.shell.journal.append([Draft(fact, "system", self.shell.state.incarnation)], sync=True)
        except EnvironmentFault as error:
            log.warning("leaving without a word in the journal: %s", error.message)
        kernel_lives = self.shell.state.kernel in ("up", "starting")
        self.notebook_lease.close()
        self.notebooks.close()
        self.world.close()
        self.claims.close()
        self.environment.close()
        self.reports.close()
        self.keeper.close()
        self.door.close()
        self._context.term()
        self.shell.close()
        if not kernel_lives and self.ending.stopping:
            shutil.rmtree(self.sockets, ignore_errors=True)
