"""OpenShift: KubeletConfig, PerformanceProfile, and the files of a MachineConfig (docs/config.md)."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Iterator
from typing import Any

from podslice.config.carriers.fields import assume_reservation, own_fields
from podslice.config.carriers.layer import KIND, Configuration, FieldPlace, Layer
from podslice.config.carriers.objects import Held, is_configuration, text_configuration
from podslice.reading.unpacking import unpack
from podslice.reading.yaml import load_documents
from podslice.values.errors import InputError
from podslice.values.quantity import Quantity, QuantityError

_MACHINE_CONFIG = "machineconfiguration.openshift.io"
_PERFORMANCE = "performance.openshift.io"
_BELOW = "OpenShift's own kubelet.conf, over which this is merged, sets nothing else: a MachineConfig *-kubelet has all"
_SIZED = "autoSizingReserved, by which the node computes systemReserved, reserves nothing"
_LONGEST_FILE = 4 << 20
_EXPERIMENTAL = "kubeletconfig.experimental"
_ALIGNED = ("restricted", "single-numa-node")


def read_openshift(objects: list[Held]) -> Iterator[Configuration]:
    """Yield the configurations of OpenShift's objects. A KubeletConfig that was made from a PerformanceProfile of the
    same file replaces it."""
    made = {held.name.partition(" performance-")[2] for held in objects if held.kind == "KubeletConfig"}
    for held in objects:
        if held.group == _MACHINE_CONFIG and held.kind == "KubeletConfig":
            yield from _kubelet_config(held)
        elif held.group == _PERFORMANCE and held.kind == "PerformanceProfile":
            if held.name.partition(" ")[2] not in made:
                layer = _performance_profile(held)
                yield Configuration(layer.origin, (layer,))
        elif held.group == _MACHINE_CONFIG and held.kind == "MachineConfig":
            yield from read_ignition(held, "spec.config")
        elif held.value("ignition.version") is not None or held.data.get("variant") in ("openshift", "fcos"):
            yield from read_ignition(held, "")


def _kubelet_config(held: Held) -> Iterator[Configuration]:
    layer = own_fields(held, "spec.kubeletConfig")
    if layer is not None:
        sized = (_SIZED,) if held.value("spec.autoSizingReserved") is True else ()
        found = Configuration(layer.origin, (layer._replace(assumed=(_BELOW, *sized)),))
        yield assume_reservation(found, "OpenShift", "systemReserved", "500m")


# PerformanceProfile


def _performance_profile(held: Held) -> Layer:
    """Return the fields of the KubeletConfig that the Node Tuning Operator makes from a profile."""
    policy = held.value("spec.numa.topologyPolicy") or "best-effort"
    fields: dict[str, Any] = {
        "cpuManagerPolicy": "static",
        "cpuManagerReconcilePeriod": "5s",
        "topologyManagerPolicy": policy,
        "reservedSystemCPUs": _cpu_list(held.value("spec.cpu.reserved")),
        "kubeReserved": {"memory": "500Mi"},
        "systemReserved": {"memory": "500Mi"},
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "10%",
            "imagefs.available": "15%",
            "nodefs.inodesFree": "5%",
        },
    }
    given = _experimental(held)
    for name, value in given.items():
        both = isinstance(value, dict) and isinstance(fields.get(name), dict)
        fields[name] = {**fields[name], **value} if both else value
    if policy in _ALIGNED:
        fields.setdefault("memoryManagerPolicy", "Static")
        fields.setdefault("reservedMemory", [{"numaNode": 0, "limits": {"memory": _reserved_memory(fields)}}])
    options = fields.get("cpuManagerPolicyOptions", {})
    if policy == "single-numa-node" and isinstance(options, dict):
        fields["cpuManagerPolicyOptions"] = {"full-pcpus-only": "true", **options}
    places = {
        "reservedSystemCPUs": held.at("spec.cpu.reserved"),
        "topologyManagerPolicy": held.at("spec.numa.topologyPolicy"),
        **{name: held.at(f"metadata.annotations[{_EXPERIMENTAL}]") for name in given},
    }
    line = "the Node Tuning Operator makes the KubeletConfig of its present releases from the profile"
    return Layer(fields, f"{held.name}, spec.cpu and spec.numa", held.at("spec"), places, "drop-in", (line, _BELOW))


def _cpu_list(value: Any) -> Any:
    """Return the text of a list of one CPU that is written without quotes."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _experimental(held: Held) -> dict[str, Any]:
    """Return the fields of the annotation with parts of a KubeletConfiguration."""
    text = (held.mapping("metadata.annotations") or {}).get(_EXPERIMENTAL)
    if text is None:
        return {}
    path = f"metadata.annotations[{_EXPERIMENTAL}]"
    try:
        fields = json.loads(text)
    except (TypeError, ValueError) as error:
        raise InputError(f"is not JSON: {error}", path=path) from None
    if not isinstance(fields, dict):
        raise InputError(f"is not an object with fields of a {KIND}", path=path)
    return fields


def _reserved_memory(fields: dict[str, Any]) -> str:
    """Return the sum that the Memory Manager's reservation must have: both reservations and the eviction threshold."""
    parts = (("kubeReserved", "memory"), ("systemReserved", "memory"), ("evictionHard", "memory.available"))
    try:
        total = sum(Quantity.parse(str(fields[name].get(key, "0"))).value() for name, key in parts)
    except (QuantityError, AttributeError):  # a value of the annotation that decoding reports
        return "1100Mi"
    return f"{total >> 20}Mi" if total % (1 << 20) == 0 else str(total)


# Files of Ignition and Butane


def read_ignition(held: Held, path: str) -> Iterator[Configuration]:
    """Yield the KubeletConfigurations among the files of an Ignition or Butane configuration below `path`."""
    storage = f"{path}.storage.files" if path else "storage.files"
    for at, file in enumerate(held.entries(storage)):
        name = file.get("path") if isinstance(file, dict) else None
        contents = file.get("contents") if isinstance(file, dict) else None
        if not isinstance(contents, dict) or not isinstance(name, str):
            continue
        where = f"{storage}[{at}].contents"
        key = "inline" if "inline" in contents else "source"
        source = contents.get(key)
        if not isinstance(source, str) or not _may_hold(name, source, contents):
            continue
        text = source if key == "inline" else _decode_url(source, contents.get("compression"), f"{where}.source")
        if KIND in text:
            yield from _configurations(text, held, name, held.at(f"{where}.{key}"))


def _may_hold(name: str, source: str, contents: dict[str, Any]) -> bool:
    """Whether a file may be a kubelet's configuration, so that certificates and scripts are not unpacked."""
    return "kubelet" in name or KIND in source or contents.get("compression") is not None


def _configurations(text: str, held: Held, name: str, place: FieldPlace) -> Iterator[Configuration]:
    try:
        documents = load_documents(text)
    except InputError as error:
        raise error.at(path=f"{held.name}, {name}") from None
    for number, data in enumerate(documents):
        if is_configuration(data):
            found = text_configuration(data, text, f"{held.name}, {name}", place, number)
            is_drop_in = ".conf.d/" in name or ".d/" in name
            line = "the file over which this drop-in is merged sets nothing"
            (layer,) = found.layers
            yield found._replace(layers=(layer._replace(assumed=(line,) if is_drop_in else ()),))


def _decode_url(source: str, compression: Any, path: str) -> str:
    """Return the text of a `data:` URL, unpacked where it is compressed. Raises `InputError`."""
    from urllib.parse import unquote_to_bytes

    head, comma, body = source.partition(",")
    if not head.startswith("data:") or not comma:
        raise InputError(f"{source[:60]!r} is not a data: URL", path=path, remedy="give the file that it leads to")
    try:
        data = (
            base64.b64decode(unquote_to_bytes(body), validate=True)
            if head.endswith(";base64")
            else unquote_to_bytes(body)
        )
    except (binascii.Error, ValueError) as error:
        raise InputError(f"is not base64: {error}", path=path) from None
    if compression == "gzip":
        try:
            data = unpack(data, _LONGEST_FILE, wbits=zlib.MAX_WBITS | 16)
        except InputError as error:
            raise error.at(path=path) from None
    return data.decode("utf-8", errors="replace")
