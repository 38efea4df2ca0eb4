"""Jupyter's own messages at the front door: any stock client, unmodified.

An execute_request becomes an execution like every other. What only the kernel can answer is
forwarded as it came, and its reply is routed back by msg_id. What the supervisor knows better
(kernel_info while the kernel is busy, history across incarnations) it answers itself.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from kernel_runtime.core.lifecycle import messages as m
from kernel_runtime.errors import HeapLost, KernelRuntimeError, NotBlocked
from kernel_runtime.model.facts import ExecutionQueued
from kernel_runtime.supervisor.recorder import execution_of_msg
from kernel_runtime.supervisor.rpc import check_source
from kernel_runtime.supervisor.shell import Token
from kernel_runtime.wire import Header, Message

if TYPE_CHECKING:
    from kernel_runtime.supervisor.session import Supervisor

_ROUTES = 10_000


class Route(msgspec.Struct):
    """Where the reply to a client's request goes, and what the kernel is to be sent."""

    identities: list[bytes]
    request: Message


class JupyterDoor:
    """Handles messages of the Jupyter messaging protocol 5.4."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._s = supervisor
        self._routes: OrderedDict[str, tuple[str, list[bytes]]] = OrderedDict()
        self._early: list[tuple[str, Message]] = []
        supervisor.shell.on_change.append(self.changed)
        self._shell: dict[str, Callable[[Message], None]] = {
            "execute_request": self._execute,
            "kernel_info_request": lambda r: self._kernel_info("shell", r),
            "history_request": self._history,
        }
        self._control: dict[str, Callable[[Message], None]] = {
            "kernel_info_request": lambda r: self._kernel_info("control", r),
            "interrupt_request": self._interrupt,
            "shutdown_request": self._shutdown,
        }

    def handle(self, channel: str, message: Message) -> None:
        """A verified message that is not ours alone."""
        kind = message.header.msg_type
        if channel == "stdin":
            if kind == "input_reply":
                self._input_reply(message)
            return
        known = self._shell if channel == "shell" else self._control
        handler = known.get(kind)
        if handler is not None:
            handler(message)
        else:
            self._forward(channel, message)

    # -- execution

    def _execute(self, message: Message) -> None:
        content = message.content_dict()
        execution_id = execution_of_msg(self._s.identity.session_id, message.header.msg_id)
        silent = bool(content.get("silent", False))
        metadata = message.metadata_dict()
        cell_id = metadata.get("cellId") or content.get("cell_id") or execution_id[:8]
        source = content.get("code", "")
        queued = ExecutionQueued(
            execution_id=execution_id,
            source=source,
            cell_id=str(cell_id),
            msg_id=message.header.msg_id,
            client_session=message.header.session,
            silent=silent,
            store_history=bool(content.get("store_history", not silent)),
            allow_stdin=bool(content.get("allow_stdin", True)),
            stop_on_error=bool(content.get("stop_on_error", True)),
            door="jupyter",
            request=_dump(message),
        )
        token = Token(lambda _: None, lambda error: self._refused(message, error))
        recorded = self._s.shell.reader.execution(execution_id)
        if recorded is not None:
            return  # the same request again: it runs once
        self._s.keep_request(execution_id, queued, message)
        try:
            check_source(source)
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
        door.reply(
            "shell",
            message,
            "execute_reply",
            {"status": "error", "execution_count": 0, **failure, "user_expressions": {}, "payload": []},
        )
        door.announce("status", {"execution_state": "idle"}, parent)

    def ended(self, route: Message, command: m.Ended) -> None:
        """An execution of a Jupyter client ended without a reply of the kernel's."""
        door = self._s.door
        if command.outcome == "aborted" and command.error is None:
            reply: dict[str, Any] = {"status": "aborted"}
            door.announce("status", {"execution_state": "busy"}, route.frames[1])
        else:
            error = command.error or {
                "ename": {"died": "KernelDied"}.get(command.outcome, "ExecutionLost"),
                "evalue": f"outcome {command.outcome}",
                "traceback": [],
            }
            reply = {"status": "error", "execution_count": 0, **error}
            if command.outcome in ("died", "aborted"):
                door.announce("error", dict(error), route.frames[1])
        door.reply("shell", route, "execute_reply", reply)
        door.announce("status", {"execution_state": "idle"}, route.frames[1])

    # -- what the supervisor knows itself

    def _kernel_info(self, channel: str, message: Message) -> None:
        if self._s.kernel_is_coming():
            # what the kernel itself will say is worth waiting for: clients ask once and remember
            self._early.append((channel, message))
            return
        info = self._s.kernel_info()
        door = self._s.door
        parent = message.frames[1]
        door.announce("status", {"execution_state": "busy"}, parent)
        door.reply(channel, message, "kernel_info_reply", info)
        door.announce("status", {"execution_state": "idle"}, parent)

    def changed(self, _before: object) -> None:
        """Answer who asked early, once there is an answer."""
        if self._early and not self._s.kernel_is_coming():
            early, self._early = self._early, []
            for channel, message in early:
                self._kernel_info(channel, message)

    def _history(self, message: Message) -> None:
        content = message.content_dict()
        reader = self._s.shell.reader
        kind = content.get("hist_access_type", "tail")
        incarnation = self._s.shell.state.incarnation
        rows: list[Any] = []
        if kind == "tail":
            rows = reader.history(n=int(content.get("n") or 10))
        elif kind == "search":
            rows = reader.history(
                n=content.get("n"),
                pattern=str(content.get("pattern") or "*"),
                unique=bool(content.get("unique", False)),
            )
        elif kind == "range":
            session = int(content.get("session") or 0)
            # as IPython: 0 is the current session, negative ones count back from it
            wanted = session if session > 0 else incarnation + session
            start = int(content.get("start") or 0)
            stop = content.get("stop")
            rows = [
                row
                for row in reader.history()
                if row[0] == wanted and row[1] >= start and (stop is None or row[1] < int(stop))
            ]
        output = bool(content.get("output", False))
        history = [[row[0], row[1], [row[2], None] if output else row[2]] for row in rows]
        door = self._s.door
        door.announce("status", {"execution_state": "busy"}, message.frames[1])
        door.reply("shell", message, "history_reply", {"status": "ok", "history": history})
        door.announce("status", {"execution_state": "idle"}, message.frames[1])

    def _interrupt(self, message: Message) -> None:
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
        door.reply("control", message, "interrupt_reply", {"status": "ok"})
        door.announce("status", {"execution_state": "idle"}, parent)

    def _shutdown(self, message: Message) -> None:
        restart = bool(message.content_dict().get("restart", False))

        def respond(_: Mapping[str, Any]) -> None:
            content = {"status": "ok", "restart": restart}
            self._s.door.reply("control", message, "shutdown_reply", content)
            self._s.door.announce("shutdown_reply", content, message.frames[1])

        def refuse(error: KernelRuntimeError) -> None:
            self._s.door.reply(
                "control",
                message,
                "shutdown_reply",
                {
                    "status": "error",
                    "restart": restart,
                    "ename": type(error).__name__,
                    "evalue": error.message,
                    "traceback": [],
                },
            )

        self._s.shutdown_requested(principal_of(message.header), Token(respond, refuse), restart=restart)

    def _input_reply(self, message: Message) -> None:
        value = str(message.content_dict().get("value", ""))

        def refuse(error: KernelRuntimeError) -> None:
            if not isinstance(error, NotBlocked):
                return
            # a second answer: the client's prompt is gone already, there is nobody to tell

        event = m.Answered(
            token=Token(lambda _: None, refuse), principal=principal_of(message.header), text=value
        )
        self._s.shell.request(event, Token(lambda _: None, refuse))

    # -- what only the kernel knows

    def _forward(self, channel: str, message: Message) -> None:
        link = self._s.keeper.link
        kind = message.header.msg_type
        if link is None or self._s.shell.state.kernel != "up":
            if kind.endswith("_request"):
                reply = kind.removesuffix("_request") + "_reply"
                error = {
                    "status": "error",
                    "ename": "KernelDead",
                    "evalue": f"the kernel is {self._s.shell.state.name}",
                    "traceback": [],
                }
                self._s.door.announce("status", {"execution_state": "busy"}, message.frames[1])
                self._s.door.reply(channel, message, reply, error)
                self._s.door.announce("status", {"execution_state": "idle"}, message.frames[1])
            return
        self._routes[message.header.msg_id] = (channel, message.identities)
        if len(self._routes) > _ROUTES:
            self._routes.popitem(last=False)
        link.send(channel, message.frames)

    def reply_from_kernel(self, message: Message) -> None:
        """A reply that is not an execute_reply: to whoever asked."""
        route = self._routes.pop(message.parent().msg_id, None)
        if route is not None:
            self._s.door.send(route[0], route[1], message.frames)


def principal_of(header: Header) -> str:
    """A Jupyter client's principal: what its headers call the user.

    Clients of ours may name any principal there (`agent:planner`).
    """
    return header.username if ":" in header.username else f"human:{header.username or 'unknown'}"


def _dump(message: Message) -> str:
    document = {
        "identities": [part.hex() for part in message.identities],
        "frames": [part.decode("utf-8", "surrogateescape") for part in message.frames[1:4]],
        "user_expressions": message.content_dict().get("user_expressions") or {},
    }
    from kernel_runtime.supervisor.recorder import sayable

    return msgspec.json.encode(sayable(document)).decode()


def restore(queued: ExecutionQueued, sign: Callable[[Sequence[bytes]], bytes]) -> Message:
    """The client's request as it can be sent again by a new supervisor."""
    document = msgspec.json.decode(queued.request or "{}")
    content = msgspec.json.encode(execute_content(queued, document.get("user_expressions") or {}))
    body = [frame.encode() for frame in document["frames"]] + [content]
    from kernel_runtime.wire import decode_header

    return Message(
        [bytes.fromhex(part) for part in document["identities"]],
        decode_header(body[0]),
        [sign(body), *body],
    )


def execute_content(queued: ExecutionQueued, user_expressions: Mapping[str, Any]) -> dict[str, Any]:
    """Content of an execute_request for an execution."""
    return {
        "code": queued.source,
        "silent": queued.silent,
        "store_history": queued.store_history,
        "user_expressions": dict(user_expressions),
        "allow_stdin": queued.allow_stdin,
        "stop_on_error": queued.stop_on_error,
    }
