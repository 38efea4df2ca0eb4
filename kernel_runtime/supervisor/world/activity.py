"""Why a busy cell is busy, with evidence: computing, waiting, sleeping, or holding the GIL in native code.

Two looks at the threads, a moment apart, and one question to the kernel's control thread. A kernel that
answers says where its main thread is. One that does not answer, while a thread of it wakes every few
milliseconds to ask for the GIL and does not get it, has its GIL held by native code. Silence alone proves
nothing: the machine may be slow. Where the evidence is not there, the answer is `unknown`.

Seen is the main thread, where cells run. What other threads do is counted beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kernel_runtime.supervisor.world import waiting
from kernel_runtime.supervisor.world.looks import Look, ThreadLook, look

if TYPE_CHECKING:
    from kernel_runtime.supervisor.session import Supervisor

HOLDING, STOPPED = "holding the GIL in native code", "stopped"

APART = 0.03
"""seconds between the two looks"""
ANSWER_WITHIN = 0.3
"""seconds that the control thread has to answer; one that gets the GIL needs a few milliseconds"""

_BUSY = 0.5
"""of the time on a processor is computing"""
_SHARED = 0.1
"""of the time on a processor, and waiting for its turn with the GIL otherwise, is computing too"""
_SWITCH = 0.005
"""seconds after which a thread that waits for the GIL asks again: sys.getswitchinterval()"""
_RAN = 0.03
"""seconds on a processor in which Python code would have let go of the GIL several times"""
_STARVED = 0.3
"""of the wake-ups that such a thread would have: enough to know it by"""
_FRAMES = 3
_CELLS = ("ipykernel_", "<ipython-input", "ipython-input-")
"""in the file names under which cells are compiled"""

Own = Callable[[int, str], bool]
"""`(fd, what it is)`: whether a descriptor of the kernel's is the machinery's"""
Described = Callable[[dict[str, Any]], None]


class Activity:
    """Describes what the kernel of a session does now, without ever waiting."""

    def __init__(self, supervisor: Supervisor, own: Own) -> None:
        self._s = supervisor
        self._own = own

    def describe(self, on_described: Described, timeout: float = ANSWER_WITHIN) -> None:
        """Call `on_described({"doing", "evidence"})` once, within about `timeout` seconds."""
        record = self._s.keeper.record
        if record is None:
            on_described({"doing": waiting.UNKNOWN, "evidence": {"kernel": None}})
            return
        pid = record.process.pid
        asked = record.observes and self._s.shell.state.kernel == "up"
        looks = [look(pid)]
        answers: list[Mapping[str, Any] | None] = []

        def judged() -> None:
            if len(looks) < 2 or not answers:
                return
            if asked and answers[0] is None:
                looks.append(look(pid))
            on_described(why_busy(looks, answers[0], asked=asked, silent_for=timeout, own=self._own))

        def answered(answer: dict[str, Any] | None) -> None:
            answers.append(answer)
            judged()

        def again() -> None:
            looks.append(look(pid))
            judged()

        self._s.questions.ask("stack", {}, answered, timeout)
        self._s.reactor.after(APART, again)


def why_busy(
    looks: list[Look],
    answer: Mapping[str, Any] | None,
    *,
    asked: bool,
    silent_for: float = ANSWER_WITHIN,
    own: Own = lambda *_: False,
) -> dict[str, Any]:
    """`{"doing", "evidence"}` from two looks; a third one, taken at the end of a silence, tells of the GIL.

    `answer` is the kernel's to `stack`, None for none; `asked`: whether there could have been one.
    """
    first, second = looks[0].main, looks[1].main
    evidence: dict[str, Any] = {}
    if first is None or second is None:
        return {"doing": waiting.UNKNOWN, "evidence": {"kernel": "its threads cannot be seen"}}
    if second.state in "Tt":
        how = "by a debugger" if second.state == "t" else "by a signal"
        return {"doing": STOPPED, "evidence": {"state": second.state, "stopped": how}}
    seconds = looks[1].at - looks[0].at
    share = (second.cpu - first.cpu) / 1e9 / seconds if seconds > 0 else 0.0
    evidence |= {"state": second.state, "cpu": round(share, 2), "seconds": round(seconds, 3)}
    evidence |= _beside(looks)
    if asked and answer is None:
        evidence["control"] = f"silent for {silent_for:g} s"
        if len(looks) > 2 and (held := _gil(looks[1], looks[2])) is not None:
            waits = (
                waiting.wait_of(looks[2].pid, looks[2].main or second, own) if not held["by_main"] else None
            )
            about = _call(looks[2].main or second) if waits is None else {"main": waits.doing}
            return {"doing": HOLDING, "evidence": {**evidence, **about, "gil": held}}
    evidence |= _where(answer)
    if (first.state == "R" and second.state == "R") or share >= _BUSY:
        return {"doing": waiting.COMPUTING, "evidence": evidence}
    if share >= _SHARED and second.in_timed_futex and second.switches - first.switches > 1:
        return {"doing": waiting.COMPUTING, "evidence": {**evidence, "gil": "shared with other threads"}}
    if second.state == "R":
        # between two waits: what it waited for before says more than that it runs at this instant
        second = first
    waits = waiting.wait_of(looks[1].pid, second, own)
    evidence["waits_since_before"] = first.call == second.call and first.switches == second.switches
    if waits.evidence.get("event_loop") and evidence.get("other_threads_computing"):
        return {"doing": waiting.COMPUTING, "evidence": {**evidence, **waits.evidence}}
    return {"doing": waits.doing, "evidence": {**evidence, **waits.evidence}}


def _call(found: ThreadLook) -> dict[str, Any]:
    return {"syscall": found.call.name} if found.call is not None else {}


def _beside(looks: list[Look]) -> dict[str, Any]:
    """How many other threads and descendants were on a processor between the looks."""
    first, second = looks[0], looks[1]
    seconds = max(second.at - first.at, 1e-6) * 1e9
    threads = sum(
        now.cpu - first.threads[tid].cpu > _BUSY * seconds or now.state == first.threads[tid].state == "R"
        for tid, now in second.threads.items()
        if tid != second.pid and tid in first.threads
    )
    below = sum(
        now - first.descendants[pid] > _BUSY * seconds
        for pid, now in second.descendants.items()
        if pid in first.descendants
    )
    told = {"other_threads_computing": threads, "descendants_computing": below}
    return {name: count for name, count in told.items() if count}


def _gil(before: Look, after: Look) -> dict[str, Any] | None:
    """Who holds the GIL, when somebody starves for it; None when there is no sign of that.

    A thread that wants it waits for one switch interval, asks its holder to let go and waits again. So one
    that starves is in a timed futex and wakes about 200 times a second; Python code that holds the GIL lets
    go when asked, and then waits itself for its next turn. Native code does neither.
    """
    seconds = after.at - before.at
    enough = seconds / _SWITCH * _STARVED
    starving = [
        tid
        for tid, now in after.threads.items()
        if (then := before.threads.get(tid)) is not None
        # one of the two looks may have met it awake
        and (now.in_timed_futex or then.in_timed_futex)
        and now.switches - then.switches >= enough
    ]
    if not starving:
        return None
    main, was = after.main, before.main
    if main is None or was is None:
        return None
    told = {"wanted_by": len(starving), "for_seconds": round(seconds, 3)}
    if main.tid in starving:
        return {**told, "by_main": False}
    gave = main.switches - was.switches
    if main.state == "R":
        # measured by the time it had: on a busy machine it may not have got to giving anything away
        ran = (main.cpu - was.cpu) / 1e9
        holds = ran >= _RAN and gave < ran / _SWITCH * _STARVED
    else:
        holds = gave < enough
    return {**told, "by_main": True} if holds else None


def _where(answer: Mapping[str, Any] | None) -> dict[str, Any]:
    """Where the main thread is, by the kernel's own word."""
    frames = (answer or {}).get("frames")
    if not isinstance(frames, list) or not frames:
        return {}
    cell = next((one for one in frames if any(mark in str(one.get("file")) for mark in _CELLS)), None)
    told: dict[str, Any] = {"frame": frames[0], "stack": frames[:_FRAMES]}
    if cell is not None:
        told["cell"] = cell
    return told
