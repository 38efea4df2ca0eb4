"""What executions do to the names of the namespace, told after each one and in quiet moments.

Three nets, each for what falls through the one before. The code says what it can touch (code.py), and
what shares an object with that is touched too (sharing.py). What somebody outside the namespace holds
(a library's registry, a thread, a callback) counts as touched by every execution. And small values
are read again after every execution as far as a fraction of a millisecond goes, all others in idle
moments.
Whatever is touched is read again, exactly; what cannot be is reported as `touched`.

Invariants: a change of a name is in the observation of the execution after which it is first found,
or in a drift; nothing is raised; no reference to an object of the user's is kept past a call, but for
numbers and short texts, and between `ran` and `end` the code that runs.

All on the kernel's main thread, but for `snapshot`, which reads and writes nothing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import compress
from types import CodeType, FunctionType
from typing import Any

from kernel_runtime.kernel.probe import layout as lay
from kernel_runtime.kernel.probe.bytecode import facts
from kernel_runtime.kernel.probe.code import Touch, analyse
from kernel_runtime.kernel.probe.digest import BOUND, Print, fingerprint
from kernel_runtime.kernel.probe.groups import Groups
from kernel_runtime.kernel.probe.identity import differing, ident, idents
from kernel_runtime.kernel.probe.quiet import is_quiet
from kernel_runtime.kernel.probe.records import MISSING, Binding, Record, is_ours, is_output

EXECUTION_BOUND = 512 << 20
"""bytes of content that are read after one execution"""
_LOOK_NS = 600_000
"""after an execution small values are read again for what this leaves, and no longer than the next"""
_PATROL_NS = 250_000
_CHECK_NS = 5_000_000
_BINDINGS = ("bound", "rebound", "deleted")
_NO_ROOM = "too much was touched to read all of it"
_BY_NAME = "it was stored into, and is known by its name alone"
_NOTHING = Touch(
    frozenset(), frozenset(), frozenset(), frozenset(), frozenset(), frozenset(), frozenset(), ()
)

Row = dict[str, Any]


class HeapProbe:
    """Watches one namespace.

    Args:
        namespace: where cells run.
        hidden: what the shell itself bound there, and to what; looked at as it is then.
        log: gets a line when the probe fails.
        holders: further dicts of the shell's whose values it only keeps to show them again.
    """

    def __init__(
        self,
        namespace: dict[str, Any],
        hidden: Mapping[str, Any] | Iterable[str] = (),
        log: Callable[[str], None] | None = None,
        holders: Callable[[], Iterable[Mapping[str, Any]]] | None = None,
    ) -> None:
        self._names = namespace
        self._hidden: Mapping[str, Any] = (
            hidden if isinstance(hidden, Mapping) else {name: namespace.get(name) for name in hidden}
        )
        self._holders = holders
        self._log = log
        self._records: dict[str, Record] = {}
        self._binding = Binding([], [], [], b"", b"", [], b"")
        self._there: set[str] = set()
        self.is_quiet = True
        """so far nothing but the interpreter ran in this execution"""
        self._spent = 0
        """nanoseconds that looking at this execution has cost so far"""
        self._settled_by = 0
        self._hooked = False
        self._groups = Groups(namespace, self._shown)
        self._codes: list[CodeType] = []
        self._before = _NOTHING
        self._settled: frozenset[str] = frozenset()
        self._ring: deque[str] = deque()
        self._in_ring: set[str] = set()
        self._to_scan: deque[str] | None = None
        """names that the present round of scans has left; None: a round is due"""
        self._told: tuple[list[list[str]], list[str]] = ([], [])
        self._drift: dict[str, Row] = {}
        self._shaken = False
        """the probe failed: the next look is at everything"""
        self._stained: set[int] = set()
        """ids of modules, and of what they hold, that cells stored into"""
        try:
            for name in self._bindings()[0]:
                self._read(name, BOUND)
            self._groups.follow(set(self._records))
            self._told = self._groups.report()
        except Exception as error:  # noqa: BLE001 - the kernel starts, whatever is in its namespace
            self._failed(error)

    # -- around an execution

    def begin(
        self, volatile: list[str], *, ended: bool = False, hooked: bool = False
    ) -> dict[str, Any] | None:
        """Right before a cell runs: names that drifted, if something may have run since the last look.

        Args:
            volatile: what runs beside it.
            ended: whether something else did, and has ended by now.
            hooked: whether somebody's code runs with every cell.
        """
        self._codes, self._before, self._settled = [], _NOTHING, frozenset()
        self._spent = 0
        self.is_quiet, self._settled_by, self._hooked = not hooked, 0, hooked
        if not volatile and not ended:
            return None
        try:
            rows = self._check()
        except Exception as error:  # noqa: BLE001 - told in what is returned
            rows = self._failed(error)
        return self._drifted(rows, volatile)

    def ran(self, code: CodeType) -> None:
        """The shell is about to run this: what it can touch while its names are what they are now."""
        began = time.perf_counter_ns()
        self._codes.append(code)
        try:
            if not self._hooked and is_quiet(code, self._names):
                return  # it calls nothing, so it can lose nothing that `end` would have to follow
            self.is_quiet = False
            # What the cell has bound by now is not what was there before it.
            for earlier in self._codes[self._settled_by : -1]:
                self._settled |= facts(earlier, "top").settles
            self._settled_by = len(self._codes) - 1
            found = analyse([code], self._names)
            self._before = _both(self._before, found._replace(reads=found.reads - self._settled))
        except Exception as error:  # noqa: BLE001 - told in what `end` returns
            self._complain(error)
            failed = (f"probe failed: {lay.type_name(type(error))}",)
            self._before = _both(self._before, _NOTHING._replace(dynamic=failed))
        finally:
            self._spent += time.perf_counter_ns() - began

    def end(self, ok: bool, volatile: list[str]) -> dict[str, Any]:  # noqa: FBT001
        """After the execution: the fields of ExecutionObserved that tell of the heap."""
        began = time.perf_counter_ns() - self._spent
        codes, self._codes = self._codes, []
        try:
            seen = self._observe(codes, began, ok=ok, volatile=bool(volatile))
        except Exception as error:  # noqa: BLE001 - told in what is returned
            name = lay.type_name(type(error))
            seen = {"names": self._failed(error), "reads": [], "dynamic": [f"probe failed: {name}"]}
        self._to_scan = None
        seen |= self._sharing()
        seen["volatile"] = list(volatile)
        seen["nanoseconds"] = time.perf_counter_ns() - began
        return seen

    def take_drift(self) -> dict[str, Any] | None:
        """Names that `end` found changed by something else than the execution."""
        rows, self._drift = self._drift, {}
        return {"names": rows, "groups": None, "unfollowed": [], "volatile": []} if rows else None

    def _observe(self, codes: list[CodeType], began: int, *, ok: bool, volatile: bool) -> dict[str, Any]:
        touch = _both(self._before, analyse(codes, self._names)) if codes else _NOTHING
        dynamic = list(touch.dynamic)
        if any(is_output(name) for name in touch.reads):
            dynamic.append("earlier output")
        everything = bool(touch.dynamic) or self._shaken
        rows = self._look(touch, began, ok=ok, everything=everything, volatile=volatile)
        self._shaken = False
        if ok and not any(row["how"] in _BINDINGS for row in rows.values()):
            # the very object may have been bound again, and a later cell's binding would supersede that
            perhaps = (touch.binds - touch.binds_surely) & self._records.keys()
            dynamic += [f"{name} may have been bound to what it was bound to" for name in sorted(perhaps)]
        return {"names": rows, "reads": sorted(touch.reads), "dynamic": dynamic}

    def _shown(self) -> list[dict[str, Any]]:
        """Dicts that keep what cells showed: references that nobody changes anything through."""
        found = [self._names.get("_oh"), self._hidden]
        if self._holders is not None:
            found += self._holders()
        return [table for table in found if type(table) is dict]

    # -- looking

    def _present(self, names: dict[str, Any]) -> list[str]:
        """Names that are there and are not the shell's."""
        hidden = self._hidden
        return [
            name
            for name in list(names)
            if type(name) is str
            and not is_ours(name)
            and not (name in hidden and names.get(name) is hidden[name])
        ]

    def _look(
        self, touch: Touch, began: int, *, ok: bool, everything: bool, volatile: bool
    ) -> dict[str, Row]:
        """Read again what may have changed, and tell what did."""
        records = self._records
        there, moved = self._bindings()
        rows: dict[str, Row] = {}
        for name in records.keys() - there:
            rows[name] = {"how": "deleted"}
            del records[name]
        own = self._groups.around((touch.uses | touch.binds | touch.deletes | touch.stores_into) & there)
        # where nothing but the interpreter ran, nobody did anything to what others hold
        restless = set() if self.is_quiet and not volatile else self._groups.restless() & there
        due = there if everything else own | self._groups.around(moved) | restless
        room = EXECUTION_BOUND
        walk = set(rows)
        drift = self._drift
        for name in self._in_order(due):
            old = records.get(name)
            kept = old is not None and not old.print.mutable and name not in moved
            if name in touch.stores_into and not (old is not None and old.print.mutable):
                self._stain(name)
            elif kept and not everything and name not in touch.binds:
                continue
            found = self._read(name, room)
            if found is None:
                continue
            room -= found.print.bytes
            walk.add(name)
            how = _how(old, found, touch, name, ok=ok, moved=name in moved)
            if how is not None:
                mine = everything or not volatile or name in own
                (rows if mine else drift)[name] = found.row(how)
        if not self.is_quiet or volatile:  # the interpreter alone changes nothing unseen
            left = _LOOK_NS - (time.perf_counter_ns() - began)
            for name in self._patrol(due, min(left, _PATROL_NS)):
                walk.add(name)
                (drift if volatile else rows)[name] = records[name].row("mutated")
        linked = self._groups.follow(walk) if walk else set[str]()
        for name in self._in_order((linked & there) - due):
            old, found = records.get(name), self._read(name, room)
            if found is None:
                continue
            room -= found.print.bytes
            how = _how(old, found, touch, name, ok=ok, moved=False)
            if how is not None:
                rows[name] = found.row(how)
        return rows

    def _bindings(self) -> tuple[set[str], set[str]]:
        """Names that are there; of these, those that are new or seem to be bound to another object."""
        names, old = self._names, self._binding
        keys = list(names)
        known = len(old.keys)
        # the shell adds names of its own for every cell
        if keys[:known] == old.keys and all(type(key) is str and is_ours(key) for key in keys[known:]):
            try:
                now = _bound(names, keys, old.tracked, old.which, old.shells)
            except (KeyError, RuntimeError):  # a thread is at it
                return self._bindings_anew()
            if now.shell_idents == old.shell_idents:  # else a name of the shell's may be a cell's now
                self._binding = now
                return self._there, _moved(now, old)
        return self._bindings_anew()

    def _bindings_anew(self) -> tuple[set[str], set[str]]:
        names, old = self._names.copy(), self._binding
        tracked = self._present(names)
        there = self._there = set(tracked)
        keys = list(names)
        shells = [key for key in self._hidden if key in names and key not in there and not is_ours(key)]
        which = [type(key) is str and key in there for key in keys]
        now = self._binding = _bound(names, keys, tracked, which, shells)
        before = dict(zip(old.tracked, old.each(), strict=True))
        moved = {
            key
            for key, is_now in zip(tracked, now.each(), strict=True)
            if before.get(key) != is_now or key not in self._records
        }
        return there, moved

    def _in_order(self, due: Iterable[str]) -> list[str]:
        """Small ones first, so that a large one costs no other its digest."""
        records = self._records
        return sorted(due, key=lambda name: (records[name].print.bytes if name in records else 0, name))

    def _read(self, name: str, room: int) -> Record | None:
        """Look at a name's value, and keep the record."""
        value = self._names.get(name, MISSING)
        if value is MISSING:
            return None
        began = time.perf_counter_ns()
        found = fingerprint(value, max(0, min(BOUND, room)), home=self._names)
        unread = found.digest is None and found.why == "over the bound" and room < BOUND
        if unread:
            found = found._replace(why=_NO_ROOM)
        elif not found.mutable and ident(value) in self._stained:
            found = found._replace(digest=None, why=_BY_NAME)
        record = Record(value, found, time.perf_counter_ns() - began, unread=unread)
        self._records[name] = record
        if record.is_small and found.mutable and name not in self._in_ring:
            self._ring.append(name)
            self._in_ring.add(name)
        return record

    def _stain(self, name: str) -> None:
        """A module, or a class or function of one, was stored into: its name does not tell its content."""
        value = self._names.get(name, MISSING)
        if lay.is_module(value) or lay.is_a(type(value), type) or type(value) is FunctionType:
            self._stained.add(ident(value))

    def _patrol(self, done: Iterable[str], nanoseconds: int) -> list[str]:
        """Read small values again while time is left; those that changed."""
        ring, records, changed = self._ring, self._records, []
        deadline = time.perf_counter_ns() + nanoseconds
        done = set(done)
        for _ in range(len(ring)):
            if time.perf_counter_ns() > deadline:
                break
            name = ring.popleft()
            old = records.get(name)
            if old is None or not old.is_small or not old.print.mutable:
                self._in_ring.discard(name)
                continue
            ring.append(name)
            if name in done:
                continue
            found = self._read(name, BOUND)
            if found is not None and found.print.digest != old.print.digest:
                changed.append(name)
        return changed

    # -- between executions

    def _check(self) -> dict[str, Row]:
        """Look at what may have changed while no execution ran."""
        there, moved = self._bindings()
        due = self._groups.around(moved) | (self._groups.restless() & there)
        rows = self._gone(there) | self._compare(due, EXECUTION_BOUND)
        rows |= {name: self._records[name].row("mutated") for name in self._patrol(due, _CHECK_NS)}
        self._groups.follow(set(rows) | due)
        return rows

    def _gone(self, there: set[str]) -> dict[str, Row]:
        gone = self._records.keys() - there
        for name in gone:
            del self._records[name]
        return {name: {"how": "deleted"} for name in gone}

    def _compare(self, due: Iterable[str], room: int) -> dict[str, Row]:
        rows: dict[str, Row] = {}
        for name in self._in_order(due):
            old = self._records.get(name)
            same = old is not None and old.is_same_object(self._names.get(name, MISSING))
            found = self._read(name, room)
            if found is None:
                continue
            room -= found.print.bytes
            how = _how(old, found, _NOTHING, name, ok=True, moved=not same)
            if how == "touched" and old is not None and old.unread and found.print.digest is not None:
                how = "read"
            if how is not None:
                rows[name] = found.row(how)
        return rows

    @property
    def wants_scan(self) -> bool:
        """Whether an idle moment could be used."""
        return self._to_scan is None or bool(self._to_scan)

    def scan(self, seconds: float, should_stop: Callable[[], bool]) -> dict[str, Any] | None:
        """Read names again until time is up or somebody wants the kernel; names that drifted.

        A name with `how` `read` did not change: its digest could not be computed before, and is now.
        """
        deadline = time.monotonic() + seconds
        rows: dict[str, Row] = {}
        try:
            there, moved = self._bindings()
            rows |= self._gone(there) | self._compare(moved, EXECUTION_BOUND)
            if not self._to_scan:
                self._to_scan = deque(self._in_order(there))
            queue = self._to_scan
            while queue and time.monotonic() < deadline and not should_stop():
                name = queue.popleft()
                old = self._records.get(name)
                if old is None or name in moved or (old.print.digest is None and not old.unread):
                    continue
                rows |= self._compare([name], BOUND)
            self._groups.follow({name for name, row in rows.items() if row["how"] != "read"})
        except Exception as error:  # noqa: BLE001 - told in what is returned
            rows |= self._failed(error)
        return self._drifted(rows, [])

    def _drifted(self, rows: dict[str, Row], volatile: list[str]) -> dict[str, Any] | None:
        if not rows:
            return None
        return {"names": rows, "volatile": list(volatile), **self._sharing()}

    # -- while a cell runs

    def snapshot(self, seconds: float) -> dict[str, Any]:
        """All names as they are now. From any thread; the records stay as they are."""
        deadline = time.monotonic() + seconds
        rows: dict[str, Row] = {}
        records = self._records
        for name in self._present(self._names):
            value = self._names.get(name, MISSING)
            if value is MISSING:
                continue
            old = records.get(name)
            if old is not None and value is old.held:
                found = old.print
            elif time.monotonic() > deadline:
                found = Print(lay.type_name(type(value)), 0, None, "no time was left to read it", True)
            else:
                found = fingerprint(value, home=self._names)
                time.sleep(0)  # the cell's turn
            del value
            rows[name] = {
                "type": found.type,
                "bytes": found.bytes,
                "digest": found.digest,
                "why": found.why,
            }
        return {"names": rows}

    # -- telling

    def _sharing(self) -> dict[str, Any]:
        told = self._groups.report()
        new = told != self._told
        self._told = told
        return {"groups": told[0] if new else None, "unfollowed": told[1]}

    def _complain(self, error: Exception) -> None:
        if self._log is not None:
            self._log(f"the heap probe failed: {lay.type_name(type(error))}")

    def _failed(self, error: Exception) -> dict[str, Row]:
        """Nothing is known any more: every name may have changed."""
        self._complain(error)
        self._shaken, self._groups = True, Groups(self._names, self._shown)
        rows: dict[str, Row] = {}
        for name in list(self._names):
            if type(name) is str and not is_ours(name) and name not in self._hidden:
                found = Print("object", 0, None, "the probe failed", True)
                record = Record(self._names.get(name), found, 0, unread=True)
                rows[name] = record.row("touched")
                self._records[name] = record
        for name in self._records.keys() - rows.keys():
            del self._records[name]
            rows[name] = {"how": "deleted"}
        return rows


def _bound(
    names: dict[str, Any], keys: list[Any], tracked: list[str], which: list[bool], shells: list[str]
) -> Binding:
    """Raises KeyError, RuntimeError: a name is gone meanwhile, or has come."""
    values = tuple(compress(names.values(), which))
    if len(values) != len(tracked) or len(names) != len(keys):
        raise RuntimeError("the namespace changed while it was looked at")
    kinds = idents(tuple(map(type, values)))
    shown = idents(tuple(map(names.__getitem__, shells)))
    return Binding(keys, tracked, which, idents(values), kinds, shells, shown)


def _moved(now: Binding, old: Binding) -> set[str]:
    found: set[str] = set()
    for words, before in ((now.idents, old.idents), (now.kinds, old.kinds)):
        if words != before:
            found |= {now.tracked[at] for at in differing(words, before)}
    return found


def _both(before: Touch, after: Touch) -> Touch:
    """What either says. What is surely bound only the second knows, which saw all of the cell."""
    return Touch(
        before.reads | after.reads,
        before.uses | after.uses,
        before.binds | after.binds,
        after.binds_surely,
        before.deletes | after.deletes,
        before.stores_into | after.stores_into,
        before.builtins | after.builtins,
        tuple(sorted({*before.dynamic, *after.dynamic})),
    )


def _how(old: Record | None, new: Record, touch: Touch, name: str, *, ok: bool, moved: bool) -> str | None:
    """What happened to a name between two looks at it, or None."""
    if old is None:
        return "bound"
    if ok and name in touch.binds_surely:
        return "rebound"
    before, after = old.print.digest, new.print.digest
    if moved:
        return "rebound"
    if before is None or after is None:
        return "touched"
    if before == after:
        return None
    return "rebound" if name in touch.binds else "mutated"
