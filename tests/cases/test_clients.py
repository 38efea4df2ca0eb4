"""Many clients: M42 M43 M45."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kernel_runtime as kr
from kernel_runtime.client import session_files
from kernel_runtime.errors import StillRunning
from tests.cases.conftest import Attach
from tests.cases.support import cell_of, notebook_of, running, stopped
from tests.support import eventually, waits


def test_m42_failing_cell_aborts_its_own_client_only(
    shared: kr.Session, attach: Attach, tmp_path: Path
) -> None:
    """A stock kernel aborts everybody's queue when one cell fails. Here A's failure aborts what A had
    queued and nothing of B's.
    """
    b = attach(shared.name, principal="agent:b")
    gate = tmp_path / "gate"
    failing = shared.submit(waits(gate) + "1 / 0")
    eventually(lambda: running(shared, failing), what="running")
    of_a, of_b = shared.submit("'a'"), b.submit("'b'")
    gate.touch()
    assert failing.wait(timeout=30).outcome == "error"
    assert of_a.wait(timeout=30).outcome == "aborted"
    assert of_a.evidence["after"] == failing.execution_id
    assert (of_b.wait(timeout=30).outcome, of_b.text) == ("ok", "'b'")


def test_m43_time_limit_and_the_next_call(shared: kr.Session, tmp_path: Path) -> None:
    """A time limit ends the waiting and not the cell. The next call is queued behind it; the two do not
    overlap, and both have their outcome.
    """
    shared.execute("import time; spans = []")
    cell = "began = time.monotonic()\n{}spans.append((began, time.monotonic()))"
    gate = tmp_path / "gate"
    with pytest.raises(StillRunning) as limit:
        shared.execute(cell.format(waits(gate)), timeout=0.3)
    first = shared.execution(limit.value.fields["execution_id"])
    eventually(lambda: running(shared, first), what="running")
    second = shared.submit(cell.format(""))
    assert second.status == "queued"
    gate.touch()
    assert second.wait(timeout=30).outcome == "ok"
    assert first.refresh().outcome == "ok"
    assert shared.execute("len(spans), spans[0][1] <= spans[1][0]").text == "(2, True)"


def edit(path: Path, change: Any) -> None:
    """Save the notebook as an editor does: whole, over the old one."""
    document = json.loads(path.read_bytes())
    change(document)
    path.write_text(json.dumps(document, indent=1))


def test_m45_person_edits_the_file_while_the_agent_runs(tmp_path: Path) -> None:
    """A person saves the notebook while cells run. What they wrote is theirs and stays: text, a new cell,
    an edited source, each marked with its truth; what the agent ran is there too, with its outputs.
    """
    path = tmp_path / "both.ipynb"
    with stopped("m45", notebook=str(path)) as session:
        session.execute("x = 1", cell_id="first")
        second = session.execute("print('two')", cell_id="second")
        cell_of(session.name, second)

        def theirs(document: dict[str, Any]) -> None:
            document["cells"].insert(
                0, {"cell_type": "markdown", "id": "head", "metadata": {}, "source": "# Mine"}
            )
            next(c for c in document["cells"] if c["id"] == "first")["source"] = "x = 1000"
            document["cells"].append(
                {
                    "cell_type": "code",
                    "id": "new",
                    "metadata": {},
                    "source": "mine()",
                    "outputs": [],
                    "execution_count": None,
                }
            )

        gate = tmp_path / "gate"
        x = session.submit(waits(gate) + "print('agent')", cell_id="third")
        eventually(lambda: running(session, x), what="running")
        edit(path, theirs)
        status = session.status()
        assert status.cells["first"].truth == "edited"
        assert status.cells["new"].truth == "not-run"
        gate.touch()
        assert x.wait(timeout=30).outcome == "ok"
        cell_of(session.name, x)

        cells = {cell.id: cell for cell in notebook_of(session.name).cells}
        assert cells["head"].source == "# Mine"
        assert cells["first"].source == "x = 1000"
        assert cells["new"].source == "mine()"
        assert cells["third"].outputs[0].text == "agent\n"
        assert cells["second"].outputs[0].text == "two\n"
        assert session.status().cells["first"].truth == "edited"
        assert session.execute("x").text == "1"


def test_m45_both_change_one_cell(tmp_path: Path) -> None:
    """A person edits the very cell that the agent runs with other source: the agent's is in the cell with
    its output, the person's text in one after it, and neither is lost.
    """
    path = tmp_path / "conflict.ipynb"
    with stopped("m45-one", notebook=str(path)) as session:
        cell_of(session.name, session.execute("y = 1", cell_id="same"))
        gate = tmp_path / "gate"
        x = session.submit(waits(gate) + "y = 2; y", cell_id="same")
        eventually(lambda: running(session, x), what="running")

        def theirs(document: dict[str, Any]) -> None:
            next(c for c in document["cells"] if c["id"] == "same")["source"] = "y = 'human'"

        edit(path, theirs)
        gate.touch()
        x.wait(timeout=30)
        cell_of(session.name, x)
        cells = notebook_of(session.name).cells
        at = next(i for i, cell in enumerate(cells) if cell.id == "same")
        assert cells[at].source.endswith("y = 2; y")
        assert cells[at].outputs[0].data["text/plain"] == "2"
        assert cells[at + 1].source == "y = 'human'"
        assert cells[at + 1].metadata["kernel_runtime"]["truth"] == "not-run"


def test_m45_stale_editor_saves_over_newer_cells(tmp_path: Path) -> None:
    """An editor that opened the notebook before the agent's cell saves its old copy over it: the agent's
    cell comes back with the next write, and the editor's change stays.
    """
    path = tmp_path / "stale.ipynb"
    with stopped("m45-stale", notebook=str(path)) as session:
        cell_of(session.name, session.execute("a = 1", cell_id="old"))
        opened = json.loads(path.read_bytes())
        new = session.execute("print('newer')", cell_id="newer")
        cell_of(session.name, new)
        opened["cells"].append({"cell_type": "markdown", "id": "words", "metadata": {}, "source": "words"})
        path.write_text(json.dumps(opened))
        last = session.execute("'last'", cell_id="last")
        cell_of(session.name, last)
        cells = {cell.id: cell for cell in notebook_of(session.name).cells}
        assert set(cells) == {"old", "newer", "words", "last"}
        assert cells["newer"].outputs[0].text == "newer\n"
    assert session_files.load("m45-stale").notebook == str(path)
