"""`krt term`: a terminal that belongs to the session."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Any

import click

from kernel_runtime.cli import frame, report

if TYPE_CHECKING:
    from kernel_runtime.client.blocking import Session

_LINE = 200
"""bytes that a line is taken for, when the last N are asked for"""


@frame.command(
    "term",
    example="krt term alice                 # Ctrl-\\ d leaves it running\nkrt term alice p1 --screen",
)
@frame.session_argument
@click.argument("process_id", required=False, metavar="[ID]")
@click.option("--new", is_flag=True, help="A new terminal, though one is there.")
@click.option("--read-only", is_flag=True, help="Watch: keys are not handed on, the size stays.")
@click.option("--screen", is_flag=True, help="Print what is on its screen now, and that is all.")
@click.option("--tail", type=click.IntRange(min=1), metavar="N", help="Print the last N lines of its log.")
@click.option("--signal", "signum", metavar="SIG", help="Send it a signal: TERM, INT, KILL, …")
def command(
    *,
    name: str,
    process_id: str | None,
    new: bool,
    read_only: bool,
    screen: bool,
    tail: int | None,
    signum: str | None,
    as_json: bool,
    principal: str | None,
) -> int:
    r"""Open a terminal on a process of the session.

    The one called ID, else the latest that `krt term` made and that lives, else a new one with your shell.
    Ctrl-\\ then d detaches and leaves it running.
    """
    from kernel_runtime.client import blocking
    from kernel_runtime.errors import UsageError

    looks = sum((screen, tail is not None, signum is not None))
    if looks > 1 or (new and (process_id is not None or looks)):
        raise UsageError(
            f"session {name}: one of --new, --screen, --tail and --signal", hint="krt term --help"
        )
    number = _signal(name, signum) if signum is not None else None
    with blocking.observe(name, principal=principal) as session:
        if not looks and not as_json and not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise UsageError(
                f"session {name}: standard input and output are no terminal",
                hint=f"`krt term {name} ID --screen` prints what is on it, "
                f"`krt answer {name} TEXT --process ID` types",
            )
        chosen = process_id or (None if new else _latest(session))
        if looks and chosen is None:
            raise UsageError(f"session {name}: no terminal is open", hint=f"krt term {name} opens one")
        if chosen is not None and looks:
            return _look(session, chosen, screen=screen, tail=tail, signum=number, as_json=as_json)
        if chosen is None:
            chosen = _opened(session)
        if as_json:
            row = next(row for row in session.processes() if row["process_id"] == chosen)
            report.emit({"session": name, **row})
            return 0
    return _attach(session.session_id, name, chosen, read_only=read_only)


def _latest(session: Session) -> str | None:
    rows = [row for row in session.processes() if row["interactive"] and not row["ended"]]
    return str(rows[-1]["process_id"]) if rows else None


def _opened(session: Session) -> str:
    import os

    size = os.get_terminal_size() if sys.stdout.isatty() else os.terminal_size((80, 24))
    shell = [os.environ["SHELL"]] if os.environ.get("SHELL") else []
    rows, cols = size.lines or 24, size.columns or 80
    return session.spawn(shell, interactive=True, rows=rows, cols=cols).process_id


def _look(
    session: Session, process_id: str, *, screen: bool, tail: int | None, signum: int | None, as_json: bool
) -> int:
    document: dict[str, Any] = {"session": session.name, "process_id": process_id}
    if signum is not None:
        session.signal(process_id, signum)
        document["signal"] = signum
        text = ""
    elif screen:
        import msgspec

        shown = session.screen(process_id)
        document |= msgspec.to_builtins(shown)
        text = shown.text + "\n" if shown.text else ""
        if shown.since == "cut" and not as_json:
            report.note("[krt: made from the last output only; what was drawn long before may be missing]")
    else:
        lines = tail or 1
        end = session.tail(process_id, max(1 << 14, lines * _LINE))
        kept = end.text.replace("\r\n", "\n").splitlines(keepends=True)[-lines:]
        text = "".join(kept)
        document |= {
            "text": text,
            "complete": end.complete and len(text) == len(end.text.replace("\r\n", "\n")),
            "dropped_bytes": end.dropped_bytes,
            "dropped_lines": end.dropped_lines,
            "log": end.log,
        }
    if as_json:
        report.emit(document)
    else:
        sys.stdout.write(report.clean(text))
    return 0


def _attach(session_id: str, name: str, process_id: str, *, read_only: bool) -> int:
    from kernel_runtime.cli.spawn import ending
    from kernel_runtime.cli.terminal_client import Attachment

    ended = Attachment(session_id, name, process_id, read_only=read_only).run()
    if ended is None:
        report.note(f"[krt: detached; {process_id} goes on. `krt term {name} {process_id}` comes back]")
        return 0
    report.note(f"[krt: {process_id} {ending(ended)}]")
    return 0 if ended.get("exit_status") == 0 else 1


def _signal(session: str, text: str) -> int:
    from kernel_runtime.errors import UsageError

    plain = text.upper().removeprefix("SIG")
    found = signal.Signals.__members__.get(f"SIG{plain}")
    if found is None and text.isdigit() and int(text) in signal.valid_signals():
        return int(text)
    if found is None:
        raise UsageError(f"session {session}: no signal {text!r}", hint="TERM, INT, HUP, KILL, USR1, …")
    return int(found)
