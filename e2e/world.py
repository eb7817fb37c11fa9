"""One scenario's world: the resumed machine, the agent under test with its configuration, and the checks."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from e2e.kubelet import MANIFESTS, Kubelet, RefusedError, Running
from e2e.vm import Shape, VirtualMachine
from podslice.core.values.cpuset import format_bits, parse_bits

Json = dict[str, Any]
T = TypeVar("T")
PATIENCE = 15
STATE, CONFIG, SOCKET = "/var/lib/podslice", "/etc/podslice/agent.yaml", "/run/podslice/agent.sock"
PODSLICE = ("python3.13", "-m", "podslice.cli.main")


class CheckError(AssertionError):
    """What was expected is not so."""


def check(condition: bool, message: str) -> None:
    """Raise `CheckError` with a sentence that names what was found."""
    if not condition:
        raise CheckError(message)


class World:
    """A machine with the agent running. Sets of CPUs and NUMA nodes are masks."""

    def __init__(self, vm: VirtualMachine, config: Json, *, cfs_period_us: int = 100_000) -> None:
        self.vm = vm
        self.shape: Shape = vm.shape
        self.config = config
        self.kubelet = Kubelet(vm, cfs_period_us=cfs_period_us)
        self.nodes = [parse_bits(cpus) for cpus in self.shape.nodes]
        self.online = sum(self.nodes)
        self.threads = int(re.search(r"threads=(\d+)", self.shape.smp)[1])  # type: ignore[index]
        self.reserved = parse_bits(config.get("reservedSystemCPUs", ""))
        vm.call("unpack_checkout")
        self.start_agent()

    def start_agent(self) -> None:
        """Start the agent and wait until the runtime knows it."""
        settings = {
            "apiVersion": "podslice.io/v1alpha1",
            "kind": "AgentConfiguration",
            "resources": self.config,
            "sources": {"manifests": MANIFESTS},
            "stateDirectory": STATE,
            "statusSocket": SOCKET,
            "metricsAddress": "",
            "reconcileSeconds": 2,
        }
        self.vm.call("write", path=CONFIG, text=json.dumps(settings))
        self.vm.call("shell", command=f"mkdir -p {MANIFESTS}; rm -f {SOCKET}")
        self.vm.call("start", name="agent", command=[*PODSLICE, "agent", "--config", CONFIG])
        self.wait_for_agent()

    def wait_for_agent(self) -> None:
        """Until the agent says that it is ready."""
        self.vm.call("wait_agent", path=SOCKET)

    def kill_agent(self) -> None:
        """SIGKILL."""
        self.vm.call("kill", name="agent")

    # Pods

    def run(self, manifest: Json) -> Running:
        return self.kubelet.run(manifest)

    def refuse(self, manifest: Json, *texts: str) -> None:
        """The pod must be refused, with all the texts in the message."""
        try:
            self.run(manifest)
        except RefusedError as refused:
            for text in texts:
                check(text in str(refused), f"the refusal lacks {text!r}: {refused}")
        else:
            raise CheckError(f"pod {manifest['metadata']['name']} was admitted")

    def remove(self, *pods: Running) -> None:
        for one in pods:
            self.kubelet.remove(one)

    # Checks

    def shared(self, pod: Running, name: str, expected: int) -> None:
        """A container runs on exactly these CPUs, or does soon: the runtime is told about released CPUs afterwards."""
        found = self._soon(lambda: pod.cpus(name), expected)
        check(found == expected, f"{name} runs on {_text(found)}, expected {_text(expected)}")

    def _soon(self, look: Callable[[], T], expected: T) -> T:
        """What is found, after waiting at most `PATIENCE` seconds for what is expected."""
        deadline = time.monotonic() + PATIENCE
        while (found := look()) != expected and time.monotonic() < deadline:
            time.sleep(0.3)
        return found

    def exclusive(self, pod: Running, name: str, count: int) -> int:
        """A container owns `count` CPUs, none of them reserved or anybody else's; they are returned."""
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
        """Siblings are in or out together."""
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
        found = self._soon(lambda: str(pod.facts(name)["pod cpu.max"]).split()[0], whole)
        check(found == whole, f"the quota of the pod is {found}, expected {whole}")

    def disjoint(self, *sets: int) -> None:
        for place, one in enumerate(sets):
            for other in sets[place + 1 :]:
                check(not one & other, f"{_text(one)} and {_text(other)} overlap")

    def nothing_left(self) -> None:
        """Without pods the state is as after the first start."""
        state = json.loads(self.vm.call("read", path=f"{STATE}/cpu_manager_state"))
        check(not state.get("entries") and not state.get("podEntries"), f"the state still has owners: {state}")


def _text(cpus: int) -> str:
    return f"{{{format_bits(cpus)}}}"


def union(sets: Iterable[int]) -> int:
    """All members of all sets."""
    total = 0
    for one in sets:
        total |= one
    return total
