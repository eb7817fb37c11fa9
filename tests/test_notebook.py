"""Values of the library in notebooks, as data, as pickles, and from what a program has at hand."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path
from typing import get_args, get_type_hints

import msgspec
import pytest
from release.notebook import NOTEBOOK, executed, text_of

from podslice import (
    Decision,
    Explanation,
    InputError,
    Machine,
    Node,
    Pod,
    explain,
    inspect,
    lint,
    load_devices,
    load_kubelet_config,
    load_machine,
    load_pods,
)
from podslice.documents.kinds import type_of

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
SMALL = (EXAMPLES / "small.yaml").read_text(encoding="utf-8")


@pytest.fixture
def node() -> Node:
    """The README's node, with its pods."""
    node = Node(load_machine("xeon-6338-2s"), load_kubelet_config(EXAMPLES / "kubelet-memory.yaml").config)
    for loaded in load_pods(EXAMPLES / "pods.yaml"):
        node.admit(loaded.pod)
    return node


@pytest.fixture
def refused() -> tuple[Decision, Explanation]:
    """The answers about a pod that is too wide for its node."""
    node = Node(load_machine("epyc-9654-nps4"), load_kubelet_config(EXAMPLES / "kubelet.yaml").config)
    pod = load_pods(EXAMPLES / "pods.yaml")[-1].pod
    return node.try_admit(pod), explain(node, pod)


def test_representations_are_short(node: Node, refused: tuple[Decision, Explanation]) -> None:
    """The text of a value in a shell or a test is one line with what matters."""
    database = node.try_admit(Pod.load(SMALL))
    assert repr(node) == "<Node xeon-6338-2s: 4 pods, 34 of 128 CPUs free>"
    assert repr(node.machine) == "<Machine xeon-6338-2s: 128 CPUs, 2 NUMA nodes>"
    assert repr(database) == "<Decision default/small: admitted, Guaranteed, app 15>"
    assert [repr(one) for one in refused] == [
        "<Decision default/too-wide: refused, TopologyAffinityError>",
        "<Explanation default/too-wide: refused, cpu-too-big, fixes: 7>",
    ]


def test_nodes_and_machines_are_pictures(node: Node) -> None:
    """The picture is a whole SVG; two on one page have patterns with ids of their own."""
    crowded = []
    for count in (9, 10):
        crowded.append(Node(node.machine, node.view.config))
        for number in range(count):
            crowded[-1].admit(Pod.load(SMALL.replace("name: small", f"name: small-{number}")))
    pictures = [str(shown._repr_svg_()) for shown in (*crowded, node, node.machine)]
    assert [picture[:4] for picture in pictures] == ["<svg"] * 4
    assert all('xmlns="http://www.w3.org/2000/svg"' in picture for picture in pictures)
    first, second = (set(re.findall(r' id="([^"]+)"', picture)) for picture in pictures[:2])
    assert first
    assert not first & second
    assert "default/database" in pictures[2]


def test_a_machine_without_a_kubelet_has_no_picture() -> None:
    """The notebook shows the text instead."""
    assert Machine(nodes=())._repr_svg_() is None


def test_answers_are_tables(node: Node, refused: tuple[Decision, Explanation]) -> None:
    """A decision shows each container with its CPUs, an explanation the reason and the fixes."""
    admitted = node.try_admit(Pod.load(SMALL))._repr_html_()
    assert "<strong>default/small</strong> admitted, Guaranteed" in str(admitted)
    assert '<td style="text-align:left">1 CPU: 15</td>' in str(admitted)
    decision, explanation = (one._repr_html_() for one in refused)
    assert "refused: TopologyAffinityError" in str(decision)
    assert "The pod needs 64 CPUs on one NUMA node; without other pods NUMA node 1 would have 48." in str(explanation)
    assert "<li>Ask for 48 instead of 64 CPUs in container solver. " in str(explanation)
    assert lint(Pod.load(SMALL)) == []
    assert inspect(Pod.load(SMALL))._repr_html_() is None


def test_values_are_data(node: Node, refused: tuple[Decision, Explanation]) -> None:
    """`to_dict` and `to_json` have the names of the commands' documents; a machine is read back."""
    decision, explanation = refused
    assert json.loads(decision.to_json()) == decision.to_dict()
    assert set(decision.to_dict()) == _item("AdmissionReport", "pods")
    assert set(explanation.to_dict()) == _item("ExplanationList", "items")
    assert json.loads(explanation.to_json())["fixes"][0]["text"] == "Ask for 48 instead of 64 CPUs in container solver"
    assert node.machine.to_dict()["kind"] == "Machine"
    assert load_machine(node.machine.to_json()) == node.machine


def _item(kind: str, field: str) -> set[str]:
    """The fields of what a list in a document holds, by its schema."""
    (listed,) = (one for one in get_args(get_type_hints(type_of(kind))[field]) if one is not Ellipsis)
    return {one.encode_name for one in msgspec.structs.fields(listed)}


def test_a_node_is_pickled(node: Node) -> None:
    """The copy has rules, state and pods, and decides as the original; they do not share a future."""
    copy = pickle.loads(pickle.dumps(node))
    assert copy.state == node.state
    assert copy.try_admit(Pod.load(SMALL)) == node.try_admit(Pod.load(SMALL))
    copy.admit(Pod.load(SMALL))
    assert len(node.pods) == 4
    assert len(copy.pods) == 5


def test_pods_from_what_is_at_hand() -> None:
    """A path, a text and plain data are the same pod."""
    path = EXAMPLES / "small.yaml"
    pods = [Pod.load(path), Pod.load(str(path)), Pod.load(SMALL), Pod.load(load_pods(path)[0].data)]
    assert pods == [pods[0]] * 4
    assert pods[0].metadata.uid == "default.small"
    with pytest.raises(InputError, match=r"holds 4 pods \(load_pods\(…\) returns all of them\)"):
        Pod.load(EXAMPLES / "pods.yaml")
    with pytest.raises(InputError, match=r"the text: .*spec"):
        Pod.load(SMALL.replace("spec:", "spce:"))
    with pytest.raises(InputError, match=r"gone.yaml: cannot be read: No such file"):
        load_pods("gone.yaml")
    assert len(load_pods((EXAMPLES / "pods.yaml").read_text(encoding="utf-8"))) == 4


def test_a_loaded_pod_is_not_a_pod(node: Node) -> None:
    """The error says where the pod is."""
    with pytest.raises(InputError, match=r"is a LoadedPod, not a Pod \(Pod.load\(…\) makes one; .* its .pod\)"):
        node.admit(load_pods(SMALL)[0])  # type: ignore[arg-type]


def test_devices_and_configurations_from_texts() -> None:
    """What a file says a text says."""
    devices, config = (EXAMPLES / name for name in ("devices.yaml", "kubelet.yaml"))
    assert load_devices(devices) == load_devices(devices.read_text(encoding="utf-8"))
    assert load_devices([{"resource": "example.com/nic", "count": 2}]).resources[0].resource == "example.com/nic"
    assert load_kubelet_config(config).config == load_kubelet_config(config.read_text(encoding="utf-8")).config
    with pytest.raises(InputError, match="the text document 1: is not valid YAML"):
        load_kubelet_config("kind: KubeletConfiguration\ncpuManagerPolicy: [\n")


def test_the_example_shows_what_its_cells_show() -> None:
    """The cells of examples/notebook.ipynb run in order, and what they show is stored with them."""
    stored = NOTEBOOK.read_text(encoding="utf-8")
    assert text_of(executed(json.loads(stored), NOTEBOOK.parent)) == stored
    shown = [
        form for cell in json.loads(stored)["cells"] for out in cell.get("outputs", ()) for form in out.get("data", ())
    ]
    assert {"image/svg+xml", "text/html", "text/plain"} == set(shown)
