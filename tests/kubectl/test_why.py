"""`kubectl podslice why` and `capture`: what is gathered, what is missing and how to get it, and a pod that is gone
afterwards."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from podslice.api.manifests.manifest import load_pods_text
from podslice.api.pod.spec import pod_from_dict
from podslice.config.kubelet_file import config_from_dict
from podslice.host.bundle.captured import SCRIPT
from podslice.host.bundle.layout import Manifest
from podslice.host.machine_files import parse_machine
from podslice.kubectl.client import HTTPCluster
from podslice.kubectl.kubeconfig import AccessOptions, find_access
from podslice.kubectl.why import capture_pod
from podslice.kubectl.why.capture_pod import CapturePlan, capture_by_pod, decode_log, new_pod
from podslice.node.node import Node
from podslice.replica.journal import Journal
from podslice.replica.nodestate import NODE_STATES, build_status, new_node_state
from podslice.values.errors import InputError
from tests.clock import PATIENCE
from tests.host import bundles
from tests.host.bundles import CONFIG, EVENT, NAME, NODE_OBJECT, REFUSED, RUNNING, SECRET, Json
from tests.host.test_capture import fake_ssh
from tests.kubectl.conftest import PODS, Plugin, stored
from tests.kubectl.fakeapi import FakeAPI, agent_pod
from tests.kubectl.liveagent import NODE
from tests.read_documents import read_document

CONFIGZ = f"/api/v1/nodes/{NAME}/proxy/configz"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
TOPOLOGY = f"/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies/{NAME}"
FORBIDDEN = 'pods is forbidden: User "ann" cannot create resource "pods" in API group "" in the namespace "kube-system"'


@pytest.fixture
def cluster(api: FakeAPI) -> FakeAPI:
    """A cluster without agents: one node, its pods, one of them refused."""
    api.objects[f"/api/v1/nodes/{NAME}"] = NODE_OBJECT
    api.objects[CONFIGZ] = {"kubeletconfig": CONFIG}
    api.objects["/api/v1/pods"] = {"kind": "PodList", "items": [*RUNNING, REFUSED]}
    for pod in (*RUNNING, REFUSED):
        api.add_pod(pod)
    api.events.append(EVENT)
    return api


def ask(plugin: Plugin, *words: str, code: int = 1) -> Json:
    answer = plugin("why", "shop/big", "-o", "json", *words)
    assert answer.returncode == code, answer.stderr
    return read_document(answer.stdout, "PodDiagnosis")


def test_without_an_agent(plugin: Plugin, cluster: FakeAPI) -> None:
    """The cause is the kubelet's and ours; the machine is assumed aloud, and nothing names the pod of a bad guess."""
    answer = plugin("why", "-n", "shop", "big")
    assert answer.returncode == 1
    assert answer.stdout.startswith("The kubelet of n7 ")
    assert " shop/big with TopologyAffinityError" in answer.stdout.splitlines()[0]
    for part in ("n7/api/node.json", "n7/api/configz.json", "2 running pods counted", "assumed: ", "kubelet said at"):
        assert part in answer.stdout
    assert "/tmp/" not in answer.stdout + answer.stderr
    assert not cluster.made


def test_what_is_asked(plugin: Plugin, cluster: FakeAPI, tmp_path: Path) -> None:
    """All that the API server gives comes into the bundle, without secrets; what it does not have is not a fault."""
    found = {"metadata": {"name": "s", "annotations": {"a": SECRET}}, "spec": {"driver": "d"}}
    cluster.objects[SLICES] = {"items": [found]}
    cluster.objects[TOPOLOGY] = topology()
    out = tmp_path / "n7.tar.gz"
    assert ask(plugin, "--out", str(out))["missing"] == [
        "who owns which CPUs: without state files the pods are placed anew, in the order of the list (podslice capture "
        "has them)"
    ]
    files = contents(out)
    assert set(files) == {
        "bundle.json", "api/node.json", "api/configz.json", "api/pods.json", "api/events.json",
        "api/resourceslices.json", "api/noderesourcetopology.json",
    }  # fmt: skip
    assert not [name for name, data in files.items() if SECRET.encode() in data]
    assert "fieldSelector=spec.nodeName%3Dn7" in next(one for one in cluster.asked if one.startswith("/api/v1/pods?"))


def claim(name: str, pool: str = "", user: str = "", *, allocated: bool = True) -> Json:
    """A ResourceClaim with a driver's parameters, which may be secrets."""
    config = [{"opaque": {"driver": "gpu.example.com", "parameters": {"key": SECRET}}}]
    results = [{"request": "gpu", "driver": "gpu.example.com", "pool": pool, "device": "gpu-0"}]
    allocation = {"devices": {"results": results, "config": config}, "nodeSelector": {"nodeSelectorTerms": []}}
    users = [{"resource": "pods", "name": "p", "uid": user}] if user else []
    requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]
    return {
        "metadata": {"name": name, "namespace": "shop", "annotations": {"a": SECRET}},
        "spec": {"devices": {"requests": requests, "config": config}},
        "status": {"reservedFor": users, "devices": [{"data": {"token": SECRET}}]}
        | ({"allocation": allocation} if allocated else {}),
    }


def test_claims_of_the_node(plugin: Plugin, cluster: FakeAPI, tmp_path: Path) -> None:
    """Of the claims those stay that pods of the node use or that hold its devices, without parameters of drivers; where
    the pods may not be read, the devices decide."""
    devices = [{"name": "gpu-0"}]
    pool = {"name": "pool-7", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "nodeName": NAME, "pool": pool, "devices": devices}
    cluster.objects[SLICES] = {"items": [{"metadata": {"name": "s"}, "spec": spec}]}
    cluster.objects[CLAIMS] = {"items": [
        claim("held", "pool-7"), claim("used", "network", "uid-db"), claim("other", "pool-8", "uid-x"),
        claim("waits", "pool-7", "uid-db", allocated=False), claim("odd") | {"status": None}, "no object",
    ]}  # fmt: skip
    selectors = [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]
    opaque = [{"opaque": {"driver": "gpu.example.com", "parameters": {"key": SECRET}}}]
    cluster.objects[CLASSES] = {
        "items": [{"metadata": {"name": "gpu"}, "spec": {"selectors": selectors, "config": opaque}}]
    }
    out = tmp_path / "n7.tar.gz"
    ask(plugin, "--out", str(out))
    files = contents(out)
    assert not [name for name, data in files.items() if SECRET.encode() in data]
    (kind,) = json.loads(files["api/deviceclasses.json"])["items"]
    assert (kind["kind"], kind["spec"]) == ("DeviceClass", {"selectors": selectors})
    kept = json.loads(files["api/resourceclaims.json"])["items"]
    assert [one["metadata"]["name"] for one in kept] == ["held", "used"]
    assert (kept[0]["apiVersion"], kept[0]["kind"]) == ("resource.k8s.io/v1", "ResourceClaim")
    assert kept[0]["status"]["allocation"]["devices"]["results"][0]["pool"] == "pool-7"
    cluster.forbidden = ("/api/v1/pods",)
    ask(plugin, "--out", str(out))
    kept = json.loads(contents(out)["api/resourceclaims.json"])["items"]
    assert [one["metadata"]["name"] for one in kept] == ["held"]
    cluster.objects[CLAIMS] = {"items": [claim("other", "pool-8")]}
    ask(plugin, "--out", str(out))
    assert "api/resourceclaims.json" not in contents(out)
    assert "api/deviceclasses.json" in contents(out)
    cluster.objects[SLICES] = {"items": []}
    ask(plugin, "--out", str(out))
    assert "api/deviceclasses.json" not in contents(out)


def topology() -> Json:
    """The NodeResourceTopology of the node."""
    zones = [
        {"name": f"node-{number}", "type": "Node", "resources": [
            {"name": "cpu", "capacity": "8", "allocatable": "7", "available": "4"},
            {"name": "memory", "capacity": "32Gi", "allocatable": "32Gi", "available": "31Gi"},
        ]}
        for number in (0, 1)
    ]  # fmt: skip
    version = "topology.node.k8s.io/v1alpha2"
    return {"apiVersion": version, "kind": "NodeResourceTopology", "metadata": {"name": NAME}, "zones": zones}


def test_topology_that_describes_no_machine(plugin: Plugin, cluster: FakeAPI) -> None:
    """It is named, and the Node object describes the machine."""
    cluster.objects[TOPOLOGY] = {**topology(), "zones": []}
    found = ask(plugin)
    assert any(line.startswith("api/noderesourcetopology.json: ") for line in found["missing"])
    assert found["then"] is not None


def contents(path: Path) -> dict[str, bytes]:
    import tarfile

    with tarfile.open(path) as archive:
        return {m.name: archive.extractfile(m).read() for m in archive if m.isfile()}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("path", "part", "right"),
    [
        (CONFIGZ, "api/configz.json", "clusterrole podslice-why-nodes-proxy --verb=get --resource=nodes/proxy"),
        ("/api/v1/pods", "api/pods.json", "clusterrole podslice-why-pods --verb=list --resource=pods"),
        (SLICES, "api/resourceslices.json",
         "clusterrole podslice-why-resourceslices --verb=list --resource=resourceslices.resource.k8s.io"),
        (CLAIMS, "api/resourceclaims.json",
         "clusterrole podslice-why-resourceclaims --verb=list --resource=resourceclaims.resource.k8s.io"),
        ("/api/v1/namespaces/shop/events", "api/events.json",
         "role podslice-why-events -n shop --verb=list --resource=events"),
    ],
)  # fmt: skip
def test_missing_rights(plugin: Plugin, cluster: FakeAPI, path: str, part: str, right: str) -> None:
    """A part that may not be read is named with the command that grants the right; the rest is an answer."""
    cluster.forbidden = (path,)
    (line,) = [line for line in ask(plugin)["missing"] if line.startswith(part)]
    assert f"kubectl create {right} && kubectl create " in line
    assert line.endswith("--user=ann)")


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/api/v1/namespaces/shop/pods/big", "you may not get pods in namespace shop"),
        (f"/api/v1/nodes/{NAME}", "you may not get nodes"),
    ],
)
def test_rights_that_are_needed(plugin: Plugin, cluster: FakeAPI, path: str, problem: str) -> None:
    cluster.forbidden = (path,)
    answer = plugin("why", "shop/big")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert problem in answer.stderr
    assert "kubectl create " in answer.stderr


def test_no_such_pod_or_node(plugin: Plugin, cluster: FakeAPI) -> None:
    assert "there is no pod shop/none" in plugin("why", "shop/none").stderr
    del cluster.objects[f"/api/v1/nodes/{NAME}"]
    assert "there is no node n7" in plugin("why", "shop/big").stderr
    assert plugin("why", "a/b/c").returncode == 2


def test_pod_without_a_node(plugin: Plugin, cluster: FakeAPI) -> None:
    """The scheduler's words, and with --node what that node would say."""
    why = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available"}
    waits = bundles.pod("big", 6, phase="Pending", conditions=[why])
    waits["spec"]["nodeName"] = ""
    cluster.add_pod(waits)
    found = ask(plugin)
    assert (found["code"], found["cause"]) == (
        "unscheduled", "shop/big has no node: Unschedulable: 0/1 nodes are available")  # fmt: skip
    assert found["now"] is None
    assert ask(plugin, "--node", NAME)["now"]["name"] == "big"


def test_with_an_agent(plugin: Plugin, api: FakeAPI, agent_port: int) -> None:
    """The agent's machine, configuration and state are exact: nothing is assumed, and pods are named."""
    api.add(NODE, agent_port)
    api.objects[f"/api/v1/nodes/{NODE}"] = {**NODE_OBJECT, "status": {"capacity": {"cpu": "32", "memory": "120Gi"}}}
    pods = [stored("web"), stored("db"), stored("big", phase="Failed", reason="TopologyAffinityError")]
    api.add_pod(pods[-1])
    api.objects["/api/v1/pods"] = {"items": pods}
    answer = plugin("why", "default/big", "-o", "json")
    found = read_document(answer.stdout, "PodDiagnosis")
    assert (answer.returncode, found["code"]) == (1, "refused"), answer.stderr
    assert found["missing"] == []
    assert found["provenance"]["state"] == "n7/kubelet"
    assert len(PODS) == 3


# The pod


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture_pod, "POLL", 0.01)


def log_of(data: bytes) -> bytes:
    text = base64.encodebytes(data).decode()
    return f"-----BEGIN PODSLICE BUNDLE-----\n{text}-----END PODSLICE BUNDLE-----\n".encode()


def node_archive() -> bytes:
    """Return the archive that the script sends: a machine, and the state files of the node."""
    made = bundles.parts(machine=False, api=False)
    made.files |= bundles.sysfs_of(bundles.MACHINE_TEXT)
    return made.archive(Manifest(node=NAME, by="capture.sh"))


@pytest.mark.usefixtures("quick")
def test_capture_with_a_pod(plugin: Plugin, cluster: FakeAPI, tmp_path: Path) -> None:
    """With the node's own files the pods to restart are named; the pod is gone afterwards."""
    cluster.log = lambda pod: log_of(node_archive())
    found = ask(plugin, "--capture", "--yes", "--image", "busybox:1.36")
    assert (found["code"], found["then"]["code"]) == ("refused", "cpu-scattered")
    assert any("kubectl delete pod -n shop" in line for line in found["advice"])
    assert found["provenance"]["assumptions"] == []
    (pod,) = cluster.made
    assert cluster.deleted == [f"/api/v1/namespaces/kube-system/pods/{pod['metadata']['name']}"]


def test_pod_is_harmless() -> None:
    """It writes nothing, has no token, no network of the host and no capabilities, asks for nothing, and ends."""
    pod = new_pod(CapturePlan("n7", "busybox:1.36", "kube-system", "/var/lib/k0s/kubelet", 60), "x")
    spec, (container,) = pod["spec"], pod["spec"]["containers"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["hostNetwork"] is False
    assert not {"hostPID", "hostIPC", "serviceAccountName"} & set(spec)
    assert (spec["nodeName"], spec["restartPolicy"], spec["activeDeadlineSeconds"]) == ("n7", "Never", 60)
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert "privileged" not in container["securityContext"]
    mounts = {one["mountPath"]: one.get("readOnly") for one in container["volumeMounts"]}
    assert mounts == {"/host/sys": True, "/host/proc": True, "/host/var/lib/k0s/kubelet": True, "/tmp": None}
    paths = [one["hostPath"]["path"] for one in spec["volumes"] if "hostPath" in one]
    assert paths == ["/sys", "/proc", "/var/lib/k0s/kubelet"]
    assert container["resources"]["requests"] == {"cpu": "0", "memory": "0"}


@pytest.mark.process
def test_command_of_the_pod_runs(tmp_path: Path) -> None:
    """The container's command prints a bundle that can be read."""
    pod = new_pod(CapturePlan(NAME, "busybox"))
    (container,) = pod["spec"]["containers"]
    root = tmp_path / "host"
    for name, data in bundles.sysfs_of(bundles.MACHINE_TEXT).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    environment = {one["name"]: one["value"] for one in container["env"]} | {"PODSLICE_ROOT": str(root)}
    command = [word.replace("/tmp/bundle", str(tmp_path / "bundle")) for word in container["command"]]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, check=True)
    (tmp_path / "n7.tar.gz").write_bytes(decode_log(done.stdout, "x"))
    assert json.loads(contents(tmp_path / "n7.tar.gz")["bundle.json"])["node"] == NAME
    assert environment["SCRIPT"].encode() == SCRIPT.read_bytes()


def test_pod_is_shown_and_needs_a_yes(plugin: Plugin, cluster: FakeAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody can be asked nothing is made, nor after a no."""
    answer = plugin("why", "shop/big", "--capture", "--image", "busybox")
    assert (answer.returncode, cluster.made) == (2, [])
    assert "hostPath:" in answer.stderr
    assert "(the text of deploy/capture.sh)" in answer.stderr
    assert "--yes makes the pod above" in answer.stderr
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("click.confirm", lambda *_, **__: False)
    answer = plugin("why", "shop/big", "--capture", "--image", "busybox")
    assert (answer.returncode, cluster.made) == (2, [])
    assert "no pod was made" in answer.stderr


def waiting(reason: str, message: str = "") -> Callable[[Json], Json | None]:
    state = {"waiting": {"reason": reason, "message": message}}
    return lambda pod: {"phase": "Pending", "containerStatuses": [{"name": "capture", "state": state}]}


def failed(**status: Any) -> Callable[[Json], Json | None]:
    return lambda pod: {"phase": "Failed", **status}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("becomes", "problem"),
    [
        (
            waiting("ImagePullBackOff", "no such host"),
            "cannot start from image busybox: ImagePullBackOff: no such host",
        ),
        (waiting("ErrImagePull"), "cannot start from image busybox: ErrImagePull"),
        (failed(reason="OutOfpods", message="too many"), "failed: OutOfpods: too many"),
        (failed(reason="DeadlineExceeded"), "failed: DeadlineExceeded"),
        (
            failed(containerStatuses=[{"state": {"terminated": {"exitCode": 127, "reason": "StartError"}}}]),
            "(exit code 127, StartError)",
        ),
        (lambda pod: None, "breaks the connection off"),
    ],
)
def test_pod_that_cannot_run(plugin: Plugin, cluster: FakeAPI, becomes: Any, problem: str) -> None:
    """Why it did not run is one line, and it is deleted all the same."""
    cluster.becomes = becomes
    answer = plugin("why", "shop/big", "--capture", "--yes", "--image", "busybox")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert problem in answer.stderr
    assert len(cluster.deleted) == len(cluster.made) == 1


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("log", "problem"),
    [
        (b"", "holds no whole bundle"),
        (b"sh: tar: not found\n", "holds no whole bundle: sh: tar: not found"),
        (log_of(b"x" * 100)[:-20], "holds no whole bundle"),
        (log_of(b"x").replace(b"eA==", b"e!=="), "is damaged"),
        (log_of(b"no archive"), "is not a readable tar archive"),
    ],
)
def test_damaged_logs(plugin: Plugin, cluster: FakeAPI, log: bytes, problem: str) -> None:
    cluster.log = lambda pod: log
    answer = plugin("why", "shop/big", "--capture", "--yes", "--image", "busybox")
    assert answer.returncode == 2
    assert problem in answer.stderr
    assert len(cluster.deleted) == 1


@pytest.mark.parametrize(
    ("refusal", "problem", "remedy"),
    [
        ((403, FORBIDDEN), "you may not create pods in namespace kube-system",
         "role podslice-why-pods -n kube-system --verb=create --resource=pods"),
        ((403, 'pods "x" is forbidden: violates PodSecurity "restricted:latest": hostPath volumes'),
         "violates PodSecurity", "--pod-namespace names one with pod-security.kubernetes.io/enforce: privileged"),
        ((422, "Pod is invalid: spec"), "Pod is invalid: spec", ""),
        ((400, "admission webhook denied the request: no hostPath"), "no hostPath", ""),
    ],
)  # fmt: skip
def test_refused_creation(
    plugin: Plugin, cluster: FakeAPI, refusal: tuple[int, str], problem: str, remedy: str
) -> None:
    """The API server's words are shown, with what would help."""
    cluster.refusal = refusal
    answer = plugin("why", "shop/big", "--capture", "--yes", "--image", "busybox")
    assert answer.returncode == 2
    assert problem in answer.stderr
    assert remedy in answer.stderr


@pytest.mark.usefixtures("quick")
def test_interrupt_deletes_the_pod(plugin: Plugin, cluster: FakeAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the pod runs: nothing is left."""

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    cluster.becomes = lambda pod: {"phase": "Pending"}
    monkeypatch.setattr(capture_pod.time, "sleep", interrupt)
    answer = plugin("why", "shop/big", "--capture", "--yes", "--image", "busybox")
    assert answer.returncode == 130
    assert len(cluster.deleted) == 1


@pytest.mark.usefixtures("quick")
def test_pod_that_cannot_be_deleted_is_named(plugin: Plugin, cluster: FakeAPI, tmp_path: Path) -> None:
    """A warning names the pod, when it ends by itself, and the command."""

    def log(pod: Json) -> bytes:
        cluster.forbidden = ("/api/v1/namespaces/kube-system",)
        return log_of(node_archive())

    cluster.log = log
    answer = plugin("why", "shop/big", "--capture", "--yes", "--image", "busybox", "--patience", "30")
    assert answer.returncode == 1
    name = cluster.made[0]["metadata"]["name"]
    assert f"pod kube-system/{name} may be left, it ends by itself after 30 s" in answer.stderr
    assert f"kubectl delete pod -n kube-system {name}" in answer.stderr


def test_patience_ends(cluster: FakeAPI, tmp_path: Path) -> None:
    """A pod that never starts is given up after its deadline, and deleted."""
    cluster.events.clear()
    cluster.becomes = waiting("ContainerCreating")
    here = HTTPCluster(find_access(AccessOptions(), os.environ), timeout=5)
    pod = new_pod(CapturePlan(NAME, "busybox", seconds=0))
    with pytest.raises(InputError, match=r"did not end in time \(ContainerCreating\)"):
        capture_by_pod(here, pod, tmp_path / "x", warn=print)
    assert len(cluster.deleted) == 1


def test_patience_ends_with_the_kubelets_warning(cluster: FakeAPI, tmp_path: Path) -> None:
    """Why a pod does not start stands in its events: the last one is the reason, not `ContainerCreating`."""
    cluster.becomes = waiting("ContainerCreating")
    cluster.events[:] = [
        {"type": "Warning", "reason": "FailedMount", "message": "old", "lastTimestamp": "2026-01-01T00:00:00Z"},
        {"type": "Warning", "reason": "FailedCreatePodSandBox", "message": "runc\n failed",
         "lastTimestamp": "2026-01-01T00:00:09Z"},
    ]  # fmt: skip
    here = HTTPCluster(find_access(AccessOptions(), os.environ), timeout=5)
    with pytest.raises(InputError, match=r"in time \(FailedCreatePodSandBox: runc failed\)"):
        capture_by_pod(here, new_pod(CapturePlan(NAME, "busybox", seconds=0)), tmp_path / "x", warn=print)
    cluster.forbidden = ("/api/v1/namespaces/kube-system/events",)
    with pytest.raises(InputError, match=r"in time \(ContainerCreating\)"):
        capture_by_pod(here, new_pod(CapturePlan(NAME, "busybox", seconds=0)), tmp_path / "x", warn=print)


def test_image_of_the_agent(plugin: Plugin, cluster: FakeAPI) -> None:
    """Without an agent and without --image there is none, and the error says which would do."""
    answer = plugin("why", "shop/big", "--capture", "--yes")
    assert (answer.returncode, cluster.made) == (2, [])
    assert "--image: no image is known: no agent runs in namespace podslice" in answer.stderr


@pytest.mark.usefixtures("quick")
def test_capture_command(plugin: Plugin, cluster: FakeAPI, tmp_path: Path) -> None:
    """The bundle of a node, with or without a look on it."""
    cluster.log = lambda pod: log_of(node_archive())
    out = tmp_path / "n7.podslice.tar.gz"
    answer = plugin("capture", NAME, "--image", "busybox", "--yes", "--out", str(out))
    assert answer.returncode == 0, answer.stderr
    assert {"api/node.json", "api/pods.json", "kubelet/cpu_manager_state", "proc/cpuinfo"} <= set(contents(out))
    assert plugin("capture", NAME, "--no-pod", "--out", str(out)).returncode == 0
    assert "proc/cpuinfo" not in contents(out)
    assert len(cluster.made) == 1


@pytest.mark.process
def test_ssh_in_place_of_a_pod(
    plugin: Plugin, cluster: FakeAPI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The output of ssh is read like that of a pod, and no pod is created."""
    (tmp_path / "archive").write_bytes(node_archive())
    fake_ssh(tmp_path / "bin", f"cat > {tmp_path}/script; exec cat {tmp_path}/archive", monkeypatch)
    found = ask(plugin, "--ssh", "n7")
    assert (found["code"], found["then"]["code"], cluster.made) == ("refused", "cpu-scattered", [])
    assert (tmp_path / "script").read_bytes() == SCRIPT.read_bytes()


@pytest.mark.parametrize("words", [("--capture", "--ssh", "n7"), ("--sudo",), ("--ssh", "-oProxyCommand=id")])
def test_options_that_contradict(plugin: Plugin, cluster: FakeAPI, words: tuple[str, ...]) -> None:
    answer = plugin("why", "shop/big", *words)
    assert (answer.returncode, answer.stdout, cluster.made) == (2, "", [])


@pytest.mark.parametrize("folder", ["var/lib/kubelet", "/var/../etc", ""])
def test_kubelet_folder_is_absolute(plugin: Plugin, cluster: FakeAPI, folder: str) -> None:
    answer = plugin("why", "shop/big", "--capture", "--yes", "--image", "x", "--kubelet", folder)
    assert (answer.returncode, cluster.made) == (2, [])
    assert "is not an absolute path" in answer.stderr


def test_decode_log_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture_pod, "LARGEST_CAPTURE", 10)
    with pytest.raises(InputError, match="holds more than"):
        decode_log(log_of(b"x" * 11), "p")


def test_pod_is_one_that_an_api_server_takes() -> None:
    """It has no field that Kubernetes does not know, and passes validation; a full node admits it, without CPUs of its
    own."""
    pod = new_pod(CapturePlan(NAME, "busybox:1.36"))
    (loaded,) = load_pods_text(json.dumps(pod), "the pod", strict=True, validate=True)
    config = {name: value for name, value in CONFIG.items() if name != "staticPodURLHeader"}
    node = Node(parse_machine(bundles.MACHINE_TEXT), config_from_dict(config).config)
    for number, cpus in enumerate((6, 8)):
        assert node.admit(pod_from_dict(bundles.pod(f"full-{number}", cpus))).admitted
    assert node.admit(loaded.pod).admitted
    assert node.view.owned_by(loaded.pod.metadata.uid) == 0


def test_state_kept_in_the_api_server(plugin: Plugin, cluster: FakeAPI) -> None:
    """Where an agent runs and does not answer, its NodeState says who owns what."""
    cluster.agents.append(agent_pod("podslice-agent-n7", NAME, phase="Pending"))
    config = {name: value for name, value in CONFIG.items() if name != "staticPodURLHeader"}
    node = Node(parse_machine(bundles.MACHINE_TEXT), config_from_dict(config).config)
    for one in RUNNING:
        assert node.admit(pod_from_dict(one)).admitted
    stamped = Journal(node.rules, node.state, epoch=3, version="0.1.0").whole_state()
    stored_state = new_node_state(NAME) | {"status": msgspec.to_builtins(build_status(stamped))}
    cluster.objects[f"{NODE_STATES}/{NAME}"] = stored_state
    found = ask(plugin)
    assert (found["code"], found["missing"]) == ("refused", [])
    assert "NUMA node 1 is short of 2 CPUs: container main needs 6, and 4 are free" in found["cause"]
    cluster.objects[f"{NODE_STATES}/{NAME}"] = {**stored_state, "status": {"state": "?"}}
    assert any(line.startswith("agent: ") and "its NodeState cannot be used" in line for line in ask(plugin)["missing"])


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signals_delete_the_pod(cluster: FakeAPI, number: signal.Signals) -> None:
    """A closed terminal, a service manager and Ctrl-C leave nothing on the cluster."""
    looked = threading.Event()

    def becomes(_: Json) -> Json:
        looked.set()
        return {"phase": "Pending"}

    cluster.becomes = becomes
    words = ["why", "shop/big", "--capture", "--yes", "--image", "busybox"]
    program = "from podslice.entry import kubectl; kubectl()"
    process = subprocess.Popen([sys.executable, "-c", program, *words], stdout=subprocess.DEVNULL)
    try:
        assert looked.wait(PATIENCE)
        process.send_signal(number)
        assert process.wait(PATIENCE) == 130
    finally:
        process.kill()
        process.wait()
    assert len(cluster.deleted) == len(cluster.made) == 1
