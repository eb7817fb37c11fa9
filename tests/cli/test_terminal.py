"""No control character of an input reaches a terminal, whatever is printed and wherever it comes from."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from podslice import KubeletConfig, Node, Pod
from podslice.api.pod.spec import Container, ObjectMeta, PodSpec, ResourceRequirements
from podslice.machine.gallery import load_gallery
from podslice.render.ansi import style, to_terminal, visible
from podslice.render.table import format_table
from podslice.values.quantity import Quantity
from tests.shell import podslice as run

EVIL = "x\x1b[2J\x1b]0;pwn\x07\r\u202e\x9b31m\x7f"
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
NODE = ("--from", "pack:1 numa:1(memory=8GiB) core:4 pu:1", "--set", "cpuManagerPolicy=static",
        "--set", "reservedSystemCPUs=0")  # fmt: skip
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    EVIL: 1,
    "metadata": {"name": EVIL, "namespace": EVIL, "uid": EVIL, "labels": {EVIL: EVIL}, "annotations": {EVIL: EVIL}},
    "spec": {
        "nodeName": EVIL,
        "initContainers": [{"name": f"i{EVIL}", "image": EVIL, "restartPolicy": EVIL}],
        "containers": [
            {"name": EVIL, "image": EVIL, "resources": {"limits": {"cpu": "2", "memory": "1Gi", f"a.b/{EVIL}": "1"}}},
            {"name": f"b{EVIL}", "resources": {"requests": {"cpu": "1"}}, EVIL: {}},
        ],
    },
}
DEVICES = [{"resource": f"a.b/{EVIL}", "devices": [{"id": EVIL, "numa": 0}]}]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Files with control characters in every name they can hold."""
    folder = tmp_path_factory.mktemp("evil")
    bad_value = {**POD, "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": EVIL}}}]}}
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        EVIL: 1,
        "featureGates": {EVIL: True},
        "topologyManagerPolicy": EVIL,
        "cpuManagerPolicyOptions": {EVIL: EVIL},
    }
    contents = {
        "pod": POD,
        "value": bad_value,
        "kind": {"apiVersion": "v1", "kind": EVIL},
        "version": {**POD, "apiVersion": EVIL},
        "config": config,
        "devices": DEVICES,
    }
    for name, content in contents.items():
        (folder / name).write_text(yaml.safe_dump_all([content]), encoding="utf-8")
    state = folder / "state"
    state.mkdir()
    node = Node(load_gallery("laptop-i5-8250u"), KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0"))
    amounts = {"cpu": Quantity.of(1), "memory": Quantity.of(1 << 30)}
    hostile = Container(EVIL, resources=ResourceRequirements(limits=amounts))
    assert node.admit(Pod(PodSpec((hostile,)), ObjectMeta(name=EVIL, namespace=EVIL, uid=EVIL))).admitted
    for name, data in node.files.items():
        (state / name).write_bytes(data)
    return {**{name: str(folder / name) for name in contents}, "folder": str(state), "missing": str(folder / EVIL)}


DECIDING = ("admit", "explain", "whatif", "defrag", "draw")
COMMANDS = [
    *((command, "pod", *NODE, "--no-validate", *more) for command in DECIDING for more in ((), ("-o", "json"))
      if (command, *more) != ("draw", "-o", "json")),
    *((command, "pod", *NODE) for command in DECIDING),
    ("admit", "pod", *NODE, "--no-validate", "--devices", "devices", "-o", "wide"),
    ("admit", "pod", *NODE, "--no-validate", "--devices", "devices", "-o", "yaml"),
    ("admit", "pod", *NODE, "--strict"),
    ("admit", "examples/small.yaml", "--pods", "pod", "--no-validate", *NODE),
    ("admit", "value", *NODE), ("admit", "kind", *NODE), ("admit", "version", *NODE), ("admit", "missing", *NODE),
    ("admit", "examples/small.yaml", "--config", "config"), ("admit", "examples/small.yaml", "--config", "missing"),
    ("admit", "examples/small.yaml", "--machine", EVIL), ("admit", "examples/small.yaml", "--from", EVIL),
    ("admit", "examples/small.yaml", *NODE, "--set", f"featureGates.{EVIL}=true"),
    ("admit", "examples/small.yaml", *NODE, "--set", EVIL), ("admit", "examples/small.yaml", *NODE, f"--{EVIL}"),
    ("inspect", "pod"), ("inspect", "pod", "-o", "json"), ("inspect", "pod", "-o", "yaml"), ("inspect", "value"),
    ("inspect", "pod", "--gates", f"{EVIL}=true"), ("inspect", "pod", "--limit-range", "missing"),
    ("lint", "pod"), ("lint", "config"), ("lint", "pod", "-o", "sarif"), ("lint", "--explain", EVIL),
    ("state", "show", "folder"), ("state", "show", "folder", "-o", "json"), ("state", "verify", "folder"),
    ("state", "verify", "folder", "-o", "yaml"), ("state", "show", "missing"),
    ("draw", "--machine", "laptop-i5-8250u", "--state", "folder", "--set", "cpuManagerPolicy=static",
     "--set", "reservedSystemCPUs=0"),
    ("topology", "--machine", EVIL), ("audit", "--state", "missing"), ("replay", "missing"), ("status", EVIL), (EVIL,),
    ("agent", "--config", "missing"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: " ".join(map(visible, arguments[:8])))
def test_no_command_prints_control_characters(arguments: tuple[str, ...], files: dict[str, str]) -> None:
    """Names of pods, namespaces, containers, resources, devices, files, gates and values come out visible."""
    result = run(*(files.get(argument, argument) for argument in arguments))
    assert "Traceback" not in result.stderr
    for text in (result.stdout, result.stderr):
        assert not CONTROL.search(text), visible(text)
    if "verify" not in arguments:
        assert "pwn" in result.stdout + result.stderr


@pytest.mark.slow
def test_machine_forms_keep_the_value(files: dict[str, str]) -> None:
    """JSON and YAML escape what they carry: a program reads the very name."""
    for form, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        answer = read(run("inspect", files["pod"], "-o", form).stdout)
        assert answer["items"][0]["name"] == EVIL


def test_only_our_colours_reach_a_terminal() -> None:
    """Our own sequences pass as the terminal knows them; the same sequences in a name are shown."""
    red = style("red", fg="red")
    assert to_terminal(red) == "\x1b[31mred\x1b[0m"
    assert to_terminal("\x1b[31mred\x1b[0m") == "\\x1b[31mred\\x1b[0m"
    assert to_terminal(style("\x1b[8m", bold=True)) == "\x1b[1m\\x1b[8m\x1b[0m"
    assert to_terminal("a\tb\nc") == "a\tb\nc"


def test_tables_are_aligned_by_what_is_shown() -> None:
    """A cell with control characters is as wide as its visible form, and stays one line."""
    lines = format_table(["A", "B"], [["\x1b\n", "1"], [style("x", fg="red"), "2"]]).splitlines()
    assert lines[1] == "\\x1b\\n  1"
    assert to_terminal(lines[2]) == "\x1b[31mx\x1b[0m       2"
