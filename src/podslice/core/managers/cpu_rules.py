"""What a CPU Manager is told once and never changes: the machine, the policy and what is reserved."""

from __future__ import annotations

import msgspec

from podslice.core.allocate.cpu_resize import ResizePicker
from podslice.core.allocate.picker import Picker
from podslice.core.classes.mixed import MixedPool, mixed_pool
from podslice.core.classes.resolve import CPUClasses, classes_for
from podslice.core.config.policy import PodslicePolicy
from podslice.core.machine.model import Machine
from podslice.core.machine.topology import CPUTopology, whole_objects
from podslice.core.plugins.profile import PluginProfile
from podslice.core.plugins.resolve import profile_for
from podslice.core.quirks import Quirks
from podslice.core.values.cpu_policy_options import CPUPolicyOptions
from podslice.core.values.cpuset import Bits


class CPURules(msgspec.Struct, frozen=True):
    """Policy `none` or `static` on one machine. `core_size` are the CPUs of a core, on average, when the node began.
    `reserved` are the CPUs kept for the system, `reserved_physical` all CPUs of their cores; `pod_level` is the gate
    PodLevelResourceManagers; `picker` knows how CPUs are picked, and `resizer` how those of a container that is
    resized; None: containers keep what they have. `plugins`, `classes`, `mixed`: None where the policy has none.
    """

    topology: CPUTopology
    policy: str
    options: CPUPolicyOptions
    reserved: Bits
    reserved_physical: Bits
    pod_level: bool
    picker: Picker
    static: bool
    resizer: ResizePicker | None
    core_size: int = 1
    plugins: PluginProfile | None = None
    classes: CPUClasses | None = None
    mixed: MixedPool | None = None

    def with_policy(self, policy: PodslicePolicy, machine: Machine) -> CPURules:
        """With the plugins, classes and mixed CPUs of a policy, if it has some. Raises `StartError`."""
        sections = policy.plugins.profile, policy.cpu_classes, policy.mixed is not None, policy.claims is not None
        if not self.static or not any(sections):
            return self
        classes = classes_for(
            policy,
            machine,
            self.topology,
            reserved=self.reserved,
            strict=self.options.strict_cpu_reservation,
            whole_cores=self.options.full_pcpus_only,
        )
        plugins = profile_for(policy, machine, self.topology, classes)
        offline = machine.offline.bits
        mixed = mixed_pool(policy.mixed, self.topology, reserved=self.reserved, classes=classes, offline=offline)
        return msgspec.structs.replace(self, plugins=plugins, classes=classes, mixed=mixed)

    def reserving(self, reserved: Bits) -> CPURules:
        """The same rules with other CPUs kept for the system."""
        physical = whole_objects(self.topology.cores, reserved)
        return msgspec.structs.replace(self, reserved=reserved, reserved_physical=physical)

    @classmethod
    def of(
        cls,
        topology: CPUTopology,
        policy: str = "none",
        *,
        options: CPUPolicyOptions | None = None,
        reserved: Bits = 0,
        pod_level: bool,
        elastic: bool = False,
        aligned: bool = False,
        quirks: Quirks,
    ) -> CPURules:
        """The rules of a policy; `elastic`: containers with exclusive CPUs can be resized, and then `aligned`: within
        the NUMA nodes of their affinity."""
        options = options or CPUPolicyOptions()
        physical = whole_objects(topology.cores, reserved)
        picker = Picker(topology, options, quirks)
        resizer = ResizePicker(topology, options, quirks, aligned=aligned) if elastic else None
        static = policy == "static"
        per_core = topology.cpus_per_core
        return cls(topology, policy, options, reserved, physical, pod_level, picker, static, resizer, per_core)
