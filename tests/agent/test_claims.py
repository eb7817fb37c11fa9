"""Claims in the agent's ledgers: prepared and given back through kills, restarts and deletions; containers use them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from podslice.agent.cgroups.reconcile import Reconciler
from podslice.agent.dra.cdi import read_claimed_devices, short, variable
from podslice.agent.records import ClaimedDevice, ContainerRecord
from podslice.agent.runtime.ttrpc import RPCError
from podslice.dra.cgroups import kubelet_adds
from podslice.dra.prepared import ClaimError, PreparedClaim
from podslice.host.kernel.cgroup2 import CgroupTree
from podslice.host.state import statefile
from podslice.service.proto import nri_pb2 as nri
from podslice.values.cpuset import format_bits, parse_bits
from podslice.values.quantity import Quantity
from tests import clock
from tests.agent.claimhelpers import ClaimWorld, Desk, claim, with_memory
from tests.agent.fakenode import FakeTree
from tests.agent.kernel import KilledError
from tests.conftest import make_pod


def test_prepared(tmp_path: Path) -> None:
    """A claim has its CPUs, a record and a CDI file that names them; preparing it again changes nothing."""
    desk = Desk(tmp_path)
    one = claim("a", (0, 4), (1, 2))
    assert desk.ledger.prepare(one) == one
    desk.check()
    content = json.loads((tmp_path / "cdi" / "podslice.io-claim_uid-a.json").read_text())
    assert content["kind"] == "podslice.io/claim"
    assert [device["name"] for device in content["devices"]] == ["uid-a-0", "uid-a-1"]
    (text,) = content["devices"][0]["containerEdits"]["env"]
    name, _, value = text.partition("=")
    assert name == variable("uid-a", 0)
    assert parse_bits(value.split(";")[0].removeprefix("cpus=")).bit_count() == 4
    assert (tmp_path / "cdi" / "podslice.io-claim_uid-a.json").stat().st_mode & 0o777 == 0o644
    before = desk.holds()
    assert desk.ledger.prepare(one) == one
    assert desk.holds() == before
    desk.ledger.unprepare("uid-a")
    desk.ledger.unprepare("uid-a")
    desk.ledger.unprepare("../escape")
    desk.check()
    assert desk.holds() == {}


def test_refused(tmp_path: Path) -> None:
    """A claim for more than is free is refused with the amount, the zone and who has the rest, and leaves nothing."""
    desk = Desk(tmp_path)
    desk.ledger.prepare(claim("a", (1, 6)))
    with pytest.raises(ClaimError) as error:
        desk.ledger.prepare(claim("b", (1, 4)))
    said = str(error.value)
    assert said.startswith("claim default/b wants 4 CPUs on NUMA node 1, where 2 of 8 for claims are free (held by")
    assert "default.a" in said
    desk.check()
    assert set(desk.holds()) == {"uid-a"}


def test_allocated_anew(tmp_path: Path) -> None:
    """A claim of the same UID with another allocation gets that one; not while a container runs on the old."""
    desk = Desk(tmp_path)
    desk.ledger.prepare(claim("a", (0, 4)))
    used = ClaimedDevice(short("uid-a"), 0)
    desk.owner.containers["c"] = ContainerRecord("c", "app", "a", "s", claims=(used,))
    with pytest.raises(ClaimError, match="container app runs on its CPUs"):
        desk.ledger.prepare(claim("a", (1, 2)))
    del desk.owner.containers["c"]
    desk.ledger.prepare(claim("a", (1, 2)))
    desk.check()
    assert desk.holds()["uid-a"].bit_count() == 2


def test_same_name_other_uid(tmp_path: Path) -> None:
    """A claim that was force-deleted and made again is another one, beside the first until that is given back."""
    desk = Desk(tmp_path)
    desk.ledger.prepare(claim("a", (0, 4)))
    desk.ledger.prepare(replace(claim("a", (0, 4)), uid="uid-a2"))
    desk.check()
    assert set(desk.holds()) == {"uid-a", "uid-a2"}
    desk.ledger.unprepare("uid-a")
    desk.check()
    assert set(desk.holds()) == {"uid-a2"}


def dies_at(patch: pytest.MonkeyPatch, moment: int) -> None:
    """The process ends before this write, and writes nothing afterwards."""
    count = [0]

    def step(original: Callable[..., None]) -> Callable[..., None]:
        def before(self: Any, *arguments: Any) -> None:
            if count[0] >= moment:
                raise KilledError
            count[0] += 1
            original(self, *arguments)

        return before

    for name in ("write", "rename", "sync_directory", "remove"):
        patch.setattr(statefile.RealFiles, name, step(getattr(statefile.RealFiles, name)))


STEPS: dict[str, Callable[[Desk], object]] = {
    "prepare": lambda desk: desk.ledger.prepare(claim("b", (0, 2), (1, 4))),
    "unprepare": lambda desk: desk.ledger.unprepare("uid-a"),
    "anew": lambda desk: desk.ledger.prepare(claim("a", (1, 4))),
}


@pytest.mark.parametrize("name", STEPS)
def test_killed_before_every_write(tmp_path: Path, name: str) -> None:
    """Killed before any write, the next process has lost no CPU and gives none twice, and what was asked for is done
    when it is asked for again."""
    moment, died = 0, True
    while died:
        folder = tmp_path / str(moment)
        desk = Desk(folder)
        desk.ledger.prepare(claim("a", (0, 4)))
        desk.ledger.prepare(claim("kept", (1, 2)))
        kept = desk.holds()["uid-kept"]
        with pytest.MonkeyPatch.context() as patch:
            dies_at(patch, moment)
            try:
                STEPS[name](desk)
                died = False
            except KilledError:
                died = True
        after = Desk(folder)
        assert after.notes.troubles == []
        after.check()
        assert after.holds()["uid-kept"] == kept
        STEPS[name](after)
        after.check()
        expected = {"prepare": {"uid-a", "uid-b", "uid-kept"}, "unprepare": {"uid-kept"}, "anew": {"uid-a", "uid-kept"}}
        assert set(after.holds()) == expected[name]
        moment += 1
    assert moment >= 7


@pytest.mark.parametrize("name", STEPS)
def test_machine_went_down(tmp_path: Path, name: str) -> None:
    """A machine that goes down may have the state as it was before, and the claims' records as they are: those of
    records have their CPUs, others none."""
    desk = Desk(tmp_path)
    desk.ledger.prepare(claim("a", (0, 4)))
    before = (tmp_path / "state" / "cpu_manager_state").read_bytes()
    STEPS[name](desk)
    expected = set(desk.holds())
    (tmp_path / "state" / "cpu_manager_state").write_bytes(before)
    for path in (tmp_path / "cdi").iterdir():
        path.unlink()
    after = Desk(tmp_path)
    assert after.notes.troubles == []
    after.check()
    assert set(after.holds()) == expected


def test_files_of_others_and_of_nobody(tmp_path: Path) -> None:
    """At a start CDI files without claim go, missing ones come back, and other vendors' stay; a record that makes no
    sense is told and passed over."""
    desk = Desk(tmp_path)
    desk.ledger.prepare(claim("a", (0, 4)))
    own = tmp_path / "cdi" / "podslice.io-claim_uid-a.json"
    own.unlink()
    (tmp_path / "cdi" / "podslice.io-claim_gone.json").write_text("{}")
    (tmp_path / "cdi" / "other.json").write_text("{}")
    (tmp_path / "state" / "claims" / "odd.json").write_text("[]")
    after = Desk(tmp_path)
    assert own.is_file()
    assert sorted(path.name for path in (tmp_path / "cdi").iterdir()) == ["other.json", own.name]
    assert [what for what, _ in after.notes.troubles] == ["claims"]


def test_disk_that_does_not_take_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where something cannot be written the claim is refused, and given back without a trace."""
    desk = Desk(tmp_path)
    desk.ledger.prepare(claim("a", (0, 4)))

    def full(self: Any, path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(statefile.RealFiles, "write", full)
    with pytest.raises(ClaimError, match="No space left on device"):
        desk.ledger.prepare(claim("b", (0, 2)))
    monkeypatch.undo()
    desk.check()
    assert set(desk.holds()) == {"uid-a"}


def test_folder_that_cannot_be_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody hears of a claim whose record may be forgotten; asked again, it is synced before it is told."""
    desk = Desk(tmp_path)
    synced: list[str] = []

    def fails(self: Any, path: Path) -> None:
        if path.name == "claims":
            raise OSError(5, "Input/output error")

    def works(self: Any, path: Path) -> None:
        synced.append(path.name)

    monkeypatch.setattr(statefile.RealFiles, "sync_directory", fails)
    with pytest.raises(ClaimError, match="Input/output error"):
        desk.ledger.prepare(claim("a", (0, 4)))
    assert not list((tmp_path / "cdi").glob("*"))
    monkeypatch.setattr(statefile.RealFiles, "sync_directory", works)
    desk.ledger.prepare(claim("a", (0, 4)))
    assert "claims" in synced
    desk.check()


# With containers


def claiming(uid: str, cpu: str, *names: str, claim_name: str = "") -> Any:
    """A Guaranteed pod whose containers have the pod's claim, and mirror it in their requests."""
    pod = make_pod(uid, *((name, cpu) for name in names or ("app",)))
    containers = tuple(
        replace(one, resources=replace(one.resources, claims=[{"name": "cpus"}])) for one in pod.spec.containers
    )
    from podslice.api.pod.spec import PodResourceClaim

    named = PodResourceClaim(name="cpus", resource_claim_name=claim_name or uid)
    return replace(pod, spec=replace(pod.spec, containers=containers, resource_claims=(named,)))


def env(one: PreparedClaim) -> tuple[str, ...]:
    """Return the environment that the runtime adds for all devices of a claim."""
    return tuple(f"{variable(one.uid, place)}=cpus=;mems=" for place in range(len(one.devices)))


def in_claims(folder: Path, test: Callable[[ClaimWorld], Any]) -> None:
    """Run a test beside a runtime."""
    world = ClaimWorld(folder)

    async def main() -> None:
        await world.start()
        try:
            await test(world)
        finally:
            await world.kill()

    clock.run(main())


def test_container_runs_on_its_claim(tmp_path: Path) -> None:
    """A container with a claim runs on exactly its CPUs without quota, whatever its pod mirrors in requests, over a
    restart of the agent; others get what is free, and all of it when the claim is given back."""

    async def test(world: ClaimWorld) -> None:
        one = world.ledger.prepare(claim("p", (1, 4)))
        pod = claiming("p", "4")
        world.source.add(pod)
        other = await world.run(make_pod("shared", ("app", "500m")))
        sandbox = await world.fake.run_pod("p")
        container = await world.fake.create_container(sandbox, "app", env=env(one), quota=400_000, shares=4096)
        held = world.owner.node.view.owners  # type: ignore[union-attr]
        assert set(held) == {"claim/uid-p"}
        (cpus,) = held["claim/uid-p"].values()
        assert parse_bits(container.cpus) == cpus
        assert container.quota == -1
        world.check()
        await world.restart()
        assert parse_bits(container.cpus) == cpus
        assert not world.owner.safe_mode
        world.check()
        again = await world.fake.create_container(sandbox, "app", container_id="again", env=env(one))
        assert parse_bits(again.cpus) == cpus
        await world.end("p")
        world.ledger.unprepare("uid-p")
        await world.run(make_pod("last", ("app", "100m")))
        assert parse_bits(other["app"].cpus) & cpus == cpus or world.owner.placing.pool() & cpus == cpus
        world.check()

    in_claims(tmp_path, test)


def test_a_pods_quota_binds_no_claim(tmp_path: Path) -> None:
    """The pod's cgroup has no quota while each container has CPUs of a claim or a limit of its own, and gets it back
    with one that has neither."""

    async def test(world: ClaimWorld) -> None:
        fake = FakeTree(tmp_path / "cgroup")
        fake.add("kubepods/podp", cpu_max="500000 100000")
        loop = Reconciler(world.owner, CgroupTree(fake.root))
        world.plugin._settle = loop.settle
        one = world.ledger.prepare(claim("p", (1, 4)))
        world.source.add(claiming("p", "4", "app", "limited", "free"))
        sandbox = await world.fake.run_pod("p", cgroup_parent="/kubepods/podp", cpu_limit=5000)
        found = []
        for name, extra in (
            ("app", {"env": env(one), "quota": 400_000}),
            ("limited", {"quota": 100_000}),
            ("free", {}),
        ):
            await world.fake.create_container(sandbox, name, **extra)  # type: ignore[arg-type]
            if name == "free":
                loop.run()
            found.append(fake.text("kubepods/podp", "cpu.max"))
        assert found == ["max 100000", "max 100000", "500000 100000"]

    in_claims(tmp_path, test)


@pytest.mark.parametrize(
    ("version", "counted", "expected"),
    [
        ("v1.36.2", True, (4096, 3 << 30, 4 << 30)),
        ("v1.36.2", False, (4096, 1 << 30, 2 << 30)),
        ("v1.37.0", True, (512, 1 << 30, 2 << 30)),
        ("?", True, (512, 1 << 30, 2 << 30)),
    ],
)
def test_weight_and_memory(tmp_path: Path, version: str, counted: bool, expected: tuple[int, int, int]) -> None:
    """A kubelet of v1.36 writes cgroups by the specification alone: a container gets the weight of its claim's CPUs,
    and memory that the scheduler has counted comes to its limit and to its pod's, once and over restarts. What is not
    counted is repeated in the specification; a later kubelet adds it itself."""
    config, policy = with_memory()
    world = ClaimWorld(tmp_path, config=config, policy=policy)
    shares, limit, of_pod = expected
    one = claim("p", (1, 4), memory={"memory": 2 << 30})
    pod = claiming("p", "500m", "app", "other")
    limits = {"cpu": Quantity.parse("500m"), "memory": Quantity.parse("1Gi")}
    resources = replace(pod.spec.containers[0].resources, requests=limits, limits=limits)
    other = replace(pod.spec.containers[1].resources, requests=limits, limits=limits, claims=None)
    containers = tuple(replace(c, resources=r) for c, r in zip(pod.spec.containers, (resources, other), strict=True))
    said = {"resourceClaimName": "p", "containers": ["app"], "resources": {"cpu": "4", "memory": "2Gi"}}
    status = replace(pod.status, node_allocatable_resource_claim_statuses=(said,) if counted else ())
    pod = replace(pod, spec=replace(pod.spec, containers=containers), status=status)

    async def main() -> None:
        tree = FakeTree(tmp_path / "cgroup")
        tree.add("kubepods/podp", memory_max=str(2 << 30))
        await world.start()
        try:
            world.ledger.kubelet_adds = kubelet_adds(version)
            loop = Reconciler(world.owner, CgroupTree(tree.root))
            world.plugin._settle = loop.settle
            world.ledger.prepare(one)
            world.source.add(pod)
            sandbox = await world.fake.run_pod("p", cgroup_parent="/kubepods/podp")
            asked: dict[str, Any] = {"quota": 50_000, "shares": 512, "memory": 1 << 30}
            app = await world.fake.create_container(sandbox, "app", env=env(one), **asked)
            plain = await world.fake.create_container(sandbox, "other", **asked)
            assert (app.cpu.shares.value, app.memory) == (shares, limit)
            assert (plain.cpu.shares.value, plain.memory) == (512, 1 << 30)
            assert tree.text("kubepods/podp", "memory.max") == str(of_pod)
            again = nri.LinuxResources()
            again.cpu.shares.value, again.memory.limit.value = 512, 1 << 30
            await world.fake.update_container(app.message.id, again)
            assert (app.cpu.shares.value, app.memory) == (shares, limit)
            await world.restart()
            path = "kubepods/podp/app"
            world.owner.containers[app.message.id].cgroups_path = f"/{path}"
            tree.add(path, memory_max="1073741824", cpu_weight="20")
            for adds in (None, kubelet_adds(version)):
                world.ledger.kubelet_adds = adds
                Reconciler(world.owner, CgroupTree(tree.root)).run()
                known = adds is False
                assert tree.text(path, "memory.max") == str(limit if known else 1 << 30)
                assert tree.text(path, "cpu.weight") == ("303" if known else "20")
        finally:
            await world.kill()

    clock.run(main())


def test_two_containers_share(tmp_path: Path) -> None:
    """Containers of one pod share a claim; each can have one request of it alone."""

    async def test(world: ClaimWorld) -> None:
        one = world.ledger.prepare(claim("p", (0, 2), (1, 4)))
        world.source.add(claiming("p", "1", "a", "b", "c"))
        sandbox = await world.fake.run_pod("p")
        both = await world.fake.create_container(sandbox, "a", env=env(one))
        first = await world.fake.create_container(sandbox, "b", env=env(one)[:1])
        second = await world.fake.create_container(sandbox, "c", env=env(one)[1:])
        assert parse_bits(both.cpus) == parse_bits(first.cpus) | parse_bits(second.cpus)
        assert [parse_bits(each.cpus).bit_count() for each in (both, first, second)] == [6, 2, 4]

    in_claims(tmp_path, test)


def test_claim_of_another_pod(tmp_path: Path) -> None:
    """Naming somebody else's claim in the environment gets a container refused, and an invented one nothing."""

    async def test(world: ClaimWorld) -> None:
        one = world.ledger.prepare(claim("p", (1, 4)))
        world.source.add(make_pod("thief", ("app", "100m")))
        sandbox = await world.fake.run_pod("thief")
        with pytest.raises(RPCError, match="claim default/p is not reserved for this pod"):
            await world.fake.create_container(sandbox, "app", env=env(one))
        made_up = await world.fake.create_container(sandbox, "app", env=(f"{variable('none', 0)}=cpus=1;mems=",))
        assert parse_bits(made_up.cpus) == world.owner.placing.pool()

    in_claims(tmp_path, test)


def test_passed_on(tmp_path: Path) -> None:
    """A claim that the kubelet keeps prepared for the next pod is that pod's, once nobody else runs on it."""

    async def test(world: ClaimWorld) -> None:
        one = world.ledger.prepare(claim("p", (1, 4)))
        world.source.add(claiming("p", "1"))
        world.source.add(claiming("next", "1", claim_name="p"))
        sandbox = await world.fake.run_pod("p")
        await world.fake.create_container(sandbox, "app", env=env(one))
        world.users[one.uid] = frozenset({"p", "next"})
        later = await world.fake.run_pod("next")
        with pytest.raises(RPCError, match="not reserved for this pod"):
            await world.fake.create_container(later, "app", env=env(one))
        await world.end("p")
        container = await world.fake.create_container(later, "app", env=env(one))
        assert parse_bits(container.cpus).bit_count() == 4
        assert world.ledger.claims["uid-p"].pods == ("next",)

    in_claims(tmp_path, test)


def test_state_that_was_lost(tmp_path: Path) -> None:
    """Where records and state are gone while a container runs on its claim, nobody gets its CPUs: safe mode."""

    async def test(world: ClaimWorld) -> None:
        one = world.ledger.prepare(claim("p", (1, 4)))
        world.source.add(claiming("p", "1"))
        sandbox = await world.fake.run_pod("p")
        container = await world.fake.create_container(sandbox, "app", env=env(one))
        had = container.cpus
        await world.kill()
        for path in (tmp_path / "state").rglob("*"):
            if path.is_file():
                path.unlink()
        await world.start()
        assert world.owner.safe_mode
        assert container.cpus == had
        with pytest.raises(ClaimError, match="cannot be trusted"):
            world.ledger.prepare(claim("q", (1, 4)))

    in_claims(tmp_path, test)


def test_names_of_variables() -> None:
    """Only variables of the right form name a device."""
    found = list(
        read_claimed_devices([f"{variable('a-b', 3)}=x", "PODSLICE_CLAIM_=1", "PODSLICE_CLAIM_x_abc=1", "PATH=/"])
    )
    assert [(one.claim, one.index) for one in found] == [("a_b", 3)]
    assert format_bits(0) == ""
