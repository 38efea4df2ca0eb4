"""A kernel that is not ours and misbehaves: what is claimed is what was observed."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kernel_runtime as kr
from tests.cases.support import cell_of
from tests.contract.stock import (
    executions,
    kernel_of,
    kill,
    replace_supervisor,
    reply_to,
    running_session,
    stock_client,
    supervisor_of,
    text_of,
    until_idle,
)
from tests.support import eventually

FAKE = Path(__file__).with_name("fake_kernel.py")


def install(directory: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> None:
    spec = directory / "kernels" / "fake"
    spec.mkdir(parents=True)
    argv = [sys.executable, str(FAKE), "{connection_file}", *options]
    (spec / "kernel.json").write_text(
        json.dumps({"argv": argv, "display_name": "fake", "language": "steps", "interrupt_mode": "signal"})
    )
    monkeypatch.setenv("JUPYTER_PATH", str(directory))


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[kr.Session]:
    install(tmp_path, monkeypatch)
    with running_session(kernel="fake") as opened:
        yield opened


def steps(*lines: str) -> str:
    return "\n".join(lines)


def lines(execution: kr.Execution) -> list[str]:
    return str(execution.text).splitlines()


def test_a_kernel_that_behaves(session):
    done = session.execute(steps("say hello", "reply", "idle"))
    assert (done.outcome, lines(done)) == ("ok", ["hello"])
    done = session.execute(steps("error Oops", "reply error", "idle"))
    assert (done.outcome, done.error.ename, done.error.traceback) == ("error", "Oops", ["Oops"])


def test_no_reply_is_unknown_and_the_session_goes_on(session):
    done = session.execute(steps("say half", "idle"), timeout=30)
    assert (done.outcome, lines(done)) == ("unknown", ["half"])
    assert done.json()["evidence"]["reply"] == "missing"
    assert session.execute(steps("reply", "idle"), timeout=30).outcome == "ok"


def test_no_reply_after_an_error_message_is_that_error(session):
    done = session.execute(steps("error Oops", "idle"), timeout=30)
    assert (done.outcome, done.error.ename) == ("error", "Oops")
    assert done.json()["evidence"]["reply"] == "missing"


def test_no_reply_is_told_to_a_stock_client_too(session):
    with stock_client(session) as client:
        msg_id = client.execute(steps("say half", "idle"))
        reply = reply_to(client, msg_id)
        assert (reply["content"]["status"], reply["content"]["ename"]) == ("error", "ExecutionLost")
        assert text_of(until_idle(client, msg_id)) == "half\n"


def test_a_reply_before_the_outputs_waits_for_them(session):
    done = session.execute(steps("reply", "sleep 0.05", "say one", "say two", "idle"), timeout=30)
    assert (done.outcome, lines(done)) == ("ok", ["one", "two"])
    late = [entry.fact.late for entry in session.follow(0, timeout=0) if entry.kind == "OutputRecorded"]
    assert not any(late)


def test_a_reply_without_idle_ends_the_cell_and_says_so(session):
    """Mechanism: a kernel's PUB socket drops what comes after its high-water mark, idle too, and the reply
    is `ok` all the same. Right: the cell ends, and a gap says that its output may not be all.
    """
    done = session.execute(steps("say one", "reply"), timeout=30)
    assert (done.outcome, lines(done)[0]) == ("ok", "one")
    assert done.gaps == [{"reason": "no-idle", "messages": 0, "bytes": 0}]
    shown = json.dumps(cell_of(session.name, done))
    assert "output may be missing here, how much is not known: no-idle" in shown
    done = session.execute(steps("reply", "idle"), timeout=30)
    assert (done.outcome, done.gaps) == ("ok", [])


def test_the_first_of_two_replies_counts(session):
    assert session.execute(steps("reply", "reply error", "idle", "reply error"), timeout=30).outcome == "ok"
    assert session.execute(steps("reply error", "reply", "idle"), timeout=30).outcome == "error"
    assert session.execute(steps("reply", "idle", "idle"), timeout=30).outcome == "ok"


def test_late_output_belongs_to_the_cell_that_made_it(session):
    first = session.execute(steps("say mine", "reply", "idle"))
    second = session.execute(steps("late afterthought", "say yours", "reply", "idle"))
    assert lines(second) == ["yours"]
    assert lines(first.refresh()) == ["mine", "afterthought"]
    assert first.outcome == "ok"


@pytest.mark.parametrize(
    "content", ['{"status": "maybe"}', "{}", '{"status": 7}', '{"status": null, "execution_count": "x"}']
)
def test_a_reply_that_says_nothing_is_unknown(session, content):
    done = session.execute(steps(f"raw-reply {content}", "idle"), timeout=30)
    assert done.outcome == "unknown"
    assert session.execute(steps("reply", "idle"), timeout=30).outcome == "ok"


def test_aborted_by_the_kernel(session):
    assert session.execute(steps("reply aborted", "idle"), timeout=30).outcome == "aborted"


def test_messages_that_are_none_are_counted_not_fatal(session):
    done = session.execute(steps("say before", "bad", "say after", "reply", "idle"), timeout=30)
    assert (done.outcome, lines(done)) == ("ok", ["before", "after"])
    assert [gap["reason"] for gap in done.gaps] == ["unreadable"]
    assert done.gaps[0]["messages"] == 1


def test_ok_after_an_interrupt_is_interrupted(session):
    running = session.submit(steps("say on", "await-interrupt", "reply", "idle"))
    eventually(lambda: lines(running.refresh()) == ["on"], what="it runs")
    reached = session.interrupt()
    assert (reached.reached, reached.ended) == ("message", True)
    assert running.wait(10).outcome == "interrupted"
    # one interrupt, not two: the next cell is not hit
    assert session.execute(steps("sleep 0.3", "reply", "idle"), timeout=30).outcome == "ok"


def test_an_interrupt_that_does_nothing_ends_in_an_offer(session, tmp_path):
    running = session.submit(steps(f"wait {tmp_path / 'go'}", "reply", "idle"))
    eventually(lambda: running.refresh().status == "running", what="it runs")
    reached = session.interrupt()
    assert (reached.reached, reached.ended) == ("signal", False)
    assert "krt restart" in (reached.offer or "")
    (tmp_path / "go").touch()
    assert running.wait(10).outcome == "interrupted"


def test_input_is_asked_and_answered(session):
    running = session.submit(steps("ask who?", "reply", "idle"))
    eventually(lambda: running.refresh().status == "blocked", what="it asks")
    assert running.json()["blocked"]["prompt"] == "who?"
    session.answer("ada")
    assert lines(running.wait(10)) == ["answered ada"]


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSEGV])
def test_death_is_seen_at_once_with_its_signal(session, signum, tmp_path):
    go = tmp_path / "go"
    done = session.submit(steps("say last words", f"wait {go}", f"die {int(signum)}"))
    # a kernel without outbox can promise only what its socket had time to send
    eventually(lambda: lines(done.refresh()) == ["last words"], what="its last words")
    go.touch()
    done.wait(20)
    assert (done.outcome, lines(done)) == ("died", ["last words"])
    assert done.json()["evidence"]["signal"] == signum


def test_a_reply_that_waited_for_its_outputs_counts_though_the_kernel_dies(session):
    done = session.execute(steps("reply", "sleep 0.7", f"die {int(signal.SIGKILL)}"), timeout=30)
    assert done.outcome == "ok"
    eventually(lambda: session.row()["state"] == "dead", what="the death is known")


class TestAdoption:
    """The supervisor is killed while the cell runs."""

    @pytest.mark.parametrize("handover", [True, False])
    @pytest.mark.parametrize("eager", [True, False])
    def test_a_cell_that_goes_on_is_observed_to_its_end(self, tmp_path, monkeypatch, handover, eager):
        install(tmp_path, monkeypatch, *["--handover"] * handover, *["--eager"] * eager)
        go = tmp_path / "go"
        with running_session(kernel="fake") as session:
            running = session.submit(steps("say one", f"wait {go}", "say two", "reply", "idle"))
            eventually(lambda: lines(running.refresh()) == ["one"], what="it runs")
            kernel = kernel_of(session)
            replace_supervisor(session)
            assert kernel_of(session) == kernel
            assert session.row()["incarnation"] == 1
            go.touch()
            running.wait(20)
            # a kernel that does not let a peer come back sends its reply to nobody, unless it has looked
            # at its sockets in between: unknown, not guessed
            assert running.outcome == ("ok" if handover or eager else "unknown")
            assert lines(running) == ["one", "two"]
            # what was said in between, if anything, no kernel but ours keeps
            assert [gap["reason"] for gap in running.gaps] == ["unsupervised"]
            assert session.execute(steps("say next", "reply", "idle"), timeout=30).outcome == "ok"

    def test_a_cell_that_ended_meanwhile_is_unknown(self, session, tmp_path):
        go, ended = tmp_path / "go", tmp_path / "ended"
        code = steps("say one", f"wait {go}", "say unheard", "reply", "idle", f"touch {ended}")
        running = session.submit(code)
        eventually(lambda: lines(running.refresh()) == ["one"], what="it runs")
        kill(supervisor_of(session))
        go.touch()
        eventually(ended.exists, what="it ended alone")
        with kr.attach(session.name, principal="agent:next") as again:
            assert again.row()["incarnation"] == 1
            eventually(lambda: running.refresh().status == "done", 30, "an outcome")
        assert running.outcome == "unknown"
        assert running.json()["evidence"]["because"]
        assert lines(running) == ["one"]
        assert [gap["reason"] for gap in running.gaps] == ["unsupervised"]
        assert lines(session.execute(steps("say next", "reply", "idle"), timeout=30)) == ["next"]

    def test_the_kernel_died_meanwhile(self, session, tmp_path):
        go = tmp_path / "go"
        running = session.submit(steps("say one", f"wait {go}", "reply", "idle"))
        eventually(lambda: lines(running.refresh()) == ["one"], what="it runs")
        kernel = kernel_of(session)
        kill(supervisor_of(session))
        kill(kernel)
        eventually(lambda: session.row()["state"] == "dead", 30, "the death is known")
        assert running.refresh().outcome == "died"
        # its parent is one that stays, and saw it
        assert running.json()["evidence"]["signal"] == signal.SIGKILL

    def test_an_idle_kernel_is_simply_taken_over(self, session):
        session.execute(steps("say one", "reply", "idle"))
        replace_supervisor(session)
        done = session.execute(steps("say two", "reply", "idle"), timeout=30)
        assert (done.outcome, lines(done), done.gaps) == ("ok", ["two"], [])


def test_a_kernel_that_loses_what_it_is_asked_first(tmp_path, monkeypatch):
    """It was asked once whether it is up, and killed a minute later as one that had not started. It is asked
    again until it answers, as stock clients do.
    """
    install(tmp_path, monkeypatch, "--deaf")
    with running_session(kernel="fake") as session:
        assert session.execute(steps("reply", "idle"), timeout=30).outcome == "ok"
        assert session.incarnation == 1


def test_a_kernel_whose_iopub_is_never_heard(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, "--mute")
    with running_session(kernel="fake") as session:
        unheard = session.execute(steps("say nobody hears", "reply"), timeout=30)
        assert (unheard.outcome, [gap["reason"] for gap in unheard.gaps]) == ("ok", ["no-idle"])
        assert session.execute(steps("reply error"), timeout=30).outcome == "error"
        replace_supervisor(session)
        assert session.execute(steps("reply"), timeout=30).outcome == "ok"
    assert len(executions(session)) == 3
