"""The groups of parts that every node has: its decisions, resizes, moves, and the answers to its runtime.

`agent.wiring` makes a whole agent of them. Tests and benchmarks make them alone, beside a runtime of their own.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from podslice.agent.admitting import Admitting, NodeSetup
from podslice.agent.contract import NodeEvents, PodFacts, Reporter
from podslice.agent.dra.cdi import CDIFiles
from podslice.agent.dra.claimfiles import ClaimFiles
from podslice.agent.dra.claimledger import ClaimLedger
from podslice.agent.guards.guardsfirst import RequiredGuards
from podslice.agent.journal import NodeJournal
from podslice.agent.kubelet.sources import Sources
from podslice.agent.moves.memory_moves import MemoryMoves, RunInThread, free_memory
from podslice.agent.moves.move_rules import Threads, kernel_release
from podslice.agent.moves.plan_executor import PlanExecutor
from podslice.agent.moves.running_move import MoveRunner
from podslice.agent.owner import Owner
from podslice.agent.podfacts import GatheredFacts
from podslice.agent.records import NodeRecords
from podslice.agent.resize.actuator import Actuator
from podslice.agent.resize.cgroup_writes import Cgroups
from podslice.agent.resize.memory_migration import MemoryMigration
from podslice.agent.resize.resize_requests import NoSpecifications, ResizeRequests, Specifications
from podslice.agent.resize.resizing import Resizing
from podslice.agent.runtime.container_file import ContainerFiles
from podslice.agent.runtime.plugin import AgentPlugin, Timer
from podslice.agent.updates import Write
from podslice.api.pod.spec import Pod
from podslice.host.filesystem import DiskFileSystem
from podslice.host.kernel.cgroup2 import CgroupTree
from podslice.service.identity import Identity

NO_FACTS, NO_SPECIFICATIONS = GatheredFacts(), NoSpecifications()


class ClaimSetup(NamedTuple):
    """The folder of CDI files, and `users`: returns the UIDs of the pods that may use a claim, by the claim's UID."""

    cdi: Path
    users: Callable[[str], frozenset[str]]


class WiredNode(NamedTuple):
    """The decisions of one node, the events it announces, and the resizes it is asked for."""

    owner: Owner
    events: NodeEvents
    requests: ResizeRequests


def wire_node(
    setup: NodeSetup,
    reporter: Reporter,
    *,
    records: NodeRecords | None = None,
    facts: PodFacts = NO_FACTS,
    journal: NodeJournal | None = None,
    claims: ClaimSetup | None = None,
    resizes: Specifications = NO_SPECIFICATIONS,
    clock: Callable[[], float] = time.monotonic,
) -> WiredNode:
    """Make the owner of a node. `claims` is None on a node without claims; `resizes` finds the specifications of pods
    that are resized."""
    events, records = NodeEvents(), records or NodeRecords()
    admitting = Admitting(setup, reporter, journal or NodeJournal(version=""))
    requests = ResizeRequests(admitting, records, resizes)
    ledger = None
    if claims is not None:
        ledger = ClaimLedger(
            admitting, ClaimFiles(setup.directory), CDIFiles(claims.cdi), reporter, records,
            users=claims.users, changed=events.claims_changed,
        )  # fmt: skip
    owner = Owner(setup, admitting, records, reporter, events, facts, claims=ledger, requests=requests, clock=clock)
    events.claims_changed.add(owner.check_pool)
    return WiredNode(owner, events, requests)


def wire_resizes(
    node: WiredNode,
    cgroups: Cgroups,
    *,
    migration: MemoryMigration | None,
    threads: Threads | None,
    clock: Callable[[], float] = time.monotonic,
    run_in_thread: RunInThread = asyncio.to_thread,
) -> Resizing:
    """Make the parts that carry out resizes. `migration` is None where memory stays on the NUMA nodes that a pod
    leaves."""
    owner, events, requests = node
    actuator = Actuator(
        owner, events, requests, cgroups,
        memory=migration, threads=threads, run_in_thread=run_in_thread, clock=clock,
    )  # fmt: skip
    resizing = Resizing(owner, events, requests, actuator, clock=clock)
    events.room_freed.add(resizing.room_freed)
    events.policy_changed.add(resizing.policy_changed)
    return resizing


def wire_moves(
    node: WiredNode,
    resizing: Resizing,
    cgroups: Cgroups,
    tree: CgroupTree,
    *,
    find: Callable[[Identity], Pod | None],
    threads: Threads,
    observe: bool,
) -> PlanExecutor:
    """Make the parts that move running containers. `find` returns a pod's specification as it is now."""
    memory = MemoryMoves(tree, partial(free_memory, DiskFileSystem("/sys")))
    kernel = kernel_release(os.uname().release)
    runner = MoveRunner(node.owner, node.events, resizing, cgroups, memory, find=find, threads=threads, kernel=kernel)
    return PlanExecutor(node.owner, runner, observe=observe)


def wire_plugin(
    node: WiredNode,
    sources: Sources,
    files: ContainerFiles,
    timer: Timer,
    *,
    settle: Callable[[str], None],
    write: Write,
    ended: Callable[[Identity], bool],
    resizing: Resizing | None = None,
    guards: RequiredGuards | None = None,
    observe: bool = False,
) -> AgentPlugin:
    """Make the plugin that answers the runtime and writes the files of containers."""
    plugin = AgentPlugin(
        node.owner, sources, files, timer,
        settle=settle, write=write, ended=ended, resizing=resizing, guards=guards, observe=observe,
    )  # fmt: skip
    node.events.pinning_changed.add(plugin.queue_file)
    if resizing is not None and not observe:
        node.events.change_finished.add(plugin.write_file)
    return plugin
