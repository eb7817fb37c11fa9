"""Make pods from the rows of a trace, as a reading and a transform say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from podslice.api.pod.spec import Pod, pod_from_dict
from podslice.api.server.defaults import default_pod
from podslice.fleet.engine.shapes import WHOLE_GPU, FleetShape, Owner, SchedulerRequests
from podslice.fleet.scenario.scenario import CeilAbove, ContainerShare, Reading, Replicas, Sidecars, TransformEntry
from podslice.fleet.scenario.strict import Number, quantity
from podslice.fleet.scheduler.placement import PlacementRules
from podslice.fleet.traces.trace import TracePod
from podslice.fleet.traces.trace_facts import shape_text
from podslice.values.errors import InputError
from podslice.values.quirks import Quirks

_CPU = 1000
_LEAST_MEMORY = 1 << 20
_NO_TRANSFORM = TransformEntry()


class Reader:
    """Makes shapes of rows, one for all equal rows. `gates`: of the kubelets; `owner`: replaces the reading's."""

    def __init__(
        self,
        reading: Reading,
        *,
        gates: Mapping[str, bool],
        quirks: Quirks,
        transform: TransformEntry = _NO_TRANSFORM,
        owner: Owner | None = None,
    ) -> None:
        self._reading = transform.reading or reading
        self._transform = transform
        self._gates = gates
        self._quirks = quirks
        self._owner: Owner = owner or self._reading.owner
        self._known: dict[tuple[object, ...], FleetShape] = {}

    def shape(self, row: TracePod) -> FleetShape:
        """Return the shape of a row. Raises `InputError`."""
        group = row.owner if row.max_per_node else ""
        qos = row.qos if self._reading.qos == "by-column" else ""
        key = (row.cpu, row.memory, row.gpus, row.gpu_milli, row.models, qos, group, row.max_per_node, row.priority)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._make_shape(row, group)
        return found

    def _make_shape(self, row: TracePod, group: str) -> FleetShape:
        """Return a new shape for a row."""
        amounts = self._amounts(row)
        pod = default_pod(pod_from_dict(self._pod(row, amounts)), self._gates)
        qos = f", {row.qos}" if row.qos and self._reading.qos == "by-column" else ""
        return FleetShape(
            name=shape_text(amounts.cpu, amounts.memory, row.gpus, amounts.gpu_milli, row.models) + qos,
            pod=pod,
            requests=SchedulerRequests.of(pod, self._gates, self._quirks),
            gpus=row.gpus,
            gpu_milli=amounts.gpu_milli,
            gpu_models=row.models,
            group=group,
            max_per_node=row.max_per_node or -1,
            priority=row.priority,
            owner=self._owner,
        )

    def _amounts(self, row: TracePod) -> ReadAmounts:
        """Return the requests of a row, scaled and rounded."""
        scale = self._transform.scale
        cpu = round(row.cpu * scale.get("cpu", 1.0)) if scale else row.cpu
        memory = round(row.memory * scale.get("memory", 1.0)) if scale else row.memory
        milli, devices = self._gpus(row)
        # A Guaranteed pod needs a memory limit above zero, which some rows do not have.
        return ReadAmounts(round_cpus(cpu, self._reading), max(memory, _LEAST_MEMORY), milli, devices)

    def _gpus(self, row: TracePod) -> tuple[int, int]:
        """Return milli of each GPU for the scheduler, and the number of devices for the kubelet."""
        share = self._reading.gpu_share
        if not row.gpus:
            return 0, 0
        if isinstance(share, Replicas):
            return row.gpu_milli, row.gpus * -(-row.gpu_milli * share.replicas // WHOLE_GPU)
        if share == "whole":
            return WHOLE_GPU, row.gpus
        return row.gpu_milli, row.gpus if row.gpu_milli == WHOLE_GPU else 0

    def _pod(self, row: TracePod, amounts: ReadAmounts) -> dict[str, Any]:
        """Return a row as a Pod object."""
        reading = self._reading
        qos: str = reading.qos
        if qos == "by-column":
            qos = reading.qos_map.get(row.qos, "")
            if not qos:
                remedy = f"add {row.qos!r} to reading.qosMap"
                raise InputError(f"QoS {row.qos!r} of {row.name} has no meaning", path="reading.qosMap", remedy=remedy)
        cpu_memory = {"cpu": f"{amounts.cpu}m", "memory": str(amounts.memory)}
        devices = {reading.gpu_resource: str(amounts.devices)} if amounts.devices else {}
        requests = {} if qos == "best-effort" else cpu_memory
        limits = {**(cpu_memory if qos == "guaranteed" else {}), **devices}
        app = {"name": "app", "resources": {"requests": {**requests, **devices}, "limits": limits}}
        spec: dict[str, Any] = {"containers": [app]}
        if not isinstance(reading.containers, str):
            spec = divide(reading.containers, amounts, devices, qos, row.name)
        if row.priority:
            spec["priority"] = row.priority
        if self._transform.sidecars is not None:
            added = _sidecar_fields(self._transform.sidecars, amounts)
            added["initContainers"] += spec.get("initContainers", [])
            spec |= added
        return {"metadata": {"name": "pod", "uid": "pod"}, "spec": spec}


class ReadAmounts(NamedTuple):
    """The requests of a pod after the reading: millicores, bytes, milli of each GPU, devices."""

    cpu: int
    memory: int
    gpu_milli: int
    devices: int


def round_cpus(cpu: int, reading: Reading) -> int:
    """Return millicores rounded as the reading says."""
    rule = reading.cpus
    up = -(-cpu // _CPU) * _CPU
    if isinstance(rule, CeilAbove):
        return up if cpu > quantity(rule.ceil_above, "reading.cpus").milli_value() else cpu
    if rule == "ceil":
        return up
    if rule == "round":
        # Small requests keep their amount: rounded to zero they would be none.
        return (cpu + _CPU // 2) // _CPU * _CPU or cpu
    return cpu


def _sidecar_fields(sidecars: Sidecars, app: ReadAmounts) -> dict[str, Any]:
    """Return the fields that sidecars add to a pod's specification, in one of the four ways."""
    cpu = quantity(sidecars.cpu, "sidecars.cpu").milli_value()
    memory = quantity(sidecars.memory, "sidecars.memory").value()
    if sidecars.written == "padded":
        cpu = -(-cpu // _CPU) * _CPU
    amounts = {"cpu": f"{cpu}m", "memory": str(memory)}
    resources: dict[str, Any] = {
        "burstable": {"requests": amounts},
        "fractional": {"requests": amounts, "limits": amounts},
        "padded": {"requests": amounts, "limits": amounts},
        "pod-level": {},
    }[sidecars.written]
    added: dict[str, Any] = {
        "initContainers": [
            {"name": f"sidecar-{number}", "restartPolicy": "Always", "resources": resources}
            for number in range(sidecars.count)
        ]
    }
    if sidecars.written == "pod-level":
        # The pod's budget is rounded up, so that the pod can own whole CPUs.
        total = -(-(app.cpu + cpu * sidecars.count) // _CPU) * _CPU
        budget = {"cpu": f"{total}m", "memory": str(app.memory + memory * sidecars.count)}
        added["resources"] = {"requests": budget, "limits": budget}
    return added


def manifest_shape(
    pod: Pod, name: str, owner: Owner, placement: PlacementRules, *, gates: Mapping[str, bool], quirks: Quirks
) -> FleetShape:
    """Return the shape of a pod of a manifest or of a cluster. Raises `InputError`."""
    pod = default_pod(pod, gates)
    requests = SchedulerRequests.of(pod, gates, quirks)
    gpus = next((amount for resource, amount in requests.asked.items() if resource.endswith("/gpu")), 0)
    return FleetShape(
        name=name,
        pod=pod,
        requests=requests,
        gpus=gpus,
        gpu_milli=WHOLE_GPU if gpus else 0,
        priority=pod.spec.priority or 0,
        owner=owner,
        placement=placement,
    )


# Dividing a row's requests among containers


_FIELD = "reading.containers"


class RowAmounts(Protocol):
    """The requests of a pod: millicores and bytes."""

    @property
    def cpu(self) -> int: ...
    @property
    def memory(self) -> int: ...


def divide(
    containers: Sequence[ContainerShare], amounts: RowAmounts, devices: Mapping[str, str], qos: str, row: str
) -> dict[str, Any]:
    """Return the containers of a pod's specification. Raises `InputError` where the parts exceed the row's requests."""
    cpus = _parts(containers, [one.cpu for one in containers], amounts.cpu, 1000, row, "cpu")
    memory = _parts(containers, [one.memory for one in containers], amounts.memory, 1, row, "memory")
    holder = next((one for one in containers if one.gpus), None)
    holder = holder or next(one for one in containers if one.cpu is None and one.run != "init")
    spec: dict[str, Any] = {"initContainers": [], "containers": []}
    for one, cpu, size in zip(containers, cpus, memory, strict=True):
        own = {"cpu": f"{cpu}m", "memory": str(size)}
        more = devices if one is holder else {}
        requests = {} if qos == "best-effort" else own
        limits = {**(own if qos == "guaranteed" else {}), **more}
        made: dict[str, Any] = {"name": one.name, "resources": {"requests": {**requests, **more}, "limits": limits}}
        if one.run == "sidecar":
            made["restartPolicy"] = "Always"
        spec["containers" if one.run == "app" else "initContainers"].append(made)
    return spec


def _parts(
    containers: Sequence[ContainerShare], shares: Sequence[Number | None], total: int, scale: int, row: str, field: str
) -> list[int]:
    """Return the part of each container; the one without an amount gets the rest."""
    parts = [
        0 if one is None else _part(one, total, scale, f"{_FIELD}[{place}].{field}") for place, one in enumerate(shares)
    ]
    taken = sum(part for one, part in zip(containers, parts, strict=True) if one.run != "init")
    left = total - taken
    if left <= 0:
        problem = f"the containers' parts leave nothing of the {field} of {row} for the one that gets the rest"
        raise InputError(problem, path=_FIELD, remedy="write shares such as 10%")
    return [left if one is None else part for one, part in zip(shares, parts, strict=True)]


def _part(share: Number, total: int, scale: int, path: str) -> int:
    """Return an amount, or a share of the total, rounded up."""
    text = str(share)
    if not text.endswith("%"):
        amount = quantity(share, path)
        return amount.milli_value() if scale == 1000 else amount.value()
    try:
        percent = float(text[:-1])
    except ValueError:
        percent = -1.0
    if not 0 <= percent < 100:
        raise InputError(f"{text!r} is not a share", path=path, remedy="write 25%, 200m or 1Gi")
    return -(-total * round(percent * 1000) // 100_000)
