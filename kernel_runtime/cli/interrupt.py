"""`krt interrupt`: Jupyter's interrupt, and how far it got."""

from __future__ import annotations

import msgspec

from kernel_runtime.cli import frame, report


@frame.command("interrupt", example="krt interrupt alice")
@frame.session_argument
def command(*, name: str, as_json: bool, principal: str | None) -> int:
    """Interrupt what runs: by message, then by signal; never by killing. Exits 6 if it still runs."""
    from kernel_runtime.client import blocking, session_files, spawn
    from kernel_runtime.client.results import Interrupted

    file = session_files.load(name)
    if not spawn.is_running(file) and session_files.living_kernel(file) is None:
        result = Interrupted(reached="nothing-running")
    else:
        with blocking.observe(name, principal=principal) as session:
            result = session.interrupt()
    if as_json:
        report.emit({"session": name, **msgspec.to_builtins(result)})
    elif result.reached == "nothing-running":
        print(f"session {name}: nothing is running")
    elif result.ended:
        print(f"session {name}: execution {result.execution_id} ended; it took the {result.reached}")
    else:
        print(f"session {name}: execution {result.execution_id} goes on, after message and signal")
        print(
            report.clean(
                f"  next: {result.offer or f'krt restart {name} ends the kernel, and its heap with it'}"
            )
        )
    return 0 if result.ended or result.reached == "nothing-running" else frame.STILL_RUNNING
