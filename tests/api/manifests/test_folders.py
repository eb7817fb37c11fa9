"""Dumps of a cluster: `kubectl cluster-info dump` on one stream and as a folder, must-gather, folders of manifests."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from podslice.api.manifests.manifest import Manifests, load_manifests, read_text_manifests
from podslice.api.manifests.pipeline import ReadOptions
from podslice.reading.folders import find_object_files, may_hold_pods
from podslice.reading.yaml import drop_log_sections
from podslice.values.errors import InputError

POD_SPEC: dict[str, Any] = {"containers": [{"name": "main", "image": "app:1"}]}


def pod(name: str, *owners: str, namespace: str = "prod", **more: Any) -> dict[str, Any]:
    references = [{"kind": "ReplicaSet", "name": name, "uid": uid, "controller": True} for uid in owners]
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "ownerReferences": references}
    return {"metadata": metadata, "spec": POD_SPEC, **more}


def listed(kind: str, *items: dict[str, Any]) -> dict[str, Any]:
    """A typed list, as client-go and a cluster-info dump write it: items without kind and version."""
    version = "apps/v1" if kind in ("Deployment", "ReplicaSet") else "v1"
    return {"kind": f"{kind}List", "apiVersion": version, "metadata": {}, "items": list(items)}


def workload(name: str, uid: str, **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "prod", "uid": uid, **more}
    return {"metadata": metadata, "spec": {"replicas": 1, "template": {"spec": POD_SPEC}}}


def names(found: Manifests) -> list[str]:
    return [f"{one.kind} {one.pod.metadata.name}" for one in found.pods]


LOG = '{"kind": "Pod"}\n==== START of something else ====\nkind: Pod\nno line at the end'


def dump_text(**options: Any) -> str:
    lists = [listed("Node", {"metadata": {"name": "n1"}}), listed("Event"), listed("Pod", pod("a", "rs"), pod("b"))]
    lists.append(listed("ReplicaSet", workload("a", "rs")))
    text = "".join(json.dumps(one, **options) + "\n" for one in lists)
    log = f"==== START logs for container c of pod prod/a ====\n{LOG}==== END logs for container c of pod prod/a ====\n"
    return text + log + log.replace("prod/a", "kube-system/b") + json.dumps(listed("Pod", pod("c")), **options)


@pytest.mark.parametrize("indent", [None, 4])
def test_dump_on_one_stream(indent: int | None) -> None:
    """Lists and logs take turns; what a log says is not an object, and an owner in another list is one."""
    found = read_text_manifests(dump_text(indent=indent), "dump.txt", ReadOptions())
    assert names(found) == ["Pod a", "Pod b", "Pod c"]


def test_dump_as_yaml() -> None:
    """`-o yaml` separates the lists."""
    text = "---\n".join(
        (yaml.safe_dump(listed("Pod", pod("a"))), "==== START logs for container c of pod prod/a ====\n{{ [\n")
    )
    assert names(read_text_manifests(text, "dump.yaml", ReadOptions())) == ["Pod a"]


def test_log_sections_keep_line_numbers() -> None:
    """Lines after a log have the number that they have in the file."""
    mark = "logs for container c of pod p"
    text = f"a: 1\n==== START {mark} ====\nx\ny\n==== END {mark} ====\nb: 2\n"
    assert drop_log_sections(text).split("\n").index("b: 2") == text.split("\n").index("b: 2")
    assert drop_log_sections("data: '==== START logs for container c of pod p ===='") == (
        "data: '==== START logs for container c of pod p ===='"
    )


def write(folder: Path, **files: Any) -> str:
    for name, data in files.items():
        path = folder / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return str(folder)


def test_dump_as_a_folder(tmp_path: Path) -> None:
    """Pods lie in a folder for each namespace, beside their owners; logs are not looked at."""
    folder = write(
        tmp_path,
        nodes_DOT_json=listed("Node", {"metadata": {"name": "n1"}}),
        prod__pods_DOT_json=listed("Pod", pod("a", "rs")),
        prod__replicasets_DOT_json=listed("ReplicaSet", workload("a", "rs")),
        prod__deployments_DOT_json=listed("Deployment", workload("idle", "d2")),
        prod__a__logs_DOT_txt="{",
        test__pods_DOT_json=listed("Pod", pod("t", namespace="test")),
        test__events_DOT_json=listed("Event"),
    )
    found = load_manifests([folder], ReadOptions())
    assert names(found) == ["Deployment idle", "Pod a", "Pod t"]
    assert found.pods[1].source == str(tmp_path / "prod" / "pods.json")
    assert found.notes == (f"{folder}: ReplicaSet prod/a is not counted, its pods or owners are in the input too",)


def test_must_gather(tmp_path: Path) -> None:
    """A must-gather has the pods of a namespace in one file, and each once more: the list is read, each pod counts
    once. Operators' objects of it are found as well."""
    whole = {"apiVersion": "v1", "kind": "Pod", **pod("a")}
    gather = tmp_path / "must-gather.local.1" / "quay-io-origin"
    write(
        gather,
        version="4.18",
        cluster_DASH_scoped__core__nodes__n1_DOT_yaml="kind: Node\napiVersion: v1\nmetadata: {name: n1}\n",
        namespaces__prod__core__pods_DOT_yaml=yaml.safe_dump(listed("Pod", pod("a"), pod("b"))),
        namespaces__prod__core__events_DOT_yaml="kind: EventList\nitems: [{{ not even YAML\n",
        namespaces__prod__pods__a__a_DOT_yaml="kind: Pod\n{{ not read\n",
        namespaces__other__pods__a__a_DOT_yaml=yaml.safe_dump(whole),
        namespaces__prod__argoproj_DOT_io__rollouts__r_DOT_yaml=yaml.safe_dump(
            {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", **workload("r", "r")}
        ),
        audit_logs__kube_DOT_log="{",
    )
    found = load_manifests([str(tmp_path)], ReadOptions(strict=True))
    assert sorted(names(found)) == ["Pod a", "Pod b", "Rollout r"]


def test_folder_of_manifests(tmp_path: Path) -> None:
    """Files of other programs are not objects; those that cannot be read are named, and errors with --strict."""
    folder = write(
        tmp_path,
        web_DOT_yaml=yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", **pod("a")}),
        values_DOT_yaml="replicas: 1\n",
        list_DOT_yaml="- a\n- b\n",
        template_DOT_yaml="kind: Deployment\n{{ .Values.x }}: [\n",
        _DOT_hidden__x_DOT_yaml="kind: Pod\n",
    )
    os.symlink("/dev/zero", tmp_path / "zero.yaml")
    found = load_manifests([folder], ReadOptions())
    assert names(found) == ["Pod a"]
    assert len(found.notes) == 1
    assert (
        f"{folder}: passed over: a file that cannot be read, first {folder}/template.yaml document 1: line 2"
        in found.notes[0]
    )
    with pytest.raises(InputError, match=r"passed over: a file that cannot be read, first .*render the template first"):
        load_manifests([folder], ReadOptions(strict=True))


def test_folder_without_pods(tmp_path: Path) -> None:
    """A folder has to have pods somewhere; a List without items is one where that is fine."""
    folder = write(tmp_path, svc_DOT_yaml="{apiVersion: example.com/v1, kind: Gizmo, metadata: {name: x}}\n")
    with pytest.raises(InputError, match="holds no pods; passed over: Gizmo x: no pod template is in it"):
        load_manifests([folder], ReadOptions())
    with pytest.raises(InputError, match="holds no pods"):
        load_manifests([write(tmp_path / "empty", note="x")], ReadOptions())


def test_folders_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many files are refused in one line; what is too deep is not reached."""
    deep = tmp_path.joinpath(*"abcdefghijklmnop")
    write(deep, pod_DOT_yaml="kind: Pod\n")
    assert find_object_files(str(tmp_path)) == []
    write(tmp_path, a_DOT_yaml="", b_DOT_yaml="")
    monkeypatch.setattr("podslice.reading.folders.MAX_FILES", 1)
    with pytest.raises(InputError, match="holds 2 files of objects"):
        find_object_files(str(tmp_path))
    monkeypatch.setattr("podslice.reading.folders.MAX_ENTRIES", 3)
    with pytest.raises(InputError, match="holds more than 3 files"):
        find_object_files(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        pytest.param("kind: ConfigMapList\nitems:\n- kind: Pod\n", False, id="list of a kind without pods"),
        pytest.param('{\n    "kind": "EventList",\n    "items": [{"involved": {"kind": "Pod"}}]}', False, id="JSON"),
        pytest.param('{"kind":"SecretList","items":[]}', False, id="JSON on one line"),
        pytest.param("kind: Secret\n---\nkind: Pod\n", True, id="a pod after another kind"),
        pytest.param('{"apiVersion":"v1","items":[],"kind":"EventList"}', True, id="a kind that is not seen"),
        pytest.param("kind: Gizmo\n", True, id="a kind that nobody knows"),
    ],
)  # fmt: skip
def test_files_left_out_unparsed(text: str, holds: bool) -> None:
    """Files are left out only where every kind at their top is one without pods."""
    assert may_hold_pods(text) is holds
