"""Sessions in JupyterHub's single-user servers: enabled by installation, and beyond the reach of the hub."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import kernel_runtime as kr
from tests.contract.stock import executions, kernel_of, running_session
from tests.jupyter.hub import Hub, Person
from tests.jupyter.installed import Installed
from tests.support import eventually, krt, processes_of

pytestmark = pytest.mark.timeout(400)  # a wheel, a hub, and servers that it starts one after the other


@pytest.fixture(scope="module")
def bobs(krt_home: Path) -> Iterator[dict[str, str]]:
    """Where bob's sessions are; alice's are where those of the tests are."""
    place = krt_home.parent / "bob"
    yield {
        "KRT_HOME": str(place / "home"),
        "KRT_RUNTIME_DIR": str(place / "run"),
        "KRT_PRINCIPAL": "agent:bobs",
    }
    eventually(lambda: not processes_of(place / "home"), 30, "nothing of bob's is left")


@pytest.fixture(scope="module")
def hub(krt_home: Path, bobs: dict[str, str], wheel: Installed) -> Iterator[Hub]:
    place = krt_home.parent / "hub"
    place.mkdir()
    alice = {name: os.environ[name] for name in ("KRT_HOME", "KRT_RUNTIME_DIR")}
    hub = Hub(place, wheel, {"alice": alice, "bob": bobs})
    hub.start()
    yield hub
    hub.stop()


@pytest.fixture(scope="module")
def alice(hub: Hub) -> Person:
    person = Person(hub, "alice")
    person.log_in()
    return person


@pytest.fixture
def session(hub: Hub) -> Iterator[kr.Session]:
    """An agent's session, its notebook in alice's home directory."""
    home = hub.homes / "alice"
    with running_session("flights", cwd=home, notebook=home / "flights.ipynb") as session:
        session.execute("delays = [3, 14, 15]")
        yield session


def kernel_in(person: Person, name: str) -> str:
    """The kernel id of a session that is one of the kernels of that person's server."""

    def found() -> str:
        ids = {row["name"]: row["kernel_id"] for row in person.get("/kernel-runtime/api/sessions")}
        running = {model["id"] for model in person.get("/api/kernels")}
        return str(ids[name]) if ids.get(name) in running else ""

    return eventually(found, 30, f"{name} is a kernel of {person.name}'s server")


def test_an_agents_session_goes_on_while_the_hub_stops_and_starts_the_server(
    alice: Person, session: kr.Session
) -> None:
    alice.start_server()
    kernel_id = kernel_in(alice, "flights")
    rows = {row["path"]: row["kernel"]["id"] for row in alice.get("/api/sessions")}
    assert rows == {"flights.ipynb": kernel_id}
    with alice.channels(kernel_id) as channels:
        assert channels.run("print(sum(delays))", username="agent:flights")[1] == "32\n"
    assert [row.principal for row in executions(session)] == ["agent:host", "human:alice"]
    kernel = kernel_of(session)

    alice.hub.cull("alice")
    assert kernel_of(session) == kernel
    assert session.execute("print(len(delays))").text == "3\n"

    alice.start_server()
    assert kernel_in(alice, "flights") == kernel_id
    asked = {"cell_id": "hers", "source": "print(max(delays))", "key": "alice-1", "client": "page"}
    status, begun = alice.ask("POST", f"/kernel-runtime/api/kernels/{kernel_id}/execute", asked)
    assert status == 202, begun
    eventually(lambda: executions(session)[-1].status == "done", what="the cell has ended")
    last = executions(session)[-1]
    assert (last.principal, last.outcome, last.key) == ("human:alice", "ok", "alice-1")
    assert kernel_of(session) == kernel


def test_two_people_do_not_meet(alice: Person, session: kr.Session, bobs: dict[str, str]) -> None:
    bob = Person(alice.hub, "bob")
    done = krt("exec", "secrets", "theirs = 1", "--create", timeout=60, **bobs)
    assert done.returncode == 0, done.stderr
    try:
        bob.log_in()
        bob.start_server()
        alice.start_server()
        theirs, hers = kernel_in(bob, "secrets"), kernel_in(alice, "flights")
        assert [row["name"] for row in bob.get("/kernel-runtime/api/sessions")] == ["secrets"]
        assert [row["name"] for row in alice.get("/kernel-runtime/api/sessions")] == ["flights"]
        assert [model["id"] for model in bob.get("/api/kernels")] == [theirs]
        assert [model["id"] for model in alice.get("/api/kernels")] == [hers]
        # and the hub lets nobody into another's server
        assert bob.ask("GET", "/api/kernels", base=alice.base)[0] == 403
        assert bob.ask("GET", "/kernel-runtime/api/sessions", base=alice.base)[0] == 403
    finally:
        krt("stop", "secrets", timeout=60, **bobs)
