"""Sessions among the kernels of a Jupyter server: there, and never hurt by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kernel_runtime as kr
from kernel_runtime.client import session_files
from tests.contract.stock import executions, kernel_of, running_session
from tests.jupyter.server import Server, is_running
from tests.support import eventually


def _attached(server: Server, session: kr.Session) -> str:
    """The session's kernel id, once the server has found it."""
    kernel_id = server.kernel_of(session.name)
    eventually(lambda: kernel_id in server.kernels(), what="the session is one of the kernels")
    return kernel_id


def _row(server: Server, session: kr.Session) -> Any:
    _attached(server, session)
    path = Path(session_files.load(session.name).notebook).name
    return eventually(lambda: server.rows().get(path), what="its notebook has a row")


def test_a_session_that_starts_later_is_a_kernel_and_a_notebook(server: Server, session: kr.Session) -> None:
    row = _row(server, session)
    assert row["kernel"]["id"] == server.kernel_of(session.name)
    assert (row["type"], row["kernel"]["name"]) == ("notebook", "python3")
    kernel_id = row["kernel"]["id"]
    eventually(lambda: server.kernels()[kernel_id]["execution_state"] == "idle", what="its kernel is up")


def test_shutdown_detaches_until_it_is_opened_again(server: Server, session: kr.Session) -> None:
    kernel_id, kernel = _attached(server, session), kernel_of(session)
    session.execute("kept = 7")
    path = _row(server, session)["path"]
    status, _ = server.ask("DELETE", f"/api/kernels/{kernel_id}")
    assert status == 204
    assert kernel_id not in server.kernels()
    assert path not in server.rows()
    assert kernel_of(session) == kernel
    # nothing that happens in it brings it back by itself
    session.execute("kept += 1")
    assert kernel_id not in server.kernels()
    opened = server.post("/api/sessions", _opening(path), 201)
    assert opened["kernel"]["id"] == kernel_id
    with server.channels(kernel_id) as channels:
        assert channels.run("print(kept)")[1] == "8\n"
    assert kernel_of(session) == kernel


def test_deleting_its_row_detaches(server: Server, session: kr.Session) -> None:
    row, kernel = _row(server, session), kernel_of(session)
    status, _ = server.ask("DELETE", f"/api/sessions/{row['id']}")
    assert status == 204
    assert row["kernel"]["id"] not in server.kernels()
    assert kernel_of(session) == kernel


def test_restart_is_the_next_incarnation_and_every_page_is_told(server: Server, session: kr.Session) -> None:
    kernel_id = _attached(server, session)
    session.execute("gone = 1")
    with server.channels(kernel_id) as first, server.channels(kernel_id) as second:
        model = server.post(f"/api/kernels/{kernel_id}/restart")
        assert model["id"] == kernel_id
        for channels in (first, second):
            channels.until(lambda m: m["content"].get("execution_state") == "restarting")
        reply, _ = first.run("gone")
        assert reply["content"]["ename"] == "NameError"
    assert session.row()["incarnation"] == 2


def test_a_restart_from_elsewhere_is_told_too(server: Server, session: kr.Session) -> None:
    with server.channels(_attached(server, session)) as channels:
        session.restart()
        channels.until(lambda m: m["content"].get("execution_state") == "restarting")


def test_interrupt(server: Server, session: kr.Session) -> None:
    kernel_id = _attached(server, session)
    with server.channels(kernel_id) as channels:
        msg_id = channels.execute("import time; print('runs', flush=True)\nwhile True: time.sleep(0.01)")
        channels.until(lambda m: m["msg_type"] == "stream")
        server.post(f"/api/kernels/{kernel_id}/interrupt", status=204)
        assert channels.reply(msg_id)["content"]["ename"] == "KeyboardInterrupt"
    assert executions(session)[-1].outcome == "interrupted"


def test_a_dead_kernel_stays_dead_and_the_next_cell_says_what_is_lost(
    server: Server, session: kr.Session
) -> None:
    kernel_id = _attached(server, session)
    with server.channels(kernel_id) as channels:
        channels.run("x = 1")
        msg_id = channels.execute("import os; os._exit(3)")
        assert channels.reply(msg_id)["content"]["ename"] == "KernelDied"
        eventually(lambda: server.kernels()[kernel_id]["execution_state"] == "dead", what="its model says so")
        assert session.row()["incarnation"] == 1  # nobody started it again
        reply, text = channels.run("x")
        assert reply["content"]["ename"] == "HeapLost"
        assert "lost" in text
        assert channels.run("y = 2; print(y)")[1] == "2\n"
    assert session.row()["incarnation"] == 2


def test_a_notebook_that_lies_elsewhere_is_in_a_folder_of_its_own(server: Server) -> None:
    with running_session("elsewhere", cwd=server.root) as session:
        kernel_id = _attached(server, session)
        path = "krt-sessions/elsewhere.ipynb"
        eventually(lambda: path in server.rows(), what="it has a row")
        assert server.rows()[path]["kernel"]["id"] == kernel_id
        top = server.get("/api/contents/")["content"]
        assert "krt-sessions" in [one["path"] for one in top]
        assert not (server.root / "krt-sessions").exists()
        listed = server.get("/api/contents/krt-sessions")["content"]
        assert [one["path"] for one in listed] == [path]
        model = server.get(f"/api/contents/{path}")
        assert model["content"]["metadata"]["kernel_runtime"]["session"] == "elsewhere"
        # a save reaches the file, a checkpoint goes nowhere near it
        model["content"]["cells"].append(
            {"cell_type": "markdown", "id": "m", "metadata": {}, "source": "mine"}
        )
        assert server.ask("PUT", f"/api/contents/{path}", {**model, "type": "notebook"})[0] == 200
        file = Path(session_files.load("elsewhere").notebook)
        assert "mine" in file.read_text()
        server.post(f"/api/contents/{path}/checkpoints", status=201)
        assert not (file.parent / ".ipynb_checkpoints").exists()
        assert server.ask("DELETE", f"/api/contents/{path}")[0] == 403
        assert server.ask("PATCH", f"/api/contents/{path}", {"path": "mine.ipynb"})[0] == 403
        for outside in (
            "journal.db",
            "../elsewhere/journal.db",
            "..%2f..%2felsewhere%2fjournal.db",
            "other.ipynb",
        ):
            assert server.ask("GET", f"/api/contents/krt-sessions/{outside}")[0] == 404


def test_opening_the_notebook_of_a_stopped_session_starts_its_kernel(
    server: Server, session: kr.Session
) -> None:
    path = _row(server, session)["path"]
    session.stop()
    eventually(lambda: path not in server.rows(), what="a stopped session is let go")
    opened = server.post("/api/sessions", _opening(path), 201)
    assert opened["kernel"]["id"] == server.kernel_of(session.name)
    assert session.row()["incarnation"] == 2


def test_a_removed_session_is_forgotten(server: Server) -> None:
    with running_session("shortlived", cwd=server.root, notebook=server.root / "shortlived.ipynb") as session:
        kernel_id = _attached(server, session)
    session_files.remove("shortlived")
    eventually(lambda: kernel_id not in server.kernels(), what="no kernel")
    assert "shortlived.ipynb" not in server.rows()


def test_our_kernelspec_makes_a_session_of_a_notebook(server: Server) -> None:
    specs = server.get("/api/kernelspecs")["kernelspecs"]
    assert specs["krt-python3"]["spec"]["display_name"] == "Python 3 (session)"
    (server.root / "my work.ipynb").write_text(
        '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'
    )
    opened = server.post("/api/sessions", _opening("my work.ipynb", "krt-python3"), 201)
    with kr.attach("my-work", principal="agent:test", accept=True) as session:
        try:
            assert session_files.load("my-work").notebook == str(server.root / "my work.ipynb")
            assert session_files.load("my-work").cwd == str(server.root)
            assert opened["kernel"]["id"] == server.kernel_of("my-work")
            again = server.post("/api/sessions", _opening("my work.ipynb", "python3"), 201)
            assert again["id"] == opened["id"]
        finally:
            session.stop()


def test_our_kernelspec_without_a_notebook_makes_a_session_too(server: Server) -> None:
    made = server.post("/api/kernels", {"name": "krt-python3"}, 201)
    rows = server.get("/kernel-runtime/api/sessions")
    (name,) = [row["name"] for row in rows if row["kernel_id"] == made["id"]]
    with kr.attach(name, principal="agent:test", accept=True) as session:
        session.stop()


def test_another_kernelspec_on_a_sessions_notebook_is_refused(server: Server, session: kr.Session) -> None:
    row = _row(server, session)
    server.ask("DELETE", f"/api/sessions/{row['id']}")
    status, said = server.ask("POST", "/api/sessions", _opening(row["path"], "bash"))
    assert status == 500
    assert session.name in said["message"]


def test_other_kernels_are_stock(server: Server) -> None:
    model = server.post("/api/kernels", {"name": "python3"}, 201)
    with server.channels(model["id"]) as channels:
        pid = int(channels.run("import os; print(os.getpid())")[1])
    assert is_running(pid)
    status, _ = server.ask("DELETE", f"/api/kernels/{model['id']}")
    assert status == 204
    assert not is_running(pid)


def _opening(path: str, kernel: str = "python3") -> dict[str, Any]:
    return {"path": path, "name": path, "type": "notebook", "kernel": {"name": kernel}}


def test_a_notebook_that_is_renamed_in_a_page_stays_its_sessions(server: Server, session: kr.Session) -> None:
    row = _row(server, session)
    session.execute("x = 1")
    (server.root / "deep").mkdir(exist_ok=True)
    new = f"deep/renamed-{session.name}.ipynb"
    assert server.ask("PATCH", f"/api/contents/{row['path']}", {"path": new})[0] == 200
    assert server.rows()[new]["id"] == row["id"]
    assert (
        server.ask("PATCH", f"/api/sessions/{row['id']}", {"path": new, "name": new, "type": "notebook"})[0]
        == 200
    )
    assert Path(session.row()["notebook"]) == server.root / new
    session.execute("y = 2")
    eventually(lambda: "y = 2" in (server.root / new).read_text(), what="the supervisor writes the new file")
    # a directory above it
    assert server.ask("PATCH", "/api/contents/deep", {"path": "elsewhere"})[0] == 200
    session.execute("z = 3")
    moved = server.root / f"elsewhere/renamed-{session.name}.ipynb"
    eventually(lambda: "z = 3" in moved.read_text(), what="it goes with its directory")
    assert not (server.root / row["path"]).exists()
    assert not (server.root / "deep").exists()
    assert [path for path in server.rows() if session.name in path] == [f"elsewhere/{moved.name}"]


def test_a_path_is_found_from_where_the_sessions_kernel_starts(server: Server, session: kr.Session) -> None:
    """JupyterLab asks for it to open a file that a traceback names; as for a stock kernel."""
    kernel_id = _attached(server, session)
    there = server.root / "module.py"
    there.write_text("")

    def resolved(path: str) -> dict[str, str]:
        found = server.get(f"/api/resolvePath?kernel={kernel_id}&path={path}")["resolved"]
        return {entry["scope"]: entry["path"] for entry in found}

    assert resolved("module.py")["kernel"] == str(there.resolve())
    assert resolved(str(there))["kernel"] == str(there)
    for nowhere in ("nothing.py", "~nobody-of-that-name/x.py", "x" * 5000):
        assert "kernel" not in resolved(nowhere)
