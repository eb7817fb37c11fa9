"""Settings of Bottlerocket, whose user data is TOML: settings.kubernetes has most flags of a kubelet under their names
(docs/config.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from podslice.config.carriers.fields import assume_reservation, renamed_fields
from podslice.config.carriers.flags import FIELD_OF_FLAG
from podslice.config.carriers.layer import Configuration, FieldPlace
from podslice.values.errors import InputError

_SECTION = re.compile(r"\[settings\.kubernetes[\].]")
_BOTTLEROCKET = {**FIELD_OF_FLAG, "cpu-cfs-quota-enforced": "cpuCFSQuota", "pod-pids-limit": "podPidsLimit"}
_BOTTLEROCKET_SILENT = frozenset(
    """
    api-server authentication-mode bootstrap-token cloud-provider cluster-certificate cluster-dns-ip cluster-name
    cluster-domain credential-providers device-ownership-from-security-context hostname-override
    hostname-override-source memory-manager-reserved-memory cpu-manager-policy-options node-ip node-labels node-taints
    pod-infra-container-image server-certificate server-key shutdown-grace-period
    shutdown-grace-period-for-critical-pods standalone-mode static-pods log-level ids-per-pod
""".split()
)


def is_bottlerocket(text: str) -> bool:
    """Whether a text is the TOML of Bottlerocket with settings of Kubernetes."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return any(map(_SECTION.match, lines)) and lines[0].startswith("[")


def read_bottlerocket(text: str) -> Configuration:
    """Return the configuration of Bottlerocket's settings. Raises `InputError`."""
    import tomllib

    try:
        settings: Mapping[str, Any] = tomllib.loads(text)["settings"]["kubernetes"]
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"is not valid TOML: {error}") from None
    line = next(number for number, one in enumerate(text.splitlines(), 1) if _SECTION.match(one.lstrip()))
    place = FieldPlace(line=line)
    assumed = ("what else Bottlerocket sets itself, as maxPods, is the kubelet's default",)
    origin = "settings.kubernetes of Bottlerocket"
    layer = renamed_fields(settings, place, _BOTTLEROCKET, origin=origin, assumed=assumed, silent=_BOTTLEROCKET_SILENT)
    fields = dict(layer.fields)
    options = settings.get("cpu-manager-policy-options")
    if isinstance(options, list):
        fields["cpuManagerPolicyOptions"] = {str(option): "true" for option in options}
    reserved = settings.get("memory-manager-reserved-memory")
    if isinstance(reserved, dict):
        fields["reservedMemory"] = [_reserved_node(node, amounts) for node, amounts in reserved.items()]
    found = Configuration(origin, (layer._replace(fields=fields),))
    return assume_reservation(found, "Bottlerocket", "kubeReserved", "500m")


def _reserved_node(node: str, amounts: Any) -> dict[str, Any]:
    if not node.isdigit() or not isinstance(amounts, dict):
        raise InputError("is not a NUMA node with amounts", path=f"memory-manager-reserved-memory.{node}")
    limits = {name: str(amount) for name, amount in amounts.items() if name != "enabled"}
    return {"numaNode": int(node), "limits": limits}
