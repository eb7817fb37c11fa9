"""Checks of fields that no resource manager reads and that can keep a kubelet from starting all the same, in upstream's
exact texts (memory-device 3.9)."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from podslice.config.kubelet import ConfigProblem
from podslice.values.duration import format_duration, parse_duration
from podslice.values.golang import quote

Fields = Mapping[str, Any]
Gates = Mapping[str, bool]


class _Range(NamedTuple):
    """A number from `low` to `high`; with `zero`, 0 is valid too and means the default, or no port at all."""

    field: str
    flag: str
    low: int
    high: int
    zero: bool = False


_PORTS = (1, 65535)
_RANGES = (
    _Range("healthzPort", "--healthz-port", *_PORTS, zero=True),
    _Range("imageGCHighThresholdPercent", "--image-gc-high-threshold", 0, 100),
    _Range("imageGCLowThresholdPercent", "--image-gc-low-threshold", 0, 100),
    _Range("iptablesDropBit", "--iptables-drop-bit", 0, 31),
    _Range("iptablesMasqueradeBit", "--iptables-masquerade-bit", 0, 31),
    _Range("oomScoreAdj", "--oom-score-adj", -1000, 1000),
    _Range("port", "--port", *_PORTS, zero=True),
    _Range("readOnlyPort", "--read-only-port", 0, 65535),
)
_NOT_NEGATIVE = {
    "eventBurst": "--event-burst",
    "eventRecordQPS": "--event-qps",
    "kubeAPIBurst": "--kube-api-burst",
    "kubeAPIQPS": "--kube-api-qps",
    "maxOpenFiles": "--max-open-files",
    "registryBurst": "--registry-burst",
    "registryPullQPS": "--registry-qps",
}
_SECOND = 10**9
_IDS_PER_POD = 65536


def other_problems(fields: Fields, gates: Gates) -> Iterator[ConfigProblem]:
    """Yield the errors in the values of the decoded `fields`; absent fields have the defaults."""
    yield from _number_problems(fields)
    yield from _image_problems(fields, gates)
    yield from _shutdown_problems(fields, gates)
    yield from _restart_problems(fields, gates)
    yield from _log_problems(fields)
    yield from _path_problems(fields)
    yield from _taint_problems(fields)
    yield from _logging_problems(fields, gates)
    yield from _tracing_problems(fields)
    yield from _other_rule_problems(fields, gates)


def _number_problems(fields: Fields) -> Iterator[ConfigProblem]:
    for rule in _RANGES:
        value = fields.get(rule.field)
        if value is None or (value == 0 and rule.zero):
            continue
        if not rule.low <= value <= rule.high:
            limits = f"must be between {rule.low} and {rule.high}, inclusive"
            yield ConfigProblem(rule.field, f"{rule.field} ({rule.flag}) {value} {limits}")
    for field, flag in _NOT_NEGATIVE.items():
        if (value := fields.get(field, 0)) < 0:
            yield ConfigProblem(field, f"{field} ({flag}) {value} must not be a negative number")
    if fields.get("nodeLeaseDurationSeconds", 0) < 0:
        yield ConfigProblem("nodeLeaseDurationSeconds", "nodeLeaseDurationSeconds must be greater than 0")
    if (images := fields.get("nodeStatusMaxImages", 0)) < -1:
        yield ConfigProblem(
            "nodeStatusMaxImages", f"nodeStatusMaxImages (--node-status-max-images) {images} must be -1 or greater"
        )


def _image_problems(fields: Fields, gates: Gates) -> Iterator[ConfigProblem]:
    low, high = fields.get("imageGCLowThresholdPercent", 80), fields.get("imageGCHighThresholdPercent", 85)
    if low >= high:
        yield ConfigProblem(
            "imageGCLowThresholdPercent",
            f"imageGCLowThresholdPercent (--image-gc-low-threshold) {low} must be less than "
            f"imageGCHighThresholdPercent (--image-gc-high-threshold) {high}",
        )
    # 0 counts as absent for the minimum age only; 0 as maximum age switches the limit off.
    youngest = _duration_field(fields, "imageMinimumGCAge") or 120 * _SECOND
    oldest = _duration_field(fields, "imageMaximumGCAge")
    for field, age in (("imageMinimumGCAge", youngest), ("imageMaximumGCAge", oldest)):
        if age < 0:
            yield ConfigProblem(field, f"{field} {format_duration(age)} must not be negative")
    if 0 < oldest <= youngest:
        yield ConfigProblem(
            "imageMaximumGCAge",
            f"imageMaximumGCAge {format_duration(oldest)} must be greater than imageMinimumGCAge "
            f"{format_duration(youngest)}",
        )
    pulls = fields.get("maxParallelImagePulls")
    if pulls is not None and pulls < 1:
        yield ConfigProblem("maxParallelImagePulls", f"maxParallelImagePulls {pulls} must be a positive number")
    if pulls is not None and pulls > 1 and fields.get("serializeImagePulls"):
        yield ConfigProblem(
            "maxParallelImagePulls",
            "maxParallelImagePulls cannot be larger than 1 unless SerializeImagePulls (--serialize-image-pulls) is set "
            "to false",
        )
    yield from _pull_credential_problems(fields, gates)


_VERIFICATIONS = ("NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify")


def _pull_credential_problems(fields: Fields, gates: Gates) -> Iterator[ConfigProblem]:
    # Without the gate, both fields must be empty: upstream does not look at their values.
    verified, allowed = "imagePullCredentialsVerificationPolicy", "preloadedImagesVerificationAllowlist"
    policy, images = fields.get(verified, ""), fields.get(allowed, [])
    if not gates["KubeletEnsureSecretPulledImages"]:
        for field, value in ((verified, policy), (allowed, images)):
            if value:
                yield ConfigProblem(
                    field, f"`{field}` must not be set if KubeletEnsureSecretPulledImages feature gate is not enabled"
                )
        return
    if policy and policy not in _VERIFICATIONS:
        options = f"{', '.join(map(quote, _VERIFICATIONS[:-1]))} or {quote(_VERIFICATIONS[-1])}"
        yield ConfigProblem(verified, f"option {quote(policy)} specified for {verified}. Valid options are {options}")
    if not images:
        return
    if policy != "NeverVerifyAllowlistedImages":
        # The typing error is upstream's.
        yield ConfigProblem(
            allowed,
            f"can't set `{allowed}` if `imagePullCredentialsVertificationPolicy` is not "
            '"NeverVerifyAllowlistedImages"',
        )
    elif problem := next(filter(None, map(_image_pattern_problem, images)), ""):
        yield ConfigProblem(allowed, f"invalid image pattern in `{allowed}`: {problem}")


def _image_pattern_problem(pattern: str) -> str:
    if not pattern:
        return "the supplied pattern is too short: "
    stem = pattern.removesuffix("/*")
    if "*" in stem:
        return f"not a valid wildcard pattern, only patterns ending with '/*' are allowed: {pattern}"
    return ""


def _shutdown_problems(fields: Fields, gates: Gates) -> Iterator[ConfigProblem]:
    names = ("shutdownGracePeriod", "shutdownGracePeriodCriticalPods")
    whole, critical = (_duration_field(fields, name) for name in names)
    by_priority = fields.get("shutdownGracePeriodByPodPriority")
    if gates["GracefulNodeShutdown"]:
        if critical > whole:
            yield ConfigProblem(
                names[1],
                f"{names[1]} {{{format_duration(critical)}}} must be <= {names[0]} {{{format_duration(whole)}}}",
            )
        for name, period in zip(names, (whole, critical), strict=True):
            if period < 0 or 0 < period < _SECOND:
                yield ConfigProblem(
                    name, f"{name} {{{format_duration(period)}}} must be either zero or otherwise >= 1 sec"
                )
    elif whole > 0 or critical > 0:
        yield ConfigProblem(names[0], f"specifying {names[0]} or {names[1]} requires feature gate GracefulNodeShutdown")
    if by_priority and not gates["GracefulNodeShutdownBasedOnPodPriority"]:
        yield ConfigProblem(
            "shutdownGracePeriodByPodPriority",
            "Specifying shutdownGracePeriodByPodPriority requires feature gate GracefulNodeShutdownBasedOnPodPriority",
        )
    elif by_priority and (whole > 0 or critical > 0):
        yield ConfigProblem(
            "shutdownGracePeriodByPodPriority",
            "Cannot specify both shutdownGracePeriodByPodPriority and shutdownGracePeriod at the same time",
        )


def _restart_problems(fields: Fields, gates: Gates) -> Iterator[ConfigProblem]:
    field = "crashLoopBackOff.maxContainerRestartPeriod"
    text = fields.get("crashLoopBackOff", {}).get("maxContainerRestartPeriod")
    if text is None:
        return
    if not gates["KubeletCrashLoopBackOffMax"]:
        yield ConfigProblem(
            field,
            "FeatureGate KubeletCrashLoopBackOffMax not enabled, CrashLoopBackOff.MaxContainerRestartPeriod must not "
            "be set",
        )
        return
    period = parse_duration(text)
    # Upstream compares whole milliseconds, so 300.0009s still passes.
    if not 1000 <= int(period / 10**6) <= 300_000:
        yield ConfigProblem(
            field,
            f"CrashLoopBackOff.MaxContainerRestartPeriod (got: {period / _SECOND:g} seconds) must be set between 1s "
            "and 300s",
        )


def _log_problems(fields: Fields) -> Iterator[ConfigProblem]:
    if fields.get("containerLogMaxWorkers", 1) < 1:
        yield ConfigProblem("containerLogMaxWorkers", "containerLogMaxWorkers must be greater than or equal to 1")
    if _duration_field(fields, "containerLogMonitorInterval", 10 * _SECOND) < 3 * _SECOND:
        yield ConfigProblem(
            "containerLogMonitorInterval",
            "containerLogMonitorInterval must be a positive time duration greater than or equal to 3s",
        )
    if fields.get("containerLogMaxFiles", 5) <= 1:
        yield ConfigProblem("containerLogMaxFiles", "containerLogMaxFiles must be greater than 1")
    if fields.get("enableSystemLogQuery") and not fields.get("enableSystemLogHandler", True):
        yield ConfigProblem("enableSystemLogQuery", "enableSystemLogHandler is required for enableSystemLogQuery")


def _path_problems(fields: Fields) -> Iterator[ConfigProblem]:
    """Check `podLogsDir`. A relative path is not checked: a kubelet joins it to the file's folder, which normalizes
    it."""
    path = fields.get("podLogsDir", "")
    where = f"pod logs path {quote(path)}"
    if path.startswith("/") and path != f"/{posixpath.normpath(path).lstrip('/')}":
        yield ConfigProblem("podLogsDir", f"{where} must be normalized")
    if not path.isascii():
        # The typing error is upstream's.
        yield ConfigProblem("podLogsDir", f"{where} mut contains ASCII characters only")


_NAME = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = re.compile(rf"(?:{_NAME})?\Z")
_QUALIFIED = re.compile(rf"(?:(?P<prefix>[^/]*)/)?(?P<name>{_NAME})\Z")
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
_EFFECTS = ("", "NoSchedule", "PreferNoSchedule", "NoExecute")


def _taint_problems(fields: Fields) -> Iterator[ConfigProblem]:
    for index, taint in enumerate(fields.get("registerWithTaints", ())):
        path = f"registerWithTaints[{index}]"
        key, value, effect = (taint.get(name, "") for name in ("key", "value", "effect"))
        if not (_is_qualified(key) and len(value) <= 63 and _VALUE.match(value) and effect in _EFFECTS):
            added = taint.get("timeAdded")
            shown = "<nil>" if added is None else added
            yield ConfigProblem(path, f"invalid taint: {{{key} {value} {effect} {shown}}}", "")
        if taint.get("timeAdded") is not None:
            yield ConfigProblem(f"{path}.timeAdded", "taint.TimeAdded is not nil")


def _is_qualified(key: str) -> bool:
    match = _QUALIFIED.match(key)
    if match is None or len(match["name"]) > 63:
        return False
    prefix = match["prefix"]
    return prefix is None or (bool(_DOMAIN.match(prefix)) and len(prefix) <= 253)


def _logging_problems(fields: Fields, gates: Gates) -> Iterator[ConfigProblem]:
    logging = fields.get("logging", {})
    formatted = logging.get("format", "") or "text"
    if formatted not in ("text", "json"):
        yield _invalid("logging.format", quote(formatted), "Unsupported log format")
    flush = logging.get("flushFrequency", 0)
    if (parse_duration(flush) if isinstance(flush, str) else flush) < 0:
        shown = quote(format_duration(parse_duration(flush))) if isinstance(flush, str) else str(flush)
        yield _invalid("logging.flushFrequency", shown, "Must be greater than zero")
    if (verbosity := logging.get("verbosity", 0)) > _MOST_VERBOSE:
        yield _invalid("logging.verbosity", str(verbosity), f"Must be <= {_MOST_VERBOSE}")
    modules = logging.get("vmodule", [])
    if modules and formatted != "text":
        yield _forbidden("logging.vmodule", "Only supported for text log format")
    for index, module in enumerate(modules):
        path, pattern = f"logging.vmodule[{index}]", module.get("filePattern", "")
        if not pattern:
            yield ConfigProblem(path, f"{path}: Required value: File pattern must not be empty", "")
        elif "=" in pattern or "," in pattern:
            yield _invalid(path, quote(pattern), "File pattern must not contain equal sign or comma")
        if (verbosity := module.get("verbosity", 0)) > _MOST_VERBOSE:
            yield _invalid(path, str(verbosity), f"Must be <= {_MOST_VERBOSE}")
    for kind, alpha_options in (("text", ("infoBufferSize",)), ("json", ("splitStream", "infoBufferSize"))):
        options = logging.get("options", {}).get(kind, {})
        for option in alpha_options:
            if options.get(option, False) not in (False, "0") and not gates["LoggingAlphaOptions"]:
                yield _forbidden(f"logging.options.{kind}.{option}", "Feature LoggingAlphaOptions is disabled")


_MOST_VERBOSE = (1 << 31) - 1
_MOST_SAMPLES = 1_000_000
_SCHEMES = ("dns", "unix", "unix-abstract")


def _tracing_problems(fields: Fields) -> Iterator[ConfigProblem]:
    tracing = fields.get("tracing", {})
    path, rate = "tracing.samplingRatePerMillion", tracing.get("samplingRatePerMillion", 0)
    if rate < 0:
        yield _invalid(path, str(rate), "sampling rate must be positive")
    if rate > _MOST_SAMPLES:
        yield _invalid(path, str(rate), "sampling rate per million must be less than or equal to one million")
    endpoint = tracing.get("endpoint")
    if endpoint is None:
        return
    address = endpoint if "//" in endpoint else f"dns://{endpoint}"
    if address.count("[") > address.count("]"):
        problem = f"parse {quote(address)}: missing ']' in host"
    else:
        scheme = urlsplit(address).scheme
        problem = (
            f"unsupported scheme: {scheme}.  Options are none, dns, unix, or unix-abstract.  "
            "See https://github.com/grpc/grpc/blob/master/doc/naming.md"
            if scheme not in _SCHEMES
            else ""
        )
    if problem:
        yield _invalid("tracing.endpoint", quote(address), problem)


def _other_rule_problems(fields: Fields, gates: Gates) -> Iterator[ConfigProblem]:
    if fields.get("systemCgroups") and not fields.get("cgroupRoot"):
        yield ConfigProblem(
            "systemCgroups",
            "systemCgroups (--system-cgroups) was specified and cgroupRoot (--cgroup-root) was not specified",
        )
    if fields.get("serverTLSBootstrap") and not gates["RotateKubeletServerCertificate"]:
        yield ConfigProblem(
            "serverTLSBootstrap", "serverTLSBootstrap true requires feature gate RotateKubeletServerCertificate"
        )
    if fields.get("runOnce"):
        yield ConfigProblem(
            "runOnce", "runOnce (--runOnce) true, Runonce mode has been deprecated and should not be set"
        )
    hairpin = fields.get("hairpinMode") or "promiscuous-bridge"
    if hairpin not in ("none", "hairpin-veth", "promiscuous-bridge"):
        yield ConfigProblem(
            "hairpinMode",
            f"option {quote(hairpin)} specified for hairpinMode (--hairpin-mode). Valid options are "
            '"none", "hairpin-veth" or "promiscuous-bridge"',
        )
    ids = fields.get("userNamespaces", {}).get("idsPerPod")
    if ids is not None and ids < _IDS_PER_POD:
        yield ConfigProblem(
            "userNamespaces.idsPerPod", f"userNamespaces.idsPerPod must not be less than {_IDS_PER_POD}"
        )
    elif ids is not None and ids % _IDS_PER_POD:
        yield ConfigProblem(
            "userNamespaces.idsPerPod", f"userNamespaces.idsPerPod must be a multiple of {_IDS_PER_POD}"
        )
    shown = fields.get("showHiddenMetricsForVersion", "")
    if shown and shown != _PREVIOUS_VERSION:
        yield ConfigProblem(
            "showHiddenMetricsForVersion",
            "invalid showHiddenMetricsForVersion: showHiddenMetricsForVersion: Invalid value: "
            f"{quote(shown)}: must be omitted or have the value '{_PREVIOUS_VERSION}'; only the previous minor "
            "version is allowed",
            "",
        )


_PREVIOUS_VERSION = "1.35"


def _invalid(path: str, value: str, problem: str) -> ConfigProblem:
    return ConfigProblem(path, f"{path}: Invalid value: {value}: {problem}", "")


def _forbidden(path: str, problem: str) -> ConfigProblem:
    return ConfigProblem(path, f"{path}: Forbidden: {problem}", "")


def _duration_field(fields: Fields, name: str, default: int = 0) -> int:
    """Return a duration field in nanoseconds."""
    text = fields.get(name)
    return default if text is None else parse_duration(text)
