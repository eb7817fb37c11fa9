"""The operator's guide names every setting with its default, every trouble, every alert and every event."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from e2e.cluster import KUBELET

from podslice.agent.settings import AgentSettings, ClusterSettings, DRASettings, KubeletSettings, SourceSettings
from tests.agent.test_monitoring import rules

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "agent.md").read_text()
NESTED = {SourceSettings: "sources.", KubeletSettings: "sources.kubelet."}


def section(heading: str) -> str:
    return GUIDE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def settings(kind: type[msgspec.Struct], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every setting and its default as the table writes it."""
    for field in msgspec.structs.fields(kind):
        if field.type in NESTED:
            yield from settings(field.type, NESTED[field.type])
            continue
        value = field.default_factory() if field.default is msgspec.NODEFAULT else field.default  # type: ignore[misc]
        yield prefix + field.encode_name, written(value)


def written(value: Any) -> str:
    if value == "":
        return "empty"
    return f"`{msgspec.json.encode(value).decode()}`".replace('"', "").replace(".0`", "`")


def test_every_setting_is_documented() -> None:
    """The table has a row for each setting, with the default that the agent has, and no other row."""
    rows = dict(re.findall(r"^\| `([\w.]+)` \| (.*?) \| ", section("Settings"), re.MULTILINE))
    known = dict(settings(AgentSettings)) | dict(settings(KubeletSettings, "sources.kubelet."))
    known |= dict(settings(ClusterSettings, "cluster.")) | dict(settings(DRASettings, "dra."))
    assert rows == known


def test_kubelets_are_told_what_the_cluster_tests_tell_theirs() -> None:
    """The lines for the kubelet's configuration are those with which real kubelets run in the end-to-end tests, and
    reserve what the shipped configuration of the agent reserves."""
    block, *_ = re.findall(r"```yaml\n(.*?)```", section("Install"), re.DOTALL)
    told = yaml.safe_load(block)
    assert told == {name: KUBELET[name] for name in told}
    shipped = yaml.safe_load((ROOT / "deploy" / "agent.yaml").read_text())["resources"]
    assert told["reservedSystemCPUs"] == shipped["reservedSystemCPUs"]


def kinds_of_trouble() -> set[str]:
    """Return the kinds of trouble that the agent's modules report, sources' names included."""
    found: set[str] = set()
    for path in (ROOT / "src" / "podslice" / "agent").rglob("*.py"):
        text = path.read_text()
        found |= set(re.findall(r"trouble\(\s*\"(\w+)\"", text))
        found |= set(re.findall(r"^    name = \"(\w+)\"", text, re.MULTILINE)) if "Source" in text else set()
    return found


@pytest.mark.parametrize("kind", sorted(kinds_of_trouble()))
def test_every_trouble_is_in_the_table(kind: str) -> None:
    """Every kind of trouble in a metric or a log line is in the guide."""
    assert f"`{kind}`" in section("What goes wrong")


def test_every_alert_is_in_the_guide() -> None:
    """An alert is named where its failure is, and the guide names no alert that there is not."""
    named = set(re.findall(r"\bPodslice(?:\w+)", section("What goes wrong")))
    modules = [*(ROOT / "src/podslice/agent").rglob("*.py"), ROOT / "src/podslice/values/reasons.py"]
    events = {name for path in modules for name in re.findall(r'"(Podslice[A-Z]\w+)"', path.read_text())}
    alerts = {rule["alert"] for rule in rules()}
    assert alerts | events == named
