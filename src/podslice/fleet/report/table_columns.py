"""The meaning of the columns of a run's tables."""

from __future__ import annotations

from podslice.fleet.report.measures import BY_NAME

ROWS = {
    "cells": "a cell: its figures, and the integers that they are made of",
    "series": "a measure at a moment",
    "refusals": "refused attempts of a shape on nodes of a class for a reason",
    "pods": "a pod",
    "nodes": "a node at the end",
}
_CELL = {
    "cell": "key of the cell: machines, kubelet, scheduler, transform and seed",
    "machines": "alternative of the machines",
    "kubelet": "configuration of the kubelets",
    "scheduler": "scheduler",
    "transform": "how the pods are written",
    "seed": "seed",
}
_MEANINGS = {
    "series": {
        "measure": "what is measured (docs/fleet.md, What is measured)",
        "row": "number of the sample",
        "at_ms": "simulated time",
        "value": "the value then",
    },
    "refusals": {
        "shape": "what the pods ask for",
        "class": "class of the nodes",
        "reason": "reason of the kubelet",
        "attempts": "refused attempts",
        "example_pod": "number of one such pod",
    },
    "pods": {
        "pod": "number, in order of arrival",
        "shape": "what it asks for",
        "arrival_ms": "when it came",
        "first_try_ms": "when the scheduler looked first",
        "bound_ms": "since when it ran first",
        "ended_ms": "when it ended",
        "node": "where it was last",
        "attempts": "pods that came to a node in its place",
        "verdict": "ran, pending (fits nowhere), looping, failed (its owner gave up) or preempted",
        "reason": "of its last refusal",
        "cpus": "CPUs that it owned, as Linux writes them",
        "numa_nodes": "NUMA nodes of its CPUs, memory and devices",
    },
    "nodes": {
        "node": "name",
        "class": "class",
        "state": "number of its state; equal states of a class have the same",
        "pods": "pods on it",
        "cpu_milli": "milli CPUs that are booked",
        "cpu_milli_room": "milli CPUs that the scheduler counts with",
        "memory": "bytes that are booked",
        "memory_room": "bytes that the scheduler counts with",
        "gpu_milli": "milli GPUs that are booked",
        "gpu_milli_room": "milli GPUs that the scheduler counts with",
        "assignable_cpus": "CPUs that can still be owned",
        "stranded_cpus": "those of them left when the node is filled with the usual pods, smallest first",
        "expected_stranded_cpus": "assignable CPUs that a further usual pod could not get, expected",
        "blind_stranded_cpus": "the same by sums",
        "largest_pod_cpus": "the most CPUs that one Guaranteed container could still get",
        "holes": "more pods of the smallest usual shape that would get in",
        "shared_milli": "milli CPUs that pods without CPUs of their own ask for",
        "shared_cpus": "CPUs that they share",
    },
}
_COUNTED = "a count or a sum of the cell (docs/fleet.md, What is measured)"


def meaning_of(table: str, column: str) -> str:
    """Return the meaning of a column of a table."""
    if column in _CELL:
        return _CELL[column]
    if table == "cells":
        return BY_NAME[column].meaning if column in BY_NAME else _COUNTED
    return _MEANINGS[table][column]
