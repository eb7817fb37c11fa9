"""The kubelet's part of the test: it makes the cgroups and CRI calls that a kubelet with policy `none` would make."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from e2e.vm import GuestError, VirtualMachine
from podslice.api.pod.demand import GUARANTEED, pod_qos
from podslice.api.pod.spec import Container, Pod, pod_from_dict
from podslice.api.server.defaults import default_pod
from podslice.node.effects.cgroup import PodCgroup, pod_cgroup
from podslice.node.effects.container_cgroup import LinuxResources, container_resources
from podslice.node.effects.cpu_weight import shares_to_weight
from podslice.node.effects.oom import oom_score_adjustments
from podslice.node.effects.sandbox import sandbox
from podslice.node.effects.settings import CgroupSettings
from podslice.values.cpuset import parse_bits
from podslice.values.duration import parse_duration
from podslice.values.gates import FeatureGates
from podslice.values.quirks import KUBELET_1_36

Json = dict[str, Any]
MANIFESTS = "/etc/kubernetes/manifests"
NODE = "e2e"
"""The guest's name; a kubelet appends it to the names of static pods."""


class RefusedError(Exception):
    """The runtime refused a pod; the text is what a kubelet would put into the pod's events."""


class Running:
    """A pod that runs, with what holds for its containers' processes."""

    def __init__(self, vm: VirtualMachine, manifest: Json, sandbox_id: str, data: Json) -> None:
        self.manifest = manifest
        self.sandbox = sandbox_id
        self.data = data
        self.containers: dict[str, tuple[str, int]] = {}
        self.ended: dict[str, Json] = {}
        self._vm = vm

    @property
    def uid(self) -> str:
        return str(self.manifest["metadata"]["uid"])

    def facts(self, name: str) -> Json:
        """Return the facts in `/proc` and the cgroup; for an ended init container those while it ran."""
        if name in self.ended:
            return self.ended[name]
        found: Json = self._vm.call("facts", pid=self.containers[name][1])
        return found

    def process(self, name: str, file: str) -> str:
        """A file of `/proc/PID` of a container."""
        return str(self._vm.call("read", path=f"/proc/{self.containers[name][1]}/{file}"))

    def variables(self, name: str) -> dict[str, str]:
        """A container's environment."""
        pairs = (line.partition("=") for line in self.process(name, "environ").split("\0") if line)
        return {key: value for key, _, value in pairs}

    def cpus(self, name: str) -> int:
        """Allowed CPUs of a container's process as a mask."""
        return parse_bits(self.facts(name)["cpus"])

    def mems(self, name: str) -> int:
        """Allowed NUMA nodes of a container's process as a mask."""
        return parse_bits(self.facts(name)["mems"])


class Kubelet:
    """Runs pods in the guest, under the same KubeletConfiguration as the agent where it concerns cgroups. `between`
    happens after every call of the runtime."""

    def __init__(self, vm: VirtualMachine, config: Json) -> None:
        self.vm = vm
        self.between: Callable[[], None] = lambda: None
        self.gates = FeatureGates.from_overrides({"PodLevelResourceManagers": True, **config.get("featureGates", {})})
        period = parse_duration(config.get("cpuCFSQuotaPeriod", "100ms")) // 1000
        self.settings = CgroupSettings(memory_capacity=2 << 30, huge_pages=(), cfs_period_us=period)
        self.pods: dict[str, Running] = {}

    def run(self, manifest: Json, *, known: bool = True) -> Running:
        """Run a pod: init containers to their end, sidecars and app containers to stay. With `known` the agent can read
        its manifest. Raises `RefusedError`; nothing of the pod is left then."""
        running = self.open(manifest, known=known)
        try:
            self.start(running)
        except RefusedError:
            self.remove(running)
            raise
        return running

    def open(self, manifest: Json, *, known: bool = True) -> Running:
        """The pod's sandbox, which no agent may refuse."""
        pod, data = self._prepare(manifest, known=known)
        running = Running(self.vm, manifest, self._call("run_sandbox", pod=data), data)
        self.pods[pod.metadata.uid] = running
        return running

    def start(self, running: Running) -> None:
        """Start the containers that do not run yet. Raises `RefusedError`."""
        pod = default_pod(pod_from_dict(running.manifest), self.gates)
        scores = iter(oom_score_adjustments(pod, self.gates, self.settings.memory_capacity))
        for container in pod.spec.init_containers:
            self._start(running, pod, container, next(scores))
            if container.restart_policy != "Always":
                running.ended[container.name] = running.facts(container.name)
                self.stop_container(running, container.name)
        for container in pod.spec.containers:
            self._start(running, pod, container, next(scores))

    def run_together(self, manifests: list[Json]) -> list[int]:
        """Pods of one container each come at once and go at once, when all of them have run; the CPUs of each."""
        pods = []
        for manifest in manifests:
            pod, data = self._prepare(manifest, known=True)
            container, score = pod.spec.containers[0], oom_score_adjustments(pod, self.gates, 2 << 30)[0]
            wanted = {"name": container.name, "resources": self._resources(pod, container, score)}
            pods.append({"pod": data, "container": wanted})
        found = self.vm.call("together", pods=pods)
        for one in pods:
            self._forget(one["pod"])
        return [parse_bits(facts["cpus"]) for facts in found]

    def _prepare(self, manifest: Json, *, known: bool) -> tuple[Pod, Json]:
        """Make the pod's manifest and cgroup; returns the pod, and its message to the runtime."""
        pod = default_pod(pod_from_dict(manifest), self.gates)
        uid = pod.metadata.uid
        qos = pod_qos(pod, self.gates)
        parent = "/kubepods" + ("" if qos == GUARANTEED else f"/{qos.lower()}") + f"/pod{uid}"
        if known:
            self.vm.call("write", path=f"{MANIFESTS}/{uid}.json", text=json.dumps(manifest))
        self._pod_cgroup(parent, pod_cgroup(pod, self.gates, period=self.settings.quota_period(self.gates)))
        data = {
            "name": f"{pod.metadata.name}-{NODE}",
            "uid": uid,
            "cgroup_parent": parent,
            "annotations": {**(pod.metadata.annotations or {}), **(_static(uid) if known else {})},
            "resources": _cri(sandbox(pod, self.gates, self.settings, KUBELET_1_36).resources),
        }
        return pod, data

    def _resources(self, pod: Pod, container: Container, score: int) -> Json:
        return _cri(container_resources(pod, container, self.gates, self.settings, KUBELET_1_36, oom_score_adj=score))

    def _start(self, running: Running, pod: Pod, container: Container, score: int) -> None:
        self.start_container(running, container.name, self._resources(pod, container, score))

    def start_container(self, running: Running, name: str, resources: Json) -> None:
        """Create and start one container. Raises `RefusedError`."""
        wanted = {"name": name, "resources": resources}
        try:
            created = self._call("create_container", sandbox=running.sandbox, pod=running.data, container=wanted)
            running.containers[name] = created, self._call("start_container", container=created)
        except GuestError as error:
            raise RefusedError(str(error)) from None

    def stop_container(self, running: Running, name: str) -> None:
        """End and remove one container."""
        self._call("remove_container", container=running.containers.pop(name)[0])

    def remove(self, running: Running) -> None:
        """Remove the pod from the node."""
        for name in list(running.containers):
            self.stop_container(running, name)
        self._call("remove_sandbox", sandbox=running.sandbox)
        self._forget(running.data)
        del self.pods[running.uid]

    def _forget(self, data: Json) -> None:
        command = f"rmdir /sys/fs/cgroup{data['cgroup_parent']}; rm -f {MANIFESTS}/{data['uid']}.json"
        self.vm.call("shell", command=command)

    def _call(self, function: str, **arguments: Any) -> Any:
        answer = self.vm.call(function, **arguments)
        self.between()
        return answer

    def _pod_cgroup(self, parent: str, values: PodCgroup) -> None:
        folder = ""
        for part in parent.strip("/").split("/"):
            folder = f"{folder}/{part}"
            self.vm.call("make_cgroup", name=folder.strip("/"))
        quota = "max" if values.cpu_quota in (None, -1) else str(values.cpu_quota)
        files = {
            "cpu.weight": str(shares_to_weight(values.cpu_shares)),
            "cpu.max": f"{quota} {values.cpu_period or self.settings.cfs_period_us}",
            "memory.max": "max" if values.memory is None else str(values.memory),
        }
        for name, text in files.items():
            self.vm.call("write", path=f"/sys/fs/cgroup{parent}/{name}", text=text)


def _static(uid: str) -> dict[str, str]:
    """Return the status that a kubelet gives to a static pod."""
    return {"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": uid}


def _cri(resources: LinuxResources) -> Json:
    return {
        "cpu_period": resources.cpu_period,
        "cpu_quota": resources.cpu_quota,
        "cpu_shares": resources.cpu_shares,
        "memory_limit_in_bytes": resources.memory_limit,
        "oom_score_adj": resources.oom_score_adj,
    }
