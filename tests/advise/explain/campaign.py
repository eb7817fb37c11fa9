"""The long form of the fix tests.

`python -m tests.advise.explain.campaign REFUSALS [FIRST_SEED]` prints what was checked.
"""

from __future__ import annotations

import sys

from tests.advise.explain.random_nodes import refusals
from tests.advise.explain.test_fixes import check_complete, check_fixes


def main() -> None:
    wanted, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    checked = fixes = complete = 0
    while checked < wanted:
        for profile in ("podslice", "kubelet-1.36"):
            for setup, pod in refusals(seed, profile):
                try:
                    fixes += check_fixes(setup, pod)
                except AssertionError as error:
                    raise SystemExit(f"seed {seed}, profile {profile}: {error}") from error
                checked += 1
                if profile == "podslice" and checked % 10 == 0:
                    check_complete(setup, pod)
                    complete += 1
        seed += 1
    print(f"{checked} refusals, {fixes} fixes, all of them work; {complete} compared with brute force; seeds to {seed}")


if __name__ == "__main__":
    main()
