"""The control channel to a session's supervisor: requests with replies, across supervisors.

A request waits for its reply for as long as its supervisor lives. When that supervisor dies (its
lock is free, or names another process), the line makes sure that a new one is there and sends the
request again, where sending twice does no harm: every `submit` carries a key. What may not be sent
twice (`answer`, `interrupt`, `restart`, `stop`) fails with a SupervisorFault whose `fields["gone"]`
is true.

A connection that breaks while its supervisor lives (tcp: reset, or silent for HEARTBEAT seconds) is
made again, and what waited for a reply is treated alike: the reply may have gone with it.

The socket is a plain DEALER on the event loop's reader, not zmq.asyncio: one wake-up per batch of
replies, and no task of its own. It does not promise order between requests in flight.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import zmq

from kernel_runtime import process, wire
from kernel_runtime.client import spawn
from kernel_runtime.client.session_files import SessionFile
from kernel_runtime.errors import NotAllowed, SupervisorFault, from_json

Revive = bool | Callable[[], bool]
"""whether to start a supervisor where none lives, or what tells that"""

RESENDABLE = frozenset(
    {
        "ping",
        "attach",
        "submit",
        "changes",
        "status",
        "state",
        "accept",
        "claim",
        "claims",
        "hold_notebook",
        "notebook_moved",
        "probe",
        "process_tail",
        "process_wait",
        "processes",
        "release_notebook",
        "resources",
        "screen",
        "why",
    }
)
REQUEST_TIMEOUT = 90.0
"""seconds until a living supervisor that does not answer is reported; more than the 60 s that one
may be stopped for and go on"""

_CHECK = 0.3
"""seconds between looks at whether the supervisor lives, while a reply is awaited"""
_RESENDS = 3
HEARTBEAT = 10.0
"""seconds after which a tcp connection on which nothing comes back is broken off"""
_FRONT_TIMEOUT = 60.0


class _Gone(Exception):
    """The supervisor that had the request is no more."""


class _Unanswered(Exception):
    """The request's time is up; its supervisor lives."""


class ControlLine:
    """One client's line to one session's supervisor. Not for use from two event loops."""

    def __init__(self, session: SessionFile, principal: str) -> None:
        self.session = session
        self.principal = principal
        self.supervisor_pid: int | None = None
        """as the last reply that told it said"""
        self.revives = True
        """False: only a supervisor that lives is ever asked, whatever a request says"""
        self.on_connect: Callable[[], None] | None = None
        """called each time another supervisor was met"""
        self._client_session = uuid.uuid4().hex
        self._signer = wire.Signer(b"")
        self._socket: zmq.Socket[bytes] | None = None
        self._breaks: zmq.Socket[bytes] | None = None
        """tells when the connection breaks"""
        self._pending: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._opening = asyncio.Lock()
        self._identity = b""
        self._answered = False
        self._watch: asyncio.TimerHandle | None = None

    async def request(
        self,
        op: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        within: float = REQUEST_TIMEOUT,
        revive: Revive = True,
        resend: bool = True,
    ) -> dict[str, Any]:
        """The `result` of one request, replied to `within` so many seconds.

        With `revive=False` a supervisor that is dead at the start is not replaced, with `resend=False`
        one that dies over the request is not. A function is asked once none lives: only then is it known
        for certain whether the last one was stopped on purpose.

        Raises:
            SupervisorFault: no supervisor can be had, it does not answer, or it died with a request
                that must not be sent twice.
            KernelRuntimeError: the error that the supervisor replied with.
        """
        if not self.revives:
            revive = False
        content = {**(arguments or {}), "op": op, "principal": self.principal}
        for _ in range(_RESENDS + 1):
            if not await self._connect(revive=revive):
                raise self._gone(op)
            try:
                reply = await self._exchange(content, within)
            except _Gone:
                if op not in RESENDABLE or not (revive and resend):
                    raise self._gone(op) from None
                continue
            except _Unanswered:
                raise self._silent(op, within) from None
            if reply.get("ok") is True:
                result: dict[str, Any] = reply.get("result") or {}
                told = result.get("pid") if op == "ping" else None
                self.supervisor_pid = result.get("supervisor_pid", told or self.supervisor_pid)
                return result
            raise from_json(reply.get("error") or {})
        raise SupervisorFault(
            f"session {self.session.name}: {_RESENDS + 1} supervisors died over one `{op}` request",
            hint=f"the end of its log:\n{spawn.tail(self.session.directory / 'supervisor.log')}",
            session=self.session.name,
        )

    def close(self) -> None:
        """Leave. Requests in flight fail with CancelledError; the session does not notice."""
        for future in self._pending.values():
            future.cancel()
        self._pending.clear()
        self._disconnect()

    # connecting

    async def _connect(self, *, revive: Revive) -> bool:
        """Make sure of a socket whose supervisor lives; False when there is none and none is wanted."""
        if self._socket is not None and not self._is_gone():
            return True
        async with self._opening:
            if self._socket is not None and not self._is_gone():
                return True
            self._disconnect()
            for future in self._pending.values():
                _fail(future, _Gone())  # asked of the one before
            connection = await self._front_door(revive=revive)
            if connection is None:
                return False
            self._identity = spawn.identity(self.session)
            self._answered = False
            self._open(connection)
            if self.on_connect is not None:
                self.on_connect()
            return True

    async def _front_door(self, *, revive: Revive) -> wire.Connection | None:
        """Of a supervisor that lives; None when there is none and none is wanted."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _FRONT_TIMEOUT
        while True:
            if not spawn.is_running(self.session):
                if not (revive() if callable(revive) else revive):  # it may have been on its way out
                    return None
                await asyncio.to_thread(spawn.ensure_supervisor, self.session)
            # none: a supervisor that holds its lock and has not opened its door yet
            if (connection := read_front_door(self.session)) is not None:
                return connection
            if loop.time() > deadline:
                raise SupervisorFault(
                    f"session {self.session.name}: its supervisor runs, and {self.session.front} is missing",
                    hint=f"was the directory cleaned? end the supervisor (pid in "
                    f"{self.session.directory / 'supervisor.lock'}): the next command adopts the kernel",
                    session=self.session.name,
                )
            await asyncio.sleep(0.01)

    def _open(self, connection: wire.Connection) -> None:
        self._signer = wire.Signer(connection.key.encode())
        socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        socket.linger = 0
        socket.sndhwm = 0
        socket.rcvhwm = 0
        socket.reconnect_ivl = 10
        socket.reconnect_ivl_max = 200
        if connection.transport == "tcp":
            # a network that drops everything sends no FIN
            socket.heartbeat_ivl = int(HEARTBEAT * 1000 / 3)
            socket.heartbeat_timeout = int(HEARTBEAT * 1000)
        self._breaks = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        if connection.curve_publickey:
            public, secret = zmq.curve_keypair()
            socket.curve_publickey, socket.curve_secretkey = public, secret
            socket.curve_serverkey = connection.curve_publickey.encode()
        socket.connect(connection.endpoint("control"))
        loop = asyncio.get_running_loop()
        loop.add_reader(socket.fileno(), self._drain)
        loop.add_reader(self._breaks.fileno(), self._broke)
        self._broke()  # a zmq descriptor tells of news only once somebody found nothing there
        self._socket = socket

    def _disconnect(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if self._socket is not None:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._socket.fileno())
            if self._breaks is not None:
                loop.remove_reader(self._breaks.fileno())
            self._socket.disable_monitor()
            if self._breaks is not None:
                # disable_monitor only forgets the PAIR socket
                self._breaks.close()
                self._breaks = None
            self._socket.close()
            self._socket = None

    # exchanging

    async def _exchange(self, content: dict[str, Any], within: float) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        msg_id = uuid.uuid4().hex
        future: asyncio.Future[dict[str, Any]] = loop.create_future()
        self._pending[msg_id] = future
        frames = self._signer.build("krt_request", content, session=self._client_session, msg_id=msg_id)
        alarm = loop.call_later(within, _fail, future, _Unanswered())
        try:
            assert self._socket is not None
            self._socket.send_multipart([wire.DELIMITER, *frames], flags=zmq.DONTWAIT)
            loop.call_soon(self._drain)  # sending may swallow the edge that told of a reply
            if self._watch is None:
                self._watch = loop.call_later(_CHECK, self._look)
            return await future
        finally:
            alarm.cancel()
            self._pending.pop(msg_id, None)

    def _drain(self) -> None:
        while self._socket is not None:
            try:
                parts = self._socket.recv_multipart(flags=zmq.DONTWAIT)
            except zmq.Again:
                return
            try:
                message = self._signer.split(parts)
                waiting = self._pending.get(message.parent().msg_id)
                reply = message.content_dict()
            except wire.BadMessage:
                continue  # not from our supervisor: nobody waits for it
            if not self._answered:
                self._answered = True
                self._identity = spawn.identity(self.session)
            if waiting is not None and not waiting.done():
                waiting.set_result(reply)

    def _broke(self) -> None:
        """The connection broke; zmq makes it anew, and a reply that was on its way is lost."""
        broke = False
        while self._breaks is not None and self._breaks.poll(0):
            self._breaks.recv_multipart(zmq.DONTWAIT)
            broke = True
        if broke:
            self._drain()  # its last words count
            for future in self._pending.values():
                _fail(future, _Gone())

    def _look(self) -> None:
        """Fail what waits for a dead supervisor. Runs only while something waits."""
        self._watch = None
        if not self._pending:
            return
        if self._is_gone():
            self._drain()  # its last words count
            for future in self._pending.values():
                _fail(future, _Gone())
            return
        self._watch = asyncio.get_running_loop().call_later(_CHECK, self._look)

    def _is_gone(self) -> bool:
        return not spawn.is_running(self.session) or spawn.identity(self.session) != self._identity

    # failing

    def _gone(self, op: str) -> SupervisorFault:
        name = self.session.name
        return SupervisorFault(
            f"session {name}: the supervisor died over `{op}`; whether it took effect is not known",
            hint=f"`krt status {name}` tells what is so now; then ask again",
            session=name,
            gone=True,
        )

    def _silent(self, op: str, within: float) -> SupervisorFault:
        name, pid = self.session.name, self.supervisor_pid
        state = process.run_state(pid) if pid is not None else None
        stopped = state in ("T", "t")
        return SupervisorFault(
            f"session {name}: no answer to `{op}` for {within:g} s from the supervisor"
            + (f" (pid {pid}{', stopped by a signal' if stopped else ''})" if pid else ""),
            hint=f"`kill -CONT {pid}` lets it go on"
            if stopped
            else f"see {self.session.directory / 'supervisor.log'}; if it is stuck, kill it: "
            "the next command starts another one, which adopts the kernel",
            session=name,
            supervisor_pid=pid,
            supervisor_state=state,
            gone=False,
        )


def read_front_door(session: SessionFile) -> wire.Connection | None:
    """The front door's connection file; None when there is none.

    Raises:
        NotAllowed: it belongs to another user.
        SupervisorFault: it is no connection file.
    """
    try:
        with session.front.open("rb") as file:
            if os.fstat(file.fileno()).st_uid != os.getuid():
                raise NotAllowed(
                    f"session {session.name}: {session.front} belongs to another user",
                    hint="set KRT_RUNTIME_DIR to a directory of your own",
                    session=session.name,
                )
            return msgspec.json.decode(file.read(), type=wire.Connection, strict=False)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise SupervisorFault(
            f"session {session.name}: {session.front} is not a connection file ({error})",
            hint="remove it and end the supervisor: the next command writes it anew and adopts the kernel",
            session=session.name,
        ) from error


def _fail(future: asyncio.Future[dict[str, Any]], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
