"""CPU Manager scenarios C* of the checklist."""

from __future__ import annotations

from e2e.pods import burstable, gu, ngu, pod
from e2e.scenarios import STATIC, scenario, with_options
from e2e.world import World, check, union

_NO_OPTION_GATES = {"CPUManagerPolicyBetaOptions": False, "CPUManagerPolicyAlphaOptions": False}


@scenario("C01", {"cpuManagerPolicy": "static", "kubeReserved": {"cpu": "1"}})
@scenario("C02", STATIC)
@scenario("C12", STATIC)
def shared_container_runs_everywhere(world: World) -> None:
    world.check_shared(world.run(pod("ngu", ngu("c"))), "c", world.online)


@scenario("C03", STATIC)
def shared_container_leaves_exclusive_cpus(world: World) -> None:
    shared = world.run(pod("ngu", ngu("c")))
    owner = world.run(pod("gu", gu("c", 2)))
    owned = world.exclusive(owner, "c", 2)
    world.check_shared(shared, "c", world.online & ~owned)
    world.remove(owner)
    world.check_shared(shared, "c", world.online)


def _counts(*counts: tuple[int, ...]) -> None:
    """Registers a scenario for every list of containers; each container owns its CPUs."""
    for number, cpus in enumerate(counts, 4):
        ident = f"C{number:02}"

        def run(world: World, cpus: tuple[int, ...] = cpus) -> None:
            running = world.run(pod("gu", *(gu(f"c{i}", count) for i, count in enumerate(cpus))))
            world.disjoint(*(world.exclusive(running, f"c{i}", count) for i, count in enumerate(cpus)))
            world.remove(running)
            world.nothing_left()

        scenario(ident, STATIC)(run)
        scenario(f"C11/{ident}", {**STATIC, "featureGates": _NO_OPTION_GATES})(run)


_counts((1,), (2,), (3,), (1, 2), (3, 2), (4, 2))


@scenario("C10", STATIC)
@scenario("C11/C10", {**STATIC, "featureGates": _NO_OPTION_GATES})
def several_pods(world: World) -> None:
    pods = [world.run(pod(f"gu{i}", gu("c", count))) for i, count in enumerate((1, 2, 3))]
    world.disjoint(*(world.exclusive(one, "c", count) for one, count in zip(pods, (1, 2, 3), strict=True)))


_STRICT = with_options("strict-cpu-reservation")


@scenario("C13", _STRICT)
def strict_shared(world: World) -> None:
    world.check_shared(world.run(pod("ngu", ngu("c"))), "c", world.online & ~world.reserved)


@scenario("C14", _STRICT)
def strict_shared_beside_exclusive(world: World) -> None:
    shared = world.run(pod("ngu", ngu("c")))
    owned = world.exclusive(world.run(pod("gu", gu("c", 2))), "c", 2)
    world.check_shared(shared, "c", world.online & ~world.reserved & ~owned)


_FULL = with_options("full-pcpus-only")


@scenario("C15", _FULL, smt=True)
@scenario("C19", with_options("full-pcpus-only", "strict-cpu-reservation"), smt=True)
def part_of_a_core_is_refused(world: World) -> None:
    world.refuse(pod("gu", gu("c", 1)), "SMTAlignmentError")
    world.nothing_left()


@scenario("C16", _FULL, smt=True)
@scenario("C20", with_options("full-pcpus-only", "strict-cpu-reservation"), smt=True)
def whole_cores(world: World) -> None:
    shared = world.run(pod("ngu", ngu("c")))
    owned = world.exclusive(world.run(pod("gu", gu("c", 4))), "c", 4)
    world.whole_cores(owned)
    strict = "strict-cpu-reservation" in world.config["cpuManagerPolicyOptions"]
    world.check_shared(shared, "c", world.online & ~owned & ~(world.reserved if strict else 0))


@scenario("C17", with_options("prefer-align-cpus-by-uncorecache"), l3=True)
@scenario("C22", with_options("prefer-align-cpus-by-uncorecache", "full-pcpus-only"), l3=True)
@scenario("C23", with_options("prefer-align-cpus-by-uncorecache", "strict-cpu-reservation"), l3=True)
def inside_one_uncore_cache(world: World) -> None:
    """Groups are pairs of CPUs; a single one, where one is left, is not filled up from elsewhere."""
    for name in ("a", "b"):
        owned = world.exclusive(world.run(pod(name, gu("c", 2))), "c", 2)
        check(owned in [0b11 << first for first in range(0, 16, 2)], f"{owned:b} is not one L3 group")


@scenario("C18", STATIC, l3=True)
def without_uncore_option(world: World) -> None:
    running = world.run(pod("gu", gu("a", 1), gu("b", 2)))
    world.disjoint(world.exclusive(running, "a", 1), world.exclusive(running, "b", 2))


@scenario("C21", _FULL, smt=True)
def packed_whole_cores(world: World) -> None:
    running = world.run(pod("gu", gu("a", 2), gu("b", 2)))
    world.whole_cores(union((world.exclusive(running, "a", 2), world.exclusive(running, "b", 2))))


@scenario("C24", _FULL, smt=True)
def packed_over_numa_nodes(world: World) -> None:
    owned = world.exclusive(world.run(pod("gu", gu("c", 4))), "c", 4)
    world.whole_cores(owned)


@scenario("C25", with_options("full-pcpus-only", "distribute-cpus-across-numa"), smt=True)
def distributed_over_numa_nodes(world: World) -> None:
    size = max(cpus.bit_count() for cpus in world.nodes)
    owned = world.exclusive(world.run(pod("gu", gu("c", 2 * size))), "c", 2 * size)
    world.whole_cores(owned)
    shares = [(owned & cpus).bit_count() for cpus in world.nodes if owned & cpus]
    check(shares == [size, size], f"unequal shares by NUMA node: {shares}")


@scenario("C26", STATIC)
def best_effort_has_no_quota(world: World) -> None:
    running = world.run(pod("be", ngu("c")))
    world.quota(running, "c", "max 100000", "max")


@scenario("C27", STATIC, cpus=1)
@scenario("C28", STATIC, cpus=4)
def exclusive_cpus_have_no_quota(world: World, cpus: int) -> None:
    world.quota(world.run(pod("gu", gu("c", cpus))), "c", "max 100000", "max")


@scenario("C29", STATIC)
def fractional_guaranteed_keeps_quota(world: World) -> None:
    world.quota(world.run(pod("gu", gu("c", "500m"))), "c", "50000 100000", "50000")


@scenario("C30", STATIC)
def burstable_keeps_quota(world: World) -> None:
    world.quota(world.run(pod("bu", burstable("c"))), "c", "100000 100000", "100000")


@scenario("C31", STATIC)
def several_shared_keep_quota(world: World) -> None:
    running = world.run(pod("gu", gu("a", "500m"), gu("b", "250m")))
    world.quota(running, "a", "50000 100000", "75000")
    world.quota(running, "b", "25000 100000", "75000")


@scenario("C32", STATIC)
def quota_off_where_exclusive(world: World) -> None:
    running = world.run(pod("gu", gu("a", "500m"), gu("b", 1)))
    world.quota(running, "a", "50000 100000", "max")
    world.quota(running, "b", "max 100000", "max")


_QUOTA_GATE_OFF = {**STATIC, "featureGates": {"DisableCPUQuotaWithExclusiveCPUs": False}}


@scenario("C33", _QUOTA_GATE_OFF)
def gate_off_one(world: World) -> None:
    world.quota(world.run(pod("gu", gu("c", 1))), "c", "100000 100000", "100000")


@scenario("C34", _QUOTA_GATE_OFF)
def gate_off_four(world: World) -> None:
    world.quota(world.run(pod("gu", gu("c", 4))), "c", "400000 100000", "400000")


@scenario("C35", _QUOTA_GATE_OFF)
def gate_off_several(world: World) -> None:
    world.quota(world.run(pod("gu", gu("a", "500m"), gu("b", "250m"))), "a", "50000 100000", "75000")


@scenario("C36", _QUOTA_GATE_OFF)
def gate_off_mixed(world: World) -> None:
    running = world.run(pod("gu", gu("a", "500m"), gu("b", 1)))
    world.quota(running, "a", "50000 100000", "150000")
    world.quota(running, "b", "100000 100000", "150000")


_PERIOD = {**STATIC, "cpuCFSQuotaPeriod": "10ms", "featureGates": {"CustomCPUCFSQuotaPeriod": True}}


@scenario("C37", _PERIOD)
def period_guaranteed(world: World) -> None:
    world.quota(world.run(pod("gu", gu("c", "500m"))), "c", "5000 10000", "5000")


@scenario("C38", _PERIOD)
def period_burstable(world: World) -> None:
    world.quota(world.run(pod("bu", burstable("c"))), "c", "10000 10000", "10000")


@scenario("C39", STATIC)
def init_containers_cpus_are_reused(world: World) -> None:
    running = world.run(pod("gu", gu("app", 2), init=(gu("first", 2), gu("side", 1, sidecar=True))))
    sidecar = world.exclusive(running, "side", 1)
    app = world.exclusive(running, "app", 2)
    world.disjoint(sidecar, app)
    check(bool(running.cpus("first") & (app | sidecar)), "the init container's CPUs are not used again")
