"""A name of the heap, as the entries tell of it: its row, the token of its content, its state.

A **token** stands for a name's content: its exact digest; `?SEQ` where its content cannot be compared,
SEQ being the entry that last may have changed it; empty where there is no such name.

Pure and total: whatever a kernel said of a name makes a row. Not promised: that equal tokens mean one
object. Two objects of equal content have one token, which is what a reader of the name can tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from kernel_runtime.model.execution import Heap, Name

ABSENT = ""
"""token of a name that is not there"""

SAME, UNSURE, CHANGED = 0, 1, 2

BINDS = frozenset({"bound", "rebound", "deleted"})
"""what an execution can do to a name itself; all else is done to its object"""


READ = "read"
"""what a name's change is called when it did not change: its digest was not known, and is now"""


def token_of(digest: str | None, seq: int) -> str:
    return f"?{seq}" if digest is None else digest


def compare(then: str, now: str) -> int:
    """Whether a name's content is another one than it was: SAME, CHANGED or UNSURE."""
    if then == now:
        return SAME
    if ABSENT in (then, now):
        return CHANGED  # whether a name is there is known
    return UNSURE if _vague(then) or _vague(now) else CHANGED


def _vague(token: str) -> bool:
    return token.startswith("?")


def affected(before: str, after: str) -> tuple[str, ...] | None:
    """Tokens that compare otherwise with `after` than with `before`; None: any may."""
    if before == after:
        return ()
    alike = (before == ABSENT) == (after == ABSENT) and _vague(before) == _vague(after)
    return (before, after) if alike else None


def token_in(row: Name | None, incarnation: int) -> str:
    """The token of a name as that incarnation's heap has it."""
    return row.token if row is not None and row.incarnation == incarnation else ABSENT


def step_name(
    row: Name | None,
    name: str,
    change: Mapping[str, Any],
    *,
    seq: int,
    incarnation: int,
    execution_id: str | None,
    cell_id: str | None,
) -> Name:
    """The row after a change that an execution made or, with None, that nobody is known to have made."""
    if row is None or row.incarnation != incarnation:
        row = Name(name=name, incarnation=incarnation, present=False)
    how = how_of(change)
    digest = change.get("digest")
    if not isinstance(digest, str) or not digest or _vague(digest):
        digest = None
    looked = replace(
        row,
        type=_of(str, change.get("type"), row.type),
        bytes=_of(int, change.get("bytes"), None),
        digest=digest,
        why=None if digest is not None else _of(str, change.get("why"), None),
    )
    if how == READ:
        # the token stays: it stands for the same content as before
        known = row.present
        token, since = (row.token, row.changed_seq) if known else (token_of(digest, seq), seq)
        return replace(looked, present=True, token=token, changed_seq=since)
    if how == "deleted":
        moved = replace(row, present=False, digest=None, why=None, token=ABSENT, bytes=None)
    else:
        moved = replace(looked, present=True, token=token_of(digest, seq))
    moved = replace(moved, changed_seq=seq, changed_by=execution_id)
    vague = how == "touched" and digest is None
    # then nobody can tell whether it changed, and what was so of it before may be so still
    if execution_id is None:
        if vague:
            return replace(moved, shaky=True)
        return replace(moved, drifted=True, unbound=row.unbound or how in BINDS)
    if how in BINDS:
        return replace(
            moved, bound_by=execution_id, bound_in=cell_id, drifted=False, unbound=False, shaky=False
        )
    return replace(moved, drifted=row.drifted and vague, shaky=row.shaky and vague)


def how_of(change: Mapping[str, Any]) -> str:
    """What is said of a name; empty where nothing sensible is."""
    how = change.get("how")
    return how if isinstance(how, str) else ""


def shaken(row: Name, seq: int) -> Name:
    """The row of a name whose content nobody can compare, while code runs outside any execution."""
    return replace(row, token=token_of(None, seq), changed_seq=seq, changed_by=None, shaky=True)


def _of(kind: type, value: Any, otherwise: Any) -> Any:
    return value if type(value) is kind else otherwise


def adrift(row: Name) -> bool:
    """Whether something outside any execution changed it, or may have, since `bound_by` bound it."""
    return row.drifted or row.unbound or row.shaky


def state_of(row: Name) -> str | None:
    """`live`, `drifted` or `unreadable`: its truth while its incarnation lives; None when it is not there."""
    if not row.present:
        return None
    if row.drifted:
        return "drifted"
    return "unreadable" if row.digest is None else "live"


def sharing(rows: Iterable[Name], heap: Heap | None) -> list[Name]:
    """The rows with what their names share, as the last observation of `heap`'s incarnation said."""
    if heap is None:
        return list(rows)
    groups: dict[str, set[str]] = {}
    for group in heap.groups:
        for name in group:
            groups.setdefault(name, set()).update(group)
    unfollowed = set(heap.unfollowed)
    found: list[Name] = []
    for row in rows:
        if row.incarnation == heap.incarnation and row.present:
            others = sorted(groups.get(row.name, set()) - {row.name})
            # what is known to be shared is told also where more may be
            shares = None if row.name in unfollowed and not others else others
            found.append(replace(row, shares_with=shares))
        else:
            found.append(row)
    return found
