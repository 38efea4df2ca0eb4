"""The suites: fetched by hash, unpacked, run under pytest, read from its JUnit report.

Everything lies under `.conformance/`, which git ignores. The environment is the lock
`requirements/conformance.txt` with this working tree installed in it, so stock and ours differ in
nothing but the kernelspec that answers to `python3`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.verdict import FAILED, PASSED, SKIPPED, UNSTEADY, Exemption

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PLACE = ROOT / ".conformance"
VENV = PLACE / "venv"
LOCK = ROOT / "requirements" / "conformance.txt"

_SUITE_TIMEOUT = 1500.0
"""seconds; the longest takes a fifth of it on two idle cores"""
_ALONE = 25
"""failures that are tried again alone; more than that is not noise"""


@dataclass(frozen=True)
class Suite:
    name: str
    version: str
    sha256: str
    tests: list[str]
    package: str = ""
    """whose suite it is, where that is not its name"""
    plugin: str = ""
    """what ours is: this pytest plugin beside us, instead of our kernelspec"""
    passed: int = 0
    """tests that pass on stock; 0: not counted"""

    @property
    def of(self) -> str:
        return self.package or self.name

    @property
    def source(self) -> Path:
        return PLACE / "src" / f"{self.of}-{self.version}"


def suites() -> dict[str, Suite]:
    """By name, in the order they run."""
    document = tomllib.loads((HERE / "suites.toml").read_text())
    return {name: Suite(name=name, **fields) for name, fields in document.items()}


def exemptions() -> list[Exemption]:
    document = tomllib.loads((HERE / "exceptions.toml").read_text())
    return [Exemption(**fields) for fields in document.get("exception", [])]


def prepare() -> Path:
    """The environment's Python; made when missing or when the lock changed."""
    python = VENV / "bin" / "python"
    stamp = VENV / ".lock"
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    if not (stamp.exists() and stamp.read_text() == digest):
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--require-hashes", "-r", str(LOCK)], check=True)
        subprocess.run([*pip, "--no-deps", "--no-build-isolation", "-e", str(ROOT)], check=True)
        stamp.write_text(digest)
    return python


def fetch(suite: Suite, python: Path) -> None:
    """Download and unpack the release's source, unless it is there.

    Raises:
        ValueError: the file is not the one that suites.toml names.
    """
    if suite.source.is_dir():
        return
    downloads = PLACE / "sdists"
    archive = downloads / f"{suite.of}-{suite.version}.tar.gz"
    if not archive.exists():
        subprocess.run(
            [str(python), "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
            + ["--no-binary", ":all:", "--dest", str(downloads), f"{suite.of}=={suite.version}"],
            check=True,
        )
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    if digest != suite.sha256:
        raise ValueError(f"{archive.name} has sha256 {digest}, suites.toml says {suite.sha256}")
    with tarfile.open(archive) as tar:
        tar.extractall(suite.source.parent, filter="data")


def kernelspec(python: Path) -> Path:
    """A JUPYTER_PATH in which `python3` is ours, as `krt kernelspec install` writes it."""
    prefix = PLACE / "prefix"
    shutil.rmtree(prefix, ignore_errors=True)
    subprocess.run(
        [str(python), "-m", "kernel_runtime.cli", "kernelspec", "install"]
        + ["--kernel", "python3", "--name", "python3", "--prefix", str(prefix)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return prefix / "share" / "jupyter"


def run(suite: Suite, python: Path, jupyter_path: Path | None) -> dict[str, str]:
    """Outcome by test, stock's without a `jupyter_path`. What failed is tried once more, alone."""
    ours = jupyter_path is not None
    with _environment(None if suite.plugin else jupyter_path) as env:
        if ours and suite.plugin:
            env |= {"PYTHONPATH": str(HERE), "PYTEST_PLUGINS": suite.plugin}
        outcomes = _pytest(suite, python, suite.tests, env)
        failed = [test for test, outcome in outcomes.items() if outcome == FAILED]
        if 0 < len(failed) <= _ALONE:
            options = [item for item in suite.tests if not (suite.source / item).exists()]
            for test in failed:
                again = _pytest(suite, python, [test, *options], env)
                if again.get(test) == PASSED:
                    outcomes[test] = UNSTEADY
    return outcomes


@contextlib.contextmanager
def _environment(jupyter_path: Path | None) -> Iterator[dict[str, str]]:
    """Private places, and an end to whatever sessions the suite left in them."""
    root = Path(tempfile.mkdtemp(prefix="krt-c-"))
    env = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "JPY_", "KRT_", "PYTEST_"))}
    env |= {
        "HOME": str(root / "home"),
        "IPYTHONDIR": str(root / "ipython"),
        "KRT_HOME": str(root / "krt"),
        "KRT_RUNTIME_DIR": str(root / "run"),
        "PATH": f"{VENV / 'bin'}:{env.get('PATH', os.defpath)}",
        "TMPDIR": str(root / "tmp"),
    }
    (root / "home").mkdir()
    (root / "tmp").mkdir()
    if jupyter_path is not None:
        env["JUPYTER_PATH"] = str(jupyter_path)
    try:
        yield env
    finally:
        _end_all(root / "krt")
        shutil.rmtree(root, ignore_errors=True)


def _end_all(home: Path) -> None:
    from kernel_runtime import process

    for who, _env in process.marked_processes("KRT_HOME", str(home)):
        process.signal_process(who, signal.SIGKILL)


def _pytest(suite: Suite, python: Path, tests: list[str], env: dict[str, str]) -> dict[str, str]:
    report = Path(env["TMPDIR"]).parent / "report.xml"
    report.unlink(missing_ok=True)
    log = PLACE / f"{suite.name}-{'ours' if env.keys() & {'JUPYTER_PATH', 'PYTEST_PLUGINS'} else 'stock'}.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            # -c: a release without a pytest section must not find ours further up
            [
                str(python),
                "-m",
                "pytest",
                "-c",
                "pyproject.toml",
                *tests,
                "-p",
                "no:cacheprovider",
                "--color=no",
            ]
            + ["-o", "junit_family=xunit1", f"--junitxml={report}"]
            # pytest-asyncio warns when it is unset, and these suites turn warnings into errors
            + ["-o", "asyncio_default_fixture_loop_scope=function"],
            cwd=suite.source,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            process.wait(_SUITE_TIMEOUT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if not report.exists():
        raise RuntimeError(f"{suite.name}: pytest wrote no report (status {process.returncode}), see {log}")
    return read_report(report)


def read_report(path: Path) -> dict[str, str]:
    """`file::Class::name` to outcome, of a JUnit file of the xunit1 family."""
    outcomes: dict[str, str] = {}
    for case in ET.parse(path).getroot().iter("testcase"):
        file = case.get("file") or ""
        module = file.removesuffix(".py").replace("/", ".")
        classes = (case.get("classname") or "").removeprefix(module).strip(".").split(".")
        test = "::".join([file, *filter(None, classes), case.get("name") or ""])
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            outcomes[test] = FAILED
        elif outcomes.get(test) != FAILED:  # teardown's error is a second case of the same name,
            passed = PASSED in (outcomes.get(test), SKIPPED if "skipped" in kinds else PASSED)
            outcomes[test] = PASSED if passed else SKIPPED  # and so is a part that was left out
    return outcomes
