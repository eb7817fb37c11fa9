"""The guards of a node whose policy has them: each pass over the node also checks the kernel's files."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Protocol, TypeVar

from podslice.agent.guards.guardkinds import GuardScene, all_guards
from podslice.agent.guards.guards import FileGuard, GuardResult
from podslice.agent.owner import Owner
from podslice.agent.status.metrics import Metrics
from podslice.config.policy import InterferenceGuards
from podslice.guards.holders import guarded_cpus, holders
from podslice.guards.housekeeping import BALANCER, balancer_advice
from podslice.guards.partition import PARTITIONS
from podslice.host.kernel.kernelfiles import KernelFiles, SavedStore
from podslice.node.checkpoints.guard_files import Guard, GuardedFile, is_open
from podslice.node.view import NodeView
from podslice.values.cpuset import Bits

_AT_A_TIME = 16
_MOST_SAID = 256
_LONGEST = 300

T = TypeVar("T")


class GuardReporter(Protocol):
    """Reports troubles, and events of the node."""

    def trouble(self, kind: str, text: str) -> None: ...
    def event(self, reason: str, text: str) -> None: ...


class NodeGuards:
    """Guards the exclusive CPUs of the node.

    Changes of an agent that was killed are taken over from the store, and undone where they are not needed any more.
    `mount`: of the cgroups, below the root of the files. `observe`: only count what would be changed.
    `kernel`: its release. `failure`: why a guard could do nothing in the last pass.
    """

    def __init__(
        self,
        owner: Owner,
        files: KernelFiles,
        store: SavedStore,
        metrics: Metrics,
        *,
        said: GuardReporter,
        mount: str = "sys/fs/cgroup",
        observe: bool = False,
        kernel: tuple[int, int] = (0, 0),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._owner = owner
        self._files = files
        self._metrics = metrics
        self._say = said
        self._mount = mount
        self._observe = observe
        self._guard = FileGuard(files, store, clock=clock)
        self._kernel = kernel
        self._guards = {guard.name: guard for guard in all_guards()}
        self._loaded = False
        self._one_at_a_time = asyncio.Lock()
        self._said: set[str] = set()
        self.failure = ""

    async def look(self) -> None:
        """Make a pass; the agent's other work goes on in between."""
        # Passes come from the loop and from containers that wait for guards, and each yields the event loop in between.
        async with self._one_at_a_time:
            try:
                await self._look()
            except Exception as error:
                self.failure = f"{type(error).__name__}: {str(error)[:_LONGEST]}"
                raise

    async def _look(self) -> None:
        node = self._owner.node
        if node is None or self._owner.safe_mode:
            return
        rules = node.view.policy.guards
        # A policy that has lost its guards still needs passes, until the old values are back.
        if not self._load() or (rules is None and not self._guard.changed):
            return
        scene = None if rules is None else self._scene(rules, node.view)
        files_of = [] if scene is None else [guard.files(scene) for guard in self._guards.values()]
        found = await _in_turns(chain.from_iterable(files_of))
        self.failure = ""  # no await from here to where it is set again, so no hook sees it empty by mistake
        online = node.view.topology.all_cpus & ~node.view.offline
        if not self._observe:
            files = [one for one in found if rules is not None and enforces(rules, one.guard, self._kernel)]
            # Saved files that no guard wants any more have no wanted value, so they are restored by the same pass.
            known = {file.path for file in files}
            files += [file for file in self._files.read_saved(self._guard.saved.values()) if file.path not in known]
            self._run(files, online)
        for guard in self._guards:
            mine = [one._replace(text=self._text(one)) for one in found if one.guard == guard]
            # Read again after the writes, since the kernel may take a value and keep less of it.
            still = [one for one in mine if is_open(one, self._guard.saved, online)]
            self._metrics.guard_open.labels(guard).set(len(still))
            if still and rules is not None and enforces(rules, guard, self._kernel):
                self._fail_at(guard, still)
        if scene is not None and rules is not None and enforces(rules, "irq", self._kernel):
            await self._look_for_balancer(guarded_cpus(scene.holders, node.view.topology.cores.values()) & online)

    @property
    def required(self) -> bool:
        """Whether the policy requires working guards before containers with CPUs of their own run."""
        node = self._owner.node
        rules = None if node is None or self._observe else node.view.policy.guards
        return rules is not None and rules.required

    def concerns(self, uid: str) -> bool:
        """Whether guards are required for this pod: some container of it has CPUs of its own."""
        node, pod = self._owner.node, self._owner.pods.get(uid)
        units = {uid} if pod is None else {uid, *pod.units}
        return node is not None and self.required and any(node.view.owned_by(unit) for unit in units)

    def restore(self) -> None:
        """Write back the old values of all files, except those that another program has written."""
        if self._observe or not self._load() or not self._guard.changed:
            return
        self._run(list(self._files.read_saved(self._guard.saved.values())), self._owner.machine.cpus.bits)

    # What there is

    def _scene(self, rules: InterferenceGuards, view: NodeView) -> GuardScene:
        return GuardScene(
            rules, self._owner, view, tuple(holders(view)), self._files, self._mount, self._guard.saved,
            self._guard.is_paused, self._once,
        )  # fmt: skip

    async def _look_for_balancer(self, guarded: Bits) -> None:
        """Report an irqbalance that would move interrupts back to guarded CPUs."""
        for pid, environment in await _in_turns(self._files.commands(BALANCER) if guarded else ()):
            if text := balancer_advice(environment, guarded):
                self._once(f"{BALANCER} ({pid}) {text}", about=f"{BALANCER} {pid}")

    # Changing and reporting

    def _load(self) -> bool:
        """Load the old values. Return False where they cannot be read: then nothing is changed either."""
        if not self._loaded:
            try:
                self._guard.load()
            except (ValueError, OSError) as error:
                self._fail(str(error))
                return False
            self._loaded = True
        return True

    def _run(self, found: list[GuardedFile], online: Bits) -> None:
        try:
            result = self._guard.run(found, online=online)
        except OSError as error:
            self._fail(f"old values cannot be stored, so nothing is changed: {error}")
            return
        self._report(result, {file.path: file.guard for file in found})

    def _report(self, result: GuardResult, guard_of: dict[str, Guard]) -> None:
        for outcome, paths in (("written", result.written), ("restored", result.restored), ("refused", result.refused)):
            for path in paths:
                self._metrics.guard_writes.labels(guard_of[path], outcome).inc()
        for path in result.refused:
            why = self._guards[guard_of[path]].refusal_reason(self._files)
            self._say.trouble("guard", f"{self._files.device_of(path)} {why}")
        for path in result.contested:
            self._metrics.guard_contested.labels(guard_of[path]).inc()
            text = f"{self._files.device_of(path)} is left to another program that keeps changing it"
            self._say.trouble("guard", text)
            self._say.event("PodsliceGuardContested", text)

    def _fail_at(self, guard: Guard, still: list[GuardedFile]) -> None:
        """Set `failure` for a guard that has changed no file. Single files that stay may be managed interrupts."""
        if not any(one.guard == guard for one in self._guard.saved.values()):
            path = self._files.device_of(still[0].path)
            self.failure = f"guard {guard}: {path} {self._guards[guard].refusal_reason(self._files)}"

    def _fail(self, text: str) -> None:
        self.failure = text
        self._say.trouble("guard", text)

    def _once(self, text: str, about: str = "") -> None:
        # About one process a process id is enough: its text changes with the guarded CPUs.
        if (about or text) not in self._said and len(self._said) < _MOST_SAID:
            self._said.add(about or text)
            self._say.trouble("guard", text)

    def _text(self, file: GuardedFile) -> str:
        return self._files.texts([file.path]).get(file.path, "")


def enforces(rules: InterferenceGuards, guard: Guard, kernel: tuple[int, int]) -> bool:
    """Whether the policy has this guard change files, on a kernel of that release."""
    mode = getattr(rules, guard)
    return mode == "enforce" or (mode == "auto" and kernel >= PARTITIONS)


async def _in_turns(steps: Iterable[T | None]) -> list[T]:
    """Collect the items that are not None, with a turn of the event loop after every sixteenth step."""
    found = []
    for count, one in enumerate(steps, 1):
        if one is not None:
            found.append(one)
        if count % _AT_A_TIME == 0:
            await asyncio.sleep(0)
    return found
