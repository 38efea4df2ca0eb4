"""What a running execution waits for from people, as one value for state, journal rows and clients.

The cell itself asks (`input`, `password`), or a process reads the kernel's terminal (`terminal`,
`terminal-password`). What is typed where nothing is shown is a secret: it is in no fact.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernel_runtime.model.facts import InputRequested


def blocked_of(fact: InputRequested, since: str | int) -> dict[str, Any]:
    """`{"on", "prompt", "pid", "since"}`; on a terminal also `command` and `echo`."""
    if not fact.on:
        on = "password" if fact.password else "input"
        return {"on": on, "prompt": fact.prompt, "pid": None, "since": since}
    return {
        "on": f"{fact.on}-password" if fact.password else fact.on,
        "prompt": fact.prompt,
        "pid": fact.pid,
        "since": since,
        "command": list(fact.command),
        "echo": fact.echo,
    }


def on_terminal(blocked: Mapping[str, Any] | None) -> bool:
    """Whether a process that reads the terminal is what is waited for."""
    return blocked is not None and str(blocked["on"]).startswith("terminal")


def is_secret(blocked: Mapping[str, Any]) -> bool:
    """Whether the answer must be in no file of ours."""
    return str(blocked["on"]).endswith("password") or not blocked.get("echo", True)
