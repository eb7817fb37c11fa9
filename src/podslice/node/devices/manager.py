"""The Device Manager: hints, allocation and release of plugin devices (memory-device 2.4 to 2.14).

Its state is a value, `DeviceState`; this module keeps the order: clean up, decide, take, record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from podslice.api.pod.demand import pod_limits
from podslice.api.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.machine.devices import Device
from podslice.node.context import NodeContext
from podslice.node.devices.allocate import Selection
from podslice.node.devices.plugin import DevicePlugin, PluginError, RunOptions
from podslice.node.devices.pool import DevicePool
from podslice.node.devices.records import DeviceContent, DeviceStateEncoder, HeldDevices, Records, entries_of
from podslice.node.devices.state import DeviceState
from podslice.node.topology.hint import Hint, SplitHint
from podslice.node.topology.hintset import ProviderHints, ResourceHints
from podslice.values.cpuset import Bits, bits_of
from podslice.values.errors import AdmissionError, RefusalKind, UpstreamDefectError
from podslice.values.tables import keep_pods

_VANISHED = "vanished_devices_crash"
_NO_PLUGIN = RefusalKind("no-device-plugin", "unknown Device Plugin {resource}")
_PLUGIN_FAILED = RefusalKind("device-plugin-failed", "{error}")
_CALL_FAILED = RefusalKind("device-plugin-call-failed", "device plugin {call} rpc failed with err: {error}")
_EMPTY_RESPONSE = RefusalKind(
    "empty-device-response",
    "no containers return in allocation response &AllocateResponse{{ContainerResponses:[]*ContainerAllocateResponse"
    "{{}},}}",
)
_CHANGED = RefusalKind(
    "device-request-changed",
    'pod "{pod}" container "{container}" changed request for resource "{resource}" from {before} to {now}',
)
_UNREGISTERED = RefusalKind("device-unregistered", "cannot allocate unregistered device {resource}")
_NONE_HEALTHY = RefusalKind(
    "no-healthy-devices", "no healthy devices present; cannot allocate unhealthy devices {resource}"
)
_HELD_UNHEALTHY = RefusalKind(
    "held-devices-unhealthy",
    "previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}",
)
_NO_ENDPOINT = RefusalKind("no-endpoint", "endpoint not found in cache for a registered resource: {resource}")
_NOT_HELD = RefusalKind(
    "no-devices-held",
    "no devices found allocated in local cache for pod {pod}, container {container}, resource {resource}",
)


class DeviceCapacity(NamedTuple):
    """The resources' part of the node status: devices, healthy devices, and resources that are gone."""

    capacity: dict[str, int]
    allocatable: dict[str, int]
    removed: list[str]


Content = tuple[Records, dict[str, DevicePool]]
"""Content of the checkpoint file."""


def device_capacity(pools: Mapping[str, DevicePool]) -> DeviceCapacity:
    """Return what these pools add to the node status."""
    registered = {resource: pool for resource, pool in pools.items() if pool.registered}
    return DeviceCapacity(
        {resource: (pool.healthy | pool.unhealthy).bit_count() for resource, pool in registered.items()},
        {resource: pool.healthy.bit_count() for resource, pool in registered.items()},
        [],
    )


class DeviceManager:
    """Devices of one node by extended resource; the first hint provider that the Topology Manager asks.

    `machine_nodes` are the machine's NUMA ids in machine order. `filed` is the content of the checkpoint file as last
    written, None where there is no file yet.
    """

    __slots__ = ("_encoder", "context", "filed", "machine_nodes", "state")
    name = "device"

    def __init__(self, machine_nodes: Iterable[int], context: NodeContext, state: DeviceState | None = None) -> None:
        self.machine_nodes = tuple(machine_nodes)
        self.context = context
        self.state = state or DeviceState()
        self.filed: Content | None = self.file_content if state is None else None
        self._encoder: DeviceStateEncoder | None = None

    def start(
        self, content: DeviceContent | None, running: Iterable[tuple[str, str]] = (), *, now: float = 0.0
    ) -> None:
        """Begin with a restored checkpoint, as `DeviceState.restore`; without one with nothing."""
        if content is None:
            self.state = DeviceState(running=frozenset(running))
        else:
            self.state = DeviceState.restore(
                content, self.machine_nodes, running, now=now, everywhere=self._hints_everywhere
            )
        self.filed = self.file_content

    @property
    def _hints_everywhere(self) -> bool:
        """Whether hints are sets of all NUMA nodes, also of those without devices."""
        return not self.context.release.device_hints_on_nodes_with_devices

    # Plugins and their lists

    def register(self, resource: str, devices: Iterable[Device], plugin: DevicePlugin) -> None:
        """Register a plugin that serves `resource`, with its first list."""
        self.state = self.state.with_pool(resource, self._pool(resource).with_plugin(plugin))
        self.update_devices(resource, devices)

    def is_served(self, resource: str) -> bool:
        """Whether a plugin serves the resource now."""
        pool = self.state.pools.get(resource)
        return pool is not None and pool.plugin is not None and pool.stopped_at is None

    def update_devices(self, resource: str, devices: Iterable[Device]) -> None:
        """Replace the plugin's complete list of devices (memory-device 2.4)."""
        self.state = self.state.with_pool(resource, self._pool(resource).with_devices(devices)).mark_written()

    def disconnect(self, resource: str, *, now: float = 0.0) -> None:
        """Disconnect a plugin: its devices are unhealthy, containers keep theirs. Unknown resources are ignored."""
        pool = self.state.pools.get(resource)
        if pool is not None and pool.plugin is not None:
            self.state = self.state.with_pool(resource, pool.mark_disconnected(now))

    def capacity(self, *, now: float = 0.0) -> DeviceCapacity:
        """Return the capacity report of a node status update; resources without a plugin for 5 minutes are dropped
        (memory-device 2.4)."""
        removed = [resource for resource, pool in self.state.pools.items() if pool.is_expired(now)]
        for resource in removed:
            self.state = self.state.with_pool(resource, self.state.pools[resource].forget()).mark_written()
        return device_capacity(self.state.pools)._replace(removed=removed)

    def _pool(self, resource: str) -> DevicePool:
        return self.state.pools.get(resource) or DevicePool.on(self.machine_nodes, everywhere=self._hints_everywhere)

    # The checkpoint

    @property
    def file_content(self) -> Content:
        """Content of the checkpoint file for the current state."""
        return self.state.file, self.state.pools

    def content(self) -> DeviceContent:
        """Return the content of the device checkpoint; records in order of allocation, ids in byte order (memory-device
        2.11)."""
        pools = self.state.pools
        registered = {resource: pool.names(pool.healthy) for resource, pool in pools.items() if pool.registered}
        return DeviceContent(entries_of(self.state.file), registered)

    def encode(self) -> bytes:
        """Return the checkpoint file of `content`."""
        if self._encoder is None:
            self._encoder = DeviceStateEncoder()
        pools = self.state.pools
        healthy = {resource: (pool, pool.healthy) for resource, pool in pools.items() if pool.registered}
        return self._encoder.encode(self.state.file, healthy)

    # Hints

    def container_hints(self, pod: AdmissionPod, container: AdmissionContainer) -> ProviderHints:
        """Return the hints for one container (memory-device 2.6)."""
        if self.context.leftovers:
            self.remove_stale()
        requests = self._requests(container)
        if not requests:
            return {}
        held = self.state.of(pod.uid, container.name)
        reusable = self.state.reusable.get(pod.uid, {})
        hints = {}
        for resource, count in requests.items():
            own = held[resource].devices if resource in held else 0
            hints[resource] = self._hints(resource, count, own, reusable.get(resource, 0))
        return hints

    def pod_hints(self, pod: AdmissionPod) -> ProviderHints:
        """Return the hints for the pod as a whole (memory-device 2.6)."""
        if self.context.leftovers:
            self.remove_stale()
        if not any(self._requests(container) for container in pod.containers):
            return {}
        held = self.state.of_pod(pod.uid)
        limits = self.state.select_managed(pod_limits(pod.spec, overhead=False))
        return {
            resource: self._hints(resource, amount.value(), held.get(resource, 0), 0)
            for resource, amount in limits.items()
        }

    def _hints(self, resource: str, count: int, held: Bits, reusable: Bits) -> ResourceHints:
        """Return the hints of one resource (memory-device 2.6): None for no preference, an empty list for none."""
        pool = self.state.pools[resource]
        search_budget = self.context.search_budget
        if not pool.coverage.placed or (count <= 0 and self._ignores_zero):
            return None
        if held:
            # A changed request of a running container cannot be hinted; the allocation refuses it.
            if held.bit_count() != count:
                return []
            if held & ~pool.known:
                self._crash_if_upstream(resource, held & ~pool.known)
                return None
            self.context.note_listing(resource, len(pool.coverage.nodes))
            return pool.coverage.hints(held, count, search_budget=search_budget) or []
        free = self.state.free(resource)
        if (free | reusable).bit_count() < count:
            return []
        self.context.note_listing(resource, len(pool.coverage.nodes))
        if reusable & ~pool.known:
            self._crash_if_upstream(resource, reusable & ~pool.known)
        # Upstream requires every reusable device on the mask, and one that reports an empty topology is on none.
        relevant = pool.with_topology if self.context.quirks.nodeless_device_blocks_hints else pool.coverage.placed
        return pool.coverage.hints(free, count, reusable=reusable & relevant, search_budget=search_budget) or []

    @property
    def _ignores_zero(self) -> bool:
        """Whether a request of no devices counts as none; upstream treats it like any other."""
        return not self.context.quirks.zero_device_requests_count

    @property
    def _may_crash(self) -> bool:
        """Whether a device in use that its plugin no longer lists crashes the kubelet."""
        return self.context.quirks.vanished_devices_crash

    def _crash_if_upstream(self, resource: str, devices: Bits) -> None:
        """Raise `UpstreamDefectError` in the profile in which unlisted devices crash the kubelet."""
        if self._may_crash:
            names = ", ".join(self.state.pools[resource].names(devices))
            raise UpstreamDefectError(_VANISHED, f"{resource}: {names} no longer listed by the plugin")

    def _requests(self, container: AdmissionContainer) -> dict[str, int]:
        """Return the device resources in the container's limits, with whole numbers of devices.

        In the order of the specification; upstream starts at some place in it, mostly the first.
        """
        if not container.limits or not self.state.pools:
            return {}
        return self.state.select_managed(container.limits)

    def _unclaimed_requests(self, container: AdmissionContainer) -> dict[str, int]:
        """Return those of `_requests` that no claim covers; hints are given for all, as upstream does (memory-device
        2.7)."""
        requests = self._requests(container)
        return {resource: count for resource, count in requests.items() if resource not in container.claimed}

    # Allocation

    def allocate(self, pod: AdmissionPod, container: AdmissionContainer, affinity: Hint) -> None:
        """Give a container the devices its limits name (memory-device 2.7). Raises `AdmissionError` without a
        reason."""
        if self.state.reusable:
            # Upstream drops the other pods' entries before it knows whether this pod requests devices (memory-device
            # 2.7, step 1).
            self.state = self.state.with_reusable(keep_pods(self.state.reusable, (pod.uid,)))
        requests = self._unclaimed_requests(container) if container.claimed else self._requests(container)
        if not requests:
            return
        if self.context.leftovers:
            self.remove_stale()
        before, taken = self.state, False
        try:
            for resource, count in requests.items():
                mine = affinity.of(resource) if isinstance(affinity, SplitHint) else affinity
                if self._allocate_resource(pod, container, resource, count, mine):
                    taken = True
        except AdmissionError:
            # Upstream keeps what earlier resources of the container got until the pod is gone (memory-device 2.7).
            if not self.context.quirks.failed_container_keeps_devices:
                self.state = before
            raise
        if container.plain_init or self.state.reusable:
            self._update_reusable(pod.uid, container)
        if taken:
            self.state = self.state.mark_written()

    def allocate_pod(self, pod: AdmissionPod, affinity: Hint) -> None:
        """Give a pod with pod-level resources its devices; upstream waits until its containers start (memory-device
        2.7)."""
        if self.context.quirks.pod_level_devices_at_start:
            return
        for container in pod.containers:
            self.allocate(pod, container, affinity)

    def _update_reusable(self, uid: str, container: AdmissionContainer) -> None:
        """Mark devices of a plain init container reusable in its pod; those of another container no longer are."""
        reusable = dict(self.state.reusable.get(uid, {}))
        for resource, held in self.state.of(uid, container.name).items():
            offered = reusable.get(resource, 0)
            reusable[resource] = offered | held.devices if container.plain_init else offered & ~held.devices
        left = {resource: devices for resource, devices in reusable.items() if devices}
        self.state = self.state.with_reusable({uid: left} if left else {})

    def _allocate_resource(
        self, pod: AdmissionPod, container: AdmissionContainer, resource: str, count: int, affinity: Hint
    ) -> bool:
        """Take the devices of one resource; return whether any were taken. Raises `AdmissionError`."""
        if (count <= 0 and self._ignores_zero) or self._needs_none(pod.uid, container.name, resource, count):
            return False
        pool = self.state.pools[resource]
        chosen = self._select(pool, pod.uid, resource, count, affinity)
        names = pool.names(chosen)
        if pool.plugin is None:
            # The devices were marked before the plugin was asked; counting anew from the records frees them.
            self.state = self.state.recount()
            raise AdmissionError(_NO_PLUGIN, resource=resource)
        try:
            response = pool.plugin.allocate(names)
        except PluginError as error:
            self.state = self.state.recount()
            raise AdmissionError(_PLUGIN_FAILED, error=str(error)) from None
        if response is None:
            # Unlike the errors above, upstream does not recount here: the devices stay marked (memory-device 2.7, step
            # 3).
            raise AdmissionError(_EMPTY_RESPONSE)
        if chosen & ~pool.known:
            self._crash_if_upstream(resource, chosen & ~pool.known)
        held = HeldDevices(chosen, pool.by_node(names), response)
        self.state = self.state.add(pod.uid, container.name, resource, held)
        return True

    def _needs_none(self, uid: str, container: str, resource: str, count: int) -> bool:
        """Return whether no device has to be taken (memory-device 2.8, steps 1 to 4). Raises `AdmissionError`."""
        held = self.state.of(uid, container).get(resource)
        if held is not None and held.devices.bit_count() != count:
            facts = {"pod": uid, "container": container, "resource": resource}
            raise AdmissionError(_CHANGED, **facts, before=held.devices.bit_count(), now=count)
        pool = self.state.pools[resource]
        if not self.context.sources_ready:
            # Until sources are ready, containers that ran before the kubelet keep their devices, whatever the plugins
            # say.
            if (uid, container) in self.state.running:
                return True
            absent = not pool.registered or pool.stopped_at is not None
            if held is not None and absent and not self.context.quirks.restart_needs_device_plugins:
                return True
        if not pool.registered:
            raise AdmissionError(_UNREGISTERED, resource=resource)
        if not pool.healthy:
            raise AdmissionError(_NONE_HEALTHY, resource=resource)
        if held is not None and held.devices & ~pool.healthy:
            raise AdmissionError(_HELD_UNHEALTHY, resource=resource)
        return held is not None or count == 0

    def _select(self, pool: DevicePool, uid: str, resource: str, count: int, affinity: Hint) -> Bits:
        """Choose and mark the devices for a request, also those taken before an error. Raises `AdmissionError`."""
        left = self.state.reusable.get(uid)
        reusable = left.get(resource, 0) if left else 0
        if reusable and not self._may_crash:
            reusable &= pool.known
        selection = Selection(pool.ids)
        try:
            selection.run(
                resource,
                count,
                size=count,
                reusable=reusable,
                available=self.state.free(resource),
                coverage=pool.coverage,
                mask=affinity.mask,
                prefer=self._ask_preferred,
            )
        finally:
            self.state = self.state.take(resource, selection.taken)
        return selection.taken

    def _ask_preferred(self, resource: str, available: Bits, must_include: Bits, size: int) -> Bits | None:
        """Return the devices that the plugin prefers, None for no preference. Raises `AdmissionError`."""
        pool = self.state.pools[resource]
        if pool.plugin is None:
            raise AdmissionError(_NO_ENDPOINT, resource=resource)
        if not pool.plugin.options.get_preferred_allocation_available:
            return None
        try:
            ids = pool.plugin.get_preferred_allocation(pool.names(available), pool.names(must_include), size)
        except PluginError as error:
            raise AdmissionError(_CALL_FAILED, call="GetPreferredAllocation", error=str(error)) from None
        offered = set(pool.names(available))
        return pool.bits(name for name in ids or () if name in offered)

    # Container start

    def container_start(self, pod: AdmissionPod, container: AdmissionContainer, affinity: Hint) -> RunOptions:
        """Return the runtime options for the container's devices (memory-device 2.10), after `prepare`."""
        self.prepare(pod, container, affinity)
        held = self.state.of(pod.uid, container.name)
        return RunOptions.combine([held[name].response for name in sorted(held)])

    def prepare(self, pod: AdmissionPod, container: AdmissionContainer, affinity: Hint) -> None:
        """Prepare a container's start: call its plugins, and take devices it has not got yet.

        Raises `AdmissionError` without a reason; the kubelet reports it as an error of the container's start.
        """
        counts_claimed = self.context.quirks.claimed_devices_count_at_start
        wanted = (
            self._requests(container)
            if counts_claimed or not container.claimed
            else self._unclaimed_requests(container)
        )
        requests = {resource: count for resource, count in wanted.items() if count}
        if not requests:
            return
        before = self.context.quirks.pre_start_before_allocation
        if before:
            self._pre_start(pod.uid, container.name, requests)
        held = self.state.of(pod.uid, container.name)
        # As upstream, a pod that is no longer active gets nothing new (memory-device 2.10, step 1.b).
        if requests.keys() - held.keys() and pod.uid in self.context.active:
            self.allocate(pod, container, affinity)
        if not before:
            self._pre_start(pod.uid, container.name, requests)

    def _pre_start(self, uid: str, container: str, requests: Mapping[str, int]) -> None:
        """Call PreStartContainer of the plugins that require it. Raises `AdmissionError`."""
        for resource in requests:
            pool = self.state.pools[resource]
            if pool.plugin is None:
                if pool.stopped_at is None:
                    raise AdmissionError(_NO_ENDPOINT, resource=resource)
                continue
            if not pool.plugin.options.pre_start_required:
                continue
            held = self.state.of(uid, container).get(resource)
            if held is None:
                raise AdmissionError(_NOT_HELD, pod=uid, container=container, resource=resource)
            try:
                pool.plugin.pre_start(pool.names(held.devices))
            except PluginError as error:
                raise AdmissionError(_CALL_FAILED, call="PreStartContainer", error=str(error)) from None

    # Release

    def remove_stale(self) -> None:
        """Release what pods that are no longer active hold (memory-device 2.5)."""
        context = self.context
        changed = context.take_leftovers(self.name)
        if changed == ():
            return
        records = self.state.records
        if self.state.reusable:
            self.state = self.state.with_reusable(context.keep_reusable(self.state.reusable))
        gone = [
            uid
            for uid in (records if changed is None else changed)
            if uid in records and uid not in context.active and uid != context.pending
        ]
        if gone:
            self.state = self.state.without(gone, written=not context.quirks.device_file_keeps_gone_pods)

    # Queries

    def devices_of(self, uid: str, container: str) -> dict[str, list[str]]:
        """Return the ids the container holds by resource, in byte order."""
        records = self.state.records.get(uid, {}).get(container)
        if not records:
            return {}
        return {resource: self.state.pools[resource].names(records[resource].devices) for resource in sorted(records)}

    def assignments(self) -> dict[str, dict[str, dict[str, list[str]]]]:
        """Return all records: pod UID → container → resource → ids in byte order."""
        return {
            uid: {name: self.devices_of(uid, name) for name in records} for uid, records in self.state.records.items()
        }

    def ids_by_node(self) -> dict[str, dict[str, dict[str, dict[int, tuple[str, ...]]]]]:
        """Return all records: pod UID → container → resource → NUMA node (-1: none) → ids."""
        return {
            uid: {
                name: {
                    resource: {node: tuple(ids) for node, ids in held.by_node.items()}
                    for resource, held in records.items()
                }
                for name, records in named.items()
            }
            for uid, named in self.state.records.items()
        }

    def nodes_of(self, devices: Mapping[str, Iterable[str]]) -> Bits:
        """Return the NUMA nodes of devices, which are given by resource; none of those without topology."""
        return bits_of(
            node
            for resource, names in devices.items()
            for node in self.state.pools[resource].by_node(names)
            if node >= 0
        )

    def free_ids(self) -> dict[str, frozenset[str]]:
        """Return the ids of the healthy devices that are not in use, by resource."""
        return {name: frozenset(pool.names(self.state.free(name))) for name, pool in self.state.pools.items()}

    def left_by_init(self, uid: str) -> dict[str, frozenset[str]]:
        """Return the ids of the devices that a pod's init containers leave to those after them, by resource."""
        left = self.state.reusable.get(uid, {})
        return {resource: frozenset(self.state.pools[resource].names(devices)) for resource, devices in left.items()}

    def holds_devices(self, uid: str) -> bool:
        """Whether the pod has records of devices. Such a pod passes the general predicates (memory-device 2.14)."""
        return uid in self.state.records

    def count_in_use(self) -> dict[str, int]:
        """Return the number of devices that count as in use, for every resource in use (memory-device 2.14)."""
        return {resource: devices.bit_count() for resource, devices in self.state.used.items()}

    def holds(self, pod: AdmissionPod, container: AdmissionContainer) -> bool:
        """Whether the container has all devices it requests."""
        held = self.state.of(pod.uid, container.name)
        return all(resource in held for resource, count in self._requests(container).items() if count)
