# ruff: noqa: FBT001, FBT002, SLF001
# mypy: disable-error-code="no-untyped-call,union-attr,attr-defined,misc,assignment,arg-type"
# The signatures and the private names are ipykernel's and IPython's: this is where we reach in.
"""The kernel: ipykernel's, with one way out (the outbox) and one outcome per request.

What is different from ipykernel, and nothing else is: an execute_reply and input_request go into
the outbox; a request whose msg_id was seen is dropped; every request ends in a reply and an idle;
nobody's error aborts anybody's queue; forks of the kernel end with their cell; the debugger loads
when somebody debugs. Stock front ends notice none of it.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Coroutine
from importlib.util import find_spec
from typing import Any

import comm
from ipykernel._version import kernel_protocol_version
from ipykernel.ipkernel import IPythonKernel
from ipykernel.thread import CONTROL_THREAD_NAME
from IPython.core.error import StdinNotImplementedError
from traitlets import Type

from kernel_runtime.kernel.answering import Answering
from kernel_runtime.kernel.attribution import Parent, current
from kernel_runtime.kernel.capture import FdCapture
from kernel_runtime.kernel.execution import Execution, Interrupts, leave_if_child
from kernel_runtime.kernel.jsonpack import pack
from kernel_runtime.kernel.observing import Observer
from kernel_runtime.kernel.outbox import OutboxWriter
from kernel_runtime.kernel.shell import KernelShell, name_of, plain_traceback, text_of
from kernel_runtime.testing.failpoints import reach

_SEEN_MAX = 10_000
_STDIN_POLL_MS = 100
_TRIMMED = 4096


class SessionKernel(IPythonKernel):
    """IPython behind an outbox. `parent` is the KernelApp that owns outbox, capture and interrupts."""

    shell_class = Type(KernelShell)
    outbox: OutboxWriter
    capture: FdCapture
    interrupts: Interrupts
    debugger: Any = None
    debugger_class = None  # a traitlets Type would import it now

    def __init__(self, **kwargs: Any) -> None:
        app = kwargs["parent"]
        self.outbox, self.capture, self.interrupts = app.outbox, app.capture, app.interrupts
        self._pid = os.getpid()
        self._seen: OrderedDict[str, None] = OrderedDict()
        # Not IPythonKernel.__init__, which imports debugpy (a third of the start) for everybody.
        super(IPythonKernel, self).__init__(**kwargs)
        self._kernel_modules = [
            m.__file__ for m in list(sys.modules.values()) if getattr(m, "__file__", None)
        ]
        self.shell = self.shell_class.instance(
            parent=self,
            profile_dir=self.profile_dir,
            user_module=self.user_module,
            user_ns=self.user_ns,
            kernel=self,
            compiler_class=self.compiler_class,
        )
        hook, publisher = self.shell.displayhook, self.shell.display_pub
        hook.session = publisher.session = self.session
        hook.pub_socket = publisher.pub_socket = self.iopub_socket
        hook.topic = self._topic("execute_result")
        if name := os.environ.get("JPY_SESSION_NAME"):
            self.shell.user_ns["__session__"] = name
        self.comm_manager = comm.get_comm_manager()
        self.shell.configurables.append(self.comm_manager)
        for msg_type in ("comm_open", "comm_msg", "comm_close"):
            self.shell_handlers[msg_type] = getattr(self.comm_manager, msg_type)
        self.observer = Observer(self)
        self.answering = Answering(self)
        self.control_handlers["krt_probe_request"] = self.answering.request

    # -- whose request -----------------------------------------------------------

    def set_parent(self, ident: Any, parent: dict[str, Any], channel: str = "shell") -> None:
        if channel == "control":
            self._control_parent_ident = ident
            self._control_parent = parent
        else:
            current.set(Parent(parent, ident, pack(parent.get("header", {}))))

    def get_parent(self, channel: str | None = None) -> dict[str, Any]:
        if channel is None and threading.current_thread().name == CONTROL_THREAD_NAME:
            channel = "control"
        if channel == "control":
            return dict(self._control_parent)
        return current.get().message

    def _get_shell_context_var(self, var: Any) -> Any:
        parent = current.get()
        return parent.ident if var is self._shell_parent_ident else parent.message

    # -- dispatch ------------------------------------------------------------------

    async def dispatch_shell(
        self, msg: list[Any], /, subshell_id: str | None = None, *, concurrent: bool = False
    ) -> None:
        """One shell message to its handler, between its busy and its idle."""
        if len(msg) == 1:  # ipykernel's own "stop aborting": queues are the supervisor's here
            return
        idents, frames = self.session.feed_identities(msg, copy=False)
        try:
            message = self.session.deserialize(frames, content=True, copy=False)
        except Exception:
            self.log.exception("Invalid message")
            return
        msg_id, msg_type = message["header"]["msg_id"], message["header"]["msg_type"]
        if msg_type == "execute_request" and not self._first_time(msg_id):
            self.log.warning("Dropped a second execute_request %s", msg_id)
            return
        self.set_parent(idents, message)
        if concurrent:
            await self._handle(message, idents)
            return
        self._publish_status("busy", "shell", message)
        try:
            await self._handle(message, idents)
        finally:
            self._publish_status("idle", "shell", message)
            reach("kernel-after-idle")
        self.observer.end(msg_type)

    def _first_time(self, msg_id: str) -> bool:
        if msg_id in self._seen:
            return False
        self._seen[msg_id] = None
        if len(self._seen) > _SEEN_MAX:
            self._seen.popitem(last=False)
        return True

    async def _handle(self, message: dict[str, Any], idents: list[bytes]) -> None:
        msg_type = message["header"]["msg_type"]
        handler = self.shell_handlers.get(msg_type)
        if handler is None:
            self.log.warning("Unknown message type: %r", msg_type)
            return
        watch: Execution | None = None
        if self.interrupts.execution is None and _on_main_thread() and msg_type != "execute_request":
            watch = self.interrupts.execution = Execution(message["header"]["msg_id"])
        try:
            if watch is not None:
                watch.interruptible = True
            result = handler(self.shell_stream, idents, message)
            if inspect.isawaitable(result):
                await result
            if watch is not None:
                watch.interruptible = False
        except (Exception, KeyboardInterrupt):
            if watch is not None:
                watch.interruptible = False
            self.log.exception("The handler of %s was cut short", msg_type)
        finally:
            if watch is not None:
                self.interrupts.execution = None

    def pre_handler_hook(self) -> None:
        """SIGINT has one handler, for good."""

    def post_handler_hook(self) -> None:
        """SIGINT has one handler, for good."""

    def _abort_queues(self, subshell_id: str | None = None) -> None:
        """The supervisor owns queues: an error ends one execution here, and no other."""

    # -- executing -----------------------------------------------------------------

    async def execute_request(self, stream: Any, ident: list[bytes], parent: dict[str, Any]) -> None:
        """Run a cell; exactly one execute_reply follows, into the outbox."""
        content = parent["content"]
        silent = bool(content.get("silent", False))
        reach("kernel-request")
        execution = Execution(parent["header"]["msg_id"])
        main = _on_main_thread()
        metadata = self.init_metadata(parent)
        reply: dict[str, Any] | None = None
        if main:
            self._begin(execution)
        try:
            code = str(content["code"])
            if not silent:
                self._publish_execute_input(code, parent, self.execution_count)
            reach("kernel-after-input")
            execution.interruptible = main
            reply = await self.do_execute(
                code,
                silent,
                content.get("store_history", not silent),
                content.get("user_expressions", {}),
                content.get("allow_stdin", False),
                cell_meta=parent.get("metadata"),
                cell_id=(parent.get("metadata") or {}).get("cellId"),
            )
            execution.interruptible = False
        except BaseException as error:  # noqa: BLE001 - whatever it is, the request gets its reply
            # First of all, and without a call: between two calls no signal handler runs.
            execution.interruptible = False
            if reply is None:
                reply = self._failed(error, silent=silent)
        if main:
            self.shell.restore_builtins()
            self.capture.drain()
        metadata["krt"] = {"sigint_ns": execution.sigint_ns, "finished_ns": time.monotonic_ns()}
        reach("kernel-before-reply")
        self._reply(ident, parent, reply, metadata)
        reach("kernel-after-reply")
        if main:
            self.interrupts.let_go()

    def _begin(self, execution: Execution) -> None:
        os.environ["KRT_EXECUTION"] = execution.msg_id
        self.capture.begin(current.get().raw)
        self.interrupts.execution = execution
        self.interrupts.install()

    def _reply(
        self, ident: list[bytes], parent: dict[str, Any], reply: dict[str, Any], metadata: dict[str, Any]
    ) -> None:
        metadata = self.finish_metadata(parent, metadata, reply)
        message = self.session.msg("execute_reply", reply, parent=parent, metadata=metadata)
        if self.outbox.message("shell", self.session.serialize(message, ident)):
            return
        # Not even the reserve could hold it: how it ended must still be told.
        short = {**reply, "user_expressions": {}, "payload": []}
        if "traceback" in short:
            short.update(traceback=[], evalue=short["evalue"][:_TRIMMED])
        metadata["krt"]["trimmed"] = True
        message = self.session.msg("execute_reply", short, parent=parent, metadata=metadata)
        self.outbox.message("shell", self.session.serialize(message, ident))

    async def do_execute(
        self,
        code: str,
        silent: bool,
        store_history: bool = True,
        user_expressions: dict[str, str] | None = None,
        allow_stdin: bool = False,
        *,
        cell_meta: dict[str, Any] | None = None,
        cell_id: str | None = None,
    ) -> dict[str, Any]:
        """Content of the execute_reply."""
        shell = self.shell
        shell.last_error = None
        shell._last_traceback = None
        shell._last_traceback_during_displayhook = False
        self._forward_input(allow_stdin)
        with self.interrupts.held():
            code = self.observer.begin(code, current.get())
        try:
            result = await self._run_cell(code, silent, store_history, cell_meta, cell_id)
        finally:
            self._restore_input()
        self.observer.ended_well = result.success
        error = result.error_before_exec if result.error_before_exec is not None else result.error_in_exec
        reply: dict[str, Any] = {"status": "ok", "execution_count": shell.execution_count - 1}
        if error is not None or shell._last_traceback_during_displayhook:
            reply.update(status="error", **self._describe(error))
        reply["user_expressions"] = (
            shell.user_expressions(user_expressions or {}) if reply["status"] == "ok" else {}
        )
        reply["payload"] = shell.payload_manager.read_payload()
        shell.payload_manager.clear_payload()
        return reply

    async def _run_cell(
        self,
        code: str,
        silent: bool,
        store_history: bool,
        cell_meta: dict[str, Any] | None,
        cell_id: str | None,
    ) -> Any:
        shell = self.shell
        if getattr(shell, "trio_runner", None):
            return shell.run_cell(
                code, store_history=store_history, silent=silent, cell_id=cell_id, cell_meta=cell_meta
            )
        failure = None
        try:
            cell = shell.transform_cell(code)
        except Exception:  # noqa: BLE001 - a transformer may raise anything; the cell shows it
            cell, failure = code, sys.exc_info()
        job = self._guarded(
            shell.run_cell_async(
                code,
                store_history=store_history,
                silent=silent,
                transformed_cell=cell,
                preprocessing_exc_tuple=failure,
                cell_id=cell_id,
                cell_meta=cell_meta,
            )
        )
        result = None
        try:
            if shell.should_run_async(code, transformed_cell=cell, preprocessing_exc_tuple=failure):
                task = asyncio.ensure_future(job)
                if _on_main_thread() and self.interrupts.execution is not None:
                    self.interrupts.execution.task = task
                result = await task
            else:
                result = _run_now(job)
        finally:
            shell.events.trigger("post_execute")
            if not silent:
                shell.events.trigger("post_run_cell", result)
        return result

    async def _guarded(self, cell: Coroutine[Any, Any, Any]) -> Any:
        """The cell; a fork child does not return from it."""
        error: BaseException | None = None
        try:
            result = await cell
            error = result.error_in_exec or result.error_before_exec
        except BaseException as raised:
            error = raised
            raise
        finally:
            leave_if_child(self._pid, error)
        return result

    def _describe(self, error: BaseException | None) -> dict[str, Any]:
        """`{"ename", "evalue", "traceback"}` of what ended the cell."""
        shown = self.shell.last_error
        if error is None:
            return dict(shown or {"ename": "", "evalue": "", "traceback": []})
        return {
            "ename": name_of(type(error)),
            "evalue": text_of(error),
            "traceback": list(shown["traceback"]) if shown else [],
        }

    def _failed(self, error: BaseException, *, silent: bool) -> dict[str, Any]:
        """Reply content when the machinery around the cell raised, by a signal or by what the cell did."""
        self.shell.restore_builtins()
        described = {
            "ename": name_of(type(error)),
            "evalue": text_of(error),
            "traceback": plain_traceback(type(error), error, error.__traceback__),
        }
        self.log.warning("Cell ended outside its own code: %s", described["ename"])
        if not silent:
            self.session.send(
                self.iopub_socket, "error", described, parent=current.get().header, ident=self._topic("error")
            )
        self.shell.payload_manager.clear_payload()
        return {
            "status": "error",
            "execution_count": self.shell.execution_count - 1,
            "user_expressions": {},
            "payload": [],
            **described,
        }

    # -- stdin and interrupts --------------------------------------------------------

    def _input_request(self, prompt: str, ident: Any, parent: Any, password: bool = False) -> str:
        """Ask whoever ran this; the question is in the outbox before the wait begins."""
        if self.outbox.is_child:
            raise StdinNotImplementedError("a fork child of the kernel cannot ask for input")
        self.capture.catch_up()
        while self.stdin_socket.poll(0):  # replies to questions nobody asks any more
            self.stdin_socket.recv_multipart()
        content = {"prompt": prompt, "password": password}
        message = self.session.msg("input_request", content, parent=parent)
        self.outbox.message("stdin", self.session.serialize(message, ident))
        try:
            while True:
                if not self.stdin_socket.poll(_STDIN_POLL_MS):
                    continue
                try:
                    _, reply = self.session.recv(self.stdin_socket)
                except ValueError:
                    self.log.warning("Invalid message on stdin", exc_info=True)
                    continue
                if reply is not None:
                    break
        except KeyboardInterrupt:
            raise KeyboardInterrupt("Interrupted by user") from None
        value = str(reply["content"].get("value", ""))
        if value == "\x04":
            raise EOFError
        return value

    async def interrupt_request(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        """As ever, unless it names an execution that is over: by the time we are heard another may run."""
        meant = parent["content"].get("execution")
        with self.interrupts.ending:
            running = self.interrupts.execution
            over = meant in self._seen and (running is None or running.msg_id != meant)
            if not over:
                await super().interrupt_request(stream, ident, parent)
                return
        self.session.send(
            stream, "interrupt_reply", {"status": "ok", "interrupted": False}, parent, ident=ident
        )

    def _send_interrupt_children(self) -> None:
        super()._send_interrupt_children()
        self.interrupts.note()

    # -- the rest --------------------------------------------------------------------

    def do_history(self, hist_access_type: str, output: Any, raw: Any, *args: Any, **kwargs: Any) -> Any:
        """This incarnation's history; the journal answers for the others, at the front door."""
        if hist_access_type == "range":
            return super().do_history(hist_access_type, output, raw, *args, **kwargs)
        return {"status": "ok", "history": []}

    @property
    def kernel_info(self) -> dict[str, Any]:
        features = ["debugger"] if find_spec("debugpy") is not None else []
        return {
            "protocol_version": kernel_protocol_version,
            "implementation": self.implementation,
            "implementation_version": self.implementation_version,
            "language_info": self.language_info,
            "banner": self.banner,
            "help_links": self.help_links,
            "supported_features": features,
        }

    async def do_debug_request(self, msg: dict[str, Any]) -> Any:
        """Load the debugger on its first request; we are on the control thread, where it lives."""
        self._debugged_by = self.get_parent()
        if self.debugger is None and find_spec("debugpy") is not None:
            from ipykernel.debugger import Debugger

            from kernel_runtime.kernel.debug_line import DebugLine, one_at_a_time

            line = DebugLine(self.io_loop.asyncio_loop)
            self.debugger = Debugger(
                self.log,
                self.debugpy_stream,
                self._publish_debug_event,
                line,
                line,
                self._kernel_modules,
                self.debug_just_my_code,
                self.filter_internal_frames,
            )
            one_at_a_time(self.debugger)
            self.debugpy_stream.on_recv(self.dispatch_debugpy, copy=False)
            self._stopped_queue = asyncio.ensure_future(self.poll_stopped_queue())
        return await super().do_debug_request(msg)

    def _publish_debug_event(self, event: dict[str, Any]) -> None:
        """Under the last request to it: that on the control channel may be the supervisor's own."""
        topic = self._topic("debug_event")
        self.session.send(self.iopub_socket, "debug_event", event, parent=self._debugged_by, ident=topic)

    def start(self) -> None:
        self.shell.exit_now = False
        super(IPythonKernel, self).start()
        self.interrupts.loop = self.io_loop.asyncio_loop


def _on_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _run_now(job: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that awaits nothing, on this very stack: cells may start loops of their own."""
    try:
        job.send(None)
    except StopIteration as stop:
        return stop.value
    job.close()
    raise RuntimeError("the cell awaits, though its code does not say so")
