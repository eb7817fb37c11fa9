"""The guards of a node in the agent: by the policy, restored at stop and at the next start, never in the way."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from prometheus_client import generate_latest

from podslice.agent.process.exclusive import DirectoryLock
from podslice.agent.records import PodRecord
from podslice.cli.main import cli
from podslice.config.policy import InterferenceGuards, PowerProfile
from podslice.service.identity import Identity
from tests.guards.node import DEFAULT, IRQ, GuardedNode, cgroups_of


def test_enforced_and_given_back(tmp_path: Path) -> None:
    """Interrupts leave the CPUs of an owner, and come back when it leaves; the counters say how often."""
    node = GuardedNode(tmp_path, "enforce")
    cpus = node.own()
    node.look()
    assert cpus == "2-5"
    assert (node.text(), node.text(DEFAULT)) == ("0-1,6-31", "ffffffc3")
    assert node.open() == 0
    assert node.owner.node is not None
    node.owner.node.remove("u1")
    node.look()
    assert (node.text(), node.text(DEFAULT)) == ("0-31", "ffffffff")
    page = generate_latest(node.metrics.registry)
    assert b'podslice_guard_writes_total{guard="irq",result="restored"} 2.0' in page


def test_restored_at_the_stop(tmp_path: Path) -> None:
    """An agent that stops leaves the files as it found them."""
    node = GuardedNode(tmp_path, "enforce")
    node.own()
    node.look()
    node.guards.restore()
    assert (node.text(), node.text(DEFAULT)) == ("0-31", "ffffffff")


@pytest.mark.parametrize("irq", ["observe", None, "enforce"])
def test_after_a_kill(tmp_path: Path, irq: str | None) -> None:
    """Files that a killed agent changed are restored by the next one, whatever its policy is by then."""
    killed = GuardedNode(tmp_path, "enforce")
    killed.own()
    killed.look()
    assert killed.text() == "0-1,6-31"
    node = GuardedNode(tmp_path, irq)
    node.look()
    assert (node.text(), node.text(DEFAULT)) == ("0-31", "ffffffff")


@pytest.mark.parametrize(("irq", "observe"), [("observe", False), ("enforce", True)])
def test_observing_writes_nothing(tmp_path: Path, irq: str, *, observe: bool) -> None:
    """Where the policy or the agent only observes, no file is written (P3), and open files are counted."""
    node = GuardedNode(tmp_path, irq, observe=observe)
    node.own()
    for path in (IRQ, DEFAULT):
        (node.root / path).chmod(0o400)
    before = {path: (node.root / path).stat().st_mtime_ns for path in (IRQ, DEFAULT)}
    node.look()
    node.guards.restore()
    assert before == {path: (node.root / path).stat().st_mtime_ns for path in (IRQ, DEFAULT)}
    assert node.open() == 2
    assert not (tmp_path / "state" / "podslice_guard_state").exists()


def test_troubles_are_told(tmp_path: Path) -> None:
    """A damaged store means that nothing is changed; a file that refuses is named."""
    node = GuardedNode(tmp_path, "enforce")
    node.own()
    (tmp_path / "state" / "podslice_guard_state").write_text("{")
    node.look()
    assert "cannot be read" in node.troubles[0]
    assert node.text() == "0-31"
    (tmp_path / "state" / "podslice_guard_state").unlink()
    node.guards._files.write = lambda path, text: (_ for _ in ()).throw(OSError(5, "EIO"))  # type: ignore[method-assign]
    node.look()
    assert any("irq 131 cannot be moved" in text for text in node.troubles)


def test_given_back_without_an_agent(tmp_path: Path) -> None:
    """The command shows what a killed agent has changed and gives it back, but not what somebody else wrote since, and
    not beside a living agent."""
    killed = GuardedNode(tmp_path, "enforce")
    killed.own()
    killed.look()
    (killed.root / "sys/devices/system/cpu").mkdir(parents=True)
    (killed.root / "sys/devices/system/cpu/online").write_text("0-31\n")
    (killed.root / "proc/sys/kernel/random").mkdir(parents=True)
    (killed.root / "proc/sys/kernel/random/boot_id").write_text("boot\n")
    options = [f"--state={tmp_path / 'state'}", f"--root={killed.root}"]
    run = CliRunner().invoke
    assert "0-1,6-31" in run(cli, ["guards", *options]).output
    lock = DirectoryLock(tmp_path / "state")
    lock.take()
    assert "another agent" in str(run(cli, ["guards", "--restore", *options]).exception)
    lock.release()
    (killed.root / DEFAULT).write_text("f\n")
    result = run(cli, ["guards", "--restore", *options])
    assert (result.exit_code, killed.text(), killed.text(DEFAULT)) == (0, "0-31", "f")
    assert f"/{DEFAULT}: left" in result.output
    assert "No file of the kernel is changed." in run(cli, ["guards", *options]).output
    (tmp_path / "state" / "podslice_guard_state").write_text("{")
    assert "cannot be read" in str(run(cli, ["guards", *options]).exception)
    assert "is not a folder" in str(run(cli, ["guards", "--restore", "--state=/none"]).exception)


PROFILES = {"latency": PowerProfile(resume_latency_us="0"), "sleepy": PowerProfile(resume_latency_us="n/a")}


@pytest.mark.parametrize("power", ["observe", "enforce"])
def test_power_of_a_container(tmp_path: Path, power: str) -> None:
    """The profile that a container asks for, else the default one, is that of its CPUs and of no others; observed, it
    is counted and nothing is written; without files it is a trouble that is told once."""
    rules = InterferenceGuards(power=power, power_profiles=PROFILES, default_power="latency")  # type: ignore[arg-type]
    node = GuardedNode(tmp_path, None, rules=rules)
    latency = [node.put(f"sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us", "7") for cpu in range(5)]
    node.own(cpu_power="sleepy")
    node.look()
    node.look()
    texts = [file.read_text().strip() for file in latency]
    assert texts == ["7", "7", *(["n/a"] * 3 if power == "enforce" else ["7"] * 3)]
    assert node.open("power") == (0 if power == "enforce" else 3)
    assert [text for text in node.troubles if "power" in text] == ["power: CPU 5 has no resumeLatencyUs"]
    node.guards.restore()
    assert {file.read_text().strip() for file in latency} == {"7"}


@pytest.mark.parametrize(
    ("isolation", "kind"), [("root", "root"), ("isolated", "isolated"), ("shared", "member"), ("", "root")]
)
def test_partition_of_a_container(tmp_path: Path, isolation: str, kind: str) -> None:
    """A container with CPUs of its own becomes the partition it asks for, and is none when the agent stops."""
    node = GuardedNode(tmp_path, None, rules=InterferenceGuards(partition="enforce"))
    node.own(**({"isolation": isolation} if isolation else {}))
    files = cgroups_of(node)
    node.look()
    taken = "" if kind == "member" else "2-5"
    assert {path: file.read_text().strip() for path, file in files.items()} == {
        "": taken, "/pod1": taken, "/pod1/app": kind
    }  # fmt: skip
    assert node.open("partition") == 0
    node.guards.restore()
    assert [file.read_text().strip() for file in files.values()] == ["", "", "member"]


def test_partitions_are_only_counted(tmp_path: Path) -> None:
    """With `observe` no cgroup is written, and how many files would change is counted."""
    node = GuardedNode(tmp_path, None, rules=InterferenceGuards())
    node.own()
    files = cgroups_of(node)
    node.look()
    assert [file.read_text().strip() for file in files.values()] == ["", "", "member"]
    assert node.open("partition") == 3


def test_wishes_for_interrupts(tmp_path: Path) -> None:
    """A container may keep its interrupts, all but those of its first core, or claim those of a device."""
    rules = InterferenceGuards("enforce", claimable=("eth0-*",))
    for at, (wish, where) in enumerate(
        (("keep", "0-31"), ("housekeeping", "0-3,6-31"), ("claim:eth0-*", "2-5"), ("ban", "0-1,6-31"))
    ):
        node = GuardedNode(tmp_path / str(at), None, rules=rules)
        (node.root / "proc/irq/131/eth0-rx-3").mkdir()
        node.own(irq=wish)
        node.look()
        assert node.text() == where, wish
        assert node.open() == 0


def test_network_queues_and_workqueues(tmp_path: Path) -> None:
    """Packets are not steered to exclusive CPUs and workqueues leave them; queues that steer nothing stay so."""
    node = GuardedNode(tmp_path, "enforce")
    steering = node.put("sys/class/net/eth0/queues/rx-0/rps_cpus", "000000ff")
    idle = node.put("sys/class/net/eth0/queues/rx-1/rps_cpus", "00000000")
    writeback = node.put("sys/devices/virtual/workqueue/writeback/cpumask", "ffffffff")
    node.own()
    node.look()
    assert [file.read_text().strip() for file in (steering, idle, writeback)] == ["000000c3", "00000000", "ffffffc3"]
    node.guards.restore()
    assert [file.read_text().strip() for file in (steering, idle, writeback)] == ["000000ff", "00000000", "ffffffff"]


def test_a_contested_file_is_an_event(tmp_path: Path) -> None:
    """A file that somebody keeps changing is left to them, with a trouble and an event on the node."""
    node = GuardedNode(tmp_path, "enforce")
    node.own()
    for _ in range(5):
        node.look()
        (node.root / IRQ).write_text("0-31\n")
    assert [reason for reason, _ in node.events] == ["PodsliceGuardContested"]
    node.look()
    assert node.text() == "0-31"


def test_units_and_sandboxes(tmp_path: Path) -> None:
    """Services of the system and sandboxes leave exclusive CPUs, and may run everywhere again when nobody owns any."""
    rules = InterferenceGuards(units="enforce", sandboxes="enforce")
    node = GuardedNode(tmp_path, None, rules=rules)
    files = {
        name: node.put(f"sys/fs/cgroup/{name}/cpuset.cpus", text)
        for name, text in (("system.slice", ""), ("user.slice", "0-3"), ("init.scope", "8-9"), ("kubepods/pod1/s1", ""))
    }
    node.own()
    identity = Identity(uid="u1", namespace="d", name="p", annotations={}, sandbox_cgroup="/kubepods/pod1/s1")
    node.owner.pods["u1"] = PodRecord(identity)
    node.look()
    assert [file.read_text().strip() for file in files.values()] == ["0-1,6-31", "0-1", "8-9", "0"]
    assert node.open("units") == node.open("sandboxes") == 0
    assert node.owner.node is not None
    node.owner.node.remove("u1")
    node.look()
    assert [file.read_text().strip() for file in files.values()] == ["", "0-3", "8-9", ""]


@pytest.mark.parametrize("by_hand", [True, False])
def test_cgroups_elsewhere(tmp_path: Path, *, by_hand: bool) -> None:
    """Files that a killed agent changed are restored where cgroups are mounted elsewhere, too."""
    rules = InterferenceGuards(partition="enforce", units="enforce")
    killed = GuardedNode(tmp_path, None, rules=rules, mount="mnt/cgroup")
    files = [*cgroups_of(killed, "mnt/cgroup").values(), killed.put("mnt/cgroup/system.slice/cpuset.cpus", "")]
    killed.own()
    killed.look()
    assert [file.read_text().strip() for file in files] == ["2-5", "2-5", "root", "0-1,6-31"]
    if by_hand:
        killed.put("sys/devices/system/cpu/online", "0-31")
        killed.put("proc/sys/kernel/random/boot_id", "boot")
        where = [f"--state={tmp_path / 'state'}", f"--root={killed.root}", f"--cgroup-root={killed.root}/mnt/cgroup"]
        assert CliRunner().invoke(cli, ["guards", "--restore", *where]).exit_code == 0
    else:
        next_one = GuardedNode(tmp_path, None, rules=rules, mount="mnt/cgroup")
        next_one.look()
        assert next_one.troubles == []
    assert [file.read_text().strip() for file in files] == ["", "", "member", ""]


def test_units_are_only_counted(tmp_path: Path) -> None:
    """With `observe` services stay where they are."""
    node = GuardedNode(tmp_path, None, rules=InterferenceGuards())
    system = node.put("sys/fs/cgroup/system.slice/cpuset.cpus", "")
    node.own()
    node.look()
    assert (system.read_text().strip(), node.open("units")) == ("", 1)
