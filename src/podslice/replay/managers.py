"""Histories of a node: start, admit, stop, restart … in the shape of the recordings (FORMAT.md, "Sequences").

The kubelet itself is `node.kubelet`; this module only feeds it the recorded operations and writes down what a
recording writes down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

import msgspec

from podslice.api.pod.spec import pod_from_dict
from podslice.config.kubelet import KubeletConfig
from podslice.config.policy_options import option_errors
from podslice.config.validation import validate
from podslice.machine.devices import DeviceInventory, inventory_from_data
from podslice.machine.memory import Block
from podslice.machine.model import Machine
from podslice.node import readmission
from podslice.node.checkpoints.names import CPU_STATE_FILE, MEMORY_STATE_FILE
from podslice.node.effects.cgroup import PodCgroup, pod_cgroup
from podslice.node.kubelet import Kubelet, StartedContainer
from podslice.node.memory import checkpoint as checkpoint_memory
from podslice.replay.hints import hint_to_json
from podslice.replay.outcome import failure
from podslice.state_files.convert import Containers, rewrite
from podslice.values.cpuset import format_bits, iter_bits
from podslice.values.errors import StartError, UpstreamDefectError
from podslice.values.gate_table import gate_states
from podslice.values.go.gojson import CheckpointError
from podslice.values.quirks import Quirks
from podslice.values.releases.release import Release
from podslice.values.releases.table import DEFAULT

TYPES = ("managers",)
_OPTION = "new static policy error: "
_FILES = (CPU_STATE_FILE, MEMORY_STATE_FILE)
Json = dict[str, Any]


def run(case: Json, quirks: Quirks, release: Release = DEFAULT) -> Json:
    """Return the complete result of one history."""
    history = RecordedHistory(case, quirks, release)
    result: Json = {"name": case["name"], "start": history.start()}
    operations = []
    for operation in case.get("ops") or ():
        try:
            outcome = history.run(operation)
        except UpstreamDefectError as defect:
            # A case that hung has no result but that; one that crashed ends with the operation that crashed.
            if defect.hangs:
                raise
            operations.append({"defect": defect.name})
            break
        operations.append(outcome)
    if operations:
        result["ops"] = operations
    return result


class RecordedHistory:
    def __init__(self, case: Json, quirks: Quirks, release: Release = DEFAULT) -> None:
        self.case = case
        self.quirks = quirks
        self.release = release
        self.shown_memory_file: bytes | None = None
        """The content that the recorder shows in place of the memory state file."""
        self.record_hints = bool(case.get("recordHints"))
        self.kubelet = Kubelet(
            msgspec.convert(case["machine"], Machine),
            _config(case["kubelet"], release),
            quirks,
            devices=_devices(case),
            release=release,
        )
        self._operations: dict[str, Callable[[Json], Json]] = {
            "admit": self._admit,
            "removePod": self._remove_pod,
            "removeContainer": self._remove_container,
            "stopContainer": self._stop_container,
            "startContainer": self._start_container,
            # Collection itself follows every operation; this one has nothing else to do.
            "gc": lambda operation: {"ok": True},
        }

    # Start and restart

    def start(self) -> Json:
        outcome: Json = {"op": "start"}
        try:
            self.kubelet.start()
            outcome["ok"] = True
        except StartError as error:
            outcome |= self._failure(error)
        outcome.update(self._start_facts(outcome.get("stage")))
        if self.kubelet.running:
            self.kubelet.collect()
        outcome["state"] = self._state()
        return outcome

    def _failure(self, error: StartError) -> Json:
        """Return why a start failed; of several options that are refused upstream names any."""
        manager = self.kubelet.manager
        options = self.kubelet.config.cpu_manager_policy_options
        others = [one.at_start(_OPTION) for one in option_errors(options, manager.context.gates, self.release)]
        return {"ok": False, "stage": error.stage, **failure(error.message, [one.message for one in others])}

    def _start_facts(self, failed_at: str | None) -> Json:
        manager = self.kubelet.manager
        facts: Json = {}
        # A kubelet parses its gates before it validates the rest of its configuration.
        if failed_at != "featureGates" and (errors := validate(self.kubelet.config, self.release)):
            facts["configErrors"] = list(map(str, errors))
        if manager.reservation is not None:
            facts["nodeAllocatableReservation"] = {name: str(q) for name, q in manager.reservation.items()}
        if manager.cpu_manager is not None and manager.cpu_manager.static:
            facts["reservedCPUs"] = format_bits(manager.cpu_manager.reserved)
            facts["reservedPhysicalCPUs"] = format_bits(manager.cpu_manager.rules.reserved_physical)
        if self.kubelet.running:
            facts["allocatableCPUs"] = format_bits(manager.cpu.allocatable)
            if manager.memory.allocatable:
                facts["allocatableMemory"] = _blocks(manager.memory.allocatable)
        return facts

    def _restart(self, operation: Json) -> Json:
        kubelet = self.kubelet
        for uid in operation.get("deletePods") or ():
            kubelet._leave(uid)
        # Files change between two kubelets, as in an upgrade: the old one has written, the new one has not read.
        kubelet.save()
        for kind, version in (operation.get("convert") or {}).items():
            name = _FILES[0 if kind == "cpu" else 1]
            if name in kubelet.files:
                kubelet.files[name] = _rewrite_or_keep(kind, kubelet.files[name], version, kubelet.container_ids())
        for name, text in (operation.get("files") or {}).items():
            if text is None:
                kubelet.files.pop(name, None)
            else:
                kubelet.files[name] = text.encode()
        before = {name: _text(kubelet.files.get(name)) for name in _FILES}
        if self.shown_memory_file and MEMORY_STATE_FILE not in (operation.get("files") or ()):
            before[MEMORY_STATE_FILE] = _text(self.shown_memory_file)
        outcome: Json = {"op": "restart", "filesBefore": before}
        try:
            kubelet.restart(
                machine=msgspec.convert(operation["machine"], Machine) if "machine" in operation else None,
                config=_config(operation["kubelet"], self.release) if "kubelet" in operation else None,
                devices=_devices(operation) if "devices" in operation else None,
                plugins_ready=bool(operation.get("pluginsReady")),
            )
            outcome["ok"] = True
        except StartError as error:
            outcome |= self._failure(error)
        outcome.update(self._start_facts(outcome.get("stage")))
        if kubelet.running:
            outcome.update(self._readmit(operation))
        outcome["state"] = self._state()
        return outcome

    def _readmit(self, operation: Json) -> Json:
        kubelet = self.kubelet
        outcome: Json = {}
        if operation.get("readmit", True):
            pods = readmission.readmit(kubelet)
            if pods:
                outcome["readmit"] = [
                    {"podUID": uid, "ok": True}
                    if refusal is None
                    else {"podUID": uid, "ok": False, "reason": refusal.reason, "message": refusal.message}
                    for uid, refusal in pods
                ]
            outcome |= self._hints_to_json()
        kubelet.sources_ready()
        outcome.update(self._collect_garbage(operation))
        return outcome

    def _hints_to_json(self) -> Json:
        kubelet = self.kubelet
        hints = {
            f"{uid}/{container.name}": hint_to_json(kubelet.manager.topology.affinity(uid, container.name))
            for uid, pod in kubelet.active.items()
            for container in pod.containers
        }
        return {"topologyHints": hints} if hints else {}

    # Operations

    def run(self, operation: Json) -> Json:
        kind = operation["op"]
        if kind == "restart":
            return self._restart(operation)
        if not self.kubelet.running:
            return {"op": kind, "ok": False, "skipped": "kubelet not running"}
        outcome: Json = {"op": kind, **self._operations[kind](operation)}
        if "skipped" in outcome:
            return outcome
        outcome.update(self._collect_garbage(operation))
        outcome["state"] = self._state()
        return outcome

    def _collect_garbage(self, operation: Json) -> Json:
        if not operation.get("gc", True):
            return {}
        updates = self.kubelet.collect()
        if not updates:
            return {}
        return {"runtimeUpdates": [{"containerID": name, "cpus": format_bits(cpus)} for name, cpus in updates]}

    def _admit(self, operation: Json) -> Json:
        kubelet = self.kubelet
        pod = pod_from_dict(operation["pod"])
        topology = kubelet.manager.topology
        # Set before admission, read after it: the topology manager appends what it asks of each hint provider.
        topology.recorded = [] if self.record_hints else None
        refusal = kubelet.admit(pod)
        admission = kubelet.admission(pod)
        outcome: Json = {"ok": refusal is None}
        if refusal is not None:
            outcome.update(reason=refusal.reason, message=refusal.message)
        outcome["qos"] = admission.qos
        if admission.pod_level:
            outcome["podLevelResources"] = True
        if topology.recorded is not None:
            outcome["providerHints"] = [_hint_request_to_json(asked) for asked in topology.recorded]
        if refusal is None:
            outcome.update(self._start_and_describe(admission.uid, operation.get("start")))
        outcome["topologyHints"] = {
            container.name: hint_to_json(topology.affinity(admission.uid, container.name))
            for container in admission.containers
        }
        return outcome

    def _start_and_describe(self, uid: str, limit: int | None) -> Json:
        kubelet = self.kubelet
        manager = kubelet.manager
        pod = kubelet.active[uid]
        exclusive = manager.cpu.pod_has_exclusive_cpus(pod)
        quota_off = exclusive and manager.quota_can_be_disabled
        outcome: Json = {
            "podHasExclusiveCPUs": exclusive,
            "podCPUQuotaDisabled": quota_off,
            "podCgroup": pod_cgroup_to_json(
                pod_cgroup(pod.spec, manager.context.gates, enforce_cpu_limits=not quota_off)
            ),
        }
        pod_cpus = manager.cpu.state.pod_cpus.get(uid)
        if pod_cpus is not None:
            outcome["podCPUSet"] = format_bits(pod_cpus)
        blocks = manager.memory.pod_blocks(uid)
        if blocks:
            outcome["podMemoryBlocks"] = _blocks(blocks)
        outcome["containers"] = {
            name: _container(started, self.release) for name, started in kubelet.start_containers(uid, limit).items()
        }
        return outcome

    def _start_container(self, operation: Json) -> Json:
        uid, name = operation["podUID"], operation["container"]
        if uid not in self.kubelet.active:
            return {"ok": False, "skipped": "pod is not active"}
        started = self.kubelet.start_container(uid, name)
        return {"ok": started.started, "containers": {name: _container(started, self.release)}}

    def _stop_container(self, operation: Json) -> Json:
        self.kubelet.stop_container(operation["podUID"], operation["container"])
        return {"ok": True}

    def _remove_container(self, operation: Json) -> Json:
        self.kubelet.remove_container(operation["podUID"], operation["container"])
        return {"ok": True}

    def _remove_pod(self, operation: Json) -> Json:
        self.kubelet.remove_pod(operation["podUID"])
        return {"ok": True}

    # State

    def _state(self) -> Json:
        kubelet = self.kubelet
        kubelet.save()
        manager = kubelet.manager
        cpu = manager.cpu_manager.state if manager.cpu_manager is not None else None
        self.shown_memory_file = None
        state: Json = {
            "defaultCPUSet": format_bits(cpu.default if cpu else 0),
            "cpuAssignments": {
                uid: {name: format_bits(cpus) for name, cpus in containers.items()}
                for uid, containers in (cpu.assignments if cpu else {}).items()
            },
        }
        if cpu and cpu.pod_cpus:
            state["podCPUAssignments"] = {uid: format_bits(cpus) for uid, cpus in cpu.pod_cpus.items()}
        state.update(self._memory_state())
        devices = manager.device.assignments()
        if devices:
            state["deviceAssignments"] = devices
        # Upstream writes these lists in the random order of a Go map; the recorder says that it sorted them.
        if self._has_several_types():
            state["memoryCheckpointReordered"] = True
            if not kubelet.running and not self.release.has_pod_level_managers:
                # The recorder shows a refused file with sorted lists, and the checksum of that.
                self.shown_memory_file = _sort_blocks(kubelet.files[MEMORY_STATE_FILE])
        state["cpuCheckpoint"] = _text(kubelet.files.get(CPU_STATE_FILE))
        state["memoryCheckpoint"] = _text(self.shown_memory_file or kubelet.files.get(MEMORY_STATE_FILE))
        metrics = {metric.text: value for metric, value in manager.context.metrics.items() if value}
        if metrics:
            state["metrics"] = metrics
        return state

    def _has_several_types(self) -> bool:
        """Whether a list of blocks in the memory state file has several members. Their order is upstream's map
        order."""
        memory = self.kubelet.manager.memory_manager
        if memory is None or not self.kubelet.running:
            return _several_types(self.kubelet.files.get(_FILES[1]), pod_level=self.kubelet.manager.pod_level)
        lists = [*memory.pod_assignments.values()]
        lists += [blocks for named in memory.assignments.values() for blocks in named.values()]
        return any(len(blocks) > 1 for blocks in lists)

    def _memory_state(self) -> Json:
        memory = self.kubelet.manager.memory_manager
        if memory is None:
            return {"memoryMachineState": None, "memoryAssignments": {}}
        state: Json = {
            "memoryMachineState": {
                str(node): msgspec.to_builtins(ledger) for node, ledger in memory.machine_state.items()
            },
            "memoryAssignments": {
                uid: {name: _blocks(blocks) for name, blocks in named.items()}
                for uid, named in memory.assignments.items()
            },
        }
        if memory.pod_assignments:
            state["podMemoryAssignments"] = {uid: _blocks(own) for uid, own in memory.pod_assignments.items()}
        return state


def pod_cgroup_to_json(cgroup: PodCgroup) -> Json:
    """Return the ResourceConfig of a pod, without page sizes where there are none."""
    shown: Json = {
        "cpuShares": cgroup.cpu_shares,
        "cpuQuota": cgroup.cpu_quota,
        "cpuPeriod": cgroup.cpu_period,
        "memory": cgroup.memory,
    }
    if cgroup.huge_pages:
        shown["hugePageLimit"] = {str(size): limit for size, limit in cgroup.huge_pages.items()}
    return shown


def _several_types(data: bytes | None, *, pod_level: bool) -> bool:
    """Whether a list of blocks in such a file has several members; without `pod_level` pod entries do not count."""
    try:
        checkpoint = checkpoint_memory.decode(data or b"")
    except CheckpointError:
        return False
    lists = [*(checkpoint.pod_entries or {}).values()] if pod_level else []
    lists += [blocks for named in (checkpoint.entries or {}).values() for blocks in (named or {}).values()]
    return any(blocks is not None and len(blocks) > 1 for blocks in lists)


def _sort_blocks(data: bytes) -> bytes:
    """Return the memory state file with each list of blocks sorted by type, and its checksum."""
    checkpoint = checkpoint_memory.decode(data, "v1")
    for named in (checkpoint.entries or {}).values():
        for name, blocks in (named or {}).items():
            if named is not None and blocks is not None:
                named[name] = sorted(blocks, key=attrgetter("type"))
    return checkpoint_memory.encode(checkpoint, "v1")


def _blocks(blocks: Iterable[Block]) -> list[Json]:
    return [block.to_json() for block in blocks]


def _devices(source: Json) -> DeviceInventory:
    return inventory_from_data(source.get("devices") or [])


def _config(kubelet: Json, release: Release) -> KubeletConfig:
    """Return the recorded configuration without unknown gates, which the recorder ignored and a kubelet refuses."""
    config = msgspec.convert({"evictionHard": {}, **kubelet}, KubeletConfig)
    gates = {name: on for name, on in config.feature_gates.items() if name in gate_states(release.minor)}
    return msgspec.structs.replace(config, feature_gates=gates)


def _rewrite_or_keep(kind: str, data: bytes, version: str, containers: Containers) -> bytes:
    """Convert a file to another version; a damaged one, which a profile may have left, stays as it is."""
    try:
        return rewrite(kind, data, version, containers)
    except CheckpointError:
        return data


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def _container(started: StartedContainer, release: Release) -> Json:
    outcome: Json = {"started": started.started}
    if started.error:
        outcome["startError"] = started.error
    holds = started.holds
    outcome |= {
        "cpuset": format_bits(holds.cpus),
        "cpusetMems": ",".join(map(str, iter_bits(holds.memory_nodes))),
        "exclusiveCPUs": format_bits(holds.exclusive_cpus),
        "hasExclusiveCPUs": holds.has_exclusive_cpus,
        "cpuQuotaDisabled": holds.cpu_quota_disabled,
        "memoryNUMANodes": list(iter_bits(holds.memory_nodes)),
        "memoryBlocks": _blocks(holds.blocks),
    }
    if release.has_pod_level_managers:
        outcome["isolation"] = holds.isolation
    if holds.devices:
        outcome["devices"] = {name: list(ids) for name, ids in holds.devices.items()}
    return outcome


def _hint_request_to_json(asked: Any) -> Json:
    outcome: Json = {"provider": asked.provider}
    if asked.container is not None:
        outcome["container"] = asked.container
    if asked.hints is None:
        outcome["none"] = True
    else:
        outcome["hints"] = {
            resource: None if hints is None else [hint_to_json(hint) for hint in hints]
            for resource, hints in asked.hints.items()
        }
    return outcome
