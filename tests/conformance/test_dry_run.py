"""Verdicts of podslice about pods, and a real API server's answers to the same pods."""

from __future__ import annotations

from e2e.controlplane import Api

from tests.conformance.campaign import Report, dry_runs, limit_ranges, quotas, resizes, updates
from tests.conformance.compare import Said, differences

SEED = 20
"""One that draws pods of every kind; `python -m tests.conformance.campaign` takes others."""


def nothing_differs(report: Report) -> None:
    assert [(case.asked, case.differences) for case in report.found] == []


def test_dry_runs_agree(admin: Api) -> None:
    """Verdict, every error, every warning, the QoS class and every stored amount of generated pods are the same."""
    report = dry_runs(admin, 1000, SEED, {})
    nothing_differs(report)
    for verdict in ("accepted", "invalid", "unreadable"):
        assert report.counts[f"{verdict}, same"] > 10, report.counts


def test_limit_ranges_agree(admin: Api) -> None:
    """LimitRange objects are refused with the same errors, and pods under them get the same defaults and refusals."""
    report = limit_ranges(admin, 300, SEED, {})
    nothing_differs(report)
    for verdict in ("LimitRange invalid", "LimitRange accepted", "accepted", "forbidden"):
        assert report.counts[f"{verdict}, same"] > 3, report.counts


def test_quotas_agree(admin: Api) -> None:
    """Pods in namespaces with a ResourceQuota are let in or refused with the same sentence."""
    report = quotas(admin, 200, SEED, {})
    nothing_differs(report)
    assert min(report.counts[f"{verdict}, same"] for verdict in ("accepted", "forbidden")) > 10, report.counts


def test_resizes_agree(admin: Api) -> None:
    """Resizes of stored pods are refused with the same errors, by validation and by plugins, and store the same."""
    report = resizes(admin, 300, SEED, {})
    nothing_differs(report)
    for verdict in ("accepted", "invalid", "forbidden"):
        assert report.counts[f"{verdict}, same"] > 10, report.counts


def test_updates_agree(admin: Api) -> None:
    """Ordinary updates of stored pods are refused with the same errors."""
    report = updates(admin, 200, SEED, {})
    nothing_differs(report)
    assert min(report.counts[f"{verdict}, same"] for verdict in ("accepted", "invalid")) > 10, report.counts


def test_differences_are_found() -> None:
    """Another verdict, error, warning, class or amount, and one that only one side has, would be noticed."""
    said = Said("accepted", (), ("w",), "Burstable", {"a": "1"})
    assert differences(said, said) == []
    others = [
        Said("invalid", ("a: b",)),
        said._replace(warnings=("w", "w")),
        said._replace(qos="Guaranteed"),
        said._replace(fields={"a": "1000m"}),
        said._replace(fields={"a": "1", "b": "2"}),
        said._replace(fields={}),
    ]
    assert [len(differences(said, other)) for other in others] == [1] * len(others)
    assert differences(Said("invalid", ("a: b", "a: b")), Said("invalid", ("a: b",)))
    refused = Said("forbidden", ('pods "p" is forbidden: [maximum x is 1, but limit is 2, minimum y is 3]',))
    same = Said("forbidden", ("r: minimum y is 3", "r: maximum x is 1, but limit is 2"))
    assert differences(refused, same) == []
    assert differences(refused, same._replace(errors=same.errors[:1]))
