"""How the agent reaches the host that it runs on."""

from __future__ import annotations

from typing import NamedTuple

from podslice.agent.hotplug import MachineSource
from podslice.host.boot import Boot
from podslice.host.kernel.cgroup2 import CgroupTree
from podslice.host.kernel.filewrites import FileWrites
from podslice.host.kernel.kernelfiles import KernelFiles


class HostAccess(NamedTuple):
    """What the agent may use of its host; it does without a part that is None.

    `boot`: this boot. `kernel`: the files that guards write and measurements read. `tree`: the cgroups, None for those
    of the settings. `writes`: reports written cgroup files. `machine`: reads the machine again, where it can change.
    """

    boot: Boot | None = None
    kernel: KernelFiles | None = None
    tree: CgroupTree | None = None
    writes: FileWrites | None = None
    machine: MachineSource | None = None
