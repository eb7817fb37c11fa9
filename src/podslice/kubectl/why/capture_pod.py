"""Look on a node with a pod of our own: `capture.sh` runs there, its archive comes back as the container's log.

The pod reads /sys, /proc and the kubelet's folder and can write none of them; it has no token of a service account, no
network of the host and no capabilities. It is deleted at the end, also where the connection broke or the user gave up,
and where even that fails the kubelet ends it after its deadline.
"""

from __future__ import annotations

import base64
import binascii
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from podslice.advise.why.reported import read_events
from podslice.api.manifests.fields import part_of
from podslice.host.bundle.captured import LARGEST_CAPTURE, SCRIPT
from podslice.interrupts import terminable
from podslice.kubectl.client import Cluster, list_events
from podslice.kubectl.connection import ClusterError
from podslice.kubectl.why.rights import Right, grant_text, missing_right
from podslice.values.errors import InputError

LABEL = "podslice-capture"
CONTAINER = "capture"
_BEGIN, _END = "-----BEGIN PODSLICE BUNDLE-----", "-----END PODSLICE BUNDLE-----"
_ROOT = "/host"
_CANNOT_START = frozenset(
    ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError",
     "CreateContainerError", "RunContainerError", "ImageInspectError", "RegistryUnavailable")
)  # fmt: skip
POLL = 1.0
"""Seconds between two looks at the pod."""
_DELETIONS = 3
_NOT_FOUND = 404
_POD_SECURITY = "violates PodSecurity"

Json = dict[str, Any]


class CapturePlan(NamedTuple):
    """The pod to make on `node`, of this `image`, in a `namespace`. It reads the kubelet's `folder` and ends after
    `seconds`."""

    node: str
    image: str
    namespace: str = "kube-system"
    folder: str = "/var/lib/kubelet"
    seconds: int = 120


def new_pod(plan: CapturePlan, suffix: str | None = None) -> Json:
    """Return the v1 Pod that captures a node. Its name is chosen here, so that it can be deleted also where the answer
    to its creation was lost."""
    name = f"podslice-capture-{suffix or secrets.token_hex(4)}"
    script = SCRIPT.read_text("utf-8")
    run = f"echo '{_BEGIN}'; sh -c \"$SCRIPT\" > /tmp/bundle || exit 1; base64 /tmp/bundle && echo '{_END}'"
    folders = {"sys": "/sys", "proc": "/proc", "kubelet": plan.folder}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": plan.namespace, "labels": {"app.kubernetes.io/name": LABEL}},
        "spec": {
            "nodeName": plan.node,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": plan.seconds,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "hostNetwork": False,
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {
                    "name": CONTAINER,
                    "image": plan.image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["sh", "-c", run],
                    "env": [
                        {"name": "PODSLICE_ROOT", "value": _ROOT},
                        {"name": "PODSLICE_KUBELET", "value": plan.folder},
                        {"name": "PODSLICE_NODE", "value": plan.node},
                        {"name": "SCRIPT", "value": script},
                    ],
                    # It asks for nothing, so that it fits on a full node, and owns no CPUs.
                    "resources": {
                        "requests": {"cpu": "0", "memory": "0"},
                        "limits": {"cpu": "1", "memory": "256Mi"},
                    },
                    "securityContext": {
                        "runAsUser": 0,
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]},
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "volumeMounts": [
                        *({"name": one, "mountPath": f"{_ROOT}{path}", "readOnly": True}
                          for one, path in folders.items()),
                        {"name": "tmp", "mountPath": "/tmp"},
                    ],
                }
            ],
            "volumes": [
                *({"name": one, "hostPath": {"path": path, "type": "Directory"}} for one, path in folders.items()),
                {"name": "tmp", "emptyDir": {"sizeLimit": "128Mi"}},
            ],
        },
    }  # fmt: skip


def shown_pod(pod: Mapping[str, Any]) -> Json:
    """Return a pod for people: with the name of the script in place of its text."""
    shown: Json = msgspec.json.decode(msgspec.json.encode(pod))
    for variable in shown["spec"]["containers"][0]["env"]:
        if variable["name"] == "SCRIPT":
            variable["value"] = "(the text of deploy/capture.sh)"
    return shown


def capture_by_pod(cluster: Cluster, pod: Mapping[str, Any], target: Path, *, warn: Callable[[str], None]) -> None:
    """Make the pod, wait for its end, write its archive to `target`, and delete it. `warn` gets a line where the pod
    cannot be deleted. Raises `InputError`, also for a pod that cannot run."""
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    path = f"/api/v1/namespaces/{namespace}/pods"
    with terminable():
        try:
            _create(cluster, path, pod)
            _wait(cluster, f"{path}/{name}", pod)
            log = _read_log(cluster, f"{path}/{name}/log?container={CONTAINER}", namespace)
        finally:
            _delete(cluster, f"{path}/{name}", pod, warn)
    target.write_bytes(decode_log(log, name))


def _create(cluster: Cluster, path: str, pod: Mapping[str, Any]) -> None:
    namespace = pod["metadata"]["namespace"]
    try:
        reply = cluster.send("POST", path, msgspec.json.encode(pod))
    except ClusterError as error:
        if error.status != 403:
            raise
        if _POD_SECURITY in error.answer:
            remedy = "--pod-namespace names one with pod-security.kubernetes.io/enforce: privileged"
            raise ClusterError(error.problem, source=error.source, remedy=remedy, status=403) from None
        raise missing_right(Right("create", "pods", namespace), error) from None
    if reply.code not in (200, 201, 202):
        raise InputError(f"the pod cannot be made: HTTP {reply.code}", source=path)


def _wait(cluster: Cluster, path: str, pod: Mapping[str, Any]) -> None:
    """Wait until the pod has succeeded. Raises `InputError` where it cannot, or does not within its deadline."""
    end = time.monotonic() + pod["spec"]["activeDeadlineSeconds"]
    name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    while True:
        status = part_of(cluster.read(path).get("status"))
        phase = status.get("phase")
        if phase == "Succeeded":
            return
        said = ": ".join(filter(None, (_text(status.get("reason")), _text(status.get("message")))))
        container = _container(status)
        if phase == "Failed":
            raise InputError(
                f"pod {name} failed{f': {said}' if said else ''}{_end_text(container)}",
                remedy="does --image have sh, tar, cp and base64? is --kubelet the kubelet's folder there?",
            )
        waiting = part_of(container, "waiting")
        if waiting.get("reason") in _CANNOT_START:
            text = ": ".join(filter(None, (_text(waiting.get("reason")), _text(waiting.get("message")))))
            image = pod["spec"]["containers"][0]["image"]
            remedy = "--image names one with a shell and tar that the node can pull"
            raise InputError(f"pod {name} cannot start from image {image}: {text}", remedy=remedy)
        if time.monotonic() > end:
            state = said or _last_warning(cluster, pod) or _text(waiting.get("reason")) or str(phase or "unknown")
            remedy = f"is the node ready? kubectl get node {pod['spec']['nodeName']}; --patience gives it longer"
            raise InputError(f"pod {name} did not end in time ({state})", remedy=remedy)
        time.sleep(POLL)


def _last_warning(cluster: Cluster, pod: Mapping[str, Any]) -> str:
    """Return what the kubelet reported last of a pod that does not start: its status has only `ContainerCreating`."""
    try:
        events = read_events(list_events(cluster, pod["metadata"]["namespace"], pod["metadata"]["name"]))
    except ClusterError:
        return ""  # the right to list events is not needed for a capture
    return next((f"{one.reason}: {one.message}" for one in reversed(events) if one.type == "Warning"), "")


def _container(status: Mapping[str, Any]) -> Mapping[str, Any]:
    statuses = status.get("containerStatuses")
    return part_of(statuses[0], "state") if isinstance(statuses, list) and statuses else {}


def _end_text(state: Mapping[str, Any]) -> str:
    ended = part_of(state, "terminated")
    if not ended:
        return ""
    return f" (exit code {ended.get('exitCode')}, {_text(ended.get('reason')) or 'no reason'})"


def _text(data: Any) -> str:
    return " ".join(data.split()) if isinstance(data, str) else ""


def _read_log(cluster: Cluster, path: str, namespace: str) -> bytes:
    try:
        reply = cluster.send("GET", path)
    except ClusterError as error:
        if error.status == 403:
            raise missing_right(Right("get", "pods/log", namespace), error) from None
        raise
    if reply.code != 200:
        raise InputError(f"the pod's log cannot be read: HTTP {reply.code}", source=path)
    return reply.body


def decode_log(log: bytes, name: str) -> bytes:
    """Return the archive in a log. Raises `InputError` for one that is not whole."""
    _, begun, rest = log.partition(_BEGIN.encode())
    text, ended, _ = rest.partition(_END.encode())
    if not begun or not ended:
        said = " ".join(log[-300:].decode("utf-8", "replace").split())
        remedy = "does --image have sh, tar, cp and base64? a kubelet cuts logs at containerLogMaxSize"
        raise InputError(f"the log of pod {name} holds no whole bundle{f': {said}' if said else ''}", remedy=remedy)
    try:
        data = base64.b64decode(b"".join(text.split()), validate=True)
    except binascii.Error as error:
        raise InputError(f"the log of pod {name} is damaged: {error}", remedy="try again") from None
    if len(data) > LARGEST_CAPTURE:
        raise InputError(f"the log of pod {name} holds more than {LARGEST_CAPTURE >> 20} MiB")
    return data


def _delete(cluster: Cluster, path: str, pod: Mapping[str, Any], warn: Callable[[str], None]) -> None:
    """Delete the pod, also one that may not exist."""
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    problem = ""
    for _ in range(_DELETIONS):
        try:
            cluster.send("DELETE", f"{path}?gracePeriodSeconds=0")
            return
        except ClusterError as error:
            if error.status == _NOT_FOUND:
                return
            problem = error.problem
            if error.status == 403:
                problem += f" ({grant_text(Right('delete', 'pods', namespace), error)})"
                break
    seconds = pod["spec"]["activeDeadlineSeconds"]
    warn(
        f"pod {namespace}/{name} may be left, it ends by itself after {seconds} s: {problem}; "
        f"kubectl delete pod -n {namespace} {name}"
    )
