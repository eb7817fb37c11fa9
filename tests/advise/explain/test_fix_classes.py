"""Changes that rebuilt bug reports asked for: larger requests, reservations elsewhere, fewest pods, and commands."""

from __future__ import annotations

from typing import Any

import pytest
from click import unstyle

from podslice import KubeletConfig, Node, Pod
from podslice.advise.explain.explain import Explainer, explain, find_fixes
from podslice.advise.explain.fixes.alternatives import Alternatives
from podslice.advise.explain.fixes.changes import EditPod, Reconfigure, Remove
from podslice.advise.explain.fixes.fix import Fix
from podslice.advise.explain.fixes.search import ENDED, search_fixes
from podslice.advise.explain.table import fixes_text
from podslice.advise.trial.trial import Trial
from podslice.api.pod.spec import pod_from_dict
from podslice.config.kubelet import MemoryReservation
from podslice.machine.devices import inventory_from_data
from podslice.machine.readers.synthetic import from_synthetic
from tests.conftest import make_pod


def of_class(fixes: list[Fix], code: str) -> list[Fix]:
    return [fix for fix in fixes if fix.code == code]


def static(policy: str, **more: Any) -> KubeletConfig:
    return KubeletConfig(
        cpu_manager_policy="static", topology_manager_policy=policy, eviction_hard={},
        **{"reserved_system_cpus": "0", **more},
    )  # fmt: skip


def container(name: str, cpu: str, **more: str) -> dict[str, Any]:
    return {"name": name, "resources": {"limits": {"cpu": cpu, "memory": "64Mi", **more}}}


def pod_of(name: str, *containers: dict[str, Any], init: tuple[dict[str, Any], ...] = (), **more: Any) -> Pod:
    spec = {"containers": list(containers), "initContainers": list(init)}
    return pod_from_dict({"metadata": {"name": name, "namespace": "shop", "uid": name}, "spec": spec, **more})


@pytest.mark.parametrize(("threads", "asked", "after"), [(2, "8", "9"), (1, "4", "5")], ids=["smt", "no-smt"])
def test_one_cpu_more_takes_both_numa_nodes(threads: int, asked: str, after: str) -> None:
    """v1.36.2 counts reserved CPUs, so that a NUMA node of 8 with one reserved is the narrowest set for 8 CPUs and has
    7: 9 CPUs need both nodes, as the devices do (kubernetes/kubernetes#132187)."""
    devices = inventory_from_data([{"resource": "example.com/nic", "perNUMANode": {0: 1, 1: 1}}])
    machine = from_synthetic(f"pack:2 numa:1(memory=16GiB) core:4 pu:{threads}")
    node = Node(machine, static("restricted", reserved_system_cpus="0,4"), devices=devices,
                profile="kubelet-1.36")  # fmt: skip
    pod = pod_of("w", container("app", asked, **{"example.com/nic": "2"}))
    first = find_fixes(node, pod)[0]
    assert (first.code, first.text) == ("raise", f"Ask for {after} instead of {asked} CPUs in container app")
    assert first.because == (
        f"{after} CPUs need 2 NUMA nodes even on an empty node, so the kubelet takes 2; "
        f"for {asked} CPUs it takes only 1"
    )
    assert first.losses == ()
    # The reserved CPUs are not counted without the defect.
    assert Node(machine, node.view.config, devices=devices).try_admit(pod).admitted


def test_more_devices_and_more_memory_take_more_numa_nodes() -> None:
    """What holds for CPUs holds for devices and for memory."""
    devices = inventory_from_data([{"resource": "example.com/gpu", "perNUMANode": {0: 2, 1: 2}}])
    machine = from_synthetic("pack:2 numa:1(memory=16GiB) core:4 pu:1")
    node = Node(machine, static("restricted"), devices=devices)
    found = find_fixes(node, pod_of("w", container("app", "5", **{"example.com/gpu": "2"})))
    (raised,) = of_class(found, "raise")
    assert raised.text == "Ask for 3 instead of 2 example.com/gpu in container app"
    memory = static("restricted", memory_manager_policy="Static", system_reserved={"memory": "1Gi"},
                    reserved_memory=(MemoryReservation(0, {"memory": "1Gi"}),))  # fmt: skip
    found = find_fixes(Node(machine, memory), pod_of("w", container("app", "5", memory="8Gi")))
    (raised,) = of_class(found, "raise")
    assert raised.text == "Ask for 16385Mi instead of 8Gi memory in container app"


def test_an_init_container_is_raised_to_what_the_app_asks() -> None:
    """An init container of one CPU binds the app to a NUMA node with too little; with the app's 14 its own CPUs are
    used again (kubernetes/kubernetes#94220)."""
    node = Node(from_synthetic("pack:2 numa:1(memory=16GiB) core:16 pu:1"),
                static("single-numa-node", reserved_system_cpus="0-2"))  # fmt: skip
    first, *rest = find_fixes(node, pod_of("w", container("app", "14"), init=(container("init-1", "1"),)))
    assert first.text == "Ask for 14 instead of 1 CPUs in init container init-1"
    assert (first.because, first.losses) == ("container app then gets its CPUs", ())
    assert isinstance(first.change, EditPod)
    assert node.try_admit(first.change.pod).admitted
    assert rest[0].text == "Ask for 13 instead of 14 CPUs in container app"


def test_a_memory_reservation_is_split_over_the_numa_nodes() -> None:
    """A second pod fits where the same memory is reserved on both NUMA nodes (kubernetes/kubernetes#120733). The
    kubelet does not start on the old file of the Memory Manager."""
    config = static("best-effort", memory_manager_policy="Static", system_reserved={"memory": "10Gi"},
                    reserved_memory=(MemoryReservation(0, {"memory": "10Gi"}),))  # fmt: skip
    node = Node(from_synthetic("pack:2 numa:1(memory=94GiB) core:8 pu:1"), config)
    assert node.admit(pod_of("a", container("app", "4", memory="85Gi"))).admitted
    found = find_fixes(node, pod_of("b", container("app", "4", memory="85Gi")))
    (split,) = of_class(found, "split-reservation")
    assert split in found[:2]
    assert isinstance(split.change, Reconfigure)
    assert split.change.config.reserved_memory == tuple(MemoryReservation(numa, {"memory": "5Gi"}) for numa in (0, 1))
    assert [one.name for one in split.affected] == ["a"]
    assert "sudo rm /var/lib/kubelet/memory_manager_state" in " ".join(split.commands)
    assert "cpu_manager_state" not in " ".join(split.commands)
    assert "reservedMemory: [{numaNode: 0, limits: {memory: 5Gi}}, {numaNode: 1, limits: {memory: 5Gi}}]" in " ".join(
        split.commands
    )


def test_reserved_cpus_move_to_another_numa_node() -> None:
    """A pod as large as a NUMA node fits once all reserved CPUs are on the other one; running pods stay."""
    node = Node(from_synthetic("pack:2 numa:1(memory=16GiB) core:4 pu:1"),
                static("single-numa-node", reserved_system_cpus="0,4"))  # fmt: skip
    assert node.admit(pod_of("a", container("app", "2"))).admitted
    (split,) = of_class(find_fixes(node, pod_of("b", container("app", "4"))), "split-reservation")
    assert split.text.endswith("restart the kubelet; running pods keep what they have")
    assert split.affected == ()
    assert [edit.path for edit in split.edits] == ["reservedSystemCPUs"]


def test_the_fewest_pods_leave() -> None:
    """Where one or two are not enough, the pods that own most on one NUMA node leave, not the small ones."""
    node = Node(from_synthetic("pack:2 numa:1(memory=64GiB) core:32 pu:1"), static("single-numa-node"))
    sizes = [1, 1, 1, 10, 9, 8, *[2] * 16]
    for number, size in enumerate(sizes):
        assert node.admit(pod_of(f"p{number}", container("c", str(size)))).admitted
    (fix,) = of_class(find_fixes(node, pod_of("big", container("c", "26"))), "evict-pods")
    assert isinstance(fix.change, Remove)
    assert set(fix.change.uids) == {"p3", "p4", "p5"}
    assert fix.text == "Delete shop/p3, shop/p4 and shop/p5, which own 27 CPUs, and let them run on other nodes"
    assert fix.commands == ("kubectl delete pod -n shop p3 p4 p5",)


def test_a_pod_that_comes_back_is_deleted_once() -> None:
    """The pod that fits elsewhere is named with its NUMA node; its deletion is not proposed a second time, and the
    refused pod itself is deleted where its status says that it was refused."""
    node = Node(from_synthetic("pack:2 numa:1(memory=16GiB) core:8 pu:1"), static("single-numa-node"))
    for name in ("first", "other"):
        assert node.admit(pod_of(name, container("c", "4"))).admitted
    node.remove("first")
    status = {"phase": "Failed", "reason": "TopologyAffinityError", "message": "m"}
    found = find_fixes(node, pod_of("big", container("c", "8"), status=status))
    (fix,) = [one for one in found if isinstance(one.change, Remove)]
    assert fix.text == "Delete shop/other, let this pod start, then let other come back: it will fit on NUMA 0"
    assert fix.commands == (
        "kubectl delete pod -n shop other",
        "kubectl delete pod -n shop big",
        "# once this pod runs, create shop/other again if no controller does",
    )
    again = Explainer(Trial.of(node))
    again.explain(pod_of("big", container("c", "8"), status=status))
    twin = again.explain(pod_of("twin", container("c", "8"), status=status))
    assert "kubectl delete pod -n shop twin" in next(one for one in twin.fixes if one.text == fix.text).commands


def test_leaving_out_huge_pages_is_a_loss() -> None:
    """A container that asked for huge pages and gets none has lost something."""
    node = Node(from_synthetic("pack:1 numa:1(memory=16GiB) core:4 pu:1"), static("none"))
    found = find_fixes(node, pod_of("dpdk", container("dpdk", "1", **{"hugepages-1Gi": "1Gi"})))
    (dropped,) = [fix for fix in found if fix.text == "Leave out hugepages-1Gi of container dpdk"]
    assert dropped.losses == ("resources",)


def test_what_to_type_for_a_request() -> None:
    """Amounts are set in the manifest; what `kubectl set resources` cannot do is a comment."""
    node = Node(from_synthetic("pack:1 numa:1(memory=16GiB) core:4 pu:1"), static("none"), predicates=False)
    found = find_fixes(node, pod_of("w", container("app", "4")))
    (shrunk,) = of_class(found, "shrink")
    assert shrunk.commands == (
        "kubectl set resources --local -f manifest.yaml -c app --requests=cpu=3 --limits=cpu=3 -o yaml"
        " | kubectl apply -f -",
    )
    (shared,) = of_class(found, "share")
    assert shared.commands == (
        "# in the manifest: remove spec.containers[app].resources.limits.cpu (now 4)",
        "kubectl apply -f manifest.yaml",
    )


def test_no_heading_is_empty() -> None:
    """Where every change costs a guarantee, the one heading says so."""
    node = Node(from_synthetic("pack:1 numa:1(memory=16GiB) core:4 pu:1"), static("none", reserved_system_cpus="0-2"),
                predicates=False)  # fmt: skip
    assert node.admit(pod_of("a", container("c", "1"))).admitted
    answer = explain(node, pod_of("w", container("app", "1")))
    dear = tuple(fix for fix in answer.fixes if fix.losses)
    assert dear
    lines = unstyle(fixes_text(dear, wide=False)).splitlines()
    assert lines[0] == "What makes it fit, best first (each one was tried), at the price of a guarantee:"
    assert lines[1].startswith("  1. ")
    both = unstyle(fixes_text(answer.fixes, wide=False)).splitlines()
    assert both.index("At the price of a guarantee:") > 1


def test_the_own_request_comes_before_the_node_and_the_node_before_other_pods() -> None:
    """Without losses: smaller by at most half, then the configuration, then other pods; a request that shrinks by more
    is the last resort."""
    node = Node(from_synthetic("pack:2 numa:1(memory=16GiB) core:8 pu:1"), static("single-numa-node"))
    for name in ("a", "b"):
        assert node.admit(pod_of(name, container("c", "5"))).admitted
    codes = [fix.code for fix in find_fixes(node, pod_of("w", container("c", "8"))) if not fix.losses]
    assert codes.index("empty-node") < codes.index("move-pods" if "move-pods" in codes else "evict-pods")
    assert codes[-1] == "shrink"
    codes = [fix.code for fix in find_fixes(node, pod_of("w", container("c", "4"))) if not fix.losses]
    assert codes[0] == "shrink"


def test_a_search_that_ends_early_says_so() -> None:
    """With few trials the fixes found so far are kept, and the reason says that there may be more."""
    node = Node(from_synthetic("pack:2 numa:1(memory=16GiB) core:8 pu:1"), static("single-numa-node"))
    pod = make_pod("w", ("c", "9"))
    whole = search_fixes(Alternatives(Trial.of(node)), pod)
    some = search_fixes(Alternatives(Trial.of(node)), pod, most_tries=6)
    assert whole.unsearched == ""
    assert some.unsearched == ENDED
    assert {fix.text for fix in some.fixes} < {fix.text for fix in whole.fixes}
    assert some.fixes


def test_another_release_is_named() -> None:
    """Kubernetes 1.31 lets a container join NUMA nodes that others use alone; since 1.32 it may not. The fix says
    which release, and that the node is drained for it."""
    config = static("best-effort", memory_manager_policy="Static", system_reserved={"memory": "1Gi"},
                    reserved_memory=(MemoryReservation(0, {"memory": "1Gi"}),))  # fmt: skip
    node = Node(from_synthetic("pack:2 numa:1(memory=16GiB) core:4 pu:1"), config)
    assert node.admit(pod_of("a", container("c", "500m", memory="3Gi"))).admitted
    (fix,) = of_class(find_fixes(node, pod_of("b", container("c", "500m", memory="20Gi"))), "release")
    assert fix.text == "Run a kubelet of Kubernetes 1.31 (now 1.36) on the drained node; all its pods fit again"
    assert [one.name for one in fix.affected] == ["a"]
    assert "install a kubelet of Kubernetes 1.31" in " ".join(fix.commands)
    old = Node(node.view.machine, config, kubernetes="1.31")
    assert all(old.admit(pod_of(name, container("c", "500m", memory=size))).admitted
               for name, size in (("a", "3Gi"), ("b", "20Gi")))  # fmt: skip
