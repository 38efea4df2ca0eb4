"""Settings and caches of the user, as a replayed program finds them: to be read, and changed in a copy only.

IPython, matplotlib and whatever keeps a cache want a directory that they can write to; the home directory is
not to be changed. So each has a place of the replay's own, that begins with what was there: settings are
copied, and a cache's directories are links to the user's, which can be read and not written.

Without the settings, a replay with the same packages would draw other pictures (matplotlibrc) and show other
results (a profile's `ast_node_interactivity`), and build matplotlib's list of fonts each time, which takes
seconds and may print a line about it.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

_IPYTHON = ("profile_default/*.py", "profile_default/*.json", "profile_default/startup/*", "extensions/*.py")
_MATPLOTLIB = ("matplotlibrc", "stylelib/*")
_FONTS = ("fontlist-*.json",)
_MOST = 1 << 22
"""bytes of a file that is copied"""


def own_places(directory: Path) -> dict[str, str]:
    """Environment variables that name places under `directory`, which is made anew and filled."""
    if directory.exists():
        shutil.rmtree(directory)
    home = Path.home()
    config = _named("XDG_CONFIG_HOME", home / ".config")
    cache = _named("XDG_CACHE_HOME", home / ".cache")
    own = {name: directory / name for name in ("ipython", "matplotlib", "cache")}
    for place in own.values():
        place.mkdir(mode=0o700, parents=True)
    _copy(_named("IPYTHONDIR", home / ".ipython"), own["ipython"], _IPYTHON)
    _copy(_named("MPLCONFIGDIR", config / "matplotlib"), own["matplotlib"], _MATPLOTLIB)
    _copy(_named("MPLCONFIGDIR", cache / "matplotlib"), own["matplotlib"], _FONTS)
    if cache.is_dir():
        for entry in cache.iterdir():
            (own["cache"] / entry.name).symlink_to(entry.absolute())
    return {
        "IPYTHONDIR": str(own["ipython"]),
        "MPLCONFIGDIR": str(own["matplotlib"]),
        "XDG_CACHE_HOME": str(own["cache"]),
    }


def _named(variable: str, otherwise: Path) -> Path:
    return Path(os.environ.get(variable) or otherwise)


def _copy(source: Path, target: Path, patterns: tuple[str, ...]) -> None:
    """Copy small files; what cannot be read is as if it were not there, as it is for its program."""
    for pattern in patterns:
        for file in source.glob(pattern):
            place = target / file.relative_to(source)
            try:
                if file.is_file() and file.stat().st_size <= _MOST:
                    place.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(file, place)
            except PermissionError:
                continue
