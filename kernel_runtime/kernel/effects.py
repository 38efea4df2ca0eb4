"""What an execution does to the world outside the heap, as far as this process can see it.

One audit hook notes what Python is about to do; what the hook cannot see is looked for in tables
before and after the cell: environment, working directory, signal handlers, descriptors, children,
bytes written. docs/effects.md lists the kinds.

Invariant: the hook never raises into the user's code, never prints, runs none of the user's code and
keeps none of the user's objects. It takes no lock: a signal handler may run in the middle of it.
An event belongs to the execution whose code caused it, by the context variable of attribution.py,
so what a thread does after its cell is delivered later, under the cell's name.

Not promised: what native code does by itself. Where there is a sign of it, `unseen` says so.
"""

from __future__ import annotations

import os
import posixpath
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from threading import get_ident, main_thread
from types import TracebackType
from typing import TYPE_CHECKING, Any

from kernel_runtime.core import masking
from kernel_runtime.kernel import audited
from kernel_runtime.kernel.attribution import current
from kernel_runtime.kernel.audited import EVENTS, NATIVE, OPEN, WRITES, Effect
from kernel_runtime.kernel.tables import Tables

if TYPE_CHECKING:
    from kernel_runtime.kernel.capture import FdCapture

MAX_EFFECTS = 200
"""distinct effects of one execution that are listed; more are counted"""
_MAX_UNSEEN = 20
_MAX_RECORDS = 64
"""executions whose threads may still be doing something"""

_OWN_FILES = frozenset((__file__, audited.__file__, masking.__file__, posixpath.__file__))
_STDLIB = os.path.dirname(os.__file__)

Note = Callable[[tuple[Any, ...]], None]
_notes: dict[str, Note] = {}
"""what is done on an event, by the instance installed last; empty in a fork child"""
_hooked: list[bool] = []


class _Record:
    """The effects of one execution that have not been delivered."""

    __slots__ = ("counts", "more", "trees", "unseen")

    def __init__(self) -> None:
        self.counts: dict[Effect, count[int]] = {}  # counters, because next() is one step for all threads
        self.unseen: dict[str, None] = {}
        self.trees: list[str] = []
        self.more = 0

    def add(self, effect: Effect) -> None:
        kind, how, fields = effect
        if kind == "file" and how.startswith("remove"):
            path = fields[0][1]
            if how == "remove" and any((path + "/").startswith(tree) for tree in self.trees):
                return  # rmtree says it once for all of them
            if how == "remove-tree":
                self.trees.append(path + "/")
        counter = self.counts.get(effect)
        if counter is None:
            if len(self.counts) >= MAX_EFFECTS:
                self.more += 1
                return
            counter = self.counts.setdefault(effect, count())
        next(counter)

    def say(self, why: str) -> None:
        if len(self.unseen) < _MAX_UNSEEN:
            self.unseen[why] = None

    def drain(self) -> tuple[list[Effect], list[int], list[str]]:
        """Effects, how often each, and what may be unseen. What comes meanwhile is there next time."""
        found = list(self.counts)
        times = [max(1, next(counter)) for counter in map(self.counts.pop, found)]
        if self.more:
            found.append(("more", "bound", (("effects", self.more),)))
            times.append(1)
            self.more = 0
        unseen = list(self.unseen)
        self.unseen.clear()
        return found, times, unseen


class Effects:
    """The effects of this process's executions. `begin` and `end` are called on the main thread."""

    def __init__(self) -> None:
        self._records: dict[str | None, _Record] = {}
        self._key: str | None = None
        self._busy: set[int] = set()
        self._own: tuple[str, ...] = ()
        self._main = main_thread().ident
        self._begun = False
        self._without_tables = ""
        self._looked = False
        self._tables = Tables()
        self._started: Callable[[], None] = lambda: None

    def install(self, own: Iterable[str] = (), capture: FdCapture | None = None) -> None:
        """Watch from here on; `own` are directories of the runtime's, where writing is no effect.

        `capture` is told whenever a process is about to be started, and its pipes are the runtime's.
        """
        if capture is not None:
            self._started = capture.started
            self._tables.own_fds = capture.fds
        self._own = tuple(os.path.join(audited.absolute(path), "") for path in own)
        self._tables.own = self._own
        tempfile.gettempdir()  # tries by writing a file, once: the kernel's doing, not the first cell's
        notes: dict[str, Note] = {event: self._noting(describe) for event, describe in EVENTS.items()}
        notes |= {event: self._native(event) for event in NATIVE}
        notes["open"] = self._noting(OPEN)
        notes["import"] = self._importing()
        _notes.clear()
        _notes.update(notes)
        if _hooked:
            return
        _hooked.append(True)
        os.register_at_fork(after_in_child=_notes.clear)
        _hook(_notes)

    def begin(self, execution: str, *, look: bool = True) -> None:
        """Right before the cell's code, on the main thread; without `look` the tables are not read yet."""
        if not self._begun:
            self._begun = True
            self._records.clear()  # the kernel's own start
        self._records[execution] = _Record()
        self._key = execution
        self._without_tables = ""
        self._looked = False
        if look:
            self.look()

    def look(self) -> None:
        """Read the tables, unless that was done for this execution; before its first code that calls any."""
        if self._looked:
            return
        self._looked = True
        try:
            self._tables.before()
        except OSError as error:  # no /proc, or no descriptor left to read it with
            self._without_tables = f"tables: {error.strerror}"

    def end(self) -> tuple[list[dict[str, Any]], list[str]]:
        """What the execution that began last did, and why there may be more."""
        key, self._key = self._key, None
        record = self._records.get(key)
        if key is None or record is None:
            return [], []
        found, times, unseen = record.drain()
        undone: set[Effect] = set()
        more: list[Effect] = []
        signs = [self._without_tables] if self._without_tables else []
        if self._looked and not signs:
            try:
                undone = self._tables.undone(found, times)
                more, signs = self._tables.after(found)
            except OSError as error:
                signs = [f"tables: {error.strerror}"]
        kept = ((effect, count) for effect, count in zip(found, times, strict=True) if effect not in undone)
        effects = [*(_told(effect, count) for effect, count in kept), *(_told(effect, 1) for effect in more)]
        return effects, [*unseen, *signs]

    def take_late(self) -> list[tuple[str | None, dict[str, Any]]]:
        """What threads, tasks and callbacks did after their execution's end, each with its msg_id.

        None is for what belongs to no execution. Signs of the unseen are effects of kind `unseen`.
        """
        late: list[tuple[str | None, dict[str, Any]]] = []
        if not self._begun:
            return late
        for msg_id, record in list(self._records.items()):
            if msg_id is not None and msg_id == self._key:
                continue
            if record.counts or record.unseen or record.more:
                found, times, unseen = record.drain()
                late += [(msg_id, effect) for effect in map(_told, found, times)]
                late += [(msg_id, {"kind": "unseen", "how": "late", "why": why}) for why in unseen]
        for msg_id in list(self._records)[:-_MAX_RECORDS]:
            if msg_id != self._key:
                self._records.pop(msg_id, None)
        return late

    # -- one event

    def _noting(self, describe: audited.Describe) -> Note:
        def note(args: tuple[Any, ...]) -> None:
            self._note(describe, args)

        return note

    def _importing(self) -> Note:
        def imported(args: tuple[Any, ...]) -> None:
            if len(args) > 1 and args[1] is not None:  # a file's name: an extension module is loaded
                self._note(_no_effect, args, _extension)

        return imported

    def _native(self, event: str) -> Note:
        def called(args: tuple[Any, ...]) -> None:
            self._note(_no_effect, args, lambda _: f"native: {event}")

        return called

    def _note(
        self,
        describe: audited.Describe,
        args: tuple[Any, ...],
        sign: Callable[[tuple[Any, ...]], str | None] | None = None,
    ) -> None:
        ident = get_ident()
        if ident in self._busy:
            # not ours, since looking at an event makes none: a signal handler or finalizer came between
            self._record(ident).say("events: some happened while one was being noted")
            return
        self._busy.add(ident)
        try:
            if sign is not None:
                why = sign(args)
                if why is not None:
                    self._record(ident).say(why)
                return
            effect = describe(args)
            if effect is not None and not self._is_ours(effect):
                self._record(ident).add(effect)
                self._tables.noted(effect)
                if effect[0] == "process":
                    self._started()
        except Exception as error:
            if not _ours(error.__traceback__):
                raise  # a signal handler of the user's raised it, here by chance
            self._record(ident).say(f"events: one could not be read ({audited.type_name(error)})")
        finally:
            self._busy.discard(ident)

    def _record(self, ident: int) -> _Record:
        msg_id = current.get().header.get("msg_id")
        if msg_id is None and ident == self._main:
            msg_id = self._key
        return self._records.get(msg_id) or self._records.setdefault(msg_id, _Record())

    def _is_ours(self, effect: Effect) -> bool:
        return bool(self._own) and effect[0] == "file" and effect[2][0][1].startswith(self._own)


def _hook(notes: Mapping[str, Note]) -> None:
    """Most events are reads, and cost one comparison: calling a hook at all costs five times that."""

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            try:
                if not args[2] & WRITES:
                    return
            except (IndexError, TypeError):
                return  # a program's own sys.audit("open", …)
        elif event not in notes:
            return
        note = notes.get(event)
        if note is not None:  # in a fork child there is none
            note(args)

    sys.addaudithook(hook)


def _no_effect(_args: tuple[Any, ...]) -> None:
    return None


def _extension(args: tuple[Any, ...]) -> str | None:
    path = audited.text(args[1])
    if path.startswith(_STDLIB) and "site-packages" not in path:
        return None  # what the standard library does in C it also audits
    return f"extension: {audited.text(args[0]).partition('.')[0]}"


def _ours(traceback: TracebackType | None) -> bool:
    """Whether the innermost frame is of this machinery."""
    last = None
    while traceback is not None:
        last, traceback = traceback, traceback.tb_next
    return last is not None and last.tb_frame.f_code.co_filename in _OWN_FILES


def _told(effect: Effect, times: int) -> dict[str, Any]:
    kind, how, fields = effect
    told: dict[str, Any] = {"kind": kind, "how": how}
    for name, value in fields:
        told[name] = list(value) if type(value) is tuple else value
    if times > 1:
        told["count"] = times
    return told


# -- what the author says

EFFECT_FREE, EFFECTFUL = "effect-free", "effectful"
"""as in core.effects, which would load more than a kernel needs"""
_MAGIC = re.compile(r"%%(effect[_-]free|effectful)[ \t]*(?:#.*)?\Z")


def declared_by(code: str, metadata: Mapping[str, Any] | None) -> tuple[str | None, str]:
    """What the author declares of a cell's effects, and the code without the line that says so.

    By `%%effect_free` or `%%effectful` as the cell's first line, or a tag `effect-free` or `effectful`
    in the request's metadata. Where they contradict each other it is effectful. Lines keep their numbers.
    """
    said = _tags(metadata)
    lines = code.split("\n")
    first = next((at for at, line in enumerate(lines) if line.strip()), None)
    if first is not None and (magic := _MAGIC.match(lines[first].rstrip("\r"))):
        said.add(magic[1].replace("_", "-"))
        rest = next((line for line in lines[first + 1 :] if line.strip()), "")
        # IPython drops empty lines at the top, which would move all others; but another cell magic
        # must be the first line, and counts its lines from itself.
        lines[first] = "" if rest.startswith("%%") else f"# declared {magic[1]}"
        code = "\n".join(lines)
    if EFFECTFUL in said:
        return EFFECTFUL, code
    return (EFFECT_FREE if EFFECT_FREE in said else None), code


def _tags(metadata: Mapping[str, Any] | None) -> set[str]:
    if not isinstance(metadata, Mapping):
        return set()
    cell = metadata.get("cellMeta")
    found: set[str] = set()
    for holder in (metadata, cell if isinstance(cell, Mapping) else {}):
        tags = holder.get("tags")
        if isinstance(tags, list | tuple):
            found.update(tag.replace("_", "-") for tag in tags if isinstance(tag, str))
    return found & {EFFECT_FREE, EFFECTFUL}


def register(shell: Any) -> None:
    """Make the declarations known to IPython, for completion and inside other cell magics."""

    def run(_line: str, cell: str) -> None:
        shell.run_cell(cell, store_history=False).raise_error()

    for name in ("effect_free", "effectful"):
        shell.register_magic_function(run, "cell", name)
