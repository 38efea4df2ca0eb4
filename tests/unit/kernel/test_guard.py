"""What the guard refuses, in a real process: an audit hook cannot be taken off again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_PROGRAM = """
import json, os, sys
from kernel_runtime.kernel.guard import install
rules, own, code = json.loads(sys.stdin.read())
install(rules, own=own)
try:
    exec(code, {"__name__": "cell"})
except BaseException as error:
    print(type(error).__name__, error)
else:
    print("done")
"""


def _tried(code: str, place: Path, **may: Any) -> str:
    rules = {"writes": [str(place / "copy")], "network": False, "processes": False, **may}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        input=json.dumps([rules, [], code]),
        capture_output=True,
        text=True,
        check=True,
        cwd=place,
    )
    return done.stdout.strip()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "copy").mkdir()
    (tmp_path / "kept.txt").write_text("kept")
    (tmp_path / "copy" / "link").symlink_to(tmp_path / "kept.txt")
    return tmp_path


@pytest.mark.parametrize(
    "code",
    [
        "open('kept.txt', 'w')",
        "open('new.txt', 'x')",
        "open('copy/link', 'a')",
        "import os; os.open('kept.txt', os.O_RDWR)",
        "import os; os.remove('kept.txt')",
        "import os; os.rename('kept.txt', 'copy/mine')",
        "import os; os.rename('copy/link', 'elsewhere')",
        "import os; os.mkdir('directory')",
        "import os; os.symlink('kept.txt', 'another')",
        "import os; os.chmod('kept.txt', 0)",
        "import shutil; shutil.rmtree('copy/..')",
        "from pathlib import Path; Path('kept.txt').write_text('')",
        "import sqlite3; sqlite3.connect('data.db')",
        "import socket; socket.create_connection(('127.0.0.1', 9), timeout=1)",
        "import socket; s = socket.socket(socket.AF_UNIX); s.connect('/run/service')",
        "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9/', timeout=1)",
        "import subprocess; subprocess.run(['true'])",
        "import os; os.system('true')",
        "import os; os.fork()",
        "import os; os.kill(os.getppid(), 15)",
    ],
)
def test_refused(place: Path, code: str) -> None:
    before = sorted(path.name for path in place.rglob("*"))
    said = _tried(code, place)
    assert said.startswith(("PermissionError", "OSError", "URLError", "<urlopen"))
    assert "refused by the replay's guard" in said
    assert sorted(path.name for path in place.rglob("*")) == before
    assert (place / "kept.txt").read_text() == "kept"


@pytest.mark.parametrize(
    "code, may",
    [
        ("open('kept.txt').read()", {}),
        ("open('copy/new.txt', 'w').write('x')", {}),
        ("import os; os.mkdir('copy/below'); os.rename('copy/below', 'copy/other')", {}),
        ("import os; os.fdopen(os.dup(1), 'w').close()", {}),
        ("open('/dev/null', 'w').write('x')", {}),
        ("import subprocess; subprocess.run(['true'], check=True)", {"processes": True}),
        (
            "import socket; s = socket.create_server(('127.0.0.1', 0)); "  # noqa: ISC004
            "socket.create_connection(s.getsockname())",
            {"network": True},
        ),
    ],
)
def test_let_pass(place: Path, code: str, may: dict[str, Any]) -> None:
    assert _tried(code, place, **may) == "done"
