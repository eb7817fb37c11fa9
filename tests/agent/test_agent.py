"""The agent beside a runtime: what containers get, and that nobody ever runs on somebody else's CPUs."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from podslice.agent.runtime.ttrpc import RPCError
from podslice.api.pod.spec import pod_from_dict
from podslice.config.kubelet import MemoryReservation
from podslice.service.identity import LARGEST_ANNOTATION
from podslice.service.proto import nri_pb2 as nri
from podslice.values.cpuset import parse_bits
from tests.agent.helpers import GIB, World, agent_config, in_world, pod_level
from tests.conftest import make_pod


def test_exclusive_container_owns_its_cpus(tmp_path: Path) -> None:
    """C04, C28: whole CPUs of its own, outside the reserved ones, and no CFS quota."""

    async def test(world: World) -> None:
        container = (await world.run(make_pod("a", ("app", "4"))))["app"]
        assert parse_bits(container.cpus).bit_count() == 4
        assert not parse_bits(container.cpus) & 1
        assert container.quota == -1
        world.check()

    in_world(tmp_path, test)


def test_shared_container_runs_on_the_rest(tmp_path: Path) -> None:
    """C01, C03, C30: the shared pool, quota left alone, and it shrinks in the answer that creates the other's
    container."""

    async def test(world: World) -> None:
        shared = (await world.run(make_pod("s", ("app", "500m"))))["app"]
        assert shared.cpus == "0-31"
        assert shared.quota == 0
        world.source.add(make_pod("a", ("app", "4")))
        sandbox = await world.fake.run_pod("a")
        exclusive = await world.fake.create_container(sandbox, "app")
        assert not parse_bits(shared.cpus) & parse_bits(exclusive.cpus)
        world.check()

    in_world(tmp_path, test)


def test_cpus_come_back_with_the_pod(tmp_path: Path) -> None:
    """P08: after the last sandbox everything is free again; an old sandbox of the same pod frees nothing."""

    async def test(world: World) -> None:
        await world.run(make_pod("a", ("app", "30")))
        second = await world.fake.run_pod("a", sandbox="second")
        await world.fake.create_container(second, "app")
        await world.end("a")
        world.check()
        with pytest.raises(RPCError):
            await world.run(make_pod("b", ("app", "30")))
        await world.fake.stop_pod("second")
        await world.fake.remove_pod("second")
        await world.run(make_pod("b", ("app", "30")))
        world.check()

    in_world(tmp_path, test)


def test_pod_level_resources(tmp_path: Path) -> None:
    """P03: pod of 3, two containers own one CPU each, the third runs on what remains of the pod's set."""

    async def test(world: World) -> None:
        got = await world.run(make_pod("a", ("x", "1"), ("y", "1"), ("z", None), budget="3"))
        sets = [parse_bits(got[name].cpus) for name in "xyz"]
        assert [cpus.bit_count() for cpus in sets] == [1, 1, 1]
        assert (sets[0] | sets[1] | sets[2]).bit_count() == 3
        assert [got[name].quota for name in "xyz"] == [-1, -1, 0]
        assert got["z"].env["PODSLICE_ISOLATION"] == "pod"
        world.check()

    in_world(tmp_path, test, pod_level())


def test_refused_pod_fails_with_reason(tmp_path: Path) -> None:
    """P07: the container fails with the kubelet's reason and message and our why, and the pod holds nothing."""

    async def test(world: World) -> None:
        with pytest.raises(RPCError, match="EmptyPodSharedPoolError: pod rejected") as caught:
            await world.run(make_pod("a", ("x", "1"), ("y", "1"), ("z", None), budget="2"))
        assert caught.value.code == 9
        assert world.notes.refusals[0][:2] == ("default/a", "EmptyPodSharedPoolError")
        assert "exclusive containers take all of it" in caught.value.message
        assert world.owner.placing.exclusive() == 0
        assert not list((tmp_path / "state" / "pods").glob("*"))
        world.check()
        await world.end("a")
        assert world.owner.pods == {}

    in_world(tmp_path, test, pod_level(topology_manager_policy="best-effort"))


def test_memory_nodes(tmp_path: Path) -> None:
    """M02: `cpuset.mems` is the NUMA node of the CPUs, also for an init container whose memory the app takes over."""

    async def test(world: World) -> None:
        container = (await world.run(make_pod("a", ("app", "4"), memory="4Gi")))["app"]
        assert container.mems in ("0", "1")
        assert container.env["PODSLICE_MEMS"] == container.mems
        both = await world.run(make_pod("b", ("app", "4"), init=(("prepare", "4", False),), memory="4Gi"))
        assert both["prepare"].mems == both["app"].mems in ("0", "1")

    config = agent_config(
        memory_manager_policy="Static",
        system_reserved={"memory": "1Gi"},
        reserved_memory=(MemoryReservation(0, {"memory": "1Gi"}),),
    )
    in_world(tmp_path, test, config)


def test_container_knows_its_cpus(tmp_path: Path) -> None:
    """Environment and mounted file say what it has, and the file follows the shared pool."""

    async def test(world: World) -> None:
        shared = (await world.run(make_pod("s", ("app", "500m"))))["app"]
        assert shared.env["PODSLICE_CPUS"] == "0-31"
        mount = shared.mounts[0]
        assert (mount.destination, "ro" in mount.options) == ("/run/podslice", True)
        file = Path(mount.source) / "resources.json"
        assert json.loads(file.read_text()) == {
            "generation": 1,
            "cpus": "0-31",
            "exclusiveCPUs": "",
            "sharedCPUs": "0-31",
            "memoryNodes": "",
            "isolation": "host",
            "assigned": {"cpuset": "", "memset": ""},
            "numa": {"0": {"cpus": "0-15", "memory": False}, "1": {"cpus": "16-31", "memory": False}},
        }
        exclusive = (await world.run(make_pod("a", ("app", "2"))))["app"]
        assert json.loads(file.read_text())["cpus"] == shared.cpus
        assert exclusive.env["PODSLICE_ISOLATION"] == "container"
        await world.end("s")
        assert not file.exists()

    in_world(tmp_path, test)


def test_runtime_restarts(tmp_path: Path) -> None:
    """The runtime goes and comes back: same sets, and what ended in between is free."""

    async def test(world: World) -> None:
        first = (await world.run(make_pod("a", ("app", "4"))))["app"].cpus
        await world.run(make_pod("b", ("app", "4")))
        world.fake.stop()
        del world.fake.pods["sandbox-b"], world.fake.containers["sandbox-b-app"]
        await asyncio.sleep(0.05)
        world.fake.start()
        await asyncio.wait_for(world.fake.attached.wait(), 5)
        assert world.fake.containers["sandbox-a-app"].cpus == first
        assert world.owner.placing.exclusive().bit_count() == 4
        world.check()

    in_world(tmp_path, test)


def test_required_plugin_fails_closed(tmp_path: Path) -> None:
    """With the runtime's required-plugins validator nothing is created while the agent is away."""

    async def test(world: World) -> None:
        await world.run(make_pod("a", ("app", "4")))
        await world.kill()
        with pytest.raises(RPCError, match="required plugin"):
            await world.run(make_pod("s", ("app", "500m")))
        assert world.fake.unpinned == []
        await world.start()
        await world.fake.create_container("sandbox-s", "app")
        world.check()

    in_world(tmp_path, test, required_plugin="podslice")


def test_finished_pod_is_not_adopted(tmp_path: Path) -> None:
    """X03: a pod whose containers have all ended holds nothing after a restart, though its sandbox is still there."""

    async def test(world: World) -> None:
        await world.kill()
        container = (await world.run(make_pod("a", ("app", "4"))))["app"]
        container.message.state = nri.CONTAINER_STOPPED
        await world.start()
        assert world.owner.placing.exclusive() == 0
        await world.end("a")

    in_world(tmp_path, test)


def test_strangers_are_moved(tmp_path: Path) -> None:
    """A container created while the agent was away gets what its pod is worth: shared ones leave exclusive CPUs,
    Guaranteed ones are admitted late."""

    async def test(world: World) -> None:
        owned = (await world.run(make_pod("a", ("app", "4"))))["app"].cpus
        await world.kill()
        shared = (await world.run(make_pod("s", ("app", "500m"))))["app"]
        late = (await world.run(make_pod("l", ("app", "2"))))["app"]
        assert shared.cpus == late.cpus == ""
        await world.start()
        assert not parse_bits(shared.cpus) & (parse_bits(owned) | parse_bits(late.cpus))
        assert parse_bits(late.cpus).bit_count() == 2
        assert world.notes.strangers == ["default/s/app", "default/l/app"]
        world.check()

    in_world(tmp_path, test)


def test_strangers_can_be_only_reported(tmp_path: Path) -> None:
    """With `strangers: report` they stay where they are."""

    async def test(world: World) -> None:
        await world.kill()
        shared = (await world.run(make_pod("s", ("app", "500m"))))["app"]
        await world.start()
        await world.run(make_pod("a", ("app", "4")))
        assert shared.cpus == ""
        assert world.notes.strangers == ["default/s/app"]

    in_world(tmp_path, test, move_strangers=False)


def test_safe_mode(tmp_path: Path) -> None:
    """X: a damaged state file: existing sets are kept, new exclusive requests refused, shared pods run beside them."""

    async def test(world: World) -> None:
        owned = (await world.run(make_pod("a", ("app", "4"))))["app"]
        before = owned.cpus
        await world.kill()
        file = tmp_path / "state" / "cpu_manager_state"
        file.write_bytes(file.read_bytes()[:-20])
        await world.start()
        assert world.owner.safe_mode
        assert "safeMode" in {what for what, _ in world.notes.troubles}
        assert owned.cpus == before
        with pytest.raises(RPCError, match="state cannot be trusted"):
            await world.run(make_pod("b", ("app", "2")))
        shared = (await world.run(make_pod("s", ("app", "500m"))))["app"]
        assert not parse_bits(shared.cpus) & parse_bits(before)

    in_world(tmp_path, test)


def test_containers_restart_on_their_cpus_in_safe_mode(tmp_path: Path) -> None:
    """A container that crashes while the state cannot be trusted gets back what it had, and nobody else gets it."""

    async def test(world: World) -> None:
        before = (await world.run(make_pod("a", ("app", "4"))))["app"].cpus
        shared = (await world.run(make_pod("s", ("app", "100m"))))["app"]
        await world.kill()
        (tmp_path / "state" / "cpu_manager_state").write_bytes(b"damaged")
        await world.start()
        await world.fake.stop_container("sandbox-a-app")
        await world.fake.remove_container("sandbox-a-app")
        other = (await world.run(make_pod("t", ("app", "100m"))))["app"]
        assert not parse_bits(other.cpus) & parse_bits(before)
        again = await world.fake.create_container("sandbox-a", "app", container_id="again")
        assert (again.cpus, again.quota, again.env["PODSLICE_ISOLATION"]) == (before, -1, "container")
        await world.end("a")
        last = (await world.run(make_pod("u", ("app", "100m"))))["app"]
        assert parse_bits(last.cpus) == world.owner.placing.all_cpus
        assert shared.env["PODSLICE_ISOLATION"] == "host"

    in_world(tmp_path, test)


def test_state_that_cannot_be_written_refuses(tmp_path: Path) -> None:
    """A decision that cannot be kept is not acted on."""

    async def test(world: World) -> None:
        await world.run(make_pod("a", ("app", "4")))
        shutil.rmtree(tmp_path / "state")
        (tmp_path / "state").write_text("in the way")
        with pytest.raises(RPCError, match="cannot be kept"):
            await world.run(make_pod("b", ("app", "4")))
        assert world.owner.placing.exclusive().bit_count() == 4

    in_world(tmp_path, test)


def test_state_is_written_when_it_can_be_again(tmp_path: Path) -> None:
    """A state that could not be written at a removal is written by the daemon's next pass."""

    async def test(world: World) -> None:
        await world.run(make_pod("a", ("app", "4")))
        state = tmp_path / "state"
        state.rename(tmp_path / "away")
        state.write_text("in the way")
        await world.end("a")
        assert ("stateWrite", True) in [(what, "cannot be written" in text) for what, text in world.notes.troubles]
        world.owner.admitting.save()
        state.unlink()
        (tmp_path / "away").rename(state)
        assert '"a"' in (state / "cpu_manager_state").read_text()
        world.owner.admitting.save()
        assert '"a"' not in (state / "cpu_manager_state").read_text()

    in_world(tmp_path, test)


def test_a_bug_is_loud_and_costs_one_call(tmp_path: Path) -> None:
    """An error nobody foresaw fails its call with a reason, is reported with its place, and the next call works."""

    async def test(world: World) -> None:
        find = world.source.find
        world.source.find = lambda identity: 1 // 0  # type: ignore[assignment,return-value]
        sandbox = await world.fake.run_pod("a")
        with pytest.raises(RPCError, match=r"UnexpectedAdmissionError: ZeroDivisionError.* at test_agent\.py:"):
            await world.fake.create_container(sandbox, "app")
        pod, failure = world.notes.failures[-1]
        assert (pod, failure.step) == ("default/a", "specification")
        world.source.find = find
        await world.run(make_pod("b", ("app", "4")))

    in_world(tmp_path, test)


def test_annotation_alone(tmp_path: Path) -> None:
    """Without any source the annotation gives the pod its CPUs, shared by its containers or divided as it says."""

    async def test(world: World) -> None:
        amounts = {"cpu": "4", "memory": "1Gi"}
        text = json.dumps({"requests": amounts, "limits": amounts})
        sandbox = await world.fake.run_pod("a", annotations={"podslice.io/resources": text})
        one = await world.fake.create_container(sandbox, "one")
        two = await world.fake.create_container(sandbox, "two")
        assert one.cpus == two.cpus
        assert parse_bits(one.cpus).bit_count() == 4
        half = {"cpu": "2", "memory": "512Mi"}
        containers = {"own": {"requests": half, "limits": half}, "rest": {}}
        text = json.dumps({"requests": amounts, "limits": amounts, "containers": containers})
        sandbox = await world.fake.run_pod("b", annotations={"podslice.io/resources": text})
        own = await world.fake.create_container(sandbox, "own")
        rest = await world.fake.create_container(sandbox, "rest")
        assert [parse_bits(c.cpus).bit_count() for c in (own, rest)] == [2, 2]
        assert (own.env["PODSLICE_ISOLATION"], rest.env["PODSLICE_ISOLATION"]) == ("container", "pod")
        world.check()
        await world.restart()
        world.check()

    in_world(tmp_path, test, pod_level())


def test_annotation_completes_a_pod_of_the_api(tmp_path: Path) -> None:
    """A cluster that drops `spec.resources`: the annotation stands in for it."""

    async def test(world: World) -> None:
        amounts = {"cpu": "4", "memory": "4Gi"}
        text = json.dumps({"requests": amounts, "limits": amounts})
        pod = make_pod("a", ("x", "1"), ("y", None))
        rest = {"requests": {"cpu": "3", "memory": "3Gi"}}
        sharing = pod_from_dict({"spec": {"containers": [{"name": "y", "resources": rest}]}}).spec.containers
        pod = replace(pod, spec=replace(pod.spec, containers=(pod.spec.containers[0], *sharing)))
        got = await world.run(pod, annotations={"podslice.io/resources": text})
        assert [parse_bits(got[name].cpus).bit_count() for name in "xy"] == [1, 3]

    in_world(tmp_path, test, pod_level())


@pytest.mark.parametrize(
    "text",
    ["[]", "{", '{"x": 1}', "[" * 10000, '{"requests": {"cpu": "lots"}}', '{"containers": 3}', "x" * 20000,
     json.dumps({"containers": {str(i): {} for i in range(101)}})],
    ids=["list", "cut", "unknown", "deep", "quantity", "containers", "long", "many"],
)  # fmt: skip
def test_hostile_annotation_is_refused(tmp_path: Path, text: str) -> None:
    """An annotation that does not parse refuses its pod in one bounded line."""

    async def test(world: World) -> None:
        sandbox = await world.fake.run_pod("a", annotations={"podslice.io/resources": text})
        with pytest.raises(RPCError, match=r"podslice\.io/resources") as caught:
            await world.fake.create_container(sandbox, "app")
        assert len(caught.value.message) < 500
        assert "\n" not in caught.value.message

    in_world(tmp_path, test)


def test_annotations_of_others_are_not_kept(tmp_path: Path) -> None:
    """Of the 256 KiB a pod may carry only our own annotations stay in memory, cut where they are too long."""

    async def test(world: World) -> None:
        many = {"other.example/blob": "x" * 200_000, "kubernetes.io/config.hash": "y" * 50_000}
        await world.fake.run_pod("a", annotations=many)
        kept = world.owner.pods["a"].identity.annotations
        assert set(kept) == {"kubernetes.io/config.hash"}
        assert len(kept["kubernetes.io/config.hash"]) <= LARGEST_ANNOTATION + 1

    in_world(tmp_path, test)


def test_annotation_can_be_switched_off(tmp_path: Path) -> None:
    """Where nobody may take CPUs by annotation, it is as if it were not there, even a broken one."""

    async def test(world: World) -> None:
        amounts = {"cpu": "4", "memory": "1Gi"}
        for name, text in (("a", json.dumps({"requests": amounts, "limits": amounts})), ("b", "{")):
            sandbox = await world.fake.run_pod(name, annotations={"podslice.io/resources": text})
            assert (await world.fake.create_container(sandbox, "app")).cpus == "0-31"
        await world.run(make_pod("c", ("app", "1")), annotations={"podslice.io/resources": "{"})

    in_world(tmp_path, test, pod_level(), annotation=False)


@pytest.mark.parametrize("uid", ["../../etc", "a/b", "", "x" * 200, "a\nb"])
def test_hostile_names_are_refused(tmp_path: Path, uid: str) -> None:
    """Texts that become names of files or keys are checked first."""

    async def test(world: World) -> None:
        hostile = await world.fake.run_pod(uid, name="a", sandbox="s")
        with pytest.raises(RPCError, match=r"pod.uid"):
            await world.fake.create_container(hostile, "x")
        assert world.owner.pods == {}
        sandbox = await world.fake.run_pod("a")
        with pytest.raises(RPCError, match=r"container.id"):
            await world.fake.create_container(sandbox, "x", container_id="../x")

    in_world(tmp_path, test)


def test_requests_derived_from_the_runtime(tmp_path: Path) -> None:
    """A pod nobody knows: a Guaranteed container with whole CPUs owns them, others share, and too much is refused."""

    async def test(world: World) -> None:
        guaranteed, burstable = "/kubepods/podg", "/kubepods/burstable/podb"
        sandbox = await world.fake.run_pod("g", cgroup_parent=guaranteed)
        own = await world.fake.create_container(sandbox, "own", shares=2048, quota=200000, memory=GIB)
        part = await world.fake.create_container(sandbox, "part", shares=512, quota=50000, memory=GIB)
        assert (parse_bits(own.cpus).bit_count(), own.quota) == (2, -1)
        assert part.cpus == world.fake.containers["sandbox-g-part"].cpus
        assert part.env["PODSLICE_ISOLATION"] == "host"
        other = await world.fake.run_pod("b", cgroup_parent=burstable)
        shared = await world.fake.create_container(other, "app", shares=2048, quota=200000, memory=GIB)
        assert not parse_bits(shared.cpus) & parse_bits(own.cpus)
        with pytest.raises(RPCError):
            await world.fake.create_container(sandbox, "big", shares=40960, quota=4000000, memory=GIB)
        before = own.cpus
        await world.restart()
        assert own.cpus == before
        world.check()
        await world.end("g")
        assert world.owner.placing.exclusive() == 0

    in_world(tmp_path, test)


def test_pod_the_api_server_has_not_sent_yet(tmp_path: Path) -> None:
    """The sandbox waits for its pod, well below NRI's limit; until it comes its containers are refused."""

    async def test(world: World) -> None:
        async def later() -> None:
            await asyncio.sleep(0.1)
            world.source.add(make_pod("a", ("app", "4")))

        task = asyncio.ensure_future(later())
        sandbox = await world.fake.run_pod("a")
        await task
        assert parse_bits((await world.fake.create_container(sandbox, "app")).cpus).bit_count() == 4
        late = await world.fake.run_pod("b")
        with pytest.raises(RPCError, match="has not reported"):
            await world.fake.create_container(late, "app")
        world.source.add(make_pod("b", ("app", "2")))
        assert parse_bits((await world.fake.create_container(late, "app")).cpus).bit_count() == 2

    in_world(tmp_path, test, api_server=True, wait=0.3)


def test_kubelet_updates_do_not_unpin(tmp_path: Path) -> None:
    """UpdateContainer of the kubelet is overridden with our sets and quota."""

    async def test(world: World) -> None:
        container = (await world.run(make_pod("a", ("app", "4"))))["app"]
        before = container.cpus
        resources = nri.LinuxResources(cpu=nri.LinuxCPU(cpus="0-31", quota=nri.OptionalInt64(value=400000)))
        await world.fake.update_container(container.message.id, resources)
        assert (container.cpus, container.quota) == (before, -1)

    in_world(tmp_path, test)


def test_observe_changes_nothing(tmp_path: Path) -> None:
    """Dry run: decisions are made and reported, containers are left alone, refusals do not happen."""

    async def test(world: World) -> None:
        container = (await world.run(make_pod("a", ("app", "4"))))["app"]
        assert (container.cpus, container.quota, container.env) == ("", 0, {})
        assert world.notes.decisions[0].containers[0].exclusive
        assert world.notes.hooks
        await world.run(make_pod("b", ("app", "40")))
        assert world.notes.refusals[0][0] == "default/b"

    in_world(tmp_path, test, observe=True)


@pytest.mark.slow
def test_hook_is_fast_with_100_pods(tmp_path: Path) -> None:
    """CreateContainer through the wire with 100 pods running, half of whose creations move the others."""

    async def test(world: World) -> None:
        for i in range(100):
            await world.run(make_pod(f"s{i}", ("app", "100m")))
        world.fake.spent.clear()
        for i in range(30):
            await world.run(make_pod(f"x{i}", ("app", "1" if i % 2 else "100m")))
        times = sorted(world.fake.spent)
        assert times[len(times) // 2] < 0.05
        world.check()

    in_world(tmp_path, test)
