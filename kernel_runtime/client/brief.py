"""The brief: what a worker reads before it does anything, within a number of tokens.

Most important first, so that what does not fit is what matters least. Each line about an execution
names it.
"""

from __future__ import annotations

from kernel_runtime.client.session_files import SessionFile
from kernel_runtime.client.status import Status
from kernel_runtime.core.execution_view import iso_time
from kernel_runtime.journal import JournalReader
from kernel_runtime.model.execution import Execution

_LETTERS_PER_TOKEN = 4
_LAST = 8


def compose(session: SessionFile, status: Status, journal: JournalReader, max_tokens: int) -> str:
    """The brief as Markdown."""
    recent = journal.executions(last=_LAST)
    lines = [
        f"# {status.summary()}",
        f"kernel {session.kernel}, cwd {session.cwd}, journal at {journal.head()}",
    ]
    waiting = [row for row in recent if row.status != "done"]
    if waiting:
        lines += ["", "## Now"]
        lines += [_now(row, journal) for row in waiting]
    not_live = [cell for cell in status.cells.values() if cell.truth != "live"]
    if not_live:
        lines += ["", "## Not live"]
        lines += [
            f"- {cell.truth}: {shown(str(cell.evidence.get('source') or cell.cell_id))} ({cell.execution_id})"
            for cell in not_live
        ]
    steps = [step for step in status.plan if step.action != "keep"]
    if steps:
        lines += ["", "## Next"]
        lines += [f"- {step.action} {step.target}: {step.reason}" for step in steps]
    done = [row for row in recent if row.status == "done"]
    if done:
        lines += ["", "## Last executions, newest first"]
        lines += [_past(row, journal) for row in reversed(done)]
    return _fitted(lines, max_tokens * _LETTERS_PER_TOKEN)


def _now(row: Execution, journal: JournalReader) -> str:
    text = f"- {row.status}: {shown(journal.source(row.execution_id))} ({row.execution_id}, {row.principal})"
    if row.blocked:
        text += f"; asks {shown(str(row.blocked.get('prompt', '')))!r}"
    return text


def _past(row: Execution, journal: JournalReader) -> str:
    when = iso_time(row.finished_at or row.queued_at)
    error = f" {row.error.get('ename')}: {shown(str(row.error.get('evalue')))}" if row.error else ""
    source = shown(journal.source(row.execution_id))
    return f"- {row.outcome}{error}: {source} ({row.execution_id}, {row.principal}, {when})"


def shown(text: str, limit: int = 80) -> str:
    """The first line with anything on it, without control characters, cut to `limit`."""
    line = next((line for line in text.splitlines() if line.strip()), "").strip()
    line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _fitted(lines: list[str], letters: int) -> str:
    kept: list[str] = []
    used = 0
    for index, line in enumerate(lines):
        used += len(line) + 1
        if used > letters and kept:
            kept.append(f"({len(lines) - index} more lines: raise max_tokens)")
            break
        kept.append(line)
    return "\n".join(kept)
