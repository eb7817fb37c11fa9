"""A node starts after a reboot, on the same machine or on one that has changed."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from podslice import Hotplug, KubeletConfig, Machine, Pod, PodslicePolicy, StartError, without_cpus
from podslice.config.kubelet import MemoryReservation
from podslice.host.boot import Boot, read_boot
from podslice.host.filesystem import MemoryFileSystem
from podslice.host.state.store import NodeStore
from podslice.machine.drift import (
    AUTO,
    LEGACY,
    OFF,
    DriftTolerance,
    is_drift,
    kernel_span,
    parse_drift_tolerance,
    resolve,
)
from podslice.machine.identity import CPUIdentity, MachineRecord, cpu_map, identities, parse_identity
from podslice.machine.model import Core
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.checkpoints import data as checkpoint_data
from podslice.node.checkpoints import policy_state
from podslice.node.checkpoints.content import read_content
from podslice.node.cpu.checkpoint import CPUCheckpoint
from podslice.state_files.migrate import migrate
from podslice.values.cpuset import bits_of, format_bits, parse_bits
from tests.advise.explain.random_nodes import random_config, random_machine, random_pod
from tests.node.hotplug.test_properties import check, check_memory
from tests.node.resize.helpers import guaranteed, pod

MACHINE = from_synthetic("pack:2 numa:1(memory=64GiB) core:4 pu:2(indexes=pu)")
PODS = [pod(guaranteed("4", "1Gi"), name=name) for name in ("a", "b")]
CONFIG: dict[str, Any] = {"cpu_manager_policy": "static", "reserved_system_cpus": "0-1"}


def store(
    folder: Path, machine: Machine = MACHINE, *, boot: str = "one", pods: list[Pod] = PODS, **fields: Any
) -> NodeStore:
    config = CONFIG | fields.pop("config", {})
    policy = PodslicePolicy(hotplug=Hotplug(**fields))
    return NodeStore(
        folder, machine, KubeletConfig(**config), running=pods, policy=policy, boot=Boot(boot), predicates=False
    )


def first(folder: Path, **fields: Any) -> NodeStore:
    """a has 2-5, b has 8-11 on the other socket's first cores or next to a."""
    made = store(folder, pods=[], **fields)
    for one in PODS:
        assert made.admit(one).admitted
    return made


def sets(made: NodeStore) -> dict[str, str]:
    view = made.node.view
    return {uid[4:]: format_bits(view.affinity(uid, "c0")) for uid in view.pods}


def renumbered(machine: Machine, numbers: dict[int, int]) -> Machine:
    """Return the same hardware with other numbers of CPUs, as another boot gives them."""

    def core(one: Core) -> Core:
        return replace(one, threads=tuple(numbers[thread] for thread in one.threads))

    nodes = tuple(replace(node, cores=tuple(map(core, node.cores))) for node in machine.nodes)
    return replace(machine, nodes=nodes)


def test_the_same_machine(tmp_path: Path) -> None:
    """After a reboot of an unchanged machine all pods have the same CPUs, and the file names the new boot."""
    had = sets(first(tmp_path))
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    made = store(tmp_path, boot="two")
    assert sets(made) == had
    assert made.followed == ()
    assert (tmp_path / "cpu_manager_state").read_bytes() == files["cpu_manager_state"]
    data = json.loads(json.loads((tmp_path / "podslice_policy_state").read_bytes())["data"])
    assert data["bootId"] == "two"
    assert data["machine"]["cpus"]["3"] == "0/0/1/1"
    assert data["machine"]["nodes"]["1"] == {"cpus": "8-15", "memory": 64 << 30}


def test_other_numbers(tmp_path: Path) -> None:
    """The hardware is the same and the kernel numbers it otherwise: all pods keep the same cores."""
    first(tmp_path)
    half = {cpu: cpu // 2 + 8 * (cpu % 2) for cpu in range(16)}
    before = identities(MACHINE)
    made = store(tmp_path, renumbered(MACHINE, half), boot="two", config={"reserved_system_cpus": "0,8"})
    now = identities(renumbered(MACHINE, half))
    assert sets(made) == {"a": "1-2,9-10", "b": "3-4,11-12"}
    assert {before[cpu] for cpu in (2, 3, 4, 5)} == {now[cpu] for cpu in (1, 2, 9, 10)}
    assert (tmp_path / "cpu_manager_state.before-reboot").exists()
    assert made.followed == ()
    check(made.node)


@pytest.mark.parametrize("key", [("originals", "original"), ("baselines", "baseline")])
def test_other_numbers_of_a_newer_kubelets_file(key: tuple[str, str]) -> None:
    """A file V4 keeps what it says besides: promises (KEP-5554) under the new numbers, the rest as it is. So does the
    policy's file."""
    half = {cpu: cpu // 2 + 8 * (cpu % 2) for cpu in range(16)}
    promised = f'"{key[0]}":{{"u":{{"c":{{"{key[1]}":"2-3"}}}}}}'
    checkpoint = CPUCheckpoint("static", "0-1,6-15", {"u": {"c": "2-5"}})
    files = {
        "cpu_manager_state": checkpoint_data.CPU_V4.encode(checkpoint, f',{promised},"later":[1]'),
        "podslice_policy_state": policy_state.envelop(
            {"version": 1, "bootId": "one", "originals": {"u": {"c": "2-3"}}, "saved": {"irq": "ff"}}
        ),
    }
    machines = MachineRecord.of(MACHINE), MachineRecord.of(renumbered(MACHINE, half))
    migration = migrate(files, *machines)
    cpu = read_content(migration.files["cpu_manager_state"])
    assert (migration.outcome, cpu.version, cpu.intact) == ("renumbered", "v4", True)
    assert isinstance(cpu.checkpoint, CPUCheckpoint)
    assert cpu.checkpoint.entries == {"u": {"c": "1-2,9-10"}}
    assert cpu.unknown == ',"originals":{"u":{"c":{"original":"1,9"}}},"later":[1]'
    own = json.loads(json.loads(migration.files["podslice_policy_state"])["data"])
    assert (own["originals"], own["saved"]) == ({"u": {"c": "1,9"}}, {"irq": "ff"})


def test_smt_off(tmp_path: Path) -> None:
    """Firmware that turns SMT off takes half of every owner's CPUs: all are admitted afresh, the old files stay, and
    each pod whose CPUs are others is named."""
    had = sets(first(tmp_path))
    old = (tmp_path / "cpu_manager_state").read_bytes()
    cores = tuple(replace(node, cores=tuple(replace(one, threads=one.threads[:1]) for one in node.cores))
                  for node in MACHINE.nodes)  # fmt: skip
    after = renumbered(replace(MACHINE, nodes=cores), {cpu: cpu // 2 for cpu in range(16)})
    made = store(tmp_path, after, boot="two", config={"reserved_system_cpus": "0"}, pods=PODS[:1])
    assert sets(made) == {"a": "4-7"}
    assert (tmp_path / "cpu_manager_state.before-reboot").read_bytes() == old
    whole, mine = made.followed
    assert whole.kind == mine.kind == "rebuilt"
    assert "are not there any more" in whole.text
    assert (mine.pod, mine.container, str(mine.lost)) == ("uid-a", "c0", had["a"])
    again = store(tmp_path, after, boot="two", config={"reserved_system_cpus": "0"}, pods=PODS[:1])
    assert sets(again) == sets(made)
    assert again.followed == ()


def test_another_numa_partition(tmp_path: Path) -> None:
    """Firmware that splits sockets into more NUMA nodes makes the old sets meaningless, whatever their numbers."""
    first(tmp_path)
    split = from_synthetic("pack:2 numa:2(memory=32GiB) core:2 pu:2(indexes=pu)")
    made = store(tmp_path, split, boot="two")
    assert made.followed[0].kind == "rebuilt"
    assert "NUMA node" in made.followed[0].text


def test_refuse(tmp_path: Path) -> None:
    """`afterReboot: refuse` is as without the section: a machine that changed keeps the node from starting."""
    first(tmp_path)
    smaller = without_cpus(MACHINE, 1 << 5)
    with pytest.raises(StartError, match="doesn't match with CPUs in state"):
        store(tmp_path, smaller, boot="two", after_reboot="refuse")
    assert sets(store(tmp_path, boot="two", after_reboot="refuse"))["a"] == "2-5"


def test_the_same_boot(tmp_path: Path) -> None:
    """In the same boot nothing is rebuilt, and neither is it where the boot is unknown."""
    first(tmp_path)
    smaller = without_cpus(MACHINE, 1 << 5)
    assert sets(store(tmp_path, smaller))["a"] == "2-4"
    assert sets(store(tmp_path, smaller, boot=""))["a"] == "2-4"
    (tmp_path / "podslice_policy_state").unlink()
    assert sets(store(tmp_path, smaller, boot="three"))["a"] == "2-4"


def test_a_degraded_owner(tmp_path: Path) -> None:
    """The places of offline CPUs are remembered too: an owner that missed a CPU has it after the reboot."""
    made = first(tmp_path)
    made.node.change_machine(without_cpus(MACHINE, 1 << 4))
    made.save()
    data = json.loads(json.loads((tmp_path / "podslice_policy_state").read_bytes())["data"])
    assert (data["machine"]["cpus"]["4"], data["machine"]["cpus"]["5"]) == ("0/0/2/0", "0/0/2/1")
    assert sets(made)["a"] == "2-3,5"
    assert sets(store(tmp_path, boot="two"))["a"] == "2-5"


MEMORY = {
    "memory_manager_policy": "Static", "system_reserved": {"memory": "1Gi"}, "eviction_hard": {},
    "reserved_memory": (MemoryReservation(0, {"memory": "1Gi"}),),
}  # fmt: skip


def moved(first_node: int, second: int) -> Machine:
    nodes = tuple(
        replace(one, memory=one.memory + by) for one, by in zip(MACHINE.nodes, (first_node, second), strict=True)
    )
    return replace(MACHINE, nodes=nodes)


@pytest.mark.parametrize(
    ("tolerance", "image", "by", "kept"),
    [
        ("auto", 44 << 20, (-(40 << 20), 40 << 20), True),
        ("auto", 44 << 20, (-(60 << 20), 60 << 20), False),
        ("auto", None, (-4096, 4096), False),
        ("auto", None, (0, 0), True),
        ("off", 44 << 20, (-4096, 4096), False),
        ("128Mi", None, (-(64 << 20), 64 << 20), True),
        ("128Mi", None, (-(128 << 20), 0), False),
        ("legacy", None, (-(600 << 20), 0), True),
        ("legacy", None, (-(700 << 20), 0), False),
    ],
)
def test_memory(tmp_path: Path, tolerance: str, image: int | None, by: tuple[int, int], *, kept: bool) -> None:
    """Memory that moved no more than a reboot explains leaves all pods in place; more makes the node begin anew."""
    first(tmp_path, config=MEMORY)
    policy = PodslicePolicy(hotplug=Hotplug(drift_tolerance=tolerance))
    config = KubeletConfig(**CONFIG, **MEMORY)  # type: ignore[arg-type]
    made = NodeStore(
        tmp_path, moved(*by), config, running=PODS, policy=policy, boot=Boot("two", image), predicates=False
    )
    assert (made.followed == ()) is kept
    assert sets(made)["a"] == "2-5"
    check_memory(made.node)


def test_the_kubelets_own_option_wins(tmp_path: Path) -> None:
    """`memoryManagerPolicyOptions` of the KubeletConfiguration counts, not the policy, and a wrong one is reported."""
    first(tmp_path, config=MEMORY)
    options = {"memory_manager_policy_options": {"memory-drift-tolerance": "off"}}
    made = store(tmp_path, moved(-4096, 0), boot="two", config=MEMORY | options)
    assert made.followed[0].kind == "rebuilt"
    wrong = {"memory_manager_policy_options": {"memory-drift-tolerance": "much"}}
    with pytest.raises(Exception, match="much"):
        store(tmp_path, boot="two", config=MEMORY | wrong)


def test_the_worked_example() -> None:
    """40 MiB from one node to the other is within the bound of a kernel image of 44 MiB."""
    bound = resolve(AUTO, 44 << 20)
    assert bound == DriftTolerance("bytes", 108 << 20)
    mib = 1 << 20
    assert is_drift({0: 65536 * mib, 1: 65536 * mib}, {0: 65496 * mib, 1: 65576 * mib}, bound)
    assert not is_drift({0: 65536 * mib, 1: 65536 * mib}, {0: 65466 * mib, 1: 65536 * mib}, bound)
    assert not is_drift({0: 1}, {1: 1}, LEGACY)
    assert resolve(AUTO, None) == OFF
    assert parse_drift_tolerance("1Mi") == DriftTolerance("bytes", mib)


IOMEM = """00100000-bfffffff : System RAM
  01000000-01e00d77 : Kernel code
  01e00d78-0253a33f : Kernel rodata
  02600000-0281fc3f : Kernel data
  02a3e000-02bfffff : Kernel bss
"""


def test_this_boot() -> None:
    """The boot's id and the span of the kernel's image are what the kernel says, if it says it."""
    files = {"proc/sys/kernel/random/boot_id": "4c3d\n", "proc/iomem": IOMEM}
    assert read_boot(MemoryFileSystem(files)) == Boot("4c3d", 0x02BFFFFF - 0x01000000 + 1)
    assert read_boot(MemoryFileSystem({})) == Boot("", None)
    zeros = "00000000-00000000 : Kernel code\n00000000-00000000 : Kernel bss\n"
    assert kernel_span(zeros) is None
    assert kernel_span("x-y : Kernel code\n1-2 : Kernel bss\n") is None


@pytest.mark.parametrize("seed", range(40))
def test_identities(seed: int) -> None:
    """The map between equal machines is the identity, and that to another numbering is the numbering."""
    random = Random(seed)
    machine = random_machine(random)
    cpus = sorted(machine.cpus)
    shuffled = dict(zip(cpus, random.sample(cpus, len(cpus)), strict=True))
    # threads keep their rank: the kernel numbers the first threads of cores in some order, then the second ones
    ranks = identities(machine)
    firsts = [cpu for cpu in cpus if ranks[cpu].thread == 0]
    order = random.sample(firsts, len(firsts))
    numbers = {
        cpu: order.index(cpu if cpu in order else _first(ranks, cpu)) + len(order) * ranks[cpu].thread for cpu in cpus
    }
    assert cpu_map(ranks, ranks) == {cpu: cpu for cpu in cpus}
    assert cpu_map(ranks, identities(renumbered(machine, numbers))) == numbers
    assert {parse_identity(str(one)) for one in ranks.values()} == set(ranks.values())
    assert parse_identity("0/0/x/1") is None
    assert parse_identity("0/0/1") is None
    assert shuffled.keys() == set(cpus)


def _first(ranks: dict[int, CPUIdentity], cpu: int) -> int:
    return next(one for one, rank in ranks.items() if rank[:3] == ranks[cpu][:3] and rank.thread == 0)


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.slow
def test_any_reboot_starts(tmp_path: Path, seed: int) -> None:
    """Whatever the machine is after a reboot, the node starts, keeps itself in order and is the same after another
    start in the new boot; files that are kept are those of whole owners in their old places."""
    random = Random(seed)
    config = random_config(random)
    policy = PodslicePolicy(hotplug=Hotplug())
    machine = random_machine(random)
    try:
        made = NodeStore(tmp_path, machine, config, policy=policy, boot=Boot("one"), predicates=False)
    except StartError:
        return
    pods = [new for step in range(8) if made.admit(new := random_pod(random, f"p{step}", gpus=False)).admitted]
    after = random.choice([machine, random_machine(random), _fewer(random, machine)])
    if not parse_bits(str(made.node.reserved_cpus)) & after.cpus.bits:
        return
    try:
        fresh = NodeStore(tmp_path / "fresh", after, config, policy=policy, boot=Boot("two"), predicates=False)
    except StartError:
        return
    again = NodeStore(tmp_path, after, config, running=pods, policy=policy, boot=Boot("two"), predicates=False)
    assert fresh.node.topology.all_cpus == again.node.topology.all_cpus
    check(again.node)
    check_memory(again.node)
    kept = [one for one in pods if one.metadata.uid in again.node.pods]
    third = NodeStore(tmp_path, after, config, running=kept, policy=policy, boot=Boot("two"), predicates=False)
    assert third.node.state.cpu.assignments == again.node.state.cpu.assignments
    assert third.followed == ()


def _fewer(random: Random, machine: Machine) -> Machine:
    gone = bits_of(random.sample(sorted(machine.cpus), random.randrange(4)))
    return replace(without_cpus(machine, gone), offline=machine.offline)


def test_migrate_by_hand() -> None:
    """Files that cannot be read are said to be lost; files of policy none stay."""
    record = MachineRecord.of(MACHINE)
    other = MachineRecord.of(without_cpus(MACHINE, 1 << 5))
    broken = migrate({"cpu_manager_state": b"{"}, record, other)
    assert (broken.outcome, broken.lost) == ("rebuilt", ())
    none = b'{"policyName":"none","defaultCpuSet":"","checksum":1353318690}'
    assert migrate({"cpu_manager_state": none}, record, other).outcome == "unchanged"
    assert migrate({}, record, other).outcome == "unchanged"
