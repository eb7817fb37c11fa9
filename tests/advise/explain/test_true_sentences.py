"""Sentences of explanations that were false in rebuilt bug reports: causes, amounts and what is chosen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from podslice.reading.yaml import load_documents
from tests.shell import podslice

_HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncpuManagerPolicy: static\n"


def pod(name: str, cpus: int, memory: str, more: str = "") -> str:
    limits = f'{{cpu: "{cpus}", memory: {memory}{more}}}'
    return (
        f"---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: default}}\n"
        f"spec: {{containers: [{{name: app, image: i, resources: {{limits: {limits}}}}}]}}\n"
    )


def write(folder: Path, **texts: str) -> dict[str, str]:
    """Write each text into a file, and return the paths."""
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text)
    return {name: str(folder / f"{name}.yaml") for name in texts}


def test_the_narrowest_set_counts_reserved_cpus(tmp_path: Path) -> None:
    """A kubelet counts reserved CPUs when it looks for the narrowest set, so 4 CPUs never go to both NUMA nodes of 3
    usable ones each: no empty machine helps, and the sentence does not say so (kubernetes/kubernetes#132187). Profile
    podslice admits the pod."""
    files = write(
        tmp_path,
        machine="sockets: 2\ncoresPerNuma: 4\nthreadsPerCore: 1\nmemoryPerNuma: 16Gi\n",
        config=f"{_HEAD}reservedSystemCPUs: 0,4\ntopologyManagerPolicy: restricted\n",
        pod=pod("w", 4, "1Gi"),
    )
    given = ("explain", files["pod"], "--from", files["machine"], "--config", files["config"])
    assert "default/w is Guaranteed and would be admitted." in podslice(*given).stdout
    said = podslice(*given, "--profile", "kubelet-1.36").stdout
    assert "cpu is free, but not preferred: counting what is reserved and in use, fewer NUMA nodes are enough" in said
    assert "on an empty machine" not in said


@pytest.mark.parametrize("profile", ["podslice", "kubelet-1.36"])
def test_a_chosen_set_without_room(tmp_path: Path, profile: str) -> None:
    """Under best-effort a NUMA node is chosen on which the allocation then fails: the table says what lacks there, in
    one unit, and the reason claims no promise (kubernetes/kubernetes#120733)."""
    files = write(
        tmp_path,
        machine="sockets: 2\ncoresPerNuma: 24\nthreadsPerCore: 2\nmemoryPerNuma: 94Gi\n",
        config=f"{_HEAD}reservedSystemCPUs: 0,48\nmemoryManagerPolicy: Static\ntopologyManagerPolicy: best-effort\n"
        "reservedMemory: [{numaNode: 0, limits: {memory: 10340Mi}}]\nsystemReserved: {memory: 10240Mi}\n",
        pods=pod("a", 4, "85Gi") + pod("b", 4, "85Gi"),
    )
    given = ("--from", files["machine"], "--config", files["config"], "--profile", profile)
    said = podslice("explain", files["pods"], *given, "--only-refused", "--no-fixes").stdout
    lines = said.splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("default/b is"))
    assert "but the Memory Manager does not join NUMA nodes of which some are in use alone" in lines[start + 1]
    assert lines[start + 2] == "Of the memory of NUMA nodes 0-1, default/a has 85Gi on NUMA node 1."
    assert "Or: NUMA node 1 is short of 76Gi memory" in said
    row = next(line for line in said.splitlines() if line.startswith("0 "))
    assert row.split(maxsplit=3) == ["0", "4/46", "87040Mi/85916Mi", "chosen, but too little memory is free"]


def test_reserved_cpus_that_are_given_away(tmp_path: Path) -> None:
    """v1.36.2 gives a reserved CPU to a container of a hybrid machine, and its next start refuses the state file; that
    is said where the CPUs are (kubernetes/kubernetes#140495). Without the defect nothing is."""
    files = write(
        tmp_path,
        machine="sockets: 1\ncoreKinds:\n- {name: P, cores: 8, threadsPerCore: 2}\n"
        "- {name: E, cores: 12, threadsPerCore: 1}\nnumbering: consecutive\nmemoryPerNuma: 32Gi\n",
        config=f'{_HEAD}reservedSystemCPUs: "0"\n',
        pod=pod("test", 2, "1Gi"),
    )
    given = (files["pod"], "--from", files["machine"], "--config", files["config"])
    for command in ("explain", "admit"):
        said = podslice(command, *given, "--profile", "kubelet-1.36").stdout
        assert "reserved for the system: the kubelet does not start again" in said, command
        assert "does not start again" not in podslice(command, *given).stdout, command


@pytest.mark.parametrize(("policy", "apart"), [("none", True), ("single-numa-node", False)])
def test_what_is_not_aligned_is_said(tmp_path: Path, policy: str, apart: bool) -> None:
    """Without alignment the device of an admitted pod lies on another NUMA node than its CPUs: the first lines say
    where each is and why (kubernetes/kubernetes#139430)."""
    files = write(
        tmp_path,
        config=f"{_HEAD}reservedSystemCPUs: 0,4\ntopologyManagerPolicy: {policy}\n",
        devices="devices: [{resource: example.com/nic, perNUMANode: {1: 1}}]\n",
        pod=pod("w", 2, "1Gi", ', example.com/nic: "1"'),
    )
    given = ("--from", "pack:2 numa:1(memory=16GiB) core:4 pu:1", "--config", files["config"])
    said = podslice("explain", files["pod"], *given, "--devices", files["devices"]).stdout
    assert "would be admitted" in said
    sentence = "Not all that container app has is on the same NUMA nodes: CPUs on NUMA 0, example.com/nic on NUMA 1."
    assert (sentence in said) == apart
    assert ("Not all that" in said) == apart
    assert ("topologyManagerPolicy none aligns nothing" in said) == apart
    assert ("Container app has its CPUs and example.com/nic on NUMA node 1." in said) != apart


def test_distribution_over_fewer_numa_nodes_is_said(tmp_path: Path) -> None:
    """v1.36.2 distributes CPUs over fewer NUMA nodes than the merge chose, so that two GPUs are away from them: the
    first lines say so, and that the option is why (kubernetes/kubernetes#139430)."""
    options = 'cpuManagerPolicyOptions: {distribute-cpus-across-numa: "true"}\n'
    files = write(
        tmp_path,
        config=f"{_HEAD}reservedSystemCPUs: 0-3\ntopologyManagerPolicy: best-effort\n{options}",
        devices="devices: [{resource: example.com/gpu, perNUMANode: {0: 2, 1: 2, 2: 2, 3: 2}}]\n",
        pod=pod("w", 44, "1Gi", ', example.com/gpu: "8"'),
    )
    given = ("--from", "pack:2 numa:2(memory=16GiB) core:16 pu:1", "--config", files["config"])
    given = (*given, "--devices", files["devices"], "--profile", "kubelet-1.36")
    lines = podslice("explain", files["pod"], *given).stdout.splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("default/w is"))
    assert "CPUs on NUMA 1-3, example.com/gpu on NUMA 0-3." in lines[start + 1]
    assert "distribute-cpus-across-numa takes CPUs from the fewest NUMA nodes" in lines[start + 2]


def test_a_tie_is_said(tmp_path: Path) -> None:
    """Two NUMA nodes are equal for best-effort, which takes the lower number and counts no devices; what speaks
    against both has the same words (kubernetes/kubernetes#136431)."""
    files = write(
        tmp_path,
        config=f"{_HEAD}reservedSystemCPUs: 0,8\ntopologyManagerPolicy: best-effort\nmemoryManagerPolicy: Static\n"
        "systemReserved: {memory: 924Mi}\nreservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}]\n",
        devices="devices: [{resource: example.com/gpu, perNUMANode: {0: 1, 1: 2}}, "
        "{resource: example.com/nic, perNUMANode: {1: 1}}]\n",
        running=pod("a", 1, "1Gi") + pod("b", 1, "1Gi", ', example.com/nic: "1"'),
        pod=pod("w", 12, "4Gi", ', example.com/gpu: "3"'),
    )
    given = ("--from", "pack:2 numa:1(memory=16GiB) core:8 pu:1", "--config", files["config"])
    given = (*given, "--pods", files["running"], "--devices", files["devices"], "--profile", "kubelet-1.36")
    said = podslice("explain", files["pod"], *given).stdout
    assert "NUMA nodes 0 and 1 are equal for best-effort, and the lowest number wins; how many example.com/gpu" in said
    rows = [line.split(maxsplit=4)[-1] for line in said.splitlines() if line[:2] in ("0 ", "1 ")]
    against = "cpu, example.com/gpu: too little even when empty"
    assert rows == [f"chosen, though {against}", f"equal, {against}"]


def test_what_an_init_container_leaves_is_free(tmp_path: Path) -> None:
    """An init container's CPU is free to the container after it: 13 of 13 are chosen, and the free amount and the
    change that is proposed do not contradict each other. No change is proposed twice (kubernetes/kubernetes#110306)."""
    init = "initContainers: [{name: init, image: i, resources: {limits: {cpu: '1', memory: 1Gi}}}], "
    sizes = (("fits", 13), ("big", 14))
    texts = {name: pod("w", cpus, "1Gi").replace("spec: {", f"spec: {{{init}") for name, cpus in sizes}
    config = f"{_HEAD}reservedSystemCPUs: 0-2\ntopologyManagerPolicy: single-numa-node\n"
    files = write(tmp_path, config=config, **texts)
    given = ("--from", "pack:2 numa:1(memory=16GiB) core:16 pu:1", "--config", files["config"])
    for name, cpus in sizes:
        said = podslice("explain", files[name], *given, "-o", "wide").stdout
        rows = [line.split()[:2] for line in said.splitlines() if line.startswith("0 ")]
        assert ["0", f"{cpus}/13"] in rows
        assert "chosen, but" not in said
    fixes = [line for line in said.splitlines() if "Ask for 13 instead of 14" in line or "at most 13 CPUs" in line]
    assert len(fixes) == 1


def test_streamed_json_is_the_document(tmp_path: Path) -> None:
    """JSON is written item by item, and says what the YAML form, which is made as a whole, says."""
    config = f"{_HEAD}reservedSystemCPUs: 0-2\ntopologyManagerPolicy: single-numa-node\n"
    files = write(tmp_path, config=config, pods=pod("small", 4, "1Gi") + pod("big", 20, "1Gi"))
    given = (files["pods"], "--from", "pack:2 numa:1(memory=16GiB) core:16 pu:1", "--config", files["config"])
    as_json = podslice("explain", *given, "-o", "json").stdout
    assert json.loads(as_json) == next(iter(load_documents(podslice("explain", *given, "-o", "yaml").stdout)))
    assert as_json == json.dumps(json.loads(as_json), indent=2, ensure_ascii=False) + "\n"
    assert [item["name"] for item in json.loads(as_json)["items"]] == ["small", "big"]
    assert json.loads(podslice("explain", *given, "-o", "json", "--only-refused").stdout)["items"][0]["why"]
