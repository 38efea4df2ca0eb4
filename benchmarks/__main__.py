"""`python -m benchmarks [NAME…]`: run them and write benchmarks/RESULTS.md.

With names only those run, and nothing is written but with `--update`: then their rows take the place of
those that are there. `--quick` is for seeing that they work.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
import sys
import time
from importlib import import_module
from pathlib import Path

from benchmarks.measure import Result

NAMES = ["round_trip", "attach", "output", "idle", "probe", "effects", "truth", "replay", "lab", "tithon"]
RESULTS = Path(__file__).parent / "RESULTS.md"
_PACKAGES = ["ipykernel", "IPython", "jupyter_client", "pyzmq", "apsw", "msgspec"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of: {', '.join(NAMES)} (default: all)")
    parser.add_argument("--update", action="store_true", help="put the rows of NAME… into RESULTS.md")
    parser.add_argument("--quick", action="store_true", help="few rounds, small numbers; writes nothing")
    chosen = parser.parse_args()
    if unknown := set(chosen.names) - set(NAMES):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    results: list[Result] = []
    for name in chosen.names or NAMES:
        started = time.monotonic()
        found: list[Result] = import_module(f"benchmarks.{name}").run(quick=chosen.quick)
        for result in found:
            print(row(result), flush=True)
        print(f"  [{name}: {time.monotonic() - started:.0f} s]", file=sys.stderr)
        results += found
    if not chosen.names and not chosen.quick:
        RESULTS.write_text(document(results))
    elif chosen.update:
        RESULTS.write_text(updated(RESULTS.read_text(), results))
    return 1 if any(result.met is False for result in results) else 0


def row(result: Result) -> str:
    ratio = "" if result.ratio is None else f"{result.ratio:.3f}"
    goal = "" if result.goal is None else f"≤ {result.goal:g}"
    met = {True: "yes", False: "**no**", None: ""}[result.met]
    return f"| {result.what} | {result.ours} | {result.theirs} | {ratio} | {goal} | {met} | {result.note} |"


def document(results: list[Result]) -> str:
    """RESULTS.md."""
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in _PACKAGES)
    lines = [
        "# Results",
        "",
        "Written by `make bench`; `python -m benchmarks --update NAME` measures some rows again. In each row",
        "ours and theirs took turns in one run. A series is shown as min / **median** / max, and a ratio is",
        "that of the medians, ours to theirs. Theirs is stock ipykernel and jupyter_client in the same",
        "environment unless the last column says otherwise.",
        "",
        f"Python {platform.python_version()}, Linux {platform.release().partition('-')[0]}, {versions}.",
        "",
        "| what | ours | theirs | ratio | goal | met | how |",
        "|---|---|---|---|---|---|---|",
        *map(row, results),
    ]
    return "\n".join(lines) + "\n"


def updated(text: str, results: list[Result]) -> str:
    """RESULTS.md with these rows instead of those of the same name, and new ones at the end."""
    rows = {result.what: row(result) for result in results}
    lines = []
    for line in text.splitlines():
        what = line.removeprefix("| ").partition(" | ")[0]
        lines.append(rows.pop(what, line))
    return "\n".join([*lines, *rows.values()]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
