"""News of one session for everyone in this server who waits for some: one doorbell per session.

`told` rises when something was journaled that a page shows; output is no such thing, since it goes to the
document. A watch ends when the session is stopped or removed; it never brings a supervisor back to a session
that somebody stopped. It does not promise to see each entry: it says that there are some.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from kernel_runtime.errors import KernelRuntimeError
from kernel_runtime.model import facts

if TYPE_CHECKING:
    from kernel_runtime.client.session import AsyncSession

_PAUSE = 0.05
"""seconds between two looks while a cell prints: each look is a query"""
_AGAIN = 2.0
"""seconds until a session that cannot be read is tried again"""

_QUIET = (facts.OutputRecorded, facts.GapRecorded, facts.PrincipalAttached)
_SHOWN = tuple(fact.__name__ for fact in facts.Fact.__subclasses__() if fact not in _QUIET)
_LIVES = ("KernelStarting", "KernelStarted", "KernelDied", "KernelStopped", "KernelStartFailed")
ANSWERS = ("KernelUnresponsive", "KernelResponsive")
"""one that answers again says so to its supervisor alone"""


class Watch:
    """Follows one session from its present state on. `start` once, `close` once."""

    def __init__(
        self,
        line: AsyncSession,
        on_life: Callable[[str, int], None],
        on_fault: Callable[[KernelRuntimeError], None],
    ) -> None:
        self.told = 0
        """`seq` of the last entry that a page shows something of"""
        self._line = line
        self._on_life = on_life
        """called with the kind and the incarnation of each entry about the kernel's life"""
        self._on_fault = on_fault
        self._bell = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._follow())

    @property
    def ended(self) -> bool:
        return self._task is None or self._task.done()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._ring()

    async def wait(self, after: int, timeout: float) -> bool:
        """Until something shown was journaled after that `seq`; False: the time is up or the watch ended."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while self.told <= after:
            bell, left = self._bell, deadline - loop.time()
            if left <= 0 or self.ended:
                return False
            try:
                await asyncio.wait_for(bell.wait(), left)
            except TimeoutError:
                return False
        return True

    def _ring(self) -> None:
        bell, self._bell = self._bell, asyncio.Event()
        bell.set()

    async def _follow(self) -> None:
        seen = -1
        try:
            while True:
                try:
                    if not await self._line.news(seen, None):
                        break
                    seen = self._look(seen)
                except KernelRuntimeError as error:
                    self._on_fault(error)
                    await asyncio.sleep(_AGAIN)
                await asyncio.sleep(_PAUSE)
            self._look(seen)
        except (FileNotFoundError, KernelRuntimeError) as error:  # removed under us
            if isinstance(error, KernelRuntimeError):
                self._on_fault(error)
        finally:
            self._ring()

    def _look(self, seen: int) -> int:
        journal = self._line.journal
        head = journal.head()
        # the first look: how it stands now, whatever happened while this server was attaching
        if seen < 0:
            lives = [entry for kinds in (_LIVES, ANSWERS) for entry in journal.entries(kinds=kinds, last=1)]
        else:
            lives = list(journal.entries(seen, kinds=(*_LIVES, *ANSWERS)))
        for entry in lives:
            self._on_life(entry.kind, entry.incarnation)
        if latest := journal.entries(max(seen, 0), kinds=_SHOWN, last=1):
            self.told = latest[0].seq
            self._ring()
        return head
