"""What a status adds to the journal's report: everybody's part, each from who knows it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from kernel_runtime.errors import KernelRuntimeError
from kernel_runtime.model.truth import Report
from kernel_runtime.supervisor.aside import Made
from kernel_runtime.supervisor.survey import Survey


def status(*, unseen: tuple[int, ...], running: bool = True) -> dict[str, Any]:
    """The document of a status where everybody answers at once."""
    why = {"execution_id": "e1"} if running else {}
    report = Report(session="s", incarnation=1, state="busy" if running else "idle", why=why)
    state = SimpleNamespace(running=object() if running else None, kernel="up")
    mine = {"kind": "process", "truth": "true", "started_by": "e1", "pid": 7, "command": ["sleep"]}
    supervisor: Any = SimpleNamespace(
        keeper=SimpleNamespace(look=lambda: None),
        pump=SimpleNamespace(read=lambda: True, is_observed=True),
        shell=SimpleNamespace(state=state),
        claims=SimpleNamespace(rows=lambda on_done, **_: on_done([])),
        questions=SimpleNamespace(ask=lambda _op, _args, on_answer, _timeout: on_answer(None)),
        reports=SimpleNamespace(ask=lambda _limit, _shown, on_made, _on_fault: on_made(Made(report, {}))),
        tty=SimpleNamespace(unseen=unseen),
        world=SimpleNamespace(
            activity=SimpleNamespace(describe=lambda on_described: on_described({"doing": "unknown"})),
            resources=lambda: [mine],
        ),
    )

    def failed(error: KernelRuntimeError) -> None:
        pytest.fail(error.message)

    documents: list[dict[str, Any]] = []
    Survey(supervisor, None, lambda _, document: documents.append(document), failed).begin()
    (document,) = documents
    told: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(document))
    return told


def test_a_busy_cell_is_told_with_what_may_not_be_looked_into() -> None:
    """Mechanism: a process of another user at the kernel's terminal hides whether it reads.

    Right: its pid is told beside what the cell does, and only while one runs.
    """
    assert status(unseen=(42,))["why"] == {
        "execution_id": "e1",
        "activity": {"doing": "unknown"},
        "unseen": [42],
        "processes": [{"pid": 7, "command": ["sleep"]}],
    }
    assert "unseen" not in status(unseen=())["why"]
    assert status(unseen=(42,), running=False)["why"] == {}
