"""Every resize there is on machines of 8 CPUs, against `reference`: `python -m tests.node.resize.exhaustive`.

One container is on every set of CPUs that it could have, another one on every set of the others, and the first one
wants every size. What it gets must be what the reference says, under every option set and Topology Manager policy; a
refusal is Infeasible exactly where no state of others would admit it. Prints counts; exits 1 for any difference. With
`--log FILE` every option set that is through becomes a line there, and is not asked again.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from podslice import ExclusiveResize, KubeletConfig, Machine, Node, Pod, PodslicePolicy, StartError
from podslice.api.pod.eligibility import AdmissionPod
from podslice.machine.model import CPUTopology
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node import node_resize
from podslice.node.cpu.resize import ResizePicker
from podslice.values.cpu_policy_options import CPU_POLICY_OPTIONS, CPUPolicyOptions
from podslice.values.cpuset import Bits, bits_of, ids_of
from podslice.values.errors import AdmissionError
from podslice.values.quirks import PODSLICE
from tests.node.cpu.test_resize import ALLOWED
from tests.node.resize import reference
from tests.node.resize.helpers import guaranteed, pod
from tests.node.resize.reference import CPUs, Layout

MACHINES = {
    "one socket, 2 NUMA nodes": from_synthetic("pack:1 numa:2(memory=64GB) core:2 pu:2"),
    "2 sockets": from_synthetic("pack:2 numa:1(memory=64GB) core:2 pu:2"),
    "2 sockets with 2 caches each": from_synthetic("pack:2 numa:1(memory=64GB) l3:2 core:1 pu:2"),
    "one socket with 4 caches": from_synthetic("pack:1 numa:2(memory=64GB) l3:2 core:1 pu:2"),
}
POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
RESERVED: CPUs = frozenset({0, 1})
GATES = {"CPUManagerPolicyAlphaOptions": True, "CPUManagerPolicyBetaOptions": True}


def name_of(options: CPUPolicyOptions) -> str:
    return "+".join(name for name in CPU_POLICY_OPTIONS if getattr(options, name.replace("-", "_"))) or "none"


class Report:
    """Counts, and what differs."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.found: list[str] = []

    def add(self, what: str, *, same: bool, case: object) -> None:
        self.counts[what] += 1
        if not same:
            self.counts["different"] += 1
            self.found.append(f"{what}: {case}")


def subsets(cpus: CPUs, cores: tuple[CPUs, ...] = ()) -> Iterator[CPUs]:
    """All sets of these CPUs; with `cores` those of whole cores."""
    units = [core for core in cores if core <= cpus] or [frozenset({cpu}) for cpu in sorted(cpus)]
    for chosen in range(1 << len(units)):
        yield frozenset().union(*(unit for index, unit in enumerate(units) if chosen >> index & 1))


# The pick alone: any anchor, any pool, any mask


def picks(machine: Machine, options: CPUPolicyOptions, share: float, random: Random, report: Report) -> None:
    """5.3: every anchor and pool, every size, every mask."""
    topology = CPUTopology(machine)
    layout, picker = Layout.of(topology), ResizePicker(topology, options, PODSLICE)
    cores = layout.cores if options.full_pcpus_only else ()
    step = len(layout.cores[0]) if options.full_pcpus_only else 1
    name = name_of(options)
    for anchor in subsets(layout.all_cpus, cores):
        for pool in subsets(layout.all_cpus - anchor):
            if random.random() >= share:
                continue
            for mask in (None, *reference.masks(layout)):
                for count in range(len(anchor), len(anchor | pool) + 1, step):
                    wanted = reference.pick(layout, options, anchor, pool, count, mask)
                    bits = None if mask is None else bits_of(mask)
                    found = picked(picker, bits_of(anchor), bits_of(pool), count, bits)
                    case = name, sorted(anchor), sorted(pool), count, mask, wanted, found
                    report.add("picks", same=found == (None if wanted is None else bits_of(wanted)), case=case)


def picked(picker: ResizePicker, anchor: Bits, pool: Bits, count: int, mask: Bits | None) -> Bits | None:
    try:
        return picker.pick(anchor, pool, count, mask)
    except AdmissionError:
        return None


# The verdict: any state of others


class Question(NamedTuple):
    """A request for more CPUs by a container that has some."""

    held: CPUs
    wants: int


def verdicts(
    machine: Machine, options: CPUPolicyOptions, policy: str, share: float, random: Random, report: Report
) -> None:
    """5.4 and P10: every container, every state of others, every size."""
    node = started(machine, options, policy)
    if node is None:
        return
    layout = Layout.of(node.topology)
    assignable = layout.all_cpus - RESERVED
    cores = layout.cores if options.full_pcpus_only else ()
    step = len(layout.cores[0]) if options.full_pcpus_only else 1
    name = name_of(options)
    for held in subsets(assignable, cores):
        for count in range(len(held) + step, len(assignable) + 2 * step + 1, step) if held else ():
            if random.random() >= share:
                continue
            others = list(subsets(assignable - held, cores))
            answers = {
                taken: reference.grow(layout, options, policy, held, assignable - held - taken, count)
                for taken in others
            }
            possible = any(answer is not None for answer in answers.values())
            for taken, wanted in answers.items():
                outcome, got = asked(node, Question(held, count), taken)
                expected = "Allocated" if wanted is not None else "Deferred" if possible else "Infeasible"
                case = name, policy, sorted(held), sorted(taken), count, wanted, outcome, got
                same = (outcome, got) == (expected, held if wanted is None else wanted)
                report.add(f"{policy}: {expected}", same=same, case=case)


def started(machine: Machine, options: CPUPolicyOptions, policy: str) -> Node | None:
    """A node with these options; None where a kubelet does not start with them."""
    config = KubeletConfig(
        cpu_manager_policy="static",
        cpu_manager_policy_options={
            name: "true" for name in CPU_POLICY_OPTIONS if getattr(options, name.replace("-", "_"))
        },
        reserved_system_cpus=",".join(map(str, sorted(RESERVED))),
        topology_manager_policy=policy,
        feature_gates=GATES,
    )
    try:
        return Node(machine, config, predicates=False, policy=PodslicePolicy(resize=ExclusiveResize(exclusive=True)))
    except StartError:
        return None


_PODS: dict[tuple[str, int], Pod] = {}


def sized(name: str, count: int) -> Pod:
    if (name, count) not in _PODS:
        _PODS[name, count] = pod(guaranteed(str(count), "1Mi"), name=name)
    return _PODS[name, count]


def asked(node: Node, question: Question, taken: CPUs) -> tuple[str, CPUs]:
    """Return the outcome of a resize, and the container's CPUs then; another container has the CPUs `taken`."""
    before = node.state
    sets = {"p": question.held} | ({"other": taken} if taken else {})
    pods = {f"uid-{name}": AdmissionPod.of(sized(name, len(cpus)), node.rules.gates) for name, cpus in sets.items()}
    owned = bits_of(question.held | taken)
    cpu = replace(
        before.cpu,
        default=before.cpu.default & ~owned,
        assignments={f"uid-{name}": {"c0": bits_of(cpus)} for name, cpus in sets.items()},
    )
    node.state = replace(before, cpu=cpu, pods=pods)
    try:
        (attempt,) = node_resize.resize(node.kubelet, sized("p", question.wants))
        return attempt.verdict.outcome, frozenset(ids_of(node.state.cpu.assignment("uid-p", "c0") or 0))
    finally:
        node.state = before


def parts() -> list[tuple[str, CPUPolicyOptions]]:
    """Every machine with every option set; several caches matter to one option alone."""
    return [
        (name, options)
        for name in MACHINES
        for options in ALLOWED
        if "caches" not in name or options.prefer_align_cpus_by_uncorecache
    ]


class Done(msgspec.Struct, frozen=True):
    """The result of one option set on one machine: a line of the log."""

    machine: str
    options: str
    share: float
    seed: int
    counts: dict[str, int]
    found: list[str]


class Asking(NamedTuple):
    """A `share` of the questions, drawn by `seed`, and the log of those that are done."""

    share: float = 1.0
    seed: int = 1
    log: Path | None = None

    def known(self) -> dict[tuple[str, str], Done]:
        """Return the log's results for these very questions; a line that a kill cut short is asked again."""
        if self.log is None or not self.log.exists():
            return {}
        found = filter(None, map(_read, self.log.read_bytes().splitlines()))
        return {(one.machine, one.options): one for one in found if (one.share, one.seed) == (self.share, self.seed)}

    def ask(self, name: str, options: CPUPolicyOptions) -> Done:
        report, random = Report(), Random(f"{self.seed} {name} {name_of(options)}")
        picks(MACHINES[name], options, self.share, random, report)
        for policy in POLICIES:
            verdicts(MACHINES[name], options, policy, self.share, random, report)
        done = Done(name, name_of(options), self.share, self.seed, dict(report.counts), report.found)
        if self.log is not None:
            _append(self.log, msgspec.json.encode(done))
        return done


def _read(line: bytes) -> Done | None:
    try:
        return msgspec.json.decode(line, type=Done)
    except msgspec.DecodeError:
        return None


def _append(path: Path, line: bytes) -> None:
    """Behind a line that was cut short begins another one."""
    with path.open("ab") as file:
        file.write(b"\n" + line + b"\n")


def run(asking: Asking, *, part: tuple[int, int] = (0, 1), progress: bool = False) -> Report:
    """Run all machines and options, or every n-th from some one on."""
    report, known, chosen = Report(), asking.known(), parts()[part[0] :: part[1]]
    for index, (name, options) in enumerate(chosen):
        done = known.get((name, name_of(options))) or asking.ask(name, options)
        report.counts.update(done.counts)
        report.found += done.found
        if progress:
            through = (index + 1) * 40 // len(chosen)
            bar = "#" * through + "." * (40 - through)
            print(f"\r[{bar}] {index + 1}/{len(chosen)} {sum(report.counts.values())}", end="", file=sys.stderr)
    return report


def main() -> int:
    """Exit 1 if anything differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.node.resize.exhaustive", description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="of the questions, drawn; all without it")
    parser.add_argument("--seed", type=int, default=1, help="of what is drawn")
    parser.add_argument("--part", default="0/1", metavar="I/N", help="every N-th option set from I on")
    parser.add_argument("--log", type=Path, metavar="FILE", help="of option sets that are through")
    options = parser.parse_args()
    first, _, step = options.part.partition("/")
    asking = Asking(options.share, options.seed, options.log)
    report = run(asking, part=(int(first), int(step)), progress=True)
    print(file=sys.stderr)
    for what, number in report.counts.most_common():
        print(f"{number:9} {what}")
    for line in report.found[:20]:
        print(line)
    return 1 if report.found else 0


if __name__ == "__main__":
    sys.exit(main())
