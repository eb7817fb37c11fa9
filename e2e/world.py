"""One scenario's world: the resumed machine, the agent under test with its configuration, and the checks."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from e2e.kubelet import MANIFESTS, NODE, Kubelet, RefusedError, Running
from e2e.vm import Shape, VirtualMachine
from podslice.values.cpuset import format_bits, parse_bits

Json = dict[str, Any]
T = TypeVar("T")
PATIENCE = 60
CLIENTS = Path(__file__).parent / "clients"
METRICS = "127.0.0.1:9095"
STATE, CONFIG, SOCKET = "/var/lib/podslice", "/etc/podslice/agent.yaml", "/run/podslice/agent.sock"
RUNTIME = "unix:///run/containerd/containerd.sock"
POD_RESOURCES = "/run/podslice/pod-resources.sock"
PODSLICE = ("python3.13", "-m", "podslice")


class CheckError(AssertionError):
    """Raised when an expectation does not hold."""


def check(condition: bool, message: str) -> None:
    """Raise `CheckError` with a sentence that names what was found."""
    if not condition:
        raise CheckError(message)


class World:
    """A machine with the agent running. Sets of CPUs and NUMA nodes are masks."""

    def __init__(self, vm: VirtualMachine, config: Json, agent: Json) -> None:
        self.vm = vm
        self.shape: Shape = vm.shape
        self.config = config
        self.agent = agent
        self._clients: set[str] = set()
        self.kubelet = Kubelet(vm, config)
        self.nodes = [parse_bits(cpus) for cpus in self.shape.nodes]
        self.online = sum(self.nodes)
        self.threads = int(re.search(r"threads=(\d+)", self.shape.smp)[1])  # type: ignore[index]
        self.reserved = parse_bits(config.get("reservedSystemCPUs", ""))
        vm.call("unpack_checkout")
        self.start_agent()

    def start_agent(self, *, ready: bool = True, program: Sequence[str] = PODSLICE) -> None:
        """Start the agent and wait until the runtime knows it and, if so asked, until it is ready."""
        settings = {
            "apiVersion": "podslice.io/v1alpha1",
            "kind": "AgentConfiguration",
            "resources": self.config,
            "sources": {"manifests": MANIFESTS},
            "stateDirectory": STATE,
            "statusSocket": SOCKET,
            "metricsAddress": METRICS,
            "reconcileSeconds": 2,
            **self.agent,
        }
        self.vm.call("write", path=CONFIG, text=json.dumps(settings))
        self.vm.call("shell", command=f"mkdir -p {MANIFESTS}; rm -f {SOCKET}")
        self._pid = self.vm.call("start", name="agent", command=[*program, "agent", "--config", CONFIG])
        self.wait_for_agent(ready=ready)

    def wait_for_agent(self, *, ready: bool = True) -> None:
        """Wait until the agent is connected, and ready."""
        self.vm.call("wait_agent", path=SOCKET, ready=ready)

    def kill_agent(self) -> None:
        """Send SIGKILL to the agent."""
        self.vm.call("kill", name="agent")

    def signal_agent(self, signal: str) -> None:
        """Send STOP or CONT to the agent."""
        self.vm.call("shell", command=f"kill -{signal} {self._pid}")

    def restart_agent(self) -> None:
        self.kill_agent()
        self.start_agent()

    def mend_state(self) -> None:
        """Run `podslice state repair` on the agent's files."""
        reserved = format_bits(self.reserved)
        words = (*PODSLICE, "state", "repair", STATE, "--here", "--reserved-cpus", reserved, "--write")
        self.vm.call("shell", command=shlex.join(words))

    def client(self, name: str) -> str:
        """The path in the guest of one of our clients, which is put there when it is first asked for."""
        path = f"/run/{name}"
        if name not in self._clients:
            self.vm.call("write", path=path, text=(CLIENTS / name).read_text())
            self._clients.add(name)
        return path

    def pod_resources(self, method: str, **fields: Any) -> Json:
        """An answer of the agent's PodResources API; after an error its code and details."""
        words = (self.client("pod_resources.py"), POD_RESOURCES, method, json.dumps(fields))
        answer: Json = json.loads(self.vm.call("shell", command=shlex.join(["python3.13", *words])))
        return answer

    def pod_resources_of(self, pod: Running, name: str) -> Json:
        """Return a container in PodResources' List; an empty object for one that is not listed."""
        for one in self.pod_resources("List").get("pod_resources", []):
            if one["name"] == f"{pod.manifest['metadata']['name']}-{NODE}":
                return next((found for found in one["containers"] if found["name"] == name), {})
        return {}

    def metrics(self) -> dict[str, float]:
        """The agent's metrics, by name and labels."""
        lines = self.vm.call("shell", command=f"busybox wget -q -O - http://{METRICS}/metrics").splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    # Pods

    def run(self, manifest: Json) -> Running:
        return self.kubelet.run(manifest)

    def refuse(self, manifest: Json, *texts: str, known: bool = True) -> None:
        """Check that the pod is refused, with all the texts in the message."""
        try:
            self.kubelet.run(manifest, known=known)
        except RefusedError as refused:
            for text in texts:
                check(text in str(refused), f"the refusal lacks {text!r}: {refused}")
        else:
            raise CheckError(f"pod {manifest['metadata']['name']} was admitted")

    def remove(self, *pods: Running) -> None:
        for one in pods:
            self.kubelet.remove(one)

    # Checks

    def check_shared(self, pod: Running, name: str, expected: int) -> None:
        """Check that a container soon runs on exactly these CPUs: the runtime gets released CPUs only afterwards."""
        found = self.soon(lambda: pod.cpus(name), expected)
        check(found == expected, f"{name} runs on {_text(found)}, expected {_text(expected)}")

    def soon(self, look: Callable[[], T], expected: T) -> T:
        """Return what `look` finds, after waiting at most `PATIENCE` seconds for the expected value."""
        deadline = time.monotonic() + PATIENCE
        while (found := look()) != expected and time.monotonic() < deadline:
            time.sleep(0.3)
        return found

    def exclusive(self, pod: Running, name: str, count: int) -> int:
        """Check that a container owns `count` CPUs, none of them reserved or another's, and return them."""
        found = pod.cpus(name)
        check(found.bit_count() == count, f"{name} runs on {_text(found)}, expected {count} CPUs")
        check(not found & self.reserved, f"{name} has reserved CPUs {_text(found & self.reserved)}")
        for other in self.kubelet.pods.values():
            for neighbour in other.containers:
                if (other.uid, neighbour) != (pod.uid, name):
                    common = other.cpus(neighbour) & found
                    check(not common, f"{neighbour} of {other.uid} also runs on {_text(common)}")
        return found

    def whole_cores(self, cpus: int) -> None:
        """Check that sibling threads are in or out together."""
        step = self.threads
        for core in range(0, self.online.bit_length(), step):
            part = cpus >> core & ((1 << step) - 1)
            check(part in (0, (1 << step) - 1), f"{_text(cpus)} has part of the core of CPU {core}")

    def on_nodes(self, cpus: int) -> int:
        """The NUMA nodes of CPUs."""
        return sum(1 << node for node, own in enumerate(self.nodes) if own & cpus)

    def quota(self, pod: Running, name: str, container: str, whole: str) -> None:
        """`cpu.max` of the container and the quota of its pod."""
        facts = pod.facts(name)
        check(facts["cpu.max"] == container, f"cpu.max of {name} is {facts['cpu.max']}, expected {container}")
        found = self.soon(lambda: str(pod.facts(name)["pod cpu.max"]).split()[0], whole)
        check(found == whole, f"the quota of the pod is {found}, expected {whole}")

    def disjoint(self, *sets: int) -> None:
        for place, one in enumerate(sets):
            for other in sets[place + 1 :]:
                check(not one & other, f"{_text(one)} and {_text(other)} overlap")

    def nothing_left(self) -> None:
        """Without pods the state is as after the first start, soon: some ends are not reported but found."""
        none: list[str] = []
        left = self.soon(self._owners, none)
        check(not left, f"the state still has owners: {left}")

    def _owners(self) -> list[str]:
        state = json.loads(self.vm.call("read", path=f"{STATE}/cpu_manager_state"))
        return [*state.get("entries", {}), *state.get("podEntries", {})]


def _text(cpus: int) -> str:
    return f"{{{format_bits(cpus)}}}"


def union(sets: Iterable[int]) -> int:
    """All members of all sets."""
    total = 0
    for one in sets:
        total |= one
    return total
