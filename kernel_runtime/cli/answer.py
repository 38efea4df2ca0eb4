"""`krt answer`: what the session waits for."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from kernel_runtime.cli import frame, report

if TYPE_CHECKING:
    from kernel_runtime.client.blocking import Session


@frame.command(
    "answer", example="krt answer alice yes\nkrt answer alice - < token.txt     # keeps it out of `ps`"
)
@frame.session_argument
@click.argument("text", required=False)
@click.option("--eof", is_flag=True, help="Answer with end of file: input() raises EOFError.")
@click.option("--process", "process_id", metavar="ID", help="Type it as a line on that process's terminal.")
def command(
    *, name: str, text: str | None, eof: bool, process_id: str | None, as_json: bool, principal: str | None
) -> int:
    """Answer what the session is blocked on with TEXT (- reads one line of stdin; nothing asks you)."""
    from kernel_runtime.client import blocking
    from kernel_runtime.errors import NotBlocked, UsageError

    if (text is not None) and eof:
        raise UsageError(f"session {name}: TEXT and --eof are both given", hint="give one of the two")
    with blocking.observe(name, principal=principal) as session:
        if process_id is not None:
            return _type(session, process_id, text, eof=eof, as_json=as_json)
        if text is None and not eof:
            if not sys.stdin.isatty():
                raise UsageError(
                    f"session {name}: nothing to answer with", hint=f"krt answer {name} TEXT, or --eof"
                )
            row = session.running()
            if row is None or row.blocked is None:
                raise NotBlocked(f"session {name}: nothing asks", hint=f"`krt status {name}`", session=name)
            text = _typed(row.blocked)
        elif text == "-":
            text = sys.stdin.readline().removesuffix("\n")
        execution_id = session.answer(text, eof=eof)
    if as_json:
        report.emit({"session": name, "execution_id": execution_id})
    else:
        report.note(
            f"[krt: execution {execution_id} has its answer; `krt wait {name} {execution_id}` watches it]"
        )
    return 0


def _type(session: Session, process_id: str, text: str | None, *, eof: bool, as_json: bool) -> int:
    """A line, or end of file, for a managed process."""
    from kernel_runtime.errors import UsageError

    if eof:
        session.type_eof(process_id)
    elif text is None:
        raise UsageError(f"session {session.name}: nothing to type", hint="TEXT, - for stdin, or --eof")
    else:
        line = sys.stdin.readline().removesuffix("\n") if text == "-" else text
        session.type(process_id, line + "\r")
    if as_json:
        report.emit({"session": session.name, "process_id": process_id})
    else:
        report.note(f"[krt: typed; `krt term {session.name} {process_id} --screen` shows what came of it]")
    return 0


def _typed(blocked: dict[str, object]) -> str:
    from getpass import getpass

    prompt = report.clean(str(blocked.get("prompt") or ""))
    return getpass(prompt) if str(blocked.get("on")).endswith("password") else input(prompt)
