"""The kernel's view of its world: what it shows, when two worlds differ, what may change between cells."""

from __future__ import annotations

import _thread
import asyncio
import decimal
import functools
import os
import random
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kernel_runtime.kernel import attribution, settings, volatility
from kernel_runtime.kernel.attribution import Parent, current
from kernel_runtime.kernel.settings import differences, volatile, world
from tests.support import eventually

pytestmark = pytest.mark.timeout(60, method="thread")  # its other method is an interval timer, which shows


@pytest.fixture(autouse=True)
def fresh(monkeypatch) -> Iterator[None]:
    """As in a kernel that has just started: what is there is its own."""
    states: list[Any] = [settings._own_files, settings._own_directories, settings._started, settings._noted]
    states += [volatility._own_threads, volatility._own_files, volatility._unlisted, volatility._loops]
    for state in states:
        state.clear()
    assert volatile() == []
    yield
    settings._started.clear()


def changed(act: Callable[[], Any]) -> list[str]:
    """The items in which the world after differs from the world before."""
    before = world()
    act()
    return sorted(name for name, differs in differences(before, world()).items() if differs is not False)


# -- the world


def test_nothing_changes_by_looking():
    assert changed(lambda: None) == []


def test_each_item_has_a_digest_or_says_why():
    for name, item in world().items():
        assert ("digest" in item) != ("why" in item), name


@pytest.mark.parametrize(
    "act, item",
    [
        (random.random, "random"),
        (lambda: random.gauss(0, 1), "random"),
        (lambda: os.environ.__setitem__("KRT_TEST", "1"), "environment"),
        (lambda: os.umask(0o027), "umask"),
        (lambda: sys.setrecursionlimit(sys.getrecursionlimit() + 1), "recursion_limit"),
        (lambda: warnings.simplefilter("error", ImportWarning), "warnings"),
        (lambda: setattr(decimal.getcontext(), "prec", 50), "decimal"),
    ],
)
def test_what_a_cell_changes_shows(monkeypatch, act: Callable[[], Any], item: str):
    monkeypatch.setenv("KRT_TEST", "0")
    umask, limit = os.umask(0o022), sys.getrecursionlimit()
    os.umask(0o022)
    with warnings.catch_warnings(), decimal.localcontext():
        assert changed(act) == [item]
    os.umask(umask)
    sys.setrecursionlimit(limit)


def test_the_working_directory(tmp_path: Path, monkeypatch):
    assert changed(lambda: monkeypatch.chdir(tmp_path)) == ["cwd"]
    assert world()["cwd"]["value"] == str(tmp_path)


def test_secrets_in_the_environment_are_masked(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "hunter2")
    monkeypatch.setenv("DATABASE_URL", "postgres://bob:hunter2@h/db")
    shown = world()["environment"]["value"]
    assert shown["SOME_API_KEY"] == "***"
    assert shown["DATABASE_URL"] == "postgres://bob:***@h/db"
    assert "hunter2" not in str(shown)


def test_open_files_without_the_kernels_own(tmp_path: Path):
    (tmp_path / "own").mkdir()
    settings.start(own=[str(tmp_path / "own")])
    with open(tmp_path / "own" / "x", "w"), open(tmp_path / "a", "w") as file, open(os.devnull) as null:
        shown = world()["open_files"]["value"]
        assert {"fd": file.fileno(), "path": str(tmp_path / "a"), "mode": "w"} in shown
        assert {"fd": null.fileno(), "path": os.devnull, "mode": "r"} in shown
        assert len(shown) == 2
    assert world()["open_files"]["value"] == []


def test_libraries_that_are_loaded():
    numpy, pandas = pytest.importorskip("numpy"), pytest.importorskip("pandas")
    numpy.random.seed(1)
    assert changed(numpy.random.rand) == ["numpy.random"]
    with pandas.option_context("display.max_rows", 7):
        assert world()["pandas.options"]["value"]["display.max_rows"] == 7
    with numpy.printoptions(precision=3):
        assert world()["numpy.printoptions"]["value"]["precision"] == 3
        told: list[Any] = []
        ask = threading.Thread(target=lambda: told.append(world()), name="krt-test")
        ask.start()
        ask.join()
        assert told[0]["numpy.printoptions"]["value"]["precision"] == 3  # though it is another context
    with numpy.errstate(all="raise"):
        assert world()["numpy.errstate"]["value"]["divide"] == "raise"


def test_numbers_being_drawn_are_not_waited_for():
    numpy = pytest.importorskip("numpy")
    numpy.random.rand()
    lock = sys.modules["numpy.random.mtrand"]._rand._bit_generator.lock
    held, done = threading.Event(), threading.Event()

    def draw() -> None:
        with lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=draw)
    thread.start()
    held.wait()
    item = world()["numpy.random"]
    done.set()
    thread.join()
    assert item == {"value": None, "why": "numbers are being drawn"}
    assert differences({"numpy.random": item}, {"numpy.random": item}) == {"numpy.random": None}


def test_nothing_is_imported():
    code = (
        "import sys; from kernel_runtime.kernel import settings; before = set(sys.modules);"
        "settings.world(); settings.volatile(); print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_module_that_is_being_imported_is_not_asked(monkeypatch):
    class Half:
        __spec__ = type("Spec", (), {"_initializing": True})

        def __getattr__(self, name: str) -> Any:
            raise AssertionError(name)

    monkeypatch.setitem(sys.modules, "matplotlib", Half())
    assert "matplotlib" not in world()


class Hostile:
    def _raise(self, *args: Any) -> Any:
        raise AssertionError("user code was run")

    __eq__ = __hash__ = __repr__ = __str__ = __len__ = __iter__ = __getattr__ = _raise


def test_no_code_of_the_users_is_run():
    class Mine(threading.Thread):
        @property
        def name(self) -> str:  # type: ignore[override]
            raise AssertionError

    go = threading.Event()
    thread = Mine(target=go.wait)
    thread.start()
    filters = vars(warnings)["filters"]
    vars(warnings)["filters"] = [*filters, Hostile(), (Hostile(),) * 5]
    try:
        shown, may_change = world(), volatile()
    finally:
        vars(warnings)["filters"] = filters
        go.set()
        thread.join()
    assert may_change == [f"thread {vars(thread)['_name']}"]
    assert [name for name, item in shown.items() if "could not" in item.get("why", "")] == []
    assert shown["warnings"]["value"]["filters"][-2:] == ["<Hostile>", ["<Hostile>"] * 5]


# -- what may change the heap between executions


def test_a_quiet_kernel():
    assert volatile() == []


def test_a_thread_and_which_execution_started_it(monkeypatch):
    for owner, name in (
        (threading.Thread, "start"),
        (threading.Thread, "_bootstrap_inner"),
        (ThreadPoolExecutor, "submit"),
        (_thread, "start_new_thread"),
        (_thread, "start_new"),
    ):
        monkeypatch.setattr(owner, name, getattr(owner, name))  # put back at the end
    attribution.install()
    go = threading.Event()
    token = current.set(Parent({"header": {"msg_id": "m7"}}, [], b"{}"))
    thread = threading.Thread(target=go.wait, name="mine", daemon=True)
    thread.start()
    current.reset(token)
    assert volatile() == ["thread mine"]
    assert volatile([thread]) == []
    shown = world()["threads"]["value"]
    go.set()
    thread.join()
    assert [(entry["name"], entry["started_by"], entry["daemon"]) for entry in shown] == [
        ("mine", "m7", True)
    ]
    assert volatile() == []


def test_a_thread_that_threading_does_not_know():
    go, running = threading.Lock(), threading.Event()
    go.acquire()

    def work() -> None:
        running.set()
        go.acquire()

    _thread.start_new_thread(work, ())
    running.wait()
    assert volatile() == ["thread started without threading"]
    go.release()
    eventually(lambda: volatile() == [])


def test_a_pools_worker_counts_while_it_works():
    go, running = threading.Event(), threading.Event()

    def work() -> None:
        running.set()
        go.wait()

    with ThreadPoolExecutor(1, thread_name_prefix="pool") as pool:
        job = pool.submit(work)
        running.wait()
        try:
            assert volatile() == ["thread pool_0"]
        finally:
            go.set()
        job.result()
        eventually(lambda: volatile() == [])
    assert volatile() == []


def test_tasks_and_callbacks_of_the_loop():
    changed_later: list[int] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        mine = asyncio.current_task()
        assert mine is not None
        mine.set_name("main")
        assert volatile() == ["task main"]
        handles = [
            loop.call_later(60, changed_later.append, 1),
            loop.call_later(60, functools.partial(Hostile._raise, Hostile())),
            loop.call_soon(asyncio.Event().set),
        ]
        assert volatile() == ["task main", "callback list.append", "callback Hostile._raise"]
        for handle in handles:
            handle.cancel()
        task = asyncio.create_task(asyncio.sleep(60), name="sleeper")
        await asyncio.sleep(0)
        assert sorted(volatile()) == ["task main", "task sleeper"]
        assert {"name": "sleeper", "runs": "sleep"} in world()["tasks"]["value"]
        read, write = os.pipe()
        loop.add_reader(read, changed_later.clear)
        assert "callback list.clear" in volatile()
        loop.remove_reader(read)
        os.close(read)
        os.close(write)
        task.cancel()

    asyncio.run(main())
    volatility._loops.clear()
    assert volatile() == []


def test_an_interval_timer():
    signal.setitimer(signal.ITIMER_VIRTUAL, 1000)
    assert volatile() == ["timer virtual"]
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    assert volatile() == []
