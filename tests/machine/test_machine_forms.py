"""Machines written in any form are read as the same machine, and wrong ones are refused with place and remedy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podslice.host.machine_files import dump_machine, load_machine, parse_machine
from podslice.machine.build import MAX_CPUS
from podslice.machine.gallery import gallery_names, load_gallery
from podslice.machine.model import (
    Cache,
    Core,
    CoreType,
    CPUGroup,
    CPUTopology,
    HugePages,
    KernelNode,
    Machine,
    MaxFrequency,
    NUMANode,
)
from podslice.machine.readers.form import from_data
from podslice.values.cpuset import CPUSet, format_bits
from podslice.values.errors import InputError

SHORT: dict[str, Any] = {"sockets": 2, "numaPerSocket": 2, "coresPerNuma": 4, "threadsPerCore": 2}


def topology_of(data: dict[str, Any]) -> CPUTopology:
    return CPUTopology(from_data(data))


def groups(found: dict[int, int]) -> dict[int, str]:
    return {number: format_bits(bits) for number, bits in found.items()}


@pytest.mark.parametrize(
    ("numbering", "cores", "nodes"),
    [
        pytest.param("linux", ["0,16", "1,17"], ["0-3,16-19", "4-7,20-23", "8-11,24-27", "12-15,28-31"], id="linux"),
        pytest.param("consecutive", ["0-1", "2-3"], ["0-7", "8-15", "16-23", "24-31"], id="consecutive"),
    ],
)
def test_short_form_numbers_cpus(numbering: str, cores: list[str], nodes: list[str]) -> None:
    """`linux` numbers all first threads before the second ones, `consecutive` the threads of a core together."""
    topology = topology_of({**SHORT, "numbering": numbering})
    assert list(groups(topology.cores).values())[:2] == cores
    assert list(groups(topology.numa_nodes).values()) == nodes
    assert topology.num_sockets == 2


@pytest.mark.parametrize(
    ("cores_per_l3", "caches"),
    [
        pytest.param(None, 2, id="by default the socket stands in"),
        pytest.param(4, 2, id="one per NUMA node is not an uncore cache"),
        pytest.param(2, 8, id="chiplets"),
        pytest.param(8, 2, id="shared by the nodes of a socket"),
    ],
)
def test_short_form_l3(cores_per_l3: int | None, caches: int) -> None:
    """L3 caches of another size than the node become uncore caches."""
    extra = {} if cores_per_l3 is None else {"coresPerL3": cores_per_l3}
    assert len(topology_of({**SHORT, **extra}).uncore_caches) == caches


def test_short_form_memory_and_distances() -> None:
    """Memory, huge pages and memory-only nodes appear where they are said to be, distances by their relation."""
    machine = from_data(
        {
            **SHORT,
            "memoryPerNuma": "1Gi",
            "hugepages": {"2Mi": 3},
            "memoryOnlyNodes": [{"ids": "8-9", "memory": "2Gi"}],
            "distances": {"sameSocket": 12, "otherSocket": 32, "memoryOnly": 80},
        }
    )
    assert [(n.id, n.memory >> 30, len(n.hugepages)) for n in machine.nodes] == [
        (0, 1, 1), (1, 1, 1), (2, 1, 1), (3, 1, 1), (8, 2, 0), (9, 2, 0),
    ]  # fmt: skip
    assert machine.nodes[0].distances == (10, 12, 32, 32, 80, 80)
    assert machine.nodes[4].distances == (80, 80, 80, 80, 10, 80)
    assert machine.nodes[0].hugepages == (HugePages(2048, 3),)


def test_short_form_hybrid() -> None:
    """Cores of several kinds keep their threads, their numbers and their names."""
    machine = from_data(
        {
            "sockets": 1,
            "numbering": "consecutive",
            "coreKinds": [{"name": "performance", "cores": 2, "threadsPerCore": 2}, {"name": "efficiency", "cores": 3}],
        }
    )
    assert [(t.name, str(t.cpus)) for t in machine.core_types] == [("performance", "0-3"), ("efficiency", "4-6")]
    assert list(groups(CPUTopology(machine).cores).values()) == ["0-1", "2-3", "4", "5", "6"]


@pytest.mark.parametrize(
    ("numbering", "nodes"),
    [
        pytest.param("linux", ["0-1,8-9", "2-3,10-11", "4-5,12-13", "6-7,14-15"], id="linux"),
        # Four nodes in turns: 0 and 4 are the first threads of node 0, 8 and 12 the second ones.
        pytest.param("numa:core", ["0,4,8,12", "1,5,9,13", "2,6,10,14", "3,7,11,15"], id="nodes"),
        pytest.param("socket:core", ["0,2,8,10", "4,6,12,14", "1,3,9,11", "5,7,13,15"], id="sockets"),
        pytest.param("socket:numa:core", ["0,4,8,12", "2,6,10,14", "1,5,9,13", "3,7,11,15"], id="sockets and nodes"),
    ],
)
def test_short_form_turns(numbering: str, nodes: list[str]) -> None:
    """Sockets and NUMA nodes may take turns, as in the one-line form."""
    shape = {"sockets": 2, "numaPerSocket": 2, "coresPerNuma": 2, "threadsPerCore": 2, "numbering": numbering}
    topology = CPUTopology(from_data(shape))
    assert list(groups(topology.numa_nodes).values()) == nodes
    line = f"pack:2 numa:2 core:2 pu:2(indexes={numbering.replace('socket', 'pack').replace('linux', 'core')})"
    assert list(groups(CPUTopology(load_machine(line)).numa_nodes).values()) == nodes


def test_short_form_of_uneven_nodes() -> None:
    """Counts and sizes in a list take turns; caches of a socket span its nodes."""
    machine = from_data(
        {
            "sockets": 2, "numaPerSocket": 3, "coresPerNuma": [43, 43, 42], "threadsPerCore": 2, "coresPerL3": 128,
            "memoryPerNuma": ["96Gi", "96Gi", "64Gi"],
        }
    )  # fmt: skip
    topology = CPUTopology(machine)
    assert groups(topology.numa_nodes)[0] == "0-42,256-298"
    assert groups(topology.numa_nodes)[5] == "214-255,470-511"
    assert [node.memory >> 30 for node in machine.nodes] == [96, 96, 64, 96, 96, 64]
    assert len(topology.uncore_caches) == 2
    assert {core.core for node in machine.nodes for core in node.cores if core.socket == 1} == set(range(128))


def test_short_form_ids() -> None:
    """Node and socket ids may be given."""
    machine = from_data({"sockets": 2, "coresPerNuma": 1, "nodeIds": [0, 8], "socketIds": [0, 8]})
    assert [(n.id, n.cores[0].socket) for n in machine.nodes] == [(0, 0), (8, 8)]


ERRORS = [
    pytest.param("sockets: 0", "sockets: 0 is too small", id="no sockets"),
    pytest.param("sockets: 1", "coresPerNuma: 0 is too small", id="no cores"),
    pytest.param(
        "sockets: 2\ncoresPerNuma: x", "coresPerNuma: expected a whole number or a list, got text", id="not a number"
    ),
    pytest.param("sockets: 2\ncoresPerNuma: []", "coresPerNuma: has no count", id="empty list"),
    pytest.param("sockets: 2\ncoresPerNuma: [4, 3, 2]", "coresPerNuma: 3 values for 2 NUMA nodes", id="list too long"),
    pytest.param("sockets: 2\ncoresPerNuma: [4, 0]", "coresPerNuma: 0 is too small", id="none on a node"),
    pytest.param(
        "sockets: 4\ncoresPerNuma: 1\nmemoryPerNuma: [1Gi, 2Gi, 3Gi]",
        "memoryPerNuma: 3 values for 4 NUMA nodes (write 4, or a number that divides it)",
        id="memory list",
    ),
    pytest.param("sockets: 1\ncoresPerNuma: 4\nnumbering: die:core", "unknown numbering 'die:core'", id="turns"),
    pytest.param("sockets: 1\ncoresPerNuma: 4\nnumbering: core:core", "names a level twice", id="turns twice"),
    pytest.param("sockets: 2\ncoresPerNuma: [4, 3]\ncoresPerL3: 4", "4 cores do not fit a socket", id="uneven L3"),
    pytest.param("sockets: 9999\ncoresPerNuma: 9999", "99980001 CPUs are more than Linux supports", id="absurd"),
    pytest.param("sockets: 1\ncoresPerNuma: 4\nfoo: 1", "unknown field `foo` (known are sockets", id="unknown field"),
    pytest.param("sockets: 1\ncoresPerNuma: 4\nnumbering: odd", "unknown numbering 'odd'", id="numbering"),
    pytest.param("sockets: 1\ncoresPerNuma: 4\ncoresPerL3: 3", "coresPerL3: 3 cores do not fit", id="L3"),
    pytest.param("sockets: 1\ncoresPerNuma: 4\nmemoryPerNuma: 1Gx", "memoryPerNuma: '1Gx' is not a size", id="size"),
    pytest.param(
        "sockets: 1\ncoresPerNuma: 4\nhugepages: {3: 1}", "hugepages[3]: 3 is not a page size", id="page size"
    ),
    pytest.param("sockets: 1\ncoresPerNuma: 4\nhugepages: {2Mi: -1}", "hugepages[2Mi]: -1 is not a number", id="pages"),
    pytest.param("sockets: 2\ncoresPerNuma: 4\ndistances: [[10]]", "distances: 1 rows for 2 nodes", id="matrix"),
    pytest.param("sockets: 1\ncoresPerNuma: 4\ndistances: {far: 3}", "distances.far: unknown", id="distance"),
    pytest.param("sockets: 2\ncoresPerNuma: 1\nnodeIds: [1, 1]", "nodeIds: 1 ids for 2", id="same ids"),
    pytest.param("sockets: 1\ncoresPerNuma: 1\nmemoryOnlyNodes: [{ids: 0}]", "node 0 is listed twice", id="node twice"),
    pytest.param("sockets: 1\ncoresPerNuma: 1\nmemoryOnlyNodes: [{ids: x}]", "memoryOnlyNodes[0].ids", id="node list"),
    pytest.param("nodes: 5", "nodes: 5 is not a list", id="nodes"),
    pytest.param("nodes: [{id: 0, core: []}]", "nodes[0].core: unknown field", id="unknown in a node"),
    pytest.param("nodes: [{id: 0, cores: [{socket: 0}]}]", "nodes[0].cores[0]", id="incomplete core"),
    pytest.param(
        "nodes: [{id: 0, cores: [{socket: 0, core: 0, threads: []}]}]", "nodes[0].cores[0].threads", id="no threads"
    ),
    pytest.param(
        "nodes: [{id: 0, cores: [{socket: 0, core: 0, threads: [1, 1]}]}]", "a CPU is listed twice", id="CPU twice"
    ),
    pytest.param(
        "nodes: [{id: 0, cores: [{socket: 0, core: 0, threads: [9999999]}]}]",
        "9999999 is not a CPU id",
        id="absurd CPU",
    ),
    pytest.param("nodes: [{id: 99999999}]", "nodes[0].id: 99999999 is not a NUMA node id", id="absurd node"),
    pytest.param("nodes: [{id: 0, memory: -1}]", "nodes[0].memory: -1 is not a memory size", id="negative memory"),
    pytest.param(
        "nodes: [{id: 0, hugepages: [{pageSizeKi: 0, numPages: 1}]}]",
        "nodes[0].hugepages[0]: 1 pages of 0 KiB",
        id="pages of nothing",
    ),
    pytest.param("nodes: [{id: 0}]\noffline: 3-1", "offline: not a CPU list", id="CPU list"),
    pytest.param("a: 1", "has neither sockets nor nodes", id="something else"),
    pytest.param("- 1\n- 2", "is not a mapping", id="a list"),
    pytest.param("a: [", "is not valid YAML: line", id="malformed YAML"),
    pytest.param('{"topology": ', "is not valid YAML", id="malformed JSON"),
    pytest.param('{"topology": 3}', "topology: is not a list", id="MachineInfo"),
    pytest.param('{"topology": [{"node_id": "x"}]}', "topology[0].node_id: 'x' is not", id="MachineInfo number"),
    pytest.param('{"topology": [], "num_cores": 1.5}', "num_cores: 1.5 is not a whole number", id="MachineInfo float"),
    pytest.param("<a/>", "<a> is not hwloc's topology", id="other XML"),
    pytest.param("<topology><object", "is not well-formed XML", id="malformed XML"),
    pytest.param("<topology/>", "is not hwloc's topology", id="empty topology"),
    pytest.param('<!DOCTYPE a [<!ENTITY b "c">]><a/>', "declares XML entities", id="XML entities"),
    pytest.param("pack:2 frob:3", "unknown type 'frob'", id="synthetic"),
    pytest.param("", "does not exist, and is neither a ready-made machine nor", id="nothing"),
    pytest.param("/no/such/file", "/no/such/file: does not exist", id="missing file"),
]


def test_the_most_cpus() -> None:
    """The short form has as many CPUs as Linux supports, and not one more."""
    short = {"sockets": 1, "coresPerNuma": MAX_CPUS}
    assert from_data(short).cpu_count == MAX_CPUS
    with pytest.raises(InputError, match=f"{MAX_CPUS + 1} CPUs are more than Linux supports"):
        from_data({**short, "coresPerNuma": MAX_CPUS + 1})


@pytest.mark.parametrize(("text", "problem"), ERRORS)
def test_errors_are_one_line(text: str, problem: str) -> None:
    """Bad input is refused in one line with its place."""
    with pytest.raises(InputError) as caught:
        load_machine(text)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_errors_name_the_file(tmp_path: Path) -> None:
    """A message about a file starts with its path."""
    path = tmp_path / "m.yaml"
    path.write_text("sockets: 0\n")
    with pytest.raises(InputError, match=r"m\.yaml: sockets: 0 is too small"):
        load_machine(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is not UTF-8 text"):
        load_machine(path)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("sockets: 1\ncoresPerNuma: 2\nmemoryPerNuma: 1Gi\n", id="short form"),
        pytest.param(
            "nodes: [{id: 0, memory: 1Gi, cores: [{socket: 0, core: 0, threads: [0]}, "
            "{socket: 0, core: 1, threads: [1]}]}]",
            id="full form",
        ),
        pytest.param(
            '{"nodes":[{"id":0,"memory":1073741824,"cores":[{"socket":0,"core":0,"threads":[0]},'
            '{"socket":0,"core":1,"threads":[1]}]}]}',
            id="machine of the recordings",
        ),
        pytest.param("core:2 pu:1", id="synthetic"),
        pytest.param("  \n core:2\n pu:1\n", id="synthetic on lines"),
        pytest.param(
            '{"num_cores":2,"num_sockets":1,"topology":[{"node_id":0,"memory":1073741824,"hugepages":null,"cores":['
            '{"core_id":0,"thread_ids":[0],"caches":null,"uncore_caches":null,"socket_id":0},'
            '{"core_id":1,"thread_ids":[1],"socket_id":0}],"caches":null,"distances":null}]}',
            id="MachineInfo",
        ),
        pytest.param(
            '<?xml version="1.0"?><!DOCTYPE topology SYSTEM "hwloc2.dtd"><topology version="2.0">'
            '<object type="Machine" cpuset="0x3"><object type="Package" os_index="0" cpuset="0x3">'
            '<object type="NUMANode" os_index="0" cpuset="0x3" local_memory="1073741824"/>'
            '<object type="Core" os_index="0" cpuset="0x1"><object type="PU" os_index="0" cpuset="0x1"/></object>'
            '<object type="Core" os_index="1" cpuset="0x2"><object type="PU" os_index="1" cpuset="0x2"/></object>'
            "</object></object></topology>",
            id="hwloc XML",
        ),
    ],
)
def test_every_form_is_recognised(text: str, tmp_path: Path) -> None:
    """The same machine comes out of every form, given as text and as a file."""
    (tmp_path / "machine").write_text(text)
    for machine in (parse_machine(text), load_machine(str(tmp_path / "machine"))):
        assert [(n.id, n.memory, [c.threads for c in n.cores]) for n in machine.nodes] == [(0, 1 << 30, [(0,), (1,)])]
        assert (machine.cpu_count, machine.socket_count) == (2, 1)


def test_machineinfo_caches() -> None:
    """Caches of cores, nodes and uncore caches are kept with their CPUs, and written back where they were."""
    cores = [
        {"core_id": c, "thread_ids": [c, c + 4], "socket_id": 0,
         "caches": [{"id": c, "size": 1 << 20, "type": "Unified", "level": 2}],
         "uncore_caches": [{"id": 7 + c // 2, "size": 1 << 25, "type": "Unified", "level": 3}]}
        for c in range(4)
    ]  # fmt: skip
    machine = parse_machine(json.dumps({"num_cores": 8, "topology": [{"node_id": 0, "cores": cores}]}))
    assert [(c.level, c.size, str(c.cpus)) for c in machine.caches if c.level == 3] == [
        (3, 1 << 25, "0-1,4-5"),
        (3, 1 << 25, "2-3,6-7"),
    ]
    written = json.loads(dump_machine(machine, "machineinfo"))
    assert [core["uncore_caches"] for core in written["topology"][0]["cores"]] == [c["uncore_caches"] for c in cores]
    assert [core["caches"] for core in written["topology"][0]["cores"]] == [c["caches"] for c in cores]


def test_unknown_dump_format() -> None:
    """An unknown form is refused with those that exist."""
    with pytest.raises(InputError, match="one of yaml, json, machineinfo, synthetic"):
        dump_machine(Machine(nodes=()), "toml")  # type: ignore[arg-type]


cpusets = st.sets(st.integers(0, 40), max_size=6).map(CPUSet)
sizes = st.integers(0, 1 << 50)
pools = st.lists(
    st.builds(HugePages, st.sampled_from([64, 2048, 1048576]), st.integers(0, 1 << 20)),
    max_size=3,
    unique_by=lambda pool: pool.page_size_ki,
).map(tuple)
distances = st.none() | st.lists(st.integers(0, 255), max_size=4).map(tuple)
texts = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "Z")), max_size=12)


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    ids = draw(st.lists(st.integers(0, 1023), min_size=1, max_size=4, unique=True))
    cpus = iter(draw(st.permutations(range(40))))
    nodes = []
    for number in ids:
        cores = [
            Core(
                socket=draw(st.integers(-1, 3)),
                core=draw(st.integers(-1, 50)),
                threads=tuple(next(cpus) for _ in range(draw(st.integers(1, 3)))),
                uncore_caches=tuple(draw(st.lists(st.integers(0, 9), max_size=2))),
            )
            for _ in range(draw(st.integers(0, 3)))
        ]
        nodes.append(NUMANode(number, draw(sizes), draw(pools), draw(distances), tuple(cores)))
    return Machine(
        nodes=tuple(nodes),
        num_cores=draw(st.none() | st.integers(0, 99)),
        num_sockets=draw(st.none() | st.integers(0, 9)),
        memory_capacity=draw(st.none() | st.integers(1, 1 << 50)),
        hugepages=draw(st.none() | pools),
        name=draw(texts),
        description=draw(texts),
        source=draw(texts),
        architecture=draw(texts),
        offline=draw(cpusets),
        isolated=draw(cpusets),
        caches=tuple(draw(st.lists(st.builds(Cache, st.integers(1, 4), texts, sizes, cpusets), max_size=2))),
        core_types=tuple(draw(st.lists(st.builds(CoreType, texts, cpusets, st.integers(0, 1024)), max_size=2))),
        max_frequencies=tuple(draw(st.lists(st.builds(MaxFrequency, st.integers(1, 10**7), cpusets), max_size=2))),
        nohz_full=draw(cpusets),
        rcu_nocbs=draw(cpusets),
        groups=tuple(draw(st.lists(st.builds(CPUGroup, texts, st.integers(-1, 9), cpusets), max_size=2))),
        kernel_nodes=tuple(
            draw(st.lists(st.builds(KernelNode, st.integers(0, 9), cpusets, sizes, pools, distances), max_size=2))
        ),
        warnings=tuple(draw(st.lists(texts, max_size=2))),
    )


@pytest.mark.slow
@given(machines(), st.sampled_from(["yaml", "json"]))
def test_full_form_round_trip(machine: Machine, form: Any) -> None:
    """Whatever a machine is like, YAML and JSON give it back with every fact."""
    assert parse_machine(dump_machine(machine, form)) == machine


@pytest.mark.parametrize("name", gallery_names())
@pytest.mark.slow
def test_machineinfo_keeps_caches(name: str) -> None:
    """Written and read, a real machine's MachineInfo is the same text, caches included."""
    text = dump_machine(load_gallery(name), "machineinfo")
    assert dump_machine(parse_machine(text), "machineinfo") == text


@pytest.mark.slow
@given(machines())
def test_machineinfo_round_trip(machine: Machine) -> None:
    """MachineInfo gives back everything a kubelet sees."""
    again = parse_machine(dump_machine(machine, "machineinfo"))
    assert again.nodes == machine.nodes
    assert (again.cpu_count, again.socket_count, again.memory) == (
        machine.cpu_count,
        machine.socket_count,
        machine.memory,
    )
    assert again.all_hugepages == machine.all_hugepages


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text makes a reader fail in any other way than an `InputError` of one line."""
    try:
        parse_machine(text)
    except InputError as error:
        message = str(error)
    else:
        message = ""
    assert "\n" not in message


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def with_keys(*keys: str) -> st.SearchStrategy[dict[str, Any]]:
    """Mappings of known fields to anything."""
    return st.dictionaries(st.sampled_from(keys), plain | st.deferred(lambda: nested), max_size=4)


nested = st.lists(
    with_keys(
        "id", "node_id", "cores", "hugepages", "memory", "distances", "threads", "thread_ids", "socket", "core_id"
    ),
    max_size=2,
)
documents = with_keys("nodes", "sockets", "coresPerNuma", "hugepages", "topology", "caches", "kernelNodes", "numCores",
                      "memoryOnlyNodes", "coreKinds", "distances", "offline", "num_cores")  # fmt: skip


@pytest.mark.slow
@settings(max_examples=300)
@given(documents)
def test_any_data_is_read_or_refused(data: dict[str, Any]) -> None:
    """No data with our field names makes a reader fail in any other way than an `InputError` of one line."""
    message = ""
    try:
        parse_machine(json.dumps(data))
    except InputError as error:
        message = str(error)
    assert "\n" not in message


@given(
    st.dictionaries(
        st.sampled_from(["os_index", "cpuset", "complete_cpuset", "depth", "local_memory", "cache_size", "subtype"]),
        st.sampled_from(["", "x", "-1", "0", "3", "0x3", "0xf...f", "9" * 30, "0x00000001,,0x3"]),
    ),
    st.sampled_from(["PU", "NUMANode", "L3Cache", "Cache", "Package", "Core"]),
)
def test_any_xml_attribute_is_read_or_refused(attributes: dict[str, str], kind: str) -> None:
    """Odd numbers in hwloc XML are read or refused in one line."""
    odd = " ".join(f'{name}="{value}"' for name, value in attributes.items())
    message = ""
    try:
        parse_machine(
            f'<topology version="2.0"><object type="Machine" cpuset="0x3"><object type="{kind}" {odd}/>'
            '<object type="PU" os_index="1" cpuset="0x2"/></object></topology>'
        )
    except InputError as error:
        message = str(error)
    assert "\n" not in message


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"topology":[{"cores":[{"thread_ids":[1000000000000]}]}]}', id="MachineInfo"),
        pytest.param("nodes: [{id: 0, cores: [{socket: 0, core: 0, threads: [1000000000000]}]}]", id="full form"),
        pytest.param("nodes: [{id: 1000000000000}]", id="node id"),
        pytest.param("nodes: [{id: 0}]\noffline: 0-1000000000000", id="CPU list"),
        pytest.param(
            '<topology><object type="Machine"><object type="PU" os_index="1000000000000"/></object></topology>',
            id="XML",
        ),
        pytest.param("pack:1000000 core:1000000 pu:1000000", id="synthetic"),
        pytest.param("sockets: 1000000000000\ncoresPerNuma: 1", id="short form"),
    ],
)
def test_absurd_sizes_are_refused_at_once(text: str) -> None:
    """Numbers no machine has are refused before anything of that size is made."""
    with pytest.raises(InputError):
        parse_machine(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Architecture:             x86_64\nCPU op-mode(s):  32-bit: 64-bit\n", "has no number of CPUs"),
        ('{\n   "lscpu": [{"field": "Architecture:", "data": "x86_64"}]\n}', "has no number of CPUs"),
        ("# The following is the parsable format, which can be fed to other\n0,0,0,0\n", "names the columns"),
        ("CPU NODE SOCKET CORE L1d:L1i:L2:L3 ONLINE\n  0    0      0\n", "line 2 has 3 of 6 columns"),
        ("available: 2 nodes (0-1)\nnode 0 cpus: 0 1\n", "announces 2 nodes and lists 1"),
        ("Machine (23GB total)\n  Package L#0\n", "has no PU"),
    ],
)
def test_output_of_programs_that_is_cut_off(text: str, problem: str) -> None:
    """A listing that was not copied whole says what is missing and what to give, not that it is bad YAML."""
    with pytest.raises(InputError, match=problem) as caught:
        parse_machine(text)
    assert caught.value.remedy
