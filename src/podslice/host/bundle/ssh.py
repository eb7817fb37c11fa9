"""Capture a node through ssh: `capture.sh` goes to a shell there, the archive comes back."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

from podslice.host.bundle.captured import LARGEST_CAPTURE, SCRIPT, check_capture
from podslice.host.bundle.layout import Manifest
from podslice.values.errors import InputError

# A name that begins with a hyphen would be an option of ssh.
_HOST = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}@)?[A-Za-z0-9_\[:][A-Za-z0-9_.:%\]-]{0,253}\Z")
_SECONDS = 120.0
_REMEDY = "try `ssh {} true`; keys and ports belong into ~/.ssh/config"


def capture_by_ssh(host: str, target: Path, *, sudo: bool = False, seconds: float = _SECONDS) -> Manifest:
    """Write the bundle of a host to `target`, and return its manifest. Nothing stays there. ssh never asks for a
    password, and `sudo` must not need one. Raises `InputError`."""
    if not _HOST.match(host):
        raise InputError(f"{host[:80]!r} is not a host", path="--ssh", remedy="write HOST or USER@HOST, as for ssh")
    shell = "sudo -n sh -s" if sudo else "sh -s"
    words = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-T", "--", host, shell]
    with SCRIPT.open("rb") as script, target.open("wb") as out, tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(words, stdin=script, stdout=out, stderr=errors)
        except OSError as error:
            raise InputError(f"ssh cannot be run: {error.strerror}", path="--ssh", remedy="install it") from None
        with process:
            try:
                code = _wait(process, out.fileno(), host, seconds)
            finally:
                process.kill()
        errors.seek(0)
        said = " ".join(errors.read(4096).decode("utf-8", "replace").split())
    if code != 0:
        problem = f"{host}: ended with {code}{f': {said}' if said else ''}"
        raise InputError(problem, path="--ssh", remedy=_REMEDY.format(host))
    try:
        return check_capture(target)
    except InputError as error:
        raise InputError(f"{host}: what came back {error.problem}", path="--ssh", remedy=error.remedy) from None


def _wait(process: subprocess.Popen[bytes], output: int, host: str, seconds: float) -> int:
    """Return the exit code. Raises `InputError` for a host that says too much or does not end."""
    end = time.monotonic() + seconds
    while True:
        try:
            return process.wait(0.1)
        except subprocess.TimeoutExpired:
            if os.fstat(output).st_size > LARGEST_CAPTURE:
                problem = f"{host}: sends more than {LARGEST_CAPTURE >> 20} MiB"
                raise InputError(problem, path="--ssh", remedy="is that a shell?") from None
            if time.monotonic() > end:
                problem = f"{host}: did not end within {seconds:.0f} s"
                raise InputError(problem, path="--ssh", remedy=_REMEDY.format(host)) from None
