"""The guards of a node in the agent: by the policy, restored at stop and at the next start, never in the way."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from click.testing import CliRunner

from podslice.agent.contract import Listed
from podslice.agent.exclusive import DirectoryLock
from podslice.agent.metrics import Metrics
from podslice.agent.nodeguards import NodeGuards
from podslice.agent.owner import Owner
from podslice.agent.report import AgentReporter
from podslice.cli.main import cli
from podslice.core.config.policy import InterferenceGuards, PodslicePolicy
from podslice.host.kernelfiles import KernelFiles, SavedStore
from tests.conftest import make_node, make_pod

IRQ, DEFAULT = "proc/irq/131/smp_affinity_list", "proc/irq/default_smp_affinity"


class GuardedNode:
    """A node with kernel files below a folder, and a pod that owns CPUs or does not."""

    def __init__(self, folder: Path, irq: str | None, *, observe: bool = False) -> None:
        self.root = folder / "root"
        for path, text in ((IRQ, "0-31\n"), (DEFAULT, "ffffffff\n")):
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            if not (self.root / path).exists():
                (self.root / path).write_text(text)
        policy = PodslicePolicy(guards=None if irq is None else InterferenceGuards(irq=irq))  # type: ignore[arg-type]
        node = make_node()
        (folder / "state").mkdir(exist_ok=True)
        reporter = AgentReporter()
        self.owner = Owner(folder / "state", node.machine, node.view.config, reporter=reporter, policy=policy)
        self.owner.synchronize(Listed([], []))
        self.metrics = reporter.metrics = Metrics(self.owner)
        self.troubles: list[str] = []
        store = SavedStore(folder / "state", "boot")
        self.guards = NodeGuards(
            self.owner,
            KernelFiles(self.root),
            store,
            self.metrics,
            trouble=lambda what, text: self.troubles.append(text),
            observe=observe,
        )

    def own(self) -> str:
        assert self.owner.node is not None
        return str(self.owner.node.admit(make_pod("u1", ("app", "4"))).containers[0].cpus)

    def look(self) -> None:
        asyncio.run(self.guards.look())

    def text(self, path: str = IRQ) -> str:
        return (self.root / path).read_text().strip()

    def open(self) -> float:
        return self.metrics.guard_open.labels("irq")._value.get()


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
    page = node.metrics.text()
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
    """What a killed agent changed is given back by the next one, whatever its policy says now."""
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
    assert "is no folder" in str(run(cli, ["guards", "--restore", "--state=/none"]).exception)
