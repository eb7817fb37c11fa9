"""Run a fuzz target: `python -m fuzz.run {state|pods|wire} SECONDS`."""

from __future__ import annotations

import sys
from pathlib import Path

CORPUS = Path(__file__).parents[1] / "tests" / "corpus"


def main() -> None:
    import atheris

    name, seconds = sys.argv[1], sys.argv[2]
    with atheris.instrument_imports(include=["podslice", "fuzz"]):
        from fuzz.targets import TARGETS
    seeds = CORPUS / name
    work = Path("out") / "fuzz" / name
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
