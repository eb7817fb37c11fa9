"""A full disk and a read-only file system at every write: whole files, one line, and all goes on when there is room."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy", reason="simulations need numpy: pip install '.[fleet]'")

from click.testing import CliRunner, Result

from podslice import KubeletConfig, Node
from podslice.agent.api_server.rejected import RejectedPods
from podslice.agent.process.daemon import Agent
from podslice.agent.runtime.ttrpc import RPCError
from podslice.cli.main import cli
from podslice.fleet.scenario.fgd import PUBLISHED, CurveFile, FGDRun
from podslice.fleet.scenario.starter import sample_cluster
from podslice.host.kernel.kernelfiles import SavedStore
from podslice.host.state.statefile import RealFiles, back_up
from podslice.host.state.store import NodeStore, StateWriteError
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.checkpoints.guard_files import SavedFile
from podslice.status.status import RejectedPod
from podslice.values.errors import InputError
from tests import clock
from tests.agent.fake_apiserver import FakeApiServer
from tests.agent.helpers import MACHINE, World, agent_config, pod_level
from tests.agent.test_daemon import api_pod, with_agent
from tests.agent.test_failures import MEMORY
from tests.clock import until
from tests.conftest import make_pod
from tests.fleet.test_runs import SCENARIO
from tests.guards.kernel import CGROUPS, irq
from tests.service.fake_runtime import FakeRuntime
from tests.trials.faultydisk import EACCES, ENOSPC, EROFS, FaultyDisk

FAULTS = [
    pytest.param({"error": ENOSPC}, id="full"),
    pytest.param({"error": ENOSPC, "short": True}, id="short"),
    pytest.param({"error": EROFS}, id="read-only"),
    pytest.param({"error": EACCES}, id="denied"),
]
Fault = dict[str, Any]


def left_over(folder: Path) -> list[str]:
    """Files that were begun and not finished."""
    return sorted(path.name for path in folder.rglob("*") if path.name.endswith(".new") or ".new." in path.name)


async def _life(world: World) -> None:
    """Pods come and go. What the disk does not take is refused; no call fails otherwise."""
    problems = []
    for uid, spec in (
        ("a", make_pod("a", ("app", "3"))),
        ("s", make_pod("s", ("app", "100m"))),
        ("b", make_pod("b", ("x", "2"), ("y", None), budget="4")),
    ):
        try:
            await world.run(spec)
        except RPCError as error:
            problems.append(str(error))
        if uid == "s":
            await world.end("a")
    await asyncio.sleep(0.05)
    assert [one for one in problems if "cannot be" not in one] == []


def _whole(world: World) -> None:
    """All JSON below the folder can be read, and nothing else is there."""
    for path in (*world.folder.rglob("*.json"), *world.folder.rglob("*_state")):
        if not path.name.startswith("."):
            json.loads(path.read_bytes())


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS[1:3])
def test_the_agent_at_every_write(tmp_path: Path, fault: Fault) -> None:
    """From the n-th write on nothing can be written, for every n: the agent answers, says so, and leaves whole files.
    With room again it has the next pod and its ledgers are those on the disk."""

    async def live(folder: Path, at: int) -> int:
        world = World(folder, pod_level(**MEMORY))
        with FaultyDisk(folder, at=1 << 60, **fault) as disk:
            await world.start()
            disk.at = len(disk.operations) + at
            await _life(world)
            assert world.fake.attached.is_set()
            _whole(world)
            if fault["error"] == ENOSPC:
                assert left_over(folder) == []
            failed, disk.at = len(disk.failed), 1 << 60
            refused = {uid for uid, _, _ in world.notes.refusals}
            assert not failed or world.notes.troubles or refused
            world.plugin.write_again()
            world.owner.admitting.save()
            await world.run(make_pod("late", ("app", "2")))
            await asyncio.sleep(0.05)
            world.check()
            state = world.owner.node.kubelet.manager.cpu.state  # type: ignore[union-attr]
            stored = json.loads((folder / "state" / "cpu_manager_state").read_text())
            assert set(stored["entries"]) == {uid for uid, owned in state.assignments.items() if owned}
            for record in world.owner.containers.values():
                told = json.loads((folder / "containers" / record.id / "resources.json").read_text())
                assert told["generation"] >= 1
            await world.restart()
            world.check()
            assert left_over(folder / "state") == []
            assert world.owner.safe_mode == ""
        await world.kill()
        return failed

    async def main() -> int:
        at = 0
        while await live(tmp_path / str(at), at):
            at += 1
        return at

    assert clock.run(main()) > 30


@pytest.mark.parametrize("fault", FAULTS)
def test_the_agent_starts_on_such_a_disk(tmp_path: Path, fault: Fault) -> None:
    """A start that cannot write is safe mode, or well where nothing has to be written, and heals."""

    async def main() -> None:
        world = World(tmp_path, pod_level())
        (tmp_path / "state").mkdir()
        with FaultyDisk(tmp_path, at=0, **fault) as disk:
            await world.start()
            assert world.owner.safe_mode
            assert world.owner.admitting.may_heal
            assert not world.owner.admitting.disk_works()
            await world.run(make_pod("s", ("app", "100m")))
            disk.heal()
            assert world.owner.admitting.disk_works()
            await world.restart()
            await world.run(make_pod("a", ("app", "2")))
            assert world.owner.safe_mode == ""
            world.check()
            assert left_over(tmp_path) == []
        await world.kill()

    clock.run(main())


def test_a_container_hears_what_it_has_later(tmp_path: Path) -> None:
    """The file of a container that could not be written is written by a later pass, with no other reason for it."""

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        with FaultyDisk(tmp_path / "files", at=0) as disk:
            await api.apply(api_pod("a", "4"))
            made = await fake.create_container(await fake.run_pod("a"), "app")
            file = tmp_path / "files" / made.message.id / "resources.json"
            await until(lambda: len(disk.failed) > 1)
            assert not file.exists()
            disk.heal()
            await until(file.exists)
        assert json.loads(file.read_bytes())["cpus"] == made.cpus

    with_agent(tmp_path, test)


# Each file by itself


def every_write(folder: Path, fault: Fault, write: Any, check: Any) -> int:
    """Fail at the first write operation, at the second, and so on until the work is done; `write` gets a folder of its
    own, `check` is called after each failure. How many failed."""
    at = 0
    while True:
        place = folder / str(at)
        place.mkdir()
        prepare = getattr(write, "prepare", None)
        if prepare is not None:
            prepare(place)
        with FaultyDisk(place, at=at, **fault) as disk:
            problem: Exception | None = None
            try:
                write(place)
            except Exception as error:
                problem = error
        if not disk.failed:
            assert problem is None, problem
            return at
        check(place, problem)
        at += 1


@pytest.mark.parametrize("fault", FAULTS)
def test_old_values_of_the_kernel(tmp_path: Path, fault: Fault) -> None:
    """The file of the kernel's old values is never incomplete: it is the old one or the new one."""
    one = SavedFile(irq(131), "list", "0-7", ("0-3",))
    two = SavedFile(irq(132), "list", "0-7", ("4",))

    def store(place: Path) -> SavedStore:
        return SavedStore(place, "boot", cgroups=CGROUPS)

    def write(place: Path) -> None:
        store(place).save({one.path: one, two.path: two})

    def check(place: Path, problem: Exception | None) -> None:
        assert isinstance(problem, OSError)
        assert set(store(place).load()) in ({one.path}, {one.path, two.path})
        if fault["error"] == ENOSPC:
            assert left_over(place) == []

    write.prepare = lambda place: store(place).save({one.path: one})  # type: ignore[attr-defined]
    assert every_write(tmp_path, fault, write, check) >= 3


@pytest.mark.parametrize("fault", FAULTS)
def test_a_backup_is_whole_or_not_there(tmp_path: Path, fault: Fault) -> None:
    """A copy that does not fit leaves nothing that looks like one."""

    def write(place: Path) -> None:
        back_up(place / "state")

    def check(place: Path, problem: Exception | None) -> None:
        assert isinstance(problem, OSError)
        assert (place / "state").read_bytes() == b"0123456789"
        for copy in place.glob("*.bak*"):
            assert fault["error"] != ENOSPC or copy.read_bytes() == b"0123456789"

    write.prepare = lambda place: (place / "state").write_bytes(b"0123456789")  # type: ignore[attr-defined]
    assert every_write(tmp_path, fault, write, check) >= 2


def test_rejected_pods_are_kept_later(tmp_path: Path) -> None:
    """A mark that could not be stored is reported, and stored with the next one."""

    async def main() -> None:
        troubles: list[tuple[str, str]] = []
        with FaultyDisk(tmp_path, at=0) as disk:
            kept = RejectedPods(tmp_path, trouble=lambda *one: troubles.append(one))
            await kept.add(RejectedPod("default", "a", "a", "TopologyAffinityError", "no", "", "", 0.0))
            assert "cannot be written: No space left on device" in troubles[0][1]
            assert list(tmp_path.iterdir()) == []
            disk.heal()
            await kept.add(RejectedPod("default", "b", "b", "TopologyAffinityError", "no", "", "", 0.0))
        again = RejectedPods(tmp_path, trouble=lambda *one: troubles.append(one))
        again.load()
        assert [one.uid for one in again] == ["a", "b"]
        assert len(troubles) == 1

    asyncio.run(main())


# Commands


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _done(result: Result) -> None:
    assert result.exception is None, (result.exception, result.output)


def commanded(
    folder: Path,
    fault: Fault,
    prepare: Any,
    *words: str,
    resume: tuple[str, ...] = (),
    stride: int = 1,
    again: bool = True,
) -> int:
    """Run a command with `{}` for its folder, failing at every write: an error of one line each time, files that are
    the old or the new ones, and the whole answer when it is run again. How many writes failed."""
    at, whole = 0, None
    while True:
        place = folder / f"try{at}"
        place.mkdir()
        prepare(place)
        old = _contents(place)
        given = [word.replace("{}", str(place)) for word in words]
        with FaultyDisk(place, at=at, **fault) as disk:
            result = CliRunner().invoke(cli, given)
        if whole is None:
            good = folder / "good"
            good.mkdir()
            prepare(good)
            _done(CliRunner().invoke(cli, [word.replace("{}", str(good)) for word in words]))
            whole = {name: text.replace(bytes(good), bytes(place)) for name, text in _contents(good).items()}
        if not disk.failed:
            _done(result)
            return at
        if not isinstance(result.exception, SystemExit):
            assert result.exception is None or isinstance(result.exception, InputError), repr(result.exception)
            assert "\n" not in str(result.exception)
        found = _contents(place)
        for name, text in old.items():
            assert name in found, (name, disk.failed)
            assert found[name] == text or len(found[name]) >= len(whole.get(name, b"")), (name, disk.failed)
        if fault["error"] == ENOSPC:
            assert left_over(place) == [], disk.failed
        for name in found if not again else ():
            assert name in whole or fault["error"] != ENOSPC, name
            assert name not in whole or len(found[name]) == len(whole[name]), name
        if again:
            _done(CliRunner().invoke(cli, [*given, *resume]))
            assert set(_contents(place)) == set(whole)
        at += stride


def _trace(place: Path) -> None:
    (place / "in.csv").write_text("name,cpu_milli,memory_bytes,gpus,gpu_model\n" + "n,1000,4096,0,\n" * 50)
    (place / "out.csv").write_text("an older trace\n")


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("out", ["out.csv", "new.csv.gz", "new.jsonl"])
def test_traces(tmp_path: Path, fault: Fault, out: str) -> None:
    """A trace is converted whole or not at all."""
    words = ("fleet", "trace", "convert", "{}/in.csv", "--out", "{}/" + out)
    assert commanded(tmp_path, fault, _trace, *words) >= 3


def _dump(place: Path) -> None:
    (place / "dump").mkdir()
    nodes, pods = sample_cluster()
    (place / "dump" / "n.json").write_text(nodes)
    (place / "dump" / "p.json").write_text(pods)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_an_imported_cluster(tmp_path: Path, fault: Fault) -> None:
    """Each file is whole or not there; an import into a folder that has some is refused."""
    words = ("fleet", "import", "{}/dump", "--out", "{}/out")
    assert commanded(tmp_path, fault, _dump, *words, again=False) >= 6


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS[1:3])
def test_a_run(tmp_path: Path, fault: Fault) -> None:
    """Stored cells of a run stay, and --resume simulates the rest."""
    small = {**SCENARIO, "seeds": [1], "schedulers": {"kube": {}}, "kubelets": {"none": {}}}
    small["workload"] = [{"synthetic": {**SCENARIO["workload"][0]["synthetic"], "pods": 5}}]

    def prepare(place: Path) -> None:
        (place / "scenario.yaml").write_text(json.dumps(small))

    words = ("fleet", "run", "{}/scenario.yaml", "--out", "{}/run", "--workers", "1")
    assert commanded(tmp_path, fault, prepare, *words, resume=("--resume",), stride=6) >= 15


@pytest.mark.parametrize("short", [False, True])
def test_kept_curves(tmp_path: Path, *, short: bool) -> None:
    """A curve that does not fit is said with its file; those before and after it are kept."""
    first, second, third = (FGDRun("w", next(iter(PUBLISHED)), seed) for seed in range(3))
    path = tmp_path / "runs.jsonl"
    CurveFile(path).add(first, {1: 1.0})
    with FaultyDisk(tmp_path, at=1, short=short), pytest.raises(InputError, match=r"runs.jsonl: cannot be written: No"):
        CurveFile(path).add(second, {1: 2.0})
    CurveFile(path).add(third, {1: 3.0})
    assert CurveFile(path).curves == {first: {1: 1.0}, third: {1: 3.0}}


_BEFORE = "pack:1 numa:1(memory=64GiB) core:8 pu:2(indexes=pu)"


def _after(count: int) -> dict[str, Any]:
    """The machine `_BEFORE` where the second threads come after all first ones, with `count` of its cores."""
    cores = [{"socket": 0, "core": core, "threads": [core, core + 8]} for core in range(count)]
    node = {"id": 0, "memory": "64Gi", "cores": cores}
    return {"apiVersion": "podslice.io/v1alpha1", "kind": "Machine", "nodes": [node]}


def _at_every_write(folder: Path, words: tuple[Any, ...], error: str, **fault: Any) -> list[str]:
    """Run a command on copies of `folder`, failing at each write in turn: the files are the old or the new ones, whole,
    and nothing else is there. Returns the writes that failed."""
    good = shutil.copytree(folder, folder.with_name("good"))
    _done(CliRunner().invoke(cli, [*words, str(good)]))
    old, new, failed, at = _contents(folder), _contents(good), list[str](), 0
    while True:
        place = shutil.copytree(folder, folder.with_name(f"try{at}"))
        with FaultyDisk(place, at=at, **fault) as disk:
            result = CliRunner().invoke(cli, [*words, str(place)])
        found = _contents(place)
        if at >= len(disk.operations):
            assert found == new
            return failed
        if disk.failed:
            assert isinstance(result.exception, InputError)
            assert error in str(result.exception)
        assert found in (old, new), disk.failed
        failed += disk.failed[:1]
        at += 1


@pytest.fixture
def node_files(tmp_path: Path) -> Path:
    """A kubelet's files: pod a has CPUs 2-5."""
    node = Node(from_synthetic(_BEFORE), KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0-1"))
    assert node.admit(make_pod("a", ("app", "4"))).admitted
    folder = tmp_path / "kubelet"
    folder.mkdir()
    for name, data in node.manager_files.items():
        (folder / name).write_bytes(data)
    return folder


@pytest.mark.parametrize("short", [False, True])
def test_a_repair_is_whole_or_nothing(node_files: Path, *, short: bool) -> None:
    """A repair that fails leaves the old file, and neither a backup nor a part of the new file."""
    state = node_files / "cpu_manager_state"
    state.write_bytes(state.read_bytes().replace(b'"checksum":', b'"checksum":1'))
    words = ("state", "repair", "--write")
    failed = _at_every_write(node_files, words, "cannot be written: No space left on device", short=short)
    assert "replace cpu_manager_state" in failed


def test_a_repair_of_several_files_is_whole_or_nothing(node_files: Path) -> None:
    """Where the second of two files cannot be replaced, the first is the old one again."""
    state = node_files / "cpu_manager_state"
    state.write_bytes(state.read_bytes().replace(b'"checksum":', b'"checksum":1'))
    (node_files / "podslice_policy_state").write_bytes(b'{"data":"{\\"version\\":1}","checksum":1}')
    words = ("state", "repair", "--write")
    failed = _at_every_write(node_files, words, "cannot be written: No space left on device", count=1)
    assert failed.index("replace podslice_policy_state") < failed.index("replace cpu_manager_state")


@pytest.mark.parametrize("cores", [8, 2])
@pytest.mark.parametrize(
    ("earlier", "fault"),
    # putting an earlier copy back takes a disk that can be written again
    [("", {}), ("", {"short": True}), ("earlier", {"count": 1})],
    ids=["full", "short", "earlier"],
)
def test_a_migration_is_whole_or_nothing(node_files: Path, earlier: str, fault: Fault, cores: int) -> None:
    """A migration that fails leaves every file, also the copy of an earlier migration; whether the files get new
    numbers (8 cores) or do not count any more (2 cores)."""
    if earlier:
        (node_files / "cpu_manager_state.before-reboot").write_text(earlier)
    after = node_files.with_name("after.json")
    after.write_text(json.dumps(_after(cores)))
    words = ("state", "migrate", "--before", _BEFORE, "--after", str(after), "--write")
    failed = _at_every_write(node_files, words, "cannot be written: No space left on device", **fault)
    assert "replace cpu_manager_state.before-reboot" in failed
    assert ("replace cpu_manager_state" in failed) == (cores == 8)


def test_a_decision_that_was_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was replaced, and could not be made to last, is written again as the node is."""
    store = NodeStore(tmp_path, from_synthetic(MACHINE), agent_config())

    def fails(self: RealFiles, path: Path) -> None:
        raise OSError(EROFS, "Read-only file system")

    with monkeypatch.context() as broken:
        broken.setattr(RealFiles, "sync_directory", fails)
        with pytest.raises(StateWriteError):
            store.admit(make_pod("a", ("app", "2")))
    store.save()
    assert "a" not in (json.loads((tmp_path / "cpu_manager_state").read_text()).get("entries") or {})
