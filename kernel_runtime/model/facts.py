"""What a journal entry can say: one frozen struct per kind, named in the past tense.

A fact is stored as canonical JSON (keys sorted, no spaces), so fields may be added with a default
and never renamed or removed: journals of every past version must decode. Times inside facts are
nanoseconds; the entry around the fact carries the wall and monotonic clock.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
from msgspec import Struct


class Fact(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of all kinds. `kind` of the entry is the class name."""


class SessionCreated(Fact, frozen=True, kw_only=True, omit_defaults=True):
    session_id: str
    name: str
    kernel: str
    """kernelspec name"""
    cwd: str
    notebook: str
    version: str


class SupervisorStarted(Fact, frozen=True, kw_only=True, omit_defaults=True):
    pid: int
    start_time: int
    """clock ticks since boot, /proc/PID/stat field 22"""
    boot_id: str
    version: str


class SupervisorStopped(Fact, frozen=True, kw_only=True, omit_defaults=True):
    reason: str


class KernelStarting(Fact, frozen=True, kw_only=True, omit_defaults=True):
    """The intent to start an incarnation; the entry's `incarnation` is the new one."""

    argv: list[str]
    reason: str
    """`new`, `execute`, `restart`, `jupyter`"""


class KernelStarted(Fact, frozen=True, kw_only=True, omit_defaults=True):
    pid: int
    start_time: int
    boot_id: str
    language: str
    implementation: str
    own: bool
    """True: a kernel with our outbox; False: any other kernelspec, cell-level truth only"""


class KernelAdopted(Fact, frozen=True, kw_only=True, omit_defaults=True):
    pid: int
    start_time: int
    boot_id: str
    executions_running: list[str] = []


class KernelStartFailed(Fact, frozen=True, kw_only=True, omit_defaults=True):
    attempt: int
    stderr: str
    exit_status: int | None = None
    signal: int | None = None


class KernelDied(Fact, frozen=True, kw_only=True, omit_defaults=True):
    """Nobody asked for it.

    Its cause only by evidence: `exit_status` or `signal` from wait(2), `oom` in `evidence` when the
    cgroup says so.
    """

    pid: int
    exit_status: int | None = None
    signal: int | None = None
    by_user_code: bool = False
    """`quit()` or `exit()` in a cell: the kernel announced its exit"""
    evidence: dict[str, Any] = {}


class KernelStopped(Fact, frozen=True, kw_only=True, omit_defaults=True):
    """Asked for: `stop`, `restart` or a Jupyter shutdown_request."""

    reason: str
    exit_status: int | None = None
    signal: int | None = None
    evidence: dict[str, Any] = {}


class KernelUnresponsive(Fact, frozen=True, kw_only=True, omit_defaults=True):
    evidence: dict[str, Any]


class KernelResponsive(Fact, frozen=True, kw_only=True, omit_defaults=True):
    pass


class PrincipalAttached(Fact, frozen=True, kw_only=True, omit_defaults=True):
    """First attach of a principal in an incarnation: from here on it has seen this heap."""


class HeapLossTold(Fact, frozen=True, kw_only=True, omit_defaults=True):
    lost: int
    """cells lost"""
    how: str
    """`refused`, `status`, `brief`, `attach`, `stderr`"""


class HeapLossAccepted(Fact, frozen=True, kw_only=True, omit_defaults=True):
    how: str
    """`told`, `accept`, `restart`"""


class ExecutionQueued(Fact, frozen=True, kw_only=True, omit_defaults=True):
    """The intent to run. Synced to disk before its reply and before dispatch."""

    execution_id: str
    source: str
    cell_id: str
    msg_id: str
    key: str | None = None
    client_session: str | None = None
    silent: bool = False
    store_history: bool = True
    allow_stdin: bool = True
    stop_on_error: bool = True
    door: str = "krt"
    """`krt` our clients, `jupyter` any other"""
    request: str | None = None
    """what a new supervisor needs to dispatch a Jupyter client's request and route its reply: JSON of
    `{"identity": hex, "header": raw, "metadata": raw, "user_expressions": {}}`"""

    @property
    def is_cell(self) -> bool:
        """Whether people are to see it as a cell.

        Not what is `silent`, and not what an editor asks a kernel on its own account: code that a Jupyter
        client wants kept out of the history, and for which it names no cell.
        """
        unnamed = self.door == "jupyter" and self.cell_id == self.execution_id[:8]
        return not (self.silent or (unnamed and not self.store_history))


class ExecutionStarted(Fact, frozen=True, kw_only=True, omit_defaults=True):
    """The intent to dispatch. Synced before the kernel can see the request."""

    execution_id: str


class OutputRecorded(Fact, frozen=True, kw_only=True, omit_defaults=True):
    """Messages the kernel sent, in its order. `messages` are `{"type", "content", "metadata"?, "buffers"?}`.

    `position` is how far the outbox has been read when this entry is on disk.
    """

    messages: list[msgspec.Raw]
    execution_id: str | None = None
    late: bool = False
    """arrived after the outcome, from a thread or child process the execution left behind"""
    position: int | None = None


class GapRecorded(Fact, frozen=True, kw_only=True, omit_defaults=True):
    """Output that is not here, counted. Never silent."""

    reason: str
    """`message-bound`, `execution-bound`, `session-bound`, `disk`, `outbox-bound`, `iopub-overflow`,
    `unreadable` (no message of the protocol); and of a foreign kernel, where the counts are not known and
    say 0: `unsupervised` (nobody heard it), `no-idle` (it replied, and its output's end was not heard)"""
    messages: int
    bytes: int
    execution_id: str | None = None
    position: int | None = None


class InputRequested(Fact, frozen=True, kw_only=True, omit_defaults=True):
    execution_id: str
    prompt: str
    password: bool
    position: int | None = None
    on: str = ""
    """empty: the cell itself asked (`input`, getpass). `terminal`: a process reads the kernel's terminal"""
    pid: int | None = None
    command: list[str] = []
    """of the process that reads, secrets masked"""
    echo: bool = True
    """False: the terminal does not show what is typed; then the answer is in no file of ours"""


class InputAnswered(Fact, frozen=True, kw_only=True, omit_defaults=True):
    execution_id: str
    value: str | None
    """None for passwords: they are in no file of ours"""
    eof: bool = False


class InputWithdrawn(Fact, frozen=True, kw_only=True, omit_defaults=True):
    execution_id: str
    reason: str


class InterruptRequested(Fact, frozen=True, kw_only=True, omit_defaults=True):
    """One step up the ladder. `reached`: `queue` (it had not started), `message`, `signal`."""

    reached: str
    execution_id: str | None = None
    evidence: dict[str, Any] = {}


class ExecutionFinished(Fact, frozen=True, kw_only=True, omit_defaults=True):
    """The one outcome of an execution."""

    execution_id: str
    outcome: str
    execution_count: int | None = None
    error: dict[str, Any] | None = None
    """`{"ename", "evalue", "traceback"}`"""
    evidence: dict[str, Any] = {}
    reply: dict[str, Any] | None = None
    """`user_expressions` and `payload` of the kernel's execute_reply, where it had any"""
    position: int | None = None


class ExecutionObserved(Fact, frozen=True, kw_only=True, omit_defaults=True):
    """What the kernel's probe saw an execution do, looked at when it had ended and before the next began.

    `names` holds what changed and nothing else: `name → {"how", "type", "bytes", "digest", "why"}`.
    `how` is `bound`, `rebound`, `mutated`, `deleted`, or `touched` (it may have changed, and its content
    cannot be compared). `digest` is exact, `ALGORITHM:HEX`; without it `why` says why there is none.
    """

    execution_id: str
    names: dict[str, dict[str, Any]] = {}
    reads: list[str] = []
    """names whose values it may have read, followed through functions, closures, methods and classes"""
    dynamic: list[str] = []
    """why reads and writes may be more than what is listed: `exec`, `globals`, `threads`, …"""
    groups: list[list[str]] | None = None
    """names that share mutable objects, groups of two and more; None: as they were"""
    unfollowed: list[str] = []
    """names whose objects could not all be followed: what they share is not known"""
    volatile: list[str] = []
    """what may change the heap between executions: `thread NAME`, `task NAME`, `timer`"""
    effects: list[dict[str, Any]] = []
    """`{"kind", …}`, see docs/effects.md"""
    unseen: list[str] = []
    """why there may be effects that were not observed: native code, `ctypes`"""
    declared: str | None = None
    """what the author says of its effects: `effect-free` or `effectful`"""
    nanoseconds: int = 0
    """what looking cost"""
    position: int | None = None


class EffectsObserved(Fact, frozen=True, kw_only=True, omit_defaults=True):
    """Effects that came after their execution's end, from a thread, task or callback it left behind."""

    effects: list[dict[str, Any]]
    execution_id: str | None = None
    position: int | None = None


class NamesDrifted(Fact, frozen=True, kw_only=True, omit_defaults=True):
    """Names changed while no execution ran, or by nothing the running one does. As in ExecutionObserved."""

    names: dict[str, dict[str, Any]]
    found: str
    """`before` an execution, `after` one that cannot have done it, `idle` (in a quiet moment), `asked`"""
    groups: list[list[str]] | None = None
    unfollowed: list[str] = []
    volatile: list[str] = []
    position: int | None = None


class ProcessSpawned(Fact, frozen=True, kw_only=True, omit_defaults=True):
    """A process that belongs to the session, not to its kernel: `krt spawn`, `krt term`."""

    process_id: str
    """its name in the session: `p1`, `t2`"""
    argv: list[str]
    """secrets masked"""
    cwd: str
    pid: int
    start_time: int
    boot_id: str
    interactive: bool = False
    """a shell for people (`krt term`), not a job"""


class ProcessEnded(Fact, frozen=True, kw_only=True, omit_defaults=True):
    process_id: str
    exit_status: int | None = None
    signal: int | None = None
    evidence: dict[str, Any] = {}


class ClaimMade(Fact, frozen=True, kw_only=True, omit_defaults=True):
    claim_id: str
    text: str
    probe: str
    """as written: see docs/claims.md"""
    options: dict[str, Any] = {}
    """`timeout` in seconds, `allow`: what the probe may reach beyond this machine"""


class ClaimChecked(Fact, frozen=True, kw_only=True, omit_defaults=True):
    """Journaled when a claim's truth is another one than at its last check."""

    claim_id: str
    truth: str
    """`true`, `false`, `unknown`"""
    evidence: dict[str, Any] = {}


class ClaimWithdrawn(Fact, frozen=True, kw_only=True, omit_defaults=True):
    claim_id: str
    reason: str = ""


class HandoffWritten(Fact, frozen=True, kw_only=True, omit_defaults=True):
    """One version of the handoff; the latest stands."""

    version: int
    document: dict[str, Any]
    complete: bool = False


# -- Version 3: what an audit needs


class EnvironmentRecorded(Fact, frozen=True, kw_only=True, omit_defaults=True):
    """What an incarnation's kernel could import and where it ran, looked at after its start."""

    python: dict[str, Any]
    """`{"version", "implementation", "executable", "prefix"}`"""
    platform: dict[str, Any]
    packages: dict[str, dict[str, Any]]
    """name → `{"version", "digest"}`; `how` as well where it did not come from an index"""
    fingerprint: str
    """sha256 of what is above"""
    git: dict[str, Any] | None = None
    """`{"commit", "branch", "dirty"}` of the working directory; None: it is in no repository"""
    missing: list[str] = []
    """what could not be told, and why"""


class PayloadRedacted(Fact, frozen=True, kw_only=True, omit_defaults=True):
    """A text was taken out of earlier entries. Their digests, and so the chain, are as they were.

    A stored payload that does not fit its entry's digest is what was written, less what was taken out,
    if its sha256 is the one that the last PayloadRedacted naming that entry gives.
    """

    seqs: list[int]
    digests: list[str]
    """the entries' digests, of the payloads as they were first written; in the order of `seqs`"""
    replacements: dict[str, str]
    """seq in decimal → sha256 of the payload that stands there now"""
    reason: str
    how: str
    """`text`: wherever it stood; `execution ID`, `entry SEQ`: everything that one said"""
    characters: int = 0
    """how long the text was; 0 where all text was taken out"""


class SegmentSealed(Fact, frozen=True, kw_only=True, omit_defaults=True):
    """Entries `first` to `last` were copied whole into a file; bulky payloads are there only from now on.

    A later SegmentSealed of the same range takes the place of the earlier one.
    """

    first: int
    last: int
    head_hash: str
    """`hash` of entry `last`"""
    file: str
    """relative to the journal's directory, or absolute"""
    sha256: str
    """of the file"""
    bytes: int


class HeadSigned(Fact, frozen=True, kw_only=True, omit_defaults=True):
    """Somebody vouches for the journal up to entry `seq` with a key."""

    seq: int
    hash: str
    signature: str
    """SSHSIG, armored"""
    key: str
    """the public key, as authorized_keys has it"""
    namespace: str


class HeadAnchored(Fact, frozen=True, kw_only=True, omit_defaults=True):
    """The journal's head was written down elsewhere."""

    seq: int
    hash: str
    where: str
    """`file`, `git`, `session`"""
    reference: str


class HeadWitnessed(Fact, frozen=True, kw_only=True, omit_defaults=True):
    """The head of another session's journal, written down here."""

    session_id: str
    name: str
    seq: int
    hash: str
    signature: str | None = None


KINDS: dict[str, type[Fact]] = {cls.__name__: cls for cls in Fact.__subclasses__()}

_encoder = msgspec.json.Encoder(order="sorted")
_decoders = {kind: msgspec.json.Decoder(cls) for kind, cls in KINDS.items()}


def encode(fact: Fact) -> bytes:
    """Canonical JSON of a fact: what is stored and hashed; `decode` always reads it.

    What JSON cannot hold is kept escaped (`storable`). Parts that are `Raw` stay byte for byte as
    the kernel sent them wherever they are valid JSON, so canonical means: keys of ours sorted.
    """
    return prepare(fact)[1]


def prepare(fact: Fact) -> tuple[Fact, bytes]:
    """The fact as a reader will see it, and its canonical JSON."""
    try:
        payload = _encoder.encode(fact)
        if not isinstance(fact, OutputRecorded) or _readable(fact, payload):
            return fact, payload
    except UnicodeEncodeError:  # a lone surrogate: legal in Python, not in UTF-8
        pass
    fact = storable(fact)
    return fact, _encoder.encode(fact)


def storable(fact: Fact) -> Fact:
    r"""The fact as it can be stored: where JSON or UTF-8 cannot hold a string, it is escaped.

    A lone surrogate becomes six characters, `\ud800`, as Python's `backslashreplace` writes it;
    a byte FF in a `Raw` that is not UTF-8 becomes `\udcff`; NaN and the infinities in a `Raw`, which
    Python writes and JSON does not know, become the strings "NaN", "Infinity" and "-Infinity"; a
    `Raw` that is no JSON at all becomes `{"unreadable": TEXT}`. Nothing vanishes, and valid parts
    are not touched.
    """
    return msgspec.structs.replace(
        fact, **{name: _escaped(getattr(fact, name)) for name in fact.__struct_fields__}
    )


def escape_text(text: str) -> str:
    r"""The text with each lone surrogate as six characters, `\ud800`; other text is itself."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _readable(fact: Fact, payload: bytes) -> bool:
    try:
        payload.decode("utf-8")  # skipping over a Raw checks its grammar but not its text
        # compared, because a Raw that is empty, or two values, makes a list of another length
        return _decoders[type(fact).__name__].decode(payload) == fact
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return escape_text(value)
    if isinstance(value, dict):
        return {_escaped(key): _escaped(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_escaped(item) for item in value]
    if isinstance(value, msgspec.Raw):
        return _escaped_raw(bytes(value))
    return value


def _escaped_raw(raw: bytes) -> msgspec.Raw:
    try:
        msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        text = _text(raw)
        try:
            value = json.loads(text, parse_constant=str, strict=False)
        except (ValueError, RecursionError):
            value = {"unreadable": text}
        return msgspec.Raw(_encoder.encode(_escaped(value)))
    return msgspec.Raw(raw.strip(b" \t\n\r"))  # a reader's Raw begins and ends with the value


def _text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return raw.decode("utf-8", "surrogateescape")


def decode(kind: str, payload: bytes) -> Fact:
    """The fact of that kind.

    Raises:
        KeyError: a kind this version does not know.
        msgspec.DecodeError: not the JSON of that kind.
    """
    return _decoders[kind].decode(payload)


def execution_of(fact: Fact) -> str | None:
    """The execution a fact belongs to, if any."""
    return getattr(fact, "execution_id", None)
