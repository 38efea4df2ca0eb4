"""The names' components as they stand, kept up to date by walking only those that were touched.

A component that escaped may be changed, and functions in it called, by code that names none of it: its
names, and those that the functions touch, are `restless`. Functions that no name leads to are
found by what they hold: each has a reference to the namespace, and the count of these is known.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType, TracebackType
from typing import Any

from kernel_runtime.kernel.probe import layout as lay
from kernel_runtime.kernel.probe.digest import fingerprint
from kernel_runtime.kernel.probe.encoder import ATOMS
from kernel_runtime.kernel.probe.identity import ident
from kernel_runtime.kernel.probe.instructions import NOTHING
from kernel_runtime.kernel.probe.records import MISSING
from kernel_runtime.kernel.probe.sharing import OWN_REFERENCES, Component, Walk
from kernel_runtime.kernel.probe.walk import Walk as CodeWalk

_ROUNDS = 5
_LEVELS = 6
_MOST = 5_000
_CONTAINERS = frozenset(map(ident, (list, tuple, dict, set, frozenset)))
_OPTIMIZED = 0x1  # co_flags of functions; the code of a cell or module is nobody's to call


class Groups:
    """Components of the names of one namespace."""

    def __init__(self, namespace: dict[str, Any], shown: Callable[[], list[dict[str, Any]]] = list) -> None:
        """`shown`: gives dicts whose references are not used to change anything."""
        self._shown = shown
        self._names = namespace
        self._of: dict[str, Component] = {}
        self._owner: dict[int, Component] = {}
        self._holders: dict[int, set[Component]] = {}
        """id of a function or class made in a cell → the components that reach it"""
        self._digests: dict[int, str | None] = {}
        """of those that several components reach"""
        self._notable: set[Component] = set()
        """components of several names, incomplete ones, and those that may change by themselves"""
        self._held: dict[int, set[Component]] = {}
        """functions that components reach other than through code"""
        self._functions: dict[int, int] = {}
        """id of a function whose globals are the namespace → how many components reach it"""
        self._restless: set[str] | None = None
        self._told: tuple[list[list[str]], list[str]] | None = None
        """what `restless` and `report` say, until a component changes"""
        self._explained: int | None = None
        """references to the namespace that are not such functions'"""
        self._hidden: frozenset[str] | None = frozenset()
        """names that functions which no name leads to may touch; None: any"""

    def around(self, names: Iterable[str]) -> set[str]:
        """The names and all that share objects with them."""
        found = set(names)
        for name in list(found):
            component = self._of.get(name)
            if component is not None and len(component.names) > 1:
                found |= component.names
        return found

    def restless(self) -> set[str]:
        """Names that code may change without naming them."""
        if self._restless is None:
            found = set(self._hidden or ())
            for component in self._notable:
                if component.called is None:
                    return set(self._names)
                if component.escaped:
                    found |= component.names | component.called
            self._restless = self.around(found)
        return set(self._names) if self._hidden is None else self._restless

    def follow(self, names: set[str]) -> set[str]:
        """Walk these names and their components anew.

        Returns other names to look at: they share objects that are reached through code or since now,
        or code with these that changed.
        """
        pending = self.around(names)
        if not any(name in self._of or self._is_walked(name) for name in pending):
            return pending - names
        walk, components = self._walk(pending)
        for _ in range(_ROUNDS):
            more = self._met(components, pending)
            if not more:
                break
            pending |= self.around(more)
            del walk  # it holds what it met, and the next one counts references
            components.clear()
            walk, components = self._walk(pending)
        walked = {name for component in components for name in component.names}
        if all(map(self._is_known, components)) and not any(n in self._of for n in pending - walked):
            del walk
            self._look_for_hidden()
            return pending - names
        self._told = self._restless = None
        left = self._drop(pending)
        for component in components:
            self._add(component)
        linked = self._linked(walk, components, left)
        del walk
        self._look_for_hidden()
        return (linked | pending) - names

    def report(self) -> tuple[list[list[str]], list[str]]:
        """Groups of names that share objects, and names that could not be followed to the end."""
        if self._told is None:
            self._told = self._report()
        return self._told

    def _report(self) -> tuple[list[list[str]], list[str]]:
        merged: dict[int, set[str]] = {}
        unfollowed: set[str] = set()
        for component in self._notable:
            if len(component.names) > 1:
                merged[ident(component)] = set(component.names)
            if not component.complete:
                unfollowed |= component.names
        for holders in self._held.values():
            if len(holders) > 1:
                joined: set[str] = set()
                for component in holders:
                    joined |= merged.get(ident(component), component.names)
                merged.update({ident(component): joined for component in holders})
        distinct = {ident(group): sorted(group) for group in merged.values()}
        return sorted(distinct.values()), sorted(unfollowed)

    # -- walking

    def _walk(self, pending: Iterable[str]) -> tuple[Walk, list[Component]]:
        names = self._names
        walk = Walk(names, self._passive)
        for name in sorted(pending):
            if self._is_walked(name):
                walk.follow(name, names[name])
        return walk, walk.components()

    def _is_walked(self, name: str) -> bool:
        value = self._names.get(name, MISSING)
        return value is not MISSING and ident(type(value)) not in ATOMS

    def _passive(self) -> list[int]:
        """What IPython keeps of what cells showed, and the frames of the last error."""
        found = [key for table in self._shown() for key in map(ident, table.values())]
        found += _held_by_error(getattr(sys, "last_value", None))
        return found

    def _met(self, components: list[Component], pending: set[str]) -> set[str]:
        """Names of components that were not walked, and that reach what was."""
        more: set[str] = set()
        owner = self._owner
        for component in components:
            for key in owner.keys() & component.ids:
                more |= owner[key].names
        return more - pending

    def _is_known(self, found: Component) -> bool:
        """Whether this is a name that shares nothing, leads to no code, and is as it was."""
        if len(found.names) > 1 or found.codes or found.escaped:
            return False
        [name] = found.names
        known = self._of.get(name)
        return (
            known is not None
            and known.names == found.names
            and known.ids == found.ids
            and not known.codes
            and not known.escaped
            and known.complete == found.complete
        )

    def _drop(self, pending: set[str]) -> set[int]:
        """Forget the components of these names; the code that others reach, too."""
        left: set[int] = set()
        for component in {self._of.pop(name) for name in list(pending) if name in self._of}:
            self._notable.discard(component)
            for key in component.ids:
                self._owner.pop(key, None)
            for key in component.codes:
                holders = self._holders.get(key)
                if holders is not None:
                    holders.discard(component)
                    if holders:
                        left.add(key)
                    else:
                        del self._holders[key]
            for key in component.held:
                self._held[key].discard(component)
                if not self._held[key]:
                    del self._held[key]
            for key in component.function_ids:
                if self._functions[key] == 1:
                    del self._functions[key]
                else:
                    self._functions[key] -= 1
        return left

    def _add(self, component: Component) -> None:
        for name in component.names:
            self._of[name] = component
        self._owner.update(dict.fromkeys(component.ids, component))
        for key in component.codes:
            self._holders.setdefault(key, set()).add(component)
        for key in component.function_ids:
            self._functions[key] = self._functions.get(key, 0) + 1
        for key in component.held:
            self._held.setdefault(key, set()).add(component)
        if component.escaped:
            component.called = self._touched_by(component.functions)
        component.functions.clear()
        if len(component.names) > 1 or not component.complete or component.escaped:
            self._notable.add(component)

    def _linked(self, walk: Walk, components: list[Component], left: set[int]) -> set[str]:
        """Names of other components that reach a function or class of these which changed."""
        found: set[str] = set()
        walked = set(components)
        seen: set[int] = set()
        for component in components:
            for key in component.codes - seen:
                seen.add(key)
                holders = self._holders[key]
                if len(holders) < 2:
                    continue
                digest = fingerprint(walk.code_node(key), home=self._names).digest
                known = self._digests.get(key, digest)
                self._digests[key] = digest
                if digest is None or digest != known:
                    for other in holders - walked:
                        found |= other.names
        self._digests = {key: digest for key, digest in self._digests.items() if key in self._holders}
        for key in left - seen:
            for other in self._holders.get(key, ()):
                found |= other.names
        return found

    # -- code that others may run

    def _touched_by(self, functions: Iterable[FunctionType]) -> frozenset[str] | None:
        """Names that these functions, and what they lead to, may touch; None: any."""
        functions = list(functions)
        if not functions:
            return frozenset()
        walk = CodeWalk(self._names)
        try:
            for function in functions:
                walk.push(function, NOTHING, escapes=True)
            walk.drain()
        except (RuntimeError, RecursionError):
            return None
        if walk.dynamic:
            return None
        return frozenset(walk.uses | walk.binds | walk.deletes | walk.stores_into)

    def _look_for_hidden(self) -> None:
        """Functions whose globals are the namespace, and that no name leads to."""
        unknown = sys.getrefcount(self._names) - len(self._functions)
        if unknown == self._explained:
            return
        known = self._functions
        hidden = [
            item
            for item in gc.get_referrers(self._names)
            if type(item) is FunctionType and item.__globals__ is self._names and ident(item) not in known
        ]
        passive = self._passive()
        references = [count - OWN_REFERENCES for count in map(sys.getrefcount, hidden)]
        used = [
            item
            for item, count in zip(hidden, references, strict=True)
            if count > passive.count(ident(item)) and item.__code__.co_flags & _OPTIMIZED
        ]
        self._hidden = self._touched_by(used)
        self._restless = None
        self._explained = unknown


def _held_by_error(error: object) -> list[int]:
    """Ids, as often as it is held, of what an error's frames hold, and of what only these lead to."""
    frames = {ident(trace.tb_frame): trace.tb_frame for trace in _traces(error)}
    if not frames:
        return []
    walk = Walk({})
    counts: dict[int, int] = {}
    met: list[Any] = []
    level = [item for frame in frames.values() for item in gc.get_referents(frame)]
    for _ in range(_LEVELS):
        for item in level:
            key = ident(item)
            if key not in counts:
                counts[key] = 0
                met.append(item)
            counts[key] += 1
        level.clear()  # it counts as a reference, too
        item = None
        # what has no other references is not anybody's; what has is looked at again in the next round
        held = list(map(sys.getrefcount, met))
        mine = [h - OWN_REFERENCES == counts[ident(item)] for h, item in zip(held, met, strict=True)]
        level = [inner for item, own in zip(met, mine, strict=True) if own for inner in _inside(item, walk)]
        met = [item for item, own in zip(met, mine, strict=True) if not own]
        item = None
        if not level or len(counts) + len(level) > _MOST:
            break
    return [key for key, count in counts.items() for _ in range(count)]


def _inside(item: Any, walk: Walk) -> list[Any]:
    kind = ident(type(item))
    if kind in ATOMS or (kind in _CONTAINERS and len(item) > _MOST):
        return []
    return walk.references(item)


def _traces(error: object) -> Iterator[TracebackType]:
    """The tracebacks of an error, of what it was raised from and of what was handled meanwhile."""
    read = vars(BaseException)
    errors, seen = [error], set[int]()
    while errors:
        error = errors.pop()
        if ident(error) in seen or not lay.is_a(type(error), BaseException):
            continue
        seen.add(ident(error))
        trace = read["__traceback__"].__get__(error)
        while trace is not None:
            yield trace
            trace = trace.tb_next
        errors += (read["__cause__"].__get__(error), read["__context__"].__get__(error))
