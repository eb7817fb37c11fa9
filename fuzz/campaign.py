"""A campaign over all targets without coverage: many inputs, and the processor time of each.

Inputs are the corpus, mutated: pieces of seeds cut, doubled, repeated, spliced, and tokens that have hurt readers. The
target that has used the least time so far is next, so that fast readers see more inputs than slow ones.
"""

from __future__ import annotations

import hashlib
import random
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

LIMIT_SECONDS = 1.0  # of processor time: an input that takes longer is kept
HANG_SECONDS = 10.0  # of processor time: an input that takes longer is stopped
_LONGEST = 1 << 16
_BATCH = 50
TOKENS = (
    b"[", b"]", b"{", b"}", b"- ", b"? ", b": ", b", ", b"\n", b"  ", b'"', b"'", b"&a ", b"*a", b"<<: ", b"!!int ",
    b"|\n", b"---\n", b"{{", b"9" * 30, b"0" * 30, b"9" * 5000, b"1e1000", b"1e4096", b"-", b"0x", b"1_0", b"Ki", b"8E",
    b"\x00", b"\xff", b"\xef\xbb\xbf", b"\\u0000", b"\\ud800", b"<", b"/>", b"&lt;", b"=\"0xf", b",,,", b"0-1048575",
    b"null", b"true", b"[" * 200, b'{"a":' * 200, b"- " * 200, b"<object>" * 200, b"[numa]" * 50, b"\r\n",
    b"Content-Length: ", b"hugepages-", b"18446744073709551616", b"-9223372036854775808", b"1.5",
)  # fmt: skip


class Tally(msgspec.Struct):
    """Counts of a target's campaign. `slowest` is the processor time of its slowest input."""

    inputs: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    slowest_input: bytes = b""
    failures: int = 0


def mutated(source: random.Random, seeds: Sequence[bytes]) -> bytes:
    """One input."""
    data = bytearray(source.choice(seeds))
    for _ in range(source.choice((1, 1, 1, 2, 4, 8))):
        at = source.randrange(len(data) + 1)
        end = min(len(data), at + source.choice((1, 2, 8, 64)))
        kind = source.randrange(7)
        if kind == 0:
            data[at:at] = source.choice(TOKENS)
        elif kind == 1:
            del data[at:end]
        elif kind == 2:
            data[at:end] = bytes([source.randrange(256)])
        elif kind == 3:
            data[at:at] = data[at:end] * source.choice((1, 3, 50, 500))
        elif kind == 4:
            other = source.choice(seeds)
            cut = source.randrange(len(other) + 1)
            data[at:end] = other[cut : cut + 64]
        elif kind == 5:
            data[at:end] = source.choice(TOKENS)
        elif at < len(data):
            data[at] ^= 1 << source.randrange(8)
    return bytes(data[:_LONGEST])


class _HangError(Exception):
    pass


def _hang(*_: object) -> None:
    raise _HangError


def run_input(target: Callable[[bytes], None], data: bytes, tally: Tally, limit_seconds: float = LIMIT_SECONDS) -> str:
    """Run one input; what went wrong, empty for nothing."""
    problem = ""
    signal.setitimer(signal.ITIMER_VIRTUAL, HANG_SECONDS)
    began = time.process_time()
    try:
        target(data)
    except Exception as error:
        problem = f"{type(error).__name__}: {str(error)[:200]}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    took = time.process_time() - began
    tally.inputs += 1
    tally.seconds += took
    if took > tally.slowest:
        tally.slowest, tally.slowest_input = took, data
    if took > limit_seconds and not problem:
        problem = f"took {took:.1f} s"
    tally.failures += bool(problem)
    return problem


def campaign(
    targets: dict[str, Callable[[bytes], None]],
    corpus: Path,
    out: Path,
    *,
    inputs: int,
    seed: int,
    limit_seconds: float = LIMIT_SECONDS,
) -> dict[str, Tally]:
    """Run that many inputs in all and keep those that fail, or take longer than the limit, below `out`."""
    signal.signal(signal.SIGVTALRM, _hang)
    source = random.Random(seed)
    tallies = {name: Tally() for name in targets}
    seeds = {name: [path.read_bytes() for path in sorted((corpus / name).iterdir())] for name in targets}
    for name, target in targets.items():
        for data in seeds[name]:
            _keep(out, name, data, run_input(target, data, tallies[name], limit_seconds))
    while sum(tally.inputs for tally in tallies.values()) < inputs:
        name = min(tallies, key=lambda name: tallies[name].seconds)
        for _ in range(_BATCH):
            data = mutated(source, seeds[name])
            _keep(out, name, data, run_input(targets[name], data, tallies[name], limit_seconds))
    return tallies


def _keep(out: Path, name: str, data: bytes, problem: str) -> None:
    if problem:
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / hashlib.sha256(data).hexdigest()[:16]
        path.write_bytes(data)
        print(f"{path}: {problem}", flush=True)


def report(tallies: dict[str, Tally]) -> list[dict[str, Any]]:
    """A row for each target."""
    return [
        {
            "target": name,
            "inputs": tally.inputs,
            "seconds": round(tally.seconds, 1),
            "slowest": round(tally.slowest, 3),
            "bytes of it": len(tally.slowest_input),
            "failures": tally.failures,
        }
        for name, tally in tallies.items()
    ]
