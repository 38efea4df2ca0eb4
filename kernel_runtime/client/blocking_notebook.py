"""The blocking client's part of the notebook's lease: `NotebookCalls` without an event loop."""

from __future__ import annotations

from kernel_runtime.client.blocking_calls import BlockingCalls
from kernel_runtime.client.connection import Revive
from kernel_runtime.client.notebook import Held


class BlockingNotebookCalls(BlockingCalls):
    """Methods, their arguments and errors are those of `AsyncSession`."""

    def hold_notebook(
        self, holder: str, *, seconds: float, flush: bool = False, revive: Revive = True
    ) -> Held:
        """Be the one who writes the notebook's file, for so many seconds."""
        return self.run(self._session.hold_notebook(holder, seconds=seconds, flush=flush, revive=revive))

    def release_notebook(self, holder: str) -> bool:
        """Have the supervisor write the file again."""
        return self.run(self._session.release_notebook(holder))
