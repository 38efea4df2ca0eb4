"""The server's kernels: sessions beside stock ones.

A session's kernel belongs to its supervisor. The server attaches to its front door, so none of its own ways
of ending a kernel may reach it: shutdown detaches, restart is the session's next incarnation, interrupt its
ladder, and the server's end is nothing at all. Nothing here starts a kernel again by itself.

Everything else (other kernelspecs) is stock. What comes over a websocket goes through the front door as from
any Jupyter client; `websocket.py` says who it is from.
"""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from jupyter_client.session import DELIM
from jupyter_server.prometheus.metrics import KERNEL_CURRENTLY_RUNNING_TOTAL
from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection
from jupyter_server.services.kernels.kernelmanager import (
    AsyncMappingKernelManager,
    ServerKernelManager,
    emit_kernel_action_event,
)
from tornado import web
from traitlets import validate

from kernel_runtime.client import session_files, spawn
from kernel_runtime.client.connection import REQUEST_TIMEOUT
from kernel_runtime.client.session import AsyncSession
from kernel_runtime.client.session_files import SessionFile
from kernel_runtime.errors import KernelRuntimeError
from kernel_runtime.jupyter import identity
from kernel_runtime.jupyter.clients import Attached, Clients, kernel_id_of
from kernel_runtime.jupyter.kernelspecs import make_session, session_spec
from kernel_runtime.jupyter.refusals import ToldError
from kernel_runtime.jupyter.watch import ANSWERS, Watch

_BUFFER = 16 * 1024 * 1024
"""bytes kept for a page that comes back: more of it is in the journal, and memory is not"""

_SCAN_WITHIN = 3.0
"""seconds that a supervisor has to answer when nobody waits for it"""
_MOST_LOOKS = 10
"""at one that does not"""

_STATES = {"starting": "starting", "idle": "idle", "busy": "busy", "blocked": "busy", "unresponsive": "busy"}


class SessionKernelManager(ServerKernelManager):
    """One session, to the server: a kernel that is always there."""

    _lives = True
    _is_up = False

    @validate("execution_state")
    def _as_it_lives(self, proposal: Any) -> Any:
        """Stock takes it from messages, and they may come after the journal's news of the kernel's life.

        Its last ones after that of its end; its first, `starting`, which no other follows, after that of its
        start.
        """
        if not self._lives:
            return "dead"
        return self.execution_state if self._is_up and proposal["value"] == "starting" else proposal["value"]

    def began(self, state: str = "idle") -> None:
        """A kernel lives, and is up unless it is `starting`."""
        self._lives = True
        self.execution_state = state
        self._is_up = state != "starting"

    def ended(self) -> None:
        """None does, until one `began`."""
        self._lives = self._is_up = False
        self.execution_state = "dead"

    def bind(self, file: SessionFile, line: Callable[[str], AsyncSession]) -> None:
        """Say whose kernel it is, and how to get a principal's line to it."""
        self.file = file
        self.kernel_id = kernel_id_of(file.session_id)
        self.incarnation = 0
        self.watch: Watch | None = None
        self._line = line
        self._callbacks: dict[str, list[Callable[[], Any]]] = defaultdict(list)
        self._door = b""

    # what stock does to a process of its own, and must not do here

    autorestart = False
    _activity_stream: Any = None
    """stock's own, by which it knows what the kernel does"""
    statuses = 0
    """how many of the kernel's states were heard on it"""

    @property
    def owns_kernel(self) -> bool:
        return False

    @property
    def has_kernel(self) -> bool:
        return True

    async def is_alive(self) -> bool:  # type: ignore[override]
        """Always: the front door is there in every incarnation, and before and between them."""
        return True

    def resolve_path(self, path: str) -> str | None:
        """As stock, from where the session's kernel starts; None: there is no such file."""
        found = Path(path)
        with suppress(RuntimeError):  # `~nobody`
            found = found.expanduser()
        if not found.is_absolute():
            found = (Path(self.file.cwd) / found).resolve()
        return found.as_posix() if os.path.exists(found) else None  # noqa: PTH110 - no error for a long name

    def cleanup_connection_file(self) -> None:
        """The front door's file is the supervisor's."""

    def cleanup_ipc_files(self) -> None:
        """Its sockets are, too."""

    async def cleanup_resources(self, restart: bool = False) -> None:  # type: ignore[override]
        """Nothing here is the server's to clean up."""

    @emit_kernel_action_event(success_msg="Kernel {kernel_id} was attached.")
    async def start_kernel(self, *, line: AsyncSession, within: float, **_how: Any) -> None:
        """Join the session; its supervisor is there when this returns, its kernel may not be."""
        row = await line.row(within=within)
        self.incarnation = int(row.get("incarnation") or 0)
        if (state := _STATES.get(str(row.get("state")))) is None:
            self.ended()
        else:
            self.began(state)
        self.load_door()
        if not os.path.exists(self.file.notebook):  # noqa: ASYNC240, PTH110 - a look
            await self._write_notebook(line)
        if not self.ready.done():
            self.ready.set_result(None)

    async def _write_notebook(self, line: AsyncSession) -> None:
        """Have the file be there before a page opens it; the supervisor writes it when a cell has run."""
        holder = f"first-look-{uuid.uuid4().hex}"
        if (await line.hold_notebook(holder, seconds=1)).held:
            await line.release_notebook(holder)

    async def start_incarnation(self, principal: str) -> None:
        """See to it that a kernel lives. Raises KernelStartFailed, CrashLoop."""
        line = self._line(principal)
        self.incarnation = await line.start()
        if not self._lives:
            self.began()

    @emit_kernel_action_event(success_msg="Kernel {kernel_id} was detached.")
    async def shutdown_kernel(self, now: bool = False, restart: bool = False) -> None:
        """Leave. The session does not change."""
        if self.watch is not None:
            await self.watch.close()
            self.watch = None

    @emit_kernel_action_event(success_msg="Kernel {kernel_id} was restarted.")
    async def restart_kernel(self, now: bool = False, newports: bool = False, **_how: Any) -> None:
        """The session's next incarnation."""
        self.tell("restart")
        self.incarnation = await self._line(identity.asking()).restart()
        self.began()

    @emit_kernel_action_event(success_msg="Kernel {kernel_id} was interrupted.")
    async def interrupt_kernel(self) -> None:
        """As far up the ladder as it takes, in the background: a page waits for the cell, not for this."""
        line = self._line(identity.asking())
        running = asyncio.get_running_loop().create_task(line.interrupt())
        running.add_done_callback(self._interrupted)
        await asyncio.wait([running], timeout=1.0)

    def _interrupted(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.log.warning("session %s: interrupt: %s", self.file.name, error)

    async def signal_kernel(self, signum: int) -> None:  # type: ignore[override]
        """Signals are the supervisor's to send."""
        raise web.HTTPError(
            400, f"session {self.file.name}: no signal {signum} from here; interrupt it, or `krt stop`"
        )

    # restart callbacks: websockets tell their pages by them

    def add_restart_callback(self, callback: Callable[[], Any], event: str = "restart") -> None:
        self._callbacks[event].append(callback)

    def remove_restart_callback(self, callback: Callable[[], Any], event: str = "restart") -> None:
        if callback in self._callbacks[event]:
            self._callbacks[event].remove(callback)

    def tell(self, event: str) -> None:
        """`restart` or `dead`, to every websocket."""
        for callback in list(self._callbacks[event]):
            callback()

    def on_life(self, kind: str, incarnation: int) -> None:
        """What the journal says of the kernel's life, whoever brought it about."""
        if kind == "KernelStarting" and incarnation > self.incarnation:
            first = self.incarnation == 0
            self.incarnation = incarnation
            if not first:
                self.log.info("session %s: incarnation %d", self.file.name, incarnation)
                self.tell("restart")
        elif kind == "KernelStarted":
            # whoever attaches is told of the last start again, over a cell that runs since
            if not self._is_up:
                self.began()
        elif kind in ("KernelDied", "KernelStopped", "KernelStartFailed"):
            self.ended()

    def load_door(self) -> bool:
        """Read the front door's connection file; True when it is another one than before."""
        raw = self.file.front.read_bytes()
        if raw == self._door:
            return False
        changed = bool(self._door)
        self._door = raw
        for name in ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port"):
            setattr(self, name, 0)
        self.load_connection_info(json.loads(raw))
        if hasattr(self, "_kernel_info_future"):
            del self._kernel_info_future
        return changed


class SessionMappingKernelManager(AsyncMappingKernelManager):
    """Stock's manager, and with it every session as a kernel."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.clients = Clients()
        self.attached = Attached(self.clients)
        self.detached: set[str] = set()
        """session ids that somebody shut down here: not attached again unasked"""
        self.ready = asyncio.Event()
        """set when the sessions that ran at the server's start are attached"""
        self.on_stop: list[Callable[[], Awaitable[None]]] = []
        """awaited when the server stops"""
        self.know: Callable[[SessionFile], None] = lambda _file: None
        """puts a session into the table at once, which the scan would do a moment later"""
        self._looks: set[asyncio.Task[None]] = set()
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def connections(self, kernel_id: str) -> int:
        """How many websockets are open to it."""
        return int(self._kernel_connections.get(kernel_id, 0))

    def moved(self, kernel_id: str) -> None:
        """Its front door is another one (it was stopped, and started again): have its pages connect anew."""
        kernel = self._kernels[kernel_id]
        self.stop_buffering(kernel_id)
        self.stop_watching_activity(kernel_id)
        self.start_watching_activity(kernel_id)
        self._kernel_ports[kernel_id] = kernel.ports
        for connection in list(ZMQChannelsWebsocketConnection._open_sockets):  # noqa: SLF001 - there is no other list
            if connection.kernel_manager is kernel:
                connection.websocket_handler.close()

    def session_kernel(self, kernel_id: str) -> SessionKernelManager | None:
        """The session with that kernel id, if it is one that is attached."""
        found = self._kernels.get(kernel_id)
        return found if isinstance(found, SessionKernelManager) else None

    # coming and going

    async def attach(self, file: SessionFile, *, start_as: str | None = None) -> str:
        """Have a session among the kernels; its kernel id. With `start_as` a kernel is started if none lives.

        Raises:
            KernelRuntimeError: no supervisor can be had, or the kernel cannot be started.
        """
        kernel_id = kernel_id_of(file.session_id)
        async with self._turns[kernel_id]:
            kernel = self.session_kernel(kernel_id)
            if kernel is None:
                kernel = await self._attach(file, kernel_id, wanted=start_as is not None)
            if start_as is not None:
                self.detached.discard(file.session_id)
                await kernel.start_incarnation(start_as)
                self.know(file)
        return kernel_id

    async def _attach(self, file: SessionFile, kernel_id: str, *, wanted: bool) -> SessionKernelManager:
        kernel = SessionKernelManager(
            parent=self,
            log=self.log,
            context=self.context,
            kernel_name=file.kernel,
            kernel_spec_manager=self.kernel_spec_manager,
            connection_file=str(file.front),
        )
        kernel.bind(file, lambda principal: self.clients.client_of(file, principal))
        # one that is found: a kernel without a supervisor gets one, and what is being stopped may stop
        orphaned = not spawn.is_running(file) and session_files.living_kernel(file) is not None
        line = self.clients.client_of if wanted or orphaned else self.clients.observer_of
        # a scan comes again, and holds nobody up; who asked for it waits for a machine that is busy
        within = REQUEST_TIMEOUT if wanted else _SCAN_WITHIN
        await kernel.start_kernel(line=line(file, identity.SERVER), within=within)
        state = kernel.execution_state
        self._kernels[kernel_id] = kernel
        self._kernel_connections[kernel_id] = 0
        self._kernel_ports[kernel_id] = kernel.ports
        self.start_watching_activity(kernel_id)
        kernel.execution_state = state
        KERNEL_CURRENTLY_RUNNING_TOTAL.labels(type=kernel.kernel_name).inc()
        self.watch(kernel)
        self.log.info("Session %s attached as kernel %s", file.name, kernel_id)
        return kernel

    def watch(self, kernel: SessionKernelManager) -> None:
        """Follow what becomes of it, unless somebody does."""
        if kernel.watch is None or kernel.watch.ended:

            def fault(error: KernelRuntimeError) -> None:
                self.log.warning("session %s: %s", kernel.file.name, error.message)

            def on_life(kind: str, incarnation: int) -> None:
                kernel.on_life(kind, incarnation)
                if kind in ANSWERS:
                    self._look(kernel)

            line = self.clients.client_of(kernel.file, identity.SERVER)
            kernel.watch = Watch(line, on_life, fault)
            kernel.watch.start()

    async def detach(self, kernel_id: str) -> None:
        """Have it no longer among the kernels. The session does not change."""
        kernel = self.session_kernel(kernel_id)
        if kernel is None:
            return
        self.stop_watching_activity(kernel_id)
        self.stop_buffering(kernel_id)
        KERNEL_CURRENTLY_RUNNING_TOTAL.labels(type=kernel.kernel_name).dec()
        self._kernels.pop(kernel_id, None)
        self._kernel_connections.pop(kernel_id, None)
        self._kernel_ports.pop(kernel_id, None)
        await kernel.shutdown_kernel()

    # what the REST API calls

    async def _async_start_kernel(
        self, *, kernel_id: str | None = None, path: Any = None, **kwargs: Any
    ) -> str:
        try:
            file = self._session_for(kernel_id, path, kwargs.get("kernel_name"))
            if file is not None:
                return await self.attach(file, start_as=identity.asking())
        except KernelRuntimeError as error:
            raise ToldError(error) from error
        started: str = await super()._async_start_kernel(kernel_id=kernel_id, path=path, **kwargs)
        return started

    start_kernel = _async_start_kernel  # type: ignore[assignment]

    def _session_for(self, kernel_id: str | None, path: Any, kernel_name: Any) -> SessionFile | None:
        """The session that has that kernel, or a new one where the kernelspec is ours; None: stock."""
        known = self.attached.by_kernel(kernel_id) if kernel_id is not None else None
        if known is not None:
            return session_files.load(known.name)
        spec = session_spec(self.kernel_spec_manager, kernel_name)
        if spec is None:
            return None
        file = make_session(spec, cwd=self.cwd_for_path(path or ""), notebook=None)
        self.know(file)
        return file

    async def _async_shutdown_kernel(
        self, kernel_id: str, now: bool | None = False, restart: bool | None = False
    ) -> Any:
        kernel = self.session_kernel(kernel_id)
        if kernel is None:
            return await super()._async_shutdown_kernel(kernel_id, now=now, restart=restart)
        self.detached.add(kernel.file.session_id)
        await self.detach(kernel_id)
        self.log.info("Session %s detached; it goes on", kernel.file.name)
        return None

    shutdown_kernel = _async_shutdown_kernel  # type: ignore[assignment]

    async def _async_shutdown_all(self, now: bool = False) -> None:
        """The server ends: nothing of sessions, and whatever one of its parts meets.

        The event loop is stopped only after this, so an error from here would keep the server for good.
        """
        stock: Callable[[], Awaitable[None]] = partial(super()._async_shutdown_all, now=now)
        for stop in (*self.on_stop, self._leave_sessions, stock):
            try:
                await stop()
            except Exception:  # the server ends all the same
                self.log.exception("kernel_runtime: while the server stops")

    async def _leave_sessions(self) -> None:
        for kernel_id in list(self._kernels):
            await self.detach(kernel_id)
        await self.clients.close()
        for kernel_id, start in list(self._pending_kernels.items()):
            # stock keeps a start that failed for ever, and fails to shut it down, before the others are
            if kernel_id not in self._kernels and start.done():
                del self._pending_kernels[kernel_id]

    shutdown_all = _async_shutdown_all  # type: ignore[assignment]

    def interrupt_kernel(self, kernel_id: str) -> Any:
        self._check_kernel_id(kernel_id)
        return super().interrupt_kernel(kernel_id)

    async def cull_kernel_if_idle(self, kernel_id: str) -> None:
        """Sessions stay: what nobody uses is for `krt stop` to end."""
        if self.session_kernel(kernel_id) is None:
            await super().cull_kernel_if_idle(kernel_id)

    def start_watching_activity(self, kernel_id: str) -> None:
        """As stock; a message that another key has signed tells of another door before the scan does.

        What was published before the first message is heard is asked for: a cell may run since.
        """
        super().start_watching_activity(kernel_id)
        kernel = self.session_kernel(kernel_id)
        if kernel is None:
            return
        stream = kernel._activity_stream  # noqa: SLF001 - stock's own, on its own manager
        record = stream._recv_callback  # noqa: SLF001 - made inside of the method above

        is_first = True

        def heard(parts: list[bytes]) -> None:
            nonlocal is_first
            kernel.statuses += _is_status(parts)
            if is_first:
                is_first = False
                self._look(kernel)
            try:
                record(parts)
            except ValueError:
                if kernel.load_door():
                    self.moved(kernel_id)

        stream.on_recv(heard)

    def _look(self, kernel: SessionKernelManager) -> None:
        """Ask what it does, where no message of the kernel's will tell."""
        look = asyncio.get_running_loop().create_task(self._look_at(kernel))
        self._looks.add(look)
        look.add_done_callback(self._looks.discard)

    async def _look_at(self, kernel: SessionKernelManager) -> None:
        before = kernel.statuses
        line = self.clients.observer_of(kernel.file, identity.SERVER)
        for _ in range(_MOST_LOOKS):
            # what was heard meanwhile is newer than an answer, or will be heard next
            if kernel.statuses != before or self._kernels.get(kernel.kernel_id) is not kernel:
                return
            try:
                row = await line.row(within=_SCAN_WITHIN)
            except KernelRuntimeError as error:
                self.log.info("session %s: %s", kernel.file.name, error.message)
                await asyncio.sleep(_SCAN_WITHIN)
                continue
            state = _STATES.get(str(row.get("state")))
            if state in ("idle", "busy") and kernel.statuses == before:
                kernel.execution_state = state
            return

    def start_buffering(self, kernel_id: str, session_key: str, channels: dict[str, Any]) -> None:
        """As stock, up to a bound: a session may run for days with no page open."""
        super().start_buffering(kernel_id, session_key, channels)
        kernel = self.session_kernel(kernel_id)
        if kernel is None or not self.buffer_offline_messages:
            return
        kept = self._kernel_buffers[kernel_id]["buffer"]
        size = 0

        def keep(channel: str, parts: list[Any]) -> None:
            nonlocal size
            size += sum(map(len, parts))
            if size <= _BUFFER:
                kept.append((channel, parts))
                return
            self.log.info("session %s: no page came back for its output", kernel.file.name)
            self.stop_buffering(kernel_id)

        for channel, stream in channels.items():
            stream.on_recv(lambda parts, channel=channel: keep(channel, parts))


def _is_status(parts: list[bytes]) -> bool:
    """Whether a message, as it came over the wire, tells the kernel's state."""
    header = parts.index(DELIM) + 2  # after the signature
    return b'"status"' in parts[header]
