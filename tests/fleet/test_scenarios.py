"""Scenario files are read strictly, and become the nodes, pods and options that they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from podslice.cli.main import cli
from podslice.fleet.engine.streams import stream
from podslice.fleet.scenario.cells import Study
from podslice.fleet.scenario.cluster import ClassStartError
from podslice.fleet.scenario.run import assumptions
from podslice.fleet.scenario.scenario import CeilAbove, Inflate, Reading
from podslice.fleet.scenario.scenario_file import API_VERSION, load_scenario, scenario_from_data
from podslice.fleet.scenario.starter import KINDS
from podslice.fleet.traces.reading import round_cpus
from podslice.fleet.traces.trace import TracePod
from podslice.fleet.traces.trace_load import Capacity, inflate
from podslice.values.errors import InputError

GI = 1 << 30
NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,96000,393216,8,G2\nn1,96000,393216,8,G2\nn2,32000,262144,0,\n"
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
    "p0,12500,16384,1,1000,G2|T4,LS,Running,100,200,100\n"
    "p1,3152,1024,1,460,,BE,Running,50,400,50\n"
    "p2,32000,1024,0,0,,BE,Running,150,150,150\n"
)
KUBELET = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nsystemReserved: {cpu: '2'}\n"
STATIC = {"cpuManagerPolicy": "static", "topologyManagerPolicy": "single-numa-node"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv").write_text(PODS)
    (tmp_path / "kubelet.yaml").write_text(KUBELET)
    return tmp_path


def data(**fields: Any) -> dict[str, Any]:
    base = {
        "apiVersion": API_VERSION,
        "name": "test",
        "nodes": [{"csv": "nodes.csv"}],
        "workload": [{"trace": "pods.csv"}],
        "kubelets": {"static": {"file": "kubelet.yaml", "set": STATIC}},
    }
    return {**base, **fields}


def study(folder: Path, **fields: Any) -> Study:
    return Study(scenario_from_data(data(**fields), "scenario.yaml"), folder)


def workload(**fields: Any) -> list[dict[str, Any]]:
    return [{"trace": "pods.csv", **fields}]


def synthetic(**fields: Any) -> dict[str, Any]:
    made = {"shapes": [{"cpu": 1}], "arrivals": {"poisson": "1/s"}, "pods": 3, **fields}
    return {"workload": [{"synthetic": made}]}


M = {"from": "pack:2 core:2"}
VALUES: list[tuple[dict[str, Any], str]] = [
    ({"name": "../up"}, "name: '../up' is not a name of a folder"),
    ({"nodes": [{"count": -1}]}, "nodes[0].count: -1 is less than 0"),
    ({"machines": {"m": {**M, "gpus": -1}}}, "machines.m.gpus: -1 is less than 0"),
    ({"workload": workload(inflate={"to": -1})}, "workload[0].inflate.to: -1.0 is not above 0"),
    ({"workload": workload(inflate={"copies": 0})}, "workload[0].inflate.copies: 0 is not above 0"),
    ({"workload": workload(inflate={"rate": 0})}, "workload[0].inflate.rate: 0.0 is not above 0"),
    (
        {"workload": workload(departures={"lifetime": "constant", "mean": 0})},
        "departures.mean: is not above 0",
    ),
    ({"workload": workload(reading={"gpuShare": {"replicas": 0}})}, "gpuShare.replicas: 0 is less than 1"),
    ({"workload": workload(reading={"time": {"scale": 0}})}, "reading.time.scale: 0.0 is not above 0"),
    ({"workload": workload(reading={"time": {"start": "x"}})}, "reading.time.start: 'x' is not a time (write 30s, 5m"),
    ({"workload": workload(reading={"time": {"start": 9, "until": 5}})}, "reading.time.until: is not after start"),
    (synthetic(pods=0), "workload[0].synthetic.pods: 0 is less than 1"),
    (synthetic(arrivals={}), "synthetic.arrivals: needs exactly one of poisson and every"),
    (synthetic(arrivals={"poisson": "0/s"}), "synthetic.arrivals.poisson: '0/s' is not a rate (write 40/s or 5/min)"),
    (synthetic(arrivals={"every": "x"}), "synthetic.arrivals.every: 'x' is not a time"),
    (synthetic(lifetime={}), "synthetic.lifetime: needs exactly one of lognormal, exponential and constant"),
    (synthetic(lifetime={"exponential": 0}), "synthetic.lifetime.exponential: is not above 0"),
    (synthetic(lifetime={"constant": -1}), "synthetic.lifetime.constant: -1 is negative"),
    (synthetic(lifetime={"constant": "9e30"}), "synthetic.lifetime.constant: '9e30' is not a time"),
    (
        synthetic(lifetime={"constant": 1 << 60}),
        "constant: 1152921504606846976 is longer than anything",
    ),
    (synthetic(lifetime={"lognormal": [3, -1]}), "synthetic.lifetime.lognormal: is not a distribution"),
    (synthetic(lifetime={"lognormal": [1000, 1]}), "synthetic.lifetime.lognormal: is not a distribution"),
    (synthetic(shapes=[]), "synthetic.shapes: has none that comes"),
    (synthetic(shapes=[{"cpu": "x"}]), "synthetic.shapes[0].cpu: 'x' is not a quantity"),
    (synthetic(shapes=[{"cpu": 1, "weight": -1}]), "synthetic.shapes[0].weight: -1 is less than 0"),
    (synthetic(shapes=[{"cpu": 1, "gpus": -1}]), "synthetic.shapes[0].gpus: -1 is less than 0"),
    ({"refusals": {"delay": "x"}}, "refusals.delay: 'x' is not a time"),
    ({"refusals": {"limit": -1}}, "refusals.limit: -1 is less than 0"),
    ({"refusals": {"tries": 0}}, "refusals.tries: 0 is less than 1"),
    ({"sample": {"every": "x"}}, "sample.every: 'x' is not a time"),
    ({"sample": {"perPercentArrived": 0}}, "sample.perPercentArrived: 0.0 is not above 0"),
    ({"sample": {"perPercentArrived": 1, "every": 1}}, "sample: has both every and perPercentArrived"),
    ({"warmup": "-1s"}, "warmup: '-1s' is negative"),
    ({"schedulers": {"k": {"nrtDelay": "x"}}}, "schedulers.k.nrtDelay: 'x' is not a time"),
    ({"schedulers": {"k": {"curve": []}}}, "schedulers.k.curve: does not go up from 0 to 100"),
    ({"schedulers": {"k": {"curve": [[50, 1], [0, 2]]}}}, "schedulers.k.curve: does not go up from 0 to 100"),
    ({"schedulers": {"k": {"curve": [[0, 11]]}}}, "schedulers.k.curve: has a score that is not from 0 to 10"),
    ({"transforms": {"t": {"scale": {"cpu": 0}}}}, "transforms.t.scale.cpu: 0.0 is not above 0"),
    (
        {"transforms": {"t": {"sidecars": {"count": 0, "as": "padded"}}}},
        "sidecars.count: 0 is less than 1",
    ),
    ({"transforms": {"t": {"sidecars": {"count": 101, "as": "padded"}}}}, "sidecars.count: is more than 100"),
    (
        {"transforms": {"t": {"sidecars": {"cpu": "x", "as": "padded"}}}},
        "sidecars.cpu: 'x' is not a quantity",
    ),
    ({"nodeEvents": [{"at": -1, "drain": "*"}]}, "nodeEvents[0].at: -1 is negative"),
]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"sceduler": {}}, "sceduler"),
        ({"schedulers": {"kube": {"fitt": "x"}}}, "schedulers[...]: object contains unknown field `fitt` (did you"),
        ({"workload": workload(reading={"cpu": "ceil"})}, "workload[0].reading: object contains unknown field `cpu`"),
        ({"apiVersion": "v1"}, "apiVersion: 'v1' is not supported (apiVersion: podslice.dev/fleet/v1)"),
        ({"nodes": []}, "nodes: is empty"),
        ({"nodes": [{}]}, "nodes[0]: needs exactly one of csv, count and kubernetes"),
        ({"nodes": [{"count": 2, "class": "x"}]}, "nodes[0].class: 'x' is not a class of machines (one of by-shape)"),
        ({"workload": [{}]}, "workload[0]: needs exactly one of trace, cluster, synthetic and manifests"),
        ({"workload": workload(inflate={})}, "workload[0].inflate: needs exactly one of to, copies and rate"),
        ({"seeds": [1, 1]}, "seeds: names a seed twice"),
        ({"kubelets": {"a b": {}}}, "kubelets: 'a b' is not a name"),
        ({"kubelets": {}}, "kubelets: is empty"),
        ({"kubelets": {False: {}}}, "a key is read as false (put on, off, yes and no in quotes)"),
        ({"schedulers": {"kube": {"percentage": 101}}}, "schedulers.kube.percentage: is not a percentage"),
        ({"nodeEvents": [{"at": 1}]}, "nodeEvents[0]: needs exactly one of drain, fail, add and restart"),
        ({"metrics": ["speed"]}, "metrics[0]: invalid enum value 'speed'"),
        *VALUES,
    ],
)  # fmt: skip
def test_mistakes_are_reported_with_their_place(fields: dict[str, Any], said: str) -> None:
    """An unknown field and an impossible value are errors with path and remedy."""
    with pytest.raises(InputError) as caught:
        scenario_from_data(data(**fields), "scenario.yaml")
    assert str(caught.value).startswith("scenario.yaml: ")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"nodes": [{"csv": "nods.csv"}]}, "nodes[0].csv: there is no nods.csv (paths are relative to"),
        ({"workload": [{"trace": "x.csv"}]}, "workload[0].trace: there is no x.csv"),
        ({"workload": [{"manifests": "*.yml"}]}, "workload[0].manifests: nothing matches *.yml"),
        ({"kubelets": {"a": {"set": {"cpuManagerPolic": "x"}}}}, "kubelets.a.set: unknown field cpuManagerPolic"),
        ({"machines": {"m": {"from": "pack:2 core:2 pu:2 pu:2"}}}, "machines.m.from"),
        ({"nodes": [{"csv": "pods.csv"}]}, "is a list of pods, not of nodes"),
        ({"machines": {"m": {"from": "assumptions/openb.yaml#97"}}}, "has no machine of 97 CPUs"),
        ({"nodeEvents": [{"at": 1, "drain": "x*"}]}, "nodeEvents[0].drain: no node is called x*"),
        ({"kubelets": {"a": {"byClass": {"gpu*": {}}}}}, "kubelets.a.byClass: no class of nodes is called gpu* (there"),
    ],
)
def test_named_files_must_exist(folder: Path, fields: dict[str, Any], said: str) -> None:
    """Files, machines and fields of configurations are looked at before anything is simulated."""
    with pytest.raises(InputError) as caught:
        study(folder, **fields)
    assert said in str(caught.value)


def test_all_values_are_reported_at_once() -> None:
    """A scenario with several that cannot be has a line for each."""
    with pytest.raises(InputError) as caught:
        scenario_from_data(data(warmup="x", refusals={"limit": -1, "delay": "y"}), "scenario.yaml")
    assert [part in str(caught.value) for part in ("warmup: 'x'", "limit: -1", "delay: 'y'")] == [True] * 3


def test_a_trace_without_pods_is_refused(folder: Path) -> None:
    """Its columns alone would be compared without a word."""
    (folder / "pods.csv").write_text(PODS.splitlines()[0] + "\n")
    with pytest.raises(InputError, match=r"pods.csv: has no pods \(a line for each"):
        study(folder).check_traces()


def test_nodes_of_a_trace_get_assumed_machines(folder: Path) -> None:
    """Nodes of one shape are one class; its machine and the reason are in the table, GPUs spread over NUMA nodes."""
    cluster = study(folder).cluster
    assert [(one.name, one.source) for one in cluster.classes] == [
        ("96c-384Gi-8xG2", "assumed"),
        ("32c-256Gi", "assumed"),
    ]
    assert "two 24-core Xeons" in cluster.classes[0].assumed
    machine = cluster.classes[0].machine("as-written")
    assert [(len(node.cores), node.memory) for node in machine.nodes] == [(24, 192 * GI), (24, 192 * GI)]
    fleet = study(folder).fleet(study(folder).cells[0])
    assert fleet.classes[0].allocatable["nvidia.com/gpu"] == 8
    assert fleet.classes[0].allocatable["cpu"] == 94_000
    assert [node.kind for node in fleet.nodes] == [0, 0, 1]


def test_alternatives_change_the_machine(folder: Path) -> None:
    """A sensitivity run gives the classes that have it another machine, and no other class."""
    made = study(folder, alternatives=["as-written", "two-small-sockets"])
    assert [cell.alternative for cell in made.cells] == ["as-written", "two-small-sockets"]
    sockets = [[one.rules.machine.socket_count for one in made.fleet(cell).classes] for cell in made.cells]
    assert sockets == [[2, 1], [2, 2]]


def test_a_kubelet_that_does_not_start_is_named(folder: Path) -> None:
    """The configuration, the class of nodes and the kubelet's own words are in the error."""
    made = study(folder, kubelets={"bare": {"set": {"cpuManagerPolicy": "static"}}})
    with pytest.raises(ClassStartError, match="kubelet bare does not start on nodes of class 96c-384Gi-8xG2: "):
        made.fleet(made.cells[0])


def test_configurations_by_class(folder: Path) -> None:
    """Fields for the classes that a pattern fits come on top of the others."""
    kubelets = {"mixed": {"file": "kubelet.yaml", "set": STATIC, "byClass": {"32c*": {"cpuManagerPolicy": "none"}}}}
    made = study(folder, kubelets=kubelets)
    configs = made.configs(made.cells[0])
    assert [config.cpu_manager_policy for config in configs.values()] == ["static", "none"]


def test_policies_by_class(folder: Path) -> None:
    """A kubelet has its PodslicePolicy, and classes of nodes may have another; a kubelet that is predicted has none."""
    head = "apiVersion: podslice.io/v1alpha1\nkind: PodslicePolicy\nspec: "
    (folder / "mixed.yaml").write_text(f"{head}{{mixed: {{near: numa}}}}\n")
    (folder / "scored.yaml").write_text(f"{head}{{plugins: {{profile: [{{name: balance-numa}}]}}}}\n")
    entry = {"file": "kubelet.yaml", "set": STATIC, "policy": "mixed.yaml", "policyByClass": {"32c*": "scored.yaml"}}
    made = study(folder, profile="podslice", kubelets={"k": entry})
    rules = [one.rules for one in made.fleet(made.cells[0]).classes]
    assert [one.cpu.mixed is not None for one in rules] == [True, False]
    assert [one.cpu.plugins is not None for one in rules] == [False, True]
    with pytest.raises(InputError, match="a kubelet has no such policy"):
        study(folder, profile="kubelet-1.36", kubelets={"k": entry})
    (folder / "mixed.yaml").write_text(f"{head}{{mixde: {{}}}}\n")
    with pytest.raises(InputError, match="mixde"):
        study(folder, profile="podslice", kubelets={"k": entry})


def test_a_search_tries_every_configuration(folder: Path) -> None:
    """`recommend` is a cell for every variant that `whatif --recommend` tries, each under a key of its own."""
    kubelets = {"search": {"file": "kubelet.yaml", "set": STATIC, "recommend": True}}
    made = study(folder, kubelets=kubelets)
    assert len(made.cells) == len({cell.key for cell in made.cells}) > 30
    policies = {made.configs(cell)[0].topology_manager_policy for cell in made.cells}
    assert policies == {"none", "best-effort", "restricted", "single-numa-node"}


@pytest.mark.parametrize(
    ("rule", "cpu", "wanted"),
    [("as-is", 3152, 3152), ("ceil", 3152, 4000), ("ceil", 3000, 3000), ("round", 3152, 3000), ("round", 400, 400),
     (CeilAbove(ceil_above="1"), 900, 900), (CeilAbove(ceil_above="1"), 1100, 2000)],
)  # fmt: skip
def test_whole_cpus(rule: Any, cpu: int, wanted: int) -> None:
    """Requests are rounded as the reading says; nothing is rounded to none."""
    assert round_cpus(cpu, Reading(cpus=rule)) == wanted


def test_readings_make_pods(folder: Path) -> None:
    """Guaranteed pods have limits; whole GPUs are devices, shares are booked by the scheduler only."""
    made = study(folder, workload=workload(reading={"cpus": "ceil"}))
    inputs = made.build(made.cells[0])
    shapes = inputs.workload.shapes
    assert [shape.name for shape in shapes] == [
        "4 CPUs, 1 GiB, 0.46 of 1 GPU",
        "13 CPUs, 16 GiB, 1 GPU of G2|T4",
        "32 CPUs, 1 GiB",
    ]
    share, whole, _ = shapes
    assert (share.gpus, share.gpu_milli, "nvidia.com/gpu" in share.requests.asked) == (1, 460, False)
    assert whole.requests.asked["nvidia.com/gpu"] == 1
    assert whole.gpu_models == ("G2", "T4")
    limits = whole.pod.spec.containers[0].resources.limits
    assert limits is not None
    assert str(limits["cpu"]) == "13"


@pytest.mark.parametrize(
    ("share", "asked"), [("ignore", [0, 1]), ("whole", [1, 1]), ({"replicas": 4}, [2, 4])]
)  # fmt: skip
def test_shares_of_gpus(folder: Path, share: Any, asked: list[int]) -> None:
    """A kubelet sees no shares, whole GPUs, or so many replicas of each."""
    made = study(folder, workload=workload(reading={"gpuShare": share}))
    inputs = made.build(made.cells[0])
    assert [shape.requests.asked.get("nvidia.com/gpu", 0) for shape in inputs.workload.shapes[:2]] == asked
    replicas = share["replicas"] if isinstance(share, dict) else 1
    assert inputs.fleet.classes[0].allocatable["nvidia.com/gpu"] == 8 * replicas


def test_qos_by_column(folder: Path) -> None:
    """A map says what the owner's classes mean; a class that it leaves out is an error."""
    reading = {"qos": "by-column", "qosMap": {"LS": "guaranteed", "BE": "burstable"}}
    made = study(folder, workload=workload(reading=reading))
    limits = [shape.pod.spec.containers[0].resources.limits for shape in made.build(made.cells[0]).workload.shapes]
    assert [bool(one and "cpu" in one) for one in limits] == [False, True, False]
    partial = study(folder, workload=workload(reading={"qos": "by-column", "qosMap": {"LS": "guaranteed"}}))
    with pytest.raises(InputError, match="QoS 'BE' of p1 has no meaning"):
        partial.build(partial.cells[0])


def test_times_of_the_trace(folder: Path) -> None:
    """Pods come in order of arrival from the first one on, scaled; ends give lengths."""
    made = study(folder, workload=workload(departures="trace", reading={"time": {"scale": 0.5}}))
    work = made.build(made.cells[0]).workload
    assert list(work.arrival) == [0, 25_000, 50_000]
    assert list(work.length) == [175_000, 50_000, 0]


def test_scaled_times_are_reported(folder: Path) -> None:
    """A delay after a refusal is another part of a compressed time."""
    made = study(folder, workload=workload(reading={"time": {"scale": 0.01}}), refusals={"delay": "2s"})
    assert (
        "times of traces are multiplied by 0.01, the delay after a refusal (2s) is not: attempts of pods that loop are "
        "counted in this other time"
    ) in assumptions(made)
    assert not any("multiplied" in line for line in assumptions(study(folder)))


def test_windows_of_a_trace(folder: Path) -> None:
    """Only pods that arrive in the window come, counted from the trace's beginning."""
    made = study(folder, workload=workload(reading={"time": {"start": "40s", "until": "60s"}}))
    assert list(made.build(made.cells[0]).workload.arrival) == [10_000]


def test_orders_depend_on_the_seed_alone(folder: Path) -> None:
    """A shuffled list is another one for another seed, and the same for every configuration."""
    rows = "".join(f"q{n},{1000 + n},1024,0,0,,LS,Running,{n},{n},{n}\n" for n in range(40))
    (folder / "pods.csv").write_text(PODS + rows)
    kubelets = {"a": {}, "b": {"set": {"maxPods": 20}}}
    made = study(folder, seeds=[1, 2], kubelets=kubelets, workload=workload(order="shuffle"))
    orders = [
        tuple(work.shapes[number].name for number in work.shape)
        for work in (made.build(cell).workload for cell in made.cells)
    ]
    assert orders[0] == orders[2] != orders[1] == orders[3]


def test_inflation_stops_before_the_load_it_is_for() -> None:
    """Pods are drawn until the next one would exceed the load; a list above it loses pods."""
    rows = [TracePod(f"p{n}", 1000, GI, 1, 500) for n in range(10)]
    more, _ = inflate(rows, [], Inflate(to=1.5), Capacity(8000, 0), stream(1, "inflate"))
    assert (len(more), more[:10]) == (24, rows)
    fewer, _ = inflate(rows, [], Inflate(to=0.25), Capacity(8000, 0), stream(1, "inflate"))
    assert len(fewer) == 4
    fresh, _ = inflate(rows, [], Inflate(to=0.25, keep=False), Capacity(8000, 0), stream(1, "inflate"))
    assert len(fresh) == 4


def test_copies_and_rates_keep_the_times() -> None:
    """Copies come at the same moments; a rate is so many times as many arrivals in the same time."""
    rows = [TracePod(f"p{n}", 1000, GI) for n in range(100)]
    arrivals = list(range(100))
    _, twice = inflate(rows, arrivals, Inflate(copies=2), Capacity(0, 0), stream(1, "inflate"))
    assert twice == sorted(arrivals * 2)
    more, at = inflate(rows, arrivals, Inflate(rate=1.5), Capacity(0, 0), stream(1, "inflate"))
    assert len(more) == len(at)
    assert 130 < len(more) < 170


def test_synthetic_pods(folder: Path) -> None:
    """Made-up pods have the shapes of a trace, or their own, at random moments and with random lengths."""
    made = study(
        folder,
        workload=[
            {"synthetic": {"shapes": {"from": "pods.csv"}, "arrivals": {"poisson": "2/s"}, "pods": 200}},
            {
                "synthetic": {
                    "shapes": [{"cpu": 2, "weight": 3}, {"cpu": "500m"}],
                    "arrivals": {"every": "1s"},
                    "lifetime": {"lognormal": [3.2, 1.1]},
                    "pods": 100,
                }
            },
        ],
    )
    work = made.build(made.cells[0]).workload
    assert len(work) == 300
    assert list(work.arrival) == sorted(work.arrival)
    lengths = [length for length in work.length if length >= 0]
    assert len(lengths) == 100
    assert 10_000 < sorted(lengths)[50] < 60_000
    assert 50_000 < max(work.arrival) < 200_000
    counts = {work.shapes[number].name for number in work.shape}
    assert {"2 CPUs, 1 GiB", "500m CPU, 1 GiB", "32 CPUs, 1 GiB"} <= counts


def test_manifests_are_expanded(folder: Path) -> None:
    """Replicas become pods of their owner's kind; a DaemonSet is on every node before anything else."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    objects = [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {**spec, "replicas": 3}},
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "ds"}, "spec": spec},
    ]
    (folder / "all.yaml").write_text(yaml.safe_dump_all(objects))
    made = study(folder, workload=[{"manifests": "all.yaml"}])
    work = made.build(made.cells[0]).workload
    assert [work.shapes[number].owner for number in work.shape][:4] == ["daemonset"] * 3 + ["deployment"]
    assert list(work.node)[:4] == [0, 1, 2, -1]
    assert len(work) == 6


def test_operators_objects_among_manifests(folder: Path) -> None:
    """A JobSet is as many pods as it asks for; files without pods are fine beside others, what is passed over is said,
    and files that hold no pods at all are refused before anything runs."""
    template = {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}}
    job = {"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 2, "template": template}}}
    meta = {"metadata": {"name": "x"}}
    for name, one in (
        (
            "a.yml",
            {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", **meta, "spec": {"replicatedJobs": [job]}},
        ),
        ("b.yml", {"apiVersion": "v1", "kind": "Service", **meta}),
        ("c.yml", {"apiVersion": "example.com/v1", "kind": "Gizmo", **meta}),
    ):
        (folder / name).write_text(yaml.safe_dump(one))
    made = study(folder, workload=[{"manifests": "*.yml"}])
    work = made.build(made.cells[0]).workload
    assert [work.shapes[number].owner for number in work.shape] == ["job"] * 4
    assert made.check_traces() == (f"{folder / 'c.yml'}: passed over: Gizmo x: no pod template is in it",)
    with pytest.raises(InputError, match="holds no pods; passed over: Gizmo x"):
        study(folder, workload=[{"manifests": "c.yml"}]).check_traces()
    with pytest.raises(InputError, match=r"workload\[0\].manifests: 2 files hold no pods"):
        study(folder, workload=[{"manifests": "[bc].yml"}]).check_traces()


def test_transforms_write_sidecars_in_four_ways(folder: Path) -> None:
    """The same pods with sidecars: requests only, fractions, whole CPUs, or a pod-level budget in whole CPUs."""
    sidecars = {"count": 2, "cpu": "200m", "memory": "256Mi"}
    ways = ("burstable", "fractional", "padded", "pod-level")
    made = study(
        folder,
        workload=workload(reading={"cpus": "ceil"}),
        transforms={way: {"sidecars": {**sidecars, "as": way}} for way in ways},
    )
    asked = {}
    for cell in made.cells:
        work = made.build(cell).workload
        asked[cell.transform] = next(one for one in work.shapes if one.name.startswith("32 CPUs")).requests.asked["cpu"]
    assert asked == {"burstable": 32_400, "fractional": 32_400, "padded": 34_000, "pod-level": 33_000}


def test_events_name_nodes_by_pattern(folder: Path) -> None:
    """A pattern finds its nodes; a node that an event adds is absent before; an unknown one is an error."""
    events = [{"at": "1h", "fail": "n0"}, {"at": 60, "add": "n2"}]
    made = study(folder, nodeEvents=events)
    inputs = made.build(made.cells[0])
    assert [(event.at_ms, event.what, event.nodes) for event in inputs.options.events] == [
        (60_000, "add", (2,)),
        (3_600_000, "fail", (0,)),
    ]
    assert [node.absent for node in inputs.fleet.nodes] == [False, False, True]


def test_restarts_with_another_kubelet_have_classes_of_their_own(folder: Path) -> None:
    """A node that restarts with another configuration becomes a node of the same machine under it."""
    kubelets = {"static": {"file": "kubelet.yaml", "set": STATIC}, "none": {"file": "kubelet.yaml"}}
    made = study(folder, kubelets=kubelets, nodeEvents=[{"at": 1, "restart": "n2", "kubelet": "none"}])
    inputs = made.build(made.cells[0])
    (event,) = inputs.options.events
    assert (inputs.fleet.classes[event.kind].name, len(inputs.fleet.classes)) == ("32c-256Gi", 4)
    assert inputs.fleet.classes[event.kind].rules.config.cpu_manager_policy == "none"


def test_the_id_is_of_the_scenario_and_its_files(folder: Path) -> None:
    """A different field or byte of any file makes a different id; the folder is not part of it."""
    first = study(folder).id
    assert study(folder).id == first
    assert study(folder, seeds=[2]).id != first
    (folder / "kubelet.yaml").write_text(KUBELET.replace("'2'", "'3'"))
    assert study(folder).id != first


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_starters_can_be_built(tmp_path: Path, kind: str) -> None:
    """Every starter is a scenario whose first cell can be built as it is."""
    assert CliRunner().invoke(cli, ["fleet", "init", kind, "--out", str(tmp_path / "s")]).exit_code == 0
    made = Study(load_scenario(tmp_path / "s" / "scenario.yaml"), tmp_path / "s")
    inputs = made.build(made.cells[0])
    assert len(inputs.workload) >= 90
    assert inputs.seed == 1


@pytest.mark.parametrize("name", ["openb", "as-written", "policies", "sidecars", "machines-sensitivity"])
def test_scenarios_of_the_findings_are_there(name: str) -> None:
    """Every scenario of docs/development/fleet-findings.md is in its folder and has no unknown field, its tables and
    configurations are beside it."""
    folder = Path(__file__).parents[2] / "docs" / "development" / "fleet-findings"
    found = load_scenario(folder / f"{name}.yaml")
    assert found.name in (name, name.removesuffix("-sensitivity"))
    assert f"podslice fleet run {name}.yaml" in folder.with_suffix(".md").read_text()
    tables = [entry.classes for entry in found.nodes if not entry.classes.startswith("assumptions/")]
    for file in [*tables, *(one.file for one in found.kubelets.values())]:
        assert (folder / file).exists()


@pytest.mark.parametrize(
    ("budget", "problem"),
    [
        ({}, "budgets[0]: needs exactly one of minAvailable and maxUnavailable"),
        ({"file": "b.yaml"}, "budgets[0]: has a file and a budget of its own (make it two entries)"),
        ({"minAvailable": 1, "maxUnavailable": 1}, "budgets[0]: needs exactly one of minAvailable and maxUnavailable"),
        ({"minAvailable": "half"}, "budgets[0].minAvailable: 'half' is not a number of pods"),
        ({"maxUnavailable": -1}, "budgets[0].maxUnavailable: -1 is not a number of pods"),
    ],
)
def test_budgets_are_checked(budget: dict[str, object], problem: str) -> None:
    """A budget says one amount, of pods or in percent."""
    data = {
        "apiVersion": API_VERSION,
        "name": "a",
        "nodes": [{"class": "m", "count": 1}],
        "machines": {"m": {"from": "pack:1 core:4 pu:1"}},
        "workload": [{"manifests": "*.yaml"}],
        "budgets": [{"selector": {"matchLabels": {"app": "db"}}, **budget}],
    }
    with pytest.raises(InputError) as error:
        scenario_from_data(data, "s.yaml")
    assert problem in str(error.value)
