"""GPUs and NICs of sysfs as a --devices file (a document of the kind DeviceInventory)."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from podslice.host.capture import capture_machine
from podslice.host.discover import discover, discover_snapshot
from podslice.host.filesystem import MemoryFileSystem
from podslice.host.machine_files import load_machine
from podslice.host.pci import (
    PCI,
    Function,
    group_by_resource,
    parse_resource_names,
    read_pci_functions,
    read_placed_devices,
)
from podslice.machine.devices import inventory_from_data
from podslice.machine.model import PCIDevice
from podslice.machine.readers.form import from_data
from podslice.machine.readers.synthetic import from_synthetic
from podslice.reading.yaml import load_documents
from podslice.topology.command import topology
from podslice.values.errors import InputError
from tests.read_documents import read_document
from tests.shell import podslice

MACHINE = from_synthetic("pack:2 numa:1(memory=8GB) core:2 pu:1")
INTEL = {"vendor": "0x8086", "numa_node": "1"}
FUNCTIONS = {
    "0000:01:00.0": {"class": "0x030000", "vendor": "0x1a03", "device": "0x2000", "numa_node": "0"},
    "0000:17:00.0": {"class": "0x030200", "vendor": "0x10de", "device": "0x2330", "numa_node": "0"},
    "0000:31:00.0": {"class": "0x020000", **INTEL, "device": "0x159b", "sriov_numvfs": "2", "net/eth7/mtu": "9000"},
    "0000:31:01.0": {"class": "0x020000", **INTEL, "device": "0x1889", "physfn/class": "x"},
    "0000:31:01.1": {"class": "0x020000", **INTEL, "device": "0x1889", "physfn/class": "x"},
    "0000:65:00.0": {"class": "0x120000", "vendor": "0x1002", "device": "0x74a1", "numa_node": "-1"},
    "0000:66:00.0": {"class": "0x030200", "local_cpulist": "2-3"},
    "0000:67:00.0": {"class": "0x020700", "vendor": "0x15b3", "device": "0x1021", "local_cpus": "f"},
    "0000:68:00.0": {"class": "0x010802", "vendor": "0x144d", "device": "0xa824", "numa_node": "0"},
    "0000:69:00.0": {"class": "broken", "vendor": "", "numa_node": "many"},
}  # fmt: skip


def machine_files() -> MemoryFileSystem:
    """A machine of two NUMA nodes and the functions above."""
    files = {
        f"{PCI}/{address}/{name}": f"{text}\n" for address, facts in FUNCTIONS.items() for name, text in facts.items()
    }
    for cpu in range(4):
        base = f"sys/devices/system/cpu/cpu{cpu}"
        files[f"{base}/topology/core_id"] = f"{cpu}"
        files[f"{base}/topology/physical_package_id"] = f"{cpu // 2}"
        files[f"sys/devices/system/node/node{cpu // 2}/cpu{cpu}/topology/core_id"] = f"{cpu}"
        files[f"sys/devices/system/node/node{cpu // 2}/cpu{cpu}/topology/physical_package_id"] = f"{cpu // 2}"
    for node in range(2):
        files[f"sys/devices/system/node/node{node}/meminfo"] = f"Node {node} MemTotal: 1048576 kB\n"
        files[f"sys/devices/system/node/node{node}/distance"] = "10 21\n"
    files |= {"sys/devices/system/cpu/online": "0-3\n", "sys/devices/system/node/online": "0-1\n"}
    return MemoryFileSystem({**files, "proc/meminfo": "MemTotal: 2097152 kB\n", "proc/cpuinfo": ""})


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(topology, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_functions_that_plugins_offer() -> None:
    """GPUs, accelerators, NICs and virtual functions with their nodes; no baseboard display, no disk, no NIC whose
    virtual functions are on; a node that the kernel does not know is none."""
    assert read_pci_functions(machine_files(), MACHINE) == [
        Function("0000:17:00.0", "gpu", "10de", "2330", 0),
        Function("0000:31:01.0", "vf", "8086", "1889", 1),
        Function("0000:31:01.1", "vf", "8086", "1889", 1),
        Function("0000:65:00.0", "gpu", "1002", "74a1", None),
        Function("0000:66:00.0", "gpu", "", "", 1),
        Function("0000:67:00.0", "nic", "15b3", "1021", None),
    ]


def test_usual_names_and_others() -> None:
    """Resources have the names of the usual plugins; a model goes before a vendor, a vendor before a kind; empty leaves
    out."""
    functions = read_pci_functions(machine_files(), MACHINE)

    def names(*texts: str) -> list[str]:
        return [resource.resource for resource in group_by_resource(functions, parse_resource_names(texts)).resources]

    assert names() == [
        "amd.com/gpu", "example.com/gpu", "intel.com/intel_sriov_netdevice", "nvidia.com/gpu", "nvidia.com/nic",
    ]  # fmt: skip
    assert names("gpu=x.io/a", "nic=", "8086=x.io/b") == ["x.io/a", "x.io/b"]
    assert names("gpu=", "nic=", "8086:1889=x.io/c", "vf:8086=x.io/b", "vf=x.io/a") == ["x.io/c"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("gpu", "'gpu' is not KEY=NAME"),
        ("disk=a.io/b", "'disk=a.io/b' is not KEY=NAME"),
        ("gpu=b", "'b' is not an extended"),
    ],
)
def test_wrong_names(text: str, problem: str) -> None:
    """Names that no plugin could register, and keys that mean nothing, are refused."""
    with pytest.raises(InputError, match=problem):
        parse_resource_names([text])


def test_devices_of_a_snapshot_go_into_admit(tmp_path: Path) -> None:
    """A captured machine has its devices with it; what `topology --devices` writes is what `admit --devices` reads."""
    archive = tmp_path / "node.tar.xz"
    capture_machine(archive, machine_files())
    with tarfile.open(archive) as snapshot:
        assert not [name for name in snapshot.getnames() if name.endswith(("config", "resource", "rom"))]
    document = read_document(run("--devices", "--sysfs", str(archive), "-o", "json").stdout, "DeviceInventory")
    functions = read_pci_functions(machine_files(), MACHINE)
    assert inventory_from_data(document) == group_by_resource(functions, {})
    devices = tmp_path / "devices.yaml"
    devices.write_text(run("--devices", "--sysfs", str(archive), "-o", "yaml").stdout)
    assert load_documents(devices.read_text())[0] == document
    pod = tmp_path / "pod.yaml"
    limits = '{limits: {nvidia.com/gpu: "1", intel.com/intel_sriov_netdevice: "1"}}'
    pod.write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n"
        f"spec: {{containers: [{{name: c, image: i, resources: {limits}}}]}}\n"
    )
    arguments = ("admit", str(pod), "--sysfs", str(archive), "--devices", str(devices), "-o", "json")
    admitted = read_document(podslice(*arguments).stdout, "AdmissionReport")
    assert admitted["pods"][0]["containers"][0]["devices"] == {
        "intel.com/intel_sriov_netdevice": ["0000:31:01.0"],
        "nvidia.com/gpu": ["0000:17:00.0"],
    }


def test_table_and_mistakes(tmp_path: Path) -> None:
    """The table names kind and PCI id; machines without a PCI bus print a line about it; forms that hold no devices are
    refused."""
    archive = tmp_path / "node.tar.xz"
    capture_machine(archive, machine_files())
    table = run("--devices", "--sysfs", str(archive)).stdout
    assert "nvidia.com/gpu                   0000:17:00.0  0     gpu   10de:2330" in table
    with pytest.raises(InputError, match="only this machine and captured ones have a PCI bus to read"):
        run("--devices", "--machine", "raspberry-pi-5")
    with pytest.raises(InputError, match="-o synthetic cannot carry devices"):
        run("--devices", "--sysfs", str(archive), "-o", "synthetic")


@pytest.mark.slow
def test_captured_gpus(shared: Path) -> None:
    """On a captured POWER machine six GPUs lie near two NUMA nodes; on a captured Xeon ten ports of NICs do."""
    folder = shared / "topologies" / "snapshots"
    found = {}
    for name in ("hwloc-nvidiagpunumanodes", "nto-master-bare-metal"):
        printed = run("--devices", "--sysfs", str(folder / f"{name}.tar.xz"), "-o", "json").stdout
        listed = [one for resource in json.loads(printed)["devices"] for one in resource["devices"]]
        found[name] = [one["numa"] for one in listed]
    assert found == {
        "hwloc-nvidiagpunumanodes": [[0], [0], [0], [8], [8], [8]],
        "nto-master-bare-metal": [[0]] * 8 + [[1]] * 2,
    }


def test_devices_with_a_place(tmp_path: Path) -> None:
    """Of a machine, also of a captured one and of its file, it is known which devices are on which NUMA node."""
    archive, written = tmp_path / "node.tar.xz", tmp_path / "machine.yaml"
    machine = discover(machine_files())
    assert machine.pci_devices == read_placed_devices(machine_files())
    assert [(one.address[5:7], one.numa_node, one.interfaces) for one in machine.pci_devices] == [
        ("01", 0, ()), ("17", 0, ()), ("31", 1, ("eth7",)), ("31", 1, ()), ("31", 1, ()), ("68", 0, ()),
    ]  # fmt: skip
    capture_machine(archive, machine_files())
    assert discover_snapshot(archive).pci_devices == machine.pci_devices
    written.write_text(run("--sysfs", str(archive), "-o", "yaml").stdout)
    assert load_machine(written).pci_devices == machine.pci_devices


def test_a_device_in_a_machine_file() -> None:
    """Machines that are written down have devices too; what is not a device is refused with its field."""
    device = {"address": "0000:3b:00.0", "numaNode": 1, "interfaces": ["eth0"]}
    nodes = [{"id": 0, "memory": 1, "cores": [{"socket": 0, "core": 0, "threads": [0]}]}]
    machine = from_data({"nodes": nodes, "pciDevices": [device]})
    assert machine.pci_devices == (PCIDevice("0000:3b:00.0", 1, ("eth0",)),)
    with pytest.raises(InputError, match=r"pciDevices\[0\]"):
        from_data({"nodes": nodes, "pciDevices": [{**device, "numaNode": "one"}]})
