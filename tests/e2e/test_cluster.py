"""The parts around the scenarios of a cluster; the scenarios need a virtual machine (`python -m e2e --cluster`)."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from e2e.cluster import KUBELET, MANIFEST, Cluster, brief, complete, container_ids, disks, network, restarts, uid
from e2e.cluster_daemonset import daemon_set
from e2e.cluster_results import ClusterOutcome, markdown, this_run
from e2e.cluster_run import Machine, choose, distribute_groups, run_in_turn
from e2e.cluster_scenarios import CLUSTER, DAEMON_SET, PROGRAM, SYSTEMD, SYSTEMD_DAEMON_SET, ClusterScenario
from e2e.image import image_disk
from e2e.packages import FetchError
from e2e.pods import gu, pod
from e2e.programs import Programs
from e2e.vm import GuestError, StoppedError
from e2e.world import CheckError

from podslice.agent.settings import settings_from_dict

ROOT = Path(__file__).resolve().parents[2]


def test_scenarios_have_ids_and_promises() -> None:
    """An id of this list, and one sentence each."""
    for ident, one in CLUSTER.items():
        assert re.fullmatch(r"X-K\d\d", ident)
        assert re.fullmatch(r"[A-Z][^|]+\.", one.promise), one.promise


def test_what_is_run() -> None:
    """The short set without a word, everything with --full, else what the patterns name."""
    assert {one.ident for one in choose([], full=False)} == {one.ident for one in CLUSTER.values() if one.short}
    assert len(choose([], full=True)) == len(CLUSTER) > len(choose([], full=False)) > 0
    assert [one.ident for one in choose(["X-K0[12]"], full=False)] == ["X-K01", "X-K02"]


@pytest.mark.parametrize("ident", sorted(CLUSTER))
def test_configurations_are_valid(ident: str) -> None:
    """The shipped configuration, changed as the scenario asks, is one the agent starts with."""
    (shipped,) = [one for one in yaml.safe_load_all(MANIFEST.read_text()) if one["kind"] == "ConfigMap"]
    config = yaml.safe_load(shipped["data"]["agent.yaml"])
    config["resources"].update(CLUSTER[ident].resources)
    config.update(CLUSTER[ident].settings)
    assert settings_from_dict(config).warnings == ()


def test_the_kubelet_reserves_what_the_agent_reserves() -> None:
    """As docs/agent.md asks, and its own managers are off."""
    (shipped,) = [one for one in yaml.safe_load_all(MANIFEST.read_text()) if one["kind"] == "ConfigMap"]
    resources = yaml.safe_load(shipped["data"]["agent.yaml"])["resources"]
    assert KUBELET["reservedSystemCPUs"] == resources["reservedSystemCPUs"]
    assert KUBELET["cpuManagerPolicy"] == "none"


def test_pods_as_users_create_them() -> None:
    """An image of the node, no uid; the scenario's own words win and its manifest stays."""
    manifest = pod("p", {**gu("c", 1), "image": "other"}, gu("d", 1))
    manifest["spec"]["terminationGracePeriodSeconds"] = 60
    found = complete(manifest)
    assert [one["image"] for one in found["spec"]["containers"]] == ["other", "localhost/sleep:1"]
    assert found["spec"]["terminationGracePeriodSeconds"] == 60
    assert "uid" not in found["metadata"]
    assert manifest["metadata"]["uid"] == "uid-p"


PROMISES = {"X-K01": "One.", "X-K02": "Two.", "X-K03": "Three."}
POD: dict[str, Any] = {
    "metadata": {"name": "p", "uid": "u", "annotations": {"kubernetes.io/config.hash": "h"}},
    "status": {
        "phase": "Pending",
        "initContainerStatuses": [{"name": "i", "state": {"terminated": {"reason": "Completed"}}, "containerID": "x://1"}],
        "containerStatuses": [
            {"name": "c", "state": {"running": {}}, "containerID": "containerd://2", "restartCount": 3},
            {"name": "d", "state": {"waiting": {"reason": "Refused", "message": "no room"}}, "restartCount": 0},
        ],
    },
}  # fmt: skip


def test_what_is_read_of_a_pod() -> None:
    """The ids of what runs, what the kubelet calls a static pod, and a line for people."""
    assert container_ids(POD) == {"c": "2"}
    assert restarts(POD) == 3
    assert uid(POD) == "h"
    assert brief(POD) == "Pending, i terminated Completed, c running, d waiting Refused no room"


def test_the_daemon_set_an_operator_applies() -> None:
    """Of the shipped one only what its comments tell to put there is changed: the image, and the folder of cgroupfs
    where that is the driver."""
    (shipped,) = [one for one in yaml.safe_load_all(MANIFEST.read_text()) if one["kind"] == "DaemonSet"]
    found, as_shipped = daemon_set("sha256:abc", "cgroupfs"), daemon_set("sha256:abc", "systemd")
    spec, own = found["spec"]["template"]["spec"], shipped["spec"]["template"]["spec"]
    assert spec["containers"][0].pop("image") == "localhost/podslice@sha256:abc"
    image = own["containers"][0].pop("image")
    assert as_shipped["spec"]["template"]["spec"]["containers"][0].pop("image") != image
    assert as_shipped == shipped
    for mount in own["containers"][0]["volumeMounts"]:
        mount["mountPath"] = mount["mountPath"].replace("kubepods.slice", "kubepods")
    for volume in own["volumes"]:
        if volume["name"] == "pod-cgroups":
            volume["hostPath"]["path"] = "/sys/fs/cgroup/kubepods"
    assert found == shipped


@pytest.mark.slow
def test_an_image_as_a_disk(tmp_path: Path) -> None:
    """The archive begins at the second mebibyte, a disk without one is as large, and what is too large is refused."""
    archive = tmp_path / "image.oci.tar"
    archive.write_bytes(b"archive")
    disk = image_disk(archive, tmp_path / "disk")
    with disk.open("rb") as file:
        file.seek(1 << 20)
        assert file.read(archive.stat().st_size) == archive.read_bytes()
    assert disk.stat().st_size == image_disk(None, tmp_path / "empty").stat().st_size
    with archive.open("r+b") as file:
        file.truncate(disk.stat().st_size)
    with pytest.raises(FetchError, match=r"image\.oci\.tar is larger than \d+ MiB"):
        image_disk(archive, tmp_path / "disk")


def test_disks_are_in_order() -> None:
    """The guest knows them by their order."""
    assert [word for word in disks(Path("/a"), Path("/b")) if word.startswith("virtio")] == [
        "virtio-blk-pci,drive=more0",
        "virtio-blk-pci,drive=more1",
    ]


def test_a_network_with_two_addresses() -> None:
    """The guest reaches this machine's ports at the addresses that are named, and nobody else."""
    _, words, *_ = network(Path("/busybox"), {("10.96.0.1", 443): 1000, ("10.96.0.9", 9097): 2000})
    assert "restrict=on" in words.split(",")
    assert [word for word in words.split(",") if word.startswith("guestfwd=")] == [
        "guestfwd=tcp:10.96.0.1:443-cmd:/busybox nc 127.0.0.1 1000",
        "guestfwd=tcp:10.96.0.9:9097-cmd:/busybox nc 127.0.0.1 2000",
    ]


def test_the_ready_node_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A saved node is used by every kind of node that begins with it; systemd, or other programs, need another one."""
    made: list[Path] = []
    monkeypatch.setattr(Machine, "_make_ready", lambda machine, node, target: made.append(target) or target.mkdir())

    def machine(etcd: str) -> Machine:
        found = object.__new__(Machine)
        found._cache, found._initramfs, found._root, found._program = tmp_path, Path("i"), Path("r"), Path("p")
        found._programs = Programs(Path("p"), Path(etcd))
        return found

    one = machine("etcd-1")
    nodes = (PROGRAM, DAEMON_SET, SYSTEMD, SYSTEMD_DAEMON_SET, PROGRAM)
    first, second, third, fourth, fifth = (one._ready(node) for node in nodes)
    assert first == second == fifth
    assert third == fourth != first
    assert made == [first, third]
    assert machine("etcd-2")._ready(PROGRAM) not in made[:2]


def test_results_as_a_table() -> None:
    """A row for each scenario with its promise, the result, the seconds and the run that it is of."""
    outcomes = [ClusterOutcome("X-K02", 99.5, "no"), ClusterOutcome("X-K01", 12.4, "")]
    text = markdown(outcomes, PROMISES, "2026-11-22 abc")
    assert "1 of 3 scenarios passed, each when its row says" in text
    assert text.splitlines()[-3:] == [
        "| X-K01 | One. | pass | 12 | 2026-11-22 abc |",
        "| X-K02 | Two. | FAIL | 100 | 2026-11-22 abc |",
        "| X-K03 | Three. | not run |  |  |",
    ]
    assert "at one commit" in markdown([ClusterOutcome(ident, 1, "") for ident in PROMISES], PROMISES, "x")


def test_a_run_keeps_the_rows_of_others() -> None:
    """A run writes its own rows; the others stay with the run they are of, under the promise of today, and a scenario
    that is no more has none."""
    first = markdown([ClusterOutcome(ident, 1, "") for ident in PROMISES], PROMISES, "2026-11-21 abc")
    promises = {"X-K02": "Two.", "X-K03": "Three, and more.", "X-K04": "Four."}
    second = markdown([ClusterOutcome("X-K02", 7, "no")], promises, "2026-11-22 def", first)
    assert second.splitlines()[-3:] == [
        "| X-K02 | Two. | FAIL | 7 | 2026-11-22 def |",
        "| X-K03 | Three, and more. | pass | 1 | 2026-11-21 abc |",
        "| X-K04 | Four. | not run |  |  |",
    ]
    assert markdown([], promises, "later", second) == second


@pytest.mark.process
def test_a_run_says_of_what_it_is() -> None:
    """The day, and the commit where there is one."""
    assert re.fullmatch(r"\d{4}-\d\d-\d\d( [0-9a-f]{9})?", this_run())


@pytest.mark.slow
@pytest.mark.process
def test_without_the_programs_one_line_says_so(tmp_path: Path) -> None:
    """And the exit code is that of a test that cannot run here."""
    environment = {"PODSLICE_KUBERNETES": str(tmp_path), "PODSLICE_E2E_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "e2e", "--cluster"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(rf"e2e: no Kubernetes programs in {tmp_path}; .*\n", done.stderr)


def test_clusters_are_shared_out() -> None:
    """Long groups come first, and none is longer than the part of one of those at work."""
    one, two = list(CLUSTER.values())[:9], list(CLUSTER.values())[9:11]
    assert [len(part) for part in distribute_groups([two, one], 1)] == [9, 2]
    assert [len(part) for part in distribute_groups([two, one], 2)] == [6, 3, 2]
    assert [part for parts in distribute_groups([two, one], 3) for part in parts]


def test_a_machine_that_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scenario whose machine does not answer any more is tried again once in another one; those behind it run
    after it, and what fails otherwise is not tried again."""
    ran: list[str] = []

    def trouble(ident: str) -> tuple[str, bool]:
        stopped = {"X-K01": 1, "X-K03": 2}.get(ident, 0) > ran.count(ident) - 1
        return ("no answer", True) if stopped else ("no", False) if ident == "X-K02" else ("", False)

    def in_one_cluster(machine: Any, waiting: list[ClusterScenario]) -> Iterator[ClusterOutcome]:
        while waiting:
            ran.append(waiting.pop(0).ident)
            outcome = ClusterOutcome(ran[-1], 1.0, *trouble(ran[-1]))
            yield outcome
            if outcome.problem:
                return

    monkeypatch.setattr("e2e.cluster_run._in_one_cluster", in_one_cluster)
    chosen = [CLUSTER[ident] for ident in ("X-K01", "X-K02", "X-K03", "X-K04")]
    outcomes = run_in_turn(cast("Machine", None), list(chosen))
    assert ran == ["X-K01", "X-K01", "X-K02", "X-K03", "X-K03", "X-K04"]
    assert [(one.ident, one.problem) for one in outcomes] == [
        ("X-K01", ""), ("X-K02", "no"), ("X-K03", "no answer"), ("X-K04", "")
    ]  # fmt: skip


@pytest.mark.process
def test_whether_a_guest_reaches_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command that a guest's shell runs says yes where somebody listens, and no where nobody does."""
    monkeypatch.setattr("e2e.cluster.SERVICE_ADDRESS", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])

        class OwnShell:
            def call(self, function: str, *, command: str, timeout: float) -> str:
                assert function == "shell"
                ran = subprocess.run(["sh", "-c", command.replace("443", port)], capture_output=True, text=True)
                return ran.stdout

        cluster = cast("Cluster", SimpleNamespace(vm=OwnShell()))
        assert Cluster.reaches_the_server(cluster)
        server.close()
        assert not Cluster.reaches_the_server(cluster)


@pytest.mark.parametrize(
    ("last", "reaches", "tries"),
    [
        (StoppedError("no answer in 30 s"), True, 2),
        (GuestError("no such program"), True, 1),
        ("the agent's log", True, 1),
        ("the agent's log", False, 2),
    ],
    ids=["the machine stopped", "an answer that is an error", "an answer", "its network stopped"],
)
def test_a_check_that_fails_because_the_machine_stopped(
    monkeypatch: pytest.MonkeyPatch, last: str | Exception, *, reaches: bool, tries: int
) -> None:
    """A check that waits in vain is tried again on a machine that has stopped, or does not reach the API server any
    more; on one that answers it has failed."""

    class OneCluster:
        def start(self, resources: object, settings: object) -> None:
            pass

        def last_words(self) -> str:
            if isinstance(last, Exception):
                raise last
            return last

        def reaches_the_server(self) -> bool:
            return reaches

    class AnyMachine:
        @contextmanager
        def started(self, node: str) -> Iterator[OneCluster]:
            yield OneCluster()

    ran: list[object] = []

    def never(cluster: object) -> None:
        ran.append(cluster)
        raise CheckError("not so after 300 s")

    monkeypatch.setitem(CLUSTER, "X-K02", CLUSTER["X-K02"]._replace(run=never))
    outcomes = run_in_turn(cast("Machine", AnyMachine()), [CLUSTER["X-K02"]])
    assert [one.problem for one in outcomes] == ["not so after 300 s"]
    assert len(ran) == tries
