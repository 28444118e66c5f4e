"""A headless Chromium by its debugging protocol: enough to open a page, act on it and read what it shows."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from websockets.sync.client import ClientConnection, connect

CHROMIUM = next((path for name in ("chromium", "chromium-browser", "google-chrome", "chrome") if (path := shutil.which(name))), None)
_FLAGS = (
    "--headless=new",
    "--remote-debugging-port=0",
    "--disable-gpu",
    "--no-first-run",
    "--disable-extensions",
    "--disable-dev-shm-usage",
)


class Page:
    """The one tab. ``errors``: what its console complained of, the policy's refusals included."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._last = 0
        self.errors: list[str] = []
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._last += 1
        self._socket.send(json.dumps({"id": self._last, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(timeout=60))
            if message.get("id") == self._last:
                assert "error" not in message, message
                return dict(message["result"])
            if message.get("method") == "Runtime.exceptionThrown":
                self.errors.append(str(message["params"]["exceptionDetails"]))
            elif message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
                self.errors.append(message["params"]["entry"]["text"])

    def evaluate(self, expression: str) -> Any:
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait_for(self, expression: str, *, at_most_s: float = 60.0) -> Any:
        """The value of the expression once it is truthy."""
        ends = monotonic() + at_most_s
        while not (value := self.evaluate(expression)):
            assert monotonic() < ends, f"{expression} did not come true: {self.evaluate('document.body.innerText')}; {self.errors}"
            sleep(0.05)
        return value

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.wait_for(f"location.href.startsWith({json.dumps(url)}) && document.readyState === 'complete'")

    def look(self, *, width: int, height: int, dark: bool = False) -> None:
        """Size of the window, and what the system is said to prefer."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=features)


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """``folder``: for the profile, which is new."""
    assert CHROMIUM is not None
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    process = subprocess.Popen(
        [CHROMIUM, *_FLAGS, *sandbox, f"--user-data-dir={folder}", "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        with connect(_page_address(folder, process), proxy=None, max_size=None) as socket:
            yield Page(socket)
    finally:
        process.kill()
        process.wait()


def _page_address(folder: Path, process: subprocess.Popen[bytes]) -> str:
    """Of the tab's socket: the browser writes its port into the profile once it listens."""
    port_file, ends = folder / "DevToolsActivePort", monotonic() + 60
    while monotonic() < ends and process.poll() is None:
        if port_file.exists() and len(lines := port_file.read_text().splitlines()) >= 2:
            return _first_tab(f"ws://127.0.0.1:{lines[0]}{lines[1]}", lines[0])
        sleep(0.05)
    raise AssertionError(f"the browser did not start: {process.poll()}")


def _first_tab(browser_address: str, port: str) -> str:
    with connect(browser_address, proxy=None) as socket:
        for number in range(200):
            socket.send(json.dumps({"id": number, "method": "Target.getTargets"}))
            targets = json.loads(socket.recv(timeout=60))["result"]["targetInfos"]
            for target in targets:
                if target["type"] == "page":
                    return f"ws://127.0.0.1:{port}/devtools/page/{target['targetId']}"
            sleep(0.05)
    raise AssertionError("the browser opened no tab")
