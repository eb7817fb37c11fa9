"""How the command line behaves around its answers: mistakes, colours, widths, closed pipes, full disks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from podslice.cli.output import prose_width, use_colours
from podslice.render.prose import wrap_lines
from tests.shell import ROOT, podslice

PODS = str(ROOT / "examples" / "pods.yaml")
MACHINE = ("--machine", "xeon-6338-2s")


@pytest.fixture
def bad(tmp_path: Path) -> dict[str, str]:
    """Files that hold nothing useful."""
    contents = {"empty": b"", "binary": bytes(range(128, 256)), "deep": b"[" * 3000, "text": b"hello"}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder").mkdir()
    return {name: str(tmp_path / name) for name in (*contents, "folder", "missing")}


@pytest.mark.parametrize("kind", ["empty", "binary", "deep", "text", "folder", "missing"])
@pytest.mark.parametrize(
    "command",
    [
        ("admit", *MACHINE), ("explain", *MACHINE), ("draw", *MACHINE), ("whatif", *MACHINE), ("inspect",), ("replay",),
        ("admit", PODS, *MACHINE, "--config"), ("admit", PODS, *MACHINE, "--devices"), ("admit", PODS, "--from"),
        ("admit", PODS, "--sysfs"), ("inspect", PODS, "--limit-range"), ("inspect", PODS, "--node"),
        ("state", "show"), ("state", "convert"), ("state", "repair"), ("explain", PODS, *MACHINE, "--pods"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_useless_files(bad: dict[str, str], command: tuple[str, ...], kind: str) -> None:
    """A file that is missing, a folder, empty, binary or something else is one line on standard error, exit code 2."""
    answer = podslice(*command, bad[kind])
    assert (answer.returncode, answer.stdout) == (2, "")
    (line,) = answer.stderr.splitlines()
    assert line.startswith("podslice: error: ")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("admitt",), "no such command 'admitt' (did you mean admit?); podslice --help says more"),
        (("frobnicate",), "no such command 'frobnicate' (one of admit, agent, "),
        (("state", "shwo"), "no such command 'shwo' (did you mean show?); podslice state --help says more"),
        (("admit",), "missing argument 'FILE...'; podslice admit --help says more"),
        (("admit", PODS, "--machin", "x"), "no such option '--machin' (did you mean"),
        (("admit", PODS, "-o", "xml"), "'xml' is not one of 'table', 'wide', 'nrt', 'json', 'yaml'"),
        (("admit", PODS, "--machine", "epyc-9654-nps5"), "did you mean epyc-9654-nps4"),
        (
            ("admit", PODS, *MACHINE, "--set", "cpuManagerPolicy.x=1"),
            "cpuManagerPolicy: json: cannot unmarshal object",
        ),
        (
            ("admit", PODS, *MACHINE, "--set", "maxPods=many"),
            "maxPods: json: cannot unmarshal string",
        ),
        (("admit", PODS, *MACHINE, "--set", "cpuManagerReconcilePeriod=soon"), 'time: invalid duration "soon"'),
        (("inspect", PODS, "--node", "memory=-1"), "--node memory: -1 is negative"),
        (("draw", *MACHINE, "--watch", "--interval", "0"), "'--interval'"),
        (("draw", *MACHINE, "--out", "picture.gif"), "--out: unknown file type (use .svg, .html"),
        (("replay", "--name", "nobody", str(ROOT / "tests/vectors/cpuset.jsonl.gz")), "holds no cases named 'nobody'"),
        (("version", "extra"), "got unexpected extra argument (extra)"),
    ],
)
def test_mistakes(arguments: tuple[str, ...], problem: str) -> None:
    """Every mistake on the command line is one line that says what would be right."""
    answer = podslice(*arguments)
    assert (answer.returncode, answer.stdout) == (2, "")
    (line,) = answer.stderr.splitlines()
    assert line.startswith("podslice: error: ")
    assert problem in line


def test_without_a_command() -> None:
    """The bare command shows the help; `--version` is the same as `version`."""
    assert podslice().stdout == podslice("--help").stdout
    assert podslice("--version") == podslice("version")


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ("featureGates.MemoryQoS=true", {"MemoryQoS": True}),
        ("featureGates={MemoryQoS: true}", {"MemoryQoS": True}),
    ],
)
def test_set_reaches_into_maps(setting: str, line: dict[str, bool]) -> None:
    """`--set FIELD.KEY` sets one entry of a map."""
    from podslice.cli.options.node_files import load_config

    assert load_config(None, (setting,))[0].feature_gates == line


def test_set_keeps_the_other_entries(tmp_path: Path) -> None:
    """`--set FIELD.KEY` leaves the rest of the file's map alone; a key may contain dots; numbers are numbers."""
    from podslice.cli.options.config import ConfigSource
    from podslice.cli.options.node_files import load_config

    file = tmp_path / "kubelet.yaml"
    file.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        "evictionHard: {nodefs.available: 1Gi}\nmemoryThrottlingFactor: 0.8\n"
    )
    settings = ("evictionHard.memory.available=2Gi", "maxPods=10", "reservedSystemCPUs=0")
    config = load_config(ConfigSource(str(file)), settings).config
    assert config.eviction_hard == {"nodefs.available": "1Gi", "memory.available": "2Gi"}
    assert (config.max_pods, config.reserved_system_cpus, config.memory_throttling_factor) == (10, "0", 0.8)


COMMANDS = [
    ("admit", PODS, *MACHINE), ("explain", PODS, *MACHINE), ("inspect", PODS), ("lint", PODS), ("topology", *MACHINE),
    ("topology", "--list"), ("whatif", PODS, *MACHINE), ("version",),
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_data_is_data(command: tuple[str, ...]) -> None:
    """`-o json` and `-o yaml` print the same data and nothing else."""
    assert json.loads(podslice(*command, "-o", "json").stdout) == yaml.safe_load(
        podslice(*command, "-o", "yaml").stdout
    )


def test_admit_beside_what_runs(tmp_path: Path) -> None:
    """`--pods` says what runs on the node already; a pod of the same name gets an identity of its own."""
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n"
    pod += "  - {name: c, resources: {limits: {cpu: '2', memory: 1Gi}}}\n"
    file = tmp_path / "pod.yaml"
    file.write_text(pod)
    node = ("--from", "pack:1 core:4 pu:1", "--set", "cpuManagerPolicy=static", "--set", "reservedSystemCPUs=0",
            "--no-predicates", "-o", "json")  # fmt: skip
    alone = json.loads(podslice("admit", str(file), *node).stdout)["pods"]
    beside = json.loads(podslice("admit", str(file), "--pods", str(file), *node).stdout)["pods"]
    assert [pod["containers"][0]["cpus"] for pod in alone] == ["1-2"]
    assert [pod["reason"] for pod in beside] == ["UnexpectedAdmissionError"]


def test_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Colours and broken lines are for terminals; NO_COLOR turns colours off there."""
    assert (use_colours(), prose_width()) == (False, None)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    assert (use_colours(), prose_width()) == (True, 60)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not use_colours()


def test_sentences_are_broken() -> None:
    """Long lines continue set in; short ones and lists of CPUs stay."""
    text = "one two three four\n  five 0-1,192-193 six\nseven"
    assert wrap_lines(text, 14) == "one two three\n  four\n  five\n    0-1,192-193\n    six\nseven"
    assert wrap_lines(text, None) == text
    assert wrap_lines("\x1b[31mone two\x1b[0m three", 13) == "\x1b[31mone two\x1b[0m three"
    assert wrap_lines("\x1b[31mone two\x1b[0m three", 12) == "\x1b[31mone two\x1b[0m\n  three"


@pytest.mark.process
def test_full_disk() -> None:
    """Output that cannot be written is one line."""
    command = [sys.executable, "-m", "podslice", "topology", *MACHINE, "-o", "json"]
    if Path("/dev/full").exists():
        with open("/dev/full", "w") as full:
            broken = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert (broken.returncode, len(broken.stderr.splitlines())) == (2, 1)


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("topology", *MACHINE, "-o", "json"), 0),
        (("--help",), 0),
        (("admit", PODS, *MACHINE, "--set", "cpuManagerPolicy=static"), 2),
        (("admit", PODS, "--machine", "laptop-i5-8250u"), 1),
        (("draw", *MACHINE, "-o", "svg"), 0),
    ],
)
def test_a_reader_that_leaves_early_is_no_failure(words: tuple[str, ...], code: int) -> None:
    """As with `| head`: no word about it, and the exit code is the answer of the command as without a pipe."""
    command = [sys.executable, "-m", "podslice", *words]
    for both in (False, True):
        reader, writer = os.pipe()
        os.close(reader)
        error = subprocess.STDOUT if both else subprocess.PIPE
        closed = subprocess.run(command, stdout=writer, stderr=error, text=True, check=False)
        os.close(writer)
        assert closed.returncode == code
        assert "pipe" not in (closed.stderr or "").lower()


@pytest.mark.slow
@pytest.mark.process
def test_shell_completion() -> None:
    """The shell completes commands, options and the names of machines."""

    def completed(words: str, position: int) -> str:
        environment = {**os.environ, "_PODSLICE_COMPLETE": "bash_complete", "COMP_WORDS": words,
                       "COMP_CWORD": str(position)}  # fmt: skip
        command = [sys.executable, "-m", "podslice"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout

    assert "plain,admit" in completed("podslice ad", 1)
    assert "plain,--machine" in completed("podslice admit --ma", 2)
    assert "plain,epyc-9654-nps4" in completed("podslice admit --machine epyc", 3)


def test_granted_resources_of_running_pods_count(tmp_path: Path) -> None:
    """With `--state`, a running pod counts with what it was granted, not with what it asks for now."""
    from podslice import Node, load_machine, load_pods

    def pod(name: str, cpu: str) -> str:
        file = tmp_path / f"{name}-{cpu}.yaml"
        file.write_text(
            f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, uid: {name}}}\nspec:\n  containers:\n"
            f"  - {{name: c, resources: {{requests: {{cpu: '{cpu}'}}}}}}\n"
        )
        return str(file)

    machine = "pack:1 numa:1(memory=8GiB) core:4 pu:1"
    node = Node(load_machine(machine))
    assert node.admit(load_pods(pod("old", "1"))[0].pod).admitted
    for name, data in node.files.items():
        (tmp_path / name).write_bytes(data)
    arguments = ("admit", pod("new", "2"), "--from", machine, "--pods", pod("old", "3"), "--state", str(tmp_path))
    assert podslice(*arguments).returncode == 0
    (tmp_path / "allocated_pods_state").unlink()
    assert podslice(*arguments).returncode == 1


def test_a_node_without_pods_is_an_empty_list(tmp_path: Path) -> None:
    """kubectl's output for a node on which nothing runs is fine for --pods, and nothing is admitted."""
    nothing = tmp_path / "none.json"
    nothing.write_text('{"apiVersion": "v1", "items": [], "kind": "List"}')
    assert "none.json" not in podslice("admit", PODS, *MACHINE, "--pods", str(nothing), "--no-map").stderr
    assert "holds no pods, only List" in podslice("admit", str(nothing), *MACHINE).stderr
    nothing.write_text("kind: Service")
    assert "holds no pods, only Service" in podslice("admit", PODS, *MACHINE, "--pods", str(nothing)).stderr


def test_events_are_told(tmp_path: Path) -> None:
    """An admitted pod whose pod-level resources the static CPU manager ignores says so below the table."""
    file = tmp_path / "pod.yaml"
    file.write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n"
        "  resources: {limits: {cpu: 2, memory: 1Gi}, requests: {cpu: 2, memory: 1Gi}}\n  containers:\n  - {name: c}\n"
    )
    node = (*MACHINE, "--set", "cpuManagerPolicy=static", "--set", "reservedSystemCPUs=0", "--no-map")
    assert (
        'default/p PodLevelResourcesIgnored: CPU Manager policy "static"' in podslice("admit", str(file), *node).stdout
    )
    gate = "featureGates.PodLevelResourceManagers=true"
    assert "PodLevelResourcesIgnored" not in podslice("admit", str(file), *node, "--set", gate).stdout


@pytest.mark.parametrize(
    ("case", "problem"),
    [
        ({"case": {"type": "takeByTopology", "name": "t"}}, "case 't': cannot be run: KeyError"),
        ({"case": {"type": "cpuset", "op": "parse", "in": 5}}, "case '': cannot be run: "),
        ({"case": {"type": "brew"}}, "unknown case type 'brew' (use one of"),
        ({"case": 5}, "line 1 has no object `case`"),
    ],
)
@pytest.mark.parametrize("copies", [1, 100])
@pytest.mark.process
def test_cases_that_are_none(tmp_path: Path, case: dict[str, object], problem: str, copies: int) -> None:
    """A recording with cases nobody can run is bad input that names the file and the case, on one core and on many."""
    file = tmp_path / "cases.jsonl"
    file.write_text((json.dumps(case) + "\n") * copies)
    answer = podslice("replay", "--jobs", "2", str(file))
    assert (answer.returncode, len(answer.stderr.splitlines())) == (2, 1)
    assert answer.stderr.startswith(f"podslice: error: {file}: ")
    assert problem in answer.stderr


@pytest.mark.parametrize(
    ("option", "text", "problem"),
    [
        ("--config", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nreservedMemory: 5",
         "reservedMemory: json: cannot unmarshal number into Go struct field"),
        ("--node", "kind: Node\nstatus: {capacity: [1]}", "amounts of the node are not a map"),
        ("--limit-range", "kind: LimitRange\nspec: {limits: [{type: Pod, max: {cpu: 1e400}, min: {cpu: 1n}, "
         "maxLimitRequestRatio: {cpu: 0.5}}]}", "ratio 500m is less than 1"),
    ],
)  # fmt: skip
def test_wrong_kinds_of_values(tmp_path: Path, option: str, text: str, problem: str) -> None:
    """Values of a kind that nobody expects are named, wherever they stand."""
    file = tmp_path / "file.yaml"
    file.write_text(text)
    answer = podslice("inspect", PODS, option, str(file))
    assert (answer.returncode, len(answer.stderr.splitlines())) == (2, 1)
    assert problem in answer.stderr


def test_what_an_option_wants_is_said(tmp_path: Path) -> None:
    """A file where a folder is wanted, no pods allowed, and a state folder that is none are told as they are."""
    state = podslice("admit", PODS, *MACHINE, "--state", PODS)
    assert (state.returncode, state.stderr) == (
        2,
        f"podslice: error: {PODS}: is a file (give the folder of the state files)\n",
    )
    full = podslice("admit", str(ROOT / "examples" / "small.yaml"), *MACHINE, "--set", "maxPods=0")
    assert full.returncode == 0  # 0 is the default, 110
    audited = podslice("audit", "--state", str(tmp_path / "none"))
    assert audited.stderr.startswith(f"podslice: error: {tmp_path}/none: holds no cpu_manager_state")
