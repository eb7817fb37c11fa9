"""Each guard of a node: which files of the kernel it is about, and what they should say now."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple

from podslice.agent.owner import Owner
from podslice.config.policy import InterferenceGuards
from podslice.guards.holders import GuardedHolder, claimed, guarded_cpus
from podslice.guards.housekeeping import UNITS, housekeeping_files
from podslice.guards.monitoring import monitor_files
from podslice.guards.partition import PARTITION, partition_files, partition_paths, partition_wishes
from podslice.guards.power import CPUPower, power_wishes
from podslice.guards.resctrl import cache_wishes
from podslice.host.kernel.cgroup2 import cgroup_path
from podslice.host.kernel.kernelfiles import KernelFiles, node_cpus
from podslice.host.kernel.powerfiles import CPUS, read_power
from podslice.host.kernel.resctrl import read_monitors, read_resctrl, why_refused
from podslice.node.checkpoints.guard_files import Guard, GuardedFile, SavedFile
from podslice.node.view import NodeView
from podslice.values.cpuset import Bits, format_bits, iter_bits, parse_bits_or_empty


class GuardScene(NamedTuple):
    """What a pass goes by: the policy's rules, the node, who has CPUs of its own, and where the kernel's files are.
    `is_paused`: a file is left alone for a while; `lacks` is told what cannot be had."""

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
        return self.view.topology.all_cpus & ~self.view.offline

    @property
    def unowned(self) -> Bits:
        """CPUs that are online and that nobody owns."""
        return self.online & ~self.view.owned

    @property
    def free(self) -> Bits:
        """CPUs that nobody owns; those for housekeeping, if the policy names some of them."""
        return self.unowned & parse_bits_or_empty(self.rules.housekeeping_cpus) or self.unowned


class NodeGuard(ABC):
    """One of them."""

    name: Guard

    @abstractmethod
    def files(self, scene: GuardScene) -> Iterator[GuardedFile | None]:
        """Its files as they are, with what they should say; in the order in which they are to be written; None after a
        look at something that is none of its files, so that the agent's other work can go on in between."""

    def why(self, files: KernelFiles) -> str:
        """Why one of its files did not take what was written."""
        return "does not take the value"


class InterruptGuard(NodeGuard):
    """Interrupts, queues and unbound workqueues leave exclusive CPUs; an interrupt that containers claim goes to
    theirs."""

    name: Guard = "irq"

    def files(self, scene: GuardScene) -> Iterator[GuardedFile]:
        claims = claimed(scene.holders)
        avoid = guarded_cpus(scene.holders, scene.view.topology.cores.values()) & scene.online
        housekeeping = parse_bits_or_empty(scene.rules.housekeeping_cpus) & scene.online & ~avoid
        for file in scene.files.masks(node_cpus(scene.files)):
            wanted = _claimed(file, claims, scene) & scene.online
            yield file._replace(
                wanted=format_bits(wanted) if wanted else None,
                avoid=avoid,
                rest=file.rest & housekeeping or housekeeping or file.rest,
            )

    def why(self, files: KernelFiles) -> str:
        return "cannot be moved: managed, or not writable"


def _claimed(file: GuardedFile, claims: Mapping[str, Bits], scene: GuardScene) -> Bits:
    number = file.path.split("/")[2]
    if not claims or not number.isdecimal():
        return 0
    devices = scene.files.devices_of(number)
    wanted = 0
    for glob, cpus in claims.items():
        wanted |= cpus if any(fnmatchcase(device, glob) for device in devices) else 0
    return wanted


class PartitionGuard(NodeGuard):
    """Of containers that run on their CPUs and nothing else, and of pods whose containers share CPUs of their own."""

    name: Guard = "partition"

    def files(self, scene: GuardScene) -> Iterator[GuardedFile]:
        prefix = f"{scene.mount}/"
        wishes = [
            one
            for one in partition_wishes(scene.holders, self._cgroups(scene))
            if not scene.is_paused(f"{prefix}{one.path}/{PARTITION}")
        ]
        texts = scene.files.texts(prefix + path for path in partition_paths(wishes))
        below = {path.removeprefix(prefix): text for path, text in texts.items()}
        yield from partition_files(wishes, below, scene.saved, mount=scene.mount)

    def _cgroups(self, scene: GuardScene) -> Iterator[tuple[str, str, str, Bits | None]]:
        """Of containers that run: pod, name, path, and the CPUs that they were told to run on."""
        for record in scene.owner.containers.values():
            path = cgroup_path(record.cgroups_path)
            if path is not None and record.started:
                yield record.unit, record.member, path, record.applied.cpus


class HousekeepingGuard(NodeGuard):
    """What else runs on a node leaves exclusive CPUs: `cgroups` are whose, `places` the CPUs for those that have no
    other ones left."""

    def __init__(
        self, name: Guard, cgroups: Callable[[GuardScene], Iterable[str]], places: Callable[[GuardScene], Bits]
    ) -> None:
        self.name: Guard = name
        self._cgroups = cgroups
        self._places = places

    def files(self, scene: GuardScene) -> Iterator[GuardedFile]:
        free = scene.unowned
        if scene.view.owned and free:
            texts = scene.files.texts(f"{scene.mount}/{path}/cpuset.cpus" for path in self._cgroups(scene))
            yield from housekeeping_files(
                texts, scene.saved, guard=self.name, free=free, housekeeping=self._places(scene)
            )


def _sandboxes(scene: GuardScene) -> list[str]:
    cgroups = {cgroup_path(pod.identity.sandbox_cgroup) for pod in scene.owner.pods.values()} - {None}
    return sorted(map(str, cgroups))


class KernelThreadGuard(NodeGuard):
    """Threads of the kernel that belong to no CPU, and may be moved, leave exclusive ones."""

    name: Guard = "kthreads"

    def files(self, scene: GuardScene) -> Iterator[GuardedFile | None]:
        avoid = scene.online & scene.view.owned
        if not avoid:
            return
        for path in scene.files.kernel_threads():
            if path is None:
                yield None
                continue
            for text in scene.files.texts([path]).values():
                yield GuardedFile(path, "list", text, self.name, avoid=avoid, rest=scene.free)

    def why(self, files: KernelFiles) -> str:
        return "cannot be moved"


class PowerGuard(NodeGuard):
    """Clock and sleep of exclusive CPUs are what their containers ask for."""

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
        self._cpus = {cpu: self._cpus.get(cpu) or read_power(scene.files, cpu) for cpu in profiles}
        power = power_wishes(profiles, self._cpus)
        for cpu, lacks in power.missing.items():
            scene.lacks(f"power: CPU {cpu} has no {', '.join(lacks)}")
        paths = {f"{CPUS}/{path}": text for path, text in power.files.items()}
        for path, text in scene.files.texts(paths).items():
            yield GuardedFile(path, "value", text, self.name, paths[path])


class CacheGuard(NodeGuard):
    """Exclusive CPUs have the ways of caches and the memory bandwidth of their containers' classes."""

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
        wishes = cache_wishes(classes, cpus, facts)
        for text in wishes.lacks:
            scene.lacks(text)
        yield from wishes.files
        if monitors:
            made = {one.path for one in wishes.files if not scene.is_paused(one.path)}
            known = read_monitors(scene.files, scene.saved)
            more = sum(one.path.endswith("/") for one in wishes.files) - len(facts.groups)
            known = known._replace(room=max(0, known.room - more))
            yield from monitor_files(scene.holders, made, facts.others, known)

    def why(self, files: KernelFiles) -> str:
        return why_refused(files) or super().why(files)


def all_guards() -> tuple[NodeGuard, ...]:
    """One of each, in the order in which they write."""
    return (
        InterruptGuard(),
        PartitionGuard(),
        HousekeepingGuard("units", lambda scene: UNITS, lambda scene: scene.free),
        HousekeepingGuard("sandboxes", _sandboxes, lambda scene: scene.free & scene.view.reserved or scene.free),
        KernelThreadGuard(),
        PowerGuard(),
        CacheGuard(),
    )
