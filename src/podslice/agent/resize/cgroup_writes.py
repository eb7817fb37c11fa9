"""Which cgroup files a resize writes and reads back; `host/kernel/cgroup2.py` writes them."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from podslice.agent.owner import Owner
from podslice.agent.records import ContainerRecord, Pinning
from podslice.host.kernel.cgroup2 import CgroupTree, cgroup_path
from podslice.node.effects.cpu_weight import milli_cpu_to_shares, shares_to_runtime_weight
from podslice.values.cpuset import Bits, format_bits

POLL_SECONDS = 0.005
LONGEST_LEAVING = 0.2
"""Seconds within which the kernel must report that released CPUs are free: a tenth of the time a runtime gives one
call."""


class Cgroups(Protocol):
    """The cgroups of containers. Methods raise `OSError` for a file that cannot be written."""

    def narrow(self, record: ContainerRecord, cpus: Bits) -> bool:
        """Set the CPUs of a running container; return False where its cgroup is unknown."""

    def effective(self, record: ContainerRecord) -> Bits | None:
        """Return the CPUs the kernel lets it run on (`cpuset.cpus.effective`), None where that cannot be read."""

    def weigh(self, record: ContainerRecord, milli: int) -> None:
        """Set `cpu.weight` for a request of `milli` thousandths of a CPU."""

    def write(self, record: ContainerRecord, wanted: Pinning) -> bool:
        """Write all that the container should have; return False where that is not possible now."""


class NoCgroups:
    """Writes nothing: for a dry run, and for a runtime whose cgroups are not visible."""

    def narrow(self, record: ContainerRecord, cpus: Bits) -> bool:
        return False

    def effective(self, record: ContainerRecord) -> Bits | None:
        return None

    def weigh(self, record: ContainerRecord, milli: int) -> None:
        return None

    def write(self, record: ContainerRecord, wanted: Pinning) -> bool:
        return False


class TreeCgroups:
    """Cgroups below a cgroup root. `write` is that of the reconcile loop."""

    def __init__(self, tree: CgroupTree, write: Callable[[ContainerRecord, Pinning], bool]) -> None:
        self._tree = tree
        self.write = write

    def narrow(self, record: ContainerRecord, cpus: Bits) -> bool:
        path = cgroup_path(record.cgroups_path)
        if path is None:
            return False
        try:
            self._tree.write_cpus(path, cpus)
        except FileNotFoundError:
            # The container has ended; its cgroup is removed before the runtime says so.
            return False
        except OSError as error:
            raise OSError(error.errno, error.strerror, f"{path}/cpuset.cpus") from None
        return True

    def effective(self, record: ContainerRecord) -> Bits | None:
        path = cgroup_path(record.cgroups_path)
        return None if path is None else self._tree.effective_cpus(path)

    def weigh(self, record: ContainerRecord, milli: int) -> None:
        path = cgroup_path(record.cgroups_path)
        if path is not None:
            try:
                self._tree.write_weight(path, shares_to_runtime_weight(milli_cpu_to_shares(milli)))
            except FileNotFoundError:
                return
            except OSError as error:
                raise OSError(error.errno, error.strerror, f"{path}/cpu.weight") from None


class CPUEvacuator:
    """Takes containers off CPUs that they no longer hold."""

    def __init__(self, owner: Owner, cgroups: Cgroups) -> None:
        self._owner = owner
        self._cgroups = cgroups

    async def evacuate(self, cpus: Bits, records: Iterable[ContainerRecord]) -> None:
        """Narrow every container that should not run on `cpus`, and wait until the kernel reports that it left them.

        Raises `OSError` with the file.
        """
        left = []
        placing, updates = self._owner.placing, self._owner.updates
        pool = Pinning(cpus=placing.pool())
        for record in list(records):
            # Before its start a container has no process, and its start writes the present sets.
            if not record.started:
                continue
            if updates.is_on_pool(record):
                wanted: Pinning | None = pool
            else:
                wanted = self._owner.attempt("resize", record, partial(placing.wanted, record))
            if wanted is None or not wanted.cpus:
                continue
            runs_on = record.applied.cpus or placing.all_cpus
            if runs_on & cpus & ~wanted.cpus and self._cgroups.narrow(record, wanted.cpus):
                updates.narrowed(record, wanted.cpus)
                left.append((record, cpus & ~wanted.cpus))
        await wait_until_vacated(self._cgroups, left)


async def wait_until_vacated(cgroups: Cgroups, left: Iterable[tuple[ContainerRecord, Bits]]) -> None:
    """Wait until the kernel reports that each container is off its CPUs. Raises `OSError` with the file."""
    # One budget for all of them: they leave at the same time.
    patience = LONGEST_LEAVING
    for record, gone in left:
        while (cgroups.effective(record) or 0) & gone:
            if patience <= 0:
                place = f"{cgroup_path(record.cgroups_path)}/cpuset.cpus.effective"
                raise OSError(errno.EBUSY, f"still has {format_bits(gone)} of others", place)
            patience -= POLL_SECONDS
            await asyncio.sleep(POLL_SECONDS)
