"""Where specifications come from: static manifests, several sources in their order, and the pods of none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from podslice.agent.kubelet.sources import LARGEST_MANIFEST, ManifestSource, Sources
from podslice.agent.settings import settings_from_dict
from podslice.service.identity import RESOURCES_ANNOTATION, SOURCE_ANNOTATION, Identity
from podslice.service.podlist import HASH_ANNOTATION
from podslice.values.cpuset import parse_bits
from podslice.values.errors import InputError
from tests import clock
from tests.agent.fake_source import FakeSource
from tests.agent.helpers import World
from tests.conftest import make_pod

MANIFEST = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}{namespace}}}
spec:
  containers:
    - name: app
      image: app
      resources:
        limits: {{cpu: "{cpu}", memory: 1Gi}}
"""


def write(folder: Path, file: str, name: str, cpu: str = "2", namespace: str = "") -> None:
    folder.mkdir(exist_ok=True)
    space = f", namespace: {namespace}" if namespace else ""
    (folder / file).write_text(MANIFEST.format(name=name, cpu=cpu, namespace=space))


def static(name: str, namespace: str = "default") -> Identity:
    """A static pod as its sandbox names it: the node's name is appended, the UID is the hash of the file."""
    return Identity("0123456789abcdef", namespace, name, kubelet_says("0123456789abcdef"))


def kubelet_says(uid: str, source: str = "file") -> dict[str, str]:
    """Return the annotations that the kubelet itself writes; they replace those of anyone else."""
    return {HASH_ANNOTATION: uid, SOURCE_ANNOTATION: source}


def test_static_pod_is_found_by_its_name_on_this_node(tmp_path: Path) -> None:
    """The kubelet appends the node's name; namespace and node must fit; it keeps the UID the runtime uses."""
    write(tmp_path, "dns.yaml", "dns")
    write(tmp_path, "proxy.yaml", "proxy", namespace="kube-system")
    sources = Sources([ManifestSource(tmp_path, "Node-1")])
    pod = sources.find(static("dns-node-1"))
    assert pod is not None
    assert (pod.metadata.uid, pod.metadata.name) == ("0123456789abcdef", "dns-node-1")
    assert str(pod.spec.containers[0].resources.limits["cpu"]) == "2"
    assert sources.find(static("dns-node-2")) is None
    assert sources.find(static("dns")) is None
    assert sources.find(static("proxy-node-1")) is None
    assert sources.find(static("proxy-node-1", "kube-system")) is not None
    for said in ({}, kubelet_says("other"), kubelet_says("0123456789abcdef", "api")):
        assert sources.find(static("dns-node-1")._replace(annotations=said)) is None


def test_changed_manifests_are_read_again(tmp_path: Path) -> None:
    """A file that is added, changed or removed counts from then on."""
    source = ManifestSource(tmp_path / "manifests", "n")
    assert source.find(static("a-n")) is None
    write(tmp_path / "manifests", "a.yaml", "a", cpu="2")
    write(tmp_path / "manifests", "a.yaml", "a", cpu="3")
    found = source.find(static("a-n"))
    assert found is not None
    assert str(found.spec.containers[0].resources.limits["cpu"]) == "3"
    (tmp_path / "manifests" / "a.yaml").unlink()
    assert source.find(static("a-n")) is None


def test_other_files_are_passed_over(tmp_path: Path) -> None:
    """Hidden, broken, huge and foreign files, folders and dangling links keep no good one from being found."""
    (tmp_path / "0-broken.yaml").write_text("{")
    (tmp_path / "1-binary").write_bytes(bytes(range(256)))
    (tmp_path / "2-other.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")
    (tmp_path / "3-folder").mkdir()
    (tmp_path / "4-link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "5-huge.yaml").write_text("#" * (LARGEST_MANIFEST + 1))
    write(tmp_path, ".a.yaml", "a", cpu="9")
    write(tmp_path, "z.yaml", "a", cpu="2")
    found = ManifestSource(tmp_path, "n").find(static("a-n"))
    assert found is not None
    assert str(found.spec.containers[0].resources.limits["cpu"]) == "2"


def test_static_pod_through_the_wire(tmp_path: Path) -> None:
    """A static pod gets its CPUs without any API server, and keeps them when its file has gone."""

    async def main() -> None:
        write(tmp_path / "manifests", "a.yaml", "a", cpu="4")
        world = World(tmp_path)
        world.source = ManifestSource(tmp_path / "manifests", "node-1")  # type: ignore[assignment]
        await world.start()
        sandbox = await world.fake.run_pod("hash", name="a-node-1", annotations=kubelet_says("hash"))
        container = await world.fake.create_container(sandbox, "app")
        owned = container.cpus
        assert parse_bits(owned).bit_count() == 4
        (tmp_path / "manifests" / "a.yaml").unlink()
        await world.restart()
        assert container.cpus == owned
        world.check()
        await world.kill()

    clock.run(main())


def test_first_source_wins_and_the_annotation_completes(tmp_path: Path) -> None:
    """Sources are asked in their order; only a pod without own pod-level resources takes the annotation's."""
    first, second = FakeSource([make_pod("a", ("app", "4"))]), FakeSource([make_pod("a", ("app", "2"))])
    second.add(make_pod("b", ("app", "1"), budget="2"))
    sources = Sources([first, second])
    text = '{"limits": {"cpu": "4", "memory": "1Gi"}}'
    for uid, own, pod_level in (("a", "4", "4"), ("b", "1", "2")):
        pod = sources.find(Identity(uid, "default", uid, {RESOURCES_ANNOTATION: text}))
        assert pod is not None
        assert str(pod.spec.containers[0].resources.limits["cpu"]) == own
        assert pod.spec.resources is not None
        assert str(pod.spec.resources.limits["cpu"]) == pod_level


@pytest.mark.parametrize("wanted", [
    '{"limits": {"cpu": "4100m"}}', '{"requests": {"cpu": "31"}, "limits": {"cpu": "4"}}',
    '{"requests": {"memory": "2Gi"}}', '{"limits": {"hugepages-2Mi": "2Mi"}}',
])  # fmt: skip
def test_annotation_never_gives_more_than_was_counted(wanted: str) -> None:
    """An annotation can give a pod no more than scheduler and quotas have counted for it, and the refusal has both
    amounts."""
    sources = Sources([FakeSource([make_pod("a", ("app", "4"))])])
    with pytest.raises(InputError, match=r"podslice\.io/resources\].*wants .* where the pod's containers request"):
        sources.find(Identity("a", "default", "a", {RESOURCES_ANNOTATION: wanted}))


STATIC = {HASH_ANNOTATION: "a", SOURCE_ANNOTATION: "file"}


@pytest.mark.parametrize(("name", "annotations", "known"), [
    ("apiServer", {}, True), ("apiServer", STATIC, False), ("manifests", {}, False),
    ("apiServer", {HASH_ANNOTATION: "a"}, True), ("apiServer", {HASH_ANNOTATION: "b", SOURCE_ANNOTATION: "file"}, True),
    ("apiServer", {HASH_ANNOTATION: "a", SOURCE_ANNOTATION: "api"}, True),
])  # fmt: skip
def test_who_must_be_known(name: str, annotations: dict[str, str], known: bool) -> None:
    """With an API server a pod nobody knows is waited for, unless the kubelet says it is a static one; without, it is
    guessed."""
    source = FakeSource()
    source.name = name
    identity = Identity("a", "default", "a", annotations | {RESOURCES_ANNOTATION: '{"limits": {"cpu": "4"}}'})
    sources = Sources([source])
    assert sources.must_know(identity) is known
    assert (sources.find(identity) is None) is known


@pytest.mark.parametrize(("fields", "counts"), [
    ({}, True), ({"apiServer": True}, False), ({"manifests": "/etc/kubernetes/manifests"}, False),
    ({"apiServer": True, "annotation": True}, True), ({"annotation": False}, False),
])  # fmt: skip
def test_annotation_is_off_where_others_know(fields: dict[str, Any], counts: bool) -> None:
    """Unless it is asked for, an author's own word counts only where there is no other."""
    kind = {"apiVersion": "podslice.io/v1alpha1", "kind": "AgentConfiguration"}
    assert settings_from_dict({**kind, "sources": fields}).agent.sources.annotation_counts is counts
