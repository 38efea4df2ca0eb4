"""`krt claims`: check every claim that stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kernel_runtime.cli import frame, report

if TYPE_CHECKING:
    from kernel_runtime.client.claims import Claim

_HIDDEN = ("reason", "path", "entry")


@frame.command("claims", example="krt claims alice && echo every claim holds")
@frame.session_argument
def command(*, name: str, as_json: bool, principal: str | None) -> int:
    """Check every claim that stands, each with its evidence.

    Exits 8 if any is not true.
    """
    from kernel_runtime.client import blocking

    with blocking.observe(name, principal=principal) as session:
        found = session.claims()
    if as_json:
        report.emit({"session": name, "claims": [claim.json() for claim in found]})
    elif found:
        show(found)
    else:
        report.note(f"[krt: session {name} has no claims; `krt claim {name} TEXT --probe PROBE` makes one]")
    return 0 if all(claim.holds for claim in found) else frame.NOT_ALL_LIVE


def show(claims: Sequence[Claim]) -> None:
    """A table of claims, those that do not hold first."""
    order = ("false", "unknown", "true")
    rows = [
        (claim.truth, claim.claim_id, claim.text, claim.probe, evidence_line(claim.evidence))
        for claim in sorted(claims, key=lambda claim: order.index(claim.truth))
    ]
    report.table(("truth", "claim", "text", "probe", "evidence"), rows, flexible="evidence")


def evidence_line(evidence: dict[str, Any]) -> str:
    """Evidence on one line: the reason, and then what was seen."""
    parts = [str(evidence["reason"])] if evidence.get("reason") else []
    for socket in evidence.get("listening") or []:
        who = f"pid {socket['pid']} {' '.join(socket['command'])}" if "pid" in socket else socket.get("owner")
        whose = ", of this session" if socket.get("of_session") else ""
        parts.append(f"{socket['address']}:{socket['port']} is {who}{whose}")
    if evidence.get("listening") == []:
        parts.append("nothing listens")
    last = evidence.get("last")
    if isinstance(last, dict):
        parts.append(f"{last['truth']} {last['seconds_ago']:g} s ago")
    parts += [
        f"{key} {' '.join(map(str, value)) if isinstance(value, list) else value}"
        for key, value in evidence.items()
        if key not in (*_HIDDEN, "listening", "last")
    ]
    return "; ".join(parts)
