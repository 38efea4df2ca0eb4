"""What watching effects costs: the audit hook in a cell full of opens and imports, and its begin and end.

An audit hook cannot be taken away again, so two processes forked from one take turns, cell by cell.
"""

from __future__ import annotations

import gc
import os
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from benchmarks.measure import Result, Series, spell
from kernel_runtime.kernel.attribution import Parent, current
from kernel_runtime.kernel.effects import Effects

_FILES = 2000
_GOAL = 1.02
_GOAL_TABLES = 60e-6
_MODULES = [
    "argparse",
    "ast",
    "base64",
    "bisect",
    "calendar",
    "cmd",
    "code",
    "codecs",
    "colorsys",
    "configparser",
    "copy",
    "csv",
    "dataclasses",
    "decimal",
    "difflib",
    "dis",
    "doctest",
    "fileinput",
    "filecmp",
    "fractions",
    "ftplib",
    "getopt",
    "gettext",
    "glob",
    "gzip",
    "hashlib",
    "heapq",
    "html.parser",
    "http.client",
    "imaplib",
    "inspect",
    "json",
    "keyword",
    "linecache",
    "locale",
    "mailbox",
    "mimetypes",
    "netrc",
    "optparse",
    "pdb",
    "pickletools",
    "plistlib",
    "poplib",
    "pprint",
    "profile",
    "queue",
    "random",
    "shelve",
    "shlex",
    "smtplib",
]


class _Nothing(Effects):
    """What Python takes for calling a hook, whatever that does."""

    def install(self, own: Iterable[str] = (), capture: object = None) -> None:
        sys.addaudithook(lambda _event, _args: None)


class _Without(Effects):
    """No hook at all."""

    def install(self, own: Iterable[str] = (), capture: object = None) -> None:
        pass


class _Process:
    """A fork that runs the cell when it is told to, and tells the processor time that it took."""

    def __init__(self, files: list[str], effects: Effects) -> None:
        asked, self._ask = os.pipe()
        self._answer, answer = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._ask)  # so that its end is seen, should we die
            _serve(asked, answer, files, effects)

    def cell(self) -> float:
        os.write(self._ask, b"g")
        return float(struct.unpack("d", os.read(self._answer, 8))[0])

    def end(self) -> None:
        os.write(self._ask, b"q")
        os.waitpid(self._pid, 0)


def _serve(asked: int, answer: int, files: list[str], effects: Effects) -> None:
    kept = set(sys.modules)
    effects.install()
    while os.read(asked, 1) == b"g":
        for name in sys.modules.keys() - kept:
            del sys.modules[name]
        gc.collect()
        effects.begin("m")
        began = time.process_time()
        for file in files:
            with open(file) as opened:
                opened.read()
        for name in _MODULES:
            __import__(name)
        took = time.process_time() - began
        effects.end()
        os.write(answer, struct.pack("d", took))
    os._exit(0)


def run(*, quick: bool = False) -> list[Result]:
    current.set(Parent({"header": {"msg_id": "m"}}, [], b"{}"))
    with tempfile.TemporaryDirectory() as directory:
        files = [os.path.join(directory, str(number)) for number in range(_FILES)]
        for file in files:
            Path(file).write_text("x" * 100)
        processes = [_Process(files, effects) for effects in (Effects(), _Nothing(), _Without())]
        rounds = []
        for turn in range(6 if quick else 100):
            turns = processes if turn % 2 else processes[::-1]
            times = {process: process.cell() for process in turns}
            rounds.append([times[process] for process in processes])
        for process in processes:
            process.end()
    ours, nothing, theirs = (Series(series[1:]) for series in zip(*rounds, strict=True))
    tables = _tables(200 if quick else 5000)
    return [
        Result(
            what=f"a cell that reads {_FILES} files and imports {len(_MODULES)} modules",
            ours=str(ours),
            theirs=str(theirs),
            ratio=ours.median / theirs.median,
            goal=_GOAL,
            note="processor time, with the audit hook and without",
        ),
        Result(
            what="… and with a hook that does nothing",
            ours=str(nothing),
            theirs=str(theirs),
            ratio=nothing.median / theirs.median,
            note="what Python itself takes for calling any hook: more than the goal above",
        ),
        Result(
            what="looking at the tables before and after a cell",
            ours=spell(tables),
            theirs="",
            ok=tables <= _GOAL_TABLES,
            note=f"median, with 56 descriptors open; goal {spell(_GOAL_TABLES)}",
        ),
    ]


def _tables(rounds: int) -> float:
    effects = Effects()
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(56 - len(os.listdir("/proc/self/fd")))]
    effects.begin("m")
    effects.end()
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        effects.begin("m")
        effects.end()
        times.append(time.perf_counter() - began)
    for fd in held:
        os.close(fd)
    return statistics.median(times)
