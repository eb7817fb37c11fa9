"""Finding the judge and asking it."""

from __future__ import annotations

import json
import lzma
import os
import subprocess
import tempfile
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from judge.chance import Json
from podslice.core.errors import InputError

VARIABLE = "PODSLICE_JUDGE"
BESIDE = Path(__file__).resolve().parents[2] / "shared" / "judge"


def find(environment: dict[str, str], beside: Path = BESIDE) -> Path | None:
    """The binary named by PODSLICE_JUDGE (itself, or a folder with `judge` or `judge.xz`), else the one beside the
    checkout, None without either. A packed one is unpacked into the user's cache. Raises `InputError`."""
    named = environment.get(VARIABLE)
    place = Path(named) if named else beside
    if place.is_file():
        return _unpacked(place, environment) if place.suffix == ".xz" else place
    for candidate in (place / "judge", place / "judge.xz"):
        if candidate.is_file():
            return _unpacked(candidate, environment) if candidate.suffix == ".xz" else candidate
    if named:
        raise InputError("is neither a judge nor a folder with one", source=f"{VARIABLE}={named}")
    return None


def _unpacked(packed: Path, environment: dict[str, str]) -> Path:
    data = packed.read_bytes()
    cache = Path(environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME") or Path.home()) / ".cache")
    target = cache / "podslice" / f"judge-{sha256(data).hexdigest()[:16]}"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as file:
            file.write(lzma.decompress(data))
        os.chmod(file.name, 0o755)
        os.replace(file.name, target)
    return target


def ask(judge: Path, cases: Iterable[Json], timeout: float = 10.0) -> list[Json]:
    """The result of every case, in order; one that takes longer than so many seconds has `timeout`.

    Raises `RuntimeError` when the judge ends before all are answered.
    """
    cases = list(cases)
    with tempfile.TemporaryDirectory(prefix="podslice-judge-") as folder:
        file = Path(folder) / "cases.jsonl"
        file.write_text("".join(json.dumps({"case": case}, separators=(",", ":")) + "\n" for case in cases))
        done = subprocess.run(
            [judge, "-timeout", f"{timeout:g}s", file],
            capture_output=True,
            env={**os.environ, "GOGC": "400", "GOMAXPROCS": "2"},
            check=False,
        )
    results = [json.loads(line)["result"] for line in done.stdout.splitlines()]
    if len(results) != len(cases):
        raise RuntimeError(f"the judge answered {len(results)} of {len(cases)} cases: {done.stderr[-300:].decode()}")
    return results
