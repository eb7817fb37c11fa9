"""Advice beside what a node keeps today, what was measured on it, the devices it has, and its release."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from podslice import InputError, KubeletConfig, Machine
from podslice.advise.reserve.advise import ReservationAdvice, ReservationRequest, advise
from podslice.advise.reserve.formulas import GIB, MIB, MeasuredAmounts
from podslice.advise.reserve.summaries import load_summaries
from podslice.cli.main import cli
from podslice.machine.devices import inventory_from_data
from podslice.machine.readers.synthetic import from_synthetic

EPYC: Machine = from_synthetic("pack:2 numa:1(memory=768GiB) core:96 pu:2")
TODAY = KubeletConfig(
    kube_reserved={"cpu": "2", "memory": "4Gi"},
    system_reserved={"cpu": "2", "memory": "4Gi"},
    eviction_hard={"memory.available": "500Mi"},
)


def request(formula: str = "auto", found: MeasuredAmounts | None = None, *, strict: bool = False) -> ReservationRequest:
    return ReservationRequest(formula=formula, found=found, strict=strict)


def amounts_of(advice: ReservationAdvice) -> tuple[str, str, str]:
    return advice.cpu, advice.memory, advice.eviction


def test_never_less_than_today() -> None:
    """Without measurements the advice keeps what the node keeps, where that is more, and says so."""
    advice = advise(EPYC, TODAY)
    assert amounts_of(advice) == ("4", "8Gi", "500Mi")
    assert {advice.origins.cpu, advice.origins.memory, advice.origins.eviction} == {"kept today"}
    assert advice.less == ()
    assert advice.lines["kubeReserved"] == advice.lines["systemReserved"] == {"memory": "4Gi"}


def test_each_amount_has_its_own_origin() -> None:
    """A node that keeps little CPU and much memory is advised to keep more CPU and the same memory."""
    advice = advise(EPYC, KubeletConfig(reserved_system_cpus="0", kube_reserved={"cpu": "9", "memory": "20Gi"}))
    assert amounts_of(advice)[:2] == ("1030m", "20Gi")
    assert (advice.origins.cpu, advice.origins.memory) == ("GKE, OKE", "kept today")


@pytest.mark.parametrize(
    ("config", "note"),
    [
        (KubeletConfig(kube_reserved={"cpu": "500"}), "500 CPU are reserved today, of 384: that leaves pods none"),
        (KubeletConfig(reserved_system_cpus="0-383"), "384 CPU are reserved today, of 384: that leaves pods none"),
        (
            KubeletConfig(kube_reserved={"memory": "2Ti"}),
            "is reserved today, of 1536Gi: that leaves pods none",
        ),
        (KubeletConfig(kube_reserved={"memory": "x"}), "'x' is reserved today, which no kubelet reads"),
    ],
)
def test_what_no_node_can_keep_is_no_floor(config: KubeletConfig, note: str) -> None:
    """A reservation of all that there is, or one that no kubelet reads, is named and not kept."""
    advice = advise(EPYC, config)
    assert amounts_of(advice) == ("1030m", "1465Mi", "100Mi")
    assert any(note in one for one in advice.notes)


def test_less_than_today_is_said() -> None:
    """A formula that is asked for gives its own amounts, and what is less than today is named."""
    advice = advise(EPYC, TODAY, request=request("eks"))
    assert amounts_of(advice) == ("1030m", "1465Mi", "100Mi")
    assert advice.less == (
        "2 CPUs instead of 4",
        "1465Mi of memory instead of 8Gi",
        "evictionHard memory.available 100Mi instead of 500Mi",
    )
    # Whole cores count: 1500m are two CPUs, which are no fewer than two.
    two = KubeletConfig(kube_reserved={"cpu": "2"})
    assert not any("CPU" in one for one in advise(EPYC, two, request=request("eks")).less)


def test_a_day_of_measurements_is_preferred() -> None:
    """Measurements of a day are the advice, also below what is kept; single samples only raise it."""
    day = MeasuredAmounts(2500.0, 3.0 * GIB, 24)
    advice = advise(EPYC, TODAY, request=request(found=day))
    assert amounts_of(advice) == ("2500m", "3Gi", "100Mi")
    assert any("8Gi" in one for one in advice.less)
    few = MeasuredAmounts(5500.0, 3.0 * GIB, 2, samples=9)
    advice = advise(EPYC, TODAY, request=request(found=few))
    assert amounts_of(advice) == ("5500m", "8Gi", "500Mi")
    assert (advice.origins.cpu, advice.origins.memory) == ("measured", "kept today")
    assert any("9 samples in 2 hours" in note for note in advice.notes)


@pytest.mark.parametrize(
    ("devices", "reason"),
    [
        ({}, "no device is known, so any NUMA node is as good as NUMA node 1"),
        ({0: 4, 1: 4}, "every NUMA node has 4 devices, so any is as good as NUMA node 1"),
        ({0: 4}, "NUMA node 1 has no device; no other has fewer"),
        ({0: 1, 1: 4}, "NUMA node 0 has 1 device; no other has fewer"),
    ],
)
def test_the_reason_is_true_of_the_devices(devices: dict[int, int], reason: str) -> None:
    """The reason for the place says how many devices there are, and praises no node that is like the others."""
    inventory = inventory_from_data([{"resource": "x.io/gpu", "perNUMANode": devices}]) if devices else None
    assert advise(EPYC, devices=inventory).reason == reason


def test_the_reason_of_a_reservation_on_several_nodes() -> None:
    """A reservation that does not fit on the node with the fewest devices says how many the others have."""
    small = from_synthetic("numa:3(memory=64GiB) core:2 pu:1")
    inventory = inventory_from_data([{"resource": "x.io/gpu", "perNUMANode": {0: 3, 1: 1}}])
    advice = advise(small, KubeletConfig(kube_reserved={"cpu": "3"}), devices=inventory)
    assert advice.reason == "NUMA nodes 1-2 have the fewest devices: 1, 0"


@pytest.mark.parametrize(
    ("release", "note", "gates"),
    [
        ("1.32", "is alpha in Kubernetes 1.32", {"CPUManagerPolicyAlphaOptions": True}),
        ("1.33", "is beta in Kubernetes 1.33: it needs feature gate CPUManagerPolicyBetaOptions", None),
        ("1.36", "", None),
    ],
)
def test_the_option_of_a_release(release: str, note: str, gates: dict[str, bool] | None) -> None:
    """`strict-cpu-reservation` comes with the feature gate that the release needs for it."""
    profile = "podslice" if release == "1.36" else f"podslice-{release}"
    advice = advise(EPYC, request=request(strict=True), profile=profile)
    assert advice.lines["cpuManagerPolicyOptions"] == {"strict-cpu-reservation": "true"}
    assert advice.lines.get("featureGates") == gates
    assert any("feature gate" in one for one in advice.notes) == bool(note)
    assert any(note in one for one in advice.notes)


def test_a_release_without_the_option() -> None:
    """A release before the option is an error that names the first one with it."""
    with pytest.raises(InputError, match=r"Kubernetes 1\.31 has no option strict-cpu-reservation: it is new in 1\.32"):
        advise(EPYC, request=request(strict=True), profile="podslice-1.31")


def test_other_reserved_cpus_need_a_drain() -> None:
    """A node under the static policy that reserves other CPUs than advised is told to drain first."""
    config = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0-1")
    assert any("CPUs 0-1 are reserved today: drain" in note for note in advise(EPYC, config).notes)
    same = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus=advise(EPYC).cpus)
    assert not any("drain" in note for note in advise(EPYC, same).notes)


def summary(at: str, cpu: int, pods_cpu: int, memory: int, pods_memory: int) -> dict[str, object]:
    """Return an answer of the Summary API, shortened to what is read."""
    return {
        "node": {
            "nodeName": "n7",
            "cpu": {"time": at, "usageNanoCores": cpu},
            "memory": {"time": at, "workingSetBytes": memory},
            "systemContainers": [
                {"name": "kubelet", "cpu": {"usageNanoCores": 1}, "memory": {"workingSetBytes": 1}},
                {"name": "pods", "cpu": {"usageNanoCores": pods_cpu}, "memory": {"workingSetBytes": pods_memory}},
            ],
        },
        "pods": [],
    }


def test_answers_of_the_kubelet(tmp_path: Path) -> None:
    """Several answers in a file: the most of node less pods, with a quarter more."""
    file = tmp_path / "usage.json"
    samples = [
        summary("2026-11-27T10:00:00Z", 9_000_000_000, 7_000_000_000, 9 * GIB, 5 * GIB),
        summary("2026-11-27T13:30:00Z", 8_000_000_000, 4_000_000_000, 9 * GIB, 7 * GIB),
    ]
    file.write_text("\n".join(map(json.dumps, samples)))
    found = load_summaries([str(file)])
    assert found == MeasuredAmounts(1.25 * 4000, 1.25 * 4 * GIB, 3, 2)
    options = ["reserve", "--machine", "xeon-6338-2s", "--from-metrics", str(file)]
    page = CliRunner().invoke(cli, options).output
    assert "reserve 5 CPU and 5Gi of memory" in page
    assert "CPU: what was measured; memory: what was measured" in page


def test_a_kubelet_that_lists_its_pods_only(tmp_path: Path) -> None:
    """Without the cgroup of all pods their amounts are added up; a pod without amounts has none."""
    answer = summary("2026-11-27T10:00:00Z", 3_000_000_000, 0, 4 * GIB, 0)
    node = answer["node"]
    assert isinstance(node, dict)
    del node["systemContainers"]
    one = {"cpu": {"usageNanoCores": 1_000_000_000}, "memory": {"workingSetBytes": GIB}}
    answer["pods"] = [one, one, {"podRef": {"name": "new"}}]
    file = tmp_path / "usage.json"
    file.write_text(json.dumps(answer))
    assert load_summaries([str(file)]) == MeasuredAmounts(1250.0, 1.25 * 2 * GIB, 0, 1)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("[1]", "is not an answer of a kubelet's Summary API"),
        ('{"kind": "NodeMetrics"}', "is not an answer of a kubelet's Summary API"),
        ('{"node": {"cpu": {"time": "2026-11-27T10:00:00Z"}}}', "node.cpu.usageNanoCores: is missing"),
        ('{"node": {"cpu": {"time": "noon", "usageNanoCores": 1}, "memory": {"workingSetBytes": 1}}}', "is not a time"),
        ('{"node": {"cpu": {"usageNanoCores": -1}}}', "node.cpu.usageNanoCores: -1 is not an amount"),
    ],
)
def test_files_that_are_no_answers(tmp_path: Path, text: str, problem: str) -> None:
    """Other files are errors that name the field and the command that gives the right ones."""
    file = tmp_path / "usage.json"
    file.write_text(text)
    with pytest.raises(InputError, match="kubectl get --raw") as error:
        load_summaries([str(file)])
    assert problem in str(error.value)


def test_the_page_names_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first line names the machine that the advice is about, and the formulas have their addresses."""
    file = tmp_path / "genoa.yaml"
    file.write_text("{sockets: 2, numaPerSocket: 1, coresPerNuma: 8, threadsPerCore: 2, memoryPerNuma: 64Gi}\n")
    monkeypatch.chdir(tmp_path)
    page = CliRunner().invoke(cli, ["reserve", "--from", "genoa.yaml"]).output
    assert "The machine of --from genoa.yaml, 110 pods: reserve" in page
    assert "this machine" not in page.lower()
    assert "openshift: https://github.com/openshift/" in page
    assert f"{1465 * MIB >> 20}Mi of memory" in page


def test_two_measurements_are_one_too_many(tmp_path: Path) -> None:
    """An agent's measurements and the kubelet's answers are not mixed."""
    options = ["reserve", "--machine", "xeon-6338-2s", "--measured", str(tmp_path), "--from-metrics", str(tmp_path)]
    assert "both give what was measured" in str(CliRunner().invoke(cli, options).exception)
