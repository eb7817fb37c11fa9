"""Truth of explanations: every number and every "because" of a refusal, checked on the node by other means.

`python -m tests.advise.explain.truth REFUSALS [FIRST_SEED]` checks that many random ones and prints what was checked.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from random import Random

from podslice import Node, Pod, StartError, UpstreamDefectError, explain
from podslice.advise.explain.causes.cause import CAUSES, HOLDERS, Cause, Causes
from podslice.advise.explain.causes.search import DEFECT, Refused
from podslice.advise.explain.causes.words import where
from podslice.advise.explain.explain import Explainer, Explanation
from podslice.advise.explain.story import amount_texts
from podslice.advise.trial.relax import Relaxation
from podslice.advise.trial.trial import Trial
from podslice.api.server.defaults import default_pod
from podslice.machine.devices import Device, DeviceInventory, DeviceResource
from podslice.machine.memory import NO_TABLE
from podslice.node.view import NodeView
from podslice.values.cpuset import Bits, bits_of, iter_bits
from podslice.values.errors import Refusal
from tests.advise.explain.random_nodes import GPU, Setup, random_config, random_machine, random_pod

PROFILES = ("podslice", "kubelet-1.36")
_SUFFIX = re.compile(r"^-?\d+([A-Za-z]*)$")


class UntrueError(AssertionError):
    """Raised for a sentence, or a number, that is not true on the node."""


def random_refusals(seed: int, profile: str) -> Iterator[tuple[Setup, Pod]]:
    """Yield refused pods on one random node that fills up; some devices are unhealthy."""
    random = Random(seed)
    machine = random_machine(random)
    gpus = random.random() < 0.4
    devices = _random_devices(random, [node.id for node in machine.nodes]) if gpus else DeviceInventory()
    setup = Setup(machine, random_config(random), devices, random.random() < 0.4, profile, ())
    try:
        node = setup.empty()
    except StartError:
        return
    for number in range(random.choice([3, 6, 10])):
        pod = random_pod(random, f"p{number}", gpus)
        try:
            admitted = node.admit(pod).admitted
        except UpstreamDefectError:
            return
        if admitted:
            setup = setup._replace(running=(*setup.running, pod))
        else:
            yield setup, pod


def _random_devices(random: Random, nodes: list[int]) -> DeviceInventory:
    sick = random.random() < 0.3
    devices = tuple(
        Device(f"g{node}-{number}", (node,), "Unhealthy" if sick and random.random() < 0.3 else "Healthy")
        for node in nodes
        for number in range(random.choice([0, 1, 2, 2]))
    )
    return DeviceInventory((DeviceResource(GPU, devices),) if devices else ())


# Trials


class Stage:
    """A node, and a pod that it refuses."""

    def __init__(self, node: Node, pod: Pod) -> None:
        self.trial = Trial.of(node)
        self.trial.free()
        self.view = self.trial.view
        self.pod = default_pod(pod, self.view.gates)

    def attempt(self, relaxation: Relaxation) -> Refused | None:
        """Admit the pod with constraints relaxed; return the refusal."""
        with self.trial.relaxing(relaxation), self.trial.recording() as record:
            try:
                refusal = self.trial.admit(self.pod)
            except UpstreamDefectError as defect:
                refusal = Refusal(DEFECT, {"defect": defect.sentence, "name": defect.name})
        return None if refusal is None else Refused(record, refusal)

    def without(self, uids: set[str]) -> Causes:
        """Return the causes that are left once some pods have gone."""
        copy = self.trial.copy()
        copy.remove(*uids)
        copy.free()
        return explain_on(copy, self.pod).causes


def explain_on(trial: Trial, pod: Pod) -> Explanation:
    """Explain a pod on a copy of a node that is a trial."""
    return Explainer(trial).explain(pod, fixes=False)


def same_place(one: Cause, other: Cause) -> bool:
    """Whether two causes are about the same shortage."""
    return (one.code, one.container, one.resource, one.nodes) == (
        other.code,
        other.container,
        other.resource,
        other.nodes,
    )


# Checks


def check(setup: Setup, pod: Pod, node: Node | None = None) -> list[str]:
    """Check all that is said of a refusal, and return what was checked. Raises `UntrueError`."""
    node = node or setup.node()
    explanation = explain(node, pod, fixes=False)
    stage = Stage(node, pod)
    if explanation.trace.code == "upstream-defect":
        return ["defect"]
    checked = []
    refused = stage.attempt(Relaxation())
    if refused is None or explanation.trace.admitted:
        # What refused pods left behind was in its way, and this node has seen none.
        return ["admitted"]
    _check_words(explanation)
    _check_table(explanation)
    for found in explanation.causes.found:
        checked.append(found.code)
        _check_kind(setup, stage, found)
        _check_amounts(stage, found, refused)
        for one in found.chain:
            _check_holders(stage.view, one, first=(one.container, one.nodes) == (found.container, found.nodes))
        _check_gone(stage, found)
    return checked


def _check_words(explanation: Explanation) -> None:
    if not explanation.why or not explanation.causes.found:
        raise UntrueError("nothing is said")
    for found in explanation.causes.found:
        for one in found.chain:
            if one.code not in CAUSES or any(holder.kind not in HOLDERS for holder in one.holders):
                raise UntrueError(f"unknown word in {one}")
    if len(explanation.why) != len(set(explanation.why)):
        raise UntrueError(f"a sentence is said twice: {explanation.why}")
    first = explanation.causes.found[0]
    if first.code == "short":
        said = explanation.why[0]
        place = where(first.nodes)
        if not said.startswith(f"{place[:1].upper()}{place[1:]} ") or "short of" not in said:
            raise UntrueError(f"the first sentence is not about {where(first.nodes)}: {said}")


def _check_table(explanation: Explanation) -> None:
    """No cell mixes units, and the table and the causes agree."""
    last = explanation.trace.steps[-1]
    for row in last.candidates:
        for cell in row.cells:
            units = {
                m.group(1) for text in amount_texts(cell.resource, cell.need, cell.free) if (m := _SUFFIX.match(text))
            }
            if len(units - {""}) > 1:
                raise UntrueError(f"units differ in {cell}")
    for found in explanation.causes.found:
        if found.nodes is None or found.container != last.container or last.policy == "none":
            continue
        row = next((one for one in last.candidates if one.nodes == found.nodes), None)
        cell = row and next((one for one in row.cells if one.resource == found.resource), None)
        if cell and (cell.need, cell.free) != (found.need, found.free) and found.code not in ("held-elsewhere",):
            raise UntrueError(
                f"the table has {cell.need}/{cell.free}, the cause {found.need}/{found.free} of {found.resource}"
            )


def _check_kind(setup: Setup, stage: Stage, cause: Cause) -> None:
    """What no state of the node would help is refused on an empty one, too."""
    if cause.code in ("too-big", "reserved-counted", "narrowest", "no-common-nodes", "pod-budget", "unhealthy-counted"):
        if stage.pod.metadata.uid in stage.view.pods:
            return
        if setup.empty().admit(stage.pod).admitted:
            raise UntrueError(f"the empty node admits it: {cause}")


def _check_amounts(stage: Stage, cause: Cause, refused: Refused) -> None:
    """With all that is short the admission comes farther, and with one less of anything it does not."""
    here = list(cause.together)
    if any(one.code != "short" for one in here) or not all(one.short for one in here):
        return
    whole = Relaxation()
    gifts = [_gift(stage, one, one.short) for one in here]
    for gift in gifts:
        whole |= gift
    after = stage.attempt(whole)
    if after is not None and not after.is_beyond(refused, frozenset()):
        raise UntrueError(f"{cause.short} more {cause.resource} on {cause.nodes} change nothing: {after.refusal}")
    for place, one in enumerate(here):
        less = _gift(stage, one, one.short - 1)
        for other, gift in enumerate(gifts):
            if other != place:
                less |= gift
        before = stage.attempt(less)
        if before is None or (after is not None and not after.is_beyond(before, frozenset())):
            raise UntrueError(f"{one.short - 1} more {one.resource} on {one.nodes} are enough already")


def _gift(stage: Stage, cause: Cause, amount: int) -> Relaxation:
    """Return the relaxation that makes so much more free at a cause's place, of what other pods hold or is sick."""
    view = stage.view
    mask = bits_of(view.topology.numa_nodes) if cause.nodes is None else cause.nodes.bits
    if cause.unit == "CPUs":
        taken = view.topology.cpus_in_numa_nodes(mask) & ~view.assignable & ~view.reserved
        return Relaxation(cpus=bits_of(_whole_cores_first(view, taken)[:amount]))
    if cause.unit == "devices":
        held = {name for uid in view.device_ids for names in view.device_ids[uid] for name in _held(view, uid, names)}
        resource = next(one for one in view.devices.resources if one.resource == cause.resource)
        places = [one for one in resource.devices if bits_of(one.numa or ()) & mask or (cause.nodes is None)]
        busy = [one.id for one in places if one.healthy and one.id in held]
        sick = [one.id for one in places if not one.healthy]
        return Relaxation(devices={cause.resource: frozenset([*busy, *sick][:amount])})
    given: dict[tuple[int, str], int] = {}
    for node in iter_bits(mask):
        table = (view.memory[node].memory_map or {}).get(cause.resource)
        room = table.allocatable - table.free if table else 0
        given[node, cause.resource] = min(room, amount - sum(given.values()))
    return Relaxation(memory=given)


def _held(view: NodeView, uid: str, container: str) -> list[str]:
    return [name for names in view.devices_of(uid, container).values() for name in names]


def _whole_cores_first(view: NodeView, cpus: Bits) -> list[int]:
    cores = [core & cpus for core in view.topology.cores.values() if core & cpus]
    cores.sort(key=lambda core: -core.bit_count())
    return [cpu for core in cores for cpu in iter_bits(core)]


def _check_holders(view: NodeView, cause: Cause, *, first: bool) -> None:
    """The amounts of the holders are those that the node's ledgers show. With those of the `first` place the free
    amount makes up all that is there; at later ones more is free than on the node."""
    mask = bits_of(view.topology.numa_nodes) if cause.nodes is None else cause.nodes.bits
    pods: Counter[str] = Counter()
    for holder in cause.holders:
        if holder.kind in ("pod", "ended-init"):
            pods[holder.uid] += holder.amount
            if holder.uid not in view.pods:
                raise UntrueError(f"{holder.name} is not on the node")
    if cause.unit == "CPUs" and cause.code in ("short", "own-containers", "too-big"):
        on = view.topology.cpus_in_numa_nodes(mask)
        for uid in view.pods:
            if pods[uid] != (view.owned_by(uid) & on).bit_count():
                raise UntrueError(f"{uid} owns {(view.owned_by(uid) & on).bit_count()} CPUs there, not {pods[uid]}")
        total = cause.free + sum(holder.amount for holder in cause.holders)
        if first and total != on.bit_count():
            raise UntrueError(f"free and held CPUs are {total} of {on.bit_count()}: {cause}")
    if cause.unit == "bytes" and cause.code in ("short", "own-containers", "too-big"):
        tables = [
            (view.memory[node].memory_map or {}).get(cause.resource, NO_TABLE)
            for node in iter_bits(mask)
            if node in view.memory
        ]
        total = cause.free + sum(holder.amount for holder in cause.holders)
        known = all(holder.amount or holder.kind != "pod" for holder in cause.holders)
        if first and known and total != sum(table.total for table in tables):
            raise UntrueError(f"free and held bytes are {total} of {sum(table.total for table in tables)}: {cause}")
    if cause.code == "node-total" and sum(pods.values()) != cause.capacity - cause.free:
        raise UntrueError(f"the others request {cause.capacity - cause.free}, not {sum(pods.values())}")


def _check_gone(stage: Stage, cause: Cause) -> None:
    """Once its holders are gone, so is the cause."""
    uids = {holder.uid for holder in cause.holders if holder.kind in ("pod", "ended-init")}
    if any(holder.kind == "own" for holder in cause.holders):
        # With other pods gone the earlier containers of this one may take more there.
        return
    if cause.code not in ("short", "group", "whole-cores", "node-total", "pod-count") or not uids:
        return
    if sum(one.amount for one in cause.holders if one.uid) < cause.short:
        return
    left = stage.without(uids)
    if any(same_place(one, cause) for found in left.found for one in found.chain):
        raise UntrueError(f"without {sorted(uids)} the cause is still there: {cause}")


def main() -> None:
    """Check as many refusals as the command line says."""
    wanted, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    checked: Counter[str] = Counter()
    refusals = untrue = 0
    while refusals < wanted:
        for profile in PROFILES:
            for setup, pod in random_refusals(seed, profile):
                refusals += 1
                try:
                    checked.update(check(setup, pod))
                except UntrueError as error:
                    untrue += 1
                    print(f"seed {seed}, profile {profile}, pod {pod.metadata.name}: {error}", flush=True)
        seed += 1
    print(f"{refusals} refusals, {untrue} untrue; causes: {dict(checked.most_common())}; seeds to {seed}")
    sys.exit(1 if untrue else 0)


if __name__ == "__main__":
    main()
