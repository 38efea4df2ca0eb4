"""Jupyter's own messages at the front door: any stock client, unmodified.

An execute_request becomes an execution like every other. What only the kernel can answer is
forwarded as it came, and its reply is routed back by msg_id. What the supervisor knows better
(kernel_info while the kernel is busy, history across incarnations) it answers itself.

Invariant: whatever a holder of the key sends, the supervisor stays; every `*_request` gets one reply
while there is a kernel that answers, or none at all. What one client sends on shell reaches the
kernel in the order it was sent.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kernel_runtime.core.lifecycle import State
from kernel_runtime.core.lifecycle import messages as m
from kernel_runtime.core.source import check_source
from kernel_runtime.errors import HeapLost, KernelRuntimeError
from kernel_runtime.model.execution import Execution
from kernel_runtime.model.facts import ExecutionFinished
from kernel_runtime.supervisor.jupyter_requests import (
    check_readable,
    lost,
    principal_of,
    queued_of,
    recorded_reply,
    reply_of,
    whole,
)
from kernel_runtime.supervisor.shell import Token
from kernel_runtime.wire import BadMessage, Message

if TYPE_CHECKING:
    from kernel_runtime.supervisor.session import Supervisor

log = logging.getLogger("kernel_runtime.supervisor")

_ROUTES = 10_000
_LAST_REPLIES = 20
_NOT_OFFERED = {
    "create_subshell_request": "executions of a session are one queue: there are no subshells",
    "delete_subshell_request": "executions of a session are one queue: there are no subshells",
    "list_subshell_request": "executions of a session are one queue: there are no subshells",
    "krt_request": "krt_request belongs on control",
    "apply_request": "code runs by execute_request only: that is what the journal records",
}


class JupyterDoor:
    """Handles messages of the Jupyter messaging protocol 5.4."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._s = supervisor
        self._routes: OrderedDict[str, tuple[str, Message]] = OrderedDict()
        self._early: list[tuple[str, Message]] = []
        """came while a kernel was starting"""
        self._behind: list[tuple[str, str, Message]] = []
        """came after an execution of the same client's that is still queued: `(execution_id, …)`"""
        supervisor.shell.on_change.append(self.changed)
        # both channels take every request: which one a client uses is a matter of its age
        self._handlers: dict[str, Callable[[str, Message], None]] = {
            "execute_request": self._execute,
            "kernel_info_request": self._kernel_info,
            "connect_request": self._connect,
            "history_request": self._history,
            "interrupt_request": self._interrupt,
            "shutdown_request": self._shutdown,
        }

    def handle(self, channel: str, message: Message) -> None:
        """A verified message that is not ours alone."""
        kind = message.header.msg_type
        try:
            if channel == "stdin":
                if kind == "input_reply":
                    self._input_reply(message)
            elif message.header.subshell_id is not None:
                self._decline(channel, message, "NotOffered", _NOT_OFFERED["create_subshell_request"])
            elif kind in _NOT_OFFERED:
                self._decline(channel, message, "NotOffered", _NOT_OFFERED[kind])
            else:
                self._handlers.get(kind, self._forward)(channel, message)
        except BadMessage as error:
            log.warning("a %s on %s cannot be read: %s", kind, channel, error)
            self._decline(channel, message, "BadMessage", str(error))

    def _answer(self, channel: str, message: Message, reply: str, content: Mapping[str, Any]) -> None:
        """A reply of the supervisor's own, between its busy and its idle."""
        door = self._s.door
        door.announce("status", {"execution_state": "busy"}, message.frames[1])
        door.reply(channel, message, reply, content)
        door.announce("status", {"execution_state": "idle"}, message.frames[1])

    def _decline(self, channel: str, message: Message, ename: str, why: str) -> None:
        kind = message.header.msg_type
        if channel != "stdin" and kind.endswith("_request"):
            error: dict[str, Any] = {"status": "error", "ename": ename, "evalue": why, "traceback": []}
            if kind == "execute_request":
                error["execution_count"] = 0
            self._answer(channel, message, kind.removesuffix("_request") + "_reply", error)

    # -- execution

    def _execute(self, channel: str, message: Message) -> None:
        if channel != "shell":
            self._decline(channel, message, "WrongChannel", "execute_request belongs on shell")
            return
        queued = queued_of(self._s.identity.session_id, message)
        execution_id = queued.execution_id
        recorded = self._s.shell.reader.execution(execution_id)
        if recorded is not None:
            self._again(message, recorded)
            return
        token = Token(lambda _: None, lambda error: self._refused(message, error))
        self._s.keep_request(execution_id, queued, message)
        try:
            check_source(queued.source, self._s.identity.name)
            self._s.shell.apply(
                m.Submitted(
                    token=token,
                    queued=queued,
                    principal=principal_of(message.header),
                    client=message.header.session,
                    jupyter=True,
                )
            )
        except KernelRuntimeError as error:
            self._refused(message, error)
        finally:
            self._s.prune_request(execution_id)

    def _again(self, message: Message, recorded: Execution) -> None:
        """The same request once more: it runs once, and its reply goes to whoever asks now."""
        if recorded.status == "done":
            self._answer("shell", message, "execute_reply", self._recorded_reply(recorded))
        else:
            queued, _ = self._s.request(recorded.execution_id)
            self._s.keep_request(recorded.execution_id, queued, message)

    def _recorded_reply(self, recorded: Execution) -> dict[str, Any]:
        kinds = ["ExecutionFinished"]
        entries = self._s.shell.reader.entries(execution_id=recorded.execution_id, kinds=kinds, last=1)
        fact = entries[0].fact if entries else None
        return recorded_reply(recorded, fact.reply if isinstance(fact, ExecutionFinished) else None)

    def tell_last(self, after: int) -> None:
        """Reply once more to what ended last, after entry `after`: the supervisor that did so was killed.

        A client that has its reply drops the second one.
        """
        reader = self._s.shell.reader
        for entry in reader.entries(after, kinds=["ExecutionFinished"], last=_LAST_REPLIES):
            recorded = reader.execution(entry.execution_id or "")
            if recorded is None:
                continue
            message = self._s.request(recorded.execution_id)[1]
            self._s.prune_request(recorded.execution_id)
            if message is not None:
                door = self._s.door
                door.reply("shell", message, "execute_reply", self._recorded_reply(recorded))
                door.announce("status", {"execution_state": "idle"}, message.frames[1])

    def _refused(self, message: Message, error: KernelRuntimeError) -> None:
        """Nothing was run: say so the way a Jupyter client shows it."""
        parent = message.frames[1]
        door = self._s.door
        door.announce("status", {"execution_state": "busy"}, parent)
        text = str(error) + "\n"
        if isinstance(error, HeapLost):
            text = self._s.loss_table() + text
        door.announce("stream", {"name": "stderr", "text": text}, parent)
        failure = {"ename": type(error).__name__, "evalue": error.message, "traceback": text.splitlines()}
        door.announce("error", failure, parent)
        content = {"status": "error", "execution_count": 0, **failure, "user_expressions": {}, "payload": []}
        door.reply("shell", message, "execute_reply", content)
        door.announce("status", {"execution_state": "idle"}, parent)

    def ended(self, request: Message, command: m.Ended) -> None:
        """An execution of a Jupyter client ended without a reply of the kernel's."""
        if self._s.ephemeral is not None and self._s.shell.state.kernel not in ("up", "starting"):
            # the tool watches its kernel's process, and knows an answer for a kernel that died
            return
        door = self._s.door
        parent = request.frames[1]
        if command.outcome == "aborted":
            door.announce("status", {"execution_state": "busy"}, parent)
        if command.outcome == "died" or (command.outcome == "aborted" and command.error is not None):
            door.announce("error", dict(command.error or lost(command.outcome)), parent)
        door.reply("shell", request, "execute_reply", reply_of(command.outcome, command.error))
        door.announce("status", {"execution_state": "idle"}, parent)

    # -- what the supervisor knows itself

    def _kernel_info(self, channel: str, message: Message) -> None:
        if self._s.kernel_is_coming():
            # what the kernel itself will say is worth waiting for: clients ask once and remember
            self._early.append((channel, message))
            return
        self._answer(channel, message, "kernel_info_reply", self._s.kernel_info())

    def _connect(self, channel: str, message: Message) -> None:
        """The ports of this door: the kernel's own are behind it."""
        ports = {
            f"{name}_port": getattr(self._s.door.connection, f"{name}_port")
            for name in ("shell", "iopub", "stdin", "control", "hb")
        }
        self._answer(channel, message, "connect_reply", {"status": "ok", **ports})

    def changed(self, before: State) -> None:
        """Let go what waited for a kernel or for its turn, and answer what a dead kernel will not."""
        state = self._s.shell.state
        if before.kernel == "up" and state.kernel != "up":
            routes, self._routes = self._routes, OrderedDict()
            for channel, message in routes.values():
                self._no_kernel(channel, message)
        if self._early and not self._s.kernel_is_coming():
            early, self._early = self._early, []
            for channel, message in early:
                self.handle(channel, message)
        if self._behind:
            queued = {pending.execution_id for pending in state.queue}
            ready = [item for item in self._behind if item[0] not in queued]
            if ready:
                self._behind = [item for item in self._behind if item[0] in queued]
                for _, channel, message in ready:
                    self._pass_on(channel, message)

    def _history(self, channel: str, message: Message) -> None:
        content = message.content_dict()
        reader = self._s.shell.reader
        kind = content.get("hist_access_type", "tail")
        rows: list[Any] = []
        if kind == "tail":
            rows = reader.history(n=max(whole(content.get("n"), 10) or 0, 0))
        elif kind == "search":
            rows = reader.history(
                n=whole(content.get("n")),
                pattern=str(content.get("pattern") or "*"),
                unique=bool(content.get("unique", False)),
            )
        elif kind == "range":
            session = whole(content.get("session"), 0) or 0
            # as IPython: 0 is the current session, negative ones count back from it
            wanted = session if session > 0 else self._s.shell.state.incarnation + session
            start = whole(content.get("start"), 0) or 0
            stop = whole(content.get("stop"))
            rows = [
                row
                for row in reader.history()
                if row[0] == wanted and row[1] >= start and (stop is None or row[1] < stop)
            ]
        output = bool(content.get("output", False))
        history = [[row[0], row[1], [row[2], None] if output else row[2]] for row in rows]
        self._answer(channel, message, "history_reply", {"status": "ok", "history": history})

    def _interrupt(self, channel: str, message: Message) -> None:
        door = self._s.door
        parent = message.frames[1]

        def respond(result: Mapping[str, Any]) -> None:
            """The reply went out when the interrupt was sent; what it reached is in the journal."""

        def refuse(error: KernelRuntimeError) -> None:
            door.announce("stream", {"name": "stderr", "text": str(error) + "\n"}, parent)

        self._s.pump.read()
        door.announce("status", {"execution_state": "busy"}, parent)
        event = m.Interrupted(token=Token(respond, refuse), principal=principal_of(message.header))
        self._s.shell.request(event, Token(respond, refuse))
        door.reply(channel, message, "interrupt_reply", {"status": "ok"})
        door.announce("status", {"execution_state": "idle"}, parent)

    def _shutdown(self, channel: str, message: Message) -> None:
        restart = bool(message.content_dict().get("restart", False))

        def respond(_: Mapping[str, Any]) -> None:
            content = {"status": "ok", "restart": restart}
            self._s.door.reply(channel, message, "shutdown_reply", content)
            self._s.door.announce("shutdown_reply", content, message.frames[1])

        def refuse(error: KernelRuntimeError) -> None:
            failure = {"ename": type(error).__name__, "evalue": error.message, "traceback": []}
            content = {"status": "error", "restart": restart, **failure}
            self._s.door.reply(channel, message, "shutdown_reply", content)

        token = Token(respond, refuse)
        self._s.ending.shutdown_requested(principal_of(message.header), token, restart=restart)

    def _input_reply(self, message: Message) -> None:
        value = str(message.content_dict().get("value", ""))

        def refuse(error: KernelRuntimeError) -> None:
            # a second answer: the client's prompt is gone already, and the protocol knows no reply to it
            log.info("an input_reply of %s was not taken: %s", principal_of(message.header), error.message)

        token = Token(lambda _: None, refuse)
        event = m.Answered(token=token, principal=principal_of(message.header), text=value)
        self._s.shell.request(event, token)

    # -- what only the kernel knows

    def _forward(self, channel: str, message: Message) -> None:
        check_readable(message)
        if self._s.kernel_is_coming():
            self._early.append((channel, message))
            return
        if channel == "shell":
            mine = [p for p in self._s.shell.state.queue if p.client == message.header.session]
            if mine:
                self._behind.append((mine[-1].execution_id, channel, message))
                return
        self._pass_on(channel, message)

    def _pass_on(self, channel: str, message: Message) -> None:
        link = self._s.keeper.link
        if link is None or self._s.shell.state.kernel != "up":
            self._no_kernel(channel, message)
            return
        if message.header.msg_type.endswith("_request"):
            self._routes[message.header.msg_id] = (channel, message)
            if len(self._routes) > _ROUTES:
                self._routes.popitem(last=False)
        link.send(channel, message.frames)

    def _no_kernel(self, channel: str, message: Message) -> None:
        self._decline(channel, message, "KernelDead", f"the kernel is {self._s.shell.state.name}")

    def reply_from_kernel(self, message: Message) -> None:
        """A reply that is not an execute_reply: to whoever asked."""
        route = self._routes.pop(message.parent().msg_id, None)
        if route is not None:
            channel, request = route
            self._s.door.send(channel, request.identities, message.frames)
