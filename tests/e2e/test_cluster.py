"""What is around the scenarios of a cluster; they themselves need a virtual machine (`python -m e2e --cluster`)."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e.cluster import KUBELET, MANIFEST, brief, complete, container_ids, disks, restarts, uid
from e2e.cluster_daemonset import daemon_set
from e2e.cluster_run import ClusterOutcome, choose, markdown
from e2e.cluster_scenarios import CLUSTER
from e2e.image import image_disk
from e2e.packages import FetchError
from e2e.pods import gu, pod

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
    """Of the shipped one only what its comments tell to put there is changed: the image, and the folder of cgroupfs."""
    (shipped,) = [one for one in yaml.safe_load_all(MANIFEST.read_text()) if one["kind"] == "DaemonSet"]
    found = daemon_set("sha256:abc")
    spec, own = found["spec"]["template"]["spec"], shipped["spec"]["template"]["spec"]
    assert spec["containers"][0].pop("image") == "localhost/podslice@sha256:abc"
    del own["containers"][0]["image"]
    for mount in own["containers"][0]["volumeMounts"]:
        mount["mountPath"] = mount["mountPath"].replace("kubepods.slice", "kubepods")
    for volume in own["volumes"]:
        if volume["name"] == "pod-cgroups":
            volume["hostPath"]["path"] = "/sys/fs/cgroup/kubepods"
    assert found == shipped


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


def test_results_as_a_table() -> None:
    """A row for each scenario with its promise, the result and the seconds."""
    text = markdown([ClusterOutcome("X-K01", 12.4, ""), ClusterOutcome("X-K02", 99.5, "no")])
    assert "1 of 2 passed" in text
    assert text.splitlines()[-1] == f"| X-K02 | {CLUSTER['X-K02'].promise} | FAIL | 100 |"


@pytest.mark.slow
def test_without_the_programs_one_line_says_so(tmp_path: Path) -> None:
    """And the exit code is that of a test that cannot run here."""
    environment = {"PODSLICE_KUBERNETES": str(tmp_path), "PODSLICE_E2E_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "e2e", "--cluster"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(rf"e2e: no Kubernetes programs in {tmp_path}; .*\n", done.stderr)
