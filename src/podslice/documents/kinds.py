"""The kinds of documents: the module of each type, and the command that prints it."""

from __future__ import annotations

import importlib
from typing import NamedTuple

import msgspec

from podslice.values.errors import InputError, did_you_mean


class Kind(NamedTuple):
    """The module that has the type of a kind, and the command that prints such documents."""

    module: str
    command: str


KINDS: dict[str, Kind] = {
    "AdmissionReport": Kind("podslice.admit.documents", "podslice admit"),
    "AgentStatus": Kind("podslice.status.status", "podslice status"),
    "AuditReport": Kind("podslice.audit.report", "podslice audit"),
    "ClusterFragmentation": Kind("podslice.cluster_view.answers", "podslice cluster fragmentation"),
    "ClusterUpgradeReport": Kind("podslice.kubectl.documents", "kubectl podslice upgrade"),
    "ClusterNodes": Kind("podslice.cluster_view.answers", "podslice cluster --page-address"),
    "Comparison": Kind("podslice.advise.whatif.documents", "podslice whatif"),
    "DefragmentationPlanList": Kind("podslice.advise.defrag.documents", "podslice defrag FILE"),
    "DefragmentationResult": Kind("podslice.advise.defrag.documents", "podslice defrag --apply"),
    "DeviceInventory": Kind("podslice.machine.documents", "podslice topology --devices"),
    "ExplanationList": Kind("podslice.advise.explain.documents", "podslice explain"),
    "FleetComparison": Kind("podslice.fleet.documents", "podslice fleet compare"),
    "FleetPlan": Kind("podslice.fleet.documents", "podslice fleet plan"),
    "FleetTables": Kind("podslice.fleet.documents", "podslice fleet run --out DIR"),
    "FleetValidation": Kind("podslice.fleet.documents", "podslice fleet validate fgd"),
    "InspectionList": Kind("podslice.advise.inspect.page", "podslice inspect"),
    "IsolationReport": Kind("podslice.isolation.report", "podslice audit --report"),
    "LargestPod": Kind("podslice.advise.defrag.documents", "podslice defrag"),
    "LatencyReport": Kind("podslice.isolation.latency", "podslice probe"),
    "LintReport": Kind("podslice.advise.lint.documents", "podslice lint"),
    "LintRule": Kind("podslice.advise.lint.documents", "podslice lint --explain"),
    "LintRuleList": Kind("podslice.advise.lint.documents", "podslice lint --rules"),
    "LiveNode": Kind("podslice.kubectl.documents", "kubectl podslice node --live"),
    "Machine": Kind("podslice.machine.model", "podslice topology"),
    "MachineList": Kind("podslice.machine.documents", "podslice topology --list"),
    "NodeAuditList": Kind("podslice.kubectl.documents", "kubectl podslice audit"),
    "NodeUsageList": Kind("podslice.kubectl.documents", "kubectl podslice top"),
    "PendingPodList": Kind("podslice.cluster_view.answers", "podslice cluster pending"),
    "PodDiagnosis": Kind("podslice.advise.why.documents", "podslice why"),
    "PodFitList": Kind("podslice.cluster_view.answers", "podslice cluster fit"),
    "PodPlacement": Kind("podslice.kubectl.documents", "kubectl podslice pod"),
    "ReservationAdvice": Kind("podslice.advise.reserve.advise", "podslice reserve"),
    "RestartReport": Kind("podslice.advise.whatif.restart.documents", "podslice whatif --restart"),
    "StateConversionList": Kind("podslice.state_files.documents", "podslice state convert"),
    "StateFileList": Kind("podslice.state_files.documents", "podslice state show"),
    "StateMigration": Kind("podslice.state_files.documents", "podslice state migrate"),
    "StateRepairList": Kind("podslice.state_files.documents", "podslice state repair"),
    "StateVerificationList": Kind("podslice.state_files.documents", "podslice state verify"),
    "TraceCheck": Kind("podslice.fleet.documents", "podslice fleet trace check"),
    "TraceDescription": Kind("podslice.fleet.documents", "podslice fleet trace describe"),
    "UpgradeReport": Kind("podslice.advise.upgrade.documents", "podslice upgrade"),
    "Version": Kind("podslice.cli.version", "podslice version"),
}


def type_of(kind: str) -> type[msgspec.Struct]:
    """Return the type of a kind's documents."""
    module = importlib.import_module(KINDS[kind].module)
    found = getattr(module, kind)
    assert isinstance(found, type)
    assert issubclass(found, msgspec.Struct)
    return found


def find_kind(text: str) -> str:
    """Return the kind of this name, in upper or lower case. Raises `InputError`."""
    for kind in KINDS:
        if kind.lower() == text.lower():
            return kind
    remedy = did_you_mean(text, KINDS, "podslice schema lists them")
    raise InputError(f"{text!r} is not a kind of document", remedy=remedy)
