"""Check and repair the policy's state file against the CPU Manager's, and move promises between the two.

A kubelet with KEP-5554, as in 1.38, keeps them in `data` of its own file V4, under `originals` or, in later texts of
the KEP, `baselines`; both are read, the first is written. In both files a promise is the CPUs that a container got when
it was first admitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from podslice.node.checkpoints import policy_state
from podslice.node.checkpoints.content import Content
from podslice.node.checkpoints.policy_state import (
    IntentTexts,
    MachineTexts,
    MixedTexts,
    PodCPUTexts,
    PolicyContent,
)
from podslice.node.checkpoints.releases import Release
from podslice.node.cpu.checkpoint import CPUCheckpoint
from podslice.state_files.convert import Rewritten
from podslice.state_files.documents import StateFinding
from podslice.state_files.salvage import object_map, read_damaged
from podslice.values.cpuset import Bits, CPUSetError, format_bits, iter_bits, parse_bits, parse_bits_or_empty
from podslice.values.go.godump import decode_data
from podslice.values.go.gojson import CheckpointError, Members, dump_map, dump_string, dump_value, parse

Promises = dict[str, dict[str, str]]
"""CPU lists by pod UID and container."""
FIRST_WITH_PROMISES = 38
"""Minor version of the first kubelet that is to keep promises (KEP-5554, alpha)."""
_WRITTEN = ("originals", "original")
_KEYS = dict((_WRITTEN, ("baselines", "baseline")))


# Verify


def check_promises(policy: PolicyContent, unknown: str, cpus: CPUCheckpoint | None) -> Iterator[StateFinding]:
    """Yield what is wrong with the policy's file by itself, and against the CPU Manager's (`cpus`), which wins where
    they disagree."""
    if policy.version != policy_state.VERSION:
        text = f"is {policy.version}, this release knows {policy_state.VERSION}: it starts without the promises"
        yield StateFinding("error", "version", "version", text)
    for uid, named in policy.originals.items():
        for name, text in named.items():
            held = None if cpus is None else ((cpus.entries or {}).get(uid) or {}).get(name, "")
            yield from _check_promise(f"originals.{uid}.{name}", text, held, "container")
    for uid, text in policy.pod_originals.items():
        held = None if cpus is None else format_bits((cpus.pod_entries or {}).get(uid, 0))
        yield from _check_promise(f"podOriginals.{uid}", text, held, "pod")
    yield from _check_order(policy, cpus)
    yield from _check_owners(policy, cpus)
    for uid, intent in policy.intents.items():
        what, by = (
            ("move", "what the CPU Manager's file says") if intent.move else ("resize", "what the pod was granted")
        )
        text = f"a {what} from {_sets_text(intent.before)} to {_sets_text(intent.after)} was being written"
        text += f"; podslice finishes or undoes it when it starts, by {by}"
        yield StateFinding("warning", "unfinished", f"intents.{uid}", text)
    if unknown:
        names = ", ".join(key for key, _ in _members(unknown))
        yield StateFinding("note", "unknown-member", names, "is not known to this release, and lost when it writes")


def _check_promise(path: str, text: str, held: str | None, whose: str) -> Iterator[StateFinding]:
    """Yield what is wrong with a promise (CPU list `text`) to an owner that has the CPUs `held` (None: not known)."""
    try:
        promised = parse_bits(text)
    except CPUSetError as error:
        yield StateFinding("error", "cpu-list", path, f"{text!r} is not a CPU list: {error}")
        return
    missing = 0 if held is None else promised & ~parse_bits_or_empty(held)
    if missing:
        words = f"promises CPUs {text}, but the {whose} has {held or 'none'} in {'entries' if held else 'its file'}"
        yield StateFinding("warning", "promise-not-held", path, f"{words}: podslice starts without this promise")


def _check_order(policy: PolicyContent, cpus: CPUCheckpoint | None) -> Iterator[StateFinding]:
    """Yield orders that do not list the promised CPUs, ascending, and then the others, each once."""
    for uid, named in policy.order.items():
        for name, order in named.items():
            held = None if cpus is None else ((cpus.entries or {}).get(uid) or {}).get(name, "")
            given = policy.originals.get(uid, {}).get(name, "")
            wrong = (
                len(set(order)) != len(order) or list(iter_bits(parse_bits_or_empty(given))) != order[: _count(given)]
            )
            if wrong or (held is not None and sorted(order) != list(iter_bits(parse_bits_or_empty(held)))):
                text = "does not list the promised CPUs and then the others, each once; they count in ascending order"
                yield StateFinding("warning", "order", f"order.{uid}.{name}", text)


def _check_owners(policy: PolicyContent, cpus: CPUCheckpoint | None) -> Iterator[StateFinding]:
    """Yield entries of containers that have no CPUs in the CPU Manager's file."""
    if cpus is None:
        return
    for member, pods in (("classes", policy.classes), ("mixed", policy.mixed), ("plugins", policy.plugins)):
        for uid, named in pods.items():
            own = {name for name, text in ((cpus.entries or {}).get(uid) or {}).items() if parse_bits_or_empty(text)}
            own |= {""} if (cpus.pod_entries or {}).get(uid) else set()
            for name in sorted(named.keys() - own):
                text = f"the {'container' if name else 'pod'} has no CPUs in its file: podslice starts without this"
                yield StateFinding("warning", "no-such-owner", f"{member}.{uid}.{name}", text)


def _count(text: str) -> int:
    return parse_bits_or_empty(text).bit_count()


def _sets_text(had: PodCPUTexts) -> str:
    whole = {"(whole pod)": had.pod_cpus} if had.pod_cpus else {}
    return " ".join(f"{name}:{cpus or 'none'}" for name, cpus in {**whole, **had.containers}.items()) or "shared CPUs"


# Repair


_BY_LOWER_CASE = {name.lower(): name for name in policy_state.MEMBERS}


def repair_promises(data: bytes, cpus: CPUCheckpoint | None) -> Rewritten:
    """Return the policy's file without entries that do not hold. Members that this release does not know stay. Without
    the CPU Manager's file promises are not checked against it. Raises `InputError` for JSON that is another file."""
    whole, actions = _read_content(data)
    # A newer release may give members another meaning: no repair is better than a wrong one.
    version = whole.get("version", policy_state.VERSION)
    if isinstance(version, int) and version > policy_state.VERSION:
        return Rewritten(data, "data", [f"version {version} is newer than this release; the file stays as it is"])
    content: dict[str, Any] = {**whole, "version": policy_state.VERSION}
    if not isinstance(content.get("bootId"), str):
        content["bootId"] = ""
    if "machine" in content and not _is_machine(content["machine"]):
        del content["machine"]
        actions.append("machine: cannot be read; dropped: after a reboot the numbers of CPUs count")
    for member, readable in (
        ("originals", dict[str, dict[str, str]]),
        ("podOriginals", dict[str, str]),
        ("order", dict[str, dict[str, list[policy_state.CPUId]]]),
        ("classes", dict[str, dict[str, list[str]]]),
        ("mixed", dict[str, dict[str, MixedTexts]]),
        ("intents", dict[str, IntentTexts]),
        ("plugins", dict[str, dict[str, dict[str, str]]]),
    ):
        if member in content:
            content[member] = _readable_members(content[member], member, readable, actions)
    read = msgspec.convert(content, PolicyContent)
    for finding in list(check_promises(read, "", cpus)):
        if finding.code != "unfinished":
            _drop(content, finding.path)
            actions.append(f"{finding.path}: {finding.text}; dropped")
    content = {key: value for key, value in content.items() if value or key not in policy_state.MEMBERS - {"bootId"}}
    try:
        same = policy_state.decode(data) == msgspec.convert(content, PolicyContent) and not actions
    except CheckpointError as error:
        same = False
        if not actions:
            actions.append(f"{error}; what it says holds, and gets its checksum")
    return Rewritten(data if same else policy_state.envelop(content), "data", actions)


def _is_machine(value: Any) -> bool:
    try:
        return msgspec.convert(value, MachineTexts).value() is not None
    except msgspec.ValidationError:
        return False


def _read_content(data: bytes) -> tuple[dict[str, Any], list[str]]:
    """Return the members that can be read, by name, and remarks on what was lost. Raises `InputError`."""
    try:
        content = _content_of(data)
    except (CheckpointError, msgspec.MsgspecError):
        content = {}
    if content.keys() & policy_state.MEMBERS:
        return content, []
    members, actions = read_damaged(data, _BY_LOWER_CASE.keys())
    return {_BY_LOWER_CASE.get(name, name): member for name, member in members.items()}, actions


def _readable_members(value: Any, member: str, readable: Any, actions: list[str]) -> dict[str, Any]:
    """Return the entries of a member that have the type `readable`; the others, by pod, are noted in `actions`."""
    kept = {}
    for uid, entry in value.items() if isinstance(value, dict) else ():
        try:
            msgspec.convert({uid: entry}, readable)
        except msgspec.ValidationError:
            actions.append(f"{member}.{uid}: cannot be read; dropped")
        else:
            kept[uid] = entry
    return kept


def _drop(content: dict[str, Any], path: str) -> None:
    member, _, rest = path.partition(".")
    named = content[member]
    # UIDs are free text in a damaged file and may contain dots: the longest one that fits counts.
    uid = max((uid for uid in named if rest == uid or rest.startswith(f"{uid}.")), key=len)
    if rest == uid:
        del named[uid]
        return
    name = rest[len(uid) + 1 :]
    named[uid] = {other: value for other, value in named[uid].items() if other != name}
    if not named[uid]:
        del named[uid]


# Convert


def kubelet_promises(unknown: str) -> tuple[Promises, str]:
    """Split the further members of a V4 file (JSON text) into promises and the other members."""
    found: Promises = {}
    others = Members()
    for key, value in _members(unknown):
        if key in _KEYS and isinstance(value, Members):
            for uid, named in value:
                for name, entry in named if isinstance(named, Members) else ():
                    text = dict(entry).get(_KEYS[key]) if isinstance(entry, Members) else None
                    if isinstance(text, str):
                        found.setdefault(uid, {})[name] = text
        else:
            others.append((key, value))
    return found, "".join(f",{dump_string(key)}:{dump_value(value)}" for key, value in others)


def find_held_promises(members: Mapping[str, Any], checkpoint: CPUCheckpoint) -> Promises:
    """Return the promises in a damaged file whose CPUs the container still has in `checkpoint`, what is left of that
    file. `members` are by lower-case key."""
    found: Promises = {}
    for member, key in _KEYS.items():
        for uid, named in object_map(members.get(member)).items():
            for name, entry in object_map(named).items():
                text = entry.get(key)
                if isinstance(text, str) and _is_within(
                    text, ((checkpoint.entries or {}).get(uid) or {}).get(name, "")
                ):
                    found.setdefault(uid, {})[name] = text
    return found


def replace_kubelet_promises(unknown: str, promises: Promises) -> str:
    """Return the further members of a V4 file (JSON text) with these promises in place of its own."""
    _, others = kubelet_promises(unknown)
    if not promises:
        return others
    member, key = _WRITTEN
    pods = {
        uid: dump_map({name: f'{{"{key}":{dump_string(text)}}}' for name, text in sorted(named.items())})
        for uid, named in promises.items()
    }
    return f',"{member}":{dump_map(pods)}{others}'


class Carried(NamedTuple):
    """The CPU Manager's file and the policy's (None: there is none), with the promises where their reader looks."""

    cpu: Content
    policy: bytes | None


def carry_promises(cpu: Content, policy: bytes | None, target: Release) -> Carried:
    """Move promises for another kubelet: into the CPU Manager's file for one that knows them, else back into the
    policy's. Raises `CheckpointError` for a policy file that is damaged."""
    checkpoint = cpu.checkpoint
    assert isinstance(checkpoint, CPUCheckpoint)
    own = PolicyContent(policy_state.VERSION) if policy is None else policy_state.decode(policy)
    if target.minor >= FIRST_WITH_PROMISES:
        known, _ = kubelet_promises(cpu.unknown)
        return Carried(
            replace(cpu, unknown=replace_kubelet_promises(cpu.unknown, _all_promises(checkpoint, known, own))), policy
        )
    known, others = kubelet_promises(cpu.unknown)
    if not known:
        return Carried(cpu, policy)
    entries = checkpoint.entries or {}
    originals = {uid: dict(named) for uid, named in own.originals.items()}
    for uid, named in known.items():
        for name, text in named.items():
            # A promise of all CPUs that the container has is the default, and not written.
            held, promised = parse_bits_or_empty((entries.get(uid) or {}).get(name, "")), parse_bits_or_empty(text)
            if promised and promised & ~held == 0 and promised != held:
                originals.setdefault(uid, {})[name] = text
    content = {"version": policy_state.VERSION, "bootId": ""} if policy is None else _content_of(policy)
    if originals != own.originals:
        policy = policy_state.envelop({**content, "originals": originals})
    return Carried(replace(cpu, unknown=others), policy)


def _all_promises(checkpoint: CPUCheckpoint, known: Promises, own: PolicyContent) -> Promises:
    """Return a promise for every container with exclusive CPUs: the policy file's, else the CPU Manager file's
    (`known`), else all CPUs that it has. Containers of pods with pod entries get none without one in a file."""
    promises: Promises = {}
    for uid, named in (checkpoint.entries or {}).items():
        for name, text in (named or {}).items():
            promised = own.originals.get(uid, {}).get(name) or known.get(uid, {}).get(name)
            whole_pod = uid in (checkpoint.pod_entries or {})
            if promised is not None and _is_within(promised, text):
                promises.setdefault(uid, {})[name] = promised
            elif not whole_pod:
                promises.setdefault(uid, {})[name] = text
    return promises


def _is_within(promised: str, held: str) -> bool:
    wanted: Bits = parse_bits_or_empty(promised)
    return bool(wanted) and wanted & ~parse_bits_or_empty(held) == 0


def _content_of(policy: bytes) -> dict[str, Any]:
    return msgspec.json.decode(decode_data(policy).data, type=dict[str, Any])


def _members(unknown: str) -> Members:
    value = parse(f"{{{unknown[1:]}}}".encode())
    assert isinstance(value, Members)
    return value
