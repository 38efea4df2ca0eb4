# ruff: noqa: FBT001, FBT002
# mypy: disable-error-code="no-untyped-call,union-attr,attr-defined,misc,assignment,override"
# The signatures are faulthandler's.
"""The kernel application: ipykernel's set-up, with our outbox, streams, capture and signals in it.

    python -m kernel_runtime.kernel -f CONNECTION_FILE --outbox DIR

Outlives whoever started it: JPY_PARENT_PID is ignored, and the connection file is not its own.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import logging
import os
import sys
import traceback
from typing import Any

import zmq
from ipykernel.kernelapp import IPKernelApp, kernel_aliases
from tornado.ioloop import IOLoop
from traitlets import Dict, Type, Unicode

from kernel_runtime.kernel import attribution
from kernel_runtime.kernel.capture import FdCapture
from kernel_runtime.kernel.execution import Interrupts, watch_os_system
from kernel_runtime.kernel.outbox import OutboxWriter
from kernel_runtime.kernel.session import KernelSession
from kernel_runtime.kernel.shell import PlainDisplayHook
from kernel_runtime.kernel.streams import OutboxStream, OutboxThread

_OUTBOX_BOUND = 256 << 20
"""bytes that wait uncollected before output is dropped and counted, unless KRT_OUTBOX_BOUND says otherwise"""


class KernelApp(IPKernelApp):
    """One kernel process. `outbox_directory` must not hold another kernel's outbox."""

    kernel_class = Type(
        "kernel_runtime.kernel.kernel.SessionKernel", klass="ipykernel.kernelbase.Kernel"
    ).tag(config=True)
    outbox_directory = Unicode("", help="directory of this kernel's outbox").tag(config=True)
    aliases = Dict({**kernel_aliases, "outbox": "KernelApp.outbox_directory"})

    outbox: OutboxWriter
    capture: FdCapture
    interrupts: Interrupts

    def _session_default(self) -> KernelSession:
        return KernelSession(parent=self)

    def init_poller(self) -> None:
        """No poller: the kernel outlives its parent."""

    def init_sockets(self) -> None:
        # Before anything: a kernel without its outbox must not answer. Children of ours, kernels
        # among them, must not find these in their environment.
        directory = self.outbox_directory or os.environ.get("KRT_OUTBOX", "")
        bound = int(os.environ.get("KRT_OUTBOX_BOUND") or _OUTBOX_BOUND)
        free = int(os.environ.get("KRT_OUTBOX_FREE") or 0)
        for name in ("KRT_OUTBOX", "KRT_OUTBOX_BOUND", "KRT_OUTBOX_FREE"):
            os.environ.pop(name, None)
        os.environ.pop("JPY_PARENT_PID", None)
        if not directory:
            self.log.critical("No outbox: give --outbox DIR or set KRT_OUTBOX")
            self.exit(2)
        self.outbox = OutboxWriter(directory, bound=bound, free=free)
        if (rules := os.environ.pop("KRT_GUARD", None)) is not None:
            from kernel_runtime.kernel.guard import install

            install(json.loads(rules), own=[directory])
        self.interrupts = Interrupts()
        attribution.install()
        super().init_sockets()

    def init_control(self, context: Any) -> None:
        super().init_control(context)
        # Executions of a session are one queue, so nothing is routed to subshells: without their
        # thread each request saves a hop between threads that fight for the GIL.
        self.shell_channel_thread = None

    def init_iopub(self, context: Any) -> None:
        """The IOPub socket is bound, since the connection file says so, and carries nothing."""
        self.iopub_socket = context.socket(zmq.XPUB)
        self.iopub_socket.linger = 0
        self._apply_curve_server_options(self.iopub_socket)
        self.iopub_port = self._bind_socket(self.iopub_socket, self.iopub_port)
        self.configure_tornado_logger()
        self.iopub_thread = OutboxThread(self.iopub_socket, self.outbox, self.session)
        self.iopub_thread.start()
        self.iopub_socket = self.iopub_thread.background_socket

    def log_connection_info(self) -> None:
        self._ports = {
            name: getattr(self, f"{name}_port") for name in ("shell", "iopub", "stdin", "hb", "control")
        }

    def init_io(self) -> None:
        self.capture = FdCapture(self.outbox)
        self.log_file = open(  # noqa: SIM115 - open as long as the process lives
            self.capture.log_fds[1], "w", buffering=1, errors="backslashreplace", closefd=False
        )
        for logger in (self.log, logging.getLogger("tornado"), logging.getLogger()):
            for handler in logger.handlers:
                if isinstance(handler, logging.StreamHandler) and not isinstance(
                    handler, logging.FileHandler
                ):
                    handler.setStream(self.log_file)
        for name in ("stdout", "stderr"):
            setattr(sys, name, OutboxStream(self.session, self.iopub_thread, name, capture=self.capture))
        self.displayhook = PlainDisplayHook(self.session, self.iopub_socket)
        sys.displayhook = self.displayhook
        self.patch_io()
        session = self.session
        os.register_at_fork(after_in_child=lambda: setattr(session, "pid", os.getpid()))
        self.capture.start()

    def patch_io(self) -> None:
        """Crash traces go to the log: the pipe on fd 2 dies with this process."""
        faulthandler.enable(file=self.log_file)
        enable, register = faulthandler.enable, faulthandler.register

        def enable_here(file: Any = None, all_threads: bool = True, **kwargs: Any) -> None:
            enable(file=file if _has_fd(file) else self.log_file, all_threads=all_threads, **kwargs)

        def register_here(
            signum: int, file: Any = None, all_threads: bool = True, chain: bool = False, **kwargs: Any
        ) -> None:
            file = file if _has_fd(file) else self.log_file
            register(signum, file=file, all_threads=all_threads, chain=chain, **kwargs)

        faulthandler.enable, faulthandler.register = enable_here, register_here

    def init_signal(self) -> None:
        self.interrupts.install()
        watch_os_system(self.interrupts)

    def init_kernel(self) -> None:
        # The journal is the history. IPython's own costs a disk write per cell.
        self.config.HistoryManager.enabled = False
        super().init_kernel()

    def excepthook(self, etype: Any, evalue: Any, tb: Any) -> None:
        traceback.print_exception(etype, evalue, tb, file=getattr(self, "log_file", sys.__stderr__))

    def cleanup_connection_file(self) -> None:
        """The file belongs to whoever wrote it."""

    def reset_io(self) -> None:
        if hasattr(self, "capture"):
            self.capture.stop()
        super().reset_io()

    def start(self) -> None:
        """Serve until told to exit. A cell that stops the loop, or breaks out of it, stops nothing else."""
        self.kernel.start()
        self.io_loop = IOLoop.current()
        while not self.kernel.shell.exit_now:
            with contextlib.suppress(KeyboardInterrupt):
                self.io_loop.start()


def _has_fd(file: Any) -> bool:
    try:
        return file is not None and file.fileno() >= 0
    except (AttributeError, OSError, ValueError):
        return False


def main() -> None:
    """Run a kernel until it is told to exit."""
    KernelApp.launch_instance()
