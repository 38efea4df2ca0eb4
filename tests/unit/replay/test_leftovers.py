"""Files that the record wrote are told, where a replay begins with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernel_runtime.replay.leftovers import note_of
from kernel_runtime.replay.plan import Plan, Step


def plan(cwd: Path, *effects: dict[str, Any]) -> Plan:
    step = Step(number=1, effects={"verdict": "effectful", "seen": list(effects), "unseen": []})
    return Plan(
        source="s", kind="journal", order="executed", kernel="k", cwd=str(cwd), steps=[step, Step(number=2)]
    )


def test_what_the_record_wrote_and_is_there(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv", "read.csv"):
        (tmp_path / name).write_text("")
    effects: list[dict[str, Any]] = [
        {"kind": "file", "how": "write", "path": str(tmp_path / "a.csv"), "count": 3},
        {"kind": "file", "how": "rename", "path": str(tmp_path / "c"), "to": str(tmp_path / "b.csv")},
        {"kind": "file", "how": "write", "path": str(tmp_path / "gone.csv")},
        {"kind": "file", "how": "remove", "path": str(tmp_path / "read.csv")},
        {"kind": "file", "how": "write", "path": str(tmp_path)},
        {"kind": "file", "how": "write", "path": "/etc/hosts"},
        {"kind": "socket", "how": "connect", "path": str(tmp_path / "read.csv")},
    ]
    (note,) = note_of(plan(tmp_path, *effects))
    assert note.startswith("a.csv, b.csv in ")


def test_many_are_counted(tmp_path: Path) -> None:
    effects = []
    for number in range(5):
        (tmp_path / f"{number}").write_text("")
        effects.append({"kind": "file", "how": "write", "path": f"{tmp_path}/{number}"})
    assert note_of(plan(tmp_path, *effects))[0].startswith("0, 1, 2 and 2 more in ")


def test_nothing_is_said_where_nothing_is_there(tmp_path: Path) -> None:
    assert note_of(plan(tmp_path)) == []
    assert note_of(plan(tmp_path / "gone", {"kind": "file", "how": "write", "path": "x"})) == []
