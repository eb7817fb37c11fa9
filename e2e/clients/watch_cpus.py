"""Looks, until SIGTERM, whether anything of others runs on CPUs that a container owns: `watch_cpus.py SECONDS
OWNER OTHER…` with ids of containers; after so many seconds at the latest. Prints an object: the number of looks,
the sets the owner had, and what was wrong. It says on standard error when it has looked once.

A look reads what the kernel lets the owner run on before and after it looks at the others, so that a set that changes
in between raises no false alarm: only CPUs that the owner had all the time count.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
_MOST = 20


def folder_of(ident: str) -> Path:
    """The cgroup of a container."""
    for folder, _, _ in os.walk(CGROUP):
        name = Path(folder).name
        if name == ident or name.endswith((f"-{ident}.scope", f":{ident}")):
            return Path(folder)
    raise SystemExit(f"no cgroup of {ident}")


def cpus(text: str) -> set[int]:
    """A CPU list."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def effective(folder: Path) -> set[int]:
    return cpus((folder / "cpuset.cpus.effective").read_text())


def running_on(folder: Path) -> dict[str, int]:
    """The CPUs that threads of a cgroup run on at this moment."""
    found = {}
    for thread in (folder / "cgroup.threads").read_text().split():
        try:
            fields = Path(f"/proc/{thread}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] == "R":
            found[thread] = int(fields[36])
    return found


def main() -> None:
    end = time.monotonic() + float(sys.argv[1])
    owner, *others = (folder_of(ident) for ident in sys.argv[2:])
    looks = 0
    wrong: list[str] = []
    sets: list[list[int]] = []
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    while time.monotonic() < end and not ended:
        before = effective(owner)
        seen = [(other.name[:12], effective(other), running_on(other)) for other in others]
        owned = before & effective(owner)
        looks += 1
        if not sets or sets[-1] != sorted(before):
            sets.append(sorted(before))
        for name, allowed, threads in seen:
            if allowed & owned:
                wrong.append(f"{name} may run on {sorted(allowed & owned)}")
            wrong += [f"thread {thread} of {name} runs on CPU {cpu}" for thread, cpu in threads.items() if cpu in owned]
        wrong = wrong[:_MOST]
        if looks == 1:
            print("begun", file=sys.stderr, flush=True)
    print(json.dumps({"looks": looks, "sets": sets, "wrong": wrong}))


if __name__ == "__main__":
    main()
