"""What the files of cpufreq, cpuidle and PM QoS should say for CPUs with a power profile (docs/guards.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from podslice.config.policy import PowerProfile
from podslice.values.cpuset import Bits, iter_bits


class CPUPower(NamedTuple):
    """What the kernel offers for one CPU. `related`: CPUs with the same clock; `frequencies`: kHz by `min`, `base`,
    `turbo`; `idle_states`: names by their folders. What it lacks is empty."""

    related: Bits = 0
    governors: tuple[str, ...] = ()
    preferences: bool = False
    frequencies: Mapping[str, str] = {}
    resume_latency: bool = False
    idle_states: Mapping[str, str] = {}


class PowerWishes(NamedTuple):
    """`files`: what they should say, by path below the folder of all CPUs. `missing`: wishes that the kernel has no
    file or value for, by CPU."""

    files: dict[str, str]
    missing: dict[int, tuple[str, ...]]


def power_wishes(profiles: Mapping[int, PowerProfile], cpus: Mapping[int, CPUPower]) -> PowerWishes:
    """The wishes of CPUs with profiles. CPUs that share a clock are told one thing, where all of them are of one mind;
    files of the clock are written at the first of them."""
    files: dict[str, str] = {}
    missing: dict[int, tuple[str, ...]] = {}
    for cpu, profile in sorted(profiles.items()):
        facts = cpus.get(cpu, CPUPower())
        lacks: list[str] = []
        related = facts.related or 1 << cpu
        alone = all(_clock(profiles.get(other)) == _clock(profile) for other in iter_bits(related))
        if alone and related & -related == 1 << cpu:
            files.update((f"cpu{cpu}/cpufreq/{name}", text) for name, text in _clock_files(profile, facts, lacks))
        files.update((f"cpu{cpu}/{name}", text) for name, text in _sleep_files(profile, facts, lacks))
        if lacks:
            missing[cpu] = tuple(lacks)
    return PowerWishes(files, missing)


def _clock(profile: PowerProfile | None) -> tuple[str | None, ...] | None:
    return None if profile is None else (profile.governor, profile.epp, profile.min_freq, profile.max_freq)


def _clock_files(profile: PowerProfile, facts: CPUPower, lacks: list[str]) -> Iterator[tuple[str, str]]:
    """The preference before the governor, since some drivers refuse it while that is `performance`."""
    if profile.epp:
        if facts.preferences:
            yield "energy_performance_preference", profile.epp
        else:
            lacks.append("epp")
    if profile.governor:
        if profile.governor in facts.governors:
            yield "scaling_governor", profile.governor
        else:
            lacks.append(f"governor {profile.governor}")
    for wish, name in ((profile.max_freq, "scaling_max_freq"), (profile.min_freq, "scaling_min_freq")):
        if wish is not None:
            text = wish if wish.isdecimal() and facts.frequencies else facts.frequencies.get(wish, "")
            if text:
                yield name, text
            else:
                lacks.append(f"frequency {wish}")


def _sleep_files(profile: PowerProfile, facts: CPUPower, lacks: list[str]) -> Iterator[tuple[str, str]]:
    if profile.resume_latency_us is not None:
        if facts.resume_latency:
            yield "power/pm_qos_resume_latency_us", profile.resume_latency_us
        else:
            lacks.append("resumeLatencyUs")
    for wish in profile.disabled_idle_states:
        folders = [folder for folder, name in facts.idle_states.items() if name == wish]
        if not folders:
            lacks.append(f"idle state {wish}")
        for folder in folders:
            yield f"cpuidle/{folder}/disable", "1"
