"""The truth of every name, and of names now: the entries' rows held against what the kernel shows.

Pure and total: a snapshot that is not what it should be is no evidence. Not promised: that a name is
still so a moment later; `as_of` in the evidence names the last entry that told of names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from kernel_runtime.core.names import ABSENT, sharing, state_of
from kernel_runtime.model.execution import Heap, Name
from kernel_runtime.model.truth import NAME_TRUTHS, STATES

NameCount = tuple[int, str, int]
"""`(incarnation, state, n)`: n names of that incarnation are `live`, `drifted` or `unreadable`"""

NOT_READ = "no time was left to read it"
"""a snapshot's `why` for a name that it did not look at, which is no sign of a change"""

GONE = ("dead", "stopped")
"""states in which no heap is there"""

_RANK = {truth: rank for rank, truth in enumerate(NAME_TRUTHS)}


class NamesNow(Struct, frozen=True, kw_only=True):
    """Names as they are now: what the entries say, and what a snapshot shows that they do not."""

    rows: dict[str, Name]
    """deleted ones too"""
    shown: dict[str, dict[str, Any]]
    """evidence per name where the snapshot shows something else than the entries"""
    heap: Heap | None
    confirmed: frozenset[str] = frozenset()
    """names whose content the snapshot shows to be what the entries say"""


def names_now(
    names: Iterable[Name], heap: Heap | None, incarnation: int, *, snapshot: Any, busy: str | None
) -> NamesNow:
    """The rows with the snapshot laid over them.

    Args:
        names: every row, those of deleted names too.
        heap: of this incarnation.
        incarnation: the latest; names of others are left alone.
        snapshot: `{"names": {name: {"type", "bytes", "digest", "why"}}}` as the kernel answered, or None.
        busy: the execution that runs, or that has not been told of yet.
    """
    rows = {row.name: row for row in names}
    there = snapshot.get("names") if isinstance(snapshot, Mapping) else None
    if not isinstance(there, Mapping):
        return NamesNow(rows=rows, shown={}, heap=heap)
    shown: dict[str, dict[str, Any]] = {}
    confirmed: set[str] = set()
    for name, row in list(rows.items()):
        if row.incarnation == incarnation and row.present:
            says = there.get(name)
            rows[name], told = _held_against(row, says, busy)
            if told:
                shown[name] = told
            elif row.digest is not None and isinstance(says, Mapping) and says.get("digest") == row.digest:
                confirmed.add(name)
    for name, says in there.items():
        known = rows.get(name)
        if not isinstance(name, str) or name in shown:
            continue
        if known is None or known.incarnation != incarnation or not known.present:
            rows[name] = _new(name, incarnation, says)
            shown[name] = {"then": None, "now": rows[name].digest or "there"}
    if busy is not None:
        shown = {name: {**told, "while": busy} for name, told in shown.items()}
    return NamesNow(rows=rows, shown=shown, heap=heap, confirmed=frozenset(confirmed))


def _held_against(row: Name, says: Any, busy: str | None) -> tuple[Name, dict[str, Any]]:
    """The row as the snapshot shows it, and what it shows otherwise."""
    if not isinstance(says, Mapping):
        gone = replace(row, present=False, digest=None, token=ABSENT)
        return _drifted(gone), {"then": row.token, "now": None}
    digest = _text(says.get("digest"))
    if digest is not None:
        if row.digest is None or digest == row.digest:
            return row, {}  # without a digest then, there is nothing to compare
        now = replace(row, digest=digest, token=digest, why=None, type=_text(says.get("type")) or row.type)
        return _drifted(now), {"then": row.digest, "now": digest}
    kind = _text(says.get("type"))
    if kind is not None and row.type is not None and kind != row.type:
        now = replace(row, digest=None, token="?", why=_text(says.get("why")), type=kind)  # noqa: S106 - no secret
        return _drifted(now), {"then": row.type, "now": kind}
    if row.digest is None or busy is not None or says.get("why") == NOT_READ:
        return row, {}  # while something runs, what could not be read is no sign of a change either
    now = replace(row, digest=None, token="?", why=_text(says.get("why")), shaky=True, changed_by=None)  # noqa: S106
    return replace(now, changed_seq=0), {"then": row.digest, "now": None}


def _drifted(row: Name) -> Name:
    return replace(row, drifted=True, changed_by=None, changed_seq=0)


def _new(name: str, incarnation: int, says: Any) -> Name:
    says = says if isinstance(says, Mapping) else {}
    digest = _text(says.get("digest"))
    size = says.get("bytes")
    return Name(
        name=name,
        incarnation=incarnation,
        present=True,
        type=_text(says.get("type")),
        bytes=size if type(size) is int else None,
        digest=digest,
        why=_text(says.get("why")),
        token=digest or "?",
        drifted=True,
        unbound=True,
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def name_truths(now: NamesNow, *, incarnation: int, state: str) -> list[dict[str, Any]]:
    """The rows of `Report.names`, worst first, then by name."""
    found = [
        _told(row, now, incarnation, state)
        for row in sharing(now.rows.values(), now.heap)
        if row.present or (row.name in now.shown and row.incarnation == incarnation)
    ]
    return sorted(found, key=lambda told: (_RANK[told["truth"]], told["name"]))


def _told(row: Name, now: NamesNow, incarnation: int, state: str) -> dict[str, Any]:
    shown = now.shown.get(row.name)
    lost = row.incarnation < incarnation or state in GONE
    truth = "lost" if lost else (state_of(row) or "drifted")
    evidence: dict[str, Any] = {"seq": row.changed_seq or None}
    if row.digest is not None:
        evidence["digest"] = row.digest
    elif row.why is not None:
        evidence["why"] = row.why
    if row.changed_by != row.bound_by:
        evidence["changed_by"] = row.changed_by
    if lost:
        evidence |= {"was_in": row.incarnation, "current": incarnation}
    elif state not in STATES or row.incarnation > incarnation:
        truth, evidence["state"] = "unreadable", state
    elif shown is not None and "while" in shown and row.present:
        # an execution runs, and this is what it has made of the name so far, as far as anybody can tell
        truth = "live" if row.digest is not None else "unreadable"
    if now.heap is not None and not lost:
        evidence["as_of"] = now.heap.seq
    if shown is not None:
        evidence["shown"] = shown
    elif row.name in now.confirmed and not lost:
        evidence["shown"] = "as it was"
    if row.shares_with is None:
        evidence["sharing"] = "not all it refers to could be followed"
    evidence["checkpoint"] = None
    return {
        "name": row.name,
        "truth": truth,
        "type": row.type,
        "bytes": row.bytes,
        "bound_by": None if row.unbound else row.bound_by,
        "shares_with": [] if lost else row.shares_with or [],
        "would_survive": False,
        "evidence": evidence,
    }


def count_names(rows: Iterable[NameCount], *, incarnation: int, state: str) -> dict[str, int]:
    """`truth → names`, as `name_truths` tells them without a snapshot."""
    counts: Counter[str] = Counter()
    for row_incarnation, row_state, n in rows:
        if row_incarnation < incarnation or state in GONE:
            counts["lost"] += n
        elif state not in STATES or row_incarnation > incarnation or row_state not in NAME_TRUTHS:
            counts["unreadable"] += n
        else:
            counts[row_state] += n
    return all_counts(counts)


def all_counts(counts: Mapping[str, int]) -> dict[str, int]:
    return {truth: counts.get(truth, 0) for truth in NAME_TRUTHS}
