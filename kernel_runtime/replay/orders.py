"""What the driver tells the runner, and what the runner tells back.

The driver writes `orders.json` and starts the runner, inside the sandbox if there is one. It holds what has
to be run and nothing of what came out when it was recorded: a replayed cell has nowhere to read that from.
The runner writes one JSON object a line on its stdout (`Event`) and reads answers to its questions, one a
line (`Answer`), on its stdin. The end of its stdin means that the driver is gone.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from kernel_runtime.replay.plan import Input, Wait

KEY = "replay-{}"
"""the key under which step N is queued: whoever reads the replay's journal knows the step by it"""


class Order(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step to run."""

    number: int
    source: str
    incarnation: int
    cell_id: str | None = None
    inputs: list[Input] = []
    allow_stdin: bool = True
    store_history: bool = True
    waits: list[Wait] = []
    timeout: float | None = None
    """seconds after which it is interrupted"""


class Orders(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One replay."""

    session: str
    kernel: str
    cwd: str
    principal: str
    steps: list[Order]
    waits: list[Wait] = []
    """late output that had come when the record ended"""
    ask: bool = False
    """questions go to the person"""
    ask_secrets: bool = False
    keep: bool = False
    """leave the session running at the end"""


class Event(Struct, kw_only=True, omit_defaults=True):
    """What happened. `kind` says which fields are there.

    `started` · `ended`: outcome · `asked`: prompt, recorded, password, how · `unasked`: prompt ·
    `remark`: text · `not-run`: text says why · `question`: prompt, password; an `Answer` is awaited ·
    `failed`: error, the document of an error of ours; the last event · `done`: the last event.
    """

    kind: str
    number: int = 0
    outcome: str | None = None
    prompt: str = ""
    recorded: str | None = None
    password: bool = False
    how: str = ""
    text: str = ""
    error: dict[str, Any] | None = None


class Answer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A person's answer."""

    text: str | None = None
    eof: bool = False
