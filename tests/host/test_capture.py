"""A node is captured with podslice, with a shell script, or through ssh; each time the same node comes back."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml

from podslice.cli.options.config import find_source
from podslice.cli.options.node_files import load_config
from podslice.evidence.pod_resources import read_pod_resources
from podslice.host.bundle import ssh
from podslice.host.bundle.captured import SCRIPT, add_capture
from podslice.host.bundle.layout import CONFIGURATION, POD_RESOURCES, Manifest
from podslice.host.bundle.opened import open_bundle
from podslice.host.bundle.ssh import capture_by_ssh
from podslice.host.bundle.written import BundleParts, capture_node
from podslice.host.discover import discover_snapshot
from podslice.host.filesystem import DiskFileSystem
from podslice.host.machine_files import load_machine
from podslice.node.devices.checkpoint import PodDevicesEntry, encode, load
from podslice.service.kubeletresources import SERVICE
from podslice.service.proto import podresources_pb2 as api
from podslice.values.errors import InputError
from tests.host import bundles
from tests.host.bundles import SECRET
from tests.machine.test_snapshot import FILES
from tests.shell import ROOT
from tests.shell import podslice as run

NO_PROCESS = "no process is named kubelet: its flags and drop-ins are not known"
DEVICES = encode([PodDevicesEntry("uid-db", "main", "e.com/gpu", {0: ["g"]}, SECRET.encode())], {"e.com/gpu": ["g"]})


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """The file system of a node: its hardware, and the kubelet's folder with secrets around what is captured."""
    root = tmp_path / "root"
    kubelet = root / "var/lib/kubelet"
    files = {name: text.encode() for name, text in FILES.items()}
    files |= {f"var/lib/kubelet/{name}": data for name, data in bundles.state_files().items()}
    files |= {
        "sys/devices/system/node/node0/cpulist": b"0-1\n",
        "sys/devices/system/node/node0/cpumap": b"3\n",
        "sys/bus/pci/devices/0000:65:00.0/class": b"0x030200\n",
        "sys/bus/pci/devices/0000:65:00.0/vendor": b"0x10de\n",
        "proc/meminfo": b"MemTotal: 1024 kB\n",
        "proc/cmdline": f"root=/dev/sda token={SECRET} rcu_nocbs=1 quiet\n".encode(),
        "var/lib/kubelet/config.yaml": yaml.safe_dump(bundles.CONFIG).encode(),
        "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint": DEVICES,
        "var/lib/kubelet/pki/kubelet.key": SECRET.encode(),
        "var/lib/kubelet/pods/uid-db/volumes/kubernetes.io~projected/token": SECRET.encode(),
    }
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    for cpu in (0, 1):
        (root / f"sys/devices/system/node/node0/cpu{cpu}").symlink_to(f"../../cpu/cpu{cpu}")
    (kubelet / "pods/uid-web").mkdir()
    return root


def run_script(node: Path, out: Path, **environment: str) -> Path:
    around = {**os.environ, "PODSLICE_ROOT": str(node), "PODSLICE_NODE": "n7", "TMPDIR": str(out.parent), **environment}
    with out.open("wb") as target:
        subprocess.run(["sh", str(SCRIPT)], env=around, stdout=target, check=True)
    return out


def check(path: Path, scratch: Path) -> None:
    """A capture of the node is whole, and holds no secret."""
    with tarfile.open(path) as archive:
        contents = {m.name: archive.extractfile(m).read() for m in archive if m.isfile()}  # type: ignore[union-attr]
    assert not [name for name, data in contents.items() if SECRET.encode() in data]
    assert not [name for name in contents if "pki" in name or "token" in name]
    scratch.mkdir()
    bundle = open_bundle(path, scratch)
    assert bundle.machine == path
    machine = discover_snapshot(path)
    assert [core.threads for core in machine.nodes[0].cores] == [(0,), (1,)]
    assert str(machine.rcu_nocbs) == "1"
    assert bundle.state is not None
    assert {one.name for one in (bundle.state / "pods").iterdir()} == {"uid-db", "uid-web"}
    for name, data in bundles.state_files().items():
        assert (bundle.state / name).read_bytes() == data
    (entry,) = load((bundle.state / "device-plugins/kubelet_internal_checkpoint").read_bytes()).entries or []
    assert (entry.pod, entry.response) == ("uid-db", None)
    config = yaml.safe_load((scratch / "kubelet/config.yaml").read_text())
    assert config == {name: value for name, value in bundles.CONFIG.items() if name != "staticPodURLHeader"}


def test_capture_with_podslice(node: Path, tmp_path: Path) -> None:
    path = tmp_path / "n7.tar.gz"
    path.write_bytes(capture_node(node / "var/lib/kubelet", DiskFileSystem(node)).archive(bundles.Manifest()))
    check(path, tmp_path / "out")


@pytest.mark.process
@pytest.mark.parametrize("cp", ["as it is", "without --parents"])
def test_capture_with_a_shell(node: Path, tmp_path: Path, cp: str) -> None:
    """The script writes the same bundle, also where cp is a plain one, and leaves nothing behind."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "tmp").mkdir()
    if cp != "as it is":
        (tmp_path / "bin/cp").write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / "bin/cp").chmod(0o755)
    out = tmp_path / "n7.tar.gz"
    run_script(node, out, PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}", TMPDIR=str(tmp_path / "tmp"))
    check(out, tmp_path / "out")
    assert not list((tmp_path / "tmp").iterdir())
    assert open_bundle(out, tmp_path / "out").manifest.node == "n7"


@pytest.mark.process
def test_shell_and_podslice_agree(node: Path, tmp_path: Path) -> None:
    """The machine is the same by both."""
    ours, theirs = tmp_path / "m.tar.gz", tmp_path / "theirs" / "m.tar.gz"
    theirs.parent.mkdir()
    ours.write_bytes(capture_node(node / "var/lib/kubelet", DiskFileSystem(node)).archive(bundles.Manifest()))
    a, b = load_machine(ours), load_machine(run_script(node, theirs))
    assert (a.nodes, a.pci_devices, a.rcu_nocbs, a.memory) == (b.nodes, b.pci_devices, b.rcu_nocbs, b.memory)


@pytest.mark.process
def test_script_says_what_is_missing(node: Path, tmp_path: Path) -> None:
    """Without the kubelet's files there is a machine, and the manifest says what is not there and why."""
    out = run_script(node, tmp_path / "n7.tar.gz", PODSLICE_KUBELET="/var/lib/k0s/kubelet", PODSLICE_NODE='n"7\n')
    (tmp_path / "out").mkdir()
    manifest = open_bundle(out, tmp_path / "out").manifest
    assert manifest.node == "n7"
    assert manifest.missing == (
        ("kubelet/cmdline", NO_PROCESS),
        ("kubelet", "no state file can be read in /var/lib/k0s/kubelet; root can"),
    )


# The running kubelet


def start(root: Path, number: int, *words: str, name: str = "kubelet", numbers: str = "") -> None:
    """Let a process run on the node, in a PID namespace below the node's own if it has more `numbers`."""
    folder = root / f"proc/{number}"
    folder.mkdir(parents=True)
    (folder / "comm").write_text(f"{name}\n")
    (folder / "cmdline").write_bytes("".join(f"{word}\0" for word in words).encode())
    (folder / "status").write_text(f"Name:\t{name}\nNSpid:\t{numbers or number}\nThreads:\t9\n")


def put(root: Path, path: str, **fields: Any) -> None:
    """Write a KubeletConfiguration."""
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    head = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
    target.write_text(yaml.safe_dump({**head, **fields}))


def captures(root: Path, folder: Path) -> list[Path]:
    """Capture a node with podslice and with the script."""
    folder.mkdir()
    ours = folder / "ours.tar.gz"
    made = capture_node(root / "var/lib/kubelet", DiskFileSystem(root))
    ours.write_bytes(made.archive(Manifest(missing=tuple(made.missing))))
    return [ours, run_script(root, folder / "script.tar.gz")]


def read(path: Path) -> tuple[dict[str, bytes], list[tuple[str, str]]]:
    """Return the files of the configuration in a bundle, and what it says is missing."""
    with tarfile.open(path) as archive:
        contents = {m.name: archive.extractfile(m).read() for m in archive if m.isfile()}  # type: ignore[union-attr]
    assert not [name for name, data in contents.items() if SECRET.encode() in data]
    missing = json.loads(contents["bundle.json"])["missing"]
    kept = {name: data for name, data in contents.items() if name.startswith(CONFIGURATION)}
    return kept, [(part, reason) for part, reason in missing]


@pytest.mark.process
def test_configuration_of_the_running_kubelet(node: Path, tmp_path: Path) -> None:
    """File, drop-ins and flags come from where the kubelet has them, and count in its order; a file that it does not
    read does not."""
    put(node, "etc/kubernetes/kubelet.conf", maxPods=50, cpuManagerPolicy="static", reservedSystemCPUs="0",
        staticPodURLHeader={"Authorization": [SECRET]})  # fmt: skip
    put(node, "etc/kubernetes/kubelet.conf.d/10-pods.conf", maxPods=60, podsPerCore=4)
    put(node, "etc/kubernetes/kubelet.conf.d/20-numa.conf", maxPods=70, topologyManagerPolicy="restricted",
        staticPodURLHeader={"Authorization": [SECRET]})  # fmt: skip
    put(node, "etc/kubernetes/kubelet.conf.d/team/30-last.conf", topologyManagerScope="pod")
    put(node, "etc/kubernetes/kubelet.conf.d/40-ignored.yaml", maxPods=1)
    start(
        node, 4711, "/usr/bin/kubelet", "--config", "/etc/kubernetes/kubelet.conf",
        "--config-dir=/etc/kubernetes/kubelet.conf.d", f"--manifest-url-header=Authorization:{SECRET}",
        "--reserved_cpus=0-1", "--node-labels", f"token={SECRET}", f"--unknown={SECRET}", "-v", "4", "--fail-swap-on",
    )  # fmt: skip
    for path in captures(node, tmp_path / "made"):
        files, missing = read(path)
        assert missing == []
        assert files.keys() == {
            "kubelet/cmdline", "kubelet/config.yaml", "kubelet/config.d/10-pods.conf", "kubelet/config.d/20-numa.conf",
            "kubelet/config.d/team/30-last.conf",
        }  # fmt: skip
        assert files["kubelet/cmdline"].split(b"\0") == [
            b"kubelet", b"--config=/etc/kubernetes/kubelet.conf", b"--config-dir=/etc/kubernetes/kubelet.conf.d",
            b"--reserved-cpus=0-1", b"--fail-swap-on", b"",
        ]  # fmt: skip
        scratch = tmp_path / path.name
        scratch.mkdir()
        bundle = open_bundle(path, scratch)
        source = find_source(str(bundle.config), bundle)
        loaded = load_config(source, ())
        config = loaded.config
        assert (config.max_pods, config.pods_per_core, config.cpu_manager_policy) == (70, 4, "static")
        assert (config.topology_manager_policy, config.topology_manager_scope) == ("restricted", "pod")
        assert (config.reserved_system_cpus, config.fail_swap_on) == ("0-1", True)
        places = (bundle.folder / name for name in ("kubelet/config.yaml", "kubelet/config.d", "kubelet/cmdline"))
        assert source.options == tuple(zip(("--config", "--config-dir", "the flags in"), map(str, places), strict=True))
        assert loaded.assumed == ()


UNIT = """[Service]
Type=notify
ExecStartPre=/bin/sh -xc '! systemctl is-enabled --quiet nm-cloud-setup.service'
ExecStart=/usr/local/bin/k3s \\
    server \\
        '--token' \\
        'SECRET' \\
        '--kubelet-arg' \\
        'max-pods=77' \\
        '--kubelet-arg=eviction-hard=memory.available<1%,nodefs.available<2%' \\

Restart=always
"""
K3S_FILES = {
    "config.yaml": f"token: {SECRET}\nkubelet-arg:\n- max-pods=10\n #\n- 'cpu-manager-policy=static'\nnode-name: n7\n",
    "config.yaml.d/10.yaml": f'kubelet-arg+: ["reserved-cpus=0-1", \'node-labels=token={SECRET}\', v=4] # why\n',
    "config.yaml.d/20.yaml": "kubelet-arg+: eviction-hard=memory.available<1%   # one\n",
    "config.yaml.d/30.yml": "kubelet-arg: max-pods=1\n",
}  # fmt: skip


@pytest.mark.process
@pytest.mark.parametrize(
    ("files", "flags"),
    [
        (K3S_FILES, ["--max-pods=10", "--cpu-manager-policy=static", "--reserved-cpus=0-1", "--v=4",
                     "--eviction-hard=memory.available<1%"]),
        ({**K3S_FILES, "config.yaml.d/40.yaml": "kubelet-arg:\n  - 'max-pods=5'\n"}, ["--max-pods=5"]),
        ({"config.yaml": "node-name: n7\n"}, []),
    ],
    ids=["added", "replaced", "none"],
)  # fmt: skip
def test_k3s_is_the_kubelet(node: Path, tmp_path: Path, files: dict[str, str], flags: list[str]) -> None:
    """k3s has no process named kubelet and hides its options. The arguments come from its configuration, without the
    token beside them; those of its unit replace them."""
    start(node, 700, "/usr/local/bin/k3s server", name="k3s-server")
    for path in captures(node, tmp_path / "nothing"):
        kept, ((part, reason),) = read(path)
        assert (kept, part) == ({}, "kubelet/cmdline")
        assert reason == "k3s runs the kubelet, and neither /etc/rancher/k3s nor its unit can be read here"
    for name, text in files.items():
        place = node / "etc/rancher/k3s" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    put(node, "var/lib/rancher/k3s/agent/etc/kubelet.conf.d/00-k3s-defaults.conf", clusterDomain="cluster.local")
    settings = "--config-dir=/var/lib/rancher/k3s/agent/etc/kubelet.conf.d"
    for path in captures(node, tmp_path / "files"):
        kept, missing = read(path)
        assert kept["kubelet/cmdline"].decode().split("\0") == ["kubelet", settings, *flags, ""]
        assert "kubelet/config.d/00-k3s-defaults.conf" in kept
        assert missing == []
    (node / "etc/systemd/system").mkdir(parents=True)
    (node / "etc/systemd/system/k3s.service").write_text(UNIT.replace("SECRET", SECRET))
    eviction = "--eviction-hard=memory.available<1%,nodefs.available<2%"
    for path in captures(node, tmp_path / "unit"):
        kept, _ = read(path)
        assert kept["kubelet/cmdline"].decode().split("\0") == ["kubelet", settings, "--max-pods=77", eviction, ""]
    start(node, 90, "kubelet", "--max-pods=1")
    for path in captures(node, tmp_path / "kubelet"):
        assert read(path)[0]["kubelet/cmdline"] == b"kubelet\0--max-pods=1\0"


@pytest.mark.process
def test_processes_named_kubelet(node: Path, tmp_path: Path) -> None:
    """The node's own one counts, not one of a container; with several of other flags none does."""
    start(node, 90, "kubelet", "--max-pods=1", numbers="90 7")
    assert read(captures(node, tmp_path / "a")[0])[0]["kubelet/cmdline"] == b"kubelet\0--max-pods=1\0"
    start(node, 100, "/usr/bin/kubelet", "--max-pods=2")
    start(node, 101, "/usr/bin/kubelet", "--max-pods=2")
    start(node, 102, "/usr/bin/kubelet-wrapper", "--max-pods=3", name="kubelet-wrapper")
    start(node, 103, name="kubelet")
    for path in captures(node, tmp_path / "b"):
        files, missing = read(path)
        assert files == {"kubelet/cmdline": b"kubelet\0--max-pods=2\0"}
        assert missing == []
    start(node, 110, "/usr/bin/kubelet", "--max-pods=4")
    for path in captures(node, tmp_path / "c"):
        files, missing = read(path)
        assert files == {}
        assert [part for part, _ in missing] == ["kubelet/cmdline"]
        assert "processes are named kubelet, with different flags" in missing[0][1]


@pytest.mark.process
def test_files_that_flags_name_are_checked(node: Path, tmp_path: Path) -> None:
    """A flag can name any file: one that is not a KubeletConfiguration is left out, and so is one that is not there."""
    (node / "etc").mkdir()
    (node / "etc/shadow").write_text(f"root: {SECRET}\n")
    start(node, 100, "kubelet", "--config=/etc/shadow", "--config-dir=/etc/none.d")
    for path in captures(node, tmp_path / "a"):
        files, missing = read(path)
        assert files.keys() == {"kubelet/cmdline"}
        assert [part for part, _ in missing] == ["kubelet/config.yaml", "kubelet/config.d"]
        assert "not a KubeletConfiguration" in missing[0][1]
        assert "/etc/none.d holds no drop-in" in missing[1][1]
    (node / "proc/100/cmdline").write_bytes(b"kubelet\0--config=/etc/none.conf\0")
    for path in captures(node, tmp_path / "b"):
        files, ((part, reason),) = read(path)
        assert files.keys() == {"kubelet/cmdline"}
        assert part == "kubelet/config.yaml"
        assert reason.startswith("/etc/none.conf ")


@pytest.mark.process
@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["--max-pods", "5"], ["--max-pods=5"]),
        (["--max-pods", "--fail-swap-on"], ["--max-pods", "--fail-swap-on"]),
        (["--oom-score-adj", "-999"], ["--oom-score-adj=-999"]),
        (["--fail-swap-on", "-v2", "--max-pods=5"], ["--fail-swap-on", "--max-pods=5"]),
        (["--kube_reserved=cpu=1,memory=1Gi"], ["--kube-reserved=cpu=1,memory=1Gi"]),
        (["--max-pods=5", "--", "--max-pods=6"], ["--max-pods=5"]),
        (["--node-labels=a\nb", SECRET, "--manifest-url", SECRET], []),
        (["--eviction-hard=nodefs.available<5%", "--cgroup-root="],
         ["--eviction-hard=nodefs.available<5%", "--cgroup-root="]),
        (["stray", "-", "--feature-gates", "A=true"], ["--feature-gates=A=true"]),
    ],
)  # fmt: skip
def test_flags_that_are_kept(node: Path, tmp_path: Path, words: list[str], kept: list[str]) -> None:
    """Those of the configuration, each with its value in one word; podslice and the script agree."""
    start(node, 100, "/opt/bin/kubelet", *words)
    for path in captures(node, tmp_path / "made"):
        assert read(path)[0]["kubelet/cmdline"].decode().split("\0") == ["kubelet", *kept, ""]


def test_flags_alone_and_the_answer_of_the_kubelet(tmp_path: Path) -> None:
    """Flags without a file say which file is not known; what a running kubelet answers has all of them in it."""
    made = bundles.parts()
    made.files |= {"kubelet/cmdline": b"kubelet\0--config=/etc/k.conf\0--max-pods=7\0"}
    path, scratch = tmp_path / "x.tar.gz", tmp_path / "a"
    path.write_bytes(made.archive(Manifest()))
    scratch.mkdir()
    bundle = open_bundle(path, scratch)
    assert (bundle.drop_ins, bundle.command_line) == (None, None)
    del made.files["api/configz.json"]
    path.write_bytes(made.archive(Manifest()))
    (tmp_path / "b").mkdir()
    bundle = open_bundle(path, tmp_path / "b")
    loaded = load_config(find_source(str(bundle.config), bundle), ())
    assert loaded.config.max_pods == 7
    assert loaded.assumed == ("/etc/k.conf, which the command line names, sets nothing: its content was not given",)


def test_missing_configuration_that_the_kubelet_answers(node: Path, tmp_path: Path) -> None:
    """Where the running kubelet said its configuration, nothing of it is missing."""
    path = tmp_path / "n7.tar.gz"
    made = capture_node(node / "var/lib/kubelet", DiskFileSystem(node))
    path.write_bytes(made.archive(Manifest(missing=tuple(made.missing))))
    for answered in (True, False):
        parts = bundles.parts(machine=False, state=False, api=answered)
        add_capture(parts, path)
        assert [part for part, _ in parts.missing] == ([] if answered else ["kubelet/cmdline"])


HEADER = f'{{"Authorization": ["Bearer {SECRET}"]}}'


@pytest.mark.process
@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("cpuManagerPolicy: static\n", "cpuManagerPolicy: static\n"),
        ('{"cpuManagerPolicy": "static"}\n', '{"cpuManagerPolicy": "static"}\n'),
        (f"staticPodURLHeader: {HEADER}\ncpuManagerPolicy: static\n", "cpuManagerPolicy: static\n"),
        (f"'staticPodURLHeader': {HEADER}\nmaxPods: 9\n", "maxPods: 9\n"),
        (f"staticPodURLHeader:\n  Authorization:\n  - {SECRET}\n- {SECRET}\nmaxPods: 9\n", "maxPods: 9\n"),
        (f'{{"staticPodURLHeader": {HEADER}}}\n', None),
        (f'{{\n  "staticPodURLHeader": {HEADER},\n  "maxPods": 9\n}}\n', None),
        (f"  staticPodURLHeader: {HEADER}\n  maxPods: 9\n", None),
        (f'"\\u0073taticPodURLHeader": {HEADER}\n', None),
    ],
)
def test_script_leaves_headers_out(node: Path, tmp_path: Path, text: str, kept: str | None) -> None:
    """They are cut out of the kubelet's file; where that is not possible it is missing, and the bundle says so."""
    (node / "var/lib/kubelet/config.yaml").write_text(text)
    out = run_script(node, tmp_path / "n7.tar.gz")
    with tarfile.open(out) as archive:
        contents = {m.name: archive.extractfile(m).read() for m in archive if m.isfile()}  # type: ignore[union-attr]
    assert not [name for name, data in contents.items() if SECRET.encode() in data]
    found = contents.get("kubelet/config.yaml")
    assert (None if found is None else found.decode()) == kept
    (tmp_path / "out").mkdir()
    missing = open_bundle(out, tmp_path / "out").manifest.missing
    assert [part for part, _ in missing[1:]] == (["kubelet/config.yaml"] if kept is None else [])


def test_script_in_deploy_is_the_script() -> None:
    """People copy the one in deploy, podslice sends the one in the package."""
    assert (ROOT / "deploy/capture.sh").read_bytes() == SCRIPT.read_bytes()


def test_capture_command(node: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine, with a warning where there is no kubelet."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    out = tmp_path / "here.tar.gz"
    answer = run("capture", "--out", out, "--kubelet", node / "var/lib/kubelet")
    assert answer.returncode == 0
    assert answer.stderr.splitlines()[1:] == []
    assert run("topology", "--node", out).returncode == 0
    answer = run("capture", "--out", out, "--kubelet", tmp_path / "none")
    assert "kubelet is missing: " in answer.stderr
    assert run("capture", "--sudo").returncode == 2


@pytest.mark.process
def test_capture_is_added_to_parts(node: Path, tmp_path: Path) -> None:
    """The files of a node are added to those of the API server."""
    parts = bundles.parts(machine=False, state=False)
    manifest = add_capture(parts, run_script(node, tmp_path / "n7.tar.gz"))
    assert manifest.by == "capture.sh"
    whole = tmp_path / "whole.tar.gz"
    whole.write_bytes(parts.archive(manifest))
    check_parts = BundleParts()
    add_capture(check_parts, whole)
    assert "api/pods.json" in parts.files
    assert check_parts.files.items() <= parts.files.items()
    assert [core.threads for core in load_machine(whole).nodes[0].cores] == [(0,), (1,)]


# PodResources


@pytest.fixture
def short(node: Path) -> Iterator[Path]:
    """The node under a short path: those of sockets have a limit."""
    with tempfile.TemporaryDirectory(prefix="podslice-test-") as folder:
        root = Path(folder) / "root"
        root.symlink_to(node)
        (node / "var/lib/kubelet/pod-resources").mkdir()
        yield root


@pytest.fixture
def kubelet_socket(short: Path) -> Iterator[Path]:
    """A kubelet that answers List and GetAllocatableResources on the node's socket."""
    answers: dict[str, Any] = {
        "List": api.ListPodResourcesResponse(pod_resources=[api.PodResources(
            name="db", namespace="shop", containers=[api.ContainerResources(name="main", cpu_ids=[2, 3])])]),
        "GetAllocatableResources": api.AllocatableResourcesResponse(cpu_ids=[1, 2, 3]),
    }  # fmt: skip

    def handler(answer: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(
            lambda *_: answer, response_serializer=type(answer).SerializeToString
        )

    methods = {name: handler(answer) for name, answer in answers.items()}
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    path = short / "var/lib/kubelet/pod-resources/kubelet.sock"
    server.add_insecure_port(f"unix://{path}")
    server.start()
    yield path
    server.stop(None).wait()


def test_capture_asks_the_kubelet(kubelet_socket: Path, tmp_path: Path) -> None:
    """What the kubelet answers becomes a file of the bundle; one that does not answer is named."""
    out = tmp_path / "n7.tar.gz"
    assert run("capture", "--out", out, "--kubelet", kubelet_socket.parent.parent).returncode == 0
    (tmp_path / "out").mkdir()
    found = open_bundle(out, tmp_path / "out").find(POD_RESOURCES)
    assert found is not None
    answered = read_pod_resources(found.read_bytes(), "")
    assert answered.containers == (("shop/db", "main", 0b1100, {}),)
    assert answered.cpus == 0b1110
    printed = run("capture", "--pod-resources", kubelet_socket)
    assert printed.stdout.encode() == found.read_bytes() + b"\n"
    assert run("capture", "--pod-resources", kubelet_socket, "--ssh", "n7").returncode == 2
    absent = run("capture", "--pod-resources", tmp_path / "none.sock")
    assert (absent.returncode, absent.stdout) == (2, "")
    assert f"the kubelet's PodResources API at {tmp_path}/none.sock: no such file" in absent.stderr
    other = kubelet_socket.parent / "pod-resources/kubelet.sock"
    other.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(other))
    answer = run("capture", "--out", out, "--kubelet", kubelet_socket.parent)
    assert f"kubelet/podresources.json is missing: the kubelet's PodResources API at {other}" in answer.stderr


@pytest.mark.process
@pytest.mark.parametrize(
    ("program", "data", "reason"),
    [
        ('echo "{\\"words\\": \\"$*\\"}"', b'{"words": "capture --pod-resources SOCKET"}\n', None),
        ("echo 'podslice: error: \"x\" \\ y' >&2; exit 2", None, "podslice: error:  x    y "),
        (None, None, "no podslice here to ask the kubelet; the agent's image has it"),
    ],
)
def test_script_asks_with_podslice(
    short: Path, tmp_path: Path, program: str | None, data: bytes | None, reason: str | None
) -> None:
    """Where podslice is, the script asks the kubelet with it; else the bundle says what would."""
    place = short / "var/lib/kubelet/pod-resources/kubelet.sock"
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(place))
    tools = tmp_path / "bin"
    tools.mkdir()
    if program is not None:
        (tools / "podslice").write_text(f"#!/bin/sh\n{program}\n")
        (tools / "podslice").chmod(0o755)
    out = run_script(short, tmp_path / "n7.tar.gz", PATH=f"{tools}:/usr/bin:/bin")
    with tarfile.open(out) as archive:
        contents = {m.name: archive.extractfile(m).read() for m in archive if m.isfile()}  # type: ignore[union-attr]
    assert contents.get(POD_RESOURCES) == (data and data.replace(b"SOCKET", str(place).encode()))
    missing = dict(json.loads(contents["bundle.json"])["missing"])
    assert missing.get(POD_RESOURCES) == reason


# ssh


def fake_ssh(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    (folder / "ssh").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.mark.process
def test_ssh(node: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ssh gets the script on standard input, and the host behind the end of its options."""
    monkeypatch.setenv("PODSLICE_ROOT", str(node))
    fake_ssh(tmp_path / "bin", f'echo "$@" > {tmp_path}/words; for last; do :; done; exec $last', monkeypatch)
    answer = run("capture", "--ssh", "root@node7", "--out", tmp_path / "n7.tar.gz")
    assert answer.returncode == 0
    assert answer.stderr == f"warning: kubelet/cmdline is missing: {NO_PROCESS}\n"
    check(tmp_path / "n7.tar.gz", tmp_path / "out")
    assert (tmp_path / "words").read_text() == "-o BatchMode=yes -o ConnectTimeout=10 -T -- root@node7 sh -s\n"


@pytest.mark.parametrize(
    "host", ["-oProxyCommand=id", "", "a b", "a;id", "$(id)", "a@-b", "-l@x", "a\nb", "`id`", "x" * 999]
)
def test_hosts_that_are_none(host: str, tmp_path: Path) -> None:
    """A name that ssh or a shell could take for something else never reaches them."""
    with pytest.raises(InputError, match="is not a host"):
        capture_by_ssh(host, tmp_path / "x")


@pytest.mark.process
@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("echo Permission denied >&2; exit 255", "n7: ended with 255: Permission denied"),
        ("echo Welcome", "n7: what came back is not a readable tar archive"),
        ("exit 0", "n7: what came back is not a readable tar archive"),
        ("exec sleep 60", "n7: did not end within 0 s"),
        ("exec cat /dev/zero", "n7: sends more than 64 MiB"),
    ],
)
def test_ssh_failures(script: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that refuses, greets, hangs or never stops is named in one line."""
    fake_ssh(tmp_path / "bin", script, monkeypatch)
    with pytest.raises(InputError, match=problem):
        capture_by_ssh("n7", tmp_path / "x", seconds=0.3 if "sleep" in script else 60)


def test_no_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object, **__: object) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(ssh.subprocess, "Popen", none)
    with pytest.raises(InputError, match="ssh cannot be run"):
        capture_by_ssh("n7", tmp_path / "x")
