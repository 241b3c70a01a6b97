"""A real browser for tests: Chromium, driven by its own protocol over a websocket."""

import base64
import json
import shutil
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from websockets.sync.client import ClientConnection, connect

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
)


class Page:
    """One tab."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._sent = 0

    def tell(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and give its result."""
        self._sent += 1
        self._socket.send(json.dumps({"id": self._sent, "method": method, "params": params}))
        while True:
            got = json.loads(self._socket.recv(timeout=60))
            if got.get("id") == self._sent:
                assert "error" not in got, got
                return got["result"]

    def value(self, script: str) -> Any:
        """What an expression of JavaScript gives."""
        return self.tell("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def resize(self, width: int, height: int = 900, *, dark: bool = False) -> None:
        """A window of so many pixels."""
        self.tell(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = "dark" if dark else "light"
        self.tell("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, address: str, *, until: str, seconds: float = 40) -> None:
        """Go there, and wait until an expression holds and the page rests."""
        self.tell("Page.navigate", url=address)
        self.wait(until, seconds=seconds)

    def wait(self, until: str, *, seconds: float = 40) -> None:
        """Until an expression holds and no script runs any more."""
        busy = "[data-testid=stStatusWidget], [data-testid=stSkeleton], [data-stale=true]"
        rests = f"!document.querySelector('{busy}')"
        last = time.monotonic() + seconds
        while not self.value(f"!!({until}) && {rests}"):
            assert time.monotonic() < last, f"{until} never held; the page says: {self.text()[:2000]}"
            time.sleep(0.1)  # another process draws the page; nothing tells when

    def text(self) -> str:
        """All that can be read."""
        return str(self.value("document.body ? document.body.innerText : ''"))

    def shot(self, path: Path, *, whole: bool = True) -> None:
        """A picture of the page, all of its length."""
        if whole:
            height = self.value(
                "(() => {const m = document.querySelector('[data-testid=stMain]');"
                "return m ? m.scrollHeight + 60 : document.body.scrollHeight})()"
            )
            width = int(self.value("innerWidth"))
            dark = bool(self.value("matchMedia('(prefers-color-scheme: dark)').matches"))
            self.resize(width, max(900, int(height)), dark=dark)
            time.sleep(1.0)  # charts are drawn anew
        data = self.tell("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))


@contextmanager
def browser(folder: Path) -> Generator[Page]:
    """A browser with one tab and a profile of its own."""
    assert CHROMIUM is not None
    profile = folder / "profile"
    process = subprocess.Popen(
        [CHROMIUM, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        port = _port(profile / "DevToolsActivePort")
        with urlopen(f"http://127.0.0.1:{port}/json/list", timeout=20) as answer:
            tab = next(one for one in json.load(answer) if one["type"] == "page")
        with connect(tab["webSocketDebuggerUrl"], max_size=None, open_timeout=20) as socket:
            page = Page(socket)
            page.tell("Page.enable")
            page.tell("Runtime.enable")
            yield page
    finally:
        process.terminate()
        process.wait(timeout=20)


def _port(file: Path) -> int:
    last = time.monotonic() + 30
    while time.monotonic() < last:
        if file.exists() and (lines := file.read_text().split()):
            return int(lines[0])
        time.sleep(0.05)  # it says its port in a file
    raise AssertionError("the browser did not start")
