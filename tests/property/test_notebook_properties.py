"""Laws of the merge: whatever people and the session do in turn, nobody's text is lost."""

import copy
import json
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kernel_runtime.notebook.merge import Merged
from kernel_runtime.notebook.render import NotebookBuilder
from tests.unit.notebook.sessions import FakeJournal, Script, load, source_of

places = st.integers(0, 30)
ids = st.sampled_from(["a", "b", "c", "d", "e"])


class TwoAuthors(RuleBasedStateMachine):
    """A session that runs cells, people who edit the document, an editor with an older copy of it."""

    def __init__(self) -> None:
        super().__init__()
        journal = FakeJournal()
        self.session = Script(journal.append)
        self.builder = NotebookBuilder(journal)
        self.document: Any = None
        self.stale: Any = None
        self.written: set[str] = set()
        """texts people wrote and did not take out"""
        self.count = 0
        self.dirty = False
        """people saved since the session wrote"""
        self.merged = Merged("")
        self.write(anew=True)

    def text(self) -> str:
        self.count += 1
        return f"people {self.count}"

    @rule(cell_id=ids, outcome=st.sampled_from(["ok", "error", "aborted"]))
    def run(self, cell_id: str, outcome: str) -> None:
        self.count += 1
        if outcome == "aborted":
            self.session.finish(self.session.queue(f"session {self.count}", cell_id), "aborted")
        else:
            self.session.run(f"session {self.count}", cell_id, outcome=outcome)
        self.write(anew=self.dirty)

    @rule(at=places, kind=st.sampled_from(["code", "markdown"]), cell_id=ids | st.none())
    def add(self, at: int, kind: str, cell_id: str | None) -> None:
        text = self.text()
        cell: dict[str, Any] = {"cell_type": kind, "metadata": {}, "source": text}
        taken = {other.get("id") for other in self.document["cells"]}
        if cell_id is not None and cell_id not in taken:
            cell["id"] = cell_id
        if kind == "code":
            cell |= {"outputs": [], "execution_count": None}
        self.document["cells"].insert(at, cell)
        self.written.add(text)
        self.dirty = True

    @precondition(lambda self: self.document["cells"])
    @rule(at=places)
    def edit(self, at: int) -> None:
        cell = self.document["cells"][at % len(self.document["cells"])]
        self.written.discard(source_of(cell))
        cell["source"] = self.text()
        self.written.add(cell["source"])
        self.dirty = True

    @precondition(lambda self: self.document["cells"])
    @rule(at=places)
    def delete(self, at: int) -> None:
        cell = self.document["cells"].pop(at % len(self.document["cells"]))
        self.written.discard(source_of(cell))
        self.dirty = True

    @rule(order=st.randoms(use_true_random=False))
    def move(self, order: Any) -> None:
        order.shuffle(self.document["cells"])
        self.dirty = True

    @rule()
    def strip(self) -> None:
        for part in [self.document, *self.document["cells"]]:
            part["metadata"] = {}
        self.dirty = True

    @rule()
    def open_editor(self) -> None:
        self.stale = copy.deepcopy(self.document)

    @precondition(lambda self: self.stale is not None)
    @rule()
    def save_stale(self) -> None:
        """What was written since is what that person chose to overwrite; the session's cells come back."""
        self.document, self.stale = self.stale, None
        self.written &= {source_of(cell) for cell in self.document["cells"]}
        self.dirty = True

    @precondition(lambda self: self.dirty)
    @rule()
    def news(self) -> None:
        self.session.run("news", "news")
        self.write(anew=True)

    def write(self, *, anew: bool) -> None:
        """With `anew` the file is read again, else only the journal's news are taken in."""
        self.dirty = False
        changed = self.builder.refresh()
        if anew or self.document is None:
            self.merged = Merged(self.builder.session_id)
            if self.document is not None:
                self.merged.take(json.loads(json.dumps(self.document)))
        self.merged.settle(self.builder.cells, changed)
        self.document = load(self.merged.bytes(self.builder.metadata()))

    @precondition(lambda self: not self.dirty)
    @invariant()
    def nobodys_text_is_lost(self) -> None:
        there = {source_of(cell) for cell in self.document["cells"]}
        assert self.written <= there

    @precondition(lambda self: not self.dirty)
    @invariant()
    def ids_are_unique(self) -> None:
        found = [cell["id"] for cell in self.document["cells"]]
        assert len(set(found)) == len(found)

    @precondition(lambda self: not self.dirty)
    @invariant()
    def writing_again_changes_nothing(self) -> None:
        again = Merged(self.builder.session_id)
        again.take(copy.deepcopy(self.document))
        again.settle(self.builder.cells, ())
        assert load(again.bytes(self.builder.metadata())) == self.document

    @precondition(lambda self: not self.dirty)
    @invariant()
    def what_is_marked_is_true(self) -> None:
        digests = {cell_id: cell.source_digest for cell_id, cell in self.builder.cells.items()}
        sources = self.merged.sources(self.builder.cells)
        for cell in self.document["cells"]:
            if cell["cell_type"] != "code":
                continue
            truth = cell["metadata"]["kernel_runtime"].get("truth")
            if cell["id"] not in digests:
                assert truth == "not-run"
            else:
                assert (truth == "edited") == (sources[cell["id"]] != digests[cell["id"]])


TestTwoAuthors = pytest.mark.timeout(300)(TwoAuthors.TestCase)
TestTwoAuthors.settings = settings(max_examples=60, stateful_step_count=25)
