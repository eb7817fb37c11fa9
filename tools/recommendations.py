"""`python -m tools.recommendations`: are the recommendations of `whatif` worth following?

Draws pools of nodes: a machine of the gallery, a present configuration and a mix of pods. `whatif --recommend` sees a
sample of the mix. Then the same trace of arrivals and departures is played on nodes with the present and with the
recommended configuration, and what is refused, badly placed and stranded is counted
(docs/development/recommendations.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple

import click
import msgspec

from podslice import KubeletConfig, Node, Pod, load_gallery
from podslice.advise.whatif.churn import Room
from podslice.advise.whatif.compare import Scenario, evaluate
from podslice.advise.whatif.filling import admit_or_name, copy_pod, count_stranded
from podslice.advise.whatif.objective import PREFERENCES, Recommendation, rank
from podslice.advise.whatif.placement import Ruler, requested_cpus
from podslice.advise.whatif.recommendation import reasons
from podslice.advise.whatif.variants import option_sets, recommended_variants
from podslice.api.pod.spec import pod_from_dict
from podslice.config.policy_options import POLICIES, SCOPES
from podslice.machine.devices import Device, DeviceInventory, DeviceResource
from podslice.machine.model import Machine
from podslice.values.errors import StartError

replace = msgspec.structs.replace
MACHINES = (
    "xeon-6338-2s",
    "xeon-8280-2s",
    "xeon-8380-2s",
    "xeon-8480-2s",
    "xeon-8480-2s-snc4",
    "xeon-6248r-2s-interleaved",
    "epyc-7763-nps1-2s",
    "epyc-7763-nps2-2s",
    "epyc-9654-nps1",
    "epyc-9654-nps4",
    "altra-q80-30-2s",
    "graviton4-metal-48xl",
    "ryzen-9-7950x",
)
_GPU = "example.com/gpu"
_SIZES = (1, 2, 3, 4, 6, 8, 10, 12, 16, 24)
_NODES, _MOST_SAMPLE, _MOST_STEPS, _MEASUREMENTS = 2, 40, 120, 4
_FULL = 0.93
_MIB = 1 << 20


class Pool(NamedTuple):
    """A pool of equal nodes: its machine, devices and present configuration, and the shapes of its pods."""

    machine: Machine
    devices: DeviceInventory
    present: KubeletConfig
    shapes: tuple[Pod, ...]


class Tally(NamedTuple):
    """What a trace counted: pods refused, pods not placed, pods on more NUMA nodes than they need, in more caches than
    they need, and the mean of stranded CPUs."""

    refused: int
    unplaced: int
    across: int
    caches: int
    stranded: float


def draw_pool(random: Random) -> Pool:
    """Draw a pool."""
    machine = load_gallery(random.choice(MACHINES))
    nodes = [node.id for node in machine.nodes if node.cores]
    devices = DeviceInventory()
    if random.random() < 0.4:
        near = [node for node in nodes for _ in range(random.choice((1, 2, 4)))]
        devices = DeviceInventory(
            (DeviceResource(_GPU, tuple(Device(f"gpu{i}", (node,)) for i, node in enumerate(near))),)
        )
    # A mix in which no pod could own CPUs leaves nothing to compare.
    shapes = tuple(
        _draw_shape(random, machine, number, gpus=bool(devices.resources)) for number in range(random.randint(1, 4))
    )
    return Pool(machine, devices, _draw_config(random), shapes)


def _draw_config(random: Random) -> KubeletConfig:
    reservation = {"cpu": str(random.choice((1, 2, 4))), "memory": "2Gi"}
    if random.random() < 0.2:
        return KubeletConfig(kube_reserved=reservation)
    return KubeletConfig(
        kube_reserved=reservation,
        cpu_manager_policy="static",
        cpu_manager_policy_options=dict.fromkeys(random.choice(option_sets()), "true"),
        topology_manager_policy=random.choice(POLICIES),
        topology_manager_scope=random.choice(SCOPES),
    )


def _draw_shape(random: Random, machine: Machine, number: int, *, gpus: bool) -> Pod:
    sizes = [size for size in _SIZES if size * 4 <= machine.cpu_count]
    memory = machine.memory // machine.cpu_count // 2 // _MIB

    def limits(cpus: int) -> dict[str, str]:
        return {"cpu": str(cpus), "memory": f"{max(16, memory * cpus)}Mi"}

    cpus = random.choice(sizes)
    gpu = {_GPU: "1"} if gpus and random.random() < 0.5 else {}
    containers = [{"name": "main", "resources": {"limits": {**limits(cpus), **gpu}}}]
    if random.random() < 0.3:
        containers.append({"name": "beside", "resources": {"limits": limits(random.choice((1, 2)))}})
    if random.random() < 0.15:
        requests = {"cpu": "500m", "memory": "64Mi"}
        containers = [{"name": "shares", "resources": {"requests": requests}}]
    name = f"shape{number}"
    return pod_from_dict({"metadata": {"name": name, "uid": name}, "spec": {"containers": containers}})


def recommend(pool: Pool, random: Random, prefer: str) -> tuple[Recommendation, KubeletConfig]:
    """Return the ranking on a sample of the mix that fills most of a node, and the recommended configuration."""
    scenario = Scenario("pool", pool.machine, pool.present, pool.devices)
    pods, requested = list[Pod](), 0
    view = Node(pool.machine, pool.present, devices=pool.devices).view
    while requested < 0.75 * pool.machine.cpu_count and len(pods) < _MOST_SAMPLE:
        shape = random.choice(pool.shapes)
        pods.append(copy_pod(shape, f"sample{len(pods)}"))
        requested += requested_cpus(view, shape)
    variants = recommended_variants(scenario)
    ranking = rank((evaluate(one, pods) for one in variants), prefer)
    best = ranking.outcomes[0].scenario
    return ranking, next(one.config for one in variants if one.name == best)


class _Node:
    """A node of a trace, with the sums that a scheduler sees."""

    def __init__(self, pool: Pool, config: KubeletConfig) -> None:
        self.node = Node(pool.machine, config, devices=pool.devices)
        self.room = Room(self.node.view)
        self.load = 0


class _Bound(NamedTuple):
    place: _Node
    uid: str
    cpus: int


class _Trace:
    def __init__(self, pool: Pool, config: KubeletConfig) -> None:
        self.pool = pool
        self.nodes = [_Node(pool, config) for _ in range(_NODES)]
        self.view = self.nodes[0].node.view
        self.ruler = Ruler(self.view)
        self.counts = Counter[str]()
        self.living: list[_Bound] = []

    def leave(self, number: int) -> None:
        place, uid, cpus = self.living.pop(number)
        place.node.remove(uid)
        place.room.give(uid)
        place.load -= cpus

    def arrive(self, pod: Pod, cpus: int) -> None:
        """Bind a pod to the emptiest node that takes it, as a scheduler tries again. Pods for which no node has enough
        in sum only wait."""
        requests, refused = self.nodes[0].room.requests(pod), False
        for place in sorted(self.nodes, key=_load):
            if not place.room.has(requests):
                continue
            decision = admit_or_name(place.node, pod)
            if isinstance(decision, str) or not decision.admitted:
                refused = True
                continue
            place.room.take(pod.metadata.uid, requests)
            place.load += cpus
            self.living.append(_Bound(place, pod.metadata.uid, cpus))
            found = self.ruler.measure(pod, decision)
            self.counts["unplaced"] += bool(found.floating_cpus)
            self.counts["across"] += found.needless_nodes
            self.counts["caches"] += found.cross_cache
            return
        self.counts["refused"] += refused


def _load(place: _Node) -> int:
    return place.load


def play(pool: Pool, config: KubeletConfig, random: Random) -> Tally:
    """Play a trace of arrivals and departures on nodes with this configuration."""
    trace, stranded = _Trace(pool, config), list[int]()
    arrivals = [random.choice(pool.shapes) for _ in range(_MOST_STEPS)]
    leaving = [random.random() for _ in range(20 * _MOST_STEPS)]
    sizes = {shape.metadata.name: requested_cpus(trace.view, shape) for shape in pool.shapes}
    for step, shape in enumerate(arrivals):
        size = sizes[shape.metadata.name]
        while trace.living and sum(one.cpus for one in trace.living) + size > _FULL * _NODES * pool.machine.cpu_count:
            trace.leave(int(leaving.pop() * len(trace.living)) if leaving else 0)
        trace.arrive(copy_pod(shape, f"pod{step}"), size)
        if step % (_MOST_STEPS // _MEASUREMENTS) == _MOST_STEPS // _MEASUREMENTS - 1:
            stranded += [count_stranded(one.node.copy(), pool.shapes) for one in trace.nodes]
    counts = trace.counts
    mean = sum(stranded) / len(stranded)
    return Tally(counts["refused"], counts["unplaced"], counts["across"], counts["caches"], mean)


class Verdict(NamedTuple):
    """A pool's comparison: what the recommendation is against the present configuration."""

    number: int
    static: bool
    same: bool
    before: Tally
    after: Tally
    said: tuple[str, ...]
    names: tuple[str, str]
    cpus: int

    @property
    def no_worse(self) -> bool:
        """Whether the recommendation refuses no more pods, and strands no more than one CPU in a hundred more."""
        allowed = self.before.stranded + self.cpus / 100
        return self.after.refused <= self.before.refused and self.after.stranded <= allowed

    @property
    def is_said(self) -> bool:
        """Whether the answer says that something is given up in return."""
        return any(line.startswith(("In return:", "It gives up")) for line in self.said)


def judge(seed: int, number: int, prefer: str) -> Verdict | None:
    """Return the verdict on a pool; None where the present configuration does not start."""
    random = Random(f"{seed}/{number}")
    pool = draw_pool(random)
    try:
        ranking, config = recommend(pool, random, prefer)
    except StartError:
        return None
    trace = random.random()
    before = play(pool, pool.present, Random(trace))
    first = ranking.outcomes[0]
    after = before if first.is_present else play(pool, config, Random(trace))
    present = next(outcome for outcome in ranking.outcomes if outcome.is_present)
    static = pool.present.cpu_manager_policy == "static"
    names = present.scenario, first.scenario
    return Verdict(
        number, static, first.is_present, before, after, tuple(reasons(ranking)), names, pool.machine.cpu_count
    )


def report(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Yield the figures."""
    for static in (True, False):
        some = [one for one in verdicts if one.static is static]
        if not some:
            continue
        worse = [one for one in some if not one.no_worse]
        yield f"{len(some)} pools {'that pin CPUs' if static else 'that pin nothing'} now:"
        yield f"  present configuration kept: {sum(one.same for one in some)}"
        yield f"  refuses no more and strands no more: {len(some) - len(worse)} ({1 - len(worse) / len(some):.1%})"
        yield f"  of the others the answer says what is given up: {sum(one.is_said for one in worse)} of {len(worse)}"
        for name in Tally._fields:
            before, after = (sum(getattr(getattr(one, when), name) for one in some) for when in ("before", "after"))
            yield f"  {name}: {before:.0f} → {after:.0f}"


@click.command()
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--pools", type=click.IntRange(min=1), default=200, show_default=True)
@click.option("--first", type=click.IntRange(min=0), default=0, help="The number of the first pool.")
@click.option("--prefer", type=click.Choice(list(PREFERENCES)), default="balanced", show_default=True)
@click.option("--show", is_flag=True, help="Name every pool in which the recommendation does worse.")
def main(seed: int, pools: int, first: int, prefer: str, show: bool) -> None:
    """Compare recommendations with present configurations on traces."""
    verdicts = []
    for number in range(first, first + pools):
        verdict = judge(seed, number, prefer)
        if verdict is None:
            continue
        verdicts.append(verdict)
        if show and not verdict.no_worse:
            click.echo(
                f"{number}: {' → '.join(verdict.names)}: {verdict.before} → {verdict.after}; said: {verdict.is_said}"
            )
    click.echo("\n".join(report(verdicts)))


if __name__ == "__main__":
    main()
