"""The session's claims: written down, withdrawn, checked when somebody asks.

Nothing is checked by itself between two questions, and no old verdict is given for a new one: a row
that was not checked now says `unknown`, with what was found last and how long ago. The reactor never
waits for a probe: machine probes run on `Observers`, questions about the heap go to the kernel.

Invariant: a claim that stands has one ClaimMade and no ClaimWithdrawn in the journal, and its last
ClaimChecked has the truth that was found last.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kernel_runtime import process
from kernel_runtime.core.claim_grammar import parse
from kernel_runtime.core.claims import (
    LONGEST_TIMEOUT,
    TIMEOUT,
    Environment,
    Expression,
    File,
    Http,
    Managed,
    Name,
    Observation,
    Pid,
    Port,
    Probe,
    is_cheap,
    judge,
)
from kernel_runtime.core.entries import walk
from kernel_runtime.core.execution_view import iso_time
from kernel_runtime.errors import BadProbe, EnvironmentFault, NotFound, UsageError
from kernel_runtime.model.entry import Draft
from kernel_runtime.model.facts import (
    ClaimChecked,
    ClaimMade,
    ClaimWithdrawn,
    Fact,
    ProcessEnded,
    ProcessSpawned,
)
from kernel_runtime.supervisor import claim_probes
from kernel_runtime.supervisor.reactor import Timer
from kernel_runtime.supervisor.shell import Token
from kernel_runtime.wire import Message

if TYPE_CHECKING:
    from kernel_runtime.supervisor.session import Supervisor

log = logging.getLogger("kernel_runtime.supervisor")

BUDGET = 0.05
"""seconds that an attach waits for the claims that are cheap to check"""
MOST = 1_000
"""claims that stand at once"""
LONGEST_TEXT = 2_000
PATIENCE = 0.5
"""seconds beyond a probe's time limit until it is `unknown`"""
_KINDS = ("ClaimMade", "ClaimChecked", "ClaimWithdrawn")

Row = dict[str, Any]
Rows = Callable[[list[Row]], None]
Judged = Callable[[str, dict[str, Any]], None]


class _Claim:
    """One that stands, and what was found last."""

    __slots__ = (
        "checked_at",
        "checked_seq",
        "evidence",
        "fact",
        "made_at",
        "principal",
        "seq",
        "truth",
        "waiting",
    )

    def __init__(self, fact: ClaimMade, seq: int, made_at: int, principal: str) -> None:
        self.fact = fact
        self.seq = seq
        self.made_at = made_at
        self.principal = principal
        self.truth: str | None = None
        self.evidence: dict[str, Any] = {}
        self.checked_at: int | None = None
        self.checked_seq: int | None = None
        self.waiting: list[Judged] = []
        """who waits for the check that is under way"""


class Claims:
    """Every claim of one session."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._s = supervisor
        self._quick = claim_probes.Observers(supervisor.reactor)
        self._slow = claim_probes.Observers(supervisor.reactor)
        """for what may take its time limit: it keeps nobody else waiting"""
        self._claims: dict[str, _Claim] = {}
        self._made = 0
        self._load()
        supervisor.rpc.register(
            {
                "claim": self._claim,
                "claims": self._list,
                "withdraw_claim": self._withdraw,
                "probe": self._probe,
            }
        )

    def _load(self) -> None:
        for entry in walk(self._s.shell.reader, kinds=_KINDS):
            fact = entry.fact
            if isinstance(fact, ClaimMade):
                self._made += 1
                self._claims[fact.claim_id] = _Claim(fact, entry.seq, entry.at, entry.principal)
            elif isinstance(fact, ClaimWithdrawn):
                self._claims.pop(fact.claim_id, None)
            elif isinstance(fact, ClaimChecked) and (claim := self._claims.get(fact.claim_id)):
                claim.truth, claim.evidence = fact.truth, dict(fact.evidence)
                claim.checked_at, claim.checked_seq = entry.at, entry.seq

    def redacted(self, less: Callable[[Any], Any]) -> None:
        """A text was taken out of the journal: `less` takes it out of what is known here."""
        for claim in self._claims.values():
            claim.fact, claim.evidence = less(claim.fact), less(claim.evidence)

    def close(self) -> None:
        """No more is looked at; what hangs in a look is not waited for."""
        self._quick.close()
        self._slow.close()

    # -- rows

    def rows(
        self,
        *,
        check: bool,
        on_done: Rows,
        budget: float | None = None,
        cheap_only: bool = False,
        principal: str = "system",
    ) -> None:
        """Every claim as `status --json` has it, to `on_done`: at once, or when the last is checked.

        With `check` they are checked, each within its own time limit, and within `budget` seconds
        together; `cheap_only` leaves out what needs the kernel, the network or a whole file. What was
        not checked by then is `unknown`, and says so.
        """
        claims = list(self._claims.values())
        chosen = [c for c in claims if check and (not cheap_only or _is_cheap(c))]
        found: dict[str, Row] = {}
        left = {claim.fact.claim_id for claim in chosen}
        timer: list[Timer] = []
        told: list[bool] = []

        def finish() -> None:
            if not told:
                told.append(True)
                for pending in timer:
                    pending.cancel()
                on_done([found.get(c.fact.claim_id) or _unchecked(c) for c in claims])

        def one(claim: _Claim, truth: str, evidence: dict[str, Any]) -> None:
            found[claim.fact.claim_id] = _row(claim, truth, evidence)
            left.discard(claim.fact.claim_id)
            if not left:
                finish()

        if not chosen:
            finish()
            return
        if budget is not None:
            timer.append(self._s.reactor.after(budget, finish))
        for claim in chosen:
            self._check(claim, principal, partial(one, claim))

    def for_attach(self, on_done: Rows, principal: str) -> None:
        """The rows an attach shows: cheap ones checked, within `BUDGET` seconds for all."""
        self.rows(check=True, on_done=on_done, budget=BUDGET, cheap_only=True, principal=principal)

    # -- requests

    def _claim(self, principal: str, args: dict[str, Any], token: Token, request: Message) -> None:
        fact = self._read(args)
        same = next((c for c in self._claims.values() if _is_same(c.fact, fact)), None)
        if same is None:
            if len(self._claims) >= MOST:
                raise UsageError(
                    f"session {self._s.identity.name}: {MOST:,} claims stand",
                    hint="withdraw some: `krt claim NAME --withdraw ID`",
                )
            entry = self._append(fact, principal, sync=True)
            self._made += 1
            same = _Claim(fact, entry[0], entry[1], principal)
            self._claims[fact.claim_id] = same
        claim = same
        self._check(claim, principal, lambda truth, evidence: token.respond(_row(claim, truth, evidence)))

    def _read(self, args: Mapping[str, Any]) -> ClaimMade:
        text = str(args.get("text") or "").strip()
        if not text or len(text) > LONGEST_TEXT:
            raise UsageError(
                f"session {self._s.identity.name}: a claim is a sentence of 1 to {LONGEST_TEXT:,} letters",
                hint="`krt claim NAME 'server on :3000' --probe 'port 3000 listens'`",
            )
        written = str(args.get("probe") or "").strip()
        probe = parse(written)
        timeout = float(args.get("timeout", TIMEOUT))
        if not 0 < timeout <= LONGEST_TIMEOUT:
            raise UsageError(
                f"a time limit of {timeout:g} s", hint=f"more than 0 and at most {LONGEST_TIMEOUT:g} seconds"
            )
        options: dict[str, Any] = {"timeout": timeout}
        if allow := [str(host) for host in args.get("allow") or []]:
            options["allow"] = allow
        if isinstance(probe, Pid) and (meant := claim_probes.identity(probe.pid)):
            # who is meant, so that another process under this number is not taken for it
            options["process"] = {"start_time": meant["start_time"], "boot_id": meant["boot_id"]}
        return ClaimMade(claim_id=f"c{self._made + 1}", text=text, probe=written, options=options)

    def _list(self, principal: str, args: dict[str, Any], token: Token, request: Message) -> None:
        budget = args.get("timeout")
        self.rows(
            check=bool(args.get("check", True)),
            on_done=lambda rows: token.respond({"claims": rows}),
            budget=None if budget is None else max(0.0, float(budget)),
            principal=principal,
        )

    def _withdraw(self, principal: str, args: dict[str, Any], token: Token, request: Message) -> None:
        claim_id = str(args.get("claim_id") or "")
        if claim_id not in self._claims:
            raise NotFound(
                f"session {self._s.identity.name}: no claim {claim_id} stands",
                hint=f"`krt claims {self._s.identity.name}` lists them",
                claim_id=claim_id,
            )
        self._append(
            ClaimWithdrawn(claim_id=claim_id, reason=str(args.get("text") or "")), principal, sync=True
        )
        del self._claims[claim_id]
        token.respond({"claim_id": claim_id, "withdrawn": True})

    def _probe(self, principal: str, args: dict[str, Any], token: Token, request: Message) -> None:
        """Observe once, for whoever asks; nothing is written down."""
        written = str(args.get("probe") or "").strip()
        fact = self._read({**args, "text": "once"})

        def answer(truth: str, evidence: dict[str, Any]) -> None:
            token.respond({"probe": written, "truth": truth, "evidence": evidence})

        self._observe(fact, answer)

    # -- checking

    def _check(self, claim: _Claim, principal: str, judged: Judged) -> None:
        claim.waiting.append(judged)
        if len(claim.waiting) > 1:
            return  # one is under way, and tells all who ask

        def checked(truth: str, evidence: dict[str, Any]) -> None:
            self._keep(claim, principal, truth, evidence)
            waiting, claim.waiting = claim.waiting, []
            for tell in waiting:
                tell(truth, evidence)

        self._observe(claim.fact, checked)

    def _keep(self, claim: _Claim, principal: str, truth: str, evidence: dict[str, Any]) -> None:
        changed = truth != claim.truth
        claim.checked_at = time.time_ns()
        if changed and claim.fact.claim_id in self._claims:
            fact = ClaimChecked(claim_id=claim.fact.claim_id, truth=truth, evidence=evidence)
            try:
                claim.checked_seq, claim.checked_at = self._append(fact, principal, sync=False)
            except EnvironmentFault as error:
                # the next check finds the same change and tries again
                log.warning("what became of claim %s was not written: %s", claim.fact.claim_id, error.message)
                return
        claim.truth, claim.evidence = truth, evidence

    def _observe(self, fact: ClaimMade, judged: Judged) -> None:
        """Make the observation; `judged` is told within the time limit, whatever happens."""
        try:
            probe = parse(fact.probe)
        except BadProbe as error:  # of a version whose grammar had more
            why = {"reason": error.message}
            self._s.reactor.after(0, lambda: judged("unknown", why))
            return
        seconds = float(fact.options.get("timeout", TIMEOUT))
        open_ = [judged]

        def seen(observation: Observation) -> None:
            if open_:
                open_.pop()(*judge(probe, observation))

        late = {"unknown": f"not answered within {seconds:g} s"}
        timer = self._s.reactor.after(seconds + PATIENCE, lambda: seen(late))

        def settled(observation: Observation) -> None:
            timer.cancel()
            seen(observation)

        self._look(probe, fact, seconds, settled)

    def _look(
        self, probe: Probe, fact: ClaimMade, seconds: float, seen: Callable[[Observation], None]
    ) -> None:
        identity = self._s.identity
        submit = self._quick.submit if is_cheap(probe) else self._slow.submit
        deadline = time.monotonic() + seconds
        match probe:
            case Port():
                asked = deadline - seconds
                submit(lambda: claim_probes.port(probe, identity.session_id, asked), seen)
            case Pid():
                submit(lambda: claim_probes.pid(probe, fact.options.get("process")), seen)
            case File():
                submit(lambda: claim_probes.file(probe, identity.cwd, deadline), seen)
            case Http():
                allow = list(fact.options.get("allow") or [])
                submit(lambda: claim_probes.http(probe, allow, deadline), seen)
            case Managed():
                seen(self._managed(probe.process_id))
            case Name():
                self._ask_name(probe, seconds, seen)
            case Environment():
                self._evaluate(_environment_expression(probe), seconds, seen)
            case Expression():
                self._evaluate(probe.source, seconds, seen)

    def _managed(self, process_id: str) -> Observation:
        """What the journal and the process table say of a process of the session."""
        alive: dict[str, Any] | None = None
        for entry in walk(self._s.shell.reader, kinds=("ProcessSpawned", "ProcessEnded")):
            fact = entry.fact
            if isinstance(fact, ProcessSpawned) and fact.process_id == process_id:
                who = process.ProcessId(fact.pid, fact.start_time, fact.boot_id)
                alive = {"alive": process.is_alive(who), "pid": fact.pid, "command": fact.argv}
                alive |= {"entry": entry.seq}
            elif isinstance(fact, ProcessEnded) and fact.process_id == process_id:
                alive = {"alive": False, "exit_status": fact.exit_status, "signal": fact.signal}
                alive |= {"entry": entry.seq}
        if alive is None:
            return {"alive": False, "reason": f"no process {process_id} was ever started in this session"}
        return alive

    # -- the heap

    def _ask_name(self, probe: Name, seconds: float, seen: Callable[[Observation], None]) -> None:
        if gone := self._heap_gone():
            seen({"exists": False, **gone})
            return

        def failed(error: str) -> Observation:
            return {"unknown": f"the kernel could not say: {error}"}

        self._ask_kernel("describe", {"name": probe.name}, seen, failed, seconds=seconds)

    def _evaluate(self, source: str, seconds: float, seen: Callable[[Observation], None]) -> None:
        if gone := self._heap_gone():
            seen({"unknown": f"{gone['reason']}: there is nothing to evaluate it in"})
            return

        def failed(error: str) -> Observation:
            return {"error": error}

        asked = {"expression": source, "timeout": seconds}
        self._ask_kernel("evaluate", asked, seen, failed, seconds=seconds, patience=PATIENCE / 2)

    def _ask_kernel(
        self,
        op: str,
        args: dict[str, Any],
        seen: Callable[[Observation], None],
        failed: Callable[[str], Observation],
        *,
        seconds: float,
        patience: float = 0.0,
    ) -> None:
        """Ask the living kernel; `failed` makes an observation of its error, in words."""
        if why := self._cannot_ask():
            seen({"unknown": why})
            return

        def answered(answer: dict[str, Any] | None) -> None:
            if answer is None:
                seen({"unknown": f"the kernel did not answer within {seconds:g} s"})
            elif answer.get("error"):
                seen(failed(_error(answer["error"])))
            else:
                seen(answer)

        self._s.questions.ask(op, args, answered, seconds + patience)

    def _heap_gone(self) -> dict[str, Any] | None:
        state = self._s.shell.state
        if state.kernel in ("dead", "stopped", "none"):
            why = {"none": "no kernel has started"}.get(state.kernel, f"the kernel is {state.kernel}")
            return {"reason": f"{why}, so no name is there", "incarnation": state.incarnation}
        return None

    def _cannot_ask(self) -> str | None:
        state = self._s.shell.state
        if state.kernel != "up":
            return f"the kernel is {state.name}"
        return (
            None
            if state.own and self._s.keeper.observes
            else "not to be had: this kernel is not one that tells of its names"
        )

    def _append(self, fact: Fact, principal: str, *, sync: bool) -> tuple[int, int]:
        """The new entry's `(seq, at)`."""
        shell = self._s.shell
        (entry,) = shell.journal.append([Draft(fact, principal, shell.state.incarnation)], sync=sync)
        shell.committed()
        return entry.seq, entry.at


def _is_same(one: ClaimMade, other: ClaimMade) -> bool:
    return (one.text, one.probe, one.options) == (other.text, other.probe, other.options)


def _is_cheap(claim: _Claim) -> bool:
    try:
        return is_cheap(parse(claim.fact.probe))
    except BadProbe:
        return False


def _row(claim: _Claim, truth: str, evidence: dict[str, Any]) -> Row:
    return {
        "claim_id": claim.fact.claim_id,
        "text": claim.fact.text,
        "probe": claim.fact.probe,
        "truth": truth,
        "evidence": evidence,
        "checked_at": iso_time(claim.checked_at) if claim.checked_at is not None else None,
        "principal": claim.principal,
        "entries": [seq for seq in (claim.seq, claim.checked_seq) if seq is not None],
    }


def _unchecked(claim: _Claim) -> Row:
    evidence: dict[str, Any] = {"reason": "not checked yet"}
    if claim.truth is not None and claim.checked_at is not None:
        age = max(0.0, (time.time_ns() - claim.checked_at) / 1e9)
        evidence["last"] = {"truth": claim.truth, "evidence": claim.evidence, "seconds_ago": round(age, 1)}
    return _row(claim, "unknown", evidence)


def _environment_expression(probe: Environment) -> str:
    """Its answer is yes or no: a value of the environment may be a secret, and evidence is journaled."""
    got = f"__import__('os').environ.get({probe.name!r})"
    return f"{got} is not None" if probe.value is None else f"{got} == {probe.value!r}"


def _error(error: Any) -> str:
    if isinstance(error, dict):
        return f"{error.get('ename')}: {error.get('evalue')}"
    return str(error)
