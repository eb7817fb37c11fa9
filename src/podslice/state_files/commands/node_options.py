"""The options of `podslice state` that describe a node, and what follows from them: machine, configuration, facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import click
import msgspec

from podslice.cli.cross_check import read_contents, with_memory_of_files
from podslice.cli.options.config import config_options
from podslice.cli.options.machine import machine_options, resolve_named_node, resolve_node
from podslice.cli.options.node import set_option, warnings_about
from podslice.cli.options.node_files import load_config
from podslice.cli.options.unusable_state import POD_LEVEL_GATE, has_pod_level_gate
from podslice.cli.output import print_warnings, with_options
from podslice.cli.provenance import assumptions, configuration_origin, machine_origin
from podslice.config.kubelet import KubeletConfig
from podslice.config.kubelet_file import LoadedConfig
from podslice.evidence.contradiction import Contradiction
from podslice.evidence.provenance import Provenance
from podslice.machine.model import Machine
from podslice.node.checkpoints.releases import Release, release
from podslice.node_objects.described import DescribedNode
from podslice.state_files.commands.files import StateFile, cpu_policy
from podslice.state_files.consequence import NodeFacts
from podslice.values.cpuset import CPUSetError, parse_bits
from podslice.values.errors import InputError, StartError
from podslice.values.releases.table import DEFAULT, RELEASES

F = TypeVar("F", bound=Callable[..., Any])
_FIRST_WITH_GATE = 36


def state_node_options(command: F) -> F:
    """Add the machine options, `--here`, `--config`, `--set`, `--reserved-cpus`, `--strict-reservation` and
    `--containers` to a command, which passes them to `read_node_options`."""
    options = (
        click.option("--here", is_flag=True, help="Check against this very machine."),
        config_options("The kubelet's configuration; needs a machine."),
        set_option,
        click.option("--reserved-cpus", metavar="LIST", default="", help="CPUs reserved for the system."),
        click.option("--strict-reservation", is_flag=True, help="strict-cpu-reservation is on."),
        click.option("--containers", metavar="FILE", help="crictl ps -a -o json, for files that name container ids."),
    )
    return machine_options(with_options(command, *options))


class NodeOptions(NamedTuple):
    """A node as the options describe it. `settled`: they give a configuration, and with it the managers' policies;
    `measured`: the machine was read from a node's own system. `provenance` says where machine and configuration come
    from, and what is assumed of them."""

    options: Mapping[str, Any]
    machine: Machine | None
    config: KubeletConfig | None
    settled: bool = True
    measured: bool = False
    provenance: Provenance = Provenance()

    def provenance_of(self, reader: Release, found: tuple[Contradiction, ...]) -> Provenance:
        """Return what an answer for a kubelet rests on, with its contradictions."""
        return msgspec.structs.replace(self.provenance, release=str(reader), contradictions=found)

    def contradictions(self, files: list[StateFile]) -> tuple[Contradiction, ...]:
        """Return where the files contradict the machine and the configuration; nothing without a machine."""
        from podslice.evidence.contradiction import StateFacts
        from podslice.evidence.memory_check import check_memory
        from podslice.evidence.state_check import check_state

        if self.machine is None:
            return ()
        contents = read_contents({file.path.name: file.data for file in files})
        config = KubeletConfig() if self.config is None else self.config
        changed = self.options["config_path"] is None or bool(self.options["overrides"])
        facts = StateFacts(contents, self.machine, self.measured, config, changed=changed)
        # On the node's own machine `drift` among the findings says it.
        amounts = () if self.measured else check_memory(contents, self.machine, measured=False)
        return (*check_state(facts), *amounts)

    def reader(self, version: str, *, pod_level: bool) -> Release:
        """Return the kubelet that is to read the files; its gate is on when the flag or the configuration says so."""
        reader = release(version, pod_level=pod_level)
        if self.config is None or pod_level or reader.minor < _FIRST_WITH_GATE:
            return reader
        return release(version, pod_level=self.config.feature_gates.get(POD_LEVEL_GATE, False))

    def warn_of_other_gate(self, files: list[StateFile], reader: Release) -> tuple[str, ...]:
        """Return a warning where a file was written with the gate on and no option says whether it is: the answers are
        then about another kubelet than the one that wrote the file."""
        if self.config is not None or reader.pod_level or reader.minor < _FIRST_WITH_GATE:
            return ()
        named = [file.path for file in files if has_pod_level_gate(file.data)]
        if not named:
            return ()
        return (f"{named[0]} was written with the gate {POD_LEVEL_GATE} on; this is about a kubelet with it off "
                "(--pod-level, or --config, says that it is on)",)  # fmt: skip

    def facts(self, minor: int = DEFAULT.minor) -> NodeFacts:
        """Return what the files are checked against; without a machine, only the files themselves. Raises
        `InputError`."""
        from podslice.state_files.running import load_containers

        options = self.options
        containers = load_containers(options["containers"]) if options["containers"] else {}
        if self.config is not None:
            if minor not in RELEASES:
                unknown = f"the feature gates of Kubernetes 1.{minor} are not known here; those of {DEFAULT} count"
                print_warnings((unknown,))
            return self._facts_from_config(self.config, containers, minor)
        try:
            reserved = parse_bits(options["reserved_cpus"])
        except CPUSetError as error:
            raise InputError(error.problem, path="--reserved-cpus", remedy="write for example 0-1,64") from None
        strict = options["strict_reservation"]
        return NodeFacts(machine=self.machine, reserved=reserved, strict=strict, containers=containers)

    def _facts_from_config(
        self, config: KubeletConfig, containers: Mapping[str, tuple[str, str]], minor: int
    ) -> NodeFacts:
        from podslice.state_files.commands.node_facts import node_facts

        if self.machine is None:
            raise InputError("needs a machine", path="--config", remedy="--here, --machine, --sysfs or --from")
        if _reserves(self.options):
            raise InputError(
                "already sets the reservation",
                path="--config",
                remedy="leave out --reserved-cpus and --strict-reservation",
            )
        try:
            facts = node_facts(self.machine, config, containers, minor=minor)
        except StartError as error:
            problem = f"a kubelet would not start even without state files: {error.message}"
            raise InputError(problem, path=error.stage, remedy=error.remedy).at(
                source=str(self.options["config_path"] or "")
            ) from None
        return facts if self.settled else msgspec.structs.replace(facts, policies={})


def read_node_options(options: Mapping[str, Any], files: list[StateFile]) -> NodeOptions:
    """Return the node that the options describe. Raises `InputError`.

    A Node or NodeResourceTopology object implies a part of the kubelet's configuration, though not the CPU Manager's
    policy, which is taken from the state file. `--reserved-cpus` and `--strict-reservation` take precedence over it.
    """
    described = resolve_named_node(options["machine"], options["sysfs"], options["source"])
    if described is None and options["here"]:
        described = resolve_node(None, None, None)
    if described is not None:
        described = with_memory_of_files(described, read_contents({file.path.name: file.data for file in files}))
        print_warnings(described.taken)
    machine = described.machine if described else None
    measured = described is not None and described.measured
    settled = options["config_path"] is not None or bool(options["overrides"])
    implied = dict(described.fields) if described else {}
    if not settled and (not implied or _reserves(options)):
        if described:
            print_warnings(tuple(f"assumed: {line}" for line in assumptions(described, configured=True)))
        return NodeOptions(options, machine, None, measured=measured, provenance=_provenance(options, described))
    if implied and not settled:
        implied["cpuManagerPolicy"] = cpu_policy(files) or implied.get("cpuManagerPolicy", "none")
    loaded = load_config(options["config_path"], options["overrides"], defaults=implied)
    print_warnings((*_warnings_about(described, loaded.config, options), *loaded.provenance, *loaded.warnings))
    provenance = _provenance(options, described, loaded)
    return NodeOptions(options, machine, loaded.config, settled, measured, provenance)


def _provenance(
    options: Mapping[str, Any], described: DescribedNode | None, loaded: LoadedConfig | None = None
) -> Provenance:
    """Return where machine and configuration come from."""
    found = Provenance()
    if described is not None:
        names = {"name": options["machine"], "sysfs": options["sysfs"], "source": options["source"]}
        origin = machine_origin(described.machine, **names, taken=described.taken)
        configured = options["config_path"] is not None or loaded is None
        found = Provenance(origin, assumptions=assumptions(described, loaded, configured=configured))
    if loaded is None:
        return found
    reported = None if described is None else described.fields
    configuration = configuration_origin(loaded, options["config_path"], options["overrides"], reported)
    return msgspec.structs.replace(found, configuration=configuration)


def _warnings_about(
    described: DescribedNode | None, config: KubeletConfig, options: Mapping[str, Any]
) -> tuple[str, ...]:
    configured = options["config_path"] is not None
    return tuple(warnings_about(described, config, configured=configured)) if described else ()


def _reserves(options: Mapping[str, Any]) -> bool:
    """Whether the options set the reservation, in place of a configuration."""
    return bool(options["reserved_cpus"] or options["strict_reservation"])
