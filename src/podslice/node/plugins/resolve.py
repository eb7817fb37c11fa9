"""Turn the plugin names in a policy into the plugins of a node.

Built-in plugins first, then the entry points `podslice.cpu_plugins` of installed packages. Only what a policy names is
imported, once per node. A policy cannot name a module to import, because policies of nodes come from remote sources.
"""

from __future__ import annotations

from typing import Final

from podslice.config.policy import PluginEntry, PodslicePolicy
from podslice.machine.model import CPUTopology, Machine
from podslice.node.plugins.api import CPUMachine, CPUPlugin, Factory
from podslice.node.plugins.builtin import BUILT_IN, Classes
from podslice.node.plugins.classes import CPUClasses
from podslice.node.plugins.profile import PluginProfile
from podslice.values.errors import StartError, StartKind

GROUP: Final = "podslice.cpu_plugins"
CLASSES: Final = "classes"
_STAGE = "policy"
_UNKNOWN = StartKind("unknown-plugin", "plugins.profile names {plugin}, which is not installed", "{remedy}")
_TWICE = StartKind("plugin-twice", "plugins.profile names {plugin} twice", "name it once")
_NO_CLASSES = StartKind("no-classes", "plugins.profile names classes, and there are none", "configure cpuClasses")
_FAILED = StartKind("plugin-failed", "plugin {plugin} does not start: {problem}", "correct its arguments or omit it")


def profile_for(
    policy: PodslicePolicy, machine: Machine, topology: CPUTopology, classes: CPUClasses | None = None
) -> PluginProfile | None:
    """Return the plugins of a node, None where its policy names none and has no classes. Raises `StartError`."""
    rules = policy.plugins
    if not rules.profile and classes is None:
        return None
    known = CPUMachine(machine, topology, {} if classes is None else classes.cpus)
    plugins: list[tuple[PluginEntry, CPUPlugin]] = []
    names = set[str]()
    if classes is not None and all(entry.name != CLASSES for entry in rules.profile):
        plugins.append((PluginEntry(CLASSES), Classes(classes.grantable)))
    for entry in rules.profile:
        if entry.name in names:
            raise StartError(_STAGE, _TWICE, plugin=entry.name)
        names.add(entry.name)
        if entry.name == CLASSES:
            if classes is None:
                raise StartError(_STAGE, _NO_CLASSES)
            plugins.append((entry, Classes(classes.grantable)))
        else:
            plugins.append((entry, make_plugin(entry, known)))
    return PluginProfile(known, plugins, max_candidates=rules.max_candidates, hint_scores=rules.hint_scores)


def make_plugin(entry: PluginEntry, machine: CPUMachine) -> CPUPlugin:
    """Make one plugin. Raises `StartError`."""
    try:
        plugin = find_factory(entry.name)(entry.arguments, machine)
        if not isinstance(plugin, CPUPlugin):
            raise TypeError(f"its factory returns a {type(plugin).__name__}, not a CPUPlugin")
        # Properties of a foreign class may raise: better now than in an admission.
        str(plugin.version), bool(plugin.soft), bool(plugin.sees_pods), bool(plugin.sees_owners)
    except StartError:
        raise
    except (Exception, SystemExit) as error:
        raise StartError(_STAGE, _FAILED, plugin=entry.name, problem=str(error) or type(error).__name__) from error
    return plugin


def find_factory(name: str) -> Factory:
    """Return the factory of the plugin of this name. Raises `StartError`."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    # 14 ms to import, and few nodes have plugins that others made.
    from importlib.metadata import entry_points

    for found in entry_points(group=GROUP, name=name):
        loaded: Factory = found.load()
        return loaded
    installed = sorted({*BUILT_IN, *(one.name for one in entry_points(group=GROUP))})
    raise StartError(_STAGE, _UNKNOWN, plugin=name, remedy=f"install it, or use one of: {', '.join(installed)}")


def versions(profile: PluginProfile | None) -> dict[str, str]:
    """Return every plugin of a node with its version."""
    return {} if profile is None else dict(profile.identity)
