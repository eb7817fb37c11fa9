"""A running kubelet's answer at `configz` is a configuration for every command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from podslice import InputError, load_kubelet_config
from podslice.config.kubelet_file import config_from_fields

FIELDS = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0-1", "syncFrequency": "1m0s"}


def test_configz_is_a_configuration(tmp_path: Path) -> None:
    """The answer of `configz` is the same configuration as a file with its fields and a kind."""
    served, written = tmp_path / "configz.json", tmp_path / "config.json"
    served.write_text(json.dumps({"kubeletconfig": FIELDS}))
    written.write_text(
        json.dumps({"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1", **FIELDS})
    )
    loaded = load_kubelet_config(str(served))
    assert loaded == load_kubelet_config(str(written))
    assert (loaded.config.cpu_manager_policy, loaded.warnings) == ("static", ())


@pytest.mark.parametrize("answer", [{"kubeletconfig": [1]}, {"kubeletconfig": FIELDS, "more": 1}, {}])
def test_what_only_looks_like_configz(tmp_path: Path, answer: object) -> None:
    """An object of another shape is refused for its missing kind."""
    file = tmp_path / "configz.json"
    file.write_text(json.dumps(answer))
    with pytest.raises(InputError, match="is not KubeletConfiguration"):
        load_kubelet_config(str(file))


def test_a_kubelet_s_own_fields_are_known(tmp_path: Path) -> None:
    """The fields that every kubelet reports, ports and sockets too, give no warning."""
    file = tmp_path / "configz.json"
    reported = {
        "address": "0.0.0.0",
        "port": 10250,
        "healthzPort": 10248,
        "containerRuntimeEndpoint": "unix:///run/c.sock",
    }
    file.write_text(json.dumps({"kubeletconfig": {**FIELDS, **reported}}))
    assert load_kubelet_config(str(file)).warnings == ()


@pytest.mark.parametrize(("merge", "memory"), [(True, "100Mi"), (False, None), (None, None)])
def test_default_thresholds_beside_others(merge: bool | None, memory: str | None) -> None:
    """Without mergeDefaultEvictionSettings a threshold that is not named is 0, with it the default; memory's is taken
    from what pods may have."""
    fields = {"evictionHard": {"nodefs.available": "5%"}, "mergeDefaultEvictionSettings": merge}
    loaded = config_from_fields(fields)
    assert loaded.warnings == ()
    assert loaded.config.eviction_thresholds.get("memory.available") == memory
    assert loaded.config.eviction_thresholds["nodefs.available"] == "5%"
