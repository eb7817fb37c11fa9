"""Converting state files between kubelets."""

from __future__ import annotations

import pytest

from podslice.node.checkpoints.content import read_content
from podslice.node.checkpoints.releases import Release, release
from podslice.node.cpu.checkpoint import CPUCheckpoint, encode
from podslice.node.memory import checkpoint as checkpoint_memory
from podslice.state_files.consequence import NodeFacts, start_error
from podslice.state_files.convert import convert
from podslice.state_files.verify import verify
from podslice.values.cpuset import parse_bits
from podslice.values.errors import InputError
from tests.state_files import samples

_NODE = NodeFacts(machine=samples.machine(), containers=samples.CONTAINERS)
_RELEASES = [Release(20), Release(35), Release(36), Release(36, True), Release(37), Release(37, True)]
_FILES = {name: data for name, data in samples.files().items() if name not in ("cpu-v1", "device-v2")}


@pytest.mark.parametrize("target", _RELEASES, ids=str)
@pytest.mark.parametrize("name", _FILES)
def test_the_target_kubelet_starts_with_a_converted_file(name: str, target: Release) -> None:
    """Whatever a file is converted from, the kubelet it is converted for starts with it, and nothing is owned twice."""
    kind = "cpu" if name.startswith("cpu") else "memory"
    data = convert(read_content(_FILES[name]), target, {}).data
    assert start_error(data, kind, target, _NODE) == ""
    assert [finding for finding in verify(data, _NODE)[1] if finding.level == "error"] == []


@pytest.mark.parametrize(
    ("name", "there", "back"),
    [
        ("cpu-v2", Release(37, True), Release(35)),
        ("cpu-v2", Release(36, True), Release(36)),
        ("cpu-v2", Release(17), Release(35)),
        ("cpu-v3", Release(37, True), Release(36, True)),
        ("cpu-v4", Release(37, True), Release(37, True)),
        ("memory-v1", Release(36, True), Release(35)),
        ("memory-v2", Release(37, True), Release(36, True)),
    ],
)
def test_there_and_back_is_the_same_file(name: str, there: Release, back: Release) -> None:
    """Content that the other format can hold survives the way there and back, byte for byte."""
    first = convert(read_content(_FILES[name]), there, samples.CONTAINERS)
    second = convert(read_content(first.data), back, samples.CONTAINERS)
    assert second.data == _FILES[name]
    assert first.remarks == second.remarks == []


def test_what_the_older_cpu_format_loses_is_said() -> None:
    """The pod's own CPUs and unknown members are named; CPUs no container uses go to the node's pool."""
    lost = convert(read_content(_FILES["cpu-v4"]), Release(35), {}).remarks
    assert lost == [
        'members of the newer format that the older one does not have: "originals":{"pod-a":{"app":"4-5"}}',
        "pod pod-b: that CPUs 6-11 belong to the pod as a whole; its containers keep theirs, "
        "CPUs 10-11 go back to the node's shared pool",
        "pod pod-b: which containers share; a kubelet takes all their CPUs for exclusive and lifts the CPU limits, "
        "also of three, two",
    ]


def test_limits_of_sharing_containers_are_said() -> None:
    """Converting names the containers that share and lose their CPU limit, and verifying the result names them too."""
    entries = {"p": {"own": "1-2", "b": "3-5", "c": "3-5"}}
    source = CPUCheckpoint("static", "0,6-7", entries, pod_entries={"p": parse_bits("1-5")})
    conversion = convert(read_content(encode(source, "v3")), Release(35), {})
    assert conversion.remarks[1].endswith("takes all their CPUs for exclusive and lifts the CPU limits, also of b, c")
    _, findings = verify(conversion.data, NodeFacts())
    assert [(one.level, one.code, one.path) for one in findings] == [("note", "shared-set", "entries.p")]
    assert findings[0].text.startswith("b, c have the same CPUs")
    assert verify(encode(source, "v3"), NodeFacts())[1] == []


def test_memory_of_a_pod_is_booked_once_by_its_containers() -> None:
    """Containers that shared the pod's memory get parts of it that add up to the whole."""
    conversion = convert(read_content(_FILES["memory-v2"]), Release(35), {})
    entries = checkpoint_memory.decode(conversion.data).entries or {}
    blocks = [block for own in (entries["pod-b"] or {}).values() for block in own or ()]
    assert sum(block.size for block in blocks) == 8 * samples.GIB
    assert conversion.remarks == [
        "pod pod-b: that 8Gi of memory belongs to the pod as a whole; now its containers hold it"
    ]


def test_container_ids_must_be_known() -> None:
    """From and to V1 the runtime's ids are needed, and the missing ones are named."""
    old = read_content(samples.files()["cpu-v1"])
    with pytest.raises(InputError, match=r"container ids, and these are not known: id-a, id-b .*--containers"):
        convert(old, Release(36), {})
    assert convert(old, Release(36), samples.CONTAINERS).remarks == []
    with pytest.raises(InputError, match="app in pod pod-a is not known"):
        convert(read_content(_FILES["cpu-v2"]), Release(17), {})


def test_damaged_files_are_not_converted() -> None:
    """A checksum that does not fit is a reason to stop, not to write a new one."""
    with pytest.raises(InputError, match="checksum does not fit"):
        convert(read_content(_FILES["cpu-v2"].replace(b"4-5", b"4-6")), Release(36), {})


@pytest.mark.parametrize(("text", "minor"), [("1.36", 36), ("v1.35.2", 35), ("1.9", 9)])
def test_release_texts(text: str, minor: int) -> None:
    """Versions are read as people write them."""
    assert release(text).minor == minor


@pytest.mark.parametrize("text", ["", "2.1", "1.x", "1", "1.36.2.1"])
def test_bad_release_texts(text: str) -> None:
    """Anything else is refused in one line."""
    with pytest.raises(InputError, match="not a Kubernetes version"):
        release(text)


def test_the_gate_is_unknown_to_old_releases() -> None:
    """PodLevelResourceManagers begins with 1.36."""
    with pytest.raises(InputError, match="has no gate"):
        release("1.35", pod_level=True)
