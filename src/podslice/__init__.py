"""podslice: the kubelet's CPU, memory, device and topology decisions as a library.

    from podslice import KubeletConfig, Machine, Node, Pod

`Node(machine, config).admit(pod)` returns a `Decision`. Everything that a signature of these names is importable from
here as well. Every name is imported on first use.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from podslice.advise.advice import defragment, explain, explain_all, inspect, lint, whatif
    from podslice.advise.defrag.plan import ContainerMove, Move, Plan
    from podslice.advise.defrag.restarts import RestartPlan, RestartStep
    from podslice.advise.explain.candidates import Candidate, Cell
    from podslice.advise.explain.changes import ChangeMachine, ChangePolicy, EditPod, EmptyNode, Reconfigure, Remove
    from podslice.advise.explain.explain import Explanation
    from podslice.advise.explain.fix import Edit, Fix
    from podslice.advise.explain.picks import Unit
    from podslice.advise.explain.resize import ResizedContainer, ResizeExplanation, explain_resize
    from podslice.advise.explain.trace import (
        Answer,
        ContainerFacts,
        MergeStep,
        Requested,
        ShownHint,
        ShownPick,
        Trace,
        Write,
    )
    from podslice.advise.inspect.page import QOS, Amounts, Cgroup, Count, Effective, Page, Placement, Value
    from podslice.advise.lint.model import Finding, ObjectReference
    from podslice.advise.whatif import Outcome, PodVerdict, Scenario
    from podslice.core.allocate.pod_pool import EmptyPool
    from podslice.core.config.kubelet import IgnoredField, KubeletConfig, MemoryReservation
    from podslice.core.config.policy import AnnotationRules, Defragmentation, ExclusiveResize, Hotplug, PodslicePolicy
    from podslice.core.decide import (
        Decided,
        MachineChanged,
        Restarted,
        Shape,
        change_machine,
        decide,
        release,
        resize,
        restart,
        shape_of,
    )
    from podslice.core.decision import ContainerDecision, Decision, ResizeDecision
    from podslice.core.effects.cgroup import PodCgroup
    from podslice.core.effects.container_cgroup import LinuxResources
    from podslice.core.effects.pod_event import PodEvent
    from podslice.core.effects.sandbox import Sandbox
    from podslice.core.effects.tree import ContainerEffects, PodEffects
    from podslice.core.errors import (
        AdmissionError,
        InputError,
        InputErrors,
        PodsliceError,
        Refusal,
        RefusalKind,
        StartError,
        StartKind,
        UpstreamDefectError,
    )
    from podslice.core.holding import ContainerHolding, Digest, Digester, Holding, digest, holding_of
    from podslice.core.kubelet import Admitted
    from podslice.core.machine.delta import MachineConsequence, MachineDelta, machine_delta, without_cpus
    from podslice.core.machine.devices import Device, DeviceInventory, DeviceResource
    from podslice.core.machine.memory import Block, MemoryTable, NUMANodeState
    from podslice.core.machine.model import Cache, Core, CoreType, CPUGroup, HugePages, KernelNode, Machine, NUMANode
    from podslice.core.machine.topology import CPUTopology
    from podslice.core.managers.device_plugin import (
        AllocateResponse,
        DeviceNode,
        DevicePlugin,
        Mount,
        PluginOptions,
        RunOptions,
    )
    from podslice.core.managers.node_rules import NodeRules
    from podslice.core.managers.node_state import NodeState
    from podslice.core.node import Node
    from podslice.core.pod.eligibility import AdmissionContainer, AdmissionPod
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
    from podslice.core.quirks import Quirks
    from podslice.core.resize.events import ResizeCondition
    from podslice.core.scheduling.allocatable import NodeResources
    from podslice.core.values.cpu_policy_options import CPUPolicyOptions
    from podslice.core.values.cpuset import CPUSet
    from podslice.core.values.quantity import Quantity
    from podslice.core.values.series import Series
    from podslice.core.view import ContainerView, NodeView
    from podslice.gallery import gallery_names, load_gallery
    from podslice.host.discover import discover_host
    from podslice.host.machine_files import load_machine
    from podslice.host.store import NodeStore, StateWriteError
    from podslice.k8s.kubeletconfig import LoadedConfig, load_kubelet_config
    from podslice.k8s.manifest import LoadedPod, load_pods

__all__ = [
    "QOS",
    "AdmissionContainer",
    "AdmissionError",
    "AdmissionPod",
    "Admitted",
    "AllocateResponse",
    "Amounts",
    "AnnotationRules",
    "Answer",
    "Block",
    "CPUGroup",
    "CPUPolicyOptions",
    "CPUSet",
    "CPUTopology",
    "Cache",
    "Candidate",
    "Cell",
    "Cgroup",
    "ChangeMachine",
    "ChangePolicy",
    "Container",
    "ContainerDecision",
    "ContainerEffects",
    "ContainerFacts",
    "ContainerHolding",
    "ContainerMove",
    "ContainerState",
    "ContainerStatus",
    "ContainerView",
    "Core",
    "CoreType",
    "Count",
    "Decided",
    "Decision",
    "Defragmentation",
    "Device",
    "DeviceInventory",
    "DeviceNode",
    "DevicePlugin",
    "DeviceResource",
    "Digest",
    "Digester",
    "Edit",
    "EditPod",
    "Effective",
    "EmptyNode",
    "EmptyPool",
    "ExclusiveResize",
    "Explanation",
    "Finding",
    "Fix",
    "Holding",
    "Hotplug",
    "HugePages",
    "IgnoredField",
    "InputError",
    "InputErrors",
    "KernelNode",
    "KubeletConfig",
    "LinuxResources",
    "LoadedConfig",
    "LoadedPod",
    "Machine",
    "MachineChanged",
    "MachineConsequence",
    "MachineDelta",
    "MemoryReservation",
    "MemoryTable",
    "MergeStep",
    "Mount",
    "Move",
    "NUMANode",
    "NUMANodeState",
    "Node",
    "NodeResources",
    "NodeRules",
    "NodeState",
    "NodeStore",
    "NodeView",
    "ObjectMeta",
    "ObjectReference",
    "Outcome",
    "OwnCPUs",
    "Page",
    "Placement",
    "Plan",
    "PluginOptions",
    "Pod",
    "PodCgroup",
    "PodCondition",
    "PodEffects",
    "PodEvent",
    "PodOS",
    "PodResourceClaim",
    "PodSpec",
    "PodStatus",
    "PodVerdict",
    "PodsliceError",
    "PodslicePolicy",
    "Quantity",
    "Quirks",
    "Reconfigure",
    "Refusal",
    "RefusalKind",
    "Remove",
    "Requested",
    "ResizeCondition",
    "ResizeDecision",
    "ResizeExplanation",
    "ResizePolicy",
    "ResizedContainer",
    "ResourceRequirements",
    "RestartPlan",
    "RestartStep",
    "Restarted",
    "RunOptions",
    "Sandbox",
    "Scenario",
    "Series",
    "Shape",
    "ShownHint",
    "ShownPick",
    "StartError",
    "StartKind",
    "StateWriteError",
    "Trace",
    "Unit",
    "UnknownField",
    "UpstreamDefectError",
    "Value",
    "Write",
    "change_machine",
    "decide",
    "defragment",
    "digest",
    "discover_host",
    "explain",
    "explain_all",
    "explain_resize",
    "gallery_names",
    "holding_of",
    "inspect",
    "lint",
    "load_gallery",
    "load_kubelet_config",
    "load_machine",
    "load_pods",
    "machine_delta",
    "pod_from_dict",
    "release",
    "resize",
    "restart",
    "shape_of",
    "whatif",
    "without_cpus",
]

_ON_USE = {
    "AdmissionContainer": "podslice.core.pod.eligibility",
    "AdmissionError": "podslice.core.errors",
    "Refusal": "podslice.core.errors",
    "RefusalKind": "podslice.core.errors",
    "AdmissionPod": "podslice.core.pod.eligibility",
    "AllocateResponse": "podslice.core.managers.device_plugin",
    "Amounts": "podslice.advise.inspect.page",
    "Answer": "podslice.advise.explain.trace",
    "Block": "podslice.core.machine.memory",
    "CPUGroup": "podslice.core.machine.model",
    "CPUPolicyOptions": "podslice.core.values.cpu_policy_options",
    "CPUSet": "podslice.core.values.cpuset",
    "CPUTopology": "podslice.core.machine.topology",
    "Cache": "podslice.core.machine.model",
    "Candidate": "podslice.advise.explain.candidates",
    "Cell": "podslice.advise.explain.candidates",
    "Cgroup": "podslice.advise.inspect.page",
    "ChangePolicy": "podslice.advise.explain.changes",
    "ResizeExplanation": "podslice.advise.explain.resize",
    "ResizedContainer": "podslice.advise.explain.resize",
    "explain_resize": "podslice.advise.explain.resize",
    "ChangeMachine": "podslice.advise.explain.changes",
    "Container": "podslice.core.pod.spec",
    "ContainerDecision": "podslice.core.decision",
    "ContainerEffects": "podslice.core.effects.tree",
    "ContainerFacts": "podslice.advise.explain.trace",
    "ContainerMove": "podslice.advise.defrag.plan",
    "ContainerState": "podslice.core.pod.spec",
    "ContainerStatus": "podslice.core.pod.spec",
    "ContainerView": "podslice.core.view",
    "Core": "podslice.core.machine.model",
    "CoreType": "podslice.core.machine.model",
    "Count": "podslice.advise.inspect.page",
    "Decision": "podslice.core.decision",
    "Device": "podslice.core.machine.devices",
    "DeviceInventory": "podslice.core.machine.devices",
    "DeviceNode": "podslice.core.managers.device_plugin",
    "DevicePlugin": "podslice.core.managers.device_plugin",
    "DeviceResource": "podslice.core.machine.devices",
    "Edit": "podslice.advise.explain.fix",
    "EditPod": "podslice.advise.explain.changes",
    "Effective": "podslice.advise.inspect.page",
    "EmptyNode": "podslice.advise.explain.changes",
    "EmptyPool": "podslice.core.allocate.pod_pool",
    "Explanation": "podslice.advise.explain.explain",
    "Finding": "podslice.advise.lint.model",
    "Fix": "podslice.advise.explain.fix",
    "HugePages": "podslice.core.machine.model",
    "IgnoredField": "podslice.core.config.kubelet",
    "InputError": "podslice.core.errors",
    "InputErrors": "podslice.core.errors",
    "KernelNode": "podslice.core.machine.model",
    "KubeletConfig": "podslice.core.config.kubelet",
    "LinuxResources": "podslice.core.effects.container_cgroup",
    "LoadedConfig": "podslice.k8s.kubeletconfig",
    "LoadedPod": "podslice.k8s.manifest",
    "Machine": "podslice.core.machine.model",
    "MemoryReservation": "podslice.core.config.kubelet",
    "MemoryTable": "podslice.core.machine.memory",
    "MergeStep": "podslice.advise.explain.trace",
    "Mount": "podslice.core.managers.device_plugin",
    "Move": "podslice.advise.defrag.plan",
    "NUMANode": "podslice.core.machine.model",
    "NUMANodeState": "podslice.core.machine.memory",
    "Node": "podslice.core.node",
    "NodeResources": "podslice.core.scheduling.allocatable",
    "NodeStore": "podslice.host.store",
    "NodeRules": "podslice.core.managers.node_rules",
    "NodeState": "podslice.core.managers.node_state",
    "NodeView": "podslice.core.view",
    "ObjectMeta": "podslice.core.pod.spec",
    "ObjectReference": "podslice.advise.lint.model",
    "Outcome": "podslice.advise.whatif",
    "Page": "podslice.advise.inspect.page",
    "Placement": "podslice.advise.inspect.page",
    "Plan": "podslice.advise.defrag.plan",
    "PluginOptions": "podslice.core.managers.device_plugin",
    "Pod": "podslice.core.pod.spec",
    "PodCgroup": "podslice.core.effects.cgroup",
    "PodCondition": "podslice.core.pod.spec",
    "PodEffects": "podslice.core.effects.tree",
    "PodEvent": "podslice.core.effects.pod_event",
    "PodOS": "podslice.core.pod.spec",
    "PodResourceClaim": "podslice.core.pod.spec",
    "PodSpec": "podslice.core.pod.spec",
    "PodStatus": "podslice.core.pod.spec",
    "PodVerdict": "podslice.advise.whatif",
    "PodsliceError": "podslice.core.errors",
    "QOS": "podslice.advise.inspect.page",
    "Quantity": "podslice.core.values.quantity",
    "Quirks": "podslice.core.quirks",
    "Reconfigure": "podslice.advise.explain.changes",
    "Remove": "podslice.advise.explain.changes",
    "Requested": "podslice.advise.explain.trace",
    "ResizeCondition": "podslice.core.resize.events",
    "PodslicePolicy": "podslice.core.config.policy",
    "ResizeDecision": "podslice.core.decision",
    "AnnotationRules": "podslice.core.config.policy",
    "Defragmentation": "podslice.core.config.policy",
    "ExclusiveResize": "podslice.core.config.policy",
    "ResizePolicy": "podslice.core.pod.spec",
    "ResourceRequirements": "podslice.core.pod.spec",
    "RestartPlan": "podslice.advise.defrag.restarts",
    "RestartStep": "podslice.advise.defrag.restarts",
    "RunOptions": "podslice.core.managers.device_plugin",
    "Sandbox": "podslice.core.effects.sandbox",
    "Scenario": "podslice.advise.whatif",
    "Series": "podslice.core.values.series",
    "ShownHint": "podslice.advise.explain.trace",
    "ShownPick": "podslice.advise.explain.trace",
    "StartError": "podslice.core.errors",
    "StartKind": "podslice.core.errors",
    "StateWriteError": "podslice.host.store",
    "Trace": "podslice.advise.explain.trace",
    "Unit": "podslice.advise.explain.picks",
    "UnknownField": "podslice.core.pod.unknown_fields",
    "UpstreamDefectError": "podslice.core.errors",
    "Value": "podslice.advise.inspect.page",
    "Write": "podslice.advise.explain.trace",
    "defragment": "podslice.advise.advice",
    "discover_host": "podslice.host.discover",
    "explain": "podslice.advise.advice",
    "explain_all": "podslice.advise.advice",
    "gallery_names": "podslice.gallery",
    "inspect": "podslice.advise.advice",
    "lint": "podslice.advise.advice",
    "load_gallery": "podslice.gallery",
    "load_kubelet_config": "podslice.k8s.kubeletconfig",
    "load_machine": "podslice.host.machine_files",
    "load_pods": "podslice.k8s.manifest",
    "pod_from_dict": "podslice.core.pod.spec",
    "whatif": "podslice.advise.advice",
    "decide": "podslice.core.decide",
    "release": "podslice.core.decide",
    "resize": "podslice.core.decide",
    "restart": "podslice.core.decide",
    "shape_of": "podslice.core.decide",
    "Decided": "podslice.core.decide",
    "Restarted": "podslice.core.decide",
    "Shape": "podslice.core.decide",
    "Holding": "podslice.core.holding",
    "ContainerHolding": "podslice.core.holding",
    "Digest": "podslice.core.holding",
    "Digester": "podslice.core.holding",
    "digest": "podslice.core.holding",
    "holding_of": "podslice.core.holding",
    "Admitted": "podslice.core.kubelet",
    "Hotplug": "podslice.core.config.policy",
    "MachineChanged": "podslice.core.decide",
    "change_machine": "podslice.core.decide",
    "MachineConsequence": "podslice.core.machine.delta",
    "MachineDelta": "podslice.core.machine.delta",
    "machine_delta": "podslice.core.machine.delta",
    "without_cpus": "podslice.core.machine.delta",
    "OwnCPUs": "podslice.core.state.model",
}
"""Where each public name is; it is imported on first use, so that `podslice.entry` starts at once."""


def __getattr__(name: str) -> Any:
    if name not in _ON_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(_ON_USE[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
