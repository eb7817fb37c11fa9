"""Each list has one place: option names, state files and reasons are written once, and read from there."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

import pytest

from podslice.advise.explain.fixes.losses import LOST_WITH_OPTION
from podslice.advise.explain.fixes.node_fixes import option_configs
from podslice.advise.whatif.variants import COMPARED_OPTIONS, option_sets
from podslice.config.kubelet import KubeletConfig
from podslice.config.policy_options import EXCLUSIVE_PAIRS
from podslice.node.checkpoints import names
from podslice.values import reasons
from podslice.values.cpu_policy_options import CPU_POLICY_OPTIONS
from podslice.values.releases.table import DEFAULT
from tests.source_files import modules_with

DOCUMENTED = {"state_files/documents.py"}
"""Their descriptions of documents begin with the name of a state file."""
REASONS = {value for name, value in vars(reasons).items() if name.isupper() and isinstance(value, str)}


def literals(words: Collection[str]) -> Iterator[tuple[str, str]]:
    """Every string of the modules that hold one of the words, with the file it is in."""
    for file, tree in modules_with(*words):
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield file, node.value


def spelled(words: set[str]) -> dict[str, set[str]]:
    """The words that each file spells out."""
    found: dict[str, set[str]] = {}
    for file, text in literals(words):
        if text in words:
            found.setdefault(file, set()).add(text)
    return found


def test_options_are_those_of_the_table() -> None:
    """Every option has a maturity, and what excludes, compares or loses options knows no others."""
    assert set(DEFAULT.cpu_options) == set(CPU_POLICY_OPTIONS)
    for mentioned in (*EXCLUSIVE_PAIRS, COMPARED_OPTIONS, LOST_WITH_OPTION):
        assert set(mentioned) <= set(CPU_POLICY_OPTIONS)


@pytest.mark.slow
def test_options_are_spelled_where_they_mean_something() -> None:
    """No file lists options by itself; releases say since when there are any, these name some for what they do."""
    named = {name for name in spelled(set(CPU_POLICY_OPTIONS)) if not name.startswith("values/releases/v1_")}
    assert named == {
        "config/policy_options.py",  # which exclude each other
        "config/carriers/openshift.py",  # which a performance profile sets
        "advise/explain/fixes/losses.py",  # what is lost with one
        "advise/explain/causes/search.py",  # which may be why a pod is refused
        "advise/explain/fixes/node_fixes.py",  # which is tried on a node without it
        "config/without_effect.py",  # which do nothing on some machines
        "advise/upgrade/changes.py",  # which a row of a release is about
        "advise/reserve/options.py",  # which keeps shared pods off what is reserved
        "advise/whatif/variants.py",  # which choose CPUs
        "evidence/owners.py",  # which say how owners' CPUs must lie
        "evidence/state_check.py",
    }


@pytest.mark.parametrize("option", CPU_POLICY_OPTIONS)
def test_explain_tries_every_option(option: str) -> None:
    """Explain tries to do without an option that is set and to set one that is not, whatever option core has."""
    with_it = KubeletConfig(cpu_manager_policy="static", cpu_manager_policy_options={option: "true"})
    without = KubeletConfig(cpu_manager_policy="static")
    assert without in list(option_configs(with_it))
    assert with_it in list(option_configs(without))


def test_whatif_compares_what_can_be_switched_on() -> None:
    """`whatif` leaves out the options that need the alpha gate, and the one that takes CPUs from other pods."""
    alpha = {name for name, maturity in DEFAULT.cpu_options.items() if maturity == "Alpha"}
    assert set(COMPARED_OPTIONS) == set(CPU_POLICY_OPTIONS) - alpha - {"strict-cpu-reservation"}
    assert option_sets() == (
        (),
        ("full-pcpus-only",),
        ("distribute-cpus-across-numa",),
        ("prefer-align-cpus-by-uncorecache",),
        ("full-pcpus-only", "distribute-cpus-across-numa"),
        ("full-pcpus-only", "prefer-align-cpus-by-uncorecache"),
    )


@pytest.mark.slow
def test_reasons_are_spelled_once() -> None:
    """A reason of a refusal is a word of `values/reasons.py` and nowhere spelled again."""
    assert spelled(REASONS) == {"values/reasons.py": REASONS}


@pytest.mark.slow
def test_state_files_are_named_once() -> None:
    """Nobody spells the name of a state file or of a file in one; all read `node/checkpoints/names.py`."""
    state_files = {*names.MANAGER_STATE_FILES, names.ALLOCATED_STATE_FILE, names.ACTUATED_STATE_FILE}
    begins = (*state_files, names.DEVICE_DIRECTORY)
    spelling = {file for file, text in literals(begins) if text.startswith(begins)}
    assert spelling - {"node/checkpoints/names.py"} == DOCUMENTED
    assert names.place_of(names.DEVICE_STATE_FILE) == "device-plugins/kubelet_internal_checkpoint"
    assert names.place_of(names.CPU_STATE_FILE) == names.CPU_STATE_FILE


def test_ours_are_marked() -> None:
    """Reasons that no kubelet gives are known as such; those of upstream's metric label are not among them."""
    assert reasons.OURS <= REASONS
    assert not reasons.OURS & {reasons.out_of("cpu"), reasons.TOPOLOGY_AFFINITY, reasons.POD_FEATURE}
    assert reasons.is_out_of(reasons.out_of("example.com/gpu"))
