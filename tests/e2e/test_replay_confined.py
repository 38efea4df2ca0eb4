"""A replay does nothing to the world a second time, with bubblewrap and with the guard."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import kernel_runtime as kr
from kernel_runtime.replay import replay, sandbox
from tests.support import krt_json


@pytest.fixture
def place(tmp_path: Path) -> Path:
    found = tmp_path / "work"
    found.mkdir()
    (found / "in.txt").write_text("7")
    return found


@pytest.fixture
def alice(krt_home: Path, place: Path) -> Iterator[str]:
    with kr.attach("alice", create=True, cwd=str(place)) as session:
        session.execute("number = int(open('in.txt').read()); number")
        session.execute("open('out.txt', 'a').write('one line')")
        session.execute("import os; os.remove('in.txt'); os.getcwd()")
        next(entry for entry in session.follow(0, timeout=60) if entry.kind == "EnvironmentRecorded")
    (place / "in.txt").write_text("7")
    (place / "out.txt").unlink()
    yield "alice"
    krt_json("stop", "alice")


@pytest.mark.parametrize("kind", ["bubblewrap", "guard"])
def test_files_of_the_person_stay_as_they_are(
    alice: str, place: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise an audit would append to the very file that it is about."""
    if kind == "guard":
        monkeypatch.setattr(sandbox, "why_no_bubblewrap", lambda: "not here")
    elif not os.environ.get("CI") and sandbox.why_no_bubblewrap() is not None:
        pytest.skip("bubblewrap is not here")
    result = replay(alice)
    verdict = "same" if kind == "bubblewrap" else "same-normalized"  # there the copy has a path of its own
    assert (result.verdict, result.sandbox["kind"]) == (verdict, kind), result.names
    assert result.sandbox["boundary"] is (kind == "bubblewrap")
    assert sorted(path.name for path in place.iterdir()) == ["in.txt"]


def test_what_is_allowed_happens(alice: str, place: Path) -> None:
    result = replay(alice, allow=[f"write:{place}"])
    assert result.verdict == "same", (result.names, result.executions)
    assert sorted(path.name for path in place.iterdir()) == ["out.txt"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_in_the_recorded_environment(alice: str, krt_home: Path) -> None:
    """Built from the ordinary index, and named by what was recorded: the second time it is there."""
    result = replay(alice, env="recorded")
    assert result.verdict == "same", (result.names, result.executions)
    found = result.environment
    assert (found["known"], found["of"]) == (True, "recorded")
    assert {row["what"] for row in found["python"]} == {"executable", "prefix"}
    # what was built from source here has other files; nothing else differs
    assert {row["why"] for row in found["packages"] if row["name"] != "kernel-runtime"} <= {"content"}
    (built,) = (krt_home / "environments").iterdir()
    stamp = (built / "complete").stat().st_mtime_ns
    assert replay(alice, env="recorded").verdict == "same"
    assert (built / "complete").stat().st_mtime_ns == stamp
    shutil.rmtree(built)
