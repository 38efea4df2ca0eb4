"""What is recorded of an environment: from installers' metadata and git, running nobody's code."""

from __future__ import annotations

import hashlib
import json
import stat
import subprocess
from pathlib import Path
from typing import Any

from kernel_runtime.supervisor.environment import look, record_digest, repository

ANSWER: dict[str, Any] = {"python": {"version": "3.11.2"}, "platform": {"machine": "x86_64"}}


def _install(place: Path, name: str, version: str, record: str = "", direct_url: Any = None) -> None:
    info = place / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "RECORD").write_text(record)
    if direct_url is not None:
        (info / "direct_url.json").write_text(json.dumps(direct_url))


def test_packages_are_told_as_they_would_be_imported(tmp_path: Path) -> None:
    """The first place on the path wins; names are compared as PEP 503 says."""
    first, second = tmp_path / "first", tmp_path / "second"
    _install(first, "Zope.Interface", "6.1", "a,sha256=x,1\n")
    _install(second, "zope_interface", "5.0")
    _install(second, "numpy", "2.0")
    (second / "old_one-0.3-py3.11.egg-info").write_text("Name: old-one\n")
    seen = look({**ANSWER, "path": [str(first), str(second), str(tmp_path / "gone")]}, str(tmp_path))
    assert seen.missing == []
    assert {name: found["version"] for name, found in seen.packages.items()} == {
        "numpy": "2.0",
        "old-one": "0.3",
        "zope-interface": "6.1",
    }
    assert seen.packages["zope-interface"]["digest"] == hashlib.sha256(b"a,sha256=x,1").hexdigest()
    again = look({**ANSWER, "path": [str(second), str(first)]}, str(tmp_path))
    assert again.fingerprint != seen.fingerprint


def test_what_did_not_come_from_an_index_says_where_from_without_secrets(tmp_path: Path) -> None:
    url = "https://user:s3cr3t@example.org/x.git"
    _install(
        tmp_path,
        "tool",
        "1",
        direct_url={"url": url, "vcs_info": {"vcs": "git", "commit_id": "abc"}},
    )
    _install(tmp_path, "mine", "1", direct_url={"url": "file:///src", "dir_info": {"editable": True}})
    _install(tmp_path, "broken", "1", direct_url=["?"])
    found = look({**ANSWER, "path": [str(tmp_path)]}, str(tmp_path)).packages
    assert (found["tool"]["how"], found["tool"]["commit"]) == ("vcs", "abc")
    assert "s3cr3t" not in json.dumps(found)
    assert found["mine"]["how"] == "editable"
    assert "how" not in found["broken"]


def test_a_wheel_has_one_digest_whoever_installed_it() -> None:
    """pip lists compiled modules and a note that it was asked for; uv does neither, and sorts otherwise."""
    wheel = ["x/a.py,sha256=1,10", "x-1.dist-info/WHEEL,sha256=2,20"]
    pip = [*wheel, "x/__pycache__/a.cpython-311.pyc,,", "x-1.dist-info/REQUESTED,sha256=3,0"]
    uv = [*reversed(wheel), "x-1.dist-info/INSTALLER,sha256=4,2", "../../../bin/x,sha256=5,9", ""]
    by_pip, by_uv = (record_digest("\n".join(lines).encode(), "x-1.dist-info") for lines in (pip, uv))
    changed = record_digest(b"x/a.py,sha256=9,10\n", "x-1.dist-info")
    assert by_pip == by_uv != changed


def _git(place: Path, *words: str) -> str:
    who = ("-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "init.defaultBranch=main")
    return subprocess.run(
        ["git", *who, *words], cwd=place, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_a_repository_and_what_differs_from_its_commit(tmp_path: Path) -> None:
    missing: list[str] = []
    assert repository(str(tmp_path), missing) is None
    _git(tmp_path, "init")
    (tmp_path / "a.py").write_text("x = 1\n")
    _git(tmp_path, "add", "a.py")
    _git(tmp_path, "commit", "-m", "one")
    below = tmp_path / "below"
    below.mkdir()
    clean = repository(str(below), missing)
    assert clean == {
        "commit": _git(tmp_path, "rev-parse", "HEAD"),
        "branch": "main",
        "dirty": False,
        "changes": None,
        "untracked": 0,
    }
    (tmp_path / "a.py").write_text("x = 2\n")
    one = repository(str(below), missing)
    (tmp_path / "a.py").write_text("x = 3\n")
    other = repository(str(below), missing)
    assert one is not None
    assert other is not None
    assert one["dirty"]
    assert one["changes"] != other["changes"]
    assert missing == []


def test_a_hostile_repository_runs_nothing(tmp_path: Path) -> None:
    """A repository's configuration can name programs for looking at it: a file system monitor, an external
    diff, a text conversion, hooks. None of them may run only because a session was started there.
    """
    trap, sprung = tmp_path / "trap", tmp_path / "sprung"
    trap.write_text(f"#!/bin/sh\necho ran >> {sprung}\ncat\n")
    trap.chmod(trap.stat().st_mode | stat.S_IXUSR)
    place = tmp_path / "repository"
    place.mkdir()
    _git(place, "init")
    (place / "a.bin").write_text("1\n")
    (place / ".gitattributes").write_text("*.bin diff=evil\n")
    _git(place, "add", ".")
    _git(place, "commit", "-m", "one")
    for key in ("core.fsmonitor", "diff.external", "diff.evil.textconv", "diff.evil.command"):
        _git(place, "config", key, str(trap))
    hooks = place / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    (hooks / "post-index-change").symlink_to(trap)
    (place / "a.bin").write_text("2\n")
    missing: list[str] = []
    found = repository(str(place), missing)
    assert found is not None
    assert (found["dirty"], found["changes"] is not None, missing) == (True, True, [])
    assert not sprung.exists()
