"""What a record's kernel could import against what the replay's could; and the recorded one built anew.

`--env recorded` makes a virtual environment with uv from the ordinary index: the recorded Python, and each
recorded package in its recorded version. The replay's machinery is always this kernel-runtime. What did not
come from an index cannot be had from one, and is named.
"""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import kernel_runtime
from kernel_runtime import places
from kernel_runtime.errors import EnvironmentFault, MissingPackage, UsageError

_OURS = "kernel-runtime"
_BUILD = 1800.0
"""seconds for fetching and installing"""
_DONE = "complete"


def difference(recorded: dict[str, Any] | None, replayed: dict[str, Any] | None) -> dict[str, Any]:
    """What differs between two environments, each the content of an EnvironmentRecorded or None.

    Returns `{"known", "same", "recorded": fingerprint, "replayed": fingerprint, "python": [{"what",
    "recorded", "replayed"}], "platform": [...], "git": [...], "packages": [{"name", "recorded", "replayed",
    "why"}]}`; a package's `why` is `version`, `content` (the same version with other files), `missing` or
    `new`. `known` is false where one of the two was not recorded, and then nothing is said.
    """
    if recorded is None or replayed is None:
        why = "the record" if recorded is None else "the replay"
        return {"known": False, "why": f"{why} does not tell its environment"}
    found: dict[str, Any] = {
        "known": True,
        "same": recorded.get("fingerprint") == replayed.get("fingerprint"),
        "recorded": recorded.get("fingerprint"),
        "replayed": replayed.get("fingerprint"),
    }
    for part in ("python", "platform", "git"):
        found[part] = _fields(recorded.get(part) or {}, replayed.get(part) or {})
    found["packages"] = _packages(recorded.get("packages") or {}, replayed.get("packages") or {})
    return found


def _fields(was: dict[str, Any], now: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"what": name, "recorded": was.get(name), "replayed": now.get(name)}
        for name in sorted(was.keys() | now.keys())
        if was.get(name) != now.get(name)
    ]


def _packages(was: dict[str, dict[str, Any]], now: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for name in sorted(was.keys() | now.keys()):
        one, other = was.get(name), now.get(name)
        if one is None or other is None:
            why = "new" if one is None else "missing"
        elif one.get("version") != other.get("version"):
            why = "version"
        elif one.get("digest") and other.get("digest") and one["digest"] != other["digest"]:
            why = "content"
        else:
            continue
        versions = [None if each is None else each.get("version") for each in (one, other)]
        found.append({"name": name, "recorded": versions[0], "replayed": versions[1], "why": why})
    return found


# -- building it anew


def rebuilt(recorded: dict[str, Any] | None) -> tuple[str, list[str]]:
    """The interpreter of a recorded environment, built if it is not there yet; and what is not as it was.

    Raises:
        UsageError: the record tells of no environment.
        MissingPackage: uv is not installed.
        EnvironmentFault: the index does not have all of it, or not for this machine.
    """
    if recorded is None:
        raise UsageError(
            "the record tells of no environment, so none can be built",
            hint="leave out --env recorded: it runs in the present environment",
        )
    directory = places.private_dir(places.home() / "environments") / str(recorded["fingerprint"])[:24]
    notes = [
        f"{name} {row.get('version')} came from {row['how']} and not from an index: it is not there"
        for name, row in recorded["packages"].items()
        if row.get("how") and name != _OURS
    ]
    python = directory / "bin" / "python"
    if not (directory / _DONE).exists():
        shutil.rmtree(directory, ignore_errors=True)
        _build(_uv(), directory, recorded)
        (directory / _DONE).touch()
    return str(python), notes


def _uv() -> str:
    program = Path(sysconfig.get_path("scripts")) / "uv"
    found = str(program) if program.exists() else shutil.which("uv")
    if found is None:
        raise MissingPackage("uv is not installed", hint="pip install 'kernel-runtime[replay]'", package="uv")
    return found


def _build(uv: str, directory: Path, recorded: dict[str, Any]) -> None:
    version = str(recorded["python"]["version"])
    _run(uv, "venv", "--quiet", "--python", version, str(directory), what=f"Python {version}")
    wanted = directory / "requirements.txt"
    wanted.write_text(
        "".join(
            f"{name}=={row['version']}\n"
            for name, row in recorded["packages"].items()
            if not row.get("how") and name != _OURS
        )
    )
    python = directory / "bin" / "python"
    _run(
        *(uv, "pip", "install", "--quiet", "--no-deps", "--python", str(python), "-r", str(wanted)),
        what="the recorded packages",
    )
    # what speaks with this process has to be of its version
    ours = Path(kernel_runtime.__file__).parent
    (site,) = directory.glob("lib/python*/site-packages")
    (site / "kernel_runtime").symlink_to(ours)


def _run(*argv: str, what: str) -> None:
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=_BUILD
    )
    if done.returncode:
        said = "\n".join(done.stderr.strip().splitlines()[-8:])
        raise EnvironmentFault(
            f"the recorded environment cannot be built: no {what} to be had here",
            hint="leave out --env recorded: it runs in the present environment, and says what differs",
            stderr=said,
        )
