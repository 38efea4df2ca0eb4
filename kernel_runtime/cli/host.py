"""`krt host`: be where supervisors start, for clients that will not last."""

from __future__ import annotations

import os
import signal

import click

from kernel_runtime.cli import frame, report


@frame.command("host", example="krt host")
@click.option("--check", is_flag=True, help="Only say whether a host answers: exit status 0 or 3.")
def command(*, check: bool, as_json: bool, principal: str | None) -> int:
    """Start the supervisors that clients ask for, until SIGTERM or Ctrl-C.

    A supervisor lives where it was started: in the container, login session or service of its first client.
    While a host runs, clients with the same KRT_RUNTIME_DIR have it start them, with its environment.
    Its own end ends nothing, unless its container's end is that too.
    """
    del principal  # nobody acts: whoever asks for a session does
    from kernel_runtime import places
    from kernel_runtime.client import host
    from kernel_runtime.client.hosting import Host

    if check:
        there = host.is_there()
        if as_json:
            report.emit({"host": there, "socket": str(host.socket_path())})
        else:
            print("a host answers" if there else "no host answers")
        return 0 if there else 3
    stop, stopping = os.pipe()
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: os.write(stopping, b"."))
    hosting = Host()
    try:
        if as_json:
            report.emit_line({"home": str(places.home()), "socket": str(host.socket_path())})
        else:
            print(f"host of {places.home()} at {host.socket_path()}", flush=True)
        for name in hosting.serve(stop):
            if as_json:
                report.emit_line({"started": name})
            else:
                print(f"session {name}: supervisor started", flush=True)
    finally:
        hosting.close()
        os.close(stop)
        os.close(stopping)
    return 0
