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
    "AdmissionReport": Kind("podslice.contract.admission", "podslice admit"),
    "AgentStatus": Kind("podslice.contract.status", "podslice status"),
    "AuditReport": Kind("podslice.contract.audit", "podslice audit"),
    "ClusterFragmentation": Kind("podslice.contract.clusterpage", "podslice cluster fragmentation"),
    "ClusterNodes": Kind("podslice.contract.clusterpage", "podslice cluster --page-address"),
    "Comparison": Kind("podslice.contract.comparison", "podslice whatif"),
    "DefragmentationPlanList": Kind("podslice.contract.defragmentation", "podslice defrag FILE"),
    "DefragmentationResult": Kind("podslice.contract.defragmentation", "podslice defrag --apply"),
    "DeviceInventory": Kind("podslice.contract.machines", "podslice topology --devices"),
    "ExplanationList": Kind("podslice.contract.explanation", "podslice explain"),
    "FleetComparison": Kind("podslice.contract.fleet", "podslice fleet compare"),
    "FleetPlan": Kind("podslice.contract.fleet", "podslice fleet plan"),
    "FleetTables": Kind("podslice.contract.fleet", "podslice fleet run --out DIR"),
    "FleetValidation": Kind("podslice.contract.fleet", "podslice fleet validate fgd"),
    "InspectionList": Kind("podslice.contract.inspection", "podslice inspect"),
    "IsolationReport": Kind("podslice.contract.audit", "podslice audit --report"),
    "LargestPod": Kind("podslice.contract.defragmentation", "podslice defrag"),
    "LatencyReport": Kind("podslice.contract.audit", "podslice probe"),
    "LintReport": Kind("podslice.contract.linting", "podslice lint"),
    "LintRule": Kind("podslice.contract.linting", "podslice lint --explain"),
    "LintRuleList": Kind("podslice.contract.linting", "podslice lint --rules"),
    "LiveNode": Kind("podslice.contract.live", "kubectl podslice node --live"),
    "Machine": Kind("podslice.contract.machines", "podslice topology"),
    "MachineList": Kind("podslice.contract.machines", "podslice topology --list"),
    "NodeAuditList": Kind("podslice.contract.cluster", "kubectl podslice audit"),
    "NodeUsageList": Kind("podslice.contract.cluster", "kubectl podslice top"),
    "PendingPodList": Kind("podslice.contract.clusterpage", "podslice cluster pending"),
    "PodFitList": Kind("podslice.contract.clusterpage", "podslice cluster fit"),
    "PodPlacement": Kind("podslice.contract.cluster", "kubectl podslice pod"),
    "ReservationAdvice": Kind("podslice.contract.reservation", "podslice reserve"),
    "StateConversionList": Kind("podslice.contract.state", "podslice state convert"),
    "StateFileList": Kind("podslice.contract.state", "podslice state show"),
    "StateMigration": Kind("podslice.contract.state", "podslice state migrate"),
    "StateRepairList": Kind("podslice.contract.state", "podslice state repair"),
    "StateVerificationList": Kind("podslice.contract.state", "podslice state verify"),
    "TraceCheck": Kind("podslice.contract.fleet", "podslice fleet trace check"),
    "TraceDescription": Kind("podslice.contract.fleet", "podslice fleet trace describe"),
    "Version": Kind("podslice.contract.version", "podslice version"),
}


def type_of(kind: str) -> type[msgspec.Struct]:
    """The type of a kind's documents."""
    module = importlib.import_module(KINDS[kind].module)
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
