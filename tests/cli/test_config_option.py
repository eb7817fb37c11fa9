"""--config, --config-dir and --kubelet-args together are one configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from podslice import InputError
from podslice.cli.options.config import ConfigSource
from podslice.cli.options.node_files import load_config

_HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    drop_ins = tmp_path / "kubelet.conf.d"
    drop_ins.mkdir()
    (tmp_path / "config.yaml").write_text(
        _HEAD + "maxPods: 10\nkubeReserved: {cpu: '1', memory: 1Gi}\nfeatureGates: {MemoryQoS: true}\n"
    )
    (drop_ins / "10-a.conf").write_text(_HEAD + "maxPods: 11\nkubeReserved: {cpu: '2'}\ncpuManagerPolicy: none\n")
    (drop_ins / "20-b.conf").write_text(_HEAD + "cpuManagerPolicy: static\n")
    (drop_ins / "30-c.yaml").write_text(_HEAD + "cpuManagerPolicy: none\n")
    return tmp_path


def test_later_sources_override_earlier_ones(folder: Path) -> None:
    """The file, then the drop-ins by name, then the flags; other files of the folder are not read."""
    source = ConfigSource(
        str(folder / "config.yaml"), str(folder / "kubelet.conf.d"), "--max-pods=12 --feature-gates=KubeletPSI=true"
    )
    loaded = load_config(source, ())
    config = loaded.config
    assert (config.max_pods, config.cpu_manager_policy) == (12, "static")
    assert config.kube_reserved == {"cpu": "2", "memory": "1Gi"}
    assert config.feature_gates == {"MemoryQoS": True, "KubeletPSI": True}
    assert [Path(origin).name for origin in loaded.origins] == ["10-a.conf", "20-b.conf"]
    assert loaded.assumed == ()


def test_flags_override_drop_ins_also_where_they_are_the_file(folder: Path) -> None:
    """A command line as --config still counts last, and its map replaces that of the files."""
    line = folder / "ps"
    line.write_text("/usr/bin/kubelet --config=/x.yaml --max-pods=5 --kube-reserved=memory=2Gi\n")
    config = load_config(ConfigSource(str(line), str(folder / "kubelet.conf.d")), ()).config
    assert (config.max_pods, config.kube_reserved, config.cpu_manager_policy) == (5, {"memory": "2Gi"}, "static")


def test_a_folder_alone_is_a_folder_of_drop_ins(folder: Path) -> None:
    """Nothing is known of the file below them, which is said."""
    loaded = load_config(ConfigSource(str(folder / "kubelet.conf.d")), ())
    assert loaded.config.max_pods == 11
    assert loaded.assumed == ("the file that the drop-ins are merged over sets nothing: --config did not name it",)


def test_thresholds_of_a_drop_in_join_the_default_ones(folder: Path) -> None:
    """Maps are merged key by key, over the kubelet's defaults where the file has none."""
    (folder / "kubelet.conf.d" / "40-d.conf").write_text(_HEAD + "evictionHard: {memory.available: 1Gi}\n")
    loaded = load_config(ConfigSource(str(folder / "config.yaml"), str(folder / "kubelet.conf.d")), ())
    assert loaded.config.eviction_thresholds["memory.available"] == "1Gi"
    assert loaded.config.eviction_thresholds["nodefs.available"] == "10%"
    assert "evictionHard of a drop-in" in loaded.assumed[0]


def test_a_file_beside_a_command_line_needs_no_assumption(folder: Path) -> None:
    """The file that the flags name is there."""
    source = ConfigSource(str(folder / "config.yaml"), None, "kubelet --config=/var/lib/kubelet/config.yaml --v=2")
    assert load_config(source, ()).assumed == ()
    assert load_config(source._replace(path=None), ()).assumed != ()


def test_a_command_of_a_process_is_read(tmp_path: Path) -> None:
    """The words of /proc/PID/cmdline end with NUL bytes."""
    (tmp_path / "cmdline").write_bytes(b"/usr/bin/kubelet\0--max-pods=5\0--node-labels=a=b c\0")
    assert load_config(ConfigSource(str(tmp_path / "cmdline")), ()).config.max_pods == 5


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (ConfigSource(directory="none"), "none: is not a folder"),
        (ConfigSource(directory="{}"), "holds no drop-ins, which are files *.conf"),
        (ConfigSource(directory="{}/bad"), "10.conf: kind: is not KubeletConfiguration"),
        (ConfigSource(arguments="--max-pod=5"), "--kubelet-args: line 1: --max-pod: is not a flag of a kubelet"),
        (ConfigSource(arguments="static"), "--kubelet-args: "),
    ],
)
def test_wrong_sources_are_named(tmp_path: Path, source: ConfigSource, problem: str) -> None:
    """One line that names the option or the file."""
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "10.conf").write_text("maxPods: 5\n")
    if source.directory == "{}":
        (tmp_path / "bad" / "10.conf").unlink()
    directory = None if source.directory is None else source.directory.format(tmp_path)
    with pytest.raises(InputError) as caught:
        load_config(source._replace(directory=directory), ())
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)
