"""`krt verify`: walk a journal's chain and compute its projections anew; or check an evidence bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kernel_runtime.cli import frame, report
from kernel_runtime.client.session_files import SessionFile
from kernel_runtime.errors import NotFound, UsageError


@frame.command(
    "verify",
    example="krt verify alice\n  krt verify alice.zip --anchor anchors.jsonl --allowed-signers signers",
)
@frame.session_argument
@click.option(
    "--anchor",
    "anchor",
    metavar="F",
    help="Hold it against the anchors in a file, a git repository's notes, or a session that witnesses.",
)
@click.option(
    "--allowed-signers", "signers", metavar="F", help="Of ssh-keygen(1); one of them must have signed it."
)
@click.option("--notebook", is_flag=True, help="Render a large bundle's notebook anew too, and compare.")
def command(
    *,
    name: str,
    anchor: str | None,
    signers: str | None,
    notebook: bool,
    as_json: bool,
    principal: str | None,
) -> int:
    """Check a session's chain and projections, or a bundle; exits 9 if anything is not as it was written.

    NAME is a session, else a bundle's file.
    """
    del principal
    from kernel_runtime import places
    from kernel_runtime.client import session_files

    anchors = None if anchor is None else _anchors(anchor)
    allowed = None if signers is None else _signers(signers)
    is_name = places.NAME.fullmatch(name) is not None
    if not (is_name and session_files.exists(name)) and (not is_name or Path(name).is_file()):
        return _bundle(name, anchors, allowed, notebook=notebook, as_json=as_json)
    session = session_files.load(name)
    document = _journal(session, anchors, allowed)
    if as_json:
        report.emit(document)
    elif document["ok"]:
        head = f"{document['head']} {document['head_hash'][:16]}"
        print(f"session {name}: {document['entries']:,} entries, chain whole, projections match, head {head}")
        _tell(document)
    else:
        unread = document["chain"] == "whole" and all(p["where"] == "archive" for p in document["problems"])
        what = (
            "its chain is whole, and not all of it could be checked" if unread else "is not what was written"
        )
        print(f"session {name}: the journal: {what} ({document['entries']:,} entries read)")
        _tell(document)
        print(f"  next: keep a copy of {session.directory}; what is listed is what cannot be relied on")
    return 0 if document["ok"] else frame.INTEGRITY


def _journal(session: SessionFile, anchors: str | None, allowed: str | None) -> dict[str, Any]:
    import msgspec

    from kernel_runtime.evidence.check import check_journal
    from kernel_runtime.journal import verify

    document: dict[str, Any] = {
        "ok": True,
        "entries": 0,
        "head": 0,
        "head_hash": "",
        "projections": "match",
        "problems": [],
        "chain": "whole",
    }
    kept: dict[str, Any] = {"problems": [], "notes": [], "signatures": []}
    if session.journal.exists():
        document = msgspec.to_builtins(verify(session.journal))
        if document["chain"] == "whole":  # else no hash of it says anything
            kept = check_journal(session.journal, anchors, allowed)
    elif anchors is not None or allowed is not None:
        kept["problems"] = [{"where": "file", "what": "there is no journal", "seq": None}]
    problems = [*document["problems"], *kept["problems"]]
    found = document.get("found", 0) + len(kept["problems"])
    return {**document, **kept, "problems": problems, "found": found, "ok": not problems}


def _bundle(name: str, anchors: str | None, allowed: str | None, *, notebook: bool, as_json: bool) -> int:
    from kernel_runtime.evidence import standalone
    from kernel_runtime.evidence.check import check_bundle

    path = Path(name).expanduser()
    try:
        document = check_bundle(path, anchors, allowed, notebook=notebook)
    except FileNotFoundError:
        raise NotFound(
            f"there is no session and no bundle {name}",
            hint="`krt ls` shows the sessions; `krt bundle NAME FILE` writes a bundle",
        ) from None
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}", hint="name a bundle's file") from error
    if as_json:
        report.emit({"file": str(path), **document})
    else:
        print("\n".join(standalone.in_words(document)))
        print(f"notebook: {document['notebook']}")
    return 0 if document["ok"] else frame.INTEGRITY


def _tell(document: dict[str, Any]) -> None:
    for one in document.get("redactions", []):
        what = f"{one['entries']} entries redacted by {one['principal']} ({one['how']}): {one['reason']}"
        print(report.clean(f"  entry {one['seq']}: {what}"))
    for one in document.get("archive", []):
        print(
            report.clean(f"  entries {one['first']} to {one['last']} sealed in {one['file']}: {one['state']}")
        )
    for one in document.get("signatures", []):
        who = one["signer"] or "somebody"
        print(report.clean(f"  up to entry {one['seq']} signed by {who}, key {one['key']}"))
    for note in document.get("notes", []):
        print(report.clean(f"  {note}"))
    for problem in document["problems"]:
        print("  " + report.clean(_line(problem)))


def _line(problem: dict[str, object]) -> str:
    where = f"{problem['where']}" + (f" {problem['seq']}" if problem.get("seq") is not None else "")
    return f"{where}: {problem['what']}"


def _anchors(source: str) -> str:
    from kernel_runtime import places
    from kernel_runtime.client import session_files
    from kernel_runtime.evidence import anchors

    is_name = places.NAME.fullmatch(source) is not None
    if is_name and not Path(source).exists() and session_files.exists(source):
        return anchors.witnessed(session_files.load(source).journal)
    return anchors.read(source)


def _signers(source: str) -> str:
    try:
        return Path(source).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"the signers in {source} cannot be read: {error}", hint="a file as ssh-keygen(1) has it"
        ) from error
