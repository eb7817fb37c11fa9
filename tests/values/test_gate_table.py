"""The table of all feature gates, and what a kubelet says about wrong ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from podslice import KubeletConfig, Node, StartError
from podslice.machine.gallery import load_gallery
from podslice.values.gate_table import NEWEST, OLDEST, gate_states, gate_warnings, unknown_gate_hint
from podslice.values.gates import GATES, FeatureGates, GateError
from tests.shell import podslice as run

ON = ("admit", "examples/small.yaml", "--from", "pack:1 numa:1(memory=8GiB) core:4 pu:1")


def test_table_agrees_with_the_gates_that_matter() -> None:
    """Default, stage and lock of every gate that podslice reads are those of 1.36; later ones are not in it."""
    states = gate_states()
    for name, gate in GATES.items():
        assert (name in states) is not bool(gate.later)
        if not gate.later:
            assert tuple(states[name]) == (gate.default, gate.stage, gate.locked), name


def test_table_agrees_with_the_recorded_gates(shared: Path) -> None:
    """Every gate of v1.36.2 has the recorded default, stage and lock."""
    recorded = json.loads((shared / "spec" / "feature-gates-1.36.2.json").read_text())
    states = gate_states()
    for name, gate in recorded.items():
        assert states[name] == (gate["default"], gate["stage"], gate["locked"]), name


def test_gates_come_with_versions() -> None:
    """Older versions have fewer gates and looser locks; versions outside the table are not guessed."""
    assert [len(gate_states(minor)) for minor in range(OLDEST, NEWEST + 1)] == sorted(
        len(gate_states(minor)) for minor in range(OLDEST, NEWEST + 1)
    )
    assert "PodLevelResourceManagers" not in gate_states(35)
    assert gate_states(33)["PodLevelResources"] == (False, "ALPHA", False)
    assert gate_states(34)["PodLevelResources"] == (True, "BETA", False)
    assert not gate_states(34)["InPlacePodVerticalScaling"].locked
    with pytest.raises(KeyError):
        gate_states(32)


def test_everything_wrong_is_told_at_once() -> None:
    """Unknown and locked gates are one error in upstream's words, with the nearest names beside it."""
    wrong = {"PodLevelResourceManager": True, "InPlacePodVerticalScaling": False, "AnyVolumeDataSource": False}
    with pytest.raises(GateError) as caught:
        FeatureGates.from_overrides(wrong, other_gates_allowed=False)
    assert str(caught.value) == (
        "[cannot set feature gate AnyVolumeDataSource to false, feature is locked to true, "
        "cannot set feature gate InPlacePodVerticalScaling to false, feature is locked to true, "
        "unrecognized feature gate: PodLevelResourceManager]"
    )
    assert caught.value.hint == "remove it; did you mean PodLevelResourceManagers?"
    assert unknown_gate_hint("PodLevelResourceManagers", 35) == "Kubernetes 1.36 has it"


def test_gates_that_do_not_matter_here_are_known() -> None:
    """A gate of Kubernetes that podslice does not read is not a mistake."""
    assert FeatureGates.from_overrides({"KubeletTracing": True}, other_gates_allowed=False)["PodLevelResources"]
    assert FeatureGates.from_overrides({"AllAlpha": False}, other_gates_allowed=False)["PodLevelResources"]


def test_library_does_not_start() -> None:
    """A node with a misspelt gate gives the kubelet's error and our hint."""
    config = KubeletConfig(feature_gates={"PodLevelResourceManager": True})
    with pytest.raises(StartError, match=r"^unrecognized feature gate: PodLevelResourceManager$") as caught:
        Node(load_gallery("laptop-i5-8250u"), config)
    assert caught.value.remedy == "did you mean PodLevelResourceManagers?"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("Foo=true", "unrecognized feature gate: Foo (remove it)"),
        ("MemoryQos=true", "unrecognized feature gate: MemoryQos (did you mean MemoryQoS?)"),
        (
            "SidecarContainers=false",
            "cannot set feature gate SidecarContainers to false, feature is locked to true (remove it)",
        ),
    ],
)
def test_commands_say_what_the_kubelet_says(setting: str, message: str, tmp_path: Path) -> None:
    """admit, inspect and lint exit 2; in a file, lint finds an error."""
    result = run(*ON, "--set", f"featureGates.{setting}")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == f"podslice: error: kubelet featureGates: a kubelet would not start: {message}\n"
    assert message in run("inspect", "examples/small.yaml", "--gates", setting).stderr
    assert message in run("lint", "examples/small.yaml", "--set", f"featureGates.{setting}").stderr
    config = tmp_path / "kubelet.yaml"
    head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
    config.write_text(f"{head}featureGates: {{{setting.replace('=', ': ')}}}\n")
    linted = run("lint", str(config))
    assert linted.returncode == 1
    assert "PS406" in linted.stdout


@pytest.mark.slow
def test_gates_that_go_are_told() -> None:
    """The kubelet's log lines about GA and deprecated gates are warnings."""
    ga = 'Warning: setting GA feature gate. It will be removed in a future release. featureGate="{}" value={}'
    assert gate_warnings({"CustomCPUCFSQuotaPeriod": False, "PodLevelResources": True}) == [
        ga.format("CustomCPUCFSQuotaPeriod", "false")
    ]
    result = run(*ON, "--set", "featureGates.SidecarContainers=true")
    assert (result.returncode, result.stderr) == (0, f"warning: {ga.format('SidecarContainers', 'true')}\n")
    old = "featureGates.DisableCPUQuotaWithExclusiveCPUs=true"
    assert "setting deprecated feature gate" in run(*ON, "--set", old).stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "settings", "message"),
    [
        pytest.param("1.33", ("cpuManagerPolicyOptions.strict-cpu-reservation=true",
                              "featureGates.CPUManagerPolicyBetaOptions=false"),
                     "CPU Manager Policy Beta-level Options not enabled", id="beta in 1.33"),
        pytest.param("1.31", ("cpuManagerPolicyOptions.strict-cpu-reservation=true",),
                     'unknown CPU Manager Policy option: "strict-cpu-reservation"', id="not there in 1.31"),
        pytest.param("1.35", ("featureGates.PodLevelResourceManagers=true",),
                     "unrecognized feature gate: PodLevelResourceManagers (Kubernetes 1.36 has it)", id="gate of 1.36"),
        pytest.param("1.36", ("featureGates.InPlacePodVerticalScaling=false",), "feature is locked", id="locked"),
        pytest.param("1.34", ("featureGates.InPlacePodVerticalScaling=false",), "", id="not locked yet"),
        pytest.param("1.36", ("cpuManagerPolicyOptions.strict-cpu-reservation=true",
                              "featureGates.CPUManagerPolicyBetaOptions=false"), "", id="stable in 1.36"),
    ],
)  # fmt: skip
def test_state_verify_takes_the_gates_of_the_version(
    version: str, settings: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    """`state verify` judges the configuration as a kubelet of that version does."""
    machine = load_gallery("laptop-i5-8250u")
    node = Node(machine, KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0"))
    for name, data in node.files.items():
        (tmp_path / name).write_bytes(data)
    options = [part for setting in settings for part in ("--set", setting)]
    result = run("state", "verify", str(tmp_path), "--kubelet-version", version, "--machine", "laptop-i5-8250u",
                 "--set", "cpuManagerPolicy=static", "--set", "reservedSystemCPUs=0", *options)  # fmt: skip
    assert (result.returncode == 2) is bool(message), result.stderr
    assert message in result.stderr
    assert ("are not known here" in result.stderr) is (version == "1.31")
