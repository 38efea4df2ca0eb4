"""The blocking client's part of managed processes: `TerminalCalls` without an event loop."""

from __future__ import annotations

import signal as signals
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernel_runtime.client.blocking_calls import BlockingCalls
from kernel_runtime.client.terminals import Screen, Spawned, Tail


class BlockingTerminalCalls(BlockingCalls):
    """Methods, their arguments and errors are those of `AsyncSession`."""

    def spawn(
        self,
        argv: Sequence[str] = (),
        *,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        name: str | None = None,
        interactive: bool = False,
        rows: int = 24,
        cols: int = 80,
    ) -> Spawned:
        """Start a process that belongs to the session, not to its kernel nor to this client."""
        return self.run(
            self._session.spawn(
                argv, cwd=cwd, env=env, name=name, interactive=interactive, rows=rows, cols=cols
            )
        )

    def processes(self) -> list[dict[str, Any]]:
        """Managed processes: all that live, and the latest that ended with how they ended."""
        return self.run(self._session.processes())

    def type(self, process_id: str, text: str) -> None:
        r"""Type on its terminal; a line is ended by `\r`, as the Enter key does."""
        self.run(self._session.type(process_id, text))

    def type_eof(self, process_id: str) -> None:
        """End of file, as Ctrl-D at the start of a line is."""
        self.run(self._session.type_eof(process_id))

    def signal(self, process_id: str, number: int = signals.SIGTERM) -> None:
        """Signal its process group."""
        self.run(self._session.signal(process_id, number))

    def tail(self, process_id: str, size: int = 1 << 16) -> Tail:
        """The last `size` bytes of what it said."""
        return self.run(self._session.tail(process_id, size))

    def screen(self, process_id: str) -> Screen:
        """What is on its terminal, by lines."""
        return self.run(self._session.screen(process_id))

    def wait_process(self, process_id: str, timeout: float | None = None) -> dict[str, Any]:
        """Its row, once it has ended."""
        return self.run(self._session.wait_process(process_id, timeout))
