"""Output about a run: a table with three sentences, a page with seven plots, a node, and a plan."""

from __future__ import annotations

import json
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from shutil import which
from typing import Any

import htpy as h
import pytest

from podslice.fleet.report.node_maps import node_maps
from podslice.fleet.report.plots import Scale, Strip, heat_strip, steps
from podslice.fleet.report.report import heat_strips
from podslice.fleet.report.summary import summarize
from podslice.fleet.scenario.node_history import replay_node
from podslice.fleet.scenario.run import open_study
from podslice.fleet.scenario.sizing import NotEnoughError, find_least_nodes, removal_order
from podslice.fleet.scenario.store import RunStore
from podslice.values.cpuset import parse_bits
from tests.fleet.test_runs import SCENARIO, fleet, rows
from tests.read_documents import read_document

PLOTS = (
    "1 Allocation",
    "2 Stranded CPUs, expected",
    "3 What kubelets refuse",
    "4 Free CPUs of nodes, and the largest pod",
    "5 Nodes over time",
    "6 Nodes needed",
    "7 Time to run",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    (folder / "scenario.yaml").write_text(json.dumps(SCENARIO))
    result = fleet("run", folder / "scenario.yaml", "--out", folder / "run", "--workers", 1)
    assert result.exit_code == 0, result.output
    return folder / "run"


class Page(HTMLParser):
    """Collects the elements of a page, and what it would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.headings: list[str] = []
        self.loaded: list[str] = []
        self.tags: list[str] = []
        self._heading = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._heading = tag == "h2"
        self.loaded += [str(value) for name, value in attrs if name in ("src", "href", "srcset", "xlink:href")]

    def handle_data(self, data: str) -> None:
        if self._heading:
            self.headings.append(data)
            self._heading = False


@pytest.mark.slow
def test_the_page_has_the_answer_and_seven_plots(run: Path) -> None:
    """One file that loads nothing, of at most 2 MiB, the answer before anything else, numbers behind every plot."""
    assert fleet("report", run).exit_code == 0
    text = (run / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert tuple(heading for heading in page.headings if heading[0].isdigit()) == PLOTS
    assert not page.loaded
    assert "url(http" not in text
    assert len(text.encode()) < 2 << 20
    assert text.index('class="answer"') < text.index("<svg")
    assert page.tags.count("details") >= 6
    assert text.count("How to reproduce: ") == 7
    assert "prefers-color-scheme:dark" in text
    assert (run / "report.json").is_file()


def test_report_json_is_a_document(run: Path) -> None:
    """report.json says what `compare -o json` says."""
    assert fleet("report", run).exit_code == 0
    printed = read_document(fleet("compare", run, "-o", "json").stdout, "FleetComparison")
    assert read_document((run / "report.json").read_text(), "FleetComparison") == printed
    assert [one["name"] for one in printed["configurations"]] == [
        one.name for one in summarize([RunStore(run)]).candidates
    ]
    figures = printed["configurations"][0]["figures"]
    assert figures["refused"]["halfInterval"] is not None


def test_compare_ranks_by_the_chosen_figure(run: Path) -> None:
    """The figure that is named comes first, and the best of it is marked."""
    text = fleet("compare", run, "--by", "cpus").stdout
    head = next(line for line in text.splitlines() if line.startswith("CONFIGURATION"))
    assert head.split()[1] == "CPUS"
    values = [float(re.findall(r"\s(\d+\.\d)", line)[0]) for line in text.splitlines()[3:7]]
    assert values == sorted(values, reverse=True)
    wrong = fleet("compare", run, "--by", "speed")
    assert "'speed' is not a figure" in str(wrong.exception)


@pytest.mark.slow
def test_runs_of_other_pods_are_not_compared(run: Path, tmp_path: Path) -> None:
    """Two runs are compared if their pods are the same, and refused if not."""
    same = {**SCENARIO, "name": "same", "schedulers": {"packing": {"fit": "MostAllocated"}}}
    (tmp_path / "scenario.yaml").write_text(json.dumps(same))
    assert fleet("run", tmp_path / "scenario.yaml", "--out", tmp_path / "b", "--workers", 1).exit_code == 0
    both = read_document(fleet("compare", run, tmp_path / "b", "-o", "json").stdout, "FleetComparison")
    assert len(both["configurations"]) == 6
    (tmp_path / "scenario.yaml").write_text(json.dumps({**SCENARIO, "seeds": [3]}))
    assert fleet("run", tmp_path / "scenario.yaml", "--out", tmp_path / "c", "--workers", 1).exit_code == 0
    other = fleet("compare", run, tmp_path / "c")
    assert "is a run of other pods than" in str(other.exception)


def test_a_single_seed_is_reported(tmp_path: Path) -> None:
    """With one seed no interval is shown, and the sentence says what that means."""
    (tmp_path / "scenario.yaml").write_text(json.dumps({**SCENARIO, "seeds": [1]}))
    result = fleet("run", tmp_path / "scenario.yaml", "--out", tmp_path / "run", "--workers", 1)
    assert "±" not in result.stdout
    assert "That is one seed" in result.stdout


@pytest.mark.parametrize("part", ["~none~", "~single~kube", "~single~exact"])
def test_nodes_at_the_end_have_the_cpus_that_were_recorded(run: Path, part: str) -> None:
    """A node's history, decided about again, gives every pod the CPUs that the cell recorded."""
    store = RunStore(run)
    study = open_study(store)
    assert study is not None
    key = next(key for key in store.list_keys() if part in key)
    cell = next(one for one in study.cells if one.key == key)
    outcome = store.read_outcome(key)
    for place, name in enumerate(outcome.nodes):
        found = replay_node(study, cell, outcome, name)
        assert found.exact
        assert len(found.node.pods) == outcome.result.nodes.pods[place]


def test_show_prints_and_writes_a_node(run: Path, tmp_path: Path) -> None:
    """A node is shown as `draw` shows one; without a name the nodes are listed; an unknown one is an error."""
    listed = fleet("show", run).stdout
    assert "m-0000" in listed
    shown = fleet("show", run, "--node", "m-0001", "--cell", "single").stdout
    assert "NUMA 1" in shown
    assert fleet("show", run, "--node", "m-0001", "--out", tmp_path / "node.html").exit_code == 0
    assert "<svg" in (tmp_path / "node.html").read_text()
    assert "no node is called x" in str(fleet("show", run, "--node", "x").exception)


def test_bookings_over_time_are_those_of_the_end(run: Path) -> None:
    """The last column of the heat strip is what is booked at the end; rows of many nodes are means."""
    store = RunStore(run)
    key = next(iter(store.list_keys()))
    outcome = store.read_outcome(key)
    strips = heat_strips(outcome)
    assert len(strips) == len(outcome.nodes)
    for place, strip in enumerate(strips):
        booked = outcome.result.nodes.cpu_milli[place] / outcome.classes[0].cpu
        assert strip.shares[-1] == pytest.approx(booked)


# Plans


def test_the_least_number_is_found() -> None:
    """Bisection finds the least number that is enough, and asks little."""
    asked: list[int] = []

    def enough(count: int) -> bool:
        asked.append(count)
        return count >= 371

    assert find_least_nodes(enough, 1000) == (371, ())
    assert len(asked) < 16
    with pytest.raises(NotEnoughError):
        find_least_nodes(lambda count: False, 10)


def test_anomalies_near_the_answer_are_reported() -> None:
    """A smaller number that is enough where a greater one is not is recorded, not hidden."""
    assert find_least_nodes(lambda count: count >= 40 or count == 38, 100) == (38, (39,))
    assert find_least_nodes(lambda count: count >= 40 and count != 41, 64)[1] == (41,)


def test_nodes_go_in_one_order_of_the_seed() -> None:
    """The order is that of the seed, for every configuration."""
    assert removal_order(50, 1) == removal_order(50, 1) != removal_order(50, 2)
    assert sorted(removal_order(50, 1)) == list(range(50))


@pytest.mark.process
def test_plan_of_a_scenario(tmp_path: Path, run: Path) -> None:
    """Fewer nodes are enough for light pods, and the page shows it; too much work is a no that names the shapes."""
    (tmp_path / "scenario.yaml").write_text(json.dumps({**SCENARIO, "seeds": [1]}))
    found = fleet(
        "plan", tmp_path / "scenario.yaml", "--out", run, "--patience", "5m", "--tolerance", "5", "-o", "json"
    )
    document = read_document(found.stdout, "FleetPlan")
    assert found.exit_code == 0
    assert all(1 <= one["median"] <= 6 for one in document["configurations"])
    assert fleet("report", run).exit_code == 0
    assert "Not asked for" not in (run / "report.html").read_text()
    (run / "plan.json").unlink()
    huge: dict[str, Any] = json.loads(json.dumps(SCENARIO))
    huge["workload"][0]["synthetic"]["shapes"] = [{"cpu": 64}]
    (tmp_path / "scenario.yaml").write_text(json.dumps({**huge, "seeds": [1]}))
    refused = fleet("plan", tmp_path / "scenario.yaml")
    assert refused.exit_code == 1
    assert "6 nodes are not enough; on none of them ran pods of 64 CPUs, 1 GiB" in refused.stdout


@pytest.mark.slow
@pytest.mark.process
def test_a_plan_by_several_processes(tmp_path: Path) -> None:
    """Two processes find what one finds, for every configuration and each of three seeds."""
    path = tmp_path / "scenario.yaml"
    path.write_text(json.dumps({**SCENARIO, "seeds": [1, 2, 3]}))
    found = [
        fleet("plan", path, "--patience", "5m", "--tolerance", "5", "--workers", workers, "-o", "json").stdout
        for workers in (1, 2)
    ]
    assert found[0] == found[1]
    assert all(len(one["bySeed"]) == 3 for one in read_document(found[0], "FleetPlan")["configurations"])


# Plots


def test_ticks_are_round() -> None:
    """Axes have a few round values inside their range."""
    assert Scale(0, 100, 0, 1).ticks() == [0, 20, 40, 60, 80, 100]
    assert Scale(0, 0.7, 0, 1).ticks() == pytest.approx([0, 0.2, 0.4, 0.6])
    assert Scale(3, 3, 0, 1).at(3) == 0


def test_distributions_have_few_points() -> None:
    """A distribution of many values keeps its least and its most in few points."""
    points = steps([float(value) for value in range(10_000)], 100)
    assert len(points) == 100
    assert (points[0][0], points[-1]) == (0.0, (9999.0, 100.0))
    assert steps([]) == []


def test_equal_neighbours_are_one_rectangle() -> None:
    """A heat strip draws runs, and nothing where nothing is booked."""
    drawn = str(heat_strip([Strip("n", "c", [0.0] * 50 + [1.0] * 50)], label="x", across="time"))
    assert drawn.count('height="9.0"') == 1


def facts_of(text: str) -> Any:
    found = re.search(r'<script id="node-maps" type="application/json">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run at whose end pods are on nodes."""
    folder = tmp_path_factory.mktemp("full")
    made = {name: value for name, value in SCENARIO["workload"][0]["synthetic"].items() if name != "lifetime"}
    kubelets = {"single": SCENARIO["kubelets"]["single"]}
    scenario = {**SCENARIO, "seeds": [1], "workload": [{"synthetic": {**made, "pods": 20}}], "kubelets": kubelets}
    (folder / "scenario.yaml").write_text(json.dumps(scenario))
    result = fleet("run", folder / "scenario.yaml", "--out", folder / "run", "--workers", 1)
    assert result.exit_code == 0, result.output
    return folder / "run"


def maps_of(run: Path, key: str) -> Any:
    study = open_study(RunStore(run))
    assert study is not None
    cell = next(cell for cell in study.cells if cell.key == key)
    return facts_of(str(h.div[node_maps(study, cell, RunStore(run).read_outcome(key), "run")]))


def test_every_node_has_its_map(full: Path) -> None:
    """Each node is in a row that can be clicked, and its map has the CPUs of the pods that are on it at the end."""
    assert fleet("report", full).exit_code == 0
    text = (full / "report.html").read_text()
    rows_of_nodes = [int(one) for row in re.findall(r'<g data-n="([0-9 ]+)"', text) for one in row.split()]
    assert sorted(rows_of_nodes) == list(range(len(facts_of(text)["names"])))
    found: dict[str, dict[str, dict[int, str]]] = {}
    for row in rows(full / "tables" / "pods.csv.gz"):
        if row["cpus"] and row["verdict"] == "ran" and not row["ended_ms"]:
            found.setdefault(row["cell"], {}).setdefault(row["node"], {})[int(row["pod"])] = row["cpus"]
    assert found
    for key, expected in found.items():
        nodes = maps_of(full, key)["nodes"]
        assert {name: {pod: cpus for pod, _, cpus in own} for name, _, _, own in nodes if own} == expected


def test_names_cannot_leave_the_facts(full: Path) -> None:
    """A name that looks like the end of a script is text."""
    store = RunStore(full)
    study = open_study(store)
    assert study is not None
    key = next(store.list_keys())
    outcome = store.read_outcome(key)
    evil = outcome._replace(nodes=("</script><script>alert(1)</script>", *outcome.nodes[1:]))
    page = str(h.div[node_maps(study, next(cell for cell in study.cells if cell.key == key), evil, "run")])
    assert page.count("</script>") == 1
    assert facts_of(page)["names"][0] == evil.nodes[0]


def test_maps_end_where_there_is_no_more_room(full: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nodes with the most stranded CPUs are drawn, the others are listed by name."""
    monkeypatch.setattr("podslice.fleet.report.node_maps.MOST_TEXT", 300)
    maps = maps_of(full, next(RunStore(full).list_keys()))
    assert 0 < len(maps["nodes"]) < len(maps["names"])


CLICK = """<script>document.querySelectorAll('svg.plot g[data-n]')[2].dispatchEvent(new MouseEvent('click',
{bubbles:true}));document.title='clicked '+document.querySelector('#map p').textContent</script></body>"""


@pytest.mark.slow
@pytest.mark.skipif(which("chromium") is None, reason="needs a browser: apt-get install chromium")
def test_a_click_shows_the_node(full: Path, tmp_path: Path) -> None:
    """In a browser a click on a row draws that node: all its CPUs, each owned one with the letter of its pod."""
    assert fleet("report", full).exit_code == 0
    text = (full / "report.html").read_text()
    page = tmp_path / "page.html"
    page.write_text(text.replace("</body>", CLICK))
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile"]
    shown = subprocess.run([*command, "--dump-dom", page.as_uri()], capture_output=True, text=True, check=True).stdout
    maps = facts_of(text)
    number = int(re.findall(r'<g data-n="([0-9]+)"', text)[2])
    assert f"<title>clicked {maps['names'][number]}, " in shown
    owners = next(node[3] for node in maps["nodes"] if node[0] == maps["names"][number])
    owned = sum(parse_bits(cpus).bit_count() for _, _, cpus in owners)
    assert len(re.findall(r'class="cpu o"', shown)) == owned
