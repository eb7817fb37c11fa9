"""Hints for memory (memory-device 1.5 to 1.7)."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podslice.machine.memory import MachineState, MemoryTable
from podslice.node.memory.hints import is_short, memory_hints, sums_wrap
from podslice.values.cpuset import bits_of, iter_bits
from podslice.values.errors import UpstreamDefectError
from podslice.values.quirks import KUBELET_1_36, PODSLICE
from tests.node.memory.helpers import (
    ANYWHERE,
    HUGE,
    POD_LEVEL,
    GiB,
    admit,
    machine,
    manager,
    memory,
    near,
    node_state,
    pod,
    restarted,
)


def shown(hints) -> str:
    """Hints as the specification writes them: `{0}+ {0,1}-`."""
    return " ".join(
        f"{{{','.join(map(str, iter_bits(hint.mask)))}}}{'+' if hint.preferred else '-'}" for hint in hints or ()
    )


IDLE = {0: node_state(9, 9, cells=(0,)), 1: node_state(9, 9, cells=(1,))}
ONE_USED = {0: node_state(9, 4, assignments=1, cells=(0,)), 1: node_state(9, 9, cells=(1,))}
GROUPED = {0: node_state(9, 0, assignments=1, cells=(0, 1)), 1: node_state(9, 6, assignments=1, cells=(0, 1))}
FOUR = {**GROUPED, 2: node_state(9, 9, cells=(2,)), 3: node_state(9, 9, cells=(3,))}
OVERFULL = {0: node_state(4, 8, cells=(0,)), 1: node_state(9, 9, cells=(1,))}
"""A state file may claim more free memory than pods may hold; the claim does not make the node larger."""
PAGES = {0: node_state(9, 9, cells=(0,), hugepages_1Gi=(2, 2)), 1: node_state(9, 9, cells=(1,), hugepages_1Gi=(0, 0))}

EXAMPLES = [
    ("idle-5", IDLE, {"memory": 5}, "{0}+ {1}+ {0,1}-"),
    ("overfull-6", OVERFULL, {"memory": 6}, "{1}+ {0,1}-"),
    ("idle-12", IDLE, {"memory": 12}, "{0,1}+"),
    ("idle-20", IDLE, {"memory": 20}, ""),
    ("used-5", ONE_USED, {"memory": 5}, "{1}+"),
    ("used-12", ONE_USED, {"memory": 12}, ""),
    ("grouped-5", GROUPED, {"memory": 5}, "{0,1}-"),
    ("grouped-7", GROUPED, {"memory": 7}, ""),
    ("four-5", FOUR, {"memory": 5}, "{2}+ {3}+ {0,1}- {2,3}-"),
    ("four-10", FOUR, {"memory": 10}, "{2,3}+"),
    ("pages", PAGES, {"memory": 1, HUGE: 1}, "{0}+ {0,1}-"),
    ("nothing", IDLE, {}, ""),
]


@pytest.mark.parametrize(("state", "request_", "expected"), [e[1:] for e in EXAMPLES], ids=[e[0] for e in EXAMPLES])
def test_worked_examples(state: MachineState, request_, expected):
    """The examples of the specification give the masks it lists."""
    request = {name: gib * GiB for name, gib in request_.items()}
    assert shown(memory_hints(state, request, {}, crash=True)) == expected


def test_reuse_counts_for_its_exact_mask_only():
    """Memory an init container leaves on {0} helps the mask {0}, not {0,1}."""
    full = {0: node_state(9, 2, cells=(0,)), 1: node_state(9, 1, cells=(1,))}
    reuse = {bits_of([0]): {"memory": 3 * GiB}}
    assert shown(memory_hints(full, {"memory": 5 * GiB}, reuse, crash=True)) == "{0}+"


def naive_masks(state: MachineState, request, reuse) -> list[tuple[int, bool]]:
    """Section 1.6, step by step."""
    nodes = sorted(state)
    smallest, found = len(nodes), []
    for subset in (s for size in range(1, len(nodes) + 1) for s in combinations(nodes, size)):
        tables = [{name: state[node].memory_map[name] for name in request} for node in subset]
        if any(sum(t[name].allocatable for t in tables) < need for name, need in request.items()):
            continue
        smallest = min(smallest, len(subset))
        if len(subset) == 1 and len(state[subset[0]].cells) > 1:
            continue
        if len(subset) > 1 and any(
            state[node].number_of_assignments > 0
            and (len(state[node].cells) == 1 or set(state[node].cells) != set(subset))
            for node in subset
        ):
            continue
        left = reuse.get(bits_of(subset), {})
        if all(sum(t[name].free for t in tables) + left.get(name, 0) >= need for name, need in request.items()):
            found.append(subset)
    return [(bits_of(subset), len(subset) == smallest) for subset in found]


@st.composite
def states(draw) -> MachineState:
    ids = draw(st.lists(st.integers(0, 9), min_size=1, max_size=5, unique=True))
    state: MachineState = {}
    for node in ids:
        room = draw(st.integers(0, 6))
        pages = draw(st.integers(0, 4))
        state[node] = node_state(
            room,
            draw(st.integers(0, room)),
            assignments=draw(st.integers(0, 2)),
            cells=tuple(draw(st.sets(st.sampled_from(ids))) | {node}),
            hugepages_1Gi=(pages, draw(st.integers(0, pages))),
        )
    return state


@pytest.mark.slow
@given(states(), st.integers(0, 14), st.integers(0, 6) | st.none(), st.data())
def test_hints_equal_the_specification(state, amount, pages, data):
    """Any state, request and reuse give exactly the masks of the step-by-step algorithm, in its order."""
    request = {"memory": amount * GiB} | ({} if pages is None else {HUGE: pages * GiB})
    masks = st.sets(st.sampled_from(sorted(state)), min_size=1).map(bits_of)
    reuse = data.draw(
        st.dictionaries(masks, st.dictionaries(st.sampled_from(["memory", HUGE]), st.just(2 * GiB)), max_size=3)
    )
    assert [
        (hint.mask, hint.preferred) for hint in memory_hints(state, request, reuse, crash=True) or ()
    ] == naive_masks(state, request, reuse)


@pytest.mark.slow
@given(states(), st.integers(0, 14), st.data())
def test_hints_of_sums_that_do_not_wrap(state, amount, data):
    """Looking at every set, as where sums may wrap, gives the same hints where they do not."""
    request = {"memory": amount * GiB}
    masks = st.sets(st.sampled_from(sorted(state)), min_size=1).map(bits_of)
    reuse = data.draw(st.dictionaries(masks, st.just({"memory": 2 * GiB}), max_size=3))
    assert not sums_wrap(state)
    listed = [list(memory_hints(state, request, reuse, crash=True, wraps=wraps) or ()) for wraps in (True, False)]
    assert listed[0] == listed[1]


def test_hints_of_sums_that_wrap():
    """A node that lacks 1 GiB for its huge pages has almost 2^64 bytes, and together with another one next to none."""
    state = {0: node_state(9, 9, cells=(0,)), 1: node_state(9, 9, cells=(1,))}
    lacking = (1 << 64) - 8 * GiB
    state[1].memory_map["memory"] = MemoryTable(0, 0, lacking, 0, lacking)
    assert sums_wrap(state)
    assert shown(memory_hints(state, {"memory": 2 * GiB}, {}, crash=True, wraps=True)) == "{0}+ {1}+"
    assert is_short(state, 0b11, {"memory": 2 * GiB}, crash=True)
    assert not is_short(state, 0b11, {"memory": GiB}, crash=True)
    assert shown(memory_hints(state, {"memory": GiB}, {}, crash=True, wraps=True)) == "{0}+ {1}+ {0,1}-"


def test_missing_table_is_a_crash_upstream():
    """A node without the huge page size crashes v1.36.2 and counts as empty here (memory-device 4.1)."""
    state = {0: node_state(9, 9, cells=(0,), hugepages_1Gi=(2, 2)), 1: node_state(9, 9, cells=(1,))}
    request = {"memory": GiB, HUGE: GiB}
    with pytest.raises(UpstreamDefectError, match="missing_hugepages_crash"):
        memory_hints(state, request, {}, crash=True)
    assert shown(memory_hints(state, request, {}, crash=False)) == "{0}+ {0,1}-"


# Entry points


def test_only_guaranteed_pods_have_hints():
    """A Burstable pod has no opinion about NUMA nodes."""
    memory_manager = manager(machine(10, 9))
    burstable = pod("u", memory("1Gi"), {})
    assert memory_manager.container_hints(burstable, burstable.containers[0]) is None
    assert memory_manager.pod_hints(burstable) is None


def test_ignored_pods_have_no_hints_and_no_memory():
    """Pods with pod-level resources are left alone while the gate is off."""
    memory_manager = manager(machine(10, 9))
    ignored = pod("u", memory("1Gi"), budget={"cpu": "1", "memory": "1Gi"})
    assert ignored.ignored
    assert memory_manager.container_hints(ignored, ignored.containers[0]) is None
    assert memory_manager.pod_hints(ignored) is None
    assert admit(memory_manager, ignored) == ""
    assert memory_manager.assignments == {}
    assert memory_manager.context.metrics == {}


@pytest.mark.parametrize(
    ("quirks", "expected"), [(PODSLICE, {"memory": []}), (KUBELET_1_36, {})], ids=["podslice", "kubelet"]
)
def test_impossible_request(quirks, expected):
    """Memory that fits nowhere is impossible; upstream says "no preference" (memory-device 4.4)."""
    memory_manager = manager(machine(10, 9), quirks=quirks)
    huge = pod("u", memory("99Gi"))
    assert memory_manager.container_hints(huge, huge.containers[0]) == expected
    assert memory_manager.pod_hints(huge) == expected


def test_pod_request_is_the_most_used_at_a_time():
    """The pod's hints are for its apps and sidecars together, or for a larger init phase (memory-device 1.5)."""
    memory_manager = manager(machine(10, 9, 9), reserved={0: "1Gi"})
    wide = pod("u", memory("4Gi"), memory("4Gi"), sidecars=(memory("2Gi"),), init=(memory("1Gi"),))
    assert shown(memory_manager.pod_hints(wide)["memory"]) == "{0,1}+ {0,2}+ {1,2}+ {0,1,2}-"
    narrow = pod("u", memory("1Gi"), sidecars=(memory("2Gi"),), init=(memory("7Gi"),))
    assert shown(memory_manager.pod_hints(narrow)["memory"]).startswith("{0}+ {1}+ {2}+ ")


def test_resources_of_init_containers_only_are_dropped():
    """Huge pages that no app container asks for are not part of the pod's request (memory-device 1.5)."""
    memory_manager = manager(machine(10, 9, huge={0: 1, 1: 1}))
    described = pod("u", memory("1Gi"), init=(memory("1Gi", huge="1Gi"),))
    assert set(memory_manager.pod_hints(described)) == {"memory"}


def test_running_container_hints_at_its_own_nodes():
    """After a restart the only hint is where the memory is; a changed request has no opinion."""
    memory_manager = manager(machine(10, 9))
    running = pod("u", memory("2Gi"))
    assert admit(memory_manager, running, near(1)) == ""
    fresh = restarted(memory_manager)
    assert shown(fresh.container_hints(running, running.containers[0])["memory"]) == "{1}+"
    grown = pod("u", memory("3Gi"))
    assert fresh.container_hints(grown, grown.containers[0]) is None


@pytest.mark.parametrize(
    ("quirks", "expected"), [(PODSLICE, "{1}+"), (KUBELET_1_36, None)], ids=["podslice", "kubelet"]
)
def test_running_pod_hints_at_its_own_nodes(quirks, expected):
    """A pod of several containers keeps its nodes in pod scope; upstream loses them (memory-device 4.6)."""
    memory_manager = manager(machine(10, 9), quirks=quirks)
    running = pod("u", memory("2Gi"), memory("1Gi"))
    assert admit(memory_manager, running, near(1)) == ""
    hints = restarted(memory_manager).pod_hints(running)
    assert (hints and shown(hints["memory"])) == expected


def test_pod_on_several_nodes_has_no_preference():
    """A pod whose containers are on different nodes cannot ask for one set of nodes."""
    memory_manager = manager(machine(10, 9))
    running = pod("u", memory("2Gi"), memory("1Gi"))
    memory_manager.context.activate(running)
    for node, container in enumerate(running.containers):
        memory_manager.allocate(running, container, near(node))
    assert restarted(memory_manager).pod_hints(running) is None


def test_running_pod_level_pod_hints_at_its_own_nodes():
    """A pod with pod-level resources asks for the nodes it has."""
    memory_manager = manager(machine(10, 9), gates=POD_LEVEL)
    running = pod("u", memory("1Gi"), {}, budget={"cpu": "2", "memory": "4Gi"}, gates=POD_LEVEL)
    assert admit(memory_manager, running, near(1)) == ""
    assert shown(restarted(memory_manager).pod_hints(running)["memory"]) == "{1}+"


def test_empty_shared_pool_is_impossible():
    """A pod whose exclusive containers leave its others nothing fits nowhere (memory-device 1.7)."""
    memory_manager = manager(machine(10, 9), gates=POD_LEVEL)
    greedy = pod("u", memory("4Gi"), {}, budget={"cpu": "2", "memory": "4Gi"}, gates=POD_LEVEL)
    assert memory_manager.pod_hints(greedy) == {"memory": []}


def test_unusual_spelling():
    """Whole bytes in an unusual spelling are refused by upstream and read here; fractions are refused by both."""
    for text, quirks, expected in (
        ("1.5Gi", PODSLICE, 1536 * GiB // 1024),
        ("1.5Gi", KUBELET_1_36, None),
        ("1500m", PODSLICE, None),
        ("100E", PODSLICE, None),
    ):
        memory_manager = manager(machine(10, 9), quirks=quirks)
        described = pod("u", memory(text))
        hints = memory_manager.container_hints(described, described.containers[0])
        refusal = admit(memory_manager, described, ANYWHERE)
        if expected is None:
            assert hints is None
            assert refusal == "[memorymanager] failed to represent quantity as int64"
        else:
            assert hints
            assert refusal == ""
            assert memory_manager.blocks("u", "c0")[0].size == expected
