"""The daemon's own page in a browser: it ticks, follows the state, and survives a restart."""

import asyncio
import json
import re
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="the extra `web` is not installed")
from tests.together.live.browser import CHROMIUM, browsing  # after aiohttp, which it needs

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
]
AGE = "Number((document.querySelector('{}').textContent.match(/(\\d+)s/) || [0, 0])[1])"
SHOWN = (
    "[...document.querySelectorAll('[data-row]:not([hidden]) a')].map(a => a.textContent).join()"
)


def row(step: int, loss: object) -> str:
    named = {"step": step, "loss": loss, "time": time.time(), "total_steps": 1000}
    return json.dumps(named) + "\n"


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def served(start: Callable[..., Any], port: int) -> Any:
    daemon = start("*.jsonl", "--listen", f"127.0.0.1:{port}")
    while not any("metrics on " in line for line in daemon.messages()):
        assert daemon.process.poll() is None, daemon.messages()
        time.sleep(0.02)
    return daemon


def test_it_follows_the_runs_and_a_restart_without_a_request_elsewhere(
    start: Callable[..., Any], append: Callable[[str, str], Path], tmp_path: Path
) -> None:
    for name in ("good", "bad"):
        append(f"{name}.jsonl", "".join(row(step, 2.5) for step in range(1, 40)))
    port = free_port()
    daemon = served(start, port)

    async def look() -> None:
        nonlocal daemon
        async with browsing(tmp_path / "profile", f"http://127.0.0.1:{port}/") as browser:
            await browser.until("document.querySelectorAll('[data-row]').length === 2")
            await browser.until(f"{AGE.format('h2 + p time')} >= 1")
            append("bad.jsonl", row(40, "NaN"))
            await browser.until("document.querySelector('.CRITICAL a')?.textContent === 'bad'")
            await browser.until("document.querySelector('.why')?.textContent.includes('step 40')")
            await browser.value("document.getElementById('filter').value = 'critical'")
            await browser.value(
                "document.getElementById('filter').dispatchEvent(new Event('input'))"
            )
            assert await browser.value(SHOWN) == "bad"
            filtered = f"http://127.0.0.1:{port}/?q=critical"
            await browser.call("Page.navigate", url=filtered)
            await browser.until(f"document.getElementById('live') && {SHOWN} === 'bad'")
            await browser.value("document.getElementById('filter').value = 'good'")
            await browser.value(
                "document.getElementById('filter').dispatchEvent(new Event('input'))"
            )
            assert await browser.value(SHOWN) == "good", "the address leaves nothing out"
            await browser.value("document.getElementById('filter').value = 'critical'")
            for width in (390, 1280):
                await browser.call(
                    "Emulation.setDeviceMetricsOverride", width=width, height=800,
                    deviceScaleFactor=1, mobile=width < 500,
                )  # fmt: skip
                assert await browser.value("document.documentElement.scrollWidth") <= width
            await asyncio.to_thread(daemon.stop)
            await browser.until("document.getElementById('live').textContent.startsWith('no')")
            daemon = await asyncio.to_thread(served, start, port)
            await browser.until("document.getElementById('live').textContent === 'live'")
            await browser.until(
                f"{SHOWN} === 'bad'"
            )  # the filter stays, once the log is read again
            await browser.call("Page.navigate", url=f"http://127.0.0.1:{port}/runs/bad")
            await browser.until(
                "document.querySelector('main[data-now] h2')?.textContent === 'bad'"
            )
            made = await browser.value("document.querySelector('main').dataset.now")
            append("bad.jsonl", row(41, "NaN"))
            await browser.until(f"document.querySelector('main').dataset.now !== '{made}'")
            await browser.until(
                "document.querySelector('.verdict').textContent.includes('step 41')"
            )
            await browser.until("document.querySelectorAll('.charts output').length > 0")
            asked = {each["request"]["url"] for each in browser.seen("Network.requestWillBeSent")}
            assert all(re.match(f"http://127.0.0.1:{port}/", url) for url in asked)
            assert browser.seen("Runtime.exceptionThrown") == []

    asyncio.run(look())
