"""What a CPU Manager is told once and never changes: the machine, the policy and what is reserved."""

from __future__ import annotations

import msgspec

from podslice.core.allocate.picker import Picker
from podslice.core.machine.topology import CPUTopology, whole_objects
from podslice.core.quirks import Quirks
from podslice.core.values.cpu_policy_options import CPUPolicyOptions
from podslice.core.values.cpuset import Bits


class CPURules(msgspec.Struct, frozen=True):
    """Policy `none` or `static` on one machine. `reserved` are the CPUs kept for the system, `reserved_physical` all
    CPUs of their cores; `pod_level` is the gate PodLevelResourceManagers; `picker` knows how CPUs are picked."""

    topology: CPUTopology
    policy: str
    options: CPUPolicyOptions
    reserved: Bits
    reserved_physical: Bits
    pod_level: bool
    picker: Picker
    static: bool

    @classmethod
    def of(
        cls,
        topology: CPUTopology,
        policy: str = "none",
        *,
        options: CPUPolicyOptions | None = None,
        reserved: Bits = 0,
        pod_level: bool,
        quirks: Quirks,
    ) -> CPURules:
        """The rules of a policy."""
        options = options or CPUPolicyOptions()
        physical = whole_objects(topology.cores, reserved)
        picker = Picker(topology, options, quirks)
        return cls(topology, policy, options, reserved, physical, pod_level, picker, static=policy == "static")
