"""Whatever is written, in whatever interleaving with reading, collecting and new readers, comes out."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kernel_runtime.kernel.outbox import OutboxWriter
from kernel_runtime.kernel.outbox_reader import OutboxReader, Record, StreamText, WireMessage

Item = tuple[str, bytes, object]
_names = st.sampled_from(["stdout", "stderr"])
_parents = st.sampled_from([b"{}", b'{"a":1}'])
_texts = st.text(max_size=30) | st.integers(1, 90_000).map(lambda n: "né" * n)


class OutboxMachine(RuleBasedStateMachine):
    """The model is a list: text of one stream and parent merges with the text before it."""

    def __init__(self) -> None:
        super().__init__()
        self.place = tempfile.TemporaryDirectory()
        self.box = Path(self.place.name) / "o"
        self.writer = OutboxWriter(str(self.box), segment=8192)
        self.reader = OutboxReader(self.box)
        self.written: list[Item] = []
        self.got: list[Item] = []

    @rule(
        name=st.sampled_from(["stdout", "stderr"]), parent=st.sampled_from([b"{}", b'{"a":1}']), text=_texts
    )
    def stream(self, name: str, parent: bytes, text: str) -> None:
        assert self.writer.stream(name, parent, text)
        if text:
            _add(self.written, (name, parent, text.encode()))

    @rule(
        channel=st.sampled_from(["iopub", "shell", "stdin"]),
        frames=st.lists(st.binary(max_size=40), min_size=1, max_size=6),
        pad=st.sampled_from([0, 0, 0, 5000, 20_000]),
    )
    def message(self, channel: str, frames: list[bytes], pad: int) -> None:
        frames = [*frames, b"p" * pad]
        assert self.writer.message(channel, frames)
        self.written.append((channel, b"", frames))

    @rule(limit=st.integers(1, 100_000))
    def read(self, limit: int) -> None:
        for record in self.reader.read(limit):
            _add(self.got, _item(record))

    @rule()
    def collect(self) -> None:
        self.reader.collected(self.reader.position)

    @rule()
    def new_reader(self) -> None:
        position = self.reader.position
        self.reader.close()
        self.reader = OutboxReader(self.box, position)

    @invariant()
    def what_was_read_is_a_prefix(self) -> None:
        for index, (got, written) in enumerate(zip(self.got, self.written, strict=False)):
            if index < len(self.got) - 1 or not isinstance(got[2], bytes):
                assert got == written
            else:
                assert isinstance(written[2], bytes)
                assert written[2].startswith(got[2])

    def teardown(self) -> None:
        self.read(1 << 40)
        assert self.got == self.written
        self.reader.close()
        self.writer.close()
        self.place.cleanup()


def _item(record: Record) -> Item:
    if isinstance(record, StreamText):
        return record.name, record.parent, record.text
    assert isinstance(record, WireMessage)
    return record.channel, b"", record.frames


def _add(items: list[Item], item: Item) -> None:
    last = items[-1] if items else None
    if last and last[:2] == item[:2] and isinstance(last[2], bytes) and isinstance(item[2], bytes):
        items[-1] = (*item[:2], last[2] + item[2])
    else:
        items.append(item)


TestOutbox = OutboxMachine.TestCase
TestOutbox.settings = settings(max_examples=60, stateful_step_count=40)
