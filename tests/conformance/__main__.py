"""`python -m tests.conformance [SUITE…]`: other people's suites, through our kernelspec and on stock.

Exit status 0 when no test fails that stock passes, but for those in exceptions.toml. `--write` puts
the result into docs/conformance.md.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import time
from pathlib import Path

from tests.conformance import suites as s
from tests.conformance.verdict import PASSED, SKIPPED, Verdict, judge

DOC = s.ROOT / "docs" / "conformance.md"


def main() -> int:
    known = s.suites()
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument(
        "suite", nargs="*", metavar="SUITE", help=f"any of: {', '.join(known)} (default: all)"
    )
    parser.add_argument("--write", action="store_true", help="write docs/conformance.md")
    parser.add_argument("--stock-only", action="store_true", help="run stock's baseline and stop")
    parser.add_argument(
        "--without-stock",
        action="store_true",
        help="do not run stock: nothing may fail then, whatever stock does",
    )
    parser.add_argument("--fresh", action="store_true", help="run stock again though the lock is the same")
    chosen = parser.parse_args()
    if unknown := set(chosen.suite) - set(known):
        parser.error(f"no such suite: {', '.join(sorted(unknown))}")
    python = s.prepare()
    jupyter_path = None if chosen.stock_only else s.kernelspec(python)
    verdicts = []
    for name in chosen.suite or known:
        suite = known[name]
        s.fetch(suite, python)
        stock = {} if chosen.without_stock else _stock(suite, python, fresh=chosen.fresh)
        if jupyter_path is None:
            print(f"{name} {suite.version}: stock {_tally(judge(name, stock, stock, []).stock)}", flush=True)
            continue
        started = time.monotonic()
        ours = s.run(suite, python, jupyter_path)
        if chosen.without_stock:
            stock = _as_counted(suite, ours)
        verdict = judge(name, stock, ours, s.exemptions())
        verdicts.append(verdict)
        _print(verdict, suite.version, time.monotonic() - started)
    if chosen.write and verdicts:
        DOC.write_text(document(verdicts, python))
        print(f"wrote {DOC.relative_to(s.ROOT)}")
    return 0 if all(verdict.ok for verdict in verdicts) else 1


def _stock(suite: s.Suite, python: Path, *, fresh: bool) -> dict[str, str]:
    """Stock's outcomes; kept for as long as lock, release and selection stay the same."""
    what = f"{s.LOCK.read_text()}{suite}"
    kept = s.PLACE / "stock" / f"{suite.name}-{hashlib.sha256(what.encode()).hexdigest()[:16]}.json"
    if kept.exists() and not fresh:
        outcomes: dict[str, str] = json.loads(kept.read_text())
        return outcomes
    outcomes = s.run(suite, python, None)
    kept.parent.mkdir(exist_ok=True)
    kept.write_text(json.dumps(outcomes, indent=1))
    return outcomes


def _as_counted(suite: s.Suite, ours: dict[str, str]) -> dict[str, str]:
    """What stock is taken to do where it is not run: pass whatever there is, and as many as were counted."""
    stock = {test: SKIPPED if outcome == SKIPPED else PASSED for test, outcome in ours.items()}
    there = list(stock.values()).count(PASSED)
    return stock | {f"test {n} of {suite.passed}": PASSED for n in range(there + 1, suite.passed + 1)}


def _tally(counts: object) -> str:
    assert isinstance(counts, dict)
    return ", ".join(f"{n} {outcome}" for outcome, n in sorted(counts.items()))


def _print(verdict: Verdict, version: str, seconds: float) -> None:
    word = "well" if verdict.ok else "NOT WELL"
    print(f"{verdict.suite} {version}: {word} in {seconds:.0f} s")
    print(f"  stock: {_tally(verdict.stock)}")
    print(f"  ours:  {_tally(verdict.ours)}")
    for line in verdict.regressions:
        print(f"  fails only here: {line}")
    for test, reason in verdict.excepted.items():
        print(f"  excepted: {test}: {reason}")
    for test in verdict.unused:
        print(f"  exceptions.toml: {test} covers nothing, remove it")
    for test in verdict.unsteady:
        print(f"  unsteady: {test}")
    sys.stdout.flush()


def document(verdicts: list[Verdict], python: Path) -> str:
    """docs/conformance.md."""
    known = s.suites()
    lines = [
        "# Conformance",
        "",
        "Other people's test suites, run as black boxes with a `python3` kernelspec that",
        "`krt kernelspec install` wrote, and with stock's, in the same environment. `make conformance` runs",
        "them all and writes this page; `.ci/run` runs the first two. The law: what passes on stock passes",
        "through our kernelspec. `jupyter_server_managers` is jupyter_server's suite with stock's kernelspec",
        "and our managers (docs/jupyterlab.md).",
        "",
        f"Environment: {_versions(python)}.",
        "",
        "| suite | release | stock | ours | fails only here |",
        "|---|---|---|---|---|",
    ]
    for v in verdicts:
        cells = [v.suite, known[v.suite].version, _tally(v.stock), _tally(v.ours), str(len(v.regressions))]
        lines.append(f"| {' | '.join(cells)} |")
    lines += _section("Fails only here", [f"`{line}`" for v in verdicts for line in v.regressions])
    lines += _section("Exceptions", [f"`{t}`: {r}" for v in verdicts for t, r in v.excepted.items()])
    lines += _section("Fails on stock too", [f"`{t}`" for v in verdicts for t in v.both_fail])
    lines += _section(
        "Unsteady: failed in the full run, passed alone", [f"`{t}`" for v in verdicts for t in v.unsteady]
    )
    return "\n".join(lines) + "\n"


def _section(title: str, items: list[str]) -> list[str]:
    return ["", f"## {title}", "", *([f"- {item}" for item in items] or ["None."])]


def _versions(python: Path) -> str:
    code = (
        "import sys, importlib.metadata as m;"
        "print('Python ' + sys.version.split()[0] + ''.join(f', {n} {m.version(n)}' for n in sys.argv[1:]))"
    )
    names = ["ipykernel", "IPython", "jupyter_client", "pyzmq", "tornado"]
    return subprocess.run(
        [str(python), "-c", code, *names], check=True, capture_output=True, text=True
    ).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
