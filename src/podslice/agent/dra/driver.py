"""The driver put together: claims of this node in the agent's ledgers, the kubelet's sockets, and slices.

All of it hangs on the setting `dra`; without it nothing here is made.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from podslice.agent.dra.book import ClaimBook
from podslice.agent.dra.publisher import LOOK_SECONDS, Publisher, SliceServer
from podslice.agent.dra.service import ClaimReader, DRAService
from podslice.agent.dra.statuses import ClaimStatuses, ClaimStatusServer
from podslice.agent.owner import Owner
from podslice.agent.settings import DRASettings, NUMAOrder
from podslice.dra.cgroups import kubelet_adds
from podslice.dra.devices import ClaimableAmounts
from podslice.dra.names import device_name, numa_part, pool_name
from podslice.dra.prepared import ClaimError, NodeDevices, PreparedClaim, node_devices, reserved_pods
from podslice.dra.slices import machine_slices
from podslice.machine.model import cpu_topology
from podslice.node.node import Node
from podslice.node.rules import NodeRules, claim_memory
from podslice.node.view import NodeView
from podslice.service.podlist import ApiError
from podslice.values.cpuset import Bits, CPUSet, format_bits

CLEAN_SECONDS = 60.0
STALE_SECONDS = 600.0
VERSION_SECONDS = 20.0
_LARGEST_CHECKPOINT = 64 << 20


class ClaimsServer(ClaimStatusServer, SliceServer, Protocol):
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


def claimable_amounts(node: Node, order: NUMAOrder = "numaNode") -> ClaimableAmounts | None:
    """What of this node claims may have, None where its policy leaves them nothing."""
    view, claims = node.view, node.rules.policy.claims
    if claims is None or view.cpu_classes is None:
        return None
    classes = view.cpu_classes
    cpus, memory = CPUSet.from_bits(classes.claimable), claim_memory(claims)
    first = offered_first(view, classes.claimable, order)
    return ClaimableAmounts(cpus, memory, view.cpu_options.full_pcpus_only, classes.kinds, claims.devices, first)


def offered_first(view: NodeView, claimable: Bits, order: NUMAOrder) -> tuple[int, ...]:
    """The NUMA nodes in the order in which a scheduler is to look at them, by the CPUs that claims have left there;
    nothing where that is the order of their ids."""
    if order == "numaNode":
        return ()
    free = {numa: (cpus & claimable & view.shared).bit_count() for numa, cpus in view.topology.numa_nodes.items()}
    sign = 1 if order == "leastFree" else -1
    return tuple(sorted(free, key=lambda numa: (not free[numa], sign * free[numa], numa)))


def wanted_slices(node: Node, name: str, order: NUMAOrder = "numaNode") -> list[dict[str, Any]]:
    """Specs of the slices that this node should have, without generation."""
    amounts = claimable_amounts(node, order)
    specs = [] if amounts is None else [one["spec"] for one in machine_slices(node.view.machine, name, amounts)]
    return [{**spec, "pool": {k: v for k, v in spec["pool"].items() if k != "generation"}} for spec in specs]


class _Offer(NamedTuple):
    """What a node offers as long as it goes by the same rules and looks at its NUMA nodes in the same order: specs of
    slices, and names of devices."""

    node: Node
    rules: NodeRules
    first: tuple[int, ...]
    slices: list[dict[str, Any]]
    names: list[str]


class ClaimUsers:
    """The pods that may use a claim: as the kubelet's list has it, or where that cannot be read as the API server said
    last; it is asked again, and so will the runtime. `claims` are the prepared ones by UID."""

    def __init__(
        self,
        api: ClaimReader,
        kubelet_state: Path,
        *,
        trouble: Callable[[str, str], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.claims: dict[str, PreparedClaim] = {}
        self._api = api
        self._kubelet_state = kubelet_state
        self._trouble = trouble
        self._sleep = sleep
        self._reserved: dict[str, frozenset[str]] = {}
        self._unread: set[str] = set()
        self._asked = asyncio.Event()

    def find(self, uid: str) -> frozenset[str]:
        """Return the UIDs of the pods that may use the claim of this UID, as far as is known."""
        known = kubelets_claims(self._kubelet_state)
        if known is not None:
            return known.get(uid, frozenset())
        self._unread.add(uid)
        self._asked.set()
        return self._reserved.get(uid, frozenset())

    async def run(self) -> None:
        """Read whom claims are reserved for, when that matters, for ever."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            while self._unread:
                await self._read(self._unread.pop())
            await self._sleep(LOOK_SECONDS)

    async def _read(self, uid: str) -> None:
        self._reserved = {one: pods for one, pods in self._reserved.items() if one in self.claims}
        known = self.claims.get(uid)
        if known is None:
            return
        try:
            claim = await self._api.read_claim(known.namespace, known.name)
        except ApiError as error:
            self._trouble("claims", f"claim {known} cannot be read: {error}")
            return
        found = claim is not None and claim.metadata.uid == uid
        self._reserved[uid] = reserved_pods(claim) if found and claim is not None else frozenset()


class Driver:
    """Claims of CPUs and memory on this node, which are in `book`."""

    def __init__(
        self,
        settings: DRASettings,
        owner: Owner,
        book: ClaimBook,
        users: ClaimUsers,
        api: ClaimsServer,
        node: str,
        *,
        prepared: Callable[[str, float], None],
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
        self._offer: _Offer | None = None
        self.book = book
        self._users = users
        self.statuses = ClaimStatuses(api, node, trouble=trouble, sleep=sleep)
        self.service = DRAService(
            self.book,
            api,
            node,
            own=self._own_devices,
            devices=lambda: list(self._devices()),
            trouble=trouble,
            prepared=prepared,
            tell=self.statuses.tell,
            on_registered=self._on_registered,
        )
        self.publisher = Publisher(
            api, node, self._wanted, trouble=trouble, accounting=settings.accounting, sleep=sleep
        )
        self._api = api
        self._new_kubelet = asyncio.Event()

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
        yield "claims that pass from pod to pod", self._users.run
        yield "the kubelet's version", self.follow_kubelet
        yield "conditions of claims", self.statuses.run

    def _offered(self) -> _Offer | None:
        node = self._owner.node
        if node is None:
            return None
        known, classes, order = self._offer, node.view.cpu_classes, self.settings.order
        first = () if classes is None else offered_first(node.view, classes.claimable, order)
        if known is None or (known.node, known.rules, known.first) != (node, node.rules, first):
            slices = wanted_slices(node, self._node, order)
            names = [device["name"] for spec in slices for device in spec.get("devices", ())]
            self._offer = known = _Offer(node, node.rules, first, slices, names)
        return known

    def _wanted(self) -> list[dict[str, Any]] | None:
        offer = self._offered()
        return None if offer is None else offer.slices

    def _own_devices(self) -> NodeDevices:
        numa_nodes = [numa.id for numa in self._owner.machine.nodes]
        node = self._owner.node
        classes = None if node is None else node.view.cpu_classes
        topology = cpu_topology(self._owner.machine) if node is None else node.view.topology
        return node_devices(numa_nodes, topology, {} if classes is None else classes.parts)

    def _devices(self) -> Iterator[tuple[str, str, str]]:
        """Pool, name, and what is wrong with the device, if anything."""
        offer, pool = self._offered(), pool_name(self._node)
        if offer is None:
            problem = self._owner.safe_mode or "the runtime has not told what runs yet"
            for numa in self._owner.machine.nodes:
                yield pool, device_name(numa_part(numa.id)), problem
            return
        lost = self._lost(offer.node.view)
        for name in dict.fromkeys((*offer.names, *lost)):
            yield pool, name, f"CPUs {format_bits(lost[name])} are offline" if lost.get(name) else ""

    def _lost(self, view: NodeView) -> dict[str, Bits]:
        """CPUs of claims that are offline, by device."""
        lost: dict[str, Bits] = {}
        for claim in self.book.claims.values():
            held = view.owners.get(claim.holder, {})
            for place, device in enumerate(claim.devices):
                cpus = held.get(claim.container(place), 0) & view.offline
                lost[device.device] = lost.get(device.device, 0) | cpus
        return lost

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
