"""The decisions of the service: exact answers while events and calls come in any order, and none for unconfirmed
nodes."""

from __future__ import annotations

import pytest
from e2e.hollow_nodes import Fault

from podslice.cluster.extender.messages import BindRequest, NodeVictims, PreemptRequest
from podslice.cluster.model.holds import RESERVED
from podslice.cluster.model.signature_column import NOT_CONFIRMED
from podslice.replica.events import encode
from tests.cluster.bench import Bench, filter_request, pod_object, scheduled_pod, shared_pod


def bind(bench: Bench, name: str, node: str) -> str:
    return bench.placing.bind(BindRequest(name, "default", f"uid-{name}", node)).error


def test_pods_that_want_nothing_pass() -> None:
    """Such a pod may go anywhere, to nodes of which nothing is known too."""
    bench = Bench("a")
    assert bench.placing.filter(filter_request(shared_pod("p"), ["x", "a"])).nodes == ["x", "a"]
    assert bind(bench, "p", "x") == "nothing is known of the pod"
    bench.watch_pod(shared_pod("p"))
    assert bind(bench, "p", "x") == ""


def test_one_pod_from_filter_to_confirmed() -> None:
    """Filter holds, bind keeps it, the node agrees, and the hold is gone; the next pod sees what is left."""
    bench = Bench("a")
    bench.watch_pod(pod_object("p", "8"))
    assert bench.placing.filter(filter_request(pod_object("p", "8"), ["a"])).nodes == ["a"]
    (hold,) = bench.placing.model.holds()
    assert (hold.uid, hold.node, hold.bound) == ("uid-p", "a", False)
    assert bind(bench, "p", "a") == ""
    assert hold.bound
    bench.watch_pod(pod_object("p", "8", "a"))
    assert bench.placing.model.holds() == ()
    assert bench.placing.model.counts["agreed"] == 1
    refused = bench.placing.filter(filter_request(pod_object("q", "8"), ["a"]))
    assert refused.nodes == []
    assert set({**refused.failed, **refused.unresolvable}) == {"a"}
    bench.delete_pod("p")
    assert bench.placing.filter(filter_request(pod_object("q", "8"), ["a"])).nodes == ["a"]


@pytest.mark.parametrize("group", ["", "gang"])
@pytest.mark.parametrize("call", ["filter", "prioritize"])
@pytest.mark.parametrize("watched", [False, True])
def test_a_late_call_for_a_pod_that_runs_holds_nothing(call: str, watched: bool, group: str) -> None:
    """kube-scheduler may have given up on a call that is answered once the pod runs. Nothing is held for the pod, as
    soon as the watch shows that it is bound; a gang's hold would stay for minutes."""
    bench = Bench("a", "b")
    labels = {"schedulingGroup": {"podGroupName": group}} if group else {}
    pod, bound = (pod_object("p", "2", node, **labels) for node in ("", "a"))
    bench.watch_pod(pod)
    assert bench.placing.filter(filter_request(pod, ["a"])).nodes == ["a"]
    assert bind(bench, "p", "a") == ""
    bench.nodes.pod_changed(None, scheduled_pod(bound))
    assert bench.placing.model.holds() == ()
    if watched:
        bench.watch_pod(bound, node_hears=False)
    getattr(bench.placing, call)(filter_request(pod, ["a"]))
    if not watched:
        assert [hold.bound for hold in bench.placing.model.holds()] == [False]
        bench.watch_pod(bound, node_hears=False)
    assert bench.placing.model.holds() == ()


def test_a_watch_that_is_behind_the_journal() -> None:
    """A pod that runs, by its node's word, waits for no node, though the watch shows an older version of it; a new pod
    of its name does."""
    bench, waiting = Bench("a"), list[str]()
    bench.placing.events.pending.add(lambda pod: waiting.append(pod.uid))
    pod = pod_object("p", "2")
    bench.watch_pod(pod)
    assert bench.placing.filter(filter_request(pod, ["a"])).nodes == ["a"]
    assert bind(bench, "p", "a") == ""
    bench.nodes.pod_changed(None, scheduled_pod(pod_object("p", "2", "a")))
    bench.watch_pod(pod, node_hears=False)
    assert (waiting, bench.placing.model.holds()) == (["uid-p"], ())
    bench.delete_pod("p")
    bench.watch_pod(pod, node_hears=False)
    assert waiting == ["uid-p", "uid-p"]


def test_held_node_first() -> None:
    """The node that was chosen ahead is the whole answer, even where all names are asked for; else the best one."""
    bench = Bench("a", "b")
    bench.watch_pod(pod_object("p"))
    chosen = bench.placing.choose(bench.placing.pods["uid-p"])
    other = "b" if chosen == "a" else "a"
    assert bench.placing.filter(filter_request(pod_object("p"), ["a", "b"]), {"uid-p": chosen}).nodes == [chosen]
    assert bench.placing.filter(filter_request(pod_object("p"), [other]), {"uid-p": chosen}).nodes == [other]
    assert [hold.node for hold in bench.placing.model.holds()] == [other]


def test_a_pod_on_its_way_counts() -> None:
    """Between filter and the node's report no other pod gets the same CPUs."""
    bench = Bench("a")
    for name in ("p", "q"):
        bench.watch_pod(pod_object(name, "8"))
    assert bench.placing.filter(filter_request(pod_object("p", "8"), ["a"])).nodes == ["a"]
    refused = bench.placing.filter(filter_request(pod_object("q", "8"), ["a"]))
    assert (refused.nodes, refused.unresolvable) == ([], {"a": "no NUMA node has 8 exclusive CPUs free"})
    bench.now = 31.0
    assert bench.placing.expire() == ["uid-p"]
    assert bench.placing.filter(filter_request(pod_object("q", "8"), ["a"])).nodes == ["a"]


def test_a_binding_that_is_tried_again_has_the_same_plan() -> None:
    """The outcome of a Binding is unknown, so it is tried again: though CPUs have become free since, the node gets the
    same plan as before, which overlaps with no pod that was bound in between, and gives both what was planned."""
    bench = Bench("a", policy="honour")
    bench.watch_pod(pod_object("runs", "2", "a"))
    plans = {}
    for name in ("p", "q", "p"):
        if name == "q":
            bench.delete_pod("runs")
        bench.placing.filter(filter_request(pod_object(name, "2"), ["a"]))
        bench.watch_pod(pod_object(name, "2"))
        assert bind(bench, name, "a") == ""
        plan = bench.placing.plan(BindRequest(name, "default", f"uid-{name}", "a"))
        assert plan is not None
        assert plans.setdefault(name, plan.holding) == plan.holding
    (first,), (second,) = (plans[name].containers for name in ("p", "q"))
    assert (first.cpus, second.cpus, first.cpus & second.cpus) == (1 << 2 | 1 << 10, 1 << 1 | 1 << 9, 0)
    for name in ("q", "p"):
        node = bench.nodes.nodes["a"]
        why, stamped = node.admit_as_planned(scheduled_pod(pod_object(name, "2", "a")).pod, plans[name])
        assert why == ""
        bench.journals.feed("a", encode(stamped))
    assert (bench.disputes, bench.placing.model.holds()) == ([], ())


def test_plans_of_a_service_before() -> None:
    """With `honour` a pod that is bound and has not started uses a plan of another service, which is unknown here: no
    other pod is held there until the node has reported it."""
    bench = Bench("a", policy="honour")
    bench.watch_pod(pod_object("p", "4"))
    bench.placing.filter(filter_request(pod_object("p", "4"), ["a"]))
    assert bind(bench, "p", "a") == ""
    bench.watch_pod(bound := pod_object("p", "4", "a"), node_hears=False)
    assert bench.placing.filter(filter_request(pod_object("q", "2"), ["a"])).nodes == ["a"]
    bench.begin_again()
    bench.journals.catch_up(["a"])
    (hold,) = bench.placing.model.holds()
    assert (hold.uid, hold.bound, hold.plan) == ("uid-p", True, None)
    refused = bench.placing.filter(filter_request(pod_object("q", "2"), ["a"]))
    assert refused.unresolvable == {"a": RESERVED}
    bench.nodes.pod_changed(None, scheduled_pod(bound))
    assert bench.placing.model.holds() == ()
    assert bench.placing.filter(filter_request(pod_object("q", "2"), ["a"])).nodes == ["a"]


@pytest.mark.parametrize("again", [False, True])
def test_started_while_no_service_listened(again: bool) -> None:
    """A pod that started while no service listened is in the state that its node sends next, to the same service or to
    one that was started since: its CPUs are taken and nothing is held for it, and it gets no verdict, good or bad."""
    bench = Bench("a")
    bench.placing.filter(filter_request(pod_object("p", "8"), ["a"]))
    bench.watch_pod(pod_object("p", "8"))
    assert bind(bench, "p", "a") == ""
    bench.journals.fault = Fault(lose=1)
    bench.watch_pod(pod_object("p", "8", "a"))
    assert [hold.uid for hold in bench.placing.model.holds()] == ["uid-p"]
    bench.journals.fault = Fault()
    bench.nodes.nodes["a"].restart()
    if again:
        bench.begin_again()
    bench.journals.catch_up(["a"])
    model = bench.placing.model
    assert (model.holds(), bench.binding_outcomes, dict(model.counts)) == ((), [], {} if again else {"bound": 1})
    assert model.node("a").base.cpus == bench.nodes.nodes["a"].node.state.cpu.default
    assert bench.placing.filter(filter_request(pod_object("q", "8"), ["a"])).nodes == []


def test_bound_and_gone_while_the_watch_was_away() -> None:
    """A pod that was bound and deleted before any watch showed it is held no more once a later list lacks it."""
    bench = Bench("a")
    assert bench.placing.filter(filter_request(pod_object("p", "8"), ["a"])).nodes == ["a"]
    assert bind(bench, "p", "a") == ""
    bench.now += 1.0
    bench.placing.drop_missed(bench.now - 1.0)
    bench.now += 40.0
    bench.placing.expire()
    assert [hold.uid for hold in bench.placing.model.holds()] == ["uid-p"], "the list began before it was bound"
    bench.placing.drop_missed(bench.now)
    bench.now += 40.0
    assert bench.placing.expire() == ["uid-p"]
    assert bench.placing.model.holds() == ()


def test_pods_of_others_count() -> None:
    """A pod that another scheduler bound, and a static pod, count from the watch on, and as the node says later."""
    bench = Bench("a")
    bench.watch_pod(pod_object("p", "8", "a", schedulerName="default-scheduler"), node_hears=False)
    assert [hold.bound for hold in bench.placing.model.holds()] == [True]
    assert bench.placing.filter(filter_request(pod_object("q", "8"), ["a"])).nodes == []
    bench.delete_pod("p")
    bench.now = 31.0
    bench.placing.expire()
    assert bench.placing.filter(filter_request(pod_object("q", "8"), ["a"])).nodes == ["a"]


def test_bound_before_the_node_is_known() -> None:
    """After a restart the watch may come before the node's journal: who is bound and not confirmed counts then."""
    bench = Bench("a", heard=False)
    bench.watch_pod(pod_object("p", "8", "a"), node_hears=False)
    assert bench.placing.model.holds() == ()
    bench.journals.catch_up(["a"])
    assert [(hold.uid, hold.bound) for hold in bench.placing.model.holds()] == [("uid-p", True)]


def test_lost_and_doubled_events() -> None:
    """A gap ends the trust in the node until what is missing has come; a doubled event changes nothing."""
    bench = Bench("a")
    bench.journals.fault = Fault(lose=1)
    bench.watch_pod(pod_object("p", "8", "a"))
    bench.journals.fault = Fault()
    bench.watch_pod(pod_object("q", "2", "a"))
    refused = bench.placing.filter(filter_request(pod_object("r", "2"), ["a"]))
    assert refused.unresolvable == {"a": NOT_CONFIRMED}
    bench.journals.catch_up(["a"])
    assert bench.placing.filter(filter_request(pod_object("r", "2"), ["a"])).nodes == ["a"]
    assert bench.placing.filter(filter_request(pod_object("s", "8"), ["a"])).nodes == []
    bench.journals.fault = Fault(double=1)
    bench.watch_pod(pod_object("t", "2", "a"))
    assert bench.journals.outcomes["doubled"] == 1
    assert not bench.journals.find_unproven("a")


def test_silent_node() -> None:
    """A silent node takes no pod with exclusive resources, not even at bind; heard again, it does."""
    bench = Bench("a")
    bench.watch_pod(pod_object("p"))
    assert bench.placing.filter(filter_request(pod_object("p"), ["a"])).nodes == ["a"]
    bench.placing.confirm("a", confirmed=False)
    assert bind(bench, "p", "a") == NOT_CONFIRMED
    bench.placing.confirm("a", confirmed=True)
    assert bind(bench, "p", "a") == ""


def test_node_that_goes_and_comes() -> None:
    """A node that is deleted takes nothing; one that comes again is added anew."""
    bench = Bench("a")
    node = bench.placing.places.nodes["a"]
    bench.placing.node_changed(node, None)
    assert bench.placing.filter(filter_request(pod_object("p"), ["a"])).unresolvable == {"a": NOT_CONFIRMED}
    bench.placing.node_changed(None, node)
    assert bench.placing.filter(filter_request(pod_object("p"), ["a"])).nodes == []
    bench.journals.nodes.clear()
    bench.journals.catch_up(["a"])
    assert bench.placing.filter(filter_request(pod_object("p"), ["a"])).nodes == ["a"]


def test_refusal_by_the_node() -> None:
    """A refusal by a node is reported, and such pods are not sent there again for a while."""
    bench = Bench("a")
    bench.watch_pod(pod_object("p", "8"))
    assert bench.placing.filter(filter_request(pod_object("p", "8"), ["a"])).nodes == ["a"]
    assert bind(bench, "p", "a") == ""
    bench.nodes.pod_changed(None, scheduled_pod(pod_object("first", "8", "a")))
    bench.watch_pod(pod_object("p", "8", "a"))
    assert [(one.node, one.uid, one.outcome.kind) for one in bench.disputes] == [("a", "uid-p", "refused")]
    bench.nodes.pod_changed(scheduled_pod(pod_object("first", "8", "a")), None)
    assert bench.placing.filter(filter_request(pod_object("q", "8"), ["a"])).nodes == []
    bench.now = 61.0
    assert bench.placing.filter(filter_request(pod_object("q", "8"), ["a"])).nodes == ["a"]


def test_preemption() -> None:
    """Only candidates on which the pod would fit without their victims are left; a pod that wants nothing is not looked
    at."""
    bench = Bench("a", "b")
    for name, cpus, node in (("p", "8", "a"), ("q", "8", "b"), ("r", "2", "b")):
        bench.watch_pod(pod_object(name, cpus, node))
    pod = filter_request(pod_object("big", "8"), []).pod
    victims = {"a": NodeVictims(("uid-p",)), "b": NodeVictims(("uid-r",)), "x": NodeVictims(("uid-z",))}
    assert bench.placing.filter_victims(PreemptRequest(pod, victims)) == {"a": victims["a"]}
    assert bench.placing.filter_victims(PreemptRequest(filter_request(shared_pod("small"), []).pod, victims)) == victims
