"""Certificates for servers of this machine, made by openssl."""

import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Certificates:
    """PEM files of an authority, and a certificate of it with its key for each name."""

    folder: Path

    @property
    def ca(self) -> Path:
        return self.folder / "ca.pem"

    def of(self, name: str) -> tuple[Path, Path]:
        """Certificate and key for `name` on this machine, made where there are none yet."""
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        if not certificate.exists():
            self.make(certificate, key, f"/CN={name}", "-CA", self.ca, "-CAkey", self.ca_key)
        return certificate, key

    def expired(self) -> tuple[Path, Path]:
        """Certificate and key of the authority for this machine, which no longer hold."""
        certificate, key = self.folder / "expired.pem", self.folder / "expired.key"
        asked = self.folder / "expired.csr"
        self.make(self.folder / "unused.pem", key, "/CN=expired")
        names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        new = ["openssl", "req", "-new", "-key", key, "-subj", "/CN=expired", *names]
        signed = ["openssl", "x509", "-req", "-copy_extensions", "copy", "-days", "-1", "-in"]
        signed += [asked, "-CA", self.ca, "-CAkey", self.ca_key, "-out", certificate]
        for command in ([*new, "-out", asked], signed):
            subprocess.run(command, check=True, capture_output=True)
        return certificate, key

    @property
    def ca_key(self) -> Path:
        return self.folder / "ca.key"

    def make(self, certificate: Path, key: Path, subject: str, *more: object) -> None:
        usage = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        made += ["-nodes", "-days", "2", "-subj", subject, "-keyout", key, "-out", certificate]
        subprocess.run([*made, *(usage if more else ()), *more], check=True, capture_output=True)
        key.chmod(0o600)


def old_only(context: ssl.SSLContext) -> None:
    """Let one end of a connection speak TLS 1.0 and 1.1 alone, as no library does any more."""
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    for end, version in (("minimum", ssl.TLSVersion.TLSv1), ("maximum", ssl.TLSVersion.TLSv1_1)):
        with pytest.warns(DeprecationWarning, match="TLS"):
            setattr(context, f"{end}_version", version)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes certificates, is missing")
    made = Certificates(tmp_path_factory.mktemp("certificates"))
    made.make(made.ca, made.ca_key, "/CN=authority of the tests")
    return made
