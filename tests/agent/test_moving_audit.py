"""`podslice audit` on a node on which a plan was carried out."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from podslice.advise.defrag.moves import MoveRequest, undo_request
from podslice.advise.defrag.plan import defragment
from podslice.audit.audit import audit
from podslice.audit.report import AuditReport
from podslice.audit.state import load_state
from podslice.config.policy import Defragmentation, PodslicePolicy
from podslice.host.kernel.cgroup2 import CgroupTree
from podslice.values.cpuset import format_bits, union
from tests import clock
from tests.agent.elastic import Elastic
from tests.agent.fakenode import FakeTree
from tests.agent.helpers import agent_config
from tests.conftest import make_pod

WEB, DB, SHARES, BIG = "aaaaaaaa", "bbbbbbbb", "cccccccc", "dddddddd"
POLICY = PodslicePolicy(defrag=Defragmentation(carry_out="onRequest", movable="all"))


def audited(world: Elastic, folder: Path) -> AuditReport:
    """The audit of the state files and of cgroups as the kernel has them, under ids that runtimes give."""
    tree, names = FakeTree(folder), dict[str, str]()
    for ident, message in world.containers.items():
        long = sha256(ident.encode()).hexdigest()
        uid = message.pod_sandbox_id.removeprefix("s-")
        names[long] = message.name
        cpus = world.cpus(ident)
        quota = world.kernel.files[f"kubepods/pod{uid}/{ident}"]["cpu.max"]
        tree.add(f"kubepods/pod{uid}/{long}", cpuset_cpus=cpus, cpuset_cpus_effective=cpus, cpu_max=quota)
    return audit(load_state(world.folder / "state"), CgroupTree(folder), None, names)


def test_the_audit_finds_what_the_plan_promised(tmp_path: Path) -> None:
    """Nothing is amiss before, after the plan, with the pod it was for, and after the way back; the exclusive CPUs are
    those of the plan. A cgroup that had stayed behind would be found."""
    config = agent_config(reserved_system_cpus="0", topology_manager_policy="single-numa-node")
    world = Elastic(tmp_path, POLICY, config)

    async def main() -> None:
        world.start()
        await world.run(make_pod(WEB, ("app", "4")))
        await world.run(make_pod(DB, ("app", "12")))
        await world.run(make_pod(SHARES, ("app", None)))
        await world.settle()
        first = audited(world, tmp_path / "first")
        plan = defragment(world.node, make_pod(BIG, ("app", "14")))
        promised = union(one.cpus_after.bits for move in plan.moves for one in move.containers)
        stays = union(cpus for uid, sets in world.view.owners.items() if uid == DB for cpus in sets.values())
        result = await world.moving.carry_out(MoveRequest(world.digest, plan.moves))
        await world.settle()
        after = audited(world, tmp_path / "after")
        assert (first.findings, after.findings) == ((), ())
        assert after.exclusive == format_bits(promised | stays) != first.exclusive
        path = f"kubepods/pod{WEB}/" + sha256(f"{WEB}-app".encode()).hexdigest()
        FakeTree(tmp_path / "after").add(path, cpuset_cpus="2-5", cpuset_cpus_effective="2-5")
        names = {sha256(f"{uid}-app".encode()).hexdigest(): "app" for uid in (WEB, DB, SHARES)}
        late = audit(load_state(tmp_path / "state"), CgroupTree(tmp_path / "after"), None, names)
        assert [one.kind for one in late.findings] == ["cpus"]
        assert (await world.moving.carry_out(undo_request(result))).problem == ""
        await world.settle()
        assert audited(world, tmp_path / "back") == first

    clock.run(main())
