"""Files that are often given in place of a manifest, and lists in forms that tools print: one line, or read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from podslice.api.manifests.manifest import load_manifests, load_pods_text, read_text_manifests
from podslice.api.manifests.pipeline import ReadOptions
from podslice.values.errors import InputError

POD: dict[str, Any] = {
    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "uid": "u1"},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}  # fmt: skip

STRANGERS = [
    pytest.param("NAME    READY   STATUS    RESTARTS   AGE\nweb-0   1/1     Running   0   3d\n",
                 "is a table of kubectl get (kubectl get pods -A -o yaml)", id="table"),
    pytest.param("NAMESPACE   NAME   READY   STATUS\nprod  web-0   1/1     Running\n",
                 "is a table of kubectl get (kubectl get pods -A -o yaml)", id="table of all namespaces"),
    pytest.param("Name:             web-0\nNamespace:        prod\nPriority:         0\n",
                 "is the output of kubectl describe (kubectl get pod NAME -o yaml)", id="describe"),
    pytest.param("Architecture:        x86_64\nCPU(s):  8\n", "is the output of lscpu (it describes a machine: --from)",
                 id="lscpu"),
    pytest.param("CONTAINER           IMAGE          CREATED\n1  2  3\n", "is a table of crictl", id="crictl"),
    pytest.param("pod/web-0\npod/web-1\n", "is a list of names (kubectl get pods -A -o yaml)", id="names"),
    pytest.param("deployment.apps/web\n", "is a list of names (kubectl get pods -A -o yaml)", id="names with groups"),
    pytest.param("NAME: web\nLAST DEPLOYED: Mon\nMANIFEST:\n---\nkind: Pod\n",
                 "is the output of helm (helm get manifest, helm template)", id="helm get all"),
    pytest.param('{"items": [{"id": "1", "state": "SANDBOX_READY"}]}', "is a list of something else than objects",
                 id="crictl pods"),
    pytest.param("services:\n  web: {image: nginx}\n", "is a Compose file (kompose convert)", id="compose"),
    pytest.param("apiVersion: v2\nname: web\nversion: 1.0.0\n", "is a Helm chart's Chart.yaml (render",
                 id="chart"),
    pytest.param("replicaCount: 2\nimage: {}\n", "looks like the values of a Helm chart (render it",
                 id="values"),
    pytest.param("resources: [a.yaml]\n", "is a kustomization (kustomize build DIR)", id="kustomization"),
    pytest.param('{"info": {}, "status": {}}', "is the output of crictl", id="crictl inspect"),
    pytest.param("containers: [{name: c}]\n", "is the specification of a pod alone (apiVersion", id="spec"),
    pytest.param("kind: Config\napiVersion: v1\n", "holds no pods, only Config (that is a kubeconfig", id="config"),
    pytest.param("kind: NodeList\napiVersion: v1\nitems: []\n",
                 "holds no pods, only NodeList (it describes a machine: --from)", id="nodes"),
    pytest.param('{"kind": "Table", "apiVersion": "meta.k8s.io/v1", "rows": []}',
                 "holds no pods, only Table (kubectl get -o json)", id="table of the API"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line"), STRANGERS)
def test_strangers_are_named(text: str, line: str) -> None:
    """One line says what it is and what would do."""
    with pytest.raises(InputError) as caught:
        load_pods_text(text, "x")
    assert str(caught.value).startswith(f"x: {line}")


@pytest.mark.parametrize(
    ("data", "name"),
    [
        pytest.param(b"\x1f\x8b\x08\x00\x00", "a gzip archive", id="gzip"),
        pytest.param(b"\xfd7zXZ\x00\xff", "an xz archive", id="xz"),
        pytest.param(b"PK\x03\x04\xff", "a zip archive", id="zip"),
    ],
)
def test_archives_are_named(data: bytes, name: str, tmp_path: Path) -> None:
    """An archive is not only "no text"."""
    path = tmp_path / "x"
    path.write_bytes(data)
    with pytest.raises(InputError, match=f"x: is {name}, not text"):
        load_manifests([str(path)], ReadOptions())


def test_lists_without_a_kind() -> None:
    """`jq` leaves an array, or items alone; what other programs list is not a list of objects."""
    for document, path in (([POD], "[0]"), ({"items": [POD]}, "items[0]")):
        (one,) = load_pods_text(json.dumps(document), "x.json")
        assert (one.pod.metadata.name, one.path) == ("p", path)
    for document, problem in (
        ([{"a": 1}], "expected an object, got a list"),
        ({"items": [{}]}, "is a list of something else than objects"),
    ):
        with pytest.raises(InputError, match=problem):
            load_pods_text(json.dumps(document), "x.json")


def test_events_of_a_watch() -> None:
    """With `--output-watch-events` the last state counts, and what was deleted does not."""
    other = {**POD, "metadata": {"name": "q", "uid": "u2"}}
    changed = {**POD, "metadata": {"name": "p", "uid": "u1", "labels": {"a": "b"}}}
    events = [("ADDED", POD), ("ADDED", other), ("MODIFIED", changed), ("DELETED", other)]
    text = "\n".join(json.dumps({"type": kind, "object": one}) for kind, one in events)
    (one,) = read_text_manifests(text, "watch.json", ReadOptions()).pods
    assert one.pod.metadata.labels == {"a": "b"}


def test_patches_are_no_objects() -> None:
    """A strategic merge patch with a directive is passed over: the object that it changes is elsewhere."""
    patch = {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"template": {"spec": {"containers": [{"name": "a"}, {"name": "b", "$patch": "delete"}]}}},
    }  # fmt: skip
    found = read_text_manifests(json.dumps(patch) + json.dumps(POD), "x.json", ReadOptions())
    assert [one.kind for one in found.pods] == ["Pod"]
    line = "x.json: passed over: Deployment d: it is a patch, not a whole object (kustomize build DIR)"
    assert found.notes == (line,)
