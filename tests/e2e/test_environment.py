"""Each kernel's start is recorded with what it could import and where it ran."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import kernel_runtime as kr
from kernel_runtime.model.facts import EnvironmentRecorded
from tests.support import krt_json


@pytest.fixture
def alice(krt_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[kr.Session]:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "place"))
    with kr.attach("alice", create=True, cwd=str(tmp_path)) as session:
        yield session
    krt_json("stop", "alice")


def _recorded(session: kr.Session, incarnation: int) -> EnvironmentRecorded:
    for entry in session.follow(0, timeout=60):
        if isinstance(entry.fact, EnvironmentRecorded) and entry.incarnation == incarnation:
            return entry.fact
    raise AssertionError(f"the environment of incarnation {incarnation} was not recorded")


def test_each_incarnation_has_its_own(alice: kr.Session, tmp_path: Path) -> None:
    alice.execute("import sys, platform")
    first = _recorded(alice, 1)
    assert alice.execute("platform.python_version()").text.strip("'\n") == first.python["version"]
    assert "apsw" in first.packages
    assert "added-later" not in first.packages
    info = tmp_path / "place" / "added_later-2.5.dist-info"
    info.mkdir(parents=True)
    (info / "RECORD").write_text("")
    alice.restart()
    alice.accept()
    alice.execute("1")
    second = _recorded(alice, 2)
    assert second.packages["added-later"]["version"] == "2.5"
    assert second.fingerprint != first.fingerprint
