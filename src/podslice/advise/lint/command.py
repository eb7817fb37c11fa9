"""`podslice lint`: warnings about pods and kubelet configurations before they cause harm."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from podslice.advise.lint.documents import LintReport, LintRuleList, rule_document
from podslice.advise.lint.engine import lint_file, lint_kubelet, lint_pod
from podslice.advise.lint.locate import Locator
from podslice.advise.lint.model import SEVERITIES, Finding, Rule, at_least
from podslice.advise.lint.registry import RULES, choose, find_rule
from podslice.advise.lint.subject import FileSubject, NodeSubject, PodSubject, TemplateOrigin
from podslice.cli.completion import complete_rule
from podslice.cli.options.config import ConfigSource, config_options, read_source
from podslice.cli.options.machine import Sources, machine_options, resolve_named_node
from podslice.cli.options.node import contradictions, policy_option, set_option
from podslice.cli.options.node_files import load_config, load_policy
from podslice.cli.options.release import profile_option
from podslice.cli.output import emit, legend_option, print_data, print_error, print_warnings, quiet_option
from podslice.cli.provenance import assumptions, configuration_origin, machine_origin, print_provenance, provenance_text
from podslice.config.carriers.layer import ConfigDocument, Places
from podslice.config.kubelet import KubeletConfig
from podslice.config.kubelet_file import LoadedConfig
from podslice.config.policy import NO_POLICY, PodslicePolicy
from podslice.evidence.provenance import Provenance, provenance_of
from podslice.host.device_files import load_devices
from podslice.machine.devices import DeviceInventory
from podslice.machine.model import Machine
from podslice.node_objects.described import DescribedNode
from podslice.render.ansi import echo
from podslice.values.errors import InputError

if TYPE_CHECKING:
    from podslice.api.pod.spec import Pod, ResourceList
    from podslice.dra.manifests import DeviceObjects
    from podslice.reading.yaml import DuplicateKey


class _Settings(NamedTuple):
    """The node, rules and objects against which every file is checked, and where they come from."""

    node: NodeSubject | None
    machine: Machine | None
    rules: frozenset[str]
    profile: str
    devices: DeviceInventory | None
    policy: PodslicePolicy | None
    provenance: Provenance
    claims: DeviceObjects | None = None
    strict: bool = False

    def subject(self, loaded: LoadedConfig) -> NodeSubject:
        """Return a configuration on the machine, beside the policy."""
        return NodeSubject(
            loaded.config,
            self.machine,
            profile=self.profile,
            unknown_fields=loaded.unknown_fields,
            assumed=bool(loaded.assumed),
            devices=self.devices,
            policy=self.policy or NO_POLICY,
        )


class _Result(NamedTuple):
    findings: list[Finding]
    pods: int
    configurations: int
    passed_over: tuple[str, ...] = ()


@click.command()
@click.argument("files", nargs=-1, metavar="FILE...")
@config_options("KubeletConfiguration of the node; it is checked as well.")
@set_option
@machine_options
@policy_option
@profile_option
@click.option("--devices", "devices_path", metavar="FILE", help="Plugin devices of the node (docs/machines.md).")
@click.option(
    "--claims",
    "claim_paths",
    multiple=True,
    metavar="FILE",
    help="ResourceClaims and ResourceClaimTemplates that pods name; repeatable.",
)
@click.option(
    "--select",
    metavar="RULES",
    multiple=True,
    shell_complete=complete_rule,
    help="Run only these rules: ids, prefixes of ids, names.",
)
@click.option("--ignore", metavar="RULES", multiple=True, shell_complete=complete_rule, help="Leave these rules out.")
@click.option("--fail-on", type=click.Choice([*reversed(SEVERITIES), "never"]), default="error", show_default=True,
              help="The least severity that makes the exit code 1.")  # fmt: skip
@click.option("--explain", metavar="RULE", shell_complete=complete_rule, help="Print what a rule means, and stop.")
@click.option("--strict", is_flag=True, help="Objects of which no pod can be read are errors, not warnings.")
@click.option("--rules", "list_rules", is_flag=True, help="List all rules, and stop.")
@quiet_option
@legend_option
@click.option("-o", "--output", type=click.Choice(["table", "wide", "json", "yaml", "sarif"]), default="table",
              show_default=True, help="Form of the output.")  # fmt: skip
def lint(
    *,
    files: tuple[str, ...],
    config_path: ConfigSource | None,
    overrides: tuple[str, ...],
    machine: str | None,
    sysfs: str | None,
    source: Sources,
    policy_path: str | None,
    profile: str,
    devices_path: str | None,
    claim_paths: tuple[str, ...],
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    fail_on: str,
    explain: str | None,
    list_rules: bool,
    strict: bool,
    output: str,
) -> None:
    """Report mistakes in the pods and kubelet configurations of FILE... before a node meets them.

    FILE holds Pods, Lists, workloads or KubeletConfigurations as YAML or JSON; - is standard input. Pod templates in
    objects of other kinds are found by their shape; a warning names operators' objects without any, and --strict makes
    it an error. Rules about a node run only with --config or --set, some only with a machine too.

    \b
    Examples:
      podslice lint deploy/*.yaml
      podslice lint pod.yaml --config kubelet.yaml --machine epyc-9654-nps4
      podslice lint kubelet.yaml --machine epyc-9654-nps4
      podslice lint pod.yaml --policy policy.yaml
      podslice lint pod.yaml --claims claims.yaml
      podslice lint --explain PS101

    Exit codes: 0 nothing found that --fail-on names, 1 findings, 2 bad input.
    """
    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    if explain is not None or list_rules:
        _show_rules(None if explain is None else find_rule(explain), output, width)
        return
    if not files and config_path is None:
        raise InputError("names no file", path="FILE", remedy="podslice lint pod.yaml")
    rules = choose(_split(select), _split(ignore))
    devices = load_devices(devices_path) if devices_path else None
    policy = None if policy_path is None else load_policy(policy_path, profile)
    described = resolve_named_node(machine, sysfs, source)
    provenance = provenance_of(profile)
    if described is not None:
        origin = machine_origin(described.machine, name=machine, sysfs=sysfs, source=source)
        assumed = (*provenance.assumptions, *described.assumed)
        provenance = msgspec.structs.replace(provenance, machine=origin, assumptions=assumed)
    claims = _claims(claim_paths)
    base = _Settings(None, None, rules, profile, devices, policy, provenance, claims, strict=strict)
    settings = _settings(config_path, overrides, described, base)
    results, failed = _lint_all(files, config_path, settings)
    findings = [finding for result in results for finding in result.findings]
    # Easily missed: a machine without --config runs no rule on pods.
    if settings.machine is not None and settings.node is None and not any(r.configurations for r in results):
        echo("podslice: note: without --config no rule checks pods against the machine", err=True)
    if output == "sarif":
        from podslice.advise.lint.sarif import to_sarif
        from podslice.version import running_version

        chosen = [rule for rule in RULES if rule.id in settings.rules]
        print_data(to_sarif(findings, chosen, running_version()), "json")
        print_provenance(settings.provenance, output)
    elif output not in ("table", "wide"):
        passed = tuple(line for result in results for line in result.passed_over)
        provenance = msgspec.structs.replace(settings.provenance, passed_over=passed)
        emit(LintReport(tuple(findings), provenance), output)
    elif results:
        _print(results, width, wide=output == "wide")
        # Below the findings, as editors and tools read the lines of a linter from the first one.
        echo(provenance_text(settings.provenance, width))
    if failed:
        sys.exit(2)
    if fail_on != "never" and any(at_least(finding.severity, fail_on) for finding in findings):
        sys.exit(1)


def _claims(paths: tuple[str, ...]) -> DeviceObjects | None:
    """Load the objects of `--claims`. Raises `InputError`."""
    if not paths:
        return None
    from podslice.dra.cel import CELSelectors
    from podslice.dra.manifests import load_device_objects

    return load_device_objects(paths, (), CELSelectors())


def _claimed_amounts(pod: Pod, objects: DeviceObjects | None) -> dict[str, ResourceList]:
    """Return the amounts that the claims of a pod are for, by their names in the pod; claims without an object are left
    out."""
    if objects is None:
        return {}
    from podslice.dra.requested_amounts import requested_amounts

    found: dict[str, ResourceList] = {}
    for entry in pod.spec.resource_claims:
        namespace = pod.metadata.namespace or "default"
        claim = objects.claims.get((namespace, entry.resource_claim_name or ""))
        template = objects.templates.get((namespace, entry.resource_claim_template_name or ""))
        spec = claim.spec if claim is not None else template.spec.spec if template is not None else None
        if spec is not None:
            found[entry.name] = requested_amounts(spec.devices)
    return found


def _show_rules(rule: Rule[Any] | None, output: str, width: int) -> None:
    """Print one rule, or all."""
    from podslice.advise.lint.table import rule_page, rule_table

    if output == "sarif":
        raise InputError("carries findings, not rules alone", path="-o sarif", remedy="-o json")
    if output in ("table", "wide"):
        echo(rule_table(RULES) if rule is None else rule_page(rule, width=width))
    else:
        emit(LintRuleList(tuple(map(rule_document, RULES))) if rule is None else rule_document(rule), output)


def _split(texts: tuple[str, ...]) -> list[str]:
    return [part.strip() for text in texts for part in text.split(",") if part.strip()]


def _settings(
    config_path: ConfigSource | None, overrides: tuple[str, ...], described: DescribedNode | None, base: _Settings
) -> _Settings:
    """Complete the settings with the configuration. Fields that an object of a cluster reports count as on a node:
    where no file sets them."""
    machine = described.machine if described else None
    devices = base.devices or (described.devices if described else None)
    reported = described.fields if described else {}
    base = base._replace(machine=machine)
    if config_path is None and not overrides and not reported:
        return base
    try:
        loaded = load_config(config_path, overrides, defaults=reported)
    except InputError:
        if config_path is None or overrides:
            raise
        # An unreadable --config is no error here: it is linted as a file, and its errors are findings.
        return base
    if described:
        print_warnings(tuple(contradictions(loaded.config, described)))
    provenance = msgspec.structs.replace(
        base.provenance,
        configuration=configuration_origin(loaded, config_path, overrides, reported),
        assumptions=assumptions(described, loaded, configured=config_path is not None),
    )
    base = base._replace(devices=devices, provenance=provenance)
    node = base.subject(loaded)
    if overrides and node.gate_error:
        problem = f"a kubelet would not start: {node.gate_error}"
        raise InputError(problem, path="--set featureGates", remedy=node.gate_error.hint)
    return base._replace(node=node)


def _lint_all(files: tuple[str, ...], config: ConfigSource | None, settings: _Settings) -> tuple[list[_Result], bool]:
    """Lint every file that can be read; the others are reported on standard error, one line each."""
    results = []
    failed = False
    single = config.path if config is not None and config == ConfigSource(config.path) else None
    if single is not None and single != "-" and Path(single).is_dir():
        single = None
    if config is not None and single is None:
        try:
            results.append(_lint_sources(config, settings))
        except InputError as error:
            failed = True
            print_error(error)
    # The configuration is linted first, and once, even if it is among the files.
    for path in dict.fromkeys([*([single] if single else []), *_files_of(files)]):
        try:
            result = _lint_file(path, settings, is_config=path == single)
            # Otherwise pods would pass for want of a configuration.
            if path == single and not result.configurations:
                read_source(ConfigSource(path))
                raise InputError("holds no KubeletConfiguration", source=path, remedy="kind: KubeletConfiguration")
            results.append(result)
        except InputError as error:
            failed = True
            print_error(error.at(source=path))
    return results, failed


def _files_of(paths: tuple[str, ...]) -> Iterator[str]:
    """Yield files, and in place of a folder those in it that may hold objects. Raises `InputError`."""
    from podslice.reading.folders import find_object_files

    for path in paths:
        files = find_object_files(path)
        yield from [path] if files is None else files


def _lint_sources(config: ConfigSource, settings: _Settings) -> _Result:
    """Lint a configuration that is merged from a file, drop-ins and flags."""
    from podslice.config.carriers.layer import merge_layers

    document = merge_layers(read_source(config))
    findings = []
    for finding in lint_kubelet(_subject(document, settings), settings.rules):
        place, _ = document.places.find(finding.path)
        source = place.source or ("--kubelet-args" if place.line and config.arguments else str(config))
        text = "" if place.line or source in ("--kubelet-args", "-") else _text_of(source)
        findings.append(Locator(source, text).locate(finding, place.document, document.places))
    return _Result(findings, 0, 1)


def _text_of(path: str) -> str:
    from podslice.reading.files import read_text

    return "" if Path(path).is_dir() else read_text(path)


def _lint_file(path: str, settings: _Settings, *, is_config: bool = False) -> _Result:
    from podslice.api.manifests.manifest import Manifests, pods_from_documents
    from podslice.api.manifests.strangers import load_manifest_documents
    from podslice.config.carriers.recognize import is_lines
    from podslice.reading.files import read_text

    source = "stdin" if path == "-" else path
    text = read_text(path)
    locator = Locator(source, text)
    is_command = is_lines(text)
    duplicates: list[DuplicateKey] = []
    documents = [] if is_command else load_manifest_documents(text, source, duplicates=duplicates)
    pods, notes, passed = (
        Manifests([]) if is_command else pods_from_documents(documents, source, strict=settings.strict)
    )
    print_warnings(notes)
    as_text = lint_file(FileSubject(documents, duplicates), settings.rules)
    findings = [msgspec.structs.replace(finding, source=source) for finding in as_text]
    said: set[tuple[str, int, str, str]] = set()
    for loaded in pods:
        subject = PodSubject(
            loaded.pod,
            settings.node,
            profile=settings.profile,
            unknown_fields=loaded.unknown_fields,
            policy=settings.policy,
            claimed=_claimed_amounts(loaded.pod, settings.claims),
            template=TemplateOrigin(loaded.object_path, loaded.owned) if loaded.is_template else None,
        )
        for finding in lint_pod(subject, settings.rules, kind=loaded.kind, prefix=loaded.path):
            located = locator.locate(finding, loaded.document)
            # Several templates of one object share its name: what is wrong with that is said once.
            place = (located.id, located.document, located.path, located.message)
            if place not in said:
                said.add(place)
                findings.append(located)
    configurations = 0
    for document in _configurations(documents, text, lenient=not is_config):
        configurations += 1
        if not is_config:  # what is assumed of that one is part of the provenance
            print_warnings(tuple(f"{source}: assumed: {line}" for line in document.assumed))
        found = lint_kubelet(_subject(document, settings, text), settings.rules)
        findings += [locator.locate(finding, document.places.base.document, document.places) for finding in found]
    return _Result(findings, len(pods), configurations, passed)


def _configurations(documents: list[Any], text: str, *, lenient: bool) -> Iterator[ConfigDocument]:
    from podslice.config.carriers.layer import merge_layers
    from podslice.config.carriers.recognize import find_configurations

    for configuration in find_configurations(text, documents, lenient=lenient):
        yield merge_layers(configuration.layers)


def _subject(document: ConfigDocument, settings: _Settings, text: str = "") -> NodeSubject:
    """Return a configuration for the rules; one that cannot be decoded has its errors as findings."""
    from podslice.config.carriers.plain import check_json
    from podslice.config.kubelet_file import load_document

    try:
        check_json(text)
        loaded = load_document(document._replace(places=Places()))
    except InputError as error:
        return NodeSubject(KubeletConfig(), undecoded=error.errors)
    return settings.subject(loaded)


def _print(results: list[_Result], width: int, *, wide: bool) -> None:
    from podslice.advise.lint.table import finding_table, format_findings, summary

    findings = [finding for result in results for finding in result.findings]
    if findings:
        echo(f"{finding_table(findings)}\n" if wide else format_findings(findings, width=width))
    echo(summary(findings, sum(r.pods for r in results), sum(r.configurations for r in results)))
