"""Power profiles of exclusive CPUs: what the clock and sleep files should say, and that they say what they said before
in the end."""

from __future__ import annotations

import errno
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from podslice.config.policy import PowerProfile
from podslice.guards.power import CPUPower, power_files
from podslice.host.kernel.kernelfiles import CPUS, KernelFiles, read_power
from podslice.node.checkpoints.guard_files import GuardedFile
from podslice.values.cpuset import Bits, iter_bits, parse_bits
from tests.guards.kernel import ONLINE, FakeKernel, KilledError

LATENCY = PowerProfile(
    governor="performance",
    epp="performance",
    min_freq="base",
    max_freq="turbo",
    resume_latency_us="n/a",
    disabled_idle_states=("C6",),
)
LOW = PowerProfile(governor="powersave", max_freq="800000")
FREQUENCIES = {"min": "800000", "base": "2000000", "turbo": "3500000"}


def facts(cpu: int, related: str = "") -> CPUPower:
    cpus = parse_bits(related) if related else 1 << cpu
    return CPUPower(cpus, ("powersave", "performance"), True, FREQUENCIES, True, {"state0": "POLL", "state3": "C6"})


def test_all_wishes_of_a_profile() -> None:
    """Every word of a profile becomes one value of one file, the preference before the governor."""
    wished = power_files({4: LATENCY}, {4: facts(4)})
    assert list(wished.files.items()) == [
        ("cpu4/cpufreq/energy_performance_preference", "performance"),
        ("cpu4/cpufreq/scaling_governor", "performance"),
        ("cpu4/cpufreq/scaling_max_freq", "3500000"),
        ("cpu4/cpufreq/scaling_min_freq", "2000000"),
        ("cpu4/power/pm_qos_resume_latency_us", "n/a"),
        ("cpu4/cpuidle/state3/disable", "1"),
    ]
    assert wished.missing == {}


def test_a_clock_that_cpus_share() -> None:
    """CPUs with one clock are told something only where all their owners are of one mind; sleep is each CPU's."""
    shared = {4: facts(4, "4-5"), 5: facts(5, "4-5")}
    alone = power_files({4: LATENCY}, shared).files
    assert not [path for path in alone if "cpufreq" in path]
    assert "cpu4/power/pm_qos_resume_latency_us" in alone
    assert not [path for path in power_files({4: LATENCY, 5: LOW}, shared).files if "cpufreq" in path]
    both = power_files({4: LATENCY, 5: LATENCY}, shared).files
    assert [path for path in both if "governor" in path] == ["cpu4/cpufreq/scaling_governor"]


def test_what_a_machine_lacks() -> None:
    """A virtual machine has no such files: nothing is wished, and what is missing is named."""
    wished = power_files({4: LATENCY}, {})
    assert wished.files == {}
    assert wished.missing == {4: ("epp", "governor performance", "frequency turbo", "frequency base",
                                  "resumeLatencyUs", "idle state C6")}  # fmt: skip


class PoweredKernel(FakeKernel):
    """CPUs 0-7, each with a clock of its own. A preference is refused while the governor is `performance`, and a lower
    limit above the upper one."""

    def __init__(self) -> None:
        super().__init__({})
        for cpu in iter_bits(ONLINE):
            for name, text in (
                ("cpufreq/energy_performance_preference", "balance_power"),
                ("cpufreq/scaling_governor", "powersave"),
                ("cpufreq/scaling_max_freq", "1500000"),
                ("cpufreq/scaling_min_freq", "800000"),
                ("power/pm_qos_resume_latency_us", "0"),
                ("cpuidle/state3/disable", "0"),
            ):
                self.files[f"{CPUS}/cpu{cpu}/{name}"] = text

    def take(self, path: str, text: str) -> None:
        folder = path.rpartition("/")[0]
        if path.endswith("preference") and self.files[f"{folder}/scaling_governor"] == "performance":
            raise OSError(errno.EBUSY, "Device or resource busy")
        if path.endswith("min_freq") and int(text) > int(self.files[f"{folder}/scaling_max_freq"]):
            raise OSError(errno.EINVAL, "Invalid argument")
        if path.endswith("max_freq") and int(text) < int(self.files[f"{folder}/scaling_min_freq"]):
            raise OSError(errno.EINVAL, "Invalid argument")
        super().take(path, text)

    def found(self, owned: Bits, profile: PowerProfile) -> list[GuardedFile]:
        wished = power_files(dict.fromkeys(iter_bits(owned), profile), {cpu: facts(cpu) for cpu in iter_bits(owned)})
        paths = {f"{CPUS}/{path}": text for path, text in wished.files.items()}
        files = [
            GuardedFile(path, "value", self.files[path], guard="power", wanted=text) for path, text in paths.items()
        ]
        return [*files, *(one for one in self.saved() if one.path not in paths)]


def test_order_of_writes() -> None:
    """Files that must be written in a certain order take all values in one pass, there and back."""
    kernel = PoweredKernel()
    first = dict(kernel.files)
    guard = kernel.guard()
    assert guard.run(kernel.found(1 << 4, LATENCY), online=ONLINE).refused == ()
    assert kernel.files[f"{CPUS}/cpu4/cpufreq/scaling_min_freq"] == "2000000"
    assert guard.run(kernel.found(1 << 4, LOW), online=ONLINE).refused == ()
    assert kernel.files[f"{CPUS}/cpu4/cpufreq/scaling_max_freq"] == "800000"
    assert guard.run(kernel.found(0, LOW), online=ONLINE).refused == ()
    assert (kernel.files, kernel.stored) == (first, {})


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 255), st.sampled_from((LATENCY, LOW)), st.integers(0, 20)), max_size=5))
def test_killed_anywhere(life: list[tuple[Bits, PowerProfile, int]]) -> None:
    """After any sequence of owners, with the agent killed before any store or write, all files say what they said first
    once nobody owns CPUs (P1, P6)."""
    kernel = PoweredKernel()
    first = dict(kernel.files)
    guard = kernel.guard()
    for owned, profile, kill_at in life:
        kernel.kill_at, kernel.now = kill_at, kernel.now + 7200
        try:
            guard.run(kernel.found(owned, profile), online=ONLINE)
        except KilledError:
            guard = kernel.guard()
        kernel.kill_at = 0
    kernel.now += 7200
    kernel.guard().run(kernel.found(0, LOW), online=ONLINE)
    assert (kernel.files, kernel.stored) == (first, {})


def test_reading_what_there_is(tmp_path: Path) -> None:
    """Facts of a CPU come from sysfs, and a CPU without such files has none."""
    for path, text in {
        "cpufreq/related_cpus": "4 5\n",
        "cpufreq/scaling_available_governors": "performance powersave\n",
        "cpufreq/cpuinfo_min_freq": "800000\n",
        "cpufreq/energy_performance_preference": "default\n",
        "power/pm_qos_resume_latency_us": "0\n",
        "cpuidle/state3/name": "C6\n",
    }.items():
        file = tmp_path / CPUS / "cpu4" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    files = KernelFiles(tmp_path)
    frequencies = {"min": "800000"}
    governors = ("performance", "powersave")
    assert read_power(files, 4) == CPUPower(parse_bits("4-5"), governors, True, frequencies, True, {"state3": "C6"})
    assert read_power(files, 5) == CPUPower()
