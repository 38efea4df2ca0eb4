"""Replay a record: plan it, run it once or twice in a private session, judge what came out.

The driver never runs a recorded cell itself. It starts the runner as a child (in a sandbox, where there is
one), hands a person's answers to it, and reads what came out from the replay's own journal. The record that
is replayed is only read.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Literal

import msgspec
from msgspec import Struct

from kernel_runtime.client import session_files, spawn
from kernel_runtime.errors import SupervisorFault, from_json
from kernel_runtime.journal import JournalReader
from kernel_runtime.replay import workspace
from kernel_runtime.replay.orders import KEY, Answer, Event, Order, Orders
from kernel_runtime.replay.plan import Asked, Plan, Ran, Run, Step
from kernel_runtime.replay.plan_journal import plan_of_journal
from kernel_runtime.replay.sandbox import Allowed, confine

DEFAULT_TIMEOUT = 600.0
"""seconds a step may take of which the record does not say how long it took"""
LEAST_TIMEOUT, TIMES_RECORDED = 60.0, 10.0
"""else: so many times what was recorded, and not less than that"""
_ENDING = 30.0
"""seconds the runner has for stopping its session"""
_PRINCIPAL = "agent:replay"
_RUNNER = "kernel_runtime.replay.runner"

Ask = Callable[[str, bool], str | None]
"""`(prompt, hidden)` → the person's answer, None for the end of input"""
Progress = Callable[[int, int], None]
"""`(steps that have ended, steps)`"""


class How(Struct, frozen=True, kw_only=True):
    """How a plan is run."""

    inputs: Literal["recorded", "ask", "none"] = "recorded"
    secrets: Literal["ask", "skip"] = "skip"
    timeout: float | None = None
    """seconds for each step; 0: no bound; None: by what was recorded"""
    keep: str | None = None
    """the name of the session that stays"""
    principal: str = _PRINCIPAL
    python: str = sys.executable
    """the interpreter of the environment that it runs in"""
    allowed: Allowed = Allowed()
    """what may really happen; a session that stays is not confined"""
    ask: Ask | None = None
    progress: Progress | None = None


def with_skips(plan: Plan, how: How) -> Plan:
    """The plan with what cannot be answered left out: steps that asked for a secret."""
    steps: list[Step] = []
    for step in plan.steps:
        why = step.skip
        secret = any(asked.is_secret for asked in step.inputs)
        if why is None and secret and how.secrets == "skip":
            taken = "the answer was redacted" if "input" in step.redacted else "no record holds the answer"
            why = f"it asked for a secret: {taken} (--secrets ask asks you)"
        elif why is None and step.inputs and how.inputs == "none":
            why = "it asked for input (--inputs none)"
        steps.append(msgspec.structs.replace(step, skip=why))
    return msgspec.structs.replace(plan, steps=steps)


def run(plan: Plan, how: How) -> Run:
    """Run a plan once, confined to what is allowed.

    Raises:
        KernelRuntimeError: what kept the private session from running: no kernel, no space.
        KeyboardInterrupt: nothing is left behind.
    """
    if how.keep is None and not any(step.skip is None for step in plan.steps):
        return Run(ran=[Ran(number=step.number, skip=step.skip) for step in plan.steps])
    with workspace.Workspace() as places_:
        return _Driving(plan, how, places_).run()


class _Driving:
    def __init__(self, plan: Plan, how: How, where: workspace.Workspace) -> None:
        self._plan = plan
        self._how = how
        self._where = where
        self._ran = {step.number: Ran(number=step.number, skip=step.skip) for step in plan.steps}
        self._ended = 0
        may = how.allowed if how.keep is None else Allowed(everything=True)
        self._sandbox = confine(plan.cwd, where.directory, may, python=how.python)

    def run(self) -> Run:
        started = time.monotonic()
        orders = self._orders()
        path = self._where.directory / "orders.json"
        path.write_bytes(msgspec.json.encode(orders))
        path.chmod(0o600)
        if self._plan.bounds is not None and self._how.keep is None:
            self._where.home.mkdir(mode=0o700)
            (self._where.home / "bounds.json").write_bytes(msgspec.json.encode(self._plan.bounds))
        self._drive(orders)
        seconds = time.monotonic() - started
        found = self._read()
        return msgspec.structs.replace(found, seconds=seconds, sandbox=self._sandbox.document())

    def _orders(self) -> Orders:
        plan, how = self._plan, self._how
        return Orders(
            session=how.keep or self._where.session,
            kernel=plan.kernel,
            cwd=self._sandbox.cwd,
            principal=how.principal,
            steps=[
                Order(
                    number=step.number,
                    source=step.source,
                    incarnation=step.incarnation,
                    cell_id=step.cell_id,
                    inputs=step.inputs,
                    allow_stdin=step.allow_stdin or how.inputs == "ask",
                    store_history=step.store_history,
                    waits=step.waits,
                    timeout=self._timeout(step),
                )
                for step in plan.steps
                if step.skip is None
            ],
            waits=plan.waits,
            ask=how.inputs == "ask",
            ask_secrets=how.secrets == "ask",
            keep=how.keep is not None,
        )

    def _timeout(self, step: Step) -> float | None:
        if self._how.timeout is not None:
            return self._how.timeout or None
        if step.seconds is None:
            return DEFAULT_TIMEOUT
        return max(LEAST_TIMEOUT, TIMES_RECORDED * step.seconds)

    def _environment(self) -> dict[str, str]:
        environment = dict(os.environ)
        if self._how.keep is None:
            environment["KRT_HOME"] = str(self._where.home)
            environment["KRT_RUNTIME_DIR"] = str(self._where.runtime)
        return environment | self._sandbox.environment

    def _drive(self, orders: Orders) -> None:
        """Start the runner, listen until it is done, and see it end."""
        log = self._where.directory / "runner.log"
        with log.open("wb") as errors:
            runner = subprocess.Popen(
                [*self._sandbox.prefix, self._how.python, "-P", "-m", _RUNNER, str(self._where.directory)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=self._environment(),
                cwd=self._where.directory,
                # Ctrl-C is for us: we tell it, and wait
                start_new_session=True,
            )
        last: Event | None = None
        try:
            assert runner.stdout is not None
            for line in runner.stdout:
                last = msgspec.json.decode(line, type=Event)
                self._heard(last, runner, len(orders.steps))
        finally:
            with contextlib.suppress(BrokenPipeError):
                assert runner.stdin is not None
                runner.stdin.close()
            try:
                runner.wait(_ENDING)
            except subprocess.TimeoutExpired:
                runner.kill()
                runner.wait()
            assert runner.stdout is not None
            runner.stdout.close()
        if last is not None and last.kind == "failed":
            raise from_json(last.error or {})
        if last is None or last.kind != "done":
            raise SupervisorFault(
                f"the replay of {self._plan.source} ended before it was done: its runner "
                f"{_how_it_ended(runner.returncode)}",
                hint=f"what it said:\n{spawn.tail(log) or '(nothing)'}",
            )

    def _heard(self, event: Event, runner: subprocess.Popen[bytes], total: int) -> None:
        ran = self._ran.get(event.number)
        if ran is None:
            return
        if event.kind == "question":
            answer = self._answered(event)
            assert runner.stdin is not None
            runner.stdin.write(msgspec.json.encode(answer) + b"\n")
            runner.stdin.flush()
        elif event.kind == "asked":
            ran.asked.append(
                Asked(prompt=event.prompt, how=event.how, recorded=event.recorded, password=event.password)
            )
        elif event.kind == "unasked":
            ran.unasked.append(event.prompt)
        elif event.kind == "remark":
            ran.remarks.append(event.text)
        elif event.kind == "not-run":
            ran.skip = event.text
        if event.kind in ("ended", "not-run"):
            self._ended += 1
            if self._how.progress is not None:
                self._how.progress(self._ended, total)

    def _answered(self, event: Event) -> Answer:
        if self._how.ask is None:
            return Answer(eof=True)
        text = self._how.ask(event.prompt, event.password)
        return Answer(eof=True) if text is None else Answer(text=text)

    # what came out

    def _read(self) -> Run:
        path = self._where.journal
        if self._how.keep is not None:
            path = session_files.load(self._how.keep).journal
        with JournalReader.open(path) as reader:
            came = plan_of_journal(reader, "replay")
        by_key = {step.key: step for step in came.steps}
        for number, ran in self._ran.items():
            step = by_key.get(KEY.format(number))
            if step is None or step.outcome == "aborted":
                continue
            ran.step = msgspec.structs.replace(step, number=number)
        return Run(
            ran=[self._ran[step.number] for step in self._plan.steps],
            names=came.names,
            environment=came.environment,
        )


def _how_it_ended(status: int) -> str:
    return f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
