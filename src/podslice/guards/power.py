"""Wanted contents of the files of cpufreq, cpuidle and PM QoS for CPUs with a power profile (docs/isolation.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from podslice.config.policy import PowerProfile
from podslice.values.cpuset import Bits, iter_bits


class CPUPower(NamedTuple):
    """The controls that the kernel offers for one CPU; those that it lacks are empty.

    `related`: CPUs that share its clock. `frequencies`: kHz by `min`, `base` and `turbo`.
    `preferences`: it has energy_performance_preference. `idle_states`: names by folder.
    """

    related: Bits = 0
    governors: tuple[str, ...] = ()
    preferences: bool = False
    frequencies: Mapping[str, str] = {}
    resume_latency: bool = False
    idle_states: Mapping[str, str] = {}


class PowerFiles(NamedTuple):
    """`files`: wanted contents by path below `/sys/devices/system/cpu`. `missing`: by CPU, the settings of its profile
    that the kernel has no file or value for."""

    files: dict[str, str]
    missing: dict[int, tuple[str, ...]]


def power_files(profiles: Mapping[int, PowerProfile], cpus: Mapping[int, CPUPower]) -> PowerFiles:
    """Return the wanted contents for CPUs with profiles.

    CPUs that share a clock get a clock setting only where all their profiles agree; it is written at the first of them.
    """
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
    return PowerFiles(files, missing)


def _clock(profile: PowerProfile | None) -> tuple[str | None, ...] | None:
    return None if profile is None else (profile.governor, profile.epp, profile.min_freq, profile.max_freq)


def _clock_files(profile: PowerProfile, facts: CPUPower, lacks: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the cpufreq files of a profile; add to `lacks` what the kernel does not have."""
    # The preference comes before the governor: some drivers refuse it while the governor is `performance`.
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
    for setting, name in ((profile.max_freq, "scaling_max_freq"), (profile.min_freq, "scaling_min_freq")):
        if setting is not None:
            text = setting if setting.isdecimal() and facts.frequencies else facts.frequencies.get(setting, "")
            if text:
                yield name, text
            else:
                lacks.append(f"frequency {setting}")


def _sleep_files(profile: PowerProfile, facts: CPUPower, lacks: list[str]) -> Iterator[tuple[str, str]]:
    if profile.resume_latency_us is not None:
        if facts.resume_latency:
            yield "power/pm_qos_resume_latency_us", profile.resume_latency_us
        else:
            lacks.append("resumeLatencyUs")
    for state in profile.disabled_idle_states:
        folders = [folder for folder, name in facts.idle_states.items() if name == state]
        if not folders:
            lacks.append(f"idle state {state}")
        for folder in folders:
            yield f"cpuidle/{folder}/disable", "1"
