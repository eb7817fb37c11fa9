"""Rows become pods of several containers, which together ask for what the row asks for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from podslice.api.pod.demand import pod_qos
from podslice.fleet.scenario.scenario import Reading
from podslice.fleet.scenario.scenario_file import load_scenario
from podslice.fleet.scenario.strict import convert
from podslice.fleet.traces.reading import Reader
from podslice.fleet.traces.trace import TracePod
from podslice.values.errors import InputError
from podslice.values.quirks import PROFILES
from tests.fleet.fleets import GATES
from tests.fleet.test_runs import SCENARIO

MIB = 1 << 20
TEMPLATE: list[dict[str, Any]] = [
    {"name": "app"},
    {"name": "proxy", "cpu": "200m", "memory": "25%", "run": "sidecar"},
    {"name": "fetch", "cpu": 1, "memory": "64Mi", "run": "init"},
]


def make_containers(
    template: list[dict[str, Any]], cpu: int = 4000, memory: int = 1024 * MIB, gpus: int = 0, **more: Any
) -> Any:
    reading = convert({"containers": template, **more}, Reading, source="")
    row = TracePod("row-7", cpu, memory, gpus, 1000 if gpus else 0)
    return Reader(reading, gates=GATES, quirks=PROFILES["podslice"]).shape(row)


def resources(container: Any) -> dict[str, str]:
    return {name: str(amount) for name, amount in (container.resources.requests or {}).items()}


def test_a_row_is_divided_among_its_containers() -> None:
    """Amounts and shares are taken, one container gets the rest; the pod asks for no more than its row."""
    shape = make_containers(TEMPLATE, gpus=2)
    spec = shape.pod.spec
    (app,), (proxy, fetch) = spec.containers, spec.init_containers
    assert resources(app) == {"cpu": "3800m", "memory": str(768 * MIB), "nvidia.com/gpu": "2"}
    assert resources(proxy) == {"cpu": "200m", "memory": str(256 * MIB)}
    assert (proxy.restart_policy, fetch.restart_policy) == ("Always", None)
    assert resources(fetch) == {"cpu": "1", "memory": str(64 * MIB)}
    assert shape.requests.asked["cpu"] == 4000
    assert shape.requests.asked["memory"] == 1024 * MIB
    assert pod_qos(shape.pod, GATES) == "Guaranteed"


def test_gpus_go_to_the_container_with_gpus() -> None:
    """A container with `gpus` has them, whichever gets the rest."""
    template = [{"name": "app"}, {"name": "train", "cpu": "50%", "memory": "50%", "gpus": True}]
    first, second = make_containers(template, gpus=1).pod.spec.containers
    assert "nvidia.com/gpu" not in resources(first)
    assert resources(second)["nvidia.com/gpu"] == "1"


def test_burstable_templates_have_no_limits() -> None:
    """The quality of service is the reading's."""
    shape = make_containers(TEMPLATE, qos="burstable")
    assert pod_qos(shape.pod, GATES) == "Burstable"


def test_parts_that_are_too_large_name_the_row() -> None:
    """A row that asks for less than its containers' amounts is refused with its name and what to write."""
    with pytest.raises(InputError, match=r"leave nothing of the cpu of row-7 .* \(write shares such as 10%\)"):
        make_containers(TEMPLATE, cpu=150)


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ([{"name": "a"}, {"name": "a", "cpu": 1, "memory": 1}], "two containers have the same name"),
        ([{"name": "a"}, {"name": "b"}], "not exactly one container gets the rest of cpu"),
        ([{"name": "a", "run": "sidecar"}], "none is an app container"),
        ([{"name": "a"}, {"name": "b", "run": "init", "cpu": 1}], "containers[1].memory: is missing"),
        ([{"name": "a", "gpus": True}, {"name": "b", "cpu": 1, "memory": 1, "gpus": True}],
         "two containers have the GPUs"),
        ([{"name": "a", "cpus": 1}], "did you mean cpu?"),
    ],
)  # fmt: skip
def test_wrong_templates_are_refused(tmp_path: Path, template: list[dict[str, Any]], said: str) -> None:
    """Errors of a template are reported with their place, before anything is simulated."""
    scenario = json.loads(json.dumps(SCENARIO))
    scenario["workload"][0]["reading"] = {"containers": template}
    path = tmp_path / "scenario.yaml"
    path.write_text(json.dumps(scenario))
    with pytest.raises(InputError) as caught:
        load_scenario(path)
    assert said in str(caught.value)


@pytest.mark.parametrize("share", ["120%", "-1%", "much%"])
def test_wrong_shares_are_refused(share: str) -> None:
    """Shares are from 0 to below 100 percent."""
    with pytest.raises(InputError, match="is not a share"):
        make_containers([{"name": "a"}, {"name": "b", "cpu": share, "memory": 1}])
