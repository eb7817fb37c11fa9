"""Subjects of lint rules: a node's configuration, perhaps with its machine, and a pod, perhaps with its node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from podslice.advise.explain.explain import Explainer
from podslice.advise.trial.trial import Trial
from podslice.api.pod.demand import compute_qos, limits_of, pod_limits, pod_requests, requests_of
from podslice.api.pod.eligibility import AdmissionPod
from podslice.api.pod.spec import Container, Pod, ResourceList, is_restartable_init
from podslice.api.pod.unknown_fields import UnknownField
from podslice.api.server.defaults import default_pod
from podslice.config.kubelet import ConfigProblem, IgnoredField, KubeletConfig, fields_in, ignored_fields
from podslice.config.mixed import make_admission_pod
from podslice.config.policy import NO_POLICY, PodslicePolicy
from podslice.config.policy_options import OptionError, parse_cpu_policy_options
from podslice.config.reservation import refuse_reserved_memory, unreadable_amounts
from podslice.config.thresholds import ThresholdError, check_soft_thresholds, parse_hard_thresholds
from podslice.config.validation import validate
from podslice.machine.devices import DeviceInventory
from podslice.machine.model import Machine
from podslice.node.node import Node
from podslice.node.view import NodeView
from podslice.reading.yaml import DuplicateKey
from podslice.values.cpu_policy_options import CPUPolicyOptions
from podslice.values.errors import InputError, StartError
from podslice.values.gates import FeatureGates, GateError, check_gates, gates_of, later_gates
from podslice.values.quantity import Quantity
from podslice.values.quirks import PROFILE_RELEASES, PROFILES
from podslice.values.releases.release import Release


class TrialBudget:
    """How many changes a search may still try for one finding; a linter's user does not wait for all of them."""

    def __init__(self, most: int = 600) -> None:
        self._most = self._left = most

    def refill(self) -> None:
        """Begin a new search."""
        self._left = self._most

    def is_spent(self) -> bool:
        """Take one trial, and return whether there was none left."""
        self._left -= 1
        return self._left < 0


class NodeSubject:
    """A kubelet's configuration. `unknown_fields` are those without effect, `machine` is None when not known.
    `assumed`: a platform sets fields that the file does not tell.
    `undecoded` are the errors of a file whose fields cannot be decoded; the configuration is then the default one."""

    def __init__(
        self,
        config: KubeletConfig,
        machine: Machine | None = None,
        *,
        profile: str = "podslice",
        unknown_fields: tuple[IgnoredField, ...] = (),
        devices: DeviceInventory | None = None,
        policy: PodslicePolicy = NO_POLICY,
        undecoded: tuple[InputError, ...] = (),
        assumed: bool = False,
    ) -> None:
        self.assumed = assumed
        self.trials = TrialBudget()
        self.policy = policy
        self.undecoded = undecoded
        self.devices = devices
        self.machine = machine
        self.profile = profile
        self.config = fields_in(config, self.release)
        self.unknown_fields = (*unknown_fields, *ignored_fields(config, self.release))

    @cached_property
    def errors(self) -> list[ConfigProblem]:
        """Errors of the configuration by itself."""
        return validate(self.config, self.release)

    @cached_property
    def threshold_error(self) -> ThresholdError | None:
        """The error of an eviction threshold, grace period or minimum reclaim that cannot be read."""
        config = self.config
        try:
            parse_hard_thresholds(config.eviction_thresholds)
            check_soft_thresholds(
                config.eviction_soft, config.eviction_soft_grace_period, config.eviction_minimum_reclaim
            )
        except ThresholdError as error:
            return error
        return None

    @cached_property
    def unreadable_amounts(self) -> tuple[tuple[str, StartError], ...]:
        """Reserved amounts that no kubelet can read: the field and the error of its start."""
        return tuple(unreadable_amounts(self.config))

    @cached_property
    def gate_error(self) -> GateError | None:
        """The reason why the feature gates are refused."""
        try:
            self._gates()
        except GateError as error:
            return error
        return None

    def refusal_of_gate(self, name: str) -> GateError | None:
        """Return the reason why one gate is refused by itself: unknown to the release, or locked."""
        minor, fixes = self.release.minor, later_gates(PROFILES[self.profile])
        known = {one for one, gate in gates_of(minor).items() if gate and (not gate.later or one in fixes)}
        try:
            check_gates({name: self.config.feature_gates[name]}, minor, besides=known)
        except GateError as error:
            return error
        return None

    def _gates(self) -> FeatureGates:
        fixes = later_gates(PROFILES[self.profile])
        return FeatureGates.from_overrides(
            self.config.feature_gates, fixes=fixes, other_gates_allowed=False, release=self.release
        )

    @property
    def release(self) -> Release:
        """The release of the profile."""
        return PROFILE_RELEASES[self.profile]

    @cached_property
    def gates(self) -> FeatureGates:
        """The effective gates, the defaults where the setting is refused."""
        # Other rules go on with the defaults; PS406 reports the error.
        return default_gates(self.profile) if self.gate_error else self._gates()

    @property
    def static_cpus(self) -> bool:
        """Whether the static CPU manager runs."""
        return self.config.cpu_manager_policy == "static"

    @cached_property
    def option_error(self) -> OptionError | None:
        """The reason why the options of the static policy are refused."""
        try:
            parse_cpu_policy_options(self.config.cpu_manager_policy_options, self.gates, self.release)
        except OptionError as error:
            return error
        return None

    @cached_property
    def options(self) -> CPUPolicyOptions:
        """The options of the static policy; the defaults where they are refused or another policy is set."""
        if not self.static_cpus or self.option_error:
            return CPUPolicyOptions()
        return parse_cpu_policy_options(self.config.cpu_manager_policy_options, self.gates, self.release)

    @cached_property
    def start_error(self) -> StartError | None:
        """The reason why a kubelet would not start on the machine; without one, that it starts on none."""
        # A configuration that is invalid by itself never reaches the managers.
        if self.errors:
            return None
        try:
            if self.machine is not None:
                self.new_node()
            elif self._reads_reserved_memory():
                refuse_reserved_memory(self.config)
        except StartError as error:
            return error
        return None

    def _reads_reserved_memory(self) -> bool:
        """Whether a kubelet comes to compare `reservedMemory` with other amounts, and those are known and readable."""
        static = self.config.memory_manager_policy == "Static" and self.gates["MemoryManager"]
        return static and not self.assumed and not self.unreadable_amounts and self.threshold_error is None

    @cached_property
    def view(self) -> NodeView | None:
        """The empty node; None where there is no machine or the kubelet would not start."""
        if self.machine is None or self.errors or self.start_error is not None:
            return None
        return self.new_node().view

    @cached_property
    def explainer(self) -> Explainer | None:
        """An explainer of pods on the empty node; None where there is no node."""
        return None if self.view is None else Explainer(Trial.of(self.new_node()), self.trials.is_spent)

    def new_node(self) -> Node:
        """Return an empty node. Raises `StartError`."""
        assert self.machine is not None
        return Node(self.machine, self.config, profile=self.profile, devices=self.devices, policy=self.policy)


class FileSubject(NamedTuple):
    """A file: its documents, and the keys that an object of it has more than once."""

    documents: Sequence[Any]
    duplicates: Sequence[DuplicateKey]


class TemplateOrigin(NamedTuple):
    """The object of a pod template: the path to it in its document, and the fields of the pod's metadata that are the
    object's."""

    path: str
    owned: frozenset[str]


class ContainerPath(NamedTuple):
    """A container and the path to it; `kind` is `container`, `init` or `sidecar`."""

    path: str
    container: Container
    kind: str

    @property
    def requests(self) -> ResourceList:
        """The container's own requests."""
        return requests_of(self.container.resources)

    @property
    def limits(self) -> ResourceList:
        """The container's own limits."""
        return limits_of(self.container.resources)


class PodSubject:
    """A pod as written; `pod` is the same after defaulting. `node` is None when no configuration is known, `policy`
    when no policy is. `unknown_fields` has paths inside the document; `claimed` maps the names of the pod's claims to
    the amounts that they are for. `template` is None for a pod that is an object itself."""

    def __init__(
        self,
        written: Pod,
        node: NodeSubject | None = None,
        *,
        profile: str = "podslice",
        unknown_fields: tuple[UnknownField, ...] = (),
        policy: PodslicePolicy | None = None,
        claimed: Mapping[str, ResourceList] | None = None,
        template: TemplateOrigin | None = None,
    ) -> None:
        self.template = template
        self.policy = policy
        self.claimed = claimed or {}
        self.written = written
        self.unknown_fields = unknown_fields
        self.node = node
        self.gates: Mapping[str, bool] = default_gates(profile) if node is None else node.gates
        self.profile = profile if node is None else node.profile
        self.quirks = PROFILES[self.profile]
        # Rules look at the pod as the API server stores it; paths and spelling are those of `written`.
        self.pod = default_pod(written, self.gates)

    @property
    def static_cpus(self) -> bool | None:
        """Whether the node assigns exclusive CPUs; None when it is not known."""
        return None if self.node is None else self.node.static_cpus

    @cached_property
    def places(self) -> tuple[ContainerPath, ...]:
        """Init containers, then app containers."""
        return tuple(self._places())

    def _places(self) -> Iterator[ContainerPath]:
        for index, container in enumerate(self.pod.spec.init_containers):
            kind = "sidecar" if is_restartable_init(container) else "init"
            yield ContainerPath(f"spec.initContainers[{index}]", container, kind)
        for index, container in enumerate(self.pod.spec.containers):
            yield ContainerPath(f"spec.containers[{index}]", container, "container")

    @cached_property
    def qos(self) -> str:
        """The QoS class of the defaulted pod."""
        return compute_qos(self.pod, self.gates)

    @cached_property
    def admission(self) -> AdmissionPod:
        """The pod as the resource managers see it."""
        return make_admission_pod(
            self.policy or NO_POLICY, self.pod, self.gates, release=PROFILE_RELEASES[self.profile]
        )

    @cached_property
    def requests(self) -> dict[str, Quantity]:
        """Effective requests with overhead."""
        return pod_requests(self.pod, pod_level=self.gates["PodLevelResources"])

    @cached_property
    def limits(self) -> dict[str, Quantity]:
        """Effective limits with overhead."""
        return pod_limits(self.pod, pod_level=self.gates["PodLevelResources"])

    @property
    def pod_requests(self) -> ResourceList:
        """`spec.resources.requests`."""
        return requests_of(self.pod.spec.resources) if self.pod.spec.resources is not None else {}

    @property
    def pod_limits(self) -> ResourceList:
        """`spec.resources.limits`."""
        return limits_of(self.pod.spec.resources) if self.pod.spec.resources is not None else {}


def default_gates(profile: str) -> FeatureGates:
    """Return the gates of a profile without overrides."""
    return FeatureGates.from_overrides({}, fixes=later_gates(PROFILES[profile]), release=PROFILE_RELEASES[profile])
