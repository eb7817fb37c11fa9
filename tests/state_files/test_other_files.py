"""Files of a kubelet beside its managers' state: claims, granted resources of older kubelets, and whatever else lies in
the folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from podslice.node.checkpoints.claims import ClaimDevice
from podslice.node.checkpoints.content import read_content
from podslice.node.checkpoints.identify import UnknownFileError
from podslice.state_files.commands.state import state
from podslice.values.go.godump import crc_checksum, data_checksum

_CPU = '{"policyName":"static","defaultCpuSet":"0-31","checksum":3540042759}'
_CLAIMS = json.dumps(
    {
        "kind": "DRACheckpoint",
        "apiVersion": "checkpoint.dra.kubelet.k8s.io/v1",
        "ClaimInfoStateList": [
            {
                "ClaimUID": "u1",
                "ClaimName": "gpu",
                "Namespace": "ml",
                "PodUIDs": {"p1": {}},
                "DriverState": {"gpu.example.com": {"Devices": [{"PoolName": "n1", "DeviceName": "gpu-0"}]}},
            }
        ],
    }
)
_GRANTED = '{"allocationEntries":{"p1":{"app":{"requests":{"cpu":"2"},"limits":{"cpu":"2"}}}},"resizeStatusEntries":{"p1":"Deferred"}}'  # fmt: skip  # noqa: E501


def claims_file(content: str = _CLAIMS, checksum: int | None = None) -> str:
    return json.dumps({"Data": content, "Checksum": crc_checksum(content) if checksum is None else checksum})


def status_file(content: str = _GRANTED, checksum: int | None = None) -> str:
    return json.dumps({"data": content, "checksum": data_checksum(content) if checksum is None else checksum})


def run(*arguments: object) -> Result:
    return CliRunner().invoke(state, [str(one) for one in arguments], prog_name="state")


def test_claims_are_read() -> None:
    """The claims of a kubelet with their devices and pods, under a CRC-32."""
    content = read_content(claims_file().encode())
    (claim,) = content.checkpoint.claims  # type: ignore[union-attr]
    assert (content.kind, content.intact) == ("dra", True)
    assert (claim.namespace, claim.name, claim.uid, claim.pods) == ("ml", "gpu", "u1", ("p1",))
    assert claim.devices == (ClaimDevice("gpu.example.com", "n1", "gpu-0"),)


def test_granted_resources_of_older_kubelets_are_read() -> None:
    """Both forms of pod_status_manager_state, with the resizes that wait."""
    new = read_content(status_file().encode())
    old = read_content(b'{"allocationEntries":{"p1":{"app":{"cpu":"2"},"b":null}},"checksum":201217417}')
    assert (new.kind, new.intact, old.kind, old.intact, old.has_unknown_checksum) == (
        "pod-status", True, "pod-status", False, True,
    )  # fmt: skip
    for content, resizes in ((new, {"p1": "Deferred"}), (old, {})):
        checkpoint = content.checkpoint
        assert str(checkpoint.pods["p1"].containers["app"].requests["cpu"]) == "2"  # type: ignore[union-attr, index]
        assert checkpoint.resizes == resizes  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "text", "code", "lines"),
    [
        ("dra_manager_state", claims_file(), 0, ["nothing is wrong", "a kubelet 1.36 starts with it"]),
        ("dra_manager_state", claims_file(checksum=7), 1,
         ["error checksum", "does not start: could not initialize checkpoint manager", "checkpoint is corrupted"]),
        ("dra_manager_state", '{"version":"v1","entries":[],"checksum":1}', 1, ["note unchecked", "does not start"]),
        ("dra_manager_state", "{", 1, ["unreadable", "could not initialize checkpoint manager"]),
        ("dra_manager_state", _CPU, 1, ["the content is a cpu state file", "does not start"]),
        ("dra_manager_state", claims_file(_CLAIMS.replace('"PodUIDs": {"p1": {}}', '"PodUIDs": {}')), 0,
         ["note unused-claim"]),
        ("pod_status_manager_state", status_file(), 0, ["nothing is wrong", "does not read the file"]),
        ("pod_status_manager_state", status_file("{}"), 0, ["nothing is wrong"]),
        ("pod_status_manager_state", '{"data":"{}","checksum":1}"', 1, ["invalid character '\"' after top-level"]),
        ("pod_status_manager_state", status_file(_GRANTED.replace('"limits":{"cpu":"2"}', '"limits":{"cpu":"1"}')), 1,
         ["error over-limit"]),
        ("cpu_manager_state", claims_file(), 1, ["the content is a dra state file"]),
    ],
)  # fmt: skip
def test_verify(tmp_path: Path, name: str, text: str, code: int, lines: list[str]) -> None:
    """Form and checksum of these files, and what a kubelet does with them."""
    file = tmp_path / name
    file.write_text(text)
    result = run("verify", file)
    assert result.exit_code == code, result.output
    for line in lines:
        assert line in result.output


def test_an_older_kubelet_reads_its_file(tmp_path: Path) -> None:
    """Before 1.33 a damaged record ends the kubelet, with the message of the reports."""
    (tmp_path / "pod_status_manager_state").write_text('{"data":"{}","checksum":1}"')
    result = run("verify", tmp_path, "--kubelet-version", "1.32")
    assert "a kubelet 1.32 with InPlacePodVerticalScaling on does not start: could not restore state" in result.output
    assert "please drain this node and delete pod allocation checkpoint file" in result.output


def test_a_folder_is_verified_whole(tmp_path: Path) -> None:
    """A file that is not a state file is named, with its kind where that is known."""
    (tmp_path / "cpu_manager_state").write_text(_CPU)
    (tmp_path / "dra_manager_state").write_text(claims_file())
    (tmp_path / "config.yaml").write_text("kind: KubeletConfiguration")
    (tmp_path / "cpu_manager_state.bak").write_text("")
    (tmp_path / "something").write_text("")
    (tmp_path / "pods").mkdir()
    (tmp_path / "device-plugins").mkdir()
    (tmp_path / "device-plugins" / "left-over").write_text("")
    result = run("verify", tmp_path)
    assert result.exit_code == 0
    assert result.output.splitlines()[-1] == (
        "Not checked: config.yaml (the kubelet's configuration: podslice lint), cpu_manager_state.bak (an older file), "
        "device-plugins/left-over (unknown), pods (folders of pods), something (unknown)"
    )
    document = json.loads(run("verify", tmp_path, "-o", "json").stdout)
    assert [one["name"] for one in document["notChecked"]][-1] == "something"


@pytest.mark.parametrize("command", ["show", "verify", "repair", "convert"])
@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("podlist.json", '{"kind":"PodList","items":[]}', "it is a PodList"),
        ("aks.json", '{"cpuManagerPolicy":"static","failSwapOn":false}', "it has cpuManagerPolicy, failSwapOn"),
        ("pod_status_manager_state", _GRANTED, ""),
        ("dra_manager_state", '{"version":"v1","entries":[],"checksum":1}', ""),
        ("dra_manager_state", claims_file(), ""),
    ],
)
def test_no_other_file_is_taken_for_a_cpu_file(tmp_path: Path, command: str, name: str, text: str, what: str) -> None:
    """No command reads a CPU state out of another file, recommends to repair it, or writes one in its place."""
    file = tmp_path / name
    file.write_text(text)
    result = run(command, file, *(["--to", "1.35"] if command == "convert" else []))
    shown = f"{result.output}{result.exception or ''}"
    assert "shared pool" not in shown
    assert "policyName" not in shown
    assert "state repair may help" not in shown
    assert what in shown
    assert file.read_text() == text
    if command in ("repair", "convert"):
        assert result.exit_code != 0


def test_claims_and_resizes_are_shown(tmp_path: Path) -> None:
    """The users of a claim, its devices, and the resizes that wait."""
    (tmp_path / "dra_manager_state").write_text(claims_file())
    (tmp_path / "pod_status_manager_state").write_text(status_file())
    result = run("show", tmp_path)
    assert "ml/gpu  gpu.example.com/n1/gpu-0  p1" in result.output
    assert "Resizes that wait:" in result.output
    items = json.loads(run("show", tmp_path, "-o", "json").stdout)["items"]
    assert {one["kind"]: one.get("resizes", one.get("claims")) for one in items} == {
        "pod-status": {"p1": "Deferred"},
        "dra": [
            {
                "namespace": "ml",
                "name": "gpu",
                "uid": "u1",
                "pods": ["p1"],
                "devices": [{"driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}],
            }
        ],
    }


@pytest.mark.parametrize("text", ['{"kind":"PodList"}', '{"a":1,"entries":{}}'])
def test_a_stranger_is_named(text: str) -> None:
    """JSON with nothing of a state file in it is not a state file."""
    with pytest.raises(UnknownFileError, match="is not a state file of a kubelet"):
        read_content(text.encode())


def test_container_ids_alone_say_nothing_of_a_start(tmp_path: Path) -> None:
    """A file of kubelets before 1.18 starts or not by what the runtime knows, which has to be given."""
    (tmp_path / "cpu_manager_state").write_text(
        '{"policyName":"static","defaultCpuSet":"0-2,4-26,28-47","entries":'
        '{"ab9940917010576bd755870dab91e2cd2fc531a04ac362d44a62950aaa41c527":"3,27"},"checksum":1300288133}'
    )
    result = run("verify", tmp_path / "cpu_manager_state")
    assert result.exit_code == 1
    assert "nothing is wrong" not in result.output
    assert "whether a kubelet 1.36 starts depends on the containers that it finds: --containers" in result.output


def test_a_file_that_cannot_be_read_hides_none_of_the_others(tmp_path: Path) -> None:
    """`show` of a folder prints what it can, names the rest, and says so in its exit code."""
    (tmp_path / "cpu_manager_state").write_text(_CPU)
    (tmp_path / "allocated_pods_state").write_text("")
    result = run("show", tmp_path)
    assert result.exit_code == 2
    assert "(node's shared pool)             0-31     32" in result.output
    assert "allocated_pods_state: unexpected end of JSON input" in result.output


def test_an_empty_object_is_of_the_kind_of_its_name(tmp_path: Path) -> None:
    """It has no member that says whose it is."""
    (tmp_path / "memory_manager_state").write_text("{}")
    assert "the content is a cpu state file" not in run("verify", tmp_path).output
