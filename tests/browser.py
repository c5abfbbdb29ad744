"""A headless Chromium over a pipe, for tests of the page: no driver and no package needed, only Debian's chromium."""

import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="There is no chromium here; CONTRIBUTING says how to get it."
)

_OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
    "--proxy-server=127.0.0.1:9",
]
PATIENCE = 60.0


class Browser:
    """One tab: commands, and the events that came in between."""

    def __init__(self, write, read, offline=True):
        self._write, self._read, self._number, self._rest = write, read, 0, b""
        self.events = []
        self._session = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        if offline:
            still = {"latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
            self.send("Network.emulateNetworkConditions", offline=True, **still)

    def send(self, method, **parameters):
        """A command's answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def _next(self):
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], deadline - time.monotonic())
            assert ready, "The browser does not answer."
            chunk = os.read(self._read, 1 << 20)
            assert chunk, "The browser has ended."
            self._rest += chunk
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def open(self, path, width=1200, height=900, dark=False, media=""):
        """Load a file, or a page of a local server, in a window of that size."""
        self.events.clear()
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", media=media, features=[scheme])
        served = str(path).startswith("http://127.0.0.1:")
        self.send("Page.navigate", url=path if served else Path(path).resolve().as_uri())
        wait_until(lambda: self.run("document.readyState") == "complete")

    def run(self, expression):
        """The value of an expression in the page."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def point_at(self, x, y, press=False):
        """Move the pointer there, and press its button."""
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        if press:
            for kind in ("mousePressed", "mouseReleased"):
                self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def click(self, selector, nth=0):
        """Press on the middle of an element."""
        self.point_at(*self.middle(selector, nth), press=True)

    def middle(self, selector, nth=0):
        """Where an element is, having been scrolled to."""
        return self.run(
            f"(() => {{ const e = document.querySelectorAll({json.dumps(selector)})[{nth}];"
            "e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
            "return [b.left + b.width / 2, b.top + b.height / 2]; })()"
        )

    def press(self, key, code=None):
        """A key, down and up."""
        codes = {"Enter": 13, "ArrowRight": 39, "ArrowLeft": 37, "ArrowDown": 40, "ArrowUp": 38, "Tab": 9, " ": 32}
        text = {"Enter": "\r", " ": " "}.get(key, "")
        common = {"key": key, "windowsVirtualKeyCode": codes.get(key, 0), "code": {" ": "Space"}.get(key, key)}
        self.send("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **common)
        self.send("Input.dispatchKeyEvent", type="keyUp", **common)

    def picture(self, path, whole=True):
        """A picture of the page, to look at."""
        import base64

        answer = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        Path(path).write_bytes(base64.b64decode(answer["data"]))

    @property
    def complaints(self):
        """What the console has: errors, warnings, exceptions, what the policy refused."""
        self.run("1")  # Events that came before it have been read then.
        names = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")
        return [event for event in self.events if event.get("method") in names]

    @property
    def errors(self):
        """The complaints that are errors or warnings."""

        def level(event):
            return event["params"].get("entry", {}).get("level") or event["params"].get("type", "exception")

        return [event for event in self.complaints if level(event) not in ("log", "info", "verbose")]

    @property
    def requests(self):
        """Every address that was asked for."""
        asked = [event for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in asked]


def wait_until(condition):
    """Wait for a condition to hold."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@contextmanager
def browsing(profile, offline=True):
    """A browser with a fresh profile."""
    to_browser, from_us = os.pipe()
    from_browser, to_us = os.pipe()

    def pipes():  # It reads from descriptor 3 and writes to 4.
        low, high = (fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (to_browser, to_us))  # Neither 3 nor 4.
        os.dup2(low, 3)
        os.dup2(high, 4)

    process = subprocess.Popen(
        [CHROMIUM, *_OPTIONS, f"--user-data-dir={profile}", "about:blank"],
        preexec_fn=pipes,
        close_fds=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_browser)
    os.close(to_us)
    try:
        yield Browser(from_us, from_browser, offline)
    finally:
        process.kill()
        process.wait()
        os.close(from_us)
        os.close(from_browser)
