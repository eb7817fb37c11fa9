"""Wanted contents of resctrl's files, for cache ways and memory bandwidth of exclusive CPUs (docs/isolation.md).

A class of the policy is a group `podslice-NAME`: a folder of its own, with lines for the resources and the CPUs of its
containers. Files as the kernel's Documentation/filesystems/resctrl.rst describes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from podslice.config.policy import CacheClass
from podslice.node.checkpoints.guard_files import GuardedFile, schemata_in
from podslice.values.cpuset import Bits, format_bits

RESCTRL: Final = "sys/fs/resctrl"
OURS: Final = "podslice-"


class CacheFacts(NamedTuple):
    """A resource in resctrl's `info`. `mask`: all ways of a cache. `least`: fewest ways, or lowest bandwidth in
    percent.
    `step`: granularity of the bandwidth. `sparse`: ways need not be contiguous."""

    mask: Bits = 0
    least: int = 1
    step: int = 1
    sparse: bool = False


class ResctrlFacts(NamedTuple):
    """The resources of a machine, by the kernel's names (`L3`, or `L3CODE` and `L3DATA`; `MB`).

    `domains`: ids of the domains of each resource. `others`: CPUs of groups that other programs have made.
    `groups`: schemata and CPU list of our groups as they are. `foreign`: classes whose folder another program has made.
    """

    resources: Mapping[str, CacheFacts]
    domains: Mapping[str, tuple[str, ...]]
    others: Bits = 0
    groups: Mapping[str, tuple[str, str]] = {}
    foreign: frozenset[str] = frozenset()


class CacheGroups(NamedTuple):
    """The files of the groups, folders first, and messages about what the machine cannot do."""

    files: tuple[GuardedFile, ...]
    lacks: tuple[str, ...]


def cache_groups(classes: Mapping[str, CacheClass], cpus: Mapping[str, Bits], facts: ResctrlFacts) -> CacheGroups:
    """Return the groups of cache classes that have CPUs.

    CPUs in groups of other programs stay there. A class with a setting that the machine does not support gets no group.
    """
    files: list[GuardedFile] = []
    lacks: list[str] = []
    for name in sorted(cpus):
        taken = cpus[name] & facts.others
        if taken:
            lacks.append(f"cache: CPUs {format_bits(taken)} are in another group of resctrl and stay there")
        mine, folder = cpus[name] & ~facts.others, f"{RESCTRL}/{OURS}{name}"
        if name in facts.foreign:
            lacks.append(f"cache: /{folder} is not the agent's and is left alone")
        if not mine or name in facts.foreign:
            continue
        lines, missing = schemata_of(classes[name], facts)
        if missing:
            lacks.append(f"cache: class {name}: {'; '.join(missing)}")
            continue
        there = name in facts.groups
        schemata, listed = facts.groups.get(name, ("", ""))
        files.append(GuardedFile(f"{folder}/", "value", "there" if there else "", "cache", "there"))
        if lines:
            files.append(GuardedFile(f"{folder}/schemata", "schemata", schemata, "cache", lines, made=True))
        files.append(GuardedFile(f"{folder}/cpus_list", "list", listed, "cache", format_bits(mine), made=True))
    return CacheGroups(tuple(files), tuple(lacks))


def schemata_of(settings: CacheClass, facts: ResctrlFacts) -> tuple[str, tuple[str, ...]]:
    """Return the schemata lines of a class, and messages about what the machine does not support of it."""
    lines: list[str] = []
    missing: list[str] = []
    for resource, text in _requested_lines(settings, facts):
        known = facts.resources.get(resource)
        if known is None:
            missing.append(f"no {resource} on this machine")
            continue
        domains = facts.domains.get(resource, ())
        values = _by_domain(text, domains)
        unknown = [domain for domain in values if domain not in domains]
        if unknown:
            missing.append(f"{resource} has no domain {', '.join(unknown)}")
            continue
        checked = {domain: _value(resource, value, known) for domain, value in values.items()}
        wrong = sorted({problem for _, problem in checked.values() if problem})
        missing += wrong
        if not wrong:
            lines.append(f"{resource}:{';'.join(f'{domain}={value}' for domain, (value, _) in checked.items())}")
    return "\n".join(lines), tuple(missing)


def _requested_lines(settings: CacheClass, facts: ResctrlFacts) -> Iterator[tuple[str, str]]:
    """Yield the resources that a class sets, by the kernel's names. With code and data prioritization (CDP) a setting
    for the cache counts for both halves that have none of their own."""
    both = {"L3": ("L3CODE", "L3DATA"), "L2": ("L2CODE", "L2DATA")}
    texts = {
        "L3": settings.l3, "L3CODE": settings.l3_code, "L3DATA": settings.l3_data, "L2": settings.l2,
        "MB": settings.memory_bandwidth,
    }  # fmt: skip
    for resource, text in texts.items():
        if text is None:
            continue
        halves = both.get(resource, ())
        split = resource not in facts.resources and any(half in facts.resources for half in halves)
        yield from ((half, text) for half in halves if texts.get(half) is None) if split else ((resource, text),)


def _by_domain(text: str, domains: tuple[str, ...]) -> dict[str, str]:
    if "=" not in text:
        return dict.fromkeys(domains, text)
    pairs = (one.partition("=") for one in text.split(";"))
    return {str(int(name)): value for name, _, value in pairs}


def _value(resource: str, text: str, known: CacheFacts) -> tuple[str, str]:
    """Return the value in the kernel's form, and what is wrong with it, empty where nothing is."""
    if resource == "MB":
        # The kernel rounds up to its step; written unrounded, the file would read back another value each time.
        steps = -(-max(int(text), known.least) // known.step)
        return str(steps * known.step), ""
    bits = int(text, 16)
    if not bits or bits & ~known.mask:
        return "", f"{resource} {text} is not within {known.mask:x}"
    if bits.bit_count() < known.least:
        return "", f"{resource} {text} has fewer than {known.least} ways"
    if not known.sparse and "0" in f"{bits:b}".strip("0"):
        return "", f"{resource} {text} has a gap"
    return f"{bits:x}", ""


def domains_of(schemata: str) -> dict[str, tuple[str, ...]]:
    """Return the domains of each resource, from the schemata of the root group."""
    found: dict[str, tuple[str, ...]] = {}
    for resource, domain in schemata_in(schemata):
        found[resource] = (*found.get(resource, ()), domain)
    return found
