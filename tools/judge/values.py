"""Compare the nodes of a simulated cluster with real ones: same requests, same answers, same states.

`python -m tools.judge.values --questions 1000000` puts pods to nodes that `machines`, `kubelets` and `pods` draw,
through `node.answers` and through `Node` in lockstep, and compares verdict, reason and the whole state after every
admission and removal. It prints counts, and the first difference with the seed that reproduces it.
"""

from __future__ import annotations

import argparse
import sys
import time
from random import Random
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from podslice import Node
from podslice.api.pod.spec import Pod, pod_from_dict
from podslice.config.kubelet import KubeletConfig
from podslice.machine.devices import inventory_from_data
from podslice.machine.model import Machine
from podslice.node.answers import AnswerMemo, FleetState, PodHolding, StateNumbers, ValueAnswers, make_answers
from podslice.node.state import NodeState
from podslice.values.errors import InputError, StartError, UpstreamDefectError
from podslice.values.quirks import Quirks
from tools.judge.chance import often
from tools.judge.histories import draw_devices
from tools.judge.kubelets import draw_kubelet
from tools.judge.machines import draw_machine
from tools.judge.pods import PodDrawer

_STEPS = 200
_SHAPES = 12
_BY_SUMS = "OutOf"
_DEFECTS = frozenset(Quirks.__struct_fields__)
"""Reasons after which a comparison ends: upstream's kubelet crashes there, so there is no next state."""


class Counts(NamedTuple):
    """Amounts of what was compared. `by_sums`: refusals by the node's sums of requests, which a state does not hold."""

    nodes: int = 0
    questions: int = 0
    refusals: int = 0
    by_sums: int = 0
    removals: int = 0
    remembered: int = 0

    def plus(self, other: Counts) -> Counts:
        """Return the sum of both."""
        return Counts(*(one + more for one, more in zip(self, other, strict=True)))


class DifferenceError(Exception):
    """Raised when the anonymous state of a simulated node answers differently from the node."""


def draw_node(r: Random, profile: str) -> tuple[Node, PodDrawer] | None:
    """Draw a node and a drawer of its pods; None where the kubelet does not start."""
    machine = draw_machine(r, most_nodes=r.choice([2, 4, 8]), most_cpus=r.choice([64, 128, 256]))
    devices = draw_devices(r, machine) if often(r, 0.5) else []
    config = msgspec.convert({"evictionHard": {}, **draw_kubelet(r, machine)}, KubeletConfig)
    try:
        inventory = inventory_from_data(devices) if devices else None
        node = Node(msgspec.convert(machine, Machine), config, profile=profile, devices=inventory)
    except (StartError, InputError):
        return None
    return node, PodDrawer(r, machine, devices, 2)


def lockstep(seed: int, *, steps: int = _STEPS, profile: str = "podslice") -> Counts:
    """Run `steps` admissions and removals on one drawn node both ways. Raises `DifferenceError`."""
    r = Random(seed)
    drawn = draw_node(r, profile)
    if drawn is None:
        return Counts()
    node, drawer = drawn
    pod_level = 0.4 if node.rules.gates["PodLevelResourceManagers"] else 0.1
    pods = [pod_from_dict(drawer.pod(pod_level=often(r, pod_level))) for _ in range(_SHAPES)]
    computing = make_answers(node.rules, node.state, pods, StateNumbers())
    answers = AnswerMemo([computing], len(pods), room=r.choice([8, 64, 4096]), verify=r.choice([0, 1, 7]))
    state = computing.start
    running: dict[str, PodHolding] = {}
    questions = refusals = by_sums = removals = 0
    for step in range(steps):
        questions += 1
        shape = r.randrange(len(pods))
        answer = answers.admit(0, state, shape, step)
        decision = _admit(node, pods[shape], f"pod-{step}")
        if decision == answer.reason and decision in _DEFECTS:
            break
        if decision.startswith(_BY_SUMS):
            by_sums += 1
            state = answer.state if state.named is not None else state
        elif decision != answer.reason:
            reason = answer.reason or "admitted"
            raise DifferenceError(f"seed {seed}, step {step}: {reason}, not {decision or 'admitted'}")
        elif decision:
            refusals += 1
            state = answer.state
        else:
            assert answer.holding is not None
            if computing.never_admits(shape):
                raise DifferenceError(f"seed {seed}, step {step}: admitted, which no state ever does")
            if isinstance(computing, ValueAnswers) and computing.take(state, answer.holding) is not answer.state:
                raise DifferenceError(f"seed {seed}, step {step}: what the pod has, taken, is another state")
            _compare_holding(computing.holding_of(node.state, f"pod-{step}"), answer.holding, f"seed {seed}, {step}")
            state = answer.state
            running[f"pod-{step}"] = answer.holding
        _compare(node.state, state, f"seed {seed}, step {step}")
        leaving = 0 if not running else r.choice([0, 0, 1, 1, 2]) if not decision else r.choice([0, 1, 2, 3])
        for _ in range(min(leaving, len(running))):
            uid = r.choice(list(running))
            node.remove(uid)
            state = answers.release(0, state, running.pop(uid))
            removals += 1
            _compare(node.state, state, f"seed {seed}, step {step}, {uid} gone")
    return Counts(1, questions, refusals, by_sums, removals, answers.asked - answers.computed)


def _admit(node: Node, pod: Pod, uid: str) -> str:
    """Admit a pod and return the reason of its refusal; empty when it was admitted."""
    try:
        return node.admit(replace(pod, metadata=replace(pod.metadata, uid=uid))).reason
    except UpstreamDefectError as defect:
        return defect.name


def _compare(node: NodeState, value: FleetState, where: str) -> None:
    used = tuple(node.device.used.get(name, 0) for name in node.device.pools)
    ours, theirs = (value.cpus, value.machine, value.used), (node.cpu.default, node.memory.machine_state, used)
    if ours != theirs:
        raise DifferenceError(f"{where}: {ours} is not {theirs}")


def _compare_holding(theirs: PodHolding, ours: PodHolding, where: str) -> None:
    if theirs._replace(uid="") != ours._replace(uid=""):
        raise DifferenceError(f"{where}: {ours} is not {theirs}")


def main() -> int:
    """Compare until `--questions` pods were tried; exit 1 at a difference."""
    parser = argparse.ArgumentParser(prog="python -m tools.judge.values", description=__doc__)
    parser.add_argument("--questions", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1, help="of the first node")
    parser.add_argument("--profile", default="podslice", choices=["podslice", "kubelet-1.36"])
    arguments = parser.parse_args()
    counts, seed, begun = Counts(), arguments.seed, time.process_time()
    while counts.questions < arguments.questions:
        try:
            counts = counts.plus(lockstep(seed, profile=arguments.profile))
        except DifferenceError as difference:
            print(difference)
            return 1
        seed += 1
    shown = ", ".join(f"{amount} {name.replace('_', ' ')}" for name, amount in counts._asdict().items())
    print(f"seeds {arguments.seed} to {seed - 1}: {shown}; 0 different; {time.process_time() - begun:.0f} s CPU")
    return 0


if __name__ == "__main__":
    sys.exit(main())
