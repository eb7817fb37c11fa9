"""Advice on reservations: every advice starts a kubelet, adds up, and names whole cores that are online."""

from __future__ import annotations

import json

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from podslice import CPUSet, InputError, KubeletConfig, Machine, Node
from podslice.advise.reserve.advise import ReservationAdvice, ReservationRequest, advise
from podslice.advise.reserve.formulas import MIB, NAMES
from podslice.advise.reserve.placement import PLACEMENTS, divide_memory, place, site_of
from podslice.cli.main import cli
from podslice.config.carriers.layer import API_VERSION
from podslice.config.kubelet_file import config_from_dict
from podslice.machine.delta import without_cpus
from podslice.machine.devices import inventory_from_data
from podslice.machine.gallery import gallery_names, load_gallery
from podslice.machine.model import cpu_topology
from podslice.machine.readers.synthetic import from_synthetic
from podslice.values.cpuset import bits_of, parse_bits
from podslice.values.quantity import Quantity
from tests.read_documents import read_document

GIB = 1 << 30
NICS = inventory_from_data([{"resource": "x.io/nic", "perNUMANode": {0: 2}}])


def two_sockets() -> Machine:
    """Return the machine of the specification: siblings n and n+32, 256 GiB."""
    from podslice.machine.build import CPUFacts, NUMANodeFacts, build_nodes

    facts = (CPUFacts(cpu, cpu % 32, cpu % 32 // 16, cpu % 32 // 16) for cpu in range(64))
    return Machine(nodes=build_nodes(facts, [NUMANodeFacts(node, 128 * GIB, (), None) for node in (0, 1)]))


def memory(advice: ReservationAdvice) -> dict[int, int]:
    return {one["numaNode"]: Quantity.parse(one["limits"]["memory"]).value() for one in advice.lines["reservedMemory"]}


def check(machine: Machine, advice: ReservationAdvice, request: ReservationRequest) -> None:
    """Check the properties of the specification: the lines start a kubelet (P1), memory adds up (P2), cores are whole
    (P4), CPUs are online (P6)."""
    config = config_from_dict({"apiVersion": API_VERSION, "kind": "KubeletConfiguration", **advice.lines}).config
    node = Node(machine, config, profile="kubelet-1.36")
    assert config.cpu_manager_policy == "static"
    if config.memory_manager_policy == "None":  # POWER9 has NUMA nodes above 63
        assert any("Static does not start" in note for note in advice.notes)
        return
    reserved, topology = parse_bits(advice.cpus), cpu_topology(machine)
    assert node.reserved_cpus.bits == reserved
    assert not reserved & ~topology.all_cpus
    for core in topology.cores.values():
        assert core & reserved in (0, core)
    amounts = (config.kube_reserved, config.system_reserved, {"memory": config.eviction_thresholds["memory.available"]})
    total = sum(Quantity.parse(one.get("memory", "0")).value() for one in amounts)
    assert sum(memory(advice).values()) == total
    assert sum(Quantity.parse(one.memory).value() for one in advice.nodes) == total
    assert 1000 * reserved.bit_count() >= Quantity.parse(advice.cpu).milli_value()
    assert request.placement in (None, advice.placement)


def test_the_example_of_the_specification() -> None:
    """64 CPUs on two sockets with NICs on node 0: one core of node 1, and three quarters of the memory there."""
    advice = advise(two_sockets(), devices=NICS)
    assert (advice.cpu, advice.placement, advice.cpus) == ("230m", "device-free", "16,48")
    assert memory(advice) == {0: 391 * MIB, 1: 1174 * MIB}
    assert advice.lines["kubeReserved"] == {"memory": "1465Mi"}
    assert advice.lines["evictionHard"]["memory.available"] == "100Mi"
    assert (advice.before.cpu, advice.after.cpu) == ("64", "62")
    check(two_sockets(), advice, ReservationRequest())


@pytest.mark.slow
@pytest.mark.parametrize("name", gallery_names())
def test_every_ready_made_machine_starts(name: str) -> None:
    """On every machine of the gallery, by every formula and placement, a kubelet starts with the lines."""
    machine = load_gallery(name)
    requests = [ReservationRequest(formula=one) for one in NAMES] + [
        ReservationRequest(placement=one) for one in PLACEMENTS
    ]
    for request in requests:
        check(machine, advise(machine, request=request), request)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 2),
    st.integers(1, 4),
    st.integers(2, 6),
    st.integers(1, 4),
    st.sampled_from((2, 4, 8, 500)),
    st.sampled_from(NAMES),
    st.sampled_from((None, *PLACEMENTS)),
    st.integers(1, 300),
    st.booleans(),
)
def test_any_machine_starts(
    sockets: int, nodes: int, cores: int, threads: int, gib: int, formula: str, placement: str | None, pods: int,
    housekeeping: bool,
) -> None:  # fmt: skip
    """Whatever the machine, an advice starts a kubelet and adds up, or reports that there is not so much memory."""
    machine = from_synthetic(f"pack:{sockets} numa:{nodes}(memory={gib}GiB) core:{cores} pu:{threads}")
    request = ReservationRequest(formula=formula, placement=placement, pods=pods, housekeeping=housekeeping)
    try:
        advice = advise(machine, request=request)
    except InputError as error:
        assert "the formula reserves" in error.problem  # noqa: PT017
        return
    check(machine, advice, request)


@settings(max_examples=40, deadline=None)
@given(st.sets(st.integers(0, 31), max_size=24), st.sampled_from((None, *PLACEMENTS)), st.integers(1, 300))
def test_offline_cpus_are_not_named(lost: set[int], placement: str | None, pods: int) -> None:
    """Whichever CPUs are offline, an advice names others, and starts a kubelet on what is left."""
    machine = from_synthetic("pack:2 numa:2(memory=16GiB) core:4 pu:2")
    left = without_cpus(machine, bits_of(lost))
    request = ReservationRequest(placement=placement, pods=pods)
    try:
        advice = advise(left, request=request)
    except InputError as error:
        assert error.problem  # noqa: PT017
        return
    assert not parse_bits(advice.cpus) & bits_of(lost)
    check(left, advice, request)


@given(
    st.integers(0, 4000),
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 4000)), min_size=1, max_size=8),
)
def test_memory_is_divided_to_the_byte(total: int, nodes: list[tuple[int, int]]) -> None:
    """Shares are whole MiB that add up, none above its node, and above half of it only where all are."""
    cpus, sizes = {i: max(c, i == 0) for i, (c, _) in enumerate(nodes)}, {i: s * MIB for i, (_, s) in enumerate(nodes)}
    if total * MIB > sum(sizes.values()):
        with pytest.raises(ValueError, match="more than there is"):
            divide_memory(total * MIB, cpus, sizes)
        return
    if not sum(sizes.values()):
        return
    shares = divide_memory(total * MIB, cpus, sizes)
    assert sum(shares.values()) == total * MIB
    assert all(0 <= share <= sizes[node] and share % MIB == 0 for node, share in shares.items())
    if any(share > sizes[node] / 2 for node, share in shares.items()):
        assert all(share >= sizes[node] // 2 // MIB * MIB for node, share in shares.items())


def test_places() -> None:
    """Least capable cores of a hybrid machine, a core of every NUMA node, cores that the kernel does not isolate, and
    one more beside the devices."""
    hybrid = load_gallery("hybrid-i9-12900k")
    assert advise(hybrid).cpus == "16"
    assert advise(hybrid).nodes[0].classes == {"efficiency": "16"}
    machine = two_sockets()
    assert advise(machine, request=ReservationRequest(placement="per-node")).cpus == "0,16,32,48"
    assert advise(machine, request=ReservationRequest(placement="first")).cpus == "0,32"
    isolated = msgspec.structs.replace(machine, isolated=CPUSet.parse("0-15,32-47"))
    assert advise(isolated, request=ReservationRequest(placement="isolate-aware")).cpus == "16,48"
    assert any("isolcpus" in note for note in advise(isolated, request=ReservationRequest(placement="first")).notes)
    beside = advise(machine, devices=NICS, request=ReservationRequest(housekeeping=True))
    assert beside.cpus == "0,16,32,48"
    all_isolated = site_of(msgspec.structs.replace(machine, isolated=CPUSet.parse("0-61")), None)
    assert place(all_isolated, 9, "isolate-aware").notes == (
        "there are only 0 CPUs that the kernel does not isolate for the 9 that are needed",
    )


def test_what_the_node_has_stays() -> None:
    """Other settings of the present configuration stay; its systemReserved memory counts, its CPUs by number go."""
    config = KubeletConfig(
        system_reserved={"memory": "465Mi", "cpu": "2", "pid": "100"},
        eviction_hard={"memory.available": "5%", "pid.available": "10%"},
        topology_manager_policy="restricted",
        cpu_manager_policy="static",
        cpu_manager_policy_options={"full-pcpus-only": "true"},
    )
    advice = advise(two_sockets(), config, request=ReservationRequest(strict=True))
    assert advice.lines["systemReserved"] == {"memory": "465Mi", "pid": "100"}
    assert advice.lines["kubeReserved"] == {"memory": "1000Mi"}
    assert advice.lines["evictionHard"]["pid.available"] == "10%"
    assert advice.lines["cpuManagerPolicyOptions"] == {"full-pcpus-only": "true", "strict-cpu-reservation": "true"}
    check(two_sockets(), advice, ReservationRequest())


def test_a_machine_that_is_too_small() -> None:
    """A formula that reserves more memory than there is gives an error with a remedy, also on a machine of unknown
    memory."""
    with pytest.raises(InputError, match="--formula gke"):
        advise(from_synthetic("numa:1(memory=1GiB) core:2 pu:1"))
    unknown = tuple(msgspec.structs.replace(node, memory=0) for node in two_sockets().nodes)
    with pytest.raises(InputError, match="the NUMA nodes with CPUs have 0"):
        advise(Machine(nodes=unknown))


def test_the_command() -> None:
    """The command prints a document with a schema, the lines alone, or a page for people, and reports wrong input."""
    run = CliRunner().invoke
    options = ["reserve", "--machine", "xeon-6338-2s", "--devices", "examples/devices.yaml"]
    document = read_document(run(cli, [*options, "-o", "json"]).output, "ReservationAdvice")
    assert document["lines"]["reservedSystemCPUs"] == document["cpus"]
    lines = run(cli, [*options, "-o", "kubelet", "--pods", "50"]).output
    assert "kind: KubeletConfiguration" in lines
    assert "memory: 805Mi" in lines
    page = run(cli, options).output
    assert "aks-1.28" in page
    assert json.dumps(document["lines"]["kubeReserved"]["memory"]).strip('"') in page
    refused = run(cli, ["reserve", "--from", "numa:1(memory=1GiB) core:2 pu:1"])
    assert isinstance(refused.exception, InputError)
