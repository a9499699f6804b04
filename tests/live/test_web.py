"""The screen in a browser: what its page and its WebSocket do, spoken to as a browser does."""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

aiohttp = pytest.importorskip("aiohttp", reason="the extra `web` is not installed")
pytest.importorskip("textual_serve", reason="the extra `web` is not installed")
from browser import CHROMIUM, Browser, browsing  # noqa: E402 # after aiohttp, which it needs
from test_every_key import documented  # noqa: E402

pytestmark = pytest.mark.live
PATIENCE = 60.0
NAN = "step {step} loss nan\n"


def page_of(daemon: Any) -> str:
    for _ in range(3000):
        for line in daemon.messages():
            if "the screen is at " in line:
                return str(line.split("the screen is at ")[1].strip())
        asyncio.run(asyncio.sleep(0.02))
    raise AssertionError(daemon.messages())


async def until(socket: Any, word: str) -> None:
    """Return once the screen drew that, colours left out."""
    shown = b""
    async with asyncio.timeout(PATIENCE):
        while word.encode() not in shown:
            message = await socket.receive()
            assert message.type in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT), message
            if message.type == aiohttp.WSMsgType.BINARY:
                shown += message.data


@pytest.fixture
def page(start: Callable[..., Any], append: Callable[[str, str], Path]) -> str:
    append("a.log", "".join(f"step {step} loss 2.5\n" for step in range(30)))
    append("a.log", NAN.format(step=30))
    return page_of(start("a.log", "--web", "--web-listen", "127.0.0.1:0").ready())


def test_a_browser_gets_the_screen_and_its_keys_work(page: str) -> None:
    async def browse() -> None:
        async with aiohttp.ClientSession() as session:
            async with session.get(page) as response:
                assert response.status == 200
                assert "default-src 'self'" in response.headers["Content-Security-Policy"]
                assert "ws://" in await response.text()
            async with session.ws_connect(
                f"{page}/ws?width=100&height=30", headers={"Origin": page}
            ) as socket:
                await until(socket, "step 30")
                await socket.send_json(["stdin", "3"])
                await until(socket, "NonFiniteLoss")

    asyncio.run(browse())


def sent(browser: Browser) -> list[Any]:
    """The keys that the page sent."""
    frames = [
        each["response"]["payloadData"] for each in browser.seen("Network.webSocketFrameSent")
    ]
    return [key for kind, *key in map(json.loads, frames) if kind == "stdin"]


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_in_a_browser_keys_work_at_once_nothing_is_fetched_and_the_end_is_plain(
    page: str, tmp_path: Path
) -> None:
    """The first key needs no click; the tab has a title; `q` leaves a page that says what next."""
    is_open = "document.body.classList.contains('-first-byte')"
    is_over = "document.body.classList.contains('-closed')"

    async def browse() -> None:
        async with browsing(tmp_path / "profile", page) as browser:
            await browser.until(is_open)
            assert await browser.value("document.title") == "ldlm-monitor a.log"
            await browser.press("q")
            assert await browser.value("true")  # what was sent before is reported by now
            assert ["q"] in sent(browser)
            while not await browser.value(is_over):  # the first may close the digest
                await asyncio.sleep(0.5)
                await browser.press("q")
            text = await browser.value("document.body.innerText")
            assert "This window has ended" in text
            assert "Restart" not in text
            await browser.press("Enter")
            await browser.until(f"{is_open} && !{is_over}")
            asked = [each["request"]["url"] for each in browser.seen("Network.requestWillBeSent")]
            assert asked
            assert {urlsplit(url).netloc for url in asked if not url.startswith("data:")} == {
                urlsplit(page).netloc
            }
            assert browser.seen("Network.loadingFailed") == []
            logged = [each["entry"] for each in browser.seen("Log.entryAdded")]
            assert [each for each in logged if each["source"] in ("security", "network")] == []

    asyncio.run(browse())


TERMINAL = {
    "Enter": "\r", "Esc": "\x1b", "Space": " ", "PgUp": "\x1b[5~", "PgDn": "\x1b[6~",
    "←": "\x1b[D", "→": "\x1b[C", "Shift+←": "\x1b[1;2D", "Shift+→": "\x1b[1;2C",
    "Ctrl+P": "\x10", "Ctrl+Z": "\x1a",
}  # fmt: skip
"""What a terminal sends for the keys that have no letter (xterm, control sequences)."""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_in_a_browser_each_documented_key_and_the_mouse_arrive_as_from_a_terminal(
    page: str, tmp_path: Path
) -> None:
    """What the screen does with them is tried on a terminal (test_every_key.py)."""
    keys = sorted(documented() - {"q", "Ctrl+C"})  # which end it

    async def browse() -> None:
        async with browsing(tmp_path / "profile", page) as browser:
            await browser.until("document.body.classList.contains('-first-byte')")
            for key in keys:
                await browser.press(key)
            assert await browser.value("true")  # what was sent before is reported by now
            expected = [TERMINAL.get(key, key) for key in keys]
            assert [key for (key,) in sent(browser) if key[:3] != "\x1b[<"][
                -len(keys) :
            ] == expected
            for kind, more in (("mousePressed", {"button": "left", "clickCount": 1}),
                               ("mouseReleased", {"button": "left", "clickCount": 1}),
                               ("mouseWheel", {"deltaX": 0, "deltaY": -100})):  # fmt: skip
                await browser.point(kind, 100, 100, **more)
            assert await browser.value("true")
            mouse = "".join(key for (key,) in sent(browser) if key[:3] == "\x1b[<")
            assert re.search(r"<0;\d+;\d+M.*<0;\d+;\d+m.*<64;\d+;\d+M", mouse, re.DOTALL), mouse

    asyncio.run(browse())


def test_pages_and_names_of_others_are_refused(page: str) -> None:
    async def browse() -> list[int]:
        statuses = []
        async with aiohttp.ClientSession() as session:
            for path, headers in (
                ("/", {"Host": "evil.example"}),
                ("/ws", {"Origin": "http://evil.example"}),
                ("/", {"Host": "localhost:8000"}),
            ):
                async with session.get(page + path, headers=headers) as response:
                    statuses.append(response.status)
        return statuses

    assert asyncio.run(browse()) == [403, 403, 200]


def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['textual_serve'] = None\n"
        "from ldlm_monitor.cli import main; sys.exit(main(['a.log', '--web']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "pip install 'ldlm-monitor[web]'" in line
