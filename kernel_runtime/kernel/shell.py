# ruff: noqa: FBT001, FBT002
# mypy: disable-error-code="no-untyped-call,union-attr,attr-defined,misc,assignment,override"
# The signatures are IPython's.
"""The IPython shell of our kernel: one error per failure, displays that are valid JSON, no stream flushes.

User code can break what the shell stands on: delete a builtin, put None in sys.stdout, raise an
exception that cannot be printed. The overrides here keep the way from user code to its outcome
free of anything a cell can take away, as far as that is possible in one process: what a cell does
to the modules of IPython or of this package themselves is not guarded against.
"""

from __future__ import annotations

import builtins
import contextlib
import subprocess
import traceback
from collections.abc import Iterator
from typing import Any

from ipykernel.displayhook import ZMQDisplayHook, ZMQShellDisplayHook
from ipykernel.zmqshell import ZMQDisplayPublisher, ZMQInteractiveShell
from IPython.core.error import UsageError
from traitlets import Type

from kernel_runtime.kernel import commands
from kernel_runtime.kernel.attribution import ParentHeader, current
from kernel_runtime.kernel.execution import Interrupts
from kernel_runtime.kernel.mime import clean_bundle
from kernel_runtime.kernel.streams import plain_stderr

# IPython takes exit and quit away and gives its own, for each cell.
_BUILTINS = {name: value for name, value in vars(builtins).items() if name not in ("_", "exit", "quit")}
_EVALUE_MAX = 1 << 20
_INPUTS = 100


class KernelDisplayPublisher(ParentHeader, ZMQDisplayPublisher):
    """display() for any thread, with its request and in valid JSON."""

    def publish(self, data: Any, metadata: Any = None, **kwargs: Any) -> None:
        self._validate_data(data, metadata)
        data, metadata = clean_bundle(data, metadata)
        self.shell.kernel.capture.catch_up()
        super().publish(data, metadata, **kwargs)

    def clear_output(self, wait: bool = False) -> None:
        self.shell.kernel.capture.catch_up()
        super().clear_output(wait)

    def _flush_streams(self) -> None:
        """Streams hold nothing back, and may be anything by now."""


class KernelDisplayHook(ParentHeader, ZMQShellDisplayHook):
    """The value of a cell's last expression."""

    def write_format_data(self, format_dict: Any, md_dict: Any = None) -> None:
        data, metadata = clean_bundle(format_dict, md_dict)
        super().write_format_data(data, metadata)

    def finish_displayhook(self) -> None:
        message, self.msg = self.msg, None
        if not (message and message["content"]["data"] and self.session):
            return
        for hook in self._hooks:
            message = hook(message)
            if message is None:
                return
        self.shell.kernel.capture.catch_up()
        self.session.send(self.pub_socket, message, ident=self.topic)


class PlainDisplayHook(ParentHeader, ZMQDisplayHook):
    """sys.displayhook outside cells."""

    def __call__(self, obj: Any) -> None:
        if obj is None:
            return
        builtins._ = obj
        data, metadata = clean_bundle({"text/plain": repr(obj)}, {})
        content = {"execution_count": self.get_execution_count(), "data": data, "metadata": metadata}
        self.session.send(
            self.pub_socket, "execute_result", content, parent=self.parent_header, ident=self.topic
        )


class KernelShell(ParentHeader, ZMQInteractiveShell):
    """ZMQInteractiveShell that reports what happened, once, under its own name."""

    displayhook_class = Type(KernelDisplayHook)
    display_pub_class = Type(KernelDisplayPublisher)

    last_error: dict[str, Any] | None = None
    """`{"ename", "evalue", "traceback"}` of the last error shown since the cell began"""
    _inputs_from = 1
    """the oldest input that is in the namespace"""

    @property
    def parent_header(self) -> dict[str, Any]:
        return current.get().message

    @parent_header.setter
    def parent_header(self, message: dict[str, Any]) -> None:
        self.set_parent(message)

    @contextlib.contextmanager
    def _tee(self, channel: str) -> Iterator[None]:
        """IPython copies each cell's stdout into its history; the journal has it already."""
        yield

    def _format_exception_for_storage(self, exception: BaseException, *_: Any, **__: Any) -> list[str]:
        """What IPython's history keeps: the traceback as shown, not formatted a second time."""
        return list(self._last_traceback or [])

    def system_piped(self, cmd: str) -> None:
        """`!cmd`, with the kernel's terminal as its input."""
        if cmd.rstrip().endswith("&"):
            raise OSError("Background processes not supported.")
        code = commands.run(self.var_expand(cmd, depth=1))
        self.user_ns["_exit_code"] = code
        if self.system_raise_on_error and code != 0:
            raise subprocess.CalledProcessError(code, cmd)

    system = system_piped

    async def run_code(self, code_obj: Any, result: Any = None, *, async_: bool = False) -> bool:
        self.kernel.observer.ran(code_obj)
        try:
            return bool(await super().run_code(code_obj, result, async_=async_))
        finally:
            self.restore_builtins()
            _let_go(getattr(result, "error_in_exec", None))

    def forget_inputs(self) -> None:
        """Take `_i1`, `_i2`, … out of the namespace, a hundred at once, but for the last hundred or more.

        IPython adds one per cell, and looking at the namespace would cost more with each. `In` has all.
        """
        first, last = self._inputs_from, int(self.execution_count) - _INPUTS
        if last < first:
            self._inputs_from = min(first, max(1, last))  # it may have begun to count anew
        elif last - first >= _INPUTS:
            for name in map("_i{}".format, range(first, last)):
                value = self.user_ns_hidden.pop(name, None)
                if value is not None and self.user_ns.get(name) is value:  # else it is a cell's
                    self.user_ns.pop(name, None)
            self._inputs_from = last

    def restore_builtins(self) -> None:
        """Put back builtins that were deleted (not those that were replaced), and say so on stderr."""
        missing = _BUILTINS.keys() - vars(builtins).keys()
        if missing:
            vars(builtins).update({name: _BUILTINS[name] for name in missing})
            self.tell("restored builtins that the cell had deleted: " + ", ".join(sorted(missing)) + "\n")

    def tell(self, text: str) -> None:
        """Text on the running request's stderr stream, whatever sys.stderr is."""
        self.kernel.outbox.stream("stderr", current.get().raw, text)

    def showtraceback(
        self,
        exc_tuple: Any = None,
        filename: Any = None,
        tb_offset: Any = None,
        exception_only: bool = False,
        running_compiled_code: bool = False,
    ) -> None:
        self.restore_builtins()
        try:
            etype, value, tb = self._get_exc_info(exc_tuple)
        except ValueError:
            self.tell("No traceback available to show.\n")
            return
        Interrupts.hide(tb)
        ours = not exception_only and not issubclass(etype, SyntaxError) and etype is not UsageError
        try:
            if ours:
                self._showtraceback(etype, value, self._structured(etype, value, tb, tb_offset))
                if self.call_pdb:
                    self.debugger(force=True)
            else:
                super().showtraceback(exc_tuple, filename, tb_offset, exception_only, running_compiled_code)
        except Exception as error:  # noqa: BLE001 - a hostile exception; its name must still come out
            self._showtraceback(etype, value, [*plain_traceback(etype, value, tb), _failed(error)])

    def _structured(self, etype: Any, value: Any, tb: Any, tb_offset: Any) -> list[str]:
        """The traceback as IPython draws it, or as Python does where IPython cannot."""
        if _has_group(value):
            return plain_traceback(etype, value, tb)
        try:
            if hasattr(value, "_render_traceback_"):
                return [str(line) for line in value._render_traceback_()]
            return list(self.InteractiveTB.structured_traceback(etype, value, tb, tb_offset=tb_offset))
        except Exception:  # noqa: BLE001 - __str__ and friends may raise anything
            return plain_traceback(etype, value, tb)

    def _showtraceback(self, etype: type[BaseException], evalue: Any, stb: list[str]) -> None:
        content = {"ename": name_of(etype), "evalue": text_of(evalue), "traceback": list(stb)}
        if self.kernel.outbox.is_child:
            plain_stderr("\n".join(stb) + "\n", 2)
            return
        hook = self.displayhook
        if getattr(hook, "msg", None) is not None:
            self._last_traceback_during_displayhook = True
        self.last_error = content
        self._last_traceback = stb
        self.kernel.capture.catch_up()
        topic = hook.topic.replace(b"execute_result", b"error") if hook.topic else None
        self.kernel.session.send(hook.pub_socket, "error", content, parent=current.get().header, ident=topic)


def _let_go(error: BaseException | None) -> None:
    """Of what IPython's own frame holds of an error: that is a cycle, and keeps the user's frames alive."""
    trace = None if error is None else vars(BaseException)["__traceback__"].__get__(error)
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code.co_name == "run_code" and "/IPython/" in frame.f_code.co_filename:
            with contextlib.suppress(RuntimeError):  # it runs: a cell within a cell
                frame.clear()
        trace = trace.tb_next


def name_of(etype: type[BaseException]) -> str:
    """The class's own name, whatever its metaclass says."""
    return str(type.__dict__["__name__"].__get__(etype))


def text_of(value: Any) -> str:
    """str(value), or what went wrong with it."""
    try:
        text = str(value)
    except Exception as error:  # noqa: BLE001 - a __str__ may raise anything
        return f"<{name_of(type(value))} whose __str__ raised {name_of(type(error))}>"
    return text if len(text) <= _EVALUE_MAX else text[:_EVALUE_MAX] + "…"


def plain_traceback(etype: Any, value: Any, tb: Any) -> list[str]:
    """As Python prints it, from the first frame that is the user's."""
    first = tb
    while first is not None and "/IPython/" in first.tb_frame.f_code.co_filename:
        first = first.tb_next
    try:
        lines = traceback.format_exception(etype, value, first or tb)
    except Exception as error:  # noqa: BLE001 - the exception's own attributes may raise
        return [*traceback.format_tb(tb), f"{name_of(etype)}: {text_of(value)}", _failed(error)]
    return "".join(lines).rstrip("\n").split("\n")


def _failed(error: BaseException) -> str:
    return f"(formatting this exception raised {name_of(type(error))})"


def _has_group(value: BaseException | None) -> bool:
    seen: set[int] = set()
    while value is not None and id(value) not in seen:
        if isinstance(value, BaseExceptionGroup):
            return True
        seen.add(id(value))
        value = value.__cause__ or value.__context__
    return False
