"""Slices of machines: what the API server takes, and what claims get of them."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from podslice.api.pod.spec import from_dict
from podslice.cli.main import cli
from podslice.config.policy import ClaimDevices
from podslice.dra.allocation.nodes import ClusterDevices
from podslice.dra.allocation.pools import LabelledNode
from podslice.dra.allocation.search import RequestedClaim
from podslice.dra.cel import CELSelectors
from podslice.dra.devices import ClaimableAmounts
from podslice.dra.names import NUMA_NODE
from podslice.dra.objects import DeviceClass, ResourceClaimSpec, ResourceSlice
from podslice.dra.slices import machine_slices
from podslice.dra.validate import slice_errors
from podslice.machine.gallery import gallery_names, load_gallery
from podslice.machine.readers.synthetic import from_synthetic
from podslice.values.cpuset import CPUSet

ANY = from_dict({"metadata": {"name": "any"}}, DeviceClass)


def granted(slices: list[dict[str, Any]], **amounts: str) -> dict[str, int] | None:
    """Return the consumption of the first device for these requests, in billionths."""
    cluster = ClusterDevices(
        [from_dict(one, ResourceSlice) for one in slices], [LabelledNode("n")], {"any": ANY}, lambda *_: True
    )
    asked = {name.replace("_", "/"): amount for name, amount in amounts.items()}
    form = {"deviceClassName": "any", "capacity": {"requests": asked}}
    spec = from_dict({"devices": {"requests": [{"name": "r", "exactly": form}]}}, ResourceClaimSpec)
    found = cluster.find("n", [RequestedClaim("c", spec.devices)])
    return None if found is None else dict(found[0][0].consumed or {})


def search(slices: list[dict[str, Any]], *requests: dict[str, Any], **more: Any) -> list[str] | None:
    """The devices that a claim gets of our slices, None where it gets none."""
    classes = {"any": from_dict({"metadata": {"name": "any"}}, DeviceClass)}
    objects = [from_dict(one, ResourceSlice) for one in slices]
    cluster = ClusterDevices(objects, [LabelledNode("n")], classes, CELSelectors().matches)
    listed = [{"name": f"r{place}", "exactly": {"deviceClassName": "any", **one}} for place, one in enumerate(requests)]
    spec = from_dict({"devices": {"requests": listed, **more}}, ResourceClaimSpec)
    found = cluster.find("n", [RequestedClaim("c", spec.devices)])
    return None if found is None else [grant.offered.id[2] for grant in found[0]]


def where(expression: str, **more: Any) -> dict[str, Any]:
    """A request for devices that an expression means."""
    return {"selectors": [{"cel": {"expression": expression}}], **more}


@pytest.mark.parametrize("whole_cores", [False, True])
@pytest.mark.parametrize("name", gallery_names())
def test_every_machine(name: str, whole_cores: bool) -> None:
    """Nothing that the API server refuses; all CPUs are there; a claim takes all that a zone has, and not one more."""
    machine = load_gallery(name)
    slices = machine_slices(machine, "n", ClaimableAmounts(whole_cores=whole_cores))
    assert [error for one in slices for error in slice_errors(from_dict(one, ResourceSlice))] == []
    devices = [device for one in slices for device in one["spec"]["devices"]]
    zones = {device["attributes"][NUMA_NODE]["int"]: device["capacity"] for device in devices}
    threads = {numa.id: sum(len(core.threads) for core in numa.cores) for numa in machine.nodes}
    for numa, capacity in zones.items():
        assert int(capacity.get("podslice.io/cpu", {"value": "0"})["value"]) == threads[numa]
    first = next(one for one in devices if "podslice.io/cpu" in one["capacity"])
    most = max(int(one.get("podslice.io/cpu", {"value": "0"})["value"]) for one in zones.values())
    assert granted(slices, cpu=first["capacity"]["podslice.io/cpu"]["value"]) is not None
    assert granted(slices, cpu=str(most)) is not None
    assert granted(slices, cpu=str(most + 1)) is None


def test_the_list_form_of_the_numa_node() -> None:
    """KEP-6072: a NUMA node, then the nearest others of its socket; the older names stay single values."""
    machine = load_gallery("epyc-9654-nps4")
    (one,) = machine_slices(machine, "n", ClaimableAmounts(numa_list=True))
    assert [*slice_errors(from_dict(one, ResourceSlice))] == []
    lists = {device["name"]: device["attributes"] for device in one["spec"]["devices"]}
    assert lists["podslice-numa-1"][NUMA_NODE] == {"ints": [1, 0, 2, 3]}
    assert lists["podslice-numa-6"][NUMA_NODE] == {"ints": [6, 4, 5, 7]}
    assert lists["podslice-numa-6"]["dra.net/numaNode"] == {"int": 6}
    (alone,) = machine_slices(load_gallery("xeon-6338-2s"), "n", ClaimableAmounts(numa_list=True))
    assert [one["attributes"][NUMA_NODE] for one in alone["spec"]["devices"]] == [{"ints": [0]}, {"ints": [1]}]


@pytest.mark.parametrize("devices", ["perCPU", "partitions"])
@pytest.mark.parametrize("name", gallery_names())
@pytest.mark.slow
def test_other_models(name: str, devices: ClaimDevices) -> None:
    """Every CPU is in a device of its own, or in partitions of every size; slices stay within the server's bounds."""
    machine = load_gallery(name)
    slices = machine_slices(machine, "n", ClaimableAmounts(devices=devices))
    assert [error for one in slices for error in slice_errors(from_dict(one, ResourceSlice))] == []
    listed = [device for one in slices for device in one["spec"].get("devices", ())]
    assert len({one["name"] for one in listed}) == len(listed)
    own = [one for one in listed if "allowMultipleAllocations" not in one]
    amounts = [int(one["capacity"]["podslice.io/cpu"]["value"]) for one in own]
    every = machine.cpu_count
    if devices == "perCPU":
        assert amounts == [1] * every
        return
    kinds = [one["attributes"]["podslice.io/partition"]["string"] for one in own]
    assert list(dict.fromkeys(kinds)) in (
        ["numaNode", "socket", "machine"],
        ["l3Cache", "numaNode", "socket", "machine"],
    )
    for kind in dict.fromkeys(kinds):
        assert sum(count for count, one in zip(amounts, kinds, strict=True) if one == kind) == every
    sets = slices[0]["spec"]["sharedCounters"]
    assert sum(int(counter["value"]) for one in sets for counter in one["counters"].values()) == every
    assert all(sum(map(_taken, one["consumesCounters"])) == count for one, count in zip(own, amounts, strict=True))


def _taken(one: dict[str, Any]) -> int:
    return sum(int(counter["value"]) for counter in one["counters"].values())


@pytest.mark.parametrize("numa", [1, 32, 64, 65])
def test_many_numa_nodes(numa: int) -> None:
    """Partitions of up to 64 NUMA nodes have counters; on larger machines only sockets and the machine are whole."""
    machine = from_synthetic(f"pack:1 numa:{numa}(memory=1GiB) core:2 pu:1")
    slices = machine_slices(machine, "n", ClaimableAmounts(devices="partitions"))
    assert [error for one in slices for error in slice_errors(from_dict(one, ResourceSlice))] == []
    assert max(len(one["spec"].get("devices", ())) for one in slices) <= 64
    assert len(slices[0]["spec"]["sharedCounters"]) == (2 if numa == 64 else 1)
    names = {device["name"] for one in slices for device in one["spec"].get("devices", ())}
    assert ("podslice-whole-numa-0" in names) == (numa <= 64)
    assert "podslice-whole-socket-0" in names


def test_partitions_exclude_each_other() -> None:
    """The owner of a socket leaves the other's caches and NUMA nodes; memory is requested beside them."""
    slices = machine_slices(load_gallery("epyc-9654-nps4"), "n", ClaimableAmounts(devices="partitions"))
    socket = where('device.attributes["podslice.io"].?partition.orValue("") == "socket"')
    numa = where('device.attributes["podslice.io"].?partition.orValue("") == "numaNode"')
    cache = where('device.attributes["podslice.io"].?partition.orValue("") == "l3Cache"')
    found = search(slices, socket, numa, cache)
    assert found is not None
    assert found[:2] == ["podslice-whole-socket-0", "podslice-whole-numa-4"]
    assert search(slices, {**numa, "count": 8}) is not None
    assert search(slices, {**numa, "count": 8}, cache) is None
    assert search(slices, socket, {**numa, "count": 5}) is None
    memory = where(
        'device.capacity["podslice.io"].?memory.hasValue()', capacity={"requests": {"podslice.io/memory": "1Gi"}}
    )
    same = {"constraints": [{"matchAttribute": NUMA_NODE}]}
    assert search(slices, {**memory}, numa, **same) == ["podslice-numa-0", "podslice-whole-numa-0"]


def test_single_cpus() -> None:
    """Up to 32 CPUs, or cores, by name, of one cache where the claim requires it."""
    machine = load_gallery("epyc-9654-nps4")
    cpu = where('device.attributes["podslice.io"].?cpu.hasValue()')
    slices = machine_slices(machine, "n", ClaimableAmounts(devices="perCPU"))
    assert search(slices, {**cpu, "count": 32}) is not None
    assert search(slices, {**cpu, "count": 33}) is None
    of_one_cache = {"constraints": [{"matchAttribute": "podslice.io/l3"}]}
    assert search(slices, {**cpu, "count": 16}, **of_one_cache) is not None
    cores = machine_slices(machine, "n", ClaimableAmounts(CPUSet.parse("1-383"), whole_cores=True, devices="perCPU"))
    core = where('device.attributes["podslice.io"].?core.orValue(-1) == 1')
    assert search(cores, core) == ["podslice-core-1"]
    assert search(cores, where('device.attributes["podslice.io"].?core.orValue(-1) == 0')) is None


def test_classes() -> None:
    """A NUMA node with CPUs of several classes has a device for each, and memory beside them; one with CPUs of one
    class says which."""
    machine = from_synthetic("pack:2 [numa(memory=8GiB)] core:4 pu:1")
    classes = {"fast": 0b0011, "slow": 0b11111100}
    slices = machine_slices(machine, "n", ClaimableAmounts(classes=classes))
    names = [device["name"] for one in slices for device in one["spec"]["devices"]]
    assert names == ["podslice-numa-0-fast", "podslice-numa-0-slow", "podslice-numa-0", "podslice-numa-1"]
    amount = {"capacity": {"requests": {"podslice.io/cpu": "2"}}}
    fast = where('device.attributes["podslice.io"].?class.orValue("") == "fast"', **amount)
    slow = where('device.attributes["podslice.io"].?class.orValue("") == "slow"', **amount)
    assert search(slices, fast) == ["podslice-numa-0-fast"]
    assert search(slices, fast, fast) is None
    assert search(slices, slow, slow) == ["podslice-numa-0-slow", "podslice-numa-1"]


def test_whole_cores() -> None:
    """A core of which a thread is kept back is not given at all, and odd numbers are rounded up."""
    machine = load_gallery("xeon-6338-2s")
    apart = machine_slices(machine, "n", ClaimableAmounts(CPUSet.parse("1-127")))
    cores = machine_slices(machine, "n", ClaimableAmounts(CPUSet.parse("1-127"), whole_cores=True))
    values = [one[0]["spec"]["devices"][0]["capacity"]["podslice.io/cpu"]["value"] for one in (apart, cores)]
    assert values == ["63", "62"]
    for slices, taken in ((apart, 3), (cores, 4)):
        consumed = granted(slices, cpu="3")
        assert consumed is not None
        assert (consumed["podslice.io/cpu"], consumed["podslice.io/memory"]) == (taken * 10**9, 0)


@pytest.mark.parametrize(("name", "caches"), [("xeon-6338-2s", {1}), ("epyc-9654-nps4", {3})])
def test_l3_caches(name: str, caches: set[int]) -> None:
    """The number of L3 caches of each NUMA node's CPUs."""
    devices = [device for one in machine_slices(load_gallery(name), "n") for device in one["spec"]["devices"]]
    assert {device["attributes"]["podslice.io/l3Caches"]["int"] for device in devices} == caches


def test_nobody_takes_what_it_does_not_ask_for() -> None:
    """A claim for memory leaves the CPUs, one for CPUs the memory."""
    slices = machine_slices(load_gallery("epyc-9654-nps4"), "n")
    for asked in ({"cpu": "4"}, {"memory": "1Gi"}):
        consumed = granted(slices, **asked)
        assert consumed is not None
        assert [name for name, amount in consumed.items() if amount] == [f"podslice.io/{next(iter(asked))}"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("-o slices --node-name A_B", "--node-name: 'A_B' is not a valid node name"),
        ("-o slices --claim-cpus 500", "--claim-cpus: the machine has no CPUs 500"),
        ("--claim-devices perCPU", "--claim-devices: is about the slices of a node (add -o slices)"),
        ("-o slices --claim-devices cpu", "'cpu' is not one of 'perNUMANode', 'perCPU', 'partitions'"),
        ("--claim-cpus 2", "--claim-cpus: is about the slices of a node (add -o slices)"),
        ("--node-name a", "--node-name: is about the slices of a node (add -o slices)"),
        ("--whole-cores", "--whole-cores: is about the slices of a node (add -o slices)"),
    ],
)
def test_wrong_options(options: str, said: str) -> None:
    """Impossible node names and CPUs are refused, and so are options without effect."""
    result = CliRunner().invoke(cli, ["topology", "--machine=xeon-6338-2s", *options.split()])
    assert result.exit_code != 0
    assert said in f"{result.exception} {result.output}"
