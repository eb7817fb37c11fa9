"""The guest as a node of a cluster: its network and kubelet, and what holds for every pod on it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

CGROUP = Path("/sys/fs/cgroup")
FILES = ("cpuset.cpus", "cpuset.cpus.effective", "cpuset.mems", "cpuset.mems.effective", "cpu.max", "cpu.weight",
         "memory.max")  # fmt: skip


def _run(commands: Iterable[str]) -> None:
    """One after the other. Raises `RuntimeError` with what the first says that fails."""
    for command in commands:
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr[-800:])


def join_network(address: str, now: float) -> None:
    """The network card gets its address, and the clock the host's time: a resumed machine's stands where it was."""
    commands = (
        f"date -s @{int(now)}",
        "ip link set eth0 up",
        f"ip addr add {address}/16 dev eth0 || true",
        "echo 1 > /proc/sys/net/ipv4/ip_forward",
        "echo 1 > /proc/sys/net/ipv4/conf/eth0/proxy_arp",
        "mkdir -p /opt/kubernetes",
        "[ -e /opt/kubernetes/hyperkube ] || mount -t ext4 -o ro /dev/vdc /opt/kubernetes",
    )
    _run(commands)


def import_image(digest: str) -> None:
    """Import the container image of the fourth disk, also by its digest, as a kubelet asks for it."""
    reading = "dd if=/dev/vdd bs=1M skip=1 2>/dev/null"
    commands = (
        f"{reading} | ctr -n k8s.io images import -",
        f"name=$(ctr -n k8s.io images ls -q | grep /podslice:) && ctr -n k8s.io images tag $name ${{name%:*}}@{digest}",
    )
    _run(commands)


def keep_on_disk() -> None:
    """Keep the files of containerd, the kubelet and the agent on the fifth disk from now on, which outlives the
    machine's memory. None of them runs."""
    names = ("containerd", "kubelet", "podslice")
    commands = (
        "blockdev --flushbufs /dev/vde",
        "mkdir -p /kept && mount -t ext4 /dev/vde /kept",
        *(f"mkdir -p /kept/{name} /var/lib/{name} && mount --bind /kept/{name} /var/lib/{name}" for name in names),
        "mount --make-shared /var/lib/kubelet",
    )
    _run(commands)


def agent_status(path: str) -> dict[str, Any]:
    """Read the agent's socket, as `podslice status` does."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20)
        client.connect(path)
        found: dict[str, Any] = json.loads(b"".join(iter(lambda: client.recv(65536), b"")))
    return found


def pod_cgroups() -> dict[str, dict[str, Any]]:
    """The cgroups of pods by their paths: their files, and the masks of the processes right in each."""
    found = {}
    for root in CGROUP.glob("kubepods*"):
        for folder, _, _ in os.walk(root):
            one = _cgroup(Path(folder))
            if one is not None:
                found["/" + str(Path(folder).relative_to(CGROUP))] = one
    return found


def _cgroup(path: Path) -> dict[str, Any] | None:
    """None for one that went away meanwhile."""
    try:
        found: dict[str, Any] = {name: (path / name).read_text().strip() for name in FILES if (path / name).exists()}
        pids = (path / "cgroup.procs").read_text().split()
    except OSError:
        return None
    found["processes"] = [masks for pid in pids if (masks := _masks(pid)) is not None]
    return found


def _masks(pid: str) -> dict[str, str] | None:
    """None for a process that has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    return {"pid": pid, "cpus": status["Cpus_allowed_list"], "mems": status["Mems_allowed_list"]}
