"""Histories that end with a start on an edited state file."""

from __future__ import annotations

import copy
import json
from random import Random

from podslice.node.cpu import checkpoint as checkpoint_cpu
from podslice.node.memory import checkpoint as checkpoint_memory
from podslice.replay.run import run_case
from podslice.values.cpuset import CPUSet, CPUSetError
from podslice.values.go.gojson import CheckpointError
from podslice.values.quirks import KUBELET_1_36
from tools.judge.chance import MIB, Json, cpu_list, often, pick
from tools.judge.histories import draw_history
from tools.judge.kubelets import spare_lists
from tools.judge.pods import PodDrawer

_PIECES = (
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    '"',
    "0",
    "-1",
    "1.5",
    "1e3",
    "null",
    "true",
    "\\u0041",
    " ",
    "\n",
    "é",
    '"x":1,',
)
"""Texts inserted into a file to damage it."""


def draw_edit(r: Random, name: str) -> Json:
    """Draw a history, a restart on an edited file, and pods that arrive afterwards."""
    case, edited = _history_and_file(r, name)
    restart: Json = {"op": "restart", "files": edited}
    if often(r, 0.2):
        restart["pluginsReady"] = True
    case["ops"].append(restart)
    later = PodDrawer(r, case["machine"], case.get("devices", []), spare_lists(case["machine"], case["kubelet"]))
    for _ in range(r.choice([1, 2, 3])):
        case["ops"].append({"op": "admit", "pod": later.pod(pod_level=often(r, 0.4), prefix="later")})
    if often(r, 0.6):
        case["ops"].append({"op": "restart"})
    return case


def draw_file(r: Random, name: str) -> Json:
    """Draw an edited state file that is to be read in one of its versions."""
    _, edited = _history_and_file(r, name)
    ((file, text),) = edited.items()
    if often(r, 0.6):
        place = r.randrange(len(text) + 1)
        insert = r.choice(["", "", *_PIECES])
        text = text[:place] + insert + text[place + r.choice([0, 1, 1, 3]) :]
    kind = "cpu" if file.startswith("cpu") else "memory"
    version = r.choice(["v1", "v2", "v3"] if kind == "cpu" else ["v1", "v2"])
    case: Json = {"name": name, "type": "verifyCheckpoint", "kind": kind, "version": version, "body": text}
    return case | ({"featureGates": {"PodLevelResourceManagers": True}} if often(r, 0.5) else {})


def _history_and_file(r: Random, name: str) -> tuple[Json, Json]:
    """Draw a history and one of its last state files, edited, by name."""
    while True:
        case = draw_history(r, name, length=pick(r, (3, 3), (3, 6), (1, 12)))
        operations = run_case(case, KUBELET_1_36).get("ops", [])
        good = [i for i, one in enumerate(operations) if one.get("ok") and one.get("state", {}).get("cpuCheckpoint")]
        if good:
            last = r.choice(good)
            edited = _edit_file(r, operations[last]["state"])
            if edited:
                case["ops"] = case["ops"][: last + 1]
                return case, edited


def _edit_file(r: Random, state: Json) -> Json:
    """Edit one of the two state files in one to three places; empty if the file cannot be edited."""
    kind = "cpu" if not state.get("memoryCheckpoint") or often(r, 0.5) else "memory"
    content = json.loads(state[f"{kind}Checkpoint"])
    # Version v1 maps container ids to CPUs, not pods to containers; the edits below are for the later versions.
    if any(isinstance(value, str) for value in content.get("entries", {}).values()):
        return {}
    for _ in range(pick(r, (4, 1), (2, 2), (1, 3))):
        (_change_cpu if kind == "cpu" else _change_memory)(r, content)
    for key in ("entries", "podEntries"):
        if not content.get(key, True):
            del content[key]
    seal = pick(r, (30, "zero"), (10, "old"), (60, "right"))
    if seal == "zero":
        content["checksum"] = 0
    text = json.dumps(content, separators=(",", ":"))
    if seal == "right":
        text = _seal(kind, text, pod_level="podEntries" in content) or text
    if often(r, 0.03):
        text = r.choice(["", "{}", "null", "[]", text[:-5], text + " "])
    return {f"{kind}_manager_state": text}


def _seal(kind: str, text: str, *, pod_level: bool) -> str | None:
    """Return the file with its correct checksum, None where it cannot be decoded."""
    try:
        if kind == "cpu":
            cpu = checkpoint_cpu.decode(text.encode(), "v3")
            return checkpoint_cpu.encode(cpu, "v3" if pod_level else "v2").decode()
        memory = checkpoint_memory.decode(text.encode())
        return checkpoint_memory.encode(memory, "v2" if pod_level else "v1").decode()
    except CheckpointError:
        return None


def _members(text: str) -> set[int]:
    try:
        return set(CPUSet.parse(text))
    except CPUSetError:
        return set()


def _change_cpu(r: Random, content: Json) -> None:
    default = _members(content["defaultCpuSet"])
    entries: Json = content.setdefault("entries", {})
    pods: Json = content.get("podEntries", {})
    kinds = [(20.0, "give"), (10.0, "default"), (5.0, "policy")]
    if entries:
        kinds += [(15, "drop"), (10, "shrink"), (10, "text"), (10, "swap")]
    if pods:
        kinds.append((12, "pod"))
    kind = pick(r, *kinds)
    if kind == "give" and default:
        cpu = r.choice(sorted(default))
        entries.setdefault(r.choice([*entries, "ghost"]), {})[r.choice(["c0", "c1", "zz"])] = str(cpu)
        if often(r, 0.7):
            content["defaultCpuSet"] = cpu_list(default - {cpu})
    elif kind == "default":
        whole = content["defaultCpuSet"]
        content["defaultCpuSet"] = r.choice(
            ["", "0-", "0,0", " 1", "0-3", f"{whole},999", cpu_list(sorted(default)[1:])]
        )
    elif kind == "policy":
        content["policyName"] = r.choice(["none", "", "Static"])
    elif kind == "pod":
        _change_pod_cpus(r, pods)
    elif kind in ("drop", "shrink", "text", "swap"):
        _change_entry(r, content, kind, default)


def _change_entry(r: Random, content: Json, kind: str, default: set[int]) -> None:
    entries: Json = content["entries"]
    uid = r.choice(list(entries))
    if kind == "drop":
        gone = entries.pop(uid)
        if often(r, 0.7):
            content["defaultCpuSet"] = cpu_list(default.union(*map(_members, gone.values())))
    elif kind == "swap":
        other = r.choice(list(entries))
        entries[uid], entries[other] = entries[other], entries[uid]
    elif entries[uid]:
        container = r.choice(list(entries[uid]))
        own = _members(entries[uid][container])
        if kind == "text":
            entries[uid][container] = r.choice(["", "x", "1-", "0"])
        elif own:
            cpu = r.choice(sorted(own))
            entries[uid][container] = cpu_list(own - {cpu})
            if often(r, 0.7):
                content["defaultCpuSet"] = cpu_list(default | {cpu})


def _change_pod_cpus(r: Random, pods: Json) -> None:
    uid = r.choice(list(pods))
    kind = r.choice(["drop", "shrink", "ghost"])
    if kind == "drop":
        del pods[uid]
    elif kind == "shrink":
        own = sorted(_members(pods[uid].get("cpuSet", "")))
        pods[uid]["cpuSet"] = cpu_list(own[:-1])
    else:
        pods["ghost"] = {"cpuSet": "0"}


def _change_memory(r: Random, content: Json) -> None:
    ledger: Json = content.get("machineState", {})
    entries: Json = content.get("entries", {})
    pods: Json = content.get("podEntries", {})
    kinds = [(5.0, "policy")]
    if ledger:
        kinds += [(30, "table"), (10, "assignments"), (10, "cells"), (3, "node")]
    if entries:
        kinds += [(15, "drop"), (10, "size"), (8, "affinity")]
    if pods:
        kinds.append((12, "pod"))
    kind = pick(r, *kinds)
    if kind == "policy":
        content["policyName"] = r.choice(["None", "", "static"])
    elif kind in ("table", "assignments", "cells", "node"):
        _change_ledger(r, ledger, kind)
    elif kind == "drop":
        entries.pop(r.choice(list(entries)))
    elif kind in ("size", "affinity"):
        blocks = r.choice([blocks for named in entries.values() for blocks in named.values()] or [[]])
        if blocks and kind == "size":
            blocks[0]["size"] = max(0, blocks[0]["size"] + r.choice([1, -1, MIB]))
        elif blocks:
            blocks[0]["numaAffinity"] = r.choice([[], [0], [1], [0, 1], [7]])
    elif kind == "pod":
        uid = r.choice(list(pods))
        blocks = pods[uid].get("memoryBlocks")
        if blocks and often(r, 0.5):
            blocks[0]["size"] += r.choice([1, MIB])
        else:
            del pods[uid]


def _change_ledger(r: Random, ledger: Json, kind: str) -> None:
    node = r.choice(list(ledger))
    if kind == "node":
        del ledger[node]
    elif kind == "assignments":
        ledger[node]["numberOfAssignments"] += r.choice([-1, 1])
    elif kind == "cells":
        ledger[node]["cells"] = copy.copy(r.choice([[], [0], [0, 1], [1, 0]]))
    else:
        table = r.choice(list(ledger[node]["memoryMap"].values()))
        field = r.choice(["free", "reserved", "allocatable", "total", "systemReserved"])
        table[field] = max(0, table[field] + r.choice([-1, 1, 4096, -MIB]))
