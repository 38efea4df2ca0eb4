"""What an agent runs, as somebody sees it who has the notebook open."""

from __future__ import annotations

import base64
import json
import os
import re
import struct
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from playwright.sync_api import expect

import kernel_runtime as kr
from benchmarks.subjects import with_past
from kernel_runtime.model import facts as f
from tests.contract.stock import running_session
from tests.lab.gate import Gate
from tests.lab.page import NotebookPage, Open
from tests.lab.record import all_of, done, row, saved, text_of
from tests.lab.server import LabServer
from tests.support import eventually, krt


def test_a_cell_of_krt_exec_is_on_the_page_while_it_runs(
    session: kr.Session, notebook: NotebookPage, gate: Gate
) -> None:
    krt(
        "exec",
        session.name,
        f"print('first')\n{gate.wait}\nprint('second')",
        "--detach",
        "--as",
        "agent:planner",
    )
    notebook.shows("print('first')", "first")
    expect(notebook.cell("print('first')").locator(".jp-InputPrompt")).to_have_text("[*]:")
    expect(notebook.output("print('first')")).not_to_contain_text("second")
    gate.open()
    notebook.shows("print('first')", "second")
    notebook.counted("print('first')", 2)
    ended = done(session, "print('first')")
    assert (ended.principal, ended.outcome, ended.execution_count) == ("agent:planner", "ok", 2)
    assert text_of(session, "print('first')") == "first\nsecond\n"


def test_who_ran_it_and_when_is_with_the_cell(session: kr.Session, notebook: NotebookPage) -> None:
    krt("exec", session.name, "answer = 6 * 7; answer", "--as", "agent:planner")
    notebook.shows("answer = 6", "42")
    expect(notebook.badge("answer = 6")).to_contain_text("planner")
    ended = done(session, "answer = 6")

    def told() -> dict[str, Any] | None:
        cell = saved(session, "answer = 6")
        return cell if cell and cell["metadata"].get("kernel_runtime", {}).get("outcome") else None

    cell = eventually(told, 30, "the file has the cell and how it ended")
    assert cell is not None
    ours, timing = cell["metadata"]["kernel_runtime"], cell["metadata"]["execution"]
    assert cell["id"] == ended.cell_id
    assert ours["execution_id"] == ended.execution_id
    assert (ours["principal"], ours["outcome"], ours["incarnation"]) == ("agent:planner", "ok", 1)
    assert ours["source_digest"] == ended.source_digest
    assert timing["iopub.execute_input"] <= timing["shell.execute_reply"]


def test_an_image_is_shown(session: kr.Session, notebook: NotebookPage) -> None:
    png = base64.b64encode(_png(40, 30)).decode()
    session.execute(
        "import base64\nfrom IPython.display import Image\n"
        f"Image(data=base64.b64decode('{png}'), format='png')"
    )
    image = notebook.output("Image(data").locator("img")
    expect(image).to_be_visible()
    expect(image).to_have_js_property("naturalWidth", 40)
    expect(image).to_have_js_property("naturalHeight", 30)
    (output,) = session.execution(row(session, "Image(data").execution_id).outputs
    assert output["data"]["image/png"].strip() == png


def test_a_progress_bar_shows_its_last_state(session: kr.Session, notebook: NotebookPage, gate: Gate) -> None:
    x = session.submit(
        f"for n in range(1, 51): print(f'\\rdone {{n}}%', end='', flush=True)\n{gate.wait}\n"
        "for n in range(51, 101): print(f'\\rdone {n}%', end='', flush=True)"
    )
    output = notebook.output("for n in range(1, 51)")
    expect(output).to_have_text(re.compile(r"^\s*done 50%\s*$"), timeout=15_000)
    gate.open()
    expect(output).to_have_text(re.compile(r"^\s*done 100%\s*$"), timeout=15_000)
    assert x.wait(timeout=30).outcome == "ok"


def test_displays_that_change_and_outputs_that_are_cleared(
    session: kr.Session, notebook: NotebookPage
) -> None:
    session.execute(
        "from IPython.display import display, clear_output\nshown = display('draft', display_id=True)"
    )
    notebook.shows("shown = display", "draft")
    session.execute("shown.update('final')")
    notebook.shows("shown = display", "final")
    expect(notebook.output("shown = display")).not_to_contain_text("draft")
    session.execute("print('gone'); clear_output(); print('kept')")
    notebook.shows("print('gone')", "kept")
    expect(notebook.cell("print('gone')").locator(".jp-Cell-outputWrapper")).not_to_contain_text("gone")


def test_what_a_cell_raised_is_shown_with_its_traceback(session: kr.Session, notebook: NotebookPage) -> None:
    session.execute("1 / 0")
    notebook.shows("1 / 0", "ZeroDivisionError")
    assert done(session, "1 / 0").outcome == "error"
    expect(
        notebook.cell("1 / 0").locator("[data-mime-type='application/vnd.jupyter.stderr']")
    ).to_be_visible()


def test_an_agents_cell_goes_where_a_reader_expects_it(session: kr.Session, notebook: NotebookPage) -> None:
    """After what ran before it; what somebody is writing stays as it is, with the cursor in it."""
    session.execute("second = 2")
    expect(notebook.cell("second = 2")).to_be_visible()
    notebook.write("draft = ")
    session.execute("third = 3")
    expect(notebook.cell("third = 3")).to_be_visible()
    notebook.page.keyboard.insert_text("'mine'")
    expect(notebook.cell("draft = 'mine'")).to_have_count(1)
    order = notebook.sources()
    assert [s for s in order if "draft" not in s] == ["origin = 1", "second = 2", "third = 3"]
    assert order.index("draft = 'mine'") > order.index("second = 2")
    session.execute("second = 22", cell_id=row(session, "second = 2").cell_id)
    expect(notebook.cell("second = 22")).to_have_count(1)
    assert [s for s in notebook.sources() if "draft" not in s] == ["origin = 1", "second = 22", "third = 3"]


def test_a_thousand_lines_are_all_there(session: kr.Session, notebook: NotebookPage) -> None:
    session.execute("for n in range(1000): print('line', n)")
    notebook.shows("for n in range(1000)", "line 999")
    wanted = " ".join(f"line {n}" for n in range(1000))
    expect(notebook.output("for n in range(1000)")).to_have_text(wanted, use_inner_text=True)


def test_cells_that_ran_while_nobody_looked_are_there(session: kr.Session, pages: Open) -> None:
    for n in range(3):
        session.execute(f"print('unseen', {n})")
    notebook = pages(session)
    for n in range(3):
        notebook.shows(f"print('unseen', {n})", f"unseen {n}")
        notebook.counted(f"print('unseen', {n})", n + 2)


LONG = 2000


@pytest.mark.timeout(240)
def test_a_long_notebook_is_opened_while_an_agent_goes_on(lab: LabServer, pages: Open, window: None) -> None:
    """Its first cells are there while others still come; what is scrolled to is whole, badge and outputs."""
    path = lab.root / "long.ipynb"
    with_past("long", (fact for n in range(LONG) for fact in _ran(n)), cwd=lab.root, notebook=path)
    with running_session("long") as session:
        assert krt("export", "long", str(path)).returncode == 0
        stop = threading.Event()
        late: list[int] = []
        agent = threading.Thread(target=_goes_on, args=("long", late, stop), name="agent")
        agent.start()
        try:
            notebook = pages(session, kernel=False)
            notebook.shows("print('cell', 3)", "cell 3")
            expect(notebook.badge("print('cell', 3)")).to_have_text("lostagent:bench", timeout=30_000)
            seen = len(late)
            eventually(lambda: len(late) > seen + 1, 40, "the agent ran cells meanwhile")
        finally:
            stop.set()
            agent.join(60)
        for n in (LONG // 2, LONG - 1):
            _reads(notebook, f"print('cell', {n})", f"cell {n}", f"[{n + 1}]:", "lostagent:bench")
        for n in (late[0], late[-1]):
            count = all_of(session, f"print('late', {n})")[0].execution_count
            _reads(notebook, f"print('late', {n})", f"late {n}", f"[{count}]:", "agent:planner")
        assert [all_of(session, f"print('late', {n})")[0].outcome for n in late] == ["ok"] * len(late)


def _reads(notebook: NotebookPage, source: str, output: str, prompt: str, badge: str) -> None:
    """Whoever goes to that cell reads that, or will soon."""
    last: list[object] = []

    def reads() -> bool:
        last[:] = [notebook.read_at(source)]
        return last == [{"cells": 1, "output": output, "prompt": prompt, "badge": badge}]

    try:
        eventually(reads, 60)
    except AssertionError as error:
        error.add_note(f"{source} reads {last}")
        raise


@pytest.fixture
def window(lab: LabServer) -> Iterator[None]:
    """Only the cells in view are attached, as the documentation advises for so many; else each that is
    scrolled to has to wait for all above it, a dozen a second, in stock as here.
    """
    folder = (
        Path(os.environ["JUPYTER_CONFIG_DIR"])
        / "lab"
        / "user-settings"
        / "@jupyterlab"
        / "notebook-extension"
    )
    folder.mkdir(parents=True)
    settings = folder / "tracker.jupyterlab-settings"
    settings.write_text(json.dumps({"windowingMode": "full"}))
    yield
    settings.unlink()


def _ran(number: int) -> list[f.Fact]:
    """A cell that was executed in a life of the kernel that is over."""
    execution_id = f"{number:08x}-0000-4000-8000-000000000000"
    said = {"type": "stream", "content": {"name": "stdout", "text": f"cell {number}\n"}}
    return [
        f.ExecutionQueued(
            execution_id=execution_id,
            source=f"print('cell', {number})",
            cell_id=f"{number:08x}",
            msg_id=execution_id,
        ),
        f.ExecutionStarted(execution_id=execution_id),
        f.OutputRecorded(execution_id=execution_id, messages=[msgspec.Raw(msgspec.json.encode(said))]),
        f.ExecutionFinished(execution_id=execution_id, outcome="ok", execution_count=number + 1),
    ]


def _goes_on(session: str, late: list[int], stop: threading.Event) -> None:
    while not stop.is_set():
        krt("exec", session, f"print('late', {len(late)})", "--as", "agent:planner")
        late.append(len(late))


def _png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    rows = (b"\0" + b"\x20\x60\xc0" * width) * height
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )
