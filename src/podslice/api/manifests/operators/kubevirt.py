"""The launcher pod of a virtual machine (KubeVirt).

A machine runs inside a container `compute` of a pod that KubeVirt makes of its domain, as its user guide says: with
`dedicatedCpuPlacement` the pod is Guaranteed and has a CPU for each of the guest's; otherwise it requests a tenth. What
the pod needs beside the guest's memory depends on KubeVirt's version, and is assumed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from podslice.api.manifests.fields import number_of, objects_of, part_of, text_of
from podslice.api.manifests.found import FoundPod, Others, PassedOver, name_template
from podslice.api.manifests.objects import ManifestObject
from podslice.values.errors import InputError
from podslice.values.quantity import Quantity, QuantityError

_MIB = 1 << 20
_HELPERS = 228 * _MIB
"""Launcher, monitor, log and machine daemons and the emulator itself, about."""
_VIDEO = 32 * _MIB
_FOR_VCPU = 8 * _MIB
_FOR_PASSTHROUGH = 1 << 30
_PAGE_TABLES = 512
_ALLOCATION_RATIO = 10
"""Guest CPUs for each requested CPU, KubeVirt's default."""
_MOST_VCPUS = 10_000
_KEPT = ("nodeSelector", "tolerations", "affinity", "priorityClassName", "resourceClaims")
_PATHS = {
    "VirtualMachine": "spec.template",
    "VirtualMachineInstance": "",
    "VirtualMachineInstanceReplicaSet": "spec.template",
    "VirtualMachinePool": "spec.virtualMachineTemplate.spec.template",
}


class _Guest(NamedTuple):
    """The resources of a guest, from its domain or its instance type. `memory` is in bytes."""

    vcpus: int
    memory: Quantity
    dedicated: bool
    emulator_thread: bool
    page_size: str


def launcher_pods(found: ManifestObject, others: Others) -> Iterator[FoundPod | PassedOver]:
    """Yield the launcher pod of a machine, or of the machines of a set or pool. Raises `InputError`."""
    path = _PATHS[found.kind]
    template = part_of(found.data, *path.split(".")) if path else found.data
    spec, domain = part_of(template, "spec"), part_of(template, "spec", "domain")
    machine = part_of(found.data, "spec", "virtualMachineTemplate") or found.data
    where = f"{path}.spec.domain".removeprefix(".")
    try:
        guest = _guest(domain, _instance_type(found, machine, others), where)
    except InputError as error:
        yield PassedOver(found, str(error))
        return
    resources, overhead = _amounts(guest, domain, where)
    kept = {field: spec[field] for field in _KEPT if field in spec}
    labels = {"metadata": {"labels": part_of(template, "metadata", "labels")}}
    container = {"name": "compute", "image": "virt-launcher", "resources": resources}
    note = (
        f"KubeVirt's launcher pod, with an assumed {overhead // _MIB}Mi beside the guest's memory; "
        "small containers for disks, and devices of KubeVirt itself, are left out"
    )
    yield name_template(
        found, {**labels, "spec": {"containers": [container], **kept}}, where, replicas=_count(found), notes=(note,)
    )


def _count(found: ManifestObject) -> int:
    """Return how many machines are to run."""
    spec = part_of(found.data, "spec")
    if found.kind == "VirtualMachine":
        return 0 if spec.get("running") is False or spec.get("runStrategy") == "Halted" else 1
    count = number_of(spec, "replicas")
    return 1 if count is None or found.kind == "VirtualMachineInstance" else count


def _instance_type(found: ManifestObject, machine: Mapping[str, Any], others: Others) -> dict[str, Any]:
    """Return the specification of a machine's instance type, empty where it names none. Raises `InputError` for one
    that is not in the input."""
    reference = part_of(machine, "spec", "instancetype")
    if not reference:
        return {}
    kind = text_of(reference, "kind")
    is_own = kind.lower().startswith("virtualmachineinstancetype")
    kind = "VirtualMachineInstancetype" if is_own else "VirtualMachineClusterInstancetype"
    name = text_of(reference, "name")
    other = others.find(kind, found.namespace if is_own else "", name)
    if other is None:
        raise InputError(f"its {kind} {name} is not in the input", remedy="give that file too")
    return part_of(other.data, "spec")


def _guest(domain: Mapping[str, Any], kind: Mapping[str, Any], path: str) -> _Guest:
    resources = part_of(domain, "resources")
    cpu, memory = part_of(domain, "cpu"), part_of(domain, "memory")
    vcpus = number_of(part_of(kind, "cpu"), "guest")
    if vcpus is None:
        vcpus = _product(cpu.get(name) for name in ("cores", "sockets", "threads"))
        asked = part_of(resources, "limits").get("cpu", part_of(resources, "requests").get("cpu"))
        if not any(name in cpu for name in ("cores", "sockets", "threads")) and asked is not None:
            # Amounts of the container say the number of guest CPUs where the topology does not.
            vcpus = max(-(-_quantity(asked, f"{path}.resources").milli_value() // 1000), 1)
    text = part_of(kind, "memory").get("guest", memory.get("guest"))
    for listed in ("requests", "limits"):
        text = part_of(resources, listed).get("memory") if text is None else text
    if text is None:
        raise InputError("says no memory", path=path, remedy="memory: {guest: 4Gi}")
    pages = part_of(kind, "memory", "hugepages") or part_of(memory, "hugepages")
    return _Guest(
        vcpus=min(vcpus, _MOST_VCPUS),
        memory=_quantity(text, f"{path}.memory.guest"),
        dedicated=cpu.get("dedicatedCpuPlacement") is True or part_of(kind, "cpu").get("dedicatedCPUPlacement") is True,
        emulator_thread=True in (cpu.get("isolateEmulatorThread"), part_of(kind, "cpu").get("isolateEmulatorThread")),
        page_size=text_of(pages, "pageSize"),
    )


def _amounts(guest: _Guest, domain: Mapping[str, Any], path: str) -> tuple[dict[str, dict[str, Any]], int]:
    """Return the resources of the container `compute`, and the bytes beside the guest's memory in them."""
    written = part_of(domain, "resources")
    devices = dict(_devices(domain))
    size = guest.memory.value()
    overhead = (
        _HELPERS + _VIDEO + size // _PAGE_TABLES + _FOR_VCPU * (guest.vcpus + 1) + _FOR_PASSTHROUGH * bool(devices)
    )
    pages = {f"hugepages-{guest.page_size}": str(guest.memory)} if guest.page_size else {}
    memory = str(overhead if guest.page_size else size + overhead)
    requests: dict[str, Any] = {"memory": memory, **pages, **devices}
    limits: dict[str, Any] = {**pages, **devices}
    if guest.dedicated:
        cpus = guest.vcpus + guest.emulator_thread
        return {"requests": {"cpu": cpus, **requests}, "limits": {"cpu": cpus, "memory": memory, **limits}}, overhead
    share = f"{-(-guest.vcpus * 1000 // _ALLOCATION_RATIO)}m"
    requests["cpu"] = part_of(written, "requests").get("cpu", share)
    for name, amount in part_of(written, "limits").items():
        limits[name] = (
            str(_quantity(amount, f"{path}.resources.limits.{name}").value() + overhead) if name == "memory" else amount
        )
    return {"requests": requests, "limits": limits}, overhead


def _devices(domain: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    counts: dict[str, int] = {}
    for field in ("gpus", "hostDevices"):
        for _, device in objects_of(part_of(domain, "devices"), field):
            if name := text_of(device, "deviceName"):
                counts[name] = counts.get(name, 0) + 1
    yield from counts.items()


def _product(counts: Iterator[Any]) -> int:
    result = 1
    for count in counts:
        result *= min(count, _MOST_VCPUS) if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 1
    return result


def _quantity(amount: Any, path: str) -> Quantity:
    try:
        return Quantity.parse(str(amount))
    except QuantityError as error:
        raise InputError(f"{amount!r} is not a quantity: {error}", path=path, remedy="write 4Gi") from None
