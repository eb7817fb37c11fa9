"""The guards of a node whose policy asks for them: each pass over the node looks at the kernel's files, too."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import Protocol, get_args

from podslice.agent.guards import FileGuard, GuardNews
from podslice.agent.metrics import Metrics
from podslice.agent.owner import Owner
from podslice.core.config.policy import InterferenceGuards
from podslice.core.guards.files import Guard, GuardedFile, bits_in, same
from podslice.core.guards.holders import GuardedHolder, claimed, guarded_cpus, holders
from podslice.core.guards.housekeeping import UNITS, housekeeping_files
from podslice.core.guards.partition import PARTITION, PartitionWish, partition_files, partition_paths
from podslice.core.guards.power import CPUPower, power_wishes
from podslice.core.values.cpuset import Bits, format_bits, iter_bits
from podslice.core.view import NodeView
from podslice.host.cgroup2 import cgroup_path
from podslice.host.kernelfiles import KernelFiles, SavedStore, node_cpus
from podslice.host.powerfiles import CPUS, read_power

_AT_A_TIME = 16
_MOST_SAID = 256


class GuardTelling(Protocol):
    """Tells people; an event is about the node."""

    def trouble(self, kind: str, text: str) -> None: ...
    def event(self, reason: str, text: str) -> None: ...


class NodeGuards:
    """Looks after the owner's exclusive CPUs. With `observe` it only counts. What an agent that was killed has changed
    is taken over from the store, and given back where nobody needs it any more. `mount` is where cgroups are, below the
    root of the files."""

    def __init__(
        self,
        owner: Owner,
        files: KernelFiles,
        store: SavedStore,
        metrics: Metrics,
        *,
        said: GuardTelling,
        mount: str = "sys/fs/cgroup",
        observe: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._owner = owner
        self._files = files
        self._metrics = metrics
        self._say = said
        self._mount = mount
        self._observe = observe
        self._guard = FileGuard(files, store, clock=clock)
        self._loaded = False
        self._power: dict[int, CPUPower] = {}
        self._said: set[str] = set()

    async def look(self) -> None:
        """One pass; the agent's other work goes on in between."""
        node = self._owner.node
        if node is None or self._owner.safe_mode:
            return
        view = node.view
        rules = view.policy.guards
        if not self._load() or (rules is None and not self._guard.changed):
            return
        online = view.topology.all_cpus & ~view.offline
        found = list(holders(view))
        guarded = guarded_cpus(found, view.topology.cores.values()) & online
        wished = list(self._wished(rules, view, found))
        masks = await self._masks(claimed(found)) if rules is not None else []
        if not self._observe:
            enforced = [one for one in wished if _enforces(rules, one.guard)]
            irq = _enforces(rules, "irq")
            files = [*(masks if irq else []), *enforced]
            known = {file.path for file in files}
            files += [file for file in self._files.saved(self._guard.saved.values()) if file.path not in known]
            self._run(files, guarded if irq else 0, online)
        self._count("irq", sum(bool(bits_in(self._text(one), one.form) & guarded & ~_claims(one)) for one in masks))
        for guard in get_args(Guard)[1:]:
            mine = [one for one in wished if one.guard == guard and one.wanted is not None]
            self._count(guard, sum(not same(self._text(one), one.wanted or "", one.form) for one in mine))

    def restore(self) -> None:
        """All files say again what they said, as far as nobody else has written them."""
        if self._observe or not self._load() or not self._guard.changed:
            return
        self._run(list(self._files.saved(self._guard.saved.values())), 0, self._owner.machine.cpus.bits)

    # What there is

    async def _masks(self, claims: dict[str, Bits]) -> list[GuardedFile]:
        """Interrupts, queues and workqueues; an interrupt that containers claim is to go to their CPUs."""
        found: list[GuardedFile] = []
        for file in self._files.masks(node_cpus(self._files)):
            number = file.path.split("/")[2]
            if claims and number.isdecimal():
                devices = self._files.devices_of(number)
                wanted = 0
                for glob, cpus in claims.items():
                    wanted |= cpus if any(fnmatchcase(device, glob) for device in devices) else 0
                if wanted:
                    file = file._replace(wanted=format_bits(wanted))
            found.append(file)
            if len(found) % _AT_A_TIME == 0:
                await asyncio.sleep(0)
        return found

    def _wished(
        self, rules: InterferenceGuards | None, view: NodeView, found: list[GuardedHolder]
    ) -> Iterator[GuardedFile]:
        if rules is None:
            return
        yield from self._partitions(view, found)
        yield from self._housekeeping(view)
        profiles = {
            cpu: rules.power_profiles[one.power]
            for one in found
            if one.power in rules.power_profiles
            for cpu in iter_bits(one.cpus)
        }
        self._power = {cpu: self._power.get(cpu) or read_power(self._files, cpu) for cpu in profiles}
        power = power_wishes(profiles, self._power)
        for cpu, lacks in power.missing.items():
            self._once("guard", f"power: CPU {cpu} has no {', '.join(lacks)}")
        paths = {f"{CPUS}/{path}": text for path, text in power.files.items()}
        for path, text in self._files.texts(paths).items():
            yield GuardedFile(path, "value", text, guard="power", wanted=paths[path])

    def _housekeeping(self, view: NodeView) -> Iterator[GuardedFile]:
        """Of the system's units, and of sandboxes, for which reserved CPUs do."""
        online = view.topology.all_cpus & ~view.offline
        housekeeping = online & ~view.owned
        if not view.owned or not housekeeping:
            return
        saved, mount = self._guard.saved, self._mount
        units = self._files.texts(f"{mount}/{unit}/cpuset.cpus" for unit in UNITS)
        yield from housekeeping_files(units, saved, guard="units", housekeeping=housekeeping)
        cgroups = {cgroup_path(pod.identity.sandbox_cgroup) for pod in self._owner.pods.values()} - {None}
        sandboxes = self._files.texts(f"{mount}/{path}/cpuset.cpus" for path in sorted(map(str, cgroups)))
        yield from housekeeping_files(
            sandboxes, saved, guard="sandboxes", housekeeping=housekeeping & view.reserved or housekeeping
        )

    def _partitions(self, view: NodeView, found: list[GuardedHolder]) -> Iterator[GuardedFile]:
        """Of containers that run on their CPUs and nothing else."""
        kinds = {(one.uid, one.container): one for one in found if one.container and one.isolation != "shared"}
        wishes = []
        for record in self._owner.containers.values():
            holder = kinds.get((record.unit, record.member))
            path = cgroup_path(record.cgroups_path)
            if holder is None or path is None or not record.started or record.applied.cpus != holder.cpus:
                continue
            if not self._guard.is_paused(f"{self._mount}/{path}/{PARTITION}"):
                wishes.append(PartitionWish(path, holder.cpus, holder.isolation))
        prefix = f"{self._mount}/"
        texts = self._files.texts(prefix + path for path in partition_paths(wishes))
        below = {path.removeprefix(prefix): text for path, text in texts.items()}
        yield from partition_files(wishes, below, self._guard.saved, mount=self._mount)

    # Doing and telling

    def _load(self) -> bool:
        """False where nothing is known of what was changed: then nothing is changed either."""
        if not self._loaded:
            try:
                self._guard.load()
            except (ValueError, OSError) as error:
                self._say.trouble("guard", str(error))
                return False
            self._loaded = True
        return True

    def _run(self, found: list[GuardedFile], guarded: Bits, online: Bits) -> None:
        try:
            news = self._guard.run(found, guarded=guarded, online=online)
        except OSError as error:
            self._say.trouble("guard", f"old values cannot be stored, so nothing is changed: {error}")
            return
        self._tell(news, {file.path: file.guard for file in found})

    def _tell(self, news: GuardNews, guard_of: dict[str, Guard]) -> None:
        for result, paths in (("written", news.written), ("restored", news.restored), ("refused", news.refused)):
            for path in paths:
                self._metrics.guard_writes.labels(guard_of[path], result).inc()
        for path in news.refused:
            why = "cannot be moved: managed, or not writable" if guard_of[path] == "irq" else "does not take the value"
            self._say.trouble("guard", f"{self._files.device_of(path)} {why}")
        for path in news.contested:
            self._metrics.guard_contested.labels(guard_of[path]).inc()
            text = f"{self._files.device_of(path)} is left to another program that keeps changing it"
            self._say.trouble("guard", text)
            self._say.event("PodsliceGuardContested", text)

    def _once(self, kind: str, text: str) -> None:
        if text not in self._said and len(self._said) < _MOST_SAID:
            self._said.add(text)
            self._say.trouble(kind, text)

    def _count(self, guard: str, count: int) -> None:
        self._metrics.guard_open.labels(guard).set(count)

    def _text(self, file: GuardedFile) -> str:
        return self._files.texts([file.path]).get(file.path, "")


def _claims(file: GuardedFile) -> Bits:
    return 0 if file.wanted is None else bits_in(file.wanted, file.form)


def _enforces(rules: InterferenceGuards | None, guard: Guard) -> bool:
    return rules is not None and getattr(rules, guard) == "enforce"
