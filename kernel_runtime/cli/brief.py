"""`krt brief`: what a worker reads before anything else."""

from __future__ import annotations

import click

from kernel_runtime.cli import frame, report


@frame.command("brief", example="krt brief alice --max-tokens 500")
@frame.session_argument
@click.option(
    "--max-tokens",
    type=click.IntRange(min=50),
    default=1000,
    metavar="N",
    help="About how long; 1000 by default.",
)
def command(*, name: str, max_tokens: int, as_json: bool, principal: str | None) -> int:
    """Print what matters now, the most important first, each line with the entries it stands on.

    Reading it tells of a lost heap: the next exec is accepted.
    """
    from kernel_runtime.client import blocking

    with blocking.observe(name, principal=principal) as session:
        text = session.brief(max_tokens)
    if as_json:
        report.emit({"session": name, **text.json()})
    else:
        print(text)
    return 0
