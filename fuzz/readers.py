"""Readers that are fuzzed: text and bytes from files, archives, annotations and HTTP clients."""

from __future__ import annotations

import contextlib
import os
import threading
from io import BytesIO
from typing import Any

from msgspec.structs import replace

from podslice import KubeletConfig, PodsliceError
from podslice.advise.defrag.moves import inverse, read_request, read_result, undo_request
from podslice.agent.dra.cdi import VARIABLE, read_claimed_devices, short, variable
from podslice.agent.kubelet.sources import pod_from_annotation, with_annotation
from podslice.agent.runtime.protobuf_pods import known_from, pod_message
from podslice.agent.settings import settings_from_dict
from podslice.api.pod.resource_names import container_name_problems, hugepage_size
from podslice.api.pod.spec import Pod, pod_from_dict
from podslice.config.annotations import (
    CPU_CLASS,
    LONGEST_DELAY,
    MIXED,
    MOVABLE,
    RESIZE,
    ResizeRequest,
    annotation_problems,
    container_movability,
    mixed_shares,
    requested_classes,
    requested_resize,
)
from podslice.config.carriers.recognize import read_document
from podslice.config.kubelet_file import config_from_dict
from podslice.config.policy import CPUClass, Defragmentation, ExclusiveResize, MixedCPUs, PodslicePolicy
from podslice.config.policy_file import policy_from_dict
from podslice.config.validation import validate
from podslice.evidence.pod_resources import read_pod_resources
from podslice.host.discover import discover_snapshot
from podslice.host.machine_files import parse_machine
from podslice.machine.devices import inventory_from_data
from podslice.machine.model import CPUTopology, Machine
from podslice.machine.readers.hwloc_xml import from_hwloc_xml
from podslice.machine.readers.machineinfo import from_machineinfo
from podslice.machine.readers.synthetic import from_synthetic
from podslice.machine.readers.synthetic_text import looks_synthetic
from podslice.node.effects.huge_pages import page_size_of
from podslice.node.holding import Digest
from podslice.node.node import Node
from podslice.reading.yaml import Positions, load_documents
from podslice.replica.events import Stamped
from podslice.replica.journal import Journal
from podslice.replica.nodestate import read_node_state
from podslice.replica.replica import Replica
from podslice.replica.rulebook import Rulebook
from podslice.replica.stream_messages import Beat, decode_down, decode_up
from podslice.serve.app import App, ShownNode
from podslice.service.http.page_server import Handler
from podslice.service.identity import RESOURCES_ANNOTATION, Identity
from podslice.values.quantity import Quantity, QuantityError

MACHINE = from_synthetic("pack:2 numa:1(memory=8GiB) core:4 pu:2")
CONFIG = KubeletConfig(
    cpu_manager_policy="static",
    reserved_system_cpus="0",
    topology_manager_policy="restricted",
    feature_gates={"PodLevelResourceManagers": True},
    eviction_hard={},
)
TOKEN = "0123456789abcdef"
_LISTENING = PodslicePolicy(
    resize=ExclusiveResize(exclusive=True),
    defrag=Defragmentation(carry_out="onRequest"),
    cpu_classes=(CPUClass("performance"),),
    mixed=MixedCPUs(free=1),
)


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")


def _documents(data: bytes) -> list[Any]:
    with contextlib.suppress(PodsliceError):
        return load_documents(_text(data), "fuzz")
    return []


def yaml(data: bytes) -> None:
    """Any YAML or JSON, and the places of what was read."""
    documents = _documents(data)
    if documents:
        positions = Positions(_text(data).removeprefix("\ufeff"))
        positions.find(0, "spec.containers[0].name")


def config(data: bytes) -> None:
    """Kubelet and agent configurations."""
    for document in _documents(data):
        if isinstance(document, dict):
            with contextlib.suppress(PodsliceError):
                validate(config_from_dict(document).config)
            with contextlib.suppress(PodsliceError):
                settings_from_dict(document)


def carrier(data: bytes) -> None:
    """A configuration wherever a platform keeps it: objects, units, command lines."""
    with contextlib.suppress(PodsliceError):
        validate(config_from_dict(read_document(_text(data)).data).config)


def podresources(data: bytes) -> None:
    """What a kubelet's PodResources API answered, as JSON."""
    with contextlib.suppress(PodsliceError):
        read_pod_resources(data, "fuzz")


def devices(data: bytes) -> None:
    """A file of `--devices`."""
    for document in _documents(data):
        with contextlib.suppress(PodsliceError):
            inventory_from_data(document, source="fuzz")


def _use(machine: Machine) -> None:
    CPUTopology(machine)


def machine(data: bytes) -> None:
    """A machine as text in any form."""
    with contextlib.suppress(PodsliceError):
        _use(parse_machine(_text(data), source="fuzz"))


def machineinfo(data: bytes) -> None:
    """cAdvisor's MachineInfo."""
    for document in _documents(data):
        if isinstance(document, dict):
            with contextlib.suppress(PodsliceError):
                _use(from_machineinfo(document, "fuzz"))


def hwloc(data: bytes) -> None:
    """hwloc's XML."""
    with contextlib.suppress(PodsliceError):
        _use(from_hwloc_xml(_text(data), "fuzz"))


def listing(data: bytes) -> None:
    """Read a listing as lscpu, numactl, lstopo, kubectl describe and nvidia-smi print it, or nearly."""
    with contextlib.suppress(PodsliceError):
        _use(parse_machine(_text(data)))


def synthetic(data: bytes) -> None:
    """A synthetic description."""
    text = _text(data)
    looks_synthetic(text)
    with contextlib.suppress(PodsliceError):
        _use(from_synthetic(text))


def snapshot(data: bytes) -> None:
    """A captured machine as an archive."""
    descriptor = os.memfd_create("fuzz")
    try:
        os.write(descriptor, data)
        os.lseek(descriptor, 0, os.SEEK_SET)
        with contextlib.suppress(PodsliceError):
            _use(discover_snapshot(f"/proc/self/fd/{descriptor}"))
    finally:
        os.close(descriptor)


def quantity(data: bytes) -> None:
    """Two amounts and a resource name: everything that is done with them."""
    first, _, second = _text(data).partition("\n")
    amounts = []
    for text in (first, second):
        page_size_of(f"hugepages-{text}")
        hugepage_size(f"hugepages-{text}")
        container_name_problems(text)
        with contextlib.suppress(QuantityError):
            amounts.append(Quantity.parse(text))
    for one in amounts:
        one.value(), one.milli_value(), one.as_int64(), one.overflows(-3)
        str(one), one.decimal_text(), one.round_up_milli().canonical()
        if not one.overflows():
            assert Quantity.parse(one.canonical()) == one
        for other in amounts:
            assert one.add(other).sub(other) == one
            one < other  # noqa: B015


def annotation(data: bytes) -> None:
    """The annotation of a pod, and the admission of what it describes."""
    identity = Identity("u", "ns", "p", {RESOURCES_ANNOTATION: _text(data)}, "")
    with contextlib.suppress(PodsliceError):
        with_annotation(pod_from_dict({"metadata": {"uid": "u"}, "spec": {"containers": [{"name": "c"}]}}), identity)
        pod = pod_from_annotation(identity)
        if pod is not None:
            Node(MACHINE, CONFIG, predicates=False).admit(pod)


def policy(data: bytes) -> None:
    """A PodslicePolicy, and a node that decides under it."""
    for document in _documents(data):
        if isinstance(document, dict):
            with contextlib.suppress(PodsliceError):
                read = policy_from_dict(document)
                Node(MACHINE, CONFIG, predicates=False, policy=read).admit(_annotated("true"))


def requests(data: bytes) -> None:
    """Annotations with which a pod asks a policy for exceptions: wrong ones have no effect."""
    pod = _annotated(_text(data))
    wrong = {one.key for one in annotation_problems(_LISTENING, pod)}
    asked, moves = requested_resize(_LISTENING, pod), container_movability(_LISTENING, pod)
    assert RESIZE not in wrong or asked == ResizeRequest()
    assert MOVABLE not in wrong or set(moves.values()) == {"false"}
    classes = requested_classes(_LISTENING, pod)
    assert CPU_CLASS not in wrong or not classes
    assert {name.removesuffix("!") for name in classes.values()} <= {"performance", "isolated"}
    assert all(0 <= delay <= LONGEST_DELAY for delay in asked.delays.values())
    shares = mixed_shares(_LISTENING, pod)
    assert MIXED not in wrong or not shares
    assert all(one.exclusive >= 1 and 1000 * one.exclusive + one.remainder == 2500 for one in shares.values())


def moves(data: bytes) -> None:
    """Read requests to an agent for moves, and results that are undone; undoing twice gives the moves again."""
    for one in _documents(data):
        if isinstance(one, dict):
            with contextlib.suppress(PodsliceError):
                read_request(one)
            with contextlib.suppress(PodsliceError):
                back = undo_request(read_result(one))
                assert [inverse(inverse(move)) for move in back.moves] == list(back.moves)


def _annotated(text: str) -> Pod:
    amounts = {"cpu": "2500m", "memory": "1Mi"}
    resources = {"requests": amounts, "limits": amounts}
    containers = [{"name": "c", "resources": resources}, {"name": "shrink-delay", "resources": resources}]
    metadata = {"uid": "u", "annotations": {RESIZE: text, MOVABLE: text, CPU_CLASS: text, MIXED: text}}
    return pod_from_dict({"metadata": metadata, "spec": {"containers": containers}})


_RULEBOOK = Rulebook(kept=1)
_FOLLOWED = Node(MACHINE, CONFIG)
_TOLD = Journal(_FOLLOWED.rules, _FOLLOWED.state, epoch=1, version="fuzz").whole_state()


def journal(data: bytes) -> None:
    """Pass messages of agents and of the service, and NodeState objects, through a replica."""
    for read in (decode_up, decode_down):
        with contextlib.suppress(PodsliceError):
            _hear(read(data))
    with contextlib.suppress(PodsliceError):
        told = read_node_state(data).state
        if told is not None:
            _hear(told)


def _hear(message: object) -> None:
    """In a replica that follows the node already; none of it may raise, and what was proven stays so."""
    replica = Replica(_RULEBOOK, {"fuzz"})
    replica.apply(_TOLD)
    assert replica.proven
    if isinstance(message, Stamped):
        for stamped in (message, replace(message, epoch=1, sequence=1)):
            replica.apply(stamped)
    elif isinstance(message, Beat):
        replica.matches(message.epoch, message.sequence, Digest(message.allocation, message.named))
    assert replica.proven == (replica.state is not None and replica.missing is None)


class _Connection:
    """The part of a socket that the HTTP handler uses."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def makefile(self, mode: str, _: int = -1) -> BytesIO:
        return BytesIO(self.data)

    def settimeout(self, _: float) -> None: ...

    def sendall(self, _: bytes) -> None: ...


class _Server:
    """The part of the server that the HTTP handler uses."""

    def __init__(self, token: str) -> None:
        shown = ShownNode(Node(MACHINE, CONFIG))
        self.app = App(lambda: shown, lambda: "fixed", token=token)
        self.turns = threading.BoundedSemaphore()
        self.patience_seconds = 0.0

    def prove(self, request: object) -> None:
        """Nobody is hung up on here."""


_SERVERS = [_Server(""), _Server(TOKEN)]


def request(data: bytes) -> None:
    """Bytes of an HTTP client, with and without a token."""
    for server in _SERVERS:
        with contextlib.suppress(OSError):
            Handler(_Connection(data), ("127.0.0.1", 1), server)  # type: ignore[arg-type]
        assert server.turns.acquire(blocking=False)
        server.turns.release()


def podsapi(data: bytes) -> None:
    """A pod of the kubelet's Pods API: what is known of it is what its JSON would say."""
    with contextlib.suppress(PodsliceError):
        known = known_from(pod_message(data))
        known.pod()


def cdi(data: bytes) -> None:
    """A container's environment: only variables that CDI files of ours write name devices of claims."""
    environment = data.decode("utf-8", "replace").split("\n")
    names = {one.partition("=")[0] for one in environment}
    for claimed in read_claimed_devices(environment):
        assert short(claimed.claim) == claimed.claim
        assert names & {variable(claimed.claim, claimed.index), f"{VARIABLE}{claimed.claim}_{claimed.index:02}"}


READERS = {
    "listing": listing,
    "requests": requests,
    "annotation": annotation,
    "carrier": carrier,
    "cdi": cdi,
    "config": config,
    "devices": devices,
    "hwloc": hwloc,
    "journal": journal,
    "machine": machine,
    "machineinfo": machineinfo,
    "moves": moves,
    "podresources": podresources,
    "podsapi": podsapi,
    "policy": policy,
    "quantity": quantity,
    "request": request,
    "snapshot": snapshot,
    "synthetic": synthetic,
    "yaml": yaml,
}
