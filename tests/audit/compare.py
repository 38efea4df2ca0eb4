"""`python -m tests.audit.compare PYTHON [NAME…]`: the notebooks by krt replay, nbval and papermill; a table.

PYTHON is the interpreter of an environment with nbval, papermill and the packages that the notebooks use.
Each notebook is recorded as in the tests and exported; the others see what they can see, the file. What a
cell should be found to be is what its description says of its last execution:

    found           failed, and it cannot be reproduced (`different`, `nondeterministic`)
    missed          not failed, though it cannot be reproduced
    noise           failed by an address, a time, a temporary path (`same-normalized`)
    order           failed, though the record is true: what ran between, or a kernel's death, is not in a file

Not in CI: it compares versions that are not ours. docs/replay-compared.md has what it printed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
from msgspec import Struct

import kernel_runtime as kr
from kernel_runtime.client import session_files
from kernel_runtime.replay import replay
from tests.audit import forger
from tests.audit.agent import expected, found, record
from tests.audit.described import Described, all_names, described
from tests.support import krt

LIMIT = 240
"""seconds for one program and notebook"""
ILL = ("different", "nondeterministic")


class Counts(Struct):
    """What one program said of one notebook."""

    found: int = 0
    missed: int = 0
    noise: int = 0
    order: int = 0
    seconds: float = 0.0

    def cell(self) -> str:
        """As the table shows it."""
        parts = [f"{getattr(self, name)} {name}" for name in ("found", "missed", "noise", "order")]
        told = ", ".join(part for part in parts if not part.startswith("0 ")) or "all well"
        return f"{told} ({self.seconds:.0f} s)"


def should_be(notebook: Described) -> dict[str, str]:
    """The verdict on each cell's last execution."""
    return {row.cell_id: row.verdict for row in notebook.executions}


def counted(notebook: Described, failed: set[str], cells: set[str]) -> Counts:
    """Failed cells, by what they should have been."""
    counts = Counts()
    for cell, verdict in should_be(notebook).items():
        if cell in cells and verdict in ILL:
            if cell in failed:
                counts.found += 1
            else:
                counts.missed += 1
        elif cell in failed:
            if verdict == "same-normalized":
                counts.noise += 1
            else:
                counts.order += 1
    return counts


def code_cells(path: Path) -> list[Any]:
    document = nbformat.read(path, as_version=4)
    return [cell for cell in document.cells if cell.cell_type == "code"]


def nbval(python: str, path: Path) -> set[str]:
    """Ids of the cells that `pytest --nbval` fails."""
    report = path.with_suffix(".xml")
    subprocess.run(
        [python, "-m", "pytest", "--nbval", "--nbval-cell-timeout=60", "-q", "-p", "no:cacheprovider"]
        + [f"--junitxml={report}", f"--rootdir={path.parent}", path.name],
        cwd=path.parent,
        env=clean(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=LIMIT,
        check=False,
    )
    ids = [cell["id"] for cell in code_cells(path)]
    bad: set[str] = set()
    for case in ET.parse(report).getroot().iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            bad.add(ids[int(str(case.get("name")).rpartition(" ")[2])])
    return bad


def papermill(python: str, path: Path) -> str | None:
    """The cell in which papermill stops, or None: it compares nothing."""
    target = path.with_suffix(".out.ipynb")
    subprocess.run(
        [python, "-m", "papermill", "--execution-timeout", "60", "--no-progress-bar", path.name, target.name],
        cwd=path.parent,
        env=clean(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=LIMIT,
        check=False,
    )
    for cell in code_cells(target):
        if cell.metadata.get("papermill", {}).get("exception"):
            return str(cell["id"])
    return None


def clean() -> dict[str, str]:
    """The environment without what points to our kernels."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("KRT_", "JUPYTER", "PYTHON"))
    }


def one(notebook: Described, directory: Path, python: str) -> list[str]:
    """A row of the table."""
    work = directory / notebook.name
    session = record(notebook, work)
    began = time.monotonic()
    result = replay(session, two_times=notebook.two_times, allow=notebook.allow)
    ours = "as written down" if found(result) == expected(notebook) else "NOT as written down"
    spent = time.monotonic() - began
    path = export(notebook, work)
    cells = {cell["id"] for cell in code_cells(path)}
    of_file, theirs = (
        _judged(notebook, cells, call) for call in (lambda: _ill(path), lambda: nbval(python, path))
    )
    stop, seconds = timed(lambda: papermill(python, path))
    end = f"stops at `{stop}`" if stop else "runs through"
    return [
        notebook.name,
        f"{len(notebook.executions)} / {len(cells)}",
        f"{ours} ({spent:.0f} s)",
        of_file.cell(),
        theirs.cell(),
        f"{end} ({seconds:.0f} s)",
    ]


def _judged(notebook: Described, cells: set[str], call: Callable[[], set[str]]) -> Counts:
    failed, seconds = timed(call)
    counts = counted(notebook, failed, cells)
    counts.seconds = seconds
    return counts


def export(notebook: Described, work: Path) -> Path:
    path = work / f"{notebook.name}.ipynb"
    done = krt("export", notebook.name, str(path))
    assert done.returncode == 0, done.stderr
    return path


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    began = time.monotonic()
    return call(), time.monotonic() - began


# the doctored files


def number(path: Path) -> None:
    """A number that a cell printed."""
    _in_output(path, "common", "text", _other_digit)


def moved(path: Path) -> None:
    forger.move_cell(path, "words", 99)


def tail(path: Path) -> None:
    """The last two cells are gone."""
    document = json.loads(path.read_text())
    del document["cells"][-2:]
    path.write_text(json.dumps(document))


def output(path: Path) -> None:
    """A result, in its text and in its HTML."""
    document = json.loads(path.read_text())
    cell = next(cell for cell in document["cells"] if cell["id"] == "load")
    for one in cell["outputs"]:
        for mime, text in one.get("data", {}).items():
            one["data"][mime] = [line.replace("AK", "AL") for line in text]
    path.write_text(json.dumps(document))


def image(path: Path) -> None:
    """The first image in the place of the last."""
    document = json.loads(path.read_text())
    shown = [
        one["data"]
        for cell in document["cells"]
        for one in cell.get("outputs", [])
        if "image/png" in one.get("data", {})
    ]
    shown[-1]["image/png"] = shown[0]["image/png"]
    path.write_text(json.dumps(document))


def _in_output(path: Path, cell_id: str, key: str, change: Callable[[str], str]) -> None:
    document = json.loads(path.read_text())
    cell = next(cell for cell in document["cells"] if cell["id"] == cell_id)
    one = next(one for one in cell["outputs"] if key in one)
    one[key] = change("".join(one[key]))
    path.write_text(json.dumps(document))


def _other_digit(text: str) -> str:
    at = next(at for at, letter in enumerate(text) if letter.isdigit())
    return text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :]


DOCTORED: dict[str, tuple[str, Callable[[Path], None]]] = {
    "changed number": ("airports_words", number),
    "moved cell": ("airports_words", moved),
    "cut tail": ("airports_words", tail),
    "edited output": ("airports_words", output),
    "swapped image": ("digits_pca", image),
}
"""the file is doctored; of the journal see test_doctored.py"""


def doctored(what: str, directory: Path, python: str) -> list[str]:
    """What each program newly says of a doctored file."""
    name, change = DOCTORED[what]
    notebook = described(name)
    if not session_files.exists(name):
        record(notebook, directory / name)
    path = export(notebook, directory / name)
    before = _all(python, path)
    change(path)
    after = _all(python, path)
    ours, from_top, theirs = (_told(new - old) for old, new in zip(before[:3], after[:3], strict=True))
    stop = _told(after[3]) if after[3] != before[3] else "nothing"
    return [f"{what} ({name})", ours, from_top, theirs, stop]


def _all(python: str, path: Path) -> tuple[set[str], set[str], set[str], set[str]]:
    """Cells that each of the four ways finds something wrong with."""
    stop = papermill(python, path)
    return _ill(path), _ill(path, order="document"), nbval(python, path), {stop} if stop else set()


def _ill(path: Path, **how: Any) -> set[str]:
    return {row["cell_id"] for row in replay(path, **how).executions if row["verdict"] in ILL}


def _told(cells: set[str]) -> str:
    return ", ".join(f"`{cell}`" for cell in sorted(cells)) or "nothing"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main(python: str, names: list[str]) -> int:
    code = "from importlib.metadata import version; import sys; print(*map(version, sys.argv[1:]))"
    programs = ("nbval", "papermill", "pytest")
    told = subprocess.run([python, "-c", code, *programs], capture_output=True, text=True, check=True).stdout
    versions = " ".join(f"{name} {version}" for name, version in zip(programs, told.split(), strict=True))
    with tempfile.TemporaryDirectory(prefix="kc-") as scratch:
        os.environ |= {"KRT_HOME": f"{scratch}/home", "KRT_RUNTIME_DIR": f"{scratch}/run"}
        sys.stdout.write(f"{versions} kernel-runtime {kr.__version__}\n\n")
        chosen = names or [*all_names(), *DOCTORED]
        work = Path(scratch) / "work"
        rows = []
        for name in (name for name in chosen if name not in DOCTORED):
            rows.append(one(described(name), work, python))
            sys.stderr.write(f"{rows[-1]}\n")
        head = [
            "notebook",
            "executions / cells in the file",
            "krt replay, of the session",
            "nbval",
            "papermill",
        ]
        sys.stdout.write(table(head, rows) + "\n\n")
        head = ["doctored file", "krt replay FILE", "… --order document", "nbval", "papermill"]
        rows = [doctored(what, work, python) for what in DOCTORED if what in chosen]
        sys.stdout.write(table(head, rows) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
