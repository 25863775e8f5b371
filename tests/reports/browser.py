"""Chromium without a window, spoken to over a pipe in its DevTools protocol; nothing else needs to be installed."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
from pathlib import Path
from typing import Any, Self

FOUND = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_SECONDS = 60.0


class Browser:
    """One page, of which sizes are asked."""

    def __init__(self, profile: Path) -> None:
        self._number, self._session, self._buffer = 0, None, b""
        theirs, self._write = os.pipe()
        self._read, theirs_out = os.pipe()
        # Chromium reads from descriptor 3 and writes to 4.
        command = [
            str(FOUND),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={profile}",
            "--remote-debugging-pipe",
        ]
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{theirs} 4>&{theirs_out}', "bash", *command],
            pass_fds=(theirs, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs)
        os.close(theirs_out)

    def __enter__(self) -> Self:
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.ask("Page.enable")
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self._write, self._read):
            os.close(end)
        self._process.terminate()
        self._process.wait(timeout=10)

    def open(self, page: Path, width: int, media: str = "screen") -> None:
        """Show a page as wide as this."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.ask("Emulation.setEmulatedMedia", media=media)
        self.ask("Page.navigate", url=page.as_uri())
        self.ask(
            "Runtime.evaluate",
            expression="new Promise(r => document.readyState === 'complete' ? r() : addEventListener('load', r))",
            awaitPromise=True,
        )

    def value(self, expression: str) -> Any:
        """Return what a script says of the page."""
        said = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in said, said
        return said["result"].get("value")

    def ask(self, method: str, **parameters: Any) -> Any:
        """Send a command and return its answer."""
        self._number += 1
        asked: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            asked["sessionId"] = self._session
        os.write(self._write, json.dumps(asked).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            assert select.select([self._read], [], [], _SECONDS)[0], "the browser does not answer"
            part = os.read(self._read, 1 << 16)
            assert part, "the browser has ended"
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found
