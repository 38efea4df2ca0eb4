"""The control line: requests find their replies, across supervisors that die."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kernel_runtime.client import connection, session_files, spawn
from kernel_runtime.client.connection import ControlLine
from kernel_runtime.client.session_files import SessionFile
from kernel_runtime.errors import HeapLost, KeyConflict, NotAllowed, SupervisorFault
from tests.support import eventually
from tests.unit.client.fake import FakeSupervisor, Handler, ok


@pytest.fixture
def session() -> SessionFile:
    return session_files.create("alice", principal="agent:test")


class Supervisors:
    """Starts fake supervisors, and stands in for the spawning of real ones."""

    def __init__(self, session: SessionFile) -> None:
        self.session = session
        self.started: list[FakeSupervisor] = []
        self.handlers: list[Handler] = []

    def start(self, handler: Handler) -> FakeSupervisor:
        fake = FakeSupervisor(self.session, handler)
        self.started.append(fake)
        return fake

    def ensure(self, session: SessionFile, timeout: float = 60.0) -> bool:
        if spawn.is_running(session):
            return False
        if not self.handlers:
            raise SupervisorFault("no supervisor is left")
        self.start(self.handlers.pop(0))
        return True

    def end(self) -> None:
        for fake in self.started:
            fake.die()


@pytest.fixture
def supervisors(session: SessionFile, monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisors]:
    found = Supervisors(session)
    monkeypatch.setattr(spawn, "ensure_supervisor", found.ensure)
    monkeypatch.setattr(connection, "_CHECK", 0.02)
    yield found
    found.end()


def ask(session: SessionFile, *requests: tuple[str, dict[str, Any]], **how: Any) -> list[Any]:
    """Send all requests at once on one line; their results or errors."""

    async def run() -> list[Any]:
        line = ControlLine(session, "agent:test")
        try:
            asked = [line.request(op, arguments, **how) for op, arguments in requests]
            return list(await asyncio.gather(*asked, return_exceptions=True))
        finally:
            line.close()

    return asyncio.run(run())


def test_a_request_carries_its_op_its_principal_and_its_arguments(
    session: SessionFile, supervisors: Supervisors
) -> None:
    fake = supervisors.start(lambda _: ok(pid=1))
    assert ask(session, ("ping", {"x": 1})) == [{"pid": 1}]
    assert fake.requests == [{"op": "ping", "principal": "agent:test", "x": 1}]


def test_replies_in_any_order_find_their_requests(session: SessionFile, supervisors: Supervisors) -> None:
    supervisors.start(lambda content: ok(echo=content["n"]))
    asked = [("state", {"n": n}) for n in range(200)]
    assert ask(session, *asked) == [{"echo": n} for n in range(200)]


def test_an_error_is_raised_as_the_class_it_was(session: SessionFile, supervisors: Supervisors) -> None:
    supervisors.start(
        lambda _: {"ok": False, "error": HeapLost("gone", hint="accept", report={"cells": []}).to_json()}
    )
    (error,) = ask(session, ("submit", {}))
    assert isinstance(error, HeapLost)
    assert (error.hint, error.fields) == ("accept", {"report": {"cells": []}})


def test_a_supervisor_is_started_where_none_lives(session: SessionFile, supervisors: Supervisors) -> None:
    supervisors.handlers = [lambda _: ok(n=1)]
    assert ask(session, ("ping", {})) == [{"n": 1}]


def test_a_request_whose_supervisor_dies_is_sent_to_the_next(
    session: SessionFile, supervisors: Supervisors
) -> None:
    def die(_: dict[str, Any]) -> None:
        threading.Thread(target=first.die).start()  # it cannot join itself

    async def run() -> Any:
        line = ControlLine(session, "agent:test")
        try:
            return await line.request("submit", {"key": "k"})
        finally:
            line.close()

    first = supervisors.start(die)
    supervisors.handlers = [lambda _: ok(n=2)]
    assert asyncio.run(run()) == {"n": 2}
    assert [fake.requests for fake in supervisors.started] == [
        [{"op": "submit", "principal": "agent:test", "key": "k"}]
    ] * 2


@pytest.mark.parametrize("op", ["answer", "interrupt", "restart", "stop"])
def test_what_must_not_happen_twice_is_not_sent_twice(
    op: str, session: SessionFile, supervisors: Supervisors
) -> None:
    async def run() -> Any:
        line = ControlLine(session, "agent:test")
        asked = asyncio.ensure_future(line.request(op))
        try:
            await asyncio.to_thread(eventually, lambda: op in first.ops, what="the request arrived")
            await asyncio.to_thread(first.die)
            return await asked
        finally:
            line.close()

    first = supervisors.start(lambda _: None)
    supervisors.handlers = [lambda _: ok()]
    with pytest.raises(SupervisorFault, match="not known") as caught:
        asyncio.run(run())
    assert caught.value.fields["gone"] is True
    assert len(supervisors.started) == 1


def test_supervisors_that_die_over_a_request_end_in_an_error_with_their_log(
    session: SessionFile, supervisors: Supervisors, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: SessionFile, timeout: float = 60.0) -> bool:
        supervisors.start(lambda _: None)
        return True

    async def run() -> None:
        line = ControlLine(session, "agent:test")
        asked = asyncio.ensure_future(line.request("status"))
        try:
            while not asked.done():
                if supervisors.started and supervisors.started[-1].ops:
                    await asyncio.to_thread(supervisors.started[-1].die)
                await asyncio.sleep(0.001)
            await asked
        finally:
            line.close()

    monkeypatch.setattr(spawn, "ensure_supervisor", fail)
    (session.directory / "supervisor.log").write_text("Traceback: it broke\n")
    with pytest.raises(SupervisorFault, match="4 supervisors died") as caught:
        asyncio.run(run())
    assert "it broke" in caught.value.hint


def test_a_supervisor_that_lives_and_does_not_answer_is_reported(
    session: SessionFile, supervisors: Supervisors
) -> None:
    supervisors.start(lambda _: None)
    (error,) = ask(session, ("status", {}), within=0.05)
    assert isinstance(error, SupervisorFault)
    assert error.fields["gone"] is False
    assert "no answer to `status`" in error.message


def test_a_dead_supervisor_is_not_replaced_where_that_is_not_wanted(
    session: SessionFile, supervisors: Supervisors
) -> None:
    supervisors.handlers = [lambda _: ok()]
    (error,) = ask(session, ("changes", {}), revive=False)
    assert isinstance(error, SupervisorFault)
    assert error.fields["gone"] is True
    assert supervisors.started == []


def test_messages_signed_with_another_key_are_no_replies(
    session: SessionFile, supervisors: Supervisors
) -> None:
    """Mechanism: the front door's key was replaced under a client that still holds the old one."""
    fake = supervisors.start(lambda _: ok())
    fake._signer = type(fake._signer)(b"another")
    fake._signer.split = type(fake._signer)(b"a key").split  # type: ignore[method-assign]
    (error,) = ask(session, ("ping", {}), within=0.1)
    assert isinstance(error, SupervisorFault)


def test_a_front_door_of_another_user_is_refused(
    session: SessionFile, supervisors: Supervisors, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisors.start(lambda _: ok())
    monkeypatch.setattr("os.getuid", lambda: 12345)
    with pytest.raises(NotAllowed, match="another user"):
        connection.read_front_door(session)


def test_a_front_door_that_is_no_connection_file_is_an_error_with_a_next_step(
    session: SessionFile, supervisors: Supervisors
) -> None:
    supervisors.start(lambda _: ok())
    session.front.write_text("{")
    (error,) = ask(session, ("ping", {}))
    assert isinstance(error, SupervisorFault)
    assert "adopts" in error.hint


def test_what_comes_after_the_first_answer_goes_on_with_the_same_connection(
    session: SessionFile, supervisors: Supervisors
) -> None:
    async def run() -> int:
        line = ControlLine(session, "agent:test")
        met = []
        line.on_connect = lambda: met.append(1)
        try:
            for _ in range(3):
                await line.request("ping")
            with pytest.raises(KeyConflict):
                await line.request("submit")
        finally:
            line.close()
        return len(met)

    supervisors.start(
        lambda c: ok() if c["op"] == "ping" else {"ok": False, "error": KeyConflict("used").to_json()}
    )
    assert asyncio.run(run()) == 1


def test_closing_ends_what_is_in_flight(session: SessionFile, supervisors: Supervisors) -> None:
    async def run() -> None:
        line = ControlLine(session, "agent:test")
        asked = asyncio.ensure_future(line.request("changes"))
        await asyncio.to_thread(eventually, lambda: fake.requests, what="the request arrived")
        line.close()
        with pytest.raises(asyncio.CancelledError):
            await asked

    fake = supervisors.start(lambda _: None)
    asyncio.run(run())
