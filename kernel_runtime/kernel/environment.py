"""What this interpreter is and where it looks for packages: what the kernel alone can tell.

Cheap, and from any thread while a cell runs: nothing is imported, no file is read. What the packages are
the supervisor reads from those places by itself.
"""

from __future__ import annotations

import _locale
import os
import sys
import time
from typing import Any


def running_environment() -> dict[str, Any]:
    """`{"python": {...}, "platform": {...}, "path": [directories]}` of this process."""
    version, machine = sys.version_info, os.uname()
    return {
        "python": {
            "version": f"{version.major}.{version.minor}.{version.micro}",
            "build": sys.version.replace("\n", " "),
            "implementation": sys.implementation.name,
            "executable": sys.executable,
            "prefix": sys.prefix,
            "hash_seed": os.environ.get("PYTHONHASHSEED") or "random",
        },
        "platform": {
            "system": machine.sysname,
            "release": machine.release,
            "machine": machine.machine,
            "libc": _libc(),
            "locale": _locale.setlocale(_locale.LC_CTYPE),
            "timezone": list(time.tzname),
        },
        "path": [os.path.abspath(place) for place in sys.path if type(place) is str],  # noqa: PTH100 - links stay
    }


def _libc() -> str | None:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):  # another C library
        return None
