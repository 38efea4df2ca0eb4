"""Failpoints: off means nothing at all, on means once, there, and nowhere else."""

from __future__ import annotations

import errno
import subprocess
import sys
import timeit
from pathlib import Path

import pytest

from kernel_runtime import process
from kernel_runtime.core.lifecycle import messages as m
from kernel_runtime.testing import failpoints
from kernel_runtime.testing.failpoints import Failpoint
from tests.support import eventually


def test_without_the_variable_reach_is_a_function_that_does_nothing():
    assert failpoints._from_environment({}) is failpoints._nothing
    assert failpoints._from_environment({"KRT_FAILPOINT": ""}) is failpoints._nothing
    each = min(timeit.repeat(lambda: failpoints._nothing("x"), number=10_000, repeat=5)) / 10_000
    assert each < 5e-6


@pytest.mark.parametrize("spec", ["a", "a:", ":kill", "a:explode", "a:kill:often", "a:kill:-1"])
def test_a_spec_that_is_none_is_refused(spec: str):
    with pytest.raises(ValueError, match="NAME:kill"):
        Failpoint(spec)


def test_it_acts_at_the_nth_time_and_never_again():
    point = Failpoint("here:enospc:3")
    point("here")
    point("elsewhere")
    point("here")
    with pytest.raises(OSError, match="failpoint here") as raised:
        point("here")
    assert raised.value.errno == errno.ENOSPC
    point("here")


def test_around_an_event_its_type_completes_the_name():
    point = Failpoint("after-intent:eio")
    event = m.Proceeded()
    point("after", event)
    point("before", m.KernelExited(pid=1))
    submitted = m.Submitted(token=1, queued=None, principal="", client="")  # type: ignore[arg-type]
    point("before", submitted)
    with pytest.raises(OSError, match="after-intent"):
        point("after", submitted)


def test_every_event_it_names_is_one_of_the_core():
    assert set(failpoints.EVENTS) <= {name for name, value in vars(m).items() if isinstance(value, type)}


def test_armed_by_a_file_and_once_for_all_processes(tmp_path: Path):
    point = Failpoint("here:eio", str(tmp_path))
    point("here")
    (tmp_path / "arm").touch()
    with pytest.raises(OSError, match="here"):
        point("here")
    assert (tmp_path / "hit").read_text().isdigit()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["arm", "hit"]
    Failpoint("here:eio", str(tmp_path))("here")


@pytest.mark.parametrize("action, code", [("kill", -9), ("eio", 1)])
def test_in_a_process(action: str, code: int):
    program = "from kernel_runtime.testing.failpoints import reach; reach('here'); print('still here')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"KRT_FAILPOINT": f"here:{action}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code
    assert "still here" not in done.stdout


def test_the_thread_that_reaches_it_is_the_one_that_stops(tmp_path: Path):
    """SIGSTOP that is sent to a process may be taken by another of its threads, and the one that sent it ran
    on until that had stopped all: far enough to do what it was to be stopped before.
    """
    program = """if True:
        import sys, threading
        from kernel_runtime.testing.failpoints import reach
        def work():
            reach('here')
            sys.stdout.write('went on'), sys.stdout.flush()
        threading.Thread(target=work).start()
        threading.Event().wait()"""
    for number in range(20):
        directory = tmp_path / str(number)
        directory.mkdir()
        (directory / "arm").touch()
        with subprocess.Popen(
            [sys.executable, "-c", program],
            env={"KRT_FAILPOINT": "here:stop", "KRT_FAILPOINT_DIR": str(directory)},
            stdout=subprocess.PIPE,
        ) as child:
            eventually(lambda: process.run_state(child.pid) == "T", what="it is stopped")
            child.kill()
            assert child.communicate()[0] == b""
