"""Mixed containers beside a runtime and a kernel in memory: sets, limits, what a container is told, and resizes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from podslice.agent.kubelet.podresources import container_resources
from podslice.agent.records import ContainerRecord, Pinning
from podslice.agent.runtime.container_file import ContainerFiles, mixed_variables
from podslice.agent.runtime.exposure import describe_pinning
from podslice.agent.runtime.translate import pinning_in_environment
from podslice.api.pod.spec import Pod
from podslice.config.policy import MixedCPUs, PodslicePolicy
from podslice.values.cpuset import format_bits, parse_bits
from tests.agent.elastic import ELASTIC, Elastic
from tests.agent.helpers import agent_config
from tests.clock import run
from tests.node.mixed.helpers import pod

MIXED = replace(ELASTIC, mixed=MixedCPUs())
OTHERS = ("openshift", "cpu-pooler", "downward")


def in_mixed(tmp_path: Path, test: Callable[[Elastic], Awaitable[None]], policy: PodslicePolicy = MIXED) -> None:
    """A node on which exclusive parts are alone before every write of anything."""

    async def whole() -> None:
        world = Elastic(
            tmp_path, policy, agent_config(reserved_system_cpus="0-1", topology_manager_policy="best-effort")
        )
        world.start()
        world.kernel.before = lambda: alone(world)
        await test(world)
        alone(world)

    run(whole())


def alone(world: Elastic) -> None:
    """Nobody else runs on the exclusive CPUs of a mixed container."""
    for record in world.owner.containers.values():
        own = world.owner.placing.wanted(record).own
        for other in world.containers:
            if other != record.id and own:
                assert not parse_bits(world.cpus(other)) & own, (record.id, other)


def mixed(name: str, cpu: str = "5500m", asks: str = "all") -> Pod:
    return pod(name, cpu, asks=asks)


def test_a_container_with_both(tmp_path: Path) -> None:
    """It runs on its own and the shared CPUs, without limit, and is told which is which; PodResources lists its own."""

    async def test(world: Elastic) -> None:
        await world.run(mixed("a"))
        assert (world.owned("a", "c0"), world.cpus("a-c0")) == ("2-6", "0-31")
        assert world.kernel.files["kubepods/poda/a-c0"]["cpu.max"].startswith("max")
        told = world.environment["a-c0"]
        assert told["PODSLICE_CPUS"] == "0-31"
        assert (told["PODSLICE_EXCLUSIVE_CPUS"], told["PODSLICE_SHARED_CPUS"]) == ("2-6", "0-1,7-31")
        file = world.container_file("a-c0")
        assert (file["generation"], file["isolation"], file["exclusiveCPUs"]) == (1, "mixed", "2-6")
        assert (file["sharedCPUs"], file["cpus"]) == ("0-1,7-31", "0-31")
        assert file["order"] == [2, 3, 4, 5, 6]
        assert file["assigned"] == {"cpuset": "2-6", "memset": file["memoryNodes"]}
        assert file["numa"]["0"]["cpus"] == "2-6"
        (listed,) = container_resources(world.view, world.view.pods["a"])
        assert list(listed.cpu_ids) == [2, 3, 4, 5, 6]
        world.agrees()

    in_mixed(tmp_path, test)


def test_the_shared_part_follows(tmp_path: Path) -> None:
    """Others that come and go change the shared part, in the cgroup and in the file, one generation a change."""

    async def test(world: Elastic) -> None:
        await world.run(mixed("a"))
        await world.run(pod("b", "4"))
        await world.settle()
        await asyncio.sleep(1)
        assert world.cpus("a-c0") == "0-7,12-31"
        file = world.container_file("a-c0")
        assert (file["sharedCPUs"], file["generation"], file["exclusiveCPUs"]) == ("0-1,7,12-31", 2, "2-6")
        world.leave("b")
        await world.settle()
        await asyncio.sleep(1)
        assert (world.cpus("a-c0"), world.container_file("a-c0")["generation"]) == ("0-31", 3)
        world.agrees()

    in_mixed(tmp_path, test)


def test_a_resize_in_the_call(tmp_path: Path) -> None:
    """A growth takes CPUs off everybody else first; the file follows, and a shrink gives them back."""

    async def test(world: Elastic) -> None:
        await world.run(mixed("a"))
        await world.run(pod("s", ""))
        world.source.add(mixed("a", "7500m"))
        await world.update("a-c0", 7500)
        await world.settle()
        await asyncio.sleep(1)
        assert (world.owned("a", "c0"), world.cpus("s-c0")) == ("2-8", "0-1,9-31")
        assert world.container_file("a-c0")["exclusiveCPUs"] == "2-8"
        assert world.container_file("a-c0")["order"] == [2, 3, 4, 5, 6, 7, 8]
        assert world.container_file("a-c0")["originalCPUs"] == "2-6"
        world.source.add(mixed("a", "5700m"))
        await world.update("a-c0", 5700)
        await world.settle()
        await asyncio.sleep(3)
        await world.settle()
        assert (world.owned("a", "c0"), world.container_file("a-c0")["exclusiveCPUs"]) == ("2-6", "2-6")
        world.agrees()

    in_mixed(tmp_path, test)


def test_only_the_remainder(tmp_path: Path) -> None:
    """Another remainder changes the weight and nothing else: no CPUs, no file, no limit."""

    async def test(world: Elastic) -> None:
        await world.run(mixed("a"))
        before = world.container_file("a-c0")
        world.source.add(mixed("a", "5900m"))
        await world.update("a-c0", 5900)
        await world.settle()
        await asyncio.sleep(1)
        assert world.container_file("a-c0") == before
        assert world.kernel.files["kubepods/poda/a-c0"]["cpu.max"].startswith("max")
        world.agrees()

    in_mixed(tmp_path, test)


def test_another_process(tmp_path: Path) -> None:
    """The next process finds everything as it was; the file goes on counting."""

    async def test(world: Elastic) -> None:
        await world.run(mixed("a"))
        await world.run(pod("b", "4"))
        await world.settle()
        await asyncio.sleep(1)
        before = world.container_file("a-c0")
        world.start()
        await world.settle()
        await asyncio.sleep(1)
        assert world.container_file("a-c0") == before
        assert world.cpus("a-c0") == "0-7,12-31"
        world.leave("b")
        await world.settle()
        await asyncio.sleep(1)
        assert world.container_file("a-c0")["generation"] == before["generation"] + 1
        world.agrees()

    in_mixed(tmp_path, test)


def test_a_state_that_is_gone(tmp_path: Path) -> None:
    """Without its state the agent counts the exclusive part as owned and leaves the container as it is."""

    async def test(world: Elastic) -> None:
        await world.run(mixed("a"))
        claim = pinning_in_environment(world.environment["a-c0"])
        assert claim is not None
        assert (claim.isolation, claim.owned, claim.cpus) == ("mixed", parse_bits("2-6"), parse_bits("0-31"))

    in_mixed(tmp_path, test)


def test_variables_of_other_products() -> None:
    """OpenShift's, CPU-Pooler's and the downward API's names are there when they are asked for, and only then."""
    placement = Pinning(cpus=parse_bits("0-1,4-6"), isolation="mixed", own=parse_bits("4-6"))
    assert mixed_variables(placement, ()) == {"PODSLICE_EXCLUSIVE_CPUS": "4-6", "PODSLICE_SHARED_CPUS": "0-1"}
    assert mixed_variables(placement, OTHERS) == {
        "PODSLICE_EXCLUSIVE_CPUS": "4-6",
        "PODSLICE_SHARED_CPUS": "0-1",
        "OPENSHIFT_ISOLATED_CPUS": "4-6",
        "OPENSHIFT_SHARED_CPUS": "0-1",
        "EXCLUSIVE_CPUS": "4,5,6",
        "SHARED_CPUS": "0,1",
        "ASSIGNED_CPUSET": "4-6",
        "ASSIGNED_MEMSET": "",
    }


@pytest.mark.parametrize("isolation", ["container", "mixed", "pod", "host"])
def test_assigned_is_what_is_exclusive(isolation: str) -> None:
    """`assigned.cpuset` is empty exactly where a container has no exclusive CPUs."""
    own = parse_bits("2-3") if isolation == "mixed" else 0
    facts = describe_pinning(Pinning(cpus=parse_bits("0-3"), isolation=isolation, own=own))
    assert bool(facts.assigned.cpuset) == (isolation in ("container", "mixed"))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["2-3", "2-5", "2"]), st.sampled_from(["8-15", "9-15", ""])), max_size=8))
def test_the_file_is_never_half_written(life: list[tuple[str, str]]) -> None:
    """Every read of the file gives one whole content; the generation rises by one with every change, and only then."""
    record = ContainerRecord("c1", "c", "u", "s")
    seen: list[Any] = []
    replace = os.replace

    def looked(source: Path, target: Path) -> None:
        seen.append(msgspec.json.decode(target.read_bytes()) if target.exists() else None)
        replace(source, target)
        seen.append(msgspec.json.decode(target.read_bytes()))

    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        files = ContainerFiles(Path(folder))
        patch.setattr(os, "replace", looked)
        changes, last = 0, None
        for own, shared in life:
            cpus = parse_bits(own) | parse_bits(shared)
            isolation = "mixed" if shared else "container"
            changes += (own, shared) != last
            last = own, shared
            files.write(record, describe_pinning(Pinning(cpus=cpus, own=parse_bits(own), isolation=isolation)))
            assert seen[-1]["generation"] == changes
            assert seen[-1]["cpus"] == format_bits(cpus)
    generations = [one["generation"] for one in seen if one is not None]
    assert sorted(generations) == generations
    assert len(seen) == 2 * changes
