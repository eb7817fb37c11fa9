"""Discovery over sysfs follows cAdvisor's rules, its odd ones included (cpu-topology 1.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podslice.host.discover import discover
from podslice.host.filesystem import MemoryFileSystem
from podslice.host.kubelet_view import KubeletView, read_kubelet_view
from podslice.machine.model import CPUTopology, HugePages, Machine, TopologyError

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"
Files = dict[str, str]


def cpu(number: int, core: int, package: int = 0) -> Files:
    return {
        f"{CPU}/cpu{number}/topology/core_id": f"{core}\n",
        f"{CPU}/cpu{number}/topology/physical_package_id": f"{package}\n",
    }


def node(number: int, cpus: Iterable[int], memory_kb: int = 1024) -> Files:
    files = {f"{NODE}/node{number}/meminfo": f"Node {number} MemTotal:       {memory_kb} kB\n"}
    return files | {f"{NODE}/node{number}/cpu{c}/online": "1" for c in cpus}


def cache(number: int, index: int, *, level: int, cpus: int, cache_id: int | None = 0, size: str = "32768K") -> Files:
    base = f"{CPU}/cpu{number}/cache/index{index}"
    files = {f"{base}/level": f"{level}\n", f"{base}/type": "Unified\n", f"{base}/size": f"{size}\n"}
    files[f"{base}/shared_cpu_map"] = f"{cpus:08x}\n"
    return files if cache_id is None else files | {f"{base}/id": f"{cache_id}\n"}


def merged(*parts: Files) -> Files:
    files: Files = {}
    for part in parts:
        files |= part
    return files


def view(*parts: Files, system_z: bool = False) -> KubeletView:
    return read_kubelet_view(MemoryFileSystem(merged(*parts)), system_z=system_z)


def uncore(found: KubeletView) -> list[tuple[int, ...]]:
    return [core.uncore_caches for n in found.nodes for core in n.cores]


def test_nodes_and_cpus_come_in_byte_order() -> None:
    """node10 comes before node2, and so do CPUs."""
    found = view(*(cpu(c, c) for c in (0, 1, 2, 10, 11)), node(0, []), node(2, [2, 0, 10, 1]), node(10, [11]))
    assert [n.id for n in found.nodes] == [0, 10, 2]
    assert [core.threads for core in found.nodes[2].cores] == [(0,), (1,), (10,), (2,)]


def test_threads_of_a_core_are_in_byte_order() -> None:
    """The first thread of a core is the first by name, and its caches count."""
    found = view(cpu(2, 0), cpu(10, 0), node(0, [2, 10]), cache(2, 3, level=3, cpus=1 << 2))
    (core,) = found.nodes[0].cores
    assert core.threads == (10, 2)
    assert core.uncore_caches == ()


def test_a_core_never_spans_nodes_or_packages() -> None:
    """CPUs with one core id are different cores in different nodes or packages."""
    found = view(cpu(0, 7), cpu(1, 7), cpu(2, 7, package=1), node(0, [0, 2]), node(1, [1]))
    assert [[(c.socket, c.core, c.threads) for c in n.cores] for n in found.nodes] == [
        [(0, 7, (0,)), (1, 7, (2,))],
        [(0, 7, (1,))],
    ]


def test_node_without_cpus_is_kept() -> None:
    """A memory-only node is listed, with its memory in bytes."""
    found = view(cpu(0, 0), node(0, [0]), node(1, [], memory_kb=2048))
    assert [(n.id, n.memory, n.cores == ()) for n in found.nodes] == [(0, 1 << 20, False), (1, 2 << 20, True)]


@pytest.mark.parametrize(
    ("online", "seen"),
    [
        pytest.param(None, [0, 1], id="no file: all online"),
        pytest.param("0\n", [0], id="listed"),
        pytest.param("0-x\n", [], id="malformed: none online"),
        pytest.param("", [], id="empty: none online"),
    ],
)
def test_offline_cpus_are_skipped(online: str | None, seen: list[int]) -> None:
    """Membership of cpu/online decides, with cAdvisor's answers where it cannot be read."""
    found = view(cpu(0, 0), cpu(1, 1), node(0, [0, 1]), {} if online is None else {f"{CPU}/online": online})
    assert [c.threads[0] for c in found.nodes[0].cores] == seen
    assert found.num_cores == len(seen)


@pytest.mark.parametrize("missing", ["core_id", "physical_package_id"])
def test_cpu_without_topology_file_is_skipped(missing: str) -> None:
    """A CPU without one of the two files is left out with a warning."""
    files = cpu(1, 1)
    del files[f"{CPU}/cpu1/topology/{missing}"]
    found = view(cpu(0, 0), files, node(0, [0, 1]))
    assert [c.threads for c in found.nodes[0].cores] == [(0,)]
    assert any("CPU 1" in warning and missing in warning for warning in found.warnings)


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param({f"{CPU}/cpu0/topology/core_id": "x\n"}, id="core id"),
        pytest.param({f"{CPU}/cpu0/topology/physical_package_id": "\n"}, id="package id"),
        pytest.param({f"{NODE}/node0/distance": "10 x\n"}, id="distance"),
        pytest.param({f"{NODE}/node0/distance": "10  20\n"}, id="two spaces between distances"),
        pytest.param({f"{NODE}/node0/distance": "\n"}, id="empty distances"),
    ],
)
def test_failing_discovery_leaves_no_cpus(broken: Files) -> None:
    """A number that cannot be read fails the whole discovery, a warning says why, and the kubelet does not start."""
    machine = discover(MemoryFileSystem(merged(cpu(0, 0), node(0, [0]), broken)))
    assert machine.nodes == ()
    assert any(next(iter(broken)) in warning for warning in machine.warnings)
    assert [str(n.cpus) for n in machine.kernel_nodes] == ["0"]
    with pytest.raises(TopologyError, match="could not detect number of cpus"):
        CPUTopology(machine)


def test_negative_ids_are_numbers() -> None:
    """-1, which virtual machines report, is a package id like any other."""
    found = view(cpu(0, 0, package=-1), node(0, [0]))
    assert found.nodes[0].cores[0].socket == -1


def test_without_nodes_packages_stand_in() -> None:
    """Packages become nodes, offline CPUs count for the number of CPUs but are in no core."""
    found = view(cpu(0, 0), cpu(1, 0, 3), cpu(2, 1, 3), {f"{CPU}/cpu3/online": "0"}, {f"{CPU}/online": "0-1"})
    assert [(n.id, [c.threads for c in n.cores]) for n in found.nodes] == [(0, [(0,)]), (3, [(1,)])]
    assert found.num_cores == 4
    assert found.nodes[0].distances is None


def test_without_cpus_there_is_nothing() -> None:
    """No CPU directory at all is a failure that names the folder."""
    found = view({f"{CPU}/online": "0"})
    assert (found.nodes, found.num_cores) == ((), 0)
    assert "no CPU is available, cpusPath: /sys/devices/system/cpu" in found.warnings[0]


L3 = [
    pytest.param(0b1111, [(), ()], id="one L3 for the node is not an uncore cache"),
    pytest.param(0b0011, [(0,), (0,)], id="smaller than the node"),
    pytest.param(0b11111111, [(0,), (0,)], id="larger than the node"),
]


@pytest.mark.parametrize(("shared", "expected"), L3)
def test_uncore_caches(shared: int, expected: list[tuple[int, ...]]) -> None:
    """An L3 counts as uncore cache unless the number of CPUs that share it is the node's."""
    cpus = [cpu(0, 0), cpu(1, 0), cpu(2, 1), cpu(3, 1)]
    caches = [cache(c, 3, level=3, cpus=shared) for c in range(4)]
    assert uncore(view(*cpus, node(0, range(4)), *caches)) == expected


def test_small_caches_are_no_uncore_caches() -> None:
    """Level 2 does not count, level 4 does, and a repeated id counts once."""
    found = view(
        cpu(0, 0), cpu(1, 1), node(0, [0, 1]),
        cache(0, 2, level=2, cpus=1, cache_id=9), cache(0, 3, level=3, cpus=1, cache_id=5),
        cache(0, 4, level=4, cpus=1, cache_id=5), cache(0, 5, level=4, cpus=1, cache_id=6),
    )  # fmt: skip
    assert uncore(found) == [(5, 6), ()]


UNREADABLE: list[tuple[str, Callable[[], Files]]] = [
    ("no id", lambda: cache(1, 0, level=1, cpus=2, cache_id=None)),
    ("odd size", lambda: cache(1, 0, level=1, cpus=2, size="big")),
    ("empty map", lambda: cache(1, 0, level=1, cpus=2) | {f"{CPU}/cpu1/cache/index0/shared_cpu_map": ""}),
]


@pytest.mark.parametrize("broken", [pytest.param(make(), id=name) for name, make in UNREADABLE])
def test_unreadable_cache_stops_the_node(broken: Files) -> None:
    """After a cache file that cannot be read the rest of the node has no uncore caches; other nodes do."""
    good = [cache(c, 3, level=3, cpus=1 << c, cache_id=c) for c in range(4)]
    cpus = [cpu(c, c) for c in range(4)]
    found = view(*cpus, node(0, [0, 1, 2]), node(1, [3]), *good, broken)
    assert uncore(found) == [(0,), (), (), ()]
    cpus_in_two = [*cpus, cpu(4, 4)]
    found = view(*cpus_in_two, node(0, [0, 1, 2]), node(1, [3, 4]), *good, broken)
    assert uncore(found)[3] == (3,)


def test_system_z_reads_ledger_and_no_cache_ids() -> None:
    """On s390x ledgers and drawers are part of a core's identity, and every cache has id 0."""
    files = merged(
        cpu(0, 0), cpu(1, 0), node(0, [0, 1]), cache(0, 3, level=3, cpus=0b1, cache_id=None),
        {f"{CPU}/cpu{c}/topology/book_id": f"{c}" for c in (0, 1)},
    )  # fmt: skip
    z, other = (read_kubelet_view(MemoryFileSystem(files), system_z=flag) for flag in (True, False))
    assert [c.threads for c in z.nodes[0].cores] == [(0,), (1,)]
    assert uncore(z) == [(0,), ()]
    assert [c.threads for c in other.nodes[0].cores] == [(0, 1)]


SOCKETS = [
    pytest.param("physical id\t: 0\nphysical id\t: 1\nphysical id\t: 1\n", 2, id="cpuinfo"),
    pytest.param("processor : 0\n", 3, id="sysfs, unreadable counts as 0"),
    pytest.param(None, 3, id="no cpuinfo"),
]


@pytest.mark.parametrize(("cpuinfo", "expected"), SOCKETS)
def test_socket_count(cpuinfo: str | None, expected: int) -> None:
    """Sockets are the distinct physical ids of cpuinfo, else of sysfs."""
    files = merged(cpu(0, 0, 1), cpu(1, 0, 1), cpu(2, 0, 2), {f"{CPU}/cpu3/online": "1"}, node(0, range(4)))
    files |= {} if cpuinfo is None else {"proc/cpuinfo": cpuinfo}
    assert read_kubelet_view(MemoryFileSystem(files)).num_sockets == expected


def test_hugepages_and_memory() -> None:
    """Huge pages come in byte order of their folders, the machine's beside the node's, memory from meminfo."""
    base = f"{NODE}/node0/hugepages"
    found = view(
        cpu(0, 0),
        node(0, [0]),
        {f"{base}/hugepages-2048kB/nr_hugepages": "5\n", f"{base}/hugepages-1048576kB/nr_hugepages": "1\n"},
        {"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "7\n"},
        {"proc/meminfo": "MemTotal:        4096 kB\nMemFree: 1 kB\n"},
    )
    assert found.nodes[0].hugepages == (HugePages(1048576, 1), HugePages(2048, 5))
    assert found.hugepages == (HugePages(2048, 7),)
    assert found.memory_capacity == 4096 * 1024


def test_captured_trees_without_links() -> None:
    """Where a capture lost the cpuN links of a node, its CPU map replaces them."""
    files = merged(cpu(0, 0), cpu(1, 1), cpu(10, 2), {f"{NODE}/node0/cpumap": "00000000,00000403\n"})
    machine: Machine = discover(MemoryFileSystem(files))
    assert [c.threads for c in machine.nodes[0].cores] == [(0,), (1,), (10,)]


WHOLE = merged(
    cpu(0, 0), cpu(1, 0), cpu(2, 1, 1), node(0, [0, 1]), node(1, [2]), node(7, []),
    *(cache(c, 3, level=3, cpus=0b111) for c in range(3)),
    {f"{CPU}/online": "0-2", f"{CPU}/present": "0-3", f"{CPU}/isolated": "1", f"{CPU}/cpu0/cpu_capacity": "1024"},
    {f"{CPU}/cpu0/topology/core_cpus": "3", f"{CPU}/cpu1/topology/package_cpus_list": "0-1"},
    {f"{NODE}/node0/distance": "10 20 30", f"{NODE}/node0/cpumap": "3", f"{NODE}/node1/cpulist": "2"},
    {f"{NODE}/node0/hugepages/hugepages-2048kB/nr_hugepages": "1", "sys/devices/cpu_core/cpus": "0-1"},
    {"proc/cpuinfo": "physical id : 0", "proc/meminfo": "MemTotal: 4096 kB", f"{CPU}/nohz_full": "1"},
    {"proc/cmdline": "quiet rcu_nocbs=1-2", f"{CPU}/cpu0/cpufreq/cpuinfo_max_freq": "5200000"},
)  # fmt: skip


@pytest.mark.parametrize(
    ("parameter", "cpus"),
    [
        ("rcu_nocbs=1-2", "1-3"),
        ("rcu_nocbs=all", "0-7"),
        ("quiet rcu_nocbs=5-N,0 ro", "0,3,5-7"),
        ("rcu_nocbs=0-7:2/4", "0-1,3-5"),
        ("rcu_nocbs=0-7:4/2", "3"),
        ("rcu_nocbs=six", "3"),
        ("rcu_nocbs xrcu_nocbs=0", "3"),
    ],
)
def test_how_the_kernel_was_started(parameter: str, cpus: str) -> None:
    """CPUs without a tick, and those whose RCU callbacks run elsewhere: by the kernel's lists, and all without a
    tick."""
    files = merged(*(cpu(number, number) for number in range(8)), {"proc/cmdline": f"{parameter}\n"})
    machine = discover(MemoryFileSystem(files | {f"{CPU}/nohz_full": "3,99"}))
    assert (str(machine.nohz_full), str(machine.rcu_nocbs)) == ("3", cpus)
    assert not discover(MemoryFileSystem(files | {f"{CPU}/nohz_full": "(null)"})).nohz_full


def test_highest_clocks() -> None:
    """CPUs by how high they clock, where that differs and is known of all."""
    base = merged(*(cpu(number, number) for number in range(3)))
    clocks = {f"{CPU}/cpu{number}/cpufreq/cpuinfo_max_freq": khz for number, khz in enumerate(("5200", "4900", "5200"))}
    found = discover(MemoryFileSystem(base | clocks)).max_frequencies
    assert [(one.khz, str(one.cpus)) for one in found] == [(5200, "0,2"), (4900, "1")]
    for other in ({**clocks, f"{CPU}/cpu1/cpufreq/cpuinfo_max_freq": "5200"}, dict(list(clocks.items())[:2])):
        assert discover(MemoryFileSystem(base | other)).max_frequencies == ()


ODD = ["", "\0", "x", "-1", "0-", "9" * 30, "0-99999999999", "f" * 70000, "10  20", "٣", "(null)", "ffff,x", "1e3"]


@pytest.mark.slow
@settings(max_examples=300)
@given(st.dictionaries(st.sampled_from(sorted(WHOLE)), st.sampled_from(ODD), max_size=4), st.booleans())
def test_any_content_is_survived(odd: Files, system_z: bool) -> None:
    """Whatever the files hold, discovery gives a machine, as a kubelet would log and go on."""
    machine = discover(MemoryFileSystem(WHOLE | odd), system_z=system_z)
    assert machine.cpu_count == len(machine.cpus)
    assert machine.nodes or machine.warnings


def test_absurd_names_are_ignored() -> None:
    """CPU and node folders with numbers no kernel gives out are not machines' CPUs and nodes."""
    far = {f"{CPU}/cpu99999999999/topology/core_id": "0", f"{NODE}/node99999999999/cpulist": "0"}
    assert [n.id for n in view(cpu(0, 0), node(0, [0]), far).nodes] == [0]
