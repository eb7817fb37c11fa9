"""The schema of the chart's values: `agent` is made of the agent's own settings, so that Helm knows each of them."""

from __future__ import annotations

from typing import Any

import msgspec

from podslice.agent.settings import AgentSettings

SET_BY_THE_CHART = ("cluster", "dra", "metricsAddress", "statusAddress", "statusTokenFile")
"""Settings that other values of the chart give; in `agent` they would be duplicates."""

Schema = dict[str, Any]
_BOOL: Schema = {"type": "boolean"}
_TEXT: Schema = {"type": "string"}
_PATH: Schema = {"type": "string", "pattern": "^/"}
_LIST_OF_OBJECTS: Schema = {"type": "array", "items": {"type": "object"}}


def values_schema() -> Schema:
    """Return the schema of the values that `helm install` accepts."""
    _, parts = msgspec.json.schema_components([AgentSettings])
    settings = parts.pop("AgentSettings")
    for name in SET_BY_THE_CHART:
        del settings["properties"][name]
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart podslice",
        **_object(
            image=_object(
                repository=_TEXT,
                digest={"type": "string", "pattern": "^(sha256:.+)?$", "description": "required, sha256:…"},
                pullPolicy={"enum": ["Always", "IfNotPresent", "Never"]},
            ),
            imagePullSecrets=_LIST_OF_OBJECTS,
            agent=settings,
            admissionPolicies=_BOOL,
            observe=_BOOL,
            hostNetwork=_BOOL,
            hostPID=_BOOL,
            metricsPort=_port(1),
            metricsFrom=_LIST_OF_OBJECTS,
            monitoring={
                **_object(
                    podMonitor=_BOOL,
                    serviceMonitor=_BOOL,
                    prometheusRule=_BOOL,
                    dashboard=_BOOL,
                    labels={"type": "object", "additionalProperties": _TEXT},
                ),
                **_not_both("podMonitor", "serviceMonitor"),
            },
            statusPort=_port(0),
            statusSecret=_TEXT,
            kubectlRights=_BOOL,
            cluster=_object(
                enabled=_BOOL,
                schedulerName={"type": "string", "pattern": "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"},
                schedulerImage=_TEXT,
                replicas={"type": "integer", "minimum": 1, "maximum": 9},
                tlsSecret=_TEXT,
                pageSecret=_TEXT,
                plan={"enum": ["compare", "honour"]},
                advise=_BOOL,
                evict=_BOOL,
                resources={"type": "object"},
                schedulerResources={"type": "object"},
            ),
            dra=_object(enabled=_BOOL, accounting=_BOOL, order={"enum": ["numaNode", "mostFree", "leastFree"]}),
            podCgroup={"type": "string", "pattern": "^[^/].*$"},
            hostPaths={
                "type": "array",
                "items": {**_object(name=_TEXT, path=_PATH, writable=_BOOL, type=_TEXT), "required": ["name", "path"]},
            },
            nodeSelector={"type": "object", "additionalProperties": _TEXT},
            tolerations=_LIST_OF_OBJECTS,
            updateStrategy={"type": "object"},
            podResources={"type": "object"},
            **{"global": {"type": "object", "description": "of a chart that has this one as a part; not read"}},
        ),
        "$defs": parts,
    }


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _not_both(*names: str) -> Schema:
    on: Schema = {"const": True}
    return {"not": {"required": list(names), "properties": dict.fromkeys(names, on)}}


def _port(least: int) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": 65535}
