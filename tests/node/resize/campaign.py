"""Random lives of nodes whose pods are resized: `python -m tests.node.resize.campaign --histories 100000 --seed 1`.

They are those of `tests.node.resize.histories`, with kills. Prints counts; exits 1 where a promise was broken, with the
seeds of the broken lives.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from tests.node.resize.histories import History

SHOWN = 5
_MEMORY_DISK = Path("/dev/shm")


def play(first: int, number: int, *, until: float | None = None) -> tuple[Counter[str], list[int]]:
    """Lives by seed from `first` on; what happened in them, and the seeds of those that broke a promise."""
    counts: Counter[str] = Counter()
    broken = []
    with tempfile.TemporaryDirectory(dir=_MEMORY_DISK if _MEMORY_DISK.is_dir() else None) as folder:
        for seed in range(first, first + number):
            if until is not None and time.monotonic() > until:
                break
            try:
                counts += History(seed, Path(folder)).play()
            except Exception:  # whatever it is, it is found
                broken.append(seed)
                if len(broken) <= SHOWN:
                    print(f"seed {seed}:\n{traceback.format_exc()}", file=sys.stderr)
            counts["seeds"] += 1
            if counts["seeds"] % 1000 == 0:
                print(f"{counts['histories']} histories, {counts['kills']} kills, {len(broken)} broken", flush=True)
    return counts, broken


def main() -> int:
    """Exit 1 if any life broke a promise."""
    parser = argparse.ArgumentParser(prog="python -m tests.node.resize.campaign", description=__doc__)
    parser.add_argument("--histories", type=int, default=1000, help="how many lives are tried")
    parser.add_argument("--seed", type=int, default=1, help="of the first life; the others follow")
    parser.add_argument("--seconds", type=float, help="end after this time")
    options = parser.parse_args()
    until = None if options.seconds is None else time.monotonic() + options.seconds
    counts, broken = play(options.seed, options.histories, until=until)
    for what, number in counts.most_common():
        print(f"{number:9} {what}")
    if broken:
        print(f"broken: {len(broken)}, seeds {' '.join(map(str, broken[:50]))}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
