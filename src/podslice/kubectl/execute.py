"""Run a command in a container, through the API server and the kubelet, as `kubectl exec` does without a terminal.

The frames are those of `v5.channel.k8s.io` (Kubernetes 1.30 and newer): the first byte is the channel: 0 is stdin,
1 stdout, 2 stderr, 3 the exit status; 255 closes the channel whose number follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from http.client import HTTPException
from typing import Any, NamedTuple

import msgspec

from podslice.kubectl.client import Cluster
from podslice.kubectl.connection import ClusterError

_PROTOCOL = "v5.channel.k8s.io"
_INPUT, _OUTPUT, _ERRORS, _STATUS, _CLOSE = 0, 1, 2, 3, 255
_CHUNK = 32 << 10
_REMEDY = "is the agent running, and does its image have podslice on the PATH?"
_RIGHT = "this needs pods/exec in the agents' namespace: deploy/manifests/kubectl.yaml, role podslice-kubectl-move"


class ExecOutput(NamedTuple):
    """A piece of the command's stdout or, with `error`, stderr; the last one is empty and has the exit code."""

    data: bytes
    error: bool = False
    code: int | None = None


def execute(
    cluster: Cluster, pod: str, command: Sequence[str], given: bytes, *, patience: float
) -> Iterator[ExecOutput]:
    """Run a command in the container of a pod. Raises `ClusterError`.

    - `pod`: the pod's path in the API.
    - `given`: all of the command's stdin.
    - `patience`: most seconds without any output.
    """
    query: dict[str, str | list[str]] = {"command": list(command), "stdin": "true", "stdout": "true", "stderr": "true"}
    try:
        channel = cluster.upgrade(f"{pod}/exec", query, _PROTOCOL)
    except ClusterError as error:
        raise ClusterError(error.problem, remedy=_RIGHT, status=403) if error.status == 403 else error from None
    try:
        channel.wait_for(patience)
        for start in range(0, len(given), _CHUNK):
            channel.send(bytes([_INPUT]) + given[start : start + _CHUNK])
        # Ends stdin alone, which v5 added: the command would wait for more of it otherwise.
        channel.send(bytes([_CLOSE, _INPUT]))
        while (message := channel.receive()) is not None:
            # The server opens each channel with an empty frame.
            if not message[1:]:
                continue
            if message[0] == _STATUS:
                yield ExecOutput(b"", code=_exit_code(message[1:], pod))
                return
            if message[0] in (_OUTPUT, _ERRORS):
                yield ExecOutput(message[1:], error=message[0] == _ERRORS)
        raise ClusterError(f"{pod}: the connection ended before the command did", remedy=_REMEDY)
    except (HTTPException, OSError) as error:
        raise ClusterError(f"{pod}: the command cannot be followed: {error or 'no answer'}", remedy=_REMEDY) from None
    finally:
        channel.close()


def _exit_code(data: bytes, pod: str) -> int:
    """Return the exit code of a v1 Status. Raises `ClusterError` for a command that did not run."""
    try:
        status: dict[str, Any] = msgspec.json.decode(data, type=dict[str, Any])
    except (ValueError, RecursionError):
        status = {"message": data.decode("utf-8", "replace")}
    if status.get("status") == "Success":
        return 0
    # An exit code other than 0 is a Failure with a cause of reason ExitCode; other failures have none.
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else ()
    given = [one for one in causes if isinstance(one, dict)] if isinstance(causes, list) else []
    code = next((str(one.get("message")) for one in given if one.get("reason") == "ExitCode"), "")
    if not (code.isdecimal() and code.isascii() and len(code) < 4):
        said = " ".join(str(status.get("message") or "").split())
        raise ClusterError(f"{pod}: the command did not run: {said or 'no reason is given'}", remedy=_REMEDY)
    return int(code)
