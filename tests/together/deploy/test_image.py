"""The image of deploy/Dockerfile, built and run by Buildah without a daemon.

Python's own image is on a hub that may be out of reach, so another with the same name is made of
Debian's packages, by mmdebstrap.
"""

import json
import os
import shutil
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BASE = "docker.io/library/python:3.12-slim-bookworm"
MISSING = [name for name in ("buildah", "mmdebstrap") if shutil.which(name) is None]
pytestmark = [
    pytest.mark.live,
    pytest.mark.long,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
    pytest.mark.skipif(os.getuid() != 0, reason="a chroot takes root"),
]
PORT = 9847
PATIENCE = 60.0


class Buildah:
    """With a storage of its own."""

    def __init__(self, folder: Path) -> None:
        self.storage = ("buildah", f"--root={folder}/root", f"--runroot={folder}/run")
        self.environment = {**os.environ, "STORAGE_DRIVER": "vfs", "BUILDAH_ISOLATION": "chroot"}

    def __call__(self, *arguments: object) -> str:
        command = [*self.storage, *map(str, arguments)]
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout.strip()

    def start(self, *arguments: object) -> "subprocess.Popen[bytes]":
        command = [*self.storage, *map(str, arguments)]
        return subprocess.Popen(
            command, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )


@pytest.fixture
def buildah(tmp_path: Path) -> Iterator[Buildah]:
    tool = Buildah(tmp_path)
    archive = tmp_path / "base.tar"
    packages = "--include=python3,python3-venv,ca-certificates"
    command = ["mmdebstrap", "--variant=minbase", packages, "bookworm", archive]
    subprocess.run(command, check=True, capture_output=True)
    base = tool("from", "scratch")
    tool("add", base, archive, "/")
    tool("run", base, "--", "ln", "-s", "/usr/bin/python3", "/usr/local/bin/python")
    tool("commit", base, BASE)
    yield tool
    tool("rm", "--all")
    tool("rmi", "--all", "--force")


def test_the_image_follows_logs_as_nobody_and_its_healthcheck_holds(
    buildah: Buildah, tmp_path: Path
) -> None:
    with socket.socket() as free:
        try:
            free.bind(("127.0.0.1", PORT))
        except OSError:
            pytest.skip(f"port {PORT} is taken")
    # Where pip finds packages on this machine.
    shared = [path for path in (Path("/etc/pip.conf"), Path("/etc/ssl/certs")) if path.exists()]
    mounts = [f"--volume={path}:{path}:ro" for path in shared]
    dockerfile = ROOT / "deploy/Dockerfile"
    buildah("bud", "--pull-never", "--format=docker", *mounts, "-f", dockerfile, "-t", "m", ROOT)
    config = json.loads(buildah("inspect", "--type=image", "m"))["Docker"]["config"]
    assert config["User"] == "10001:10001"
    assert config["Healthcheck"]["Test"][0] == "CMD"
    container = buildah("from", "--pull-never", "m")
    assert buildah("run", container, "--", "id", "-u") == "10001"
    logs = tmp_path / "logs"
    logs.mkdir(mode=0o755)
    lines = [f"step {step} loss 2.5\n" for step in range(30)]
    (logs / "train.log").write_text("".join(lines) + "step 30 loss nan\n")
    mount = f"--volume={logs}:/logs:ro"
    # As platforms start it that give each project a user of its own, without an entry or a home.
    anybody = ("--user=54321:54321", mount, container, "--", "env", "-u", "HOME")
    once = ("--once", "--fail-on=never", "/logs/train.log")
    assert "NonFiniteLoss" in buildah("run", *anybody, *config["Entrypoint"], *once)
    monitor = buildah.start("run", mount, container, "--", *config["Entrypoint"], *config["Cmd"])
    try:
        deadline, shown = time.monotonic() + PATIENCE, ""
        while 'alertname="NonFiniteLoss"' not in shown:
            assert time.monotonic() < deadline, shown
            threading.Event().wait(0.5)
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics") as page:
                    shown = page.read().decode()
            except OSError:
                continue
        buildah("run", container, "--", *config["Healthcheck"]["Test"][1:])
    finally:
        monitor.terminate()
        monitor.wait(PATIENCE)
