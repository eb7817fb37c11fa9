"""The largest pod that a node could take if containers moved or pods restarted, and the plan for it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from podslice.advise.defrag.plan import Plan
from podslice.advise.defrag.restarts import RestartPlan
from podslice.advise.explain.fixes.bench import Bench, PodNeeds
from podslice.advise.explain.fixes.edits import POD, with_amounts
from podslice.advise.trial.trial import Trial
from podslice.api.pod.spec import Container, ObjectMeta, Pod, PodSpec, ResourceList, ResourceRequirements
from podslice.api.server.defaults import default_pod
from podslice.node.node import Node
from podslice.values.quantity import Quantity

PROBE = "largest-pod"


class Largest(msgspec.Struct, frozen=True, rename="camel"):
    """CPUs of the largest pod that is admitted now, and after `plan`, which is None where nothing larger fits.

    `proven`: every larger size was ruled out, not merely not found.
    """

    now: int
    after: int
    plan: Plan | RestartPlan | None
    proven: bool


def largest_pod(node: Node, shape: Pod, make_plan: Callable[[Pod], Plan | RestartPlan]) -> Largest:
    """Find how many CPUs the first container of `shape` can request, as the node is and after the plan that `make_plan`
    returns.

    With pod-level resources the pod as a whole is sized; memory and devices stay as they are in `shape`. Sizes are
    tried from the largest down, whole cores under full-pcpus-only.
    """
    view = node.view
    step = view.topology.cpus_per_core if view.cpu_options.full_pcpus_only else 1
    free = view.assignable.bit_count() if view.pins_cpus else 0
    # Alignment makes admission jump up and down with the size, so that bisection would miss sizes.
    sizes = list(range(free // step * step, 0, -step))
    bench = Bench(Trial.of(node))
    shape = default_pod(shape, view.gates)
    now = next((size for size in sizes if bench.admits(PodNeeds.of(with_cpus(shape, size), view))), 0)
    proven = True
    for size in sizes:
        if size <= now:
            break
        plan = make_plan(with_cpus(shape, size))
        if plan.fits:
            return Largest(now, size, plan, proven)
        proven = proven and (plan.proven if isinstance(plan, Plan) else plan.exhaustive)
    return Largest(now, now, None, proven)


def with_cpus(shape: Pod, cpus: int) -> Pod:
    """Return the pod (with its defaults) with `cpus` CPUs for its first container, or for itself if it has pod-level
    resources."""
    place = POD if shape.spec.resources is not None else shape.spec.containers[0].name
    return with_amounts(shape, {(place, "cpu"): Quantity.of(cpus)})


def probe_pod(memory: Quantity) -> Pod:
    """Return a Guaranteed pod with one container, whose CPUs `largest_pod` sets."""
    amounts: ResourceList = {"cpu": Quantity.of(1), "memory": memory}
    container = Container(name="app", resources=ResourceRequirements(requests=amounts, limits=amounts))
    return Pod(spec=PodSpec(containers=(container,)), metadata=ObjectMeta(name=PROBE, namespace="default", uid=PROBE))
