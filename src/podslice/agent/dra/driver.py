"""The driver put together: claims of this node in the agent's books, the kubelet's sockets, and slices.

All of it hangs on the setting `dra`; without it nothing here is made.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import msgspec

from podslice.agent.dra.book import ClaimBook
from podslice.agent.dra.cdi import CDIFiles
from podslice.agent.dra.claimfiles import ClaimFiles
from podslice.agent.dra.publisher import LOOK_SECONDS, Publisher, SliceServer
from podslice.agent.dra.service import ClaimReader, DRAService
from podslice.agent.owner import Owner
from podslice.agent.settings import DRASettings
from podslice.core.dra.cgroups import kubelet_adds
from podslice.core.dra.numa_devices import ClaimableAmounts, device_name, machine_slices, pool_name
from podslice.core.dra.prepared import ClaimError
from podslice.core.managers.memory_rules import claim_memory
from podslice.core.node import Node
from podslice.core.values.cpuset import CPUSet, format_bits, parse_bits
from podslice.k8s.podlist import ApiError

CLEAN_SECONDS = 60.0
STALE_SECONDS = 600.0
VERSION_SECONDS = 20.0
_LARGEST_CHECKPOINT = 64 << 20


class ClaimsServer(ClaimReader, SliceServer, Protocol):
    """What the driver asks of an API server. Every call may raise `ApiError`."""

    async def kubelet_version(self, node: str) -> str: ...


class _KubeletsClaim(msgspec.Struct):
    uid: str = msgspec.field(default="", name="ClaimUID")
    pods: dict[str, Any] | None = msgspec.field(default=None, name="PodUIDs")


class _ClaimList(msgspec.Struct):
    claims: list[_KubeletsClaim] | None = msgspec.field(default=None, name="ClaimInfoStateList")


class _CheckpointFile(msgspec.Struct):
    data: str = msgspec.field(default="", name="Data")


def kubelets_claims(path: Path) -> dict[str, frozenset[str]] | None:
    """The claims that the kubelet has prepared, with the UIDs of their pods, as its checkpoint says; None where that
    cannot be read (cluster-integration A.5)."""
    try:
        if path.stat().st_size > _LARGEST_CHECKPOINT:
            return None
        file = msgspec.json.decode(path.read_bytes(), type=_CheckpointFile)
        data = msgspec.json.decode(file.data, type=_ClaimList)
    except (OSError, msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    return {one.uid: frozenset(one.pods or ()) for one in data.claims or ()}


def wanted_slices(node: Node, name: str) -> list[dict[str, Any]]:
    """Specs of the slices that this node should have, without generation."""
    claims = node.rules.policy.claims
    if claims is None:
        return []
    view = node.view
    cpus = parse_bits(claims.cpus) & view.topology.all_cpus & ~view.reserved
    if view.cpu_options.strict_cpu_reservation and not view.topology.all_cpus & ~view.reserved & ~cpus:
        cpus &= cpus - 1  # without the first: the shared pool keeps a CPU, as it may not use reserved ones
    memory = claim_memory(claims)
    amounts = ClaimableAmounts(CPUSet.from_bits(cpus), memory, view.cpu_options.full_pcpus_only)
    specs = [one["spec"] for one in machine_slices(view.machine, name, amounts)]
    return [{**spec, "pool": {k: v for k, v in spec["pool"].items() if k != "generation"}} for spec in specs]


class Driver:
    """Claims of CPUs and memory on this node."""

    def __init__(
        self,
        settings: DRASettings,
        owner: Owner,
        api: ClaimsServer,
        node: str,
        *,
        prepared: Callable[[str, float], None] = lambda result, seconds: None,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        trouble = owner.reporter.trouble
        self.settings = settings
        self._owner = owner
        self._node = node
        self._now = now
        self._sleep = sleep
        self._unseen: dict[str, float] = {}
        cdi = CDIFiles(Path(settings.cdi))
        self.book = ClaimBook(owner.admitting, ClaimFiles(owner.directory), cdi, owner.reporter)
        self.book.kubelets = self._kubelets
        owner.serve_claims(self.book)
        self.service = DRAService(
            self.book,
            api,
            node,
            numa_nodes=lambda: [numa.id for numa in owner.machine.nodes],
            devices=lambda: list(self._devices()),
            trouble=trouble,
            prepared=prepared,
        )
        self.publisher = Publisher(
            api, node, self._wanted, trouble=trouble, accounting=settings.accounting, sleep=sleep
        )
        self._api = api
        self._new_kubelet = asyncio.Event()
        self.service.on_registered = self._on_registered

    async def start(self) -> None:
        """Serve, then register. Raises `OSError`."""
        await self.service.start(Path(self.settings.plugins), Path(self.settings.plugins_registry))

    async def close(self) -> None:
        await self.service.close()

    def loops(self) -> Iterator[tuple[str, Callable[[], Awaitable[None]]]]:
        """What goes on for ever."""
        yield "resourceSlices", self.publisher.run
        yield "resourceSlices watch", self.publisher.follow
        yield "claims", self.clean
        yield "devices of claims", self.follow_devices
        yield "the kubelet's version", self.follow_kubelet

    def _wanted(self) -> list[dict[str, Any]] | None:
        node = self._owner.node
        return None if node is None else wanted_slices(node, self._node)

    def _kubelets(self, uid: str) -> frozenset[str]:
        return (kubelets_claims(Path(self.settings.kubelet_state)) or {}).get(uid, frozenset())

    def _devices(self) -> Iterator[tuple[str, str, str]]:
        """Pool, name, and what is wrong with the device, if anything."""
        node, pool = self._owner.node, pool_name(self._node)
        for numa in self._owner.machine.nodes:
            problem = ""
            if node is None:
                problem = self._owner.safe_mode or "the runtime has not told what runs yet"
            elif node.rules.policy.claims is not None:
                lost = parse_bits(node.rules.policy.claims.cpus) & node.view.offline
                own = lost & node.rules.cpu.topology.numa_nodes.get(numa.id, lost)
                problem = f"CPUs {format_bits(own)} are offline" if own else ""
            yield pool, device_name(numa.id), problem

    async def follow_devices(self) -> None:
        """Kubelets hear at once of a device that is ill or well again, for ever."""
        told = list(self._devices())
        while True:
            await self._sleep(LOOK_SECONDS)
            found = list(self._devices())
            if found != told:
                told = found
                self.service.look()

    def _on_registered(self) -> None:
        self.publisher.look()
        self._new_kubelet.set()

    async def follow_kubelet(self) -> None:
        """What the kubelet does about claims by itself depends on its version, which the Node has some time after one
        has registered us, for ever."""
        while True:
            try:
                self.book.kubelet_adds = kubelet_adds(await self._api.kubelet_version(self._node))
            except ApiError as error:
                self._owner.reporter.trouble("claims", f"the kubelet's version is not known: {error}")
                await self._sleep(VERSION_SECONDS)
                continue
            await self._new_kubelet.wait()
            self._new_kubelet.clear()
            await self._sleep(VERSION_SECONDS)

    # Clean-up

    async def clean(self) -> None:
        """Give back what nobody knows any more, for ever."""
        while True:
            await self._sleep(CLEAN_SECONDS)
            self.clean_once()

    def clean_once(self) -> None:
        """A claim that the kubelet has not prepared and no container uses is given back after ten minutes. Where the
        kubelet's checkpoint cannot be read nothing is."""
        known = kubelets_claims(Path(self.settings.kubelet_state))
        stale = set() if known is None else {uid for uid in self.book.claims if uid not in known}
        stale -= {uid for uid in stale if self.book.in_use(uid)}
        now = self._now()
        self._unseen = {uid: self._unseen.get(uid, now) for uid in stale}
        for uid, since in list(self._unseen.items()):
            if now - since >= STALE_SECONDS:
                claim = self.book.claims[uid]
                try:
                    self.book.unprepare(uid)
                    self._owner.reporter.trouble(
                        "claims", f"claim {claim} was given back: the kubelet does not know it"
                    )
                except ClaimError as error:
                    self._owner.reporter.trouble("claims", str(error))
