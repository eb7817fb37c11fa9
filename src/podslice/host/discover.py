"""Discover a `Machine` from sysfs and procfs: the kubelet's view of it beside the hardware's facts."""

from __future__ import annotations

import platform
import re
import sys
from pathlib import Path

from podslice.host.filesystem import DiskFileSystem, FileSystem
from podslice.host.hardware import Hardware
from podslice.host.kernel_text import read_optional_text
from podslice.host.kubelet_view import CPU, NODE, read_kubelet_view
from podslice.host.pci import read_placed_devices
from podslice.host.snapshot import open_snapshot
from podslice.machine.model import Machine
from podslice.values.cpuset import CPUSet
from podslice.values.errors import InputError

_MODEL = re.compile(r"^(?:model name|cpu model|uarch|cpu)\s*:\s*(\S.*)$", re.MULTILINE)
_ARCHITECTURES = (
    ("s390x", re.compile(r"^vendor_id\s*:\s*IBM/S390", re.MULTILINE)),
    ("arm64", re.compile(r"^CPU architecture\s*:\s*(?:8|AArch64)", re.MULTILINE)),
    ("arm", re.compile(r"^CPU architecture\s*:\s*[67]", re.MULTILINE)),
    ("riscv64", re.compile(r"^isa\s*:\s*rv64", re.MULTILINE)),
    ("ppc64le", re.compile(r"^cpu\s*:\s*POWER", re.MULTILINE)),
    ("x86_64", re.compile(r"^flags\s*:.*\blm\b", re.MULTILINE)),
)


def discover(fs: FileSystem, *, name: str = "", architecture: str = "", system_z: bool = False) -> Machine:
    """Discover the machine whose `sys/` and `proc/` are below `fs`.

    What a kubelet would see goes into `nodes`, `num_cores` and `num_sockets`; when its discovery fails, those are
    empty or 0, `warnings` says why, and the hardware's facts are there all the same. `system_z`: the kubelet runs on
    s390x and distinguishes cores by book and drawer too. Raises `InputError` when there are no CPUs to read at all.
    """
    if not fs.entries(CPU) and not fs.entries(NODE):
        raise InputError(f"has neither {CPU} nor {NODE}", source=fs.label, remedy="give the folder that holds sys/")
    # The two read the same files by different rules and may disagree; neither corrects the other.
    view = read_kubelet_view(fs, system_z=system_z)
    hardware = Hardware(fs)
    cpuinfo = read_optional_text(fs, "proc/cpuinfo")
    model = _MODEL.search(cpuinfo)
    return Machine(
        nodes=view.nodes,
        num_cores=view.num_cores,
        num_sockets=view.num_sockets,
        memory_capacity=view.memory_capacity,
        hugepages=view.hugepages or None,
        name=name,
        description=" ".join(model[1].split()) if model else "",
        source=fs.label,
        architecture=architecture or _architecture(cpuinfo),
        offline=CPUSet.from_bits(hardware.offline),
        isolated=CPUSet.from_bits(hardware.isolated),
        caches=hardware.caches(),
        core_types=hardware.core_types(),
        max_frequencies=hardware.max_frequencies(),
        nohz_full=CPUSet.from_bits(hardware.nohz_full),
        rcu_nocbs=CPUSet.from_bits(hardware.rcu_nocbs),
        groups=hardware.groups(),
        kernel_nodes=hardware.nodes(),
        pci_devices=read_placed_devices(fs),
        warnings=tuple(_condense(view.warnings)),
    )


def discover_host(root: str | Path = "/") -> Machine:
    """Discover this machine, or the one whose file systems are mounted below `root`. Raises `InputError` on other
    systems than Linux, which tell a kubelet nothing."""
    if sys.platform != "linux" and Path(root) == Path("/"):
        raise InputError(
            f"podslice reads the CPUs of Linux, and this machine runs {platform.system()}",
            remedy="name a machine: --machine NAME (podslice topology --list), --node BUNDLE, --sysfs TAR, --from TEXT",
        )
    architecture = _GO_STYLE.get(platform.machine(), platform.machine())
    return discover(
        DiskFileSystem(root), name=platform.node(), architecture=architecture, system_z=architecture == "s390x"
    )


def discover_snapshot(path: str | Path) -> Machine:
    """Discover a captured machine from a directory or tar archive with `sys/` and `proc/`. Raises `InputError`."""
    name = re.sub(r"(?:\.podslice)?\.(?:tar(?:\.\w+)?|t[gxb]z)$", "", Path(path).name)
    return discover(open_snapshot(path), name=name)


# Go, and so a Node's `status.nodeInfo.architecture`, says arm64 where uname says aarch64.
_GO_STYLE = {"aarch64": "arm64"}


def _architecture(cpuinfo: str) -> str:
    """Return the architecture of a captured machine by the lines of its cpuinfo; empty where none fits."""
    return next((name for name, pattern in _ARCHITECTURES if pattern.search(cpuinfo)), "")


def _condense(warnings: list[str]) -> list[str]:
    """Return one warning for all that differ only in numbers."""
    seen: dict[str, list[str]] = {}
    for warning in warnings:
        seen.setdefault(re.sub(r"\d+", "#", warning), []).append(warning)
    return [same[0] if len(same) == 1 else f"{same[0]} (and {len(same) - 1} more like it)" for same in seen.values()]


_CPU, _NODE = "sys/devices/system/cpu", "sys/devices/system/node"
Reading = tuple[tuple[str, str], ...]
"""Pairs of path and text. Equal readings mean that the machine has not changed."""


def read_machine(fs: FileSystem) -> Reading:
    """Read the online CPUs and NUMA nodes, and each node's memory and huge pages."""
    found = [(path, _text(fs, path)) for path in (f"{_CPU}/online", f"{_CPU}/present", f"{_NODE}/online")]
    for name in fs.entries(_NODE):
        if not (name.startswith("node") and name[4:].isdecimal()):
            continue
        folder = f"{_NODE}/{name}"
        # Of meminfo the total only: the other lines change all the time.
        found.append((f"{folder}/meminfo", _total(_text(fs, f"{folder}/meminfo"))))
        for size in fs.entries(f"{folder}/hugepages"):
            path = f"{folder}/hugepages/{size}/nr_hugepages"
            found.append((path, _text(fs, path)))
    return tuple(found)


def _total(meminfo: str) -> str:
    return next((line for line in meminfo.splitlines() if "MemTotal:" in line), "")


def _text(fs: FileSystem, path: str) -> str:
    try:
        return fs.read(path).strip()
    except OSError:
        return ""
