"""Rules about the amounts themselves: limits that throttle or kill, units, huge pages, init containers."""

from __future__ import annotations

from collections.abc import Iterator

from podslice.advise.lint.model import ERROR, INFO, WARNING, Problem, Rule
from podslice.advise.lint.subject import PodSubject
from podslice.api.pod.demand import BEST_EFFORT, HUGEPAGES_PREFIX, add_into, requests_of
from podslice.api.pod.spec import ResourceList
from podslice.node.effects.cgroup import declares_limit
from podslice.node.effects.cpu_weight import DEFAULT_PERIOD_US, milli_cpu_to_quota
from podslice.values.duration import DurationError, parse_duration
from podslice.values.quantity import ZERO, Quantity

_SHARED = ("cpu", "memory")
_BYTES = ("memory", "ephemeral-storage")
_TINY_MILLI = 100
_MEBI = Quantity.of(1 << 20)
_SUSPICIOUS_CPUS = 100
_ROUND_CPUS = 50
_PEAK_FACTOR = 2
_KINDS = ("cpu", *_BYTES)
_MEBI_PER_CPU = 128
"""Containers with 100 CPUs and more have at least that much memory for each."""


def _sets(subject: PodSubject) -> Iterator[tuple[str, str, ResourceList, ResourceList]]:
    """Yield (path, owner, requests, limits) of the pod and of every container, as defaulted."""
    if subject.pod.spec.resources is not None:
        yield "spec.resources", "the pod", subject.pod_requests, subject.pod_limits
    for place in subject.places:
        yield f"{place.path}.resources", place.container.name, place.requests, place.limits


def _tiny_cpu_limit(subject: PodSubject) -> Iterator[Problem]:
    period = _period_us(subject)
    if period is None:
        return
    for path, owner, _, limits in _sets(subject):
        milli = limits.get("cpu", ZERO).milli_value()
        if not 0 < milli < _TINY_MILLI:
            continue
        quota = milli_cpu_to_quota(milli, period)
        # The kubelet raises quotas below the kernel's least of 1 ms.
        if milli * period < 1000 * quota:
            yield Problem(
                f"{path}.limits[cpu]",
                f"cpu limit {limits['cpu']} of {owner} is below the kernel's smallest quota (1 ms): it becomes "
                f"{quota} µs of every {period} µs",
                f"ask for at least {1_000_000 // period}m",
                WARNING,
            )
        else:
            yield Problem(
                f"{path}.limits[cpu]",
                f"cpu limit {limits['cpu']} lets {owner} run {quota / 1000:g} ms of every {period / 1000:g} ms: a "
                f"burst that needs more waits up to {(period - quota) / 1000:g} ms",
                "raise the limit, or leave it out and rely on the request",
            )


def _period_us(subject: PodSubject) -> int | None:
    """Return the CFS period of the node in microseconds; None when the kubelet enforces no CPU limits."""
    if subject.node is None:
        return DEFAULT_PERIOD_US
    if not subject.node.config.cpu_cfs_quota:
        return None
    try:
        return parse_duration(subject.node.config.cpu_cfs_quota_period) // 1000 or DEFAULT_PERIOD_US
    except DurationError:
        return DEFAULT_PERIOD_US


def _limit_below_request(subject: PodSubject) -> Iterator[Problem]:
    if subject.qos == BEST_EFFORT or subject.pod.spec.resources is None:
        return
    for name in _SHARED:
        limit, request = subject.limits.get(name, ZERO), subject.requests.get(name, ZERO)
        if not limit.is_zero() and limit < request and declares_limit(subject.pod, name, pod_level=True):
            effect = "is throttled" if name == "cpu" else "is killed"
            yield Problem(
                f"spec.resources.requests[{name}]",
                f"the pod requests {request} {name}, but without a limit of its own its cgroup is limited to the sum "
                f"of the containers' limits, {limit}: it {effect} below its request",
                f"set spec.resources.limits.{name}: {request}",
            )


def _huge_pages_alone(subject: PodSubject) -> Iterator[Problem]:
    for path, owner, requests, limits in _sets(subject):
        names = {*requests, *limits}
        pages = sorted(name for name in names if name.startswith(HUGEPAGES_PREFIX))
        if pages and not names & {"cpu", "memory"}:
            yield Problem(
                f"{path}.limits[{pages[0]}]",
                f"{owner} has {', '.join(pages)} but neither cpu nor memory: the API server refuses it",
                "add a cpu or memory request at the same place",
            )


def _init_peak(subject: PodSubject) -> Iterator[Problem]:
    running: dict[str, Quantity] = {}
    for place in subject.places:
        if place.kind != "init":
            add_into(running, place.requests)
    for name in _SHARED:
        total = running.get(name, ZERO)
        if total.is_zero() or name in subject.pod_requests:
            continue
        sidecars = ZERO
        for place in subject.places:
            own = place.requests.get(name, ZERO)
            if place.kind == "sidecar":
                # A sidecar runs beside every init container after it.
                sidecars = sidecars.add(own)
            peak = sidecars.add(own)
            if place.kind == "init" and peak.nano > _PEAK_FACTOR * total.nano:
                yield Problem(
                    f"{place.path}.resources.requests[{name}]",
                    f"init container {place.container.name} needs {peak} {name}, all running containers together "
                    f"{total}: the pod reserves {peak} as long as it lives",
                    "lower the request of the init container, or do its work in a Job",
                )


def _memory_units(subject: PodSubject) -> Iterator[Problem]:
    for field, kinds in _written_amounts(subject):
        for kind, amounts in kinds:
            for name in _BYTES:
                amount = amounts.get(name, ZERO)
                path = f"{field}.{kind}[{name}]"
                # Under such a limit the kernel kills the container before its program runs.
                severity = ERROR if (kind, name) == ("limits", "memory") else WARNING
                if amount.nano % 10**9:
                    meant = str(amount).removesuffix("m")
                    message = f"{amount} {name} is a fraction of a byte (m stands for thousandths)"
                    yield Problem(path, message, f"did you mean {meant}Mi?", severity)
                elif name == "memory" and ZERO < amount < _MEBI:
                    # 512, 512k and 512Ki most likely meant 512Mi.
                    number = str(amount).rstrip("kKi")
                    message = f"{amount} is {amount.value()} bytes, less than any process needs"
                    yield Problem(path, message, f"did you mean {number}Mi?", severity)


def _cpu_units(subject: PodSubject) -> Iterator[Problem]:
    for field, container in _written_amounts(subject):
        for kind, amounts in container:
            amount = amounts.get("cpu", ZERO)
            cpus = amount.value()
            looks_milli = cpus >= _SUSPICIOUS_CPUS and cpus % _ROUND_CPUS == 0 and str(amount).isdigit()
            if looks_milli and not _suits_many_cpus(subject, cpus, amounts):
                yield Problem(f"{field}.{kind}[cpu]", f"{amount} is {cpus} whole CPUs", f"did you mean {amount}m?")


def _suits_many_cpus(subject: PodSubject, cpus: int, amounts: ResourceList) -> bool:
    """Whether a container may well mean that many CPUs: with the memory or devices beside them, or on the machine."""
    machine = subject.node.machine if subject.node is not None else None
    has_devices = any(name not in _KINDS and not name.startswith(HUGEPAGES_PREFIX) for name in amounts)
    has_memory = amounts.get("memory", ZERO) >= Quantity.of(cpus * _MEBI_PER_CPU << 20)
    return has_devices or has_memory or (machine is not None and cpus <= machine.cpu_count)


def _written_amounts(subject: PodSubject) -> Iterator[tuple[str, tuple[tuple[str, ResourceList], ...]]]:
    """Yield the paths of all `resources` as they were written, with their requests and limits."""
    spec = subject.written.spec
    stanzas = [(f"spec.initContainers[{i}].resources", c.resources) for i, c in enumerate(spec.init_containers)]
    stanzas += [(f"spec.containers[{i}].resources", c.resources) for i, c in enumerate(spec.containers)]
    if spec.resources is not None:
        stanzas.append(("spec.resources", spec.resources))
    for path, resources in stanzas:
        yield path, (("requests", requests_of(resources)), ("limits", resources.limits or {}))


RULES: tuple[Rule[PodSubject], ...] = (
    Rule(
        "PS301",
        "tiny-cpu-limit",
        INFO,
        "A tiny CPU limit throttles",
        "CFS quota gives a container its limit's share of every period (100 ms unless configured). With less than "
        "100m a burst of a few milliseconds already waits for the next period, which shows as latency at low average "
        "use. Below 1 ms per period the kernel's smallest quota takes effect instead (a warning).",
        _tiny_cpu_limit,
        others=(WARNING,),
    ),
    Rule(
        "PS302",
        "limit-below-request",
        WARNING,
        "The pod's cgroup is limited below its request",
        "A pod-level request without a pod-level limit: when all containers declare limits, v1.36.2 limits the pod's "
        "cgroup to their sum, also if the pod requests more. The scheduler reserves what the pod can never use.",
        _limit_below_request,
    ),
    Rule(
        "PS303",
        "huge-pages-alone",
        ERROR,
        "Huge pages need cpu or memory beside them",
        "The API server refuses huge pages in requests or limits that name neither cpu nor memory, for containers and "
        "for spec.resources alike.",
        _huge_pages_alone,
    ),
    Rule(
        "PS304",
        "init-peak",
        WARNING,
        "An init container decides what the pod reserves",
        "A pod's effective request is the larger of what runs at the same time and of each init container (with the "
        "sidecars before it). One init container that asks for more than twice what the pod needs afterwards is "
        "reserved for the whole life of the pod.",
        _init_peak,
    ),
    Rule(
        "PS305",
        "memory-unit",
        WARNING,
        "A memory amount without a useful unit",
        "Memory counts in bytes: 512 is 512 bytes, and 400m is 0.4 bytes because m means thousandths. Write Mi or Gi. "
        "It is an error for a memory limit, under which no container starts.",
        _memory_units,
        others=(ERROR,),
    ),
    Rule(
        "PS306",
        "cpu-unit",
        WARNING,
        "A CPU amount that looks like thousandths",
        "CPU counts in whole CPUs: 500 is five hundred CPUs, half a CPU is 500m. Reported for round amounts of 100 "
        "CPUs and more that neither the memory and devices beside them nor the machine explain.",
        _cpu_units,
    ),
)
