"""The Device Manager: hints, allocation and release of plugin devices (memory-device 2.4 to 2.14).

The books it keeps are in `device_books`; here is the order of things: clean up, decide, take, record.
"""

from __future__ import annotations

from collections.abc import Mapping

from podslice.core.allocate.devices import Selection
from podslice.core.errors import AdmissionError, UpstreamDefectError
from podslice.core.hints.hint import Hint
from podslice.core.hints.hintset import ProviderHints, ResourceHints
from podslice.core.managers.device_books import DeviceBooks
from podslice.core.managers.device_plugin import AllocateResponse, PluginError, RunOptions
from podslice.core.managers.device_records import Held
from podslice.core.pod.demand import pod_limits
from podslice.core.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.core.values.cpuset import Bits

_VANISHED = "vanished_devices_crash"


class DeviceManager(DeviceBooks):
    """Devices of one node by extended resource; a hint provider, and the first one asked."""

    name = "device"

    # Hints

    def container_hints(self, pod: AdmissionPod, container: AdmissionContainer) -> ProviderHints:
        """Hints for one container (memory-device 2.6)."""
        self.remove_stale()
        held = self._records.of(pod.uid, container.name)
        reusable = self._reusable.get(pod.uid, {})
        return {
            resource: self._hints(
                resource, count, held[resource].devices if resource in held else 0, reusable.get(resource, 0)
            )
            for resource, count in self._requests(container).items()
        }

    def pod_hints(self, pod: AdmissionPod) -> ProviderHints:
        """Hints for the pod as a whole (memory-device 2.6)."""
        self.remove_stale()
        if not any(self._requests(container) for container in pod.containers):
            return {}
        held = self._records.of_pod(pod.uid)
        limits = pod_limits(pod.spec, overhead=False)
        return {
            resource: self._hints(resource, amount.value(), held.get(resource, 0), 0)
            for resource, amount in limits.items()
            if resource in self._pools and self._pools[resource].is_device_resource
        }

    def _hints(self, resource: str, count: int, held: Bits, reusable: Bits) -> ResourceHints:
        pool = self._pools[resource]
        quirks, purse = self.context.quirks, self.context.purse
        if not pool.coverage.placed or (count == 0 and not quirks.zero_device_requests_count):
            return None
        if held:
            if held.bit_count() != count:
                return []
            if held & ~pool.known:
                self._crash(resource, held & ~pool.known)
                return None
            return pool.coverage.hints(held, count, purse=purse) or []
        if (pool.free | reusable).bit_count() < count:
            return []
        if reusable & ~pool.known:
            self._crash(resource, reusable & ~pool.known)
        relevant = pool.with_topology if quirks.nodeless_device_blocks_hints else pool.coverage.placed
        return pool.coverage.hints(pool.free, count, reusable=reusable & relevant, purse=purse) or []

    def _crash(self, resource: str, devices: Bits) -> None:
        if self.context.quirks.vanished_devices_crash:
            names = ", ".join(self._pools[resource].names(devices))
            raise UpstreamDefectError(_VANISHED, f"{resource}: {names} no longer listed by the plugin")

    def _requests(self, container: AdmissionContainer) -> dict[str, int]:
        """Device resources in the container's limits, with whole numbers of devices.

        In the order of the specification; upstream starts somewhere in it, mostly at the beginning.
        """
        limits = container.spec.resources.limits
        if not limits or not self._pools:
            return {}
        return {
            resource: amount.value()
            for resource, amount in limits.items()
            if resource in self._pools and self._pools[resource].is_device_resource
        }

    # Allocation

    def allocate(self, pod: AdmissionPod, container: AdmissionContainer, affinity: Hint) -> None:
        """Give a container the devices its limits name (memory-device 2.7). Raises `AdmissionError` without a
        reason."""
        self._reusable = {pod.uid: self._reusable.get(pod.uid, {})}
        requests = self._requests(container)
        if not requests:
            return
        self.remove_stale()
        before = None if self.context.quirks.failed_container_keeps_devices else self.snapshot(pod.uid)
        try:
            taken = [
                self._allocate_resource(pod, container, resource, count, affinity)
                for resource, count in requests.items()
            ]
        except AdmissionError:
            if before is not None:
                self.restore(pod.uid, before)
            raise
        self._update_reusable(pod.uid, container)
        if any(taken):
            self._write()

    def allocate_pod(self, pod: AdmissionPod, affinity: Hint) -> None:
        """Give a pod with pod-level resources its devices; upstream waits until its containers start
        (memory-device 2.7)."""
        if self.context.quirks.pod_level_devices_at_start:
            return
        for container in pod.containers:
            self.allocate(pod, container, affinity)

    def _update_reusable(self, uid: str, container: AdmissionContainer) -> None:
        reusable = dict(self._reusable[uid])
        for resource, held in self._records.of(uid, container.name).items():
            offered = reusable.get(resource, 0)
            reusable[resource] = offered | held.devices if container.plain_init else offered & ~held.devices
        self._reusable = {uid: reusable}

    def _allocate_resource(
        self, pod: AdmissionPod, container: AdmissionContainer, resource: str, count: int, affinity: Hint
    ) -> bool:
        """Whether devices were taken. Raises `AdmissionError`."""
        if count == 0 and not self.context.quirks.zero_device_requests_count:
            return False
        if self._settled(pod.uid, container.name, resource, count):
            return False
        pool = self._pools[resource]
        chosen = self._select(pod.uid, resource, count, affinity)
        if pool.plugin is None:
            self._recount()
            raise AdmissionError(f"unknown Device Plugin {resource}")
        try:
            response = pool.plugin.allocate(pool.names(chosen))
        except PluginError as error:
            self._recount()
            raise AdmissionError(str(error)) from None
        if response is None:
            raise AdmissionError(
                "no containers return in allocation response &AllocateResponse{ContainerResponses:"
                "[]*ContainerAllocateResponse{},}"
            )
        if chosen & ~pool.known:
            self._crash(resource, chosen & ~pool.known)
        self._records.add(pod.uid, container.name, resource, Held(chosen, pool.by_node(chosen), response))
        self._unwritten[pod.uid] = None
        return True

    def _settled(self, uid: str, container: str, resource: str, count: int) -> bool:
        """True when nothing has to be taken (memory-device 2.8, steps 1 to 4). Raises `AdmissionError`."""
        held = self._records.of(uid, container).get(resource)
        if held is not None and held.devices.bit_count() != count:
            raise AdmissionError(
                f'pod "{uid}" container "{container}" changed request for resource "{resource}" '
                f"from {held.devices.bit_count()} to {count}"
            )
        pool = self._pools[resource]
        if not self.context.sources_ready:
            if (uid, container) in self._running:
                return True
            absent = not pool.registered or pool.stopped_at is not None
            if held is not None and absent and not self.context.quirks.restart_needs_device_plugins:
                return True
        if not pool.registered:
            raise AdmissionError(f"cannot allocate unregistered device {resource}")
        if not pool.healthy:
            raise AdmissionError(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
        if held is not None and held.devices & ~pool.healthy:
            raise AdmissionError(
                f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}"
            )
        return held is not None or count == 0

    def _select(self, uid: str, resource: str, count: int, affinity: Hint) -> Bits:
        pool = self._pools[resource]
        reusable = self._reusable[uid].get(resource, 0)
        if not self.context.quirks.vanished_devices_crash:
            reusable &= pool.known
        selection = Selection(pool.ids)
        try:
            selection.run(
                resource,
                count,
                size=count,
                reusable=reusable,
                available=pool.free,
                coverage=pool.coverage,
                mask=affinity.mask,
                prefer=lambda available, must, size: self._preferred(resource, available, must, size),
            )
        finally:
            pool.allocated |= selection.taken
            pool.counted = True
        return selection.taken

    def _preferred(self, resource: str, available: Bits, must_include: Bits, size: int) -> Bits | None:
        pool = self._pools[resource]
        if pool.plugin is None:
            raise AdmissionError(f"endpoint not found in cache for a registered resource: {resource}")
        if not pool.plugin.options.get_preferred_allocation_available:
            return None
        try:
            ids = pool.plugin.get_preferred_allocation(pool.names(available), pool.names(must_include), size)
        except PluginError as error:
            raise AdmissionError(f"device plugin GetPreferredAllocation rpc failed with err: {error}") from None
        offered = set(pool.names(available))
        return pool.bits(name for name in ids or () if name in offered)

    # Container start

    def container_start(self, pod: AdmissionPod, container: AdmissionContainer, affinity: Hint) -> RunOptions:
        """What the runtime is told about the container's devices; takes devices it has not got yet
        (memory-device 2.10).

        Raises `AdmissionError` without a reason; the kubelet reports it as an error of the container's start.
        """
        requests = {resource: count for resource, count in self._requests(container).items() if count}
        if self.context.quirks.pre_start_before_allocation:
            self._pre_start(pod.uid, container.name, requests)
        held = self._records.of(pod.uid, container.name)
        if pod.uid in self.context.active and any(resource not in held for resource in requests):
            self.allocate(pod, container, affinity)
        if not self.context.quirks.pre_start_before_allocation:
            self._pre_start(pod.uid, container.name, requests)
        held = self._records.of(pod.uid, container.name)
        return RunOptions.combine([held[name].response or AllocateResponse() for name in sorted(held)])

    def _pre_start(self, uid: str, container: str, requests: Mapping[str, int]) -> None:
        for resource in requests:
            pool = self._pools[resource]
            if pool.plugin is None:
                if pool.stopped_at is None:
                    raise AdmissionError(f"endpoint not found in cache for a registered resource: {resource}")
                continue
            if not pool.plugin.options.pre_start_required:
                continue
            held = self._records.of(uid, container).get(resource)
            if held is None:
                raise AdmissionError(
                    f"no devices found allocated in local cache for pod {uid}, container {container}, "
                    f"resource {resource}"
                )
            try:
                pool.plugin.pre_start(pool.names(held.devices))
            except PluginError as error:
                raise AdmissionError(f"device plugin PreStartContainer rpc failed with err: {error}") from None

    # Release

    def remove_stale(self) -> None:
        """Drop what belongs to pods that are no longer active (memory-device 2.5)."""
        if not self.context.sources_ready or self._cleaned == self.context.epoch:
            return
        changed = self.context.changed_since(self._cleaned)
        self._cleaned = self.context.epoch
        pods = self._records.pods
        if not self.context.quirks.reuse_outlives_pod:
            self._reusable = self.context.of_active(self._reusable)
        gone = [uid for uid in (pods if changed is None else changed) if uid in pods and uid not in self.context.active]
        if not gone:
            return
        for uid in gone:
            del self._records.pods[uid]
        self._unwritten.update(dict.fromkeys(gone))
        if not self.context.quirks.device_file_keeps_gone_pods:
            self._write()
        self._recount()

    # Queries

    def holds(self, pod: AdmissionPod, container: AdmissionContainer) -> bool:
        """True when the container has all devices it asks for."""
        held = self._records.of(pod.uid, container.name)
        return all(resource in held for resource, count in self._requests(container).items() if count)
