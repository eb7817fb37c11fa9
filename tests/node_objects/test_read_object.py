"""Objects of a cluster that describe a node: their names."""

from __future__ import annotations

import pytest

from podslice.host.machine_files import parse_described
from podslice.values.errors import InputError

TOPOLOGY = """\
apiVersion: topology.node.k8s.io/v1alpha2
kind: NodeResourceTopology
metadata: {name: NAME}
zones:
- {name: node-0, type: Node, resources: [{name: cpu, capacity: "2", allocatable: "2", available: "2"}]}
"""
NODE = "apiVersion: v1\nkind: Node\nmetadata: {name: NAME}\nstatus: {capacity: {cpu: '2', memory: 4Gi}}\n"


@pytest.mark.parametrize("text", [TOPOLOGY, NODE], ids=["topology", "node"])
def test_the_machine_has_the_name_of_the_object(text: str) -> None:
    """As kubectl shows it."""
    assert parse_described(text.replace("NAME", "work-7")).machine.name == "work-7"
    assert parse_described(text.replace("NAME", "'7'")).machine.name == "7"


@pytest.mark.parametrize("text", [TOPOLOGY, NODE], ids=["topology", "node"])
@pytest.mark.parametrize(("written", "read"), [("n", "true or false"), ("7", "7"), ("yes", "true or false")])
def test_a_name_that_yaml_does_not_read_as_text(text: str, written: str, read: str) -> None:
    """YAML makes `n` false: the machine would have no name."""
    with pytest.raises(InputError) as caught:
        parse_described(text.replace("NAME", written), source="node.yaml")
    assert str(caught.value) == f"node.yaml: metadata.name: expected text, got {read} (put it in quotes)"
