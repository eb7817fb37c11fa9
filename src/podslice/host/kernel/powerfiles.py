"""Read which clock and sleep settings of a CPU the kernel offers."""

from __future__ import annotations

from typing import Final

from podslice.guards.power import CPUPower
from podslice.host.kernel.kernelfiles import KernelFiles
from podslice.values.cpuset import parse_bits_or_empty

CPUS: Final = "sys/devices/system/cpu"
_FREQUENCIES = {"min": "cpuinfo_min_freq", "base": "base_frequency", "turbo": "cpuinfo_max_freq"}


def read_power(files: KernelFiles, cpu: int) -> CPUPower:
    """Return the settings of a CPU; those without a file are empty, as often on virtual machines."""
    folder = f"{CPUS}/cpu{cpu}"
    clock, idle = f"{folder}/cpufreq", f"{folder}/cpuidle"
    states = [name for name in files.names(idle) if name.startswith("state")]
    names = (
        *(f"{clock}/{name}" for name in ("related_cpus", "scaling_available_governors", *_FREQUENCIES.values())),
        f"{clock}/energy_performance_preference",
        f"{folder}/power/pm_qos_resume_latency_us",
        *(f"{idle}/{state}/name" for state in states),
    )
    texts = {path: text.strip() for path, text in files.texts(names).items()}
    return CPUPower(
        parse_bits_or_empty(",".join(texts.get(f"{clock}/related_cpus", "").split())),
        tuple(texts.get(f"{clock}/scaling_available_governors", "").split()),
        f"{clock}/energy_performance_preference" in texts,
        {word: texts[f"{clock}/{name}"] for word, name in _FREQUENCIES.items() if f"{clock}/{name}" in texts},
        f"{folder}/power/pm_qos_resume_latency_us" in texts,
        {state: texts[f"{idle}/{state}/name"] for state in states if f"{idle}/{state}/name" in texts},
    )
