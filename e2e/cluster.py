"""A cluster: the control plane on this machine, and the guest as its node with containerd, a real kubelet, the agent.

The agent is installed as deploy/manifests says: its service account, rights and configuration are applied to the API
server as shipped, and it runs with a token of that account.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from e2e.agreement import cgroup_owner, disagreements
from e2e.controlplane import ACCOUNTS, APPLY, MERGE, SERVICE_ADDRESS, Api, ControlPlane, Settings, StatusError
from e2e.controlplane import kubeconfig as make_kubeconfig
from e2e.vm import Shape, VirtualMachine
from e2e.world import PODSLICE, SOCKET, STATE, CheckError, check
from podslice.values.cpuset import parse_bits

Json = dict[str, Any]
REPOSITORY = Path(__file__).resolve().parent.parent
MANIFEST = REPOSITORY / "deploy/manifests/podslice.yaml"
CONFIG_MAP = "/api/v1/namespaces/podslice/configmaps/podslice-agent"
NODE, ADDRESS = "e2e", "10.96.0.15"
KUBELET_PORT = 10250
SECOND, SECOND_ADDRESS = "second", "10.96.0.16"
SHAPE = Shape("2x2x2", "8,sockets=2,cores=2,threads=2", ("0-3", "4-7"), distance=21, mib=1024)
ONLINE, RESERVED = 0xFF, 0x01
CONTROL_PLANE = Settings(
    nodes=(NODE, SECOND),
    scheduler=True,
    controllers=(
        *ACCOUNTS, "daemonset-controller", "deployment-controller", "replicaset-controller", "job-controller",
        "garbage-collector-controller", "namespace-controller", "node-lifecycle-controller",
        "taint-eviction-controller", "pod-garbage-collector-controller",
    ),
    controller_manager=("--node-monitor-grace-period=25s",),
)  # fmt: skip
PATIENCE = 300.0
_KUBECONFIG, _AGENT_KUBECONFIG = "/etc/kubernetes/kubelet.kubeconfig", "/etc/podslice/kubeconfig"
_CONFIG, _KUBELET_CONFIG = "/etc/podslice/agent.yaml", "/etc/kubernetes/kubelet.yaml"
KUBELET: Json = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "authentication": {
        "anonymous": {"enabled": False},
        "webhook": {"enabled": True},
        "x509": {"clientCAFile": "/etc/kubernetes/ca.crt"},
    },
    "authorization": {"mode": "Webhook"},
    "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
    "cpuManagerPolicy": "none",
    "reservedSystemCPUs": "0",
    "failSwapOn": False,
    "staticPodPath": "/etc/kubernetes/manifests",
    "evictionHard": {"memory.available": "1Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
    "runtimeRequestTimeout": "4m",
    "fileCheckFrequency": "2s",
    "nodeLeaseDurationSeconds": 20,
    "resolvConf": "",
}
_PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps",
    "Secret": "/api/v1/namespaces/{namespace}/secrets",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies",
    "DaemonSet": "/apis/apps/v1/namespaces/{namespace}/daemonsets",
    "Service": "/api/v1/namespaces/{namespace}/services",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
}


def network(busybox: Path, ports: Mapping[tuple[str, int], int], *, kubelet: int | None = None) -> tuple[str, ...]:
    """A network card whose network reaches this machine only, at these addresses and ports, each mapped to a port of
    the loopback. At its port `kubelet` this machine reaches the guest's kubelet."""
    forwards = [f"guestfwd=tcp:{ip}:{own}-cmd:{busybox} nc 127.0.0.1 {port}" for (ip, own), port in ports.items()]
    if kubelet is not None:
        forwards.append(f"hostfwd=tcp:127.0.0.1:{kubelet}-{ADDRESS}:{KUBELET_PORT}")
    net = f"user,id=net,restrict=on,net=10.96.0.0/16,host=10.96.0.2,dns=10.96.0.3,{','.join(forwards)}"
    return ("-netdev", net, "-device", "virtio-net-pci,netdev=net,romfile=")


def disks(*images: Path) -> tuple[str, ...]:
    """More disks, read-only."""
    options: list[str] = []
    for number, image in enumerate(images):
        options += ["-drive", f"file={image},if=none,id=more{number},format=raw,readonly=on"]
        options += ["-device", f"virtio-blk-pci,drive=more{number}"]
    return tuple(options)


def writable_disk(image: Path) -> tuple[str, ...]:
    """Return the options of a writable disk."""
    return ("-drive", f"file={image},if=none,id=kept,format=raw", "-device", "virtio-blk-pci,drive=kept")


class Cluster:
    """The API server and its node."""

    cgroup_driver = "cgroupfs"
    joined = False
    """Whether the guest was saved as a node that is ready."""

    def __init__(self, vm: VirtualMachine, plane: ControlPlane, *, node: str = NODE, address: str = ADDRESS) -> None:
        self.vm = vm
        self.plane = plane
        self.node = node
        self.address = address
        self.api: Api = plane.api()

    def start(self, resources: Json, settings: Json) -> None:
        """Wait until the node is ready with the agent beside its kubelet. `resources` and `settings` replace those
        fields of the shipped configuration."""
        self.install(resources, settings)
        self.begin()

    def begin(self) -> None:
        """Wait until the node is ready with an agent whose configuration is applied."""
        if self.joined:
            self._join_network()
        else:
            self.join()
        self.vm.call("unpack_checkout")
        self.until("the node is ready", self.node_is_ready)
        self.begin_agent()
        self.wait_for_agent()

    # What runs on the node

    def join(self) -> None:
        """Make the guest, on which containerd runs, the node."""
        self._join_network()
        self._prepare_kubelet()
        self.start_kubelet()

    def _join_network(self) -> None:
        self.vm.call("join_network", address=self.address, now=time.time())

    def _prepare_kubelet(self) -> None:
        authority = self.plane.authority.read_text()
        self.vm.call("write", path="/etc/kubernetes/ca.crt", text=authority)
        cluster = {"server": f"https://{SERVICE_ADDRESS}", "certificate-authority": "/etc/kubernetes/ca.crt"}
        config = make_kubeconfig(cluster, self.plane.token(f"system:node:{self.node}"))
        self.vm.call("write", path=_KUBECONFIG, text=json.dumps(config))
        self.vm.call("write", path=_KUBELET_CONFIG, text=json.dumps({**KUBELET, "cgroupDriver": self.cgroup_driver}))

    def start_kubelet(self) -> None:
        words = ("/opt/kubernetes/hyperkube", "kubelet", f"--kubeconfig={_KUBECONFIG}", f"--config={_KUBELET_CONFIG}")
        own = (f"--hostname-override={self.node}", f"--node-ip={self.address}")
        self.vm.call("start", name="kubelet", command=[*words, *own])

    def node_is_ready(self) -> bool:
        try:
            node = self.api.call("GET", f"/api/v1/nodes/{self.node}")
        except StatusError:
            return False
        ready = any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"]["conditions"])
        return ready and not node["spec"].get("taints")

    def install(self, resources: Json, settings: Json) -> None:
        """Apply deploy/manifests as shipped, except for changes that a scenario needs in the agent's configuration."""
        for document in yaml.safe_load_all(MANIFEST.read_text()):
            if document["kind"] != "DaemonSet":
                self.apply(document)
        if resources or settings:
            config = yaml.safe_load(self.agent_config())
            config.update(settings)
            config["resources"].update(resources)
            data = {"data": {"agent.yaml": yaml.safe_dump(config)}}
            self.api.call("PATCH", CONFIG_MAP, data, MERGE)

    def apply(self, document: Json) -> None:
        """Run `kubectl apply --server-side`."""
        metadata = document["metadata"]
        path = _PATHS[document["kind"]].format(namespace=metadata.get("namespace", "default"))
        query = "fieldManager=e2e&force=true&fieldValidation=Strict"
        self.api.call("PATCH", f"{path}/{metadata['name']}?{query}", document, APPLY)

    def agent_config(self) -> str:
        """The configuration file that the config map holds."""
        found = self.api.call("GET", CONFIG_MAP)
        return str(found["data"]["agent.yaml"])

    def token(self, account: str, **spec: Any) -> str:
        """A new token of one of our service accounts, which names this node as that of a pod does."""
        spec["boundObjectRef"] = {"kind": "Node", "apiVersion": "v1", "name": self.node}
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = f"/api/v1/namespaces/podslice/serviceaccounts/{account}/token"
        return str(self.api.call("POST", path, request)["status"]["token"])

    def begin_agent(self) -> None:
        """Start the agent with a new token of its service account."""
        token = self.token("podslice-agent")
        cluster = {"server": f"https://{SERVICE_ADDRESS}", "certificate-authority": "/etc/kubernetes/ca.crt"}
        self.vm.call("write", path=_AGENT_KUBECONFIG, text=json.dumps(make_kubeconfig(cluster, token)))
        self.vm.call("write", path=_CONFIG, text=self.agent_config())
        self.vm.call("shell", command=f"rm -f {SOCKET}")
        variables = {"KUBECONFIG": _AGENT_KUBECONFIG, "NODE_NAME": self.node, "NODE_IP": self.address}
        command = [*PODSLICE, "agent", "--config", _CONFIG]
        self.vm.call("start", name="agent", command=command, variables=variables)

    def wait_for_agent(self) -> None:
        """Wait until the agent is connected to the runtime and ready."""
        self.vm.call("wait_agent", path=SOCKET, ready=True, seconds=PATIENCE)

    def kill(self, name: str, number: int = 9) -> None:
        """End `agent`, `kubelet` or `containerd`."""
        self.vm.call("kill", name=name, number=number)

    def start_containerd(self) -> None:
        self.vm.call("start_containerd")

    def restart_kubelet(self) -> None:
        """Send SIGKILL, and wait for a new process that has read its pods."""
        self.kill("kubelet")
        self.start_kubelet()
        self.wait_for_kubelet()

    def wait_for_kubelet(self) -> None:
        """Wait until it reports that it is healthy; one that ended is restarted, as the node's supervisor does."""

        def is_well() -> bool:
            if not self.vm.call("is_running", name="kubelet"):
                self.start_kubelet()
                return False
            healthy = "busybox wget -q -O - http://127.0.0.1:10248/healthz 2>&1 || true"
            return bool(self.vm.call("shell", command=healthy).strip() == "ok")

        self.until("the kubelet is well", is_well)

    # Pods

    def create(self, manifest: Json) -> Json:
        """Create a pod of a scenario as a user does: the scheduler finds its node."""
        return self.api.call("POST", _pods(manifest), complete(manifest))

    def run(self, manifest: Json) -> Json:
        """Create a pod and wait until all its containers run."""
        self.create(manifest)
        return self.running(manifest["metadata"]["name"])

    def run_all(self, *manifests: Json) -> list[Json]:
        """Create several pods, which start at the same time, and wait until all their containers run."""
        for manifest in manifests:
            self.create(manifest)
        return [self.running(manifest["metadata"]["name"]) for manifest in manifests]

    def running(self, name: str) -> Json:
        """Wait until all containers of the pod run and are ready, and return it."""
        return self.pod_until(name, "runs", lambda pod: pod["status"]["phase"] == "Running" and is_ready(pod))

    def get(self, name: str, namespace: str = "default") -> Json:
        return self.api.call("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")

    def pods(self, selector: str = "") -> list[Json]:
        """The pods of the default namespace."""
        query = f"?labelSelector={selector}" if selector else ""
        found: list[Json] = self.api.call("GET", f"/api/v1/namespaces/default/pods{query}")["items"]
        return found

    def delete(self, *names: str, grace: int | None = None) -> None:
        """Delete pods and wait until they are gone."""
        query = "" if grace is None else f"?gracePeriodSeconds={grace}"
        for name in names:
            self.api.call("DELETE", f"/api/v1/namespaces/default/pods/{name}{query}")
        self.until(f"{', '.join(names)} are gone", lambda: not any(self.exists(name) for name in names))

    def exists(self, name: str) -> bool:
        try:
            self.get(name)
        except StatusError as error:
            if error.code != 404:
                raise
            return False
        return True

    def pod_until(self, name: str, what: str, condition: Callable[[Json], bool]) -> Json:
        """Return the pod once a condition holds for it."""
        found: list[Json] = []

        def holds() -> bool:
            found[:] = [self.get(name)]
            return condition(found[0])

        try:
            self.until(f"{name} {what}", holds)
        except CheckError as error:
            raise CheckError(f"{error}: {brief(self.get(name))}; {'; '.join(self.events(name)[-3:])}") from None
        return found[0]

    def events(self, name: str, namespace: str = "default") -> list[str]:
        """Reason and message of the events about a pod."""
        path = f"/api/v1/namespaces/{namespace}/events?fieldSelector=involvedObject.name={name}"
        return [f"{one['reason']}: {one['message']}" for one in self.api.call("GET", path)["items"]]

    def until(self, what: str, condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
        """Wait until a condition holds."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise CheckError(f"not so after {seconds:.0f} s: {what}")
            time.sleep(0.3)

    # Checks

    def status(self) -> Json:
        """Return the output of `podslice status`."""
        found: Json = self.vm.call("agent_status", path=SOCKET)
        return found

    def cpus(self, pod: Json, container: str) -> int:
        """The mask of a container's processes, all of which have the same."""
        masks = {one["cpus"] for one in self.cgroup(pod, container)["processes"]}
        check(len(masks) == 1, f"processes of {container} have the masks {sorted(masks)}")
        return parse_bits(masks.pop())

    def cgroup(self, pod: Json, container: str = "") -> Json:
        """The cgroup of a running container, else of the pod."""
        ident = container_ids(pod)[container] if container else f"pod{uid(pod)}"
        found = [one for path, one in self.vm.call("pod_cgroups").items() if cgroup_owner(path) == ident]
        check(len(found) == 1, f"{len(found)} cgroups of {ident}")
        one: Json = found[0]
        return one

    def exclusive(self, pod: Json, container: str, count: int) -> int:
        """Check that a container owns `count` CPUs, soon without a quota, and return them. The kubelet may write the
        pod's quota once more, which the agent then removes."""
        found = self.cpus(pod, container)
        check(found.bit_count() == count, f"{container} runs on CPUs {found:b}, expected {count}")
        check(not found & RESERVED, f"{container} has reserved CPUs")

        def has_no_quota() -> bool:
            return all(self.cgroup(pod, what)["cpu.max"].startswith("max ") for what in (container, ""))

        self.until(f"{container} and its pod have no quota", has_no_quota, PATIENCE / 3)
        return found

    def agree(self, *strangers: str) -> None:
        """Check that cgroups, masks and quotas soon agree with the status: the reconcile loop may be about to act.
        `strangers` are pods made without the agent, which it keeps reporting."""
        found: list[str] = []

        def agrees() -> bool:
            mine = [pod for pod in self.pods() if pod["spec"].get("nodeName") == self.node]
            running = {id: name for pod in mine for name, id in container_ids(pod).items()}
            found[:] = disagreements(self.status(), self.vm.call("pod_cgroups"), running, strangers)
            return not found

        try:
            self.until("the node does what the status says", agrees, PATIENCE / 3)
        except CheckError:
            raise CheckError("; ".join(found)) from None

    def processes(self) -> int:
        """Return the live shims (the guest's first process does not reap), and the processes of pods."""
        shims = "grep -l '[c]ontainerd-shim' /proc/[0-9]*/cmdline 2>/dev/null"
        pods = "find /sys/fs/cgroup/kubepods -name cgroup.procs -exec cat {} +"
        return int(self.vm.call("shell", command=f"{{ {shims}; {pods}; }} | wc -l"))

    def nothing_left(self) -> None:
        """Delete all pods of scenarios, and check that no CPU is owned then and no cgroup of a pod is left."""
        names = [pod["metadata"]["name"] for pod in self.pods() if not is_mirror(pod)]
        if names:
            self.delete(*names, grace=1)
        self.until("the state has no owners", lambda: not self.owners())

    def owners(self) -> list[str]:
        """Return the owners of CPUs in the agent's state file."""
        state = json.loads(self.vm.call("read", path=f"{STATE}/cpu_manager_state"))
        return [*state.get("entries", {}), *state.get("podEntries", {})]

    def last_words(self) -> str:
        """Return the last output of the node's programs. Raises `GuestError`, `StoppedError`."""
        command = "; ".join(
            f"echo '--- {name}'; tail -n {lines} /run/{name}.log | cut -c1-400"
            for name, lines in (("agent", 8), ("kubelet", 8), ("containerd", 4))
        )
        return f"{self.vm.call('shell', command=command, timeout=30)}\n--- QEMU\n{self.vm.last_output()}"

    def reaches_the_server(self) -> bool:
        """Whether a connection from the guest to the API server can be made, which is up. Raises `GuestError`,
        `StoppedError`."""
        connect = f"import socket; socket.create_connection(('{SERVICE_ADDRESS}', 443), 20)"
        command = f'python3 -c "{connect}" 2>/dev/null && echo yes || echo no'
        return bool(self.vm.call("shell", command=command, timeout=60).strip() == "yes")


def complete(manifest: Json) -> Json:
    """Make a pod with an image that is on the node, which ends at once on SIGTERM."""
    spec = json.loads(json.dumps(manifest["spec"]))
    for field in ("initContainers", "containers"):
        for container in spec.get(field, []):
            container.setdefault("image", "localhost/sleep:1")
            container["imagePullPolicy"] = "Never"
    defaults = {"automountServiceAccountToken": False, "enableServiceLinks": False, "terminationGracePeriodSeconds": 5}
    metadata = {key: value for key, value in manifest["metadata"].items() if key != "uid"}
    return {**manifest, "metadata": metadata, "spec": {**defaults, **spec}}


def _pods(manifest: Json) -> str:
    return f"/api/v1/namespaces/{manifest['metadata'].get('namespace', 'default')}/pods"


def is_mirror(pod: Json) -> bool:
    return "kubernetes.io/config.mirror" in (pod["metadata"].get("annotations") or {})


def uid(pod: Json) -> str:
    """Return the name of the pod at the kubelet."""
    return str((pod["metadata"].get("annotations") or {}).get("kubernetes.io/config.hash") or pod["metadata"]["uid"])


def is_ready(pod: Json) -> bool:
    conditions = {one["type"]: one["status"] for one in pod["status"].get("conditions", [])}
    return conditions.get("Ready") == "True"


def container_ids(pod: Json) -> dict[str, str]:
    """The ids of the containers that run, by name."""
    lists = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
    return {
        one["name"]: one["containerID"].rpartition("/")[2]
        for field in lists
        for one in pod["status"].get(field) or []
        if "running" in one.get("state", {})
    }


def restarts(pod: Json) -> int:
    """Return how often the pod's containers were restarted."""
    return sum(one["restartCount"] for one in pod["status"].get("containerStatuses") or [])


def brief(pod: Json) -> str:
    """Phase, reason and the state of each container."""
    status = pod["status"]
    parts = [status.get("phase", ""), status.get("reason", ""), status.get("message", "")]
    for one in (status.get("initContainerStatuses") or []) + (status.get("containerStatuses") or []):
        state, what = next(iter(one.get("state", {"?": {}}).items()))
        parts.append(f"{one['name']} {state} {what.get('reason', '')} {what.get('message', '')[:200]}".strip())
    return ", ".join(part for part in parts if part)
