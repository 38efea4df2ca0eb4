"""`krt kernel` behind a stock KernelManager: it lives, answers and ends as a kernel does."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from kernel_runtime import process
from kernel_runtime.client import session_files
from kernel_runtime.client.blocking import attach
from kernel_runtime.journal import JournalReader
from kernel_runtime.model.facts import SupervisorStarted
from tests.support import described, eventually, krt, processes_of

WITHIN = 40.0


@pytest.fixture(autouse=True)
def kernelspecs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python3` is an ephemeral session, `named` the session alice."""
    for options in (["--name", "python3"], ["--name", "named", "--session", "alice"]):
        done = krt("kernelspec", "install", "--prefix", str(tmp_path), *options)
        assert done.returncode == 0, done.stderr
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share" / "jupyter"))


@contextlib.contextmanager
def manager(name: str = "python3", **options: Any) -> Iterator[KernelManager]:
    made = KernelManager(kernel_name=name, **options)
    made.start_kernel()
    try:
        yield made
    finally:
        if made.has_kernel:
            made.shutdown_kernel()  # not `now`: a supervisor whose owner was killed lingers
        made.cleanup_resources()


@contextlib.contextmanager
def client_of(made: KernelManager) -> Iterator[BlockingKernelClient]:
    client = made.client()
    client.start_channels()
    try:
        _ready(client)
        yield client
    finally:
        client.stop_channels()


def _ready(client: BlockingKernelClient) -> None:
    """Wait until it answers; what does not is told with the processes that should have."""
    try:
        client.wait_for_ready(timeout=WITHIN)
    except RuntimeError as error:
        client.kernel_info()
        for channel in (client.shell_channel, client.iopub_channel, client.control_channel):
            error.add_note(f"{channel.socket.last_endpoint!r} has something: {channel.socket.poll(2000)}")
        for who in processes_of(Path(os.environ["KRT_HOME"])):
            error.add_note(described(who.pid))
        raise


def run(client: BlockingKernelClient, source: str, **options: Any) -> tuple[str, str]:
    """Reply status and what was printed."""
    printed: list[str] = []

    def hook(message: dict[str, Any]) -> None:
        if message["msg_type"] == "stream":
            printed.append(message["content"]["text"])

    options.setdefault("allow_stdin", False)
    reply = client.execute_interactive(source, output_hook=hook, timeout=WITHIN, **options)
    return reply["content"]["status"], "".join(printed)


def shim_of(made: KernelManager) -> subprocess.Popen[bytes]:
    started = made.provisioner.process  # type: ignore[union-attr]
    assert isinstance(started, subprocess.Popen)
    return started


def test_a_restart_is_the_next_incarnation_and_a_shutdown_the_end() -> None:
    with manager() as made, client_of(made) as client:
        assert run(client, "x = 1; print(x)") == ("ok", "1\n")
        (name,) = session_files.names()
        for number, now in ((2, False), (3, True)):
            made.restart_kernel(now=now)
            _ready(client)
            status, printed = run(client, "print('x' in globals())")
            assert (status, printed.splitlines()[-1]) == ("ok", "False")
            assert session_files.names() == [name]
            with attach(name) as session:
                assert session.incarnation == number
        made.shutdown_kernel()
    eventually(lambda: not session_files.names(), what="the ephemeral session is removed")


@pytest.mark.parametrize(
    "source,status",
    [
        ("import os; os._exit(3)", 3),
        ("import os; os.kill(os.getpid(), 9)", -9),
        ("import os; os.kill(os.getpid(), 15)", -15),
    ],
)
def test_it_ends_as_the_kernel_ended(source: str, status: int) -> None:
    with manager() as made, client_of(made) as client:
        shim = shim_of(made)
        client.execute(source)
        assert shim.wait(WITHIN) == status
        # kept: nobody said that this was the end
        (name,) = session_files.names()
        assert "KernelDied" in krt("log", name).stdout


def test_the_tool_is_not_answered_for_a_kernel_that_died() -> None:
    """A stock client learns it from its manager; a reply would be taken for the cell's own error."""
    with manager() as made, client_of(made) as client:
        msg_id = client.execute("import os; os._exit(3)")
        shim_of(made).wait(WITHIN)
        with contextlib.suppress(Exception):
            while True:
                reply = client.get_shell_msg(timeout=0.5)
                assert reply["parent_header"]["msg_id"] != msg_id


def test_an_interrupt_ends_the_cell() -> None:
    with manager() as made, client_of(made) as client:
        msg_id = client.execute("import time; print('on', flush=True); time.sleep(60)")
        _until_printed(client, msg_id)
        made.interrupt_kernel()
        assert _reply(client, msg_id)["content"]["ename"] == "KeyboardInterrupt"
        assert run(client, "print(2)") == ("ok", "2\n")


@pytest.mark.slow
def test_sigint_to_the_stand_in_ends_the_cell() -> None:
    with manager() as made, client_of(made) as client:
        msg_id = client.execute("import time; print('on', flush=True); time.sleep(60)")
        _until_printed(client, msg_id)
        shim_of(made).send_signal(signal.SIGINT)
        assert _reply(client, msg_id)["content"]["status"] == "error"
        assert run(client, "print(2)") == ("ok", "2\n")


@pytest.mark.slow
def test_sigkill_of_the_stand_in_ends_kernel_and_session(krt_home: Path) -> None:
    with manager() as made, client_of(made):
        os.kill(shim_of(made).pid, signal.SIGKILL)
        shim_of(made).wait(WITHIN)
        eventually(lambda: not processes_of(krt_home), timeout=WITHIN, what="everything has ended")
        assert session_files.names() == []


def test_sigterm_ends_kernel_and_session(krt_home: Path) -> None:
    with manager() as made, client_of(made):
        shim_of(made).terminate()
        assert shim_of(made).wait(WITHIN) == -signal.SIGTERM
        eventually(lambda: not processes_of(krt_home), timeout=WITHIN, what="everything has ended")
        assert session_files.names() == []


@pytest.mark.slow
def test_the_death_of_the_tool_ends_the_kernel_and_keeps_the_journal(krt_home: Path) -> None:
    tool = subprocess.Popen(
        [sys.executable, "-c", _TOOL], stdout=subprocess.PIPE, text=True, env={**os.environ}
    )
    assert tool.stdout is not None
    assert tool.stdout.readline() == "ready\n"
    tool.kill()
    tool.wait()
    tool.stdout.close()
    eventually(lambda: not processes_of(krt_home), timeout=WITHIN, what="everything has ended")
    assert len(session_files.names()) == 1


_TOOL = textwrap.dedent(
    """
    import time
    from jupyter_client.manager import KernelManager
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=40)
    print("ready", flush=True)
    time.sleep(600)
    """
)


def supervisor_of(name: str) -> int | None:
    """The pid of the supervisor that adopted the kernel; None while none has."""
    with JournalReader.open(session_files.load(name).journal) as journal:
        started, adopted = journal.latest("SupervisorStarted"), journal.latest("KernelAdopted")
    if started is None or adopted is None or adopted.seq < started.seq:
        return None
    assert isinstance(started.fact, SupervisorStarted)
    return started.fact.pid


def test_a_killed_supervisor_is_replaced_on_the_same_ports() -> None:
    with manager() as made, client_of(made) as client:
        run(client, "x = 41")
        (name,) = session_files.names()
        with attach(name) as session:
            supervisor = int(session.row()["supervisor_pid"])
            kernel = int(session.row()["kernel_pid"])
        who = process.identify(supervisor)
        assert who is not None
        os.kill(supervisor, signal.SIGKILL)
        # what a stock client sends while its connection dies is lost in it (docs/protocol.md): send later
        eventually(lambda: supervisor_of(name) not in (None, supervisor), what="another supervisor")
        assert run(client, "import os; print(x + 1, os.getpid())") == ("ok", f"42 {kernel}\n")
        assert shim_of(made).poll() is None


@pytest.mark.slow
def test_curve_keys_of_the_connection_file_are_the_doors() -> None:
    with manager(transport_encryption="required") as made, client_of(made) as client:
        assert json.loads(Path(made.connection_file).read_text())["curve_publickey"]
        assert run(client, "print(1)") == ("ok", "1\n")


@pytest.mark.slow
def test_options_for_the_kernel_reach_it() -> None:
    made = KernelManager(kernel_name="python3")
    made.start_kernel(extra_arguments=["--IPKernelApp.exec_lines=y = 7"])
    try:
        with client_of(made) as client:
            assert run(client, "print(y)") == ("ok", "7\n")
    finally:
        made.shutdown_kernel()
        made.cleanup_resources()


def test_a_named_session_is_joined_and_left() -> None:
    with manager("named") as made, client_of(made) as client:
        assert run(client, "x = 41") == ("ok", "")
        made.shutdown_kernel()
    with attach("alice") as session:
        assert session.execute("print(x + 1)").text == "42\n"
    with manager("named") as made, client_of(made) as client:
        assert run(client, "print(x + 2)") == ("ok", "43\n")
        os.kill(shim_of(made).pid, signal.SIGKILL)
        shim_of(made).wait(WITHIN)
    with manager("named") as made, client_of(made) as client:
        assert run(client, "print(x + 3)") == ("ok", "44\n")
        made.restart_kernel()
        client.wait_for_ready(timeout=WITHIN)
        status, printed = run(client, "print('x' in globals())")
        assert printed.splitlines()[-1:] == ["False"] or status == "error"
    with attach("alice") as session:
        assert session.incarnation == 2
        session.stop()


def test_input_finds_its_client_through_a_named_session() -> None:
    with manager("named") as made, client_of(made) as client:
        asked: list[str] = []

        def answer(message: dict[str, Any]) -> None:
            asked.append(message["content"]["prompt"])
            client.input("blue")

        assert run(client, "print(input('colour? '))", allow_stdin=True, stdin_hook=answer) == (
            "ok",
            "blue\n",
        )
        assert asked == ["colour? "]
    with attach("alice") as session:
        session.stop()


def test_a_connection_file_that_is_none(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.json", tmp_path / "bad.json"):
        (tmp_path / "bad.json").write_text("{}")
        for options in ((), ("--session", "alice")):
            done = krt("kernel", "-f", str(path), *options)
            assert done.returncode == 2, done.stderr
            assert str(path) in done.stderr
            assert "next:" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_kernel_that_dies_at_start_says_why(tmp_path: Path) -> None:
    spec = tmp_path / "share" / "jupyter" / "kernels" / "broken"
    spec.mkdir()
    code = "import sys; sys.exit('no licence for this kernel')"
    argv = [sys.executable, "-c", code, "{connection_file}"]
    (spec / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "b", "language": "none"}))
    installed = krt(
        "kernelspec", "install", "--kernel", "broken", "--name", "ours", "--prefix", str(tmp_path)
    )
    assert installed.returncode == 0, installed.stderr
    log = tmp_path / "stderr"
    with log.open("wb") as stderr:
        made = KernelManager(kernel_name="ours")
        made.start_kernel(stderr=stderr)
        assert shim_of(made).wait(WITHIN) == 1
        made.cleanup_resources()
    assert "no licence for this kernel" in log.read_text()


def test_a_kernelspec_of_ours_is_never_its_own_kernel(tmp_path: Path) -> None:
    spec = json.loads((tmp_path / "share" / "jupyter" / "kernels" / "python3" / "kernel.json").read_text())
    assert spec["metadata"]["kernel_runtime"]["kernel"] == "python3"
    assert spec["metadata"]["supported_encryption"] == ["curve"]
    again = krt("kernelspec", "install", "--kernel", "named", "--name", "loop", "--prefix", str(tmp_path))
    assert again.returncode == 2
    assert "no kernelspec 'named'" in again.stderr


def _until_printed(client: BlockingKernelClient, msg_id: str) -> None:
    while True:
        message = client.get_iopub_msg(timeout=WITHIN)
        if message["parent_header"].get("msg_id") == msg_id and message["msg_type"] == "stream":
            return


def _reply(client: BlockingKernelClient, msg_id: str) -> dict[str, Any]:
    while True:
        reply: dict[str, Any] = client.get_shell_msg(timeout=WITHIN)
        if reply["parent_header"]["msg_id"] == msg_id:
            return reply


def test_a_tool_that_removed_the_directory_it_starts_kernels_in(tmp_path: Path) -> None:
    """The stand-in asks where it is after the tool has removed the place (a test's temporary directory, a
    job's scratch): a stock kernel starts there all the same, and so does ours.
    """
    spec = tmp_path / "share" / "jupyter" / "kernels" / "python3" / "kernel.json"
    document = json.loads(spec.read_text())
    gone = tmp_path / "gone"
    gone.mkdir()
    document["argv"] = ["sh", "-c", 'rmdir "$0"; exec "$@"', str(gone), *document["argv"]]
    spec.write_text(json.dumps(document))
    made = KernelManager(kernel_name="python3")
    made.start_kernel(cwd=str(gone))
    try:
        with client_of(made) as client:
            assert run(client, "print('here')") == ("ok", "here\n")
        assert not gone.exists()
    finally:
        made.shutdown_kernel()
        made.cleanup_resources()
