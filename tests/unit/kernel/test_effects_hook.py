# ruff: noqa: PTH102
# What os.mkdir is seen to do is what is tested.
"""The hook that sees effects: whose they are, and that the user's code does not get in its way."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from kernel_runtime.kernel import audited, effects
from kernel_runtime.kernel.attribution import NOBODY, Parent, current
from kernel_runtime.kernel.audited import EVENTS
from kernel_runtime.kernel.effects import Effects
from tests.unit.kernel import effect_cells
from tests.unit.kernel.effect_cells import Cells

cells = effect_cells.cells


# -- whose it is


def test_a_thread_that_outlives_its_cell(cells: Cells, tmp_path: Path):
    cells.effects.take_late()
    go, done = threading.Event(), threading.Event()

    def work(parent: Parent) -> None:
        current.set(parent)
        go.wait()
        open(tmp_path / "late", "w").close()
        done.set()

    cells.run(lambda: threading.Thread(target=work, args=(current.get(),)).start(), "first")

    def second():
        go.set()
        done.wait()

    assert cells.run(second, "second") == ([], [])
    late = [("first", {"kind": "file", "how": "write", "path": str(tmp_path / "late")})]
    assert cells.effects.take_late() == late
    assert cells.effects.take_late() == []


def test_a_thread_of_nobodys(cells: Cells, tmp_path: Path):
    def work() -> None:
        current.set(NOBODY)
        ctypes.string_at(b"", 0)
        open(tmp_path / "x", "w").close()

    cells.effects.take_late()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    late = cells.effects.take_late()
    assert [(key, effect["kind"]) for key, effect in late] == [(None, "file")]


def test_many_threads_lose_nothing(cells: Cells, tmp_path: Path):
    def cell():
        parent = current.get()

        def work() -> None:
            current.set(parent)
            for _ in range(50):
                open(tmp_path / "x", "a").close()

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert [effect["count"] for effect in cells.seen(cell)] == [200]


def test_the_records_of_old_executions_are_dropped(cells: Cells):
    for number in range(200):
        cells.run(lambda: None, f"k{number}")
        cells.effects.take_late()
    assert len(cells.effects._records) < 100


def test_end_without_begin():
    assert Effects().end() == ([], [])


# -- the hook and the user's code


class Hostile(str):
    """A path whose every method raises."""

    __slots__ = ()

    def _raise(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("user code was run")

    __hash__ = __eq__ = __str__ = __repr__ = __fspath__ = __getitem__ = __len__ = startswith = _raise


def test_no_method_of_the_users_is_run(cells: Cells):
    path = Hostile("/tmp/hostile")

    def cell():
        for event in EVENTS:
            for args in (
                (path,) * 4,
                (object(),) * 4,
                (),
                ([path], [path], path, 1),
            ):
                sys.audit(event, *args)
        sys.audit("open", path, "w", os.O_CREAT)
        sys.audit("open")
        sys.audit("open", path, "w", path)
        sys.audit("import")

    found, unseen = cells.run(cell)
    assert {"kind": "file", "how": "write", "path": "/tmp/hostile"} in found
    assert any(why.startswith("events: one could not be read") for why in unseen)


def test_what_a_users_signal_handler_raises_is_the_users(cells: Cells, tmp_path: Path, monkeypatch):
    """A timer may fire in the middle of the hook: its exception must not be taken for one of ours."""

    class TimeIsUp(Exception):
        pass

    def interrupted(args: Any) -> Any:
        raise_from_elsewhere()

    def raise_from_elsewhere() -> None:
        raise TimeIsUp

    notes = effects._notes
    notes["os.mkdir"] = cells.effects._noting(interrupted)
    with pytest.raises(TimeIsUp):
        cells.run(lambda: os.mkdir(tmp_path / "x"))
    assert not cells.effects._busy


def test_looking_at_events_makes_no_events(cells: Cells, tmp_path: Path, monkeypatch):
    """The guard against recursion would drop them; this says that there are none to drop."""
    seen: list[str] = []
    real = audited.absolute

    def watched(*args: Any) -> str:
        seen.append("in")
        try:
            return real(*args)
        finally:
            seen.append("out")

    monkeypatch.setattr(audited, "absolute", watched)
    effects._notes["os.listdir"] = lambda _: seen.append("listdir")
    cells.run(lambda: os.mkdir(tmp_path / "x", dir_fd=None))
    assert seen[:2] == ["in", "out"]


def test_a_handler_that_runs_inside_the_hook_is_not_lost_silently(cells: Cells, tmp_path: Path):
    def nested(args: Any) -> Any:
        open(tmp_path / "nested", "w").close()

    effects._notes["os.mkdir"] = cells.effects._noting(nested)
    _, unseen = cells.run(lambda: os.mkdir(tmp_path / "x"))
    assert unseen == ["events: some happened while one was being noted"]
