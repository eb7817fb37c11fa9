"""Pictures of nodes: the model is right, drawings are well-formed, small, quick and self-contained."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import click
import msgspec
import pytest

from podslice import KubeletConfig, Node, Pod
from podslice.api.manifests.manifest import assign_names, load_pods
from podslice.api.pod.spec import pod_from_dict
from podslice.machine.devices import inventory_from_data
from podslice.machine.gallery import gallery_names, load_gallery
from podslice.machine.model import HugePages, Machine
from podslice.machine.readers.synthetic import from_synthetic
from podslice.render.html import to_html
from podslice.render.layout import lay_out
from podslice.render.measure import cut_text, text_width
from podslice.render.palette import style_of
from podslice.render.picture import EXCLUSIVE, POD_SHARED, POOLED, RESERVED, SHARED, Picture, Want, picture_of
from podslice.render.svg import NARROW, to_svg
from podslice.render.terminal import to_text
from podslice.render.theme import DARK, LIGHT, MARKS
from tests.conftest import make_node, make_pod
from tests.node.resize.test_exclusive import budget, one, pod_node
from tests.node.resize.test_exclusive import node as elastic_node

SVG = "{http://www.w3.org/2000/svg}"
SIZES = {
    8: "pack:1 numa:1(memory=32GB) core:4 pu:2",
    64: "pack:2 numa:2(memory=32GB) l3:2 core:4 pu:2",
    512: "pack:2 numa:4(memory=128GB) l3:4 core:8 pu:2",
}


def busy_node(cpus: int) -> Node:
    """A node with as many pods as fit, among them one with pod-level resources and a name that needs escaping."""
    node = make_node(SIZES[cpus], topology_manager_scope="pod", feature_gates={"PodLevelResourceManagers": True})
    assert node.admit(make_pod("bubble", ("engine", "2"), ("log", None), budget="4", memory="1Gi")).admitted
    for number in range(cpus // 6):
        node.admit(make_pod(f'p{number}<&">', ("main", str(1 + number % 6)), ("side", "500m"), memory="64Mi"))
    return node


class Validator(HTMLParser):
    """Every element is closed where it was opened, ids are unique, attributes appear once, nothing is loaded."""

    VOID = frozenset({"meta", "link", "br", "img", "input", "hr"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> repeats an attribute"
        for name, value in attrs:
            inside = name not in ("src", "href", "xlink:href") or (value or "").startswith("#")
            assert inside, f"{tag} loads {value}"
            if name == "id":
                assert value not in self.ids, f"id {value} twice"
                self.ids.add(value or "")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def check(self, text: str) -> None:
        assert text.startswith("<!doctype html>")
        self.feed(text)
        self.close()
        assert not self.open
        assert set(re.findall(r"https?://[^\s\"'<]+", text)) <= {"http://www.w3.org/2000/svg"}


def test_model_tells_whose_every_cpu_is() -> None:
    """Reserved, shared, exclusive, and pod-shared CPUs with their pod; sets agree with the CPU Manager's state."""
    node = busy_node(8)
    picture = picture_of(node.view)
    kinds = {cpu.id: cpu.kind for cpu in picture.cpus()}
    assert kinds == {
        0: RESERVED,
        1: EXCLUSIVE,
        2: POD_SHARED,
        3: SHARED,
        4: EXCLUSIVE,
        5: EXCLUSIVE,
        6: POD_SHARED,
        7: SHARED,
    }
    state = node.kubelet.manager.cpu.state
    for index, owner in enumerate(picture.owners):
        drawn = {cpu.id for cpu in picture.cpus() if cpu.owner == index}
        assert drawn == {i for i in range(8) if owner.cpus >> i & 1}
    pod_cpus = next(iter(state.pod_cpus.values()))
    assert {cpu.id for cpu in picture.cpus() if cpu.pod is not None} == {i for i in range(8) if pod_cpus >> i & 1}
    assert picture.pods[picture.owners[0].pod].cgroup == "/kubepods.slice/kubepods-podbubble.slice"


@pytest.mark.parametrize("cpus", SIZES)
def test_svg_is_well_formed_and_small(cpus: int) -> None:
    """XML that parses, at most 500 KB, one titled square per CPU, names escaped."""
    node = busy_node(cpus)
    text = to_svg(picture_of(node.view))
    assert len(text.encode()) <= 500_000
    root = ElementTree.fromstring(text)
    titles = [title.text or "" for title in root.iter(f"{SVG}title")]
    for cpu in range(cpus):
        assert sum(title.startswith(f"CPU {cpu}:") for title in titles) == 1
    assert any('p0<&">' in title for title in titles)
    assert "prefers-color-scheme:dark" in text
    assert "href" not in text


@pytest.mark.parametrize("cpus", SIZES)
def test_nothing_overlaps(cpus: int) -> None:
    """Squares lie side by side, inside their NUMA node, which lies inside its socket, which lies on the page."""
    layout = lay_out(picture_of(busy_node(cpus).view), 50)
    corners = []
    for socket in layout.sockets:
        assert socket.place.x >= 0
        assert socket.place.x + socket.place.width <= layout.width
        for node in socket.nodes:
            assert node.place.y + node.place.height <= socket.place.y + socket.place.height
            for cell in node.cells:
                assert node.place.x <= cell.x <= node.place.x + node.place.width - layout.cell
                assert node.place.y <= cell.y <= node.place.y + node.place.height - layout.cell
                corners.append((cell.x, cell.y))
    corners.sort()
    assert len(corners) == cpus
    for (x, y), (right, below) in pairwise(corners):
        assert right - x >= layout.cell - 0.01 or (x == right and below - y >= layout.cell - 0.01)


@pytest.mark.parametrize("cpus", SIZES)
def test_page_is_valid_and_self_contained(cpus: int) -> None:
    """The page closes what it opens, repeats no id with several pictures, and loads nothing."""
    picture = picture_of(busy_node(cpus).view)
    Validator().check(to_html([("Before", picture), ("After", picture)]))


@pytest.mark.parametrize("name", gallery_names())
@pytest.mark.slow
def test_every_machine_can_be_drawn(name: str) -> None:
    """Every ready-made machine has a picture in all forms."""
    machine = load_gallery(name)
    picture = picture_of(Node(machine, KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0")).view)
    assert picture.cpu_count == len(machine.cpus)
    ElementTree.fromstring(to_svg(picture))
    Validator().check(to_html([("", picture)]))
    assert to_text(picture).count("NUMA") >= 1


def test_changes_are_marked() -> None:
    """Compared with the picture before, exactly the CPUs of the new pod are framed."""
    node = make_node("pack:2 numa:1(memory=16GB) core:4 pu:2")
    before = picture_of(node.view)
    assert node.admit(make_pod("new", ("c", "3"))).admitted
    after = picture_of(node.view, before=before)
    assert {cpu.id for cpu in after.cpus() if cpu.changed} == {cpu.id for cpu in after.cpus() if cpu.owner is not None}
    assert to_svg(after).count('class="changed"') == 3
    assert to_svg(before).count('class="changed"') == 0


def test_owners_keep_their_looks() -> None:
    """After a change whoever stayed has the colour and letter it had, and nobody new has one that was taken."""
    node = make_node("pack:2 numa:1(memory=16GB) core:4 pu:2")
    for name in ("a", "b", "c"):
        assert node.admit(make_pod(name, ("c", "2"))).admitted
    before = picture_of(node.view)
    node.remove("a")
    assert node.admit(make_pod("d", ("c", "1"))).admitted
    after = picture_of(node.view, before=before)
    assert {owner.label: owner.look for owner in before.owners} == {
        "default/a/c": 0,
        "default/b/c": 1,
        "default/c/c": 2,
    }
    assert {owner.label: owner.look for owner in after.owners} == {"default/b/c": 1, "default/c/c": 2, "default/d/c": 3}
    assert f'fill="{style_of(3).fill}"' in to_svg(after)
    assert f'fill="{style_of(0).fill}"' not in to_svg(after)


def test_nobody_owns_cpus_without_the_static_policy() -> None:
    """With CPU Manager policy none everything is the shared pool, and no CPU is called assignable."""
    picture = picture_of(Node(load_gallery("laptop-i5-8250u"), KubeletConfig()).view)
    assert (picture.shared.bit_count(), picture.sockets[0].nodes[0].free) == (8, None)
    assert not re.search(r"\d free", to_svg(picture))
    assert not re.search(r"\d free", to_text(picture))


def test_distances_are_under_their_nodes() -> None:
    """A node is nearest to itself, also where the machine lists its nodes in another order than by id."""
    for name in ("power9-ac922", "gb200-34-nodes", "epyc-9654-nps4"):
        picture = picture_of(Node(load_gallery(name), KubeletConfig()).view)
        ids = [node for node, _ in picture.distances]
        assert ids == sorted(ids)
        for place, (node, row) in enumerate(picture.distances):
            assert (node, row.index(min(row))) == (ids[place], place)


def test_terminal_has_memory_devices_and_distances() -> None:
    """The map in the terminal says what the drawing says, and no line of CPUs is wider than asked for."""
    devices = inventory_from_data([{"resource": "example.com/gpu", "devices": [{"id": "a", "numa": [0]}, {"id": "z"}]}])
    node = Node(load_gallery("epyc-9654-nps4"), KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0"),
                devices=devices)  # fmt: skip
    text = click.unstyle(to_text(picture_of(node.view), width=50))
    joined = " ".join(text.split())
    assert "NUMA 0 CPUs 0-23,192-215, 47 free · memory 192 GiB · a free" in joined
    assert "Devices without NUMA node  z free" in text
    assert "     0  10  12  12  12  32  32  32  32" in text
    rows = [line for line in text.splitlines() if line.startswith("    thread")]
    assert max(map(len, rows)) <= 50
    assert rows[0] == "    thread 0     0  × · · · · · · ·"


def test_devices_and_memory_are_at_their_node() -> None:
    """Devices show holder and health, memory its ledgers, on the node they belong to."""
    from podslice.config.kubelet import MemoryReservation

    devices = inventory_from_data(
        [
            {
                "resource": "example.com/gpu",
                "devices": [{"id": "a", "numa": [0]}, {"id": "b", "numa": [1], "health": "Unhealthy"}, {"id": "c"}],
            }
        ]
    )
    config = KubeletConfig(
        cpu_manager_policy="static",
        reserved_system_cpus="0",
        topology_manager_policy="restricted",
        memory_manager_policy="Static",
        system_reserved={"memory": "1Gi"},
        eviction_hard={},
        reserved_memory=(MemoryReservation(0, {"memory": "1Gi"}),),
    )
    node = Node(from_synthetic("pack:1 numa:2(memory=8GB) core:2 pu:2"), config, devices=devices)
    limits = {"cpu": "2", "memory": "1Gi", "example.com/gpu": "1"}
    container = {"name": "c", "resources": {"limits": limits}}
    pod = pod_from_dict({"metadata": {"name": "x", "uid": "x"}, "spec": {"containers": [container]}})
    assert node.admit(pod).admitted
    picture = picture_of(node.view)
    first, second = picture.sockets[0].nodes
    assert [(d.id, d.healthy, d.owner) for d in first.devices] == [("a", True, "default/x")]
    assert [(d.id, d.healthy, d.owner) for d in second.devices] == [("b", False, "")]
    assert [d.id for d in picture.loose_devices] == ["c"]
    assert [(m.resource, m.reserved >> 20, (m.used or 0) >> 20) for m in first.memory] == [("memory", 1024, 1024)]
    assert second.memory[0].used == 0
    assert picture.pods[0].memory == "1 GiB memory on NUMA 0"
    text = to_svg(picture)
    assert "example.com/gpu a: held by default/x" in text
    assert "example.com/gpu b: unhealthy" in text
    assert "example.com/gpu c: free" in text


def test_colours_and_patterns_tell_49_owners_apart() -> None:
    """The first 49 owners have looks of their own."""
    looks = {(style_of(index).fill, style_of(index).pattern) for index in range(49)}
    assert len(looks) == 49


MANAGED = {
    "memory_manager_policy": "Static",
    "topology_manager_scope": "pod",
    "system_reserved": {"memory": "1Gi"},
    "feature_gates": {"PodLevelResourceManagers": True},
}


def managed_node(machine: Machine | None = None) -> Node:
    """A node whose Memory Manager counts, with two GPUs."""
    from podslice.config.kubelet import MemoryReservation

    config = KubeletConfig(
        cpu_manager_policy="static", reserved_system_cpus="0", topology_manager_policy="restricted", eviction_hard={},
        reserved_memory=(MemoryReservation(0, {"memory": "1Gi"}),), **MANAGED,
    )  # fmt: skip
    inventory = inventory_from_data([{"resource": "example.com/gpu", "perNUMANode": {0: 1, 1: 1}}])
    return Node(machine or from_synthetic("pack:2 numa:1(memory=64GB) core:4 pu:2"), config, devices=inventory)


def gpu_pod(name: str) -> Pod:
    """A pod without CPUs of its own that holds a GPU; its manifest has a UID."""
    container = {"name": "n", "resources": {"requests": {"cpu": "1"}, "limits": {"example.com/gpu": "1"}}}
    metadata = {"name": name, "namespace": "lab", "uid": "3f1c2d40-0000-4000-8000-000000000001"}
    return pod_from_dict({"metadata": metadata, "spec": {"containers": [container]}})


def test_memory_of_a_pod_counts_once() -> None:
    """Containers that share their pod's memory do not multiply it, in the picture or in the table of owners."""
    node = managed_node()
    assert node.admit(make_pod("m3", ("a", None), ("b", None), ("c", None), budget="6")).admitted
    picture = picture_of(node.view)
    assert [pod.memory for pod in picture.pods] == ["16 GiB memory on NUMA 0"]
    assert picture.sockets[0].nodes[0].memory[0].used == 16 << 30
    page = to_html([("", picture)])
    assert (page.count("16 GiB memory on NUMA 0"), "48 GiB" in page) == (1, False)


def test_who_holds_a_gpu_is_named() -> None:
    """A pod in the shared pool that holds a device has a colour, stands in legend and table, and its chip points to
    it."""
    node = managed_node()
    assert node.admit(make_pod("own", ("c", "2"))).admitted
    assert node.admit(gpu_pod("notebook")).admitted
    assert node.admit(make_pod("web", ("c", None))).admitted
    picture = picture_of(node.view)
    assert [(owner.label, owner.kind, owner.cpus.bit_count()) for owner in picture.owners] == [
        ("default/own/c", EXCLUSIVE, 2),
        ("lab/notebook", POOLED, 0),
    ]
    drawing = to_svg(picture)
    assert "lab/notebook (in the shared pool) · gpu-0" in drawing
    assert "In the shared pool (2): lab/notebook, default/web" in drawing
    chip = re.search(r'<g class="c" data-o="1"><title>example.com/gpu gpu-0: held by lab/notebook', drawing)
    assert chip is not None
    assert "In the shared pool: lab/notebook, default/web" in to_text(picture)
    page = to_html([("", picture)])
    Validator().check(page)
    assert "Owners of CPUs (1), 2 pods in the shared pool" in page
    assert len(re.findall(r"<td[^>]*>shared pool</td>", page)) == 4
    assert f'fill="{style_of(1).fill}"' in page


def test_cgroups_are_not_invented(tmp_path: Path) -> None:
    """Without a UID in the manifest no path is shown; with one it is."""
    file = tmp_path / "pod.yaml"
    amounts = "{limits: {cpu: 2, memory: 1Gi}}"
    containers = f"[{{name: c, image: i, resources: {amounts}}}]"
    file.write_text(f"kind: Pod\napiVersion: v1\nmetadata: {{name: p}}\nspec: {{containers: {containers}}}")
    node = managed_node()
    (loaded,) = assign_names(load_pods(str(file)))
    assert node.admit(loaded.pod).admitted
    node.admit(gpu_pod("notebook"))
    page = to_html([("", picture_of(node.view))])
    assert "known when the pod has a UID" in page
    assert re.findall(r"/kubepods[^<]*", page) == [
        "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod3f1c2d40_0000_4000_8000_000000000001.slice"
    ]


def test_no_bars_for_what_is_not_there() -> None:
    """A size of huge pages of which the machine has none is neither drawn nor told."""
    machine = from_synthetic("pack:2 numa:1(memory=64GB) core:4 pu:2")
    nodes = tuple(msgspec.structs.replace(node, hugepages=(HugePages(2048, 0),)) for node in machine.nodes)
    node = managed_node(msgspec.structs.replace(machine, nodes=nodes))
    assert "hugepages-2Mi" in (node.kubelet.manager.memory.machine_state[0].memory_map or {})
    picture = picture_of(node.view)
    assert {m.resource for socket in picture.sockets for node in socket.nodes for m in node.memory} == {"memory"}
    assert "of 0 B" not in to_svg(picture)


def test_empty_nodes_are_counted_not_drawn() -> None:
    """A machine of 34 NUMA nodes of which 28 are empty says so, and shows distances of the others only."""
    picture = picture_of(Node(load_gallery("gb200-34-nodes"), KubeletConfig()).view)
    assert "34 NUMA nodes, 28 without CPUs and memory not drawn" in picture.details
    drawn = [node.id for socket in picture.sockets for node in socket.nodes]
    assert [node for node, _ in picture.distances] == drawn
    assert all(len(row) == len(drawn) for _, row in picture.distances)


@pytest.mark.parametrize("name", gallery_names())
def test_numbers_of_cpus_are_readable(name: str) -> None:
    """On every machine the numbers in the squares are at least ten pixels high."""
    picture = picture_of(Node(load_gallery(name), KubeletConfig()).view)
    assert lay_out(picture, 50).digits >= 10


def test_swatches_of_the_table_have_the_patterns() -> None:
    """The eighth owner's swatch in the table is drawn with the pattern of its CPUs, and all swatches differ."""
    node = make_node("pack:1 numa:1(memory=64GB) core:8 pu:2")
    for number in range(9):
        assert node.admit(make_pod(f"w{number}", ("c", "1"), memory="64Mi")).admitted
    page = to_html([("", picture_of(node.view))])
    swatches = re.findall(r'<svg viewBox="0 0 15 15" class="podslice swatch".*?</svg>', page)
    assert len(swatches) == len(set(swatches)) == 9
    assert "url(#s0p7)" in swatches[7]


def _luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(digit * 2 for digit in colour[1:])
    parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """The contrast of WCAG 2."""
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_text_is_readable_on_its_ground() -> None:
    """Contrast is at least 4.5 for numbers on owners' colours, and for ink on every ground of both themes."""
    for look in range(7):
        assert contrast(style_of(look).fill, style_of(look).ink) >= 4.5
    for theme in (LIGHT, DARK):
        for ground in ("paper", "box", "inner", "shared", "reserved"):
            assert contrast(theme["ink"], theme[ground]) >= 4.5, ground
        for ground in ("paper", "box", "inner"):
            for ink in ("dim", "alert"):
                assert contrast(theme[ink], theme[ground]) >= 4.5, (ink, ground)


def test_terminal_shows_the_same_owners() -> None:
    """As many symbols of an owner are drawn as it has CPUs."""
    picture: Picture = picture_of(busy_node(64).view)
    text = re.sub(r"\x1b\[[0-9;]*m", "", to_text(picture, width=120))
    rows = "".join(line[20:] for line in text.splitlines() if line.startswith("    thread"))
    for index, owner in enumerate(picture.owners):
        assert rows.count(chr(ord("A") + index)) == owner.cpus.bit_count()


# Growth


def grown(size: str = "12") -> Picture:
    """A pod promised 2-5 that has more, beside one that has not."""
    here = elastic_node()
    here.admit(one("4"))
    here.admit(one("8", "q"))
    assert here.resize(one(size)).outcome in ("Allocated", "Unchanged")
    return picture_of(here.view)


def test_growth_is_marked() -> None:
    """CPUs beyond the promise are told apart from promised ones without colour, in the terminal and as SVG."""
    picture = grown()
    assert [owner.remark for owner in picture.owners] == ["2-5 promised, 14-21 growth", ""]
    assert {cpu.id for cpu in picture.cpus() if cpu.growth} == {*range(14, 22)}
    text = click.unstyle(to_text(picture))
    assert "    thread 1     1  × A A B B B B A+\n" in text
    assert "2-5,14-21  (exclusive; 2-5 promised, 14-21 growth)" in text
    assert "+  behind a CPU: growth, beyond what was promised at the admission" in text
    svg = to_svg(picture)
    assert svg.count("beyond what was promised at its admission") == 8
    assert svg.count("<path d=") == 8 + 1
    assert "2-5,14-21 (2-5 promised, 14-21 growth)" in svg


def test_without_growth_nothing_is_new() -> None:
    """Where nobody has more than was promised, no mark and no line of the legend is drawn."""
    picture = grown("4")
    assert not picture.grows
    assert "+" not in click.unstyle(to_text(picture))
    assert "<path" not in to_svg(picture)
    assert "growth" not in to_svg(picture)


def test_growth_of_a_whole_pod() -> None:
    """The shared rest of a pod with pod-level resources grows too."""
    here = pod_node()
    here.admit(budget("6", "4"))
    assert here.resize(budget("8", "4")).outcome == "Allocated"
    picture = picture_of(here.view)
    assert [(owner.kind, owner.remark) for owner in picture.owners] == [
        ("exclusive", ""),
        ("pod shared", "6-7 promised, 8-9 growth"),
    ]
    assert to_svg(picture).count('class="grown"') > to_svg(grown("4")).count('class="grown"')


# What every viewer shows

SHAPES = {f"{SVG}{name}" for name in ("rect", "text", "path")}


def every_picture() -> list[Picture]:
    """A busy node with patterns, growth and pod-level resources; devices; CPU classes; a refused pod."""
    refusing = picture_of(busy_node(8).view).refusing(("default/x is refused",), {0: [Want("Needs 9 CPUs", True)]})
    return [picture_of(busy_node(512).view), picture_of(managed_node().view), grown(), refusing]


def test_colours_are_plain_attributes() -> None:
    """Every shape has its colour without a style sheet: viewers that read none would draw it black."""
    for picture in every_picture():
        text = to_svg(picture)
        assert "var(" not in text
        for shape in ElementTree.fromstring(text).iter():
            if shape.tag in SHAPES:
                assert "fill" in shape.attrib, ElementTree.tostring(shape)
                assert "style" not in shape.attrib


def test_the_style_sheet_only_adds_dark_paper() -> None:
    """It is one rule for readers that prefer dark, and names only classes that the drawing's parts have."""
    sheet = re.search(r"<style>(.*?)</style>", to_svg(every_picture()[0]), re.DOTALL)
    assert sheet is not None
    assert sheet[1].startswith("@media (prefers-color-scheme:dark){")
    assert set(re.findall(r"\.podslice \.([\w-]+)", sheet[1])) <= set(MARKS)


@pytest.mark.parametrize("width", [NARROW, 680, 1240])
@pytest.mark.parametrize("name", ["epyc-9654-nps4", "laptop-i5-8250u", "power9-ac922"])
def test_texts_stay_in_their_boxes(name: str, width: float) -> None:
    """Whatever the width, no text begins or ends outside the page, and none in a NUMA node leaves its box."""
    node = Node(load_gallery(name), KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0"))
    basis = ("Machine: a name that is long enough for several lines on a telephone, and on a screen too " * 3,)
    picture = picture_of(node.view, basis=basis)
    root = ElementTree.fromstring(to_svg(picture, width=width))
    assert float(root.attrib["width"]) == width
    for text in root.iter(f"{SVG}text"):
        size, x = float(text.attrib["font-size"]), float(text.attrib["x"])
        middle = text.attrib.get("text-anchor") == "middle"
        long = text_width(text.text or "", size, bold="font-weight" in text.attrib)
        left = x - long / 2 if middle else x
        assert left >= 0
        assert left + long <= width, text.text
    for socket in lay_out(picture, 50, width).sockets:
        for box in socket.nodes:
            assert box.place.x + box.place.width <= width
            assert all(cell.x + 15 <= box.place.x + box.place.width for cell in box.cells)


@pytest.mark.parametrize("name", gallery_names())
def test_numbers_are_readable_on_a_telephone(name: str) -> None:
    """In the narrow drawing the numbers in the squares are at least eight pixels high, and the squares in their box."""
    layout = lay_out(picture_of(Node(load_gallery(name), KubeletConfig()).view), 50, NARROW)
    assert layout.digits >= 8
    for socket in layout.sockets:
        for node in socket.nodes:
            assert all(cell.x + layout.cell <= node.place.x + node.place.width for cell in node.cells)


def test_a_long_list_of_cpus_is_cut_in_its_box() -> None:
    """Single CPUs on every second place make a list that no box holds; its end is marked."""
    text = "CPUs " + ",".join(map(str, range(0, 128, 2)))
    cut = cut_text(text, 300)
    assert cut.endswith("…")
    assert text_width(cut) <= 300
    assert cut_text("CPUs 0-3", 300) == "CPUs 0-3"


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[2] / "docs").glob("*.svg")), ids=lambda path: path.name)
def test_pictures_of_the_documents_need_no_style_sheet(path: Path) -> None:
    """Every shape has a colour of its own or of the group around it, and there is paper behind it: light, or a
    terminal's."""
    root = ElementTree.parse(path).getroot()
    assert "var(" not in path.read_text()
    coloured = {shape for parent in root.iter() if "fill" in parent.attrib for shape in parent.iter()}
    shapes = [shape for shape in root.iter() if shape.tag in SHAPES | {f"{SVG}circle"}]
    assert [shape for shape in shapes if shape not in coloured and "stroke" not in shape.attrib] == []
    assert [shape for shape in shapes if "style" in shape.attrib] == []
    assert shapes[0].tag == f"{SVG}rect"
    light = shapes[0].attrib["fill"] in ("#fff", "#ffffff")
    assert light != (path.name == "why.svg")
