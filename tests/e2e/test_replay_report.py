"""Reports of real replays, and notebooks that pytest replays."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import nbformat
import pytest
from nbclient import NotebookClient

import kernel_runtime as kr
from kernel_runtime.client import session_files
from kernel_runtime.journal import JournalReader
from kernel_runtime.replay.report.history import history_of
from kernel_runtime.replay.sources import load
from tests.support import krt, krt_json

pytestmark = pytest.mark.slow


def notebook(path: Path, *cells: str, doctored: bool = False) -> Path:
    """A notebook that another program ran; doctored: its last output says something else."""
    new = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(new, timeout=60, allow_errors=True).execute()
    if doctored:
        new.cells[-1].outputs[-1].data["text/plain"] = "22"
    nbformat.write(new, path)
    return path


def run_pytest(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """As a user would, in a project of theirs."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-v", *options],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=110,
        env={**os.environ, "PYTHONPATH": ""},
        check=False,
    )


def test_what_happened_and_what_came_of_it(tmp_path: Path) -> None:
    """A session with a kernel that died: report, JUnit and JSON of one replay."""
    with kr.attach("s", create=True, cwd=str(tmp_path), principal="agent:a") as session:
        session.execute("print('<script>alert(1)</script>'); x = 1", timeout=30)
        session.execute("import os; os.kill(os.getpid(), 9)", timeout=30)
        session.execute("import time; time.time_ns()", accept=True, timeout=30)
        session.status(limit=0)  # waits until that has been looked at; a stop does not
        session.stop()
    page, xml = tmp_path / "r.html", tmp_path / "r.xml"
    document = krt_json(
        "replay", "s", "--strict", "--html", str(page), "--junit", str(xml), "--as", "human:b", exit_code=1
    )
    assert [row["verdict"] for row in document["executions"]] == ["same", "skipped", "different"]
    text = page.read_text()
    assert "Of 3 executions: 1 the same, 1 different, 1 not run or not compared." in text
    for told in ("agent:a (3)", "human:b", "kernel 1 died (signal 9)", "The record was verified"):
        assert told in text
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert page.stat().st_mode & 0o777 == 0o600
    cases = ET.parse(xml).getroot().findall("testsuite/testcase")
    assert [len(case) for case in cases[:3]] == [0, 1, 1]
    failure = cases[2].find("failure")
    assert failure is not None
    assert re.search(r"^-\d+\n\+\d+$", failure.text or "", re.MULTILINE)


def test_history_is_that_of_the_record_that_was_replayed(tmp_path: Path) -> None:
    """What was journaled since is not in it; another record under the same name is none."""
    with kr.attach("s", create=True, cwd=str(tmp_path)) as session:
        session.execute("x = 1", timeout=30)
        plan = load("s").plan
        session.stop()
    found = history_of(plan)
    assert [event.kind for event in found.of("KernelStarted", "KernelStopped")] == ["KernelStarted"]
    with JournalReader.open(session_files.load("s").journal) as reader:
        assert reader.head() > plan.head
    krt_json("bundle", "s", str(tmp_path / "s.bundle"))
    taken = history_of(load(tmp_path / "s.bundle").plan)
    assert taken.events[: len(found.events)] == found.events
    assert [event.kind for event in taken.of("KernelStopped")] == ["KernelStopped"]
    plan.head_hash = "0" * 64
    assert "another one" in history_of(plan).why_none
    plan.source = "gone"
    assert "gone" in history_of(plan).why_none


def test_nothing_is_run_for_a_report_that_cannot_be_written(tmp_path: Path) -> None:
    done = krt("replay", "s", "--html", str(tmp_path / "no" / "r.html"))
    assert done.returncode == 2
    assert "no/r.html would stand in a directory that is not there" in done.stderr


def test_a_missing_package_is_said_before_anything_is_run(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['nh3'] = None\n")
    done = krt("replay", "no-such-session", "--html", str(tmp_path / "r.html"), PYTHONPATH=str(tmp_path))
    assert done.returncode == 4
    assert "the HTML report needs nh3, which is not installed" in done.stderr
    assert "pip install 'kernel-runtime[replay]'" in done.stderr
    done = krt("replay", "no-such-session", "--junit", str(tmp_path / "r.xml"), PYTHONPATH=str(tmp_path))
    assert done.returncode == 3


# -- pytest


def test_without_the_flag_the_plugin_does_nothing(tmp_path: Path) -> None:
    """Neither is a notebook collected nor a module of the replay imported."""
    (tmp_path / "n.ipynb").write_text("not even JSON")
    (tmp_path / "test_it.py").write_text(
        "import sys\n"
        "def test_it(pytestconfig):\n"
        "    assert pytestconfig.pluginmanager.has_plugin('krt-replay')\n"
        "    ours = {name for name in sys.modules if name.startswith('kernel_runtime')}\n"
        "    ours -= {'kernel_runtime', 'kernel_runtime.version'}\n"
        "    assert ours == {'kernel_runtime.replay', 'kernel_runtime.replay.pytest_plugin'}\n"
        "    assert not {'msgspec', 'zmq', 'apsw', 'nbformat'} & sys.modules.keys()\n"
    )
    done = run_pytest(tmp_path, "-p", "no:hypothesispytest")
    assert "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_a_failing_cell_names_itself_and_shows_the_difference(tmp_path: Path) -> None:
    notebook(tmp_path / "good.ipynb", "x = 20", "print('x is', x)\nx + 1", "1/0")
    notebook(tmp_path / "doctored.ipynb", "x = 20", "import time\ntime.time()", "x + 1", doctored=True)
    (tmp_path / "broken.ipynb").write_text("{")
    done = run_pytest(tmp_path, "--krt-replay", "good.ipynb", "doctored.ipynb", "--junitxml=r.xml")
    assert done.returncode == 1, done.stdout + done.stderr
    for line in (
        "good.ipynb::step 2: print('x is', x) PASSED",
        "good.ipynb::step 3: 1/0 PASSED",
        "doctored.ipynb::step 2: import time PASSED",
        "doctored.ipynb::step 3: x + 1 FAILED",
    ):
        assert line in done.stdout
    assert "-22\n+21" in done.stdout
    assert "Traceback" not in done.stdout
    told = [one.attrib for one in ET.parse(tmp_path / "r.xml").getroot().iter("property")]
    assert {"name": "verdict", "value": "same-normalized"} in told
    strict = run_pytest(tmp_path, "--krt-replay", "--krt-replay-strict", "doctored.ipynb", "-k", "time")
    assert "1 failed, 2 deselected" in strict.stdout
    broken = run_pytest(tmp_path, "--krt-replay", "broken.ipynb")
    assert "InvalidNotebook" in broken.stdout or "broken.ipynb" in broken.stdout
    assert broken.returncode == 2


@pytest.mark.slow
def test_a_notebook_that_cannot_be_replayed_fails_every_cell_once(tmp_path: Path) -> None:
    path = notebook(tmp_path / "n.ipynb", "1", "2")
    made = nbformat.read(path, as_version=4)
    made.metadata["kernelspec"] = {"name": "no-such-kernel", "display_name": "none"}
    nbformat.write(made, path)
    done = run_pytest(tmp_path, "--krt-replay")
    assert "2 failed" in done.stdout
    assert "no-such-kernel" in done.stdout
    assert "Traceback" not in done.stdout


def test_a_rule_that_is_none_is_told_at_once(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, "--krt-replay", "--krt-replay-rule", "nonsense")
    assert done.returncode == 4
    assert "nonsense" in done.stderr
