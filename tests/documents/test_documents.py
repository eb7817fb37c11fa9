"""The contract for machines: documents, their kinds and their schemas."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
import yaml
from release.schemas import find_outdated, write

from podslice.cli.main import cli
from podslice.documents.kinds import KINDS, type_of
from podslice.documents.schema import load_schema, make_schema
from podslice.host.machine_files import dump_machine, parse_machine
from podslice.machine.gallery import gallery_names, load_gallery
from podslice.values.document import API_VERSION, document
from podslice.values.errors import InputError
from tests.read_documents import check_document, read_document
from tests.shell import podslice
from tests.state_files import samples
from tests.test_docs_commands import all_commands

MACHINE = ("--machine", "xeon-6338-2s")
NODE = ("--machine", "epyc-9654-nps4", "--config", "examples/kubelet.yaml")
PODS = "examples/pods.yaml"
COMMANDS = [
    ("AdmissionReport", ("admit", PODS, *NODE)),
    ("Comparison", ("whatif", PODS, *MACHINE, "--set", "cpuManagerPolicy=static", "--set", "reservedSystemCPUs=0")),
    ("DefragmentationPlanList", ("defrag", PODS, *NODE)),
    ("DefragmentationPlanList", ("defrag", PODS, *NODE, "--restarts")),
    ("ExplanationList", ("explain", PODS, *NODE)),
    ("InspectionList", ("inspect", PODS, *NODE)),
    ("LargestPod", ("defrag", *NODE)),
    ("LargestPod", ("defrag", *NODE, "--restarts")),
    ("LintReport", ("lint", PODS, *NODE)),
    ("LintRule", ("lint", "--explain", "PS101")),
    ("ReservationAdvice", ("reserve", *MACHINE)),
    ("UpgradeReport", ("upgrade", "--from", "1.33", "--to", "1.36", *MACHINE)),
    ("LintRuleList", ("lint", "--rules")),
    ("Machine", ("topology", *MACHINE)),
    ("MachineList", ("topology", "--list")),
    ("StateConversionList", ("state", "convert", "{state}", "--to", "1.35")),
    ("StateFileList", ("state", "show", "{state}")),
    ("StateMigration", ("state", "migrate", "{state}", "--before", "core:8 pu:2", "--after", "core:8 pu:2")),
    ("StateRepairList", ("state", "repair", "{state}")),
    ("StateVerificationList", ("state", "verify", "{state}")),
    ("TraceCheck", ("fleet", "trace", "check", "tests/fleet/openb-like.csv")),
    ("TraceDescription", ("fleet", "trace", "describe", "tests/fleet/openb-like.csv")),
    ("Version", ("version",)),
]
ELSEWHERE = {
    "AgentStatus": "tests/agent/test_daemon.py",
    "AuditReport": "tests/audit/test_audit.py",
    "ClusterFragmentation": "tests/cluster/test_page.py",
    "ClusterNodes": "tests/cluster/test_page.py",
    "ClusterUpgradeReport": "tests/kubectl/test_upgrade.py",
    "DefragmentationResult": "tests/cli/test_defrag_apply.py",
    "DeviceInventory": "tests/machine/test_found_devices.py",
    "FleetComparison": "tests/fleet/test_pages.py",
    "RestartReport": "tests/advise/whatif/test_restart.py",
    "FleetPlan": "tests/fleet/test_pages.py",
    "FleetTables": "tests/fleet/test_runs.py",
    "FleetValidation": "tests/fleet/test_fgd.py",
    "IsolationReport": "tests/isolation/test_command.py",
    "LatencyReport": "tests/isolation/test_probe.py",
    "LiveNode": "tests/agent/test_statusport.py",
    "NodeAuditList": "tests/kubectl/test_kubectl.py",
    "NodeUsageList": "tests/kubectl/test_kubectl.py",
    "PendingPodList": "tests/cluster/test_page.py",
    "PodDiagnosis": "tests/advise/why/test_why.py",
    "PodFitList": "tests/cluster/test_page.py",
    "PodPlacement": "tests/kubectl/test_kubectl.py",
}
"""Kinds whose commands need more than files."""


@pytest.fixture
def state(tmp_path: Path) -> Path:
    files = samples.files()
    names = {
        "cpu_manager_state": "cpu-v3",
        "memory_manager_state": "memory-v2",
        "kubelet_internal_checkpoint": "device-v2",
    }
    for name, sample in names.items():
        (tmp_path / name).write_bytes(files[sample])
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "command"), COMMANDS, ids=lambda value: value if isinstance(value, str) else None)
def test_every_document_agrees_with_its_schema(
    monkeypatch: pytest.MonkeyPatch, state: Path, kind: str, command: tuple[str, ...]
) -> None:
    """Each command prints a document of its kind that its schema describes wholly; YAML says the same as JSON."""
    monkeypatch.chdir(Path(__file__).parents[2])
    words = [word.format(state=state) for word in command]
    printed = read_document(podslice(*words, "-o", "json").stdout, kind)
    assert yaml.safe_load(podslice(*words, "-o", "yaml").stdout) == printed


def test_every_kind_is_looked_at() -> None:
    """No kind is without a test, and no command prints data without a kind."""
    assert {kind for kind, _ in COMMANDS} | set(ELSEWHERE) == set(KINDS)
    root = Path(__file__).parents[2]
    assert all(kind in (root / file).read_text(encoding="utf-8") for kind, file in ELSEWHERE.items())
    printing = {
        name
        for name, command in all_commands(cli)
        if any(option.name == "output" and "json" in getattr(option.type, "choices", ()) for option in command.params)
    }
    named = (kind.command for kind in KINDS.values() if kind.command.startswith("podslice"))
    commands = {" ".join(word for word in command.split() if word.islower()) for command in named}
    assert printing == {name for name in commands if not name.partition(" --")[2]}


def test_schemas_are_current(tmp_path: Path) -> None:
    """The shipped schemas are those of the types; one that differs, is missing or belongs to nothing is told."""
    assert find_outdated() == []
    write(tmp_path)
    assert find_outdated(tmp_path) == []
    (tmp_path / "Version.json").write_text("{}")
    (tmp_path / "Machine.json").unlink()
    (tmp_path / "Toaster.json").write_text("{}")
    assert [path.stem for path in find_outdated(tmp_path)] == ["Machine", "Version", "Toaster"]
    write(tmp_path)
    assert find_outdated(tmp_path) == []


@pytest.mark.parametrize("kind", KINDS)
def test_schemas_are_schemas(kind: str) -> None:
    """Each is valid under draft 2020-12, names its kind and version, and describes every type."""
    schema = load_schema(kind)
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator.check_schema(schema)
    assert (schema["properties"]["kind"], schema["properties"]["apiVersion"]) == (
        {"const": kind},
        {"const": API_VERSION},
    )
    described = [schema, *schema.get("$defs", {}).values()]
    assert all(one["description"].rstrip().endswith((".", "`.")) for one in described)


def test_schema_command() -> None:
    """`podslice schema` lists the kinds; with one, in any case, it prints the schema; others are one line."""
    listed = podslice("schema").stdout
    assert all(kind in listed for kind in KINDS)
    assert json.loads(podslice("schema", "admissionreport").stdout) == make_schema("AdmissionReport")
    wrong = podslice("schema", "AdmissionRaport")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == (
        "podslice: error: 'AdmissionRaport' is not a kind of document (did you mean AdmissionReport?)\n"
    )


def test_wrong_documents_are_found() -> None:
    """The check that all tests use refuses a missing, a wrong, and an unknown field."""
    good = document(type_of("Version")("1", "2", "3"))
    check_document(good, "Version")
    for bad in ({**good, "python": 3}, {**good, "more": ""}, {k: v for k, v in good.items() if k != "podslice"}):
        with pytest.raises(AssertionError, match="Version"):
            check_document(bad)
    with pytest.raises(AssertionError):
        check_document([good])


@pytest.mark.slow
@pytest.mark.parametrize("name", gallery_names())
def test_machines_come_back(name: str) -> None:
    """Every ready-made machine is a valid document that reads back as the same machine."""
    machine = load_gallery(name)
    for text in (dump_machine(machine, "json"), dump_machine(machine, "yaml")):
        check_document(yaml.safe_load(text) if text[0] != "{" else json.loads(text), "Machine")
        assert parse_machine(text) == machine


def test_other_kinds_are_no_machine() -> None:
    """A document of another kind or version is refused by name."""
    text = dump_machine(load_gallery("raspberry-pi-5"), "yaml")
    with pytest.raises(InputError, match="kind: 'Lease' is not Machine"):
        parse_machine(text.replace("kind: Machine", "kind: Lease"))
    with pytest.raises(InputError, match=r"apiVersion: 'podslice.io/v9' is not podslice.io/v1alpha1"):
        parse_machine(text.replace(API_VERSION, "podslice.io/v9"))


def test_documents_of_unknown_types_are_not_printed() -> None:
    """A value that is not a document cannot be printed as one by mistake."""
    from podslice.cli.output import emit

    class Toaster(msgspec.Struct):
        slots: int

    with pytest.raises(AssertionError, match="known kinds"):
        emit(Toaster(2), "json")
