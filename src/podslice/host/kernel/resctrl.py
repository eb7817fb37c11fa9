"""Read the groups, limits and cache facts in `/sys/fs/resctrl`."""

from __future__ import annotations

from collections.abc import Container

from podslice.guards.monitoring import MON_GROUPS, MonitorFacts
from podslice.guards.resctrl import OURS, RESCTRL, CacheFacts, ResctrlFacts, domains_of
from podslice.host.kernel.kernelfiles import KernelFiles
from podslice.values.cpuset import parse_bits_or_empty

_KERNELS = ("info", "mon_groups", "mon_data")


def read_resctrl(files: KernelFiles, mine: Container[str]) -> ResctrlFacts | None:
    """Read resctrl; None where it is not mounted. `mine`: the paths of folders that the agent has made."""
    root = files.texts([f"{RESCTRL}/schemata"]).get(f"{RESCTRL}/schemata")
    if root is None:
        return None
    names = [name for name in files.names(RESCTRL) if name not in _KERNELS]
    lists = files.texts(f"{RESCTRL}/{name}/cpus_list" for name in names)
    others, groups, foreign = 0, dict[str, tuple[str, str]](), set[str]()
    for name in names:
        listed = lists.get(f"{RESCTRL}/{name}/cpus_list")
        if listed is None:
            continue
        if f"{RESCTRL}/{name}/" in mine:
            schemata = files.texts([f"{RESCTRL}/{name}/schemata"])
            groups[name.removeprefix(OURS)] = next(iter(schemata.values()), ""), listed.strip()
        else:
            others |= parse_bits_or_empty(listed.strip())
            foreign.add(name.removeprefix(OURS) if name.startswith(OURS) else "")
    return ResctrlFacts(_resources(files), domains_of(root), others, groups, frozenset(foreign))


def read_monitors(files: KernelFiles, mine: Container[str]) -> MonitorFacts:
    """Read the monitoring groups, and how many more there can be; `mine` as for `read_resctrl`."""
    path = f"{RESCTRL}/info/L3_MON/num_rmids"
    most = _number(files.texts([path]).get(path, "0").strip(), 10, 0)
    names = [name for name in files.names(RESCTRL) if name not in _KERNELS]
    parents = [RESCTRL, *(f"{RESCTRL}/{name}" for name in names if _is_group(files, f"{RESCTRL}/{name}"))]
    own, foreign = dict[str, str](), set[str]()
    for parent in parents:
        for name in files.names(f"{parent}/{MON_GROUPS}"):
            folder = f"{parent}/{MON_GROUPS}/{name}/"
            if folder in mine:
                own[folder] = next(iter(files.texts([f"{folder}cpus_list"]).values()), "").strip()
            else:
                foreign.add(folder)
    # Every control group, the root among them, uses one RMID itself.
    return MonitorFacts(max(0, most - len(parents) - len(foreign)), own, frozenset(foreign))


def _is_group(files: KernelFiles, folder: str) -> bool:
    return bool(files.texts([f"{folder}/cpus_list"]))


def read_last_error(files: KernelFiles) -> str:
    """Return the kernel's message about the last command that failed; empty where it did not fail."""
    path = f"{RESCTRL}/info/last_cmd_status"
    status = files.texts([path]).get(path, "").strip()
    return "" if status == "ok" else status


def _resources(files: KernelFiles) -> dict[str, CacheFacts]:
    found = {}
    for name in files.names(f"{RESCTRL}/info"):
        folder = f"{RESCTRL}/info/{name}"
        texts = files.texts(
            f"{folder}/{one}"
            for one in ("cbm_mask", "min_cbm_bits", "sparse_masks", "bandwidth_gran", "min_bandwidth", "num_closids")
        )
        facts = {path.rpartition("/")[2]: text.strip() for path, text in texts.items()}
        # Monitoring has a folder in `info` as well, without classes of service.
        if "num_closids" in facts:
            found[name] = CacheFacts(
                _number(facts.get("cbm_mask", "0"), 16, 0),
                _number(facts.get("min_cbm_bits", facts.get("min_bandwidth", "1")), 10, 1),
                max(_number(facts.get("bandwidth_gran", "1"), 10, 1), 1),
                facts.get("sparse_masks", "0") == "1",
            )
    return found


def _number(text: str, base: int, otherwise: int) -> int:
    try:
        return int(text, base)
    except ValueError:
        return otherwise
