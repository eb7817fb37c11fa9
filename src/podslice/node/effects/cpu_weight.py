"""Convert CPU amounts into cgroup values and back (pod-level-resources 8.1).

A kubelet still thinks in cgroup v1 shares. On cgroup v2 they become a weight in two ways that do not match. The kubelet
converts the pod and QoS levels linearly. The container runtime converts its containers along a curve that puts 1 CPU at
the kernel's default weight of 100.
"""

from __future__ import annotations

import math

from podslice.values.golang import wrap_int64

MIN_SHARES, MAX_SHARES = 2, 262144
MIN_WEIGHT, MAX_WEIGHT = 1, 10000
MIN_QUOTA_US = 1000
DEFAULT_PERIOD_US = 100_000
NO_QUOTA = -1
_SHARES_RANGE, _WEIGHT_RANGE = MAX_SHARES - MIN_SHARES, MAX_WEIGHT - MIN_WEIGHT


def milli_cpu_to_shares(milli: int) -> int:
    """Return cgroup v1 cpu.shares of a request in millicores."""
    return min(max(wrap_int64(milli * 1024) // 1000, MIN_SHARES), MAX_SHARES) if milli else MIN_SHARES


def milli_cpu_to_quota(milli: int, period: int = DEFAULT_PERIOD_US) -> int:
    """Return the CFS quota of a limit in millicores, in microseconds per `period`; 0 is no limit."""
    return max(wrap_int64(milli * period) // 1000, MIN_QUOTA_US) if milli else 0


def shares_to_weight(shares: int) -> int:
    """Return the cpu.weight that the kubelet writes for pods and QoS classes: linear."""
    if shares >= MAX_SHARES:
        return MAX_WEIGHT
    return MIN_WEIGHT + (shares - MIN_SHARES) * _WEIGHT_RANGE // _SHARES_RANGE


def shares_to_runtime_weight(shares: int) -> int:
    """Return the cpu.weight that runtimes with opencontainers/cgroups 0.0.6 or later write for containers; 0: not
    written.

    Older runtimes convert as `shares_to_weight` does.
    """
    if shares == 0:
        return 0
    if shares <= MIN_SHARES:
        return MIN_WEIGHT
    if shares >= MAX_SHARES:
        return MAX_WEIGHT
    # The runtimes' quadratic through the logarithms; 1024 shares become weight 100.
    power = math.log2(shares)
    return math.ceil(math.pow(10, (power * power + 125 * power) / 612 - 7 / 34))


def weight_to_shares(weight: int) -> int:
    """Return the shares that the kubelet reads from a cpu.weight it wrote; not the exact inverse."""
    return (weight - MIN_WEIGHT) * _SHARES_RANGE // _WEIGHT_RANGE + MIN_SHARES


def shares_to_milli_cpu(shares: int) -> int:
    """Return millicores of cpu.shares, rounded up."""
    return -(-shares * 1000 // 1024) if shares >= MIN_SHARES else 0


def quota_to_milli_cpu(quota: int, period: int) -> int:
    """Return millicores of a CFS quota; 0 where there is none."""
    return quota * 1000 // period if quota > 0 else 0
