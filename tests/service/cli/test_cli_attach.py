"""Credentials and certificates of `attach`, as a server is shown them."""

import base64
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ldlm_monitor.base.errors import ConfigError
from ldlm_monitor.service.cli.attach import authorization, tls
from ldlm_monitor.service.config import load
from ldlm_monitor.service.config.settings import Attach
from tests.service.command_line import Answer


def attach(**asked: Any) -> Attach:
    return load({"attach": asked}).attach


@pytest.fixture
def secret(folder: Path) -> Callable[[str], Path]:
    """Writes a file that no one else may read."""

    def write(text: str) -> Path:
        path = folder / "secret"
        path.write_text(text)
        path.chmod(0o600)
        return path

    return write


def test_a_token_and_a_password_are_sent_as_http_has_them(secret: Callable[[str], Path]) -> None:
    assert authorization(attach()) is None
    assert authorization(attach(token_file=secret("5f0d1c2b\n"))) == "Bearer 5f0d1c2b"
    basic = authorization(attach(username="ada", password_file=secret("hunter2é\n")))
    assert basic == "Basic " + base64.b64encode("ada:hunter2é".encode()).decode()


def test_a_user_without_a_password_and_a_password_without_a_user_are_refused(
    secret: Callable[[str], Path],
) -> None:
    for asked in ({"username": "ada"}, {"password_file": secret("hunter2")}):
        with pytest.raises(ConfigError, match="a user and a password belong together"):
            authorization(attach(**asked))


def test_a_server_is_trusted_by_the_given_authority_alone(certificates: Any) -> None:
    assert tls(attach()) is None
    context = tls(attach(ca_file=certificates.ca))
    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert len(context.get_ca_certs()) == 1


def test_files_that_cannot_be_used_are_named(certificates: Any, folder: Path) -> None:
    certificate, key = certificates.of("server")
    for asked, where in (
        ({"ca_file": folder / "nothing"}, "attach.ca_file: .*nothing"),
        ({"ca_file": key}, "attach.ca_file: "),
        ({"cert_file": certificate, "key_file": certificates.ca}, "attach.(cert|key)_file: "),
    ):
        with pytest.raises(ConfigError, match=where):
            tls(attach(**asked))


def test_a_clients_certificate_is_loaded_with_its_key(certificates: Any) -> None:
    certificate, key = certificates.of("server")
    assert tls(attach(cert_file=certificate, key_file=key)) is not None


def test_without_a_terminal_scripts_are_shown_another_way(ask: Callable[..., Answer]) -> None:
    answer = ask("attach", "http://ada@gpu01:9847")
    assert answer.code == 2
    assert "the screen needs a terminal" in answer.err
    assert "try gpu01:9847/api/v1/runs in scripts" in answer.err
