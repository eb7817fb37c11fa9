"""A real kubelet on this machine that sees another machine.

It runs in a mount namespace of its own: the CPUs, NUMA nodes and memory that `/sys` and `/proc` show there are those of
a `Shape`, `/var/lib/kubelet` is a folder of the caller, and kernel settings that a kubelet changes are files. Its
cgroups are below one of its own. Needs root and `unshare`.

    with ControlPlane(programs, folder / "plane", Settings(nodes=("n1",))) as plane, \\
            FakeRuntime(folder / "cri.sock") as runtime, \\
            RealKubelet(programs.hyperkube, plane.kubeconfig("system:node:n1"), "n1", folder=folder / "n1",
                        machine=Shape("two nodes", sockets=2, nodes=2, cores=4), runtime=runtime) as kubelet:
        kubelet.start({"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"})
        kubelet.file("cpu_manager_state")
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc
from e2e.controlplane import free_port

from podslice.service.proto import podresources_pb2 as podresources
from tools.prediction.machine import Shape, write
from tools.prediction.runtime import FakeRuntime
from tools.prediction.shortage import ShortageError, inotify_shortage, shortage_in

Json = dict[str, Any]
_PATIENCE = 60.0
_ROOT = "/var/lib/kubelet"
_HIDDEN = ("/var/lib", "/var/log")
_SETTINGS = (
    "vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)  # fmt: skip
_SEEN = ("sys/devices/system/cpu", "sys/devices/system/node", "sys/kernel/mm/hugepages", "proc/cpuinfo", "proc/meminfo")
_HOUSE_KEPT = '"SyncLoop (housekeeping) end"'
_ERROR = re.compile(r'\] "(?P<what>(?:[^"\\]|\\.)*)"(?: err="(?P<error>(?:[^"\\]|\\.)*)")?')
_CGROUP_FILES = (
    "cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us", "memory.limit_in_bytes",
    "hugetlb.2MB.limit_in_bytes",
    "cpu.weight", "cpu.max", "memory.min", "memory.low", "memory.high", "memory.max", "hugetlb.2MB.max",
)  # fmt: skip
"""Files of cgroup version 1, and of version 2."""
_POD_RESOURCES: dict[str, tuple[Any, Any]] = {
    "List": (podresources.ListPodResourcesRequest, podresources.ListPodResourcesResponse),
    "Get": (podresources.GetPodResourcesRequest, podresources.GetPodResourcesResponse),
    "GetAllocatableResources": (podresources.AllocatableResourcesRequest, podresources.AllocatableResourcesResponse),
}


class KubeletEndedError(Exception):
    """Raised when the kubelet did not start, or ended; the text is its last error."""


def why_not() -> str | None:
    """Return why no kubelet can run here; None where it can."""
    if os.geteuid() != 0:
        return "needs root (mount namespaces, cgroups)"
    if not shutil.which("unshare"):
        return "needs unshare (Debian: apt-get install util-linux)"
    return inotify_shortage() or None


class RealKubelet:
    """One node. `start` and `stop` may be called repeatedly: files, pods in the runtime and cgroups stay until the
    context ends. `folder` is what the kubelet sees as /var/lib/kubelet; its sockets are usable from there."""

    def __init__(
        self, hyperkube: Path, kubeconfig: Json, node: str, *, folder: Path, machine: Shape, runtime: FakeRuntime
    ) -> None:
        self.node = node
        self.folder = folder / "kubelet"
        self.machine = folder / "machine"
        self.config_file = folder / "config.json"
        self.port = 0
        self._hyperkube, self._work, self._runtime = hyperkube, folder, runtime
        self._process: subprocess.Popen[bytes] | None = None
        self._health = 0
        self.cgroup_root = f"podslice-prediction-{os.getpid()}-{node}"
        self.folder.mkdir(parents=True)
        write(machine, self.machine)
        (folder / "kubeconfig").write_text(json.dumps(kubeconfig))
        (folder / "manifests").mkdir()

    def __enter__(self) -> RealKubelet:
        for hierarchy in cgroup_hierarchies():
            (hierarchy / self.cgroup_root).mkdir(exist_ok=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()
        for hierarchy in cgroup_hierarchies():
            for folder, _, _ in os.walk(hierarchy / self.cgroup_root, topdown=False):
                os.rmdir(folder)

    def start(self, config: Json) -> None:
        """Start a kubelet with this configuration, plus what this machine needs, and wait until it is healthy and has
        its managers. Raises `KubeletEndedError`, `ShortageError`."""
        assert self._process is None
        self.port, self._health = free_port(), free_port()
        self.config_file.write_text(json.dumps(self._settings() | config, indent=1))
        with (self._work / "kubelet.log").open("ab") as log:
            self._began = log.tell()
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private", "sh", "-ec",
                 self._script()],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        self.wait("healthy", self._healthy)

    def stop(self, *, kill: bool = False) -> None:
        """End the kubelet; its pods run on. With `kill` it ends at once, as in a crash."""
        if self._process is not None:
            self._process.kill() if kill else self._process.terminate()
            self._process.wait(_PATIENCE)
            self._process = None

    @property
    def runs(self) -> bool:
        """Whether the kubelet runs."""
        return self._process is not None

    def file(self, name: str) -> bytes:
        """Read a file below the kubelet's root; empty if there is none."""
        path = self.folder / name
        return path.read_bytes() if path.exists() else b""

    def log(self) -> str:
        """Return the log of the kubelet since its last start."""
        return (self._work / "kubelet.log").read_bytes()[self._began :].decode(errors="replace")

    def socket(self, name: str) -> str:
        """Return the address of a socket below the kubelet's root, for gRPC."""
        return f"unix://{self.folder / name}"

    def pod_resources(self, method: str, **asked: str) -> Any:
        """Call a method of the PodResources API, which accepts ten calls at a time. Raises `grpc.RpcError`."""
        request, response = _POD_RESOURCES[method]
        with grpc.insecure_channel(self.socket("pod-resources/kubelet.sock")) as channel:
            ask = channel.unary_unary(
                f"/v1.PodResourcesLister/{method}",
                request_serializer=request.SerializeToString,
                response_deserializer=response.FromString,
            )
            while True:
                try:
                    return ask(request(**asked), timeout=_PATIENCE, wait_for_ready=True)
                except grpc.RpcError as error:
                    if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                        raise
                time.sleep(0.05)

    def cgroup_files(self, path: str) -> dict[str, str]:
        """Read the files about resources of a cgroup below that of this node, in all hierarchies; empty where there is
        no such cgroup."""
        return {
            name: file.read_text().strip()
            for hierarchy in cgroup_hierarchies()
            for name in _CGROUP_FILES
            if (file := Path(hierarchy, f"{self.cgroup_root}{path}", name)).exists()
        }

    def wait(self, what: str, until: Callable[[], bool]) -> None:
        """Wait until `until` holds. Raises `KubeletEndedError` if the kubelet ends or a minute passes, `ShortageError`
        where the machine lacks something for it."""
        deadline = time.monotonic() + _PATIENCE
        while not until():
            process = self._process
            if process is not None and process.poll() is not None:
                self._process = None
                raise self._end_error(last_error(self.log()))
            if time.monotonic() > deadline:
                raise self._end_error(f"waited a minute in vain: {what}")
            time.sleep(0.05)

    def _end_error(self, why: str) -> Exception:
        short = shortage_in(self.log())
        return ShortageError(short) if short else KubeletEndedError(why)

    def has_readmitted(self) -> bool:
        """Whether this kubelet has admitted the pods that ran before it: its loop continues after it got them."""
        _, found, rest = self.log().partition('"SyncLoop ADD" source="api"')
        return bool(found) and '"SyncLoop' in rest

    def keep_house(self) -> None:
        """Wait until the kubelet has cleaned up after removed pods once more (every two seconds)."""
        before = self.log().count(_HOUSE_KEPT)
        self.wait("housekeeping", lambda: self.log().count(_HOUSE_KEPT) > before)

    def _healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._health}/healthz", timeout=5) as answer:
                healthy = bool(answer.read() == b"ok")
        except (urllib.error.URLError, OSError):
            return False
        return healthy and "Starting Kubelet Plugin Manager" in self.log()

    def _settings(self) -> Json:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "address": "127.0.0.1",
            "port": self.port,
            "healthzPort": self._health,
            "readOnlyPort": 0,
            "containerRuntimeEndpoint": self._runtime.endpoint,
            "staticPodPath": str(self._work / "manifests"),
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.cgroup_root}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "oomScoreAdj": 0,
            "resolvConf": "",
            "makeIPTablesUtilChains": False,
            "volumePluginDir": str(self._work / "plugins"),
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
            "cpuManagerReconcilePeriod": "1s",
            "nodeStatusUpdateFrequency": "1s",
            "kubeAPIQPS": 200,
            "kubeAPIBurst": 400,
            "registryPullQPS": 0,
            "eventRecordQPS": 0,
        }

    def _script(self) -> str:
        binds = [(str(self.machine / path), f"/{path}") for path in _SEEN if Path("/", path).exists()]
        for name in _SETTINGS:
            copy = self._work / "sysctl" / name
            if Path("/proc/sys", name).exists():
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(Path("/proc/sys", name).read_bytes())
                binds.append((str(copy), f"/proc/sys/{name}"))
        lines = [
            *(f"mount --bind {source} {target}" for source, target in binds),
            *(f"mount -t tmpfs none {place}" for place in _HIDDEN),
            f"mkdir -p {_ROOT}",
            f"mount --bind {self.folder} {_ROOT}",
            f"PATH=/none exec {self._hyperkube} kubelet --kubeconfig={self._work / 'kubeconfig'} "
            f"--config={self.config_file} --root-dir={_ROOT} --cert-dir={_ROOT}/pki "
            f"--hostname-override={self.node} --v=4",
        ]
        return "\n".join(lines)


def cgroup_hierarchies() -> list[Path]:
    """Return where cgroups are mounted: one place with version 2, one for each controller with version 1."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return [Path(mount[1]) for mount in mounts if mount[2] in ("cgroup", "cgroup2")]


def last_error(log: str) -> str:
    """Return text and error of the last line about an error in a kubelet's log."""
    found = [match for line in log.splitlines() if re.search(r"\b[EF]\d{4} ", line) and (match := _ERROR.search(line))]
    if not found:
        return log.strip().splitlines()[-1] if log.strip() else "it said nothing"
    text, error = found[-1]["what"], found[-1]["error"]
    return _unquote(text if error is None else f"{text}: {error}")


def _unquote(text: str) -> str:
    return text.replace('\\"', '"').replace("\\n", "\n").replace("\\\\", "\\")


def cgroup_version() -> int:
    """Return 1 where any controller has a hierarchy of its own, else 2."""
    return 1 if any((hierarchy / "memory.limit_in_bytes").exists() for hierarchy in cgroup_hierarchies()) else 2
