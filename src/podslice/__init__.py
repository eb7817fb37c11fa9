"""podslice: the kubelet's CPU, memory, device and topology decisions as a library.

    from podslice import KubeletConfig, Machine, Node, Pod

`Node(machine, config).admit(pod)` returns a `Decision`. Everything that a signature of these names is importable from
here as well. What reads files (`load_pods` and others) is imported on first use.
"""

from typing import TYPE_CHECKING, Any

from podslice.core.config.kubelet import KubeletConfig, MemoryReservation
from podslice.core.decision import ContainerDecision, Decision, ResizeDecision
from podslice.core.effects.cgroup import PodCgroup
from podslice.core.effects.container_cgroup import LinuxResources
from podslice.core.effects.pod_event import PodEvent
from podslice.core.effects.sandbox import Sandbox
from podslice.core.effects.tree import ContainerEffects, PodEffects
from podslice.core.errors import AdmissionError, InputError, InputErrors, PodsliceError, StartError, UpstreamDefectError
from podslice.core.machine.devices import Device, DeviceInventory, DeviceResource
from podslice.core.machine.model import Cache, Core, CoreType, CPUGroup, HugePages, KernelNode, Machine, NUMANode
from podslice.core.machine.topology import CPUTopology
from podslice.core.node import Node
from podslice.core.pod.spec import (
    Container,
    ContainerState,
    ContainerStatus,
    ObjectMeta,
    Pod,
    PodCondition,
    PodOS,
    PodResourceClaim,
    PodSpec,
    PodStatus,
    ResizePolicy,
    ResourceRequirements,
    pod_from_dict,
)
from podslice.core.pod.unknown_fields import UnknownField
from podslice.core.resize.events import ResizeCondition
from podslice.core.values.cpuset import CPUSet
from podslice.core.values.quantity import Quantity

if TYPE_CHECKING:
    from podslice.gallery import gallery_names, load_gallery
    from podslice.host.discover import discover_host
    from podslice.host.machine_files import load_machine
    from podslice.host.store import NodeStore, StateWriteError
    from podslice.k8s.kubeletconfig import LoadedConfig, load_kubelet_config
    from podslice.k8s.manifest import LoadedPod, load_pods

__all__ = [
    "AdmissionError",
    "CPUGroup",
    "CPUSet",
    "CPUTopology",
    "Cache",
    "Container",
    "ContainerDecision",
    "ContainerEffects",
    "ContainerState",
    "ContainerStatus",
    "Core",
    "CoreType",
    "Decision",
    "Device",
    "DeviceInventory",
    "DeviceResource",
    "HugePages",
    "InputError",
    "InputErrors",
    "KernelNode",
    "KubeletConfig",
    "LinuxResources",
    "LoadedConfig",
    "LoadedPod",
    "Machine",
    "MemoryReservation",
    "NUMANode",
    "Node",
    "NodeStore",
    "ObjectMeta",
    "Pod",
    "PodCgroup",
    "PodCondition",
    "PodEffects",
    "PodEvent",
    "PodOS",
    "PodResourceClaim",
    "PodSpec",
    "PodStatus",
    "PodsliceError",
    "Quantity",
    "ResizeCondition",
    "ResizeDecision",
    "ResizePolicy",
    "ResourceRequirements",
    "Sandbox",
    "StartError",
    "StateWriteError",
    "UnknownField",
    "UpstreamDefectError",
    "discover_host",
    "gallery_names",
    "load_gallery",
    "load_kubelet_config",
    "load_machine",
    "load_pods",
    "pod_from_dict",
]

_ON_USE = {
    "LoadedConfig": "podslice.k8s.kubeletconfig",
    "LoadedPod": "podslice.k8s.manifest",
    "NodeStore": "podslice.host.store",
    "StateWriteError": "podslice.host.store",
    "discover_host": "podslice.host.discover",
    "gallery_names": "podslice.gallery",
    "load_gallery": "podslice.gallery",
    "load_kubelet_config": "podslice.k8s.kubeletconfig",
    "load_machine": "podslice.host.machine_files",
    "load_pods": "podslice.k8s.manifest",
}
"""Names that need files, YAML or the operating system, and where they are."""


def __getattr__(name: str) -> Any:
    if name not in _ON_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(_ON_USE[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
