"""The kinds of documents: which module has the type, and which command prints it."""

from __future__ import annotations

import importlib
from typing import NamedTuple

import msgspec

from podslice.core.errors import InputError
from podslice.core.values.nearest import did_you_mean


class Kind(NamedTuple):
    """Where the type of a kind lives, and the command that prints such documents."""

    module: str
    command: str


KINDS: dict[str, Kind] = {
    "AdmissionReport": Kind("admission", "podslice admit"),
    "AgentStatus": Kind("status", "podslice status"),
    "AuditReport": Kind("audit", "podslice audit"),
    "ClusterFragmentation": Kind("clusterpage", "podslice cluster fragmentation"),
    "ClusterNodes": Kind("clusterpage", "podslice cluster --page-address"),
    "Comparison": Kind("comparison", "podslice whatif"),
    "DefragmentationPlanList": Kind("defragmentation", "podslice defrag FILE"),
    "DefragmentationResult": Kind("defragmentation", "podslice defrag --apply"),
    "DeviceInventory": Kind("machines", "podslice topology --devices"),
    "ExplanationList": Kind("explanation", "podslice explain"),
    "FleetComparison": Kind("fleet", "podslice fleet compare"),
    "FleetPlan": Kind("fleet", "podslice fleet plan"),
    "FleetTables": Kind("fleet", "podslice fleet run --out DIR"),
    "FleetValidation": Kind("fleet", "podslice fleet validate fgd"),
    "InspectionList": Kind("inspection", "podslice inspect"),
    "IsolationReport": Kind("audit", "podslice audit --report"),
    "LargestPod": Kind("defragmentation", "podslice defrag"),
    "LatencyReport": Kind("audit", "podslice probe"),
    "LintReport": Kind("linting", "podslice lint"),
    "LintRule": Kind("linting", "podslice lint --explain"),
    "LintRuleList": Kind("linting", "podslice lint --rules"),
    "LiveNode": Kind("live", "kubectl podslice node --live"),
    "Machine": Kind("machines", "podslice topology"),
    "MachineList": Kind("machines", "podslice topology --list"),
    "NodeAuditList": Kind("cluster", "kubectl podslice audit"),
    "NodeUsageList": Kind("cluster", "kubectl podslice top"),
    "PendingPodList": Kind("clusterpage", "podslice cluster pending"),
    "PodFitList": Kind("clusterpage", "podslice cluster fit"),
    "PodPlacement": Kind("cluster", "kubectl podslice pod"),
    "ReservationAdvice": Kind("reservation", "podslice reserve"),
    "StateConversionList": Kind("state", "podslice state convert"),
    "StateFileList": Kind("state", "podslice state show"),
    "StateMigration": Kind("state", "podslice state migrate"),
    "StateRepairList": Kind("state", "podslice state repair"),
    "StateVerificationList": Kind("state", "podslice state verify"),
    "TraceCheck": Kind("fleet", "podslice fleet trace check"),
    "TraceDescription": Kind("fleet", "podslice fleet trace describe"),
    "Version": Kind("version", "podslice version"),
}


def type_of(kind: str) -> type[msgspec.Struct]:
    """The type of a kind's documents."""
    module = importlib.import_module(f"podslice.contract.{KINDS[kind].module}")
    found = getattr(module, kind)
    assert isinstance(found, type)
    assert issubclass(found, msgspec.Struct)
    return found


def known_kind(text: str) -> str:
    """The kind a person means, in any case. Raises `InputError`."""
    for kind in KINDS:
        if kind.lower() == text.lower():
            return kind
    remedy = did_you_mean(text, KINDS, "podslice schema lists them")
    raise InputError(f"{text!r} is not a kind of document", remedy=remedy)
