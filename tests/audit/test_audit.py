"""`podslice audit` on state files and cgroups alone."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from podslice.cli.main import cli
from podslice.node.checkpoints import policy_state
from podslice.values.cpuset import CPUSet, bits_of, format_bits, iter_bits, parse_bits
from tests.agent.fakenode import FakeTree
from tests.conftest import make_node, make_pod
from tests.read_documents import read_document

UID, OTHER = "11111111-2222-3333-4444-555555555555", "99999999-2222-3333-4444-555555555555"
APP, SHARED, SANDBOX = "a" * 64, "b" * 64, "c" * 64


class FakeHost:
    """A kubelet's state, its pods' cgroups, and a few processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        node = make_node()
        decision = node.admit(make_pod(UID, ("app", "4")))
        self.own = str(decision.containers[0].cpus)
        shared = node.admit(make_pod(OTHER, ("web", "500m")))
        self.rest = str(shared.containers[0].cpus)
        for name, data in node.files.items():
            (folder / "state").mkdir(exist_ok=True)
            (folder / "state" / name).write_bytes(data)
        self.tree = FakeTree(folder / "cgroup")
        self.app = f"kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{APP}.scope"
        self.web = f"kubepods/burstable/pod{OTHER}/{SHARED}"
        self.tree.add(self.app, procs="100\n", cpuset_cpus=self.own)
        self.tree.add(self.web, procs="200\n", cpuset_cpus=self.rest)
        logs = folder / "logs"
        logs.mkdir()
        (logs / f"a_default_app-{APP}.log").write_text("")
        (logs / f"b_default_web-{SHARED}.log").write_text("")
        self.process(2, "kthreadd", "0-31", "", parent=0)
        self.process(3, "kworker", "0-31", "", parent=2)
        self.process(100, "app", self.own, self.app)
        self.process(200, "web", self.rest, self.web)

    def process(self, number: int, name: str, cpus: str, cgroup: str, parent: int = 1) -> None:
        folder = self.folder / "proc" / str(number)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "status").write_text(f"Name:\t{name}\nPPid:\t{parent}\nCpus_allowed_list:\t{cpus}\n")
        (folder / "cgroup").write_text(f"0::/{cgroup}\n")

    @property
    def options(self) -> list[str]:
        return [f"--{option}={self.folder / name}" for option, name in
                (("state", "state"), ("cgroup-root", "cgroup"), ("proc", "proc"), ("logs", "logs"))]  # fmt: skip

    def audit(self, *more: str) -> tuple[int, dict[str, Any]]:
        result = CliRunner().invoke(cli, ["audit", *self.options, "-o", "json", *more])
        return result.exit_code, read_document(result.stdout, "AuditReport")


def test_clean_node(tmp_path: Path) -> None:
    """A node that matches its state has no findings, kernel threads or not."""
    code, report = FakeHost(tmp_path).audit()
    assert (code, report["findings"], report["outsiders"]) == (0, [], {})
    assert (report["pods"], report["containers"]) == (2, 2)


def test_container_on_other_cpus(tmp_path: Path) -> None:
    """A container off its assignment is a finding; so is its quota."""
    host = FakeHost(tmp_path)
    host.tree.add(host.app, cpuset_cpus="1-2", cpu_max="400000 100000")
    code, report = host.audit()
    assert code == 1
    assert [(f["kind"], f["wanted"], f["found"]) for f in report["findings"]] == [
        ("cpus", host.own, "1-2"),
        ("quota", "max", "400000"),
    ]


def test_intruders(tmp_path: Path) -> None:
    """A shared container on exclusive CPUs, and a process that escaped its container's set."""
    host = FakeHost(tmp_path)
    host.tree.add(host.web, cpuset_cpus="0-31")
    code, report = host.audit()
    assert [(f["kind"], f["found"]) for f in report["findings"]] == [("intruder", host.own)]
    host.tree.add(host.web, cpuset_cpus=host.rest)
    host.process(200, "web", "0-31", host.web)
    code, report = host.audit()
    assert code == 1
    assert report["findings"][0]["where"].startswith("process 200 (web)")


def test_cgroups_inside_a_container(tmp_path: Path) -> None:
    """A container that manages cgroups of its own is still that container."""
    host = FakeHost(tmp_path)
    host.process(201, "inner", "0-31", f"{host.web}/init.scope")
    code, report = host.audit()
    assert (code, report["outsiders"]) == (1, {})
    assert report["findings"][0]["where"].startswith("process 201 (inner)")


def test_outsiders_are_counted(tmp_path: Path) -> None:
    """System services are findings only with --strict."""
    host = FakeHost(tmp_path)
    host.process(300, "sshd", "0-31", "system.slice/ssh.service")
    assert host.audit()[0] == 0
    code, report = host.audit("--strict")
    assert (code, report["outsiders"]) == (1, {"system.slice/ssh.service": 1})


def test_without_names(tmp_path: Path) -> None:
    """Without the kubelet's logs, a container is recognised by its set; an assignment without a container is a
    finding."""
    host = FakeHost(tmp_path)
    for path in (tmp_path / "logs").iterdir():
        path.unlink()
    assert host.audit()[0] == 0
    host.tree.add(host.app, cpuset_cpus="1-2")
    assert [f["kind"] for f in host.audit()[1]["findings"]] == ["cpus"]


def test_pod_without_containers(tmp_path: Path) -> None:
    """State for a pod that is gone is a finding."""
    host = FakeHost(tmp_path)
    shutil.rmtree(tmp_path / "cgroup" / "kubepods.slice")
    assert [f["kind"] for f in host.audit()[1]["findings"]] == ["missing"]


def test_damaged_state(tmp_path: Path) -> None:
    """A damaged file is a finding, not a crash; a missing one is bad input."""
    host = FakeHost(tmp_path)
    file = tmp_path / "state" / "cpu_manager_state"
    file.write_bytes(file.read_bytes().replace(b'"static"', b'"statik"'))
    code, report = host.audit()
    assert (code, report["findings"][0]["kind"]) == (1, "state")
    file.write_bytes(b"{")
    assert host.audit()[1]["findings"][0]["kind"] == "state"
    file.unlink()
    result = CliRunner().invoke(cli, ["audit", f"--state={tmp_path / 'state'}", f"--cgroup-root={tmp_path / 'cgroup'}"])
    assert "holds no cpu_manager_state" in str(result.exception)


def test_table(tmp_path: Path) -> None:
    """People get a table and a verdict."""
    host = FakeHost(tmp_path)
    arguments = [f"--state={tmp_path / 'state'}", f"--cgroup-root={tmp_path / 'cgroup'}", f"--proc={tmp_path / 'proc'}"]
    result = CliRunner().invoke(cli, ["audit", *arguments, f"--logs={tmp_path / 'logs'}", "-o", "table"])
    assert "every container has what the state assigns" in result.output
    host.tree.add(host.app, cpuset_cpus="1-2")
    result = CliRunner().invoke(cli, ["audit", *arguments, f"--logs={tmp_path / 'logs'}", "-o", "table"])
    assert "runs on other CPUs than assigned" in result.output


def test_crio_monitors_are_no_containers(tmp_path: Path) -> None:
    """CRI-O keeps a container's monitor in a scope that has the container's id in its name."""
    host = FakeHost(tmp_path)
    pod = host.app.rpartition("/")[0]
    host.tree.add(f"{pod}/crio-conmon-{APP}.scope", procs="300\n", cpuset_cpus="0-31")
    host.process(300, "conmon", host.rest, f"{pod}/crio-conmon-{APP}.scope")
    code, report = host.audit()
    assert (code, report["findings"], report["containers"]) == (0, [], 2)


ELASTIC = "apiVersion: podslice.io/v1alpha1\nkind: PodslicePolicy\nspec: {resize: {exclusive: true}}\n"


def test_promised_cpus(tmp_path: Path) -> None:
    """Promised CPUs are shown beside those that containers have; growth is a finding only under a given policy that
    would not have allowed it. A promise that is out of date is none."""
    host = FakeHost(tmp_path)
    first, rest = CPUSet.parse(host.own), host.own
    promised = str(CPUSet(sorted(first)[:2]))
    originals = {UID: {"app": promised, "gone": "1"}, OTHER: {"web": "3"}}
    file = tmp_path / "state" / "podslice_policy_state"
    file.write_bytes(policy_state.envelop({"version": 1, "bootId": "", "originals": originals}))
    code, report = host.audit()
    beyond = str(CPUSet(sorted(first)[2:]))
    assert (code, report["promised"]) == (0, [{"pod": UID, "container": "app", "promised": promised, "beyond": beyond}])
    policy = tmp_path / "policy.yaml"
    policy.write_text(ELASTIC)
    assert host.audit(f"--policy={policy}")[0] == 0
    policy.write_text(ELASTIC.replace("exclusive: true", "exclusive: false"))
    code, report = host.audit(f"--policy={policy}")
    assert code == 1
    (finding,) = report["findings"]
    assert (finding["kind"], finding["wanted"], finding["found"]) == ("heldOutsidePolicy", promised, beyond)
    result = CliRunner().invoke(cli, ["audit", *host.options])
    assert next(line.split() for line in result.output.splitlines() if promised in line) == [
        UID,
        "app",
        promised,
        beyond,
    ]
    assert host.own == rest


@pytest.mark.parametrize(
    ("classes", "found"), [("", 1), (", cpuClasses: [{name: slow}]", 1), (", cpuClasses: [{name: fast}]", 0)]
)
def test_classes_that_the_policy_has_no_more(tmp_path: Path, classes: str, found: int) -> None:
    """Containers with CPUs of a class that the policy no longer has keep them, and are reported."""
    host = FakeHost(tmp_path)
    file = tmp_path / "state" / "podslice_policy_state"
    content = {"version": 1, "bootId": "", "classes": {UID: {"app": ["fast!"], "gone": ["fast"]}}}
    file.write_bytes(policy_state.envelop(content))
    policy = tmp_path / "policy.yaml"
    policy.write_text(ELASTIC.replace("}}", f"}}{classes}}}"))
    code, report = host.audit(f"--policy={policy}")
    assert (code, len(report["findings"])) == (found, found)
    for finding in report["findings"]:
        assert (finding["kind"], finding["where"]) == ("heldOutsidePolicy", f"pod {UID} container app")
        assert (finding["wanted"], finding["found"]) == ("fast!", host.own)


@pytest.mark.parametrize(("threads", "found"), [((0, 1), 0), ((0, 0), 1)], ids=["hidden", "other cores"])
def test_one_thread_of_each_core(tmp_path: Path, threads: tuple[int, int], found: int) -> None:
    """A container that hides siblings runs on the first thread of each of its cores, by the machine that the policy's
    state file names; where all its CPUs are first threads, some are missing."""
    host = FakeHost(tmp_path)
    own = parse_bits(host.own)
    cpus = {str(cpu): f"0/0/{cpu // 2}/{threads[cpu % 2]}" for cpu in range(32)}
    content = {"version": 1, "bootId": "b", "machine": {"cpus": cpus}, "classes": {UID: {"app": ["all"]}}}
    (tmp_path / "state" / "podslice_policy_state").write_bytes(policy_state.envelop(content))
    used = bits_of(cpu for cpu in iter_bits(own) if cpu % 2 == 0)
    host.tree.add(host.app, procs="100\n", cpuset_cpus=format_bits(used))
    host.process(100, "app", format_bits(used), host.app)
    code, report = host.audit()
    assert (code, [one["kind"] for one in report["findings"]]) == (found, ["cpus"] * found)


def test_a_damaged_promise_is_a_finding(tmp_path: Path) -> None:
    """A damaged state file of a policy is reported by name."""
    host = FakeHost(tmp_path)
    (tmp_path / "state" / "podslice_policy_state").write_text("{}")
    code, report = host.audit()
    assert code == 1
    assert [finding["kind"] for finding in report["findings"]] == ["state"]


def test_a_resize_that_is_being_written(tmp_path: Path) -> None:
    """While an intent is open, the CPUs of before and of after are both right."""
    host = FakeHost(tmp_path)
    after = str(CPUSet(sorted(CPUSet.parse(host.own))[:2]))
    intents = {UID: {"from": {"containers": {"app": host.own}}, "to": {"containers": {"app": after}}}}
    host.tree.add(host.app, procs="100\n", cpuset_cpus=after)
    assert host.audit()[0] == 1
    file = tmp_path / "state" / "podslice_policy_state"
    file.write_bytes(policy_state.envelop({"version": 1, "bootId": "", "intents": intents}))
    assert host.audit()[0] == 0


def test_offline_cpus(tmp_path: Path) -> None:
    """An owner that has lost CPUs runs on the rest, and the finding says so."""
    host = FakeHost(tmp_path)
    lost = sorted(CPUSet.parse(host.own))[-1]
    left = str(CPUSet(sorted(CPUSet.parse(host.own))[:-1]))
    host.tree.add(host.app, procs="100\n", cpuset_cpus=left)
    (tmp_path / "cgroup" / "cpuset.cpus.effective").write_text(str(CPUSet(set(range(32)) - {lost})))
    (finding,) = host.audit()[1]["findings"]
    assert (finding["found"], finding["message"]) == (left, f"CPUs {lost} of it are offline: it runs on the rest")


def test_a_mixed_container(tmp_path: Path) -> None:
    """A container with exclusive and shared CPUs runs on both; on its own alone it lacks the shared ones. A limit that
    is its whole request is the policy's."""
    host = FakeHost(tmp_path)
    count = len(CPUSet.parse(host.own))
    mixed = {UID: {"app": {"exclusive": count, "shared": 500}}}
    file = tmp_path / "state" / "podslice_policy_state"
    file.write_bytes(policy_state.envelop({"version": 1, "bootId": "", "mixed": mixed}))
    both = str(CPUSet.parse(host.own) | CPUSet.parse(host.rest))
    host.tree.add(host.app, cpuset_cpus=both, cpu_max=f"{count * 100000 + 50000} 100000")
    assert host.audit()[0] == 0
    host.tree.add(host.app, cpuset_cpus=host.own, cpu_max="max 100000")
    code, report = host.audit()
    assert code == 1
    assert [(one["kind"], one["found"]) for one in report["findings"]] == [("cpus", host.own)]
