"""The real daemon behind TLS and credentials: Prometheus scrapes it, attach reads it."""

import json
import shutil
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path

import bcrypt
import pytest

from ldlm_monitor.base.errors import RemoteError
from ldlm_monitor.screen.remote import RemoteSource
from ldlm_monitor.service.cli.attach import authorization, tls
from ldlm_monitor.service.config import load

pytestmark = pytest.mark.live
LOG = "train_logs/train_20260129_101500_node0.log"
NAN = "WARNING: Invalid text_loss detected: nan\n"
TOKEN = "5f0d1c2b3a49586776859403"
PASSWORD = "hunter2hunter2"
PATIENCE = 60.0


@pytest.fixture
def secret(tmp_path: Path) -> Callable[[str, str], Path]:
    """Writes a file that no one else may read."""

    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text)
        path.chmod(0o600)
        return path

    return write


@pytest.fixture
def web(certificates, tmp_path: Path, secret) -> str:
    """A web configuration file with a certificate, a user and a token."""
    for file in certificates.of("server"):
        shutil.copy(file, tmp_path / f"server{file.suffix}")
    secret("tokens", TOKEN + "\n")
    hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(5)).decode()
    (tmp_path / "web.yml").write_text(
        "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n"
        f"basic_auth_users:\n  prometheus: {hashed}\nbearer_tokens_file: tokens\n"
    )
    return "web.yml"


@pytest.fixture
def daemon(start, append, bars, web: str):
    """A daemon that serves by it, and has read a NaN."""
    append(LOG, bars(0, 40) + NAN)
    begun = start("train_logs/*.log", "--web-config", web)
    assert begun.url().startswith("https://127.0.0.1:")
    return begun


def source(daemon, **asked: object) -> RemoteSource:
    attach = load({"attach": asked}).attach
    return RemoteSource(daemon.url(), authorization=authorization(attach), tls=tls(attach))


def test_attach_shows_a_token_trusts_an_authority_and_commands(
    daemon, certificates, secret
) -> None:
    with pytest.raises(RemoteError, match=r"certificate that is not trusted .*--ca-file"):
        source(daemon).start()
    ca = {"ca_file": certificates.ca}
    with pytest.raises(RemoteError, match="asks for credentials; set LDLM_ATTACH_TOKEN"):
        source(daemon, **ca).start()
    with pytest.raises(RemoteError, match="refuses these"):
        source(daemon, **ca, token_file=secret("wrong", "x" * 20)).start()
    remote = source(daemon, **ca, token_file=secret("token", TOKEN))
    deadline = time.monotonic() + PATIENCE
    remote.start()
    while not remote.snapshot().alerts:
        assert time.monotonic() < deadline
        threading.Event().wait(0.1)
    (nan,) = [each for each in remote.snapshot().alerts if each.name == "NonFiniteLoss"]
    remote.send("acks", {"alert": nan.name, "labels": nan.labels, "by": "ada", "comment": "known"})
    assert [ack["by"] for ack in remote.held_back()["acks"]] == ["ada"]
    remote.stop()
    user = {"username": "prometheus", "password_file": secret("password", PASSWORD)}
    reader = source(daemon, **ca, **user)
    reader.start()
    assert reader.snapshot().alerts
    reader.stop()
    assert TOKEN not in daemon.log.read_text()
    assert PASSWORD not in daemon.log.read_text()


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="the package prometheus is missing")
def test_prometheus_scrapes_it_over_tls_with_a_password(
    daemon, certificates, tmp_path: Path, secret
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    scrape = {
        "job_name": "ldlm-monitor",
        "scheme": "https",
        "tls_config": {"ca_file": str(certificates.ca)},
        "basic_auth": {
            "username": "prometheus",
            "password_file": str(secret("scrape.password", PASSWORD)),
        },
        "static_configs": [{"targets": [daemon.url().removeprefix("https://")]}],
    }
    wrong = {**scrape, "job_name": "wrong", "basic_auth": {"username": "x", "password": "y"}}
    configured = {"global": {"scrape_interval": "1s"}, "scrape_configs": [scrape, wrong]}
    (tmp_path / "prometheus.yml").write_text(json.dumps(configured))
    process = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={tmp_path / 'prometheus.yml'}",
            f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address={url.removeprefix('http://')}",
        ],
        stderr=subprocess.DEVNULL,
    )
    try:
        asked = urllib.parse.urlencode({"query": 'ldlm_train_step or up{job="wrong"}'})
        deadline = time.monotonic() + PATIENCE
        found: dict[str, str] = {}
        while len(found) < 2:
            assert time.monotonic() < deadline, found
            threading.Event().wait(0.2)
            try:
                with urllib.request.urlopen(f"{url}/api/v1/query?{asked}", timeout=5) as answer:
                    result = json.load(answer)["data"]["result"]
            except OSError:
                continue
            found = {each["metric"]["job"]: each["value"][1] for each in result}
        assert found == {"ldlm-monitor": "39", "wrong": "0"}
    finally:
        process.terminate()
        process.wait()


def test_curl_reads_it_with_the_authority_and_a_token(daemon, certificates) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is missing")
    asked = ["curl", "-sS", "--cacert", str(certificates.ca), "--retry", "20", "--retry-all-errors"]
    asked += ["--retry-delay", "0", "-H", f"Authorization: Bearer {TOKEN}"]
    done = subprocess.run([*asked, f"{daemon.url()}/-/healthy"], capture_output=True, check=True)
    assert done.stdout == b"healthy\n"
