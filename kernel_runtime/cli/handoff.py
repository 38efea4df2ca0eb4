"""`krt handoff`: the document that lets the next worker continue."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from kernel_runtime.cli import frame, report

if TYPE_CHECKING:
    from kernel_runtime.client.handoff import Tested


@frame.command(
    "handoff",
    example=(
        "krt handoff alice --goal 'fares by hour' --done 'loaded flights' \\\n"
        "    --next 'group df by hour' --ref name:df --complete\n"
        "  krt handoff alice --test"
    ),
)
@frame.session_argument
@click.option("--goal", default="", metavar="T", help="What it is all for.")
@click.option("--done", multiple=True, metavar="T", help="A step that is completed; may be repeated.")
@click.option("--next", "next_action", default="", metavar="T", help="The one thing to do next.")
@click.option("--verification", default="", metavar="T", help="What was checked, how, and what was not.")
@click.option("--risk", multiple=True, metavar="T", help="What may go wrong; may be repeated.")
@click.option(
    "--ref",
    multiple=True,
    metavar="R",
    help="entry:N, execution:ID, cell:ID, name:NAME, file:PATH, process:ID or url:URL; may be repeated.",
)
@click.option(
    "--claim",
    multiple=True,
    metavar="'TEXT :: PROBE'",
    help="A claim that the handoff rests on; may be repeated.",
)
@click.option("--complete", is_flag=True, help="Declare that another worker can go on from here.")
@click.option(
    "--file", "file", metavar="F", help="JSON with fields, each in the place of the old one; - is stdin."
)
@click.option("--markdown", is_flag=True, help="Print it as Markdown; that is the default.")
@click.option("--test", is_flag=True, help="Prove that a fresh client can resume from it; exit 8 if not.")
def command(
    *,
    name: str,
    goal: str,
    done: tuple[str, ...],
    next_action: str,
    verification: str,
    risk: tuple[str, ...],
    ref: tuple[str, ...],
    claim: tuple[str, ...],
    complete: bool,
    file: str | None,
    markdown: bool,
    test: bool,
    as_json: bool,
    principal: str | None,
) -> int:
    """Write the next version of the handoff, or print the one that stands.

    Texts take the place of the old ones; steps, risks, references and claims are added.
    """
    from kernel_runtime.client import blocking
    from kernel_runtime.errors import UsageError

    if markdown and as_json:
        raise UsageError(f"session {name}: --markdown and --json are both given", hint="give one of the two")
    given: dict[str, Any] = {
        "goal": goal,
        "completed": list(done),
        "next_action": next_action,
        "verification": verification,
        "risks": list(risk),
        "references": list(ref),
        "claims": list(claim),
    }
    replaced: list[str] = []
    if file is not None:
        read = _read(file)
        replaced = list(read)
        given = {key: _joined(read.get(key), value) for key, value in given.items()}
    with blocking.observe(name, principal=principal) as session:
        written = session.handoff(**given, complete=complete, replaced=replaced)
        tested = session.test_handoff() if test else None
    if tested is not None:
        return _tell(tested, as_json=as_json)
    if as_json:
        report.emit(written.json())
    else:
        print(report.clean(written.markdown()), end="")
    return 0


def _read(file: str) -> dict[str, Any]:
    """The fields of a JSON file; its claims as `TEXT :: PROBE`.

    Raises:
        UsageError: it cannot be read, or is no handoff.
    """
    from kernel_runtime.client.handoff import SEPARATOR
    from kernel_runtime.core.handoff import read
    from kernel_runtime.errors import UsageError

    try:
        with sys.stdin if file == "-" else open(file, encoding="utf-8") as opened:
            document = json.load(opened)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{file} cannot be read: {error}", hint="a JSON object; see docs/handoff.md"
        ) from None
    if not isinstance(document, dict):
        raise UsageError(f"{file} is no JSON object", hint="fields as in docs/handoff.md")
    document = document.get("document", document)
    fields = {key: value for key, value in document.items() if key != "observed"}
    claims = fields.pop("claims", None)
    read(fields)  # refuses what is no field
    if claims is not None:
        fields["claims"] = [
            claim if isinstance(claim, str) else f"{claim['text']}{SEPARATOR}{claim['probe']}"
            for claim in claims
        ]
    return fields


def _joined(read: Any, given: Any) -> Any:
    """What is said on the command line beside what the file says."""
    if isinstance(given, list):
        return [*(read or []), *given]
    return given or read or ""


def _tell(tested: Tested, *, as_json: bool) -> int:
    if as_json:
        report.emit(tested.json())
    else:
        checked = f"{tested.checked['references']} references, {tested.checked['claims']} claims"
        verdict = "a fresh client can resume from it" if tested.ok else "a fresh client cannot resume from it"
        print(report.clean(f"handoff version {tested.version}: {verdict} ({checked} checked)"))
        for failure in tested.failures:
            print(report.clean(f"- {failure['what']}: {failure['problem']}"))
        for note in tested.notes:
            print(report.clean(f"note: {note}"))
    return 0 if tested.ok else frame.NOT_ALL_LIVE
