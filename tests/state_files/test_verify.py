"""Findings of `verify`, and the message of a kubelet that would start with the file."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from podslice.node.checkpoints.releases import Release
from podslice.node.cpu import checkpoint as checkpoint_cpu
from podslice.node.cpu.checkpoint import CPUCheckpoint, Entries
from podslice.node.devices import checkpoint as checkpoint_devices
from podslice.node.devices.checkpoint import PodDevicesEntry
from podslice.node.memory import checkpoint as checkpoint_memory
from podslice.state_files.consequence import NodeFacts, start_consequence, start_error
from podslice.state_files.verify import verify
from tests.state_files import samples

_NODE = NodeFacts(machine=samples.machine(), containers=samples.CONTAINERS)
_FILES = samples.files()


@pytest.mark.parametrize("name", _FILES)
def test_intact_files_have_no_findings(name: str) -> None:
    """Files as kubelets write them are fine."""
    facts = NodeFacts(containers={"id": ("pod", "app")}) if name == "cpu-v1" else _NODE
    assert verify(_FILES[name], facts)[1] == []


def _cpu(default: str, entries: Entries, pods: dict[str, int] | None = None, policy: str = "static") -> bytes:
    return checkpoint_cpu.encode(CPUCheckpoint(policy, default, entries, pods or {}), "v3" if pods else "v2")


_CASES = {
    "shared": (_cpu("0-5,8-15", {"p": {"a": "4-7"}}), {"owned-and-shared"}),
    "twice": (_cpu("0-3,8-15", {"p": {"a": "4-7"}, "q": {"b": "7"}}), {"owned-twice"}),
    "siblings-may-share": (_cpu("0-3,8-15", {"p": {"a": "4-7", "b": "6-7"}}), set()),
    "leaked": (_cpu("0-3,9-15", {"p": {"a": "4-7"}}), {"leaked"}),
    "foreign": (_cpu("0-3,8-17", {"p": {"a": "4-7"}}), {"unknown-cpus"}),
    "list": (_cpu("0-3,8-", {"p": {"a": "4-7"}}), {"cpu-list"}),
    "empty": (_cpu("0-15", {"p": {"a": ""}}), {"empty"}),
    "policy": (_cpu("0-15", {}, policy="mine"), {"policy"}),
    "outside-pod": (_cpu("0-3,8-15", {"p": {"a": "4-7"}}, {"p": 0x30}), {"outside-pod"}),
    "checksum": (_FILES["cpu-v2"].replace(b"4-5", b"5-4"), {"checksum", "cpu-list"}),
    "zero": (b'{"policyName":"static","defaultCpuSet":"0-15","checksum":0}', {"unchecked"}),
    "no-checksum": (b'{"policyName":"static","defaultCpuSet":"0-15"}', {"no-checksum"}),
    "uncovered": (
        _cpu("0-3,8-15", {"p": {"a": "4-7"}}).replace(
            b',"checksum"', b',"podEntries":{"p":{"cpuSet":"4-7"}},"checksum"'
        ),
        {"uncovered"},
    ),
    "broken": (b'{"policyName":', {"unreadable"}),
    "other": (b"[1]", {"unreadable"}),
}


@pytest.mark.parametrize(("data", "codes"), _CASES.values(), ids=list(_CASES))
def test_findings_in_cpu_files(data: bytes, codes: set[str]) -> None:
    """Each kind of damage has its code, and nothing else is reported."""
    assert {finding.code for finding in verify(data, _NODE)[1]} == codes


def test_reserved_cpus() -> None:
    """Reserved CPUs belong in the default set, or with strict reservation in no set."""
    data = _cpu("2-15", {})
    facts = NodeFacts(machine=samples.machine(), reserved=3)
    assert {finding.code for finding in verify(data, facts)[1]} == {"leaked", "reserved"}
    strict = NodeFacts(machine=samples.machine(), reserved=3, strict=True)
    assert verify(data, strict)[1] == []
    assert start_error(data, "cpu", Release(36), strict) == ""
    assert start_error(data, "cpu", Release(36), facts) == (
        'start cpu manager error: not all reserved cpus: "0-1" are present in defaultCpuSet: "2-15"'
    )


def test_findings_in_memory_files() -> None:
    """Ledgers that do not balance, misplaced blocks and another machine's sizes are found."""
    unbalanced, misplaced, drifted = samples.memory(), samples.memory(), samples.memory_without_pods()
    assert unbalanced.machine_state and misplaced.entries and drifted.machine_state  # noqa: PT018
    unbalanced.machine_state[0] = replace(unbalanced.machine_state[0], number_of_assignments=7)
    tables = unbalanced.machine_state[1].memory_map or {}
    tables["memory"] = replace(tables["memory"], reserved=tables["memory"].reserved + 5)
    misplaced.entries["pod-z"] = {"c": [checkpoint_memory.Block((9,), "memory", 1)]}
    tables = drifted.machine_state[0].memory_map or {}
    tables["memory"] = replace(tables["memory"], total=tables["memory"].total - 4096)
    found = [
        {finding.code for finding in verify(checkpoint_memory.encode(c, "v2"), _NODE)[1]}
        for c in (unbalanced, misplaced, drifted)
    ]
    assert found == [{"assignments", "reserved", "table"}, {"misplaced"}, {"drift"}]


def test_devices_owned_twice() -> None:
    """A device of two pods is an error, one that is not registered a warning."""
    entries = [PodDevicesEntry(pod, "c", "r/a", {0: ["d0"]}, None) for pod in ("p", "q")]
    codes = [finding.code for finding in verify(checkpoint_devices.encode(entries, {}), _NODE)[1]]
    assert codes == ["unregistered", "owned-twice", "unregistered"]


_DRAIN = (
    "please drain this node and delete the CPU manager checkpoint file "
    '"/var/lib/kubelet/cpu_manager_state" before restarting Kubelet'
)
_PREFIX = "start cpu manager error: could not restore state from checkpoint: "


@pytest.mark.parametrize(
    ("name", "reader", "problem"),
    [
        ("cpu-v2", Release(35), ""),
        ("cpu-v2", Release(36, True), ""),
        ("cpu-v3", Release(36, True), ""),
        (
            "cpu-v3",
            Release(36),
            "json: cannot unmarshal object into Go struct field CPUManagerCheckpointV1.entries of type string",
        ),
        ("cpu-v4", Release(37, True), ""),
        (
            "cpu-v2",
            Release(17),
            "json: cannot unmarshal object into Go struct field CPUManagerCheckpointV1.entries of type string",
        ),
    ],
    ids=str,
)
def test_what_a_kubelet_says_at_its_start(name: str, reader: Release, problem: str) -> None:
    """The verdict is the text of that kubelet, wrapped as it wraps it."""
    expected = f"{_PREFIX}{problem}, {_DRAIN}" if problem else ""
    assert start_error(_FILES[name], "cpu", reader, _NODE) == expected


def test_a_newer_file_for_an_older_kubelet_with_idle_pod_cpus() -> None:
    """V4 looks like V2 to an older kubelet, which then misses the CPUs only the pod entry owns."""
    assert start_error(_FILES["cpu-v4"], "cpu", Release(35), _NODE) == (
        'start cpu manager error: current set of available CPUs "0-15" doesn\'t match with CPUs in state "0-9,12-15"'
    )


def test_consequences_for_people() -> None:
    """Device files never stop a kubelet, kubelets before 1.21 know no memory file, and a broken file stops a kubelet
    whatever its sentence says."""
    devices = start_consequence(_FILES["device-v2"], "device", Release(36), _NODE)
    assert devices == (True, "a kubelet 1.36 starts with these devices")
    for data, kind, minor, starts, part in (
        (b"{}", "device", 36, True, "knows no device"),
        (_FILES["memory-v1"], "memory", 20, True, "ignores the file"),
        (b"{", "cpu", 36, False, "does not start"),
    ):
        consequence = start_consequence(data, kind, Release(minor), _NODE)
        assert consequence is not None
        assert consequence.starts == starts
        assert part in consequence.text
    assert start_consequence(b"{}", "allocation", Release(35), _NODE) is None
