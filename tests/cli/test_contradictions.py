"""Evidence that speaks against the machine, the configuration or the pods that were given is said first, and nothing is
proposed that rests on it. People on call were told to restart the wrong pod, as the machine numbered CPUs otherwise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from podslice.api.pod.spec import pod_from_dict
from podslice.config.kubelet_file import load_kubelet_config
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.cpu.checkpoint import CPUCheckpoint, encode
from podslice.node.node import Node
from podslice.values.cpuset import format_bits, iter_bits, parse_bits
from tests.read_documents import read_document
from tests.shell import podslice

SHAPE = "pack:2 numa:1(memory=64GiB) core:8 pu:2"
SIBLINGS = f"{SHAPE}(indexes=1*2:2*8:16*2)"
LINUX = f"{SHAPE}(indexes=2*8:16*2:1*2)"
IN_TURNS = f"{SHAPE}(indexes=16*2:2*8:1*2)"
SMALLER = "pack:2 numa:1(memory=32GiB) core:8 pu:2(indexes=16*2:2*8:1*2)"
CONFIG = """
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
memoryManagerPolicy: Static
topologyManagerPolicy: {policy}
systemReserved: {{memory: 1948Mi}}
reservedSystemCPUs: "{reserved}"
reservedMemory:
- {{numaNode: 0, limits: {{memory: 1Gi}}}}
- {{numaNode: 1, limits: {{memory: 1Gi}}}}
"""


def pod(name: str, cpus: int, phase: str = "Running", **status: Any) -> dict[str, Any]:
    amounts = {"cpu": str(cpus), "memory": "8Gi"}
    container = {"name": "c", "image": "i", "resources": {"limits": amounts, "requests": amounts}}
    spec = {"containers": [container], "nodeName": "n7"}
    metadata = {"name": name, "namespace": "shop", "uid": f"uid-{name}"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": phase, **status}}


def listed(*pods: dict[str, Any]) -> str:
    return json.dumps({"kind": "List", "apiVersion": "v1", "items": pods})


RUNNING = (pod("a", 6), pod("b", 4), pod("c", 6))


class Ticket:
    """Files about a node: configuration, running pods, state files of its kubelet, and a pod that is asked about."""

    def __init__(self, folder: Path, machine: str, *, policy: str = "single-numa-node", reserved: str = "0") -> None:
        self.config = self._write(folder / "kubelet.yaml", CONFIG.format(policy=policy, reserved=reserved))
        self.pods = self._write(folder / "pods.json", listed(*RUNNING))
        self.asked = self._write(folder / "asked.json", json.dumps(pod("asked", 14, "")))
        self.state = folder / "state"
        self.state.mkdir()
        node = Node(from_synthetic(machine), load_kubelet_config(self.config).config)
        for one in RUNNING:
            assert node.admit(pod_from_dict(one)).admitted
        for name, data in node.manager_files.items():
            (self.state / name).write_bytes(data)

    @staticmethod
    def _write(path: Path, text: str) -> str:
        path.write_text(text)
        return str(path)

    def ask(self, command: str, machine: str, *more: str) -> Any:
        files = () if command in ("draw", "serve") else (self.asked,)
        given = ("--config", self.config, "--pods", self.pods, "--state", str(self.state))
        return podslice(command, *files, "--from", machine, *given, *more)


@pytest.mark.parametrize(("truth", "given"), [(IN_TURNS, SIBLINGS), (IN_TURNS, LINUX), (LINUX, SIBLINGS),
                                              (SIBLINGS, LINUX), (LINUX, IN_TURNS)])  # fmt: skip
def test_another_numbering_is_found_and_named(tmp_path: Path, truth: str, given: str) -> None:
    """Owners lie on two NUMA nodes of the given machine, which single-numa-node never does. The numbering under which
    they all lie on one is named in a form that can be given, and no change is proposed before."""
    ticket = Ticket(tmp_path, truth)
    answer = ticket.ask("explain", given)
    _, second, *_ = answer.stdout.splitlines()
    assert second.startswith("Contradiction: ")
    assert " of 3 owners in cpu_manager_state lie on this machine where single-numa-node does not put them: " in second
    named = second.partition("all 3 lie as they must: --from '")[2].partition("'")[0]
    assert from_synthetic(named).nodes == from_synthetic(truth).nodes
    assert "No change is proposed: it would rest on the machine, which is in doubt" in answer.stdout
    assert "best first" not in answer.stdout
    right = ticket.ask("explain", named)
    assert "Contradiction" not in right.stdout
    assert "What makes it fit, best first" in right.stdout


def test_it_is_in_every_answer(tmp_path: Path) -> None:
    """The terminal, documents, pages and pictures say it; defrag makes no plan."""
    ticket = Ticket(tmp_path, IN_TURNS)
    for command in ("admit", "explain", "draw", "whatif"):
        assert "owners in cpu_manager_state lie" in ticket.ask(command, LINUX).stdout, command
    for command, kind in (("admit", "AdmissionReport"), ("explain", "ExplanationList"), ("whatif", "Comparison")):
        found = read_document(ticket.ask(command, LINUX, "-o", "json").stdout, kind)["provenance"]
        [one] = (found[0] if command == "whatif" else found)["contradictions"]
        assert (one["code"], one["about"]) == ("owners-misplaced", "machine")
        assert set(one["pods"]) <= {"uid-a", "uid-b", "uid-c"}
    for command, name in (("explain", "e.html"), ("draw", "d.svg"), ("draw", "d.html"), ("whatif", "w.html")):
        ticket.ask(command, LINUX, "--out", str(tmp_path / name))
        assert "owners in cpu_manager_state lie" in (tmp_path / name).read_text(encoding="utf-8"), name
    plan = ticket.ask("defrag", LINUX)
    assert plan.returncode == 2
    assert "no plan: it would rest on the machine, which is in doubt. " in plan.stderr
    assert "warning: " in ticket.ask("admit", LINUX, "-o", "nrt").stderr


def test_without_a_policy_the_usual_placement_tells(tmp_path: Path) -> None:
    """No Topology Manager forbids anything, but no owner has whole cores of one NUMA node on the given machine, and in
    another numbering all have."""
    ticket = Ticket(tmp_path, LINUX, policy="none")
    said = ticket.ask("explain", SIBLINGS).stdout
    assert "None of 3 owners in cpu_manager_state has whole cores of one NUMA node on this machine" in said
    named = said.partition(" of them lie as they must: --from '")[2].partition("'")[0]
    assert from_synthetic(named).nodes == from_synthetic(LINUX).nodes
    assert "Contradiction" not in ticket.ask("explain", LINUX).stdout


def test_other_memory_is_no_reason_to_repair(tmp_path: Path) -> None:
    """A kubelet does not start on the machine that was described. The error asks first whether it is the node's, gives
    both amounts, and does not send to `state repair`, which would write the wrong ones."""
    ticket = Ticket(tmp_path, IN_TURNS)
    answer = ticket.ask("explain", SMALLER)
    assert answer.returncode == 2
    error, *notes = answer.stderr.splitlines()
    assert error.endswith("(is the machine that you name the one of these files? the notes compare them)")
    assert f"NUMA 0 {64 << 30} bytes, the machine {32 << 30}" in notes[-1]
    assert "repair" not in answer.stderr


def printed(folder: Path, sizes: tuple[int, int]) -> tuple[str, ...]:
    """What lscpu -e and numactl -H print of the machine IN_TURNS, with these MB of memory, as options."""
    machine = from_synthetic(IN_TURNS)
    rows, nodes = ["CPU NODE SOCKET CORE"], ["available: 2 nodes (0-1)"]
    for place, node in enumerate(machine.nodes):
        cpus = sorted(cpu for core in node.cores for cpu in core.threads)
        nodes += [f"node {place} cpus: {' '.join(map(str, cpus))}", f"node {place} size: {sizes[place]} MB"]
        rows += [f"{cpu} {place} {place} {place}{at}" for at, core in enumerate(node.cores) for cpu in core.threads]
    texts = {"lscpu.txt": rows, "numactl.txt": nodes}
    found: list[str] = []
    for name, lines in texts.items():
        (folder / name).write_text("\n".join(lines) + "\n")
        found += ["--from", str(folder / name)]
    return tuple(found)


@pytest.mark.parametrize("profile", ["podslice", "kubelet-1.36"])
@pytest.mark.parametrize("bytes_more", [0, 4096, (1 << 20) - 4096])
def test_memory_that_is_printed_in_whole_mb(tmp_path: Path, profile: str, bytes_more: int) -> None:
    """numactl leaves out what is less than a MB. The state files have the rest, and nothing is in doubt."""
    exact = (64 << 30) + bytes_more
    ticket = Ticket(tmp_path, IN_TURNS.replace("64GiB", str(exact)))
    given = printed(tmp_path, (64 << 10, 64 << 10))
    answer = ticket.ask("explain", given[1], *given[2:], "--profile", profile)
    assert "Contradiction" not in answer.stdout, answer.stderr
    assert ("memory of the NUMA nodes from memory_manager_state" in answer.stdout) == bool(bytes_more)
    assert "What makes it fit" in answer.stdout
    verified = podslice("state", "verify", str(ticket.state), *given, "--config", ticket.config)
    assert verified.returncode == 0, verified.stdout


def test_memory_that_differs_by_more_than_is_printed(tmp_path: Path) -> None:
    """It is said first. CPUs decide here, and their numbers are not in doubt; amounts of memory are not proposed."""
    ticket = Ticket(tmp_path, IN_TURNS)
    given = printed(tmp_path, ((64 << 10) - 1, (64 << 10) + 40))
    refused = pod("asked", 14, "Failed", reason="TopologyAffinityError", message="no room")
    Path(ticket.asked).write_text(json.dumps(refused))
    for command in ("explain", "why", "admit"):
        answer = ticket.ask(command, given[1], *given[2:])
        line = next(line for line in answer.stdout.splitlines() if line.startswith("Contradiction: "))
        assert f"NUMA 0 {64 << 30} bytes, the machine {(64 << 30) - (1 << 20)}" in line
        proposed = answer.stdout.partition("What makes it fit")[2]
        assert bool(proposed) == (command != "admit")
        assert "memory" not in proposed.partition("At the price")[0]
    found = read_document(ticket.ask("explain", given[1], *given[2:], "-o", "json").stdout, "ExplanationList")
    assert [one["about"] for one in found["provenance"]["contradictions"]] == ["memory"]


def test_nothing_is_proposed_where_the_memory_in_doubt_decides(tmp_path: Path) -> None:
    """A pod for which the memory of the NUMA nodes is too small gets no advice about it."""
    ticket = Ticket(tmp_path, IN_TURNS)
    large = pod("asked", 2, "")
    for amounts in large["spec"]["containers"][0]["resources"].values():
        amounts["memory"] = "60Gi"
    Path(ticket.asked).write_text(json.dumps(large))
    given = printed(tmp_path, ((64 << 10) - 1, (64 << 10) + 40))
    answer = ticket.ask("explain", given[1], *given[2:])
    assert "No change is proposed: it would rest on the memory, which is in doubt (see above)" in answer.stdout
    assert "What makes it fit" not in answer.stdout


@pytest.mark.parametrize(
    ("machine", "code", "text"),
    [
        ("pack:2 numa:1(memory=64GiB) core:6 pu:2", "cpus-differ", "names CPUs 24-31, which it does not have"),
        ("pack:2 numa:1(memory=64GiB) core:10 pu:2", "cpus-differ", "does not name its CPUs 32-39"),
        ("pack:1 numa:1(memory=128GiB) core:16 pu:2", "nodes-differ", "memory_manager_state has 0, 1"),
    ],
)
def test_another_machine(tmp_path: Path, machine: str, code: str, text: str) -> None:
    """CPUs and NUMA nodes that the files have and the machine has not, and the other way round. For other NUMA nodes
    the machine that the files are of is worked out."""
    ticket = Ticket(tmp_path, IN_TURNS)
    answer = ticket.ask("explain", machine)
    assert answer.returncode == 2
    [note] = [line for line in answer.stderr.splitlines() if text in line]
    assert note.startswith("podslice: note: The machine has ")
    assert "repair" not in answer.stderr
    if code == "nodes-differ":
        named = note.partition("all 3 lie as they must: --from '")[2].partition("'")[0]
        assert from_synthetic(named).nodes == from_synthetic(IN_TURNS).nodes


def test_reserved_cpus_with_owners(tmp_path: Path) -> None:
    """Files give reserved CPUs to a pod: the configuration is another one than that of the kubelet that wrote them."""
    ticket = Ticket(tmp_path, LINUX)
    (tmp_path / "kubelet.yaml").write_text(CONFIG.format(policy="single-numa-node", reserved="0-2"))
    answer = ticket.ask("explain", LINUX)
    assert answer.returncode == 2
    assert "(is the configuration that you name the one of these files? the notes compare them)" in answer.stderr
    assert "reservedSystemCPUs is 0-2, and cpu_manager_state gives some of them to shop/a (CPUs 1-2)" in answer.stderr


def test_files_of_another_node_or_time(tmp_path: Path) -> None:
    """Owners that run elsewhere, pods without their CPUs, and pods with other numbers of them."""
    ticket = Ticket(tmp_path, LINUX)
    elsewhere = pod("b", 4)
    elsewhere["spec"]["nodeName"] = "n8"
    (tmp_path / "pods.json").write_text(listed(pod("a", 8), elsewhere, pod("d", 2)))
    (tmp_path / "asked.json").write_text(json.dumps(pod("asked", 14, "Failed", reason="TopologyAffinityError")))
    said = ticket.ask("admit", LINUX).stdout
    assert "cpu_manager_state has owners that run on other nodes by the list of pods: shop/b on n8" in said
    assert "cpu_manager_state has no CPUs of pods that run and are entitled to their own: shop/d" in said
    assert "Pods have other numbers of CPUs in cpu_manager_state than they ask for: shop/a (c has 6, not 8)" in said


def test_a_few_owners_from_before(tmp_path: Path) -> None:
    """One owner of three that lies elsewhere dates from another configuration: the machine is not in doubt, and only
    changes that concern that pod are left out."""
    ticket = Ticket(tmp_path, LINUX)
    file = ticket.state / "cpu_manager_state"
    content = json.loads(file.read_text())
    entries, free = content["entries"], parse_bits(content["defaultCpuSet"])
    low, high = (format_bits(1 << next(iter_bits(free & half))) for half in (0xFEFE, 0xFF00FF00 & ~0xFF00))
    moved = parse_bits(f"{low},{high}")
    freed = parse_bits(entries["uid-b"]["c"])
    entries["uid-b"] = {"c": format_bits(moved)}
    file.write_bytes(encode(CPUCheckpoint("static", format_bits(free & ~moved | freed), entries), "v2"))
    said = ticket.ask("explain", LINUX).stdout
    assert "1 of 3 owners" in said
    assert "They may date from another configuration" in said


def test_a_refused_pod_that_would_be_admitted(tmp_path: Path) -> None:
    """The kubelet's decision and the expected one are two lines, after one that they differ; so it is for a pod
    that runs and would be refused. A pod without a status, and one refused for the reason given, contradict
    nothing."""
    ticket = Ticket(tmp_path, LINUX)
    given = ("--from", LINUX, "--config", ticket.config)
    refused = pod("asked", 4, "Failed", reason="TopologyAffinityError", message="Pod was rejected: why")
    (tmp_path / "asked.json").write_text(json.dumps(refused))
    lines = podslice("explain", ticket.asked, *given).stdout.splitlines()
    assert lines[2].startswith("Contradiction: The kubelet refused shop/asked with TopologyAffinityError, and here it ")
    assert "shop/asked is Guaranteed and would be admitted." in lines
    assert "The kubelet said (status in the file): Failed, TopologyAffinityError: Pod was rejected: why" in lines
    [item] = read_document(podslice("explain", ticket.asked, *given, "-o", "json").stdout, "ExplanationList")["items"]
    assert item["said"] == {
        "phase": "Failed", "reason": "TopologyAffinityError", "message": "Pod was rejected: why",
    }  # fmt: skip
    assert item["contradiction"]["code"] == "refused-but-admitted"
    report = read_document(podslice("admit", ticket.asked, *given, "-o", "json").stdout, "AdmissionReport")
    assert [one["code"] for one in report["contradictions"]] == ["refused-but-admitted"]
    for phase, reason, cpus, code in (
        ("Running", "", 31, "runs-but-refused"),
        ("Failed", "OutOfcpu", 31, "refused-otherwise"),
        ("Failed", "TopologyAffinityError", 17, None),
        ("Failed", "Evicted", 4, None),
        ("", "", 31, None),
    ):
        (tmp_path / "asked.json").write_text(json.dumps(pod("asked", cpus, phase, reason=reason)))
        text = podslice("explain", ticket.asked, *given, "-o", "json").stdout
        found = read_document(text, "ExplanationList")["items"][0]["contradiction"]
        assert (found and found["code"]) == code, (phase, reason, cpus)


def test_no_status_is_not_quoted(tmp_path: Path) -> None:
    """A pod without a status is refused with what the kubelet's message would be; nobody said it."""
    ticket = Ticket(tmp_path, LINUX)
    (tmp_path / "asked.json").write_text(json.dumps(pod("asked", 31, "")))
    said = podslice("explain", ticket.asked, "--from", LINUX, "--config", ticket.config, "--no-fixes").stdout
    assert "The kubelet's message would be: " in said
    assert "The kubelet said" not in said
    assert "status says" not in said
    assert "Changes that would make it fit were not searched for." in said
    assert "No change in the searched classes" not in said


def test_a_node_object_says_another_release_and_reservation(tmp_path: Path) -> None:
    """The Node's kubelet is of another release, and keeps other amounts than the configuration that is given."""
    amounts = {"cpu": "32", "memory": "128Gi", "pods": "110"}
    left, info = {**amounts, "cpu": "30"}, {"kubeletVersion": "v1.33.4"}
    node = {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n7"},
        "status": {"capacity": amounts, "allocatable": left, "nodeInfo": info},
    }  # fmt: skip
    (tmp_path / "node.json").write_text(json.dumps(node))
    (tmp_path / "k.yaml").write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nsystemReserved: {cpu: '1'}\n"
        "evictionHard: {memory.available: '0%'}\n"
    )
    given = ("--from", str(tmp_path / "node.json"))
    said = podslice("admit", "examples/small.yaml", *given, "--config", str(tmp_path / "k.yaml")).stdout
    words = (
        "The node runs kubelet v1.33.4; decisions are those of Kubernetes 1.36. `--kubernetes auto` takes the node's."
    )
    assert words in said
    assert "runs kubelet" not in podslice("admit", "examples/small.yaml", *given, "--kubernetes", "auto").stdout
    assert "The Node object keeps 2 of its cpu from pods, the configuration 1." in said
    assert "its memory" not in said
    assert "keeps" not in podslice("admit", "examples/small.yaml", *given).stdout


def test_repair_writes_nothing_for_a_doubtful_machine(tmp_path: Path) -> None:
    """Every figure that would change is listed with exit code 1. For a machine that may be the wrong one nothing is
    written; a captured one is sure."""
    ticket = Ticket(tmp_path, IN_TURNS)
    before = {one.name: one.read_bytes() for one in ticket.state.iterdir()}
    given = ("state", "repair", str(ticket.state), "--config", ticket.config)
    shown = podslice(*given, "--from", SMALLER)
    assert shown.returncode == 1
    assert f"machineState.0.memoryMap.memory.total: {64 << 30} becomes {32 << 30}" in shown.stdout
    assert "warning: memory_manager_state gives NUMA 0 " in shown.stderr
    found = read_document(podslice(*given, "--from", SMALLER, "-o", "json").stdout, "StateRepairList")["items"]
    assert [one["changed"] for one in found] == [bool(one["actions"]) for one in found] == [False, True]
    for option in (("--write",), ("--out", str(tmp_path / "new"))):
        files = (
            given if option[0] == "--write" else (*given[:2], str(ticket.state / "memory_manager_state"), *given[3:])
        )
        refused = podslice(*files, "--from", SMALLER, *option)
        assert refused.returncode == 2
        assert (
            "nothing is written, because the machine that you name may not be the one of these files" in refused.stderr
        )
    assert {one.name: one.read_bytes() for one in ticket.state.iterdir()} == before
    assert not (tmp_path / "new").exists()
    right = podslice(*given, "--from", IN_TURNS, "--write")
    assert (right.returncode, right.stderr) == (0, "")


def test_verify_says_it_first(tmp_path: Path) -> None:
    """`state verify` prints contradictions before its findings, and has them in its document."""
    ticket = Ticket(tmp_path, IN_TURNS)
    given = ("state", "verify", str(ticket.state), "--config", ticket.config, "--from", LINUX)
    said = podslice(*given)
    machine, first, *_ = said.stdout.splitlines()
    assert (said.returncode, machine[:9], first[:15]) == (1, "Machine: ", "Contradiction: ")
    found = read_document(podslice(*given, "-o", "json").stdout, "StateVerificationList")
    assert [one["code"] for one in found["contradictions"]] == ["owners-misplaced"]
