"""Records, for each kernel of ours that starts, what it could import and where it ran.

The kernel tells what it is and where it looks for packages; which ones are there is read here, on a thread,
from the metadata that installers leave (PEP 376, PEP 610). So a kernel's start waits for nothing, and no
code of a package runs. The working directory's repository is asked through git, with everything switched
off by which a repository can have commands of its own run.

Not promised: what was imported from elsewhere, or changed after it was installed. A package's digest is
that of its list of files (RECORD, which has the hash of each), as its wheel brought them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_runtime.core.masking import mask_text
from kernel_runtime.model.entry import Draft
from kernel_runtime.model.facts import EnvironmentRecorded
from kernel_runtime.supervisor.claim_probes import Observers, Seen

if TYPE_CHECKING:
    from kernel_runtime.core.lifecycle import State
    from kernel_runtime.supervisor.session import Supervisor

_ANSWER = 30.0
"""seconds that the kernel has for telling; a cell may hold its GIL"""
_GIT = 10.0
"""seconds for each question to git"""
_UNTRACKED = 1000
_QUIET = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "--no-optional-locks")


class Environment:
    """Looks once for each incarnation."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._s = supervisor
        self._thread = Observers(supervisor.reactor, threads=1)
        supervisor.shell.on_change.append(self._changed)

    def close(self) -> None:
        self._thread.close()

    def _changed(self, before: State) -> None:
        state = self._s.shell.state
        if before.kernel != "up" and state.kernel == "up":
            known = self._s.shell.reader.latest("EnvironmentRecorded")
            if known is None or known.incarnation < state.incarnation:
                told = partial(self._told, state.incarnation)
                self._s.questions.ask("environment", {}, told, _ANSWER)

    def _told(self, incarnation: int, answer: dict[str, Any] | None) -> None:
        if answer is None or "path" not in answer:
            return  # no kernel of ours, or it is gone or busy with native code: nothing is made up
        cwd = self._s.identity.cwd
        self._thread.submit(lambda: {"fact": look(answer, cwd)}, partial(self._looked, incarnation))

    def _looked(self, incarnation: int, seen: Seen) -> None:
        fact = seen.get("fact")
        if isinstance(fact, EnvironmentRecorded):
            self._s.shell.journal.append([Draft(fact, "system", incarnation)], sync=False)
            self._s.shell.committed()


def look(answer: dict[str, Any], cwd: str) -> EnvironmentRecorded:
    """What is there, given what the kernel told (kernel/environment.py)."""
    missing: list[str] = []
    packages: dict[str, dict[str, Any]] = {}
    for place in answer["path"]:
        for name, found in _packages(Path(place), missing):
            packages.setdefault(name, found)  # the first on the path is the one that is imported
    git = repository(cwd, missing)
    python, platform = answer["python"], answer["platform"]
    told = {"python": python, "platform": platform, "packages": packages}
    text = json.dumps(told, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return EnvironmentRecorded(
        python=python,
        platform=platform,
        packages=dict(sorted(packages.items())),
        fingerprint=hashlib.sha256(text.encode()).hexdigest(),
        git=git,
        missing=missing,
    )


def _packages(place: Path, missing: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        names = sorted(entry.name for entry in os.scandir(place))
    except (FileNotFoundError, NotADirectoryError):
        return  # a zip file, or a directory that was never made
    except OSError as error:
        missing.append(f"packages in {place}: {error.strerror}")
        return
    for name in names:
        if name.endswith(".dist-info"):
            distribution, _, version = name.removesuffix(".dist-info").partition("-")
            found: dict[str, Any] = {"version": version}
            try:
                found["digest"] = record_digest((place / name / "RECORD").read_bytes(), name)
            except OSError:
                found["digest"] = None  # Debian's own packages have none
            found |= _origin(place / name / "direct_url.json")
            yield canonical(distribution), found
        elif name.endswith(".egg-info"):
            distribution, _, version = name.removesuffix(".egg-info").partition("-")
            yield canonical(distribution), {"version": version.partition("-py")[0], "digest": None}


def record_digest(record: bytes, info: str) -> str:
    """sha256 of what a wheel brought, by its list of files: the same whoever installed it.

    Without what installers write themselves: their own notes in `info`, scripts, compiled modules.
    """
    own = tuple(f"{info}/{name}," for name in ("INSTALLER", "REQUESTED", "RECORD", "direct_url.json"))
    kept = [
        line
        for line in record.decode("utf-8", "surrogateescape").splitlines()
        if line and not line.startswith((*own, "../", "/")) and "/__pycache__/" not in f"/{line}"
    ]
    return hashlib.sha256("\n".join(sorted(kept)).encode("utf-8", "surrogateescape")).hexdigest()


def canonical(name: str) -> str:
    """A package's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _origin(file: Path) -> dict[str, Any]:
    """`{"how": "editable|directory|vcs|archive", …}` where it did not come from an index (PEP 610)."""
    try:
        told = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    if not isinstance(told, dict):
        return {}
    url = mask_text(str(told.get("url", "")))
    directory, vcs, archive = (told.get(f"{kind}_info") for kind in ("dir", "vcs", "archive"))
    if isinstance(vcs, dict):
        return {"how": "vcs", "url": url, "vcs": vcs.get("vcs"), "commit": vcs.get("commit_id")}
    if isinstance(archive, dict):
        return {"how": "archive", "url": url, "hashes": archive.get("hashes")}
    editable = isinstance(directory, dict) and directory.get("editable")
    return {"how": "editable" if editable else "directory", "url": url}


# -- the repository


def repository(cwd: str, missing: list[str]) -> dict[str, Any] | None:
    """`{"commit", "branch", "dirty", "changes", "untracked"}` of the repository that `cwd` is in, if any.

    `dirty`: whether anything differs from the commit. `changes`: sha256 of the difference in tracked files.
    """
    if not any((parent / ".git").exists() for parent in (Path(cwd), *Path(cwd).parents)):
        return None
    status = _git(cwd, missing, "status", "--porcelain=v2", "--branch", "-z", "--untracked-files=normal")
    if status is None:
        return None
    found: dict[str, Any] = {"commit": None, "branch": None, "dirty": False, "changes": None}
    untracked = 0
    for line in status.split("\0"):
        if line.startswith("# branch.oid "):
            oid = line.removeprefix("# branch.oid ")
            found["commit"] = None if oid == "(initial)" else oid
        elif line.startswith("# branch.head "):
            found["branch"] = line.removeprefix("# branch.head ")
        elif line.startswith("? "):
            untracked += 1
            found["dirty"] = True
        elif line and not line.startswith("#"):
            found["dirty"] = True
    found["untracked"] = min(untracked, _UNTRACKED)
    if found["dirty"] and found["commit"]:
        changes = _git(cwd, missing, "diff", "--no-ext-diff", "--no-textconv", "--binary", "HEAD")
        if changes is not None:
            found["changes"] = hashlib.sha256(changes.encode("utf-8", "surrogateescape")).hexdigest()
    return found


def _git(cwd: str, missing: list[str], *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *_QUIET, *words],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT,
            check=False,
            env={**os.environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
        )
    except FileNotFoundError:
        missing.append("git: not installed")
    except subprocess.TimeoutExpired:
        missing.append(f"git {words[0]}: took over {_GIT:.0f} s")
    except OSError as error:
        missing.append(f"git {words[0]}: {error.strerror}")
    else:
        # not by its exit status: the supervisor buries every child, and may have been the first to ask
        if done.stderr and not done.stdout:
            missing.append(f"git {words[0]}: {done.stderr.decode('utf-8', 'replace').splitlines()[0][:200]}")
            return None
        return done.stdout.decode("utf-8", "surrogateescape")
    return None
