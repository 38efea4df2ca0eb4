"""What hangs on what: which steps of a replay read, through others or not, what did not come as recorded.

Three things are not as they were recorded: what `--set` set, what a step that was not run would have
bound, and what came out otherwise. From there it spreads by the names: a step that reads one of these is
downstream, and so are the names it binds, until a step binds them to the recorded content again.

By names only: what goes through a file, a clock, or an object shared under two names is not followed, so
that a step which is not downstream may differ for a reason that is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from kernel_runtime.replay.plan import Plan, Ran, Step


class Cause(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a step may come out otherwise."""

    names: list[str]
    """names it read whose content is not the recorded one, or may not be"""
    steps: list[int]
    """where that began: numbers of steps that were set, not run, or came out otherwise"""
    sure: bool = True
    """False: it reads more than is known (`dynamic`), and may have read these"""


def downstream(plan: Plan, ran: Iterable[Ran]) -> dict[int, Cause]:
    """The steps that read what is not as recorded, by number."""
    by_number = {one.number: one for one in ran}
    found: dict[int, Cause] = {}
    origins: dict[str, frozenset[int]] = {}
    incarnation: int | None = None
    for step in plan.steps:
        if step.incarnation != incarnation:
            origins, incarnation = {}, step.incarnation
        one = by_number.get(step.number)
        replayed = one.step if one is not None else None
        if step.injected or replayed is None:
            for name in step.names:
                origins[name] = frozenset({step.number})
            continue
        cause = _cause(step, replayed, origins)
        if cause is not None:
            found[step.number] = cause
        from_here = frozenset(cause.steps) if cause is not None else frozenset({step.number})
        for name in {*step.names, *replayed.names}:
            was, now = step.names.get(name), replayed.names.get(name)
            if step.observed and _equal(was, now):
                if _binds(was):
                    origins.pop(name, None)
            elif cause is not None or (step.observed and replayed.observed and not _alike(was, now)):
                origins[name] = from_here
            elif _binds(now):
                origins.pop(name, None)
    return found


def _cause(step: Step, replayed: Step, origins: dict[str, frozenset[int]]) -> Cause | None:
    reads = {*step.reads, *replayed.reads}
    through = sorted(reads & origins.keys())
    sure = bool(through)
    if not through and origins and (step.dynamic or replayed.dynamic or not replayed.observed):
        through = sorted(origins)
    if not through:
        return None
    steps = sorted(frozenset().union(*(origins[name] for name in through)))
    return Cause(names=through, steps=steps, sure=sure)


def _equal(was: dict[str, Any] | None, now: dict[str, Any] | None) -> bool:
    """Whether both are known to be the same content."""
    if was is None or now is None:
        return was is now
    if was.get("how") == now.get("how") == "deleted":
        return True
    digest = was.get("digest")
    return digest is not None and digest == now.get("digest")


def _alike(was: dict[str, Any] | None, now: dict[str, Any] | None) -> bool:
    """Whether nothing says that they differ: neither has a digest, as both had none when recorded."""
    return was is not None and now is not None and was.get("digest") is None and now.get("digest") is None


def _binds(change: dict[str, Any] | None) -> bool:
    return change is not None and change.get("how") in ("bound", "rebound", "deleted")
