"""Damaged state files: a typed verdict always, and no owner changes unnoticed."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from podslice.node.checkpoints import restore
from podslice.node.checkpoints.releases import Release, load_cpu, load_memory
from podslice.node.cpu import checkpoint as checkpoint_cpu
from podslice.node.devices import checkpoint as checkpoint_devices
from podslice.state_files.consequence import NodeFacts, start_error
from podslice.state_files.repair import repair_cpu
from podslice.state_files.repair_memory import repair_memory
from podslice.state_files.verify import verify
from podslice.values.go.gojson import CheckpointError
from tests.state_files import samples

_PER_FILE = 1200
_NODE = NodeFacts(machine=samples.machine(), containers=samples.CONTAINERS)
_READERS = {
    "cpu-v1": Release(36),
    "cpu-v2": Release(36),
    "cpu-v3": Release(36, True),
    "cpu-v4": Release(37, True),
    "memory-v1": Release(36),
    "memory-v2": Release(36, True),
    "memory-v3": Release(37, True),
    "device-v2": Release(36),
}
_FILES = samples.files()


def _flip_bits(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 8))):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _truncate(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data))]


def _splice(data: bytes, chance: random.Random) -> bytes:
    at, size = chance.randrange(len(data)), chance.randrange(1, 30)
    return data[:at] + chance.choice((b"", bytes(size), data[:size], b"\xff\xfe", b"null", b"[[[[")) + data[at + size :]


def _edit_number(data: bytes, chance: random.Random) -> bytes:
    """Replace a number anywhere, the checksum included."""
    match = chance.choice(list(re.finditer(rb"\d+", data)))
    values = ("0", "1", "-1", "4", "99999999999999999999", "1.5", "1e3", "NaN", str(chance.randrange(1 << 32)))
    return data[: match.start()] + chance.choice(values).encode() + data[match.end() :]


def _edit_field(data: bytes, chance: random.Random) -> bytes:
    """Replace a member by a value of any kind."""
    value = json.loads(data)
    holder: Any = value
    while True:
        keys: list[Any] = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if not keys:
            return data
        key = chance.choice(keys)
        if isinstance(holder[key], dict | list) and holder[key] and chance.random() < 0.8:
            holder = holder[key]
            continue
        others: tuple[Any, ...] = (None, True, "", "0-15", "x", 0, -7, 1.5, 1 << 70, [], {}, {"a": {}}, "4-5", [[1]])
        holder[key] = chance.choice(others)
        return json.dumps(value).encode()


_DAMAGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _flip_bits,
    _flip_bits,
    _truncate,
    _splice,
    _edit_number,
    _edit_field,
)


def _damage(name: str) -> Iterator[bytes]:
    chance = random.Random(f"{name} 3")
    for _ in range(_PER_FILE):
        yield chance.choice(_DAMAGES)(_FILES[name], chance)


def _owners(name: str, data: bytes, *, trust_zero: bool = True) -> Any:
    """Return the owners that the kubelet reads from the file; raises `CheckpointError` when it refuses it."""
    reader = _READERS[name]
    if name.startswith("device"):
        device = checkpoint_devices.load(data)
        return [(e.pod, e.container, e.resource, e.device_ids()) for e in device.entries or []]
    if name.startswith("memory"):
        memory = load_memory(data, reader)
        return memory.entries or {}, memory.pod_entries or {}, memory.machine_state or {}
    if trust_zero or name == "cpu-v4":
        checkpoint = load_cpu(data, reader, samples.CONTAINERS)
    else:
        checkpoint = checkpoint_cpu.load(
            data, pod_level=reader.pod_level, containers=samples.CONTAINERS, trust_zero=False
        )
    state = restore.adopt_cpu(checkpoint, checkpoint.policy_name)
    return state.default, state.assignments, state.pod_cpus


@pytest.mark.slow
@pytest.mark.parametrize("name", _FILES)
def test_no_damage_changes_an_owner_unnoticed(name: str) -> None:
    """A damaged file is refused with a typed error, or has the same owners, or `verify` warns about it."""
    intact = _owners(name, _FILES[name])
    refusals = []
    for data in _damage(name):
        _, findings = verify(data, NodeFacts(containers=samples.CONTAINERS))
        try:
            owners = _owners(name, data)
        except CheckpointError as error:
            refusals.append(str(error))
        else:
            assert owners == intact or any(f.level in ("error", "warning") for f in findings), data
    assert len(refusals) > _PER_FILE / 2
    assert all(refusals)


@pytest.mark.parametrize("name", ["cpu-v4", "memory-v3"])
@pytest.mark.parametrize(
    ("old", "new"), [(rb'"data":"', b'"dota":"'), (rb'"data":".*","', b'"data":1.5,"'), (rb'"data":".*","', b'"')]
)
def test_older_members_do_not_stand_in_for_the_text(name: str, old: bytes, new: bytes) -> None:
    """Where the text is lost, the members for older kubelets are whole and have the right checksum, but no owner of
    pod CPUs or of memory for a whole pod."""
    data = re.sub(old, new, _FILES[name])
    with pytest.raises(CheckpointError):
        _owners(name, data)
    assert [finding.code for finding in verify(data, _NODE)[1] if finding.level != "note"].count("no-data") == 1
    older = Release(36)
    kind = "cpu" if name == "cpu-v4" else "memory"
    assert start_error(data, kind, older, NodeFacts(containers=samples.CONTAINERS)) == ""


@pytest.mark.parametrize("name", ["cpu-v1", "cpu-v2", "cpu-v3"])
def test_without_trust_in_zero_no_owner_changes_at_all(name: str) -> None:
    """Where a checksum of 0 is not trusted, every file that loads has the owners of the intact one."""
    intact = _owners(name, _FILES[name])
    for data in _damage(name):
        try:
            owners = _owners(name, data, trust_zero=False)
        except CheckpointError:
            continue
        assert owners == intact, data


@pytest.mark.slow
@pytest.mark.parametrize("name", _FILES)
def test_a_start_with_a_damaged_file_ends_in_a_verdict(name: str) -> None:
    """A kubelet's start with any damaged file is predicted without a failure of ours, for old and new kubelets."""
    kind = "cpu" if name.startswith("cpu") else "memory" if name.startswith("memory") else "device"
    for number, data in enumerate(_damage(name)):
        reader = (_READERS[name], Release(17), Release(30), Release(37))[number % 4]
        assert isinstance(start_error(data, kind, reader, _NODE), str)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in _FILES if not name.startswith("device")])
def test_every_damaged_file_can_be_repaired(name: str) -> None:
    """Every file that `repair` has repaired passes all checks and starts on the machine."""
    cpu = name.startswith("cpu")
    for number, data in enumerate(_damage(name)):
        if number % 3:
            continue
        target = (Release(36), Release(36, True), Release(37, True))[number // 3 % 3]
        repaired = (repair_cpu if cpu else repair_memory)(data, target, _NODE, None)
        _, findings = verify(repaired.data, _NODE)
        assert not [finding for finding in findings if finding.level == "error"], (data, repaired)
        assert start_error(repaired.data, "cpu" if cpu else "memory", target, _NODE) == "", (data, repaired)
