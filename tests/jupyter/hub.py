"""A real JupyterHub: its proxy, its login page, and single-user servers as processes that it starts.

Everybody may log in with one password. All of it runs under the uid of the tests, so what keeps two people's
sessions apart here is what the configuration gives each of them: KRT_HOME and KRT_RUNTIME_DIR.
"""

from __future__ import annotations

import http.cookiejar
import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import websocket

from tests.jupyter.installed import Installed
from tests.jupyter.server import Channels
from tests.support import eventually, free_port

NODE = Path(__file__).parent / "node"
PASSWORD = "everybody-knows-it"
CULLER = "a-token-of-a-test-service"
_START = 90.0

_CONFIG = """
import json, os
told = json.load(open(os.environ["HUB_TOLD"]))
c = get_config()
c.JupyterHub.bind_url = told["url"]
c.JupyterHub.hub_bind_url = told["hub"]
c.ConfigurableHTTPProxy.api_url = told["proxy"]
c.ConfigurableHTTPProxy.command = told["command"]
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = told["password"]
c.Authenticator.allow_all = True
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = told["homes"] + "/{username}"
c.Spawner.cmd = [told["python"], "-m", "jupyterhub.singleuser"]
c.Spawner.args = ["--allow-root"]
c.Spawner.http_timeout = c.Spawner.start_timeout = 90
c.Spawner.environment = {
    **told["environment"],
    "KRT_HOME": lambda spawner: told["people"][spawner.user.name]["KRT_HOME"],
    "KRT_RUNTIME_DIR": lambda spawner: told["people"][spawner.user.name]["KRT_RUNTIME_DIR"],
}
c.JupyterHub.services = [{"name": "culler", "api_token": told["culler"]}]
c.JupyterHub.load_roles = [
    {"name": "culls", "services": ["culler"], "scopes": ["list:users", "admin:servers"]}
]
"""


class Hub:
    """`jupyterhub`, in a directory of its own."""

    def __init__(self, place: Path, installed: Installed, people: Mapping[str, Mapping[str, str]]) -> None:
        self.place = place
        self.homes = place / "homes"
        self.url = f"http://127.0.0.1:{free_port()}"
        self.log = place / "hub.log"
        proxy = NODE / "node_modules" / "configurable-http-proxy" / "bin" / "configurable-http-proxy"
        assert proxy.exists(), f"no {proxy}: `npm ci` in {NODE} brings it"
        node = shutil.which("node")
        assert node is not None, "no node: Node 20 or newer runs the hub's proxy"
        for name in people:
            (self.homes / name).mkdir(parents=True)
        (place / "jupyterhub_config.py").write_text(_CONFIG)
        told = {
            "url": self.url,
            "hub": f"http://127.0.0.1:{free_port()}",
            "proxy": f"http://127.0.0.1:{free_port()}",
            "command": [node, str(proxy)],
            "password": PASSWORD,
            "homes": str(self.homes),
            "python": installed.python,
            "environment": installed.environment(),
            "people": people,
            "culler": CULLER,
        }
        (place / "told.json").write_text(json.dumps(told))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns once it answers."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "jupyterhub", "-f", "jupyterhub_config.py"],
                cwd=self.place,
                env={**os.environ, "HUB_TOLD": str(self.place / "told.json")},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            eventually(self._answers, _START, "the hub answers")
        except AssertionError as late:
            self.stop()
            raise AssertionError(f"{late}\n{self.log.read_text()[-6000:]}") from late

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "the hub has ended"
        try:
            with urllib.request.urlopen(f"{self.url}/hub/health", timeout=5) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False

    def stop(self) -> None:
        """As its service manager does; it ends its proxy and its servers."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(timeout=60)
        self._process = None

    def cull(self, name: str) -> None:
        """Stop somebody's server, by the request that jupyterhub-idle-culler makes."""
        request = urllib.request.Request(
            f"{self.url}/hub/api/users/{name}/server",
            headers={"Authorization": f"token {CULLER}"},
            method="DELETE",
        )
        with urllib.request.urlopen(request, timeout=60) as reply:
            assert reply.status in (202, 204), reply.status
        eventually(lambda: not self._servers(name), 60, f"the server of {name} has stopped")

    def _servers(self, name: str) -> Any:
        request = urllib.request.Request(
            f"{self.url}/hub/api/users/{name}", headers={"Authorization": f"token {CULLER}"}
        )
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.loads(reply.read()).get("servers")


class Person:
    """A browser at the hub: cookies, and the XSRF token that its pages send back."""

    def __init__(self, hub: Hub, name: str) -> None:
        self.hub = hub
        self.name = name
        self.base = f"/user/{name}"
        self._jar = http.cookiejar.CookieJar()
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self._jar))

    def log_in(self) -> None:
        """Through the login page."""
        assert self.page("/hub/login")[0] == 200
        form = {"username": self.name, "password": PASSWORD, "_xsrf": self._xsrf("/hub/login")}
        assert self.page("/hub/login", urllib.parse.urlencode(form).encode())[0] == 200

    def start_server(self) -> None:
        """Press the button; returns when the server answers as this person's."""
        self.page(f"/hub/spawn/{self.name}")
        eventually(self._has_server, _START, f"the server of {self.name}\n{self.hub.log}")

    def _has_server(self) -> bool:
        status, _ = self.page(f"{self.base}/lab")  # through the hub, which says who this is
        return status == 200 and self.ask("GET", "/api/status")[0] == 200

    def page(self, path: str, form: bytes | None = None) -> tuple[int, str]:
        """Status and text of what a browser gets, after the redirects."""
        request = urllib.request.Request(f"{self.hub.url}{path}", data=form)
        try:
            with self._opener.open(request, timeout=90) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, refused.read().decode()

    def ask(self, method: str, path: str, body: Any = None, base: str = "") -> tuple[int, Any]:
        """Status and document of this person's server, or of the one at `base`."""
        where = f"{base or self.base}{path}"
        request = urllib.request.Request(
            f"{self.hub.url}{where}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"X-XSRFToken": self._xsrf(where), "Accept": "application/json"},
            method=method,
        )
        try:
            with self._opener.open(request, timeout=90) as reply:
                raw = reply.read()
                return reply.status, json.loads(raw) if raw else None
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, refused.read().decode()

    def get(self, path: str) -> Any:
        status, document = self.ask("GET", path)
        assert status == 200, (path, status, document)
        return document

    @contextmanager
    def channels(self, kernel_id: str) -> Iterator[Channels]:
        """A websocket to a kernel, as this person's page opens one."""
        session = uuid.uuid4().hex
        where = f"{self.base}/api/kernels/{kernel_id}/channels"
        socket = websocket.create_connection(
            f"{self.hub.url.replace('http', 'ws')}{where}?session_id={session}&_xsrf={self._xsrf(where)}",
            cookie=self._cookies(where),
            origin=self.hub.url,
            timeout=30,
        )
        try:
            yield Channels(socket, session, v1=False)
        finally:
            socket.close()

    def _cookies(self, path: str) -> str:
        request = urllib.request.Request(f"{self.hub.url}{path}")
        self._jar.add_cookie_header(request)
        return request.get_header("Cookie") or ""

    def _xsrf(self, path: str) -> str:
        """The cookie of the longest path that fits, as a browser has it."""
        fitting = [one for one in self._jar if one.name == "_xsrf" and path.startswith(one.path)]
        return str(max(fitting, key=lambda one: len(one.path)).value) if fitting else ""
