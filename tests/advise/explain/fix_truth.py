"""What a fix claims, checked on new nodes: it is another change than the others, and its sentences are true."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations

from msgspec.structs import replace

from podslice import Node, Pod, StartError
from podslice.advise.explain.fixes.changes import ChangeMachine, EditPod, Reconfigure, Remove
from podslice.advise.explain.fixes.fix import Fix
from podslice.advise.explain.table import fix_text
from podslice.api.pod.spec import pod_from_dict
from podslice.values.cpuset import CPUSet
from tests.advise.explain.random_nodes import Setup

_WIDER = re.compile(r"(\S+)(?: \S+)? need (\d+) NUMA nodes even on an empty node, so the kubelet takes (\d+); "
                    r"for (\S+)(?: \S+)? it takes only (\d+)\Z")  # fmt: skip
_CORES = re.compile(r"(\d+) CPUs fill whole cores, as full-pcpus-only demands; (\d+) do not\Z")
_REUSED = re.compile(r"containers? (\S+(?:, \S+)*) then gets? its CPUs\Z")
_OWNS = re.compile(r"which owns? (\d+) CPUs?,")
_BACK = re.compile(r"it will fit on NUMA ([\d,-]+)\.")


def parts(fix: Fix) -> frozenset[object]:
    """Return the single changes of a fix."""
    if isinstance(fix.change, Remove):
        return frozenset(fix.change.uids)
    drained = ["drained"] if getattr(fix.change, "drained", False) else []
    return frozenset([*fix.edits, *drained]) if fix.edits else frozenset([fix.code, fix.text, *drained])


def check_distinct(fixes: Sequence[Fix]) -> None:
    """No two fixes are the same change, and none only adds to another."""
    for one, other in combinations(fixes, 2):
        if isinstance(one.change, Remove) == isinstance(other.change, Remove):
            assert not parts(one) <= parts(other), f"{other.text} only repeats {one.text}"
    assert len({fix.text for fix in fixes}) == len(fixes)


def check_sentences(setup: Setup, pod: Pod, fix: Fix) -> int:
    """Check each number and reason of a fix; return how many reasons there were."""
    node, change = setup.node(), fix.change
    if isinstance(change, Remove):
        _check_removal(setup, pod, fix, change)
    if isinstance(change, Reconfigure | ChangeMachine) and change.drained:
        _check_restart(setup, fix, change)
        assert len(fix.affected) == len(setup.running)
    if getattr(change, "drained", False) and setup.running:
        owners = sum(bool(node.view.owned_by(uid)) for uid in node.pods)
        assert f"It restarts {len(setup.running)} pod" in fix_text(fix)
        assert sum(one.exclusive_cpus > 0 for one in fix.affected) == owners
    if fix.because:
        assert isinstance(change, EditPod)
        _check_because(setup, pod, fix, change)
    return bool(fix.because)


def _check_because(setup: Setup, pod: Pod, fix: Fix, change: EditPod) -> None:
    if match := _WIDER.match(fix.because):
        after, wide, taken, before, narrow = match.groups()
        assert wide == taken
        assert int(narrow) < int(wide)
        name = fix.edits[0].path.partition(".limits.")[2] or fix.edits[0].path.partition(".requests.")[2]
        assert _widths(setup, name, after) == {int(wide)}
        assert _widths(setup, name, before) <= {int(narrow)}
    elif match := _CORES.match(fix.because):
        per_core = setup.node().view.topology.cpus_per_core
        assert int(match[1]) % per_core == 0 < int(match[2]) % per_core
        assert setup.config.cpu_manager_policy_options["full-pcpus-only"] == "true"
    else:
        match = _REUSED.match(fix.because)
        assert match is not None, fix.because
        node = setup.node()
        assert node.admit(change.pod).admitted
        owned = node.view.owners[pod.metadata.uid]
        init = re.findall(r"init container (\S+)", fix.text)[0]
        assert all(owned[name] & owned[init] for name in match[1].split(", "))


def _widths(setup: Setup, name: str, amount: str) -> set[int]:
    """Return on how many NUMA nodes an empty node places a pod that asks for so much; nothing where it refuses it."""
    # A fraction of a CPU, and memory that is not bound, have no NUMA nodes that could disagree.
    limits = {"cpu": "500m", "memory": "64Mi"} | {name: amount}
    spec = {"containers": [{"name": "c", "resources": {"limits": limits}}]}
    binds = name == "memory" or name.startswith("hugepages-")
    config = setup.config if binds else replace(setup.config, memory_manager_policy="None", reserved_memory=())
    node = setup._replace(predicates=False).empty(config)
    uid = "measured"
    if not node.admit(pod_from_dict({"metadata": {"name": uid, "namespace": "d", "uid": uid}, "spec": spec})).admitted:
        return set()
    if name == "cpu":
        owned = node.view.owned_by(uid)
        return {sum(bool(own & owned) for own in node.view.topology.numa_nodes.values())}
    if binds:
        return {len(block.numa_affinity or ()) for block in node.view.blocks[uid]["c"] if block.type == name}
    return {len(node.view.device_ids[uid]["c"][name])}


def _check_removal(setup: Setup, pod: Pod, fix: Fix, change: Remove) -> None:
    node = setup.node()
    owned = sum(node.view.owned_by(uid).bit_count() for uid in change.uids)
    said = _OWNS.search(fix.text)
    assert (int(said[1]) if said else 0) == (0 if change.back else owned)
    assert {one.uid for one in fix.affected} == set(change.uids)
    names = [word for line in fix.commands for word in line.split()[5:] if line.startswith("kubectl delete pod -n ")]
    assert sorted(names) == sorted(one.name for one in fix.affected)
    back = _BACK.search(f"{fix.text}.")
    if back:
        (uid,) = change.uids
        node.remove(uid)
        assert node.admit(pod).admitted
        assert node.admit(next(one for one in setup.running if one.metadata.uid == uid)).admitted
        cpus = node.view.owned_by(uid)
        found = [numa for numa, own in node.view.topology.numa_nodes.items() if own & cpus]
        assert str(CPUSet(found)) == back[1]


def _check_restart(setup: Setup, fix: Fix, change: Reconfigure | ChangeMachine) -> None:
    """A kubelet on the drained node starts without the state files that the commands delete, and not on them."""
    if fix.code == "repack":
        return
    stale = {
        path.rpartition("/")[2] for line in fix.commands for path in re.findall(r"/var/lib/kubelet/\w+_state", line)
    }
    files = dict(setup.empty().files)
    assert _starts(setup, change, {name: data for name, data in files.items() if name not in stale})
    assert not stale or not _starts(setup, change, files)


def _starts(setup: Setup, change: Reconfigure | ChangeMachine, files: dict[str, bytes]) -> bool:
    config = change.config if isinstance(change, Reconfigure) else setup.config
    machine = change.machine if isinstance(change, ChangeMachine) else setup.machine
    try:
        Node(machine, config, devices=setup.devices, predicates=setup.predicates, profile=setup.profile, files=files)
    except StartError:
        return False
    return True
