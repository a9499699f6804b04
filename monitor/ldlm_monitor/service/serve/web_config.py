"""A web configuration file in the format of Prometheus' exporters: TLS, users and tokens.

https://prometheus.io/docs/prometheus/latest/configuration/https/. Keys that Python's ssl module
cannot implement are refused like unknown ones; `bearer_tokens_file` is our own addition.
"""

import logging
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError, model_validator

from ldlm_monitor.base.errors import ConfigError, first_problem
from ldlm_monitor.service.serve.access import Access
from ldlm_monitor.service.state.secret_files import check_mode, secret_text

Stamp: TypeAlias = tuple[int, int, int]  # a file's inode, size (bytes) and mtime (ns)

CHECK_SECONDS = 1.0
"""Seconds at least between two checks for changed files: a burst of requests makes one check."""
MIN_TOKEN = 16
"""Characters of a bearer token at least: 64 bits if they are hexadecimal, too many to guess."""
_REMEDY = "see docs/security.md for its form"  # of errors in the file
_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}  # the format's names
_CLIENTS = {  # the format's names, which are those of Go's crypto/tls
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}

log = logging.getLogger(__name__)


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class TlsServerConfig(_Part):
    """The server's certificate and key, its versions of TLS, and the certificates of clients."""

    cert_file: Path
    key_file: Path
    client_auth_type: Literal[
        "NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"
    ] = "NoClientCert"
    client_ca_file: Path | None = None
    min_version: Literal["TLS12", "TLS13"] = "TLS12"  # the format's defaults
    max_version: Literal["TLS12", "TLS13"] = "TLS13"

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if (self.client_ca_file is None) != (self.client_auth_type == "NoClientCert"):
            raise ValueError("client_ca_file and a client_auth_type that verifies belong together")
        if self.min_version > self.max_version:
            raise ValueError("min_version is above max_version")
        return self


class WebFile(_Part):
    """The file's content. Paths are relative to its folder; users map to bcrypt hashes."""

    tls_server_config: TlsServerConfig | None = None
    basic_auth_users: dict[str, SecretStr] = {}
    bearer_tokens_file: Path | None = None


@dataclass(frozen=True, slots=True)
class WebConfig:
    """A web configuration that is ready to use.

    `stamps`: each file that it was read from, to its state before the reading; None if missing.
    """

    tls: ssl.SSLContext | None
    access: Access
    stamps: dict[Path, Stamp | None]


def load(file: Path) -> WebConfig:
    """Read a web configuration and the files that it names. Raises ConfigError if one is bad."""
    stamps = {file: _stamp(file)}
    parsed = _read(file)
    folder, tls = file.parent, parsed.tls_server_config
    named = (tls.cert_file, tls.key_file, tls.client_ca_file) if tls is not None else ()
    for each in (*named, parsed.bearer_tokens_file):
        if each is not None:
            stamps[folder / each] = _stamp(folder / each)
    context = None if tls is None else _context(tls, folder, file)
    tokens: tuple[str, ...] = ()
    if parsed.bearer_tokens_file is not None:
        tokens = _tokens(folder / parsed.bearer_tokens_file, f"{file}: bearer_tokens_file")
    users = {name: text.get_secret_value() for name, text in parsed.basic_auth_users.items()}
    try:
        access = Access(users, tokens)
    except ValueError as error:
        raise ConfigError(
            str(error),
            where=f"{file}: basic_auth_users",
            remedy='make one with `htpasswd -nBC 10 ""`, or see docs/security.md',
        ) from None
    return WebConfig(context, access, stamps)


def _read(file: Path) -> WebFile:
    import yaml

    try:
        found: Any = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(error, str(file)) from error
    except yaml.YAMLError:
        # The parser's message repeats the line, which may hold a password's hash.
        raise ConfigError("is not YAML", where=str(file), remedy=_REMEDY) from None
    try:
        return WebFile.model_validate({} if found is None else found)
    except ValidationError as error:
        key, what = first_problem(error)
        where = f"{file}: {key}" if key else str(file)
        raise ConfigError(what, where=where, remedy=_REMEDY) from None


def _context(tls: TlsServerConfig, folder: Path, file: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[tls.min_version]
    context.maximum_version = _VERSIONS[tls.max_version]
    context.set_alpn_protocols(["http/1.1"])
    key, certificate = folder / tls.key_file, folder / tls.cert_file
    where = f"{file}: tls_server_config"
    try:
        check_mode(key.stat(), key, f"{where}.key_file")
        certificate.stat()
    except OSError as error:
        raise _unreadable(error, f"{where}: {error.filename}") from error
    try:
        # An encrypted key must not ask for its password on the terminal.
        context.load_cert_chain(certificate, key, password=lambda: "")
        if tls.client_ca_file is not None:
            context.load_verify_locations(folder / tls.client_ca_file)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or "no PEM"
        raise ConfigError(
            f"a certificate or key cannot be used ({str(reason).lower().replace('_', ' ')})",
            where=where,
            remedy="give a certificate, its own key without a password, and CAs, each as PEM",
        ) from error
    context.verify_mode = _CLIENTS[tls.client_auth_type]
    return context


def _tokens(file: Path, key: str) -> tuple[str, ...]:
    lines = [line.strip() for line in secret_text(file, key).splitlines()]
    tokens = tuple(line for line in lines if line and not line.startswith("#"))
    if not tokens or any(len(token) < MIN_TOKEN or not token.isascii() for token in tokens):
        raise ConfigError(
            f"needs a token of {MIN_TOKEN} or more ASCII characters in each line",
            where=f"{key}: {file}",
            remedy="write each on a line of its own, such as those of `openssl rand -hex 32`",
        )
    return tokens


def _unreadable(error: OSError | UnicodeDecodeError, where: str) -> ConfigError:
    reason = error.strerror if isinstance(error, OSError) else "is not text"
    return ConfigError(
        f"cannot be read ({reason})",
        where=where,
        remedy="create it as text, readable for the monitor's user",
    )


class Gate:
    """The TLS context and the credentials to use now; reloads a web configuration that changed.

    Without a file anyone may enter, over plain HTTP. Raises ConfigError if the file cannot be used
    at the start. Later each unusable change is logged, and the last good content stays in use.
    TLS is switched on and off by a restart only, since it changes the URL that others use. `clock`
    returns seconds. While the server runs, only its event loop calls `tls` and `access`.
    """

    def __init__(
        self, file: Path | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._file = file
        self._clock = clock
        self._current = WebConfig(None, Access({}, ()), {}) if file is None else load(file)
        self._checked_at = clock()

    @property
    def encrypts(self) -> bool:
        """Whether the server uses HTTPS."""
        return self._current.tls is not None

    def tls(self) -> ssl.SSLContext | None:
        """The context for a new connection; None for plain HTTP."""
        self._reload_if_changed()
        return self._current.tls

    def access(self) -> Access:
        """The credentials that a new request needs."""
        self._reload_if_changed()
        return self._current.access

    def _reload_if_changed(self) -> None:
        now = self._clock()
        if self._file is None or now - self._checked_at < CHECK_SECONDS:
            return
        self._checked_at = now
        stamps = {each: _stamp(each) for each in self._current.stamps}
        if stamps == self._current.stamps:
            return
        self._current = replace(self._current, stamps=stamps)
        try:
            fresh = load(self._file)
            if (fresh.tls is None) is self.encrypts:
                raise ConfigError(
                    "TLS is switched on and off by a restart only",
                    where=f"{self._file}: tls_server_config",
                    remedy="restart the monitor",
                )
        except ConfigError as problem:
            log.error("%s; the configuration loaded before stays in use", problem)
            return
        self._current = fresh
        log.info("%s was reloaded", self._file)


def _stamp(file: Path) -> Stamp | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
