"""`krt restart`: the next incarnation."""

from __future__ import annotations

from kernel_runtime.cli import frame, report


@frame.command("restart", example="krt restart alice")
@frame.session_argument
def command(*, name: str, as_json: bool, principal: str | None) -> int:
    """Start a new kernel. The old one's heap is gone; journal, notebook and front door stay."""
    from kernel_runtime.client import blocking

    with blocking.observe(name, principal=principal) as session:
        incarnation = session.restart()
    if as_json:
        report.emit({"session": name, "incarnation": incarnation})
    else:
        print(f"session {name}: incarnation {incarnation}")
    return 0
