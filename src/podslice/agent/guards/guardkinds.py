"""The guards of a node: the kernel's files of each, and their wanted contents."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple

from podslice.agent.owner import Owner
from podslice.config.policy import InterferenceGuards
from podslice.guards.holders import GuardedHolder, claims_by_device, guarded_cpus
from podslice.guards.housekeeping import UNITS, housekeeping_files
from podslice.guards.monitoring import monitor_files
from podslice.guards.partition import PARTITION, choose_partitions, partition_files, partition_paths
from podslice.guards.power import CPUPower, power_files
from podslice.guards.resctrl import cache_groups
from podslice.host.kernel.cgroup2 import cgroup_path
from podslice.host.kernel.kernelfiles import CPUS, KernelFiles, node_cpus, read_power
from podslice.host.kernel.resctrl import read_last_error, read_monitors, read_resctrl
from podslice.node.checkpoints.guard_files import Guard, GuardedFile, SavedFile
from podslice.node.view import NodeView
from podslice.values.cpuset import Bits, format_bits, iter_bits, parse_bits_or_empty


class GuardScene(NamedTuple):
    """The input of a pass: the policy's rules, the node, the holders of CPUs, and the kernel's files.

    `mount`: of the cgroups. `saved`: old values by path. `is_paused`: whether a file is left alone for a while.
    `lacks`: gets messages about what the machine does not support.
    """

    rules: InterferenceGuards
    owner: Owner
    view: NodeView
    holders: tuple[GuardedHolder, ...]
    files: KernelFiles
    mount: str
    saved: Mapping[str, SavedFile]
    is_paused: Callable[[str], bool]
    lacks: Callable[[str], None]

    @property
    def online(self) -> Bits:
        """CPUs that are online."""
        return self.view.topology.all_cpus & ~self.view.offline

    @property
    def unowned(self) -> Bits:
        """CPUs that are online and have no owner."""
        return self.online & ~self.view.owned

    @property
    def free(self) -> Bits:
        """CPUs for everything else: the housekeeping CPUs of the policy without an owner, or all CPUs without an
        owner."""
        # `&` binds before `or`: all CPUs without an owner where no housekeeping CPU is among them.
        return self.unowned & parse_bits_or_empty(self.rules.housekeeping_cpus) or self.unowned


class NodeGuard(ABC):
    """A guard; `name` is its field in the policy."""

    name: Guard

    @abstractmethod
    def files(self, scene: GuardScene) -> Iterator[GuardedFile | None]:
        """Yield its files with their present and wanted contents, in the order in which they must be written.

        Yields None after a look at anything else, so that the agent's other work can go on in between.
        """

    def refusal_reason(self, files: KernelFiles) -> str:
        """Return why one of its files did not take a value."""
        return "does not take the value"


class InterruptGuard(NodeGuard):
    """Moves interrupts, queues and unbound workqueues off exclusive CPUs, and claimed interrupts to their claimants."""

    name: Guard = "irq"

    def files(self, scene: GuardScene) -> Iterator[GuardedFile]:
        claims = claims_by_device(scene.holders)
        avoid = guarded_cpus(scene.holders, scene.view.topology.cores.values()) & scene.online
        housekeeping = parse_bits_or_empty(scene.rules.housekeeping_cpus) & scene.online & ~avoid
        for file in scene.files.masks(node_cpus(scene.files)):
            wanted = _claimed_cpus(file, claims, scene) & scene.online
            yield file._replace(
                wanted=format_bits(wanted) if wanted else None,
                avoid=avoid,
                rest=file.rest & housekeeping or housekeeping or file.rest,
            )

    def refusal_reason(self, files: KernelFiles) -> str:
        return "cannot be moved: managed, or not writable"


def _claimed_cpus(file: GuardedFile, claims: Mapping[str, Bits], scene: GuardScene) -> Bits:
    """Return the CPUs of the containers that claim this interrupt, 0 for none."""
    # proc/irq/<number>/smp_affinity_list; files of queues and workqueues have no number there, and no claimant.
    number = file.path.split("/")[2]
    if not claims or not number.isdecimal():
        return 0
    devices = scene.files.devices_of(number)
    wanted = 0
    for glob, cpus in claims.items():
        wanted |= cpus if any(fnmatchcase(device, glob) for device in devices) else 0
    return wanted


class PartitionGuard(NodeGuard):
    """Makes partitions of cgroups: of containers that run on exactly their CPUs, and of pods that share CPUs of their
    own."""

    name: Guard = "partition"

    def files(self, scene: GuardScene) -> Iterator[GuardedFile]:
        prefix = f"{scene.mount}/"
        partitions = [
            one
            for one in choose_partitions(scene.holders, self._cgroups(scene))
            if not scene.is_paused(f"{prefix}{one.path}/{PARTITION}")
        ]
        texts = scene.files.texts(prefix + path for path in partition_paths(partitions))
        below = {path.removeprefix(prefix): text for path, text in texts.items()}
        yield from partition_files(partitions, below, scene.saved, mount=scene.mount)

    def _cgroups(self, scene: GuardScene) -> Iterator[tuple[str, str, str, Bits | None]]:
        """Yield pod, name, cgroup path and applied CPUs of the running containers."""
        for record in scene.owner.containers.values():
            path = cgroup_path(record.cgroups_path)
            # Before the start the cgroup has no process, and the runtime has yet to write its cpuset.
            if path is not None and record.started:
                yield record.unit, record.member, path, record.applied.cpus


class HousekeepingGuard(NodeGuard):
    """Moves cgroups without CPUs of their own off exclusive CPUs.

    `cgroups`: their paths. `places`: the CPUs for those that would have none left.
    """

    def __init__(
        self, name: Guard, cgroups: Callable[[GuardScene], Iterable[str]], places: Callable[[GuardScene], Bits]
    ) -> None:
        self.name: Guard = name
        self._cgroups = cgroups
        self._places = places

    def files(self, scene: GuardScene) -> Iterator[GuardedFile]:
        free = scene.unowned
        # With every online CPU owned there is nowhere else to run, so nothing is moved.
        if scene.view.owned and free:
            texts = scene.files.texts(f"{scene.mount}/{path}/cpuset.cpus" for path in self._cgroups(scene))
            yield from housekeeping_files(
                texts, scene.saved, guard=self.name, free=free, housekeeping=self._places(scene)
            )


def _sandboxes(scene: GuardScene) -> list[str]:
    cgroups = {cgroup_path(pod.identity.sandbox_cgroup) for pod in scene.owner.pods.values()} - {None}
    return sorted(map(str, cgroups))


class KernelThreadGuard(NodeGuard):
    """Moves threads of the kernel off exclusive CPUs, unless they are bound to a CPU."""

    name: Guard = "kthreads"

    def files(self, scene: GuardScene) -> Iterator[GuardedFile | None]:
        avoid = scene.online & scene.view.owned
        if not avoid:
            return
        for path in scene.files.kernel_threads():
            if path is None:
                # A process that is not a movable kernel thread: a large machine has thousands, each read by itself.
                yield None
                continue
            for text in scene.files.texts([path]).values():
                yield GuardedFile(path, "list", text, self.name, avoid=avoid, rest=scene.free)

    def refusal_reason(self, files: KernelFiles) -> str:
        return "cannot be moved"


class PowerGuard(NodeGuard):
    """Sets clock and idle states of exclusive CPUs by the power profiles of their containers."""

    name: Guard = "power"

    def __init__(self) -> None:
        self._cpus: dict[int, CPUPower] = {}

    def files(self, scene: GuardScene) -> Iterator[GuardedFile]:
        profiles = {
            cpu: scene.rules.power_profiles[one.power]
            for one in scene.holders
            if one.power in scene.rules.power_profiles
            for cpu in iter_bits(one.cpus)
        }
        # The controls of a CPU do not change while it has a profile, so they are read once.
        self._cpus = {cpu: self._cpus.get(cpu) or read_power(scene.files, cpu) for cpu in profiles}
        power = power_files(profiles, self._cpus)
        for cpu, lacks in power.missing.items():
            scene.lacks(f"power: CPU {cpu} has no {', '.join(lacks)}")
        paths = {f"{CPUS}/{path}": text for path, text in power.files.items()}
        for path, text in scene.files.texts(paths).items():
            yield GuardedFile(path, "value", text, self.name, paths[path])


class CacheGuard(NodeGuard):
    """Sets cache ways and memory bandwidth of exclusive CPUs by the cache classes of their containers."""

    name: Guard = "cache"

    def files(self, scene: GuardScene) -> Iterator[GuardedFile]:
        classes = scene.rules.cache_classes
        cpus: dict[str, Bits] = {}
        for one in scene.holders:
            if one.cache in classes:
                cpus[one.cache] = cpus.get(one.cache, 0) | one.cpus
        monitors = scene.rules.cache == "enforce" and scene.rules.metrics != "off"
        if not cpus and not (monitors and scene.holders):
            return
        facts = read_resctrl(scene.files, scene.saved)
        if facts is None:
            if cpus:
                scene.lacks("cache: resctrl is not mounted at /sys/fs/resctrl")
            return
        groups = cache_groups(classes, cpus, facts)
        for text in groups.lacks:
            scene.lacks(text)
        yield from groups.files
        if monitors:
            # Monitoring groups need RMIDs, of which every new control group takes one as well.
            made = {one.path for one in groups.files if not scene.is_paused(one.path)}
            known = read_monitors(scene.files, scene.saved)
            more = sum(one.path.endswith("/") for one in groups.files) - len(facts.groups)
            known = known._replace(room=max(0, known.room - more))
            yield from monitor_files(scene.holders, made, facts.others, known)

    def refusal_reason(self, files: KernelFiles) -> str:
        return read_last_error(files) or super().refusal_reason(files)


def all_guards() -> tuple[NodeGuard, ...]:
    """Return the guards, in the order in which they write."""
    return (
        InterruptGuard(),
        PartitionGuard(),
        HousekeepingGuard("units", lambda scene: UNITS, lambda scene: scene.free),
        HousekeepingGuard("sandboxes", _sandboxes, lambda scene: scene.free & scene.view.reserved or scene.free),
        KernelThreadGuard(),
        PowerGuard(),
        CacheGuard(),
    )
