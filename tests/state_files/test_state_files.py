"""State files of a live node: V4 round trips, and damage is never taken for truth."""

from __future__ import annotations

import json
import random

import pytest

from podslice import Node, StartError
from podslice.machine.memory_accounts import default_machine_state
from podslice.machine.model import CPUTopology
from podslice.node.checkpoints.data import CPU_V4
from podslice.node.checkpoints.restore import (
    restore_cpu_state,
    restore_memory_state,
    validate_cpu_state,
    validate_memory_state,
)
from podslice.node.cpu.checkpoint import CPUCheckpoint, encode, load
from podslice.state_files.consequence import NodeFacts
from podslice.state_files.verify import verify
from podslice.values.cpuset import parse_bits
from podslice.values.go.gojson import CheckpointError
from tests.conftest import make_pod
from tests.state_files.test_crash import CONFIG, MACHINE


@pytest.mark.parametrize(
    ("text", "checksum"),
    [
        ('{"policyName":"none","defaultCPUSet":"4-6"}', 657950972),
        (
            '{"policyName":"static","defaultCPUSet":"7-9","entries":{"pod":{"container1":"4-6","container2":"1-3"}}}',
            1420829534,
        ),
        (
            '{"policyName":"static","defaultCPUSet":"1-3",'
            '"entries":{"pod":{"container1":"4-6","container2":"7-9"}},"podEntries":{"pod":{"cpuSet":"4-10"}}}',
            2328898362,
        ),
    ],
)
def test_transitional_v4(text: str, checksum: int) -> None:
    """The transitional V4 form is read by its own checksum."""
    CPU_V4.load(json.dumps({"data": text, "checksum": checksum}).encode(), pod_level=True)
    with pytest.raises(CheckpointError, match="corrupted"):
        CPU_V4.load(json.dumps({"data": text, "checksum": checksum + 1}).encode(), pod_level=True)


def test_v4_round_trip_and_what_older_kubelets_see() -> None:
    """A V4 file keeps everything; a 1.35 kubelet reads the same file as V2 without the pod CPUs."""
    checkpoint = CPUCheckpoint("static", "0-3", {"p": {"c": "4"}}, {"p": parse_bits("4-5")})
    data = CPU_V4.encode(checkpoint)
    again, _ = CPU_V4.decode(data)
    assert (again.default_cpuset, again.entries, again.pod_entries) == (
        "0-3",
        {"p": {"c": "4"}},
        {"p": parse_bits("4-5")},
    )
    assert encode(again, "v3") == encode(checkpoint, "v3")
    older = load(data, pod_level=False, containers={})
    assert (older.entries, older.pod_entries) == ({"p": {"c": "4"}}, {})
    state = restore_cpu_state(data, policy_name="static", pod_level=True, containers={}, path="x", trust_zero=False)
    assert state.pod_cpus == {"p": parse_bits("4-5")}


def fill() -> Node:
    node = Node(MACHINE, CONFIG)
    for uid, cpus in (("a", "2"), ("b", "1"), ("c", None)):
        assert node.admit(make_pod(uid, ("x", cpus), ("y", None), budget="4" if uid == "a" else None)).admitted
    return node


def damage(choose: random.Random, data: bytes) -> bytes:
    kind = choose.randrange(4)
    if kind == 0:
        position = choose.randrange(len(data) * 8)
        return data[: position // 8] + bytes([data[position // 8] ^ 1 << position % 8]) + data[position // 8 + 1 :]
    if kind == 1:
        return data[: choose.randrange(len(data))]
    if kind == 2:
        start = choose.randrange(len(data))
        return data[:start] + data[start + choose.randint(1, 20) :]
    digits = [i for i, byte in enumerate(data) if chr(byte).isdigit()]
    position = choose.choice(digits)
    return data[:position] + str(choose.randrange(10)).encode() + data[position + 1 :]


@pytest.mark.slow
def test_damage_is_never_silent() -> None:
    """5 000 bit flips, truncations, cuts and field edits: a typed refusal, or exactly the owners that were there."""
    choose = random.Random(1)
    node = fill()
    cpu, memory = node.files["cpu_manager_state"], node.files["memory_manager_state"]
    topology = CPUTopology(MACHINE)
    reserved = parse_bits("0")
    good_cpu = node.kubelet.manager.cpu.state
    good_memory = node.kubelet.manager.memory
    refused = 0
    for _ in range(2500):
        try:
            state = restore_cpu_state(
                damage(choose, cpu), policy_name="static", pod_level=True, containers={}, path="x", trust_zero=False
            )
            validate_cpu_state(state, topology, reserved=reserved, strict=False, pod_level=True)
            assert (state.default, state.assignments, state.pod_cpus) == (
                good_cpu.default,
                good_cpu.assignments,
                good_cpu.pod_cpus,
            )
        except StartError as error:
            refused += bool(error.message)
        try:
            checkpoint = restore_memory_state(
                damage(choose, memory), policy_name="Static", pod_level=True, path="x", trust_zero=False
            )
            default = default_machine_state(MACHINE, {0: {"memory": 512 << 20}})
            validate_memory_state(checkpoint, default, pod_level=True)
            held = {
                uid: {name: tuple(blocks or ()) for name, blocks in (containers or {}).items()}
                for uid, containers in (checkpoint.entries or {}).items()
            }
            assert held == good_memory.assignments
            pods = {uid: tuple(blocks or ()) for uid, blocks in (checkpoint.pod_entries or {}).items()}
            assert pods == good_memory.pod_assignments
        except StartError as error:
            refused += bool(error.message)
    assert refused > 4000


@pytest.mark.slow
def test_verify_never_fails() -> None:
    """Whatever bytes come, verifying them gives a verdict."""
    choose = random.Random(2)
    files = [
        *fill().files.values(),
        b'{"Data":{"PodDeviceEntries":[{"PodUID":"a"}]},"Checksum":1}',
        b"[]",
        b"",
        b"\xff",
    ]
    for _ in range(3000):
        data = choose.choice(files)
        for _ in range(choose.randint(0, 3)):
            data = damage(choose, data) if data and any(chr(b).isdigit() for b in data) else data
        content, findings = verify(data, NodeFacts(machine=MACHINE))
        assert content is not None or findings
