"""`krt redact`: take out of a session what should not have been said."""

from __future__ import annotations

import sys
from typing import Any

import click

from kernel_runtime.cli import frame, report

ELSEWHERE = (
    "screens of the session's terminals and processes while these live (`krt ps`)",
    "terminals, pages and logs of other programs that showed it",
    "bundles, exports, copies of the notebook and backups made before",
    "free blocks of the disk",
)
"""what no file of ours is"""


@frame.command(
    "redact",
    example="printf %s hunter2 | krt redact alice --text-stdin --reason 'password in a log'\n"
    "krt redact alice --execution 1f3a9c42 --reason 'customer data'",
)
@frame.session_argument
@click.option("--text-stdin", is_flag=True, help="Take out the text on stdin, wherever it stands.")
@click.option("--execution", metavar="ID", help="Take out all that this execution said and was told.")
@click.option("--entry", type=click.IntRange(min=1), metavar="SEQ", help="Take out what this entry says.")
@click.option("--reason", required=True, metavar="WHY", help="Why; it stays in the journal.")
@click.option("--force", is_flag=True, help="Also a text of fewer than 4 characters.")
def command(
    *,
    name: str,
    text_stdin: bool,
    execution: str | None,
    entry: int | None,
    reason: str,
    force: bool,
    as_json: bool,
    principal: str | None,
) -> int:
    """Take a text, or all that was said, out of the journal, the notebook and the session's other files.

    The chain still verifies, and says who took out how much, when and why. A newline at the end of stdin
    is not part of the text. Says what still may hold it. Exits 1 if a file of the session does.
    """
    import asyncio

    from kernel_runtime import places
    from kernel_runtime.client import blocking, redaction
    from kernel_runtime.errors import UsageError

    arguments: dict[str, Any] = {"reason": reason, "force": force}
    if text_stdin + (execution is not None) + (entry is not None) != 1:
        raise UsageError(
            f"session {name}: give one of --text-stdin, --execution and --entry",
            hint="`krt redact --help`; a text is no argument: the shell's history and `ps` would have it",
        )
    if text_stdin:
        if sys.stdin.isatty():
            report.note("[krt: the text to take out, then Ctrl-D]")
        arguments["text"] = _text(name)
    elif execution is not None:
        with blocking.observe(name, principal=principal) as session:
            arguments["execution_id"] = session.find(execution).execution_id
    else:
        arguments["entry"] = entry
    done = asyncio.run(redaction.redact(name, arguments, principal=principal or places.principal()))
    if as_json:
        report.emit({"session": name, **done, "elsewhere": list(ELSEWHERE)})
    else:
        _tell(name, done)
    return 1 if done["left"] or done["files"] else 0


def _text(name: str) -> str:
    from kernel_runtime.errors import UsageError

    try:
        text = sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"session {name}: the text on stdin is not UTF-8", hint=str(error)) from error
    return text.removesuffix("\n").removesuffix("\r")


def _tell(name: str, done: dict[str, Any]) -> None:
    if done["entry"] is None:
        print(f"session {name}: the journal does not hold it")
    else:
        kinds = ", ".join(f"{n} {kind}" for kind, n in sorted(done["kinds"].items()))
        count, by = len(done["seqs"]), done["entry"]
        print(f"session {name}: taken out of {count} entries ({kinds}); entry {by} says so")
    if done["shared"]:
        print(f"  {done['shared']} times it stood across two messages")
    for file in done["segments"]:
        print(f"  segment written anew: {file}")
    for file in done["swept"]:
        print(f"  also taken out of {file}")
    for what in done["left"]:
        print(report.clean(f"  NOT DONE: {what}"))
    for file in done["files"]:
        print(f"  STILL IN: {file}")
    print("It may still be in:")
    for what in (
        *(f"process {one}" for one in done["processes"]),
        "the kernel's memory, while it lives",
        *ELSEWHERE,
    ):
        print(f"  {what}")
