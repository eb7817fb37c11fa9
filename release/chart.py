"""The schema of the chart's values: `agent` is made of the agent's own settings, so that Helm knows each of them."""

from __future__ import annotations

from typing import Any

import msgspec

from podslice.agent.settings import AgentSettings, fixed_choices
from podslice.config.policy_options import POLICIES, SCOPES
from release.values import read_descriptions

SET_BY_THE_CHART = ("cluster", "dra", "metricsAddress", "statusAddress", "statusTokenFile")
"""Settings that other values of the chart give; in `agent` they would be duplicates."""

Schema = dict[str, Any]
_BOOL: Schema = {"type": "boolean"}
_TEXT: Schema = {"type": "string"}
_PATH: Schema = {"type": "string", "pattern": "^/"}
_MAP: Schema = {"type": "object"}
_TEXTS: Schema = {"type": "object", "additionalProperties": _TEXT}
_LIST: Schema = {"type": "array", "items": {"type": "object"}}
_LEVEL: Schema = {"enum": ["debug", "info", "warning", "error"]}
_NAME: Schema = {"type": "string", "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$"}
_RESOURCES: Schema = {
    "type": "object",
    "description": "a KubeletConfiguration without kind: policies, options, reservations, feature gates",
    "properties": {
        "cpuManagerPolicy": {"enum": ["none", "static"]},
        "memoryManagerPolicy": {"enum": ["None", "Static"]},
        "topologyManagerPolicy": {"enum": list(POLICIES)},
        "topologyManagerScope": {"enum": list(SCOPES)},
    },
}


def values_schema() -> Schema:
    """Return the schema of the values that `helm install` accepts."""
    (_,), parts = msgspec.json.schema_components([AgentSettings])
    settings = parts.pop("AgentSettings")
    for name in SET_BY_THE_CHART:
        del settings["properties"][name]
    settings["properties"]["resources"] = _RESOURCES
    for path, known in fixed_choices().items():
        group, _, name = path.rpartition(".")
        if group != "cluster":
            part = parts["SourceSettings"] if group else settings
            part["properties"][name or path] = {"enum": list(known)}
    properties = _properties()
    properties["agent"] = settings
    _describe(properties)
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart podslice",
        **_object(**properties),
        "$defs": parts,
    }


def _describe(properties: Schema) -> None:
    """Put the comments of values.yaml where they belong."""
    for path, text in read_descriptions().items():
        group, _, name = path.partition(".")
        schema = properties[group]["properties"] if name else properties
        schema[name or group] = {**schema[name or group], "description": text}


def _properties() -> Schema:
    of_pools: Schema = {
        "agent": {"$ref": "#/properties/agent"},
        "observe": _BOOL,
        "logLevel": _LEVEL,
        "podCgroup": {"type": "string", "pattern": "^[^/].*$"},
        "hostPaths": {
            "type": "array",
            "items": {**_object(name=_TEXT, path=_PATH, writable=_BOOL, type=_TEXT), "required": ["name", "path"]},
        },
        "nodeSelector": _TEXTS,
        "tolerations": _LIST,
        "affinity": _MAP,
        "updateStrategy": _object(
            type={"enum": ["RollingUpdate", "OnDelete"]}, rollingUpdate={"type": ["object", "null"]}
        ),
        "podResources": _object(requests=_MAP, limits=_MAP, claims=_LIST),
        "extraEnv": _LIST,
    }
    return {
        "nameOverride": _NAME,
        "fullnameOverride": _NAME,
        "commonLabels": _TEXTS,
        "image": _object(
            repository=_TEXT,
            digest={"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
            tag={"type": "string", "pattern": r"^([\w][\w.-]{0,127})?$"},
            pullPolicy={"enum": ["Always", "IfNotPresent", "Never"]},
        ),
        "imagePullSecrets": _LIST,
        **of_pools,
        "pools": {
            "type": "array",
            "items": {**_object(name={**_NAME, "minLength": 1}, **of_pools), "required": ["name"]},
        },
        "admissionPolicies": _BOOL,
        "hostNetwork": _BOOL,
        "hostPID": _BOOL,
        "metricsPort": _port(1),
        "metricsFrom": _LIST,
        "monitoring": {
            **_object(podMonitor=_BOOL, serviceMonitor=_BOOL, prometheusRule=_BOOL, dashboard=_BOOL, labels=_TEXTS),
            **_not_both("podMonitor", "serviceMonitor"),
        },
        "statusPort": _port(0),
        "statusSecret": _TEXT,
        "kubectlRights": _BOOL,
        "cluster": _cluster(),
        "dra": _object(
            enabled=_BOOL,
            accounting=_BOOL,
            numaList=_BOOL,
            order={"enum": ["numaNode", "mostFree", "leastFree"]},
            deviceClass=_BOOL,
        ),
        "priorityClassName": _TEXT,
        "podLabels": _TEXTS,
        "podAnnotations": _TEXTS,
        "serviceAccountAnnotations": _TEXTS,
        "global": {"type": "object", "description": "of a chart that has this one as a part; not read"},
    }


def _cluster() -> Schema:
    return _object(
        enabled=_BOOL,
        namespace=_NAME,
        createNamespace=_BOOL,
        schedulerName={"type": "string", "pattern": "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"},
        schedulerImage=_TEXT,
        replicas={"type": "integer", "minimum": 1, "maximum": 9},
        certificates={"enum": ["generate", "certManager", "secret"]},
        certificateDays={"type": "integer", "minimum": 30, "maximum": 3650},
        tlsSecret=_TEXT,
        ca=_TEXT,
        caConfigMap=_TEXT,
        issuer=_object(name=_TEXT, kind=_TEXT, group=_TEXT),
        pageSecret=_TEXT,
        plan={"enum": ["compare", "honour"]},
        advise=_BOOL,
        evict=_BOOL,
        compatible={"type": "array", "items": _TEXT},
        logLevel=_LEVEL,
        resources=_object(requests=_MAP, limits=_MAP, claims=_LIST),
        schedulerResources=_object(requests=_MAP, limits=_MAP, claims=_LIST),
        nodeSelector=_TEXTS,
        tolerations=_LIST,
        affinity=_MAP,
        topologySpreadConstraints=_LIST,
        priorityClassName=_TEXT,
        podDisruptionBudget=_BOOL,
        podLabels=_TEXTS,
        podAnnotations=_TEXTS,
        extraEnv=_LIST,
    )


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _not_both(*names: str) -> Schema:
    on: Schema = {"const": True}
    return {"not": {"required": list(names), "properties": dict.fromkeys(names, on)}}


def _port(least: int) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": 65535}
