"""`podslice why`: the first line is the cause, and what was reported is never mixed up with what is expected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from podslice.advise.why.diagnosis import CODES
from podslice.advise.why.reported import read_events, read_reported
from podslice.host.bundle.layout import EVENTS, MACHINE, NODE, PODS, Manifest, Missing
from podslice.host.bundle.redact import redact_pod
from podslice.host.machine_files import parse_machine
from podslice.node.devices.checkpoint import PodDevicesEntry, encode
from tests.host import bundles
from tests.host.bundles import Json
from tests.read_documents import read_document
from tests.shell import ROOT
from tests.shell import podslice as run


def write(path: Path, *pods: Json, without: tuple[str, ...] = (), state: tuple[Json, ...] | None = None) -> Path:
    """A bundle with these pods, and the state that `state` leaves (default: the running ones of `bundles`)."""
    made = bundles.parts()
    made.put(PODS, {"apiVersion": "v1", "kind": "List", "items": list(map(redact_pod, pods))})
    if state is not None:
        made.files |= {f"kubelet/{name}": data for name, data in bundles.state_files(state).items()}
    for name in [name for name in made.files if name.startswith(without)] if without else []:
        del made.files[name]
    path.write_bytes(made.archive(Manifest(node="n7", missing=(Missing("kubelet/pods", "it was not asked"),))))
    return path


def ask(bundle: Path, pod: str, *words: str, code: int = 1) -> Json:
    answer = run("why", pod, "--node", bundle, "--no-predicates", "-o", "json", *words)
    assert answer.returncode == code, answer.stderr
    return read_document(answer.stdout, "PodDiagnosis")


def test_refused_pod(tmp_path: Path) -> None:
    """The first line names kubelet, pod, reason and the numbers that decide; then what was said, what is expected, the
    commands, the events, and what it rests on."""
    bundle = bundles.write(tmp_path / "n7.tar.gz")
    answer = run("why", "big", "--node", bundle, "--no-predicates")
    assert answer.returncode == 1
    lines = answer.stdout.splitlines()
    assert lines[0] == (
        "The kubelet of n7 refused shop/big with TopologyAffinityError: NUMA node 1 is short of 2 CPUs: container main "
        "needs 6, and 4 are free."
    )
    assert lines[1] == (
        "The kubelet said at 2026-11-27T09:00:00Z: TopologyAffinityError: Resources cannot be allocated with Topology "
        "locality"
    )
    assert any(line.endswith("on which no pod started later: refused with TopologyAffinityError.") for line in lines)
    assert "kubectl delete pod -n shop big" in answer.stdout
    assert "TopologyAffinityError  Resources cannot be allocated with Topology locality" in answer.stdout
    assert f"--config {bundle}/api/configz.json" in answer.stdout
    assert "0     6/3" not in answer.stdout
    assert "0     6/3" in run("why", "big", "--node", bundle, "--no-predicates", "-o", "wide").stdout


def test_documents(tmp_path: Path) -> None:
    bundle = write(tmp_path / "n7.tar.gz", *bundles.RUNNING, bundles.REFUSED)
    found = ask(bundle, "shop/big")
    assert (found["code"], found["reason"], found["phase"]) == ("refused", "TopologyAffinityError", "Failed")
    assert found["then"]["code"] == "cpu-scattered"
    assert [event["reason"] for event in found["events"]] == ["TopologyAffinityError"]
    assert found["missing"] == ["kubelet/pods: it was not asked"]
    assert found["provenance"]["pods"]["counted"] == 2


def test_node_as_it_was(tmp_path: Path) -> None:
    """A pod that started after the refusal does not count then, and counts now."""
    late = bundles.pod("web", 4, started="2026-11-27T09:30:00Z")
    refused = {**bundles.REFUSED, "spec": bundles.pod("big", 5)["spec"]}
    found = ask(write(tmp_path / "a.tar.gz", bundles.pod("db", 3), late, refused), "big")
    assert found["code"] == "unexplained"
    assert found["then"]["admitted"]
    assert not found["now"]["admitted"]
    assert "podslice, on the node as it was then (shop/web started later): admitted." in found["evidence"]


def test_refused_then_and_admitted_now(tmp_path: Path) -> None:
    """A refused pod that would be admitted now must be made again; nothing else does that."""
    gone = write(tmp_path / "b.tar.gz", bundles.pod("db", 3), bundles.REFUSED, state=(bundles.pod("db", 3),))
    small = {**bundles.REFUSED, "spec": bundles.pod("big", 4)["spec"]}
    found = ask(write(gone, bundles.pod("db", 3), small, state=(bundles.pod("db", 3),)), "big")
    assert found["code"] == "unexplained"
    assert any("create it again: kubectl delete pod -n shop big" in line for line in found["advice"])
    owned = {**small, "metadata": {**small["metadata"], "ownerReferences": [{"kind": "Job", "controller": True}]}}
    found = ask(write(gone, bundles.pod("db", 3), owned, state=(bundles.pod("db", 3),)), "big")
    assert any("its Job makes a new one" in line for line in found["advice"])


@pytest.mark.parametrize("reason", ["NodeAffinity", "NodeName", "InvalidNodeInfo"])
def test_check_that_is_not_repeated(tmp_path: Path, reason: str) -> None:
    """A refusal about labels is the kubelet's own word: nothing here says that the node is another one."""
    status = {**bundles.REFUSED["status"], "reason": reason, "message": "did not match"}
    found = ask(write(tmp_path / "n.tar.gz", *bundles.RUNNING, {**bundles.REFUSED, "status": status}), "big")
    assert (found["code"], found["then"], found["advice"]) == ("refused", None, [])
    assert found["cause"] == f"The kubelet of n7 refused shop/big with {reason}: did not match"


def test_device_that_the_node_is_not_known_to_have(tmp_path: Path) -> None:
    """An admission without the device says nothing, and no advice rests on it."""
    wants = with_gpus({**bundles.REFUSED, "spec": bundles.pod("big", 2)["spec"]}, 1)
    found = ask(write(tmp_path / "g.tar.gz", *bundles.RUNNING, wants), "big")
    assert found["code"] == "unexplained"
    assert found["advice"] == [
        "Look on the node: kubectl podslice why --capture, or podslice capture there; what is not known stands below."
    ]
    start = "nvidia.com/gpu, which shop/big asks for, is ignored: no device"
    assert any(line.startswith(start) for line in found["missing"])


def with_gpus(pod: Json, count: int) -> Json:
    """The pod with GPUs in its container."""
    for amounts in pod["spec"]["containers"][0]["resources"].values():
        amounts["nvidia.com/gpu"] = str(count)
    return pod


def test_gpu_on_the_other_numa_node(tmp_path: Path) -> None:
    """Four GPUs by PCI, the two of NUMA 1 held by the state file: the pod's CPUs fit where no GPU is free."""
    made = bundles.parts(machine=False)
    made.files |= bundles.sysfs_of(bundles.MACHINE_TEXT)
    for number, numa in enumerate((0, 0, 1, 1)):
        folder = f"sys/bus/pci/devices/0000:{number:02x}:00.0"
        made.files |= {f"{folder}/class": b"0x030200\n", f"{folder}/vendor": b"0x10de\n"}
        made.files[f"{folder}/numa_node"] = f"{numa}\n".encode()
    status = bundles.NODE_OBJECT["status"]
    amounts = {name: {**status[name], "nvidia.com/gpu": "4"} for name in ("capacity", "allocatable")}
    made.put(NODE, {**bundles.NODE_OBJECT, "status": {**status, **amounts}})
    held = PodDevicesEntry("uid-web", "main", "nvidia.com/gpu", {1: ["c", "d"]}, None)
    made.files["kubelet/device-plugins/kubelet_internal_checkpoint"] = encode(
        [held], {"nvidia.com/gpu": ["a", "b", "c", "d"]}
    )
    refused = with_gpus({**bundles.REFUSED, "spec": bundles.pod("big", 4)["spec"]}, 1)
    pods = [bundles.pod("db", 3), with_gpus(bundles.pod("web", 4), 2), refused]
    made.put(PODS, {"apiVersion": "v1", "kind": "List", "items": list(map(redact_pod, pods))})
    path = tmp_path / "gpu.tar.gz"
    path.write_bytes(made.archive(Manifest()))
    found = ask(path, "big", "--no-fixes")
    assert found["code"] == "refused"
    assert found["cause"].endswith("NUMA node 0 is short of 1 CPU: container main needs 4, and 3 are free.")
    assert found["provenance"]["assumptions"] == []


def test_pod_that_ended_since(tmp_path: Path) -> None:
    """A pod that ran at the refusal and has ended since explains why there is room now."""
    end = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": "2026-11-27T09:10:00Z"}}
    batch = bundles.pod("batch", 4, phase="Succeeded", containerStatuses=[{"name": "main", "state": end}])
    small = {**bundles.REFUSED, "spec": bundles.pod("big", 4)["spec"]}
    state = (bundles.pod("db", 3),)
    found = ask(write(tmp_path / "c.tar.gz", bundles.pod("db", 3), batch, small, state=state), "big")
    assert "shop/batch ran then, and is not counted, because it has ended since." in found["evidence"]


def test_another_reason(tmp_path: Path) -> None:
    """The kubelet's reason and the one that podslice expects are shown side by side where they differ."""
    other = {**bundles.REFUSED, "status": {**bundles.REFUSED["status"], "reason": "UnexpectedAdmissionError"}}
    found = ask(write(tmp_path / "d.tar.gz", *bundles.RUNNING, other), "big")
    assert found["code"] == "refused-otherwise"
    assert "with UnexpectedAdmissionError, and podslice expects TopologyAffinityError there" in found["cause"]


@pytest.mark.parametrize("without", [(MACHINE,), ("kubelet/",), (MACHINE, "kubelet/")])
def test_no_pod_is_named_on_assumptions(tmp_path: Path, without: tuple[str, ...]) -> None:
    """Where the machine or the owners are assumed, numbers say so, and no running pod is named for a restart."""
    bundle = write(tmp_path / "e.tar.gz", *bundles.RUNNING, bundles.REFUSED, without=without)
    found = ask(bundle, "big")
    assert not any("kubectl delete pod -n shop db" in line or "shop web" in line for line in found["advice"])
    fixes = (found["now"] or {"fixes": []})["fixes"]
    assert not any(fix["pods"] or fix["code"].startswith("shrink") for fix in fixes)
    whole = ask(write(tmp_path / "f.tar.gz", *bundles.RUNNING, bundles.REFUSED), "big")
    assert any(fix["pods"] for fix in whole["now"]["fixes"])
    assert any(fix["code"].startswith("shrink") for fix in whole["now"]["fixes"])


def test_a_ticket_with_state_files_names_the_pods(tmp_path: Path) -> None:
    """What `lscpu -e` and `numactl -H` print and the state files know who owns which CPUs: that numactl prints whole MB
    is no doubt about it."""
    bundle = bundles.write(tmp_path / "n7.tar.gz")
    lscpu, numactl = tmp_path / "lscpu.txt", tmp_path / "numactl.txt"
    rows, nodes = ["CPU NODE SOCKET CORE"], ["available: 2 nodes (0-1)"]
    for place, node in enumerate(parse_machine(bundles.MACHINE_TEXT).nodes):
        cpus = [cpu for core in node.cores for cpu in core.threads]
        nodes += [f"node {place} cpus: {' '.join(map(str, sorted(cpus)))}", f"node {place} size: 32768 MB"]
        rows += [
            f"{cpu} {place} {place} {place}{number}" for number, core in enumerate(node.cores) for cpu in core.threads
        ]
    lscpu.write_text("\n".join(rows) + "\n")
    numactl.write_text("\n".join(nodes) + "\n")
    words = ("why", "big", "--node", bundle, "--no-predicates", "--from", lscpu, "--from", numactl)
    answer = run(*words)
    assert answer.returncode == 1, answer.stderr
    assert "the memory of NUMA nodes is whole MiB" in answer.stdout
    assert "as assumed" not in answer.stdout
    assert "Which pods to restart" not in answer.stdout
    assert "Delete " in answer.stdout


def test_no_machine_is_never_this_one(tmp_path: Path) -> None:
    """Without a machine the kubelet's own words are the answer."""
    bundle = write(tmp_path / "g.tar.gz", *bundles.RUNNING, bundles.REFUSED, without=(MACHINE, NODE))
    found = ask(bundle, "big")
    assert found["then"] is None
    assert found["cause"].endswith(": Resources cannot be allocated with Topology locality")
    assert any(line.startswith("the machine: nothing was tried again") for line in found["missing"])


def test_node_that_cannot_be_started(tmp_path: Path) -> None:
    """A contradiction between machine and state is named, and the kubelet's words are still the answer."""
    bundle = write(tmp_path / "h.tar.gz", *bundles.RUNNING, bundles.REFUSED)
    answer = run("why", "big", "--node", bundle, "--machine", "xeon-6338-2s", "-o", "json")
    found = read_document(answer.stdout, "PodDiagnosis")
    assert found["code"] == "refused"
    assert any(line.startswith("the node, which cannot be started: ") for line in found["missing"])


def container(state: Json, **facts: Any) -> list[Json]:
    return [{"name": "main", "state": state, **facts}]


@pytest.mark.parametrize(
    ("phase", "node", "status", "code", "cause"),
    [
        ("Running", "n7", {"containerStatuses": container({"running": {}})}, "runs", "shop/db runs on n7"),
        ("Pending", "n7", {}, "waiting", "shop/db is on n7 and was not refused; it waits: no container yet"),
        (
            "Pending", "n7",
            {"containerStatuses": container({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}})},
            "waiting", "shop/db is on n7 and was not refused; container main waits: ImagePullBackOff: no such image",
        ),
        (
            "Running", "n7",
            {"containerStatuses": container({"waiting": {"reason": "CrashLoopBackOff"}}, restartCount=3,
                                            lastState={"terminated": {"reason": "OOMKilled", "exitCode": 137}})},
            "crashing", "shop/db was admitted on n7; container main ended 3 times (OOMKilled, exit code 137)",
        ),
        (
            "Failed", "n7", {"reason": "Evicted", "message": "The node was low on resource: memory."},
            "ended", "shop/db has ended (Failed): Evicted: The node was low on resource: memory.",
        ),
        (
            "Failed", "n7", {"containerStatuses": container({"terminated": {"exitCode": 2, "reason": "Error"}})},
            "ended", "shop/db has ended (Failed): container main ended with exit code 2 (Error)",
        ),
        (
            "Pending", "",
            {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                             "message": "0/3 nodes are available: 3 Insufficient cpu."}]},
            "unscheduled", "shop/db has no node: Unschedulable: 0/3 nodes are available: 3 Insufficient cpu.",
        ),
        ("Pending", "", {}, "unscheduled", "shop/db has no node: no scheduler has tried it yet"),
    ],
)  # fmt: skip
def test_other_pods(tmp_path: Path, phase: str, node: str, status: Json, code: str, cause: str) -> None:
    """A pod that was not refused: what it waits for, how it ended, or that it runs."""
    pod = bundles.pod("db", 3, phase=phase, **status)
    pod["spec"]["nodeName"] = node
    found = ask(write(tmp_path / "i.tar.gz", pod), "db", code=0 if code in ("runs", "waiting") else 1)
    assert (found["code"], found["cause"]) == (code, cause)


def test_running_pod_has_its_cpus(tmp_path: Path) -> None:
    """The CPUs come from the state files, and a container without CPUs of its own has a reason."""
    shares = bundles.pod("shares", 1)
    shares["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    shares["status"]["qosClass"] = "Burstable"
    bundle = write(tmp_path / "j.tar.gz", *bundles.RUNNING, shares)
    placed, quota = ask(bundle, "web", code=0)["evidence"]
    assert placed == "Container main owns CPUs 1,3,9,11 on NUMA 1."
    assert quota.startswith("CPU quota: none for main, which owns its CPUs")
    field, edit, why, pool = ask(bundle, "shares", code=0)["evidence"]
    assert field.startswith("No container owns CPUs, because container main has no cpu and no memory limit")
    assert edit.startswith("Smallest edit: set limits.cpu: 1 and an equal memory request and limit of main.")
    assert why == "Container main has no CPUs of its own: the pod is not Guaranteed: it shares."
    assert pool.startswith("Shared pool: ")
    assert "owned: " in pool


def test_names_and_files(tmp_path: Path) -> None:
    """A pod is named alone or with its namespace, or is a file; what is not there is answered with what is."""
    bundle = write(tmp_path / "k.tar.gz", *bundles.RUNNING, bundles.REFUSED)
    path = tmp_path / "big.json"
    path.write_text(json.dumps(bundles.REFUSED))
    assert ask(bundle, str(path))["cause"] == ask(bundle, "big")["cause"] == ask(bundle, "shop/big")["cause"]
    answer = run("why", "bog", "--node", bundle)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "'bog' is none of the pods, and no file" in answer.stderr
    answer = run("why", "big")
    assert (answer.returncode, "no pods are given" in answer.stderr) == (2, True)
    other = bundles.pod("big", 2)
    other["metadata"] |= {"namespace": "lab", "uid": "other"}
    twice = write(tmp_path / "l.tar.gz", bundles.REFUSED, other)
    assert "is the name of 2 pods (write one of shop/big, lab/big)" in run("why", "big", "--node", twice).stderr
    many = tmp_path / "many.json"
    many.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(bundles.RUNNING)}))
    assert "holds 2 pods (shop/db, shop/web)" in run("why", many, "--node", bundle).stderr


@pytest.mark.parametrize("value", [None, 3, "x", [], {}, [None], {"state": 3}, True])
def test_odd_objects_are_read(value: Any) -> None:
    """No field of a pod or an event makes reading fail."""
    for field in ("metadata", "spec", "status"):
        assert read_reported({field: value}).namespace == "default"
    names = ("reason", "message", "startTime", "conditions", "containerStatuses", "initContainerStatuses")
    read_reported({"status": dict.fromkeys(names, value), "metadata": {"ownerReferences": value}})
    read_reported({"status": {"containerStatuses": [{"state": {"waiting": value}, "lastState": value}]}})
    assert len(read_events([value, {"reason": value, "series": value, "count": value}])) <= 2


def test_codes_are_documented() -> None:
    text = (ROOT / "docs" / "why.md").read_text(encoding="utf-8")
    for code, meaning in CODES.items():
        assert f"| `{code}` | {meaning} |" in text


def test_events_of_other_pods_are_not_shown(tmp_path: Path) -> None:
    """An event counts for the pod of its name, namespace and UID."""
    bundle = write(tmp_path / "m.tar.gz", *bundles.RUNNING, bundles.REFUSED)
    about = {**bundles.EVENT["involvedObject"]}
    others = [
        {**bundles.EVENT, "involvedObject": {**about, **change}}
        for change in ({"name": "db"}, {"namespace": "lab"}, {"uid": "an older one"}, {"kind": "Job"})
    ]
    path = tmp_path / Path(EVENTS).name
    path.write_text(json.dumps({"kind": "EventList", "items": [*others, bundles.EVENT]}))
    assert len(ask(bundle, "big", "--events", str(path))["events"]) == 1


def bundle_of_version(path: Path, version: str) -> Path:
    """A bundle whose node runs this kubelet."""
    made = bundles.parts()
    node = {**bundles.NODE_OBJECT, "status": {**bundles.NODE_OBJECT["status"], "nodeInfo": {"kubeletVersion": version}}}
    made.put(NODE, node)
    path.write_bytes(made.archive(Manifest()))
    return path


@pytest.mark.parametrize(
    ("version", "release"), [("v1.36.2", "1.36"), ("v1.33.4+k3s1", "1.33"), ("", "1.36"), ("v1.29.1", "1.36")]
)
def test_the_release_of_the_node(tmp_path: Path, version: str, release: str) -> None:
    """Decisions are those of the node's own kubelet where its release is known."""
    path = bundle_of_version(tmp_path / "n.tar.gz", version)
    provenance = ask(path, "big")["provenance"]
    assert provenance["release"] == release
    assert ask(path, "big", "--kubernetes", "1.35")["provenance"]["release"] == "1.35"
    codes = [one["code"] for one in provenance["contradictions"]]
    assert ("release-differs" in codes) == (version == "v1.29.1")


def test_another_release_is_said_first(tmp_path: Path) -> None:
    """An answer for another release than the node's begins with that, above everything that is proposed."""
    path = bundle_of_version(tmp_path / "n.tar.gz", "v1.33.4")
    lines = run("why", "big", "--node", path, "--no-predicates", "--profile", "kubelet-1.36").stdout.splitlines()
    assert lines[0].startswith("Contradiction: The node runs kubelet v1.33.4; decisions are those of Kubernetes 1.36")
    assert not any(line.strip().startswith("Contradiction") for line in lines[1:])
