"""A Docker engine of the tests' own: its state in one directory, gone with it.

It makes no bridge until a compose file does, changes no packet filter and no kernel setting, and is reached
through a socket in its directory. No image can be pulled here, so a base is made of Debian's packages: the
set that slim images are made of, and Python.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.support import eventually

SUITE = "trixie"
TRUST = "/etc/ssl/certs/ca-certificates.crt"
_ASKED_BY_PIP = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_DEFAULT_TIMEOUT", "HTTPS_PROXY", "NO_PROXY")


class Engine:
    """A running engine; `place` holds what it writes and may be used for more."""

    def __init__(self) -> None:
        # not pytest's directory: a socket's path holds 107 bytes
        self.place = Path(tempfile.mkdtemp(prefix="krt-docker-"))
        # in memory: nothing of it is to last, and a disk took two minutes to delete its 40,000 files
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6g,mode=0700", "tmpfs", self.place], check=True)
        self.socket = f"unix://{self.place}/docker.sock"
        self.environment = {
            **os.environ,
            "PATH": f"/usr/bin:{os.environ['PATH']}",  # Debian's client, which is of the engine's release
            "DOCKER_HOST": self.socket,
            "DOCKER_CONFIG": f"{self.place}/client",
            "DOCKER_BUILDKIT": "1",
            "COMPOSE_DOCKER_CLI_BUILD": "1",
        }
        self.beside: list[subprocess.Popen[bytes]] = []
        """processes that work in its place, and end with it"""
        with self.log.open("wb") as log:
            self._daemon = subprocess.Popen(
                [
                    "dockerd",
                    f"--host={self.socket}",
                    f"--data-root={self.place}/data",
                    f"--exec-root={self.place}/exec",
                    f"--pidfile={self.place}/docker.pid",
                    "--bridge=none",
                    "--iptables=false",
                    "--ip6tables=false",
                    "--ip-forward=false",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def log(self) -> Path:
        return self.place / "dockerd.log"

    def wait(self) -> None:
        def answers() -> bool:
            assert self._daemon.poll() is None, self.log.read_text()[-4000:]
            return (self.place / "docker.sock").exists() and self.run("docker", "info", check=False)[0] == 0

        eventually(answers, timeout=60, what="the engine answers")

    def run(
        self,
        *argv: str,
        check: bool = True,
        cwd: Path | None = None,
        timeout: float = 300,
        environment: dict[str, str] | None = None,
    ) -> tuple[int, str, str]:
        """Exit status, stdout and stderr of a command that talks to this engine."""
        begun = time.monotonic()
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd=cwd,
            env={**self.environment, **(environment or {})},
            check=False,
        )
        if (took := time.monotonic() - begun) > 1:
            sys.stdout.write(f"{took:6.1f} s  {' '.join(argv)[-100:]}\n")
        if check and done.returncode != 0:
            raise AssertionError(f"{argv}: {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
        return done.returncode, done.stdout, done.stderr

    def docker(self, *argv: str, **how: Any) -> str:
        return self.run("docker", *argv, **how)[1]

    def close(self) -> None:
        """End the engine, and with it whatever still runs on it."""
        for process in self.beside:
            process.terminate()
            process.wait(60)
        left = self.docker("ps", "--quiet").split()
        if left:
            self.docker("rm", "--force", *left)
        self._daemon.send_signal(signal.SIGTERM)
        try:
            self._daemon.wait(60)
        finally:
            self._daemon.kill()
            self._daemon.wait()
        mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        # a network namespace that the engine leaves mounted, then all the rest
        for mount in sorted((one for one in mounts if f"{one}/".startswith(f"{self.place}/")), reverse=True):
            subprocess.run(["umount", mount], check=True)
        self.place.rmdir()


def begin_base(engine: Engine) -> subprocess.Popen[bytes]:
    """Start making the base's files; takes a minute."""
    keep_small = [f"--dpkgopt=path-exclude=/usr/share/{what}/*" for what in ("doc", "man", "locale", "info")]
    with (engine.place / "base.log").open("wb") as log:
        making = subprocess.Popen(
            [
                "mmdebstrap",
                "--variant=minbase",
                "--include=ca-certificates,python3,python3-venv",
                '--aptopt=Acquire::Languages "none"',
                "--dpkgopt=force-unsafe-io",
                *keep_small,
                SUITE,
                str(engine.place / "base.tar"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "TMPDIR": str(engine.place)},
        )
    engine.beside.append(making)
    return making


def import_base(engine: Engine, made: subprocess.Popen[bytes], tag: str) -> None:
    assert made.wait(300) == 0, (engine.place / "base.log").read_text()[-4000:]
    engine.docker("import", str(engine.place / "base.tar"), tag)


def fetch_wheels(engine: Engine, base: str, lock: Path, where: Path) -> None:
    """Download what the lock names, as the base's own Python and this machine's pip would.

    In a container that stays on this machine's network and trusts what this machine trusts: the image is then
    built without any network.
    """
    where.mkdir()
    options = [f"--env={name}" for name in _ASKED_BY_PIP if name in os.environ]
    # the index is asked over HTTPS only, and what comes is checked against the lock
    script = (
        "python3 -m venv /tmp/pip && /tmp/pip/bin/python -m pip download --quiet --no-cache-dir "
        "--only-binary=:all: --require-hashes -r /lock.txt -d /wheels"
    )
    engine.docker(
        "run",
        "--rm",
        "--network=host",
        *options,
        f"--env=PIP_CERT={TRUST}",
        f"--volume={TRUST}:{TRUST}:ro",
        f"--volume={lock}:/lock.txt:ro",
        f"--volume={where}:/wheels",
        base,
        "sh",
        "-c",
        script,
    )
