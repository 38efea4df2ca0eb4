"""Questions to our own kernel on its control channel, answered also while a cell runs.

An answer comes or the time is up; in both cases `on_answer` is called, once.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kernel_runtime.supervisor.reactor import Timer
from kernel_runtime.wire import BadMessage, Message

if TYPE_CHECKING:
    from kernel_runtime.supervisor.session import Supervisor

OnAnswer = Callable[[dict[str, Any] | None], None]
"""given the result, `{"error": {"ename", "evalue"}}`, or None: no kernel of ours, or no answer in time"""

REPLY = "krt_probe_reply"


class KernelQuestions:
    """Asks, and matches answers to questions."""

    def __init__(self, supervisor: Supervisor, session: str) -> None:
        self._s = supervisor
        self._session = session
        self._open: dict[str, tuple[OnAnswer, Timer]] = {}

    def ask(self, op: str, args: Mapping[str, Any], on_answer: OnAnswer, timeout: float) -> None:
        """Ask one thing; `timeout` in seconds. Ops are in kernel/answering.py."""
        link = self._s.keeper.link
        state = self._s.shell.state
        if link is None or not link.record.observes or state.kernel != "up":
            self._s.reactor.after(0, lambda: on_answer(None))
            return
        msg_id = f"ask-{uuid.uuid4().hex}"
        content = {**args, "op": op}
        frames = link.signer.build("krt_probe_request", content, session=self._session, msg_id=msg_id)
        timer = self._s.reactor.after(timeout, lambda: self._settle(msg_id, None))
        self._open[msg_id] = (on_answer, timer)
        link.send("control", frames)

    def answered(self, message: Message) -> None:
        """A `krt_probe_reply` from the kernel."""
        try:
            parent, content = message.parent(), message.content_dict()
        except BadMessage:
            return
        result = content.get("result") if content.get("ok") else {"error": content.get("error")}
        self._settle(parent.msg_id, result if isinstance(result, dict) else None)

    def _settle(self, msg_id: str, result: dict[str, Any] | None) -> None:
        asked = self._open.pop(msg_id, None)
        if asked is not None:
            asked[1].cancel()
            asked[0](result)
