"""`whatif --restart` and `--reboot`: every running pod stays, moves, is refused or ends, and the exit code says so."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from podslice import KubeletConfig, Machine, Node, Pod
from podslice.advise.whatif.command import whatif
from podslice.advise.whatif.compare import Scenario
from podslice.advise.whatif.restart.restart import RestartResult, look_before, restart
from podslice.advise.whatif.restart.table import restart_text, summary
from podslice.api.pod.spec import pod_from_dict
from podslice.machine.devices import Device, DeviceInventory, DeviceResource
from podslice.machine.readers.synthetic import from_synthetic
from podslice.values.errors import InputError
from tests.conftest import make_pod
from tests.read_documents import read_document
from tests.shell import podslice as run

replace = msgspec.structs.replace
SMALL = from_synthetic("pack:1 numa:1(memory=16GiB) core:6 pu:1")
WIDE = from_synthetic("numa:2(memory=16GiB) pack:8 core:1 pu:1")
GPU = "example.com/gpu"


def config(**fields: object) -> KubeletConfig:
    return KubeletConfig(**{"cpu_manager_policy": "static", "reserved_system_cpus": "0", **fields})  # type: ignore[arg-type]


WHOLE_CORES = config(reserved_system_cpus="0,8", cpu_manager_policy_options={"full-pcpus-only": "true"})
POD_LEVEL = config(
    topology_manager_policy="best-effort",
    topology_manager_scope="pod",
    feature_gates={"PodLevelResourceManagers": True},
)


def pod_level(name: str, cpu: str) -> Pod:
    amounts = {"cpu": cpu, "memory": "1Gi"}
    spec = {"resources": {"requests": amounts, "limits": amounts}, "containers": [{"name": "app"}]}
    return pod_from_dict({"metadata": {"name": name, "uid": name, "namespace": "default"}, "spec": spec})


def running(machine: Machine, settings: KubeletConfig, pods: list[Pod], profile: str) -> Scenario:
    """Return a node with state files on which the pods run."""
    node = Node(machine, settings, profile=profile)
    assert all(node.admit(pod).admitted for pod in pods)
    return Scenario("node", machine, settings, running=tuple(pods), files=node.files)


def one(scenario: Scenario, profile: str, how: str = "restart") -> RestartResult:
    (result,) = restart(scenario, look_before(scenario, profile=profile), how=how, profile=profile)  # type: ignore[arg-type]
    return result


@pytest.mark.parametrize(("profile", "outcome"), [("kubelet-1.36", "refused"), ("podslice", "stays")])
def test_running_pods_of_whole_cores(profile: str, outcome: str) -> None:
    """A kubelet counts free cores before it looks at what the pod has already (kubernetes#129078)."""
    result = one(running(WIDE, WHOLE_CORES, [make_pod("a", ("c", "6")), make_pod("b", ("c", "6"))], profile), profile)
    assert [pod.outcome for pod in result.pods] == [outcome] * 2
    assert result.changes is (outcome == "refused")
    text = restart_text(result)
    if outcome == "refused":
        assert "After a kubelet restart 2 of 2 running pods are refused." in text
        assert "default/a, default/b: SMTAlignmentError: SMT Alignment Error: not enough free physical CPUs: " in text
        assert [(held.before, held.after) for held in result.pods[0].holdings] == [("1-6", "")]
    else:
        assert text.endswith("nothing changes for 2 running pods.\x1b[0m") or "nothing changes for 2" in text


@pytest.mark.parametrize("how", ["restart", "reboot"])
def test_cpus_that_move_and_leak(how: str) -> None:
    """A pod with pod-level resources is allocated a second time; its first CPUs leak (kubernetes#140989)."""
    scenario = running(SMALL, POD_LEVEL, [pod_level("plr", "2")], "kubelet-1.36")
    result = one(scenario, "kubelet-1.36", how)
    (pod,) = result.pods
    assert (pod.outcome, {(held.before, held.after) for held in pod.holdings}) == ("moves", {("1-2", "3-4")})
    assert (result.leaked_cpus, result.shared_before, result.shared_after) == ("1-2", "0,3-5", "0,5")
    assert "CPUs 1-2 leak" in restart_text(result)
    assert not one(running(SMALL, POD_LEVEL, [pod_level("plr", "2")], "podslice"), "podslice", how).changes


def test_a_reboot_comes_before_the_device_plugins() -> None:
    """After a reboot a kubelet refuses pods with devices, because no container of theirs runs; profile podslice keeps
    the recorded devices. A restart changes nothing."""
    inventory = DeviceInventory((DeviceResource(GPU, (Device("g0", (0,)),)),))
    limits = {"cpu": "2", "memory": "1Gi", GPU: "1"}
    spec = {"containers": [{"name": "c", "resources": {"limits": limits}}]}
    pod = pod_from_dict({"metadata": {"name": "train", "uid": "train"}, "spec": spec})
    for profile, how, outcome in (
        ("kubelet-1.36", "restart", "stays"),
        ("kubelet-1.36", "reboot", "refused"),
        ("podslice", "reboot", "stays"),
    ):
        node = Node(SMALL, config(), profile=profile, devices=inventory)
        assert node.admit(pod).admitted
        scenario = Scenario("node", SMALL, config(), inventory, running=(pod,), files=node.files)
        (found,) = one(scenario, profile, how).pods
        assert (found.outcome, "no healthy devices present" in found.message) == (outcome, outcome == "refused")


def test_pods_that_never_restart_end_with_a_reboot() -> None:
    """A pod with restartPolicy Never goes on over a restart of the kubelet, and ends with a reboot."""
    pod = make_pod("job", ("c", "2"))
    pod = replace(pod, spec=replace(pod.spec, restart_policy="Never"))
    scenario = running(SMALL, config(), [pod], "kubelet-1.36")
    assert [one(scenario, "kubelet-1.36", how).pods[0].outcome for how in ("restart", "reboot")] == ["stays", "ends"]


def test_another_policy_does_not_start() -> None:
    """The kubelet's message, and what follows once the files are deleted."""
    scenario = running(SMALL, config(), [make_pod("a", ("c", "2"))], "podslice")
    results = restart(replace(scenario, config=KubeletConfig()), look_before(scenario))
    assert 'configured policy "none" differs from state checkpoint policy "static"' in results[0].problem
    assert results[0].changes
    assert results[1].without_files
    (held,) = results[1].pods[0].holdings
    assert (held.before, held.after) == ("1-2", "")
    # The same where only the new configuration is known: the files say who owns what.
    later = replace(scenario, config=KubeletConfig())
    assert restart(later, look_before(later))[1].pods == results[1].pods


def test_without_state_files_pods_are_admitted_in_order() -> None:
    """The files are then those of a node that admits what runs; one that it refuses is bad input."""
    scenario = Scenario("node", SMALL, config(), running=(make_pod("a", ("c", "2")),))
    result = one(scenario, "kubelet-1.36")
    assert summary(result) == "After a kubelet restart nothing changes for 1 running pod."
    with pytest.raises(InputError, match="default/b does not run there"):
        look_before(replace(scenario, running=(make_pod("b", ("c", "9")),)))


def test_order_of_creation_decides() -> None:
    """Pods come back in the order of their creation, whatever the order of the list."""
    older, newer = make_pod("older", ("c", "3")), make_pod("newer", ("c", "3"))
    dated = [
        replace(pod, metadata=replace(pod.metadata, creation_timestamp=f"2026-01-0{day}T00:00:00Z"))
        for pod, day in ((newer, 2), (older, 1))
    ]
    scenario = running(WIDE, WHOLE_CORES, dated, "podslice")
    assert [pod.pod for pod in one(scenario, "podslice").pods] == ["default/older", "default/newer"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pods = [make_pod(name, ("c", "6")) for name in ("a", "b")]
    node = Node(WIDE, WHOLE_CORES, profile="kubelet-1.36")
    for pod in pods:
        node.admit(pod)
    (tmp_path / "state").mkdir()
    for name, data in node.files.items():
        (tmp_path / "state" / name).write_bytes(data)
    written = [
        {"apiVersion": "v1", "kind": "Pod", **msgspec.to_builtins(pod, enc_hook=str)}  # type: ignore[dict-item]
        for pod in pods
    ]
    (tmp_path / "pods.yaml").write_text(yaml.safe_dump({"kind": "List", "apiVersion": "v1", "items": written}))
    settings = msgspec.to_builtins(WHOLE_CORES, enc_hook=str)
    kept = {name: settings[name] for name in ("cpuManagerPolicy", "reservedSystemCPUs", "cpuManagerPolicyOptions")}
    header = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
    (tmp_path / "kubelet.yaml").write_text(yaml.safe_dump(header | kept))
    return tmp_path


def test_command(folder: Path) -> None:
    """The exit code says whether anything changes. Without --profile it is the kubelet of the release that starts."""
    words = ["--pods", str(folder / "pods.yaml"), "--state", str(folder / "state"), "--from",
             "numa:2(memory=16GiB) pack:8 core:1 pu:1", "--config", str(folder / "kubelet.yaml")]  # fmt: skip
    result = CliRunner().invoke(whatif, ["--restart", *words])
    assert (result.exit_code, "2 of 2 running pods are refused" in result.output) == (1, True)
    quiet = run("whatif", "--restart", "-q", *words)
    assert (quiet.returncode, quiet.stdout) == (1, "")
    calm = CliRunner().invoke(whatif, ["--reboot", *words, "--profile", "podslice", "-o", "wide"])
    assert (calm.exit_code, "default/a  stays" in calm.output) == (0, True)
    document = read_document(CliRunner().invoke(whatif, ["--restart", *words, "-o", "json"]).output, "RestartReport")
    assert (document["changes"], document["results"][0]["pods"][0]["reason"]) == (True, "SMTAlignmentError")
    wrong = run("whatif", "--restart", *words, "--kubernetes-then", "9.9")
    assert (wrong.returncode, "--kubernetes-then: '9.9' is not" in wrong.stderr) == (2, True)
    later = CliRunner().invoke(
        whatif, ["--restart", *words, "--kubernetes", "1.34", "--kubernetes-then", "1.36", "-o", "json"]
    )
    assert read_document(later.output, "RestartReport")["changes"]


def test_new_pods_beside_what_runs(folder: Path) -> None:
    """A comparison on state files says what its start does to the pods that run, and ends with 1."""
    extra = folder / "new.yaml"
    extra.write_text("{apiVersion: v1, kind: Pod, metadata: {name: new}, spec: {containers: [{name: c}]}}")
    words = [str(extra), "--pods", str(folder / "pods.yaml"), "--state", str(folder / "state"), "--from",
             "numa:2(memory=16GiB) pack:8 core:1 pu:1", "--config", str(folder / "kubelet.yaml")]  # fmt: skip
    result = CliRunner().invoke(whatif, [*words, "--profile", "kubelet-1.36"])
    assert (result.exit_code, "SMT Alignment Error: not enough free" in result.output) == (1, True)
    assert CliRunner().invoke(whatif, words).exit_code == 0
