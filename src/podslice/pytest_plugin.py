"""The pytest plugin: a node for tests about manifests.

    # pytest.ini
    [pytest]
    podslice_machine = epyc-9654-nps4
    podslice_config = cluster/kubelet.yaml

    def test_the_database_is_aligned(podslice_node):
        assert_aligned(podslice_node, Pod.load("deploy/database.yaml"))

Every pytest run of an environment loads it, so it imports podslice only for a test that uses the fixture.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from podslice.node.node import Node

_OPTIONS = {
    "machine": "Machine of the fixture podslice_node: a ready-made name, a file, or a description.",
    "config": "KubeletConfiguration of the fixture podslice_node; a relative path is one below the rootdir.",
    "devices": "File with the plugin devices of the fixture podslice_node; relative as the configuration.",
    "kubernetes": "Kubernetes release of the fixture podslice_node, such as 1.34.",
}


def pytest_addoption(parser: Any) -> None:
    """Add an option and a setting for each part of the node."""
    group = parser.getgroup("podslice")
    for name, help_text in _OPTIONS.items():
        group.addoption(f"--podslice-{name}", dest=f"podslice_{name}", help=help_text)
        parser.addini(f"podslice_{name}", help_text, default="")


def _setting(config: Any, name: str) -> str:
    given = config.getoption(f"podslice_{name}")
    return str(config.getini(f"podslice_{name}") if given is None else given)


def _file(config: Any, name: str) -> Path | None:
    given = _setting(config, name)
    return Path(config.rootpath, given) if given else None


@pytest.fixture
def podslice_node(request: pytest.FixtureRequest) -> Node:
    """An empty node: the machine and the kubelet configuration that options or settings of pytest name."""
    from podslice import Node, load_devices, load_kubelet_config, load_machine

    machine = _setting(request.config, "machine")
    config, devices = _file(request.config, "config"), _file(request.config, "devices")
    if not machine:
        pytest.fail("podslice_node needs a machine: --podslice-machine or podslice_machine", pytrace=False)
    return Node(
        load_machine(machine),
        load_kubelet_config(config).config if config else None,
        devices=load_devices(devices) if devices else None,
        kubernetes=_setting(request.config, "kubernetes"),
    )
