"""What the probe knows of one name: enough to tell later whether it changed, without its object."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from kernel_runtime.kernel.probe.digest import Print
from kernel_runtime.kernel.probe.encoder import ATOMS
from kernel_runtime.kernel.probe.identity import ident

SMALL = 1 << 14
"""bytes of content up to which a value is looked at again after every execution, as time allows"""
_HELD_MAX = 256
_NOT_HELD = object()
MISSING = object()
_OUTPUT = re.compile(r"_(?:\d*|i\d*|_{0,2}|i{1,3}|oh|ih|dh)")
_LEFT = frozenset(("In", "Out", "_exit_code", "__warningregistry__"))
"""also how the last command ended, and which warnings were shown"""
_OURS = frozenset(
    (
        "In",
        "Out",
        "exit",
        "quit",
        "get_ipython",
        "__name__",
        "__doc__",
        "__package__",
        "__loader__",
        "__spec__",
    )
    + ("__builtins__", "__builtin__", "__file__", "__session__", "__annotations__")
)


def is_output(name: str) -> bool:
    """Names under which IPython and Python keep what cells showed: they change with any cell."""
    return _OUTPUT.fullmatch(name) is not None or name in _LEFT


def is_ours(name: str) -> bool:
    """Names that the shell binds, not a cell."""
    return name in _OURS or is_output(name)


class Binding(NamedTuple):
    """What the names of the namespace were bound to: ids of the values and of their types."""

    keys: list[Any]
    """all, in the namespace's order"""
    tracked: list[str]
    which: list[bool]
    """of the keys, which are tracked"""
    idents: bytes
    kinds: bytes
    """of the tracked: see `idents`"""
    shells: list[str]
    """names that the shell hides while they hold what it put there"""
    shell_idents: bytes

    def each(self) -> Iterator[tuple[int, int]]:
        """The words of each tracked name: its value's and its type's."""
        return zip(memoryview(self.idents).cast("P"), memoryview(self.kinds).cast("P"), strict=True)


class Record:
    """One name, as it was when it was last looked at."""

    __slots__ = ("cost", "held", "ident", "kind", "print", "unread")

    def __init__(self, value: object, found: Print, cost: int, *, unread: bool = False) -> None:
        self.ident = ident(value)
        self.kind = ident(type(value))
        self.print = found
        self.cost = cost
        """nanoseconds that its digest took"""
        self.unread = unread
        """it may have an exact digest, but there was no room to compute it"""
        # A number or a short text is kept itself: while it is, nothing else can have its id.
        self.held: object = _NOT_HELD
        if self.kind in ATOMS and found.bytes <= _HELD_MAX:
            self.held = value

    def is_same_object(self, value: object) -> bool:
        """Whether the name seems to be bound to the same object: for a held one it is sure."""
        if self.held is not _NOT_HELD:
            return value is self.held
        return ident(value) == self.ident and ident(type(value)) == self.kind

    @property
    def is_small(self) -> bool:
        return self.held is _NOT_HELD and self.print.digest is not None and self.print.bytes <= SMALL

    def row(self, how: str) -> dict[str, Any]:
        """As facts write it."""
        found = self.print
        return {
            "how": how,
            "type": found.type,
            "bytes": found.bytes,
            "digest": found.digest,
            "why": found.why,
        }
