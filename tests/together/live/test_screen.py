"""The screen as a person starts it: a real process on a real (pseudo) terminal."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.live
PATIENCE = 60.0
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-9;?>=<]*[ -/]*[@-~]|[\]P_][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])"
)


class Terminal:
    """A process that has a terminal of 100 by 30; `written` is what it wrote, colours left out."""

    def __init__(self, arguments: list[str], folder: Path) -> None:
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            environment = {
                **os.environ,
                "TERM": "xterm-256color",
                "LC_ALL": "C.UTF-8",
                "COLORTERM": "truecolor",
            }
            environment |= {"XDG_STATE_HOME": str(folder / "state")}
            environment.pop("LDLM_SLACK_WEBHOOK_URL", None)
            os.execve(
                sys.executable, [sys.executable, "-m", "ldlm_monitor", *arguments], environment
            )
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.raw = ""

    @property
    def written(self) -> str:
        return _ESCAPES.sub("", self.raw)

    def until(self, word: str) -> None:
        """Return once it wrote that."""
        deadline = time.monotonic() + PATIENCE
        while word not in self.written:
            assert time.monotonic() < deadline, self.written[-3000:]
            self._read(deadline)

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def hang_up(self) -> None:
        """The window is closed."""
        os.close(self._master)
        self._master = -1

    def code(self) -> int:
        """Its exit code, once it ended."""
        deadline = time.monotonic() + PATIENCE
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid = 0
                return os.waitstatus_to_exitcode(status)
            assert time.monotonic() < deadline, self.written[-3000:]
            if self._master >= 0:
                self._read(time.monotonic() + 0.1)
            else:
                select.select([], [], [], 0.05)

    def close(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        if self._master >= 0:
            os.close(self._master)

    def _read(self, deadline: float) -> None:
        ready, _, _ = select.select([self._master], [], [], max(deadline - time.monotonic(), 0))
        if ready:
            try:
                self.raw += os.read(self._master, 65536).decode("utf-8", "replace")
            except OSError:  # the other side is closed
                select.select([], [], [], 0.05)


@pytest.fixture
def open_screen(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    log = tmp_path / "a.log"
    log.write_text("".join(f"step {step} loss 2.5\n" for step in range(30)), encoding="utf-8")
    opened: list[Terminal] = []

    def start(*arguments: str) -> Terminal:
        opened.append(Terminal(list(arguments), tmp_path))
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.close()


LISTEN = ("--listen", "127.0.0.1:0")


@pytest.mark.parametrize(("key", "code"), [("q", 0), ("\x03", 130)])
def test_a_terminal_opens_the_screen_and_its_end_prints_the_report(
    open_screen: Callable[..., Terminal], key: str, code: int
) -> None:
    screen = open_screen("a.log", *LISTEN)
    screen.until("loss")
    screen.until("step 29")
    screen.press(key)
    assert screen.code() == code
    screen.until("metrics on")
    assert "HEALTH REPORT" in screen.written.upper()


def test_sigterm_ends_it_as_it_ends_a_daemon(open_screen: Callable[..., Terminal]) -> None:
    screen = open_screen("a.log", *LISTEN)
    screen.until("step 29")
    os.kill(screen.pid, signal.SIGTERM)
    assert screen.code() == 0


def test_a_window_that_is_closed_leaves_no_daemon_behind(
    open_screen: Callable[..., Terminal],
) -> None:
    screen = open_screen("a.log", *LISTEN)
    screen.until("step 29")
    screen.hang_up()
    screen.code()


def test_a_daemon_that_cannot_start_closes_the_screen_and_says_why(
    open_screen: Callable[..., Terminal],
) -> None:
    first = open_screen("a.log", *LISTEN)
    first.until("step 29")
    second = open_screen("a.log", *LISTEN)
    assert second.code() == 2
    second.until("already")
    first.press("q")
    assert first.code() == 0


def test_headless_prints_lines_on_a_terminal_too(open_screen: Callable[..., Terminal]) -> None:
    daemon = open_screen("a.log", "--headless", "--interval", "0.2", *LISTEN)
    daemon.until("STATUS")
    os.kill(daemon.pid, signal.SIGINT)
    assert daemon.code() == 130


def test_attach_shows_a_daemon_and_leaves_it_running(
    open_screen: Callable[..., Terminal],
) -> None:
    daemon = open_screen("a.log", "--headless", *LISTEN)
    daemon.until("/metrics")
    found = re.search(r"http://[0-9.]+:\d+", daemon.written)
    assert found is not None
    screen = open_screen("attach", found[0])
    screen.until("step 29")
    screen.press("q")
    assert screen.code() == 0
    other = open_screen("attach", found[0])
    other.until("step 29")
    os.kill(other.pid, signal.SIGTERM)
    assert other.code() == 0
    os.kill(daemon.pid, signal.SIGTERM)
    assert daemon.code() == 0


def rings(terminal: Terminal) -> int:
    """Bells that are no part of an escape sequence."""
    return terminal.written.count("\x07")


@pytest.mark.parametrize("bell", [True, False])
def test_the_bell_rings_once_for_a_critical_alert_that_begins_to_fire(
    open_screen: Callable[..., Terminal], tmp_path: Path, bell: bool
) -> None:
    (tmp_path / "ldlm-monitor.toml").write_text(f"bell = {str(bell).lower()}\n", encoding="utf-8")
    terminal = open_screen("a.log", *LISTEN)
    terminal.until("Overview")
    terminal.until("2.5")
    with (tmp_path / "a.log").open("a", encoding="utf-8") as log:
        log.write("step 30 loss nan\n")
    terminal.until("NonFiniteLoss")
    assert rings(terminal) == bell


LIGHT, DARK = "\x1b[48;2;224;224;224m", "\x1b[48;2;18;18;18m"
"""The backgrounds of Textual's own two themes."""


def background(terminal: Terminal) -> str:
    """That of the last cells that were drawn with one of the two."""
    drawn = {each: terminal.raw.rfind(each[2:-1]) for each in (LIGHT, DARK)}
    return max(drawn, key=lambda each: drawn[each])


@pytest.mark.parametrize(
    ("answer", "settings", "expected"),
    [
        ("\x1b]11;rgb:ffff/ffff/f0f0\x1b\\\x1b[?62;22c", "", LIGHT),
        ("\x1b]11;rgb:1111/1111/1111\x07\x1b[?62;22c", "", DARK),
        ("\x1b[?62;22c", "", DARK),
        ("", "", DARK),
        ("", "[screen]\ntheme = 'textual-light'\n", LIGHT),
    ],
    ids=["light", "dark", "another answer", "no answer", "configured"],
)
@pytest.mark.slice(2)
def test_the_terminals_background_is_asked_for_and_no_key_is_lost(
    open_screen: Callable[..., Terminal], tmp_path: Path, answer: str, settings: str, expected: str
) -> None:
    """Keys before and behind the answer count; Esc works where no answer comes."""
    (tmp_path / "ldlm-monitor.toml").write_text(settings, encoding="utf-8")
    terminal = open_screen("a.log", *LISTEN)
    terminal.until("step 29")
    assert ("\x1b]11;?" in terminal.raw) is not bool(settings)
    terminal.press(f"3{answer}?")
    terminal.until("closes a dialog")  # all keys, over the page of alerts
    terminal.raw = ""
    terminal.press("\x1b")
    terminal.until("pending")
    assert background(terminal) == expected
    terminal.press("q")
    assert terminal.code() == 0


def test_the_demo_plays_from_the_package_alone(open_screen: Callable[..., Terminal]) -> None:
    screen = open_screen("demo", "--speed", "50")
    screen.until("playing")
    screen.until("loss NaN")
    screen.until("the end")
    screen.press("q")
    assert screen.code() == 0


def test_finished_logs_are_played_on_the_screen(open_screen: Callable[..., Terminal]) -> None:
    screen = open_screen("replay", "--tui", "a.log", "--speed", "1000")
    screen.until("step 29")
    screen.until("the end")
    screen.press("\x03")
    assert screen.code() == 130
