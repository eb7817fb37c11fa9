"""The DRA driver: wires the ledger of claims, the sockets for the kubelet, and the slices.

Nothing of it exists without the setting `dra`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from podslice.agent.dra.claimledger import ClaimLedger
from podslice.agent.dra.publisher import LOOK_SECONDS, Publisher, SliceServer
from podslice.agent.dra.reservations import Reservations, read_kubelet_claims
from podslice.agent.dra.service import DRAService
from podslice.agent.dra.statuses import ClaimStatuses, ClaimStatusServer
from podslice.agent.owner import Owner
from podslice.agent.settings import DRASettings, NUMAOrder
from podslice.dra.cgroups import kubelet_adds
from podslice.dra.devices import ClaimableAmounts
from podslice.dra.names import device_name, numa_part, pool_name
from podslice.dra.prepared import ClaimError, NodeDevices, node_devices
from podslice.dra.slices import machine_slices
from podslice.machine.model import cpu_topology
from podslice.node.node import Node
from podslice.node.rules import NodeRules, claim_memory
from podslice.node.view import NodeView
from podslice.service.answers import ApiError
from podslice.values.cpuset import Bits, CPUSet, format_bits

CLEAN_SECONDS = 60.0
STALE_SECONDS = 600.0
VERSION_SECONDS = 20.0


class ClaimsServer(ClaimStatusServer, SliceServer, Protocol):
    """The calls that the driver makes to an API server. Every call may raise `ApiError`."""

    async def kubelet_version(self, node: str) -> str: ...


def claimable_amounts(node: Node, order: NUMAOrder = "numaNode", *, numa_list: bool = False) -> ClaimableAmounts | None:
    """Return the CPUs and memory of this node for claims, None where its policy has none for them."""
    view, claims = node.view, node.rules.policy.claims
    if claims is None or view.cpu_classes is None:
        return None
    classes = view.cpu_classes
    cpus, memory = CPUSet.from_bits(classes.claimable), claim_memory(claims)
    first = numa_order(view, classes.claimable, order)
    whole_cores = view.cpu_options.full_pcpus_only
    return ClaimableAmounts(cpus, memory, whole_cores, classes.kinds, claims.devices, first, numa_list)


def numa_order(view: NodeView, claimable: Bits, order: NUMAOrder) -> tuple[int, ...]:
    """Return the NUMA nodes in the order in which a scheduler should consider them, by the CPUs that are free for
    claims; empty for the order of their ids."""
    if order == "numaNode":
        return ()
    free = {numa: (cpus & claimable & view.shared).bit_count() for numa, cpus in view.topology.numa_nodes.items()}
    # Full NUMA nodes come last in both orders: nothing fits there. The id breaks ties, so that slices stay the same.
    sign = 1 if order == "leastFree" else -1
    return tuple(sorted(free, key=lambda numa: (not free[numa], sign * free[numa], numa)))


def build_slices(
    node: Node, name: str, order: NUMAOrder = "numaNode", *, numa_list: bool = False
) -> list[dict[str, Any]]:
    """Return the specs of the slices that this node should have, without generation."""
    amounts = claimable_amounts(node, order, numa_list=numa_list)
    specs = [] if amounts is None else [one["spec"] for one in machine_slices(node.view.machine, name, amounts)]
    return [{**spec, "pool": {k: v for k, v in spec["pool"].items() if k != "generation"}} for spec in specs]


class _Offer(NamedTuple):
    """The slices and device names that a node offers, kept while its rules and its order of NUMA nodes are the same."""

    node: Node
    rules: NodeRules
    first: tuple[int, ...]
    slices: list[dict[str, Any]]
    names: list[str]


class Driver:
    """The DRA driver of this node, for claims of CPUs and memory, which are kept in `ledger`."""

    def __init__(
        self,
        settings: DRASettings,
        owner: Owner,
        ledger: ClaimLedger,
        reservations: Reservations,
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
        self._unknown_since: dict[str, float] = {}
        self._offer: _Offer | None = None
        self.ledger = ledger
        self._reservations = reservations
        self.statuses = ClaimStatuses(api, node, trouble=trouble, sleep=sleep)
        self.service = DRAService(
            self.ledger,
            api,
            node,
            own=self._own_devices,
            devices=lambda: list(self._devices()),
            trouble=trouble,
            prepared=prepared,
            report_claim=self.statuses.queue,
            on_registered=self._on_registered,
        )
        self.publisher = Publisher(
            api, node, self._desired_slices, trouble=trouble, accounting=settings.accounting, sleep=sleep
        )
        self._api = api
        self._new_kubelet = asyncio.Event()

    async def start(self) -> None:
        """Serve, then register with the kubelet. Raises `OSError`."""
        await self.service.start(Path(self.settings.plugins), Path(self.settings.plugins_registry))

    async def close(self) -> None:
        """Stop serving."""
        await self.service.close()

    def loops(self) -> Iterator[tuple[str, Callable[[], Awaitable[None]]]]:
        """Yield the loops, with their names."""
        yield "resourceSlices", self.publisher.run
        yield "resourceSlices watch", self.publisher.follow
        yield "claims", self.clean
        yield "devices of claims", self.follow_devices
        yield "claims that pass from pod to pod", self._reservations.run
        yield "the kubelet's version", self.follow_kubelet
        yield "conditions of claims", self.statuses.run

    def _current_offer(self) -> _Offer | None:
        node = self._owner.node
        if node is None:
            return None
        # The publisher and the health service ask every second, and building slices goes over all CPUs.
        known, classes, order = self._offer, node.view.cpu_classes, self.settings.order
        first = () if classes is None else numa_order(node.view, classes.claimable, order)
        if known is None or (known.node, known.rules, known.first) != (node, node.rules, first):
            slices = build_slices(node, self._node, order, numa_list=self.settings.numa_list)
            names = [device["name"] for spec in slices for device in spec.get("devices", ())]
            self._offer = known = _Offer(node, node.rules, first, slices, names)
        return known

    def _desired_slices(self) -> list[dict[str, Any]] | None:
        offer = self._current_offer()
        return None if offer is None else offer.slices

    def _own_devices(self) -> NodeDevices:
        # In safe mode, too: a claim that was allocated before must be recognised, so that the refusal can say the
        # reason.
        numa_nodes = [numa.id for numa in self._owner.machine.nodes]
        node = self._owner.node
        classes = None if node is None else node.view.cpu_classes
        topology = cpu_topology(self._owner.machine) if node is None else node.view.topology
        return node_devices(numa_nodes, topology, {} if classes is None else classes.parts)

    def _devices(self) -> Iterator[tuple[str, str, str]]:
        """Yield pool, name and problem of each device; the problem is empty for a healthy one."""
        offer, pool = self._current_offer(), pool_name(self._node)
        if offer is None:
            problem = self._owner.safe_mode or "the runtime has not reported what runs yet"
            # Unhealthy, and still listed: a device that is not repeated has unknown health, which hides the problem.
            for numa in self._owner.machine.nodes:
                yield pool, device_name(numa_part(numa.id)), problem
            return
        lost = self._offline_cpus(offer.node.view)
        for name in dict.fromkeys((*offer.names, *lost)):
            yield pool, name, f"CPUs {format_bits(lost[name])} are offline" if lost.get(name) else ""

    def _offline_cpus(self, view: NodeView) -> dict[str, Bits]:
        """Return the offline CPUs of claims, by device."""
        lost: dict[str, Bits] = {}
        for claim in self.ledger.claims.values():
            held = view.owners.get(claim.holder, {})
            for place, device in enumerate(claim.devices):
                cpus = held.get(claim.container(place), 0) & view.offline
                lost[device.device] = lost.get(device.device, 0) | cpus
        return lost

    async def follow_devices(self) -> None:
        """Report to the kubelet at once when the health of a device changes, for ever."""
        last = list(self._devices())
        while True:
            await self._sleep(LOOK_SECONDS)
            found = list(self._devices())
            if found != last:
                last = found
                self.service.look()

    def _on_registered(self) -> None:
        # A kubelet that starts deletes the slices of all drivers.
        self.publisher.look()
        self._new_kubelet.set()

    async def follow_kubelet(self) -> None:
        """Learn from the kubelet's version whether it counts claims itself, for ever."""
        # The Node has the version of a new kubelet only some time after that has registered us.
        while True:
            try:
                self.ledger.kubelet_adds = kubelet_adds(await self._api.kubelet_version(self._node))
            except ApiError as error:
                self._owner.reporter.trouble("claims", f"the kubelet's version is not known: {error}")
                await self._sleep(VERSION_SECONDS)
                continue
            await self._new_kubelet.wait()
            self._new_kubelet.clear()
            await self._sleep(VERSION_SECONDS)

    # Clean-up

    async def clean(self) -> None:
        """Unprepare claims that no one uses any more, for ever."""
        while True:
            await self._sleep(CLEAN_SECONDS)
            self.clean_once()

    def clean_once(self) -> None:
        """Unprepare claims that the kubelet has not prepared and no container has used for ten minutes; none where the
        kubelet's checkpoint cannot be read."""
        known = read_kubelet_claims(Path(self.settings.kubelet_state))
        # The checkpoint and the ledger are read at different moments, so a claim may be in one only for a while.
        stale = set() if known is None else {uid for uid in self.ledger.claims if uid not in known}
        # A container may run on after its claim was deleted by force, and still uses the CPUs.
        stale -= {uid for uid in stale if self.ledger.in_use(uid)}
        now = self._now()
        # Rebuilt each time, so a claim that the kubelet knows again starts from zero.
        self._unknown_since = {uid: self._unknown_since.get(uid, now) for uid in stale}
        for uid, since in list(self._unknown_since.items()):
            if now - since >= STALE_SECONDS:
                claim = self.ledger.claims[uid]
                try:
                    self.ledger.unprepare(uid)
                    self._owner.reporter.trouble(
                        "claims", f"claim {claim} was given back: the kubelet does not know it"
                    )
                except ClaimError as error:
                    self._owner.reporter.trouble("claims", str(error))
