"""Why a busy cell is busy, from looks that are made up: what each pattern of threads is called."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_runtime.supervisor.world import activity, looks
from kernel_runtime.supervisor.world.looks import Call, Look, ThreadLook, parse_call

PID = 2**22 + 1
"""no process has this pid, so nothing is found behind its descriptors"""
MS = 1_000_000

FUTEX = Call("futex", (1, 0x189, 0, 0, 0, 0), (1, 1))
GIL = Call("futex", (1, 0x89, 0, 7, 0, 0), (1, 1))
SLEEP = Call("clock_nanosleep", (1, 1, 0, 0, 0, 0), (1, 1))
ANSWER = {
    "frames": [
        {"file": "/lib/x.py", "line": 3, "function": "f"},
        {"file": "/tmp/ipykernel_1/5.py", "line": 1, "function": "<module>"},
    ]
}


def thread(tid: int, state: str, *, cpu: int = 0, switches: int = 0, call: Call | None = None) -> ThreadLook:
    return ThreadLook(tid=tid, state=state, cpu=cpu, switches=switches, call=call, channel="")


def at(moment: float, *threads: ThreadLook) -> Look:
    return Look(pid=PID, at=moment, threads={one.tid: one for one in threads}, descendants={})


def why(
    *taken: Look, answer: dict[str, Any] | None = ANSWER, asked: bool = True
) -> tuple[str, dict[str, Any]]:
    found = activity.why_busy(list(taken), answer, asked=asked)
    return found["doing"], found["evidence"]


def test_computing_names_the_frame_and_the_cell() -> None:
    doing, evidence = why(at(0, thread(PID, "R")), at(0.03, thread(PID, "R", cpu=9 * MS)))
    assert doing == "computing"
    assert (evidence["frame"]["function"], evidence["cell"]["line"]) == ("f", 1)


def test_a_processor_that_was_used_is_computing_also_if_it_waits_at_this_instant() -> None:
    looks = (
        at(0, thread(PID, "S", call=FUTEX)),
        at(0.03, thread(PID, "S", cpu=25 * MS, switches=4, call=FUTEX)),
    )
    assert why(*looks)[0] == "computing"


def test_a_turn_with_the_gil_is_computing() -> None:
    looks = at(0, thread(PID, "R")), at(0.03, thread(PID, "S", cpu=8 * MS, switches=5, call=GIL))
    doing, evidence = why(*looks)
    assert (doing, evidence["gil"]) == ("computing", "shared with other threads")


def test_one_wait_on_a_lock() -> None:
    doing, evidence = why(at(0, thread(PID, "S", call=FUTEX)), at(0.03, thread(PID, "S", call=FUTEX)))
    assert (doing, evidence["waits_since_before"]) == ("waiting on a lock", True)


def test_sleeping_in_a_kernel_that_answers() -> None:
    assert why(at(0, thread(PID, "S", call=SLEEP)), at(0.03, thread(PID, "S", call=SLEEP)))[0] == "sleeping"


def starved(main: ThreadLook, then: ThreadLook) -> tuple[Look, Look, Look]:
    """A control thread that asks for the GIL all the time."""
    return (
        at(0, main, thread(2, "S")),
        at(0.03, main, thread(2, "S", switches=5, call=GIL)),
        at(0.3, then, thread(2, "S", switches=55, call=GIL)),
    )


def test_asleep_with_the_gil() -> None:
    main = thread(PID, "S", call=SLEEP)
    doing, evidence = why(*starved(main, main), answer=None)
    assert doing == "holding the GIL in native code"
    assert evidence["gil"] == {"wanted_by": 1, "for_seconds": 0.27, "by_main": True}
    assert evidence["syscall"] == "clock_nanosleep"


def test_computing_with_the_gil_and_without_giving_it_away() -> None:
    looks = starved(thread(PID, "R"), thread(PID, "R", cpu=250 * MS))
    assert why(*looks, answer=None)[0] == "holding the GIL in native code"


def test_python_code_gives_the_gil_away_however_long_an_answer_takes() -> None:
    looks = starved(thread(PID, "R"), thread(PID, "R", cpu=250 * MS, switches=50))
    assert why(*looks, answer=None)[0] == "computing"


def test_a_main_thread_that_got_no_processor_is_not_blamed() -> None:
    looks = starved(thread(PID, "R"), thread(PID, "R", cpu=5 * MS))
    assert why(*looks, answer=None)[0] == "computing"


def test_another_thread_holds_the_gil() -> None:
    looks = (
        at(0, thread(PID, "S", call=GIL)),
        at(0.03, thread(PID, "S", switches=5, call=GIL)),
        at(0.3, thread(PID, "S", switches=55, call=GIL)),
    )
    doing, evidence = why(*looks, answer=None)
    assert (doing, evidence["gil"]["by_main"]) == ("holding the GIL in native code", False)


def test_silence_alone_proves_nothing() -> None:
    main = thread(PID, "S", call=SLEEP)
    doing, evidence = why(at(0, main), at(0.03, main), at(0.3, main), answer=None)
    assert (doing, evidence["control"]) == ("sleeping", "silent for 0.3 s")


def test_a_kernel_that_cannot_be_asked_is_seen_all_the_same() -> None:
    main = thread(PID, "S", call=SLEEP)
    doing, evidence = why(at(0, main), at(0.03, main), answer=None, asked=False)
    assert doing == "sleeping"
    assert "control" not in evidence


@pytest.mark.parametrize("state, how", [("T", "by a signal"), ("t", "by a debugger")])
def test_a_stopped_kernel(state: str, how: str) -> None:
    doing, evidence = why(at(0, thread(PID, state)), at(0.03, thread(PID, state)), answer=None)
    assert (doing, evidence["stopped"]) == ("stopped", how)


def test_a_kernel_that_is_gone_is_unknown() -> None:
    assert why(at(0), at(0.03), answer=None)[0] == "unknown"
    assert looks.look(PID).threads == {}


def test_a_system_call_that_may_not_be_seen_is_told_by_the_kernels_function() -> None:
    def waits_in(channel: str) -> str:
        main = ThreadLook(tid=PID, state="S", cpu=0, switches=0, call=None, channel=channel)
        return why(at(0, main), at(0.03, main))[0]

    assert waits_in("futex_do_wait") == "waiting on a lock"
    assert waits_in("hrtimer_nanosleep") == "sleeping"
    assert waits_in("do_wait") == "waiting on a child"
    assert waits_in("sk_wait_data") == "waiting on a socket"
    assert waits_in("do_epoll_wait") == "unknown"
    assert waits_in("") == "unknown"


def test_what_a_descriptor_is_cannot_be_guessed() -> None:
    main = thread(PID, "S", call=Call("read", (3, 0, 0, 0, 0, 0), (1, 1)))
    assert why(at(0, main), at(0.03, main))[0] == "unknown"
    poll = thread(PID, "S", call=Call("poll", (0x1000, 2, 0xFFFFFFFF, 0, 0, 0), (1, 1)))
    doing, evidence = why(at(0, poll), at(0.03, poll))
    assert (doing, evidence["descriptors"]) == ("unknown", "could not be read")
    other = thread(PID, "S", call=Call("number 999", (0, 0, 0, 0, 0, 0), (1, 1)))
    assert why(at(0, other), at(0.03, other))[0] == "unknown"


@pytest.mark.parametrize("raw", [b"", b"running\n", b"-1 0x7ffe 0x7fb5\n"])
def test_who_is_in_no_system_call(raw: bytes) -> None:
    assert parse_call(raw) is None
