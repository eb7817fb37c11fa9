"""The largest pod a node could take if containers moved, and the moves."""

from __future__ import annotations

import msgspec

from podslice.core.defrag.plan import Plan, defragment
from podslice.core.explain.changes import Bench
from podslice.core.kubelet import Kubelet
from podslice.core.pod.defaults import default_pod
from podslice.core.pod.spec import Container, ObjectMeta, Pod, PodSpec, ResourceList, ResourceRequirements
from podslice.core.values.quantity import Quantity

PROBE = "largest-pod"


class Largest(msgspec.Struct, frozen=True, rename="camel"):
    """CPUs of the largest pod that is admitted now, and after the moves of `plan`. `proven`: no moves make room for a
    larger one."""

    now: int
    after: int
    plan: Plan
    proven: bool


def largest_pod(kubelet: Kubelet, memory: Quantity, *, limit: int) -> Largest:
    """The largest Guaranteed pod with one container of whole CPUs and so much memory that the fewest moves make fit.

    Sizes are tried from the largest down; `limit` bounds the search for each.
    """
    cpu = kubelet.manager.cpu
    step = cpu.topology.cpus_per_core if cpu.options.full_pcpus_only else 1
    free = (cpu.state.default & ~cpu.reserved).bit_count() if cpu.static else 0
    sizes = list(range(free // step * step, 0, -step))
    gates = kubelet.manager.context.gates
    bench = Bench(kubelet)
    now = next((size for size in sizes if bench.admits(default_pod(_probe(size, memory), gates))), 0)
    proven = True
    for size in sizes:
        if size <= now:
            break
        plan = defragment(kubelet, _probe(size, memory), limit=limit)
        if plan.fits:
            return Largest(now, size, plan, proven)
        proven = proven and plan.proven
    return Largest(now, now, Plan(now > 0, (), 0, 0, True), proven)


def _probe(cpus: int, memory: Quantity) -> Pod:
    amounts: ResourceList = {"cpu": Quantity.of(cpus), "memory": memory}
    container = Container(name="app", resources=ResourceRequirements(requests=amounts, limits=amounts))
    return Pod(spec=PodSpec(containers=(container,)), metadata=ObjectMeta(name=PROBE, namespace="default", uid=PROBE))
