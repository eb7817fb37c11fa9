"""What the CPU Manager knows, and the words for it.

Every set is a set of CPU ids (bits of an `int`); these names are used throughout:

ALL         every CPU of the machine
RESERVED    kept for the system; never given away exclusively
DEFAULT     the node's shared pool: what containers without an assignment run on
ASSIGNABLE  DEFAULT − RESERVED: what can still be given away exclusively
EXCLUSIVE   assigned to one container
BUBBLE      assigned to one pod with pod-level resources (state entry of the pod)
POD SHARED  BUBBLE − the exclusive slices in it

Invariants (profile `podslice`; property tests check them): DEFAULT and every assignment are disjoint, DEFAULT, all
assignments and all bubbles together are ALL (− RESERVED with strict reservation), and a pod's assignments lie within
its bubble.
"""

from __future__ import annotations

from podslice.core.values.cpuset import Bits


class CPUState:
    """The CPU Manager's state (cpu-topology 8.1): `default`, `assignments` {pod: {container: bits}} and
    `bubbles` {pod: bits}. Every mutation raises `revision`, so that the edge knows when a file is out of date."""

    __slots__ = ("assignments", "bubbles", "default", "revision")

    def __init__(self) -> None:
        self.default: Bits = 0
        self.assignments: dict[str, dict[str, Bits]] = {}
        self.bubbles: dict[str, Bits] = {}
        self.revision = 0

    def assignment(self, pod: str, container: str) -> Bits | None:
        """The CPUs of a container, None where it has no assignment."""
        containers = self.assignments.get(pod)
        return None if containers is None else containers.get(container)

    def assigned(self) -> Bits:
        """Union of all container assignments."""
        union = 0
        for containers in self.assignments.values():
            for cpus in containers.values():
                union |= cpus
        return union

    def set_default(self, cpus: Bits) -> None:
        """Replace DEFAULT."""
        self.default = cpus
        self.revision += 1

    def assign(self, pod: str, container: str, cpus: Bits) -> None:
        """Give a container CPUs, in place of those it had."""
        self.assignments.setdefault(pod, {})[container] = cpus
        self.revision += 1

    def unassign(self, pod: str, container: str) -> None:
        """Forget a container; the pod goes with its last one."""
        containers = self.assignments.get(pod)
        if containers is not None:
            containers.pop(container, None)
            if not containers:
                del self.assignments[pod]
        self.revision += 1

    def set_bubble(self, pod: str, cpus: Bits) -> None:
        """Give a pod its BUBBLE."""
        self.bubbles[pod] = cpus
        self.revision += 1

    def delete_bubble(self, pod: str) -> None:
        """Forget a pod's BUBBLE; unknown pods are ignored."""
        self.bubbles.pop(pod, None)
        self.revision += 1
