"""A session that somebody stopped is not brought back by whoever only listens or holds its notebook."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

import kernel_runtime as kr
from kernel_runtime.client import connection, spawn
from kernel_runtime.client.session_files import load
from kernel_runtime.errors import SupervisorFault


def test_a_stop_overtakes_a_request(krt_home: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that a leaving supervisor no longer answers is sent again. Whether to start another for it
    was decided before the first time, when the session had not been stopped: so an open page, which renews
    its hold on the notebook, brought back what was being stopped. It is decided when none lives.
    """
    alice, other = (kr.attach("alice", create=True, principal=who) for who in ("agent:a", "agent:b"))
    file = load("alice")
    asked: list[bool] = []

    def may_revive() -> bool:
        asked.append(spawn.is_running(file))
        return not alice.coroutines.was_stopped()

    with alice, other:
        assert alice.hold_notebook("page", seconds=1, revive=may_revive).held
        assert asked == []
        exchange: Callable[..., Any] = connection.ControlLine._exchange

        async def overtaken(line: connection.ControlLine, content: Mapping[str, Any], within: float) -> Any:
            if line is not alice.coroutines._line:
                return await exchange(line, content, within)
            monkeypatch.undo()
            other.run(other.coroutines.stop())
            raise connection._Gone

        monkeypatch.setattr(connection.ControlLine, "_exchange", overtaken)
        with pytest.raises(SupervisorFault) as told:
            alice.hold_notebook("page", seconds=1, revive=may_revive)
        assert told.value.fields["gone"]
        assert asked == [False]
        assert not spawn.is_running(file)
