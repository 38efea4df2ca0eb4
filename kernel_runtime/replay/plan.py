"""What is replayed: the recorded steps in their order, and what a replay of them gave. Data only.

A record (a journal, a bundle, a notebook) becomes a `Plan` of `Step`s. A replay is a session too, so its
journal is read into the same `Step`s: what was recorded and what was replayed have one shape, and are
held against each other field by field. Both are JSON on disk.

Not promised: that a step's fields are all known. A plain notebook holds no principals, names, effects or
prompts; a kernel that is not ours tells no names.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

Output = dict[str, Any]


class Input(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A question that an execution asked, and what became of it."""

    prompt: str
    password: bool = False
    """asked for without echo: what was answered is in no record"""
    value: str | None = None
    """the answer; None for a secret, at `eof`, and where nobody answered"""
    eof: bool = False
    on: str = ""
    """empty: the cell itself asked. `terminal`: a process that read the kernel's terminal"""
    withdrawn: str | None = None
    """nobody answered, and why the question went away"""
    redacted: bool = False
    """the answer was taken out of the record"""
    by: str = ""
    """the principal that answered"""

    @property
    def is_secret(self) -> bool:
        """Whether it was answered and the record does not hold with what."""
        return self.redacted or (self.value is None and not self.eof and self.withdrawn is None)


class Late(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Output that came after its execution's end, from a thread or child that it left behind."""

    lines: int = 0
    """of streams; a last line without an end counts"""
    messages: int = 0
    """displays and the like"""
    seconds: float = 0.0
    """from the execution's end to the last of it"""

    def holds(self, other: Late) -> bool:
        """Whether this is as much as the other."""
        return self.lines >= other.lines and self.messages >= other.messages


class Wait(Struct, frozen=True, kw_only=True):
    """Before a step begins, this much late output of an earlier one had come."""

    number: int
    late: Late


class Step(Struct, kw_only=True, omit_defaults=True):
    """One execution: as it was recorded, or as a replay gave it."""

    number: int
    """its place in the plan, from 1"""
    execution_id: str | None = None
    cell_id: str | None = None
    key: str | None = None
    incarnation: int = 1
    principal: str = ""
    source: str = ""
    outcome: str | None = None
    """None: nothing is recorded of it (a notebook's cell without output)"""
    execution_count: int | None = None
    """never compared, only told"""
    outputs: list[Output] = []
    """nbformat 4, folded as a notebook shows them"""
    error: dict[str, Any] | None = None
    """`{"ename", "evalue", "traceback"}`"""
    gaps: list[dict[str, Any]] = []
    """`{"reason", "messages", "bytes"}` of output that is not here; `outputs` holds nothing in its place"""
    redacted: list[str] = []
    """what was taken out of the record: `source`, `outputs`, `input`"""
    inputs: list[Input] = []
    effects: dict[str, Any] | None = None
    """`{"verdict", "declared", "seen", "unseen"}` of docs/effects.md; None where nobody looked"""
    names: dict[str, dict[str, Any]] = {}
    """what changed, as in ExecutionObserved"""
    reads: list[str] = []
    dynamic: list[str] = []
    """why it may have read and changed more than that"""
    observed: bool = False
    """`names`, `reads` and `effects` are what a probe saw"""
    tags: list[str] = []
    started_at: int | None = None
    """UTC nanoseconds"""
    finished_at: int | None = None
    seq: int | None = None
    """of its ExecutionStarted entry, or of its end where it never started"""
    allow_stdin: bool = True
    store_history: bool = True
    waits: list[Wait] = []
    late: Late | None = None
    uncompared: str | None = None
    """why its outputs are not compared, though it runs: a tag says so, a gap, nothing is recorded"""
    skip: str | None = None
    """why it is not run"""
    injected: bool = False
    """it is no part of the record: `--set` put it there"""

    @property
    def seconds(self) -> float | None:
        """How long it took."""
        if self.started_at is None or self.finished_at is None:
            return None
        return (self.finished_at - self.started_at) / 1e9


class NameDigest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A name as it was at the end."""

    name: str
    digest: str | None = None
    """exact, `ALGORITHM:HEX`; None: its content cannot be compared, `why` tells why"""
    type: str | None = None
    why: str | None = None


class Plan(Struct, kw_only=True, omit_defaults=True):
    """What is to be replayed, in order."""

    source: str
    """what was named: a session, or a file's path"""
    kind: str
    """`journal`, `bundle` or `notebook`"""
    order: str
    """`executed` or `document`"""
    kernel: str
    """kernelspec name"""
    cwd: str
    language: str = ""
    steps: list[Step] = []
    names: list[NameDigest] | None = None
    """at the end of the record, in its last incarnation; None where nothing tells of names"""
    waits: list[Wait] = []
    """late output that had come when the record ended"""
    environment: dict[str, Any] | None = None
    """the content of the record's last EnvironmentRecorded"""
    bounds: dict[str, Any] | None = None
    """how much output is kept (`bounds.json`), so that a replay meets the bounds that the record met"""
    session_id: str = ""
    head: int = 0
    """the record's last entry that was taken in"""
    head_hash: str = ""
    notes: list[str] = []
    """what a reader of the result has to know of this plan"""


class Asked(Struct, kw_only=True, omit_defaults=True):
    """A question that the replay asked."""

    prompt: str
    how: str
    """`recorded` (that answer was given), `person`, `end` (end of input), `waited`"""
    recorded: str | None = None
    """the prompt that the record has in this place; None: it has none, the question is one more"""
    password: bool = False

    @property
    def differs(self) -> bool:
        return self.recorded != self.prompt


class Ran(Struct, kw_only=True, omit_defaults=True):
    """What one replay made of one step of the plan."""

    number: int
    step: Step | None = None
    """what its journal tells; None: it was not run"""
    skip: str | None = None
    """why it was not run"""
    asked: list[Asked] = []
    unasked: list[str] = []
    """prompts that the record has and the replay did not ask"""
    remarks: list[str] = []
    """what happened around it: interrupted after its time, the kernel died"""


class Run(Struct, kw_only=True, omit_defaults=True):
    """One replay of a plan."""

    ran: list[Ran] = []
    """one for each step of the plan, in its order"""
    names: list[NameDigest] | None = None
    environment: dict[str, Any] | None = None
    sandbox: dict[str, Any] = {}
    """what kept it from the world: `{"kind", "boundary", "notes"}`"""
    seconds: float = 0.0
