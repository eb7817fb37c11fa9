"""Flags of a kubelet's command line, and the fields of the configuration that they set.

Most flags set one field; a flag overrides the file (memory-device 3.11 has the file's own loading). Which flags exist
is in the reference of the kubelet's command line (kubernetes.io/docs/reference/command-line-tools-reference/kubelet).
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from podslice.config.carriers.layer import FieldPlace, Layer
from podslice.config.kubelet import IgnoredField
from podslice.config.schema import ROOT, GoType, field_names, fields_of
from podslice.values.errors import MOST_HINTS, InputError, did_you_mean, raise_all

_SAME_NAME = """
    address allowed-unsafe-sysctls cgroup-driver cgroup-root cgroups-per-qos cluster-dns cluster-domain
    container-log-max-files container-log-max-size container-runtime-endpoint cpu-cfs-quota cpu-cfs-quota-period
    cpu-manager-policy cpu-manager-policy-options cpu-manager-reconcile-period enable-controller-attach-detach
    enable-debugging-handlers enable-server enforce-node-allocatable event-burst eviction-hard
    eviction-max-pod-grace-period eviction-minimum-reclaim eviction-pressure-transition-period eviction-soft
    eviction-soft-grace-period fail-cgroupv1 fail-swap-on feature-gates file-check-frequency hairpin-mode
    healthz-bind-address healthz-port http-check-frequency image-service-endpoint kernel-memcg-notification
    kube-api-burst kube-api-qps kube-reserved kube-reserved-cgroup kubelet-cgroups local-storage-capacity-isolation
    make-iptables-util-chains max-open-files max-pods memory-manager-policy node-status-max-images
    node-status-update-frequency oom-score-adj pod-cidr pods-per-core port protect-kernel-defaults provider-id
    qos-reserved read-only-port register-node register-with-taints registry-burst reserved-memory resolv-conf
    rotate-certificates runtime-request-timeout seccomp-default serialize-image-pulls streaming-connection-idle-timeout
    sync-frequency system-cgroups system-reserved system-reserved-cgroup tls-cert-file tls-cipher-suites tls-min-version
    tls-private-key-file topology-manager-policy topology-manager-policy-options topology-manager-scope
    volume-plugin-dir volume-stats-agg-period
"""
"""Flags whose name is that of their field, with dashes."""
_OTHER_NAME = {
    "anonymous-auth": "authentication.anonymous.enabled",
    "authentication-token-webhook": "authentication.webhook.enabled",
    "authentication-token-webhook-cache-ttl": "authentication.webhook.cacheTTL",
    "authorization-mode": "authorization.mode",
    "authorization-webhook-cache-authorized-ttl": "authorization.webhook.cacheAuthorizedTTL",
    "authorization-webhook-cache-unauthorized-ttl": "authorization.webhook.cacheUnauthorizedTTL",
    "client-ca-file": "authentication.x509.clientCAFile",
    "contention-profiling": "enableContentionProfiling",
    "event-qps": "eventRecordQPS",
    "image-gc-high-threshold": "imageGCHighThresholdPercent",
    "image-gc-low-threshold": "imageGCLowThresholdPercent",
    "kube-api-content-type": "contentType",
    "log-flush-frequency": "logging.flushFrequency",
    "logging-format": "logging.format",
    "manifest-url": "staticPodURL",
    "minimum-image-ttl-duration": "imageMinimumGCAge",
    "pod-manifest-path": "staticPodPath",
    "pod-max-pids": "podPidsLimit",
    "registry-qps": "registryPullQPS",
    "reserved-cpus": "reservedSystemCPUs",
    "rotate-server-certificates": "serverTLSBootstrap",
    "runonce": "runOnce",
    "v": "logging.verbosity",
}
_FIELDS = {name.lower(): name for name in field_names()}
FIELD_OF_FLAG = {name: _FIELDS[name.replace("-", "")] for name in _SAME_NAME.split()} | _OTHER_NAME
"""Flags and the fields that they set."""
_WITHOUT_FIELD = frozenset(
    """
    application-metrics-count-limit boot-id-file bootstrap-kubeconfig cert-dir cloud-config cloud-provider config
    config-dir container-hints containerd containerd-namespace event-storage-age-limit event-storage-event-limit
    experimental-mounter-path global-housekeeping-interval hostname-override housekeeping-interval
    image-credential-provider-bin-dir image-credential-provider-config kubeconfig lock-file log-json-info-buffer-size
    log-text-info-buffer-size machine-id-file manifest-url-header maximum-dead-containers
    maximum-dead-containers-per-container minimum-container-ttl-duration node-ip node-labels pod-infra-container-image
    root-dir runtime-cgroups storage-driver-buffer-duration storage-driver-db storage-driver-host
    storage-driver-password storage-driver-table storage-driver-user vmodule windows-priorityclass
""".split()
)
_SWITCHES_WITHOUT_FIELD = frozenset(
    """
    enable-load-reader exit-on-lock-contention experimental-allocatable-ignore-eviction help log-cadvisor-usage
    log-json-split-stream log-text-split-stream storage-driver-secure version windows-service
""".split()
)
_OLD = frozenset(
    """
    azure-container-registry-config bootstrap-checkpoint-path cadvisor-port chaos-chance cni-bin-dir cni-cache-dir
    cni-conf-dir container-runtime docker docker-endpoint docker-env-metadata-whitelist docker-root dynamic-config-dir
    experimental-bootstrap-kubeconfig experimental-dockershim-root-directory image-pull-progress-deadline
    iptables-drop-bit iptables-masquerade-bit log-backtrace-at log-dir log-file log-file-max-size
    master-service-namespace network-plugin network-plugin-mtu node-status-report-frequency non-masquerade-cidr
    seccomp-profile-root stderrthreshold
""".split()
)
"""Flags that older kubelets have."""
_OLD_SWITCHES = frozenset(
    """
    add-dir-header allow-privileged alsologtostderr babysit-daemons configure-cbr0 docker-only docker-tls
    enable-cadvisor-json-endpoints enable-custom-metrics experimental-check-node-capabilities-before-mount
    experimental-kernel-memcg-notification keep-terminated-pod-volumes logtostderr one-output really-crash-for-testing
    redirect-container-streaming register-schedulable require-kubeconfig skip-headers skip-log-headers
""".split()
)
_SHORT = {"v": "v", "h": "help"}


class Flag(NamedTuple):
    """A flag as given, without its dashes; `value` is None where it has none. `place` is where it stands."""

    name: str
    value: str | None
    place: FieldPlace = FieldPlace()


class FlagSummary(NamedTuple):
    """The layer of a command line, and the values of known flags that set no field, such as `config`."""

    layer: Layer
    others: dict[str, str]


def split_words(text: str) -> list[str]:
    """Split a command line as a shell does. Raises `InputError`."""
    try:
        return shlex.split(text, comments=False)
    except ValueError as error:
        raise InputError(f"is not a command line: {error}".lower(), remedy="close the quotation mark") from None


def iter_flags(words: Sequence[str], place: FieldPlace) -> Iterator[Flag]:
    """Yield the flags of a command line. Raises `InputError` for a word that belongs to no flag."""
    rest = list(words)[::-1]
    while rest:
        word = rest.pop()
        if word == "--":
            return
        if not word.startswith("-") or word == "-":
            raise InputError(f"{word!r} is not a flag of a kubelet", remedy=f"--{word}" if "=" in word else "")
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("--") and not equals and len(name) > 1 and name[0] in _SHORT:
            name, equals, value = name[0], "=", name[1:]
        name = _SHORT.get(name, name.replace("_", "-"))
        if not equals and not is_switch(name) and rest and not rest[-1].startswith("--"):
            equals, value = "=", rest.pop()
        yield Flag(name, value if equals else None, place)


def is_switch(name: str) -> bool:
    """Whether a flag may stand without a value, so that the word behind it is not its own."""
    kind = _type_of(name)
    return name in _SWITCHES_WITHOUT_FIELD | _OLD_SWITCHES if kind is None else kind.kind == "bool"


def read_flags(flags: Iterable[Flag], origin: str, *, assumed: tuple[str, ...] = ()) -> FlagSummary:
    """Return what flags set. Raises `InputError` for unknown flags and for values that a flag cannot have."""
    fields: dict[str, Any] = {}
    places: dict[str, FieldPlace] = {}
    others: dict[str, str] = {}
    ignored: list[IgnoredField] = []
    errors: list[InputError] = []
    for flag in flags:
        if flag.name in _WITHOUT_FIELD | _SWITCHES_WITHOUT_FIELD:
            others[flag.name] = flag.value or ""
        elif flag.name in _OLD | _OLD_SWITCHES:
            ignored.append(IgnoredField(f"--{flag.name}", problem="is a flag of older kubelets only, and is left out"))
        elif flag.name not in FIELD_OF_FLAG:
            hinted = len(errors) < MOST_HINTS
            remedy = did_you_mean(flag.name, [*FIELD_OF_FLAG, *_WITHOUT_FIELD]) if hinted else ""
            errors.append(InputError("is not a flag of a kubelet", path=_shown(flag), remedy=remedy))
        else:
            if _is_template(flag.value):
                ignored.append(IgnoredField(f"--{flag.name}", problem="has a template for a value, and is left out"))
                continue
            try:
                _set(fields, places, flag)
            except InputError as error:
                errors.append(error.at(path=_shown(flag)))
    raise_all(errors)
    layer = Layer(fields, origin, FieldPlace(), places, "flags", assumed, tuple(dict.fromkeys(ignored)))
    return FlagSummary(layer, others)


def _is_template(value: str | None) -> bool:
    """Whether a value is filled in by a program before the kubelet gets it."""
    return value is not None and ("${" in value or "{{" in value)


def _shown(flag: Flag) -> str:
    where = f"line {flag.place.line}: " if flag.place.line else f"{flag.place.path}: " if flag.place.path else ""
    return f"{where}--{flag.name}"


def _type_of(name: str) -> GoType | None:
    """Return the type of the field that a flag sets; None for flags that set none."""
    if name not in FIELD_OF_FLAG:
        return None
    first, *others = FIELD_OF_FLAG[name].split(".")
    kind = fields_of(ROOT)[first]
    for step in others:
        kind = fields_of(kind.name)[step]
    return kind


def _set(fields: dict[str, Any], places: dict[str, FieldPlace], flag: Flag) -> None:
    kind = _type_of(flag.name)
    assert kind is not None
    path = FIELD_OF_FLAG[flag.name]
    *above, last = path.split(".")
    into = fields
    for step in above:
        into = into.setdefault(step, {})
    value = parse_value(flag.name, flag.value, kind)
    old = into.get(last)
    # A flag that is given again adds to maps and lists, and replaces everything else.
    if isinstance(value, dict) and isinstance(old, dict):
        value = {**old, **value}
    elif isinstance(value, list) and isinstance(old, list):
        value = [*old, *value]
    into[last] = value
    places[path] = flag.place


def parse_value(name: str, text: str | None, kind: GoType) -> Any:
    """Return the value of a flag as the field has it in a file. Raises `InputError`."""
    if text is None:
        if kind.kind == "bool":
            return True
        raise InputError("needs a value", remedy=f"--{name}=VALUE")
    reader = _SPECIAL.get(name) or _READERS.get(kind.kind, _read_text)
    return reader(text, kind)


def _read_text(text: str, kind: GoType) -> str:
    del kind
    return text


def _read_bool(text: str, kind: GoType) -> bool:
    del kind
    if text not in _TRUES | _FALSES:
        raise InputError(f"{text!r} is neither true nor false")
    return text in _TRUES


_TRUES = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSES = frozenset(("0", "f", "F", "FALSE", "false", "False"))


def _read_integer(text: str, kind: GoType) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise InputError(f"{text!r} is not a whole number") from None


def _read_float(text: str, kind: GoType) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{text!r} is not a number") from None


def _read_list(text: str, kind: GoType) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _read_map(text: str, kind: GoType, separator: str = "=") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in text.split(","):
        if not pair.strip():
            continue
        key, given, value = pair.partition(separator)
        if not given:
            raise InputError(f"{pair.strip()!r} is not KEY{separator}VALUE")
        gate = kind.element is not None and kind.element.kind == "bool"
        found[key.strip()] = _read_bool(value.strip(), kind) if gate else value.strip()
    return found


def _read_thresholds(text: str, kind: GoType) -> dict[str, Any]:
    return _read_map(text, kind, "<")


def _read_reserved_memory(text: str, kind: GoType) -> list[dict[str, Any]]:
    found = []
    for one in text.split(";"):
        node, colon, amounts = one.partition(":")
        if not colon or not node.strip().isdigit():
            raise InputError(f"{one.strip()!r} is not NODE:RESOURCE=AMOUNT,…", remedy="0:memory=1Gi;1:memory=1Gi")
        found.append({"numaNode": int(node), "limits": _read_map(amounts, kind)})
    return found


def _read_taints(text: str, kind: GoType) -> list[dict[str, str]]:
    found = []
    for one in _read_list(text, kind):
        named, colon, effect = one.rpartition(":")
        if not colon:
            raise InputError(f"{one!r} is not KEY=VALUE:EFFECT")
        key, _, value = named.partition("=")
        found.append({"key": key, "value": value, "effect": effect})
    return found


_Reader = Callable[[str, GoType], Any]
_READERS: dict[str, _Reader] = {
    "bool": _read_bool,
    "int32": _read_integer,
    "int64": _read_integer,
    "uint32": _read_integer,
    "float64": _read_float,
    "list": _read_list,
    "map": _read_map,
}
_SPECIAL: dict[str, _Reader] = {
    "eviction-hard": _read_thresholds,
    "eviction-soft": _read_thresholds,
    "reserved-memory": _read_reserved_memory,
    "register-with-taints": _read_taints,
}
