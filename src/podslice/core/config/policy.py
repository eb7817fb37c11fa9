"""PodslicePolicy: what podslice does beyond a kubelet, in one object beside the KubeletConfiguration.

The empty policy changes nothing: decisions, messages and state files are those without one.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from podslice.core.errors import InputError
from podslice.core.quirks import PODSLICE, Quirks

API_VERSION: Final = "podslice.io/v1alpha1"
KIND: Final = "PodslicePolicy"
IMPLICIT_CLASS: Final = "isolated"
"""The class of CPUs that the kernel isolates, where classes are configured and none of them matches these."""


class ExclusiveResize(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """In-place resize of containers with exclusive CPUs, or memory on NUMA nodes.

    `exclusive`: they can be resized, without the gates InPlacePodVerticalScalingExclusiveCPUs and -Memory too.
    `below_baseline`: whether a container may give up CPUs promised at its admission. `eligibility_change`: whether it
    may move between shared and exclusive CPUs. `misfit`: whether a growth that has no room waits, or is refused for
    good as KEP-5554 says. `memory_nodes`: whether memory that shrinks stays on its NUMA nodes, or leaves those that it
    does not need any more, so that the kernel moves its pages. `shrink_delay_seconds`: how long the agent
    leaves a container that gives back CPUs on them, so that it can prepare.
    """

    exclusive: bool = False
    below_baseline: Literal["infeasible", "allow"] = "infeasible"
    eligibility_change: Literal["infeasible", "allow"] = "infeasible"
    misfit: Literal["deferred", "infeasible"] = "deferred"
    memory_nodes: Literal["sticky", "follow"] = "sticky"
    shrink_delay_seconds: Annotated[float, msgspec.Meta(ge=0, le=10)] = 0.0


class Defragmentation(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Moves of running containers. `carry_out`: whether the agent moves any, when it is asked to or for every pod that
    it refused. `movable`: which containers. `memory`: whether memory follows to other NUMA nodes."""

    carry_out: Literal["never", "onRequest", "automatic"] = "never"
    movable: Literal["annotated", "all", "none"] = "annotated"
    memory: Literal["never", "follow"] = "never"
    max_moves_per_hour: Annotated[int, msgspec.Meta(ge=0, le=3600)] = 6


class AnnotationRules(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What pods may ask for by annotations under `podslice.io/` (`core.config.annotations`). `invalid`: whether a wrong
    one refuses the pod or counts for nobody. `namespaces`: globs of those whose pods may use them."""

    invalid: Literal["refuse", "ignore"] = "refuse"
    namespaces: tuple[str, ...] = ("*",)


class Hotplug(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What becomes of a node whose CPUs, memory or NUMA nodes change (docs/hotplug.md).

    `new_cpus`: whether CPUs that come are shared. `lost_cpus`: an owner of CPUs that go runs on the rest (`degrade`),
    gets others for them (`replace`), or runs on the rest and should be drained by somebody (`drain`). `memory`: whether
    the books follow the machine. `after_reboot`: what to do with state that does not fit a machine that changed over a
    reboot. `drift_tolerance`: how much memory may have moved over a reboot: `auto` (KEP-6232), `off`, a quantity, or
    `legacy` (the larger of 1 % and 64 MiB of each NUMA node).
    """

    new_cpus: Literal["share", "ignore"] = msgspec.field(default="share", name="newCPUs")
    lost_cpus: Literal["degrade", "replace", "drain"] = msgspec.field(default="degrade", name="lostCPUs")
    memory: Literal["track", "fixed"] = "track"
    after_reboot: Literal["rebuild", "refuse"] = "rebuild"
    drift_tolerance: str = "legacy"


OnError: TypeAlias = Literal["refuse", "skip", "static"]


class PluginEntry(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One plugin of the CPU Manager. `weight`: of its scores. `on_error`: where it breaks its contract, the pod is
    refused, the plugin counts for nothing, or the CPUs are picked as without plugins."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    weight: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 1
    on_error: OnError = "refuse"
    arguments: dict[str, Any] = {}


class PluginRules(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Plugins of the CPU Manager, in the order in which they are asked (docs/policies.md). `hint_scores`: among sets of
    NUMA nodes that are equally good to the Topology Manager, the best score decides."""

    profile: tuple[PluginEntry, ...] = ()
    max_candidates: Annotated[int, msgspec.Meta(ge=1, le=256)] = 16
    hint_scores: bool = False


class ClassMatch(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Which CPUs are of a class: those that meet everything that is said. `core_type` as discovery names it
    (`performance`, `efficiency`), `capacity_at_least` 0 to 1024, `cpus` a list by hand."""

    isolated: bool | None = None
    core_type: str | None = None
    capacity_at_least: Annotated[int, msgspec.Meta(ge=0, le=1024)] | None = None
    numa_nodes: tuple[Annotated[int, msgspec.Meta(ge=0, le=1023)], ...] | None = None
    cpus: str | None = None


class CPUClass(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A kind of CPUs. `exclusive`: whether containers may own them: all, those that wish for the class, none. `shared`:
    whether containers share them; `min_shared` of them are never owned. `overflow`: the classes that those get who wish
    for this one where it is full."""

    name: Annotated[str, msgspec.Meta(pattern="^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", max_length=63)]
    match: ClassMatch = ClassMatch()
    exclusive: Literal["always", "onRequest", "never"] = "always"
    shared: bool = True
    min_shared: Annotated[int, msgspec.Meta(ge=0, le=4096)] = 0
    overflow: tuple[str, ...] = ()


class AssignRule(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The classes of containers that meet everything that is said, best first; `NAME!` is required. `namespaces` are
    globs, `exclusive`: only containers that may own CPUs, or only the others."""

    classes: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    namespaces: tuple[str, ...] | None = None
    labels: dict[str, str] | None = None
    owner_kinds: tuple[str, ...] | None = None
    qos: tuple[Literal["Guaranteed", "Burstable", "BestEffort"], ...] | None = None
    priority_classes: tuple[str, ...] | None = None
    min_priority: int | None = None
    kinds: tuple[Literal["app", "init", "sidecar"], ...] | None = None
    exclusive: bool | None = None


def _usual_weights() -> dict[str, int]:
    return {"cpu": 10, "memory": 5, "devices": 3}


class TopologyRules(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How the Topology Manager's policy best-effort chooses where nothing suits all resources: as upstream, or by the
    weighted sum of what they get (docs/policies.md). `weights` by resource name, `devices` for all others."""

    best_effort: Literal["upstream", "scored"] = "upstream"
    weights: dict[str, Annotated[int, msgspec.Meta(ge=0, le=1000)]] = msgspec.field(default_factory=_usual_weights)


class InterferenceGuards(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Who else may use exclusive CPUs (docs/guards.md). `irq`: whether the agent only counts the interrupts and unbound
    workqueues of the kernel that may come there, or keeps them away."""

    irq: Literal["observe", "enforce"] = "observe"


class PodslicePolicy(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The `spec` of the object; what is left out is as without a policy."""

    resize: ExclusiveResize = ExclusiveResize()
    defrag: Defragmentation = Defragmentation()
    annotations: AnnotationRules = AnnotationRules()
    plugins: PluginRules = PluginRules()
    cpu_classes: tuple[CPUClass, ...] = ()
    assign: tuple[AssignRule, ...] = ()
    topology: TopologyRules = TopologyRules()
    hotplug: Hotplug | None = None
    """None: a machine that changes is as a kubelet takes it, not looked at until it starts again."""
    guards: InterferenceGuards | None = None
    """None: nobody looks at interrupts."""


NO_POLICY: Final = PodslicePolicy()


def check_policy(policy: PodslicePolicy, quirks: Quirks) -> None:
    """Raises `InputError` for a policy in a profile that predicts a kubelet."""
    if policy != NO_POLICY and quirks != PODSLICE:
        raise InputError("a kubelet has no such policy", path="spec", remedy="leave it out, or use profile podslice")
