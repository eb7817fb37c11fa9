"""The agent's configuration file.

    apiVersion: podslice.io/v1alpha1
    kind: AgentConfiguration
    resources:                       # a KubeletConfiguration: policies, reservations, gates
      cpuManagerPolicy: static
      reservedSystemCPUs: 0-1
    sources: {apiServer: true, manifests: /etc/kubernetes/manifests}

The kubelet beside the agent runs with its own managers off; `resources` is the configuration they would have had.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import msgspec

from podslice.api.pod.names import label_problems
from podslice.config.kubelet import KubeletConfig
from podslice.config.kubelet_file import config_from_fields, load_config_data
from podslice.config.policy import NO_POLICY, PodslicePolicy, check_policy
from podslice.config.policy_file import allowed_values, load_policy, policy_from_dict
from podslice.config.validation import validate
from podslice.service.http.access import is_loopback, parse_address
from podslice.values.decoding import decoding_problem, with_value
from podslice.values.errors import InputError, did_you_mean
from podslice.values.fields import known_fields
from podslice.values.quirks import PROFILE_NAMES, PROFILE_RELEASES, PROFILES, profile_for
from podslice.values.releases.release import Release
from podslice.values.releases.table import RELEASES

API_VERSION = "podslice.io/v1alpha1"
KIND = "AgentConfiguration"
AUTO = "auto"
_SYSTEM_ROOTS = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/sbin", "/sys", "/usr")
_SYSTEM = frozenset(
    (*_SYSTEM_ROOTS, "/", "/home", "/media", "/mnt", "/opt", "/root", "/run", "/srv", "/tmp", "/var", "/var/cache")
) | frozenset(f"/var/{name}" for name in ("lib", "log", "run", "spool", "tmp", "lib/kubelet", "lib/containerd"))
_SERVICE = re.compile(r"([0-9a-zA-Z.-]{1,253}|\[[0-9a-fA-F:.]{2,45}\]):[0-9]{1,5}\Z")


class KubeletSettings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How to read `/pods` of the kubelet beside the agent.

    `address`: empty for the environment variable NODE_IP or 127.0.0.1. `token_file`: of a service account that may get
    `nodes/pods`. `ca_file`: the authority behind the kubelet's serving certificate, or that certificate itself; empty
    for the system's. `server_name`: the name in the certificate where it is not the address; `$(NODE_NAME)` in it is
    the node's. `insecure_skip_tls_verify`: do not verify the certificate; a process that takes the kubelet's port first
    then gets the token and decides which pods the agent sees. `every_seconds`: interval between two reads of the list.
    """

    address: str = ""
    port: int = 10250
    token_file: str = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    ca_file: str = ""
    server_name: str = ""
    insecure_skip_tls_verify: bool = msgspec.field(name="insecureSkipTLSVerify", default=False)
    every_seconds: float = 10.0


class SourceSettings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Sources of pod specifications, asked in this order.

    `annotation`: whether `podslice.io/resources` counts, in which authors of pods set pod-level resources themselves;
    null: only where no other source is configured.

    `api_server`: watch this node's pods (in-cluster service account or kubeconfig). `node_name`: empty for the
    environment variable NODE_NAME or the host name. `manifests`: directory of static pods, empty for none. `kubelet`:
    read the list of the kubelet beside the agent. `wait_seconds`: how long the sandbox of a pod may wait until a source
    knows the pod.

    `pods_api`: follow the kubelet's local Pods API at `pods_api_socket`: `auto` while it is served there, `on` always,
    `off` never.
    """

    api_server: bool = False
    node_name: str = ""
    manifests: str = ""
    kubelet: KubeletSettings | None = None
    wait_seconds: float = 0.8
    annotation: bool | None = None
    pods_api: bool | str = msgspec.field(name="podsAPI", default="auto")
    pods_api_socket: str = msgspec.field(name="podsAPISocket", default="/var/lib/kubelet/pods-api/pods-api.sock")

    @property
    def pods_api_required(self) -> bool:
        return self.pods_api in ("on", True)

    @property
    def pods_api_off(self) -> bool:
        return self.pods_api in ("off", False)

    @property
    def others(self) -> bool:
        """Whether there is a source that pod authors do not control."""
        return bool(self.api_server or self.manifests or self.kubelet is not None or self.pods_api_required)

    @property
    def annotation_counts(self) -> bool:
        """Whether the annotation counts: by default only where scheduler, quotas and node have no say."""
        return not self.others if self.annotation is None else self.annotation


class ClusterSettings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Recipients of this node's events, so that a scheduler knows what the node will decide
    (docs/cluster-scheduler.md).

    `services`: HOST:PORT of `podslice cluster`, every address of the name; none for the NodeState object alone.
    `token_file`: of the agent's service account, for the audience `podslice-cluster`. `ca_file`: the authority behind
    the services' certificates, empty for the system's; `server_name`: the name in them where it is not that of
    `services`. `plan`: `compare` decides independently and reports whether that is what was planned, `honour` gives a
    pod what was planned where that is free and no worse. `checkpoint`: keep the node's NodeState object (needs
    `sources.apiServer`). `kubelet_directory`: with `--observe` (and `sources.apiServer`), the folder with the state
    files of a deciding kubelet.
    """

    services: tuple[str, ...] = ()
    token_file: str = "/var/run/secrets/podslice-cluster/token"
    ca_file: str = ""
    server_name: str = ""
    plan: str = "compare"
    checkpoint: bool = True
    kubelet_directory: str = "/var/lib/kubelet"


NUMAOrder: TypeAlias = Literal["numaNode", "mostFree", "leastFree"]


class DRASettings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The driver for claims of CPUs and memory (docs/dra.md); what of the node is for claims is in the policy.

    `plugins` and `plugins_registry`: the kubelet's folders for plugins and their registration, `kubelet_state` its list
    of claims. `cdi`: where the runtime looks for CDI files that are made while it runs. `accounting`: the scheduler
    counts claims with the requests of pods (gate DRANodeAllocatableResources of API server, scheduler and kubelets).
    `numa_list`: devices have the standard attribute of their NUMA node as a list of near ones (KEP-6072), for clusters
    with the gate DRAListTypeAttributes. `order`: which NUMA node kube-scheduler takes first for claims that do not say:
    the lowest, or that with the most or the fewest CPUs left; each claim is then a writing of the slice.
    """

    plugins: str = "/var/lib/kubelet/plugins"
    plugins_registry: str = "/var/lib/kubelet/plugins_registry"
    kubelet_state: str = "/var/lib/kubelet/dra_manager_state"
    cdi: str = "/var/run/cdi"
    accounting: bool = False
    numa_list: bool = False
    order: NUMAOrder = "numaNode"


class AgentSettings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """All settings of the agent. Paths are the host's, times are in seconds; an empty address or socket is off.

    `kubernetes`: the release whose kubelet decides, such as 1.34; `auto`: that of the kubelet beside the agent, by its
    Node object (needs `sources.apiServer`); empty: that of a profile which names one, else `auto`.

    `strangers`: `move` puts containers of unknown origin on the shared pool, `report` only reports them. `limits`:
    `repair` restores a container's quota and memory limit after another program changed them, `report` only reports it,
    for nodes where something else sets them on purpose. `status_address`: where `kubectl podslice` reads the node's
    containers, a loopback address unless clients have to send the token in `status_token_file`. `container_files`: the
    folder with a file per container, mounted into it. `device_plugins`: the folder with the registration socket; leave
    it empty while the kubelet's device manager serves the plugins. `refusals`: `fail` marks a refused pod Failed, as a
    kubelet does (needs `sources.apiServer`); `hold` leaves it Pending until there is room.

    `pod_resources_upstream`: the kubelet's own PodResources socket, whose answers are completed; the same path as
    `pod_resources_socket` to stand in its place. `policy`: what is done beyond a kubelet, a PodslicePolicy or the path
    of its file. `cluster`: recipients of the node's events; null for none. `node_resource_topology`: keep the node's
    NodeResourceTopology object, `own` as the only writer, `merge` beside others, `off` (needs `sources.apiServer`).
    `namespace`: of the agent's Lease (docs/agent.md), for an agent outside a pod; in a pod the service account's
    counts. `dra`: serve claims of CPUs and memory (needs `sources.apiServer`, and `claims` in the policy); null for not
    at all.
    """

    resources: dict[str, Any] = {}
    policy: str | dict[str, Any] = ""
    profile: str = "podslice"
    kubernetes: str = ""
    sources: SourceSettings = SourceSettings()
    nri_socket: str = "/var/run/nri/nri.sock"
    plugin_name: str = "podslice"
    plugin_index: str = "90"
    state_directory: str = "/var/lib/podslice"
    container_files: str = "/run/podslice/containers"
    status_socket: str = "/run/podslice/agent.sock"
    metrics_address: str = "127.0.0.1:9095"
    status_address: str = ""
    status_token_file: str = ""
    pod_resources_socket: str = "/run/podslice/pod-resources.sock"
    pod_resources_upstream: str = ""
    device_plugins: str = ""
    cgroup_root: str = "/sys/fs/cgroup"
    reconcile_seconds: float = 10.0
    strangers: str = "move"
    limits: str = "repair"
    refusals: str = "fail"
    events: bool = True
    cluster: ClusterSettings | None = None
    node_resource_topology: str | bool = "off"
    namespace: str = "podslice"
    dra: DRASettings | None = None

    @property
    def follows_kubelet(self) -> bool:
        """Whether the release is that of the kubelet beside the agent."""
        return self.kubernetes == AUTO or (not self.kubernetes and self.profile == "podslice")

    @property
    def fixed_profile(self) -> str:
        """The profile that decides where no kubelet's version is known. Raises `InputError` for a release that is not
        known, or not the profile's."""
        named = self.kubernetes and self.kubernetes != AUTO
        return profile_for(self.profile, self.kubernetes) if named else self.profile

    @property
    def writes_topology(self) -> bool:
        """Whether the node's NodeResourceTopology object is kept."""
        return self.node_resource_topology in ("own", "merge")

    @property
    def stands_in(self) -> bool:
        """Whether clients that look for the kubelet's PodResources socket find ours."""
        ours, kubelets = self.pod_resources_socket, self.pod_resources_upstream
        return bool(kubelets) and os.path.realpath(ours) == os.path.realpath(kubelets)

    def address(self) -> tuple[str, int] | None:
        """Return host and port of the metrics listener, None when it is off. Raises `InputError`."""
        return parse_address(self.metrics_address, "metricsAddress", "127.0.0.1:9095")

    def status_listener(self) -> tuple[str, int] | None:
        """Return host and port of the status listener, None when it is off. Raises `InputError`, also for an address
        from which every client could read the node without a token."""
        found = parse_address(self.status_address, "statusAddress", "127.0.0.1:9096")
        if found is not None and not self.status_token_file and not is_loopback(found[0]):
            raise InputError(
                f"{found[0]} is not a loopback address, every client that reaches it could read this node",
                path="statusAddress",
                remedy="write 127.0.0.1:9096, or give statusTokenFile as well",
            )
        return found


class LoadedSettings(msgspec.Struct, frozen=True):
    """The settings, the managers' configuration in them, and warnings about the file."""

    agent: AgentSettings
    config: KubeletConfig
    policy: PodslicePolicy = NO_POLICY
    warnings: tuple[str, ...] = ()


def load_settings(path: str) -> LoadedSettings:
    """Read an AgentConfiguration file. Raises `InputError` in one line with the place."""
    try:
        return settings_from_dict(load_config_data(path, KIND))
    except InputError as error:
        raise error.at(source=path) from None


def settings_from_dict(data: dict[str, Any]) -> LoadedSettings:
    """Return the settings of an AgentConfiguration in plain data. Raises `InputError`."""
    if data.get("apiVersion") != API_VERSION or data.get("kind") != KIND:
        found = f"{data.get('apiVersion')}/{data.get('kind')}"
        raise InputError(f"{found} is not {KIND}", path="kind", remedy=f"apiVersion: {API_VERSION}, kind: {KIND}")
    fields = {name: value for name, value in data.items() if name not in ("apiVersion", "kind", "metadata")}
    try:
        agent = msgspec.convert(fields | _plain_numbers(fields), AgentSettings)
    except msgspec.ValidationError as error:
        raise _problem(fields, str(error)) from None
    _check(agent)
    try:
        loaded = config_from_fields(agent.resources)
    except InputError as error:
        raise error.at(path="resources") from None
    release = PROFILE_RELEASES[agent.fixed_profile]
    # The version of the kubelet is not known yet, and one of its releases may take what the default does not.
    unknown = agent.follows_kubelet and agent.sources.api_server
    if not (unknown and any(not validate(loaded.config, one) for one in RELEASES.values())):
        check_resources(loaded.config, release)
    policy = _policy(agent)
    _check_dra(agent, loaded.config, policy)
    return LoadedSettings(agent, loaded.config, policy, loaded.warnings)


def check_resources(config: KubeletConfig, release: Release) -> None:
    """Check that a kubelet of a release starts with `resources`. Raises `InputError`."""
    problems = validate(config, release)
    if problems:
        raise InputError("; ".join(map(str, problems)), path="resources")


def _policy(agent: AgentSettings) -> PodslicePolicy:
    """Return the policy of the settings. Raises `InputError`."""
    if not agent.policy:
        return NO_POLICY
    try:
        policy = load_policy(agent.policy) if isinstance(agent.policy, str) else policy_from_dict(agent.policy)
        check_policy(policy, PROFILES[agent.profile])
    except InputError as error:
        if isinstance(agent.policy, str):
            raise
        place = f"policy.{error.path}".rstrip(".")
        raise InputError(error.problem, path=place, remedy=error.remedy) from None
    return policy


def _problem(fields: object, text: str) -> InputError:
    found = decoding_problem(text)
    if not found.unknown:
        remedy = found.remedy or allowed_values(AgentSettings, found.path)
        return InputError(with_value(found, fields), path=found.path, remedy=remedy)
    path = f"{found.path}.{found.unknown}".lstrip(".")
    remedy = did_you_mean(found.unknown, known_fields(AgentSettings, found.path))
    return InputError("unknown field", path=path, remedy=remedy)


def _plain_numbers(fields: dict[str, Any]) -> dict[str, Any]:
    """Return YAML numbers outside `resources` as ordinary ones: they remember how they were written."""
    plain: dict[str, Any] = {}
    for name, value in fields.items():
        if name == "kubernetes" and isinstance(value, float):
            plain[name] = str(value)  # 1.34 without quotes
        elif isinstance(value, float):
            plain[name] = float(value)
        elif isinstance(value, dict) and name not in ("resources", "policy"):
            plain[name] = value | _plain_numbers(value)
    return plain


def fixed_choices() -> dict[str, tuple[str | bool, ...]]:
    """Return the settings that have a fixed set of values, by path. YAML reads on and off as booleans."""
    return {
        "profile": PROFILE_NAMES,
        "strangers": ("move", "report"),
        "limits": ("repair", "report"),
        "refusals": ("fail", "hold"),
        "sources.podsAPI": ("auto", "on", "off", True, False),
        "nodeResourceTopology": ("own", "merge", "off", False),
        "cluster.plan": ("compare", "honour"),
    }


def _chosen(agent: AgentSettings) -> Iterator[tuple[str, str | bool]]:
    yield "profile", agent.profile
    yield "strangers", agent.strangers
    yield "limits", agent.limits
    yield "refusals", agent.refusals
    yield "sources.podsAPI", agent.sources.pods_api
    yield "nodeResourceTopology", agent.node_resource_topology
    if agent.cluster is not None:
        yield "cluster.plan", agent.cluster.plan


def _check(agent: AgentSettings) -> None:
    choices = fixed_choices()
    for path, value in _chosen(agent):
        known = choices[path]
        if value not in known:
            names = [one for one in known if isinstance(one, str)]
            raise InputError(f"{value!r} is unknown", path=path, remedy=f"{', '.join(names[:-1])} or {names[-1]}")
    try:
        agent.fixed_profile  # noqa: B018  raises for a release that is not known
    except InputError as error:
        raise error.at(path="kubernetes") from None
    if len(agent.plugin_index) != 2 or not agent.plugin_index.isdecimal():
        raise InputError(f"{agent.plugin_index!r} is not an index", path="pluginIndex", remedy="two digits such as 90")
    if not agent.plugin_name:
        raise InputError("is empty", path="pluginName", remedy="pluginName: podslice")
    if not 0.1 <= agent.reconcile_seconds <= 3600:
        raise InputError(f"{agent.reconcile_seconds} is out of range", path="reconcileSeconds", remedy="0.1 to 3600")
    if not 0 <= agent.sources.wait_seconds <= 1.5:
        raise InputError(
            f"{agent.sources.wait_seconds} is out of range",
            path="sources.waitSeconds",
            remedy="0 to 1.5, below NRI's 2",
        )
    if agent.pod_resources_upstream and not agent.pod_resources_socket:
        raise InputError(
            "is set, but nothing is served",
            path="podResourcesUpstream",
            remedy="name podResourcesSocket, the same path to stand in the kubelet's place",
        )
    _check_kubelet(agent.sources.kubelet)
    _check_cluster(agent)
    _check_topology(agent)
    agent.address()
    agent.status_listener()
    _check_directories(agent)


def _check_directories(agent: AgentSettings) -> None:
    """Check that the agent's directories are its own: it removes files in them."""
    state, files = os.path.realpath(agent.state_directory), os.path.realpath(agent.container_files or "/none")
    for field, path in (("stateDirectory", state), ("containerFiles", files)):
        if path in _SYSTEM or any(path.startswith(f"{above}/") for above in _SYSTEM_ROOTS):
            raise InputError(f"{path} is a directory of the system", path=field, remedy="name one for the agent alone")
    if state == files or state.startswith(f"{files}/") or files.startswith(f"{state}/"):
        raise InputError(
            f"{files} and stateDirectory {state} overlap", path="containerFiles", remedy="name separate directories"
        )


def _check_cluster(agent: AgentSettings) -> None:
    cluster = agent.cluster
    if cluster is None:
        return
    for place, target in enumerate(cluster.services):
        if _SERVICE.match(target) is None or int(target.rpartition(":")[2]) > 65535:
            raise InputError(
                f"{target[:253]!r} is not HOST:PORT",
                path=f"cluster.services[{place}]",
                remedy="write podslice-cluster.podslice.svc:9097",
            )
    if not cluster.services and not (cluster.checkpoint and agent.sources.api_server):
        raise InputError(
            "reports to nothing: no services, and no NodeState object",
            path="cluster",
            remedy="name services, or set sources.apiServer",
        )


def _check_topology(agent: AgentSettings) -> None:
    if agent.writes_topology and not agent.sources.api_server:
        remedy = "set sources.apiServer"
        raise InputError("needs an API server to write to", path="nodeResourceTopology", remedy=remedy)
    if label_problems(agent.namespace):
        remedy = "lower-case letters, digits and hyphens, at most 63, such as podslice"
        raise InputError(f"{agent.namespace[:253]!r} is not a valid namespace name", path="namespace", remedy=remedy)


def _check_dra(agent: AgentSettings, config: KubeletConfig, policy: PodslicePolicy) -> None:
    """Check that claims can be served. Raises `InputError`."""
    if agent.dra is None:
        return
    if not agent.sources.api_server:
        raise InputError("needs an API server to read claims from", path="dra", remedy="set sources.apiServer")
    for field in msgspec.structs.fields(DRASettings):
        path = getattr(agent.dra, field.name)
        if str(field.default).startswith("/") and not os.path.isabs(path):
            remedy = f"write the whole path, such as {field.default}"
            raise InputError(f"{path!r} is not an absolute path", path=f"dra.{field.encode_name}", remedy=remedy)
    if policy.claims is None or not (policy.claims.cpus or policy.claims.memory):
        raise InputError("nothing of the node is for claims", path="dra", remedy="set claims.cpus in the policy")
    if config.cpu_manager_policy != "static":
        raise InputError("needs a CPU Manager that gives CPUs away", path="dra", remedy="cpuManagerPolicy: static")


def _check_kubelet(kubelet: KubeletSettings | None) -> None:
    if kubelet is None:
        return
    if not 1 <= kubelet.port <= 65535:
        raise InputError(f"{kubelet.port} is not a port", path="sources.kubelet.port", remedy="10250")
    if not 1 <= kubelet.every_seconds <= 3600:
        raise InputError(
            f"{kubelet.every_seconds} is out of range", path="sources.kubelet.everySeconds", remedy="1 to 3600"
        )
    if kubelet.insecure_skip_tls_verify and (kubelet.ca_file or kubelet.server_name):
        raise InputError(
            "checks nothing, but caFile or serverName is set",
            path="sources.kubelet.insecureSkipTLSVerify",
            remedy="leave out one or the other",
        )
