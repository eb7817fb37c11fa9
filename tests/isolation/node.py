"""A node's kernel in memory for the isolation report: files that change when time passes."""

from __future__ import annotations

from podslice.host.filesystem import MemoryFileSystem
from podslice.isolation.facts import IsolationFacts
from podslice.isolation.kernel_facts import IsolationSources, OwnedCgroup, read_isolation
from podslice.values.cpuset import parse_bits

KERNEL, FIXED = 0x00200000, 0x04000000


class FakeKernel:
    """CPUs 0-7 on two NUMA nodes, cores of two threads (0 and 1, 2 and 3, …). One container owns `cpus`; `later` are
    the files after the wait, by name within `proc`, `cgroups` and `sys`."""

    def __init__(self, cpus: str = "4-7") -> None:
        self.cpus = cpus
        self.proc: dict[str, str] = {"stat": self.stat({}), "interrupts": self.interrupts({})}
        self.cgroups = {
            "kubepods/pod1/app/cpuset.cpus.effective": f"{cpus}\n",
            "kubepods/pod1/app/cpuset.cpus.partition": "member\n",
            "kubepods/pod1/app/cgroup.threads": "100\n",
            "kubepods/pod1/app/cpu.stat": "usage_usec 1000000\nnr_throttled 5\n",
            "kubepods/pod1/app/cpu.pressure": "some avg10=0.00 total=100\nfull avg10=0.00 total=0\n",
            "kubepods/pod1/app/memory.numa_stat": "anon N0=0 N1=1048576\nfile N0=0 N1=0\n",
        }
        self.sys = {
            "devices/system/node/node0/cpulist": "0-3\n",
            "devices/system/node/node1/cpulist": "4-7\n",
            "devices/system/cpu/nohz_full": "\n",
        }
        for cpu in range(8):
            path = f"devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
            self.sys[path] = f"{cpu & ~1}-{cpu | 1}\n"
        self.thread(100, "app", cpus, "kubepods/pod1/app", cpu=4)
        self.proc["100/sched"] = "se.nr_migrations    :    3\n"
        self.later: dict[str, str] = {}
        self.others: dict[str, str] = {}

    @staticmethod
    def stat(busy: dict[int, int], steal: dict[int, int] | None = None) -> str:
        lines = [f"cpu{cpu} {busy.get(cpu, 0)} 0 0 0 0 0 0 {(steal or {}).get(cpu, 0)} 0 0" for cpu in range(8)]
        return "\n".join(["cpu 0 0 0 0 0 0 0 0 0 0", *lines, "ctxt 1"]) + "\n"

    @staticmethod
    def interrupts(device: dict[int, int]) -> str:
        counts = "".join(f"{device.get(cpu, 0):>11}" for cpu in range(8))
        head = "".join(f"       CPU{cpu}" for cpu in range(8))
        timer = "".join(f"{1000:>11}" for _ in range(8))
        line = f" 131:{counts}  PCI-MSIX-0000:00:03.0   3-edge      eth0-rx-3"
        return f"{head}\n{line}\n LOC:{timer}   Local timer\nERR: 0\n"

    def thread(self, number: int, name: str, allowed: str, cgroup: str, *, cpu: int, flags: int = 0) -> None:
        """A process of one thread."""
        fields = ["S", "1", "0", "0", "0", "0", str(flags), *["0"] * 29, str(cpu), "0"]
        for folder in (str(number), f"{number}/task/{number}"):
            self.proc[f"{folder}/stat"] = f"{number} ({name}) {' '.join(fields)}\n"
            self.proc[f"{folder}/status"] = f"Name:\t{name}\nCpus_allowed_list:\t{allowed}\n"
            self.proc[f"{folder}/schedstat"] = "1000 0 1\n"
        self.proc[f"{number}/cgroup"] = f"0::/{cgroup}\n"

    def ran(self, number: int, *, ns: int = 2000, delay: int = 0) -> None:
        """By the second sample a thread has run so long in all, and waited so long."""
        for folder in (str(number), f"{number}/task/{number}"):
            self.later[f"proc/{folder}/schedstat"] = f"{ns} {delay} 2\n"

    def facts(self, seconds: float = 10.0) -> IsolationFacts:
        """Return the facts that are read of the node. The mappings are live, so that a wait changes them."""
        parts = {"proc": self.proc, "cgroups": self.cgroups, "sys": self.sys}

        def wait() -> float:
            for path, text in self.later.items():
                part, _, name = path.partition("/")
                parts[part][name] = text
            return seconds

        proc, cgroups, sys = (MemoryFileSystem(part) for part in parts.values())
        owner = OwnedCgroup("pod1", "app", "kubepods/pod1/app", parse_bits(self.cpus))
        return read_isolation([owner], IsolationSources(proc, cgroups, sys, self.others), wait=wait)
