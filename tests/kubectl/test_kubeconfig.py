"""Cluster, user and namespace as kubectl finds them in its files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from podslice.kubectl.connection import server_of
from podslice.kubectl.kubeconfig import Access, AccessOptions, find_access
from podslice.values.errors import InputError


def write(path: Path, **fields: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"kind": "Config", **fields}))
    return str(path)


def cluster(name: str, server: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "cluster": {"server": server, **more}}


def context(name: str, cluster: str, user: str = "", **more: Any) -> dict[str, Any]:
    return {"name": name, "context": {"cluster": cluster, "user": user, **more}}


def access(environment: dict[str, str], folder: Path, **chosen: str) -> Access:
    return find_access(AccessOptions(**chosen), {"HOME": str(folder), **environment}, folder / "account")


def test_files_are_merged(tmp_path: Path) -> None:
    """The first file that names something wins, wherever the rest of it is; missing files are passed over."""
    first = write(
        tmp_path / "a" / "config", clusters=[cluster("one", "https://a")], contexts=[context("x", "two", "u")]
    )
    second = write(
        tmp_path / "b" / "config", **{"current-context": "x"},
        clusters=[cluster("one", "https://b"), cluster("two", "https://two", **{"certificate-authority": "ca.crt"})],
        users=[{"name": "u", "user": {"client-certificate": "u.crt", "client-key": "/abs/u.key", "tokenFile": "t"}}],
    )  # fmt: skip
    environment = {"KUBECONFIG": f"{first}:{tmp_path / 'none'}:{second}:{first}"}
    found = access(environment, tmp_path)
    assert (found.cluster.server, found.user_name, found.namespace) == ("https://two", "u", "default")
    assert found.cluster.certificate_authority == str(tmp_path / "b" / "ca.crt")
    assert found.user.client_certificate == str(tmp_path / "b" / "u.crt")
    assert (found.user.client_key, found.user.token_file) == ("/abs/u.key", str(tmp_path / "b" / "t"))
    assert access(environment, tmp_path, cluster="one").cluster.server == "https://a"


def test_what_the_command_line_says_wins(tmp_path: Path) -> None:
    """--kubeconfig over KUBECONFIG over ~/.kube/config; context, cluster, user and namespace over what is in them."""
    files = {
        name: write(
            tmp_path / place, **{"current-context": "c"}, clusters=[cluster("k", f"https://{name}")],
            contexts=[context("c", "k", namespace=name), context("d", "k")],
        )
        for name, place in (("home", ".kube/config"), ("variable", "v"), ("option", "o"))
    }  # fmt: skip
    assert access({}, tmp_path).namespace == "home"
    assert access({"KUBECONFIG": files["variable"]}, tmp_path).namespace == "variable"
    found = access({"KUBECONFIG": files["variable"]}, tmp_path, kubeconfig=files["option"])
    assert (found.namespace, found.cluster.server) == ("option", "https://option")
    assert access({}, tmp_path, context="d").namespace == "default"
    assert access({}, tmp_path, namespace="mine").namespace == "mine"


def test_in_a_pod(tmp_path: Path) -> None:
    """Without a file a pod uses its service account; a kubeconfig comes first."""
    account = tmp_path / "account"
    account.mkdir()
    (account / "token").write_text("t")
    (account / "namespace").write_text("shop\n")
    inside = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    found = access(inside, tmp_path)
    assert (found.cluster.server, found.namespace) == ("https://[fd00::1]:6443", "shop")
    assert (found.user.token_file, found.cluster.certificate_authority) == (
        str(account / "token"), str(account / "ca.crt"))  # fmt: skip
    own = write(
        tmp_path / "own", **{"current-context": "c"}, clusters=[cluster("k", "https://k")], contexts=[context("c", "k")]
    )
    assert access({**inside, "KUBECONFIG": own}, tmp_path).cluster.server == "https://k"
    with pytest.raises(InputError, match="no cluster is configured"):
        access({}, tmp_path)


def test_only_what_is_used_must_make_sense(tmp_path: Path) -> None:
    """A broken entry of another cluster does no harm."""
    path = write(
        tmp_path / "c", **{"current-context": "c"},
        clusters=[cluster("k", "https://k"), {"name": "broken", "cluster": {"server": 1}}],
        contexts=[context("c", "k"), context("d", "broken")], users=[{"name": "u", "user": 1}],
    )  # fmt: skip
    assert access({"KUBECONFIG": path}, tmp_path).cluster.server == "https://k"
    with pytest.raises(InputError, match=r"clusters\[1\]\.cluster\.server"):
        access({"KUBECONFIG": path}, tmp_path, context="d")


@pytest.mark.parametrize(("server", "wanted"), [
    ("https://k", (True, "k", 443, "")), ("http://k", (False, "k", 80, "")), ("k:6443", (True, "k", 6443, "")),
    ("https://[fd00::1]:6443/", (True, "fd00::1", 6443, "")),
    ("https://rancher/k8s/clusters/c-1", (True, "rancher", 443, "/k8s/clusters/c-1")),
])  # fmt: skip
def test_servers(tmp_path: Path, server: str, wanted: tuple[bool, str, int, str]) -> None:
    """An address, with a port or without, below a path where a cluster has one."""
    path = write(
        tmp_path / "c", **{"current-context": "c"}, clusters=[cluster("k", server)], contexts=[context("c", "k")]
    )
    assert server_of(access({"KUBECONFIG": path}, tmp_path)) == wanted
