"""Records of real sessions, replayed in real kernels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kernel_runtime as kr
from kernel_runtime.client import session_files
from kernel_runtime.errors import (
    JournalCorrupt,
    NoSuchSession,
    Refused,
    SessionExists,
    UnknownKernelSpec,
    UsageError,
)
from kernel_runtime.replay import replay
from tests.e2e import replayed
from tests.e2e.replayed import Record, looked_at_and_stopped, reasons, verdicts
from tests.support import eventually, krt, krt_json

places = replayed.places  # autouse
record = replayed.record


def test_a_session_comes_out_the_same(record: Record) -> None:
    """Out of order, an error that is expected, two kernels, and who ran it does not matter."""
    record("x = 1", "print(x); x", "1/0", "del x", None, "y = 2", "y + 1")
    document = krt_json("replay", "s")
    assert document["verdict"] == "same"
    assert [row["verdict"] for row in document["executions"]] == ["same"] * 6
    assert document["names"] == [{"name": "y", "verdict": "same"}]
    assert document["integrity"] == {"ok": True, "problems": []}


def test_what_comes_out_otherwise_is_different(record: Record, tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("1\n")
    record("data = open('data.txt').read(); print(data)", "print('beside')", "len(data)")
    (tmp_path / "data.txt").write_text("22\n")
    document = krt_json("replay", "s", exit_code=1)
    assert document["verdict"] == "different"
    assert [row["verdict"] for row in document["executions"]] == ["different", "same", "different"]
    assert "22" in document["executions"][0]["diff"]
    assert document["executions"][2]["after"]["names"] == ["data"]
    assert {"name": "data", "verdict": "different"} in document["names"]
    (first, last) = document["changed"]
    assert (first["because"], last["because"]["steps"]) == (None, [1])


@pytest.mark.slow
def test_two_replays_that_disagree_are_nondeterministic(record: Record) -> None:
    record("import os; os.urandom(8).hex()", "x = 3; x")
    result = replay("s", two_times=True)
    assert (result.verdict, verdicts(result), result.ok) == (
        "nondeterministic",
        ["nondeterministic", "same"],
        False,
    )


LATE = """
import threading, time
def later():
    time.sleep(0.7)
    print('late', flush=True)
    box.append(1)
box = []
t = threading.Thread(target=later); t.start()
print('now')
"""


@pytest.mark.slow
def test_late_output_is_waited_for_where_it_was_recorded(record: Record, tmp_path: Path) -> None:
    """The record's next cell ran when the thread's output had come, and saw what the thread had done.

    A replay that only follows the order of the cells runs that one at once, and finds nothing.
    """
    with kr.attach("s", create=True, cwd=str(tmp_path)) as session:
        x = session.execute(LATE)
        eventually(lambda: "late" in x.refresh().text, what="late output")
        session.execute("import time; time.sleep(0.3); box")
        x = session.execute(LATE)
        eventually(lambda: "late" in x.refresh().text, what="late output at the end")
        looked_at_and_stopped(session)
    result = replay("s")
    assert (result.verdict, verdicts(result)) == ("same", ["same"] * 3)


@pytest.mark.slow
def test_a_display_that_another_cell_updates_is_compared_where_it_is_shown(record: Record) -> None:
    record(
        "h = display('a', display_id='d')",
        "h = display('b', display_id='d', update=True)",
        "from IPython.display import clear_output; print(1); clear_output(); print(2)",
    )
    result = replay("s")
    assert (result.verdict, len(result.executions)) == ("same", 3)


@pytest.mark.slow
def test_setting_a_name_shows_what_changes_downstream(record: Record) -> None:
    record("rate = 0.1", "price = 100", "tax = price * rate", "print('beside')", "price + tax", "price")
    document = krt_json("replay", "s", "--set", "rate=0.2", exit_code=1)
    assert document["settings"] == [
        {"name": "rate", "value": 0.2, "number": 2, "after": 1, "why": "it binds rate first"}
    ]
    (changed,) = document["changed"]
    assert changed["number"] == 6
    assert changed["because"] == {"names": ["tax"], "steps": [2]}
    assert {row["name"]: row["verdict"] for row in document["names"]} == {
        "rate": "different", "tax": "different", "price": "same",
    }  # fmt: skip
    done = krt("replay", "s", "--set", "rate=0.2")
    assert done.stdout.startswith("s: different (")
    assert "set: rate = 0.2 after step 1" in done.stdout
    assert "reads tax, not as recorded since step 2" in done.stdout
    assert krt("replay", "s", "--set", "rate=open('x')").returncode == 2


@pytest.mark.slow
def test_a_session_is_left_at_that_point_of_history(record: Record, krt_home: Path) -> None:
    record("x = 1", "x = x + 1", "x = 100")
    ends = [entry["seq"] for entry in log("s", "ExecutionFinished")]
    document = krt_json("replay", "s", "--until", str(ends[1]), "--keep", "then")
    assert (document["kept"], len(document["executions"])) == ("then", 2)
    with kr.attach("then", accept=True) as session:
        assert session.execute("x").text == "2"
        session.stop()
    with pytest.raises(SessionExists):
        replay("s", keep="then")
    with pytest.raises(UsageError, match="no entry"):
        replay("s", until=10_000)


@pytest.mark.slow
def test_a_kept_session_does_not_repeat_effects_unasked(record: Record, tmp_path: Path) -> None:
    record("open('out.txt', 'a').write('x')")
    with pytest.raises(Refused, match="1 executions have effects"):
        replay("s", keep="then")
    assert not session_files.exists("then")
    assert (tmp_path / "out.txt").read_text() == "x"
    assert replay("s", keep="then", allow=["all"]).kept == "then"
    assert (tmp_path / "out.txt").read_text() == "xx"


@pytest.mark.slow
def test_a_replay_that_cannot_keep_leaves_no_session(record: Record) -> None:
    record("x = 1")
    with pytest.raises(UnknownKernelSpec):
        replay("s", keep="then", kernel="nope")
    assert not session_files.exists("then")


def log(name: str, kind: str) -> list[dict[str, Any]]:
    done = krt("log", name, "--kind", kind, "--json")
    return [json.loads(line) for line in done.stdout.splitlines()]


def notebook(path: Path, *cells: tuple[str, list[dict[str, Any]]], kernel: str = "python3") -> Path:
    made = [
        {"cell_type": "code", "id": f"c{n}", "metadata": {}, "source": s, "outputs": o, "execution_count": n}
        for n, (s, o) in enumerate(cells, 1)
    ]
    metadata = {"kernelspec": {"name": kernel, "display_name": kernel}}
    path.write_text(json.dumps({"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}))
    return path


def said(text: str) -> list[dict[str, Any]]:
    return [{"output_type": "stream", "name": "stdout", "text": text}]


@pytest.mark.slow
def test_a_plain_notebook_runs_from_top_to_bottom(tmp_path: Path) -> None:
    path = notebook(tmp_path / "n.ipynb", ("x = 1; print(x)", said("1\n")), ("print(x + 1)", said("3\n")))
    document = krt_json("replay", str(path), exit_code=1)
    assert (document["kind"], document["order"]) == ("notebook", "document")
    assert [(row["cell_id"], row["verdict"]) for row in document["executions"]] == [
        ("c1", "same"),
        ("c2", "different"),
    ]


@pytest.mark.slow
def test_an_export_and_a_bundle_are_replayed_as_the_session_ran(record: Record, tmp_path: Path) -> None:
    with kr.attach("s", create=True, cwd=str(tmp_path)) as session:
        session.execute("x = 1", cell_id="first")
        session.execute("x += 1; x", cell_id="second")
        session.execute("x = 10; x", cell_id="first")
        looked_at_and_stopped(session)
    path = tmp_path / "export.ipynb"
    assert krt("export", "s", str(path)).returncode == 0
    result = replay(path)
    assert result.order == "executed"
    # what `first` was before is in no file: x is not bound when `second` runs
    assert verdicts(result) == ["different", "same"]
    bundle = tmp_path / "s.bundle"
    assert krt("bundle", "s", str(bundle)).returncode == 0
    result = replay(bundle)
    assert (result.kind, result.verdict, verdicts(result)) == ("bundle", "same", ["same"] * 3)


def test_what_cannot_be_replayed_is_said(record: Record, tmp_path: Path) -> None:
    with pytest.raises(NoSuchSession):
        replay("nobody")
    assert krt("replay", "nobody").returncode == 3
    assert krt("replay", str(tmp_path / "none.ipynb")).returncode == 3
    path = notebook(tmp_path / "n.ipynb", ("1", []), kernel="not-here")
    with pytest.raises(UnknownKernelSpec) as caught:
        replay(path)
    assert "python3" in caught.value.hint
    session_files.create("fresh", cwd=tmp_path)
    assert krt("replay", "fresh").returncode == 3


@pytest.mark.slow
def test_a_damaged_record_is_refused_unless_forced(record: Record) -> None:
    record("x = 1; x", "x + 1")
    path = session_files.load("s").journal
    import apsw

    connection = apsw.Connection(str(path))
    connection.execute("DROP TRIGGER IF EXISTS entries_no_update")
    triggers = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")]
    for trigger in triggers:
        connection.execute(f"DROP TRIGGER {trigger}")
    connection.execute("UPDATE entries SET principal = 'agent:b' WHERE kind = 'ExecutionFinished'")
    connection.close()
    with pytest.raises(JournalCorrupt):
        replay("s")
    assert krt("replay", "s").returncode == 9
    result = replay("s", force=True)
    assert result.integrity["ok"] is False
    assert result.integrity["problems"]
    assert verdicts(result) == ["same", "same"]


@pytest.mark.slow
def test_the_record_is_only_read(record: Record) -> None:
    record("x = 1", "x")
    directory = session_files.load("s").directory

    def files() -> dict[str, bytes]:
        # -shm is SQLite's index of the log, for as long as somebody reads
        found = (path for path in directory.iterdir() if path.is_file() and not path.name.endswith("-shm"))
        return {path.name: path.read_bytes() for path in found}

    before = files()
    replay("s")
    assert files() == before


@pytest.mark.slow
def test_a_bound_that_cut_the_record_cuts_the_replay(record: Record, krt_home: Path) -> None:
    krt_home.mkdir(exist_ok=True)
    (krt_home / "bounds.json").write_text('{"execution": 20000}')
    record("for i in range(2000): print(i, 'x' * 50, flush=True)", "'beside'")
    result = replay("s")
    assert verdicts(result) == ["skipped", "same"]
    in_record, _, in_replay = reasons(result)[0].partition("; ")
    assert in_record.startswith("gap: in the record, ")
    assert in_replay.startswith("in the replay, ")
    assert in_record.endswith("execution-bound")
    assert in_replay.endswith("execution-bound")


@pytest.mark.slow
def test_a_session_can_be_kept_from_before_anything_had_run(record: Record) -> None:
    record("x = 1")
    first = log("s", "KernelStarted")[0]["seq"]
    result = replay("s", until=first, keep="then")
    assert (result.executions, result.kept) == ([], "then")
    with kr.attach("then", accept=True) as session:
        assert session.execute("'x' in globals()").text == "False"
        session.stop()


@pytest.mark.slow
def test_a_notebook_of_a_kernelspec_of_ours_runs_in_the_kernel_behind_it(tmp_path: Path) -> None:
    path = notebook(tmp_path / "n.ipynb", ("print(1)", said("1\n")), kernel="krt-python3")
    assert verdicts(replay(path)) == ["same"]
