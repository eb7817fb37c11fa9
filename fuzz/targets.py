"""Fuzz targets: bytes from outside that must end in an answer or a typed error.

`python -m fuzz.run state 600` runs a target coverage-guided for ten minutes (needs atheris). Finds go to
tests/corpus/<target>/ and run with the tests from then on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from google.protobuf.message import DecodeError

from fuzz.fleets import FLEETS
from fuzz.packed import PACKED
from fuzz.readers import CONFIG, MACHINE, READERS
from podslice import PodsliceError
from podslice.agent.kubelet.knownpods import KnownPods
from podslice.agent.kubelet.sources import pod_from_annotation, pod_from_container
from podslice.agent.runtime.protobuf_pods import known_from, pod_message
from podslice.agent.runtime.translate import applied_pinning, limits_of, pinning_in_environment, variables_of
from podslice.agent.runtime.ttrpc import (
    FrameDecoder,
    MessageDecoder,
    RPCError,
    WireError,
    decode_request,
    decode_response,
)
from podslice.api.manifests.manifest import load_pods_text
from podslice.cluster.apiclient import Binding, ObjectPage, read_changes
from podslice.cluster.extender.extender import Extender
from podslice.cluster.extender.messages import MessageError, read_bind
from podslice.cluster.journal.callers import CallerError, TokenCallers
from podslice.cluster.model.model import ClusterModel
from podslice.cluster.page.app import ClusterPage
from podslice.cluster.page.queries import ClusterQueries
from podslice.cluster.placements import PlacementEvents, Placements
from podslice.host.filesystem import MemoryFileSystem
from podslice.host.kernel.cgroup2 import cgroup_path
from podslice.isolation.kernel_facts import interrupt_counts
from podslice.machine.model import CPUTopology
from podslice.node.checkpoints import guard_state
from podslice.node.checkpoints.guard_files import schemata_in
from podslice.node.checkpoints.releases import Release
from podslice.node.checkpoints.restore import restore_cpu_state, restore_memory_state, validate_cpu_state
from podslice.node.node import Node
from podslice.service.answers import ApiError, GoneError, ObjectChange, read_change
from podslice.service.clusterobjects import read_node, read_pod
from podslice.service.http.guard import Request
from podslice.service.http.lines import LineCutter, LongLineError
from podslice.service.identity import Identity, check_container, identity_of
from podslice.service.podlist import ChangeReader, decode_list, read_known_pod
from podslice.service.proto import nri_pb2
from podslice.state_files.consequence import NodeFacts, start_consequence
from podslice.state_files.guards import repair_guards
from podslice.state_files.promises import repair_promises
from podslice.state_files.repair import repair_cpu
from podslice.state_files.repair_memory import repair_memory
from podslice.state_files.verify import verify
from podslice.values.errors import InputError
from podslice.values.go.gojson import CheckpointError

TOPOLOGY = CPUTopology(MACHINE)


def state(data: bytes) -> None:
    """A state file of any kind, through every reader."""
    facts = NodeFacts(machine=MACHINE)
    verify(data, facts)
    for pod_level in (False, True):
        for trust_zero in (False, True):
            try:
                cpu = restore_cpu_state(
                    data, policy_name="static", pod_level=pod_level, containers={}, path="x", trust_zero=trust_zero
                )
                validate_cpu_state(cpu, TOPOLOGY, reserved=1, strict=False, pod_level=pod_level)
            except PodsliceError:
                pass
            with contextlib.suppress(PodsliceError):
                restore_memory_state(data, policy_name="Static", pod_level=pod_level, path="x", trust_zero=trust_zero)
    for target in (Release(36), Release(37, True)):
        for repair in (repair_cpu, repair_memory):
            with contextlib.suppress(InputError):
                repair(data, target, facts, None)
        start_consequence(data, "cpu", target, facts)
        start_consequence(data, "memory", target, facts)
        start_consequence(data, "device", target, facts)
    with contextlib.suppress(InputError):
        repair_promises(data, None)


def pods(data: bytes) -> None:
    """A manifest, through the loader and an admission of every pod in it."""
    try:
        loaded = load_pods_text(data.decode("utf-8", errors="replace"), "fuzz", validate=len(data) % 2 == 0)
        node = Node(MACHINE, CONFIG)
        for pod in loaded[:5]:
            node.admit(pod.pod)
    except PodsliceError:
        pass


def wire(data: bytes) -> None:
    """Bytes from the runtime, through the multiplexer, ttrpc and the message decoders."""
    frames, messages = FrameDecoder(), MessageDecoder()
    try:
        step = max(7, len(data) // 16)
        for start in range(0, len(data), step):
            for _, payload in frames.feed(data[start : start + step]):
                for message in messages.feed(payload):
                    _call(message.body)
    except WireError:
        pass
    _call(data)


def _call(body: bytes) -> None:
    with contextlib.suppress(WireError, RPCError):
        decode_response(body)
    try:
        call = decode_request(body)
    except WireError:
        return
    for kind in (nri_pb2.SynchronizeRequest, nri_pb2.CreateContainerRequest, nri_pb2.StateChangeEvent):
        with contextlib.suppress(DecodeError):
            message = kind.FromString(call.payload)
            if isinstance(message, nri_pb2.CreateContainerRequest):
                _created(message)


def _created(request: nri_pb2.CreateContainerRequest) -> None:
    """Read a container as the agent does before it decides anything."""
    for read in (
        applied_pinning,
        limits_of,
        check_container,
        lambda container: pinning_in_environment(variables_of(container)),
    ):
        with contextlib.suppress(InputError):
            read(request.container)
    with contextlib.suppress(InputError):
        cgroup_path(request.container.linux.cgroups_path)
    with contextlib.suppress(InputError):
        identity = identity_of(request.pod)
        pod_from_container(identity, request.container)
        pod_from_annotation(identity)


def guards(data: bytes) -> None:
    """The file of what guards have changed, whose reader writes to the files that it names; and what a kernel says of
    interrupts and caches."""
    with contextlib.suppress(CheckpointError):
        for one in guard_state.load(data).files:
            assert one.path.startswith(("proc/", "sys/"))
            assert ".." not in one.path.split("/")
    mended = repair_guards(data).data
    assert verify(mended, NodeFacts())[1] == []
    assert repair_guards(mended).remarks == []
    text = data.decode("utf-8", errors="replace")
    schemata_in(text)
    interrupt_counts(MemoryFileSystem({"interrupts": text}))


def api(data: bytes) -> None:
    """An API server's or a kubelet's answer: a list, a watch and a pod, and what is then known of the pods."""
    known = KnownPods()
    step = max(1, len(data) // 3)
    for chunks in ([data], [data[start : start + step] for start in range(0, len(data), step)]):
        with contextlib.suppress(ApiError):
            known.replace(decode_list(chunks, "node").pods)
    with contextlib.suppress(ApiError, GoneError):
        for change in ChangeReader("node").feed(data):
            if change.pod is not None:
                known.put(change.pod)
    with contextlib.suppress(ApiError):
        known.put(read_known_pod(data, "node"))
    with contextlib.suppress(ApiError):
        known.put(known_from(pod_message(data)))
    for pod in list(known):
        for uid in (pod.uid, pod.mirror_of):
            with contextlib.suppress(InputError):
                known.find(Identity(uid, pod.namespace, pod.name, {}))
        known.drop(pod.uid)
    assert (len(known), known.size) == (0, 0)


def extender(data: bytes) -> None:
    """A scheduler's request, through every verb of a service that knows no node and of one that knows one; a change of
    the API server's, and its answer about a token."""
    for placements in (_empty(), _placements()):
        _asked(data, placements)
    with contextlib.suppress(ApiError, GoneError, LongLineError):
        for line in LineCutter(1 << 20).feed(data + b"\n"):
            read_changes(line)

    async def answer(path: str, body: bytes) -> bytes:
        return data

    with contextlib.suppress(CallerError):
        assert asyncio.run(TokenCallers(answer, {"agent"}).find_node("token"))


def _asked(data: bytes, placements: Placements) -> None:
    asked = Extender(placements, NoApi(), ahead={}, send=_ignore, watch=_ignore)
    for verb in (asked.filter, asked.prioritize, asked.preempt):
        answer = verb(data)
        assert not isinstance(answer, Awaitable)
        assert answer.status in (200, 400)
    with contextlib.suppress(MessageError):
        placements.bind(read_bind(data))
    for read in (read_change, read_node):
        with contextlib.suppress(ApiError, GoneError):
            read(data)
    with contextlib.suppress(ApiError):
        pod = read_pod(data)
        placements.pod_changed(None, pod)
        placements.can_nominate(pod)
        placements.pod_changed(pod, None)


def page(data: bytes) -> None:
    """A request of the cluster's page, any method and path of it, to a service that knows one node."""
    text = data.decode("utf-8", errors="replace")
    first, _, body = text.partition("\n")
    path, _, query = first.partition("?")
    headers = {"host": "localhost", "x-podslice": "1", "if-none-match": query[:40]}
    for method, where in (("GET", "/" + path), ("POST", "/fit"), ("GET", "/fit"), ("GET", "/node"), ("GET", "/nodes")):
        sent = body.encode() if method == "POST" else b""
        answer = PAGE.respond(Request(method, where, query, headers, sent))
        assert answer.status in (200, 303, 304, 403, 404, 405, 422)


def _ignore(*told: object, **more: object) -> None: ...


def _empty() -> Placements:
    return Placements(ClusterModel(), PlacementEvents(), schedulers=frozenset({"podslice"}), clock=lambda: 0.0)


def _placements() -> Placements:
    """Of a service that knows one node."""
    placements = _empty()
    placements.node_changed(None, read_node(b'{"metadata":{"name":"n0"}}'))
    placements.model.add_node("n0", KNOWN.rules, KNOWN.state)
    return placements


def _page() -> ClusterPage:
    return ClusterPage(ClusterQueries(_placements(), "fuzz"), asyncio.run, token=str)


KNOWN = Node(MACHINE, CONFIG)
PAGE = _page()


class NoApi:
    """An API server that is never asked."""

    async def page(self, path: str, selector: str, more: str) -> ObjectPage:
        raise ApiError("away")

    async def watch(self, path: str, selector: str, version: str) -> AsyncIterator[ObjectChange]:
        raise ApiError("away")
        yield

    async def bind(self, binding: Binding) -> None:
        raise ApiError("away")

    async def nominate(self, namespace: str, name: str, uid: str, node: str) -> None:
        raise ApiError("away")

    async def evict(self, namespace: str, name: str, uid: str, *, dry_run: bool) -> None:
        raise ApiError("away")

    async def wake(self, node: str, value: str) -> None:
        raise ApiError("away")

    async def create_event(self, event: dict[str, Any]) -> None:
        raise ApiError("away")

    async def remove_node_state(self, node: str) -> None:
        raise ApiError("away")


TARGETS: dict[str, Callable[[bytes], None]] = {
    "state": state, "guards": guards, "pods": pods, "wire": wire, "api": api, "extender": extender, "page": page,
    **READERS, **FLEETS, **PACKED,
}  # fmt: skip
