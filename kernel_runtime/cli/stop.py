"""`krt stop`: end the kernel, keep the session."""

from __future__ import annotations

from kernel_runtime.cli import frame, report


@frame.command("stop", example="krt stop alice")
@frame.session_argument
def command(*, name: str, as_json: bool, principal: str | None) -> int:
    """End the kernel and the supervisor. The session stays: the next exec starts a new kernel."""
    from kernel_runtime.client import blocking

    with blocking.observe(name, principal=principal) as session:
        left = session.stop()
    if as_json:
        report.emit({"session": name, "stopped": True, "left": left})
        return 0
    print(f"session {name}: stopped")
    if left:
        report.note("  processes that its cells started and that still live:")
        for process in left:
            argv = " ".join(str(part) for part in process.get("argv") or [])
            report.note(
                f"    {process.get('pid')}  {argv}  (execution {process.get('execution_id') or 'unknown'})"
            )
    return 0
