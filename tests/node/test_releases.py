"""Differences between the kubelets of the releases: every row of docs/releases.md that concerns a node."""

from __future__ import annotations

import msgspec
import pytest

from podslice import KubeletConfig, Node, StartError
from podslice.advise.upgrade.engine import walk
from podslice.api.pod.spec import Pod, pod_from_dict
from podslice.config.validation import validate
from podslice.machine.devices import inventory_from_data
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.checkpoints.content import read_content
from podslice.node.effects.oom import oom_score_adjustments
from podslice.values.errors import InputError
from podslice.values.quirks import KUBELET_1_36, PROFILE_NAMES, PROFILE_RELEASES, Quirks, profile_for, quirks_of
from podslice.values.releases import table
from podslice.values.releases.release import Release, Row
from podslice.values.releases.table import DEFAULT, NEWEST, OLDEST, RELEASES, parse_release

MACHINE = from_synthetic("pack:1 numa:2(memory=8GiB) core:4 pu:2")
MACHINE = msgspec.structs.replace(
    MACHINE,
    nodes=tuple(msgspec.structs.replace(node, distances=(10, 20)) for node in MACHINE.nodes),
)
STATIC = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0")
EVERY = [str(release) for release in RELEASES.values()]


def guaranteed(name: str, cpus: str, *, memory: str = "1Gi", **spec: object) -> Pod:
    """A Guaranteed pod of one container."""
    own = {"cpu": cpus, "memory": memory}
    container = {"name": "app", "image": "x", "resources": {"requests": own, "limits": own}}
    return pod_from_dict(
        {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"containers": [container], **spec}}
    )


def config(**fields: object) -> KubeletConfig:
    return msgspec.structs.replace(STATIC, **fields)


def profile(minor: int) -> str:
    return f"kubelet-1.{minor}"


# Names of releases


@pytest.mark.parametrize("text", ["1.34", "v1.34", "1.34.9", "v1.34.9", "v1.34.5-gke.100", "v1.34.2+rke2r1"])
def test_versions_name_releases(text: str) -> None:
    """A release is named as people, `kubectl version` and Node objects write it."""
    assert parse_release(text) is RELEASES[34]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1.30", f"Kubernetes 1.30 is not known here (known are 1.31 to 1.{NEWEST}; nearest is 1.31)"),
        ("v1.99.0", f"Kubernetes 1.99 is not known here (known are 1.31 to 1.{NEWEST}; nearest is 1.{NEWEST})"),
        ("34", "'34' is not a Kubernetes version (write for example 1.34)"),
        ("1.34 ; x", "'1.34 ; x' is not a Kubernetes version (write for example 1.34)"),
    ],
)
def test_unknown_releases_are_not_guessed(text: str, said: str) -> None:
    """The nearest known release is named, and none is taken."""
    with pytest.raises(InputError) as caught:
        Node(MACHINE, STATIC, kubernetes=text)
    assert str(caught.value) == said


def test_profile_is_a_release_and_its_defects() -> None:
    """A kubelet's profile has the defects of its release; podslice has none, of whatever release."""
    assert ("podslice", *(f"kubelet-{release}" for release in EVERY)) == PROFILE_NAMES
    assert all(getattr(KUBELET_1_36, name) for name in Quirks.__struct_fields__)
    assert Node(MACHINE, STATIC).rules.release is DEFAULT is RELEASES[36]
    assert Node(MACHINE, STATIC, profile="kubelet-1.34").rules.release is RELEASES[34]
    assert Node(MACHINE, STATIC, kubernetes="v1.33.1").rules.quirks == Quirks()
    assert profile_for("podslice", "1.32") == "podslice-1.32"
    assert profile_for("podslice", "v1.36.4") == "podslice"
    assert profile_for("kubelet-1.34", "1.34") == "kubelet-1.34"
    with pytest.raises(InputError, match=r"kubelet-1.36 is of Kubernetes 1.36, not 1.34 \(use kubelet-1.34\)$"):
        profile_for("kubelet-1.36", "1.34")
    with pytest.raises(InputError, match=r"unknown profile 'kubelet-1\.0'"):
        PROFILE_RELEASES["kubelet-1.0"]


def test_defects_begin_and_end() -> None:
    """A defect is in the releases that have it."""
    assert not quirks_of(RELEASES[35]).pod_allocation_repeats
    assert quirks_of(RELEASES[36]).pod_pool_is_listed
    assert not quirks_of(RELEASES[37]).pod_pool_is_listed
    assert quirks_of(RELEASES[37]).amounts_wrap


@pytest.mark.parametrize("version", EVERY)
def test_nodes_start_and_decide(version: str) -> None:
    """A node of each release starts, decides, and starts again on its own files."""
    node = Node(MACHINE, STATIC, profile=f"kubelet-{version}")
    assert node.admit(guaranteed("a", "2")).admitted
    again = Node(MACHINE, STATIC, profile=f"kubelet-{version}", files=node.manager_files)
    assert again.shared_cpus == node.shared_cpus


def test_a_made_up_release_says_what_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release names only what it does otherwise, the rest is its predecessor's; and everything that asks for the
    release of a kubelet knows it, without another line of code."""
    newest = RELEASES[NEWEST]
    row = Row("device hints", "over nodes with devices", "over all", "announced", "always")
    later = newest.next(
        minor=99,
        proof="specification",
        rows=(row,),
        gates="Made a-\nMemoryQoS gone\nDRAExtendedResource gone\n",
        needs="Made PodLevelResources\n",
        cpu_options={"full-pcpus-only": "Beta"},
        config_fields={"v1beta1.KubeletConfiguration": "bool: madeUp"},
        device_hints_on_nodes_with_devices=False,
    )
    assert (later.minor, str(later)) == (99, "1.99")
    assert later.cpu_options == {**newest.cpu_options, "full-pcpus-only": "Beta"}
    said = {"minor", "proof", "rows", "gates", "needs", "cpu_options", "config_fields"}
    assert {name for name in Release.__struct_fields__ if getattr(later, name) != getattr(newest, name)} == {
        *said,
        "device_hints_on_nodes_with_devices",
    } - {"proof"}
    assert str(later.rows[0]) == "device hints: over nodes with devices before 1.99, over all since"
    monkeypatch.setitem(RELEASES, later.minor, later)
    settings = config(
        feature_gates={"MemoryQoS": True, "CPUManagerPolicyBetaOptions": False},
        cpu_manager_policy_options={"full-pcpus-only": "true"},
    )
    *_, step = walk(Node(MACHINE, settings, kubernetes="1.36"), (), later, step_by_step=True)
    assert (step.before, step.after) == (str(newest), "1.99")
    assert step.errors[0] == "unrecognized feature gate: MemoryQoS"
    assert [(one.subject, one.text) for one in step.configuration if not one.harms][:1] == [
        ("cpuManagerPolicyOptions.full-pcpus-only", "was stable, is beta")
    ]
    assert not step.proven
    assert list(table.RELEASES) == [*range(OLDEST, NEWEST + 1), 99]


# Options of policies


@pytest.mark.parametrize(
    ("minor", "options", "gates", "error"),
    [
        pytest.param(31, {"strict-cpu-reservation": "true"}, {"CPUManagerPolicyAlphaOptions": True},
                     'unknown CPU Manager Policy option: "strict-cpu-reservation"', id="strict unknown in 1.31"),
        pytest.param(31, {"prefer-align-cpus-by-uncorecache": "true"}, {"CPUManagerPolicyAlphaOptions": True},
                     'unknown CPU Manager Policy option: "prefer-align-cpus-by-uncorecache"', id="uncore in 1.31"),
        pytest.param(32, {"strict-cpu-reservation": "true"}, {}, "Alpha-level Options not enabled",
                     id="strict in 1.32"),
        pytest.param(32, {"strict-cpu-reservation": "true"}, {"CPUManagerPolicyAlphaOptions": True}, "",
                     id="with gate"),
        pytest.param(33, {"strict-cpu-reservation": "true"}, {}, "", id="strict in 1.33"),
        pytest.param(34, {"strict-cpu-reservation": "true"}, {"CPUManagerPolicyBetaOptions": False},
                     "Beta-level Options not enabled", id="strict in 1.34"),
        pytest.param(35, {"strict-cpu-reservation": "true"}, {"CPUManagerPolicyBetaOptions": False}, "",
                     id="strict in 1.35"),
        pytest.param(32, {"full-pcpus-only": "true"}, {"CPUManagerPolicyBetaOptions": False},
                     "Beta-level Options not enabled", id="full in 1.32"),
        pytest.param(33, {"full-pcpus-only": "true"}, {"CPUManagerPolicyBetaOptions": False}, "", id="full in 1.33"),
        pytest.param(32, {"distribute-cpus-across-numa": "true"}, {}, "Alpha-level Options not enabled",
                     id="distribute in 1.32"),
        pytest.param(33, {"distribute-cpus-across-numa": "true"}, {}, "", id="distribute in 1.33"),
        pytest.param(33, {"prefer-align-cpus-by-uncorecache": "true"}, {}, "Alpha-level Options not enabled",
                     id="uncore in 1.33"),
        pytest.param(34, {"prefer-align-cpus-by-uncorecache": "true"}, {}, "", id="uncore in 1.34"),
        pytest.param(35, {"prefer-align-cpus-by-uncorecache": "true"}, {"CPUManagerPolicyBetaOptions": False},
                     "Beta-level Options not enabled", id="uncore in 1.35"),
        pytest.param(36, {"prefer-align-cpus-by-uncorecache": "true"}, {"CPUManagerPolicyBetaOptions": False}, "",
                     id="uncore in 1.36"),
        pytest.param(37, {"prefer-align-cpus-by-uncorecache": "true"}, {"CPUManagerPolicyBetaOptions": False}, "",
                     id="uncore in 1.37"),
    ],
)  # fmt: skip
def test_cpu_options(minor: int, options: dict[str, str], gates: dict[str, bool], error: str) -> None:
    """An option starts with the maturity that it has in the release."""
    check_start(minor, config(cpu_manager_policy_options=options, feature_gates=gates), error)


@pytest.mark.parametrize(
    ("minor", "option", "error"),
    [
        pytest.param(
            31, "prefer-closest-numa-nodes", "Topology Manager Policy Beta-level Options", id="closest in 1.31"
        ),
        pytest.param(32, "prefer-closest-numa-nodes", "", id="closest in 1.32"),
        pytest.param(32, "max-allowable-numa-nodes", "Topology Manager Policy Beta-level Options", id="most in 1.32"),
        pytest.param(33, "max-allowable-numa-nodes", "topology manager policy beta-level options", id="most in 1.33"),
        pytest.param(34, "max-allowable-numa-nodes", "topology manager policy beta-level options", id="most in 1.34"),
        pytest.param(35, "max-allowable-numa-nodes", "", id="most in 1.35"),
    ],
)
def test_topology_options(minor: int, option: str, error: str) -> None:
    """An option of the Topology Manager needs the gate of its maturity, in the words of the release."""
    value = "8" if option.startswith("max") else "true"
    words = "not enabled, but option" if error else ""
    off = {"TopologyManagerPolicyBetaOptions": False}
    settings = config(
        topology_manager_policy="restricted", topology_manager_policy_options={option: value}, feature_gates=off
    )
    check_start(minor, settings, error and f'{error} {words} "{option}" provided')


def check_start(minor: int, settings: KubeletConfig, error: str) -> None:
    """A kubelet of the release starts, or ends with this error."""
    if not error:
        Node(MACHINE, settings, profile=profile(minor))
        return
    with pytest.raises(StartError) as caught:
        Node(MACHINE, settings, profile=profile(minor))
    assert error in caught.value.message


@pytest.mark.parametrize(("minor", "valid"), [(31, False), (32, True)])
def test_compressible_reservations(minor: int, valid: bool) -> None:
    """1.31 does not know the compressible keys of enforceNodeAllocatable."""
    settings = KubeletConfig(
        enforce_node_allocatable=("pods", "kube-reserved-compressible"), kube_reserved_cgroup="/kube.slice"
    )
    problems = [str(one) for one in validate(settings, RELEASES[minor])]
    said = (
        'invalid configuration: option "kube-reserved-compressible" specified for enforceNodeAllocatable '
        "(--enforce-node-allocatable). "
        'Valid options are "pods", "system-reserved", "kube-reserved" or "none"'
    )
    assert problems == ([] if valid else [said])


# Decisions


@pytest.mark.parametrize(("minor", "caches"), [(33, 2), (34, 1), (36, 1)])
def test_odd_parts_of_caches(minor: int, caches: int) -> None:
    """Seven CPUs of an 8-CPU cache come from one cache from 1.34 on; before, only whole cores do."""
    machine = from_synthetic("pack:1 numa:1(memory=8GiB) l3:4 core:4 pu:2")
    options = {"prefer-align-cpus-by-uncorecache": "true"}
    settings = config(cpu_manager_policy_options=options, feature_gates={"CPUManagerPolicyAlphaOptions": True})
    node = Node(machine, settings, profile=profile(minor))
    node.admit(guaranteed("a", "3"))
    taken = node.admit(guaranteed("b", "7")).containers[0].cpus.bits
    assert sum(bool(cpus & taken) for cpus in node.topology.uncore_caches.values()) == caches


@pytest.mark.parametrize(
    ("minor", "gates", "exclusive"),
    [
        pytest.param(32, {"PodLevelResources": True}, True, id="by containers in 1.32"),
        pytest.param(33, {"PodLevelResources": True}, True, id="by containers in 1.33"),
        pytest.param(34, {}, False, id="ignored in 1.34"),
        pytest.param(34, {"PodLevelResources": False}, True, id="not with the gate off in 1.34"),
        pytest.param(35, {}, False, id="ignored in 1.35"),
        pytest.param(35, {"PodLevelResources": False}, True, id="not with the gate off in 1.35"),
        pytest.param(36, {}, False, id="ignored in 1.36"),
        pytest.param(36, {"PodLevelResources": False, "InPlacePodLevelResourcesVerticalScaling": False}, False,
                     id="with the gate off too in 1.36"),
    ],
)  # fmt: skip
def test_pods_with_pod_level_resources(minor: int, gates: dict[str, bool], exclusive: bool) -> None:
    """Managers judge such pods by their containers up to 1.33, then ignore them while the gate is on, then always."""
    node = Node(MACHINE, config(feature_gates=gates), profile=profile(minor), predicates=False)
    own = {"cpu": "4", "memory": "2Gi"}
    decision = node.admit(guaranteed("a", "2", resources={"requests": own, "limits": own}))
    assert decision.admitted
    assert decision.containers[0].exclusive is exclusive


@pytest.mark.parametrize(("minor", "disabled"), [(31, False), (32, False), (33, True), (36, True), (37, True)])
def test_quota_of_exclusive_cpus(minor: int, disabled: bool) -> None:
    """Containers with exclusive CPUs have no CFS quota from 1.33 on."""
    node = Node(MACHINE, STATIC, profile=profile(minor))
    assert node.admit(guaranteed("a", "2")).containers[0].cfs_quota is not disabled


@pytest.mark.parametrize(
    ("minor", "said"),
    [
        (31, "SMT Alignment Error: requested 2 cpus not multiple cpus per core = 2"),
        (32, "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 0, requested CPUs = 2, "
             "CPUs per core = 2"),
    ],
)  # fmt: skip
def test_no_free_core(minor: int, said: str) -> None:
    """Without any free core, 1.31 says that the request does not fill cores."""
    machine = from_synthetic("pack:1 numa:1(memory=8GiB) core:2 pu:2")
    settings = config(cpu_manager_policy_options={"full-pcpus-only": "true"}, reserved_system_cpus="0-1")
    node = Node(machine, settings, profile=profile(minor), predicates=False)
    assert node.admit(guaranteed("a", "2")).message == said


@pytest.mark.parametrize(("minor", "stays"), [(31, True), (32, False)])
def test_refused_pod_stays_until_another_comes(minor: int, stays: bool) -> None:
    """1.31 remembers the pod under admission as active: what a refused one got is free when the next one comes."""
    kubelet = Node(MACHINE, config(topology_manager_policy="restricted"), profile=profile(minor)).kubelet
    amounts = ({"cpu": cpus, "memory": "1Gi"} for cpus in ("4", "40"))
    four, forty = ({"requests": own, "limits": own} for own in amounts)
    refused = pod_from_dict({
        "metadata": {"name": "refused", "namespace": "default", "uid": "refused"},
        "spec": {"containers": [
            {"name": name, "image": "x", "resources": own}
            for name, own in (("first", four), ("second", forty))
        ]},
    })  # fmt: skip
    assert kubelet.admit(refused) is not None
    kubelet.collect()
    assert ("refused" in kubelet.manager.cpu.state.assignments) is stays
    assert kubelet.admit(guaranteed("next", "2")) is None
    kubelet.collect()
    assert list(kubelet.manager.cpu.state.assignments) == ["next"]


@pytest.mark.parametrize("minor", [31, 32])
def test_removed_pod_of_1_31_stays_until_another_comes(minor: int) -> None:
    """So does what the last admitted pod held, when it is removed; a restarted kubelet remembers nothing."""
    kubelet = Node(MACHINE, STATIC, profile=profile(minor)).kubelet
    kubelet.admit(guaranteed("a", "2"))
    kubelet.remove_pod("a")
    kubelet.collect()
    assert ("a" in kubelet.manager.cpu.state.assignments) is (minor == 31)
    kubelet.restart()
    kubelet.sources_ready()
    kubelet.collect()
    assert not kubelet.manager.cpu.state.assignments


@pytest.mark.parametrize(("minor", "written"), [(31, False), (32, True)])
def test_gate_of_the_memory_manager(minor: int, written: bool) -> None:
    """Up to 1.31 the gate turns the Memory Manager off; later it is locked."""
    settings = config(feature_gates={"MemoryManager": written})
    assert ("memory_manager_state" in Node(MACHINE, settings, profile=profile(minor)).manager_files) is written
    if minor > 31:
        check_start(minor, config(feature_gates={"MemoryManager": False}), "feature is locked to true")


@pytest.mark.parametrize(("minor", "counted"), [(32, False), (33, True)])
def test_metrics_of_misalignment(minor: int, counted: bool) -> None:
    """Refusals for lack of alignment, and containers on one cache, are counted from 1.33 on."""
    settings = config(topology_manager_policy="single-numa-node")
    kubelet = Node(MACHINE, settings, profile=profile(minor)).kubelet
    kubelet.admit(guaranteed("a", "2"))
    kubelet.admit(guaranteed("b", "10"))
    names = {metric.text for metric, value in kubelet.manager.context.metrics.items() if value}
    failed = "container_aligned_compute_resources_failure_count{boundary=numa_node,scope=container}"
    cache = "container_aligned_compute_resources_count{boundary=uncore_cache,scope=container}"
    assert {failed, cache} & names == ({failed, cache} if counted else set())


@pytest.mark.parametrize(("minor", "scores"), [(31, [985, 500]), (32, [500, 500])])
def test_oom_score_of_sidecars(minor: int, scores: list[int]) -> None:
    """From 1.32 on a sidecar is not killed before the app container that requests least."""
    pod = pod_from_dict({
        "metadata": {"name": "p", "uid": "p"},
        "spec": {
            "initContainers": [{"name": "side", "restartPolicy": "Always", "image": "x",
                                "resources": {"requests": {"memory": "16Mi"}}}],
            "containers": [{"name": "app", "image": "x", "resources": {"requests": {"memory": "512Mi"}}}],
        },
    })  # fmt: skip
    gates = Node(MACHINE, STATIC, profile=profile(minor)).rules.gates
    assert oom_score_adjustments(pod, gates, 1 << 30, RELEASES[minor]) == scores


def test_device_hints_of_all_nodes() -> None:
    """Up to 1.35 the Device Manager's hints are sets of all NUMA nodes, also of those without devices."""
    devices = inventory_from_data([{"resource": "example.com/nic", "devices": [{"id": "d0", "numa": [1]}]}])
    nodes = {}
    for minor in (31, 35, 36, 37):
        node = Node(MACHINE, STATIC, profile=profile(minor), devices=devices)
        nodes[minor] = node.kubelet.manager.device.state.pools["example.com/nic"].coverage.nodes
    assert nodes == {31: (0, 1), 35: (0, 1), 36: (1,), 37: (1,)}


# State files


def test_files_of_1_37() -> None:
    """A 1.37 kubelet writes the older members with their checksum, and its own content beside them."""
    newer = Node(MACHINE, STATIC, kubernetes="1.37")
    older = Node(MACHINE, STATIC, kubernetes="1.36")
    for node in (newer, older):
        node.admit(guaranteed("a", "2"))
    for name, version in (("cpu_manager_state", "v4"), ("memory_manager_state", "v3")):
        data = newer.manager_files[name]
        assert data.startswith(older.manager_files[name].removesuffix(b"}") + b',"data":')
        content = read_content(data)
        assert (content.version, content.intact) == (version, True)
    again = Node(MACHINE, STATIC, kubernetes="1.37", files=newer.manager_files)
    assert again.shared_cpus == newer.shared_cpus
    for minor in range(31, 37):
        assert Node(MACHINE, STATIC, profile=profile(minor), files=newer.manager_files).shared_cpus == newer.shared_cpus


@pytest.mark.parametrize(("minor", "starts"), [(31, False), (35, False), (36, True)])
def test_memory_file_with_checksum_zero(minor: int, starts: bool) -> None:
    """A memory state file with checksum 0 is corrupted up to 1.35."""
    files = dict(Node(MACHINE, STATIC).manager_files)
    data = files["memory_manager_state"]
    files["memory_manager_state"] = data[: data.index(b'"checksum"')] + b'"checksum":0}'
    if starts:
        Node(MACHINE, STATIC, profile=profile(minor), files=files)
        return
    with pytest.raises(StartError, match="checkpoint is corrupted"):
        Node(MACHINE, STATIC, profile=profile(minor), files=files)
