"""The table of recommendations in docs/whatif.md: usual mixes of pods on usual machines, under every preference."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from podslice import load_gallery, load_kubelet_config, load_pods
from podslice.advise.whatif.compare import Outcome, Scenario, evaluate
from podslice.advise.whatif.objective import PREFERENCES, rank
from podslice.advise.whatif.variants import recommended_variants
from podslice.host.device_files import load_devices
from podslice.machine.devices import DeviceInventory

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "examples" / "whatif"
MIXES = {
    "training": ("xeon-8480-2s", "training-devices.yaml"),
    "caches": ("epyc-9654-nps1", ""),
    "telco": ("xeon-6338-2s", "telco-devices.yaml"),
    "vms": ("xeon-6338-2s", ""),
    "web": ("xeon-6338-2s", ""),
}


def outcomes(mix: str) -> list[Outcome]:
    machine, devices = MIXES[mix]
    inventory = load_devices(str(FOLDER / devices) if devices else None) or DeviceInventory()
    config = load_kubelet_config(FOLDER / "kubelet.yaml").config
    scenario = Scenario(mix, load_gallery(machine), config, inventory)
    pods = [one.pod for one in load_pods(FOLDER / f"{mix}.yaml", replicas=True)]
    return [evaluate(one, pods) for one in recommended_variants(scenario)]


def documented() -> dict[str, list[str]]:
    """Return the rows of the table by the name of the mix's file."""
    text = (ROOT / "docs" / "whatif.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[[^\]]+\]\(\.\./examples/whatif/(\w+)\.yaml\)[^|]*\| (.+) \|$", text, re.MULTILINE)
    return {name: [cell.strip() for cell in cells.split("|")] for name, cells in rows}


@pytest.mark.parametrize("mix", MIXES)
def test_recommendations_are_as_documented(mix: str) -> None:
    """What the table says is what is computed, machine and numbers included."""
    found = outcomes(mix)
    winners = [rank(found, prefer).outcomes[0] for prefer in PREFERENCES]
    present = next(outcome for outcome in found if outcome.is_present)
    first = winners[0]
    assert first.admitted == present.admitted == len(first.pods)
    assert documented()[mix] == [
        MIXES[mix][0],
        *(f"`{winner.scenario}`" for winner in winners),
        f"{present.unplaced_pods} → {first.unplaced_pods}",
    ]


def test_the_table_has_every_mix() -> None:
    """No mix is without a row, and no row without a mix."""
    assert set(documented()) == set(MIXES)
