"""`krt claim`: write down a claim that can be checked, or take one back."""

from __future__ import annotations

import click

from kernel_runtime.cli import claims, frame, report


@frame.command(
    "claim",
    example="krt claim alice 'server on :3000' --probe 'port 3000 listens'\nkrt claim alice --withdraw c1",
)
@frame.session_argument
@click.argument("text", required=False)
@click.option(
    "--probe", metavar="PROBE", help="How to check it, e.g. 'port 3000 listens'; see docs/claims.md."
)
@click.option("--timeout", type=float, metavar="S", help="Seconds that a check may take; 5 by default.")
@click.option(
    "--allow",
    multiple=True,
    metavar="HOST",
    help="A host that an http probe may ask beside this machine (`network`: any); may be repeated.",
)
@click.option("--withdraw", metavar="ID", help="Take this claim back; TEXT may say why.")
def command(
    *,
    name: str,
    text: str | None,
    probe: str | None,
    timeout: float | None,
    allow: tuple[str, ...],
    withdraw: str | None,
    as_json: bool,
    principal: str | None,
) -> int:
    """Write down the claim TEXT with the probe that checks it, and check it at once.

    Exits 8 if it is not true; it stands all the same.
    """
    from kernel_runtime.client import blocking
    from kernel_runtime.core.claims import TIMEOUT
    from kernel_runtime.errors import UsageError

    if withdraw is not None:
        if probe is not None:
            raise UsageError(
                f"session {name}: --withdraw and --probe are both given", hint="give one of them"
            )
        with blocking.observe(name, principal=principal) as session:
            session.withdraw_claim(withdraw, text or "")
        if as_json:
            report.emit({"session": name, "claim_id": withdraw, "withdrawn": True})
        else:
            report.note(f"[krt: claim {withdraw} is withdrawn]")
        return 0
    if text is None or probe is None:
        raise UsageError(
            f"session {name}: a claim is a TEXT and a --probe",
            hint=f"krt claim {name} 'server on :3000' --probe 'port 3000 listens'",
        )
    with blocking.observe(name, principal=principal) as session:
        limit = TIMEOUT if timeout is None else timeout
        made = session.claim(text, probe=probe, timeout=limit, allow=allow)
    if as_json:
        report.emit({"session": name, **made.json()})
    else:
        claims.show([made])
    return 0 if made.holds else frame.NOT_ALL_LIVE
