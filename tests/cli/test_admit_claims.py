"""`podslice admit --claims --slices`: devices, reasons, fixes, and one line for every mistake."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from podslice.cli.main import cli
from podslice.values.errors import InputError
from tests.read_documents import read_document

EXAMPLES = Path(__file__).parents[2] / "examples" / "dra"
OBJECTS = ("--claims", str(EXAMPLES / "claims.yaml"), "--slices", str(EXAMPLES / "slices.yaml"))
MACHINE = ("--machine", "epyc-9654-nps4")


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(cli, ["admit", *arguments])
    if isinstance(result.exception, Exception) and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_example() -> None:
    """A pod whose claim cannot be allocated is not admitted, with reasons and changes that were tried; the next one is
    decided by the node's managers too."""
    result = run(str(EXAMPLES / "pods.yaml"), *OBJECTS, *MACHINE, "--no-map")
    assert result.exit_code == 1
    for line in (
        "default/big    default/big            refused    -       -        -                            -",
        "default/train  default/train-devices  allocated  node-a  gpu      gpu.example.com gpu-0        -",
        "cpus     podslice.io podslice-numa-0  cpu=16 memory=64Gi",
        "default/big not allocated: cannot allocate all claims",
        "podslice-numa-0: has 30 cpu in total",
        "fix default/big spec.devices.constraints[0]: leave out the constraint on resource.kubernetes.io/numaNode",
        "fix default/big spec.devices.requests[1].exactly.capacity.requests[cpu]: ask for 30 cpu instead of 32",
        "default/train  train      admitted",
    ):
        assert line in result.output
    assert "default/big    train" not in result.output


@pytest.mark.slow
def test_explained() -> None:
    """`explain` reports claims as `admit` does, and explains the pods whose claims can be allocated."""
    arguments = ("explain", str(EXAMPLES / "pods.yaml"), *OBJECTS, *MACHINE)
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 1
    for line in (
        "default/big not allocated: cannot allocate all claims",
        "podslice-numa-0: has 30 cpu in total",
        "default/train",
    ):
        assert line in result.output
    document = read_document(CliRunner().invoke(cli, [*arguments, "-o", "json"]).output, "ExplanationList")
    assert [pod["name"] for pod in document["items"]] == ["train"]
    assert [claim["allocated"] for claim in document["claims"]] == [False, True]
    refused = CliRunner().invoke(cli, [*arguments, "-o", "json", "--only-refused"])
    assert [claim["allocated"] for claim in read_document(refused.output, "ExplanationList")["claims"]] == [False]


def test_document() -> None:
    """Programs get the devices, the obstacles and the fixes."""
    report = read_document(run(str(EXAMPLES / "pods.yaml"), *OBJECTS, *MACHINE, "-o", "json").output, "AdmissionReport")
    assert [pod["name"] for pod in report["pods"]] == ["train"]
    big, train = report["claims"]
    (refusal,) = big["refusals"]
    assert (big["allocated"], refusal["nodes"]) == (False, ["node-a"])
    assert ([one["able"] for one in refusal["obstacles"]], len(refusal["fixes"])) == ([1, 1], 2)
    assert [(one["request"], one["device"], one["consumed"]) for one in train["devices"]] == [
        ("gpu", "gpu-0", {}),
        ("cpus", "podslice-numa-0", {"cpu": "16", "memory": "64Gi"}),
    ]


def test_fixes_are_true(tmp_path: Path) -> None:
    """With a change that is proposed the claim is allocated."""
    claims = (EXAMPLES / "claims.yaml").read_text()
    fixed = tmp_path / "claims.yaml"
    fixed.write_text(claims.replace('cpu: "32"', 'cpu: "30"'))
    result = run("--claims", str(fixed), "--slices", str(EXAMPLES / "slices.yaml"), *MACHINE)
    assert result.exit_code == 0
    assert "cpu=30" in result.output
    assert "POD            CONTAINER" not in result.output


@pytest.mark.parametrize(
    ("kind", "old", "new", "words"),
    [
        ("claims", 'device.driver == "podslice.io"', "device.driver == 1 + true",
         "spec.selectors[0].cel.expression: Invalid value: "),
        ("claims", 'device.driver == "podslice.io"', 'device.drivr == "podslice.io"',
         "undefined field 'drivr': a device has driver, attributes, capacity, allowMultipleAllocations"),
        ("claims", "matchAttribute: resource.kubernetes.io/numaNode", "matchAttribute: numaNode",
         "must include a domain (the API server refuses this ResourceClaim"),
        ("claims", "kind: DeviceClass", "kind: DeviceClasses", "gpu does not exist (the files have: none)"),
        ("claims", "resource.k8s.io/v1\n", "resource.k8s.io/v1alpha3\n", "'resource.k8s.io/v1alpha3' is not"),
        ("slices", "nodeName: node-a", "allNodes: true\n  nodeName: node-a", "but multiple fields are set"),
        ("slices", "resourceSliceCount: 1", "resourceSliceCount: 0", "must be greater than zero"),
        ("slices", "allowMultipleAllocations: true", "nodeAllocatableResourceMappings: {cpu: {capacityKey: cpus}}",
         'nodeAllocatableResourceMappings[cpu].capacityKey: Not found: "cpus"'),
        ("slices", "allowMultipleAllocations: true",
         "nodeAllocatableResourceMappings: {example.com/x: {allocationMultiplier: '0'}}",
         "must be a node allocatable resource name"),
        ("slices", "name: gpu-1", "name: gpu-0", 'Duplicate value: "gpu-0"'),
        ("slices", "numaNode: {int: 1}", "numaNode: {int: 1, bool: true}", "exactly one value must be specified"),
        ("slices", 'cpu: {value: "30"', 'cpu: {value: "30x"', "30x"),
    ],
)  # fmt: skip
def test_wrong_objects(tmp_path: Path, kind: str, old: str, new: str, words: str) -> None:
    """Objects that the API server refuses are refused, with file, document, field and value."""
    files = {"claims": EXAMPLES / "claims.yaml", "slices": EXAMPLES / "slices.yaml"}
    text = files[kind].read_text()
    assert old in text
    files[kind] = tmp_path / f"{kind}.yaml"
    files[kind].write_text(text.replace(old, new))
    arguments = ("--claims", str(files["claims"]), "--slices", str(files["slices"]), *MACHINE)
    try:
        found = run(*arguments).output
    except InputError as error:
        found = str(error)
        assert str(files[kind]) in found
    assert words in found


_MAPPINGS = "nodeAllocatableResourceMappings: {cpu: {capacityKey: cpu}, memory: {capacityKey: memory}}"


def test_counted(tmp_path: Path) -> None:
    """With the gate, claims count with the requests of their pod, also on the node, which refuses a pod that does not
    fit with them. The amounts are in the table and in the document."""
    slices = tmp_path / "slices.yaml"
    text = (EXAMPLES / "slices.yaml").read_text()
    slices.write_text(
        text.replace("allowMultipleAllocations: true", f"allowMultipleAllocations: true\n      {_MAPPINGS}")
    )
    objects = ("--claims", str(EXAMPLES / "claims.yaml"), "--slices", str(slices))
    gate = ("--set", "featureGates={DRANodeAllocatableResources: true}")
    pods = str(EXAMPLES / "pods.yaml")
    shown = run(pods, *objects, *MACHINE, *gate, "--no-map", "--only-refused").output
    assert "COUNTED WITH REQUESTS" in shown
    assert "gpu.example.com gpu-0        -                   cpu=16 memory=64Gi" in shown
    report = read_document(run(pods, *objects, *MACHINE, *gate, "-o", "json").output, "AdmissionReport")
    (count,) = report["claims"][1]["counts"]
    assert (count["containers"], count["resources"]) == (["train"], {"cpu": "16", "memory": "64Gi"})
    small = ("--from", "pack:1 numa:1(memory=96GiB) core:12 pu:1")
    without, counted = (
        read_document(run(pods, *objects, *small, *gates, "-o", "json").output, "AdmissionReport")["pods"][0]
        for gates in ((), gate)
    )
    assert (without["admitted"], counted["reason"]) == (True, "OutOfcpu")
    assert run(pods, *OBJECTS, *MACHINE, *gate, "--no-map").output.count("COUNTED") == 0


def test_missing_options(tmp_path: Path) -> None:
    """Claims need slices, pods must name claims that are there, and a file must hold something."""
    with pytest.raises(InputError, match=r"--slices: is missing"):
        run("--claims", str(EXAMPLES / "claims.yaml"))
    pods, claims, slices = (str(EXAMPLES / f"{name}.yaml") for name in ("pods", "claims", "slices"))
    nothing = r"holds no DeviceClass or ResourceClaim or ResourceClaimTemplate \("
    get = "kubectl get deviceclasses,resourceclaims,resourceclaimtemplates -A -o yaml"
    for given, said in (
        (("--claims", pods, "--slices", slices), nothing + get),
        (("--claims", slices, "--slices", slices), rf"slices\.yaml: {nothing}give it with --slices"),
        (("--claims", claims, "--slices", claims), r"holds no ResourceSlice \(give it with --claims"),
        (("--claims", claims, "--slices", pods), r"holds no ResourceSlice \(kubectl get resourceslices -A -o yaml"),
        (("--claims", "none.yaml", "--slices", slices), r"none\.yaml: cannot be read"),
    ):
        with pytest.raises(InputError, match=said):
            run(*given)
    written = tmp_path / "pods.yaml"
    for name, said in (("bigg", "did you mean big"), ("something", "default has big")):
        written.write_text(Path(pods).read_text().replace("resourceClaimName: big", f"resourceClaimName: {name}"))
        with pytest.raises(InputError, match=rf"names '{name}', which no file given with --claims has \({said}"):
            run(str(written), *OBJECTS, *MACHINE)
    assert run(*MACHINE).exit_code == 2


def test_a_refused_claim_is_refused_again(tmp_path: Path) -> None:
    """A second pod that names a claim which could not be allocated for the first one does not get it either."""
    pods = tmp_path / "pods.yaml"
    one = (EXAMPLES / "pods.yaml").read_text().split("---")[0]
    pods.write_text(f"{one}---\n{one.replace('{name: big}', '{name: again}', 1)}")
    report = read_document(run(str(pods), *OBJECTS, *MACHINE, "-o", "json").output, "AdmissionReport")
    assert [(answer["pod"], answer["allocated"]) for answer in report["claims"]] == [
        ("default/big", False),
        ("default/again", False),
    ]


def shared_claims(tmp_path: Path, *pods: str) -> list[tuple[str, bool, str]]:
    """Pod, whether its claims are allocated, and the node, where claims `a` and `b` have a GPU each and every node has
    one. Pods are a name and the claims that they name."""
    made = []
    for one in pods:
        name, *claims = one.split()
        named = ", ".join(f"{{name: {claim}, resourceClaimName: {claim}}}" for claim in claims)
        spec = f"{{resourceClaims: [{named}], containers: [{{name: c, image: i}}]}}"
        made.append(f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {spec}\n")
    objects = ["apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: gpu}\nspec: {}\n"]
    for claim in "abc":
        request = "{name: gpu, exactly: {deviceClassName: gpu}}"
        objects.append(
            "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\n"
            f"metadata: {{name: {claim}}}\nspec: {{devices: {{requests: [{request}]}}}}\n"
        )
    slices = [
        f"apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {{name: {node}}}\nspec: {{driver: d.io, "
        f"nodeName: {node}, pool: {{name: {node}, generation: 1, resourceSliceCount: 1}}, "
        "devices: [{name: gpu-0}]}\n"
        for node in ("n1", "n2", "n3")
    ]
    for name, texts in (("pods", made), ("claims", objects), ("slices", slices)):
        (tmp_path / f"{name}.yaml").write_text("---\n".join(texts))
    given = ["--claims", str(tmp_path / "claims.yaml"), "--slices", str(tmp_path / "slices.yaml")]
    output = run(str(tmp_path / "pods.yaml"), *given, *MACHINE, "-o", "json").output
    report = read_document(output, "AdmissionReport")
    asked = {id(one): " ".join(name for each in one["refusals"] for name in each["nodes"]) for one in report["claims"]}
    return [(one["pod"], one["allocated"], one["node"] or asked[id(one)]) for one in report["claims"] if one["pod"]]


def test_a_second_pod_goes_to_its_claim(tmp_path: Path) -> None:
    """A pod that shares an allocated claim is on the claim's node, together with what else it claims; claims on two
    nodes leave it none."""
    assert shared_claims(tmp_path, "first a", "second b", "with b", "both a b", "more b c") == [
        ("default/first", True, "n1"),
        ("default/second", True, "n2"),
        ("default/with", True, "n2"),
        ("default/both", False, ""),
        ("default/more", False, "n2"),
    ]


def test_every_node_says_why(tmp_path: Path) -> None:
    """Nodes that are alike are reported together, others separately with their own reasons."""
    text = (EXAMPLES / "slices.yaml").read_text()
    small = text.replace('value: "30"', 'value: "20"')
    assert small != text
    slices = tmp_path / "slices.yaml"
    nodes = {"node-a": text, "node-b": small, "node-c": small}
    slices.write_text("\n---\n".join(one.replace("node-a", name) for name, one in nodes.items()))
    given = ("--claims", OBJECTS[1], "--slices", str(slices), *MACHINE)
    report = read_document(run(str(EXAMPLES / "pods.yaml"), *given, "-o", "json").output, "AdmissionReport")
    refusals = report["claims"][0]["refusals"]
    assert [one["nodes"] for one in refusals] == [["node-a"], ["node-b", "node-c"]]
    assert any(
        "has 20 cpu in total" in problem for one in refusals[1]["obstacles"] for problem in one["problems"].values()
    )
    output = run(str(EXAMPLES / "pods.yaml"), *given, "--no-map").output
    for line in ("  node node-a:\n", "  nodes node-b, node-c:\n", "has 30 cpu in total", "has 20 cpu in total"):
        assert line in output
