"""The policy's state file in `podslice state`: shown, verified, converted to and from KEP-5554's keys, repaired."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podslice.host.state.statefile import RealFiles
from podslice.machine.identity import CPUIdentity, MachineRecord, NodeRecord
from podslice.node.checkpoints import data as checkpoint_data
from podslice.node.checkpoints import policy_state
from podslice.node.checkpoints.content import read_content
from podslice.node.checkpoints.releases import Release
from podslice.node.cpu import checkpoint as checkpoint_cpu
from podslice.node.cpu.checkpoint import CPUCheckpoint
from podslice.state_files.consequence import NodeFacts
from podslice.state_files.migrate import migrate
from podslice.state_files.promises import carry_promises, repair_promises
from podslice.state_files.repair import repair_cpu
from podslice.state_files.verify import verify
from podslice.values.errors import InputError
from podslice.values.go.godump import data_checksum, decode_data
from tests.cli.test_state import _items, _run
from tests.state_files import samples

CPUS = CPUCheckpoint("static", "0-1,8-31", {"u1": {"c": "2-7"}})
CONTENT: dict[str, Any] = {"version": 1, "bootId": "", "originals": {"u1": {"c": "2-5"}}}
INTENT = {"from": {"containers": {"c": "2-5"}}, "to": {"containers": {"c": "2-7"}, "loans": {"c": [6, 7]}}}
KEP_DATA = (
    '{"policyName":"static","defaultCpuSet":"0,5-15","entries":{"gu-pod-1-uid":{"gu-container-1":"1-4"}},'
    '"originals":{"gu-pod-1-uid":{"gu-container-1":{"original":"1-2"}}}}'
)


def policy_file(**more: Any) -> bytes:
    return policy_state.envelop({**CONTENT, **more})


@pytest.fixture
def kubelet(tmp_path: Path) -> Path:
    """A folder with an intact CPU file and what podslice remembers beside it."""
    (tmp_path / "cpu_manager_state").write_bytes(checkpoint_cpu.encode(CPUS, "v2"))
    (tmp_path / "podslice_policy_state").write_bytes(policy_file())
    return tmp_path


def v4(data: str = KEP_DATA) -> bytes:
    """A file V4 with this string as its data."""
    return msgspec.json.encode({"checksum": 0, "data": data, "dataChecksum": data_checksum(data)})


def findings(content: bytes, cpus: CPUCheckpoint | None = CPUS) -> list[tuple[str, str, str]]:
    return [(one.level, one.code, one.path) for one in verify(content, NodeFacts(), cpus)[1]]


# show


def test_show(kubelet: Path) -> None:
    """`show` has the promised CPUs, and those beyond them from the CPU Manager's file."""
    result = _run("show", kubelet)
    assert result.exit_code == 0
    assert "podslice_policy_state: promises, and resizes being written (podslice)" in result.output
    row = next(line.split() for line in result.output.splitlines() if "ascending" in line)
    assert row == ["u1", "c", "2-5", "6-7", "ascending"]


def test_show_as_data(kubelet: Path) -> None:
    """Programs read the same, and the resizes that were being written."""
    (kubelet / "podslice_policy_state").write_bytes(policy_file(intents={"u1": INTENT}))
    shown = _items("StateFileList", "show", kubelet)[-1]
    assert (shown["kind"], shown["intact"]) == ("policy", True)
    assert shown["originals"] == {"u1": {"c": "2-5"}}
    assert shown["growth"] == {"u1": {"c": "6-7"}}
    assert shown["intents"]["u1"]["to"] == {"containers": {"c": "2-7"}, "pod": "", "memory": {}, "podMemory": []}


def test_show_of_memory_that_is_being_resized(kubelet: Path) -> None:
    """Blocks of memory of a resize are shown with the CPUs, of containers and of the pod as a whole."""

    def block(size: int, *nodes: int) -> dict[str, Any]:
        return {"numaAffinity": nodes, "type": "memory", "size": size << 30}

    had = {"containers": {"c": "2-5"}, "memory": {"c": [block(2, 0)]}, "podMemory": [block(4, 0)]}
    gets = {"containers": {"c": "2-7"}, "memory": {"c": [block(3, 0, 1)]}, "podMemory": [block(6, 0, 1)]}
    (kubelet / "podslice_policy_state").write_bytes(policy_file(intents={"u1": {"from": had, "to": gets}}))
    shown = _items("StateFileList", "show", kubelet)[-1]["intents"]["u1"]
    assert shown["from"]["memory"] == {"c": [block(2, 0) | {"numaAffinity": [0]}]}
    assert shown["to"]["podMemory"] == [block(6, 0, 1) | {"numaAffinity": [0, 1]}]
    lines = [" ".join(line.split()) for line in _run("show", kubelet).output.splitlines()]
    assert "u1 c 2-5, 2 GiB on 0 2-7, 3 GiB on 0,1" in lines
    assert "u1 (whole pod) 4 GiB on 0 6 GiB on 0,1" in lines


OWNERS = {"classes": {"u1": {"c": ["fast!"]}}, "mixed": {"u1": {"c": {"exclusive": 6, "shared": 500}}}}


def test_show_of_classes_and_mixed_containers(kubelet: Path) -> None:
    """`show` has the classes under which containers got CPUs, and those with shared CPUs besides, for people and for
    programs."""
    (kubelet / "podslice_policy_state").write_bytes(policy_file(**OWNERS))
    shown = _items("StateFileList", "show", kubelet)[-1]
    assert {name: shown[name] for name in OWNERS} == OWNERS
    lines = [line.split() for line in _run("show", kubelet).output.splitlines()]
    assert ["u1", "c", "fast!"] in lines
    assert ["u1", "c", "6", "500m"] in lines


def test_classes_and_mixed_containers_stay() -> None:
    """They hold where the CPU Manager's file knows the owner: nothing to find or to repair, and a machine whose CPUs
    got other numbers takes nothing of them. A damaged one is dropped alone."""
    data = policy_file(**OWNERS)
    assert findings(data) == []
    assert repair_promises(data, CPUS) == (data, "data", [])
    cpus = {cpu: CPUIdentity(0, 0, cpu // 2, cpu % 2) for cpu in range(32)}
    nodes = {0: NodeRecord((1 << 32) - 1, 1)}
    swapped = cpus | {6: cpus[8], 7: cpus[9], 8: cpus[6], 9: cpus[7]}
    files = {"cpu_manager_state": checkpoint_cpu.encode(CPUS, "v2"), "podslice_policy_state": data}
    moved = migrate(files, MachineRecord(cpus, nodes), MachineRecord(swapped, nodes))
    assert moved.outcome == "renumbered"
    migrated = {**files, **moved.files}["podslice_policy_state"]
    assert policy_state.decode(migrated).classes == OWNERS["classes"]
    assert policy_state.decode(migrated).mixed == policy_state.decode(data).mixed
    for member, wrong in (("classes", {"u1": {"c": "fast"}}), ("mixed", {"u1": {"c": {"exclusive": 0}}})):
        mended = repair_promises(policy_file(**{**OWNERS, member: wrong}), CPUS)
        assert mended.data == policy_file(**{name: one for name, one in OWNERS.items() if name != member})
        assert mended.remarks == [f"{member}.u1: cannot be read; dropped"]
    assert repair_promises(policy_file(classes={"u1": {"": ["fast"], "c": ["fast"]}}), CPUS).data == policy_file(
        classes={"u1": {"c": ["fast"]}}
    )


def test_show_of_a_damaged_file(kubelet: Path) -> None:
    """A wrong checksum is exit 1; what is no such file at all one line that says what may help."""
    (kubelet / "podslice_policy_state").write_bytes(policy_file().replace(b"2-5", b"2-4"))
    assert _run("show", kubelet).exit_code == 1
    (kubelet / "podslice_policy_state").write_bytes(b'{"data":"{\\"version\\":1,\\"originals\\":3}","checksum":1}')
    with pytest.raises(InputError, match="podslice state repair may help") as raised:
        _run("show", kubelet / "podslice_policy_state")
    assert "\n" not in str(raised.value)


# verify


def test_intact() -> None:
    """A promise within what a container has is nothing to talk about, with or without the CPU Manager's file."""
    assert findings(policy_file()) == findings(policy_file(), None) == []


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({"version": 2}, ("error", "version", "version")),
        ({"originals": {"u1": {"c": "x"}}}, ("error", "cpu-list", "originals.u1.c")),
        ({"originals": {"u1": {"c": "2-8"}}}, ("warning", "promise-not-held", "originals.u1.c")),
        ({"originals": {"gone": {"c": "2-3"}}}, ("warning", "promise-not-held", "originals.gone.c")),
        ({"podOriginals": {"u1": "2-3"}}, ("warning", "promise-not-held", "podOriginals.u1")),
        ({"order": {"u1": {"c": [2, 3, 4, 5, 7]}}}, ("warning", "order", "order.u1.c")),
        ({"order": {"u1": {"c": [7, 6, 2, 3, 4, 5]}}}, ("warning", "order", "order.u1.c")),
        ({"intents": {"u1": INTENT}}, ("warning", "unfinished", "intents.u1")),
        ({"guards": {}}, ("note", "unknown-member", "guards")),
        ({"classes": {"gone": {"c": ["fast!"]}}}, ("warning", "no-such-owner", "classes.gone.c")),
        ({"classes": {"u1": {"": ["fast"]}}}, ("warning", "no-such-owner", "classes.u1.")),
        ({"mixed": {"u1": {"x": {"exclusive": 1, "shared": 500}}}}, ("warning", "no-such-owner", "mixed.u1.x")),
    ],
)
def test_findings(more: dict[str, Any], found: tuple[str, str, str]) -> None:
    """Whatever does not hold is named with its place."""
    assert findings(policy_file(**more)) == [found]


def test_the_order_of_growth_is_fine() -> None:
    """Promised CPUs first, then the others as they came."""
    assert findings(policy_file(order={"u1": {"c": [2, 3, 4, 5, 7, 6]}})) == []


def test_what_a_start_makes_of_it(kubelet: Path) -> None:
    """A kubelet ignores the file, and podslice starts without one that is damaged."""
    result = _run("verify", kubelet)
    assert "a kubelet 1.36 ignores the file; podslice starts with its promises" in result.output
    (kubelet / "podslice_policy_state").write_bytes(policy_file().replace(b"2-5", b"2-4"))
    result = _run("verify", kubelet / "podslice_policy_state")
    assert result.exit_code == 1
    assert "podslice starts without its promises: checkpoint is corrupted" in result.output


def test_the_kubelets_own_promises_are_checked() -> None:
    """In a file V4 too a promise must be part of what the container has."""
    assert findings(v4()) == []
    assert findings(v4(KEP_DATA.replace('"1-2"', '"1-9"'))) == [
        ("warning", "promise-not-held", "originals.gu-pod-1-uid.gu-container-1")
    ]


# convert


def test_the_specified_bytes() -> None:
    """The example of the specification: promises in the kubelet's own data, under its checksum."""
    checkpoint = CPUCheckpoint("static", "0,5-15", {"gu-pod-1-uid": {"gu-container-1": "1-4"}})
    own = policy_state.envelop({**CONTENT, "originals": {"gu-pod-1-uid": {"gu-container-1": "1-2"}}})
    content = read_content(checkpoint_data.CPU_V4.encode(checkpoint))
    carried = carry_promises(content, own, Release(38)).cpu
    data = checkpoint_data.CPU_V4.encode(checkpoint, carried.unknown)
    envelope = decode_data(data)
    assert (envelope.data, envelope.data_checksum) == (KEP_DATA, 1610901102)


@pytest.mark.parametrize("keys", [("originals", "original"), ("baselines", "baseline")])
def test_out_of_the_kubelets_file(keys: tuple[str, str]) -> None:
    """Either name of the KEP is read, and the promise is podslice's from then on."""
    data = KEP_DATA.replace("originals", keys[0]).replace('"original"', f'"{keys[1]}"')
    carried = carry_promises(read_content(v4(data)), None, Release(36))
    assert carried.cpu.unknown == ""
    assert carried.policy is not None
    assert policy_state.decode(carried.policy).originals == {"gu-pod-1-uid": {"gu-container-1": "1-2"}}


def test_there_and_back(kubelet: Path) -> None:
    """To 1.38 and back to 1.36 a folder is as it was, and everything that was replaced is kept."""
    cpu, policy = kubelet / "cpu_manager_state", kubelet / "podslice_policy_state"
    (kubelet / "memory_manager_state").write_bytes(samples.files()["memory-v1"])
    before = {path.name: path.read_bytes() for path in kubelet.iterdir()}
    assert _run("convert", kubelet, "--to", "1.38", "--write").exit_code == 0
    policy.unlink()
    assert '\\"originals\\":{\\"u1\\":{\\"c\\":{\\"original\\":\\"2-5\\"}}}' in cpu.read_text()
    assert cpu.with_suffix(".bak").read_bytes() == before["cpu_manager_state"]
    result = _run("convert", kubelet, "--to", "1.36", "--write")
    assert result.exit_code == 0, result.output
    assert {name: (kubelet / name).read_bytes() for name in before} == before
    assert not policy.with_suffix(".bak").exists()


@pytest.mark.parametrize("renames", range(4))
def test_a_killed_conversion_keeps_the_promises(kubelet: Path, monkeypatch: pytest.MonkeyPatch, renames: int) -> None:
    """Killed after any number of renames, a conversion to a kubelet without promises leaves them in one of the two
    files, and the next one finds them."""

    class KilledError(BaseException):
        pass

    def rename(_: RealFiles, source: Path, target: Path) -> None:
        if len(renamed) == renames:
            raise KilledError
        source.replace(target)
        renamed.append(target)

    renamed: list[Path] = []
    policy = kubelet / "podslice_policy_state"
    (kubelet / "memory_manager_state").write_bytes(samples.files()["memory-v1"])
    before = policy.read_bytes()
    assert _run("convert", kubelet, "--to", "1.38", "--write").exit_code == 0
    policy.unlink()
    with monkeypatch.context() as killed:
        killed.setattr(RealFiles, "rename", rename)
        with contextlib.suppress(KilledError):
            assert _run("convert", kubelet, "--to", "1.36", "--write").exit_code == 0
    assert _run("convert", kubelet, "--to", "1.36", "--write").exit_code == 0
    assert policy.read_bytes() == before


def test_a_single_file_loses_its_promises(tmp_path: Path) -> None:
    """The conversion of a single file reports what has no place in it."""
    file = tmp_path / "cpu_manager_state"
    file.write_bytes(v4())
    result = _run("convert", file, "--to", "1.36")
    assert result.exit_code == 1
    assert "pod gu-pod-1-uid: which CPUs were promised to it; converting the folder keeps that" in result.output
    assert file.read_bytes() == v4()


def test_members_of_others_stay() -> None:
    """Members of the policy's file that this release does not know survive a conversion."""
    own = policy_file(guards={"cpus": {"0": "0/0/0/0"}})
    carried = carry_promises(read_content(v4()), own, Release(36))
    assert carried.policy is not None
    content = msgspec.json.decode(decode_data(carried.policy).data)
    assert content["guards"] == {"cpus": {"0": "0/0/0/0"}}
    assert content["originals"] == {"u1": {"c": "2-5"}, "gu-pod-1-uid": {"gu-container-1": "1-2"}}


# repair


def test_a_good_file_stays() -> None:
    """There is nothing to repair, not even for members that are not known."""
    data = policy_file(guards={"x": 1}, intents={"u1": INTENT})
    assert repair_promises(data, CPUS) == (data, "data", [])


def test_what_does_not_hold_is_dropped() -> None:
    """The CPU Manager's file wins, and what is dropped is said; the rest stays."""
    data = policy_file(originals={"u1": {"c": "2-5", "x": "2"}, "u2.a": {"c": "9"}}, podOriginals={"u1": "2"}, more=[1])
    repaired = repair_promises(data, CPUS)
    assert repaired.data == policy_file(more=[1])
    assert [one.partition(": ")[0] for one in repaired.remarks] == [
        "originals.u1.x",
        "originals.u2.a.c",
        "podOriginals.u1",
    ]


def test_a_wrong_checksum_is_put_right() -> None:
    """Content that holds gets its checksum, and that is said."""
    repaired = repair_promises(policy_file().replace(b"2-5", b"2-4"), CPUS)
    assert repaired.data == policy_file(originals={"u1": {"c": "2-4"}})
    assert len(repaired.remarks) == 1


def test_a_newer_file_stays() -> None:
    """A file of a newer podslice is not touched."""
    data = policy_file(version=2)
    assert repair_promises(data, CPUS).data == data


@given(st.binary(max_size=200), st.integers(0, 120))
def test_damage_never_stops_a_repair(noise: bytes, at: int) -> None:
    """Whatever a file became, its repair can be read, and is there to stay; only whole JSON without any of its members
    is refused, as another file."""
    whole = policy_file(intents={"u1": INTENT}, order={"u1": {"c": [2, 3, 4, 5, 7, 6]}})
    for data in (noise, whole[:at] + noise, whole[:at] + noise + whole[at:]):
        try:
            repaired = repair_promises(data, CPUS)
        except InputError:
            assert not {"data", "checksum"} & set(json.loads(data) if data[:1] == b"{" else ())
            continue
        if not any("newer" in one for one in repaired.remarks):
            policy_state.decode(repaired.data)
            assert repair_promises(repaired.data, CPUS) == (repaired.data, "data", [])
        verify(data, NodeFacts(), CPUS)


def test_repair_of_a_folder(kubelet: Path) -> None:
    """The promises are checked against the CPU Manager's file as it will be, and the old file is kept."""
    cut = (kubelet / "cpu_manager_state").read_bytes().replace(b'"2-7"', b'"2-4"')
    (kubelet / "cpu_manager_state").write_bytes(cut)
    assert _run("repair", kubelet, "--write").exit_code == 0
    assert policy_state.decode((kubelet / "podslice_policy_state").read_bytes()).originals == {}
    assert (kubelet / "podslice_policy_state.bak").read_bytes() == policy_file()


def test_repair_of_a_newer_kubelets_file() -> None:
    """Promises in a damaged file V4 stay where they hold, and are not lost silently for a kubelet without them."""
    damaged = v4().replace(b'\\"0,5-15\\"', b'\\"0,6-15\\"')
    assert "originals" in repair_cpu(damaged, Release(38), NodeFacts(), None).data.decode()
    assert any("keeps no promises" in one for one in repair_cpu(damaged, Release(37), NodeFacts(), None).remarks)


@pytest.mark.parametrize(
    ("machine", "kept"),
    [
        ({"cpus": {"0": "0/0/0/0"}, "nodes": {"0": {"cpus": "0", "memory": 1}}}, True),
        ({"cpus": {"0": "0/0/0"}}, False),
        ({"cpus": 5}, False),
        ({"cpus": {"x": "0/0/0/0"}}, False),
        ({"nodes": {"0": {"cpus": "3-1", "memory": 1}}}, False),
        ([], False),
    ],
)
def test_a_machine_that_cannot_be_read(machine: object, *, kept: bool) -> None:
    """An incomplete record of the machine is dropped, and nothing else with it."""
    own = policy_file(machine=machine)
    mended = repair_promises(own, None)
    content = json.loads(json.loads(mended.data)["data"])
    assert ("machine" in content) is kept
    assert content["originals"] == json.loads(json.loads(own)["data"])["originals"]
    assert bool(mended.remarks) is not kept
