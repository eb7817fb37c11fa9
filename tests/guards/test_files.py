"""Interrupt guards: whoever comes, goes or is killed, in the end each file says what it said first."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podslice.host.kernel.kernelfiles import KernelFiles, SavedStore, node_cpus
from podslice.node.checkpoints.guard_files import SavedFile, bits_in, text_of
from podslice.values.cpuset import Bits, format_bits, parse_bits
from tests.guards.kernel import CGROUPS, DEFAULT, ONLINE, GuardedKernel, KilledError, irq

SETS = st.integers(1, 255).map(format_bits)


def test_the_example_of_the_specification() -> None:
    """Owner 4-7: interrupt 131 goes to 0-3, a managed one refuses and is named, new ones begin on 0-3; when the owner
    leaves all is as before, and what somebody else wrote meanwhile stays theirs."""
    kernel = GuardedKernel({131: "0-7", 132: "6"}, managed=frozenset({132}))
    guard = kernel.guard()
    news = guard.run(kernel.found("4-7"), online=ONLINE)
    assert kernel.files == {irq(131): "0-3", irq(132): "6", DEFAULT: "f"}
    assert (set(news.written), news.refused) == ({irq(131), DEFAULT}, (irq(132),))
    assert guard.changed == {irq(131), DEFAULT}
    writes = len(kernel.writes)
    assert guard.run(kernel.found("4-7"), online=ONLINE).written == ()
    assert len(kernel.writes) == writes
    kernel.files[irq(131)] = "2"
    news = guard.run(kernel.found(), online=ONLINE)
    assert kernel.files == {irq(131): "2", irq(132): "6", DEFAULT: "ff"}
    assert (news.restored, news.left) == ((DEFAULT,), (irq(131),))
    assert kernel.stored == {}


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(st.integers(131, 136), SETS, max_size=5),
    st.frozensets(st.integers(131, 136), max_size=2),
    st.lists(st.tuples(st.integers(0, 255), st.integers(0, 12)), max_size=6),
)
@pytest.mark.slow
def test_killed_anywhere(lists: dict[int, str], managed: frozenset[int], life: list[tuple[Bits, int]]) -> None:
    """After any sequence of owners, with the agent killed before any store or write and started again, all files hold
    their first values once nobody owns CPUs; no mask is ever empty or names CPUs that are offline (P1, P2, P6)."""
    kernel = GuardedKernel(lists, managed)
    first = dict(kernel.files)
    guard = kernel.guard()
    for guarded, kill_at in life:
        kernel.kill_at = kill_at
        kernel.now += 7200
        try:
            guard.run(kernel.found(guarded), online=ONLINE)
        except KilledError:
            guard = kernel.guard()
        kernel.kill_at = 0
    kernel.now += 7200
    guard = kernel.guard()
    guard.run(kernel.found(), online=ONLINE)
    assert kernel.files == first
    assert kernel.stored == {}


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.integers(131, 136), SETS, min_size=1, max_size=5), st.integers(0, 254))
def test_guarded_cpus_are_left_alone(lists: dict[int, str], guarded: Bits) -> None:
    """Whatever the files said, none names a guarded CPU afterwards, and one that named none is not written."""
    kernel = GuardedKernel(lists)
    before = kernel.sets()
    kernel.guard().run(kernel.found(guarded), online=ONLINE)
    for path, cpus in kernel.sets().items():
        assert not cpus & guarded
        if not before[path] & guarded:
            assert cpus == before[path]


def test_all_cpus_owned() -> None:
    """Where nobody else would have a CPU, nothing is guarded, and what was is given back."""
    kernel = GuardedKernel({131: "0-7"})
    guard = kernel.guard()
    guard.run(kernel.found("4-7"), online=ONLINE)
    guard.run(kernel.found(ONLINE), online=ONLINE)
    assert kernel.files[irq(131)] == "0-7"


def test_cpus_that_go_offline() -> None:
    """Lists follow the machine: nobody is sent to a CPU that is offline, and in the end all is as it was."""
    kernel = GuardedKernel({131: "0-7"})
    guard = kernel.guard()
    guard.run(kernel.found("4-7"), online=ONLINE)
    guard.run(kernel.found("2-5"), online=parse_bits("0-5"))
    assert kernel.files[irq(131)] == "0-1"
    guard.run(kernel.found("4-7"), online=ONLINE)
    assert kernel.files[irq(131)] == "0-3"
    guard.run(kernel.found(), online=ONLINE)
    assert kernel.files[irq(131)] == "0-7"


def test_near_cpus_are_preferred() -> None:
    """An interrupt all of whose CPUs are guarded goes to others of its NUMA node, and anywhere if that has none."""
    kernel = GuardedKernel({132: "6"})
    guard = kernel.guard()
    guard.run(kernel.found("5-6"), online=ONLINE)
    assert kernel.files[irq(132)] == "4,7"
    guard.run(kernel.found("4-7"), online=ONLINE)
    assert kernel.files[irq(132)] == "0-3"


def test_contested() -> None:
    """A file that somebody else changes back more than three times in ten minutes is left to them."""
    kernel = GuardedKernel({131: "0-7"})
    guard = kernel.guard()
    for _ in range(4):
        assert guard.run(kernel.found("4-7"), online=ONLINE).contested == ()
        kernel.files[irq(131)] = "0-7"
        kernel.now += 10
    news = guard.run(kernel.found("4-7"), online=ONLINE)
    assert news.contested == (irq(131),)
    assert (kernel.files[irq(131)], irq(131) in kernel.stored) == ("0-7", False)
    guard.run(kernel.found(), online=ONLINE)
    assert kernel.files[irq(131)] == "0-7"


def test_nothing_is_written_before_old_values_are_stored() -> None:
    """Where the store fails, no file is touched."""
    kernel = GuardedKernel({131: "0-7"})
    kernel.kill_at = 1
    with contextlib.suppress(KilledError):
        kernel.guard().run(kernel.found("4-7"), online=ONLINE)
    assert kernel.writes == []


@given(st.integers(0, 1 << 300))
def test_hexadecimal_masks(bits: Bits) -> None:
    """Masks are written as the kernel groups them, and read back."""
    text = text_of(bits, "mask")
    assert bits_in(text, "mask") == bits
    assert all(len(group) == 8 for group in text.split(","))
    assert bits_in("what?", "mask") == bits_in("x-y", "list") == 0


def test_files_of_a_kernel(tmp_path: Path) -> None:
    """The files are found below a root, with CPUs of the NUMA node of an interrupt, and written in place."""
    for path, text in {
        "proc/irq/131/smp_affinity_list": "0-7\n",
        "proc/irq/131/node": "1\n",
        "proc/irq/131/eth0-rx-3/x": "",
        "proc/irq/default_smp_affinity": "ff\n",
        "sys/devices/system/node/node1/cpulist": "4-7\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    files = KernelFiles(tmp_path)
    found = list(files.masks(node_cpus(files)))
    assert [(one.path, one.form, one.rest) for one in found] == [
        (irq(131), "list", parse_bits("4-7")),
        (DEFAULT, "mask", 0),
    ]
    files.write(irq(131), "0-3")
    assert files.read(irq(131)) == "0-3\n"
    assert files.device_of(irq(131)) == "irq 131 (eth0-rx-3)"


def test_old_values_survive_the_process_not_the_boot(tmp_path: Path) -> None:
    """Stored values are there at the next start and dropped after a reboot; damage is reported."""
    saved = {irq(1): SavedFile(irq(1), "list", "0-7", ("0-3",))}
    SavedStore(tmp_path, "boot-a", cgroups=CGROUPS).save(saved)
    assert SavedStore(tmp_path, "boot-a", cgroups=CGROUPS).load() == saved
    assert SavedStore(tmp_path, "boot-b", cgroups=CGROUPS).load() == {}
    (tmp_path / "podslice_guard_state").write_text("{")
    with pytest.raises(ValueError, match="cannot be read"):
        SavedStore(tmp_path, "boot-a", cgroups=CGROUPS).load()
    assert SavedStore(tmp_path / "none", "boot-a", cgroups=CGROUPS).load() == {}
