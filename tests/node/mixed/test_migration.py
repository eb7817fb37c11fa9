"""Examples for users of OpenShift's mixed CPUs and of CPU-Pooler, and for mistakes in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.read_documents import read_document
from tests.shell import podslice as run

EXAMPLES = Path(__file__).parents[3] / "examples" / "mixed"
TWO_NODES = "pack:2 numa:1(memory=64GB) core:8 pu:2(indexes=core)"
"""CPUs 0-7,16-23 and 8-15,24-31; 0 and 16 are a core."""
NODE = ("--from", TWO_NODES, "--config", str(EXAMPLES / "openshift-kubelet.yaml"))


def admitted(pods: Path, policy: Path) -> list[tuple[str, str, str, str]]:
    """Return of each pod the reason of its refusal, or the CPUs of its container, those it owns, and its isolation."""
    result = run("admit", str(pods), *NODE, "--policy", str(policy), "-o", "json")
    found = []
    for one in read_document(result.stdout, "AdmissionReport")["pods"]:
        if not one["admitted"]:
            found.append((one["name"], one["reason"], one["message"], ""))
            continue
        (container,) = one["containers"]
        found.append((one["name"], container["cpus"], container["exclusiveCPUs"], container["isolation"]))
    return found


def test_from_openshift() -> None:
    """A container has its whole request and the listed shared CPUs; one of a namespace that may not ask has its own."""
    assert admitted(EXAMPLES / "openshift-pods.yaml", EXAMPLES / "openshift-policy.yaml") == [
        ("upf", "1-3,17-19", "2-3,18-19", "mixed"),
        ("guest", "4,20", "4,20", "container"),
    ]


def test_as_many_as_the_node_allows(tmp_path: Path) -> None:
    """One container more than `free` is refused, and so is a value that is not a number."""
    policy, pods = tmp_path / "policy.yaml", tmp_path / "pods.yaml"
    policy.write_text((EXAMPLES / "openshift-policy.yaml").read_text().replace("free: 256", "free: 1"))
    one = (EXAMPLES / "openshift-pods.yaml").read_text().split("---")[0]
    pods.write_text(
        "---\n".join((one, one.replace("upf", "second"), one.replace("upf", "third").replace("=all", "=x")))
    )
    first, second, third = admitted(pods, policy)
    assert first == ("upf", "1-3,17-19", "2-3,18-19", "mixed")
    assert second[:2] == ("second", "InvalidPodsliceAnnotation")
    assert third[:2] == ("third", "InvalidPodsliceAnnotation")


def test_from_cpu_pooler() -> None:
    """The sum of both pools is one request; more exclusive CPUs than it has whole ones are refused."""
    gateway, greedy = admitted(EXAMPLES / "pooler-pods.yaml", EXAMPLES / "pooler-policy.yaml")
    assert gateway == ("gateway", "0-7,16-23", "2,18", "mixed")
    assert greedy[:2] == ("greedy", "InvalidPodsliceAnnotation")
    assert greedy[2].endswith("wants 3 exclusive CPUs for container packets, which asks for 2500m CPUs")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"1,17"', '"4-5"', "mixed.pool names CPUs that containers may own: 4-5"),
        ('"1,17"', '"2-99"', "mixed.pool"),
        ('"1,17"', '"two"', "mixed.pool"),
        ("[openshift]", "[openshfit]", "spec.mixed.environment[0]: invalid enum value 'openshfit'"),
        ("free: 256", "free: -1", "spec.mixed.free"),
        ("pool:", "pools:", "pools"),
        ('["telco-*"]', "telco", "spec.annotations.namespaces"),
    ],
)
def test_wrong_policies(tmp_path: Path, old: str, new: str, says: str) -> None:
    """A mistake in the policy is one line with its field, and nothing is admitted."""
    policy = tmp_path / "policy.yaml"
    written = (EXAMPLES / "openshift-policy.yaml").read_text()
    assert old in written
    policy.write_text(written.replace(old, new))
    result = run("admit", str(EXAMPLES / "openshift-pods.yaml"), *NODE, "--policy", str(policy))
    assert (result.returncode, result.stdout) == (2, "")
    assert says in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
