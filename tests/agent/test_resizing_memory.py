"""Memory that leaves NUMA nodes in a resize, where there is room for its pages."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from podslice.api.pod.spec import Pod, map_containers
from podslice.config.kubelet import MemoryReservation
from podslice.values.cpuset import format_bits
from podslice.values.quantity import Quantity
from tests.agent.elastic import Elastic, elastic
from tests.agent.helpers import GIB, agent_config
from tests.agent.test_resizing import in_elastic
from tests.conftest import make_pod

MACHINE = "pack:2 numa:1(memory=10GiB) core:8 pu:2"
CONFIG = agent_config(
    reserved_system_cpus="0-1",
    memory_manager_policy="Static",
    system_reserved={"memory": "1Gi"},
    reserved_memory=(MemoryReservation(0, {"memory": "1Gi"}),),
    eviction_hard={},
    topology_manager_policy="best-effort",
)
PATH = "kubepods/poda/a-app"


def sized(cpu: str, gib: int) -> Pod:
    amounts = {"cpu": Quantity.parse(cpu), "memory": Quantity.of(gib * GIB)}
    pod = make_pod("a", ("app", cpu))
    with_memory = lambda one: replace(one, resources=replace(one.resources, limits=amounts, requests=amounts))  # noqa: E731
    return replace(pod, spec=map_containers(pod.spec, with_memory))


def nodes(world: Elastic) -> tuple[str, str]:
    """Where the ledgers say that the container's memory is, and where the kernel binds it to."""
    node = world.owner.node
    assert node is not None
    return format_bits(node.view.numa_nodes("a", "app")), world.kernel.files[PATH]["cpuset.mems"].replace(",", "-")


@pytest.mark.parametrize(
    ("used", "free", "expected", "why"),
    [
        (2 * GIB, 4 * GIB, "0", ""),
        (0, 0, "0", ""),
        (2 * GIB, GIB, "0-1", f"memory stays: {2 * GIB} bytes are used on NUMA 1, {GIB} are free on 0"),
    ],
    ids=["room", "nothing-there", "no-room"],
)
@pytest.mark.parametrize("cpus", ["4", "2", "6"])
def test_memory_leaves_a_node_that_it_has_room_beside(
    tmp_path: Path, used: int, free: int, expected: str, why: str, cpus: str
) -> None:
    """A container that shrinks leaves a NUMA node only where the others have more free than its pages there; else it
    stays on all of them, and people hear why. A new process finds the same."""

    async def test(world: Elastic) -> None:
        await world.run(sized("4", 12), memory=12 * GIB)
        assert nodes(world) == ("0-1", "0-1")
        world.free = {0: free}
        world.kernel.files[PATH]["memory.numa_stat"] = (
            f"anon N0={GIB} N1={used // 2}\nfile N0=0 N1={used - used // 2}\nkernel_stack N0=0 N1=65536\n"
        )
        world.source.add(sized(cpus, 3))
        await world.update("a-app", int(cpus) * 1000, memory=3 * GIB)
        await world.settle()
        assert nodes(world) == (expected, expected)
        assert world.notes.resize_reports[-1].result == "applied"
        told = world.notes.resize_reports[-1].text
        assert ("memory stays" in told) is bool(why)
        assert why in told
        world.agrees()
        world.start()
        assert nodes(world) == (expected, expected)
        world.agrees()

    policy = elastic(memory_nodes="follow", below_baseline="allow")
    in_elastic(tmp_path, test, policy, config=CONFIG, machine=MACHINE)


def test_pages_that_come_while_cpus_are_given_back(tmp_path: Path) -> None:
    """The memory in use counts when the limit is lowered, not when the resize was requested."""

    async def test(world: Elastic) -> None:
        await world.run(sized("4", 12), memory=12 * GIB)
        world.source.add(sized("6", 12))
        await world.update("a-app", 6000, memory=12 * GIB)
        world.free = {0: GIB}
        world.kernel.files[PATH]["memory.numa_stat"] = "anon N0=0 N1=0\n"
        world.source.add(sized("4", 3))
        await world.update("a-app", 4000, memory=3 * GIB)
        world.kernel.files[PATH]["memory.numa_stat"] = f"anon N0=0 N1={2 * GIB}\n"
        await world.settle()
        assert nodes(world) == ("0-1", "0-1")
        world.agrees()

    in_elastic(tmp_path, test, elastic(memory_nodes="follow", shrink_delay_seconds=5.0), config=CONFIG, machine=MACHINE)
