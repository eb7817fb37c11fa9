"""Comparing configurations: numbers that can be checked on paper, and the same decisions as a node's own."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from podslice import KubeletConfig, Node, Pod
from podslice.advise.whatif.compare import Costs, Outcome, Scenario, evaluate
from podslice.advise.whatif.objective import CRITERIA, PREFERENCES, cost, rank
from podslice.advise.whatif.recommendation import best_text
from podslice.advise.whatif.table import matrix
from podslice.advise.whatif.variants import option_sets, recommended_variants, variants
from podslice.api.pod.spec import pod_from_dict
from podslice.machine.readers.synthetic import from_synthetic
from podslice.values.quirks import PROFILE_RELEASES
from tests.conftest import make_pod
from tests.read_documents import read_document
from tests.render.test_pictures import Validator
from tests.shell import podslice as run

MACHINE = from_synthetic("pack:1 numa:2(memory=32GB) l3:2 core:2 pu:2(indexes=pu)")


def scenario(name: str = "s", **config: object) -> Scenario:
    settings = {"cpu_manager_policy": "static", "reserved_system_cpus": "0", "eviction_hard": {}, **config}
    return Scenario(name, MACHINE, KubeletConfig(**settings))  # type: ignore[arg-type]


def test_numbers_by_hand() -> None:
    """Two nodes of 8 CPUs, one reserved: 6 + 5 fit, another 6 do not; what is left over and how it lies is counted."""
    pods = [
        make_pod("a", ("c", "6")),
        make_pod("b", ("c", "5")),
        make_pod("c", ("c", "6")),
        make_pod("d", ("c", "500m")),
    ]
    outcome = evaluate(scenario(topology_manager_policy="single-numa-node"), pods)
    assert (outcome.admitted, outcome.refused, outcome.exclusive_cpus) == (3, {"TopologyAffinityError": 1}, 11)
    # Of the four CPUs left, the pod that shares uses a half.
    assert (outcome.stranded_cpus, outcome.cross_numa_pods) == (3, 0)
    assert [verdict.reason for verdict in outcome.pods] == ["", "", "TopologyAffinityError", ""]
    assert outcome.shared_cores == 1
    spread = evaluate(scenario(topology_manager_policy="best-effort"), [make_pod("w", ("c", "12"))])
    assert (spread.admitted, spread.cross_numa_pods, spread.stranded_cpus) == (1, 1, 3)


def test_limits_alone_count_as_requests() -> None:
    """A pod with limits only fills the node like one with both: no CPUs that it could use are stranded."""
    limits = {"cpu": "1", "memory": "1Gi"}
    spec = {"containers": [{"name": "c", "resources": {"limits": limits}}]}
    outcome = evaluate(scenario(), [pod_from_dict({"metadata": {"name": "a", "uid": "a"}, "spec": spec})])
    assert (outcome.exclusive_cpus, outcome.stranded_cpus) == (1, 0)


def test_fragmentation_scores() -> None:
    """0 where only whole L3 groups are free, 1 where only lone threads are, a half where whole cores are."""
    empty = evaluate(scenario(reserved_system_cpus="0-3"), [])
    assert empty.fragmentation == {0: 0.0, 1: 0.0}
    half = evaluate(scenario(reserved_system_cpus="0-1,4-5"), [])
    assert half.fragmentation == {0: 0.5, 1: 0.0}
    lone = evaluate(scenario(reserved_system_cpus="0,2,4,6"), [])
    assert lone.fragmentation == {0: 1.0, 1: 0.0}
    assert lone.mean_fragmentation == 0.5


def test_a_kubelet_that_does_not_start_says_why() -> None:
    """Its outcome names the problem and ranks last."""
    wrong = evaluate(scenario("wrong", reserved_system_cpus="99"), [make_pod("a", ("c", "1"))])
    assert "not a subset of online-cpus" in wrong.problem
    right = evaluate(scenario("right"), [])
    assert [outcome.scenario for outcome in rank([wrong, right]).outcomes] == ["right", "wrong"]


def test_variants_are_what_a_node_decides() -> None:
    """Every variant's verdicts are those of a node with that configuration, and names are unique."""
    pods = [make_pod("a", ("c", "3"), ("d", "2")), make_pod("b", ("c", "5")), make_pod("e", ("c", "4"))]
    tried = list(variants(scenario()))
    assert len({variant.name for variant in tried}) == len(tried) == 42
    assert (tried[0].name, tried[0].config) == ("as it is: none", scenario().config)
    for variant in tried:
        outcome = evaluate(variant, pods)
        node = Node(variant.machine, variant.config)
        assert [verdict.reason for verdict in outcome.pods] == [node.admit(pod).reason for pod in pods]


def test_what_is_as_good_as_now_is_not_recommended() -> None:
    """If nothing is better the present configuration wins, whatever its options."""
    pods = [make_pod("a", ("c", "1"))]
    options = {"full-pcpus-only": "false", "align-by-socket": "true"}
    gates = {"CPUManagerPolicyAlphaOptions": True}
    now = scenario(topology_manager_policy="restricted", cpu_manager_policy_options=options, feature_gates=gates)
    tried = list(variants(now))
    assert len(tried) == 43
    ranking = rank(evaluate(variant, pods) for variant in tried)
    assert ranking.outcomes[0].scenario == "as it is: restricted/container +align-by-socket"


def test_ranking_names_the_winners_with_numbers() -> None:
    """Each criterion lists exactly the scenarios that reach its best value; the weighed costs decide the order."""
    outcomes = [
        Outcome("many", admitted=5, cross_numa_pods=2, stranded_cpus=1, costs=Costs(across_numa=8, stranded=1)),
        Outcome("aligned", admitted=4, stranded_cpus=1, costs=Costs(refused=4, stranded=1)),
        Outcome("both", admitted=5, cross_numa_pods=1, stranded_cpus=3, costs=Costs(across_numa=4, stranded=3)),
    ]
    ranking = rank(outcomes)
    assert [outcome.scenario for outcome in ranking.outcomes] == ["both", "many", "aligned"]
    assert [outcome.scenario for outcome in rank(outcomes, "alignment").outcomes] == ["aligned", "both", "many"]
    assert cost(outcomes[1], PREFERENCES["balanced"]) == 4 * 20 + 1
    assert set(ranking.best) == set(CRITERIA) - {"granted"}
    assert set(ranking.best["admitted"][1]) == {"many", "both"}
    assert ranking.best["cross_numa_pods"] == (0, ("aligned",))
    assert set(ranking.best["stranded_cpus"][1]) == {"many", "aligned"}


def test_pods_that_own_nothing_are_not_placed() -> None:
    """Without a static policy no pod is aligned: what floats costs, and no criterion about places praises it."""
    pods = [make_pod("a", ("c", "5")), make_pod("b", ("c", "500m"))]
    floating = evaluate(Scenario("floating", MACHINE, KubeletConfig(eviction_hard={})), pods)
    assert (floating.admitted, floating.unplaced_pods, floating.costs.not_placed) == (2, 2, 5)
    assert (floating.cross_numa_pods, floating.stranded_cpus) == (0, 0)
    placed = evaluate(scenario("placed"), pods)
    assert (placed.unplaced_pods, placed.costs.not_placed) == (1, 0)
    ranking = rank([floating, placed])
    assert ranking.outcomes[0].scenario == "placed"
    assert ranking.best["cross_numa_pods"] == (0, ("placed",))
    table = matrix([floating, placed], wide=True).text.splitlines()
    assert table[1].split()[4:6] == ["-", "-"]


def test_spread_over_caches_counts() -> None:
    """A container in more L3 caches than it needs is across caches; one that is larger than a cache is not."""
    on_one_cache = [make_pod("a", ("c", "3")), make_pod("b", ("c", "2")), make_pod("d", ("c", "4"))]
    plain = evaluate(scenario(), on_one_cache)
    aligned = evaluate(scenario(cpu_manager_policy_options={"prefer-align-cpus-by-uncorecache": "true"}), on_one_cache)
    assert (plain.cross_cache_pods, plain.costs.across_caches) == (1, 4)
    assert aligned.cross_cache_pods == 0
    assert evaluate(scenario(), [make_pod("w", ("c", "6"))]).cross_cache_pods == 0


def test_containers_on_different_numa_nodes() -> None:
    """Containers of one pod on two NUMA nodes are apart if one node could hold them, and not if none could."""
    strict = scenario(topology_manager_policy="single-numa-node")
    apart = evaluate(strict, [make_pod("first", ("c", "4")), make_pod("two", ("c", "4"), ("d", "3"))])
    assert [(one.apart, one.cross_numa) for one in apart.pods] == [(False, False), (True, False)]
    assert (apart.apart_pods, apart.costs.apart) == (1, 7)
    shares = evaluate(strict, [make_pod("half", ("c", "4"), ("d", "500m"))])
    assert (shares.costs.across_numa, shares.apart_pods) == (0, 0)
    large = evaluate(strict, [make_pod("large", ("c", "7"), ("d", "7"))])
    assert (large.admitted, large.apart_pods) == (1, 0)


def test_a_pod_larger_than_a_numa_node_does_not_cost() -> None:
    """It is across NUMA nodes, which is said, but no configuration can do better."""
    outcome = evaluate(scenario(), [make_pod("w", ("c", "12"))])
    assert (outcome.cross_numa_pods, outcome.costs.across_numa) == (1, 0)


def test_a_missing_reservation_is_proposed_and_used() -> None:
    """Where nothing is reserved the variants have the reservation that `reserve` advises, so that they start."""
    bare = Scenario("bare", MACHINE, KubeletConfig())
    tried = recommended_variants(bare)
    ranking = rank(evaluate(one, [make_pod("a", ("c", "3"))]) for one in tried)
    first = ranking.outcomes[0]
    assert (first.problem, first.unplaced_pods, first.is_present) == ("", 0, False)
    assert first.sets["reservedSystemCPUs"]
    text = best_text(ranking)
    assert "Nothing is reserved for the system now" in text
    assert f"    reservedSystemCPUs: {first.sets['reservedSystemCPUs']}" in text
    assert all("reserved" not in note for one in recommended_variants(scenario()) for note in one.notes)


@pytest.mark.parametrize(
    ("profile", "stage", "gates"),
    [
        ("podslice-1.31", "", {}),
        ("podslice-1.33", "is alpha in Kubernetes 1.33: set", {"CPUManagerPolicyAlphaOptions": True}),
        ("podslice-1.34", "is beta in Kubernetes 1.34: its", {}),
        ("podslice", "", {}),
    ],
)
def test_options_are_those_of_the_release(profile: str, stage: str, gates: dict[str, bool]) -> None:
    """An option that a release lacks is not tried; one that is not stable comes with its stage and its gate."""
    option = "prefer-align-cpus-by-uncorecache"
    tried = recommended_variants(scenario(), profile=profile)
    using = [one for one in tried if option in one.config.cpu_manager_policy_options]
    assert bool(using) == (option in option_sets(PROFILE_RELEASES[profile])[-1])
    assert all(not evaluate(one, [], profile=profile).problem for one in tried)
    for one in using:
        assert {name: one.config.feature_gates.get(name) for name in gates} == gates
        assert [note for note in one.notes if f"option {option} {stage}" in note] or not stage


def test_pods_come_and_go() -> None:
    """A strict policy refuses, as pods come and go, what best-effort admits across NUMA nodes; a node that is only full
    refuses nothing."""
    pods = [make_pod("a", ("c", "3"))]
    strict = evaluate(scenario(topology_manager_policy="single-numa-node"), pods)
    lenient = evaluate(scenario(topology_manager_policy="best-effort"), pods)
    assert strict.churn.refused > lenient.churn.refused == 0
    assert strict.costs.refused_later == 3 * strict.churn.refused
    assert (strict.churn.across, lenient.churn.across) == (0, 1)
    full = evaluate(scenario(topology_manager_policy="single-numa-node"), [make_pod("a", ("c", "1"))])
    assert (full.churn.refused, full.churn.tried > 0) == (0, True)
    floating = evaluate(Scenario("floating", MACHINE, KubeletConfig(kube_reserved={"cpu": "1"})), pods)
    assert floating.costs.not_placed_later > 0


def test_equals_are_ordered_by_preference() -> None:
    """With equal results best-effort wins unless alignment is preferred; the answer names the strict equal."""
    pods = [make_pod("a", ("c", "2"))]
    bare = Scenario("bare", MACHINE, KubeletConfig(kube_reserved={"cpu": "2"}))
    outcomes = [evaluate(one, pods) for one in variants(bare)]
    lenient, strict = rank(outcomes), rank(outcomes, "alignment")
    assert lenient.outcomes[0].scenario == "best-effort/container"
    assert strict.outcomes[0].scenario == "single-numa-node/container"
    assert "single-numa-node/container does as well here" in best_text(lenient)
    assert "does as well" not in best_text(strict)


def test_equal_rows_are_one_group() -> None:
    """Scenarios with the same result share a row, which names how many they are; the present one has its own."""
    ranking = rank(evaluate(one, [make_pod("a", ("c", "2"))]) for one in variants(scenario()))
    assert ranking.groups[0].first.is_present
    assert ranking.groups[0].others == ()
    assert sum(1 + len(group.others) for group in ranking.groups) == 42
    assert len(ranking.groups) < 8
    table = matrix(ranking.outcomes, groups=ranking.groups)
    assert f"and {len(ranking.groups[1].others)} more" in table.text
    assert "The same in all: refused none" in table.left_out
    assert "REFUSED" not in table.text


@pytest.fixture
def pods_file(tmp_path: Path) -> Path:
    def plain(pod: Pod) -> dict[str, object]:
        return {"apiVersion": "v1", "kind": "Pod", **msgspec.to_builtins(pod, enc_hook=str)}

    path = tmp_path / "pods.json"
    path.write_text(json.dumps({"kind": "List", "items": [plain(make_pod(f"p{i}", ("c", "3"))) for i in range(4)]}))
    return path


@pytest.mark.slow
def test_command_compares_and_recommends(pods_file: Path, tmp_path: Path) -> None:
    """A row for each machine, JSON with the same numbers, and a valid page with a bar chart."""
    arguments = ("whatif", str(pods_file), "--machine", "laptop-i5-8250u", "--machine", "epyc-9654-nps4",
                 "--set", "cpuManagerPolicy=static", "--set", "reservedSystemCPUs=0")  # fmt: skip
    text = run(*arguments).stdout
    assert "laptop-i5-8250u" in text
    assert "2 of 4 admitted" in text
    data = read_document(run(*arguments, "-o", "json").stdout, "Comparison")
    assert [entry["admitted"] for entry in data["scenarios"]] == [2, 4]
    assert data["best"]["admitted"]["scenarios"] == ["epyc-9654-nps4"]
    page = tmp_path / "report.html"
    result = run(*arguments, "--recommend", "--out", str(page))
    assert result.returncode == 0
    assert "Recommended: epyc-9654-nps4: " in result.stdout
    parser: HTMLParser = Validator()
    assert isinstance(parser, Validator)
    parser.check(page.read_text().rstrip("\n"))


def test_ties_keep_guarantees() -> None:
    """Of equally good alternatives the one that gives up the fewest guarantees wins, then the strongest policy, then
    the smallest change; its losses are listed, and the present row is always there."""
    now = scenario(topology_manager_policy="single-numa-node", cpu_manager_policy_options={"full-pcpus-only": "true"})
    pods = [make_pod("a", ("c", "7")), make_pod("b", ("c", "7"))]
    ranking = rank(evaluate(variant, pods) for variant in variants(now))
    first = ranking.outcomes[0]
    assert (first.scenario, first.losses) == ("single-numa-node/container", ("full-cores",))
    present = next(outcome for outcome in ranking.outcomes if outcome.is_present)
    assert (present.admitted, first.admitted) == (0, 2)
    assert "gives up a guarantee: cores may have CPUs of several owners" in best_text(ranking)


@pytest.mark.slow
def test_the_present_row_is_shown(pods_file: Path) -> None:
    """The configuration as it is has its row in the terminal however badly it does."""
    text = run("whatif", str(pods_file), "--machine", "laptop-i5-8250u", "--set", "cpuManagerPolicy=static", "--set",
               "reservedSystemCPUs=0", "--set", "topologyManagerPolicy=single-numa-node", "--set",
               "cpuManagerPolicyOptions.full-pcpus-only=true", "--recommend").stdout  # fmt: skip
    assert "as it is: single-numa-node/container +full-pcpus-only" in text


def test_running_pods_count_before() -> None:
    """Running pods take their CPUs first; a configuration that refuses one lists it, and its CPUs are free for
    others."""
    running = (make_pod("old", ("c", "10")),)
    pods = [make_pod("new", ("c", "5")), make_pod("late", ("c", "6"))]
    with_old = msgspec.structs.replace(scenario(), running=running)
    outcome = evaluate(with_old, pods)
    assert (outcome.admitted, outcome.exclusive_cpus, outcome.displaced) == (1, 15, ())
    strict = msgspec.structs.replace(scenario(topology_manager_policy="single-numa-node"), running=running)
    outcome = evaluate(strict, pods)
    assert (outcome.admitted, outcome.exclusive_cpus) == (2, 11)
    assert [(verdict.pod, verdict.reason) for verdict in outcome.displaced] == [
        ("default/old", "TopologyAffinityError")
    ]


def test_state_files_count_before() -> None:
    """Owners in state files keep their CPUs; a kubelet of another policy does not start with the files."""
    node = Node(MACHINE, scenario().config)
    old = make_pod("old", ("c", "10"))
    node.admit(old)
    on_files = msgspec.structs.replace(scenario(), running=(old,), files=node.files)
    outcome = evaluate(on_files, [make_pod("new", ("c", "5")), make_pod("late", ("c", "6"))])
    assert (outcome.problem, outcome.admitted, outcome.exclusive_cpus) == ("", 1, 15)
    none = msgspec.structs.replace(on_files, config=KubeletConfig())
    assert 'configured policy "none" differs from state checkpoint policy "static"' in evaluate(none, []).problem


@pytest.mark.slow
def test_command_knows_what_runs(tmp_path: Path) -> None:
    """`--pods`, `--state` and `--no-predicates` mean the same as in `admit`."""
    description = "pack:1 numa:2(memory=32GB) core:4 pu:2(indexes=pu)"
    config = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0", eviction_hard={})
    node = Node(from_synthetic(description), config)
    node.admit(make_pod("old", ("c", "10")))
    for name, data in node.files.items():
        (tmp_path / name).write_bytes(data)

    def pod_file(name: str, cpu: str, memory: str) -> str:
        limits = {"cpu": cpu, "memory": memory}
        spec = {"containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}]}
        data = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "uid": name}, "spec": spec}
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(data))
        return str(path)

    def exclusive(pod: str, *more: str) -> int:
        result = run(
            "whatif", pod, "--from", description, "--set", "cpuManagerPolicy=static", "--set", "reservedSystemCPUs=0",
            *more, "-o", "json",
        )  # fmt: skip
        exclusive_cpus: int = read_document(result.stdout, "Comparison")["scenarios"][0]["exclusiveCpus"]
        return exclusive_cpus

    new, huge = pod_file("new", "5", "1Gi"), pod_file("huge", "5", "500Gi")
    assert exclusive(new) == 5
    assert exclusive(new, "--pods", pod_file("running", "8", "1Gi")) == 13
    assert exclusive(new, "--state", str(tmp_path)) == 15
    assert (exclusive(huge), exclusive(huge, "--no-predicates")) == (0, 5)
