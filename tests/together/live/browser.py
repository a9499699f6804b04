"""A real Chromium, driven by its DevTools protocol: what a person sees and presses."""

import asyncio
import base64
import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0")

NAMED = {"Enter": ("Enter", 13), "Esc": ("Escape", 27), "Space": ("Space", 32),
         "Backspace": ("Backspace", 8), "PgUp": ("PageUp", 33), "PgDn": ("PageDown", 34),
         "←": ("ArrowLeft", 37), "↑": ("ArrowUp", 38), "→": ("ArrowRight", 39),
         "↓": ("ArrowDown", 40)}  # fmt: skip
CODES = {"-": 189}  # by letter it would be that of Insert
MODIFIERS = {"Ctrl": 2, "Shift": 8}
"""Names and codes of the keys of docs/tui.md in a browser (UI Events, virtual key codes)."""


class Browser:
    """One tab. `events` holds what the protocol reported, in order."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._number = 0
        self.events: list[dict[str, Any]] = []

    async def call(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        while True:
            found = await self._socket.receive_json()
            if found.get("id") == self._number:
                return found.get("result", found)
            self.events.append(found)

    async def value(self, script: str) -> Any:
        found = await self.call("Runtime.evaluate", expression=script, returnByValue=True)
        return found["result"].get("value")

    async def until(self, script: str) -> None:
        """Return once the page's `script` is true."""
        async with asyncio.timeout(60):
            while not await self.value(script):
                await asyncio.sleep(0.05)

    async def press(self, key: str) -> None:
        """Press a key by its name in docs/tui.md, such as `j`, `Esc` or `Shift+←`."""
        held, _, own = key.rpartition("+") if len(key) > 1 else ("", "", key)
        name, code = NAMED.get(own, (own, CODES.get(own, ord(own[0].upper()))))
        text = "\r" if name == "Enter" else " " if own == "Space" else name
        shared = {"key": text if own == "Space" else name, "windowsVirtualKeyCode": code,
                  "modifiers": MODIFIERS.get(held, 0)}  # fmt: skip
        prints = {"text": text} if len(text) == 1 and held != "Ctrl" else {}
        await self.call("Input.dispatchKeyEvent", type="keyDown", **prints, **shared)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **shared)

    async def point(self, kind: str, x: float, y: float, **more: Any) -> None:
        """Do something with the mouse at a place of the page, in pixels."""
        await self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    async def picture(self, path: Path) -> None:
        found = await self.call("Page.captureScreenshot")
        path.write_bytes(base64.b64decode(found["data"]))

    def seen(self, method: str) -> list[dict[str, Any]]:
        """The parameters of the events of this kind."""
        return [each["params"] for each in self.events if each.get("method") == method]


@contextlib.asynccontextmanager
async def browsing(folder: Path, url: str) -> AsyncIterator[Browser]:
    """A tab of a new Chromium with its profile in `folder`, on the way to `url`."""
    assert CHROMIUM is not None
    command = (CHROMIUM, *FLAGS, f"--user-data-dir={folder}", "about:blank")
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*command, stdout=quiet, stderr=quiet)
    try:
        port = folder / "DevToolsActivePort"
        async with asyncio.timeout(60):
            while not port.exists() or not port.read_text():
                await asyncio.sleep(0.05)
        address = f"http://127.0.0.1:{port.read_text().split()[0]}"
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{address}/json/list") as response:
                tabs = await response.json()
            tab = next(each for each in tabs if each["type"] == "page")
            async with session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                browser = Browser(socket)
                for domain in ("Page", "Network", "Log", "Runtime"):
                    await browser.call(f"{domain}.enable")
                await browser.call("Page.navigate", url=url)
                yield browser
    finally:
        process.terminate()
        await process.wait()
