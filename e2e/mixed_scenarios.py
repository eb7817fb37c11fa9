"""Containers with exclusive and shared CPUs, with containerd alone: the calls are a kubelet's."""

from __future__ import annotations

import json
from typing import Any

from e2e.pods import gu, ngu, pod
from e2e.scenarios import STATIC, scenario
from e2e.world import World, check
from podslice.values.cpuset import format_bits, iter_bits, parse_bits

POLICY = {
    "apiVersion": "podslice.io/v1alpha1",
    "kind": "PodslicePolicy",
    "spec": {"resize": {"exclusive": True}, "mixed": {"environment": ["openshift", "cpu-pooler"]}},
}
ASKS = {"podslice.io/mixed-cpus": "mixed=all"}


def _file(running: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(running.process("mixed", "root/run/podslice/resources.json"))
    return found


def _parts(world: World, running: Any, count: int) -> int:
    """The exclusive part once it has so many CPUs; the container runs on all CPUs that are no one else's, and its file
    says which is which."""
    found = world.soon(lambda: parse_bits(_file(running)["exclusiveCPUs"]).bit_count(), count)
    check(found == count, f"the file says {_file(running)}, expected {count} exclusive CPUs")
    file = _file(running)
    own = parse_bits(file["exclusiveCPUs"])
    status = next(
        line for line in running.process("mixed", "status").splitlines() if line.startswith("Cpus_allowed_list:")
    )
    runs_on = parse_bits(status.split()[1])
    check(runs_on == own | parse_bits(file["sharedCPUs"]), f"{status}, and the file says {file}")
    check(not own & parse_bits(file["sharedCPUs"]), f"exclusive CPUs are shared: {file}")
    return own


@scenario("X-mixed", STATIC, agent={"policy": POLICY})
def container_is_mixed(world: World) -> None:
    """A container runs on its own and on the shared CPUs by the kernel's word, gets both lists in its environment, and
    both follow a resize and another container; containers that share never run on its own ones."""
    running = world.run(pod("p", gu("mixed", "1500m"), annotations=ASKS))
    shares = world.run(pod("s", ngu("c")))
    one = _parts(world, running, 1)
    world.check_shared(running, "mixed", world.online)
    world.check_shared(shares, "c", world.online & ~one)
    given = running.variables("mixed")
    shared = format_bits(world.online & ~one)
    check(given["PODSLICE_ISOLATION"] == "mixed", f"has {given}")
    check(
        (given["PODSLICE_EXCLUSIVE_CPUS"], given["PODSLICE_SHARED_CPUS"]) == (format_bits(one), shared),
        f"has {given}",
    )
    check(
        (given["OPENSHIFT_ISOLATED_CPUS"], given["OPENSHIFT_SHARED_CPUS"]) == (format_bits(one), shared),
        f"has {given}",
    )
    check(running.facts("mixed")["cpu.max"].startswith("max"), "a mixed container is throttled")
    listed = {int(cpu) for cpu in world.pod_resources_of(running, "mixed")["cpu_ids"]}
    check(listed == set(iter_bits(one)), f"PodResources lists {listed}")
    generation = _file(running)["generation"]
    resources = {"cpu_shares": 2560, "cpu_quota": 250_000, "cpu_period": 100_000}
    world.vm.call("update_container", container=running.containers["mixed"][0], resources=resources)
    two = _parts(world, running, 2)
    check(two & one == one, f"{one:b} became {two:b}")
    check(_file(running)["generation"] > generation, "the file counts no change")
    world.check_shared(shares, "c", world.online & ~two)
    world.restart_agent()
    check(_parts(world, running, 2) == two, "a restart moved the container")
    world.check_shared(shares, "c", world.online & ~two)
