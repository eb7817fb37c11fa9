"""The service's own rights at a real API server: enough for all that it does, and nothing else."""

from __future__ import annotations

import asyncio

import pytest
from e2e.controlplane import MERGE, Api
from e2e.scheduling import Pods, pod
from e2e.sharedplane import Cluster, prepare_namespace
from lightkube.config.kubeconfig import KubeConfig

from podslice.cluster.apiclient import NODES, PODS, ROOM_ANNOTATION, Binding, HTTPClusterApi, list_pages
from podslice.service.clusterobjects import read_pod
from podslice.service.http.apiconnection import AnswerError
from tests.conformance.deployed import apply, deploy_rights, token_of
from tests.conformance.test_manifests import rules

RIGHTS = {
    ("", "pods", "list"), ("", "pods", "watch"), ("", "nodes", "list"), ("", "nodes", "watch"),
    ("", "pods/binding", "create"), ("", "pods/status", "patch"), ("", "nodes/status", "patch"),
    ("", "events", "create"),
    ("authentication.k8s.io", "tokenreviews", "create"),
    *(("podslice.io", "nodestates", verb) for verb in ("list", "watch", "delete")),
}  # fmt: skip


@pytest.fixture
def token(admin: Api) -> str:
    """Of a service account that has the role of `podslice cluster` and none of kube-scheduler's."""
    deploy_rights(admin)
    prepare_namespace(admin, "plain")
    group = "rbac.authorization.k8s.io"
    for document in (
        {"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": "only-cluster", "namespace": "podslice"}},
        {
            "kind": "ClusterRoleBinding", "apiVersion": f"{group}/v1", "metadata": {"name": "only-cluster"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "podslice-cluster"},
            "subjects": [{"kind": "ServiceAccount", "name": "only-cluster", "namespace": "podslice"}],
        },
    ):  # fmt: skip
        assert apply(admin, document).code in (200, 201)
    return token_of(admin, "only-cluster")


@pytest.mark.parametrize("namespace", ["default", "kube-system"])
def test_rights(cluster: Cluster, admin: Api, token: str, namespace: str) -> None:
    """Everything the role gives, anywhere."""
    everybody = rules(cluster, token_of(admin, "default", "plain"), namespace)
    assert rules(cluster, token, namespace) - everybody == RIGHTS


def test_what_the_service_does(cluster: Cluster, admin: Api, token: str) -> None:
    """With these rights pods and nodes are listed, a pod is nominated, and bound under its own UID only."""
    prepare_namespace(admin, "bound")
    pods = Pods(admin, "bound")
    uid = pods.create(pod("p", "podslice"))["metadata"]["uid"]

    async def main() -> None:
        api = HTTPClusterApi(KubeConfig.from_dict(cluster.kubeconfig(token=token)).get())
        try:
            (page,) = [one async for one in list_pages(api, PODS, "metadata.namespace=bound")]
            assert ([read_pod(item).uid for item in page.items], page.version.isdigit()) == ([uid], True)
            assert [one async for one in list_pages(api, NODES, "")]
            with pytest.raises(AnswerError) as other:
                await api.nominate("bound", "p", "another", "one")
            assert other.value.code == 422
            await api.nominate("bound", "p", uid, "one")
            assert pods.nominated("p") == "one"
            with pytest.raises(AnswerError) as conflict:
                await api.bind(Binding("bound", "p", "another", "two", {}))
            assert conflict.value.code == 409
            await api.bind(Binding("bound", "p", uid, "two", {"podslice.io/plan": "{}"}))
            with pytest.raises(AnswerError) as again:
                await api.bind(Binding("bound", "p", uid, "one", {}))
            assert again.value.code == 409
        finally:
            await api.close()

    asyncio.run(main())
    found = pods.get("p")
    assert (found["spec"]["nodeName"], found["metadata"]["annotations"]) == ("two", {"podslice.io/plan": "{}"})


def test_what_is_said_of_a_node(cluster: Cluster, admin: Api, token: str, own_node: str) -> None:
    """The right to patch `nodes/status` is enough for the annotation, and for no taint and no cordon, by whatever
    way."""

    async def main() -> None:
        api = HTTPClusterApi(KubeConfig.from_dict(cluster.kubeconfig(token=token)).get())
        try:
            await api.wake(own_node, "7")
            with pytest.raises(AnswerError) as gone:
                await api.wake("no-such-node", "7")
            assert gone.value.code == 404
        finally:
            await api.close()

    path = f"{NODES}/{own_node}"
    before = admin.call("GET", path)
    asyncio.run(main())
    found = admin.call("GET", path)
    assert found["metadata"]["annotations"][ROOM_ANNOTATION] == "7"
    spec = {"spec": {"unschedulable": True, "taints": [{"key": "k", "effect": "NoSchedule"}]}}
    with cluster.api(token=token) as service:
        assert service.ask("PATCH", path, spec, MERGE).code == 403
        service.ask("PATCH", f"{path}/status", spec, MERGE)
    assert admin.call("GET", path)["spec"] == found["spec"] == before["spec"]
