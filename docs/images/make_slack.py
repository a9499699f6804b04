"""Makes the pictures of docs/slack.md again: `python docs/images/make_slack.py`.

The real daemon follows an example log while it grows, and posts to a server on this machine that
behaves as Slack does: a webhook of the training that crashed, a bot of the one that met NaN, until
its alert is over. What that received is drawn in Slack's layout (`slack_page.py`) by a headless
Chromium. Slack itself is not asked. It takes seven minutes, and needs the Debian packages chromium,
fonts-lato and fonts-noto-color-emoji and the extra `docs`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from PIL import Image, ImageChops

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "tests/service/notify")]

import slack_api  # noqa: E402 # the server that the tests have
from slack_page import Shown, page  # noqa: E402
from webhook import webhook  # noqa: E402

EXAMPLES = ROOT / "examples"
CRASHED, NAN = ("bad_token", "083515"), ("bad_latents", "083451")
"""A run, and when its log was begun."""
SLICES, PAUSE = 40, 0.4
"""How a log grows: in so many parts, each after so many seconds."""
PATIENCE = 420.0


def until(holds: Callable[[], bool]) -> None:
    """Returns once it holds."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            raise SystemExit("what the pictures show did not come")
        time.sleep(0.1)


def follow(
    example: tuple[str, str], config: str, environment: dict[str, str], seen: Callable[[], bool]
) -> None:
    """A daemon follows a run's files while they grow, and ends once that was `seen`."""
    run, begun = example
    paths = (f"train_logs/train_20261121_{begun}_node0.log", f"saved/{run}/training_log.jsonl")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "ldlm-monitor.toml").write_text(
            f"companions = false\n[slack]\nfollow_up_seconds = 3\n{config}", encoding="utf-8"
        )
        files = [folder / path for path in paths]
        texts = [(EXAMPLES / path).read_bytes() for path in paths]
        for path in files:
            path.parent.mkdir(parents=True)
            path.touch()
        clean = {key: text for key, text in os.environ.items() if key[:5] != "LDLM_"}
        daemon = subprocess.Popen(
            [sys.executable, "-m", "ldlm_monitor", *paths, "--headless", "--run", run,
             "--listen", "127.0.0.1:0", "--state-dir", "state"],
            cwd=folder, env={**clean, **environment}, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            time.sleep(3)
            for part in range(SLICES):
                for path, text in zip(files, texts, strict=True):
                    size = len(text) // SLICES + 1
                    with path.open("ab") as file:
                        file.write(text[part * size : (part + 1) * size])
                time.sleep(PAUSE)
            until(seen)
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait()


def by_webhook() -> list[Shown]:
    """The message of a crash."""
    with webhook() as (url, received):
        follow(CRASHED, "", {"LDLM_SLACK_WEBHOOK_URL": url}, lambda: bool(received))
        return [Shown(each["blocks"]) for each in received[:1]]


def by_bot() -> dict[str, list[Shown]]:
    """The message of a NaN as it came first, and as it stood when it was over, with its thread."""
    with slack_api.slack_api() as api:
        config = f'channel = "{slack_api.CHANNEL}"\napi_url = "{api.url}"\n'

        def over() -> bool:
            with api.changed:
                return any("ended" in str(each["blocks"][0]) for each in api.posted)

        follow(NAN, config, {"LDLM_SLACK_BOT_TOKEN": slack_api.TOKEN}, over)
        (posted,) = api.posted
        replies = [Shown(each["blocks"]) for each in api.replies]
        (picture,) = api.files.values()
        last = Shown(posted["blocks"], note="(edited)", replies=replies, picture=picture)
        return {"first": [Shown(posted["first"])], "last": [last]}


def photograph(messages: list[Shown], path: Path) -> None:
    """The page as a PNG, without the empty space below it."""
    with tempfile.TemporaryDirectory() as name:
        source, shot = Path(name) / "page.html", Path(name) / "shot.png"
        source.write_text(page(messages), encoding="utf-8")
        subprocess.run(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--window-size=760,4000", f"--screenshot={shot}", f"--user-data-dir={name}/profile",
             source.as_uri()],
            check=True, capture_output=True,
        )  # fmt: skip
        picture = Image.open(shot).convert("RGB")
        blank = Image.new("RGB", picture.size, picture.getpixel((0, 0)))
        box = ImageChops.difference(picture, blank).getbbox()
        if box is None:
            raise SystemExit(f"nothing was drawn for {path.name}")
        cropped = picture.crop((0, 0, picture.width, box[3] + 16))
        cropped.quantize(128).save(path, optimize=True)


if __name__ == "__main__":
    photograph(by_webhook(), HERE / "slack-webhook.png")
    shown = by_bot()
    photograph(shown["first"], HERE / "slack-bot-first.png")
    photograph(shown["last"], HERE / "slack-bot-last.png")
