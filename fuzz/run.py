"""Run fuzz targets.

`python -m fuzz.run TARGET SECONDS` is guided by coverage (needs atheris). `python -m fuzz.run --all N [SEED]` runs N
mutated inputs over all targets, reports counts and the slowest input by processor time, and fails when an input takes
more than a second or ends in anything but an answer or a typed error.
"""

from __future__ import annotations

import sys
from pathlib import Path

CORPUS = Path(__file__).parents[1] / "tests" / "corpus"
OUT = Path("out") / "fuzz"


def main() -> None:
    if sys.argv[1] == "--all":
        _all(int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    else:
        _guided(sys.argv[1], sys.argv[2])


def _all(inputs: int, seed: int) -> None:
    from fuzz.campaign import campaign, report
    from fuzz.targets import TARGETS

    tallies = campaign(TARGETS, CORPUS, OUT, inputs=inputs, seed=seed)
    for row in report(tallies):
        print("  ".join(f"{name} {value}" for name, value in row.items()))
    slowest = max(tallies, key=lambda name: tallies[name].slowest)
    total = sum(tally.inputs for tally in tallies.values())
    print(f"{total} inputs, slowest {tallies[slowest].slowest:.3f} s ({slowest})")
    sys.exit(any(tally.failures for tally in tallies.values()))


def _guided(name: str, seconds: str) -> None:
    import atheris

    with atheris.instrument_imports(include=["podslice", "fuzz"]):
        from fuzz.targets import TARGETS
    seeds = CORPUS / name
    work = OUT / name
    work.mkdir(parents=True, exist_ok=True)
    arguments = [
        sys.argv[0],
        f"-max_total_time={seconds}",
        "-max_len=4096",
        "-timeout=20",
        "-rss_limit_mb=4096",
        "-print_final_stats=1",
    ]
    atheris.Setup([*arguments, f"-artifact_prefix={work}/", str(work), str(seeds)], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
