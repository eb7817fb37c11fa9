"""What a CPU Manager is told once and never changes: the machine, the policy and what is reserved."""

from __future__ import annotations

import msgspec

from podslice.core.allocate.cpu_resize import ResizePicker
from podslice.core.allocate.picker import Picker
from podslice.core.machine.topology import CPUTopology, whole_objects
from podslice.core.plugins.profile import PluginProfile
from podslice.core.quirks import Quirks
from podslice.core.values.cpu_policy_options import CPUPolicyOptions
from podslice.core.values.cpuset import Bits


class CPURules(msgspec.Struct, frozen=True):
    """Policy `none` or `static` on one machine. `core_size` are the CPUs of a core, on average, when the node began.
    `reserved` are the CPUs kept for the system, `reserved_physical` all CPUs of their cores; `pod_level` is the gate
    PodLevelResourceManagers; `picker` knows how CPUs are picked, and `resizer` how those of a container that is
    resized; None: containers keep what they have. `plugins`: None where the policy names none.
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
