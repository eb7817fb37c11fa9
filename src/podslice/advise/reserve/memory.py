"""How reserved memory is divided among the NUMA nodes, to the byte (`reservedMemory` must add up exactly)."""

from __future__ import annotations

from collections.abc import Mapping

from podslice.advise.reserve.formulas import MIB


def divide(total: int, cpus: Mapping[int, int], sizes: Mapping[int, int]) -> dict[int, int]:
    """Bytes by NUMA node for a total of whole MiB: half by how many reserved CPUs a node has (`cpus`), half by its size
    (`sizes`, in bytes), in whole MiB, the rest to the node with the most reserved CPUs.

    No node gives more than half of its memory while another has room. Raises `ValueError` where the nodes have not so
    much memory in all.
    """
    if total > sum(size // MIB * MIB for size in sizes.values()):
        raise ValueError("more than there is")
    all_cpus, all_memory = sum(cpus.values()), sum(sizes.values())
    shares = {
        node: int(total * (cpus.get(node, 0) / (2 * all_cpus) + size / (2 * all_memory))) // MIB * MIB
        for node, size in sizes.items()
    }
    order = sorted(sizes, key=lambda node: (-cpus.get(node, 0), -sizes[node], node))
    shares[order[0]] += total - sum(shares.values())
    for part in (2, 1):
        caps = {node: size // part // MIB * MIB for node, size in sizes.items()}
        rest = sum(max(0, shares[node] - caps[node]) for node in order)
        shares = {node: min(shares[node], caps[node]) for node in order}
        for node in order:
            more = min(rest, caps[node] - shares[node])
            shares[node] += more
            rest -= more
        shares[order[0]] += rest
    return dict(sorted(shares.items()))
