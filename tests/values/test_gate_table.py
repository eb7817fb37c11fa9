"""The table of all feature gates, and what a kubelet says about wrong ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from podslice import KubeletConfig, Node, StartError
from podslice.machine.gallery import load_gallery
from podslice.values.gate_table import gate_states, gate_warnings, is_gate, unknown_gate_hint
from podslice.values.gates import GATES, FeatureGates, GateError
from podslice.values.releases.table import RELEASES
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


STAGES = {"Alpha": "ALPHA", "Beta": "BETA", "GA": "", "Deprecated": "DEPRECATED"}


def test_table_agrees_with_each_release(shared: Path) -> None:
    """Every gate that a release registers has its default, stage and lock; the table has no gate that it lacks, but
    those that other packages register."""
    registered = json.loads((shared / "spec" / "gates-by-release.json").read_text())
    elsewhere = {"DynamicResourceAllocation"}
    for minor in range(31, 36):
        states = gate_states(minor)
        for name, releases in registered.items():
            if f"1.{minor}" in releases:
                default, stage, locked = releases[f"1.{minor}"]
                assert states[name] == (default == "true", STAGES[stage], locked == "true"), (name, minor)
            elif name not in elsewhere:
                assert name not in states, (name, minor)


def test_gates_come_and_go_with_releases() -> None:
    """Releases differ in gates, stages and locks; a gate that is gone is unknown by name, and its feature stays on."""
    assert gate_states(32)["CPUManager"].locked
    assert "CPUManager" not in gate_states(33)
    assert gate_states(35)["MemoryManager"] == (True, "", True)
    assert "MemoryManager" not in gate_states(36)
    assert is_gate("MemoryManager")
    assert not is_gate("MemoryManagr")
    assert not gate_states(35)["TopologyManagerPolicyOptions"].locked
    assert gate_states(36)["TopologyManagerPolicyOptions"].locked
    for minor, on in ((31, True), (35, True), (36, True)):
        assert FeatureGates.from_overrides({}, release=RELEASES[minor])["MemoryManager"] is on
    off = FeatureGates.from_overrides({"MemoryManager": False}, release=RELEASES[31], other_gates_allowed=False)
    assert not off["MemoryManager"]
    assert "PodLevelResourceManagers" not in gate_states(35)
    assert gate_states(33)["PodLevelResources"] == (False, "ALPHA", False)
    assert gate_states(34)["PodLevelResources"] == (True, "BETA", False)
    assert not gate_states(34)["InPlacePodVerticalScaling"].locked
    with pytest.raises(KeyError):
        gate_states(30)


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


@pytest.mark.parametrize(
    ("minor", "gates", "error"),
    [
        pytest.param(33, {"CPUManager": True}, "unrecognized feature gate: CPUManager", id="gone in 1.33"),
        pytest.param(32, {"CPUManager": True}, "", id="locked on in 1.32"),
        pytest.param(35, {"MemoryManager": True}, "", id="known until 1.35"),
        pytest.param(36, {"MemoryManager": True}, "unrecognized feature gate: MemoryManager", id="gone in 1.36"),
        pytest.param(35, {"TopologyManagerPolicyOptions": False}, "", id="not locked in 1.35"),
        pytest.param(36, {"TopologyManagerPolicyOptions": False},
                     "cannot set feature gate TopologyManagerPolicyOptions to false, feature is locked to true",
                     id="locked in 1.36"),
        pytest.param(32, {"PodLevelResources": True}, "", id="alpha in 1.32"),
        pytest.param(31, {"PodLevelResources": True}, "unrecognized feature gate: PodLevelResources", id="not in 1.31"),
        pytest.param(34, {"PodLevelResources": False, "InPlacePodLevelResourcesVerticalScaling": True},
                     "unrecognized feature gate: InPlacePodLevelResourcesVerticalScaling", id="not in 1.34"),
        pytest.param(34, {"AllAlpha": True, "AllBeta": False}, "", id="dependencies are not checked in 1.34"),
        pytest.param(35, {"AllAlpha": True}, "", id="all alpha in 1.35"),
        pytest.param(35, {"AllBeta": False}, "", id="no beta in 1.35"),
        pytest.param(35, {"PodLevelResources": False}, "", id="off alone in 1.35"),
        pytest.param(35, {"PodLevelResources": False, "InPlacePodLevelResourcesVerticalScaling": True},
                     "is enabled, but depends on features that are disabled: [", id="dependency in 1.35"),
        pytest.param(35, {"AllAlpha": True, "AllBeta": False},
                     "is enabled, but depends on features that are disabled: [", id="alpha without beta in 1.35"),
        pytest.param(36, {"PodLevelResources": False},
                     "InPlacePodLevelResourcesVerticalScaling is enabled, but depends on features that are disabled: "
                     "[PodLevelResources]", id="off alone in 1.36"),
        pytest.param(34, {"SomeClientGate": True}, "", id="a name that no release in the table has may be another's"),
        pytest.param(36, {"SomeClientGate": True}, "unrecognized feature gate: SomeClientGate", id="1.36 is complete"),
    ],
)  # fmt: skip
def test_each_release_judges_gates(minor: int, gates: dict[str, bool], error: str) -> None:
    """A kubelet starts with the gates that its release has, as locked and dependent as they are there."""
    try:
        FeatureGates.from_overrides(gates, other_gates_allowed=False, release=RELEASES[minor])
        said = ""
    except GateError as caught:
        said = str(caught)
    assert (error in said) if error else not said


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
        pytest.param("1.30", ("featureGates.PodLevelResourceManagers=true",), "", id="not known here"),
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
    assert ("are not known here" in result.stderr) is (version == "1.30")


REMOVED = "remove it: Kubernetes 1.{} is the last to have it"
ALWAYS_ON = ", and its feature is always on since"


@pytest.mark.parametrize(
    ("name", "minor", "hint"),
    [
        ("KubeletPodResources", 36, REMOVED.format(29) + ALWAYS_ON),
        ("MemoryManager", 36, REMOVED.format(35) + ALWAYS_ON),
        ("TopologyManager", 31, REMOVED.format(28) + ALWAYS_ON),
        ("HPAContainerMetrics", 34, REMOVED.format(31) + ALWAYS_ON),
        ("DRAControlPlaneController", 33, REMOVED.format(31) + " and its feature is gone"),
        ("PodLevelResourceManagers", 34, "Kubernetes 1.36 has it"),
        ("CPUmanagerPolicyOptions", 36, "did you mean CPUManagerPolicyOptions?"),
        ("PodLevelResourcesManagers", 36, "did you mean PodLevelResourceManagers?"),
        ("CPUManagerPolicyGammaOptions", 36, "remove it"),
        ("MyOwnGate", 36, "remove it"),
    ],
)  # fmt: skip
def test_hint_for_an_unknown_gate(name: str, minor: int, hint: str) -> None:
    """A gate of another release is named as such, and only a typing error brings another gate."""
    assert unknown_gate_hint(name, minor) == hint
