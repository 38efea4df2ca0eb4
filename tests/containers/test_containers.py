"""`docker/`: built, started and asked over HTTP, as a person's browser and an agent would find it.

One engine, one image and one start for all of it; what a test changes, the next one finds. The order is
that of a life: it comes up, is looked at, its page is restarted, its sessions are, it is taken down and
comes back.
"""

from __future__ import annotations

import json
import shutil
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.containers import engine as engines
from tests.support import eventually, free_port

ROOT = Path(__file__).parent.parent.parent
BASE = "base:made-here"
PROJECT = "krt-proof"

pytestmark = [pytest.mark.containers, pytest.mark.slow, pytest.mark.timeout(600)]


class Site:
    """What `docker/up` started, seen from this machine."""

    def __init__(self, engine: engines.Engine, context: Path) -> None:
        self.engine = engine
        self.context = context
        self.port = free_port()
        self.address = ""
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def up(self) -> None:
        _, out, _ = self.engine.run(
            str(self.context / "docker" / "up"), cwd=self.context, timeout=240, environment=self.settings
        )
        self.address = out.strip()

    @property
    def settings(self) -> dict[str, str]:
        return {
            "COMPOSE_PROJECT_NAME": PROJECT,
            "KRT_PORT": str(self.port),
            "BASE_IMAGE": BASE,
            "BUILD_NETWORK": "none",
            "PIP_OPTIONS": "--no-index --find-links docker/wheelhouse",
        }

    @property
    def token(self) -> str:
        return urllib.parse.parse_qs(urllib.parse.urlsplit(self.address).query)["token"][0]

    def compose(self, *argv: str) -> str:
        return self.engine.run(
            "docker-compose", "-f", "docker/compose.yaml", *argv, cwd=self.context, environment=self.settings
        )[1]

    def container(self, service: str) -> str:
        labels = {"project": PROJECT, "service": service}
        filters = [f"--filter=label=com.docker.compose.{key}={value}" for key, value in labels.items()]
        return self.engine.docker("ps", "--all", "--quiet", *filters).strip()

    def inside(self, service: str, *argv: str) -> str:
        return self.engine.docker("exec", self.container(service), *argv)

    def inspect(self, service: str) -> Any:
        return json.loads(self.engine.docker("inspect", self.container(service)))[0]

    def get(self, path: str, *, token: bool = True) -> tuple[int, bytes]:
        return self._ask(urllib.request.Request(self._url(path)), token=token)

    def json(self, path: str) -> Any:
        status, body = self.get(path)
        assert status == 200, (status, body)
        return json.loads(body)

    def post(self, path: str, document: Any, *, token: bool = True) -> tuple[int, Any]:
        request = urllib.request.Request(self._url(path), data=json.dumps(document).encode(), method="POST")
        status, body = self._ask(request, token=token)
        return status, json.loads(body) if body[:1] in b"{[" else body

    def _url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}/{path}"

    def _ask(self, request: urllib.request.Request, *, token: bool) -> tuple[int, bytes]:
        if token:
            request.add_header("Authorization", f"token {self.token}")
        try:
            with self._opener.open(request, timeout=90) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def session(self, name: str) -> Any:
        rows = [row for row in self.json("kernel-runtime/api/sessions") if row["name"] == name]
        assert len(rows) == 1, rows
        return rows[0]

    def submit(self, name: str, source: str, **more: Any) -> str:
        """Run a cell as a page does; its execution's id, once it is on disk."""
        kernel = self.session(name)["kernel_id"]
        status, told = self.post(f"kernel-runtime/api/kernels/{kernel}/execute", {"source": source, **more})
        assert status == 202, (status, told)
        return str(told["execution_id"])

    def outcome(self, name: str, execution: str, wait: float = 60) -> str:
        kernel = self.session(name)["kernel_id"]
        told = self.json(f"kernel-runtime/api/kernels/{kernel}/executions/{execution}?wait={wait}")
        return str(told["outcome"])

    def printed(self, name: str, execution: str) -> str:
        """What the journal has of it, asked for by another client."""
        return self.inside("sessions", "krt", "wait", name, execution)

    def keys(self, name: str) -> list[str]:
        """Of all that was ever queued in the session, in order."""
        entries = map(json.loads, self.inside("sessions", "krt", "log", name, "--json").splitlines())
        return [entry["fact"]["key"] for entry in entries if entry["kind"] == "ExecutionQueued"]

    def healthy(self, service: str) -> None:
        eventually(
            lambda: self.inspect(service)["State"]["Health"]["Status"] == "healthy",
            timeout=90,
            what=f"{service} is healthy",
        )


@pytest.fixture(scope="module")
def engine() -> Iterator[engines.Engine]:
    running = engines.Engine()
    try:
        running.wait()
        yield running
    finally:
        running.close()


@pytest.fixture(scope="module")
def context(engine: engines.Engine) -> Path:
    """What the image is made of: our wheel, docker/, the lock and the wheels that it names."""
    base = engines.begin_base(engine)
    where = engine.place / "context"
    wheel = ["--no-isolation", "--wheel", "--outdir", str(where / "dist"), str(ROOT)]
    engine.run(sys.executable, "-m", "build", *wheel)
    shutil.copytree(ROOT / "docker", where / "docker")
    shutil.copy(ROOT / ".dockerignore", where)
    (where / "requirements").mkdir()
    shutil.copy(ROOT / "requirements" / "lab.txt", where / "requirements")
    engines.import_base(engine, base, BASE)
    engines.fetch_wheels(engine, BASE, where / "requirements" / "lab.txt", where / "docker" / "wheelhouse")
    return where


@pytest.fixture(scope="module")
def site(engine: engines.Engine, context: Path) -> Iterator[Site]:
    started = Site(engine, context)
    try:
        started.up()
        yield started
    finally:
        sys.stdout.write(started.compose("logs", "--no-color", "--tail=60"))
        started.compose("down", "--volumes", "--timeout", "3")


def test_one_command_prints_the_address_of_the_agents_notebook(site: Site) -> None:
    assert site.address.startswith(f"http://127.0.0.1:{site.port}/lab/tree/zones.ipynb?token=")
    status, page = site.get(site.address.partition(f":{site.port}/")[2], token=False)
    assert status == 200
    assert b"jupyter-config-data" in page
    assert b"@kernel-runtime/lab" in page


def test_the_agents_session_is_there_with_what_it_ran(site: Site) -> None:
    row = site.session("zones")
    assert row["path"] == "zones.ipynb"
    kernels = {one["id"]: one for one in site.json("api/kernels")}
    assert row["kernel_id"] in kernels
    assert [(one["path"], one["kernel"]["id"]) for one in site.json("api/sessions")] == [
        ("zones.ipynb", row["kernel_id"])
    ]
    cells = site.json("api/contents/zones.ipynb")["content"]["cells"]
    assert [cell["metadata"]["kernel_runtime"]["principal"] for cell in cells] == ["agent:example"] * 3
    assert "time zones" in cells[0]["outputs"][0]["text"]
    assert "change their clocks" in "".join(cells[2]["outputs"][0]["data"]["text/markdown"])


def test_a_person_runs_a_cell_in_the_same_heap(site: Site) -> None:
    execution = site.submit("zones", "print(len(zones) > 400)", key="person-1")
    assert site.outcome("zones", execution) == "ok"
    assert site.printed("zones", execution) == "True\n"


def test_nothing_without_the_token_and_the_token_in_no_log(site: Site) -> None:
    assert site.get("kernel-runtime/api/sessions", token=False)[0] == 403
    assert site.get("api/kernels", token=False)[0] == 403
    kernel = site.session("zones")["kernel_id"]
    path = f"kernel-runtime/api/kernels/{kernel}/execute"
    assert site.post(path, {"source": "1"}, token=False)[0] == 403
    assert b"zones" not in site.get("lab", token=False)[1]
    logs = site.compose("logs", "--no-color")
    assert site.token not in logs
    assert site.token not in json.dumps(site.inspect("lab"))


@pytest.mark.parametrize("service", ["lab", "sessions"])
def test_a_service_has_what_it_needs_and_no_more(site: Site, service: str) -> None:
    told = site.inspect(service)
    assert told["Config"]["User"] == "1000:1000"
    assert told["HostConfig"]["ReadonlyRootfs"]
    assert told["HostConfig"]["CapDrop"] == ["ALL"]
    assert told["HostConfig"]["PidsLimit"]
    assert told["HostConfig"]["Memory"]
    assert "no-new-privileges:true" in told["HostConfig"]["SecurityOpt"]
    status = dict(
        line.split(":\t")
        for line in site.inside(service, "cat", "/proc/self/status").splitlines()
        if ":\t" in line
    )
    assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
    assert status["NoNewPrivs"] == "1"
    for path in ("/etc/x", "/opt/kernel-runtime/x", "/x"):
        assert site.engine.run("docker", "exec", site.container(service), "touch", path, check=False)[0] != 0


def test_only_this_machine_reaches_the_page(site: Site) -> None:
    published = site.engine.docker("port", site.container("lab")).split()
    assert published == ["8888/tcp", "->", f"127.0.0.1:{site.port}"]
    assert site.engine.docker("port", site.container("sessions")).split() == []


def test_sessions_live_through_a_restart_of_the_page(site: Site) -> None:
    """Those of agents, those that the page itself began, and a cell that runs meanwhile."""
    status, made = site.post(
        "api/sessions",
        {"path": "mine.ipynb", "name": "", "type": "notebook", "kernel": {"name": "krt-python3"}},
    )
    assert status == 201, made
    mine = next(
        row["name"] for row in site.json("kernel-runtime/api/sessions") if row["path"] == "mine.ipynb"
    )
    assert site.outcome(mine, site.submit(mine, "begun = 'on the page'")) == "ok"
    before = {name: site.session(name) for name in ("zones", mine)}
    counting = "import time\nfor i in range(60):\n    print(i, flush=True)\n    time.sleep(0.25)"
    running = site.submit("zones", counting, key="across")

    site.engine.docker("restart", site.container("lab"))
    site.healthy("lab")

    after = {name: site.session(name) for name in before}
    for name, was in before.items():
        assert after[name]["kernel_id"] == was["kernel_id"]
        assert after[name]["incarnation"] == was["incarnation"]
    assert {one["id"] for one in site.json("api/kernels")} >= {row["kernel_id"] for row in after.values()}
    assert site.outcome("zones", running) == "ok"
    assert site.printed("zones", running) == "".join(f"{i}\n" for i in range(60))
    execution = site.submit(mine, "print(begun)")
    assert site.outcome(mine, execution) == "ok"
    assert site.printed(mine, execution) == "on the page\n"


def test_and_through_its_death(site: Site) -> None:
    before = site.session("zones")
    site.engine.docker("kill", "--signal", "KILL", site.container("lab"))
    site.engine.docker("start", site.container("lab"))
    site.healthy("lab")
    after = site.session("zones")
    assert (after["kernel_id"], after["incarnation"]) == (before["kernel_id"], before["incarnation"])
    assert site.outcome("zones", site.submit("zones", "assert len(zones) > 400")) == "ok"


def test_when_the_sessions_service_goes_the_heap_is_lost_and_that_is_told(site: Site) -> None:
    before = site.session("zones")
    site.engine.docker("restart", "--time", "2", site.container("sessions"))
    site.healthy("sessions")
    site.engine.docker("restart", "--time", "2", site.container("lab"))
    site.healthy("lab")
    kernel = site.session("zones")["kernel_id"]
    assert kernel == before["kernel_id"]
    status, told = site.post(
        f"kernel-runtime/api/kernels/{kernel}/execute", {"source": "zones", "key": "blind"}
    )
    assert status == 409, told
    assert told["error"]["type"] == "HeapLost"
    cells = site.json("api/contents/zones.ipynb")["content"]["cells"]
    assert "time zones" in cells[0]["outputs"][0]["text"]


def test_the_state_is_on_the_volume(site: Site) -> None:
    """Taken down, made anew: same token, same journal, nothing of the agent's run twice."""
    token = site.token
    keys = site.keys("zones")
    assert keys.count("count") == 1
    site.compose("down", "--timeout", "3")
    site.up()
    assert site.token == token
    assert site.keys("zones") == keys
    site.inside("sessions", "krt", "verify", "zones")


def test_the_image_is_small_and_has_no_tools_in_it(site: Site) -> None:
    image = json.loads(site.engine.docker("inspect", "kernel-runtime"))[0]
    base = json.loads(site.engine.docker("inspect", BASE))[0]
    megabytes = (image["Size"] - base["Size"]) / 1e6
    sys.stdout.write(f"image: {image['Size'] / 1e6:.0f} MB, {megabytes:.0f} MB more than its base\n")
    assert megabytes < 400
    assert image["Config"]["Healthcheck"]["Test"][0] == "CMD"
    for tool in ("node", "npm", "gcc"):
        site.inside("lab", "sh", "-c", f"! command -v {tool}")
    site.inside("lab", "test", "!", "-e", "/build")
