"""A folder in the form of /proc (proc(5)) with the processes that a test says."""

from collections.abc import Mapping
from pathlib import Path

BOOTED = 1_795_000_000
"""Unix seconds."""


def host(folder: Path, *, total_kib: int = 0, available_kib: int = 0, sockets: str = "") -> Path:
    """A host without processes; `sockets`: lines of /proc/net/tcp."""
    (folder / "net").mkdir(parents=True)
    (folder / "stat").write_text(f"cpu  1 2 3\nbtime {BOOTED}\nprocesses 9\n")
    (folder / "meminfo").write_text(
        f"MemTotal:       {total_kib} kB\nMemFree: 1 kB\nMemAvailable:   {available_kib} kB\n"
    )
    (folder / "net/tcp").write_text(f"  sl  local_address rem_address st\n{sockets}")
    return folder


def add(
    proc: Path,
    pid: int,
    *,
    parent: int = 1,
    name: str = "python",
    state: str = "S",
    ticks: tuple[int, int] = (0, 0),
    started: int = 0,
    status: int = 0,
    pages: int = 0,
    files: Mapping[int, tuple[str, str]] | None = None,
    environment: str = "",
    waits_in: str = "0",
    exe: str = "/usr/bin/python3",
    cwd: str = "/",
) -> None:
    """A process. `ticks`: of user and system. `files`: target and octal flags by descriptor."""
    own = proc / str(pid)
    (own / "fd").mkdir(parents=True)
    (own / "fdinfo").mkdir()
    fields = ["0"] * 50
    fields[0], fields[1], fields[49] = state, str(parent), str(status)
    fields[11], fields[12], fields[19] = str(ticks[0]), str(ticks[1]), str(started)
    (own / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")
    (own / "statm").write_text(f"9999 {pages} 3\n")
    (own / "environ").write_text(environment)
    (own / "wchan").write_text(waits_in)
    (own / "exe").symlink_to(exe)
    (own / "cwd").symlink_to(cwd)
    for number, (target, flags) in (files or {}).items():
        (own / "fd" / str(number)).symlink_to(target)
        (own / "fdinfo" / str(number)).write_text(f"pos:\t0\nflags:\t{flags}\n")
