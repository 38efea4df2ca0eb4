"""`python -m kernel_runtime.replay.runner DIRECTORY`: run the steps of DIRECTORY/orders.json in a session.

The session is an ordinary one, in the KRT_HOME that the environment names, and this is an ordinary client
of it: what came out is read from its journal afterwards, by the driver. Steps are queued some ahead, since
nothing that one of them does keeps the next from running; each incarnation of the record has a kernel of
its own. Once a kernel was lost, nothing more of its incarnation runs.

However this process ends but by SIGKILL, and when the driver is gone, the session is stopped first (unless
it is to be kept and all went well).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from kernel_runtime.client import session_files
from kernel_runtime.client.attaching import open_session
from kernel_runtime.client.session import AsyncSession
from kernel_runtime.errors import (
    HeapLost,
    IncarnationMismatch,
    InternalFault,
    KernelRuntimeError,
    KernelStartFailed,
    NotBlocked,
)
from kernel_runtime.model.entry import Entry
from kernel_runtime.model.facts import (
    EnvironmentRecorded,
    ExecutionFinished,
    ExecutionQueued,
    ExecutionStarted,
    InputAnswered,
    InputRequested,
    InputWithdrawn,
    KernelDied,
    KernelStopped,
    OutputRecorded,
)
from kernel_runtime.replay.orders import KEY, Answer, Event, Order, Orders
from kernel_runtime.replay.plan import Input, Wait
from kernel_runtime.replay.plan_journal import LateCounter

AHEAD = 64
"""steps that may be queued and not ended"""
COALESCE = 0.05
"""seconds between looks at what has come"""
LATE_SLACK = 2.0
"""seconds beyond what was recorded that late output may take"""
LATE_BOUND = 60.0
"""seconds that late output is waited for at most"""
EXTRA_QUESTIONS = 3
"""questions that are not in the record and get the end of input, before a step is interrupted"""
ENVIRONMENT = 3.0
"""seconds that a replay which is over waits for its environment to be recorded"""
INTERRUPTS = 3
"""times that a step is interrupted, each with its patience, before its kernel is stopped"""

_encoder = msgspec.json.Encoder()


class Runner:
    """One replay. `run` ends when all is done."""

    def __init__(self, orders: Orders, lines: asyncio.StreamReader) -> None:
        self._orders = orders
        self._lines = lines
        self._session: AsyncSession
        self._by_key = {KEY.format(order.number): order for order in orders.steps}
        self._by_id: dict[str, Running] = {}
        self._by_number: dict[int, Running] = {}
        self._room = asyncio.Semaphore(AHEAD)
        self._news = asyncio.Condition()
        self._unfinished = 0
        self._lost: str | None = None
        self._incarnation = 0
        """of the session"""
        self._recorded = 0
        """the last incarnation whose environment is on record"""
        self._restarting = False
        self._tasks: asyncio.TaskGroup
        self._asking = asyncio.Lock()

    async def run(self) -> None:
        orders = self._orders
        session_files.create(
            orders.session,
            kernel=orders.kernel,
            cwd=orders.cwd,
            principal=orders.principal,
            scratch=not orders.keep,
        )
        self._session = open_session(orders.session, principal=orders.principal)
        try:
            await self._session.attach(accept=True)
            async with asyncio.TaskGroup() as self._tasks:
                watching = self._tasks.create_task(self._watch())
                await self._feed()
                await self._environment()
                watching.cancel()
            if not orders.keep:
                await self._session.stop()
        except BaseException:
            await self._abandon()
            raise
        finally:
            await self._session.detach()

    async def _abandon(self) -> None:
        """Leave nothing running."""
        with contextlib.suppress(KernelRuntimeError):
            await self._session.stop()
        if self._orders.keep and not session_files.lives(self._session.file):
            with contextlib.suppress(KernelRuntimeError):
                session_files.remove(self._session.name)

    # feeding

    async def _feed(self) -> None:
        recorded: int | None = None
        for order in self._orders.steps:
            if order.incarnation != recorded:
                await self._end_incarnation(order.waits)
                await self._begin_incarnation()
                recorded = order.incarnation
            elif order.waits:
                await self._late(order.waits)
            if (lost := await self._submit(order)) is not None:
                _tell(Event(kind="not-run", number=order.number, text=lost))
        if self._incarnation == 0:  # a session that is kept, at a point before anything had ended
            await self._begin_incarnation()
        await self._end_incarnation(self._orders.waits)

    async def _begin_incarnation(self) -> None:
        self._lost = None
        try:
            if self._incarnation == 0:
                self._incarnation = await self._session.start()
            else:
                await self._restart()
        except KernelStartFailed as error:
            if self._incarnation == 0:
                raise
            self._lost = f"the kernel did not start again: {error.message}"

    async def _restart(self) -> None:
        self._restarting = True
        try:
            self._incarnation = await self._session.restart()
        finally:
            self._restarting = False

    async def _end_incarnation(self, waits: list[Wait]) -> None:
        """All has ended, what was recorded late has come, and the probe has told of the last step."""
        if self._incarnation == 0:
            return
        async with self._news:
            await self._news.wait_for(lambda: self._unfinished == 0)
        if self._lost is None:
            await self._late(waits)
            await self._session.status(limit=0)

    async def _environment(self) -> None:
        """The replay's own environment is on record, if the supervisor gets to it; it looks beside."""
        if self._lost is not None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ENVIRONMENT), self._news:
                await self._news.wait_for(lambda: self._recorded == self._incarnation)

    async def _submit(self, order: Order) -> str | None:
        """Queue a step, once there is room; why it cannot run any more, or None."""
        await self._room.acquire()
        if self._lost is None:
            self._by_number[order.number] = Running(order)
            self._unfinished += 1
            try:
                await self._session.submit(
                    order.source,
                    key=KEY.format(order.number),
                    cell_id=order.cell_id,
                    expect_incarnation=self._incarnation,
                    allow_stdin=order.allow_stdin,
                    stop_on_error=False,
                    store_history=order.store_history,
                )
            except (IncarnationMismatch, HeapLost):
                del self._by_number[order.number]
                self._unfinished -= 1
                lost = "the kernel of the replay ended"
                self._lost = self._why_lost() or lost
            else:
                return None
        self._room.release()
        return self._why_lost()

    def _why_lost(self) -> str | None:
        return self._lost

    async def _late(self, waits: list[Wait]) -> None:
        """Wait for late output as the record has it; not for ever."""
        for wait in waits:
            running = self._by_number.get(wait.number)
            if running is None:
                continue
            async with self._news:
                await self._news.wait_for(lambda running=running: running.ended_at is not None)  # type: ignore[misc]
                assert running.ended_at is not None
                bound = min(wait.late.seconds + LATE_SLACK, LATE_BOUND)
                left = running.ended_at + bound - asyncio.get_running_loop().time()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, left)):
                        await self._news.wait_for(
                            lambda running=running, late=wait.late: running.late.late().holds(late)  # type: ignore[misc]
                        )
            if not running.late.late().holds(wait.late):
                self._remark(
                    running, f"less late output came than was recorded, within {bound:.0f} s of its end"
                )

    # watching

    async def _watch(self) -> None:
        async for batch in self._session.follow_batches():
            heard = False
            for entry in batch:
                heard = self._take(entry) or heard
            if heard:
                async with self._news:
                    self._news.notify_all()
            # many entries at a time: asking for each one would cost more than small steps do
            await asyncio.sleep(COALESCE)

    def _take(self, entry: Entry) -> bool:
        """Whether somebody may wait for this."""
        fact = entry.fact
        if isinstance(fact, ExecutionQueued):
            order = self._by_key.get(fact.key or "")
            if order is not None:
                self._by_id[fact.execution_id] = self._by_number[order.number]
            return False
        if isinstance(fact, EnvironmentRecorded):
            self._recorded = entry.incarnation
            return True
        if isinstance(fact, KernelDied | KernelStopped):
            return self._kernel_gone(fact, entry.incarnation)
        running = self._by_id.get(entry.execution_id or "")
        if running is None:
            return False
        if isinstance(fact, OutputRecorded):
            if fact.late:
                running.late.add(fact.messages)
            return fact.late
        if isinstance(fact, ExecutionStarted):
            running.execution_id = fact.execution_id
            self._arm(running)
            _tell(Event(kind="started", number=running.order.number))
        elif isinstance(fact, InputRequested):
            running.disarm()
            self._tasks.create_task(self._answer(running, fact))
        elif isinstance(fact, InputAnswered | InputWithdrawn):
            if running.alarm is None:
                self._arm(running)
        elif isinstance(fact, ExecutionFinished):
            self._ended(running, fact)
            return True
        return False

    def _ended(self, running: Running, fact: ExecutionFinished) -> None:
        running.disarm()
        running.ended_at = asyncio.get_running_loop().time()
        self._room.release()
        self._unfinished -= 1
        number = running.order.number
        unasked = running.order.inputs[running.asked :] if fact.outcome in ("ok", "error") else []
        for recorded in (one for one in unasked if one.withdrawn is None):
            _tell(Event(kind="unasked", number=number, prompt=recorded.prompt))
        if fact.outcome == "aborted":
            _tell(Event(kind="not-run", number=number, text=self._lost or "it was aborted before it began"))
        else:
            _tell(Event(kind="ended", number=number, outcome=fact.outcome))

    def _kernel_gone(self, fact: KernelDied | KernelStopped, incarnation: int) -> bool:
        if self._restarting or incarnation != self._incarnation or self._lost is not None:
            return False
        how = ""
        if fact.signal is not None:
            how = f" (signal {fact.signal})"
        elif fact.exit_status is not None:
            how = f" (exit status {fact.exit_status})"
        self._lost = f"the kernel of the replay ended{how}"
        return True

    def _arm(self, running: Running) -> None:
        seconds = running.order.timeout
        if seconds is None:
            return
        why = f"it ran for {seconds:g} s"
        running.alarm = asyncio.get_running_loop().call_later(
            seconds, lambda: self._tasks.create_task(self._interrupt(running, why))
        )

    async def _interrupt(self, running: Running, why: str) -> None:
        if running.ended_at is not None or running.interrupted:
            return
        running.interrupted = True
        self._remark(running, f"it was interrupted: {why}")
        for _ in range(INTERRUPTS):
            reached = await self._session.interrupt(running.execution_id)
            if reached.ended or running.ended_at is not None:
                return
        self._remark(running, "no interrupt ended it: its kernel was stopped")
        self._lost = f"the kernel was stopped: step {running.order.number} could not be interrupted"
        await self._restart()

    # questions

    async def _answer(self, running: Running, fact: InputRequested) -> None:
        order = running.order
        recorded = running.recorded(fact.prompt)
        if not order.allow_stdin:
            return  # the supervisor sends the end of input, as it did
        how, answer = await self._choose(running, fact, recorded)
        _tell(
            Event(
                kind="asked",
                number=order.number,
                prompt=fact.prompt,
                recorded=None if recorded is None else recorded.prompt,
                password=fact.password,
                how=how,
            )
        )
        if answer is None:
            self._arm(running)
            return
        try:
            if answer.eof or answer.text is None:
                await self._session.answer(eof=True, execution_id=fact.execution_id)
            else:
                await self._session.answer(answer.text, execution_id=fact.execution_id)
        except NotBlocked:
            self._remark(running, "its question was withdrawn before it was answered")

    async def _choose(
        self, running: Running, fact: InputRequested, recorded: Input | None
    ) -> tuple[str, Answer | None]:
        secret = fact.password or not fact.echo
        if recorded is not None and recorded.withdrawn is not None:
            return "waited", None
        if self._orders.ask_secrets if secret else self._orders.ask:
            return "person", await self._person(running, fact)
        if recorded is not None and recorded.eof:
            return "recorded", Answer(eof=True)
        if recorded is not None and recorded.value is not None and not secret:
            return "recorded", Answer(text=recorded.value)
        if recorded is None:
            running.extra += 1
            if running.extra > EXTRA_QUESTIONS:
                await self._interrupt(
                    running, f"it asked {running.extra} questions that are not in the record"
                )
                return "waited", None
        return "end", Answer(eof=True)

    async def _person(self, running: Running, fact: InputRequested) -> Answer:
        async with self._asking:
            _tell(
                Event(
                    kind="question",
                    number=running.order.number,
                    prompt=fact.prompt,
                    password=fact.password or not fact.echo,
                )
            )
            line = await self._lines.readline()
        if not line:
            raise asyncio.CancelledError  # the driver is gone
        return msgspec.json.decode(line, type=Answer)

    def _remark(self, running: Running, text: str) -> None:
        _tell(Event(kind="remark", number=running.order.number, text=text))


class Running:
    """A step that was queued."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.execution_id = ""
        self.alarm: asyncio.TimerHandle | None = None
        self.asked = 0
        self.extra = 0
        self.ended_at: float | None = None
        self.interrupted = False
        self.late = LateCounter()

    def recorded(self, prompt: str) -> Input | None:
        """What the record has in the place of this question; None: it has none more.

        A question that nobody answered may have been seen by chance (a program that looked at the terminal),
        and is passed over where it is not this one.
        """
        left = self.order.inputs[self.asked :]
        unanswered = next((at for at, one in enumerate(left) if one.withdrawn is None), len(left))
        answered = left[unanswered] if unanswered < len(left) else None
        at = unanswered
        if answered is None or answered.prompt != prompt:
            at = next((at for at, one in enumerate(left[:unanswered]) if one.prompt == prompt), unanswered)
        self.asked += at + 1
        return left[at] if at < len(left) else None

    def disarm(self) -> None:
        if self.alarm is not None:
            self.alarm.cancel()
            self.alarm = None


def _tell(event: Event) -> None:
    os.write(1, _encoder.encode(event) + b"\n")


async def _main(directory: Path) -> int:
    orders = msgspec.json.decode((directory / "orders.json").read_bytes(), type=Orders)
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader(limit=1 << 24)
    running = loop.create_task(Runner(orders, lines).run())
    asked_to_stop = False

    def stop() -> None:
        nonlocal asked_to_stop
        if not asked_to_stop:  # once: a second time would keep the session from being stopped
            asked_to_stop = True
            running.cancel()

    await loop.connect_read_pipe(lambda: _Lifeline(lines, stop), sys.stdin)
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(signum, stop)
    try:
        await running
    except asyncio.CancelledError:
        return 130
    except Exception as error:  # noqa: BLE001 - told, as the error that it is
        _tell(Event(kind="failed", error=_document(error)))
        return 1
    _tell(Event(kind="done"))
    return 0


class _Lifeline(asyncio.StreamReaderProtocol):
    """The driver's end of our stdin; when it is gone, so are we."""

    def __init__(self, lines: asyncio.StreamReader, stop: Callable[[], None]) -> None:
        super().__init__(lines)
        self._stop = stop

    def eof_received(self) -> bool:
        super().eof_received()
        self._stop()
        return False


def _document(error: BaseException) -> dict[str, object]:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, KernelRuntimeError):
        return error.to_json()
    import traceback

    traceback.print_exception(error)
    return InternalFault(
        f"the replay's runner failed: {type(error).__name__}: {error}", hint="a bug: please report it"
    ).to_json()


if __name__ == "__main__":
    sys.exit(asyncio.run(_main(Path(sys.argv[1]))))
