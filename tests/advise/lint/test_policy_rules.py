"""Rules about annotations under podslice.io/ and about a policy beside a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from podslice import InputError, KubeletConfig, lint
from podslice.advise.inspect.command import inspect
from podslice.advise.lint.command import lint as lint_command
from podslice.advise.lint.model import Finding
from podslice.api.pod.spec import Pod
from podslice.config.policy import (
    AnnotationRules,
    ClassMatch,
    CPUClass,
    Defragmentation,
    ExclusiveResize,
    PodslicePolicy,
)
from tests.node.resize.helpers import guaranteed, pod
from tests.node.resize.test_exclusive import MACHINE

RULES = ("PS413", "PS416", "PS601", "PS602", "PS603", "PS604")
ROOT = Path(__file__).parents[3]
ELASTIC = PodslicePolicy(resize=ExclusiveResize(exclusive=True))
STATIC = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0-1")
RESIZE, MOVABLE = "podslice.io/resize", "podslice.io/movable"


def annotated(cpu: str = "4", restart: str = "NotRequired", **said: str) -> Pod:
    resize = [{"resourceName": "cpu", "restartPolicy": restart}]
    annotations = {f"podslice.io/{key}": value for key, value in said.items()}
    return pod(guaranteed(cpu, "1Gi", resizePolicy=resize), annotations=annotations)


def found(subject: Pod | KubeletConfig, policy: PodslicePolicy | None = None, **more: Any) -> list[Finding]:
    """Return the findings of these rules."""
    return [one for one in lint(subject, policy=policy, **more) if one.id in RULES]


def test_unknown_annotation() -> None:
    """A misspelt annotation is reported with the nearest known one; annotations of others are not."""
    (finding,) = found(annotated(resiez="below-baseline=allow"))
    assert (finding.id, finding.severity, finding.fix) == ("PS601", "warning", f"did you mean {RESIZE}?")
    assert finding.path == "metadata.annotations[podslice.io/resiez]"
    assert found(annotated(resources="{}", refused="x")) == []
    assert found(pod(guaranteed("4", "1Gi"), annotations={"example.com/resiez": "x"})) == []


@pytest.mark.parametrize(
    ("policy", "severity", "says"),
    [
        (None, "warning", "a policy that reads it refuses the pod or ignores it"),
        (ELASTIC, "error", "the pod is refused"),
        (PodslicePolicy(ELASTIC.resize, annotations=AnnotationRules("ignore")), "warning", "it is ignored"),
    ],
    ids=["no-policy", "refused", "ignored"],
)
def test_wrong_annotation(policy: PodslicePolicy | None, severity: str, says: str) -> None:
    """A wrong value is as severe as its consequence for the pod; a right one is not reported."""
    (finding,) = found(annotated(resize="shrink-delay=soon"), policy)
    assert (finding.id, finding.severity, finding.path) == ("PS602", severity, f"metadata.annotations[{RESIZE}]")
    assert finding.message.endswith(says)
    assert found(annotated(resize="shrink-delay=30"), policy) == []


@pytest.mark.parametrize(
    ("policy", "said", "cpu", "says"),
    [
        (PodslicePolicy(), {"resize": "shrink-delay=3"}, "4", "the policy has no section resize"),
        (ELASTIC, {"movable": "true"}, "4", "the policy has no section defrag"),
        (ELASTIC, {"resize": "shrink-delay=3"}, "500m", "no container asks for exclusive CPUs"),
        (
            PodslicePolicy(ELASTIC.resize, annotations=AnnotationRules(namespaces=("team-*",))),
            {"resize": "shrink-delay=3"},
            "4",
            "the policy lets only these namespaces use annotations: team-*",
        ),
        (
            PodslicePolicy(defrag=Defragmentation(movable="all")),
            {"movable": "false"},
            "4",
            "the policy says defrag.movable: all",
        ),
    ],
)
def test_without_effect(policy: PodslicePolicy, said: dict[str, str], cpu: str, says: str) -> None:
    """With a policy, annotations that no section reads are reported; without one none are."""
    subject = annotated(cpu, **said)
    assert [(one.id, one.severity, one.message) for one in found(subject, policy)] == [("PS603", "info", says)]
    assert found(subject) == []


def test_a_restart_all_the_same() -> None:
    """Exclusive CPUs can change in place, unless the container asks for a restart."""
    (finding,) = found(annotated(restart="RestartContainer", resize="shrink-delay=3"), ELASTIC)
    assert (finding.id, finding.severity, finding.path) == ("PS604", "info", "spec.containers[0].resizePolicy")
    assert finding.message.endswith("its shrink-delay has no use then")
    gate = {"InPlacePodVerticalScalingExclusiveCPUs": True}
    config = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0-1", feature_gates=gate)
    assert [one.id for one in found(annotated(restart="RestartContainer"), config=config)] == ["PS604"]
    for harmless in (annotated(), annotated("500m", "RestartContainer")):
        assert found(harmless, ELASTIC) == []
    assert found(annotated(restart="RestartContainer")) == []


@pytest.mark.parametrize(
    ("config", "resize", "path", "says"),
    [
        (KubeletConfig(), ExclusiveResize(exclusive=True), "cpuManagerPolicy", "no container has exclusive CPUs"),
        (
            STATIC,
            ExclusiveResize(misfit="infeasible", below_baseline="allow"),
            "featureGates",
            "resize.belowBaseline, resize.misfit of the policy have no effect without resize.exclusive",
        ),
    ],
)
def test_policy_without_effect(config: KubeletConfig, resize: ExclusiveResize, path: str, says: str) -> None:
    """Settings without effect beside this configuration are reported, others are not."""
    (finding,) = (one for one in found(config, PodslicePolicy(resize=resize)) if one.path == path)
    assert (finding.id, finding.severity) == ("PS413", "warning")
    assert says in finding.message
    assert found(STATIC, ELASTIC) == found(STATIC) == []


def test_classes_without_cpus() -> None:
    """A class that no CPU matches, or whose CPUs no container can own, is reported with its place in the policy."""
    classes = (
        CPUClass("reserved", ClassMatch(cpus="0-1")),
        CPUClass("gone", ClassMatch(core_type="efficiency")),
        CPUClass("kept", ClassMatch(cpus="2-3"), min_shared=2),
        CPUClass("shared", ClassMatch(cpus="4-5"), exclusive="never"),
        CPUClass("all"),
    )
    policy = PodslicePolicy(cpu_classes=classes)
    problems = found(STATIC, policy, machine=MACHINE)
    assert [(one.id, one.severity, one.path, one.message) for one in problems] == [
        ("PS416", "warning", "spec.cpuClasses[0]",
         "class reserved has 2 CPUs, 2 of them reserved, and with minShared 0 no container can own one"),
        ("PS416", "warning", "spec.cpuClasses[1]", "class gone has no CPU on this machine"),
        ("PS416", "warning", "spec.cpuClasses[2]",
         "class kept has 2 CPUs, 0 of them reserved, and with minShared 2 no container can own one"),
    ]  # fmt: skip
    assert found(STATIC, policy) == []


def test_refused_on_the_empty_node() -> None:
    """The trial on the empty node is under the policy too."""
    findings = lint(annotated(resize="soon"), config=STATIC, machine=MACHINE, policy=ELASTIC)
    (refused,) = (one for one in findings if one.id == "PS501")
    assert "InvalidPodsliceAnnotation" in refused.message
    assert refused.fix == "leave out the annotation podslice.io/resize"


# On the command line


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a pod with a right and a misspelt annotation."""
    monkeypatch.chdir(ROOT)
    file = tmp_path / "db.yaml"
    text = Path("examples/elastic/grow.yaml").read_text()
    said = '{podslice.io/resize: "shrink-delay=30,db=below-baseline=allow", podslice.io/movible: "true"}'
    file.write_text(text.replace("metadata: {name: db}", f"metadata: {{name: db, annotations: {said}}}"))
    return str(file)


POLICY = ["--policy", "examples/elastic/policy.yaml"]


def test_lint(written: str) -> None:
    """`--policy` works with and without a configuration; a profile that predicts has none."""
    assert "podslice reads no such annotation" in CliRunner().invoke(lint_command, [written, *POLICY]).output
    none = CliRunner().invoke(lint_command, ["examples/elastic/kubelet.yaml", *POLICY])
    assert (none.exit_code, none.exception) == (0, None)
    wrong = CliRunner().invoke(lint_command, [written, *POLICY, "--profile", "kubelet-1.36"])
    assert isinstance(wrong.exception, InputError)


def test_inspect(written: str) -> None:
    """The page says how a container can be resized, and what is wrong with its annotations."""
    config = ["--config", "examples/elastic/kubelet.yaml"]
    page = " ".join(CliRunner().invoke(inspect, [written, *config, *POLICY]).output.split())
    said = "container db can be resized in place, also below its 8 CPUs, and keeps CPUs that it gives back for 30 s"
    assert said in page
    assert "can be resized" not in CliRunner().invoke(inspect, [written, *config]).output
    Path(written).write_text(Path(written).read_text().replace("shrink-delay=30", "shrink-delay=soon"))
    machine = ["--from", "numa:2(memory=32GB) core:8 pu:2"]
    page = " ".join(CliRunner().invoke(inspect, [written, *config, *POLICY, *machine]).output.split())
    assert "the node's policy refuses it: annotation" in page
    assert "InvalidPodsliceAnnotation" in page
