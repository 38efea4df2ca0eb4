"""What the kernel says: recorded, then shown, then understood.

Our kernel is read from its outbox only, any other from its iopub socket. A batch is journaled before
its frames are published. When the journal refuses, the outbox is read again from the last recorded
position, and a foreign kernel's messages wait in memory.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import structs

from kernel_runtime.core.lifecycle import messages as m
from kernel_runtime.errors import EnvironmentFault
from kernel_runtime.kernel.outbox_reader import Gap, StreamText, WireMessage
from kernel_runtime.supervisor import observed
from kernel_runtime.supervisor.door import FrontDoor
from kernel_runtime.supervisor.foreign import ForeignVoice
from kernel_runtime.supervisor.link import KernelLink
from kernel_runtime.supervisor.reactor import Reactor, Timer
from kernel_runtime.supervisor.recorder import OUTPUT_TYPES, Recorder, sayable, stream_frames
from kernel_runtime.supervisor.shell import RETRY, Shell
from kernel_runtime.testing.failpoints import reach
from kernel_runtime.wire import DELIMITER, BadMessage, Header, decode_header, decode_json

log = logging.getLogger("kernel_runtime.supervisor")

_CHUNK = 1 << 20
_ROUNDS = 8
"""chunks taken before other sockets have their turn: a cell that prints for ever stays interruptible"""
_SHORT_CELL = 0.005
"""seconds within which a cell that ends is told in one go; a longer one is followed from then on"""
_STREAM_PAUSE = 0.025
"""seconds between looks at text that keeps coming: it is merged meanwhile"""

_PROBE_PAUSE = 0.02
_LOOKS = 12
"""pauses, each twice the last, until what the probe saw is left to be read with the next cell"""

_LINE_PAUSE = 0.03
"""seconds that an unfinished line may take to be finished"""
_MOST_HELD = 256 << 10
"""bytes of text that are held for what comes after them; a line may have no end"""

Frames = Sequence[bytes]


class Pump:
    """Moves messages from one kernel to the journal and the front door."""

    def __init__(
        self,
        shell: Shell,
        reactor: Reactor,
        door: FrontDoor,
        recorder: Recorder,
        *,
        probe_session: str,
        on_reply: Callable[[Header, Frames], None],
        on_input: Callable[[Header, Frames], None],
    ) -> None:
        self._shell = shell
        self._reactor = reactor
        self._door = door
        self._recorder = recorder
        self._probe_session = probe_session
        self._on_reply = on_reply
        self._on_input = on_input
        self.link: KernelLink | None = None
        self.incarnation = 0
        self._publish: list[tuple[bytes, Frames]] = []
        self._recorded = 0
        self._taking = 0
        self._shown = 0
        """how far the outbox has been published; clients take a second copy of a message for a forgery"""
        self._inherited = False
        self._timer: Timer | None = None
        self.voice = ForeignVoice(reactor, lambda: shell.state, self)
        self._told: set[str | None] = set()
        self._held: StreamText | None = None
        self._unobserved: str | None = None
        """msg_id of an execution that ended and whose observation has not come"""
        self._looks = 0

    def attach(self, link: KernelLink, incarnation: int, position: int, *, inherited: bool = False) -> None:
        """Read this kernel from now on; `inherited`: another supervisor may have published some of it."""
        self._taking = self._shown = 0
        self._inherited = inherited
        self.link = link
        self._unobserved = None
        self.incarnation = incarnation
        self._recorded = position
        self._recorder.position = position or None
        self._recorder.trusts_json = link.record.outbox is not None

    # -- our kernel

    def rung(self) -> None:
        """The doorbell: something is in the outbox."""
        if self.link is None or self.link.outbox is None:
            return
        self.link.outbox.drain()
        self.read()

    def expect(self) -> None:
        """A request is about to be sent: a short cell's messages are taken all at once, when it ends."""
        link = self.link
        if link is None or link.outbox is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        link.outbox.arm(3)
        self._again(_SHORT_CELL)

    def read(self, *, to_end: bool = False, hold: bool = True) -> bool:
        """Take what is in the outbox; False when the journal refused it (it will be tried again).

        With `hold`, a line that is not finished yet gets a moment to be.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        link = self.link
        if link is None or not link.open_outbox():
            return True
        rounds = 0
        text_only = True
        try:
            while records := link.read_outbox(_CHUNK):
                for record in records:
                    text_only &= isinstance(record, StreamText)
                    self._take(record)
                rounds += 1
                if hold and rounds == 1 and not to_end and _is_open_line(records[-1], self._held):
                    self._wait_for_line(link)
                    return True
                self.flush(gaps=to_end)
                if rounds >= _ROUNDS and not to_end:
                    self._again(0)
                    return True
            if self._has_taken():
                self.flush(gaps=to_end)
        except EnvironmentFault as error:
            self._refused(error)
            return False
        if to_end or self.link is not link:
            self._inherited = self._inherited and not to_end
            return True
        outbox = link.outbox
        if outbox is None:
            return True
        if rounds and text_only:
            # more text is likely: look again soon, and be woken at once by anything else
            outbox.arm(2)
            self._again(_STREAM_PAUSE)
        else:
            outbox.arm(1)
            if self._recorder.has_gaps:
                self._again(1.0)
            elif self._unobserved is not None and self._looks < _LOOKS:
                # the probe rings for nobody: what it saw comes with the next cell, or now
                self._again(_PROBE_PAUSE * 2**self._looks)
                self._looks += 1
        return True

    def _wait_for_line(self, link: KernelLink) -> None:
        """Look again soon: `print` writes its text and its newline apart, and they are one message."""
        if self.link is link and link.outbox is not None:
            link.outbox.arm(2)
        self._again(_LINE_PAUSE)

    def _has_taken(self) -> bool:
        recorder = self._recorder
        return self._held is not None or recorder.has_output or recorder.has_gaps or recorder.has_facts

    def _again(self, seconds: float) -> None:
        self._timer = self._reactor.after(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        self.read(hold=False)

    def _refused(self, error: EnvironmentFault) -> None:
        log.warning("output waits in the outbox: %s", error.message)
        self.forget()
        if self.link is not None:
            self.link.rewind(self._recorded)
        self._recorder.position = self._recorded or None
        if self._timer is None:
            self._again(RETRY)

    def _take(self, record: StreamText | WireMessage | Gap) -> None:
        self._taking = record.position
        if isinstance(record, StreamText):
            self._stream(record)
            self._recorder.position = record.position
            return
        self._release()
        if isinstance(record, Gap):
            self._recorder.gap(self._running_id(), "outbox-bound", record.messages, record.bytes)
        else:
            try:
                self._message(record)
            except BadMessage as error:
                # code in a cell may send anything; what cannot be read must not be read again and again
                self.unreadable(record.frames, error)
        self._recorder.position = record.position

    def _message(self, record: WireMessage) -> None:
        if record.channel == "probe":
            self._observed(record.frames, record.position)
            return
        at = record.frames.index(DELIMITER)
        frames = record.frames[at + 1 :]
        if record.channel == "iopub":
            self.iopub(record.frames[0] if at else b"", frames)
            return
        header = decode_header(frames[1])
        parent = decode_header(frames[2])
        if header.msg_type == "execute_reply":
            if not self._recorder.has_output and not self._recorder.has_gaps:
                # one transaction for what the probe saw of the last execution and the end of this one
                self._shell.carry = self._recorder.take(self.incarnation)
            else:
                self.flush(gaps=True)
            self.replied(parent, frames, record.position)
            if self._shell.carry:
                self._shell.carry = ()
                self.flush()
            else:
                self._recorder.journaled(())
            if self.link is not None and self.link.record.observes:
                self._unobserved, self._looks = parent.msg_id, 0
        elif header.msg_type == "input_request":
            self.flush(gaps=True)
            self.asked(parent, frames, record.position)

    def _observed(self, frames: Frames, position: int) -> None:
        """The probe looked at the heap, after an execution or between two."""
        if len(frames) != 3:
            raise BadMessage(f"{len(frames)} frames on channel probe")
        if frames[0] == observed.OBSERVED and decode_header(frames[1]).msg_id == self._unobserved:
            self._unobserved = None
        self._recorder.observe(observed.fact_of(frames, self._recorder.owner(frames[1]), position))

    @property
    def is_observed(self) -> bool:
        """False while the probe still looks at what the last execution did."""
        return self._unobserved is None

    def unsupervised(self, execution_id: str) -> None:
        """A foreign kernel ran this while no supervisor heard it: how much it said nobody knows."""
        self._recorder.gap(execution_id, "unsupervised", 0, 0)
        try:
            self.flush(gaps=True)
        except EnvironmentFault as error:
            log.warning("a gap waits for the journal: %s", error.message)

    def unended(self, execution_id: str) -> None:
        """A foreign kernel replied and its idle was not heard: whether it said more nobody knows.

        Raises:
            EnvironmentFault: the journal refused; to be told again.
        """
        self._recorder.gap(execution_id, "no-idle", 0, 0)
        self.flush(gaps=True)

    def unreadable(self, frames: Frames, error: BadMessage) -> None:
        """Count a message that is not one."""
        log.warning("a message of the kernel cannot be read: %s", error)
        self._recorder.gap(self._running_id(), "unreadable", 1, sum(map(len, frames)))

    def _stream(self, record: StreamText) -> None:
        """Hold the text until something else comes or `flush`: pieces of one stream are one message."""
        held = self._held
        same = held is not None and (held.name, held.parent) == (record.name, record.parent)
        if held is not None and same and len(held.text) < _MOST_HELD:
            record = structs.replace(record, text=held.text + record.text)
        elif held is not None:
            self._say(held)
        self._held = record

    def _release(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            self._say(held)

    def _say(self, record: StreamText) -> None:
        content = self._recorder.stream(record.name, record.parent, record.text)
        if content is None:
            self._tell_gap(record.parent)
            return
        frames = stream_frames(self._door.signer, self._door.session, record.parent, content)
        self._publish.append((b"stream." + record.name.encode(), frames))

    # -- any kernel

    def forget(self) -> None:
        """What was taken could not be journaled, and comes again."""
        self._held = None
        self._recorder.forget()
        self._shell.carry = ()
        self._publish.clear()

    def iopub(self, topic: bytes, frames: Frames) -> None:
        """Take an iopub message; `flush` journals and publishes it."""
        header = decode_header(frames[1])
        # one voice: what is said under another session's name than the last message was is, to a page,
        # another kernel's, and what it has not yet looked at of the first one's is dropped
        self._door.session = header.session or self._door.session
        kind = header.msg_type
        if kind in OUTPUT_TYPES:
            if not self._recorder.output(kind, frames):
                self._tell_gap(frames[2])
                return
            self._publish.append((topic, frames))
            if kind == "error":
                parent = decode_header(frames[2])
                content = _dict(frames[4])
                self._shell.apply(m.ErrorSeen(msg_id=parent.msg_id, error=_error(content)))
            return
        parent = decode_header(frames[2])
        if parent.session == self._probe_session or kind == "iopub_welcome":
            return  # the supervisor's own questions are nobody's business
        if self._inherited:
            self._publish.append((topic, self._anew(frames)))
        elif self._taking == 0 or self._taking > self._shown:
            self._publish.append((topic, frames))
        if kind == "status" and parent.msg_type == "execute_request" and b'"idle"' in frames[4]:
            self.flush(gaps=True)
            self._shell.apply(m.WentIdle(msg_id=parent.msg_id))

    def replied(
        self, parent: Header, frames: Frames, position: int | None, arrived: int | None = None
    ) -> None:
        """An execute_reply; `arrived` (monotonic ns) stands in where a kernel does not tell when it ended."""
        content = _dict(frames[4])
        metadata = _dict(frames[3])
        ours = metadata.get("krt") if isinstance(metadata.get("krt"), dict) else None
        payload = content.get("payload")
        exiting = isinstance(payload, list) and any(
            isinstance(item, dict) and item.get("source") == "ask_exit" for item in payload
        )
        status = str(content.get("status", ""))
        self._on_reply(parent, frames)
        self._shell.apply(
            m.Replied(
                msg_id=parent.msg_id,
                status=status,
                execution_count=_int(content.get("execution_count")),
                error=_error(content) if status == "error" and content.get("ename") else None,
                exiting=exiting,
                sigint_at=_int(ours.get("sigint_ns")) if ours else None,
                finished_at=_int(ours.get("finished_ns")) if ours else arrived,
                reply=_lean(content),
                position=position,
            )
        )
        if position is not None:
            self._advance(position)

    def asked(self, parent: Header, frames: Frames, position: int | None) -> None:
        """An input_request."""
        content = _dict(frames[4])
        self._shell.apply(
            m.InputAsked(
                msg_id=parent.msg_id,
                prompt=str(content.get("prompt", "")),
                password=bool(content.get("password")),
                since=datetime.now(UTC).isoformat(),
                position=position,
            )
        )
        if position is not None:
            self._advance(position)
        self._on_input(parent, frames)

    def flush(self, *, gaps: bool = False) -> None:
        """Journal what was taken, then publish it.

        Raises:
            EnvironmentFault: the journal refused; nothing was published.
        """
        self._release()
        drafts = self._recorder.take(self.incarnation, gaps=gaps)
        if drafts:
            reach("on-output")
            self._shell.journal.append(drafts, sync=False)
            reach("after-output")
            self._recorder.journaled(drafts)
            position = self._recorder.position
            if position is not None:
                self._advance(position)
            self._shell.committed()
        publish, self._publish = self._publish, []
        for topic, frames in publish:
            self._door.publish(topic, frames)
        self._shown = max(self._shown, self._taking)

    def _anew(self, frames: Frames) -> Frames:
        """The same message under another msg_id, and so with another signature."""
        header = {**decode_json(frames[1]), "msg_id": str(uuid.uuid4())}
        body = [msgspec.json.encode(header), *frames[2:5]]
        return [self._door.signer.sign(body), *body, *frames[5:]]

    def _advance(self, position: int) -> None:
        self._recorded = position
        if self.link is not None and self.link.outbox is not None:
            self.link.outbox.collected(position)

    def _tell_gap(self, parent: bytes) -> None:
        """Once per execution, on stderr, so that a Jupyter client knows why it sees no more."""
        owner = self._recorder.owner(parent)
        if owner in self._told:
            return
        if len(self._told) > 1000:
            self._told.clear()
        self._told.add(owner)
        text = "\n[kernel_runtime: an output bound is reached; what follows is counted, not kept]\n"
        content = msgspec.json.encode({"name": "stderr", "text": text})
        frames = stream_frames(self._door.signer, self._door.session, parent, content)
        self._publish.append((b"stream.stderr", frames))

    def _running_id(self) -> str | None:
        running = self._shell.state.running
        return running.execution.execution_id if running is not None else None


def _is_open_line(record: object, held: StreamText | None) -> bool:
    if not isinstance(record, StreamText) or record.text.endswith(b"\n"):
        return False
    return held is None or len(held.text) < _MOST_HELD


def _dict(frame: bytes) -> dict[str, Any]:
    try:
        return decode_json(frame)
    except BadMessage:
        return {}


def _int(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _error(content: dict[str, Any]) -> dict[str, Any]:
    traceback = content.get("traceback")
    return {
        "ename": _text(content.get("ename", "")),
        "evalue": _text(content.get("evalue", "")),
        "traceback": [_text(line) for line in traceback] if isinstance(traceback, list) else [],
    }


def _text(value: object) -> str:
    return str(sayable(str(value)))


def _lean(content: dict[str, Any]) -> dict[str, Any]:
    """A reply without what the entry already holds elsewhere."""
    kept = {k: v for k, v in content.items() if k in ("user_expressions", "payload") and v}
    return sayable(kept)  # type: ignore[no-any-return]
