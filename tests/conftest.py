"""What every test gets: Hypothesis profiles, and a check that no thread outlives its test.

And what some ask for: command lines run in this process, a file server that stops answering, and
certificates.
"""

import errno
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings

from ldlm_monitor.logs.source.file_system import Disk, MountTable

JOIN_SECONDS = 5.0
SHARED = Path(__file__).resolve().parents[1] / "../shared"
"""Other people's logs, Prometheus' test scripts, the design: beside the repository, if anywhere."""

# Tests run side by side. Threads of torch that wait for each other spin, which on a busy machine
# made a training of ten seconds one of ten minutes.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Compiled definitions are kept here, not in the home of who runs the tests.
CACHE = tempfile.TemporaryDirectory(prefix="ldlm-monitor-cache-")
os.environ["XDG_CACHE_HOME"] = CACHE.name

# Every run tries a few examples of each property, since the runs are many; `just nightly` tries
# enough to find what comes once in a hundred times.
settings.register_profile("quick", deadline=None, max_examples=10)
settings.register_profile("ci", settings.get_profile("quick"), derandomize=True, print_blob=True)
settings.register_profile("nightly", deadline=None, max_examples=300)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "quick")
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "shared: needs what lies beside the repository, in ../shared"
    )


@pytest.hookimpl(trylast=True)  # after those that are not asked for were taken out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put tests that mostly wait first in every second part of the list.

    `--dist worksteal` starts each process at such a part, and ends a part from its end where
    another has none. So half of the processes wait while half compute, and what takes longest
    is not left for the end.
    """
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    pairs, part = processes // 2, len(items) // processes
    if not pairs:
        return
    waiting: list[pytest.Item] = []
    computing: list[pytest.Item] = []
    for item in items:
        waits = any(map(item.get_closest_marker, ("live", "trainer")))
        (waiting if waits else computing).append(item)
    ordered: list[pytest.Item] = []
    for pair in range(pairs):
        among = waiting[pair * len(waiting) // pairs : (pair + 1) * len(waiting) // pairs]
        rest = max(part - len(among), 0)
        ordered += [*computing[:part], *among, *computing[part : part + rest]]
        del computing[: part + rest]
    items[:] = [*ordered, *computing]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip from one place, so that pytest's summary is one line with their number."""
    if item.get_closest_marker("shared") and not SHARED.is_dir():
        pytest.skip("other people's logs, Prometheus' scripts or the design are not in ../shared")


@pytest.fixture(autouse=True)
def no_thread_outlives_the_test() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    left = [thread for thread in threading.enumerate() if thread not in before]
    for thread in left:
        thread.join(JOIN_SECONDS)
    alive = [thread.name for thread in left if thread.is_alive()]
    assert not alive, f"threads that the test left running: {alive}"


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str


@pytest.fixture
def ask(capfd: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Runs `ldlm-monitor` with the words given."""
    from ldlm_monitor.service.cli import main

    def run(*words: str) -> Answer:
        capfd.readouterr()
        code = main(words)
        out, err = capfd.readouterr()
        return Answer(code, out, err)

    return run


class Server:
    """A network file system under `folder` that stops answering for some calls.

    A call that is held up reads a pipe in which nothing stands, as a call to a dead
    server stays in the system. `revive` ends that.
    `broken`: it answers that files cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.silent: set[str] = set()
        self.broken = False
        self.entered, self._in = os.pipe()
        self._gate, self._open = os.pipe()
        root = "22 1 254:0 / / rw - ext4 /dev/vda rw\n"
        self.table = MountTable(f"{root}36 22 0:51 / {folder} rw,noatime - nfs4 server:/logs rw\n")
        self.disk = Disk(stat=self.stat, open=self.open, pread=self.pread)

    def stat(self, path: Path) -> os.stat_result:
        self._answer("stat", path)
        return os.stat(path)

    def open(self, path: Path, flags: int) -> int:
        self._answer("open", path)
        return os.open(path, flags)

    def pread(self, descriptor: int, size: int, offset: int) -> bytes:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        self._answer("pread", path)
        if self.broken and self.folder in path.parents:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return os.pread(descriptor, size, offset)

    def _answer(self, call: str, path: Path) -> None:
        where = Path(os.path.realpath(path))
        if call in self.silent and self.folder in (where, *where.parents):
            os.write(self._in, b".")
            os.read(self._gate, 1)

    def revive(self) -> None:
        self.silent.clear()
        os.close(self._open)

    def close(self) -> None:
        for descriptor in (self.entered, self._in, self._gate):
            os.close(descriptor)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "nfs")
    yield server
    server.close()


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

    @property
    def ca_key(self) -> Path:
        return self.folder / "ca.key"

    def make(self, certificate: Path, key: Path, subject: str, *more: object) -> None:
        usage = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        made += ["-nodes", "-days", "2", "-subj", subject, "-keyout", key, "-out", certificate]
        subprocess.run([*made, *(usage if more else ()), *more], check=True, capture_output=True)
        key.chmod(0o600)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes certificates, is missing")
    made = Certificates(tmp_path_factory.mktemp("certificates"))
    made.make(made.ca, made.ca_key, "/CN=authority of the tests")
    return made
