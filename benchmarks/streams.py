"""Cost of the agents' streams to `podslice cluster`: memory of each, and processor time of a beat and of a silent
stream.

`python -m benchmarks.streams` serves the journals of so many nodes over TLS in one process and plays their agents in
another one. They say that they are there `--beats` times a second, all together, and then nothing for as long, while
gRPC pings them. From these follows what a cluster costs at the pace that the service sets for its agents.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import grpc
from e2e.certificates import make
from e2e.hollow_nodes import VERSION, HollowNode, node_rules

from podslice.cluster.journal.journals import Journals
from podslice.cluster.journal.pace import BeatPace
from podslice.replica.rulebook import Rulebook
from podslice.replica.stream_messages import METHOD, OPTIONS, Beat, Hello, encode_message

_SECONDS = 20.0
_PING_SECONDS = 10.0
_CLUSTERS = (1500, 5000, 15000)


class Cost(NamedTuple):
    """Of a stream: KiB, and seconds of a processor for a beat and for a second of silence."""

    memory: float
    beat: float
    silence: float


async def play(port: int, agents: int, rate: float, authority: Path) -> None:
    """Play the agents: each sends its identity and its node's state, then all of them send beats."""
    credentials, like, streams = grpc.ssl_channel_credentials(authority.read_bytes()), node_rules(), []
    for number in range(agents):
        journal = HollowNode(f"n{number}", like, number + 1).journal
        options = (*OPTIONS, ("grpc.use_local_subchannel_pool", 1))
        channel = grpc.aio.secure_channel(
            f"127.0.0.1:{port}", credentials, options=options, compression=grpc.Compression.Gzip
        )
        stream: Any = channel.stream_stream(METHOD, request_serializer=encode_message, response_deserializer=bytes)(
            metadata=(("authorization", f"Bearer n{number}"),)
        )
        await stream.write(Hello(f"n{number}", VERSION))
        await stream.write(journal.whole_state())
        digest = journal.digest
        beat = Beat(journal.epoch, journal.sequence, digest.allocation, digest.named)
        streams.append((channel, stream, beat))
    print("connected", flush=True)
    began, count = time.monotonic(), 0
    while time.monotonic() < began + _SECONDS:
        for _, stream, beat in streams:
            await stream.write(beat)
            count += 1
            await asyncio.sleep(max(0.0, began + count / rate - time.monotonic()))
    print("silent", flush=True)
    await asyncio.sleep(10 * _SECONDS)


async def measure_streams(agents: int, rate: float) -> Cost:
    """Serve the streams and measure."""

    async def caller(token: str) -> str:
        return token

    journals = Journals(Rulebook(), {VERSION}, caller=caller, trouble=lambda what, why: print(f"{what}: {why}"))
    journals.pace = BeatPace(most=0.001)
    with tempfile.TemporaryDirectory(prefix="podslice-streams-") as folder:
        tls = make(Path(folder))
        before = resident()
        port = await journals.start("127.0.0.1", 0, tls.certificate.read_bytes(), tls.key.read_bytes())
        words = ["play", str(port), str(agents), str(rate), str(tls.authority)]
        player = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "benchmarks.streams", *words, stdout=asyncio.subprocess.PIPE
        )
        try:
            assert player.stdout is not None
            await player.stdout.readline()
            while len(journals.nodes) < agents or not all(map(journals.is_fresh, journals.nodes)):
                await asyncio.sleep(0.2)
            speaking = await _busy(_SECONDS / 2)
            memory = (resident() - before) / agents
            await player.stdout.readline()
            await asyncio.sleep(2 * _PING_SECONDS)
            silent = await _busy(_SECONDS)
        finally:
            player.kill()
            await player.wait()
            await journals.close()
    return Cost(memory, speaking / rate, silent / agents)


async def _busy(seconds: float) -> float:
    """Return the share of a processor that this process takes in `seconds`."""
    began = time.process_time()
    await asyncio.sleep(seconds)
    return (time.process_time() - began) / seconds


def resident() -> int:
    """Return the resident KiB of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


def main() -> int:
    """Measure, or play the agents."""
    if sys.argv[1:2] == ["play"]:
        _, _, port, agents, rate, authority = sys.argv
        asyncio.run(play(int(port), int(agents), float(rate), Path(authority)))
        return 0
    parser = argparse.ArgumentParser(prog="python -m benchmarks.streams", description=__doc__)
    parser.add_argument("--agents", type=int, default=200)
    parser.add_argument("--beats", type=float, default=300.0, help="a second, of all agents together")
    arguments = parser.parse_args()
    cost = asyncio.run(measure_streams(arguments.agents, arguments.beats))
    print(f"a stream takes {cost.memory:.0f} KiB, a beat {1e6 * cost.beat:.0f} us of a processor, "
          f"a silent stream {1e6 * cost.silence:.1f} us a second")  # fmt: skip
    print("| nodes | a beat every | of a processor | every 3 s |\n|---:|---:|---:|---:|")
    for nodes in _CLUSTERS:
        pace = BeatPace()
        for streams in range(1, nodes + 1):
            pace.follow(streams, 0.0)
        pings = cost.silence if pace.seconds >= _PING_SECONDS else 0.0
        share = nodes * (cost.beat / pace.seconds + pings)
        print(f"| {nodes} | {pace.seconds:.0f} s | {share:.0%} | {nodes * cost.beat / 3:.0%} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
