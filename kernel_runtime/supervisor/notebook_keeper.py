"""Keeps the session's notebook written, on a thread of its own and never in the way.

Writes are grouped: soon after an execution ended, and the longer a write takes the longer the next
one waits, so that a notebook of 10,000 cells does not keep a core busy. While somebody else holds the
file (`notebook_lease`), nothing is written but what `flush` is asked for.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from kernel_runtime.errors import KernelRuntimeError
from kernel_runtime.journal import JournalReader
from kernel_runtime.notebook.render import NotebookBuilder
from kernel_runtime.notebook.replaced import Replaced
from kernel_runtime.notebook.write import NotebookFile, Written
from kernel_runtime.supervisor.door import write_private
from kernel_runtime.supervisor.reactor import Reactor, Timer

log = logging.getLogger("kernel_runtime.supervisor")

PAUSE = 0.4
"""seconds from the end of an execution to the write"""
SETTLE = 1.0
"""seconds until a file in the middle of somebody's save is looked at again"""
SHARE = 25
"""a write that took t is followed by a pause of at least SHARE times t"""
LONGEST = 5.0
"""seconds that a notebook is ever behind"""


class NotebookKeeper:
    """Writes the notebook when touched; tells whether people changed it since."""

    def __init__(self, reactor: Reactor, reader: JournalReader, path: Path, mark: Path) -> None:
        self._reactor = reactor
        self._path = path
        self._mark = mark
        self._reader = reader
        self._sources: tuple[tuple[list[int], int], Mapping[str, str] | None] | None = None
        """what `edited_sources` found last, and for which file and head"""
        self._file = self._new_file()
        self._lock = threading.Lock()
        self._timer: Timer | None = None
        self._wanted = threading.Event()
        self._closed = False
        self._held = False
        """somebody else writes the file"""
        self._cost = 0.0
        self._thread = threading.Thread(target=self._run, name="notebook", daemon=True)
        self._thread.start()

    def _new_file(self) -> NotebookFile:
        replaced = Replaced(self._mark.with_name("replaced"))
        return NotebookFile(self._path, NotebookBuilder(self._reader), replaced)

    def redacted(self, less: Callable[[Path], object]) -> bool:
        """Something was taken out of the journal: `less` takes it out of the file, and all is rendered anew.

        Returns:
            False: the file is somebody else's to write, and is as it was.

        Raises:
            KernelRuntimeError, OSError: the file is as it was.
        """
        self._forget_timer()
        with self._lock:
            self._file, self._sources = self._new_file(), None
            if self._held:
                self._file.hold()
                return False
            if self._path.is_file():
                less(self._path)
        self._write()
        return True

    def touch(self) -> None:
        """The journal has something the notebook has not."""
        if self._timer is None and not self._held:
            self._timer = self._reactor.after(min(max(PAUSE, SHARE * self._cost), LONGEST), self._due)

    def _due(self) -> None:
        self._timer = None
        self._wanted.set()

    def move(self, path: Path) -> None:
        """The file has been renamed to that, as it was."""
        with self._lock:
            self._path = self._file.path = path

    def write_now(self) -> None:
        """Bring the file up to date before anything else happens, unless it is somebody else's to write."""
        self._forget_timer()
        if not self._held:
            self._write()

    def hold(self) -> None:
        """Write no more by itself."""
        self._held = True
        self._file.hold()
        self._forget_timer()

    def flush(self) -> dict[str, bool]:
        """Bring the file up to date although it is held, on whatever thread this is called.

        `deferred`: it is in the middle of somebody's save and was left as it is.
        """
        return {"deferred": self._write()}

    def resume(self) -> None:
        """The file is ours again: merge what people and the journal made of it."""
        self._held = False
        self._file.release()
        self.touch()

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run(self) -> None:
        deferred = False
        while True:
            self._wanted.wait(SETTLE if deferred else None)
            self._wanted.clear()
            if self._closed:
                return
            deferred = not self._held and self._write()

    def _write(self) -> bool:
        """Write; True: the file is in the middle of somebody's save and is to be tried again."""
        # of this thread alone: on a busy machine a write takes long and costs little
        began = time.thread_time()
        try:
            with self._lock:
                written = self._file.write()
                self._remember(written)
        except (KernelRuntimeError, OSError) as error:
            # the journal has everything; the next write tries again
            log.warning("the notebook was not written: %s", error)
            return False
        self._cost = time.thread_time() - began
        for note in written.notes:
            log.info("notebook: %s", note)
        return written.deferred

    def _remember(self, written: Written) -> None:
        """Write down how we left the file, for supervisors to come."""
        if written.changed and self._file.mark is not None:
            left = {"look": self._file.mark[:3], "differs": self._file.differs()}
            write_private(self._mark, json.dumps(left).encode())

    def edited_sources(self) -> Mapping[str, str] | None:
        """`cell_id → sha256` of the file's cells, or None while they are what ran.

        Costs nothing in the second case, and in the first only when file or journal have news.
        """
        try:
            now = _look(self._path)
            left = json.loads(self._mark.read_text())
        except (OSError, ValueError):
            return None
        if isinstance(left, dict) and left.get("look") == now and not left.get("differs"):
            return None
        with self._lock:
            key = (now, self._reader.head())
            if self._sources is None or self._sources[0] != key:
                self._sources = (key, self._file.sources())
            return self._sources[1]

    def close(self) -> None:
        """Write what is due and end."""
        due = self._timer is not None or self._wanted.is_set()
        self._closed = True
        self._wanted.set()
        self._thread.join()
        if due:
            self.write_now()


def _look(path: Path) -> list[int]:
    info = path.stat()
    return [info.st_ino, info.st_mtime_ns, info.st_size]
