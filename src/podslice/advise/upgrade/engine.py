"""Run a node and its pods under the kubelet of another release, and compare.

Both kubelets run on the same node: the newer one starts with the state files that the older one left and readmits the
pods, as a restart does. What differs afterwards is found by comparing the two nodes, never by reading a table. A
difference has the cause without which it would not be there: one fact, gate default or defect of the release, found by
giving the newer kubelet the older one's, one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from podslice.advise.upgrade.changes import Asked, row_of, rows_between
from podslice.advise.upgrade.configuration import Adjusted, adjust, can_be_set, configuration_changes, gate_changes
from podslice.advise.upgrade.held import Held, Key, describe, held_by
from podslice.api.pod.spec import Pod
from podslice.config.kubelet import KubeletConfig
from podslice.node.checkpoints.names import STAND_IN_NAMESPACE
from podslice.node.node import Node
from podslice.node.rules import NodeRules
from podslice.values.errors import StartError, UpstreamDefectError
from podslice.values.quirks import Quirks, quirks_in
from podslice.values.releases.release import Release
from podslice.values.releases.table import RELEASES

_NO_FACTS = ("minor", "proof", "rows", "gates", "needs", "cpu_options", "topology_options", "config_fields")


class Change(msgspec.Struct, frozen=True, rename="camel"):
    """One difference. `subject`: a pod as namespace/name, or a field of the configuration. `harms`: it refuses a
    running pod, or takes CPUs or memory from it. `cause`: what of the release brings it about, empty where several
    changes do so together. `node`: where, in an answer about several nodes."""

    subject: str
    text: str
    harms: bool = False
    cause: str = ""
    node: str = ""


class Upgrade(msgspec.Struct, frozen=True, rename="camel"):
    """The way from one release to another. `errors`: why the newer kubelet does not start with the configuration as it
    is, or with the state files; empty where it does. `configuration`: what becomes of its gates and options. `running`:
    pods after the restart; `recreated`: pods made anew on the drained node; `rollback`: running pods when the older
    kubelet starts again. `also`: other changes that can concern this node."""

    before: str
    after: str
    proven: bool
    errors: tuple[str, ...]
    configuration: tuple[Change, ...]
    running: tuple[Change, ...]
    recreated: tuple[Change, ...]
    rollback: tuple[Change, ...]
    also: tuple[str, ...]

    @property
    def harms(self) -> bool:
        """Whether the kubelet does not start, or a running pod is harmed."""
        return bool(self.errors) or any(one.harms for one in self.running)


class _Kubelet(NamedTuple):
    """A kubelet of a release on one machine: what a start needs."""

    rules: NodeRules
    config: KubeletConfig
    release: Release
    quirks: Quirks

    def start(self, files: Mapping[str, bytes] | None = None) -> Node:
        """Raises `StartError`."""
        return Node.like(self.rules, config=self.config, quirks=self.quirks, release=self.release, files=files)

    def restarted(self, pods: Sequence[Pod], files: Mapping[str, bytes]) -> tuple[Node, Held]:
        """Start with state files and readmit the pods; return the node, and what the pods have then. Raises
        `StartError`."""
        node = self.start(files)
        refused = {one.uid: f"{one.reason}: {one.message}" for one in node.readmit(pods)}
        return node, held_by(node, pods, refused)

    def filled(self, pods: Iterable[Pod]) -> Held:
        """Start without state and admit the pods one after the other; return what they have then. Raises
        `StartError`."""
        node, refused = self.start(), {}
        listed = list(pods)
        for pod in listed:
            try:
                decision = node.admit(pod)
            except UpstreamDefectError as defect:
                refused[pod.metadata.uid] = defect.sentence
                continue
            if not decision.admitted:
                refused[decision.uid] = f"{decision.reason}: {decision.message}"
        return held_by(node, listed, refused)


def walk(
    node: Node,
    pods: Sequence[Pod],
    to: Release,
    *,
    step_by_step: bool = False,
    config: KubeletConfig | None = None,
) -> list[Upgrade]:
    """Return the upgrade of a node with these running pods to another release; with `step_by_step` each minor release
    on the way, one after the other. `config` is the node's configuration with fields that its release ignores. The node
    is left as it is."""
    here, goal = node.rules.release.minor, to.minor
    between = [minor for minor in RELEASES if min(here, goal) <= minor <= max(here, goal) and minor != here]
    stops = sorted(between, reverse=goal < here) if step_by_step else [goal]
    now = _Kubelet(node.rules, config or node.rules.config, node.rules.release, node.rules.quirks)
    files, running, found = dict(node.files), list(pods), list[Upgrade]()
    for minor in stops:
        step, now, files, running = _step(now, files, running, RELEASES[minor])
        found.append(step)
    return found


def _step(
    old: _Kubelet, files: dict[str, bytes], pods: list[Pod], release: Release
) -> tuple[Upgrade, _Kubelet, dict[str, bytes], list[Pod]]:
    """Return one upgrade, and the newer kubelet with its files and the pods that it keeps."""
    raw = old._replace(release=release, quirks=quirks_in(release, old.quirks))
    errors, adjusted = _start_errors(raw), Adjusted(old.config, ())
    if errors:
        adjusted = adjust(old.config, release)
    new = raw._replace(config=adjusted.config)
    settings = [*adjusted.problems, *configuration_changes(adjusted.config, old.release, release)]
    pair = sorted((old.release.minor, release.minor))
    asked = Asked(old.config, old.rules.inventory, tuple(pods))
    also = tuple(str(row) for row in rows_between(pair[0], pair[1], asked))
    step = Upgrade(
        str(old.release),
        str(release),
        release.proof == "recorded",
        errors,
        tuple(Change(one.subject, one.text, harms=one.stops) for one in settings),
        (),
        (),
        (),
        also,
    )
    if still := _start_errors(new):
        # Another setting than those that are left out.
        return replace(step, errors=tuple(dict.fromkeys((*errors, *still)))), new, files, pods
    causes = _Causes(old, new)
    listed = [pod for pod in pods if pod.metadata.namespace != STAND_IN_NAMESPACE]
    anew = causes.explain(old.filled(listed), new.filled(listed), lambda kubelet: kubelet.filled(listed), run=False)
    step = replace(step, recreated=anew)
    try:
        node, after = new.restarted(pods, files)
    except StartError as problem:
        text = f"with the state files of the {old.release} kubelet: {problem}"
        return replace(step, errors=(*errors, text)), new, {}, pods
    try:
        _, before = old.restarted(pods, files)
    except StartError as problem:
        again = Change("state files", f"the {old.release} kubelet would not start with them again: {problem}")
        return replace(step, running=(again,)), new, dict(node.files), pods
    running = causes.explain(before, after, lambda kubelet: kubelet.restarted(pods, files)[1], run=True)
    kept = [pod for pod in pods if not after.refused(pod.metadata.uid)]
    left = dict(node.files)
    return replace(step, running=running, rollback=_roll_back(old, kept, left, after)), new, left, kept


def _start_errors(kubelet: _Kubelet) -> tuple[str, ...]:
    try:
        kubelet.start()
    except StartError as error:
        return (str(error),)
    return ()


def _roll_back(old: _Kubelet, pods: Sequence[Pod], files: Mapping[str, bytes], now: Held) -> tuple[Change, ...]:
    """Return what running pods meet when the older kubelet starts again, on the files of the newer one."""
    try:
        _, then = old.restarted(pods, files)
    except StartError as error:
        return (Change("state files", f"the {old.release} kubelet does not start with them: {error}", harms=True),)
    return tuple(Change(one.subject, one.text, one.harms) for one in describe(now, then))


class _Causes:
    """Finds what of a release brings a difference about: without it the newer kubelet does as the older one, or with it
    the older one does as the newer."""

    def __init__(self, old: _Kubelet, new: _Kubelet) -> None:
        self._old, self._new = old, new

    def explain(self, before: Held, after: Held, under: Callable[[_Kubelet], Held], *, run: bool) -> tuple[Change, ...]:
        """Return the differences, each with its cause; `under` gives what pods have under another kubelet."""
        differences = list(describe(before, after, run=run))
        causes: dict[Key, str] = {}
        for cause, held, expected in self._trials(before, after, under) if differences else ():
            for one in differences:
                if one.key not in causes and held.agrees(expected, one):
                    causes[one.key] = cause
            # Each trial readmits every pod, and few causes explain all.
            if len(causes) == len(differences):
                break
        return tuple(Change(one.subject, one.text, one.harms, causes.get(one.key, "")) for one in differences)

    def _trials(self, before: Held, after: Held, under: Callable[[_Kubelet], Held]) -> Iterator[tuple[str, Held, Held]]:
        """Yield each cause that can be tried, what pods have with it, and what they have if it is the cause."""
        for base, other, expected in ((self._new, self._old, before), (self._old, self._new, after)):
            for cause, kubelet in self._variants(base, other):
                with suppress(StartError, UpstreamDefectError):
                    yield cause, under(kubelet), expected

    def _variants(self, base: _Kubelet, other: _Kubelet) -> Iterator[tuple[str, _Kubelet]]:
        """Yield a kubelet with one thing of the other one, and what that is."""
        for gate, value, _ in gate_changes(other.release, base.release):
            if gate not in base.config.feature_gates and can_be_set(gate, base.release):
                gates = {**base.config.feature_gates, gate: value}
                yield self._name(gate=gate), base._replace(config=replace(base.config, feature_gates=gates))
        for fact in Release.__struct_fields__:
            if fact not in _NO_FACTS and (value := getattr(other.release, fact)) != getattr(base.release, fact):
                yield self._name(fact=fact), base._replace(release=replace(base.release, **{fact: value}))
        for quirk in Quirks.__struct_fields__:
            if (has := getattr(other.quirks, quirk)) != getattr(base.quirks, quirk):
                yield self._name(quirk=quirk), base._replace(quirks=replace(base.quirks, **{quirk: has}))

    def _name(self, *, fact: str = "", gate: str = "", quirk: str = "") -> str:
        pair = sorted((self._old.release.minor, self._new.release.minor))
        row = row_of(pair[0], pair[1], fact=fact, gate=gate, quirk=quirk)
        if gate:
            changes = gate_changes(self._old.release, self._new.release)
            gated = f"gate {gate} is {next(_on_off(now) for name, _, now in changes if name == gate)} by default"
            return f"{gated} ({row})" if row is not None else gated
        return str(row) if row is not None else fact or quirk


def _on_off(value: bool) -> str:  # noqa: FBT001
    return "on" if value else "off"
