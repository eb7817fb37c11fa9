"""`whatif --machine-then`: what follows from a machine that changes, under several policies."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from podslice import Hotplug, InputError, KubeletConfig, PodslicePolicy, Scenario, without_cpus
from podslice.advise.whatif.command import whatif
from podslice.advise.whatif.compare import evaluate, populate
from podslice.host.machine_files import dump_machine
from tests.node.hotplug.test_examples import MACHINE
from tests.node.resize.helpers import guaranteed, pod
from tests.read_documents import read_document

PODS = [pod(guaranteed("4", "16Mi"), name=name) for name in ("a", "b")]
CONFIG = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0-1")


def test_consequences() -> None:
    """Each scenario says what follows for its pods, and counts what is owned afterwards."""
    then = (without_cpus(MACHINE, 1 << 5), MACHINE)
    policy = PodslicePolicy(hotplug=Hotplug(lost_cpus="replace"))
    found = evaluate(Scenario("s", MACHINE, CONFIG, policy=policy, then=then), PODS)
    assert [(one.kind, one.pod, one.cpus) for one in found.consequences] == [
        ("replaced", "default/a", "2-4,10"),
        ("shared-grown", "", "0-1,5,11-15"),
    ]
    node = populate(Scenario("s", MACHINE, CONFIG, policy=policy, then=then), PODS)
    assert node is not None
    assert str(node.shared_cpus) == "0-1,5,11-15"


def test_command(tmp_path: Path) -> None:
    """The table names who loses what; a profile that predicts a kubelet has no answer."""
    pods, then = tmp_path / "pods.yaml", tmp_path / "then.yaml"
    pods.write_text("""{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [
      {name: c, resources: {limits: {cpu: 4, memory: 16Mi}}}]}}""")
    then.write_text(dump_machine(without_cpus(MACHINE, 1 << 5), "yaml"))
    words = [str(pods), "--from", "pack:1 core:8 pu:2(indexes=pu)", "--set", "cpuManagerPolicy=static",
             "--set", "reservedSystemCPUs=0-1", "--machine-then", str(then)]  # fmt: skip
    result = CliRunner().invoke(whatif, words)
    assert result.exit_code == 0
    assert "container c lost 5 and runs on 2-4" in " ".join(result.output.split())
    document = read_document(CliRunner().invoke(whatif, [*words, "-o", "json"]).output, "Comparison")
    assert document["scenarios"][0]["consequences"][0]["kind"] == "degraded"
    with pytest.raises(InputError, match="does not look at its machine"):
        CliRunner().invoke(whatif, [*words, "--profile", "kubelet-1.36"], catch_exceptions=False)
