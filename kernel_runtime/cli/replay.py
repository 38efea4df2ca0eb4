"""`krt replay`: run a record again in a fresh kernel, and say what comes out otherwise."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from kernel_runtime import places
from kernel_runtime.cli import frame, report
from kernel_runtime.errors import UsageError

if TYPE_CHECKING:
    from kernel_runtime.replay.result import Result

_NAMES, _DIFFS, _LINES = 10, 10, 20
"""names, differences, and lines of each that people are shown"""


@frame.command(
    "replay",
    example="krt replay alice\n"
    "krt replay analysis.ipynb --two-times\n"
    "krt replay alice --html report.html\n"
    "krt replay alice --set rate=0.2             # and what changes downstream\n"
    "krt replay alice --until 120 --keep alice-at-120",
)
@click.argument("source")
@click.option(
    "--order",
    type=click.Choice(["executed", "document"]),
    help="As they ran, or from top to bottom; by default as the source tells.",
)
@click.option("--until", type=click.IntRange(min=1), metavar="SEQ", help="Only what had ended by that entry.")
@click.option("--keep", metavar="NEW", help="Leave a live session NEW at that point of history.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a name to another value, a Python literal.",
)
@click.option("--two-times", is_flag=True, help="Run it twice: what then differs is nondeterministic.")
@click.option("--rule", "on", multiple=True, metavar="RULE", help="Let this pass too (docs/replay.md).")
@click.option("--no-rule", "off", multiple=True, metavar="RULE", help="Do not let this pass.")
@click.option("--strict", is_flag=True, help="Let nothing pass but what --rule names.")
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    metavar="T",
    help="By which share of themselves numbers may differ; 1e-9 by default.",
)
@click.option(
    "--inputs",
    type=click.Choice(["recorded", "ask", "none"]),
    default="recorded",
    show_default=True,
    help="What input() gets; none leaves out what asked for some.",
)
@click.option(
    "--secrets",
    type=click.Choice(["ask", "skip"]),
    default="skip",
    show_default=True,
    help="Ask you for passwords, or leave out what asked for one.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    metavar="S",
    help="Seconds for each cell, 0 for no bound; by default ten times what was recorded, 60 at least.",
)
@click.option("--kernel", metavar="SPEC", help="Run it in another kernel than the recorded one.")
@click.option(
    "--env",
    type=click.Choice(["current", "recorded"]),
    default="current",
    show_default=True,
    help="Run it in this environment, or build the recorded one with uv.",
)
@click.option(
    "--allow", multiple=True, metavar="WHAT", help="What may really happen: net, write:PATH, processes, all."
)
@click.option("--force", is_flag=True, help="Replay a record that is damaged, too.")
@click.option(
    "--html",
    type=click.Path(path_type=Path),
    metavar="F",
    help="Write a report that people read: one file, safe to open.",
)
@click.option(
    "--junit",
    type=click.Path(path_type=Path),
    metavar="F",
    help="Write JUnit XML, a test case per execution.",
)
def command(
    *,
    source: str,
    order: Literal["executed", "document"] | None,
    until: int | None,
    keep: str | None,
    settings: tuple[str, ...],
    two_times: bool,
    on: tuple[str, ...],
    off: tuple[str, ...],
    strict: bool,
    tolerance: float | None,
    inputs: Literal["recorded", "ask", "none"],
    secrets: Literal["ask", "skip"],
    timeout: float | None,
    kernel: str | None,
    env: Literal["current", "recorded"],
    allow: tuple[str, ...],
    force: bool,
    html: Path | None,
    junit: Path | None,
    as_json: bool,
    principal: str | None,
) -> int:
    """Run SOURCE again in a fresh kernel and judge each execution: a session, a .ipynb, or a bundle.

    Exits 0 if everything came out the same, the same but for what the rules allow, or was skipped with
    a reason; else 1.
    """
    from kernel_runtime.replay.audit import replayed
    from kernel_runtime.replay.compare import choose
    from kernel_runtime.replay.report import check_packages, check_places, write

    rules = choose(on=on, off=off, strict=strict, relative=1e-9 if tolerance is None else tolerance)
    asks = inputs == "ask" or secrets == "ask"
    if asks and not sys.stdin.isatty():
        raise UsageError("there is no terminal to ask at", hint="leave out --inputs ask and --secrets ask")
    check_places(html, junit)
    if html is not None:
        check_packages()
    with _ended_by_sigterm():
        found = replayed(
            source,
            order=order,
            until=until,
            keep=keep,
            settings=settings,
            two_times=two_times,
            rules=rules,
            inputs=inputs,
            secrets=secrets,
            timeout=timeout,
            kernel=kernel,
            env=env,
            allow=allow,
            force=force,
            principal=principal,
            ask=_ask if asks else None,
            progress=_progress if sys.stderr.isatty() and not as_json else None,
        )
    write(found, html=html, junit=junit, by=principal or places.principal())
    result = found.result
    if as_json:
        report.emit(result)
    else:
        _show(result)
        for path in (html, junit):
            if path is not None:
                print(f"written: {path}")
    return 0 if result.ok else 1


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends this as Ctrl-C does: the private session is stopped and removed."""

    def end(signum: int, _frame: Any) -> None:
        sys.exit(128 + signum)

    before = {signum: signal.signal(signum, end) for signum in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _ask(prompt: str, hidden: bool) -> str | None:
    from kernel_runtime.cli.running import ask

    line = ask(prompt, hidden=hidden, still=lambda: True)
    return line.removesuffix("\n") if line else None


def _progress(ended: int, total: int) -> None:
    end = "\n" if ended == total else ""
    print(f"\r{ended:,} of {total:,} executions", end=end, file=sys.stderr, flush=True)


def _show(result: Result) -> None:
    counts: dict[str, int] = {}
    for row in result.executions:
        counts[row["verdict"]] = counts.get(row["verdict"], 0) + 1
    told = ", ".join(f"{count:,} {verdict}" for verdict, count in counts.items()) or "no executions"
    print(f"{report.clean(result.source)}: {result.verdict} ({told}; {result.seconds:.1f} s)")
    if result.integrity.get("ok") is False:
        print("the record is damaged: what is said here is of what could be read")
    for note in (*result.notes, *result.sandbox.get("notes", [])):
        print(f"note: {report.clean(note)}")
    for setting in result.settings:
        where = f"after step {setting['after']}" if setting["after"] else "at the beginning"
        print(f"set: {setting['name']} = {setting['value']!r} {where}, as step {setting['number']}")
        print(f"     since {setting['why']}")
    _show_environment(result.environment)
    rows = [
        (
            row["number"],
            row["verdict"],
            (row["execution_id"] or row["cell_id"] or "")[:8],
            _why(row),
        )
        for row in result.executions
    ]
    report.table(("step", "verdict", "which", "why"), rows, flexible="why")
    _show_differences([row for row in result.executions if row.get("diff")])
    differing = [row for row in result.names if row["verdict"] != "same"]
    if result.names:
        print(f"names at the end: {len(result.names) - len(differing):,} same, {len(differing):,} not")
    if differing:
        shown = [(row["name"], row["verdict"], row.get("reason") or "") for row in differing[:_NAMES]]
        report.table(("name", "verdict", "why"), shown, flexible="why")
        if len(differing) > _NAMES:
            print(f"and {len(differing) - _NAMES:,} more (--json has all)")
    if result.kept:
        print(f"session {result.kept} is live at this point: krt attach {result.kept}")


def _show_environment(found: dict[str, Any]) -> None:
    if not found.get("known"):
        print(f"environment: {found.get('why', 'not known')}")
        return
    others = [row["what"] for part in ("python", "platform", "git") for row in found[part]]
    packages = [
        f"{row['name']} {row['recorded']} with other files"
        if row["why"] == "content"
        else f"{row['name']} {row['recorded'] or 'not there'} → {row['replayed'] or 'not there'}"
        for row in found["packages"]
    ]
    shown = ", ".join([*others, *packages][:_NAMES])
    more = len(others) + len(packages) - _NAMES
    if shown:
        print(report.clean(f"environment differs: {shown}" + (f" and {more:,} more" if more > 0 else "")))


def _show_differences(rows: list[dict[str, Any]]) -> None:
    for row in rows[:_DIFFS]:
        lines = report.clean(row["diff"]).splitlines()
        print(f"step {row['number']}, {row['verdict']}:")
        print("\n".join(f"    {line}" for line in lines[:_LINES]))
        if len(lines) > _LINES:
            print(f"    and {len(lines) - _LINES:,} lines more (--json has them)")
    if len(rows) > _DIFFS:
        print(f"and {len(rows) - _DIFFS:,} steps more that differ (--json has them)")


def _why(row: dict[str, Any]) -> str:
    parts = [row["reason"] or "", *row.get("remarks", [])]
    if row["rules"]:
        parts.append(f"but for {', '.join(row['rules'])}")
    after = row.get("after")
    if after and row["verdict"] not in ("same", "skipped"):
        reads = "reads" if after.get("sure", True) else "may read"
        whence = " and ".join(str(number) for number in after["steps"][:3])
        parts.append(f"{reads} {', '.join(after['names'][:3])}, not as recorded since step {whence}")
    return "; ".join(part for part in parts if part)
