"""Slices of machines: what the API server takes, and what claims get of them."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from podslice.cli.main import cli
from podslice.core.dra.nodes import ClusterDevices
from podslice.core.dra.numa_devices import NUMA_NODE, ClaimableAmounts, machine_slices
from podslice.core.dra.objects import DeviceClass, ResourceClaimSpec, ResourceSlice
from podslice.core.dra.pools import LabelledNode
from podslice.core.dra.search import WantedClaim
from podslice.core.dra.validate import slice_errors
from podslice.core.pod.spec import from_dict
from podslice.core.values.cpuset import CPUSet
from podslice.gallery import gallery_names, load_gallery

ANY = from_dict({"metadata": {"name": "any"}}, DeviceClass)


def granted(slices: list[dict[str, Any]], **amounts: str) -> dict[str, int] | None:
    """What the first device gives of these amounts, in billionths."""
    cluster = ClusterDevices(
        [from_dict(one, ResourceSlice) for one in slices], [LabelledNode("n")], {"any": ANY}, lambda *_: True
    )
    asked = {name.replace("_", "/"): amount for name, amount in amounts.items()}
    form = {"deviceClassName": "any", "capacity": {"requests": asked}}
    spec = from_dict({"devices": {"requests": [{"name": "r", "exactly": form}]}}, ResourceClaimSpec)
    found = cluster.find("n", [WantedClaim("c", spec.devices)])
    return None if found is None else dict(found[0][0].consumed or {})


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
    """How many L3 caches the CPUs of each NUMA node have."""
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
        ("-o slices --node-name A_B", "--node-name: 'A_B' is no name of a node"),
        ("-o slices --claim-cpus 500", "--claim-cpus: the machine has no CPUs 500"),
        ("--claim-cpus 2", "--claim-cpus: is about the slices of a node (add -o slices)"),
        ("--node-name a", "--node-name: is about the slices of a node (add -o slices)"),
        ("--whole-cores", "--whole-cores: is about the slices of a node (add -o slices)"),
    ],
)
def test_wrong_options(options: str, said: str) -> None:
    """What no node is called and no machine has is refused, and so is what has no effect."""
    result = CliRunner().invoke(cli, ["topology", "--machine=xeon-6338-2s", *options.split()])
    assert said in str(result.exception)
