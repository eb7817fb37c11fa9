"""hwloc's synthetic descriptions mean the machine that hwloc makes of them, with CPUs numbered as Linux does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podslice.machine.model import Cache, CPUTopology, Machine
from podslice.machine.readers.form import from_data
from podslice.machine.readers.synthetic import from_synthetic
from podslice.machine.readers.synthetic_text import looks_synthetic
from podslice.machine.readers.synthetic_writing import facts_lost_in_synthetic, to_synthetic
from podslice.values.cpuset import CPUSet, format_bits
from podslice.values.errors import InputError

GIB = 1 << 30


def outline(machine: Machine) -> tuple[object, ...]:
    topology = CPUTopology(machine)
    return topology.numa_of, topology.socket_of, topology.core_of, set(topology.uncore_caches.values())


def lists(groups: dict[int, int]) -> dict[int, str]:
    return {number: format_bits(bits) for number, bits in groups.items()}


# What lstopo 2.9 makes of each text, threads numbered as Linux does on x86.
MEANINGS = [
    pytest.param(
        "pack:2 numa:2 core:2 pu:2", {0: "0-1,8-9", 1: "2-3,10-11", 2: "4-5,12-13", 3: "6-7,14-15"}, 8, 2, id="plain"
    ),
    pytest.param(
        "PACKage:2 NODE:2 COre:2 Pu:2", {0: "0-1,8-9", 1: "2-3,10-11", 2: "4-5,12-13", 3: "6-7,14-15"}, 8, 2, id="case"
    ),
    pytest.param("socket:2 core:2 pu:1", {0: "0-3"}, 4, 2, id="no NUMA level"),
    pytest.param("4", {0: "0-3"}, 4, 1, id="one number"),
    pytest.param("2 4", {0: "0-3", 1: "4-7"}, 8, 1, id="two numbers"),
    pytest.param("2 3 2", {n: f"{2 * n}-{2 * n + 1}" for n in range(6)}, 12, 2, id="three numbers"),
    pytest.param("2 1 2 2", {0: "0-1,4-5", 1: "2-3,6-7"}, 4, 2, id="four numbers"),
    pytest.param("pack:2 core:2 2", {0: "0-7"}, 4, 2, id="last level bare"),
    pytest.param("numa:2 pack:2 core:1 pu:1", {0: "0-1", 1: "2-3"}, 4, 4, id="NUMA outside"),
    pytest.param("pack:2 [numa] core:2 pu:1", {0: "0-1", 1: "2-3"}, 4, 2, id="attached"),
    pytest.param("pack:2 [numa][numa] core:2 pu:1", {0: "0-1", 2: "2-3"}, 4, 2, id="two attached"),
    pytest.param(
        "pack:1 [numa] die:2 [numa] core:2 pu:1", {0: "0-1", 1: "2-3"}, 4, 1, id="attached at two levels: inner ones"
    ),
    pytest.param(
        "numa:2(indexes=0,8) core:1 pu:2(indexes=2*2:1*2)", {0: "0,2", 8: "1,3"}, 2, 1, id="indexes as list and loops"
    ),
]


@pytest.mark.parametrize(("text", "nodes", "cores", "sockets"), MEANINGS)
def test_meaning(text: str, nodes: dict[int, str], cores: int, sockets: int) -> None:
    """NUMA nodes, cores and packages are where hwloc puts them."""
    topology = CPUTopology(from_synthetic(text))
    assert lists(topology.numa_nodes) == nodes
    assert topology.num_cores == cores
    assert topology.num_sockets == sockets
    assert looks_synthetic(text)


@pytest.mark.parametrize(
    ("text", "memory"),
    [
        pytest.param("numa:1 pu:1", GIB, id="default"),
        pytest.param("pu:1", GIB, id="default without a level"),
        pytest.param("[numa] pu:1", 0, id="attached without a size"),
        pytest.param("numa:1(memory=16GiB) pu:1", 16 * GIB, id="GiB"),
        pytest.param("numa:1(memory=16GB) pu:1", 16 * 10**9, id="GB is decimal"),
        pytest.param("numa:1(memory=16gib) pu:1", 16 * GIB, id="small letters"),
        pytest.param("numa:1(memory=4096) pu:1", 4096, id="bytes"),
        pytest.param("(memory=3MiB) pu:1", 3 << 20, id="of the machine"),
    ],
)
def test_memory(text: str, memory: int) -> None:
    """Memory is what the attribute says, in the units of hwloc."""
    assert from_synthetic(text).nodes[0].memory == memory


def test_caches() -> None:
    """Levels of caches become caches, and an L3 below a node its uncore caches."""
    machine = from_synthetic("pack:1 numa:1 l3:2(size=8MiB) l2:2 l1d:1 core:1 pu:2")
    assert [(c.level, c.type, c.size, str(c.cpus)) for c in machine.caches if c.level > 1] == [
        (2, "Unified", 4 << 20, "0,4"),
        (2, "Unified", 4 << 20, "1,5"),
        (2, "Unified", 4 << 20, "2,6"),
        (2, "Unified", 4 << 20, "3,7"),
        (3, "Unified", 8 << 20, "0-1,4-5"),
        (3, "Unified", 8 << 20, "2-3,6-7"),
    ]
    assert lists(CPUTopology(machine).uncore_caches) == {0: "0-1,4-5", 1: "2-3,6-7"}


REFUSED = [
    pytest.param("pack:2 x:3 pu:2", "unknown type 'x'", id="type"),
    pytest.param("pack:2 core", "cannot read 'core'", id="no count"),
    pytest.param("pack:2 pu:0", "cannot read 'pu:0'", id="none of it"),
    pytest.param("pack:2 core:2", "the last level is core, not pu", id="no pu"),
    pytest.param("core:2 pack:3 pu:1", "packages inside a core", id="order"),
    pytest.param("core:2 numa:3 pu:1", "NUMA nodes inside a core", id="NUMA order"),
    pytest.param("core:2 core:3 pu:1", "the level core is there twice", id="twice"),
    pytest.param("2 core:3 pu:1", "cannot guess the types", id="bare in front"),
    pytest.param("1 1 1 1 1 1 1 1 1", "cannot guess the types of 9 levels", id="too many numbers"),
    pytest.param("pack:99999 core:9999 pu:2", "more than Linux supports", id="absurd"),
    pytest.param("pack:2 [core] pu:2", "cannot read '[core]'", id="attached core"),
    pytest.param("pack:2] pu:2", "cannot read 'pack:2]'", id="bracket"),
    pytest.param("pack:2 pu:2(indexes=1,2)", "does not number 4 objects", id="too few indexes"),
    pytest.param("pu:2(indexes=1,1)", "does not number 2 objects", id="same index"),
    pytest.param("pu:2(indexes=0*2)", "does not number 2 objects", id="empty loop"),
    pytest.param("core:2 pu:2(indexes=core:pu)", "pu is last anyway (leave it out)", id="turns with the level itself"),
    pytest.param(
        "core:2 pu:2(indexes=die)", "die names no level outside (levels outside are core)", id="no such level"
    ),
    pytest.param("group:2 group:2 pu:2(indexes=group)", "group names more than one level", id="two such levels"),
    pytest.param("core:2 pu:2(indexes=core:core)", "indexes=core:core names a level twice", id="a level twice"),
    pytest.param("core:4 pu:2(indexes=1*2)", "indexes=1*2 does not number 8 objects", id="loops too short"),
    pytest.param("core:4 pu:2(indexes=1*3:3*3)", "indexes=1*3:3*3 does not number 8 objects", id="loops too long"),
    pytest.param("core:4 pu:2(indexes=a-b)", "cannot read indexes=a-b", id="no indexes"),
    pytest.param("numa:2(mem=1GiB) pu:2", "cannot read 'mem=1GiB' in (mem=1GiB)", id="unknown attribute"),
    pytest.param("numa:2(memory=1GiB, 2GiB) pu:2", "'memory=1GiB,' in (memory=1GiB, 2GiB)", id="space in a list"),
    pytest.param("numa:2(memory=1 memory=2) pu:2", "cannot read 'memory=2'", id="attribute twice"),
    pytest.param("numa:2 core:2, pu:2", "cannot read 'core:2,' (a level is type:count", id="list without an end"),
    pytest.param("numa:2 core:2,0 pu:2", "cannot read 'core:2,0'", id="none on one node"),
    pytest.param("numa:2 core:2,3,4 pu:2", "core:2,3,4 has 3 counts for 2 numa objects", id="counts for no object"),
    pytest.param("numa:4(memory=1,2,3) pu:2", "memory= has 3 sizes for 4 numa objects", id="sizes for no object"),
    pytest.param("l3:2(size=1,2,3) pu:2", "size= has 3 sizes for 2 l3u objects", id="cache sizes for no object"),
    pytest.param("[numa] numa:2 pu:2", "NUMA nodes both as a level and attached", id="two kinds of nodes"),
    pytest.param(
        "pack:2 [numa(indexes=1,0)][numa(indexes=2,3)] pu:2", "number all of them in one place", id="ids twice"
    ),
    pytest.param("pu:2(indexes=0,99999)", "has the number 99999", id="absurd index"),
    pytest.param("numa:2(memory=abc) pu:2", "'abc' is not a size", id="memory"),
    pytest.param("!", "cannot read '!'", id="something else"),
]


@pytest.mark.parametrize(("text", "problem"), REFUSED)
def test_refusals(text: str, problem: str) -> None:
    """A description that means nothing is refused with the word at fault."""
    with pytest.raises(InputError) as caught:
        from_synthetic(text)
    assert problem in str(caught.value)


shapes = st.fixed_dictionaries(
    {
        "sockets": st.integers(1, 4),
        "numaPerSocket": st.integers(1, 3),
        "coresPerNuma": st.integers(1, 6),
        "threadsPerCore": st.integers(1, 4),
        "numbering": st.sampled_from(["linux", "consecutive"]),
        "memoryPerNuma": st.integers(0, 1 << 40),
        "l3": st.just("32Mi"),
    }
)


@given(shapes, st.data())
@pytest.mark.slow
def test_round_trip(shape: dict[str, object], data: st.DataObject) -> None:
    """A regular machine written as synthetic description and read again means the same to a kubelet."""
    per_socket = int(str(shape["numaPerSocket"])) * int(str(shape["coresPerNuma"]))
    fitting = [n for n in range(1, per_socket + 1) if per_socket % n == 0]
    chosen = data.draw(st.sampled_from([0, *fitting]))
    nested = (
        chosen == 0 or int(str(shape["coresPerNuma"])) % chosen == 0 or chosen % int(str(shape["coresPerNuma"])) == 0
    )
    machine = from_data({**shape, "coresPerL3": chosen})
    if not nested:
        with pytest.raises(InputError, match="only partly inside"):
            to_synthetic(machine)
        return
    again = from_synthetic(to_synthetic(machine))
    assert outline(again) == outline(machine)
    assert [(n.id, n.memory) for n in again.nodes] == [(n.id, n.memory) for n in machine.nodes]
    assert to_synthetic(again) == to_synthetic(machine)


def one_node(*cores: dict[str, object]) -> dict[str, object]:
    return {"nodes": [{"id": 0, "cores": [{"core": i, "threads": [i], **core} for i, core in enumerate(cores)]}]}


HYBRID = [{"name": "a", "cores": 2, "threadsPerCore": 2}, {"name": "b", "cores": 1}]
IRREGULAR = [
    pytest.param(
        {"sockets": 1, "coresPerNuma": 2, "memoryOnlyNodes": [{"ids": 3}]}, "nodes without CPUs: 3", id="memory only"
    ),
    pytest.param({"nodes": [{"id": 0}]}, "it has no CPUs", id="nothing"),
    pytest.param(one_node({"socket": -1}), "the id -1", id="negative id"),
]


@pytest.mark.parametrize(("data", "why"), IRREGULAR)
def test_irregular_machines_are_refused(data: dict[str, object], why: str) -> None:
    """A machine without a synthetic description is refused with the reason, never written wrongly."""
    machine = from_data(data)
    with pytest.raises(InputError) as caught:
        to_synthetic(machine)
    assert why in str(caught.value)


def test_caches_the_kubelet_does_not_see() -> None:
    """A machine whose L3 caches a kubelet overlooks is refused rather than written with them."""
    machine = from_data({"sockets": 1, "coresPerNuma": 4})
    halves = tuple(Cache(3, "Unified", 1, cpus) for cpus in (CPUSet((0, 1)), CPUSet((2, 3))))
    blind = Machine(nodes=machine.nodes, caches=halves)
    with pytest.raises(InputError, match="L3 caches are not all the kubelet's uncore caches"):
        to_synthetic(blind)


UNEVEN = [
    pytest.param(
        {"sockets": 1, "coreKinds": HYBRID},
        "pack:1 numa:1(memory=0) core:3 pu:2,2,1(indexes=core)",
        id="cores with and without a second thread",
    ),
    pytest.param(
        one_node({"socket": 0}, {"socket": 1}, {"socket": 1}),
        "numa:1(memory=0) pack:2 core:1,2 pu:1(indexes=1*3)",
        id="sockets of one and two cores",
    ),
    pytest.param(
        {
            "nodes": [
                {"id": 0, "memory": "8Gi", "cores": [{"socket": 0, "core": 0, "threads": [0, 2]}]},
                {"id": 4, "memory": "4Gi", "cores": [{"socket": 1, "core": 0, "threads": [1, 3]}]},
            ]
        },
        "pack:2 numa:1(memory=8589934592,4294967296 indexes=0,4) core:1 pu:2(indexes=core)",
        id="different memory",
    ),
]


@pytest.mark.parametrize(("data", "text"), UNEVEN)
def test_uneven_machines_are_written_as_lists(data: dict[str, object], text: str) -> None:
    """Objects that differ are written as a list that takes turns, and read back."""
    machine = from_data(data)
    assert to_synthetic(machine) == text
    again = from_synthetic(text)
    assert outline(again) == outline(machine)
    assert [node.memory for node in again.nodes] == [node.memory for node in machine.nodes]


def test_what_gets_lost_is_said() -> None:
    """Facts a synthetic description cannot carry are named."""
    machine = from_data({"sockets": 2, "coresPerNuma": 1, "hugepages": {"2Mi": 1}})
    assert facts_lost_in_synthetic(machine) == ["huge pages", "NUMA distances"]
    assert facts_lost_in_synthetic(from_synthetic("pack:2 core:2 pu:1")) == []


@pytest.mark.parametrize("text", ["sockets: 2", "hello world", "", "a: 1\nb: 2", "{}", "<topology/>"])
def test_other_text_does_not_look_synthetic(text: str) -> None:
    """YAML, JSON, XML and prose are not taken for synthetic descriptions."""
    assert not looks_synthetic(text)
