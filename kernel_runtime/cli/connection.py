"""`krt connection`: the front door, for any Jupyter client."""

from __future__ import annotations

from kernel_runtime.cli import frame, report


@frame.command("connection", example='jupyter console --existing "$(krt connection alice)"')
@frame.session_argument
def command(*, name: str, as_json: bool, principal: str | None) -> int:
    """Print the path of the front-door connection file; the door is open when this returns."""
    from kernel_runtime.client import blocking

    with blocking.observe(name, principal=principal) as session:
        path = session.connection_file()
    if as_json:
        report.emit({"session": name, "connection_file": path})
    else:
        print(path)
    return 0
