"""Commands on the state directory of an agent, which has its pods in it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from podslice import ExclusiveResize, KubeletConfig, PodslicePolicy
from podslice.api.pod.spec import Pod
from podslice.cli.options.node import start_node
from podslice.cli.options.running import read_agent_pods, read_running
from podslice.host.state.podfiles import PodFiles
from podslice.host.state.store import NodeStore
from podslice.machine.readers.synthetic import from_synthetic
from podslice.values.errors import InputError
from tests.agent.claimhelpers import Desk, claim
from tests.agent.helpers import MACHINE as DESK_MACHINE
from tests.conftest import make_pod
from tests.read_documents import read_document
from tests.shell import podslice as run

MACHINE = "pack:1 numa:2(memory=8GB) core:4 pu:2(indexes=pu)"
SETTINGS = ("--set", "cpuManagerPolicy=static", "--set", "reservedSystemCPUs=0")


def named(uid: str, cpus: str) -> Pod:
    pod = make_pod(uid, ("c", cpus))
    return replace(pod, metadata=replace(pod.metadata, name=f"name-of-{uid}", namespace="ns"))


def agents(folder: Path) -> None:
    """As an agent leaves it: b was admitted with 3 CPUs and has grown to 5."""
    config = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0")
    policy = PodslicePolicy(resize=ExclusiveResize(exclusive=True))
    store, files = NodeStore(folder, from_synthetic(MACHINE), config, policy=policy), PodFiles(folder)
    for pod in (named("b", "3"), named("a", "4")):
        files.keep(pod)
        assert store.admit(pod).admitted
    files.replace(named("b", "5"))
    assert store.resize(named("b", "5")).outcome == "Allocated"


def test_its_pods_run(tmp_path: Path) -> None:
    """They count with their names and what they were granted, in order of admission; those of --pods win."""
    agents(tmp_path)
    there = read_running(state_path=tmp_path)
    assert [(pod.metadata.uid, pod.spec.containers[0].resources.limits) for pod in there.listed] == [
        (pod.metadata.uid, pod.spec.containers[0].resources.limits) for pod in (named("b", "5"), named("a", "4"))
    ]
    assert there.owners() == []
    begun = start_node(source=(MACHINE,), overrides=SETTINGS[1::2], state_path=tmp_path)
    assert (begun.warnings, begun.node.pods) == ((), ("b", "a"))
    assert len(begun.node.assignable_cpus) == 16 - 1 - 5 - 4
    ended = tmp_path / "ended.json"
    spec = {"containers": [{"name": "c"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "b", "uid": "b"}, "spec": spec}
    ended.write_text(json.dumps({**pod, "status": {"phase": "Succeeded"}}))
    left = start_node(source=(MACHINE,), overrides=SETTINGS[1::2], state_path=tmp_path, pods_path=str(ended))
    assert (left.node.pods, len(left.node.assignable_cpus)) == (("a",), 16 - 1 - 4)


def test_what_is_not_the_agents(tmp_path: Path) -> None:
    """A kubelet's folder has folders of pods, not files; a file that is broken is named."""
    (tmp_path / "pods/uid-of-a-pod").mkdir(parents=True)
    assert read_agent_pods(tmp_path) is None
    (tmp_path / "pods/b.json").write_text("{")
    with pytest.raises(InputError, match=r"pods/b\.json: cannot be read"):
        read_agent_pods(tmp_path)


def test_claims_hold_their_cpus(tmp_path: Path) -> None:
    """CPUs of claims are nobody else's to `admit`, under the claim's name in `draw`, and no leftovers to `repair`; a
    record that is broken is named."""
    desk = Desk(tmp_path)
    desk.ledger.prepare(claim("train", (1, 4)))
    desk.owner.admitting.files.keep(named("a", "1"))
    state, policy, pod = tmp_path / "state", tmp_path / "policy.yaml", tmp_path / "pod.json"
    policy.write_text(json.dumps({"apiVersion": "podslice.io/v1alpha1", "kind": "PodslicePolicy",
                                  "spec": {"claims": {"cpus": "8-15,24-31"}}}))  # fmt: skip
    arguments = ("--from", DESK_MACHINE, *SETTINGS, "--state", str(state), "--policy", str(policy))
    drawn = run("draw", *arguments).stdout
    assert "claim default/train/device-0-numa-1  24-27" in drawn
    begun = start_node(source=(DESK_MACHINE,), overrides=SETTINGS[1::2], state_path=state, policy_path=str(policy))
    assert begun.node.view.owners["claim/uid-train"] == {"device-0-numa-1": desk.holds()["uid-train"]}
    limits = {"limits": {"cpu": "14", "memory": "1Gi"}}
    spec = {"containers": [{"name": "c", "resources": limits}]}
    pod.write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "new"}, "spec": spec}))
    fits = json.loads(run("admit", str(pod), *arguments, "-o", "json").stdout)
    assert fits["pods"][0]["admitted"] is True
    repaired = run("state", "repair", str(state), "--from", DESK_MACHINE)
    assert (repaired.returncode, "does not run" in repaired.stdout) == (0, False)
    (state / "claims/x.json").write_text("{")
    with pytest.raises(InputError, match=r"claims/x\.json: cannot be read"):
        read_agent_pods(state)


@pytest.mark.slow
def test_commands(tmp_path: Path) -> None:
    """`admit`, `draw` and `state repair` understand the folder: who is not among its pods does not run any more."""
    agents(tmp_path)
    pod = tmp_path / "new.json"
    limits = {"limits": {"cpu": "7", "memory": "1Gi"}}
    spec = {"containers": [{"name": "c", "resources": limits}]}
    pod.write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "new"}, "spec": spec}))
    arguments = ("--from", MACHINE, *SETTINGS, "--state", str(tmp_path))
    refused = run("admit", str(pod), *arguments)
    assert (refused.returncode, refused.stderr) == (1, "")
    drawn = run("draw", *arguments)
    assert "name-of-b" in drawn.stdout
    fine = run("state", "repair", str(tmp_path), "--from", MACHINE)
    assert (fine.returncode, fine.stderr) == (0, "")
    before = tmp_path / "before"
    shutil.copytree(tmp_path / "pods", before)
    (tmp_path / "pods/b.json").unlink()
    assert run("admit", str(pod), *arguments).returncode == 0
    repair = run("state", "repair", str(tmp_path), "--from", MACHINE, "-o", "json")
    assert repair.returncode == 1
    (cpu, *_) = read_document(repair.stdout, "StateRepairList")["items"]
    assert cpu["actions"][0] == "entries.b.c: does not run any more; dropped"
