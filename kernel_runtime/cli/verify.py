"""`krt verify`: walk the journal's chain and compute its projections anew."""

from __future__ import annotations

from typing import Any

from kernel_runtime.cli import frame, report


@frame.command("verify", example="krt verify alice")
@frame.session_argument
def command(*, name: str, as_json: bool, principal: str | None) -> int:
    """Check the journal's hash chain and projections; exits 9 if anything is not as it was written."""
    del principal
    import msgspec

    from kernel_runtime.client import session_files
    from kernel_runtime.journal import verify

    session = session_files.load(name)
    document: dict[str, Any]
    if not session.journal.exists():
        document = {
            "ok": True,
            "entries": 0,
            "head": 0,
            "head_hash": "",
            "projections": "match",
            "problems": [],
        }
    else:
        document = msgspec.to_builtins(verify(session.journal))
    if as_json:
        report.emit(document)
    elif document["ok"]:
        head = f"{document['head']} {document['head_hash'][:16]}"
        print(f"session {name}: {document['entries']:,} entries, chain whole, projections match, head {head}")
    else:
        print(f"session {name}: the journal is not what was written ({document['entries']:,} entries read)")
        for problem in document["problems"]:
            print("  " + report.clean(_line(problem)))
        print(f"  next: keep a copy of {session.directory}; what is listed is what cannot be relied on")
    return 0 if document["ok"] else frame.INTEGRITY


def _line(problem: dict[str, object]) -> str:
    where = f"{problem['where']}" + (f" {problem['seq']}" if problem.get("seq") is not None else "")
    return f"{where}: {problem['what']}"
