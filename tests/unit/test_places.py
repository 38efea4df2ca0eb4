"""Places: names, private directories, and paths short enough for sockets."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from kernel_runtime import places
from kernel_runtime.errors import InvalidName, NotAllowed


@pytest.mark.parametrize("name", ["a", "A9", "a.b_c-d", "0", "x" * 64])
def test_names_that_are_names(name: str) -> None:
    assert places.check_name(name) == name


@pytest.mark.parametrize("name", ["", ".a", "-a", "_a", "a/b", "a b", "x" * 65, "é", "a\n", "..", "a\0"])
def test_names_that_are_not(name: str) -> None:
    """Right: refused with the rule, since a name becomes a directory."""
    with pytest.raises(InvalidName) as caught:
        places.check_name(name)
    assert "letter or digit" in caught.value.hint


def test_a_long_runtime_dir_gets_a_short_one_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Mechanism: a Unix socket's path holds 107 bytes, and TMPDIR may be as long as KRT_RUNTIME_DIR.

    Right: a private directory that fits, the same each time, another for another value.
    """
    long = tmp_path / ("d" * 60)
    monkeypatch.setenv("TMPDIR", str(tmp_path / ("t" * 60)))
    monkeypatch.setattr("tempfile.tempdir", None)
    found = []
    for name in ("one", "two", "one"):
        monkeypatch.setenv("KRT_RUNTIME_DIR", str(long / name))
        found.append(places.runtime_dir())
    assert found[0] == found[2] != found[1]
    for directory in set(found):
        assert len(os.fsencode(directory / "0123456789ab" / "kernel-99999-5")) <= 107
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        directory.rmdir()


def test_a_private_directory_is_closed_to_others(tmp_path: Path) -> None:
    """Right: one that was open is closed; one that belongs to somebody else is refused."""
    open_one = tmp_path / "open"
    open_one.mkdir(mode=0o777)
    places.private_dir(open_one)
    assert stat.S_IMODE(open_one.stat().st_mode) == 0o700
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, 12345, 12345)
    with pytest.raises(NotAllowed):
        places.private_dir(theirs)


def test_two_homes_share_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KRT_HOME", str(tmp_path / "a"))
    first = places.session_dir("s")
    monkeypatch.setenv("KRT_HOME", str(tmp_path / "b"))
    assert places.session_dir("s") != first


def test_the_principal_is_named_even_without_a_passwd_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KRT_PRINCIPAL", "agent:x")
    assert places.principal() == "agent:x"
    monkeypatch.delenv("KRT_PRINCIPAL")
    monkeypatch.setattr("getpass.getuser", lambda: (_ for _ in ()).throw(KeyError("no such uid")))
    assert places.principal() == f"human:{os.getuid()}"
