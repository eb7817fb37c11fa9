"""A node with files of the kernel below a folder, for tests of its guards."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from podslice.agent.admitting import NodeSetup
from podslice.agent.contract import Listed
from podslice.agent.guards.nodeguards import NodeGuards
from podslice.agent.node_wiring import wire_node
from podslice.agent.records import ContainerRecord, Pinning
from podslice.agent.status.metrics import Metrics
from podslice.agent.status.report import AgentReporter
from podslice.config.policy import InterferenceGuards, PodslicePolicy
from podslice.host.kernel.kernelfiles import KernelFiles, SavedStore
from podslice.values.cpuset import bits_of, format_bits
from tests.conftest import make_node, make_pod
from tests.guards.kernel import CGROUPS

IRQ, DEFAULT = "proc/irq/131/smp_affinity_list", "proc/irq/default_smp_affinity"


def format_cpus(cpus: Iterable[int]) -> str:
    return format_bits(bits_of(cpus))


class GuardedNode:
    """A node with kernel files below a folder, and a pod that owns CPUs or does not."""

    def __init__(
        self,
        folder: Path,
        irq: str | None,
        *,
        observe: bool = False,
        rules: InterferenceGuards | None = None,
        kernel: tuple[int, int] = (6, 12),
        mount: str = CGROUPS,
    ) -> None:
        self.root = folder / "root"
        for path, text in ((IRQ, "0-31\n"), (DEFAULT, "ffffffff\n")):
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            if not (self.root / path).exists():
                (self.root / path).write_text(text)
        guards = rules or (None if irq is None else InterferenceGuards(irq=irq))  # type: ignore[arg-type]
        policy = PodslicePolicy(guards=guards)
        node = make_node()
        (folder / "state").mkdir(exist_ok=True)
        self.metrics = Metrics()
        reporter = AgentReporter(metrics=self.metrics)
        self.owner = wire_node(NodeSetup(folder / "state", node.machine, node.view.config, policy), reporter).owner
        self.owner.synchronize(Listed([], []))
        self.troubles: list[str] = []
        self.events: list[tuple[str, str]] = []
        store = SavedStore(folder / "state", "boot", cgroups=mount)
        self.guards = NodeGuards(
            self.owner,
            KernelFiles(self.root, set_affinity=self._move),
            store,
            self.metrics,
            said=self,
            mount=mount,
            observe=observe,
            kernel=kernel,
        )

    def _move(self, pid: int, cpus: Iterable[int]) -> None:
        """The kernel's answer to sched_setaffinity."""
        self.put(f"proc/{pid}/status", f"Cpus_allowed_list:\t{format_cpus(cpus)}")

    def thread(self, pid: int, name: str, flags: int, allowed: str = "0-31", started: int = 5) -> None:
        """A process as `/proc` has it."""
        fields = ["S", "2", "0", "0", "0", "-1", str(flags), *["0"] * 12, str(started), "0", "0"]
        self.put(f"proc/{pid}/stat", f"{pid} ({name}) {' '.join(fields)}")
        self.put(f"proc/{pid}/status", f"Name:\t{name}\nCpus_allowed_list:\t{allowed}")
        self.put(f"proc/{pid}/comm", name)

    def allowed(self, pid: int) -> str:
        return self.text(f"proc/{pid}/status").rpartition("\t")[2]

    def trouble(self, kind: str, text: str) -> None:
        self.troubles.append(text)

    def event(self, reason: str, text: str) -> None:
        self.events.append((reason, text))

    def own(self, **annotations: str) -> str:
        """The CPUs of a new pod, whose container runs on them."""
        assert self.owner.node is not None
        pod = make_pod("u1", ("app", "4"))
        said = {f"podslice.io/{key.replace('_', '-')}": text for key, text in annotations.items()}
        pod = replace(pod, metadata=replace(pod.metadata, annotations=said))
        cpus = self.owner.node.admit(pod).containers[0].cpus
        assert cpus is not None
        applied = Pinning(cpus=cpus.bits)
        self.owner.containers["c1"] = ContainerRecord(
            "c1", "app", "u1", "s1", cgroups_path="/kubepods/pod1/app", unit="u1", member="app", applied=applied,
            started=True,
        )  # fmt: skip
        return str(cpus)

    def put(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
        return file

    def look(self) -> None:
        asyncio.run(self.guards.look())

    def text(self, path: str = IRQ) -> str:
        return (self.root / path).read_text().strip()

    def open(self, guard: str = "irq") -> float:
        return self.metrics.guard_open.labels(guard)._value.get()


def cgroups_of(node: GuardedNode, mount: str = CGROUPS) -> dict[str, Path]:
    """The files of a partition, by their cgroup."""
    where = f"{mount}/kubepods"
    parents = {path: node.put(f"{where}{path}/cpuset.cpus.exclusive", "") for path in ("", "/pod1")}
    return parents | {"/pod1/app": node.put(f"{where}/pod1/app/cpuset.cpus.partition", "member")}
