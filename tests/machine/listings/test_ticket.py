"""What several commands printed, in one file, as people paste it into a ticket."""

from __future__ import annotations

import textwrap

import pytest

from podslice.host.machine_files import parse_described, parse_evidence
from podslice.machine.listings.ticket import split_ticket
from podslice.machine.model import cpu_topology
from podslice.machine.readers.synthetic import from_synthetic
from podslice.values.errors import InputError
from tests.machine.listings import printed
from tests.machine.listings.test_together import DESCRIPTION, GPUS

MACHINE = from_synthetic("pack:2 numa:1(memory=188GiB) l3:1 core:24 pu:2(indexes=48*2:2*24:1*2)")
LSCPU, NUMACTL = printed.lscpu_e(MACHINE), printed.numactl(MACHINE)
FORMS = {
    "prompts": f"$ lscpu -e\n{LSCPU}$ numactl -H\n{NUMACTL}$ \n",
    "root": f"[root@node7 ~]# lscpu -e\n{LSCPU}[root@node7 ~]# numactl --hardware\n{NUMACTL}[root@node7 ~]# exit\n",
    "no prompts": LSCPU + NUMACTL,
    "the other order": f"$ numactl -H\n{NUMACTL}\n$ LC_ALL=C lscpu -e\n{LSCPU}",
    "comments": f"$ lscpu -e\n\n# the places\n# of CPUs\n{LSCPU}\n# and now memory\n$ numactl -H\n# below\n{NUMACTL}",
    "prose": f"Hello, this is our node:\n\n{LSCPU}\nand its memory\n\n{NUMACTL}\nThanks, Ann\n",
    "fences": f"```console\n$ lscpu -e\n{LSCPU}```\nand\n```\n{NUMACTL}```\n",
    "fence below prompt": f"$ lscpu -e\n```\n{LSCPU}```\n$ numactl -H\n```\n{NUMACTL}```\n",
    "other commands": f"$ uname -r\n6.1.0\n$ lscpu -e\n{LSCPU}$ free -m\n total used\nn@n7:~$ numactl -H\n{NUMACTL}",
    "not installed": f"$ numactl -H\nbash: numactl: command not found\n$ lscpu -e\n{LSCPU}$ numactl -H\n{NUMACTL}",
    "words with a colon": f"nodes: see below\n\n{LSCPU}kind: see above\n{NUMACTL}",
    "a table of kubectl": f"$ kubectl get nodes\nNAME  STATUS  ROLES  AGE\n$ lscpu -e\n{LSCPU}$ numactl -H\n{NUMACTL}",
    "json": f"$ lscpu -J -e\n{printed.lscpu_json(MACHINE)}\n$ numactl -H\n{NUMACTL}",
    "three": f"$ lscpu\n{printed.lscpu(MACHINE)}$ lscpu -e\n{LSCPU}$ numactl -H\n{NUMACTL}",
}


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("quote", ["", "> ", ">> ", "> > "])
def test_one_file_is_read_as_files_of_their_own(text: str, quote: str) -> None:
    """Places of CPUs come from lscpu and memory from numactl, whatever stands around them."""
    found = parse_described(textwrap.indent(text, quote, lambda _: True), source="ticket.txt")
    topology, expected = cpu_topology(found.machine), cpu_topology(MACHINE)
    assert topology.cores == expected.cores
    assert topology.sockets == expected.sockets
    assert topology.numa_nodes == expected.numa_nodes
    assert [node.memory for node in found.machine.nodes] == [188 << 30] * 2
    assert tuple(map(str, found.assumed)) == (
        "the memory of NUMA nodes is whole MiB, as printed; the kernel's own is not",
    )


def test_comments_around_one_listing() -> None:
    """Lines between the prompt and the table belong to neither."""
    text = f"$ lscpu -e\n# on the node\n{LSCPU}"
    assert parse_evidence(text) == parse_evidence(LSCPU)
    assert parse_evidence(textwrap.indent(text, "> ", lambda _: True)) == parse_evidence(LSCPU)


def test_description_and_gpus_in_the_file() -> None:
    """A description of kubectl and the table of nvidia-smi are parts as well."""
    found = parse_described(
        f"$ kubectl describe node trade-7\n{DESCRIPTION}$ nvidia-smi topo -m\n{GPUS}$ lscpu -e\n{LSCPU}"
    )
    assert found.machine.name == "trade-7"
    assert found.devices is not None
    assert [device.numa for device in found.devices.resources[0].devices] == [(0,), (1,)]
    assert cpu_topology(found.machine).cores == cpu_topology(MACHINE).cores


def test_a_node_object_in_the_file() -> None:
    """kubectl prints it as YAML below its prompt."""
    node = "apiVersion: v1\nkind: Node\nmetadata: {name: n7}\nstatus: {capacity: {cpu: '96', memory: 376Gi}}\n"
    found = parse_described(f"$ kubectl get node n7 -o yaml\n{node}$ lscpu -e\n{LSCPU}")
    assert found.machine.name == "n7"
    assert cpu_topology(found.machine).cores == cpu_topology(MACHINE).cores
    assert parse_described(f"# kubectl get node n7\n{node}").machine.name == "n7"


def test_parts_of_two_machines() -> None:
    """The error names the two parts by their lines and commands."""
    other = printed.numactl(from_synthetic("pack:1 numa:1(memory=8GiB) core:4 pu:2"))
    with pytest.raises(InputError) as caught:
        parse_described(f"$ lscpu -e\n{LSCPU}$ numactl -H\n{other}", source="ticket.txt")
    line = LSCPU.count("\n") + 3
    assert f"ticket.txt, line 2 (lscpu -e) and ticket.txt, line {line} (numactl -H) disagree" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_part_without_its_beginning() -> None:
    """A command whose output was cut at its top is not passed over."""
    cut = NUMACTL.partition("\n")[2]
    with pytest.raises(InputError, match=r"ticket.txt, line \d+: 'numactl -H' is not followed by what it prints"):
        parse_described(f"$ lscpu -e\n{LSCPU}$ numactl -H\n{cut}", source="ticket.txt")


@pytest.mark.parametrize(
    "text", ["", "a: 1\n", "apiVersion: v1\nkind: Node\n", "# lscpu\nsockets: 2\n", "{}\n", "> x\n"]
)
def test_other_texts_have_no_parts(text: str) -> None:
    """A file of YAML or JSON is left to its own reader."""
    assert split_ticket(text) == []
