"""Find the judge's binary and run it on cases."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from e2e.places import place_of, runnable, unpack, user_cache

from podslice.values.errors import InputError
from tools.judge.chance import Json

VARIABLE = "PODSLICE_JUDGE"


def find(environment: Mapping[str, str]) -> Path | None:
    """Return the binary named by PODSLICE_JUDGE (itself, or a folder with `judge` or `judge.xz`), else the one in the
    user's cache, None without either. A packed one is unpacked into the cache. Raises `InputError`."""
    place, cache = place_of(VARIABLE, "judge", environment), user_cache(environment)
    if place.is_file():
        return unpack(place, cache) if place.suffix == ".xz" else place
    found = runnable(place, "judge", cache)
    if found is None and environment.get(VARIABLE):
        raise InputError("is neither a judge nor a folder with one", source=f"{VARIABLE}={place}")
    return found


def ask(judge: Path, cases: Iterable[Json], timeout: float = 10.0) -> list[Json]:
    """Return the result of every case, in order; a case that takes longer than `timeout` seconds has `timeout` in it.

    Raises `RuntimeError` when the judge ends before it has answered all.
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
