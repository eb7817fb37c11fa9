"""A node whose decisions are on disk before they are returned.

`NodeStore` keeps a kubelet-style state directory beside a `Node`: every decision is written, file by file and each
atomically, before it is returned; if that fails, the decision is taken back. Opening a store re-admits the pods that
still run, so a process killed at any moment continues where it stood.

The files change one after the other (CPU Manager, then Memory Manager). A kill in between leaves a pod in the first
file only. It was never reported as admitted, so it does not run, and opening the store drops what belongs to no running
pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from podslice.api.pod.spec import Pod
from podslice.config.kubelet import KubeletConfig
from podslice.config.policy import NO_POLICY, PodslicePolicy
from podslice.host.boot import Boot
from podslice.host.state.reboot import (
    BootKeeper,
    describe_rebuild,
    is_another_boot,
    keep_renamed,
    migrate_files,
    resolve_tolerances,
    sort_by_creation,
)
from podslice.host.state.statefile import FileOperations, RealFiles, read_state, remove_temporaries, write_atomically
from podslice.machine.devices import DeviceInventory
from podslice.machine.model import Machine
from podslice.node.checkpoints import policy_state
from podslice.node.checkpoints.names import NODE_STATE_FILES, POLICY_STATE_FILE, place_of
from podslice.node.container import STATE_FILE_OF_STAGE
from podslice.node.cpu.state import Intent
from podslice.node.decide import settle_resizes
from podslice.node.decision import Decision, ResizeDecision
from podslice.node.node import Node
from podslice.values.errors import PodsliceError, StartError
from podslice.values.golang import quote


class StateWriteError(PodsliceError):
    """Raised when a decision could not be written and was taken back."""


class _Opened(NamedTuple):
    """A started node, the files it started with, the `reason` why those that were found did not fit, and the names of
    those to keep under another name (`renamed`)."""

    node: Node
    files: Mapping[str, bytes]
    reason: str = ""
    renamed: tuple[str, ...] = ()


class NodeStore:
    """A node on a state directory. Raises `StartError` as a kubelet with this root directory would, and `InputError`
    for unreadable files.

    Writes the managers' files, not the records of granted resources.

    running: the pods that run on the node, in order of admission and with their granted resources. They are admitted
    again and keep what they have; resources of other pods in the files are freed.
    accept: gets the started node and the resizes that were being written; may refuse them by raising, before anything
    is written.
    predicates: as for `Node`.
    boot: with `hotplug` in the policy, files of another boot are adapted to the machine as it is now
    (`host.state.reboot`).
    """

    def __init__(
        self,
        directory: Path | str,
        machine: Machine,
        config: KubeletConfig | None = None,
        *,
        running: Iterable[Pod] = (),
        profile: str = "podslice",
        devices: DeviceInventory | None = None,
        files: FileOperations | None = None,
        accept: Callable[[Node, Mapping[str, Intent]], None] | None = None,
        predicates: bool = True,
        policy: PodslicePolicy = NO_POLICY,
        boot: Boot | None = None,
    ) -> None:
        self.directory = Path(directory)
        self._paths = {name: self.directory / place_of(name) for name in NODE_STATE_FILES}
        self._operations = files or RealFiles()
        self.directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        for name in NODE_STATE_FILES:
            remove_temporaries(self._paths[name].parent, name)
        found = {name: data for name in NODE_STATE_FILES if (data := read_state(self._paths[name])) is not None}
        self._written = dict(found)
        self._uncertain: set[str] = set()
        self._open: dict[str, Intent] = {}
        running = list(running)
        self._of_boot = boot
        policy, config = resolve_tolerances(policy, config or KubeletConfig(), boot)
        start = partial(Node, machine, config, profile=profile, devices=devices, predicates=predicates, policy=policy)
        opened = self._start(start, found, machine, config, policy, boot)
        self.node = opened.node
        self._boot = BootKeeper(boot if policy.hotplug is not None else None, found.get(POLICY_STATE_FILE))
        # Pods that start afresh come in no order of admission.
        if opened.reason:
            running = sort_by_creation(running)
        intents = policy_state.read_intents(opened.files.get(POLICY_STATE_FILE))
        settle_resizes(self.node, intents, running)
        self.refused = self.node.readmit(running)
        self.followed = self.node.replace_lost()
        """Consequences of changes of the machine since the files were written."""
        if opened.reason:
            self.followed = (*describe_rebuild(found, self.node, opened.reason), *self.followed)
        # Before anything is written: a node that is refused leaves the files as they were.
        if accept is not None:
            accept(self.node, intents)
        self._keep_renamed(opened.renamed)
        self._resume(intents)
        self._save()

    def _start(
        self,
        start: Callable[..., Node],
        found: Mapping[str, bytes],
        machine: Machine,
        config: KubeletConfig,
        policy: PodslicePolicy,
        boot: Boot | None,
    ) -> _Opened:
        """Start the node on its files, or on the files adapted after a reboot. Raises `StartError`."""
        written, hotplug = policy_state.read_boot_record(found.get(POLICY_STATE_FILE)), policy.hotplug
        if hotplug is None or written is None or not is_another_boot(written, boot):
            return _Opened(self._start_node(start, found), found)
        if hotplug.after_reboot == "refuse":
            # First as a kubelet would, without hotplug: a changed machine raises its error.
            self._start_node(partial(start, policy=replace(policy, hotplug=None)), found)
            return _Opened(self._start_node(start, found), found)
        # A migrated node may still not start, for example where a reservation does not fit the new numbers: then, too,
        # it starts without files.
        migration = migrate_files(found, written, machine, hotplug, config)
        reason = migration.reason
        if migration.outcome != "rebuilt":
            files = {**found, **migration.files}
            renamed = tuple(name for name in migration.files if name != POLICY_STATE_FILE)
            try:
                return _Opened(start(files=files), files, renamed=renamed)
            except StartError as error:
                reason = error.message
        return _Opened(self._start_node(start, {}), {}, reason, tuple(found))

    def _start_node(self, start: Callable[..., Node], files: Mapping[str, bytes]) -> Node:
        """Start a node; a `StartError` about a state file names its path, as a kubelet's does."""
        try:
            return start(files=files)
        except StartError as error:
            file = STATE_FILE_OF_STAGE.get(error.stage)
            raise error if file is None else error.but(path=quote(str(self._paths[file]))) from None

    def _keep_renamed(self, names: Iterable[str]) -> None:
        """Rename files of an earlier boot that no longer count, so that the next start does not find them."""
        for name in names:
            keep_renamed(self._paths[name], self._operations)
            self._written.pop(name, None)

    def _policy_file(self, intents: Mapping[str, Intent]) -> bytes:
        """Encode the policy's state file."""
        node = self.node
        boot = self._boot.record(node.machine, node.state.cpu.offline)
        return policy_state.encode(node.state.cpu, intents, boot, node.mixed_shares)

    def _resume(self, intents: Mapping[str, Intent]) -> None:
        """Take up resizes that were being written; here they are settled already."""

    def admit(self, pod: Pod, by: Callable[[Node, Pod], Decision] = Node.admit, *, settled: bool = True) -> Decision:
        """Admit a pod and write the decision; `by` decides. Unless `settled`, the decision may be lost when the machine
        goes down. Raises `StateWriteError` if the decision cannot be kept; the node is then unchanged."""
        before = self.node.state
        decision = by(self.node, pod)
        try:
            self._save(settled=settled)
        except OSError as error:
            self.node.state = before
            raise StateWriteError(f"{self.directory}: cannot be written: {error.strerror or error}") from error
        return decision

    def resize(self, pod: Pod, *, memory_stays: bool = False) -> ResizeDecision:
        """Resize as `Node.resize` and write the decision, with other pods' resizes that are granted in the same pass.
        Raises `StateWriteError` if the decision cannot be kept; the node is then unchanged.

        After a kill before the next decision, the next start takes the size that `running` has, the old one or the new.
        """
        before = self.node.state
        decision = self.node.resize(pod, memory_stays=memory_stays)
        after = self.node.state
        granted = [one.uid for one in (decision, *decision.others) if one.outcome == "Allocated"]
        intents = {uid: Intent(before.of_pod(uid), after.of_pod(uid)) for uid in granted}
        intents = {uid: one for uid, one in intents.items() if one.before != one.after}
        # The intents are on disk before the managers' files change, so that a start after a kill between two of these
        # files knows both sides and can finish or undo the resize.
        try:
            if any(self._open.get(uid) != one for uid, one in intents.items()):
                self._write(POLICY_STATE_FILE, self._policy_file(self._open | intents))
            self._save(ended=not intents)
        except OSError as error:
            self.node.state = before
            raise StateWriteError(f"{self.directory}: cannot be written: {error.strerror or error}") from error
        return decision

    def change_policy(self, policy: PodslicePolicy) -> None:
        """Change the policy as `Node.change_policy`, and write its state file. Raises `StateWriteError` where that
        cannot be written; the policy applies all the same."""
        boot = self._of_boot
        policy, _ = resolve_tolerances(policy, self.node.rules.config, boot)
        self.node.change_policy(policy)
        self._boot = BootKeeper(boot if policy.hotplug is not None else None, self._written.get(POLICY_STATE_FILE))
        self.save()

    def remove(self, uid: str, *, settled: bool = True) -> bool:
        """Remove a pod; False when there is none with this UID. `settled` as for `admit`. Raises `StateWriteError`;
        the pod's resources are then free in memory only."""
        known = self.node.remove(uid)
        self._open.pop(uid, None)
        self.save(settled=settled)
        return known

    def save(self, *, settled: bool = True) -> None:
        """Write all that is not yet written. Raises `StateWriteError`."""
        try:
            self._save(settled=settled)
        except OSError as error:
            raise StateWriteError(f"{self.directory}: cannot be written: {error.strerror or error}") from error

    def _save(self, *, ended: bool = True, settled: bool = True) -> None:
        """Write changed files; the policy's last, and only when the resizes in it have `ended`."""
        for name, data in self.node.manager_files.items():
            if name != POLICY_STATE_FILE:
                self._write(name, data, settled=settled)
        cpu = self.node.state.cpu
        promises = cpu.loans or cpu.pod_loans or cpu.classes or cpu.memos
        needed = promises or self._open or self._boot.known or self.node.mixed_shares
        if ended and (needed or POLICY_STATE_FILE in self._written):
            self._write(POLICY_STATE_FILE, self._policy_file(self._open), settled=settled)

    def _write(self, name: str, data: bytes, *, settled: bool = True) -> None:
        if self._written.get(name) != data or name in self._uncertain:
            self._uncertain.add(name)  # a write that fails may have replaced the file
            path = self._paths[name]
            path.parent.mkdir(mode=0o750, exist_ok=True)
            write_atomically(path, data, self._operations, settled=settled)
            self._written[name] = data
            self._uncertain.discard(name)
