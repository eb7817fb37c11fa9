"""Random kubelet configurations, most of which start."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from tools.judge.chance import MIB, Json, cpu_list, memory_text, often, pick
from tools.judge.machines import cpus_of, draw_reserved_cpus

OPTIONS = (
    "full-pcpus-only",
    "distribute-cpus-across-numa",
    "align-by-socket",
    "distribute-cpus-across-cores",
    "strict-cpu-reservation",
    "prefer-align-cpus-by-uncorecache",
)
_ALPHA = {"align-by-socket", "distribute-cpus-across-cores"}
_MERGING = ("best-effort", "restricted")
_MOST_CHOICES = 70_000


def cpu_options(r: Random, *, legal: bool) -> tuple[Json, Json]:
    """Draw options of the static policy and the feature gates they need. Without `legal` a few are refused at start."""
    number = pick(r, (3, 0), (5, 1), (5, 2), (3, 3), (1, 4))
    options: Json = {
        name: pick(r, (12, "true"), (1, "1"), (1, "T"), (1, "false"), (0.3, "TRUE"))
        for name in r.sample(OPTIONS, number)
    }
    if legal or not often(r, 0.08):
        if "distribute-cpus-across-cores" in options:
            for name in ("full-pcpus-only", "distribute-cpus-across-numa", "prefer-align-cpus-by-uncorecache"):
                options.pop(name, None)
        if "prefer-align-cpus-by-uncorecache" in options:
            options.pop("distribute-cpus-across-numa", None)
    gates: Json = {}
    if _ALPHA & set(options) and (legal or not often(r, 0.03)):
        gates["CPUManagerPolicyAlphaOptions"] = True
    if not legal and often(r, 0.01):
        gates["CPUManagerPolicyBetaOptions"] = False
    return options, gates


def draw_kubelet(r: Random, machine: Json) -> Json:
    """Draw a configuration for a machine. On machines of many NUMA nodes it aligns few resources, because upstream
    tries every combination of hints."""
    kubelet: Json = {}
    gates = _gates(r)
    kube, system = {}, {}
    if often(r, 0.92):
        kubelet["cpuManagerPolicy"] = "static"
        options, needed = cpu_options(r, legal=False)
        if options:
            kubelet["cpuManagerPolicyOptions"] = options
        gates.update(needed)
    if often(r, 0.55):
        kubelet["reservedSystemCPUs"] = draw_reserved_cpus(r, machine)
    elif often(r, 0.97):
        most = max(1, len(cpus_of(machine)) // 3)
        kube["cpu"] = r.choice(["500m", "1", "200m", *(["1500m", "2", "3"] if most > 2 else [])])
        if often(r, 0.3):
            system["cpu"] = r.choice(["500m", "1", "0"])
    if often(r, 0.75):
        _reserve_memory(r, machine, kubelet, kube, system)
    elif often(r, 0.3):
        system["memory"] = "512Mi"
    _add_topology(r, machine, kubelet)
    for name, amounts in (("kubeReserved", kube), ("systemReserved", system), ("featureGates", gates)):
        if amounts:
            kubelet[name] = amounts
    return kubelet


def _gates(r: Random) -> Json:
    gates: Json = {}
    if often(r, 0.7):
        gates["PodLevelResourceManagers"] = True
    elif often(r, 0.15):
        gates.update(PodLevelResources=False, InPlacePodLevelResourcesVerticalScaling=False)
    for name, probability, on in (
        ("DisableCPUQuotaWithExclusiveCPUs", 0.05, 0.3),
        ("InPlacePodVerticalScaling", 0.01, 0.3),
        ("InPlacePodVerticalScalingExclusiveCPUs", 0.03, 1.0),
        ("InPlacePodVerticalScalingExclusiveMemory", 0.03, 1.0),
    ):
        if often(r, probability):
            gates[name] = often(r, on)
    if often(r, 0.02):
        gates["AllAlpha"] = often(r, 0.3)
    if often(r, 0.02):
        gates["AllBeta"] = True
    return gates


def _reserve_memory(r: Random, machine: Json, kubelet: Json, kube: Json, system: Json) -> None:
    """Set policy Static with `reservedMemory` in several notations; now and then the sums do not agree."""
    nodes = [node["id"] for node in machine["nodes"] if node.get("memory")]
    if not nodes:
        return
    kubelet["memoryManagerPolicy"] = "Static"
    chosen = r.sample(nodes, r.randint(1, min(len(nodes), 3)))
    amounts = [_amount(r) for _ in chosen]
    rest = sum(amounts)
    if rest > 200 * MIB and often(r, 0.3):
        kubelet["evictionHard"] = {"memory.available": r.choice(["100Mi", "104857600", "102400Ki"])}
        rest -= 100 * MIB
    if often(r, 0.4) and rest > 48 * MIB:
        kube["memory"] = r.choice(["32Mi", "32768Ki"])
        rest -= 32 * MIB
    system["memory"] = memory_text(r, rest)
    kubelet["reservedMemory"] = [
        {"numaNode": node, "limits": {"memory": memory_text(r, amount)}}
        for node, amount in zip(chosen, amounts, strict=True)
    ]
    if often(r, 0.02):
        r.choice(kubelet["reservedMemory"])["limits"]["memory"] = r.choice(["1Gi", "0", "1073741824", "1e9"])


def _amount(r: Random) -> int:
    return pick(
        r, (8, r.choice([64, 128, 200, 256, 300, 512]) * MIB), (1, r.choice([100, 250]) * 10**6), (0.5, 99999744)
    )


def _add_topology(r: Random, machine: Json, kubelet: Json) -> None:
    count = len(machine["nodes"])
    policy = pick(r, (1.5, None), (5, "best-effort"), (4, "restricted"), (2.5, "single-numa-node"), (0.5, "none"))
    if count > 10 and not often(r, 0.12):
        policy = pick(r, (1, None), (1, "none"), (2, "single-numa-node"))
    if lists_with(count) < 2 and policy in _MERGING:
        _keep_one_manager(r, kubelet)
    if policy:
        kubelet["topologyManagerPolicy"] = policy
    if often(r, 0.6):
        kubelet["topologyManagerScope"] = "pod" if often(r, 0.9) else "container"
    options: Json = {}
    if often(r, 0.3):
        options["prefer-closest-numa-nodes"] = r.choice(["true", "true", "false", "1"])
    if (count > 8 and not often(r, 0.03)) or often(r, 0.1):
        options["max-allowable-numa-nodes"] = str(r.choice([8, 9, 12, 16] if count <= 8 else [16, 17, 32]))
    if options:
        kubelet["topologyManagerPolicyOptions"] = options


def _keep_one_manager(r: Random, kubelet: Json) -> None:
    if "memoryManagerPolicy" in kubelet and "cpuManagerPolicy" in kubelet:
        if often(r, 0.6):
            del kubelet["memoryManagerPolicy"], kubelet["reservedMemory"]
        else:
            del kubelet["cpuManagerPolicy"]
            kubelet.pop("cpuManagerPolicyOptions", None)


def lists_with(nodes: int) -> int:
    """Return how many lists of hints over `nodes` NUMA nodes upstream merges within `_MOST_CHOICES` combinations."""
    number = 1
    while (2**nodes - 1) ** (number + 1) <= _MOST_CHOICES and number < 6:
        number += 1
    return number


def spare_lists(machine: Json, kubelet: Mapping[str, object]) -> int:
    """Return how many resources beside CPUs and memory a pod may request."""
    if kubelet.get("topologyManagerPolicy") in (None, "none", "single-numa-node"):
        return 4
    taken = ("cpuManagerPolicy" in kubelet) + ("memoryManagerPolicy" in kubelet)
    return max(0, lists_with(len(machine["nodes"])) - taken)


def change_kubelet(r: Random, machine: Json, kubelet: Json) -> Json:
    """Return the configuration of a later start: one gate, policy, option or the reservation is changed."""
    new: Json = {key: (dict(value) if isinstance(value, dict) else value) for key, value in kubelet.items()}
    gates = new.setdefault("featureGates", {})
    kind = pick(r, (35, "pod level"), (20, "topology"), (20, "options"), (7, "reserved"), (8, "gate"), (4, "all"))
    if kind == "pod level":
        if gates.pop("PodLevelResourceManagers", False):
            if often(r, 0.15):
                gates.update(PodLevelResources=False, InPlacePodLevelResourcesVerticalScaling=False)
        else:
            gates["PodLevelResourceManagers"] = True
            for name in ("PodLevelResources", "InPlacePodLevelResourcesVerticalScaling"):
                gates.pop(name, None)
    elif kind == "topology":
        new["topologyManagerPolicy"] = r.choice(_policies_for(machine, kubelet))
        new["topologyManagerScope"] = r.choice(["pod", "container"])
    elif kind == "options" and new.get("cpuManagerPolicy") == "static":
        new["cpuManagerPolicyOptions"], needed = cpu_options(r, legal=False)
        gates.update(needed)
    elif kind == "reserved" and "reservedSystemCPUs" in new:
        new["reservedSystemCPUs"] = cpu_list(sorted(cpus_of(machine))[: r.randint(1, 3)])
    elif kind == "gate":
        gates["DisableCPUQuotaWithExclusiveCPUs"] = often(r, 0.5)
    elif kind == "all":
        policies = _policies_for(machine, kubelet)
        new = draw_kubelet(r, machine)
        if new.get("topologyManagerPolicy", "none") not in policies:
            new["topologyManagerPolicy"] = r.choice(policies)
        return new
    if not gates:
        del new["featureGates"]
    return new


def _policies_for(machine: Json, kubelet: Json) -> list[str]:
    """Return the policies under which upstream merges the hints of pods drawn for this configuration quickly."""
    if kubelet.get("topologyManagerPolicy") in _MERGING or len(machine["nodes"]) <= 3:
        return ["none", "single-numa-node", *_MERGING]
    return ["none", "single-numa-node"]
