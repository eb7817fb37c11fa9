"""Exports of metrics as workloads: what Prometheus answers, what exporters write, what is missing or odd in them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from podslice.fleet.importing.kube_pods import cluster_pods
from podslice.fleet.importing.metrics_pods import MetricsPods, metrics_pods
from podslice.fleet.importing.metrics_read import MetricSeries, is_metrics, read_answer, read_exposition
from podslice.fleet.importing.metrics_table import read_table
from podslice.fleet.scenario.starter import sample_cluster
from podslice.values.errors import InputError
from tests.fleet.test_runs import fleet, rows

BEGIN = 1_767_225_600
"""2026-01-01T00:00:00Z."""
REQUESTS, LIMITS = "kube_pod_container_resource_requests", "kube_pod_container_resource_limits"


def one(
    name: str, pod: str, at: range | list[int], value: float = 2, *, resource: str = "cpu", **labels: str
) -> dict[str, Any]:
    """A series of a range query: a sample at each second `at`."""
    found = {"__name__": name, "namespace": "prod", "pod": pod, "container": "app", "resource": resource, **labels}
    return {"metric": found, "values": [[BEGIN + second, str(value)] for second in at]}


def answer(*series: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return an answer of /api/v1/query_range."""
    return {"status": "success", "data": {"resultType": "matrix", "result": list(series)}, **more}


def pods_in(*series: dict[str, Any], resources: tuple[str, ...] = ()) -> MetricsPods:
    return metrics_pods(read_answer(answer(*series), Path("m.json")).series, resources)


def times(pod: dict[str, Any]) -> tuple[str, str]:
    metadata = pod["metadata"]
    return metadata["creationTimestamp"][11:19], metadata.get("annotations", {}).get("podslice.dev/seen-last", "")[
        11:19
    ]


def test_a_pod_is_there_from_its_first_to_its_last_sample() -> None:
    """Pods with a sample at the first moment began before, those with one at the last stay; others come and go half-way
    between two moments."""
    found = pods_in(
        one(REQUESTS, "all", range(0, 601, 60), uid="1", node="n"),
        one(REQUESTS, "middle", range(120, 301, 60), uid="2", node="n"),
        one(REQUESTS, "early", range(0, 61, 60), uid="3", node="n"),
    )
    data = {pod["metadata"]["name"]: times(pod) for pod in found.pods}
    assert data == {
        "all": ("00:00:00", ""), "middle": ("00:01:30", "00:05:30"), "early": ("00:00:00", "00:01:30")
    }  # fmt: skip
    assert found.begin == BEGIN * 1000
    assert "metrics have 11 moments, 60 s apart: what comes and goes between two of them does so half-way" in (
        found.assumed
    )


def test_amounts_become_containers() -> None:
    """Cores, bytes and devices of requests and limits, of containers and init containers; a device's limit is its
    request; resources are named as nodes name them, else as they are guessed to be, which is said."""
    at = range(0, 61, 60)
    found = pods_in(
        one(REQUESTS, "a", at, 0.25, uid="1", node="n", unit="core"),
        one(REQUESTS, "a", at, 1 << 30, resource="memory", uid="1", node="n"),
        one(REQUESTS, "a", at, 2, resource="nvidia_com_mig_1g_5gb", uid="1", node="n"),
        one(REQUESTS, "a", at, 1, resource="vendor_io_fpga", uid="1", node="n"),
        one(REQUESTS, "a", at, 4 << 20, resource="hugepages_2Mi", uid="1", node="n"),
        one(LIMITS, "a", at, 0.5, uid="1", node="n"),
        one("kube_pod_init_container_resource_requests", "a", at, 1, uid="1", node="n", container="init"),
        one("kube_pod_container_resource_requests_memory_bytes", "a", at, 5, uid="1", container="old", resource=""),
        resources=("cpu", "nvidia.com/mig-1g.5gb"),
    )
    spec = found.pods[0]["spec"]
    assert spec["containers"][0] == {
        "name": "app",
        "resources": {
            "requests": {"cpu": "250m", "hugepages-2Mi": f"{4 << 20}", "memory": f"{1 << 30}",
                         "nvidia.com/mig-1g.5gb": "2", "vendor.io/fpga": "1"},
            "limits": {"cpu": "500m", "nvidia.com/mig-1g.5gb": "2", "vendor.io/fpga": "1"},
        },
    }  # fmt: skip
    assert spec["containers"][1] == {"name": "old", "resources": {"requests": {"memory": "5"}}}
    assert spec["initContainers"] == [{"name": "init", "resources": {"requests": {"cpu": "1000m"}}}]
    assert spec["nodeName"] == "n"
    assert "resource vendor_io_fpga of metrics is taken to be vendor.io/fpga" in found.assumed
    assert not any("limits" in line for line in found.assumed)


def test_other_metrics() -> None:
    """Owner, priority class, the moments at which pods were made and ended; pods without requests are there too."""
    at = range(0, 601, 60)
    found = pods_in(
        one(REQUESTS, "job", range(120, 601, 60), uid="1", node="n"),
        one("kube_pod_owner", "job", range(120, 601, 60), 1, uid="1", owner_kind="Job"),
        one("kube_pod_created", "job", range(120, 601, 60), BEGIN + 100, uid="1"),
        one("kube_pod_status_phase", "job", range(300, 601, 60), 1, uid="1", phase="Succeeded"),
        one("kube_pod_info", "idle", at, 1, uid="2", node="n", created_by_kind="<none>", priority_class="high"),
        one("kube_pod_completion_time", "idle", at, BEGIN + 599, uid="2"),
    )
    idle, job = found.pods
    assert (job["metadata"]["ownerReferences"], times(job)) == ([{"kind": "Job"}], ("00:01:40", "00:05:00"))
    assert (idle["spec"]["containers"], idle["spec"]["priorityClassName"]) == ([{"name": "main"}], "high")
    assert (idle["metadata"]["ownerReferences"], times(idle)) == ([], ("00:00:00", "00:09:59"))
    assert any("have no limits, so pods are Burstable" in line for line in found.assumed)


def test_sidecars_by_their_restart_policy() -> None:
    """Newer exporters have the policy of init containers; where none has it, a line reports it."""
    at, options = range(0, 61, 60), {"uid": "1", "node": "n"}
    init = "kube_pod_init_container_resource_requests"
    series = [
        one(REQUESTS, "a", at, 2, **options),
        one(init, "a", at, 0.25, container="proxy", **options),
        one(init, "a", at, 1, container="fetch", **options),
        one("kube_pod_init_container_info", "a", at, 1, container="fetch", uid="1"),
        one("kube_pod_init_container_info", "a", at, 1, container="plain", uid="1"),
    ]
    always = one("kube_pod_init_container_info", "a", at, 1, container="proxy", uid="1", restart_policy="Always")
    found = pods_in(*series, always)
    assert found.pods[0]["spec"]["initContainers"] == [
        {"name": "fetch", "resources": {"requests": {"cpu": "1000m"}}},
        {"name": "plain", "resources": {}},
        {"name": "proxy", "resources": {"requests": {"cpu": "250m"}}, "restartPolicy": "Always"},
    ]
    assert found.problems == ()
    line = "metrics name no sidecar among the init containers of 1 pod: kube-state-metrics has them in"
    assert not any(line in one for one in found.assumed)
    without = pods_in(*series)
    assert not any("restartPolicy" in one for one in without.pods[0]["spec"]["initContainers"])
    assert any(line in one for one in without.assumed)


def test_gaps_and_names_that_come_again() -> None:
    """With a UID a pod without samples for a while is one; without, its name is of another pod then. A gap of all is
    no sample, and a pod that waited for its node is one."""
    everyone = [*range(0, 601, 60), *range(1800, 2401, 60)]
    holed = [second for second in everyone if not 180 <= second <= 420]
    found = pods_in(
        one(REQUESTS, "all", everyone, uid="1", node="n"),
        one(REQUESTS, "holed", holed, uid="2", node="n"),
        one(REQUESTS, "db-0", holed, node="n"),
        one(REQUESTS, "moved", range(0, 301, 60), node="n"),
        one(REQUESTS, "moved", range(360, 601, 60), node="m"),
        one(REQUESTS, "waited", range(0, 121, 60), node=""),
        one(REQUESTS, "waited", range(180, 601, 60), node="n"),
    )
    data: dict[str, list[tuple[str, tuple[str, str]]]] = {}
    for pod in found.pods:
        data.setdefault(pod["metadata"]["name"], []).append((pod["spec"]["nodeName"], times(pod)))
    assert data == {
        "all": [("n", ("00:00:00", ""))],
        "holed": [("n", ("00:00:00", ""))],
        "db-0": [("n", ("00:00:00", "00:02:30")), ("n", ("00:07:30", ""))],
        "moved": [("n", ("00:00:00", "00:05:30")), ("m", ("00:05:30", "00:20:00"))],
        "waited": [("n", ("00:00:00", "00:20:00"))],
    }
    assert "1 pod without samples for a while ran on meanwhile" in found.assumed
    assert any(line.startswith("2 pods without the label uid came again under the same name") for line in found.assumed)
    assert any("60 s apart, up to 1200 s" in line for line in found.assumed)


def test_queries_between_each_others_moments() -> None:
    """Limits that were asked for seven seconds later make no gaps, and end nothing."""
    found = pods_in(
        one(REQUESTS, "a", range(0, 601, 60), uid="1", node="n"),
        one(LIMITS, "a", range(7, 608, 60), uid="1", node="n"),
        one(REQUESTS, "b", range(0, 601, 60), node="n"),
    )
    assert [times(pod) for pod in found.pods] == [("00:00:00", "")] * 2
    assert not any("without samples" in line for line in found.assumed)


def test_replicas_and_resizes() -> None:
    """Samples of two Prometheus replicas are one pod; of requests that changed the largest counts, and that is said."""
    grown = one(REQUESTS, "a", range(0, 121, 60), uid="1", node="n", prometheus_replica="b")
    grown["values"][1][1] = "5"
    found = pods_in(one(REQUESTS, "a", range(0, 121, 60), uid="1", node="n", prometheus_replica="a"), grown)
    (pod,) = found.pods
    assert pod["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "5000m"}
    assert "the requests of 1 pod changed while they ran; the largest are taken" in found.assumed


def test_unusable_series_are_counted() -> None:
    """Other metrics, series without the labels that are needed, samples that are not amounts: a line each, and the rest
    is used. Unknown labels are passed over."""
    spoilt = one(REQUESTS, "a", range(0, 181, 60), uid="1", node="n", future="label")
    spoilt["values"][1:3] = [[BEGIN + 60, "NaN"], ["soon", "1"]]
    nameless = one(REQUESTS, "", [0])
    export = read_answer(
        answer(spoilt, nameless, one("up", "x", [0]), one(REQUESTS, "b", [0], container=""), {"metric": 1},
               warnings=["results truncated"]),
        Path("m.json"),
    )  # fmt: skip
    assert export.problems == (
        "m.json: Prometheus warns: results truncated",
        "m.json: 1 samples that are not amounts, such as NaN left out",
        "m.json: 1 samples that are not numbers left out",
        "m.json: 1 series without labels or samples left out",
    )
    found = metrics_pods(export.series)
    assert [pod["metadata"]["name"] for pod in found.pods] == ["a"]
    assert found.problems == (
        "1 series of metric up have nothing about pods' requests",
        f"1 series of {REQUESTS} without the label container",
        f"1 series of {REQUESTS} without the label pod",
    )


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"status": "error", "errorType": "bad_data", "error": "exceeded maximum resolution of 11,000 points"},
         "Prometheus refused the query: exceeded maximum resolution of 11,000 points (make the export again)"),
        ({"status": "success", "data": {"resultType": "scalar", "result": [1, "2"]}},
         "is an answer of type 'scalar', not matrix"),
        ({"data": {"resultType": "matrix"}}, "is an answer of type 'matrix', not matrix"),
    ],
)  # fmt: skip
def test_answers_without_series_are_refused(document: dict[str, Any], said: str) -> None:
    """With what Prometheus said, and what to ask."""
    assert is_metrics(document)
    with pytest.raises(InputError) as caught:
        read_answer(document, Path("m.json"))
    assert said in str(caught.value)


def test_a_query_with_a_function_is_known_by_its_file(tmp_path: Path) -> None:
    """Its series have no name; an instant query has one sample of each."""
    document = {"resultType": "vector", "result": [{"metric": {"pod": "a", "container": "c", "resource": "cpu"},
                                                   "value": [BEGIN, "1"]}]}  # fmt: skip
    export = read_answer(document, tmp_path / f"{REQUESTS}.monday.json")
    assert export.series == (
        MetricSeries(REQUESTS, {"pod": "a", "container": "c", "resource": "cpu"}, ((BEGIN * 1000, 1.0),)),
    )


TEXT = f"""# HELP {REQUESTS} The number of requested request resource by a container.
# TYPE {REQUESTS} gauge
{REQUESTS}{{namespace="prod",pod="a",uid="1",container="a\\"b,}}c",node="n",resource="cpu",unit="core"}} 0.5
{REQUESTS}{{namespace="prod",pod="a",uid="1",container="d",node="n",resource="memory",}} 1.073741824e+09 1767225660000
kube_node_info 1
not a metric at all
{REQUESTS}{{namespace="prod",pod="b" 3
"""


def test_text_of_an_exporter(tmp_path: Path) -> None:
    """Labels with quotes and braces, times of lines or of the file; broken lines are counted."""
    path = tmp_path / "ksm.prom"
    path.write_text(TEXT)
    export = read_exposition(path, BEGIN * 1000)
    assert export is not None
    assert [(dict(one.labels)["container"], one.samples) for one in export.series[:2]] == [
        ('a"b,}c', ((BEGIN * 1000, 0.5),)),
        ("d", ((BEGIN * 1000 + 60_000, float(1 << 30)),)),
    ]
    assert export.problems == ("ksm.prom: 2 lines that are of no metric left out",)
    path.write_text(TEXT.strip()[:-3])
    cut = read_exposition(path, BEGIN * 1000)
    assert cut is not None
    assert cut.problems[0] == "ksm.prom: breaks off; what is before that is used"
    path.write_text(f'{REQUESTS}{{pod="a"}} 1 1767225660.5\n# EOF\n')
    seconds = read_exposition(path, 0)
    assert seconds is not None
    assert seconds.series[0].samples == ((1767225660500, 1.0),)
    path.write_text(f'{{__name__="{REQUESTS}", pod="a"}} 1 1767225660000\n{{pod="a"}} 1 1767225660000\n')
    dumped = read_exposition(path, 0)
    assert dumped is not None
    assert dumped.series == (MetricSeries(REQUESTS, {"pod": "a"}, ((1767225660000, 1.0),)),)
    assert dumped.problems == ("ksm.prom: 1 lines that are of no metric left out",)
    path.write_text("Dear all,\nthis is not a metric.\n")
    assert read_exposition(path, 0) is None
    path.write_bytes(b"\xff\xfe\x00")
    assert read_exposition(path, 0) is None


LONG = """time,value,namespace,pod,uid,node,container,resource
2026-01-01T00:00:00Z,0.5,prod,a,1,n,app,cpu
1767225660,0.5,prod,a,1,n,app,cpu
1767225660000,1,prod,b,,n,app,cpu
2026-01-01 00:02:00,2,prod,b,,n,app,cpu
soon,1,prod,a,1,n,app,cpu
1767225720,much,prod,a,1,n,app,cpu
1767225720
"""


def test_a_table_of_samples(tmp_path: Path) -> None:
    """A row is a sample; seconds, milliseconds, and times in words, which are UTC; the file says which metric it is."""
    path = tmp_path / f"{REQUESTS}.csv"
    path.write_text(LONG)
    export = read_table(path)
    assert export is not None
    options = {"namespace": "prod", "node": "n", "container": "app", "resource": "cpu"}
    assert export.series == (
        MetricSeries(
            REQUESTS, {**options, "pod": "a", "uid": "1"}, ((BEGIN * 1000, 0.5), (BEGIN * 1000 + 60_000, 0.5))
        ),
        MetricSeries(REQUESTS, {**options, "pod": "b"}, ((BEGIN * 1000 + 60_000, 1.0), (BEGIN * 1000 + 120_000, 2.0))),
    )
    assert export.problems == (
        f"{REQUESTS}.csv: 1 rows with too few cells left out",
        f"{REQUESTS}.csv: 2 samples that are not numbers left out",
    )
    named = tmp_path / "all.csv"
    named.write_text(f"Timestamp,Value,__name__,pod\n1767225660,3,{REQUESTS},a\n1767225660,1,kube_pod_info,a\n")
    export = read_table(named)
    assert export is not None
    assert [(one.name, dict(one.labels)) for one in export.series] == [
        (REQUESTS, {"pod": "a"}), ("kube_pod_info", {"pod": "a"})
    ]  # fmt: skip
    named.write_text(f"ts,{REQUESTS},pod\n1767225660,3,a\n")
    export = read_table(named)
    assert export is not None
    assert export.series == (MetricSeries(REQUESTS, {"pod": "a"}, ((BEGIN * 1000 + 60_000, 3.0),)),)


def test_a_table_with_a_column_for_each_series(tmp_path: Path) -> None:
    """As Grafana saves a panel; a cell without a value is not a sample."""
    path = tmp_path / "panel.csv.gz"
    text = (
        f'"Time","{REQUESTS}{{pod=""a"", container=""c,d"", resource=""cpu""}}","{{__name__=""{LIMITS}"",pod=""b""}}"\n'
        "2026-01-01 00:00:00,1,\n2026-01-01 00:01:00,1,4\n"
    )
    path.write_bytes(gzip.compress(text.encode()))
    export = read_table(path)
    assert export is not None
    begin = BEGIN * 1000
    assert export.series == (
        MetricSeries(REQUESTS, {"pod": "a", "container": "c,d", "resource": "cpu"},
                     ((begin, 1.0), (begin + 60_000, 1.0))),
        MetricSeries(LIMITS, {"pod": "b"}, ((begin + 60_000, 4.0),)),
    )  # fmt: skip
    assert export.problems == ()


def test_tables_without_metrics(tmp_path: Path) -> None:
    """Other tables are passed over; one that is called as a metric of pods and has no time or value is refused."""
    other = tmp_path / "trace.csv"
    for text in ("name,cpu\na,1\n", "time,value,name\n1,2,a\n", "time\n1\n"):
        other.write_text(text)
        assert read_table(other) is None
    wrong = tmp_path / f"{REQUESTS}.csv"
    for text, said in (("when,value,pod\n1,2,a\n", "time: when, value, pod"), ("time,cores,pod\n", "value: time, ")):
        wrong.write_text(text)
        with pytest.raises(InputError, match=f"has no column {said}") as caught:
            read_table(wrong)
        assert "save it with the columns time, value and the labels" in str(caught.value)
    wrong.with_suffix(".csv.gz").write_bytes(gzip.compress(LONG.encode())[:-20])
    with pytest.raises(InputError, match="is not a whole gzip file"):
        read_table(wrong.with_suffix(".csv.gz"))


# As a workload


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    folder = tmp_path / "dump"
    folder.mkdir()
    (folder / "nodes.json").write_text(sample_cluster()[0])
    return folder


def write_history(dump: Path) -> None:
    """Eight pods that run all the time, and twelve that come every minute and stay for five."""
    series = []
    for number in range(20):
        at = range(0, 1201, 60) if number < 8 else range(60 * (number - 7), 60 * (number - 2), 60)
        options = {"uid": f"u{number}", "node": f"worker-{number % 8}"}
        for name in (REQUESTS, LIMITS):
            series.append(one(name, f"app-{number}", at, 4, **options))
            series.append(one(name, f"app-{number}", at, 8 << 30, resource="memory", **options))
    half = len(series) // 2
    (dump / "requests.json").write_text(json.dumps(answer(*series[:half])))
    (dump / "more.json").write_text(json.dumps(answer(*series[half:])))


def test_metrics_become_a_workload_that_runs(dump: Path, tmp_path: Path) -> None:
    """Without any dump of pods they are a history from the first sample on; who was there then is on its node, the
    others come one after the other."""
    write_history(dump)
    result = fleet("import", dump, "--out", tmp_path / "cluster")
    assert result.exit_code == 0, result.output
    said = " ".join(result.output.split())
    assert "8 pods on nodes at 2026-01-01T00:00:00Z, 12 come later" in said
    assert "Assumed: metrics have 21 moments, 60 s apart" in said
    assert 'since: "2026-01-01T00:00:00Z"' in (tmp_path / "cluster" / "scenario.yaml").read_text()
    done = fleet("run", tmp_path / "cluster" / "scenario.yaml", "--out", tmp_path / "run", "--workers", 1)
    assert done.exit_code == 0, done.output
    pods = rows(tmp_path / "run" / "tables" / "pods.csv.gz")
    assert [int(pod["arrival_ms"]) for pod in pods] == [0] * 8 + [60_000 * n - 30_000 for n in range(1, 13)]
    assert [pod["node"] for pod in pods[:8]] == [f"worker-{number}" for number in range(8)]
    ran = [int(pod["ended_ms"]) - int(pod["arrival_ms"]) for pod in pods if pod["ended_ms"]]
    assert ran.count(300_000) == 12


def test_tables_become_the_same_workload(dump: Path, tmp_path: Path) -> None:
    """The samples of a JSON export, as a table, are the same pods."""
    write_history(dump)
    known = ["namespace", "pod", "container", "resource", "uid", "node", "__name__"]
    lines = [",".join(["time", "value", *known])]
    for name in ("requests.json", "more.json"):
        for series in json.loads((dump / name).read_text())["data"]["result"]:
            labels = [series["metric"][label] for label in known]
            lines += [",".join([str(at), value, *labels]) for at, value in series["values"]]
    as_json = fleet("import", dump, "--out", tmp_path / "json")
    for name in ("requests.json", "more.json"):
        (dump / name).unlink()
    (dump / "samples.csv").write_text("\n".join(lines) + "\n")
    as_table = fleet("import", dump, "--out", tmp_path / "table")
    assert (as_json.exit_code, as_table.exit_code) == (0, 0), as_table.output
    assert as_table.output.replace("/table", "/json") == as_json.output
    names = sorted(path.name for path in (tmp_path / "json").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "table").iterdir())
    for name in names:
        assert (tmp_path / "json" / name).read_bytes() == (tmp_path / "table" / name).read_bytes()


def test_metrics_beside_dumps_of_pods(dump: Path, tmp_path: Path) -> None:
    """With --since both are one history, and a pod of both is there once; without, the dump alone counts, and that is
    said. No name is in an anonymised copy."""
    write_history(dump)
    pod = {
        "metadata": {"name": "app-0", "namespace": "prod", "uid": "u0", "creationTimestamp": "2025-12-31T00:00:00Z"},
        "spec": {"nodeName": "worker-0", "containers": [{"name": "app", "resources": {"requests": {"cpu": "4"}}}]},
        "status": {"phase": "Running"},
    }
    (dump / "pods-2026-01-01T00:10:00Z.json").write_text(json.dumps({"kind": "PodList", "items": [pod]}))
    alone = fleet("import", dump, "--out", tmp_path / "alone")
    assert "metrics of 20 pods are not used beside a dump" in " ".join(alone.output.split())
    both = fleet("import", dump, "--out", tmp_path / "both", "--since", "2026-01-01T00:00:00Z")
    assert both.exit_code == 0, both.output
    nodes = frozenset(f"worker-{number}" for number in range(8))
    found = cluster_pods(tmp_path / "both" / "pods.json", nodes, "2026-01-01T00:00:00Z").pods
    assert sorted(one.name for one in found) == sorted(f"prod/app-{number}" for number in range(20))
    assert (
        fleet("import", dump, "--out", tmp_path / "x", "--anonymise", "--since", "2026-01-01T00:00:00Z").exit_code == 0
    )
    text = (tmp_path / "x" / "pods.json").read_text()
    assert "app-" not in text
    assert "prod" not in text
    assert len(json.loads(text)["items"]) == 20


def test_a_truncated_export_is_refused(dump: Path, tmp_path: Path) -> None:
    """File and remedy in a line, and nothing is written."""
    write_history(dump)
    path = dump / "requests.json"
    path.write_text(path.read_text()[:-100])
    result = fleet("import", dump, "--out", tmp_path / "cluster")
    assert "requests.json: breaks off, or is not JSON (make the dump again)" in str(result.exception)
    assert not (tmp_path / "cluster").exists()


def test_metrics_without_pods_are_no_workload(dump: Path, tmp_path: Path) -> None:
    """Other metrics alone are refused with what to export; nothing is written."""
    (dump / "up.json").write_text(json.dumps(answer(one("up", "x", [0]))))
    result = fleet("import", dump, "--out", tmp_path / "cluster")
    assert "its metrics have no pods: 1 series of metric up have nothing about pods' requests" in str(result.exception)
    assert "export kube_pod_container_resource_requests" in str(result.exception)
    assert not (tmp_path / "cluster").exists()


def test_malformed_times() -> None:
    """Samples before 1970 or after the year 9999, and pods made or ended then: counted, and the rest is used."""
    odd = one(REQUESTS, "a", [0, 60], uid="1", node="n")
    odd["values"] += [[-5, "1"], [1e15, "1"], ["inf", "1"]]
    export = read_answer(answer(odd, one("kube_pod_created", "a", [0], 1e18, uid="1")), Path("m.json"))
    assert export.problems == (
        "m.json: 2 samples of no time left out",
        "m.json: 1 samples that are not numbers left out",
    )
    found = metrics_pods(export.series)
    assert times(found.pods[0]) == ("00:00:00", "")
    assert found.problems == ("1 series of kube_pod_created with a value that is not a time",)


def test_long_lines_take_no_time(tmp_path: Path) -> None:
    """Lines that no exporter writes are left out before they are looked at."""
    path = tmp_path / "long.prom"
    path.write_text("a" + " " * 1_000_000 + "1 2 3 4\n" + f'{REQUESTS}{{pod="a"}} 1\n')
    found = read_exposition(path, BEGIN * 1000)
    assert found is not None
    assert found.problems == ("long.prom: 1 lines that are of no metric left out",)
