"""The screen in a browser: what its page and its WebSocket do, spoken to as a browser does."""

import asyncio
import contextlib
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
from tests.together.live.browser import CHROMIUM, Browser, browsing  # noqa: E402 # after aiohttp, which it needs
from tests.together.live.test_every_key import documented  # noqa: E402

pytestmark = pytest.mark.live
PATIENCE = 60.0
NAN = "step {step} loss nan\n"
READING: list[Any] = []  # tasks, of which asyncio keeps only weak references
SOCKET = "/ws?width=100&height=30"


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


async def windows(session: Any, page: str, count: int) -> list[Any]:
    """Sockets of windows that have drawn the screen, and that are read on, as pings need it."""

    async def read(socket: Any) -> None:
        async for _ in socket:
            pass

    async def window() -> Any:
        socket = await session.ws_connect(page + SOCKET)
        await until(socket, "step 30")
        READING.append(asyncio.create_task(read(socket)))
        return socket

    return await asyncio.gather(*(window() for _ in range(count)))


@pytest.fixture
def daemon(start: Callable[..., Any], append: Callable[[str, str], Path]) -> Any:
    append("a.log", "".join(f"step {step} loss 2.5\n" for step in range(30)))
    append("a.log", NAN.format(step=30))
    return start("a.log", "--web", "--web-listen", "127.0.0.1:0").ready()


@pytest.fixture
def page(daemon: Any) -> str:
    return page_of(daemon)


def processes_of(daemon: Any) -> list[int]:
    """All that it started and that still run."""
    found = [daemon.process.pid]
    for each in found:  # it grows while it is read
        with contextlib.suppress(FileNotFoundError):
            tasks = Path(f"/proc/{each}/task").glob("*/children")
            found.extend(int(child) for task in tasks for child in task.read_text().split())
    return found[1:]


async def become(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():
            await asyncio.sleep(0.02)


def are_gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{each}").exists() for each in pids)


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


def test_four_windows_are_a_process_each_and_one_more_waits_for_another_to_close(
    daemon: Any, page: str
) -> None:
    async def browse() -> None:
        async with aiohttp.ClientSession() as session:
            first, *_ = await windows(session, page, 4)
            before = processes_of(daemon)
            assert len(before) == 4
            async with session.get(page + SOCKET) as response:
                assert (response.status, await response.text()) == (
                    503,
                    "4 windows of the screen are open, the most at once: close one first.",
                )
            fifth = asyncio.create_task(windows(session, page, 1))
            await asyncio.sleep(0)
            await first.close()
            await fifth
            assert len(processes_of(daemon)) == 4
            assert len(set(processes_of(daemon)) - set(before)) == 1

    asyncio.run(browse())
    asyncio.run(become(lambda: not processes_of(daemon)))


def test_a_window_whose_browser_answers_nothing_is_ended(daemon: Any, page: str) -> None:
    async def browse() -> None:
        async with aiohttp.ClientSession() as session:
            socket = await session.ws_connect(page + SOCKET, autoping=False)
            await become(lambda: bool(processes_of(daemon)))
            await become(lambda: not processes_of(daemon))
            await socket.close()

    asyncio.run(browse())


def test_windows_end_with_a_monitor_that_is_killed(daemon: Any, page: str) -> None:
    async def browse() -> None:
        async with aiohttp.ClientSession() as session:
            await windows(session, page, 2)
            started = processes_of(daemon)
            assert len(started) == 2
            daemon.process.kill()
            await become(lambda: are_gone(started))

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


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_a_browser_says_that_a_window_is_one_too_many(page: str, tmp_path: Path) -> None:
    async def browse() -> None:
        async with aiohttp.ClientSession() as session:
            first, *_ = await windows(session, page, 4)
            async with browsing(tmp_path / "profile", page) as browser:
                await browser.until("document.body.classList.contains('-closed')")
                text = await browser.value("document.body.innerText")
                assert "too many windows of this screen are open" in text
                assert "has ended\n" not in text
                await first.close()
                await browser.press("Enter")
                await browser.until("document.body.classList.contains('-first-byte')")

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
        "from ldlm_monitor.service.cli import main; sys.exit(main(['a.log', '--web']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "pip install 'ldlm-monitor[web]'" in line
