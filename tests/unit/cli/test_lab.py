"""What `krt lab` says of the directory it is to serve, and of one that serves another."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kernel_runtime import process
from kernel_runtime.cli import frame, lab, lab_server
from kernel_runtime.errors import UsageError


def _runs(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A JupyterLab that serves it is found."""
    found = lab_server.Lab(
        process=process.ProcessId(1, 1, "boot"), url="http://127.0.0.1:8888/", token="t" * 16, root=str(root)
    )
    monkeypatch.setattr(lab_server, "running", lambda: found)


def _without(mode: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """This user may not do that with any file; root, who runs tests in containers, otherwise may."""
    monkeypatch.setattr(os, "access", lambda _path, asked, **_how: not asked & mode)


def test_a_directory_that_cannot_be_read_is_refused(
    tmp_path: Path, krt_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _without(os.R_OK, monkeypatch)
    with pytest.raises(UsageError, match="not yours to read") as refused:
        lab._directory(tmp_path)
    assert "--root" in refused.value.hint


def test_a_directory_that_cannot_be_written_is_told_of(
    tmp_path: Path, krt_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    _runs(tmp_path, monkeypatch)
    _without(os.W_OK, monkeypatch)
    assert frame.run(lab.command, ["--no-browser", "--root", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert f"{tmp_path} is not yours to write" in said.err
    assert said.out.startswith("http://127.0.0.1:8888/lab?token=")


def test_one_that_serves_and_listens_elsewhere_says_so(
    tmp_path: Path, krt_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    _runs(tmp_path / "a", monkeypatch)
    monkeypatch.setattr(os, "access", lambda *_args, **_how: True)
    assert frame.run(lab.command, ["--no-browser", "--root", str(tmp_path), "--port", "9999"]) == 0
    said = capsys.readouterr().err
    assert f"it runs already, serves {tmp_path / 'a'} and listens at port 8888" in said
