"""Every key and click of docs/tui.md on a real terminal (tmux); test_web.py has those of a browser.

Each step says what it presses, and what then stands on the screen, or (with `!`) no longer does.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.live
ROOT = Path(__file__).parents[3]
PATIENCE = 60.0
SIZE = (165, 40)
CRASHED, NAN, FINE = "083515", "083451", "083409"
Steps = tuple[tuple[str, str], ...]
"""Pairs of a key of docs/tui.md, words in quotes, or `click TEXT`; and a regular expression."""

EVERYWHERE: Steps = (
    ("2", "grad norm"), ("3", "firing .* pending"), ("4", "file 1 of"), ("5", "of all runs"),
    ("6", "GPUs"), ("1", "WHY, WHAT NOW"),
    ("click Alerts", "firing .* pending"), ("Esc", "WHY, WHAT NOW"),
    ("m", "for how long"), ("Esc", "!for how long"), ("?", "closes a dialog"),
    ("Esc", "!closes a dialog"), ("Ctrl+P", "Search for commands"), ("'Mute'", "Mute"),
    ("Esc", "!Mute"), ("a", "is acknowledged"),
)  # fmt: skip
OVERVIEW: Steps = (
    ("g", f"▶.*{FINE}"), ("j", f"▶.*{NAN}"), ("k", f"▶.*{FINE}"), ("↓", f"▶.*{NAN}"),
    ("↑", f"▶.*{FINE}"), ("G", f"▶.*{CRASHED}"), ("g", f"▶.*{FINE}"), ("PgDn", f"▶.*{CRASHED}"),
    ("PgUp", f"▶.*{FINE}"), (f"click {NAN}", f"▶.*{NAN}"), ("/", "Show only runs with"),
    ("'crash'", "crash"), ("Enter", "2 hidden"), ("/", "Show only runs with"),
    ("Backspace", "name, state, reason"), ("Enter", "!hidden"), ("s", "by state"),
    ("S", "reversed"), ("click STEP", "by step"), ("h", "without ended"), ("h", "!without ended"),
    ("Space", "1 picked"), (f"double click {NAN}", "to do GO_ON"), ("Esc", "WHY, WHAT NOW"),
    ("Enter", "last step ended"),
)  # fmt: skip
RUN: Steps = (
    ("g", f"▶.*{FINE}"), ("j", f"▶.*{NAN}"), ("2", "loss +step 299"), ("←", "step 29"),
    ("←", "loss +step 29[0-8]"),
    ("→", "step 29"), ("+", "zoomed"), ("Shift+←", "loss"), ("Shift+→", "zoomed"),
    ("-", "loss"), ("+", "zoomed"), ("0", "!zoomed"), ("wheel loss", "zoomed"), ("0", "!zoomed"),
    ("v", "step 299 +0|accuracy|learning_rate +step"), ("V", " loss +step"),
    ("z", "!grad norm"), ("z", "grad norm"), ("l", " log"), ("l", "! log"), ("s", "smoothed 0.9"),
    ("s", "smoothed 0.98"), ("s", "!smoothed"), ("c", "loss_"), ("c", "step"), ("x", "by time"),
    ("x", "by tokens|by time"), ("]", f"!_{NAN}  "), ("[", f"_{NAN}  "),
)  # fmt: skip
ALERTS: Steps = (
    ("3", "1 firing"), ("s", "for how long"), ("Esc", "!for how long"),
    ("a", "acknowledged"), ("Enter", r"f follows"),
)  # fmt: skip
LOG: Steps = (
    ("g", f"▶.*{FINE}"), ("j", f"▶.*{NAN}"), ("4", "following"),
    ("g", "f follows"), ("/", "Search in this log"),
    ("'Invalid'", "Invalid"), ("Enter", "1 of 3"), ("n", "2 of 3"), ("N", "1 of 3"),
    ("w", r"\n *─+"), ("w", r"!\n *─{60}"), ("→", r"\n +\d+ "), ("←", "Invalid"), ("e", "▶"),
    ("E", "▶"), ("v", "warning and worse"), ("v", "error and worse"), ("v", "!and worse"),
    ("b", "  bars"), ("b", "!  bars"), ("r", "rank 0|file 1"), ("]", "file 2 of 2"),
    ("[", "file 1 of 2"), ("y", "The line is copied"), ("m", "files merged"),
    ("f", "following|f follows"),
)  # fmt: skip
EVENTS: Steps = (
    ("5", "of all runs"), ("v", "errors +of"), ("o", "of train_"),
    ("o", "of all runs"), ("Enter", "file . of"),
)  # fmt: skip
PLAYING: Steps = (
    ("p", "paused"), ("<", "x|s/s|speed|paused"), (">", "paused"), ("A", "NaN|NonFinite|Straggl|▲"),
    ("R", "playing|paused"),
)  # fmt: skip
PARTS = {"everywhere": EVERYWHERE, "overview": OVERVIEW, "run": RUN, "alerts": ALERTS, "log": LOG,
         "events": EVENTS, "playing": PLAYING}  # fmt: skip
TMUX = {"Esc": "Escape", "↓": "Down", "↑": "Up", "←": "Left", "→": "Right", "PgDn": "NPage",
        "PgUp": "PPage", "Backspace": "BSpace", "Ctrl+P": "C-p", "Ctrl+Z": "C-z",
        "Shift+←": "S-Left", "Shift+→": "S-Right"}  # fmt: skip


def documented() -> set[str]:
    """The keys of the table of docs/tui.md."""
    page = (ROOT / "docs/tui.md").read_text("utf-8").partition("## Keys")[2].partition("##")[0]
    rows = re.findall(r"^\|[^|]*\|([^|]*)\|", page, re.MULTILINE)
    return {key for cell in rows for key in re.findall(r"`([^`]+)`", cell)}


def test_every_documented_key_is_pressed() -> None:
    pressed = {key for steps in PARTS.values() for key, _ in steps}
    assert documented() - pressed == {"q", "Ctrl+C", "Ctrl+Z"}  # which end the next tests


def held(shown: str, expected: str) -> bool:
    """Whether the screen is as expected."""
    if expected.startswith("!"):
        return re.search(expected[1:], shown) is None
    return re.search(expected, shown) is not None


class Tmux:
    """A shell in a real terminal, in which the screen was started."""

    def __init__(self, folder: Path) -> None:
        self._own = ["tmux", "-L", f"keys{os.getpid()}", "-f", "/dev/null"]
        width, height = map(str, SIZE)
        environment = {**os.environ, "LC_ALL": "C.UTF-8", "XDG_STATE_HOME": str(folder / "state")}
        subprocess.run([*self._own, "new-session", "-d", "-x", width, "-y", height,
                        "bash", "--norc"], cwd=folder, env=environment, check=True)  # fmt: skip

    def __call__(self, *arguments: str) -> str:
        done = subprocess.run([*self._own, *arguments], capture_output=True, text=True, check=True)
        return done.stdout

    def shown(self) -> str:
        return self("capture-pane", "-p")

    def until(self, expected: str, after: str = "") -> None:
        deadline = time.monotonic() + PATIENCE
        while not held(shown := self.shown(), expected):
            assert time.monotonic() < deadline, f"{after}: {expected!r} in:\n{shown}"
            time.sleep(0.1)

    def press(self, key: str) -> None:
        what, _, word = key.rpartition(" ")
        if what.endswith("click") or what == "wheel":
            self._mouse(what, word)
        elif key.startswith("'") and len(key) > 1:
            self("send-keys", "-l", key.strip("'"))
        else:
            self("send-keys", TMUX.get(key, key))

    def _mouse(self, what: str, word: str) -> None:
        rows = self.shown().splitlines()
        y = next(i for i, row in enumerate(rows) if word in row[:90])  # in the list, not beside
        x = rows[y].index(word) + 2
        down = f"\x1b[<0;{x};{y + 1}M\x1b[<0;{x};{y + 1}m"
        wheel = f"\x1b[<64;{x + 40};{y + 6}M"
        self("send-keys", "-l", wheel if what == "wheel" else down * (1 + (what == "double click")))

    def close(self) -> None:
        subprocess.run([*self._own, "kill-server"], check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("train_logs", "saved"):
        shutil.copytree(ROOT / "examples" / name, tmp_path / name)
    steps = "".join(f"step {step} loss 2.5\n" for step in range(30))
    (tmp_path / "firing.log").write_text(f"{steps}step 30 loss nan\n", encoding="utf-8")
    return tmp_path


@pytest.fixture
def tmux(folder: Path) -> Iterator[Tmux]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    opened = Tmux(folder)
    yield opened
    opened.close()


def opened(tmux: Tmux, part: str) -> None:
    """Start the screen, and wait until all is read."""
    program = f"{sys.executable} -m ldlm_monitor"
    if part == "playing":
        tmux("send-keys", f"{program} demo --speed 1", "Enter")
        tmux.until("playing")
    elif part == "alerts":  # one that fires now
        tmux("send-keys", f"{program} firing.log --listen 127.0.0.1:0", "Enter")
        tmux.until("NonFiniteLoss")
    else:
        tmux("send-keys", f"{program} 'train_logs/*.log' --listen 127.0.0.1:0", "Enter")
        tmux.until(f"{CRASHED}.*mend the error")
        tmux.until("!reading")
        tmux("send-keys", "s")  # by name, an order that does not change with time
        tmux.until("by run")


@pytest.mark.parametrize(
    "part",
    [name if name == "overview" else pytest.param(name, marks=pytest.mark.long) for name in PARTS],
)
def test_keys_and_clicks_on_a_terminal(tmux: Tmux, part: str) -> None:
    opened(tmux, part)
    for key, expected in PARTS[part]:
        tmux.press(key)
        tmux.until(expected, key)


@pytest.mark.long
def test_the_shell_comes_back_and_the_screen_after_it(tmux: Tmux) -> None:
    """Ctrl+Z and fg; q prints the report."""
    opened(tmux, "")
    tmux.press("Ctrl+Z")
    tmux.until("Stopped")
    tmux("send-keys", "fg", "Enter")
    tmux.until("WHY, WHAT NOW")
    tmux.press("q")
    tmux.until("metrics on|RECOMMENDATIONS|HEALTH")
