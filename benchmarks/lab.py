"""A session in JupyterLab: opening a long one, and the way from `krt exec` to the page.

Opening is held against stock: both are driven in Chromium through the same steps, in turns, each time in a
new browser with empty caches. Stock is JupyterLab with collaboration in the same environment, without our two
extensions, on a copy of the file.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from playwright.sync_api import Browser, Page, sync_playwright

import kernel_runtime as kr
from benchmarks.measure import Result, Series, compared, spell
from benchmarks.subjects import places, with_past
from kernel_runtime.model import facts as f
from tests.lab.conftest import CHROMIUM, FLAGS, VIEW
from tests.lab.page import NotebookPage
from tests.lab.server import LabServer
from tests.support import krt

_PATIENCE = 180_000
"""milliseconds for ten thousand cells on a busy machine"""
_SEEN = """n => new Promise(resolve => {
  const look = () => {
    const shown = [...document.querySelectorAll('.jp-OutputArea-output pre')];
    const found = shown.map(one => one.textContent.match(`tick-${n} ([0-9.]+)`)).find(one => one);
    found ? resolve(Date.now() - 1000 * Number(found[1])) : requestAnimationFrame(look);
  };
  look();
})"""
"""milliseconds from the print's own clock to the frame that shows it"""


def run(*, quick: bool = False) -> list[Result]:
    with _chromium() as browser, places() as root, _directories(root):
        return [
            *opening(browser, root, cells=1_000 if quick else 10_000, rounds=1 if quick else 3),
            latency(browser, root, prints=5 if quick else 30),
        ]


def opening(browser: Browser, root: Path, *, cells: int, rounds: int) -> list[Result]:
    """Until the first cell is shown, and from there until the last one is."""
    work = root / "long"
    work.mkdir()
    notebook = work / "long.ipynb"
    _long("long", cells, notebook)
    copy = root / "stock" / "long.ipynb"
    copy.parent.mkdir()
    shutil.copy(notebook, copy)
    first: dict[str, list[float]] = {"ours": [], "theirs": []}
    last: dict[str, list[float]] = {"ours": [], "theirs": []}
    lab = LabServer(work)
    lab.start()
    try:
        with _stock(copy.parent, root) as stock:
            addresses = {"ours": lab.page_of("long.ipynb"), "theirs": stock}
            for number in range(rounds):
                for name in sorted(addresses, reverse=number % 2 == 1):
                    shown, ended = _open(browser, addresses[name], cells)
                    first[name].append(shown)
                    last[name].append(ended)
    finally:
        lab.stop()
        with kr.attach("long", accept=True) as session:
            session.stop()
    note = (
        f"{cells:,} executed cells, `full` window, empty caches; theirs: stock with collaboration, same file"
    )
    return [
        compared("a long notebook's first cell", _series(first), goal=1.3, note=note),
        compared("… and its last, after a jump to the end", _series(last), goal=1.3, note=note),
    ]


def latency(browser: Browser, root: Path, *, prints: int) -> Result:
    """From a print in a cell of `krt exec` to the frame of an open page that shows it."""
    work = root / "quick"
    work.mkdir()
    lab = LabServer(work)
    taken: list[float] = []
    with kr.attach("quick", create=True, cwd=str(work), notebook=str(work / "quick.ipynb")) as session:
        session.execute("import time")
        lab.start()
        try:
            page = browser.new_context(viewport=VIEW).new_page()
            page.goto(lab.page_of("quick.ipynb"))
            NotebookPage(page, "quick.ipynb").ready()
            for number in range(prints):
                source = f"print('tick-{number}', time.time())"
                with subprocess.Popen(
                    [sys.executable, "-m", "kernel_runtime.cli", "exec", "quick", source],
                    stdout=subprocess.DEVNULL,
                ):
                    taken.append(float(page.evaluate(_SEEN, number)) / 1000)
            page.context.close()
        finally:
            lab.stop()
            session.stop()
    series = Series(taken)
    return Result(
        what="print in `krt exec` to the text on the page",
        ours=str(series),
        theirs="",
        ok=statistics.median(taken) < 0.5,
        note=f"{prints} cells; from the print to the frame that shows it, by one clock; p95 "
        f"{spell(sorted(taken)[int(len(taken) * 0.95)])}; goal 500 ms",
    )


def _open(browser: Browser, address: str, cells: int) -> tuple[float, float]:
    context = browser.new_context(viewport=VIEW)
    page = context.new_page()
    started = time.perf_counter()
    page.goto(address, timeout=_PATIENCE)
    page.locator(".jp-Notebook .jp-Cell .cm-content").first.wait_for(timeout=_PATIENCE)
    shown = time.perf_counter() - started
    _jump(page, cells)
    ended = time.perf_counter() - started
    context.close()
    return shown, ended


def _jump(page: Page, cells: int) -> None:
    """To the end, as a person goes there, until the last cell can be read."""
    page.wait_for_function(
        """last => {
          const shown = [...document.querySelectorAll('.jp-Notebook .jp-Cell')];
          const end = shown.at(-1);
          const outer = document.querySelector('.jp-WindowedPanel-outer');
          outer.scrollTop = outer.scrollHeight - 1.5 * outer.clientHeight;
          const at = end.getBoundingClientRect();
          const text = end.querySelector('.cm-content')?.textContent ?? '';
          return at.height > 0 && at.bottom > 0 && at.top < window.innerHeight && text.includes(last);
        }""",
        arg=f"x{cells - 1} = {cells - 1}",
        polling=250,  # heights are estimates until cells were in view, so it takes a few jumps
        timeout=_PATIENCE,
    )


def _series(taken: dict[str, list[float]]) -> dict[str, Series]:
    return {name: Series(seconds) for name, seconds in taken.items()}


def _long(name: str, cells: int, notebook: Path) -> None:
    """A session whose journal tells of so many executed cells with outputs, and its notebook file."""
    past = (fact for number in range(cells) for fact in _executed(number))
    with_past(name, past, cwd=notebook.parent, notebook=notebook)
    with kr.attach(name, accept=True) as session:
        session.restart()
    written = krt("export", name, str(notebook))
    assert written.returncode == 0, written.stderr


def _executed(number: int) -> list[f.Fact]:
    execution_id = f"{number:08x}-0000-4000-8000-000000000000"
    said = {"type": "stream", "content": {"name": "stdout", "text": f"line of cell {number}\n" * 3}}
    return [
        f.ExecutionQueued(
            execution_id=execution_id,
            source=f"x{number} = {number}\nprint('line of cell', x{number})",
            cell_id=f"{number:08x}",
            msg_id=execution_id,
        ),
        f.ExecutionStarted(execution_id=execution_id),
        f.OutputRecorded(execution_id=execution_id, messages=[msgspec.Raw(msgspec.json.encode(said))]),
        f.ExecutionFinished(execution_id=execution_id, outcome="ok", execution_count=number + 1),
    ]


@contextlib.contextmanager
def _chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@contextlib.contextmanager
def _directories(root: Path) -> Iterator[None]:
    """Jupyter's own directories, of this run only."""
    names = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update({name: str(root / name.lower()) for name in names})
    try:
        _window(root / "jupyter_config_dir")
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _window(config: Path) -> None:
    """Have only the cells in view attached. The default attaches all, a dozen a second, in stock too."""
    settings = config / "lab" / "user-settings" / "@jupyterlab" / "notebook-extension"
    settings.mkdir(parents=True)
    (settings / "tracker.jupyterlab-settings").write_text(json.dumps({"windowingMode": "full"}))


@contextlib.contextmanager
def _stock(served: Path, root: Path) -> Iterator[str]:
    """JupyterLab with collaboration and nothing of ours; the address of the notebook in it."""
    config = root / "stock-config"
    _window(config)
    (config / "labconfig").mkdir(parents=True)
    (config / "labconfig" / "page_config.json").write_text(
        json.dumps({"disabledExtensions": {"@kernel-runtime/lab": True}})
    )
    extensions = {"ServerApp": {"jpserver_extensions": {"kernel_runtime.jupyter": False}}}
    (config / "jupyter_server_config.json").write_text(json.dumps(extensions))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = os.urandom(16).hex()
    server = subprocess.Popen(
        [
            *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
            *(f"--ServerApp.root_dir={served}", f"--port={port}", f"--IdentityProvider.token={token}"),
        ],
        env={**os.environ, "JUPYTER_CONFIG_DIR": str(config)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=served,
    )
    address = f"http://127.0.0.1:{port}/lab/workspaces/stock/tree/long.ipynb?token={token}"
    try:
        _answering(address)
        yield address
    finally:
        server.terminate()
        try:
            server.wait(timeout=30)
        except subprocess.TimeoutExpired:  # it waits for its rooms on a busy machine
            server.kill()
            server.wait(timeout=30)


def _answering(address: str) -> None:
    parts = urlsplit(address)
    deadline = time.monotonic() + 60
    while True:
        with (
            contextlib.suppress(OSError),
            socket.create_connection((str(parts.hostname), int(parts.port or 0))),
        ):
            return
        if time.monotonic() > deadline:
            raise TimeoutError(re.sub("token=.*", "token=…", address))
        time.sleep(0.1)
