"""A headless Chromium driven through its debugging pipe, with nothing but the standard library."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_PATIENCE = 120.0


class Browser:
    """One page of one browser; use it as a context."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None
        self._commands_out, commands = os.pipe()
        answers, self._answers_in = os.pipe()

        def pipes() -> None:
            read, write = (fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (self._commands_out, self._answers_in))
            os.dup2(read, 3)
            os.dup2(write, 4)

        arguments = (
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
        )
        self._process = subprocess.Popen(
            [CHROMIUM, *arguments, "about:blank"],
            preexec_fn=pipes,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(self._commands_out)
        os.close(self._answers_in)
        self._write = os.fdopen(commands, "wb", buffering=0)
        self._read = os.fdopen(answers, "rb", buffering=0)
        self._pending = b""
        self._number = 0
        self.errors: list[str] = []
        targets = self._call("Target.getTargets", {}, session=None)["targetInfos"]
        target = next(target["targetId"] for target in targets if target["type"] == "page")
        attached = self._call("Target.attachToTarget", {"targetId": target, "flatten": True}, session=None)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(timeout=20)
        self._write.close()
        self._read.close()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._call(method, parameters, session=self._session)

    def _call(self, method: str, parameters: dict[str, Any], session: str | None) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        self._write.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            self._note(answer)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._pending:
            data = self._read.read(1 << 20)
            assert data, "the browser is gone"
            self._pending += data
        line, _, self._pending = self._pending.partition(b"\0")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _note(self, answer: dict[str, Any]) -> None:
        method, parameters = answer.get("method"), answer.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(str(parameters["exceptionDetails"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.errors.append(parameters["entry"]["text"])

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression; promises are awaited."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Wait until a JavaScript expression is true."""
        end = time.monotonic() + _PATIENCE
        while not self.evaluate(expression):
            assert time.monotonic() < end, f"never true: {expression}; {self.errors}"
            time.sleep(0.1)

    def key(self, key: str, *, control: bool = False) -> None:
        """Press and release a key."""
        codes = {"Enter": 13, "Tab": 9}
        details = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key], "modifiers": 2 if control else 0}
        if key == "Enter" and not control:
            details["text"] = "\r"
        self.call("Input.dispatchKeyEvent", type="keyDown", **details)
        self.call("Input.dispatchKeyEvent", type="keyUp", **details)

    def screenshot(self, path: Path, width: int, height: int, *, dark: bool = False) -> None:
        """Save the page as PNG, or as WebP where the name of the file says so."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        form = {"format": "webp", "quality": 60} if path.suffix == ".webp" else {"format": "png"}
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", **form)["data"]))
