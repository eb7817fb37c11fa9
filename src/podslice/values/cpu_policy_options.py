"""The six options of the CPU Manager's static policy (cpu-topology 3.3), as parsed."""

from __future__ import annotations

import msgspec


class CPUPolicyOptions(msgspec.Struct, frozen=True):
    """One flag per option of `cpuManagerPolicyOptions`; names as upstream's with underscores."""

    full_pcpus_only: bool = False
    strict_cpu_reservation: bool = False
    prefer_align_cpus_by_uncorecache: bool = False
    distribute_cpus_across_numa: bool = False
    align_by_socket: bool = False
    distribute_cpus_across_cores: bool = False


CPU_POLICY_OPTIONS: tuple[str, ...] = tuple(name.replace("_", "-") for name in CPUPolicyOptions.__struct_fields__)
"""The options by upstream's names, for everything that lists options."""
