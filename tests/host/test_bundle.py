"""A bundle gives every command a node; it holds no secrets, and a hostile one does no harm."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from pathlib import Path

import msgspec
import pytest
import yaml

from podslice.cli.cross_check import read_contents
from podslice.evidence.owners import read_owners
from podslice.host.bundle import opened
from podslice.host.bundle.devices import place_devices
from podslice.host.bundle.layout import CLAIMS, LARGEST, NODE, PODS, SLICES
from podslice.host.bundle.opened import open_bundle
from podslice.host.bundle.redact import redact_claim, redact_device_file, redact_node, restore_device_sum
from podslice.machine.devices import Device, DeviceInventory, DeviceResource, inventory_from_data
from podslice.node.devices.checkpoint import DeviceCheckpoint, PodDevicesEntry, encode, load
from podslice.values.cpuset import CPUSet, iter_bits
from podslice.values.errors import InputError
from tests.host import bundles
from tests.host.bundles import SECRET
from tests.machine.test_snapshot import write_tar
from tests.shell import podslice as run


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return bundles.write(tmp_path / "n7.podslice.tar.gz")


@pytest.fixture
def big(tmp_path: Path) -> Path:
    """The refused pod as a manifest."""
    path = tmp_path / "big.json"
    path.write_text(json.dumps({**bundles.pod("huge", 6), "status": {}}))
    return path


def test_explain_takes_everything_from_a_bundle(bundle: Path, big: Path) -> None:
    """Machine, configuration, pods and state are those of the node: 6 CPUs do not fit on a node with 6 and 4 free."""
    answer = run("explain", big, "--node", bundle, "--no-predicates", "--no-fixes", "-o", "json")
    assert answer.returncode == 1, answer.stderr
    (one,) = json.loads(answer.stdout)["items"]
    assert one["reason"] == "TopologyAffinityError"


@pytest.mark.parametrize(
    "words",
    [
        ("admit", "{pod}"), ("explain", "{pod}"), ("whatif", "{pod}"), ("inspect", "{pod}"), ("draw",), ("defrag",),
        ("topology",), ("lint", "{pod}"), ("reserve",), ("state", "show"), ("state", "verify"), ("state", "repair"),
    ],
)  # fmt: skip
def test_every_command_takes_a_bundle(bundle: Path, big: Path, words: tuple[str, ...]) -> None:
    """No command that takes a machine, a configuration, pods or state fails with it, or names a file that the user does
    not have."""
    answer = run(*(big if word == "{pod}" else word for word in words), "--node", bundle)
    assert answer.returncode in (0, 1), answer.stderr
    assert "error" not in answer.stderr
    assert "/tmp/podslice-" not in answer.stdout + answer.stderr
    assert not any(path.name.startswith("podslice-") and path.is_dir() for path in bundle.parent.iterdir())


def test_options_override_parts(bundle: Path, big: Path, tmp_path: Path) -> None:
    """An option replaces its part alone, wherever --node stands."""
    empty = tmp_path / "none.yaml"
    empty.write_text("apiVersion: v1\nkind: List\nitems: []\n")
    state = tmp_path / "state"
    state.mkdir()
    for name, data in bundles.state_files(()).items():
        (state / name).write_bytes(data)
    given = ("--pods", empty, "--state", state)
    for words in ((*given, "--node", bundle), ("--node", bundle, *given)):
        assert run("admit", big, *words, "--no-predicates").returncode == 0
    answer = run("topology", "--machine", "xeon-6338-2s", "--node", bundle)
    assert "xeon" in answer.stdout.lower()


def test_folder_is_a_bundle_too(bundle: Path, big: Path, tmp_path: Path) -> None:
    """An unpacked bundle, or an archive with a folder around it, answers as the archive."""
    folder = tmp_path / "open" / "n7"
    with tarfile.open(bundle) as archive:
        archive.extractall(folder, filter="data")
    around = shutil.make_archive(str(tmp_path / "around"), "gztar", folder.parent)
    said = [run("explain", big, "--node", name, "--no-predicates", "--no-fixes") for name in (bundle, folder, around)]
    assert said[0].returncode == 1
    # The first paragraph says which of them it rests on.
    assert len({one.stdout.partition("\n\n")[2] for one in said}) == 1


def test_pages_name_the_bundle(bundle: Path, big: Path, tmp_path: Path) -> None:
    """A page says which bundle it rests on, not where that was unpacked."""
    page = tmp_path / "why.html"
    run("explain", big, "--node", bundle, "--no-predicates", "--no-fixes", "--out", page)
    assert f"{bundle}/api/configz.json" in page.read_text()
    assert "/tmp/podslice-" not in page.read_text()


def test_snapshot_is_a_bundle_of_a_machine(tmp_path: Path) -> None:
    """An archive of sys/ and proc/ alone, as capture.sh wrote it before, gives the machine."""
    answer = run("topology", "--node", write_tar(tmp_path / "m.tar.gz"))
    assert answer.returncode == 0
    assert "Test CPU" in answer.stdout


def test_bundle_without_machine(tmp_path: Path, big: Path) -> None:
    """Nothing is answered about the machine on which the command runs."""
    path = bundles.write(tmp_path / "s.tar.gz", machine=False, api=False)
    answer = run("explain", big, "--node", path)
    assert answer.returncode == 2
    assert "does not describe the machine (name it with --machine, --sysfs or --from)" in answer.stderr
    assert run("state", "show", "--node", path).returncode == 0


def test_errors_name_the_file_of_the_bundle(tmp_path: Path, big: Path) -> None:
    """A damaged state file is named by the bundle's path and its own in it."""
    made = bundles.parts()
    made.files["kubelet/cpu_manager_state"] = b"{"
    path = tmp_path / "bad.tar.gz"
    path.write_bytes(made.archive(bundles.Manifest()))
    answer = run("explain", big, "--node", path)
    assert answer.returncode == 2
    assert "/tmp/podslice-" not in answer.stderr
    assert "cpu_manager_state" in answer.stderr


def test_repair_never_writes_into_a_bundle(bundle: Path) -> None:
    before = bundle.read_bytes()
    answer = run("state", "repair", "--node", bundle, "--write")
    assert answer.returncode == 2
    assert "--write: does not write into a bundle" in answer.stderr
    assert bundle.read_bytes() == before


def test_other_files_are_no_bundle(big: Path, tmp_path: Path) -> None:
    answer = run("explain", big, "--node", big)
    assert answer.returncode == 2
    assert "is not a bundle, which is a folder or a tar archive" in answer.stderr
    assert "does not exist" in run("explain", big, "--node", tmp_path / "no.tar.gz").stderr
    (tmp_path / "empty").mkdir()
    assert "holds nothing of a bundle" in run("explain", big, "--node", tmp_path / "empty").stderr


def test_drop_ins_and_flags_count(tmp_path: Path, big: Path) -> None:
    """A bundle without the answer of the running kubelet has its file, drop-ins and flags: the answer says so, options
    override them, and why and whatif take them too."""
    made = bundles.parts()
    config = yaml.safe_dump({**bundles.CONFIG, "topologyManagerPolicy": "none", "reservedSystemCPUs": "0"})
    del made.files["api/configz.json"]
    head = {name: bundles.CONFIG[name] for name in ("apiVersion", "kind")}
    drop_in = yaml.safe_dump({**head, "topologyManagerPolicy": "single-numa-node"})
    made.files |= {
        "kubelet/config.yaml": config.encode(),
        "kubelet/config.d/10-numa.conf": drop_in.encode(),
        "kubelet/cmdline": b"kubelet\0--reserved-cpus=0,8\0",
    }
    path = tmp_path / "x.tar.gz"
    path.write_bytes(made.archive(bundles.Manifest()))
    answer = run("explain", big, "--node", path, "--no-predicates", "--no-fixes", "-o", "json")
    assert answer.returncode == 1, answer.stderr
    found = json.loads(answer.stdout)
    assert found["items"][0]["reason"] == "TopologyAffinityError"
    assert found["provenance"]["configuration"]["source"] == (
        f"--config {path}/kubelet/config.yaml and --config-dir {path}/kubelet/config.d "
        f"and the flags in {path}/kubelet/cmdline"
    )
    assert found["provenance"]["assumptions"] == found["provenance"]["contradictions"] == []
    why = json.loads(run("why", "shop/big", "--node", path, "-o", "json").stdout)
    assert why["code"] == "refused"
    whatif = run("whatif", big, "--node", path, "--no-predicates", "-o", "json")
    assert "TopologyAffinityError" in whatif.stdout, whatif.stderr
    other = tmp_path / "other.conf.d"
    other.mkdir()
    (other / "a.conf").write_text(drop_in.replace("single-numa-node", "none"))
    for words in (("--config-dir", other), ("--kubelet-args", "--topology-manager-policy=none --reserved-cpus=0,8")):
        answer = run("explain", big, "--node", path, "--no-predicates", "--no-fixes", *words)
        assert answer.returncode == 0, answer.stdout
    made.files["kubelet/cmdline"] = b"kubelet\0--reserved-cpus\0"
    path.write_bytes(made.archive(bundles.Manifest()))
    answer = run("explain", big, "--node", path)
    assert answer.returncode == 2
    assert f"{path}/kubelet/cmdline: line 1: --reserved-cpus: needs a value" in answer.stderr


# PodResources


def answers(db_cpus: list[int], gpus: dict[int, list[str]] | None = None, held: str = "") -> bytes:
    """What the kubelet answers of the running pod db, and its GPUs by NUMA node, as protocol buffers are in JSON."""
    devices = [{"resourceName": "e.com/gpu", "deviceIds": [held], "topology": {"nodes": [{}]}}] if held else []
    containers = [{"name": "main", "cpuIds": [str(cpu) for cpu in db_cpus], "devices": devices}]
    pods = [{"name": "db", "namespace": "shop", "containers": containers}, {"name": "strange", "namespace": "shop"}]
    places = [
        {"resourceName": "e.com/gpu", "deviceIds": ids, "topology": {"nodes": [{"ID": str(node)}]}}
        for node, ids in (gpus or {}).items()
    ]
    allocatable = {"cpuIds": [str(cpu) for cpu in range(1, 16)], "devices": places}
    return json.dumps({"list": {"podResources": pods}, "allocatable": allocatable}).encode()


def with_answers(folder: Path, data: bytes, checkpoint: bytes = b"") -> Path:
    made = bundles.parts()
    made.files["kubelet/podresources.json"] = data
    if checkpoint:
        made.files["kubelet/device-plugins/kubelet_internal_checkpoint"] = checkpoint
    path = folder / "answers.tar.gz"
    path.write_bytes(made.archive(bundles.Manifest()))
    return path


def contradictions(bundle: Path, pod: Path) -> list[tuple[str, str, str]]:
    answer = run("explain", pod, "--node", bundle, "--no-predicates", "--no-fixes", "-o", "json")
    assert answer.returncode == 1, answer.stderr
    found = json.loads(answer.stdout)["provenance"]["contradictions"]
    return [(one["code"], one["about"], one["text"]) for one in found]


def test_answers_of_the_kubelet_are_evidence(tmp_path: Path, big: Path) -> None:
    """Owners by PodResources and by the state files are compared, a difference is said first; CPUs that the machine
    lacks put the machine in doubt."""
    (own,) = [one for one in read_owners(read_contents(bundles.state_files())) if one.uid == "uid-db"]
    cpus = list(iter_bits(own.cpus))
    entry = PodDevicesEntry("uid-db", "main", "e.com/gpu", {0: ["a"]}, None)
    file = encode([entry], {"e.com/gpu": ["a", "b"]})
    places = {0: ["a"], 1: ["b"]}
    assert contradictions(with_answers(tmp_path, answers(cpus, places, "a"), file), big) == []
    ((code, about, text),) = contradictions(with_answers(tmp_path, answers(cpus[1:], places, "b"), file), big)
    assert (code, about) == ("reported-differs", "state")
    assert text == (
        "The kubelet's PodResources and its state files have other owners: "
        f"shop/db main has CPUs {CPUSet(cpus[1:])} by PodResources, {CPUSet(cpus)} in cpu_manager_state; "
        "shop/db main has e.com/gpu b by PodResources, a in the Device Manager's file"
    )
    strange = json.loads(answers(cpus))
    strange["allocatable"]["cpuIds"].append("16")
    ((code, about, text),) = contradictions(with_answers(tmp_path, json.dumps(strange).encode()), big)
    assert (code, about) == ("cpus-differ", "machine")
    assert text.endswith("the machine lacks: 16")
    verified = run("state", "verify", "--node", with_answers(tmp_path, answers(cpus)))
    assert verified.returncode == 0, verified.stdout


@pytest.mark.parametrize(("held", "free", "code"), [("a", 1, 0), ("a", 2, 1), ("", 2, 0)])
def test_owners_of_devices_follow_from_the_answers(tmp_path: Path, held: str, free: int, code: int) -> None:
    """Where the Device Manager's file could not be had, the kubelet's answer says whose the devices are."""
    (own,) = [one for one in read_owners(read_contents(bundles.state_files())) if one.uid == "uid-db"]
    bundle = with_answers(tmp_path, answers(list(iter_bits(own.cpus)), {0: ["a", "b"]}, held))
    wants = bundles.pod("new", 1, phase="")
    del wants["spec"]["nodeName"]
    for amounts in wants["spec"]["containers"][0]["resources"].values():
        amounts["e.com/gpu"] = str(free)
    path = tmp_path / "new.json"
    path.write_text(json.dumps(wants))
    answer = run("admit", path, "--node", bundle, "--no-predicates")
    assert answer.returncode == code, answer.stdout
    assert "owners of devices are those" in answer.stderr


def test_answers_place_all_devices(tmp_path: Path) -> None:
    """The kubelet knows the NUMA node of every device, of free ones too."""
    entry = PodDevicesEntry("uid-db", "main", "e.com/gpu", {0: ["a"]}, None)
    file = encode([entry], {"e.com/gpu": ["a", "b"]})
    path = with_answers(tmp_path, answers([], {0: ["a"], 1: ["b", "c"]}), file)
    (tmp_path / "out").mkdir()
    found = open_bundle(path, tmp_path / "out")
    assert found.unknown == ()
    assert found.devices is not None
    (gpus,) = json.loads(found.devices.read_bytes())["devices"]
    assert gpus["devices"] == [{"id": "a", "numa": [0]}, {"id": "b", "numa": [1]}, {"id": "c", "numa": [1]}]


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b'{"list": 3}', b'{"allocatable": {"cpuIds": ["-1"]}}', b'{"allocatable": {"cpuIds": [1e9]}}',
     b'{"allocatable": {"cpuIds": ["99999999999"]}}', b"[" * 100_000],
)  # fmt: skip
def test_answers_that_are_none(tmp_path: Path, big: Path, data: bytes) -> None:
    answer = run("explain", big, "--node", with_answers(tmp_path, data), "--no-predicates")
    assert answer.returncode == 2
    assert "kubelet/podresources.json: is not an answer of PodResources" in answer.stderr
    assert len(answer.stderr.splitlines()) == 1


# Claims


def test_claims_of_a_bundle_hold_devices(tmp_path: Path) -> None:
    """Devices that claims of the node hold are not free for those of --claims, which replace claims by name."""
    head = {"apiVersion": "resource.k8s.io/v1"}
    spec = {"driver": "e.com", "nodeName": "n7", "devices": [{"name": "a"}],
            "pool": {"name": "n7", "generation": 1, "resourceSliceCount": 1}}  # fmt: skip
    requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]
    wanted = {"spec": {"devices": {"requests": requests}}}
    result = {"request": "gpu", "driver": "e.com", "pool": "n7", "device": "a"}
    held = {**head, "kind": "ResourceClaim", "metadata": {"name": "db", "namespace": "shop"}, **wanted,
            "status": {"allocation": {"devices": {"results": [result]}}}}  # fmt: skip
    made = bundles.parts()
    made.put(SLICES, {**head, "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": spec})
    claims = tmp_path / "claims.yaml"
    device_class = {**head, "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}}
    new = {**head, "kind": "ResourceClaim", "metadata": {"name": "new", "namespace": "shop"}, **wanted}
    path = tmp_path / "x.tar.gz"

    def allocated(*given: object) -> dict[tuple[str, ...], bool]:
        claims.write_text(yaml.safe_dump_all([device_class, *given], sort_keys=False))
        path.write_bytes(made.archive(bundles.Manifest()))
        answer = run("explain", "--claims", claims, "--node", path, "-o", "json")
        assert answer.returncode in (0, 1), answer.stderr
        return {tuple(one["claims"]): one["allocated"] for one in json.loads(answer.stdout)["claims"]}

    assert allocated(new) == {("shop/new",): True}
    kept = {**head, "kind": "ResourceClaim", **redact_claim(held)}
    made.put(CLAIMS, {"apiVersion": "v1", "kind": "List", "items": [kept]})
    assert allocated(new) == {("shop/new",): False}
    assert allocated({**held, "status": {}}) == {("shop/db",): True}


# Secrets


def test_no_secrets(bundle: Path) -> None:
    """Environment, arguments, probes, volumes, annotations of others and headers of the configuration are left out; our
    annotations stay."""
    with tarfile.open(bundle) as archive:
        contents = {m.name: archive.extractfile(m).read() for m in archive if m.isfile()}  # type: ignore[union-attr]
    assert SECRET in json.dumps(bundles.RUNNING)
    assert not [name for name, data in contents.items() if SECRET.encode() in data]
    db = json.loads(contents[PODS])["items"][0]
    assert db["metadata"]["annotations"] == {"podslice.io/movable": "true"}
    assert db["spec"]["containers"][0].keys() == {"name", "image", "resources"}


def test_device_file_without_answers() -> None:
    """The plugins' answers, which have environment variables, are cut out; the checksum is that of the rest, also where
    capture.sh cut them out."""
    entry = PodDevicesEntry("uid-db", "main", "example.com/gpu", {0: ["g0"]}, SECRET.encode())
    data = encode([entry], {"example.com/gpu": ["g0", "g1"]})
    bare = redact_device_file(data)
    assert load(bare).entries == [entry._replace(response=None)]
    content = msgspec.json.decode(data)
    content["Data"]["PodDeviceEntries"][0]["AllocResp"] = None
    assert restore_device_sum(msgspec.json.encode(content)) == bare
    assert restore_device_sum(data) == data
    assert redact_device_file(b"{") == restore_device_sum(b"{") == b"{"


# Hostile bundles


def archive_of(path: Path, members: list[tuple[tarfile.TarInfo, bytes]]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for member, data in members:
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, target
    return made


@pytest.mark.parametrize(
    "name",
    ["../../escaped", "/escaped", "api/../../escaped", "kubelet/pods/../../../escaped/x"],
)
def test_names_that_climb(tmp_path: Path, name: str) -> None:
    """Nothing is written but files of the layout, below the folder."""
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    path = archive_of(tmp_path / "x.tar.gz", [(member(name), b"x"), (member(f"n/{PODS}"), b"{}")])
    open_bundle(path, inside)
    assert {one.relative_to(tmp_path).as_posix() for one in tmp_path.rglob("*")} <= {
        "a", "a/b", "a/b/api", "a/b/api/pods.json", "a/b/kubelet", "a/b/kubelet/pods", "x.tar.gz",
    }  # fmt: skip


def test_links_in_an_archive_have_no_effect(tmp_path: Path) -> None:
    """A link under a name of the layout is passed over, as are files behind a linked folder."""
    target = tmp_path / "target"
    target.mkdir()
    (tmp_path / "out").mkdir()
    links = [
        (member("api", tarfile.SYMTYPE, str(target)), b""),
        (member("kubelet/config.yaml", tarfile.SYMTYPE, "/etc/passwd"), b""),
        (member("api/node.json", tarfile.LNKTYPE, "/etc/passwd"), b""),
        (member("kubelet/cpu_manager_state", tarfile.FIFOTYPE), b""),
        (member(PODS), b"{}"),
    ]
    found = open_bundle(archive_of(tmp_path / "x.tar.gz", links), tmp_path / "out")
    assert list(target.iterdir()) == []
    assert (found.config, found.state, found.sources) == (None, None, ())
    assert found.pods is not None
    assert not found.pods.is_symlink()


@pytest.mark.parametrize("name", ["api", "api/pods.json", "kubelet/config.yaml", "kubelet"])
def test_links_in_a_folder_are_refused(bundle: Path, tmp_path: Path, name: str) -> None:
    """An unpacked archive of a stranger may link to any file of the reader."""
    folder = tmp_path / "n7"
    with tarfile.open(bundle) as archive:
        archive.extractall(folder, filter="data")
    place = folder / name
    elsewhere = tmp_path / "elsewhere"
    if place.exists():
        place.rename(elsewhere)
    else:
        elsewhere.write_text("kind: KubeletConfiguration")
    place.symlink_to(elsewhere)
    with pytest.raises(InputError, match="is a link"):
        open_bundle(folder, tmp_path / "scratch")


def test_drop_ins_of_strangers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only drop-ins with plain names leave an archive, and not very many; a link among those of a folder is refused."""
    names = ("a.conf", "b/c.conf", "d.yaml", ".hidden.conf", "b/../../../e.conf", "x/y/z.conf", "a b.conf")
    members = [(member(f"kubelet/config.d/{name}"), b"") for name in names]
    (tmp_path / "out").mkdir()
    open_bundle(archive_of(tmp_path / "x.tar.gz", [*members, (member(PODS), b"{}")]), tmp_path / "out")
    folder = tmp_path / "out/kubelet/config.d"
    assert {one.relative_to(folder).as_posix() for one in folder.rglob("*")} == {"a.conf", "b", "b/c.conf"}
    assert not (tmp_path / "e.conf").exists()
    monkeypatch.setattr(opened, "MOST_DROP_INS", 1)
    with pytest.raises(InputError, match="absurd size: more than 1 drop-ins"):
        open_bundle(tmp_path / "x.tar.gz", tmp_path / "out")
    with pytest.raises(InputError, match="absurd size: more than 1 drop-ins"):
        open_bundle(tmp_path / "out", tmp_path / "scratch")
    monkeypatch.undo()
    (folder / "b/z.conf").symlink_to("/etc/passwd")
    with pytest.raises(InputError, match=r"z\.conf: is a link"):
        open_bundle(tmp_path / "out", tmp_path / "scratch")


def test_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large file is refused before it is read, and so are very many pods; a packed bomb is refused as by --sysfs."""
    huge = member("api/pods.json")
    huge.size = LARGEST + 1
    path = tmp_path / "x.tar"
    path.write_bytes(huge.tobuf() + bytes(1024))
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError, match="absurd size: more than 48 MiB"):
        open_bundle(path, tmp_path / "out")
    monkeypatch.setattr(opened, "MOST_PODS", 3)
    many = [(member(f"kubelet/pods/p{n}", tarfile.DIRTYPE), b"") for n in range(4)]
    with pytest.raises(InputError, match="absurd size: more than 3 pods"):
        open_bundle(archive_of(tmp_path / "y.tar.gz", many), tmp_path / "out")


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"missing": 3}', b'{"format": 2}', b"\xff", b"[" * 100_000])
def test_bad_manifests(tmp_path: Path, data: bytes) -> None:
    path = archive_of(tmp_path / "x.tar.gz", [(member("bundle.json"), data), (member(PODS), b"{}")])
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError, match=r"x\.tar\.gz/bundle\.json"):
        open_bundle(path, tmp_path / "out")


def test_damaged_archives(bundle: Path, big: Path) -> None:
    bundle.write_bytes(bundle.read_bytes()[:-400])
    answer = run("explain", big, "--node", bundle)
    assert answer.returncode == 2
    assert "is not a readable tar archive" in answer.stderr


# Devices


def gpus(*numa: int | None) -> DeviceInventory:
    """GPUs as PCI functions, by NUMA node."""
    devices = [Device(f"0000:{n:02x}:00.0", None if node is None else (node,)) for n, node in enumerate(numa)]
    return DeviceInventory((DeviceResource("nvidia.com/gpu", tuple(devices)),))


def held(**by_node: list[str]) -> DeviceCheckpoint:
    """Four registered GPUs, of which a container holds some by NUMA node."""
    nodes: dict[int, list[str] | None] = {int(name[1:]): ids for name, ids in by_node.items()}
    entry = PodDevicesEntry("uid-db", "main", "nvidia.com/gpu", nodes, None)
    return DeviceCheckpoint([entry] if nodes else [], {"nvidia.com/gpu": ["a", "b", "c", "d"]})


@pytest.mark.parametrize(
    ("checkpoint", "pci", "expected"),
    [
        (held(n0=["b"]), gpus(0, 0, 1, 1), {"a": 0, "b": 0, "c": 1, "d": 1}),
        (held(n1=["a", "b"]), gpus(0, 0, 1, 1), {"a": 1, "b": 1, "c": 0, "d": 0}),
        (held(), gpus(0, 0, 1, 1), {"a": 0, "b": 0, "c": 1, "d": 1}),
        # PCI contradicts what is held, or has another number of devices: only what is held has a place.
        (held(n1=["a", "b"]), gpus(0, 0, 0, 1), {"a": 1, "b": 1, "c": None, "d": None}),
        (held(n0=["b"]), gpus(0, 1), {"a": None, "b": 0, "c": None, "d": None}),
        (held(n0=["b"]), gpus(None, 0, 1, 1), {"a": None, "b": 0, "c": 1, "d": 1}),
    ],
)
def test_devices_have_the_numa_nodes_of_their_files(
    checkpoint: DeviceCheckpoint, pci: DeviceInventory, expected: dict[str, int | None]
) -> None:
    (found,) = place_devices({"nvidia.com/gpu": 4}, checkpoint, pci)
    assert {one["id"]: one["numa"][0] if "numa" in one else None for one in found["devices"]} == expected
    inventory_from_data([found])


def test_devices_of_a_node_object_alone() -> None:
    """Without a state file the ids are made up, and the places are those of PCI."""
    (found,) = place_devices({"nvidia.com/gpu": 2}, None, gpus(0, 1))
    assert [one["numa"] for one in found["devices"]] == [[0], [1]]
    assert place_devices({}, None, gpus(0, 1)) == []


def test_devices_of_a_bundle_count(tmp_path: Path, big: Path) -> None:
    """A pod that wants a GPU near its CPUs is decided by where the free GPUs are."""
    made = bundles.parts()
    node = {**bundles.NODE_OBJECT, "status": {**bundles.NODE_OBJECT["status"]}}
    node["status"]["capacity"] = {**node["status"]["capacity"], "nvidia.com/gpu": "2"}
    made.put(NODE, redact_node(node))
    entry = PodDevicesEntry("uid-db", "main", "nvidia.com/gpu", {0: ["a"]}, None)
    made.files["kubelet/device-plugins/kubelet_internal_checkpoint"] = encode([entry], {"nvidia.com/gpu": ["a", "b"]})
    path = tmp_path / "gpu.tar.gz"
    path.write_bytes(made.archive(bundles.Manifest()))
    answer = run("admit", big, "--node", path, "--no-predicates", "-o", "json")
    assert answer.returncode in (0, 1), answer.stderr
    assert "not known: the NUMA nodes of 1 of 2 nvidia.com/gpu (--devices names them)" in answer.stderr
    assert json.loads(answer.stdout)["provenance"]["assumptions"] == []
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    devices = open_bundle(path, scratch).devices
    assert devices is not None
    assert json.loads(devices.read_bytes())["devices"][0]["devices"] == [{"id": "a", "numa": [0]}, {"id": "b"}]
