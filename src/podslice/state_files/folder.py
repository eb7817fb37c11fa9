"""Other files in a kubelet's folder: those with a known purpose, and those that are not read.

`verify` of a folder names everything in it, so that no file is taken for checked that was not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from podslice.node.checkpoints.names import DEVICE_DIRECTORY, KUBELET_VERSION_FILE
from podslice.values.golang import quote

_KNOWN: Mapping[str, str] = {
    "config.yaml": "the kubelet's configuration: podslice lint",
    "kubelet-config.yaml": "the kubelet's configuration: podslice lint",
    "kubelet.conf": "a kubeconfig or the kubelet's configuration",
    "kubeadm-flags.env": "flags of the kubelet: --config takes it",
    "kubeconfig": "a kubeconfig",
    "bootstrap-kubeconfig": "a kubeconfig",
    "graceful_node_shutdown_state": "times of the last shutdown",
    "dra_health_state": "health of devices of claims",
    "pods": "folders of pods",
    "pki": "certificates",
    "plugins": "folders of drivers",
    "plugins_registry": "sockets of drivers",
    DEVICE_DIRECTORY: "sockets of device plugins",
    "pod-resources": "a socket of the kubelet",
    "checkpoints": "checkpoints of containers",
    "seccomp": "seccomp profiles",
    "image_manager": "records of pulled images",
    "usernsMapping": "ids of user namespaces",
    "claims": "claims that the agent serves",
    KUBELET_VERSION_FILE: "the version of the kubelet beside the agent",
    "rejected.json": "pods that the agent marked Failed",
}
_ENDINGS: Mapping[str, str] = {
    ".bak": "an older file",
    ".sock": "a socket",
    ".tmp": "a file that was being written",
    ".lock": "a lock",
}


class PassedOver(NamedTuple):
    """An entry of a folder that is not checked: its name, and what it is; empty where that is not known."""

    name: str
    what: str = ""


def passed_over(names: Iterable[str]) -> tuple[PassedOver, ...]:
    """Return what the entries with these names are."""
    return tuple(PassedOver(name, _what(name)) for name in sorted(names))


def _what(name: str) -> str:
    last = name.rpartition("/")[2]
    if last in _KNOWN:
        return _KNOWN[last]
    stem, dot, ending = last.rpartition(".")
    return _ENDINGS.get(f"{dot}{ending}", "an older file" if ".bak." in last and stem else "")


def passed_over_text(entries: Iterable[PassedOver]) -> str:
    """Return the line that names them; empty where there are none."""
    named = [f"{_shown(one.name)} ({one.what or 'unknown'})" for one in entries]
    return f"Not checked: {', '.join(named)}" if named else ""


def _shown(name: str) -> str:
    """Return a name as it is shown; one with blanks or control characters in quotes."""
    return name if name.isprintable() and " " not in name else quote(name)
