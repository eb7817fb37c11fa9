"""Report a kubelet that decides by its own managers to the cluster's service, from its state files and the API server.

`podslice agent --observe` with `cluster` in its settings reads the kubelet's files and reports as any agent does, but
after the fact, and marked as observed: the decisions of such a node can only be predicted, so the service sends it one
pod with exclusive requests at a time (docs/cluster-scheduler.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path

from podslice.agent.journal import NodeJournal
from podslice.api.pod.spec import Pod
from podslice.config.kubelet import KubeletConfig
from podslice.host.state.state_directory import read_state_directory
from podslice.machine.devices import Device, DeviceInventory
from podslice.machine.model import Machine
from podslice.node.answers import with_uid
from podslice.node.checkpoints.content import Content, read_content
from podslice.node.checkpoints.names import DEVICE_STATE_FILE, MANAGER_STATE_FILES
from podslice.node.checkpoints.stand_ins import stand_ins
from podslice.node.holding import holding_of
from podslice.node.node import Node
from podslice.replica.signature import find_wants
from podslice.service.podlist import KnownPod
from podslice.values.errors import InputError, PodsliceError
from podslice.values.go.gojson import CheckpointError

LOOK_SECONDS = 0.5


class ObservedKubelet:
    """Follows a kubelet by its files, and writes its journal.

    `folder`: of the kubelet's state files. `pods`: returns the node's pods of the API server, once `ready` is true.
    `devices`: returns those that its plugins list. `trouble`: gets each problem once.
    """

    def __init__(
        self,
        folder: Path,
        machine: Machine,
        config: KubeletConfig,
        *,
        profile: str,
        version: str,
        pods: Callable[[], Iterable[KnownPod]],
        ready: Callable[[], bool],
        trouble: Callable[[str, str], None],
        devices: Callable[[], Awaitable[DeviceInventory]],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.journal = NodeJournal(version=version, observed=True)
        self._folder, self._machine, self._config, self._profile = folder, machine, config, profile
        self._pods, self._ready, self._trouble, self._sleep = pods, ready, trouble, sleep
        self._devices = devices
        self._inventory = DeviceInventory()
        self._seen: tuple[Mapping[str, bytes], Mapping[str, Pod]] | None = None
        self._node: Node | None = None
        self._problem = ""

    @property
    def node(self) -> Node | None:
        """The node as the kubelet's files have it, None before they were read."""
        return self._node

    @property
    def devices(self) -> dict[str, tuple[Device, ...]]:
        """The devices that the kubelet's plugins list, by resource."""
        return {one.resource: one.devices for one in self._inventory.resources}

    async def run(self) -> None:
        """Look at intervals, for ever."""
        while True:
            if self._ready():
                await self.look()
            await self._sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Report changes. A problem with reading is reported as a trouble, and the service gets nothing new."""
        problem = ""
        try:
            inventory = await self._devices()
            if inventory != self._inventory:
                # With other devices the rules are others, so the journal begins anew.
                self._inventory, self._seen, self._node = inventory, None, None
            files = await asyncio.to_thread(read_state_directory, self._folder)
            found = files, dict(_list_pods(self._pods()))
            # Files are compared as bytes: a kubelet writes them only when something changed.
            if found != self._seen:
                self._report(self._as_seen(*found), found[1])
                self._seen = found
        except PodsliceError as error:
            problem = str(error)
        if problem and problem != self._problem:
            self._trouble("observed", problem)
        self._problem = problem

    def _as_seen(self, files: Mapping[str, bytes], pods: Mapping[str, Pod]) -> Node:
        """Return the node as the kubelet's files have it."""
        # A pod that requests resources of a manager and is in no file has not started. A kubelet keeps the devices of a
        # pod that is gone in its file until it admits another one, so such pods are removed below.
        contents = _contents(files)
        owners = {pod.metadata.uid: pod for pod in stand_ins(contents, frozenset())}
        contents.pop(DEVICE_STATE_FILE, None)
        there = {pod.metadata.uid for pod in stand_ins(contents, frozenset())} | pods.keys()
        started = [pod for uid, pod in pods.items() if uid in owners or not self._would_be_in_files(pod)]
        unknown = [pod for uid, pod in owners.items() if uid not in pods]
        node = Node(
            self._machine,
            self._config,
            profile=self._profile,
            files=files,
            devices=self._inventory,
            predicates=False,
        )
        node.resume([*started, *unknown])
        for uid in owners.keys() - there:
            node.remove(uid)
        # The rules stay the object with which the journal was begun.
        return node if self._node is None else Node.of(self._node.rules, node.state)

    def _would_be_in_files(self, pod: Pod) -> bool:
        """Whether the kubelet's files name this pod once it has started."""
        found = find_wants(pod)
        memory = found.memory and self._config.memory_manager_policy == "Static"
        return (found.cpus and self._config.cpu_manager_policy == "static") or found.devices or memory

    def _report(self, node: Node, pods: Mapping[str, Pod]) -> None:
        old, self._node = self._node, node
        if old is None:
            self.journal.begin(node)
            return
        new = node.state.pods.keys() - old.state.pods.keys()
        # Several changes since the last look have no known order, so they are reported as a new state.
        if len(new) == 1 and old.state.pods.keys() <= node.state.pods.keys():
            self._report_admission(old, node, pods.get(*new))
        self.journal.follow(node)
        self.journal.record_move()

    def _report_admission(self, old: Node, node: Node, pod: Pod | None) -> None:
        """Report the start of one pod as an admission, if it got what the rules would give it."""
        if pod is None:
            return
        trial, before, uid = Node.of(old.rules, old.state), old.state, pod.metadata.uid
        decision = trial.admit(pod)
        if decision.admitted and holding_of(trial.state, uid) == holding_of(node.state, uid):
            self.journal.follow(trial)
            self.journal.record_decision(before, pod, decision)


def _list_pods(known: Iterable[KnownPod]) -> Iterator[tuple[str, Pod]]:
    """Yield the pods under the kubelet's UIDs. One that cannot be read becomes a stand-in if the files have it."""
    for one in known:
        # State files have the UID of the static pod itself, the API server that of its mirror.
        uid = one.mirror_of or one.uid
        if not one.ended and one.problem is None:
            yield uid, with_uid(one.pod(), uid)


def _contents(files: Mapping[str, bytes]) -> dict[str, Content]:
    found = {}
    for name in files.keys() & {*MANAGER_STATE_FILES}:
        try:
            found[name] = read_content(files[name])
        except CheckpointError as error:
            raise InputError(str(error), source=name, remedy="podslice state repair may help") from None
    return found
