"""Check the plugins of a policy: `python -m podslice.plugins.check POLICY.yaml`.

Each plugin gets 200 random requests in two processes with different hash seeds. A plugin that answers differently,
breaks its contract or takes more than 10 ms five times in a row is reported, and the exit code is 1.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from random import Random
from time import perf_counter

from podslice.config.policy import PodslicePolicy
from podslice.config.policy_file import load_policy
from podslice.machine.model import cpu_topology
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.cpu.picking.picker import Picker
from podslice.node.plugins.api import AskingPod, CPUAsk, CPUMachine, CPUNode
from podslice.node.plugins.contract import Stopwatch
from podslice.node.plugins.profile import PluginProfile
from podslice.node.plugins.resolve import make_plugin
from podslice.values.cpu_policy_options import CPUPolicyOptions
from podslice.values.errors import AdmissionError, PodsliceError
from podslice.values.quirks import PODSLICE

QUESTIONS = 200
MACHINE = "pack:2 numa:2(memory=64GB) l3:2 core:8 pu:2"
_SEEDS = ("1", "2")
_GROUPS = ("a", "b", "c")


def problems(path: str) -> list[str]:
    """Return what is wrong with the plugins that a policy file names, a line each. Raises `PodsliceError`."""
    found: dict[str, str] = {}
    # Two hash seeds: a plugin whose answers depend on the order of a set would decide otherwise after a restart.
    runs = [_in_process(path, seed) for seed in _SEEDS]
    for answers in runs:
        for name, (_, problem) in answers.items():
            if problem:
                found.setdefault(name, problem)
    for name, (answer, _) in runs[0].items():
        if answer != runs[1][name][0]:
            found.setdefault(name, "answers differ from process to process")
    return [f"plugin {name}: {problem}" for name, problem in found.items()]


def _in_process(path: str, seed: str) -> dict[str, tuple[list[object], str]]:
    ran = subprocess.run(
        [sys.executable, "-m", "podslice.plugins.check", "--answers", path],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        raise PodsliceError(ran.stderr.strip().splitlines()[-1] if ran.stderr.strip() else "a plugin ended its process")
    answers: dict[str, tuple[list[object], str]] = json.loads(ran.stdout)
    return answers


def answers(policy: PodslicePolicy) -> dict[str, tuple[list[object], str]]:
    """Return what each plugin answers to the same requests, and what is wrong with it."""
    machine = from_synthetic(MACHINE)
    topology = cpu_topology(machine)
    picker = Picker(topology, CPUPolicyOptions(), PODSLICE)
    found: dict[str, tuple[list[object], str]] = {}
    for entry in policy.plugins.profile:
        known = CPUMachine(machine, topology)
        profile = PluginProfile(known, [(entry, make_plugin(entry, known))], hint_scores=True)
        profile.time_calls(Stopwatch(perf_counter))
        wrong: list[str] = []
        random = Random(7)
        answered = [_ask_plugins(profile, picker, random, wrong) for _ in range(QUESTIONS)]
        found[entry.name] = answered, wrong[0] if wrong else ""
    return found


def _ask_plugins(profile: PluginProfile, picker: Picker, random: Random, wrong: list[str]) -> object:
    everything = profile.machine.all_cpus
    free = everything & random.getrandbits(everything.bit_length())
    node = CPUNode(profile.machine, free=free, default=everything, reserved=0)
    labels = {"app": random.choice(_GROUPS), "team": random.choice(_GROUPS)}
    pod = AskingPod(f"u{random.randrange(99)}", "default", "p", labels, {}, "Guaranteed", random.randrange(3), "", ())
    ask = CPUAsk(pod, "c", "app", "admit", random.randint(1, 8))

    def note(plugin: str, point: str, problem: str) -> None:
        wrong.append(f"{point}: {problem}")

    try:
        left = profile.filter(ask, free, node, note)
        if left.bit_count() < ask.count:
            return [left, profile.sort_key(pod, note)]
        found = profile.propose(ask, left, None, node, picker, search_budget=None, on_broken=note)
        effects = profile.effects(ask, found.pick.cpus, node, note)
    except AdmissionError as error:
        return error.message
    return [left, profile.sort_key(pod, note), found.pick.cpus, found.score, [repr(one) for one in effects]]


def main(arguments: list[str]) -> int:
    """Run the check and return the exit code."""
    if len(arguments) == 2 and arguments[0] == "--answers":
        print(json.dumps(answers(load_policy(arguments[1]))))
        return 0
    if len(arguments) != 1:
        print("usage: python -m podslice.plugins.check POLICY.yaml", file=sys.stderr)
        return 2
    try:
        load_policy(arguments[0])
        found = problems(arguments[0])
    except PodsliceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("\n".join(found) or "every plugin answers the same twice")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
