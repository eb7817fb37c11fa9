"""Lists of a cluster hold a workload several times: `kubectl get all` prints Pod, ReplicaSet and Deployment."""

from __future__ import annotations

import json
from typing import Any

from podslice.api.manifests.manifest import Manifests, read_text_manifests
from podslice.api.manifests.pipeline import ReadOptions

POD_SPEC: dict[str, Any] = {"containers": [{"name": "main", "image": "app:1"}]}
VERSIONS = {
    "Pod": "v1", "Deployment": "apps/v1", "ReplicaSet": "apps/v1", "StatefulSet": "apps/v1", "Job": "batch/v1",
    "CronJob": "batch/v1", "JobSet": "jobset.x-k8s.io/v1alpha2", "postgresql": "acid.zalan.do/v1",
    "Rollout": "argoproj.io/v1alpha1", "Workload": "kueue.x-k8s.io/v1beta1",
}  # fmt: skip


def made(kind: str, name: str, *owners: tuple[str, str], **more: Any) -> dict[str, Any]:
    """An object as a cluster lists it; its UID is its kind and name."""
    template: dict[str, Any] = {"template": {"spec": POD_SPEC}}
    spec: dict[str, Any] = POD_SPEC if kind == "Pod" else template
    if kind == "CronJob":
        spec = {"jobTemplate": {"spec": template}}
    elif kind == "JobSet":
        spec = {"replicatedJobs": [{"name": "w", "template": {"spec": template}}]}
    elif kind == "Workload":
        spec = {"podSets": [{"name": "main", "count": 1, **template}]}
    elif kind == "postgresql":
        spec = {"numberOfInstances": 1}
    references = [{"kind": kind, "name": name, "uid": f"{kind}-{name}", "controller": True} for kind, name in owners]
    metadata = {"name": name, "namespace": "prod", "uid": f"{kind}-{name}", "ownerReferences": references}
    fields = {key: value for key, value in more.items() if key != "spec"}
    return {"apiVersion": VERSIONS[kind], "kind": kind, "metadata": metadata, "spec": {**spec, **more.get("spec", {})},
            **fields}  # fmt: skip


def read(*objects: dict[str, Any], **options: Any) -> Manifests:
    listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    return read_text_manifests(json.dumps(listed), "all.json", ReadOptions(**options))


def names(found: Manifests) -> list[str]:
    return [f"{one.kind} {one.pod.metadata.name}" for one in found.pods]


WEB = (
    made("Pod", "web-5d4f-a", ("ReplicaSet", "web-5d4f")),
    made("Pod", "web-5d4f-b", ("ReplicaSet", "web-5d4f")),
    made("Deployment", "web", spec={"replicas": 2}),
    made("ReplicaSet", "web-5d4f", ("Deployment", "web"), spec={"replicas": 2}),
    made("ReplicaSet", "web-11aa", ("Deployment", "web"), spec={"replicas": 0}),
)


def test_get_all_counts_each_pod_once() -> None:
    """Two pods, their Deployment, its ReplicaSet and an older one of 0 are two pods, with and without --replicas."""
    for replicas in (False, True):
        found = read(*WEB, replicas=replicas)
        assert names(found) == ["Pod web-5d4f-a", "Pod web-5d4f-b"]
    assert found.notes == (
        "all.json: Deployment prod/web, 2 ReplicaSet (prod/web-5d4f, prod/web-11aa) are not counted, "
        "their pods or owners are in the input too",
    )


def test_without_pods_the_topmost_owner_counts() -> None:
    """`kubectl get deployments,replicasets` says how many pods there shall be once."""
    found = read(*WEB[2:], replicas=True)
    assert names(found) == ["Deployment web-0", "Deployment web-1"]


def test_owner_in_between_is_missing() -> None:
    """`kubectl get deployments,pods` leaves the ReplicaSet out: its name tells whose it is. So does a Job's."""
    assert names(read(*WEB[:3])) == ["Pod web-5d4f-a", "Pod web-5d4f-b"]
    run = made("Pod", "backup-28999001-x", ("Job", "backup-28999001"))
    assert names(read(made("CronJob", "backup"), run)) == ["Pod backup-28999001-x"]
    rollout = made("Rollout", "web", spec={"replicas": 2})
    assert names(read(rollout, WEB[0])) == ["Pod web-5d4f-a"]


def test_owners_without_uids() -> None:
    """Tools that tidy manifests take UIDs out and leave the references: kind and name tell as well."""
    tidy = json.loads(json.dumps(WEB))
    for one in tidy:
        del one["metadata"]["uid"]
    assert names(read(*tidy)) == ["Pod web-5d4f-a", "Pod web-5d4f-b"]


def test_an_owner_of_the_same_name_made_again_is_another() -> None:
    """A ReplicaSet with another UID than the reference has did not make the pod."""
    again = json.loads(json.dumps(WEB[3]))
    again["metadata"] |= {"uid": "new", "ownerReferences": []}
    assert names(read(WEB[0], again)) == ["Pod web-5d4f-a", "ReplicaSet web-5d4f"]


def test_a_name_alone_makes_no_owner() -> None:
    """A ReplicaSet of another Deployment, or one in another namespace, is not this one's."""
    other = made("Deployment", "web-5d4f")
    assert names(read(WEB[0], other)) == ["Pod web-5d4f-a", "Deployment web-5d4f"]
    elsewhere = made("Deployment", "web")
    elsewhere["metadata"]["namespace"] = "test"
    assert len(read(WEB[0], elsewhere).pods) == 2


def test_owners_of_operators() -> None:
    """The chain JobSet, Job, Pod counts as its pods; a Workload of Kueue is a copy of the Job that it queues."""
    jobset, job = made("JobSet", "train"), made("Job", "train-w-0", ("JobSet", "train"))
    pod = made("Pod", "train-w-0-0", ("Job", "train-w-0"))
    assert names(read(jobset, job, pod)) == ["Pod train-w-0-0"]
    assert names(read(jobset, job)) == ["JobSet train"]
    assert names(read(jobset, made("Workload", "jobset-train", ("JobSet", "train")))) == ["JobSet train"]


def test_owner_without_a_template_counts_for_nothing() -> None:
    """A database of an operator has no template; the StatefulSet that the operator made of it counts."""
    database, pods = made("postgresql", "db"), made("StatefulSet", "db", ("postgresql", "db"), spec={"replicas": 2})
    assert names(read(database, pods)) == ["StatefulSet db"]
    assert names(read(database, pods, made("Pod", "db-0", ("StatefulSet", "db")))) == ["Pod db-0"]


def test_what_runs_is_not_passed_over() -> None:
    """An operator's object whose pods, or whose workloads, are in the list has not been passed over."""
    database, pods = made("postgresql", "db"), made("StatefulSet", "db", ("postgresql", "db"))
    assert read(database, pods, strict=True).notes == ()
    assert read(database, made("Pod", "db-0", ("postgresql", "db")), strict=True).notes == ()


def test_rings_of_owners_end() -> None:
    """References that lead back, which no cluster has, are followed once."""
    ring = (made("Deployment", "a", ("ReplicaSet", "b")), made("ReplicaSet", "b", ("Deployment", "a")))
    assert len(read(made("Pod", "p", ("ReplicaSet", "b")), *ring).pods) == 1
    assert read(made("Pod", "q"), made("Deployment", "a", ("Deployment", "a"))).notes == ()


def test_a_pod_listed_twice_is_one() -> None:
    """A watch prints a pod again when it changes: the last state counts. Pods without a UID are different pods."""
    before, after = made("Pod", "p"), made("Pod", "p", status={"phase": "Running"})
    text = json.dumps(before) + json.dumps(after)
    (one,) = read_text_manifests(text, "watch.json", ReadOptions()).pods
    assert one.pod.status.phase == "Running"
    del before["metadata"]["uid"]
    assert len(read(before, before).pods) == 2


def test_workloads_that_ask_for_none() -> None:
    """A workload of 0 replicas counts as no pod, which a line says; its template is read where it is looked at."""
    idle = made("ReplicaSet", "old", spec={"replicas": 0})
    found = read(made("Pod", "p"), idle)
    assert (names(found), found.notes) == (["Pod p"], ("all.json: ReplicaSet prod/old asks for 0 pods",))
    assert names(read(made("Pod", "p"), idle, idle=True)) == ["Pod p", "ReplicaSet old"]


def test_hooks_of_helm_are_marked() -> None:
    """`helm template` prints the pods of tests and of upgrades beside those that run."""
    hook = made("Pod", "web-test")
    hook["metadata"]["annotations"] = {"helm.sh/hook": "test"}
    found = read(made("Pod", "p"), hook)
    assert names(found) == ["Pod p", "Pod web-test"]
    assert found.notes == (
        "all.json: Pod prod/web-test is a Helm hook (test), not part of what runs; counted all the same",
    )
